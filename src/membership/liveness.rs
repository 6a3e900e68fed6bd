//! Signs of life: heartbeats and their echo, connections that end, processes that are looked at.
//!
//! It finds out which losses are certain, with the cause in words, and changes nothing for them. `breaking.rs`, which
//! stands above, decides what follows. Tested in `liveness_test.rs`, and in `lateness_test.rs` where the scheduler
//! itself is late.

use super::cluster_state::ClusterState;
use super::contract::{Closed, ConnId, Liveness, Output};
use super::node::{span, Node, Witness};
use super::timers::Due;
use crate::strangers::Kind;
use crate::types::{Process, Time};
use crate::wire::{Heartbeat, HeartbeatEcho, Message};
use std::collections::HashMap;
use std::time::Duration;

/// What a stranger can cause where the job has neither a secret nor TLS.
const DETACHED: Kind = Kind { name: "connections of members that broke or were closed", lines: 64 };
/// After so many intervals without a word a process of this host is looked at.
const LATE: u32 = 2;
/// How long a node on another host may take to come back after its connection ended, if there is no second witness.
pub(super) const REATTACH: Duration = Duration::from_millis(100);
/// The kernel closes a dying process's descriptors shortly before the process can be seen as gone: look again soon ...
const PROBE_FIRST: Duration = Duration::from_millis(1);
/// ... and then less and less often, down to this.
const PROBE_LAST: Duration = Duration::from_millis(50);
/// How long nodes have at least to find a scheduler that was started again. A node pauses for up to half a second between
/// two attempts, and the system sends a lost SYN again after one second.
const FOUND_WITHIN: Duration = Duration::from_millis(1_500);

/// A node whose loss is certain, and the cause in words.
pub(super) type Loss = (u32, String);

/// Finds out which nodes are lost.
#[derive(Debug)]
pub(super) struct FailureDetector {
    /// Which nodes each open probe is for.
    probes: HashMap<Process, Vec<u32>>,
    /// Until this time a witness does not count. While this scheduler stood still, nodes whose connections had ended could not
    /// come back.
    witnesses_count_from: Time,
    /// Until this time no node counts as lost only because it has not come back: this scheduler was started again.
    found_until: Time,
}

impl FailureDetector {
    pub(super) fn new(now: Time) -> FailureDetector {
        FailureDetector { probes: HashMap::new(), witnesses_count_from: now, found_until: now }
    }

    /// This scheduler itself stood still until now.
    pub(super) fn stood_still(&mut self, now: Time) {
        self.witnesses_count_from = now + REATTACH;
    }

    /// This scheduler was started again: the nodes have to find it.
    pub(super) fn started_again(&mut self, now: Time) {
        self.found_until = now + FOUND_WITHIN;
    }

    /// When a node whose connection ended at this time is lost if it has not come back.
    fn time_is_up(&self, silence: Duration, detached: Time) -> Time {
        (detached + silence).max(self.found_until)
    }

    /// A heartbeat is a sign that its node lives, and says what the node has heard.
    pub(super) fn heartbeat(&self, cluster: &mut ClusterState, now: Time, key: u32, heartbeat: &Heartbeat) {
        let interval = cluster.interval();
        let Some(node) = cluster.nodes.get_mut(key) else { return };
        node.contact.heartbeat(now, interval, heartbeat);
        cluster.send_to(key, Message::HeartbeatEcho(HeartbeatEcho { sequence: heartbeat.sequence }));
    }

    /// Looks at every node's last sign of life, once an interval. A process that was killed while it waits for a disk
    /// keeps its connection open until the disk answers. So the process of a late node is looked at before the node's
    /// time is up.
    pub(super) fn tick(&mut self, cluster: &mut ClusterState, now: Time) -> Vec<Loss> {
        if cluster.job.is_broken_for_good() {
            return Vec::new();
        }
        let (silence, late) = (cluster.silence(), cluster.interval() * LATE);
        let quiet: Vec<u32> = cluster
            .nodes
            .iter()
            .filter(|(_, node)| node.is_well())
            .filter(|(_, node)| now.since(node.contact.heard) >= late || node.contact.unhearing(now) >= silence)
            .map(|(key, _)| *key)
            .collect();
        let mut losses = Vec::new();
        for key in quiet {
            let node = &cluster.nodes[&key];
            let (unheard, unhearing) = (now.since(node.contact.heard), node.contact.unhearing(now));
            if unheard < silence && unhearing < silence {
                self.probe(cluster, key);
            } else if unheard < silence {
                let (deaf, heard) = (span(unhearing), span(unheard));
                losses
                    .push((key, format!("is lost: it has not heard the scheduler for {deaf}; last heard {heard} ago")));
            } else if !self.probe(cluster, key) {
                losses.push((key, format!("is lost: nothing was heard from it for {}", span(unheard))));
            }
        }
        losses
    }

