//! From the first node to a complete cluster, or to the end of the time for it. Tested in `forming_test.rs`.

use super::cluster_state::ClusterState;
use super::contract::{Closed, ConnId};
use super::member_table::MemberTable;
use super::node::{counted, name, span, Node};
use super::ranks::{assign, Candidate};
use super::timers::Due;
use crate::error::Status;
use crate::strangers::Kind;
use crate::types::{Role, Time};
use crate::wire::Register;
use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

/// What a stranger can cause where the job has neither a secret nor TLS.
const FREED: Kind = Kind { name: "nodes that were gone before the cluster was complete", lines: 64 };
/// When the log first says how far forming is. From then on it says so every second.
pub(super) const FIRST_LINE: Duration = Duration::from_secs(3);
const LINE_EVERY: Duration = Duration::from_secs(1);
/// A node's time-out counts as the scheduler's own if the two differ by less than a tenth of it, and by less than a second.
const NEAR: u32 = 10;
/// How many hosts, and how many runs of missing ranks, a sentence lists.
const LISTED_MAX: usize = 8;
/// How many refusals a sentence gives the reasons of.
const REASONS_MAX: usize = 2;

/// What is known while the cluster forms, and not afterwards.
#[derive(Debug)]
pub(super) struct Forming {
    /// When the time for forming is up; none: never.
    pub(super) deadline: Option<Time>,
    /// The key of the next node that comes.
    next_key: u32,
    /// Which node has which explicit rank.
    ranks_held: HashMap<(Role, u32), u32>,
    /// How many workers and servers are here.
    here: [u32; 2],
    /// How many lives were refused, and why the first of them were.
    refused: u32,
    reasons: Vec<String>,
    /// How many lives were sent on to look for another scheduler, and why the first was.
    sent_on: u32,
    sent_on_first: String,
    pub(super) turned_away: TurnedAway,
}

/// The connections that never registered, because of TLS, the job's secret or what they sent. One of them may be the node that
/// is missing.
#[derive(Debug, Default)]
pub(super) struct TurnedAway {
    number: u32,
    /// The first of them. A node that is kept out comes before what may be a port scan.
    first: Option<(Closed, String)>,
}

impl TurnedAway {
    /// A connection from this host has ended before it said what it is for.
    pub(super) fn note(&mut self, how: Closed, host: &str, words: &str) {
        if matches!(how, Closed::Ended | Closed::Broken) {
            return;
        }
        self.number = self.number.saturating_add(1);
        let is_better = |kept: &(Closed, String)| kept.0 == Closed::Garbage && how == Closed::Refused;
        if self.first.as_ref().is_none_or(is_better) {
            self.first = Some((how, format!("from {host}: {words}")));
        }
    }

    /// `; 1 connection was turned away before it registered, from 10.0.0.5: it does not know our job secret`
    fn in_words(&self) -> Option<String> {
        let (_, first) = self.first.as_ref()?;
        Some(match self.number {
            1 => format!("; 1 connection was turned away before it registered, {first}"),
            many => format!("; {many} connections were turned away before they registered, one {first}"),
        })
    }
}

impl Forming {
    pub(super) fn new(deadline: Option<Time>) -> Forming {
        Forming {
            deadline,
            next_key: 0,
            ranks_held: HashMap::new(),
            here: [0; 2],
            refused: 0,
            reasons: Vec::new(),
            sent_on: 0,
            sent_on_first: String::new(),
            turned_away: TurnedAway::default(),
        }
    }

    /// The node that has this rank.
    pub(super) fn holder(&self, role: Role, rank: u32) -> Option<u32> {
        self.ranks_held.get(&(role, rank)).copied()
    }

    /// How many nodes of a role are here.
    pub(super) fn here(&self, role: Role) -> u32 {
        self.here[usize::from(role == Role::Server)]
    }

