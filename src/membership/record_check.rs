//! Checks whether what a journal says is possible. The journal's checksums show that it was written so. But the writer
//! may have been wrong, or not this library. A scheduler that went on with a rank beyond the cluster's size, or a group
//! of a group that never was, would break later, and where nobody looks for the cause.
//!
//! Invariant: a scheduler can take up (`promises.rs`) and go on with what passes here. What a restarted scheduler takes
//! as it is (names, hosts, keys and values of the store) is not looked at. Tested in `record_check_test.rs`, with
//! senseless records of every kind, and by every restart of `src/sim`.

use super::group_table::FIRST_MADE;
use super::ranks::canonical;
use crate::types::{CallKind, Epoch, GroupId, Role};
use crate::wire::{ByMembersRecord, CreationRecord, EpochRecord, FreedRecord, GroupRecord, Record, StoreRecord};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Heartbeat time-outs that settings can ask for lie well within these, in milliseconds.
const HEARTBEAT_MS: std::ops::RangeInclusive<u64> = 10..=u32::MAX as u64;
/// More groups than a job can have made.
pub(super) const GROUPS_MAX: u32 = 1 << 31;

/// A record that cannot have been written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absurd {
    /// The number of the record, from 0.
    pub record: usize,
    /// Why it cannot have been written, as the end of a sentence.
    pub words: String,
}

/// What the records have said so far.
struct Recorded {
    workers: u32,
    servers: u32,
    generation: u64,
    epoch: Option<Epoch>,
    /// Every group that was ever made.
    groups: HashMap<GroupId, BTreeSet<u32>>,
    creations: HashSet<(GroupId, u64)>,
    /// The names of the groups that their members made: list, tag, number.
    by_members: HashSet<(Vec<u32>, String, u64)>,
}

/// Looks at all records of a job of so many workers and servers, in order.
pub fn check_records(workers: u32, servers: u32, records: &[Record]) -> Result<(), Absurd> {
    let (groups, creations, by_members) = (HashMap::new(), HashSet::new(), HashSet::new());
    let mut recorded = Recorded { workers, servers, generation: 0, epoch: None, groups, creations, by_members };
    for (at, record) in records.iter().enumerate() {
        let is_last = at + 1 == records.len();
        let sense = match record {
            Record::Job(_) if at == 0 => Ok(()),
            Record::Job(_) => Err("the job begins once more".to_owned()),
            Record::Done if is_last => Ok(()),
            Record::Done => Err("something follows the end of the job".to_owned()),
            Record::Generation(number) => recorded.generation(*number),
            Record::Epoch(epoch) => recorded.epoch(epoch),
            _ if recorded.epoch.is_none() => Err("something happens before the first epoch".to_owned()),
            Record::Creation(creation) => recorded.creation(creation),
            Record::ByMembers(made) => recorded.by_members(made),
            Record::Freed(freed) => recorded.freed(freed),
            Record::Store(change) => recorded.store(change),
            Record::Left(node) | Record::Abandoned(node) => recorded.node(*node),
        };
        sense.map_err(|words| Absurd { record: at, words })?;
    }
    Ok(())
}

type Sense = Result<(), String>;

fn sense(holds: bool, otherwise: impl FnOnce() -> String) -> Sense {
    match holds {
        true => Ok(()),
        false => Err(otherwise()),
    }
}

impl Recorded {
    fn size(&self) -> u32 {
        self.workers.saturating_add(self.servers)
    }

    fn node(&self, index: u32) -> Sense {
        sense(index < self.size(), || format!("node {index} of {} nodes", self.size()))
    }

    fn generation(&mut self, number: u64) -> Sense {
        let before = std::mem::replace(&mut self.generation, number);
        sense(number > before && number < u64::MAX, || format!("start {number} of the scheduler after start {before}"))
    }

