//! From the first node to a complete cluster, or to the end of the time for it. Tested in `forming_test.rs`.

use super::contract::{Closed, ConnId};
use super::node::{counted, name, span, Detached, Node};
use super::ranks::{assign, canonical, schedule_peers, Candidate};
use super::timers::Due;
use super::{Queued, Scheduler};
use crate::error::{Error, Status};
use crate::types::{Role, Time};
use crate::wire::{Agreed, Formed, Member, Members, Message, Rejected, FULL_TABLE_NODES};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// When the log first says how far forming is; from then on every second.
pub(super) const FIRST_LINE: Duration = Duration::from_secs(3);
const LINE_EVERY: Duration = Duration::from_secs(1);
/// How many hosts, and how many runs of missing ranks, a sentence lists.
const LISTED_MAX: usize = 8;

impl Scheduler {
    /// Forms the cluster if everybody is here, connected.
    pub(super) fn form_if_complete(&mut self, now: Time) {
        let wanted = [self.rules.worker_num, self.rules.server_num];
        if !self.job.is_forming() || self.here != wanted || self.nodes.values().any(|node| node.conn.is_none()) {
            return;
        }
        self.job.is_complete_since(now);
        let candidates: Vec<Candidate<'_>> = self
            .nodes
            .values()
            .map(|node| Candidate {
                role: node.role(),
                explicit_rank: node.explicit_rank,
                node_id: &node.register.node_id,
                node_id_given: node.register.node_id_given,
                host: &node.register.host,
            })
            .collect();
        let places = assign(&candidates);
        drop(candidates);
        for (mut node, place) in std::mem::take(&mut self.nodes).into_values().zip(places) {
            let first = if node.role() == Role::Server { self.rules.worker_num } else { 0 };
            let index = first + place.rank;
            node.place = Some(place);
            node.token = node.register.reentry.as_ref().map(|reentry| reentry.next);
            self.by_incarnation.insert(node.register.incarnation, index);
            self.by_id.insert(canonical(&node.register.node_id).to_string(), index);
            if let Some(conn) = node.conn {
                self.connections.belongs_to(conn, index);
            }
            self.nodes.insert(index, node);
        }
        self.list_members();
        self.promise_epoch();
        self.ranks_held = HashMap::new();
        self.note(format!("the cluster is complete after {}: {}", span(now.since(self.started)), self.size_in_words()));
        self.tell_all();
    }

    /// The table of all nodes, as they are now.
    pub(super) fn list_members(&mut self) {
        self.members = Members::new(self.nodes.iter().map(|(index, node)| Arc::new(member(*index, node))).collect());
        let first = self.members.first().map(|member| &member.host.key);
        self.is_one_host = self.members.iter().all(|member| Some(&member.host.key) == first);
    }

    /// Every node that is connected is told of the epoch.
    pub(super) fn tell_all(&mut self) {
        let all = self.nodes.iter().filter_map(|(index, node)| Some((node.conn?, *index)));
        let all = Queued::Formed(self.epoch, all.collect());
        self.put_out_with_epoch(all);
    }

    pub(super) fn queue_formed(&mut self, conn: ConnId, index: u32) {
        self.put_out_with_epoch(Queued::Formed(self.epoch, [(conn, index)].into()));
    }

    /// What this node is told of the complete cluster.
    pub(super) fn formed(&self, index: u32) -> Formed {
        let node = &self.nodes[&index];
        let place = node.place.expect("the cluster has formed");
        Formed {
            instance: self.identity.instance,
            generation: self.generation,
            epoch: self.epoch,
            index,
            rank: place.rank,
            local_rank: place.local_rank,
            local_size: place.local_size,
            worker_num: self.rules.worker_num,
            server_num: self.rules.server_num,
            secret: self.identity.secret,
            agreed: self.agreed(),
            restarts: node.restarts,
            makings: self.makings_of(index),
            members: self.members_told(index, place.rank, node.role()),
        }
    }

    pub(super) fn agreed(&self) -> Agreed {
        let mut agreed = self.rules.agreed.clone();
        if self.is_one_host {
            agreed.thresholds.clone_from(&self.rules.one_host);
        }
        agreed
    }

    /// All, or in a large cluster those that the schedules on the node's groups use: that of its role, and the universe.
    fn members_told(&self, index: u32, rank: u32, role: Role) -> Members {
        if self.members.len() <= FULL_TABLE_NODES {
            return self.members.clone();
        }
        let size = if role == Role::Server { self.rules.server_num } else { self.rules.worker_num };
        let first = index - rank;
        let mut peers: BTreeSet<u32> = schedule_peers(rank, size).into_iter().map(|peer| first + peer).collect();
        peers.extend(schedule_peers(index, self.members.len() as u32));
        Members::new(peers.into_iter().map(|peer| Arc::clone(&self.members[peer as usize])).collect())
    }

    /// A node's connection ended before the cluster was complete.
    pub(super) fn detached_while_forming(&mut self, now: Time, key: u32, how: Closed, words: String) {
        let silence = self.silence();
        let Some(node) = self.nodes.get_mut(&key) else { return };
        node.conn = None;
        if how == Closed::Broken {
            node.detached = Some(Detached { since: now, how, words, probe_wait: Duration::ZERO });
            return self.timers.at(now + silence, Due::Judge(key));
        }
        self.free_place(key, &format!("its connection ended ({words})"));
    }

    /// A broken connection's time for coming back is up.
    pub(super) fn judge_while_forming(&mut self, now: Time, key: u32) {
        let Some(detached) = self.nodes.get(&key).and_then(|node| node.detached.as_ref()) else { return };
        if now >= detached.since + self.silence() {
            let words = format!(
                "its connection broke ({}) and it did not come back within {}",
                detached.words,
                span(self.silence())
            );
            self.free_place(key, &words);
        }
    }

