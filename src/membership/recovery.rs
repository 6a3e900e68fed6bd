//! Making the cluster whole again: the next epoch is formed once every node is inside `muster_recover`, or (with recovery)
//! has come back. Tested in `recovery_test.rs`.
//!
//! Invariants: the epoch only grows; a node's messages from before it took up the present epoch are not acted on (it says
//! [`InEpoch`] when it has). Which node may come back is decided in `joining.rs`, and what begins with an epoch in `rejoining.rs`.
//!
//! [`InEpoch`]: crate::wire::InEpoch

use super::cluster_state::ClusterState;
use super::contract::{ConnId, Output};
use super::node::span;
use super::promises::Behind;
use super::timers::Due;
use crate::error::{Culprit, Failure, Status};
use crate::types::{Secret, Time};
use crate::wire::{Message, Rejected};
use std::collections::BTreeSet;
use std::time::Duration;

/// How often a line says which nodes are awaited, from the first wish to recover on.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// How many of the awaited nodes a sentence names.
const NAMED_MAX: usize = 3;

/// How far the next epoch is in the making.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// Set while at least one node waits for it.
    waiting: Option<Waiting>,
    /// The nodes that were inside in this epoch, and whose time was up.
    gave_up: BTreeSet<u32>,
    /// The next epoch's secret.
    secret: Option<Secret>,
}

/// The nodes that are not ready for the next epoch.
#[derive(Debug, Default)]
struct Awaited {
    /// Those that have not called `muster_recover`.
    never: Vec<Culprit>,
    /// Those that have called it, and have given up.
    gave_up: Vec<Culprit>,
}

impl Awaited {
    fn in_words(&self) -> String {
        let never = format!("awaited: {}", named(&self.never));
        let gave_up = format!("called muster_recover and gave up: {}", named(&self.gave_up));
        match (self.never.is_empty(), self.gave_up.is_empty()) {
            (_, true) => never,
            (true, false) => gave_up,
            (false, false) => format!("{never}; {gave_up}"),
        }
    }
}

#[derive(Debug)]
struct Waiting {
    since: Time,
    inside: BTreeSet<u32>,
    /// When the next line is due.
    line_at: Time,
}

impl Recovery {
    /// Whether the next epoch is waited for.
    pub(super) fn is_open(&self) -> bool {
        self.waiting.is_some()
    }

