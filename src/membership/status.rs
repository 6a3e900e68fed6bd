//! How the job is, told to whoever asks on a connection that never registers (`muster status`). Tested in
//! `status_test.rs`.
//!
//! A part at a time, each when it is asked for, so that nothing is kept of a question but how far its connection has been
//! told. Invariants: to tell changes nothing else; nobody is asked anything for it, for what heartbeats have told must do;
//! no part is longer than a frame before registration may be; no secret, token or value of the store is in it. It
//! promises nothing, so that it waits for no disk.

use super::admission::{versions, Refusal};
use super::connections::{Connection, Next, Reading};
use super::contract::{ConnId, Output};
use super::node::{span, Node};
use super::standing::Presence;
use super::Scheduler;
use crate::error::Status;
use crate::types::{Epoch, GroupId, Time};
use crate::wire::{
    Encoder, GroupProgress, JobPhase, Message, MessageWait, NodeState, Rejected, StatusGroup, StatusJob, StatusNode,
    StatusPart, StatusQuery, Wire, PROTOCOL_HIGHEST, PROTOCOL_LOWEST,
};
use std::time::Duration;

/// How many may be told at a time.
pub(super) const READERS_MAX: usize = 8;
/// A part with so many bytes is full. What is put in last is shorter than the rest of a frame before registration.
const FULL_BYTES: usize = 48 << 10;
/// How many members of groups are looked at for one part; a group that is larger is looked at all the same.
const LOOKED_AT_MAX: usize = 1 << 15;
/// How many calls of a node are told.
pub(super) const CALLS_MAX: usize = 8;

impl Scheduler {
    /// Tells the next part.
    pub(super) fn tell_status(&mut self, now: Time, conn: ConnId, query: &StatusQuery) {
        let Some(known) = self.connections.get(conn) else { return };
        if let Err((status, reason)) = self.may_be_told(known, query) {
            self.note(format!("no status for {}: {reason}", known.address));
            self.output(Output::Send(conn, Message::Rejected(Rejected { status, reason })));
            return self.drop_connection(conn);
        }
        let (part, reading) = self.next_part(now, known.reading);
        let last = part.last;
        self.connections.reads(conn, reading);
        self.output(Output::Send(conn, Message::StatusPart(part)));
        if last {
            self.drop_connection(conn);
        }
    }

    fn may_be_told(&self, known: &Connection, query: &StatusQuery) -> Result<(), Refusal> {
        let (lowest, highest) = (query.protocol_lowest, query.protocol_highest);
        if lowest > PROTOCOL_HIGHEST || highest < PROTOCOL_LOWEST {
            let reason = format!(
                "who asks speaks protocol {}, this scheduler (library {}) {}: they have none in common",
                versions(lowest, highest),
                env!("CARGO_PKG_VERSION"),
                versions(PROTOCOL_LOWEST, PROTOCOL_HIGHEST)
            );
            return Err((Status::Rejected, reason));
        }
        if known.reading.is_none() && self.connections.readers() >= READERS_MAX {
            let reason = format!("{READERS_MAX} others are being told at this moment: ask again");
            return Err((Status::Limit, reason));
        }
        Ok(())
    }

    /// The part after what was told so far, and how far it goes.
    fn next_part(&self, now: Time, told: Option<Reading>) -> (StatusPart, Reading) {
        let of = self.job.is_complete().then_some(self.epoch);
        let goes_on = told.filter(|reading| reading.of == of);
        let mut reading = goes_on.unwrap_or(Reading { of, next: Next::Node(0) });
        let job = goes_on.is_none().then(|| self.status_of_job(now));
        let mut bytes = length(&job);
        let mut part = StatusPart { job, nodes: Vec::new(), groups: Vec::new(), last: false };
        if let Next::Node(first) = reading.next {
            reading.next = Next::Group(GroupId(0));
            for (key, node) in self.nodes.range(first..) {
                if bytes >= FULL_BYTES {
                    reading.next = Next::Node(*key);
                    break;
                }
                part.nodes.push(self.status_of_node(now, *key, node));
                bytes += part.nodes.last().map_or(0, length);
            }
        }
        if let Next::Group(first) = reading.next {
            reading.next = self.put_groups(now, first, bytes, &mut part.groups);
        }
        part.last = matches!(reading.next, Next::Nothing);
        (part, reading)
    }

    /// The groups from this one on, as far as there is room; where to go on.
    fn put_groups(&self, now: Time, first: GroupId, mut bytes: usize, into: &mut Vec<StatusGroup>) -> Next {
        if self.job.is_broken() || self.recovery.is_some() {
            return Next::Nothing; // every one of them is over
        }
        let built_in = [GroupId::WORLD, GroupId::SERVERS, GroupId::UNIVERSE];
        let mut looked_at = 0;
        for group in built_in.into_iter().chain(self.groups.all()).filter(|group| *group >= first) {
            if bytes >= FULL_BYTES || looked_at >= LOOKED_AT_MAX {
                return Next::Group(group);
            }
            if let Some(revocation) = self.revoked.get(&group) {
                let failure = Some(revocation.failure.clone());
                let (sequence, call, members) = (0, None, Vec::new());
                into.push(StatusGroup { group, failure, sequence, call, inside: 0, age_ms: 0, absent: 0, members });
            } else {
                let members = self.members_of(group).unwrap_or_default();
                looked_at += members.len();
                let Some(waited_in) = self.waited_in(now, group, &members) else { continue };
                into.push(waited_in);
            }
            bytes += into.last().map_or(0, length);
        }
        Next::Nothing
    }

