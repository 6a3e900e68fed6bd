//! Groups that the user makes. All members of the parent ask; then all get the same answer. Tested in `groups_test.rs` and
//! `freed_test.rs`.

use super::standing::Presence;
use super::timers::Due;
use super::Scheduler;
use crate::error::{Failure, Status};
use crate::types::{hash, Call, CallKind, GroupId, Time};
use crate::wire::{
    FreedRecord, GroupFreed, GroupMade, GroupRecord, GroupWish, MakeGroup, MakingRecord, Makings, Message, Record,
    MAKINGS_MAX,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The first number of a group that is made.
pub(super) const FIRST_MADE: u32 = GroupId::UNIVERSE.0 + 1;

/// How long members whose histories differ have to say what they called before; they do once they have waited for 0.3 s.
const COMPARED_WITHIN: Duration = Duration::from_millis(600);

/// The groups that were made, and those that are being made.
#[derive(Debug, Default)]
pub(super) struct Groups {
    made: BTreeMap<GroupId, Made>,
    makings: BTreeMap<(GroupId, u64), Making>,
    /// How many were ever made: numbers are never used again.
    count: u32,
}

/// One group.
#[derive(Debug)]
struct Made {
    /// Indices, in order of rank.
    members: Vec<u32>,
    /// The members that have freed it.
    freed: BTreeSet<u32>,
}

/// The n-th making of a group of one parent.
#[derive(Debug, Default)]
struct Making {
    sequence: u64,
    wishes: BTreeMap<u32, GroupWish>,
    /// The one that asked first, and what it had called before.
    history: Option<(u32, u32)>,
    /// One who had called something else, and since when that is known: it is not made then.
    differs: Option<(u32, Time)>,
    /// What it was, and one who wanted it, once it is done.
    call: Option<(u32, Call)>,
    /// Once all have asked: what each member of the parent is in. Kept until the next one, for whoever asks again.
    done: Option<Vec<(GroupId, Vec<u32>)>>,
}

impl Groups {
    /// The members of a group that was made.
    pub(super) fn members(&self, group: GroupId) -> Option<&[u32]> {
        self.made.get(&group).map(|made| &made.members[..])
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

    /// What was to be made of a group that is revoked will not be.
    pub(super) fn give_up(&mut self, parent: GroupId) {
        self.makings.retain(|(of, _), making| *of != parent || making.done.is_some());
    }

    /// Every group that was made and is in use.
    pub(super) fn all(&self) -> Vec<GroupId> {
        self.made.keys().copied().collect()
    }

    /// A new epoch counts its makings anew; with recovery it goes on counting, and what was made is told again to nodes that
    /// come back.
    pub(super) fn begin_epoch(&mut self, recovery: bool) {
        self.makings.retain(|_, making| recovery && making.done.is_some());
    }

    /// A node that comes back makes its groups again, and frees them again.
    pub(super) fn uses_again(&mut self, key: u32) {
        for made in self.made.values_mut() {
            made.freed.remove(&key);
        }
    }

    /// One making that is done, as it is written down.
    fn record(&self, parent: GroupId, nth: u64) -> Option<MakingRecord> {
        let making = self.makings.get(&(parent, nth))?;
        let ((by, call), done) = (making.call?, making.done.as_ref()?);
        let group = |(group, members): &(GroupId, Vec<u32>)| {
            let used = self.made.contains_key(group);
            GroupRecord { group: *group, members: members.clone(), used }
        };
        Some(MakingRecord { parent, nth, by, call, groups: done.iter().map(group).collect() })
    }

    /// All makings that are done, and who has freed which of their groups.
    pub(super) fn records(&self) -> Vec<Record> {
        let made = self.makings.keys().filter_map(|(parent, nth)| self.record(*parent, *nth)).map(Record::Making);
        let freed = self.made.iter().flat_map(|(group, made)| {
            made.freed.iter().map(|by| Record::Freed(FreedRecord { group: *group, by: *by, last: false }))
        });
        made.chain(freed).collect()
    }

    /// A making that was written down.
    pub(super) fn restore(&mut self, record: MakingRecord) {
        let MakingRecord { parent, nth, by, call, groups } = record;
        for GroupRecord { group, members, used } in &groups {
            self.count = self.count.max(group.0 + 1 - FIRST_MADE);
            if *used {
                self.made.insert(*group, Made { members: members.clone(), freed: BTreeSet::new() });
            }
        }
        let done = groups.into_iter().map(|made| (made.group, made.members)).collect();
        let making = Making { call: Some((by, call)), done: Some(done), ..Making::default() };
        self.makings.insert((parent, nth), making);
    }

    /// That a group was freed was written down.
    pub(super) fn restore_freed(&mut self, record: &FreedRecord) {
        if record.last {
            self.made.remove(&record.group);
        } else if let Some(made) = self.made.get_mut(&record.group) {
            made.freed.insert(record.by);
        }
    }

    /// Whether this node uses a group.
    #[cfg(test)]
    pub(super) fn uses(&self, key: u32, group: GroupId) -> bool {
        self.made.get(&group).is_some_and(|made| made.members.contains(&key) && !made.freed.contains(&key))
    }

    /// How many groups there are.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.made.len()
    }

    /// How many entries there are, of whatever kind.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.made.len() + self.makings.len()
    }
}

