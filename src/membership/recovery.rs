//! Making the cluster whole again: the next epoch is formed once every node is inside `muster_recover`, or (with recovery)
//! has come back. Tested in `recovery_test.rs`.
//!
//! Invariants: the epoch only grows; a node's messages from before it took up the present epoch are not acted on (it says
//! [`InEpoch`] when it has). Which node may come back is decided in `returning.rs`.

use super::contract::ConnId;
use super::node::{span, Node};
use super::ranks::places;
use super::timers::Due;
use super::Scheduler;
use crate::error::{Culprit, Failure, Status};
use crate::types::{Epoch, GroupId, Secret, Time};
use crate::wire::{InEpoch, Message, NotRecovered, Recover, Rejected};
use std::collections::BTreeSet;
use std::time::Duration;

/// How often a line says who is awaited, from the first wish to recover on.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// How many of those who are awaited a sentence names.
const NAMED_MAX: usize = 3;

/// How far the making of the next epoch is.
#[derive(Debug)]
pub(super) struct Recovery {
    since: Time,
    inside: BTreeSet<u32>,
    /// When the next line is due.
    line_at: Time,
}

impl Recovery {
    /// Whether this node waits for the next epoch.
    pub(super) fn holds(&self, key: u32) -> bool {
        self.inside.contains(&key)
    }
}

impl Scheduler {
    /// A node wants the cluster made whole, or does not wait for that any more.
    pub(super) fn recover(&mut self, now: Time, key: u32, wish: &Recover) {
        if wish.epoch != self.epoch {
            return; // it has been told
        }
        if !wish.inside {
            let failure = self.still_awaited(key);
            self.waits_no_more(key);
            return self.send_to(key, Message::NotRecovered(NotRecovered { failure }));
        }
        self.settle_disputes(now);
        if !self.job.is_broken() {
            self.revoke_all(now, key); // a verdict has ended them
        }
        if let Some(failure) = self.cannot_recover() {
            return self.send_to(key, Message::NotRecovered(NotRecovered { failure }));
        }
        self.begin_recovery(now);
        if let Some(recovery) = &mut self.recovery {
            recovery.inside.insert(key);
        }
        self.recover_if_complete(now);
    }

    /// From now on the next epoch is waited for.
    pub(super) fn begin_recovery(&mut self, now: Time) {
        if self.recovery.is_none() {
            let line_at = now + LINE_EVERY;
            self.recovery = Some(Recovery { since: now, inside: BTreeSet::new(), line_at });
            self.timers.at(line_at, Due::RecoveryLine);
            if self.spare_secret.is_none() {
                self.output(super::Output::WantSecret);
            }
        }
    }

    /// A node is not inside any more: its time is up, or it is lost.
    pub(super) fn waits_no_more(&mut self, key: u32) {
        if let Some(recovery) = &mut self.recovery {
            recovery.inside.remove(&key);
        }
        let somebody_is_back = self.nodes.values().any(|node| node.is_back() && node.is_member());
        self.recovery = self.recovery.take().filter(|recovery| somebody_is_back || !recovery.inside.is_empty());
    }

    /// One that is lost wants to go on: another process has its place, or will have.
    pub(super) fn refuse_recovery_of_lost(&mut self, key: u32) {
        let Some(node) = self.nodes.get(&key) else { return };
        let cause = "was given up by the others while it did not answer; it has to be started again".to_owned();
        let (status, culprit, epoch) = (Status::Fenced, Some(node.culprit()), self.epoch);
        let failure = Failure { status, culprit, cause, epoch, group: None, sequence: 0 };
        self.send_to(key, Message::NotRecovered(NotRecovered { failure }));
    }

