//! Signs of life: heartbeats and their echo, connections that end, processes that are looked at.
//!
//! A node whose loss is certain becomes *confirmed lost*, with the cause in words; `suspicion.rs` decides whether it is the
//! culprit or only a consequence. Tested in `liveness_test.rs`, and in `lateness_test.rs` where the scheduler itself is late.

use super::contract::{Closed, ConnId, Liveness, Output};
use super::node::{span, Detached, Witness};
use super::timers::Due;
use super::Scheduler;
use crate::types::{Process, Time};
use crate::wire::{Heartbeat, HeartbeatEcho, Message};
use std::time::Duration;

/// After so many intervals without a word a process of this host is looked at.
const LATE: u32 = 2;
/// How long a node on another host may take to come back after its connection ended, where there is no second witness.
pub(super) const REATTACH: Duration = Duration::from_millis(100);
/// The kernel closes a dying process's descriptors shortly before the process can be seen as gone: look again soon ...
const PROBE_FIRST: Duration = Duration::from_millis(1);
/// ... and then less and less often, down to this.
const PROBE_LAST: Duration = Duration::from_millis(50);

impl Scheduler {
    pub(super) fn heartbeat(&mut self, now: Time, key: u32, heartbeat: Heartbeat) {
        let interval = self.interval();
        let Some(node) = self.nodes.get_mut(&key) else { return };
        // Its newest echo is that of the heartbeat before this one, or newer than the one it told before: it has heard what
        // was sent when the one before came, and nothing says that it has heard anything since. Where that was long ago there
        // was nothing to hear: its heartbeats were held up, behind a long value or since its host is busy.
        node.is_deaf = heartbeat.echoed <= node.echoed && heartbeat.sequence > heartbeat.echoed.saturating_add(1);
        if let Some(before) = node.heartbeat.filter(|_| !node.is_deaf) {
            node.hearing = node.hearing.max(before).max(now - interval);
        }
        node.echoed = heartbeat.echoed;
        node.heartbeat = Some(now);
        node.asked = None;
        self.send_to(key, Message::HeartbeatEcho(HeartbeatEcho { sequence: heartbeat.sequence }));
        if self.job.is_complete() && self.is_present(key) {
            self.compare_calls(now, key, &heartbeat.progress);
            self.keep_waits(now, key, heartbeat.waits); // before the next answers who asked where it is
            self.keep_progress(now, key, heartbeat.progress);
            self.keep_gone_on(key, &heartbeat.gone_on);
        }
        if self.recovery.is_some() && self.nodes.get(&key).is_some_and(|node| node.abandoned.is_said_here()) {
            self.recover_if_complete(now); // it lives, and may be the last that was awaited
        }
    }

    /// One whose goodbye waits for the disk hears all the same that this scheduler lives, or it would look for it elsewhere.
    pub(super) fn answer_behind_goodbye(&mut self, conn: ConnId, sequence: u64) {
        if self.promises.holds_for(conn) {
            self.send(conn, Message::HeartbeatEcho(HeartbeatEcho { sequence }));
        }
    }

    /// Asks a node for a heartbeat, unless one is on its way.
    pub(super) fn ask_for_heartbeat(&mut self, now: Time, key: u32) {
        let Some(node) = self.nodes.get_mut(&key) else { return };
        if node.conn.is_some() && node.asked.is_none_or(|asked| now.since(asked) > REATTACH / 2) {
            node.asked = Some(now);
            self.send_to(key, Message::Report);
        }
    }

