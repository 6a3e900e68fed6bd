//! How the job is, told on a connection that never registers (`muster status`). Tested in `status_test.rs`.
//!
//! Each part is told when it is asked for. So the only thing that is kept of a question is how far its connection has been
//! told. Invariants: telling changes nothing else; no node is asked anything for it, because the heartbeats have told enough;
//! no part is longer than a frame before registration may be; no secret, token or value of the store is in it. It promises
//! nothing, so it waits for no disk.

use super::admission::{versions, Refusal};
use super::cluster_state::ClusterState;
use super::connection_table::{Next, Purpose, Reading};
use super::contract::ConnId;
use super::forming::Forming;
use super::node::{span, Node, Place};
use super::promises::Behind;
use super::recovery::Recovery;
use super::standing::Presence;
use super::stragglers::{milliseconds, View};
use super::Scheduler;
use crate::error::Status;
use crate::strangers::Kind;
use crate::types::{Epoch, GroupId, Time};
use crate::wire::{
    Encoder, JobPhase, Message, NodeStanding, StatusGroup, StatusJob, StatusNode, StatusPart, StatusPlace, StatusQuery,
    Watch, Wire, PROTOCOL_HIGHEST, PROTOCOL_LOWEST,
};

/// How many connections may be told at a time.
pub(super) const READERS_MAX: usize = 8;
/// A part with so many bytes is full. What is put in last is shorter than the rest of a frame before registration.
const FULL_BYTES: usize = 48 << 10;
/// How many members of groups are looked at for one part; a group that is larger is looked at all the same.
const LOOKED_AT_MAX: usize = 1 << 15;
/// How many calls of a node are told.
pub(super) const CALLS_MAX: usize = 8;

/// Questions that are refused: the log names some of them.
const REFUSED: Kind = Kind { name: "refused questions about the job's status", lines: 8 };

impl Scheduler {
    /// Tells the next part.
    pub(super) fn tell_status(&mut self, now: Time, conn: ConnId, query: &StatusQuery) {
        let Some(known) = self.conductor.cluster.connections.get(conn) else { return };
        let told = match known.purpose {
            Purpose::Reads(reading) => Some(reading),
            _ => None,
        };
        if let Err(refusal) = may_be_told(&self.conductor.cluster, told, query) {
            return self.refuse_to_tell(conn, refusal);
        }
        let view = View { cluster: &self.conductor.cluster, groups: &self.conductor.groups, now };
        let status = JobStatus { view, forming: &self.conductor.forming, recovery: &self.conductor.recovery };
        let (part, reading) = status.next_part(told);
        let last = part.last;
        self.conductor.cluster.connections.reads(conn, reading);
        self.conductor.cluster.out.send_behind(Behind::Nothing, conn, Message::StatusPart(part));
        if last {
            self.conductor.cluster.drop_connection(conn);
        }
    }

    /// Tells a launcher how the job goes, now and whenever that has changed.
    pub(super) fn watch(&mut self, conn: ConnId, watch: &Watch) {
        let cluster = &mut self.conductor.cluster;
        let speaks = speaks_ours((watch.protocol_lowest, watch.protocol_highest));
        let taken = speaks.and_then(|()| {
            let many = |most| (Status::Limit, format!("{most} others watch this job"));
            cluster.connections.watches(conn).map_err(many)
        });
        match taken {
            Ok(()) => {
                let news = Message::JobNews(cluster.job.news(cluster.identity.instance));
                cluster.out.send_behind(Behind::Nothing, conn, news);
            }
            Err(refusal) => self.refuse_to_tell(conn, refusal),
        }
    }

    fn refuse_to_tell(&mut self, conn: ConnId, (status, reason): Refusal) {
        let cluster = &mut self.conductor.cluster;
        let from = cluster.connections.address(conn);
        let line = format!("no status for {from}: {reason}");
        cluster.out.quiet_nuisance(REFUSED, &from, &line);
        cluster.reject(conn, status, reason);
    }
}