    /// Something may be wrong with a node: it is asked for a sign, or judged where it cannot be asked.
    pub(super) fn look_into(&mut self, cluster: &mut ClusterState, now: Time, key: u32) {
        if cluster.nodes.conn(key).is_some() {
            self.probe(cluster, key);
            cluster.ask_for_heartbeat(now, key);
        } else {
            self.judge_soon(cluster, now, key);
        }
    }

    /// Looks whether a node's process lives, if it is on this host. Returns false if it is on another.
    fn probe(&mut self, cluster: &mut ClusterState, key: u32) -> bool {
        let Some(node) = cluster.nodes.get(&key) else { return false };
        let (register, own) = (&node.register, &cluster.identity);
        if register.host.key != own.host.key || register.process.pid_namespace != own.process.pid_namespace {
            return false;
        }
        let process = register.process;
        let waiting = self.probes.entry(process).or_default();
        let open = !waiting.is_empty();
        if !waiting.contains(&key) {
            waiting.push(key);
        }
        if !open {
            cluster.out.output(Output::Probe(process));
        }
        true
    }

    /// A process was looked at, for the nodes whose process it was.
    pub(super) fn probed(
        &mut self,
        cluster: &mut ClusterState,
        now: Time,
        process: Process,
        liveness: Liveness,
    ) -> Vec<Loss> {
        let keys = self.probes.remove(&process).unwrap_or_default();
        let mut losses = Vec::new();
        for key in keys.into_iter().filter(|_| cluster.job.is_complete()) {
            let silence = cluster.silence();
            // Another life may have its place by now.
            let is_it = |node: &&mut Node| node.register.process == process && node.is_member();
            let Some(node) = cluster.nodes.get_mut(key).filter(is_it) else { continue };
            let unheard = now.since(node.contact.heard);
            match (liveness, node.attachment.detached_mut()) {
                (Liveness::Gone, Some(_)) => {
                    node.evidence.certainty.process_has_gone();
                    losses.extend(process_gone(cluster, now, key));
                }
                (Liveness::Gone, None) => {
                    // The last thing it said (that it leaves, or aborts) may not have been read yet: a timer comes
                    // after everything was read.
                    node.evidence.certainty.process_has_gone();
                    cluster.out.at(now, Due::Judge(key));
                }
                (Liveness::Alive, Some(detached)) => {
                    let (wait, since) = (detached.probe_wait, detached.since);
                    detached.probe_wait = (wait * 2).min(PROBE_LAST);
                    cluster.out.at((now + wait).min(self.time_is_up(silence, since)), Due::Judge(key));
                }
                (Liveness::Alive, None) if unheard >= silence => losses.push((
                    key,
                    format!(
                        "is lost: nothing was heard from it for {}, although its process still runs",
                        span(unheard)
                    ),
                )),
                (Liveness::Alive, None) => {}
            }
        }
        losses
    }

    /// Judges a node once everything that is readable has been read: a new connection of the node may be among it.
    pub(super) fn judge_soon(&mut self, cluster: &mut ClusterState, now: Time, key: u32) {
        if !self.probe(cluster, key) {
            cluster.out.at(now, Due::Judge(key));
        }
    }