impl Scheduler {
    /// Of which of a node's groups others have been made, and how many.
    pub(super) fn makings_of(&self, key: u32) -> Vec<Makings> {
        let done = self.groups.makings.iter().filter(|(_, making)| making.done.is_some());
        let mut counts: BTreeMap<GroupId, u64> = BTreeMap::new();
        for ((parent, nth), _) in done.filter(|_| self.rules.recovery) {
            let count = counts.entry(*parent).or_default();
            *count = (*count).max(*nth);
        }
        let own = counts.into_iter().filter(|(parent, _)| self.was_in(*parent, key));
        own.map(|(parent, count)| Makings { parent, count }).take(MAKINGS_MAX).collect()
    }

    /// Whether a node is, or was, a member of a group.
    fn was_in(&self, group: GroupId, key: u32) -> bool {
        let made = self.groups.makings.values().flat_map(|making| &making.done).flatten();
        self.is_in(group, key) || made.into_iter().any(|(made, members)| *made == group && members.contains(&key))
    }

    /// A node makes once more what was made before it came back; whether that is so.
    fn make_again(&mut self, now: Time, key: u32, wanted: &MakeGroup) -> bool {
        let (parent, nth, call) = (wanted.parent, wanted.nth, call(&wanted.wish));
        let Some(making) = self.groups.makings.get(&(parent, nth)).filter(|making| making.done.is_some()) else {
            return false;
        };
        let Some((_, made)) = making.call.filter(|(_, made)| made.signature() != call.signature()) else {
            for (group, _) in making.done.iter().flatten() {
                if let Some(made) = self.groups.made.get_mut(group) {
                    made.freed.remove(&key);
                }
            }
            self.tell_made(key, parent, nth);
            return true;
        };
        // Its own earlier life may be the one that wanted the other: no process is named for that.
        let cause = format!(
            "{} came back and called {call} as making #{nth} of {parent}, which was made by {made} in an earlier epoch: a node \
             that comes back makes its groups again in the order in which it first did",
            self.in_words(key)
        );
        self.disagree(now, parent, wanted.sequence, cause);
        true
    }

