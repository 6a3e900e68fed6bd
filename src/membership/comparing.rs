//! Finds out which members called something else than the others, where a group's members called different collectives
//! under one number.
//!
//! Two calls show that they differ, but not which is wrong. So before the group is revoked all members are asked what
//! they called, and have [`PATIENCE`] to answer. A member that has not called yet may do so, and is asked again. A rank
//! that gave up because another called something else, or has left, waits longer than that for the scheduler's word.
//! Tested in `dispute_test.rs`.
//!
//! Invariant: a rank is named only where a strict majority of the group's members called the same, and it did not.

use super::cluster_state::ClusterState;
use super::dispute::{common, Dispute};
use super::groups::Groups;
use super::revocation::Revocation;
use super::timers::{Due, PATIENCE};
use crate::error::{Culprit, Failure, Status};
use crate::types::{Call, GroupId, Time};
use crate::wire::{AskCall, Called, GroupProgress, Message, Revoked};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often members are asked again that had not called yet when they were asked before.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How many of the members that called something else a sentence names.
const NAMED_MAX: usize = 8;

impl Groups {
    /// A node gives up on a group, for this cause.
    pub(super) fn revoke(&mut self, cluster: &mut ClusterState, now: Time, key: u32, failure: Failure) {
        let Some(group) = failure.group.filter(|_| failure.epoch == cluster.epoch) else {
            return cluster.out.note(format!("node {key} revokes a group of another epoch, or none: ignored"));
        };
        if !self.table.is_in(group, key) {
            return cluster.out.note(format!("node {key} revokes {group}, but is not a member of it: ignored"));
        }
        if let Some(Revocation { failure, .. }) = self.revoked.get(&group).cloned() {
            return cluster.send_to(key, Message::Revoked(Revoked { failure }));
        }
        if let Some(first) = cluster.job.verdict().cloned() {
            // The job broke before. The cause of that break is the cause here, too, and everybody has been told of it.
            let failure = Failure { group: failure.group, sequence: failure.sequence, ..first };
            self.revoked.insert(group, Revocation::new(now, failure.clone()));
            return cluster.send_to(key, Message::Revoked(Revoked { failure }));
        }
        match failure.status {
            Status::Mismatch | Status::PeerLeft if failure.sequence > 0 => self.doubt(cluster, now, group, failure),
            _ => self.revoke_group(cluster, now, group, failure),
        }
    }

    /// Compares what this node calls with what the others called in the same collectives.
    pub(super) fn compare_calls(
        &mut self,
        cluster: &mut ClusterState,
        now: Time,
        key: u32,
        progress: &[GroupProgress],
    ) {
        for progress in progress {
            let (group, sequence) = (progress.group, progress.entered);
            let Some(call) = progress.call.filter(|_| sequence > 0 && !self.revoked.contains_key(&group)) else {
                continue;
            };
            if !self.table.is_in(group, key) {
                continue;
            }
            self.told_call(key, group, sequence, call);
            if let Some(other) = self.calls.entry(group).or_default().disagreement(key, sequence, call) {
                self.differ(cluster, now, group, sequence, (key, call), other);
            }
        }
        self.settle_answered(cluster, now);
    }

    /// A member gives up on a group for a reason that may only follow from another member's call: it needs one that has
    /// left, or met a frame that it did not expect.
    pub(super) fn doubt(&mut self, cluster: &mut ClusterState, now: Time, group: GroupId, failure: Failure) {
        if !self.disputes.contains_key(&group) {
            self.ask_calls(cluster, now, group, failure.sequence, BTreeMap::new(), Some(failure));
        }
    }

    /// Two members are known to have called different collectives.
    pub(super) fn differ(
        &mut self,
        cluster: &mut ClusterState,
        now: Time,
        group: GroupId,
        sequence: u64,
        one: (u32, Call),
        other: (u32, Call),
    ) {
        if self.revoked.contains_key(&group) || self.disputes.get(&group).is_some_and(|open| open.otherwise.is_none()) {
            return; // it is known that they differ, here or before
        }
        self.ask_calls(cluster, now, group, sequence, BTreeMap::from([one, other]), None);
    }

    fn ask_calls(
        &mut self,
        cluster: &mut ClusterState,
        now: Time,
        group: GroupId,
        sequence: u64,
        mut calls: BTreeMap<u32, Call>,
        otherwise: Option<Failure>,
    ) {
        let Some(members) = self.table.members_of(group).filter(|_| !self.revoked.contains_key(&group)) else { return };
        if let Some((call, by)) = self.calls.get(&group).and_then(|calls| calls.first(sequence)) {
            calls.insert(by, call);
        }
        for member in &members {
            let told = cluster.nodes.get(member).and_then(|node| node.course.progress_in(group));
            if let Some(call) = told.filter(|told| told.0.entered == sequence).and_then(|told| told.0.call) {
                calls.insert(*member, call);
            }
        }
        let is_here =
            |key: &u32| cluster.is_present(*key) && cluster.nodes.get(key).is_some_and(|node| node.conn().is_some());
        let asked: BTreeSet<u32> = members.into_iter().filter(|key| !calls.contains_key(key) && is_here(key)).collect();
        let (id, until, waiting) = (self.next_dispute, now + PATIENCE, asked.clone());
        self.next_dispute += 1;
        self.disputes.insert(group, Dispute { id, sequence, calls, asked, waiting, until, otherwise });
        self.ask_those_left(cluster, now, group);
        self.settle_answered(cluster, now);
    }