    /// Nobody waits for one who has given everything up: every group that still holds is revoked.
    fn revoke_all(&mut self, now: Time, key: u32) {
        let culprit = self.nodes.get(&key).map(|node| node.culprit());
        let built_in = [GroupId::WORLD, GroupId::SERVERS, GroupId::UNIVERSE];
        let mut groups: Vec<GroupId> = built_in.into_iter().chain(self.groups.all()).collect();
        groups.retain(|group| !self.revoked.contains_key(group));
        for group in groups {
            if self.members_of(group).is_some_and(|members| members.len() > 1) {
                let cause = format!("called muster_recover, which ends epoch {}", self.epoch.0);
                let (epoch, culprit) = (self.epoch, culprit.clone());
                let failure =
                    Failure { status: Status::Revoked, culprit, cause, epoch, group: Some(group), sequence: 0 };
                self.revoke_group(now, group, failure);
            }
        }
    }

    pub(super) fn secret(&mut self, now: Time, secret: Secret) {
        self.spare_secret = Some(secret);
        self.recover_if_complete(now);
    }

    pub(super) fn recover_if_complete(&mut self, now: Time) {
        let complete = |recovery: &Recovery| self.nodes.iter().all(|(key, node)| node.is_ready(recovery.holds(*key)));
        let Some(since) = self.recovery.as_ref().filter(|it| complete(it)).map(|it| it.since) else { return };
        let Some(secret) = self.spare_secret.take() else { return };
        self.recovery = None;
        self.epoch = Epoch(self.epoch.0 + 1);
        self.identity.secret = secret;
        self.job.is_whole_again();
        self.lost.clear();
        self.revoked.clear();
        self.calls.clear();
        self.disputes.clear();
        self.queries.clear();
        self.groups.begin_epoch(self.rules.recovery);
        let epoch = self.epoch;
        for node in self.nodes.values_mut() {
            node.progress.clear();
            node.waits = None;
            node.suspicions.clear();
            node.witness = None;
            node.is_not_abandoned();
            node.token = node.register.reentry.as_ref().map(|reentry| reentry.next);
            if node.before.take().is_some() {
                node.restarts += 1;
                node.epoch = epoch; // the only one that it ever hears of
            }
        }
        self.place_anew();
        self.promise_epoch();
        let line =
            format!("epoch {} has begun: the cluster is whole again after {}", self.epoch.0, span(now.since(since)));
        self.warn(line);
        self.tell_all();
    }

    /// Ranks stay; hosts, and what follows from them, may have changed.
    fn place_anew(&mut self) {
        let rank = |node: &Node| node.place.map_or(0, |place| place.rank);
        let ranked = self.nodes.values().map(|node| (node.role(), &node.register.host.key[..], rank(node)));
        let places = places(&ranked.collect::<Vec<_>>());
        for (node, place) in self.nodes.values_mut().zip(places) {
            node.place = Some(place);
        }
        self.list_members();
    }

    /// A node has taken up an epoch: what it says from now on is of it.
    pub(super) fn in_epoch(&mut self, key: u32, word: &InEpoch) {
        if let Some(node) = self.nodes.get_mut(&key) {
            node.epoch = word.epoch;
            node.has_answered();
        }
    }

    /// Whether what a node says is of the present epoch.
    pub(super) fn is_present(&self, key: u32) -> bool {
        self.nodes.get(&key).is_some_and(|node| node.epoch == self.epoch)
    }

    pub(super) fn recovery_line(&mut self, now: Time) {
        // The timer may be that of an earlier recovery.
        let is_due = |recovery: &&mut Recovery| self.job.is_complete() && now >= recovery.line_at;
        let Some(recovery) = self.recovery.as_mut().filter(is_due) else { return };
        recovery.line_at = now + LINE_EVERY;
        if let Some(words) = self.recovery_in_words(now) {
            self.warn(format!("recovering {words}"));
        }
        if self.spare_secret.is_none() {
            self.output(super::Output::WantSecret); // it could not be drawn before
        }
        self.timers.at(now + LINE_EVERY, Due::RecoveryLine);
    }

    /// How far the next epoch is, while it is waited for.
    pub(super) fn recovery_in_words(&self, now: Time) -> Option<String> {
        let recovery = self.recovery.as_ref()?;
        let (count, since) = (recovery.inside.len(), span(now.since(recovery.since)));
        let (all, words) = (self.nodes.len(), self.awaited().1);
        Some(format!("since {since}: {count} of {all} nodes have called muster_recover; {words}"))
    }