    pub(super) fn make_group(&mut self, now: Time, key: u32, wanted: MakeGroup) {
        if !self.revoked.contains_key(&wanted.parent)
            && !self.job.is_broken()
            && self.was_in(wanted.parent, key)
            && self.make_again(now, key, &wanted)
        {
            return;
        }
        let MakeGroup { parent, nth, sequence, history, wish } = wanted;
        let Some(members) = self.members_of(parent).filter(|members| members.contains(&key)) else {
            return self.note(format!("node {key} makes a group of {parent}, of which it is no member: ignored"));
        };
        if self.revoked.contains_key(&parent) || self.job.is_broken() {
            return; // it has been told
        }
        if let GroupWish::Ranks(ranks) = &wish {
            let distinct: BTreeSet<&u32> = ranks.iter().collect();
            if distinct.len() != ranks.len() || ranks.iter().any(|rank| *rank as usize >= members.len()) {
                return self.note(format!("node {key} makes a group of ranks that {parent} does not have: ignored"));
            }
        }
        let call = call(&wish);
        if let Some(other) = self.calls.entry(parent).or_default().disagreement(key, sequence, call) {
            return self.differ(now, parent, sequence, (key, call), other);
        }
        let making = self.groups.makings.entry((parent, nth)).or_default();
        making.sequence = sequence;
        making.wishes.insert(key, wish);
        let (_, first) = *making.history.get_or_insert((key, history));
        if first != history && making.differs.is_none() {
            making.differs = Some((key, now));
            self.timers.at(now + COMPARED_WITHIN, Due::Makings);
        }
        if making.done.is_none() && making.differs.is_none() && making.wishes.len() == members.len() {
            let wishes = std::mem::take(&mut making.wishes);
            let groups = divided(&members, &wishes);
            let made: Vec<(GroupId, Vec<u32>)> = groups.into_iter().map(|members| self.groups.make(members)).collect();
            // A node that has asked for this one has had the answer to the one before.
            if !self.rules.recovery {
                self.groups.makings.remove(&(parent, nth.saturating_sub(1)));
            }
            if let Some(making) = self.groups.makings.get_mut(&(parent, nth)) {
                making.call = Some((key, call));
                making.done = Some(made);
            }
            if let Some(record) = self.groups.record(parent, nth) {
                self.promise(Record::Making(record));
            }
            return members.into_iter().for_each(|member| self.tell_made(member, parent, nth));
        }
        self.settle_makings(now);
    }

    /// Tells a member what became of a making, if it is done.
    fn tell_made(&mut self, key: u32, parent: GroupId, nth: u64) {
        let Some(done) = self.groups.makings.get(&(parent, nth)).and_then(|making| making.done.as_ref()) else {
            return;
        };
        let own = done.iter().find(|(_, members)| members.contains(&key));
        let (group, members) = own.map_or((None, Vec::new()), |(group, members)| (Some(*group), members.clone()));
        self.send_to(key, Message::GroupMade(GroupMade { parent, nth, group, members }));
    }

    /// A making that needs one who has left cannot end; nor one whose makers have not called the same before.
    pub(super) fn settle_makings(&mut self, now: Time) {
        let mut stuck = Vec::new();
        for ((parent, _), making) in self.groups.makings.iter().filter(|(_, making)| making.done.is_none()) {
            if let Some(failure) = self.differing(now, *parent, making) {
                stuck.push(failure);
                continue;
            }
            let missing = self.members_of(*parent).into_iter().flatten().filter(|key| !making.wishes.contains_key(key));
            let left = |key: &u32| self.nodes.get(key).is_some_and(|node| node.presence == Presence::Left);
            if let Some(node) = missing.into_iter().find(left).and_then(|key| self.nodes.get(&key)) {
                let kind = making.wishes.values().next().map_or(CallKind::GroupCreate, |wish| call(wish).kind);
                let sequence = making.sequence;
                stuck.push(Failure {
                    status: Status::PeerLeft,
                    culprit: Some(node.culprit()),
                    cause: format!("has left the cluster, and {kind} #{sequence} on {parent} needs it"),
                    epoch: self.epoch,
                    group: Some(*parent),
                    sequence,
                });
            }
        }
        for failure in stuck {
            if let Some(parent) = failure.group {
                self.revoke_group(now, parent, failure);
            }
        }
    }