    fn status_of_job(&self, now: Time) -> StatusJob {
        let (phase, words) = self.phase_in_words(now);
        StatusJob {
            instance: self.identity.instance,
            job_id: self.rules.job_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            recovery: self.rules.recovery,
            worker_num: self.rules.worker_num,
            server_num: self.rules.server_num,
            generation: self.generation,
            age_ms: milliseconds(now.since(self.started)),
            epoch: if self.job.is_complete() { self.epoch } else { Epoch(0) },
            phase,
            words,
            failure: self.job.verdict().cloned(),
        }
    }

    fn phase_in_words(&self, now: Time) -> (JobPhase, String) {
        let all = self.nodes.len();
        if self.job.is_forming() {
            return (JobPhase::Forming, format!("since {}: {}", span(now.since(self.started)), self.how_far()));
        }
        if let Some(words) = self.recovery_in_words(now) {
            return (JobPhase::Recovering, words);
        }
        if self.job.is_broken() {
            let words = match self.job.is_recoverable() {
                true => format!("nobody has called muster_recover yet; {}", self.awaited().1),
                false => "it will not be made whole again".to_owned(),
            };
            return (JobPhase::Broken, words);
        }
        if self.job.first_left().is_some() {
            return (JobPhase::Ending, format!("{} of {all} nodes have left", all - self.present));
        }
        let away = self.nodes.values().filter(|node| node.conn.is_none()).count();
        let rest = if away > 0 { format!("; {away} of {all} nodes are away") } else { String::new() };
        (JobPhase::Running, format!("{}{rest}", self.size_in_words()))
    }

    fn status_of_node(&self, now: Time, key: u32, node: &Node) -> StatusNode {
        let is_recovering = self.recovery.as_ref().is_some_and(|recovery| recovery.holds(key));
        let state = match node.presence {
            Presence::Left => NodeState::Left,
            Presence::Lost { .. } => NodeState::Lost,
            Presence::Member if node.conn.is_none() || node.confirmed_lost.is_some() => NodeState::Away,
            Presence::Member if node.is_back() => NodeState::Back,
            Presence::Member if is_recovering => NodeState::Recovering,
            Presence::Member => NodeState::Member,
        };
        let mut calls = if node.is_member() { self.calls_of(now, node) } else { Vec::new() };
        let more = calls.len().saturating_sub(CALLS_MAX);
        calls.truncate(CALLS_MAX);
        StatusNode {
            who: node.culprit(),
            state,
            heard_ms: (!node.is_unheard()).then(|| milliseconds(now.since(node.heard))),
            restarts: node.restarts,
            calls,
            more: more as u32,
            waits: if node.is_member() { self.waits_of(now, node) } else { Vec::new() },
        }
    }

    /// For which messages a node waits, in groups that still hold.
    pub(super) fn waits_of(&self, now: Time, node: &Node) -> Vec<MessageWait> {
        let Some((waits, told)) = node.waits.as_deref().filter(|_| !self.job.is_broken()) else { return Vec::new() };
        let since = milliseconds(now.since(*told));
        let holds = |wait: &&MessageWait| !self.revoked.contains_key(&wait.group);
        let aged = |wait: &MessageWait| MessageWait { age_ms: wait.age_ms.saturating_add(since), ..wait.clone() };
        waits.iter().filter(holds).map(aged).collect()
    }

    /// In what a node is, in groups that still hold.
    fn calls_of(&self, now: Time, node: &Node) -> Vec<GroupProgress> {
        if self.job.is_broken() {
            return Vec::new();
        }
        let inside = |(progress, _): &&(GroupProgress, Time)| {
            progress.entered > progress.finished && !self.revoked.contains_key(&progress.group)
        };
        let since = |(progress, told): &(GroupProgress, Time)| {
            let age_ms = progress.age_ms.saturating_add(milliseconds(now.since(*told)));
            GroupProgress { age_ms, ..progress.clone() }
        };
        node.progress.iter().filter(inside).map(since).collect()
    }
}

#[cfg(test)]
impl Scheduler {
    /// Everything that this scheduler knows, but for its connections and when it is woken for them.
    pub(crate) fn all_but_connections(&self) -> String {
        let job = (&self.identity, &self.rules, self.started, &self.job, self.forming_deadline, self.epoch);
        let nodes = (&self.nodes, self.next_key, &self.by_incarnation, &self.by_id, &self.ranks_held, self.here);
        let cluster = (&self.members, self.is_one_host, self.present, self.generation, &self.probes);
        let broken = (&self.revoked, &self.lost, &self.fenced);
        let asked = (&self.calls, &self.queries, self.next_query, &self.store, &self.groups, &self.promises);
        let next = (&self.recovery, self.spare_secret.map(|secret| secret.0), self.witnesses_count_from, &self.outputs);
        format!("{job:?} {nodes:?} {cluster:?} {broken:?} {asked:?} {next:?}")
    }
}

pub(super) fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// How long it is on the wire.
fn length(value: &impl Wire) -> usize {
    let mut to = Encoder::default();
    value.put(&mut to);
    to.bytes.len()
}

#[cfg(test)]
#[path = "status_test.rs"]
mod tests;