    /// A node may come in.
    pub(super) fn admit(
        &mut self,
        cluster: &mut ClusterState,
        now: Time,
        conn: ConnId,
        mut register: Register,
        rank: Option<u32>,
    ) {
        register.forget_what_was_checked();
        let key = self.next_key;
        self.next_key += 1;
        let as_rank = rank.map_or_else(String::new, |rank| format!(" as rank {rank}"));
        cluster.out.note(format!("admitted {} {}{as_rank}", register.role, name(&register)));
        if let Some(rank) = rank {
            self.ranks_held.insert((register.role, rank), key);
        }
        self.here[usize::from(register.role == Role::Server)] += 1;
        cluster.connections.belongs_to(conn, key);
        cluster.nodes.insert(key, Box::new(Node::new(register, rank, conn, now)));
        self.complete(cluster, now);
    }

    /// A life may not come in, for this reason. The nodes that wait are told, as it may be the one that is missing.
    pub(super) fn refuses(&mut self, reason: &str) {
        self.refused = self.refused.saturating_add(1);
        if self.reasons.len() < REASONS_MAX {
            self.reasons.push(reason.to_owned());
        }
    }

    /// A life is sent on: it knows its job from its launcher, and may look for that job's scheduler elsewhere. But it may be the
    /// one that is missing here, too, where the launchers tell something else than they should.
    pub(super) fn sends_on(&mut self, reason: &str) {
        self.sent_on = self.sent_on.saturating_add(1);
        if self.sent_on_first.is_empty() {
            reason.clone_into(&mut self.sent_on_first);
        }
    }

    /// Forms the cluster if everybody is here, connected, and not just being asked whether it lives.
    pub(super) fn complete(&mut self, cluster: &mut ClusterState, now: Time) {
        let wanted = [cluster.rules.worker_num, cluster.rules.server_num];
        let is_unsure = |node: &Node| node.conn().is_none() || node.is_to_answer();
        if !cluster.job.is_forming() || self.here != wanted || cluster.nodes.values().any(|node| is_unsure(node)) {
            return;
        }
        cluster.job.is_complete_since(now);
        let candidates = cluster.nodes.values().map(|node| Candidate {
            role: node.role(),
            explicit_rank: node.explicit_rank,
            node_id: &node.register.node_id,
            node_id_given: node.register.node_id_given,
            host: &node.register.host,
        });
        let places = assign(&candidates.collect::<Vec<_>>());
        cluster.nodes.take_places(places, cluster.rules.worker_num);
        for (index, node) in cluster.nodes.iter() {
            if let Some(conn) = node.conn() {
                cluster.connections.belongs_to(conn, *index);
            }
        }
        cluster.table = MemberTable::of(&cluster.nodes);
        cluster.promise_epoch();
        self.ranks_held = HashMap::new();
        let (after, size) = (span(now.since(cluster.started)), cluster.size_in_words());
        cluster.out.note(format!("the cluster is complete after {after}: {size}"));
        cluster.tell_all();
    }

    /// A message came over this connection, and has been acted on: it may be the answer for which the cluster waits.
    pub(super) fn heard(&mut self, cluster: &mut ClusterState, now: Time, conn: ConnId) {
        let key = cluster.connections.node(conn).filter(|_| cluster.job.is_forming());
        let node = key.and_then(|key| cluster.nodes.get(&key));
        if node.is_some_and(|node| node.challenged.is_some() && !node.is_to_answer()) {
            self.complete(cluster, now);
        }
    }

    /// A node's connection ended before the cluster was complete.
    pub(super) fn detached(&mut self, cluster: &mut ClusterState, now: Time, key: u32, how: Closed, words: String) {
        let silence = cluster.silence();
        let Some(node) = cluster.nodes.get_mut(key) else { return };
        if matches!(how, Closed::Broken | Closed::Refused) {
            node.attachment.detach(now, how, words, Duration::ZERO);
            return cluster.out.at(now + silence, Due::Judge(key));
        }
        self.free_place(cluster, key, &format!("its connection ended ({words})"));
    }