    /// Whether this node waits for the next epoch.
    pub(super) fn holds(&self, key: u32) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.inside.contains(&key))
    }

    /// From now on the next epoch is waited for.
    pub(super) fn begin(&mut self, cluster: &mut ClusterState, now: Time) {
        if self.waiting.is_none() {
            let line_at = now + LINE_EVERY;
            self.waiting = Some(Waiting { since: now, inside: BTreeSet::new(), line_at });
            cluster.out.at(line_at, Due::RecoveryLine);
            if self.secret.is_none() {
                cluster.out.output(Output::WantSecret);
            }
        }
    }

    /// A node waits for the next epoch.
    pub(super) fn enter(&mut self, cluster: &mut ClusterState, now: Time, key: u32) {
        self.begin(cluster, now);
        if let Some(waiting) = &mut self.waiting {
            waiting.inside.insert(key);
        }
        self.gave_up.remove(&key);
    }

    /// The time of a node inside `muster_recover` is up.
    pub(super) fn gives_up(&mut self, cluster: &ClusterState, key: u32) {
        if self.holds(key) {
            self.gave_up.insert(key);
        }
        self.waits_no_more(cluster, key);
    }

    /// A node does not wait inside `muster_recover` any more: its time is up, or it is lost.
    pub(super) fn waits_no_more(&mut self, cluster: &ClusterState, key: u32) {
        if let Some(waiting) = &mut self.waiting {
            waiting.inside.remove(&key);
        }
        let somebody_is_back = cluster.nodes.values().any(|node| node.is_back() && node.is_member());
        self.waiting = self.waiting.take().filter(|waiting| somebody_is_back || !waiting.inside.is_empty());
    }

    /// The next epoch's secret was drawn.
    pub(super) fn has_drawn(&mut self, secret: Secret) {
        self.secret = Some(secret);
    }

    /// If everybody is ready for the next epoch, returns its secret, and since when it was waited for. Nobody waits
    /// from then on.
    pub(super) fn complete(&mut self, cluster: &ClusterState) -> Option<(Secret, Time)> {
        let since = self.waiting.as_ref()?.since;
        if !cluster.nodes.iter().all(|(key, node)| node.is_ready(self.holds(*key))) {
            return None;
        }
        let secret = self.secret.take()?;
        self.waiting = None;
        self.gave_up.clear();
        Some((secret, since))
    }

    pub(super) fn line(&mut self, cluster: &mut ClusterState, now: Time) {
        // The timer may belong to an earlier recovery.
        let is_due = |waiting: &&mut Waiting| cluster.job.is_complete() && now >= waiting.line_at;
        let Some(waiting) = self.waiting.as_mut().filter(is_due) else { return };
        waiting.line_at = now + LINE_EVERY;
        if let Some(words) = self.in_words(cluster, now) {
            cluster.out.warn(format!("recovering {words}"));
        }
        if self.secret.is_none() {
            cluster.out.output(Output::WantSecret); // drawing it has failed before
        }
        cluster.out.at(now + LINE_EVERY, Due::RecoveryLine);
    }

    /// Says in words how far the next epoch is, while it is waited for.
    pub(super) fn in_words(&self, cluster: &ClusterState, now: Time) -> Option<String> {
        let waiting = self.waiting.as_ref()?;
        let (count, since) = (waiting.inside.len(), span(now.since(waiting.since)));
        let (all, words) = (cluster.nodes.len(), self.awaited_in_words(cluster));
        Some(format!("since {since}: {count} of {all} nodes have called muster_recover; {words}"))
    }

    /// Words that name some of the nodes that are awaited.
    pub(super) fn awaited_in_words(&self, cluster: &ClusterState) -> String {
        self.awaited(cluster).in_words()
    }

    /// The nodes that are awaited. A lost node counts as one that never called `muster_recover`, whatever it did before.
    fn awaited(&self, cluster: &ClusterState) -> Awaited {
        let mut awaited = Awaited::default();
        for (key, node) in cluster.nodes.iter().filter(|(key, node)| !node.is_ready(self.holds(**key))) {
            match node.is_well() && self.gave_up.contains(key) {
                true => awaited.gave_up.push(node.culprit()),
                false => awaited.never.push(node.culprit()),
            }
        }
        awaited
    }

    /// What a node is told that stops waiting.
    pub(super) fn still_awaited(&self, cluster: &ClusterState, key: u32) -> Failure {
        let next = cluster.epoch.0 + 1;
        if !self.holds(key) {
            return cluster.failure(Status::Timeout, None, format!("this node was not waiting for epoch {next}"));
        }
        let awaited = self.awaited(cluster);
        let (words, Awaited { never, gave_up }) = (awaited.in_words(), awaited);
        let cause = match (never.is_empty(), gave_up.is_empty()) {
            (false, _) => format!("has not called muster_recover in time; {words}"),
            (true, false) => format!("did not wait long enough for epoch {next}; {words}"),
            (true, true) => format!("epoch {next} was not complete in time; {words}"),
        };
        cluster.failure(Status::Timeout, never.into_iter().chain(gave_up).next(), cause)
    }

    /// A node has left, or the job has ended: ends the wait of nodes that would wait in vain.
    pub(super) fn end_without(&mut self, cluster: &mut ClusterState) {
        let Some(failure) = cluster.cannot_recover() else { return };
        let Some(waiting) = self.waiting.take() else { return };
        let is_known = cluster.job.is_refused();
        for conn in waiting
            .inside
            .into_iter()
            .filter(|_| !is_known)
            .filter_map(|key| cluster.nodes.conn(key))
            .collect::<Vec<_>>()
        {
            cluster.tell_not_recovered(conn, failure.clone());
        }
        // The nodes that had come back are not members of anything that goes on.
        let back: Vec<ConnId> =
            cluster.nodes.values().filter(|node| node.is_back()).filter_map(|node| node.conn()).collect();
        for conn in back {
            let reason = format!("it cannot come back: {failure}");
            let behind = cluster.job.behind_its_end(Behind::Nothing);
            cluster.out.send_behind(behind, conn, Message::Rejected(Rejected { status: failure.status, reason }));
        }
    }
}

/// `rank 1 (...), rank 2 (...), rank 4 (...) and 3 more`
fn named(nodes: &[Culprit]) -> String {
    let named: Vec<String> = nodes.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = nodes.len() - named.len();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", named.join(", "))
}

#[cfg(test)]
#[path = "recovery_test.rs"]
mod tests;
