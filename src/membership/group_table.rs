//! Which groups there are, and which members each has: the built-in ones, and those that the user makes.
//!
//! Invariants: a number is never used again; nothing is kept of a group that nobody uses any more, but for the
//! creations of a job with recovery, which nodes that come back ask for again. Tested in `groups_test.rs` and `freed_test.rs`,
//! through the whole brain.

use super::pacts::{Name, Pacts};
use crate::types::{Call, GroupId, Time};
use crate::wire::{
    ByMembersRecord, CreationRecord, Creations, FreedRecord, GroupRecord, GroupWish, Record, CREATIONS_MAX,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The first number of a group that is made.
pub(super) const FIRST_MADE: u32 = GroupId::UNIVERSE.0 + 1;

/// How many creations of groups of one parent may be open at a time.
pub(super) const OPEN_MAX: usize = 16;

/// All groups: the built-in ones, those that were made, and those that are being made.
#[derive(Debug)]
pub(super) struct GroupTable {
    worker_num: u32,
    server_num: u32,
    /// Whether creations are told again to nodes that come back.
    recovery: bool,
    made: BTreeMap<GroupId, Made>,
    creations: BTreeMap<(GroupId, u64), Creation>,
    /// The creations that are not done.
    open: BTreeSet<(GroupId, u64)>,
    /// The groups that their members make by themselves.
    pub(super) pacts: Pacts,
    /// How many groups were ever made: numbers are never used again.
    count: u32,
}

/// One group.
#[derive(Debug)]
struct Made {
    /// The members' indices, in order of rank.
    members: Vec<u32>,
    /// The members that have freed it.
    freed: BTreeSet<u32>,
}

/// The n-th creation of a group of one parent.
#[derive(Debug, Default)]
pub(super) struct Creation {
    pub(super) sequence: u64,
    pub(super) wishes: BTreeMap<u32, GroupWish>,
    /// The node that asked first, and the digest of what it had called before.
    pub(super) digest: Option<(u32, u32)>,
    /// A node that had called something else, and since when that is known: then the groups are not made.
    pub(super) differs: Option<(u32, Time)>,
    /// Once the creation is done: a node that wanted it, and its call.
    pub(super) call: Option<(u32, Call)>,
    /// Once all have asked: the groups that were made, with their members. Kept until the next creation, for nodes that
    /// ask again.
    pub(super) done: Option<Vec<(GroupId, Vec<u32>)>>,
}

impl GroupTable {
    pub(super) fn new(worker_num: u32, server_num: u32, recovery: bool) -> GroupTable {
        let (made, creations, open, pacts) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new(), Pacts::default());
        GroupTable { worker_num, server_num, recovery, made, creations, open, pacts, count: 0 }
    }

    /// The indices of a group's members, in order of rank; none for a group that is not known here.
    pub(super) fn members_of(&self, group: GroupId) -> Option<Vec<u32>> {
        match self.built_in(group) {
            Some(range) => Some(range.collect()),
            None => self.made.get(&group).map(|made| made.members.clone()),
        }
    }

    /// Whether a node is a member of a group.
    pub(super) fn is_in(&self, group: GroupId, key: u32) -> bool {
        match self.built_in(group) {
            Some(range) => range.contains(&key),
            None => self.made.get(&group).is_some_and(|made| made.members.contains(&key)),
        }
    }

    /// Whether a node is a member of a group, and has not freed it.
    pub(super) fn is_used_by(&self, key: u32, group: GroupId) -> bool {
        self.is_in(group, key) && !self.made.get(&group).is_some_and(|made| made.freed.contains(&key))
    }

    fn built_in(&self, group: GroupId) -> Option<Range<u32>> {
        let (workers, all) = (self.worker_num, self.worker_num + self.server_num);
        match group {
            GroupId::WORLD => Some(0..workers),
            GroupId::SERVERS => Some(workers..all),
            GroupId::UNIVERSE => Some(0..all),
            _ => None,
        }
    }

    /// Whether a node is, or was, a member of a group.
    pub(super) fn was_in(&self, group: GroupId, key: u32) -> bool {
        let made = self.creations.values().flat_map(|creation| &creation.done).flatten();
        self.is_in(group, key)
            || made.into_iter().any(|(made, members)| *made == group && members.contains(&key))
            || self.pacts.has_made(group, key)
    }

    /// The groups of a node from which others have been made, and how many creations each of them has had. Those in use come
    /// first: no more than [`CREATIONS_MAX`] are told.
    pub(super) fn creations_of(&self, key: u32) -> Vec<Creations> {
        let done = self.creations.iter().filter(|(_, creation)| creation.done.is_some());
        let mut counts: BTreeMap<GroupId, u64> = BTreeMap::new();
        for ((parent, nth), _) in done.filter(|_| self.recovery) {
            let count = counts.entry(*parent).or_default();
            *count = (*count).max(*nth);
        }
        let own = counts.into_iter().filter(|(parent, _)| self.was_in(*parent, key));
        let (used, freed): (Vec<_>, Vec<_>) = own
            .map(|(parent, count)| Creations { parent, count })
            .partition(|made| self.built_in(made.parent).is_some() || self.is_used(made.parent));
        used.into_iter().chain(freed).take(CREATIONS_MAX).collect()
    }

    /// The creation of this number, if it was begun.
    pub(super) fn creation(&self, parent: GroupId, nth: u64) -> Option<&Creation> {
        self.creations.get(&(parent, nth))
    }

    /// The creation of this number, which begins now if it has not.
    pub(super) fn creation_mut(&mut self, parent: GroupId, nth: u64) -> &mut Creation {
        let (open, of) = (&mut self.open, (parent, nth));
        self.creations.entry(of).or_insert_with(|| {
            open.insert(of);
            Creation::default()
        })
    }

    /// Whether one more creation may be begun. Members make the groups of one parent one after the other, so that
    /// hardly more than one is open.
    pub(super) fn may_begin(&self, parent: GroupId, nth: u64) -> bool {
        let of_parent = self.open.range((parent, 0)..=(parent, u64::MAX));
        self.creations.contains_key(&(parent, nth)) || of_parent.take(OPEN_MAX).count() < OPEN_MAX
    }

    /// The creations that are not done, by parent and number.
    pub(super) fn open_creations(&self) -> impl Iterator<Item = (GroupId, u64)> + '_ {
        self.open.iter().copied()
    }

    /// A creation is done, by this call of this node, and has led to groups of these members. Returns the record of it.
    pub(super) fn finish(
        &mut self,
        parent: GroupId,
        nth: u64,
        call: (u32, Call),
        groups: Vec<Vec<u32>>,
    ) -> CreationRecord {
        let done: Vec<(GroupId, Vec<u32>)> = groups.into_iter().map(|members| self.make(members)).collect();
        // A node that has asked for this creation has had the answer to the one before.
        if !self.recovery {
            self.creations.remove(&(parent, nth.saturating_sub(1)));
            self.open.remove(&(parent, nth.saturating_sub(1)));
        }
        let creation = self.creation_mut(parent, nth);
        (creation.call, creation.done) = (Some(call), Some(done));
        self.open.remove(&(parent, nth));
        self.record(parent, nth).expect("it was just done")
    }

    /// A node makes the groups of this creation once more: it uses them again.
    pub(super) fn is_made_again(&mut self, parent: GroupId, nth: u64, by: u32) {
        let done = self.creations.get(&(parent, nth)).and_then(|creation| creation.done.as_ref());
        let groups: Vec<GroupId> = done.into_iter().flatten().map(|(group, _)| *group).collect();
        groups.into_iter().for_each(|group| self.uses(group, by));
    }

    /// A node uses a group, perhaps once more.
    pub(super) fn uses(&mut self, group: GroupId, by: u32) {
        if let Some(made) = self.made.get_mut(&group) {
            made.freed.remove(&by);
        }
    }

    /// Whether anybody uses a group that was made.
    fn is_used(&self, group: GroupId) -> bool {
        self.made.contains_key(&group)
    }

    /// The groups that were made with this node.
    pub(super) fn made_with(&self, key: u32) -> Vec<GroupId> {
        self.made.iter().filter(|(_, made)| made.members.contains(&key)).map(|(group, _)| *group).collect()
    }

    /// A node uses a group no longer. Returns whether nobody uses it any more; nothing where this node did not use it.
    pub(super) fn end_use(&mut self, key: u32, group: GroupId) -> Option<bool> {
        let made = self.made.get_mut(&group).filter(|made| made.members.contains(&key))?;
        if !made.freed.insert(key) {
            return None;
        }
        let is_last = made.freed.len() == made.members.len();
        if is_last {
            self.made.remove(&group);
            if !self.recovery {
                self.creations.retain(|(parent, _), _| *parent != group);
                self.open.retain(|(parent, _)| *parent != group);
                self.pacts.forget(group);
            }
        }
        Some(is_last)
    }

    /// All members of this group have asked for it: it is made.
    pub(super) fn make_by_members(&mut self, name: Name) -> (GroupId, ByMembersRecord) {
        let (group, _) = self.make(name.members.clone());
        let record = name.record(group, true);
        self.pacts.is_made(name, group);
        (group, record)
    }

    /// Takes up the record of a group that its members made.
    pub(super) fn restore_by_members(&mut self, record: ByMembersRecord) {
        let ByMembersRecord { tag, nth, group } = record;
        self.restore_group(&group);
        self.pacts.is_made(Name { members: group.members, tag, nth }, group.group);
    }

    fn make(&mut self, members: Vec<u32>) -> (GroupId, Vec<u32>) {
        let group = GroupId(FIRST_MADE + self.count);
        self.count += 1;
        self.made.insert(group, Made { members: members.clone(), freed: BTreeSet::new() });
        (group, members)
    }

    /// The highest number that a group was ever given; 0: none.
    pub(super) fn highest(&self) -> u32 {
        self.count.checked_sub(1).map_or(0, |count| FIRST_MADE + count)
    }

    /// A group is revoked: what was still to be made of it will not be made.
    pub(super) fn give_up(&mut self, parent: GroupId) {
        self.creations.retain(|(of, _), creation| *of != parent || creation.done.is_some());
        self.open.retain(|(of, _)| *of != parent);
    }

    /// Every group that was made and is in use.
    pub(super) fn all(&self) -> Vec<GroupId> {
        self.made.keys().copied().collect()
    }

    /// Takes up that an epoch was written down after these creations. With recovery, what was made is told again in
    /// that epoch.
    pub(super) fn take_up_epoch(&mut self) {
        self.creations.retain(|_, creation| creation.done.is_some());
        self.open.clear();
        self.pacts.forget_open();
    }

    /// A new epoch begins, and counts its creations anew. With recovery the count goes on, and what was made is told
    /// again to nodes that come back.
    pub(super) fn begin_epoch(&mut self) {
        self.creations.retain(|_, creation| self.recovery && creation.done.is_some());
        self.open.clear();
        self.pacts.forget_open();
    }

    /// A node that comes back makes its groups again, and frees them again.
    pub(super) fn uses_again(&mut self, key: u32) {
        for made in self.made.values_mut() {
            made.freed.remove(&key);
        }
    }

    /// One creation that is done, as it is written down.
    fn record(&self, parent: GroupId, nth: u64) -> Option<CreationRecord> {
        let creation = self.creations.get(&(parent, nth))?;
        let ((by, call), done) = (creation.call?, creation.done.as_ref()?);
        let group = |(group, members): &(GroupId, Vec<u32>)| {
            let used = self.made.contains_key(group);
            GroupRecord { group: *group, members: members.clone(), used }
        };
        Some(CreationRecord { parent, nth, by, call, groups: done.iter().map(group).collect() })
    }

    /// The records of all groups that were made, and of which member has freed which of them. A group comes after its parent,
    /// which the members may have made.
    pub(super) fn records(&self) -> Vec<Record> {
        let made = self.creations.keys().filter_map(|(parent, nth)| self.record(*parent, *nth)).map(Record::Creation);
        let freed = self.made.iter().flat_map(|(group, made)| {
            made.freed.iter().map(|by| Record::Freed(FreedRecord { group: *group, by: *by, last: false }))
        });
        let by_members = self.pacts.records(|group| self.is_used(group)).into_iter().map(Record::ByMembers);
        by_members.chain(made).chain(freed).collect()
    }

    /// Takes up the record of a creation.
    pub(super) fn restore(&mut self, record: CreationRecord) {
        let CreationRecord { parent, nth, by, call, groups } = record;
        groups.iter().for_each(|group| self.restore_group(group));
        let done = groups.into_iter().map(|made| (made.group, made.members)).collect();
        let creation = Creation { call: Some((by, call)), done: Some(done), ..Creation::default() };
        self.open.remove(&(parent, nth));
        self.creations.insert((parent, nth), creation);
    }

    /// Takes up the record of one group.
    fn restore_group(&mut self, record: &GroupRecord) {
        self.count = self.count.max(record.group.0 + 1 - FIRST_MADE);
        if record.used {
            self.made.insert(record.group, Made { members: record.members.clone(), freed: BTreeSet::new() });
        }
    }

    /// Takes up the record that a group was freed.
    pub(super) fn restore_freed(&mut self, record: &FreedRecord) {
        if record.last {
            self.made.remove(&record.group);
        } else if let Some(made) = self.made.get_mut(&record.group) {
            made.freed.insert(record.by);
        }
    }

    /// How many groups there are.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.made.len()
    }

    /// How many entries there are, of whatever kind.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.made.len() + self.creations.len() + self.pacts.len()
    }
}
