//! Groups that the user makes. All members of the parent ask; then all get the same answer. Tested in `groups_test.rs` and
//! `freed_test.rs`.

use super::cluster_state::ClusterState;
use super::group_table::{Creation, OPEN_MAX};
use super::groups::Groups;
use super::record_check::GROUPS_MAX;
use super::timers::Due;
use crate::error::{Failure, Status};
use crate::strangers::Kind;
use crate::types::{hash, Call, CallKind, GroupId, Time};
use crate::wire::{FreedRecord, GroupFreed, GroupMade, GroupWish, MakeGroup, Message, Record, COMPARED_WITHIN};
use std::collections::{BTreeMap, BTreeSet};

/// No sane member asks for so many groups at once.
const TOO_MANY: Kind = Kind { name: "groups that were asked for beyond the limit", lines: 1 };

impl Groups {
    /// A node makes once more what was made before it came back. Returns whether this is such a case.
    fn make_again(&mut self, cluster: &mut ClusterState, now: Time, key: u32, wanted: &MakeGroup) -> bool {
        let (parent, nth, call) = (wanted.parent, wanted.nth, call(&wanted.wish));
        let Some(creation) = self.table.creation(parent, nth).filter(|creation| creation.done.is_some()) else {
            return false;
        };
        let Some((_, made)) = creation.call.filter(|(_, made)| made.signature() != call.signature()) else {
            self.table.is_made_again(parent, nth, key);
            self.tell_made(cluster, key, parent, nth);
            return true;
        };
        let culprit = cluster.nodes.get(&key).map(|node| node.culprit());
        let cause = format!(
            "{} came back and called {call} as creation #{nth} of {parent}, which was made by {made} in an earlier epoch: a node \
             that comes back makes its groups again in the order in which it first did",
            cluster.nodes.in_words(key)
        );
        let (status, epoch, group) = (Status::Mismatch, cluster.epoch, Some(parent));
        self.revoke_group(
            cluster,
            now,
            parent,
            Failure { status, culprit, cause, epoch, group, sequence: wanted.sequence },
        );
        true
    }

    pub(super) fn make_group(&mut self, cluster: &mut ClusterState, now: Time, key: u32, wanted: MakeGroup) {
        if !self.revoked.contains_key(&wanted.parent)
            && !cluster.job.is_broken()
            && self.table.was_in(wanted.parent, key)
            && self.make_again(cluster, now, key, &wanted)
        {
            return;
        }
        let MakeGroup { parent, nth, sequence, digest, wish } = wanted;
        let Some(members) = self.table.members_of(parent).filter(|members| members.contains(&key)) else {
            return cluster
                .out
                .note(format!("node {key} asks for a group of {parent}, but is not a member of it: ignored"));
        };
        if self.revoked.contains_key(&parent) || cluster.job.is_broken() {
            return; // it has been told
        }
        if let GroupWish::Ranks(ranks) = &wish {
            let distinct: BTreeSet<&u32> = ranks.iter().collect();
            if distinct.len() != ranks.len() || ranks.iter().any(|rank| *rank as usize >= members.len()) {
                return cluster
                    .out
                    .note(format!("node {key} asks for a group of ranks that {parent} does not have: ignored"));
            }
        }
        if !(1..u64::from(GROUPS_MAX)).contains(&nth) {
            return cluster.out.note(format!(
                "node {key} asks for group number {nth} of {parent}, a number that no group can have: ignored"
            ));
        }
        if !self.table.may_begin(parent, nth) {
            let line =
                format!("node {key} makes more than {OPEN_MAX} groups of {parent} at a time: the others are ignored");
            return cluster.out.nuisance(TOO_MANY, &cluster.nodes.in_words(key), &line);
        }
        let call = call(&wish);
        if let Some(other) = self.calls.entry(parent).or_default().disagreement(key, sequence, call) {
            return self.differ(cluster, now, parent, sequence, (key, call), other);
        }
        let creation = self.table.creation_mut(parent, nth);
        creation.sequence = sequence;
        creation.wishes.insert(key, wish);
        let (_, first) = *creation.digest.get_or_insert((key, digest));
        if first != digest && creation.differs.is_none() {
            creation.differs = Some((key, now));
            cluster.out.at(now + COMPARED_WITHIN, Due::Creations);
        }
        if creation.done.is_none() && creation.differs.is_none() && creation.wishes.len() == members.len() {
            let wishes = std::mem::take(&mut creation.wishes);
            let record = self.table.finish(parent, nth, (key, call), divided(&members, &wishes));
            cluster.out.promise(Record::Creation(record));
            return members.into_iter().for_each(|member| self.tell_made(cluster, member, parent, nth));
        }
        self.settle(cluster, now, &[(parent, nth)]);
    }