fn may_be_told(cluster: &ClusterState, told: Option<Reading>, query: &StatusQuery) -> Result<(), Refusal> {
    speaks_ours((query.protocol_lowest, query.protocol_highest))?;
    if told.is_none() && cluster.connections.readers() >= READERS_MAX {
        let reason = format!("{READERS_MAX} others are being told at this moment: ask again");
        return Err((Status::Limit, reason));
    }
    Ok(())
}

/// Checks whether a process with these protocol versions speaks one of this scheduler's versions.
fn speaks_ours((lowest, highest): (u16, u16)) -> Result<(), Refusal> {
    if lowest > PROTOCOL_HIGHEST || highest < PROTOCOL_LOWEST {
        let reason = format!(
            "the process that connects speaks protocol {}, this scheduler (library {}) {}: they have none in common",
            versions(lowest, highest),
            env!("CARGO_PKG_VERSION"),
            versions(PROTOCOL_LOWEST, PROTOCOL_HIGHEST)
        );
        return Err((Status::Rejected, reason));
    }
    Ok(())
}

/// The job as it is told at one moment.
struct JobStatus<'a> {
    view: View<'a>,
    forming: &'a Forming,
    recovery: &'a Recovery,
}

impl JobStatus<'_> {
    /// The part after what was told so far, and how far that part goes.
    fn next_part(&self, told: Option<Reading>) -> (StatusPart, Reading) {
        let of = self.view.cluster.job.is_complete().then_some(self.view.cluster.epoch);
        let goes_on = told.filter(|reading| reading.of == of);
        let mut reading = goes_on.unwrap_or(Reading { of, next: Next::Node(0) });
        let job = goes_on.is_none().then(|| self.status_of_job());
        let mut bytes = length(&job);
        let mut part = StatusPart { job, ..StatusPart::default() };
        if let Next::Node(first) = reading.next {
            reading.next = Next::Group(GroupId(0));
            for (key, node) in self.view.cluster.nodes.range(first..) {
                if bytes >= FULL_BYTES {
                    reading.next = Next::Node(*key);
                    break;
                }
                part.nodes.push(self.status_of_node(*key, node));
                bytes += part.nodes.last().map_or(0, length);
            }
        }
        if let Next::Group(first) = reading.next {
            reading.next = self.put_groups(first, bytes, &mut part);
        }
        part.last = matches!(reading.next, Next::Nothing);
        (part, reading)
    }

    /// Puts in the groups from this one on, as far as there is room. Returns where to go on.
    fn put_groups(&self, first: GroupId, mut bytes: usize, part: &mut StatusPart) -> Next {
        if self.view.cluster.job.is_broken() || self.recovery.is_open() {
            return Next::Nothing; // every one of them is over
        }
        let mut looked_at = 0;
        for group in self.view.groups.all().filter(|group| *group >= first) {
            if bytes >= FULL_BYTES || looked_at >= LOOKED_AT_MAX {
                return Next::Group(group);
            }
            if let Some(revocation) = self.view.groups.revoked.get(&group) {
                let failure = Some(revocation.failure.clone());
                let (sequence, call, members) = (0, None, Vec::new());
                let told = StatusGroup { group, failure, sequence, call, inside: 0, age_ms: 0, absent: 0, members };
                bytes += length(&told);
                part.groups.push(told);
                continue;
            }
            let members = self.view.groups.table.members_of(group).unwrap_or_default();
            looked_at += members.len();
            let (carried, waited_in) = (self.view.carrier_of(group, &members), self.view.waited_in(group, &members));
            bytes += carried.as_ref().map_or(0, length) + waited_in.as_ref().map_or(0, length);
            part.carriers.0.extend(carried);
            part.groups.extend(waited_in);
        }
        Next::Nothing
    }

    fn status_of_job(&self) -> StatusJob {
        let (phase, words) = self.phase_in_words();
        StatusJob {
            instance: self.view.cluster.identity.instance,
            job_id: self.view.cluster.rules.job_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            recovery: self.view.cluster.rules.recovery,
            worker_num: self.view.cluster.rules.worker_num,
            server_num: self.view.cluster.rules.server_num,
            generation: self.view.cluster.generation,
            age_ms: milliseconds(self.view.now.since(self.view.cluster.started)),
            epoch: if self.view.cluster.job.is_complete() { self.view.cluster.epoch } else { Epoch(0) },
            phase,
            words,
            failure: self.view.cluster.job.verdict().cloned(),
        }
    }

    fn phase_in_words(&self) -> (JobPhase, String) {
        let all = self.view.cluster.nodes.len();
        if self.view.cluster.job.is_forming() {
            return (
                JobPhase::Forming,
                format!(
                    "since {}: {}",
                    span(self.view.now.since(self.view.cluster.started)),
                    self.forming.how_far(self.view.cluster)
                ),
            );
        }
        if let Some(words) = self.recovery.in_words(self.view.cluster, self.view.now) {
            return (JobPhase::Recovering, words);
        }
        if self.view.cluster.job.is_broken() {
            let words = match self.view.cluster.job.is_recoverable() {
                true => format!("nobody is in muster_recover; {}", self.recovery.awaited_in_words(self.view.cluster)),
                false => "it will not be made whole again".to_owned(),
            };
            return (JobPhase::Broken, words);
        }
        if self.view.cluster.job.first_left().is_some() {
            return (JobPhase::Ending, format!("{} of {all} nodes have left", all - self.view.cluster.nodes.present()));
        }
        let away = self.view.cluster.nodes.values().filter(|node| node.conn().is_none()).count();
        let rest = if away > 0 { format!("; {away} of {all} nodes are away") } else { String::new() };
        (JobPhase::Running, format!("{}{rest}", self.view.cluster.size_in_words()))
    }

    fn status_of_node(&self, key: u32, node: &Node) -> StatusNode {
        let is_recovering = self.recovery.holds(key);
        let state = match node.presence {
            Presence::Left => NodeStanding::Left,
            Presence::Lost { .. } => NodeStanding::Lost,
            Presence::Member if node.conn().is_none() || node.is_confirmed_lost() => NodeStanding::Away,
            Presence::Member if node.is_back() => NodeStanding::Back,
            Presence::Member if is_recovering => NodeStanding::Recovering,
            Presence::Member => NodeStanding::Member,
        };
        let mut calls = if node.is_member() { self.view.calls_of(node) } else { Vec::new() };
        let more = calls.len().saturating_sub(CALLS_MAX);
        calls.truncate(CALLS_MAX);
        StatusNode {
            who: node.culprit(),
            state,
            heard_ms: (!node.is_unheard()).then(|| milliseconds(self.view.now.since(node.contact.heard))),
            restarts: node.lives.restarts,
            calls,
            more: more as u32,
            waits: if node.is_member() { self.view.waits_of(node) } else { Vec::new() },
            place: node.place.map(|place| place_of(node, place)),
        }
    }
}