    /// Whether a member without a connection, or whose process has gone, is lost for certain.
    pub(super) fn judge(&mut self, cluster: &mut ClusterState, now: Time, key: u32) -> Option<Loss> {
        let silence = cluster.silence();
        let node = cluster.nodes.get(&key)?;
        if node.evidence.certainty.is_process_gone() {
            return process_gone(cluster, now, key);
        }
        let detached = node.attachment.detached().cloned()?;
        let witness = node.evidence.witness.clone().filter(|witness| now.since(witness.at) < silence);
        let witness = witness.filter(|witness| witness.suffices(detached.how, node.contact.heard));
        let up = self.time_is_up(silence, detached.since);
        let heard = node.last_heard(now);
        // A connection that ends before its node has taken up an epoch may be another's: the node may not know of it.
        let comes_at_once = detached.how == Closed::Ended && !node.is_unheard();
        let ended = match detached.how {
            Closed::Ended => "its connection ended",
            Closed::Broken | Closed::Refused => "its connection broke",
            Closed::Garbage => "its connection was closed",
        };
        let words = &detached.words;
        let late = |by: Time| {
            let time = span(by.since(detached.since));
            format!("is lost: {ended} ({words}) and it did not come back within {time}{heard}")
        };
        if now >= up {
            return Some((key, late(up)));
        }
        if self.probe(cluster, key) {
            return None;
        }
        let counts_from = self.witnesses_count_from;
        let witnessed = witness.is_some() && now < counts_from;
        if let Some(Witness { by, evidence, .. }) = witness.filter(|_| now >= counts_from) {
            let seen = match by {
                None => format!("it {evidence}"),
                Some(by) => {
                    let by = cluster.nodes.get(&by).map_or_else(String::new, |by| by.culprit().to_string());
                    format!("{by} saw so too ({evidence})")
                }
            };
            return Some((key, format!("is lost: {ended} ({words}), and {seen}{heard}")));
        }
        let last = if comes_at_once { detached.since + REATTACH } else { up };
        if now >= last {
            return Some((key, late(last)));
        }
        cluster.out.at(if witnessed { counts_from.min(last) } else { last }, Due::Judge(key));
        None
    }
}

fn process_gone(cluster: &ClusterState, now: Time, key: u32) -> Option<Loss> {
    let node = cluster.nodes.get(&key)?;
    let words = node
        .evidence
        .witness
        .as_ref()
        .filter(|witness| witness.by.is_none() && !witness.is_disproved(node.contact.heard));
    let words = words.map_or_else(String::new, |witness| format!(" (it {})", witness.evidence));
    let how = match node.attachment.detached() {
        Some(detached) => format!("and its connection has ended ({})", detached.words),
        None => "although its connection is still open".to_string(),
    };
    let heard = node.last_heard(now);
    Some((key, format!("is lost: its process has ended{words}, {how}{heard}")))
}

impl ClusterState {
    /// A node's connection ended. Returns whether the node is to be judged soon.
    pub(super) fn detached(&mut self, now: Time, key: u32, how: Closed, words: String) -> bool {
        let Some(node) = self.nodes.get_mut(key) else { return false };
        if !node.is_member() {
            node.attachment.release();
            return false;
        }
        let culprit = node.culprit().to_string();
        let line = match how {
            Closed::Ended => None,
            Closed::Broken | Closed::Refused => {
                Some(format!("the connection of {culprit} broke ({words}): it may come back"))
            }
            Closed::Garbage => Some(format!("the connection of {culprit} was closed: {words}")),
        };
        node.attachment.detach(now, how, words, PROBE_FIRST);
        if self.job.is_broken_for_good() {
            // The node has been told, and goes; or the verdict was lost with its connection, and the node comes back to
            // hear it.
            self.out.at(now + REATTACH, Due::Judge(key));
            return false;
        }
        if let Some(line) = line {
            self.out.nuisance(DETACHED, &culprit, &line);
        }
        true
    }

    /// A node whose goodbye waits for the disk hears all the same that this scheduler lives. Otherwise it would look
    /// for it elsewhere.
    pub(super) fn answer_behind_goodbye(&mut self, conn: ConnId, sequence: u64) {
        if self.out.promises.holds_for(conn) {
            self.out.send(conn, Message::HeartbeatEcho(HeartbeatEcho { sequence }));
        }
    }

    /// Asks a node for a heartbeat, unless one is on its way.
    pub(super) fn ask_for_heartbeat(&mut self, now: Time, key: u32) {
        let Some(node) = self.nodes.get_mut(key) else { return };
        if node.conn().is_some() && node.contact.asked.is_none_or(|asked| now.since(asked) > REATTACH / 2) {
            node.contact.asked = Some(now);
            self.send_to(key, Message::Report);
        }
    }
}

#[cfg(test)]
#[path = "lateness_test.rs"]
mod lateness_tests;
#[cfg(test)]
#[path = "liveness_test.rs"]
mod tests;