    /// Looks at every node's last sign of life, once an interval. A process that was killed while it waits for a disk keeps its
    /// connection open until the disk answers: so one that is late is looked at before its time is up.
    pub(super) fn tick(&mut self, now: Time) {
        self.timers.at(now + self.interval(), Due::Tick);
        if self.job.is_forming() {
            return self.free_silent_places(now);
        }
        if self.job.is_broken_for_good() {
            return;
        }
        let (silence, late) = (self.silence(), self.interval() * LATE);
        let quiet: Vec<u32> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.is_member() && node.conn.is_some() && node.confirmed_lost.is_none())
            .filter(|(_, node)| now.since(node.heard) >= late || node.unhearing(now) >= silence)
            .map(|(key, _)| *key)
            .collect();
        for key in quiet {
            let node = &self.nodes[&key];
            let (unheard, unhearing) = (now.since(node.heard), node.unhearing(now));
            if unheard < silence && unhearing < silence {
                self.probe(key);
            } else if unheard < silence {
                let (deaf, heard) = (span(unhearing), span(unheard));
                self.confirm_lost(
                    now,
                    key,
                    format!("is lost: it has not heard the scheduler for {deaf}; last heard {heard} ago"),
                );
            } else if !self.probe(key) {
                let cause = format!("is lost: nothing was heard from it for {}", span(unheard));
                self.confirm_lost(now, key, cause);
            }
        }
    }

    /// Looks whether a node's process lives, if it is on this host. False: it is not.
    pub(super) fn probe(&mut self, key: u32) -> bool {
        let Some(node) = self.nodes.get(&key) else { return false };
        let register = &node.register;
        if register.host.key != self.identity.host.key || register.process.pid_namespace != self.identity.pid_namespace
        {
            return false;
        }
        let process = register.process;
        let waiting = self.probes.entry(process).or_default();
        let open = !waiting.is_empty();
        if !waiting.contains(&key) {
            waiting.push(key);
        }
        if !open {
            self.output(Output::Probe(process));
        }
        true
    }

    pub(super) fn probed(&mut self, now: Time, process: Process, liveness: Liveness) {
        for key in self.probes.remove(&process).unwrap_or_default() {
            if !self.job.is_complete() {
                return;
            }
            if self.nodes.get(&key).is_none_or(|node| node.register.process != process) {
                continue; // another life has its place
            }
            match liveness {
                Liveness::Gone => self.process_gone(now, key),
                Liveness::Alive => self.process_lives(now, key),
            }
        }
    }

    fn process_gone(&mut self, now: Time, key: u32) {
        let Some(node) = self.nodes.get_mut(&key).filter(|node| node.is_member()) else { return };
        node.process_gone = true;
        if node.detached.is_none() {
            // What it last said (that it leaves, that it aborts) may not have been read: a timer comes after that.
            return self.timers.at(now, Due::Judge(key));
        }
        self.confirm_process_gone(now, key);
    }

    fn confirm_process_gone(&mut self, now: Time, key: u32) {
        let Some(node) = self.nodes.get(&key) else { return };
        let words = node.witness.as_ref().filter(|witness| witness.by.is_none() && !witness.is_disproved(node.heard));
        let words = words.map_or_else(String::new, |witness| format!(" (it {})", witness.evidence));
        let how = match &node.detached {
            Some(detached) => format!("and its connection has ended ({})", detached.words),
            None => "although its connection is still open".to_string(),
        };
        let heard = node.last_heard(now);
        self.confirm_lost(now, key, format!("is lost: its process has ended{words}, {how}{heard}"));
    }

    fn process_lives(&mut self, now: Time, key: u32) {
        let silence = self.silence();
        let Some(node) = self.nodes.get_mut(&key).filter(|node| node.is_member()) else { return };
        let unheard = now.since(node.heard);
        if let Some(detached) = &mut node.detached {
            let wait = detached.probe_wait;
            detached.probe_wait = (wait * 2).min(PROBE_LAST);
            self.timers.at((now + wait).min(detached.since + silence), Due::Judge(key));
        } else if unheard >= silence {
            let cause =
                format!("is lost: nothing was heard from it for {}, although its process still runs", span(unheard));
            self.confirm_lost(now, key, cause);
        }
    }

    /// A member's connection ended.
    pub(super) fn detached(&mut self, now: Time, key: u32, how: Closed, words: String) {
        self.store.detached(key);
        let broken = self.job.is_broken_for_good();
        let Some(node) = self.nodes.get_mut(&key) else { return };
        node.conn = None;
        if !node.is_member() {
            return;
        }
        let line = match how {
            Closed::Ended => None,
            Closed::Broken => Some(format!("the connection of {} broke ({words}): it may come back", node.culprit())),
            Closed::Garbage => Some(format!("the connection of {} was closed: {words}", node.culprit())),
        };
        node.detached = Some(Detached { since: now, how, words, probe_wait: PROBE_FIRST });
        if broken {
            // It has been told, and goes; or the verdict was lost with its connection, and it comes back to hear it.
            return self.timers.at(now + REATTACH, Due::Judge(key));
        }
        if let Some(line) = line {
            self.warn(line);
        }
        self.settle_queries(now, key);
        self.answers_no_more(now, key);
        self.judge_soon(now, key);
    }

    /// Judges once everything that is readable has been read: a new connection of the node's may be among it.
    pub(super) fn judge_soon(&mut self, now: Time, key: u32) {
        if !self.probe(key) {
            self.timers.at(now, Due::Judge(key));
        }
    }

    /// Looks at a member without a connection, or at one whose loss waits for another's.
    pub(super) fn judge(&mut self, now: Time, key: u32) {
        if self.job.is_forming() {
            return self.judge_while_forming(now, key);
        }
        let silence = self.silence();
        let Some(node) = self.nodes.get(&key).filter(|node| node.is_member()) else { return };
        if self.job.is_broken_for_good() {
            if node.detached.as_ref().is_some_and(|detached| now >= detached.since + REATTACH) {
                self.gone_after_verdict(now, key);
            }
            return;
        }
        if node.confirmed_lost.is_some() {
            return self.find_culprit(now, key);
        }
        if node.process_gone {
            return self.confirm_process_gone(now, key);
        }
        let Some(detached) = node.detached.clone() else { return };
        let witness = node.witness.clone().filter(|witness| now.since(witness.at) < silence);
        let witness = witness.filter(|witness| witness.suffices(detached.how, node.heard));
        let away = now.since(detached.since);
        let heard = node.last_heard(now);
        let ended = match detached.how {
            Closed::Ended => "its connection ended",
            Closed::Broken => "its connection broke",
            Closed::Garbage => "its connection was closed",
        };
        let words = &detached.words;
        let late = |time| format!("is lost: {ended} ({words}) and it did not come back within {}{heard}", span(time));
        if away >= silence {
            return self.confirm_lost(now, key, late(silence));
        }
        if self.probe(key) {
            return;
        }
        let counts_from = self.witnesses_count_from;
        let witnessed = witness.is_some() && now < counts_from;
        if let Some(Witness { by, evidence, .. }) = witness.filter(|_| now >= counts_from) {
            let seen = match by {
                None => format!("it {evidence}"),
                Some(by) => {
                    let by = self.nodes.get(&by).map_or_else(String::new, |by| by.culprit().to_string());
                    format!("{by} saw so too ({evidence})")
                }
            };
            return self.confirm_lost(now, key, format!("is lost: {ended} ({words}), and {seen}{heard}"));
        }
        let grace = if detached.how == Closed::Ended { REATTACH } else { silence };
        if away >= grace {
            return self.confirm_lost(now, key, late(grace));
        }
        let last = detached.since + grace;
        self.timers.at(if witnessed { counts_from.min(last) } else { last }, Due::Judge(key));
    }
}

#[cfg(test)]
#[path = "lateness_test.rs"]
mod lateness_tests;
#[cfg(test)]
#[path = "liveness_test.rs"]
mod tests;