    /// Tells a member what became of a creation, if it is done.
    fn tell_made(&self, cluster: &mut ClusterState, key: u32, parent: GroupId, nth: u64) {
        let Some(done) = self.table.creation(parent, nth).and_then(|creation| creation.done.as_ref()) else { return };
        let own = done.iter().find(|(_, members)| members.contains(&key));
        let (group, members) = own.map_or((None, Vec::new()), |(group, members)| (Some(*group), members.clone()));
        cluster.send_to(key, Message::GroupMade(GroupMade { parent, nth, group, members }));
    }

    /// Ends the open creations that cannot be: they need a node that has left, or their makers called different
    /// collectives before.
    pub(super) fn settle_creations(&mut self, cluster: &mut ClusterState, now: Time) {
        let open: Vec<(GroupId, u64)> = self.table.open_creations().collect();
        self.settle(cluster, now, &open);
    }

    /// Ends those of these creations that cannot be.
    fn settle(&mut self, cluster: &mut ClusterState, now: Time, those: &[(GroupId, u64)]) {
        let mut stuck = Vec::new();
        for (parent, nth) in those.iter().copied() {
            let Some(creation) = self.table.creation(parent, nth).filter(|creation| creation.done.is_none()) else {
                continue;
            };
            if let Some(failure) = differing(cluster, now, parent, creation) {
                stuck.push(failure);
                continue;
            }
            let members = self.table.members_of(parent).into_iter().flatten();
            let mut missing = members.filter(|key| !creation.wishes.contains_key(key));
            let left = missing.find(|key| cluster.nodes.has_left(*key));
            if let Some(node) = left.and_then(|key| cluster.nodes.get(&key)) {
                let kind = creation.wishes.values().next().map_or(CallKind::GroupCreate, |wish| call(wish).kind);
                let sequence = creation.sequence;
                stuck.push(Failure {
                    status: Status::PeerLeft,
                    culprit: Some(node.culprit()),
                    cause: format!("has left the cluster, and {kind} #{sequence} on {parent} needs it"),
                    epoch: cluster.epoch,
                    group: Some(parent),
                    sequence,
                });
            }
        }
        for failure in stuck {
            if let Some(parent) = failure.group {
                self.revoke_group(cluster, now, parent, failure);
            }
        }
    }

    /// A node that has left uses no group any more.
    pub(super) fn free_groups_of(&mut self, cluster: &mut ClusterState, key: u32) {
        for group in self.table.made_with(key) {
            let _ = self.end_use(cluster, key, group);
        }
    }

    /// A node uses a group no longer. It is written down, for a scheduler that is started again. The node goes on
    /// saying so until it is told that it is kept. It is told even if the group is gone already: then an earlier answer
    /// did not reach it.
    pub(super) fn free_group(&mut self, cluster: &mut ClusterState, key: u32, group: GroupId) {
        if let Some(last) = self.end_use(cluster, key, group) {
            cluster.out.promise(Record::Freed(FreedRecord { group, by: key, last }));
        }
        cluster.send_to(key, Message::GroupFreed(GroupFreed { group }));
    }

    /// Ends a node's use of a group. Returns whether nobody uses it any more; nothing where this node did not use it.
    fn end_use(&mut self, cluster: &mut ClusterState, key: u32, group: GroupId) -> Option<bool> {
        let is_last = self.table.end_use(key, group)?;
        if is_last {
            self.calls.remove(&group);
            self.revoked.remove(&group);
            for (_, node) in cluster.nodes.all_mut() {
                node.course.progress.retain(|(progress, _)| progress.group != group);
                node.course.carriers.retain(|carried| carried.group != group);
            }
        }
        Some(is_last)
    }
}

/// The reason why a creation cannot be: its makers called different collectives before, and have not said in time
/// which.
fn differing(cluster: &ClusterState, now: Time, parent: GroupId, creation: &Creation) -> Option<Failure> {
    let (other, _) = creation.differs.filter(|(_, since)| now >= *since + COMPARED_WITHIN)?;
    let (first, _) = creation.digest?;
    let (sequence, both) = (creation.sequence, call(creation.wishes.get(&first)?));
    let (one, other) = (cluster.nodes.in_words(first.min(other)), cluster.nodes.in_words(first.max(other)));
    let cause = format!(
        "{one} and {other} called {both} as collective #{sequence} on {parent}, but their earlier calls differ"
    );
    Some(Failure {
        status: Status::Mismatch,
        culprit: None,
        cause,
        epoch: cluster.epoch,
        group: Some(parent),
        sequence,
    })
}

/// The creation as a collective of the parent.
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

/// The groups that follow from the members' wishes. All wishes ask for the same kind of making, as their calls are the
/// same.
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