    /// Those that have sent heartbeats, and do so no longer; and those whose next lives have come, and that never did.
    pub(super) fn free_silent_places(&mut self, now: Time) {
        let silence = self.silence();
        let silent: Vec<(u32, ConnId)> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.heartbeat.is_some() || node.challenged.is_some())
            .filter(|(_, node)| now.since(node.heard) > silence)
            .filter_map(|(key, node)| Some((*key, node.conn?)))
            .collect();
        for (key, conn) in silent {
            self.drop_connection(conn);
            self.free_place(key, &format!("nothing was heard from it for {}", span(silence)));
        }
    }

    /// Somebody else, or the same node started again, may have its id and its rank.
    pub(super) fn free_place(&mut self, key: u32, why: &str) {
        let Some(node) = self.nodes.remove(&key) else { return };
        self.by_incarnation.remove(&node.register.incarnation);
        self.by_id.remove(canonical(&node.register.node_id));
        if let Some(rank) = node.explicit_rank {
            self.ranks_held.remove(&(node.role(), rank));
        }
        self.here[usize::from(node.role() == Role::Server)] -= 1;
        self.present -= 1;
        self.warn(format!(
            "{} {} is gone before the cluster was complete: {why}; its place is free",
            node.role(),
            name(&node.register)
        ));
    }

    /// A node's own time for forming is up: so it is for all.
    pub(super) fn time_up(&mut self, now: Time, key: u32) {
        match self.job.is_forming() {
            true => self.forming_time_is_up(now, Some(key)),
            false => self.gives_up_returning(now, key),
        }
    }

    /// The time is up, by the clock of this node or, without one, by the scheduler's own.
    pub(super) fn forming_time_is_up(&mut self, now: Time, of: Option<u32>) {
        // A node's clock may have begun a little earlier than this one's: the budget is the same.
        let waited = now.since(self.started);
        let near = |budget: &Duration| waited.max(*budget) - waited.min(*budget) < LINE_EVERY;
        let budget = self.rules.forming_timeout.filter(near);
        let setting = &self.rules.forming_setting;
        let whose = match of.and_then(|key| self.nodes.get(&key)).filter(|_| budget.is_none()) {
            Some(node) => format!("{} waits no longer; here {setting}", node.culprit()),
            None => setting.clone(),
        };
        let within = span(budget.unwrap_or(waited));
        let reason = format!("the cluster did not form within {within} ({whose}): {}", self.how_far());
        self.end_forming(Status::Timeout, reason);
    }

    /// Everybody fails with the same sentence.
    pub(super) fn end_forming(&mut self, status: Status, reason: String) {
        for conn in self.connections.all() {
            self.send(conn, Message::Rejected(Rejected { status, reason: reason.clone() }));
        }
        self.warn(reason.clone());
        self.end(Err(Error::new(status, reason)));
    }

    pub(super) fn forming_line(&mut self, now: Time) {
        if self.job.is_forming() {
            self.warn(format!("forming since {}: {}", span(now.since(self.started)), self.how_far()));
            self.timers.at(now + LINE_EVERY, Due::FormingLine);
        }
    }

    /// `3 of 4 workers have come, rank 3 is missing; those here run on host a (2) and host b (1)`
    pub(super) fn how_far(&self) -> String {
        let mut words = format!("{} of {} have come", self.here[0], counted(self.rules.worker_num, Role::Worker));
        if self.rules.server_num > 0 {
            words = format!(
                "{} of {} and {} of {} have come",
                self.here[0],
                counted(self.rules.worker_num, Role::Worker),
                self.here[1],
                counted(self.rules.server_num, Role::Server)
            );
        }
        let missing: Vec<String> =
            [Role::Worker, Role::Server].into_iter().filter_map(|role| self.missing(role)).collect();
        if !missing.is_empty() {
            let _ = write!(words, "; missing: {}", missing.join(" and "));
        }
        let away = self.nodes.values().filter(|node| node.conn.is_none()).count();
        if away > 0 {
            let _ = write!(words, "; the connections of {away} are broken");
        }
        let hosts = self.hosts_in_words();
        if !hosts.is_empty() {
            let _ = write!(words, "; those that came: {hosts}");
        }
        words
    }

    /// Which ranks of a role are missing, where everybody who is here said which it has; otherwise how many.
    fn missing(&self, role: Role) -> Option<String> {
        let number = if role == Role::Server { self.rules.server_num } else { self.rules.worker_num };
        let here = self.here[usize::from(role == Role::Server)];
        if here >= number {
            return None;
        }
        let explicit = self.nodes.values().filter(|node| node.role() == role && node.explicit_rank.is_some()).count();
        if here == 0 || explicit != here as usize {
            return Some(counted(number - here, role));
        }
        let missing: Vec<u32> = (0..number).filter(|rank| !self.ranks_held.contains_key(&(role, *rank))).collect();
        let of = if role == Role::Server { "server " } else { "" };
        Some(format!("{of}rank{} {}", if missing.len() == 1 { "" } else { "s" }, runs(&missing)))
    }

    /// `2 from host a, 1 from host b`
    fn hosts_in_words(&self) -> String {
        let mut counts: Vec<(&str, &str, usize)> = Vec::new();
        let mut at: HashMap<&str, usize> = HashMap::new();
        for node in self.nodes.values() {
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
}

fn member(index: u32, node: &Node) -> Member {
    let place = node.place.expect("places were just given");
    Member {
        index,
        role: node.role(),
        rank: place.rank,
        local_rank: place.local_rank,
        node_id: node.register.node_id.clone(),
        host: node.register.host.clone(),
        process: node.register.process,
        addresses: node.register.addresses.clone(),
        device: node.register.device,
    }
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