    /// The nodes that have not called muster_recover: the first of them, and words that name some.
    pub(super) fn awaited(&self) -> (Option<Culprit>, String) {
        let inside = |key: &u32| self.recovery.as_ref().is_some_and(|recovery| recovery.inside.contains(key));
        let awaited: Vec<Culprit> = self
            .nodes
            .iter()
            .filter(|(key, node)| !node.is_ready(inside(key)))
            .map(|(_, node)| node.culprit())
            .collect();
        let named: Vec<String> = awaited.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        let more = awaited.len() - named.len();
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        (awaited.first().cloned(), format!("awaited: {}{rest}", named.join(", ")))
    }

    /// What one is told who does not wait any more.
    fn still_awaited(&self, key: u32) -> Failure {
        let (first, words) = self.awaited();
        let waits = self.recovery.as_ref().is_some_and(|recovery| recovery.inside.contains(&key));
        let cause = match waits {
            true => format!("epoch {} was not complete in time; {words}", self.epoch.0 + 1),
            false => format!("this node was not waiting for epoch {}", self.epoch.0 + 1),
        };
        let culprit = first.filter(|_| waits);
        let cause = culprit.as_ref().map_or(cause, |_| format!("has not called muster_recover in time; {words}"));
        Failure { status: Status::Timeout, culprit, cause, epoch: self.epoch, group: None, sequence: 0 }
    }

    /// Why there will be no next epoch.
    pub(super) fn cannot_recover(&self) -> Option<Failure> {
        self.missed_for_good().or_else(|| self.job.verdict().cloned().filter(|_| !self.job.is_recoverable()))
    }

    /// One who has left: the cluster will not be whole again.
    fn missed_for_good(&self) -> Option<Failure> {
        let left = self.nodes.get(&self.job.first_left()?)?;
        let cause = "has left the cluster, which cannot be made whole again without it".to_owned();
        let (status, culprit) = (Status::PeerLeft, Some(left.culprit()));
        Some(Failure { status, culprit, cause, epoch: self.epoch, group: None, sequence: 0 })
    }

    /// The job is broken, and the cluster will not be whole again: all who are there are told why, once. Also those who have
    /// not asked for the next epoch yet: when they do this scheduler may have ended. (An abort's verdict says it itself.)
    pub(super) fn refuse_next_epoch(&mut self) {
        let stay = |node: &Node| node.is_member() && !node.is_back();
        let conns: Vec<ConnId> = self.nodes.values().filter(|node| stay(node)).filter_map(|node| node.conn).collect();
        conns.into_iter().for_each(|conn| self.tell_no_next_epoch(conn));
    }

    /// Says that there will be no next epoch while this scheduler serves.
    pub(super) fn tell_no_next_epoch(&mut self, conn: ConnId) {
        if let Some(failure) = self.cannot_recover() {
            self.send(conn, Message::NotRecovered(NotRecovered { failure }));
        }
    }

    /// A node has left, or the job has ended: nobody waits in vain.
    pub(super) fn end_recovery_without(&mut self) {
        let Some(failure) = self.cannot_recover() else { return };
        let Some(recovery) = self.recovery.take() else { return };
        let is_known = self.job.is_refused();
        for key in recovery.inside.into_iter().filter(|_| !is_known) {
            self.send_to(key, Message::NotRecovered(NotRecovered { failure: failure.clone() }));
        }
        // Those that had come back are not members of anything that goes on.
        let back: Vec<ConnId> =
            self.nodes.values().filter(|node| node.is_back()).filter_map(|node| node.conn).collect();
        for conn in back {
            let reason = format!("it comes back in vain: {failure}");
            self.send(conn, Message::Rejected(Rejected { status: failure.status, reason }));
        }
    }
}

#[cfg(test)]
#[path = "recovery_test.rs"]
mod tests;