    fn epoch(&mut self, record: &EpochRecord) -> Sense {
        let (epoch, before) = (record.epoch, self.epoch.replace(record.epoch).unwrap_or(Epoch(0)));
        sense(epoch > before && epoch.0 < u64::MAX, || format!("epoch {} after epoch {}", epoch.0, before.0))?;
        let silence = record.agreed.heartbeat_timeout_ms;
        sense(HEARTBEAT_MS.contains(&silence), || format!("a heartbeat time-out of {silence} ms"))?;
        let (members, size) = (record.members.len(), self.size());
        sense(members == size as usize, || format!("an epoch of {members} nodes in a job of {size}"))?;
        let (mut places, mut names, mut lives) = (HashSet::new(), HashSet::new(), HashSet::new());
        for member in &record.members {
            let (role, rank, name) = (member.register.role, member.rank, &member.register.node_id);
            let ranks = match role {
                Role::Worker => self.workers,
                Role::Server => self.servers,
                Role::Scheduler => 0,
            };
            sense(rank < ranks, || format!("{role} rank {rank}, of {ranks}"))?;
            sense(places.insert((role, rank)), || format!("{role} rank {rank} twice in one epoch"))?;
            sense(names.insert(canonical(name)), || format!("node id {name:?} twice in one epoch"))?;
            sense(lives.insert(member.register.incarnation), || "one life in two places".to_owned())?;
            let restarts = member.restarts;
            sense(restarts < u32::MAX, || format!("a node that has come back {restarts} times"))?;
        }
        Ok(())
    }

    fn members(&self, group: GroupId) -> Option<BTreeSet<u32>> {
        match group {
            GroupId::WORLD => Some((0..self.workers).collect()),
            GroupId::SERVERS => Some((self.workers..self.size()).collect()),
            GroupId::UNIVERSE => Some((0..self.size()).collect()),
            made => self.groups.get(&made).cloned(),
        }
    }

    fn creation(&mut self, record: &CreationRecord) -> Sense {
        let CreationRecord { parent, nth, by, call, groups } = record;
        let parents = self.members(*parent).ok_or_else(|| format!("a group made of {parent}, which never was"))?;
        sense(parents.contains(by), || format!("a group of {parent} wanted by node {by}, which is not in it"))?;
        let is_one = call.kind == CallKind::GroupCreate;
        sense(is_one || call.kind == CallKind::GroupSplit, || format!("a group made by {}", call.kind))?;
        sense(!is_one || groups.len() <= 1, || format!("{} groups made by one {}", groups.len(), call.kind))?;
        let is_countable = (1..u64::from(GROUPS_MAX)).contains(nth);
        sense(is_countable && self.creations.insert((*parent, *nth)), || format!("creation {nth} of {parent}"))?;
        let mut placed = BTreeSet::new();
        let of = format!("of {parent}");
        groups.iter().try_for_each(|made| self.made(made, &parents, &mut placed, &of))
    }

    /// Checks one group, made of these nodes. The nodes in `placed` have their places in other groups already.
    fn made(&mut self, made: &GroupRecord, of: &BTreeSet<u32>, placed: &mut BTreeSet<u32>, whose: &str) -> Sense {
        let (group, number) = (made.group, made.group.0);
        sense((FIRST_MADE..GROUPS_MAX).contains(&number), || format!("a made group with the number {number}"))?;
        sense(!made.members.is_empty(), || format!("{group} without members"))?;
        for member in &made.members {
            let is_free = of.contains(member) && placed.insert(*member);
            sense(is_free, || format!("node {member} in {group}, made {whose}"))?;
        }
        let before = self.groups.insert(group, made.members.iter().copied().collect());
        sense(before.is_none(), || format!("{group} made twice"))
    }

    fn by_members(&mut self, record: &ByMembersRecord) -> Sense {
        let GroupRecord { group, members, .. } = &record.group;
        let name = (members.clone(), record.tag.clone(), record.nth);
        sense(record.nth > 0 && self.by_members.insert(name), || format!("{group} made twice by its members"))?;
        self.made(&record.group, &(0..self.workers).collect(), &mut BTreeSet::new(), "of workers")
    }

    fn freed(&self, record: &FreedRecord) -> Sense {
        let FreedRecord { group, by, .. } = record;
        let was_in = self.groups.get(group).is_some_and(|members| members.contains(by));
        sense(was_in, || format!("{group} freed by node {by}, which was not in it"))
    }

    fn store(&self, record: &StoreRecord) -> Sense {
        if let Some((node, ..)) = record.by {
            self.node(node)?;
        }
        let is_a_change = !record.entries.is_empty() || record.by.is_some();
        sense(is_a_change, || "a change of the store that changes nothing".to_owned())
    }
}

#[cfg(test)]
#[path = "record_check_test.rs"]
mod tests;