    /// A broken connection's time for coming back is up.
    pub(super) fn judge(&mut self, cluster: &mut ClusterState, now: Time, key: u32) {
        let silence = cluster.silence();
        let Some(detached) = cluster.nodes.get(&key).and_then(|node| node.attachment.detached()) else { return };
        if now >= detached.since + silence {
            let (broke, within) = (&detached.words, span(silence));
            let words = format!("its connection broke ({broke}) and it did not come back within {within}");
            self.free_place(cluster, key, &words);
        }
    }

    /// Frees the places of nodes that have sent heartbeats and do so no longer. A node whose next life has come loses
    /// its place even if it never sent one.
    pub(super) fn free_silent_places(&mut self, cluster: &mut ClusterState, now: Time) {
        let silence = cluster.silence();
        let silent: Vec<(u32, ConnId)> = cluster
            .nodes
            .iter()
            .filter(|(_, node)| node.contact.heartbeat.is_some() || node.challenged.is_some())
            .filter(|(_, node)| now.since(node.contact.heard) > silence)
            .filter_map(|(key, node)| Some((*key, node.conn()?)))
            .collect();
        for (key, conn) in silent {
            cluster.drop_connection(conn);
            self.free_place(cluster, key, &format!("nothing was heard from it for {}", span(silence)));
        }
    }

    /// Frees this node's place: somebody else, or the same node started again, may have its id and its rank.
    pub(super) fn free_place(&mut self, cluster: &mut ClusterState, key: u32, why: &str) {
        let Some(node) = cluster.nodes.remove(key) else { return };
        if let Some(rank) = node.explicit_rank {
            self.ranks_held.remove(&(node.role(), rank));
        }
        self.here[usize::from(node.role() == Role::Server)] -= 1;
        let whose = format!("{} {}", node.role(), name(&node.register));
        // Without a secret a stranger can cause this as often as he likes.
        let line = format!("{whose} is gone before the cluster was complete: {why}; its place is free");
        cluster.out.nuisance(FREED, &whose, &line);
    }

    /// The time is up, by the clock of this node or, without one, by the scheduler's own.
    pub(super) fn time_is_up(&self, cluster: &mut ClusterState, now: Time, of: Option<u32>) {
        // A node's clock may have begun a little earlier than this scheduler's: both count the same budget then.
        let waited = now.since(cluster.started);
        let near = |budget: &Duration| waited.max(*budget) - waited.min(*budget) < LINE_EVERY.min(*budget / NEAR);
        let budget = cluster.rules.forming_timeout.filter(|budget| of.is_none() || near(budget));
        let setting = &cluster.rules.forming_setting;
        let whose = match of.and_then(|key| cluster.nodes.get(&key)).filter(|_| budget.is_none()) {
            Some(node) => format!("{} waits no longer; here {setting}", node.culprit()),
            None => setting.clone(),
        };
        let within = span(budget.unwrap_or(waited));
        let how_far = self.how_far(cluster);
        let reason = format!("the cluster did not form within {within} ({whose}): {how_far}");
        cluster.fail_forming(Status::Timeout, reason);
    }

    pub(super) fn line(&self, cluster: &mut ClusterState, now: Time) {
        if cluster.job.is_forming() {
            let (since, how_far) = (span(now.since(cluster.started)), self.how_far(cluster));
            cluster.out.warn(format!("forming since {since}: {how_far}"));
            cluster.out.at(now + LINE_EVERY, Due::FormingLine);
        }
    }