    fn ask_those_left(&mut self, cluster: &mut ClusterState, now: Time, group: GroupId) {
        let Some(open) = self.disputes.get(&group) else { return };
        let (id, sequence, asked, until) = (open.id, open.sequence, open.asked.clone(), open.until);
        for key in asked {
            cluster.send_to(key, Message::AskCall(AskCall { group, sequence }));
        }
        cluster.out.at(until.min(now + ASK_AGAIN), Due::Dispute(group, id));
    }

    /// A member answers what it called.
    pub(super) fn called(&mut self, cluster: &mut ClusterState, now: Time, key: u32, called: &Called) {
        let is_present = cluster.is_present(key); // an answer that is not present is of an epoch that is over
        let open = self.disputes.get_mut(&called.group).filter(|open| is_present && open.sequence == called.sequence);
        let Some(open) = open else { return };
        open.waiting.remove(&key);
        if let Some(call) = called.call.filter(|_| open.asked.remove(&key)) {
            open.calls.insert(key, call);
        }
        self.settle_answered(cluster, now);
    }

    /// A member has told what it called with a heartbeat.
    pub(super) fn told_call(&mut self, key: u32, group: GroupId, sequence: u64, call: Call) {
        if let Some(open) = self.disputes.get_mut(&group).filter(|open| open.sequence == sequence) {
            open.calls.insert(key, call);
            open.asked.remove(&key);
            open.waiting.remove(&key);
        }
    }

    /// A node will not answer any more.
    pub(super) fn answers_no_more(&mut self, cluster: &mut ClusterState, now: Time, key: u32) {
        for open in self.disputes.values_mut() {
            open.asked.remove(&key);
            open.waiting.remove(&key);
        }
        self.settle_answered(cluster, now);
    }

    pub(super) fn settle_answered(&mut self, cluster: &mut ClusterState, now: Time) {
        let size = |group: GroupId| self.table.members_of(group).map_or(0, |members| members.len());
        let settled = self.disputes.iter().filter(|(group, open)| open.is_settled(size(**group)));
        let settled: Vec<GroupId> = settled.map(|(group, _)| *group).collect();
        settled.into_iter().for_each(|group| self.settle_dispute(cluster, now, group));
    }

    /// The members that have not answered have had their time; members that have not called yet are asked again.
    pub(super) fn dispute_due(&mut self, cluster: &mut ClusterState, now: Time, group: GroupId, id: u64) {
        match self.disputes.get(&group).filter(|open| open.id == id) {
            Some(open) if now >= open.until => self.settle_dispute(cluster, now, group),
            Some(_) => self.ask_those_left(cluster, now, group),
            None => {}
        }
    }

    /// Something else is about to end groups. What came before it is told first, as far as it is known.
    pub(super) fn settle_disputes(&mut self, cluster: &mut ClusterState, now: Time) {
        let open: Vec<GroupId> = self.disputes.keys().copied().collect();
        open.into_iter().for_each(|group| self.settle_dispute(cluster, now, group));
    }

    fn settle_dispute(&mut self, cluster: &mut ClusterState, now: Time, group: GroupId) {
        let Some(Dispute { sequence, calls, otherwise, .. }) = self.disputes.remove(&group) else { return };
        let size = self.table.members_of(group).map_or(0, |members| members.len());
        let found = blame_odd_ranks(cluster, group, sequence, size, &calls);
        let mismatch = found.map(|(culprit, cause)| {
            let (status, epoch) = (Status::Mismatch, cluster.epoch);
            Failure { status, culprit, cause, epoch, group: Some(group), sequence }
        });
        if let Some(failure) = mismatch.or(otherwise).filter(|_| !cluster.job.is_broken()) {
            self.revoke_group(cluster, now, group, failure);
        }
    }
}

/// The sentence that names the odd ranks, and the node that it blames. None if all calls are the same.
fn blame_odd_ranks(
    cluster: &ClusterState,
    group: GroupId,
    sequence: u64,
    size: usize,
    calls: &BTreeMap<u32, Call>,
) -> Option<(Option<Culprit>, String)> {
    let (first, first_call) = calls.first_key_value()?;
    let (other, other_call) = calls.iter().find(|(_, call)| call.signature() != first_call.signature())?;
    let Some((common, count)) = common(calls, size) else {
        let (one, other) = (cluster.nodes.in_words(*first), cluster.nodes.in_words(*other));
        let cause =
            format!("{one} called {first_call}, {other} called {other_call} as collective #{sequence} on {group}");
        return Some((None, cause));
    };
    let signature = common.signature();
    let odd: Vec<(&u32, &Call)> = calls.iter().filter(|(_, call)| call.signature() != signature).collect();
    let mut cause = format!("{count} of {size} ranks called {common} as collective #{sequence} on {group}");
    for (key, call) in odd.iter().take(NAMED_MAX) {
        cause.push_str(&format!(", {} called {call}", cluster.nodes.in_words(**key)));
    }
    if odd.len() > NAMED_MAX {
        cause.push_str(&format!(", and {} more ranks something else", odd.len() - NAMED_MAX));
    }
    let culprit = odd.first().and_then(|(key, _)| cluster.nodes.get(key)).map(|node| node.culprit());
    Some((culprit, cause))
}

#[cfg(test)]
#[path = "dispute_test.rs"]
mod tests;