    /// Why a making cannot be, if its makers have called different collectives before, and have not said which in time.
    fn differing(&self, now: Time, parent: GroupId, making: &Making) -> Option<Failure> {
        let (other, _) = making.differs.filter(|(_, since)| now >= *since + COMPARED_WITHIN)?;
        let (first, _) = making.history?;
        let (sequence, both) = (making.sequence, call(making.wishes.get(&first)?));
        let (one, other) = (self.in_words(first.min(other)), self.in_words(first.max(other)));
        let cause =
            format!("{one} and {other} called {both} as collective #{sequence} on {parent}, but not the same before");
        Some(Failure {
            status: Status::Mismatch,
            culprit: None,
            cause,
            epoch: self.epoch,
            group: Some(parent),
            sequence,
        })
    }

    /// A node that has left uses no group any more.
    pub(super) fn free_groups_of(&mut self, key: u32) {
        let of = |(group, made): (&GroupId, &Made)| made.members.contains(&key).then_some(*group);
        let groups: Vec<GroupId> = self.groups.made.iter().filter_map(of).collect();
        for group in groups {
            let _ = self.end_use(key, group);
        }
    }

    /// A node uses a group no longer: a scheduler that is started again is to know. The node says so until it is told that this
    /// is kept, also of a group that is kept no more: then it was told in vain.
    pub(super) fn free_group(&mut self, key: u32, group: GroupId) {
        if let Some(last) = self.end_use(key, group) {
            self.promise(Record::Freed(FreedRecord { group, by: key, last }));
        }
        self.send_to(key, Message::GroupFreed(GroupFreed { group }));
    }

    /// Whether nobody uses the group any more; nothing, where this node did not.
    fn end_use(&mut self, key: u32, group: GroupId) -> Option<bool> {
        let made = self.groups.made.get_mut(&group).filter(|made| made.members.contains(&key))?;
        if !made.freed.insert(key) {
            return None;
        }
        if made.freed.len() < made.members.len() {
            return Some(false);
        }
        self.groups.made.remove(&group);
        if !self.rules.recovery {
            self.groups.makings.retain(|(parent, _), _| *parent != group);
        }
        self.calls.remove(&group);
        self.revoked.remove(&group);
        for node in self.nodes.values_mut() {
            node.progress.retain(|(progress, _)| progress.group != group);
        }
        Some(true)
    }
}

/// The making as a collective of the parent.
fn call(wish: &GroupWish) -> Call {
    let call = Call { kind: CallKind::GroupSplit, dtype: None, op: None, root: None, count: 0, layout: 0 };
    match wish {
        GroupWish::Ranks(ranks) => Call {
            kind: CallKind::GroupCreate,
            count: ranks.len() as u64,
            layout: hash(ranks.iter().map(|rank| u64::from(*rank))),
            ..call
        },
        GroupWish::Colour { .. } => call,
    }
}

/// The groups that the members' wishes come to. They agree on how a group is made, as their calls do.
fn divided(members: &[u32], wishes: &BTreeMap<u32, GroupWish>) -> Vec<Vec<u32>> {
    let mut colours: BTreeMap<u32, Vec<(i32, usize)>> = BTreeMap::new();
    for (rank, member) in members.iter().enumerate() {
        match wishes.get(member) {
            Some(GroupWish::Ranks(ranks)) => {
                let group: Vec<u32> = ranks.iter().filter_map(|rank| members.get(*rank as usize).copied()).collect();
                return if group.is_empty() { Vec::new() } else { vec![group] };
            }
            Some(GroupWish::Colour { colour: Some(colour), key }) => {
                colours.entry(*colour).or_default().push((*key, rank));
            }
            Some(GroupWish::Colour { colour: None, .. }) | None => {}
        }
    }
    let ordered = |mut group: Vec<(i32, usize)>| {
        group.sort_unstable();
        group.into_iter().map(|(_, rank)| members[rank]).collect()
    };
    colours.into_values().map(ordered).collect()
}

#[cfg(test)]
#[path = "freed_test.rs"]
mod freed_tests;
#[cfg(test)]
#[path = "groups_test.rs"]
mod tests;