    /// `3 of 4 workers have come, rank 3 is missing; those here run on host a (2) and host b (1)`
    pub(super) fn how_far(&self, cluster: &ClusterState) -> String {
        let mut words = format!("{} of {} have come", self.here[0], counted(cluster.rules.worker_num, Role::Worker));
        if cluster.rules.server_num > 0 {
            words = format!(
                "{} of {} and {} of {} have come",
                self.here[0],
                counted(cluster.rules.worker_num, Role::Worker),
                self.here[1],
                counted(cluster.rules.server_num, Role::Server)
            );
        }
        let missing: Vec<String> =
            [Role::Worker, Role::Server].into_iter().filter_map(|role| self.missing(cluster, role)).collect();
        if !missing.is_empty() {
            let _ = write!(words, "; missing: {}", missing.join(" and "));
        }
        let away = cluster.nodes.values().filter(|node| node.conn().is_none()).count();
        if away > 0 {
            let _ = write!(words, "; the connections of {away} are broken");
        }
        let asked = cluster.nodes.values().filter(|node| node.is_to_answer()).count();
        if asked > 0 {
            let _ = write!(words, "; nodes that must answer first, because others want their places: {asked}");
        }
        let hosts = hosts_in_words(cluster);
        if !hosts.is_empty() {
            let _ = write!(words, "; those that came: {hosts}");
        }
        if self.refused > 0 {
            let (were, more) = (if self.refused == 1 { "was" } else { "were" }, self.refused > REASONS_MAX as u32);
            let first = if more { ", the first:" } else { ":" };
            let _ = write!(words, "; {} {were} refused{first} {}", self.refused, self.reasons.join("; "));
        }
        if self.sent_on > 0 {
            let (were, first) = if self.sent_on == 1 { ("was", ":") } else { ("were", ", the first:") };
            let _ =
                write!(words, "; {} {were} sent on to another scheduler{first} {}", self.sent_on, self.sent_on_first);
        }
        words.extend(self.turned_away.in_words());
        words
    }

    /// The ranks of a role that are missing, if everybody who is here said which rank it has; otherwise how many are
    /// missing.
    fn missing(&self, cluster: &ClusterState, role: Role) -> Option<String> {
        let (number, here) = (cluster.number_of(role), self.here(role));
        if here >= number {
            return None;
        }
        let explicit =
            cluster.nodes.values().filter(|node| node.role() == role && node.explicit_rank.is_some()).count();
        if here == 0 || explicit != here as usize {
            return Some(counted(number - here, role));
        }
        let missing: Vec<u32> = (0..number).filter(|rank| !self.ranks_held.contains_key(&(role, *rank))).collect();
        let of = if role == Role::Server { "server " } else { "" };
        Some(format!("{of}rank{} {}", if missing.len() == 1 { "" } else { "s" }, runs(&missing)))
    }
}

/// `2 from host a, 1 from host b`
fn hosts_in_words(cluster: &ClusterState) -> String {
    let mut counts: Vec<(&str, &str, usize)> = Vec::new();
    let mut at: HashMap<&str, usize> = HashMap::new();
    for node in cluster.nodes.values() {
        let host = &node.register.host;
        let slot = *at.entry(&host.key).or_insert_with(|| {
            counts.push((&host.key, &host.name, 0));
            counts.len() - 1
        });
        counts[slot].2 += 1;
    }
    let mut words: Vec<String> =
        counts.iter().take(LISTED_MAX).map(|(_, host, count)| format!("{count} from host {host}")).collect();
    if counts.len() > LISTED_MAX {
        let rest: usize = counts[LISTED_MAX..].iter().map(|(_, _, count)| count).sum();
        words.push(format!("{rest} from {} other hosts", counts.len() - LISTED_MAX));
    }
    words.join(", ")
}

/// `3, 5 to 7`
fn runs(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let mut words: Vec<String> = runs
        .iter()
        .take(LISTED_MAX)
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first}, {last}"),
            _ => format!("{first} to {last}"),
        })
        .collect();
    if runs.len() > LISTED_MAX {
        words.push("and more".to_string());
    }
    words.join(", ")
}

#[cfg(test)]
#[path = "forming_test.rs"]
mod tests;