fn place_of(node: &Node, place: Place) -> StatusPlace {
    StatusPlace {
        host_key: node.register.host.key.clone(),
        local_rank: place.local_rank,
        address: node.register.addresses.first().copied(),
        device: node.register.device,
    }
}

#[cfg(test)]
impl Scheduler {
    /// Everything that this scheduler knows, except its connections and when it is woken for them.
    pub(crate) fn all_but_connections(&self) -> String {
        let cluster = &self.conductor.cluster;
        let job = (&cluster.identity, &cluster.rules, cluster.started, &cluster.job, cluster.epoch, cluster.generation);
        let nodes = (&self.conductor.forming, &cluster.nodes, &cluster.table);
        let asked = (&self.conductor.groups, &self.conductor.stragglers, &self.conductor.store, &cluster.out.promises);
        let next = (&self.conductor.recovery, &self.conductor.detector, cluster.out.queued());
        format!("{job:?} {nodes:?} {asked:?} {next:?}")
    }
}

/// How many bytes this value has on the wire.
fn length(value: &impl Wire) -> usize {
    let mut to = Encoder::default();
    value.put(&mut to);
    to.bytes.len()
}

#[cfg(test)]
#[path = "status_test.rs"]
mod tests;
#[cfg(test)]
#[path = "watch_test.rs"]
mod watch_tests;
