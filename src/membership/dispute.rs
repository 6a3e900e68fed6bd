//! Members of a group that called different collectives under one number: who called something else than the others.
//!
//! Two calls show that they differ, but not who is wrong. So before the group is revoked all members are asked what they
//! called, and have [`PATIENCE`] to answer. Who gave up because another rank called something else, or has left, waits longer
//! than that for the scheduler's word. Tested in `dispute_test.rs`.
//!
//! Invariant: a rank is named only where a strict majority of the group's members called the same, and it did not.

use super::absence::PATIENCE;
use super::timers::Due;
use super::Scheduler;
use crate::error::{Culprit, Failure, Status};
use crate::types::{Call, GroupId, Time};
use crate::wire::{AskCall, Called, Message};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How many of those who called something else a sentence names.
const NAMED_MAX: usize = 8;

/// What the members of one group are asked.
#[derive(Debug)]
pub(super) struct Dispute {
    id: u64,
    sequence: u64,
    /// What is known of what they called.
    calls: BTreeMap<u32, Call>,
    /// Who has been asked, and has not answered.
    waiting: BTreeSet<u32>,
    /// Why the group is over where all called the same, as far as that comes to be known.
    otherwise: Option<Failure>,
}

impl Dispute {
    fn is_settled(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Scheduler {
    /// A member gives up on a group for a reason that may only follow from another's call: it needs one who has left, or
    /// met a frame that it did not expect.
    pub(super) fn doubt(&mut self, now: Time, group: GroupId, failure: Failure) {
        if !self.disputes.contains_key(&group) {
            self.ask_calls(now, group, failure.sequence, BTreeMap::new(), Some(failure));
        }
    }

    /// Two members are known to have called different collectives.
    pub(super) fn differ(&mut self, now: Time, group: GroupId, sequence: u64, one: (u32, Call), other: (u32, Call)) {
        if self.revoked.contains_key(&group) || self.disputes.get(&group).is_some_and(|open| open.otherwise.is_none()) {
            return; // it is known that they differ, here or before
        }
        self.ask_calls(now, group, sequence, BTreeMap::from([one, other]), None);
    }

    fn ask_calls(
        &mut self,
        now: Time,
        group: GroupId,
        sequence: u64,
        mut calls: BTreeMap<u32, Call>,
        otherwise: Option<Failure>,
    ) {
        let Some(members) = self.members_of(group).filter(|_| !self.revoked.contains_key(&group)) else { return };
        if let Some((call, by)) = self.calls.get(&group).and_then(|calls| calls.first(sequence)) {
            calls.insert(by, call);
        }
        for member in &members {
            let told = self.nodes.get(member).and_then(|node| node.progress_in(group));
            if let Some(call) = told.filter(|told| told.0.entered == sequence).and_then(|told| told.0.call) {
                calls.insert(*member, call);
            }
        }
        let is_here = |key: &u32| self.is_present(*key) && self.nodes.get(key).is_some_and(|node| node.conn.is_some());
        let waiting: BTreeSet<u32> =
            members.into_iter().filter(|key| !calls.contains_key(key) && is_here(key)).collect();
        let id = self.next_query;
        self.next_query += 1;
        for key in &waiting {
            self.send_to(*key, Message::AskCall(AskCall { group, sequence }));
        }
        self.timers.at(now + PATIENCE, Due::Dispute(group, id));
        self.disputes.insert(group, Dispute { id, sequence, calls, waiting, otherwise });
        self.settle_answered(now);
    }

    /// A member says what it called.
    pub(super) fn called(&mut self, now: Time, key: u32, called: &Called) {
        let Some(open) = self.disputes.get_mut(&called.group).filter(|open| open.sequence == called.sequence) else {
            return;
        };
        if open.waiting.remove(&key) {
            open.calls.extend(called.call.map(|call| (key, call)));
        }
        self.settle_answered(now);
    }

    /// A member has said so with a heartbeat.
    pub(super) fn told_call(&mut self, key: u32, group: GroupId, sequence: u64, call: Call) {
        if let Some(open) = self.disputes.get_mut(&group).filter(|open| open.sequence == sequence) {
            open.calls.insert(key, call);
        }
    }

    /// A node will not answer any more.
    pub(super) fn answers_no_more(&mut self, now: Time, key: u32) {
        for open in self.disputes.values_mut() {
            open.waiting.remove(&key);
        }
        self.settle_answered(now);
    }

    fn settle_answered(&mut self, now: Time) {
        let settled = self.disputes.iter().filter(|(_, open)| open.is_settled());
        let settled: Vec<GroupId> = settled.map(|(group, _)| *group).collect();
        settled.into_iter().for_each(|group| self.settle_dispute(now, group));
    }

    /// Those who have not answered have had their time.
    pub(super) fn dispute_due(&mut self, now: Time, group: GroupId, id: u64) {
        if self.disputes.get(&group).is_some_and(|open| open.id == id) {
            self.settle_dispute(now, group);
        }
    }

    /// Something else is about to end groups: what came before it is told first, by what is known.
    pub(super) fn settle_disputes(&mut self, now: Time) {
        let open: Vec<GroupId> = self.disputes.keys().copied().collect();
        open.into_iter().for_each(|group| self.settle_dispute(now, group));
    }

    fn settle_dispute(&mut self, now: Time, group: GroupId) {
        let Some(Dispute { sequence, calls, otherwise, .. }) = self.disputes.remove(&group) else { return };
        let size = self.members_of(group).map_or(0, |members| members.len());
        let found = self.who_differs(group, sequence, size, &calls);
        let mismatch = found.map(|(culprit, cause)| {
            let (status, epoch) = (Status::Mismatch, self.epoch);
            Failure { status, culprit, cause, epoch, group: Some(group), sequence }
        });
        if let Some(failure) = mismatch.or(otherwise).filter(|_| self.verdict.is_none()) {
            self.revoke_group(now, group, failure);
        }
    }

    /// The whole sentence, and whom it blames; nothing where all of these calls are the same.
    fn who_differs(
        &self,
        group: GroupId,
        sequence: u64,
        size: usize,
        calls: &BTreeMap<u32, Call>,
    ) -> Option<(Option<Culprit>, String)> {
        let (first, first_call) = calls.first_key_value()?;
        let (other, other_call) = calls.iter().find(|(_, call)| call.signature() != first_call.signature())?;
        let mut counts: HashMap<u64, usize> = HashMap::new();
        calls.values().for_each(|call| *counts.entry(call.signature()).or_default() += 1);
        let most = counts.into_iter().find(|(_, count)| 2 * count > size);
        let Some((signature, count)) = most else {
            let (one, other) = (self.in_words(*first), self.in_words(*other));
            let cause =
                format!("{one} called {first_call}, {other} called {other_call} as collective #{sequence} on {group}");
            return Some((None, cause));
        };
        let common = calls.values().find(|call| call.signature() == signature)?;
        let odd: Vec<(&u32, &Call)> = calls.iter().filter(|(_, call)| call.signature() != signature).collect();
        let mut cause = format!("{count} of {size} ranks called {common} as collective #{sequence} on {group}");
        for (key, call) in odd.iter().take(NAMED_MAX) {
            cause.push_str(&format!(", {} called {call}", self.in_words(**key)));
        }
        if odd.len() > NAMED_MAX {
            cause.push_str(&format!(", and {} more ranks something else", odd.len() - NAMED_MAX));
        }
        let culprit = odd.first().and_then(|(key, _)| self.nodes.get(key)).map(super::node::Node::culprit);
        Some((culprit, cause))
    }
}

#[cfg(test)]
#[path = "dispute_test.rs"]
mod tests;
