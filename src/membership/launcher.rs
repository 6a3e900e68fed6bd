//! What a launcher says: a process that it had started has ended, or nobody will be started in its place. Tested in
//! `launcher_test.rs` and `abandoned_test.rs`.
//!
//! Its word is evidence of a node's end, like that of a peer whose link ended. But a launcher knows the process
//! itself. So its word counts however the node's connection ended, and it says how the process ended.
//!
//! Decision: anybody that reaches the port can say such a thing, so the word never puts out a node by itself.
//!
//! - It must name the process as that registered: host, number, start time and pid namespace. No stranger is told
//!   those, and a later process with the same number has another start time. Where the kernel does not tell the start
//!   time the word counts for nothing.
//! - Or it must know what stood in the environment of the node ([`LaunchId`]): the launcher's child may be a script
//!   whose child the node is. Nobody is told that either. It is drawn at each start, and a process that can read it
//!   from the node can read more than the node's start time. Such a node may outlive the script for a moment, until its
//!   launcher ends it.
//! - A node whose connection stands is asked for a sign, or its process is looked at where it can be seen from here, as when
//!   a peer suspects it. So a lie costs a heartbeat. Elsewhere a connection that outlives its process (a child forked past
//!   the library's back holds it) lasts for the heartbeat time-out as before.
//! - A node whose connection has ended is lost at once, but on this host only once its process is seen to be gone. A
//!   liar then takes from it the time that it has to come back: 100 ms, or the heartbeat time-out where the network
//!   broke or this scheduler was started again. To know what to say such a liar must look at the node's process on its
//!   own host.
//! - A node that attaches again, or is heard a while later, has disproved the word.
//!
//! With recovery the launcher may add that it starts nobody in a place any more: its restarts are used up. The others
//! would then wait for a next epoch that cannot begin. So they are told the first cause at once, and the job ends.
//!
//! - That word counts for a place that is lost, or that is lost later without having disproved it. It takes no place
//!   from anybody. It must name the process as the other word does; any life that had the place will do.
//! - No epoch is formed with a node while such a word stands against it: most likely the node dies, and the end of its
//!   connection is on its way. A lie delays the next epoch until the node's next heartbeat.
//! - So a lie costs a job that has lost this very node, by other evidence, its next epoch. A liar could as well keep
//!   the node from being started again. Nothing durable is lost: the job is not done, and goes on where it was when
//!   all are started once more. A node that leaves then leaves this run of the job: it gets its Bye, and that is not
//!   written.
//! - The word is written down before anybody is told what follows from it: a launcher that has abandoned a place may
//!   not be there to say it again when the scheduler dies. The next scheduler cannot know why it was started: for the
//!   nodes that still wait, or with everybody else for the job to go on. So a written word counts once a node attaches
//!   again that was in this epoch before. It counts no more once somebody is started in the place, or its node attaches
//!   again. It is not written down when a sign of life disproves the word.

use super::contract::ConnId;
use super::node::{Node, Witness};
use super::nodes::Nodes;
use super::Scheduler;
use crate::strangers::Kind;
use crate::types::{HostName, LaunchId, Process, Time};
use crate::wire::{Abandoned, ChildEnded, Record, Register};
use std::collections::HashSet;

const ENDED: Kind = Kind { name: "words that a process has ended", lines: 64 };
const ABANDONED: Kind = Kind { name: "words that places are abandoned", lines: 8 };

impl Scheduler {
    pub(super) fn child_ended(&mut self, now: Time, conn: ConnId, word: &ChildEnded) {
        let cluster = &mut self.conductor.cluster;
        let from = cluster.connections.address(conn);
        let line =
            format!("a launcher at {from} says of process {} on {:?}: it {word}", word.process.pid, word.host.name);
        cluster.out.quiet_nuisance(ENDED, &from, &line);
        cluster.drop_connection(conn); // this connection was made for this word only
        let is_it = |node: &Node| ran_on(&word.host, &node.register) && node.register.process == word.process;
        let of_node = cluster.nodes.iter().find(|(_, node)| is_it(node));
        let of_node = of_node.or_else(|| cluster.nodes.iter().find(|(_, node)| was_run_by(word, &node.register)));
        let Some(key) = of_node.map(|(key, _)| *key) else { return };
        let Some(node) = cluster.nodes.get_mut(key).filter(|node| node.is_member()) else { return };
        let evidence = if node.register.process == word.process { word.to_string() } else { word.of_its_runner() };
        if cluster.job.is_forming() {
            // A node whose connection ended in another way than by a broken network has lost its place already.
            if node.conn.is_none() {
                self.conductor.forming.free_place(cluster, key, &format!("it {evidence}"));
            }
            return;
        }
        node.evidence.witness = Some(Witness { by: None, at: now, evidence });
        if !cluster.job.is_broken_for_good() {
            self.conductor.detector.look_into(cluster, now, key);
        }
    }

    /// A launcher says that it starts nobody in the places of these processes any more.
    pub(super) fn abandoned(&mut self, now: Time, conn: ConnId, word: &Abandoned) {
        let cluster = &mut self.conductor.cluster;
        let from = cluster.connections.address(conn);
        let pids: Vec<String> = word.processes.iter().map(|process| process.pid.to_string()).collect();
        let (host, pids) = (&word.host.name, pids.join(", "));
        let line = format!("a launcher at {from} says that it will not restart these processes on {host:?}: {pids}");
        cluster.out.nuisance(ABANDONED, &from, &line);
        cluster.drop_connection(conn); // this connection was made for this word only
        if cluster.job.is_forming() {
            return; // forming goes on: it has a time limit of its own
        }
        for key in self.conductor.cluster.nodes.meant_by(word) {
            if self.conductor.cluster.nodes.abandon(key, now) && self.conductor.cluster.rules.recovery {
                self.conductor.cluster.out.promise(Record::Abandoned(key));
            }
            self.conductor.end_if_abandoned(now, key);
        }
        self.conductor.end_if_empty(now);
    }
}

impl Nodes {
    /// The nodes whose places a launcher abandons.
    fn meant_by(&self, word: &Abandoned) -> Vec<u32> {
        let processes: HashSet<Process> = word.processes.iter().copied().collect();
        let launches: HashSet<LaunchId> = word.launches.iter().copied().collect();
        let is_meant = |node: &Node| {
            let register = &node.register;
            let is_it = ran_on(&word.host, register) && processes.contains(&register.process);
            is_it || (is_on(&word.host, register) && register.launch.is_some_and(|launch| launches.contains(&launch)))
        };
        self.iter().filter(|(_, node)| is_meant(node)).map(|(key, _)| *key).collect()
    }

    /// Nobody is started in this node's place any more. Returns whether that is news.
    fn abandon(&mut self, key: u32, now: Time) -> bool {
        let is_news = self.get_mut(key).is_some_and(|node| node.abandoned.say(now));
        self.count_abandoned(key);
        is_news
    }

    /// Takes up that a scheduler before this one was told: nobody is started in this place any more.
    pub(super) fn take_up_abandoned(&mut self, key: u32) {
        if let Some(node) = self.get_mut(key) {
            node.abandoned.take_up();
        }
        self.count_abandoned(key);
    }

    fn count_abandoned(&mut self, key: u32) {
        let next = self.values().filter_map(|node| node.abandoned.nth()).max().map_or(0, |last| last + 1);
        if let Some(node) = self.get_mut(key) {
            node.abandoned.count_as(next);
        }
    }

    /// A node that is not here, and whose place was abandoned before that of this node, or while this node's place was
    /// not. A node that heard of that word may have left this run since; that is not written down, so such a node is
    /// not the cause.
    pub(super) fn abandoned_earlier(&self, key: u32) -> Option<u32> {
        let own = self.get(&key)?.abandoned.nth().unwrap_or(usize::MAX);
        let earlier = self.iter().filter(|(_, node)| node.is_member() && node.conn.is_none());
        let earlier = earlier.filter_map(|(key, node)| Some((node.abandoned.nth()?, *key)));
        earlier.min().filter(|(first, _)| *first < own).map(|(_, key)| key)
    }

    /// A node goes on with this epoch: what was said of places in it counts from now on. Returns those places.
    pub(super) fn count_earlier_words(&mut self, now: Time) -> Vec<u32> {
        let counts = |(key, node): (u32, &mut Node)| node.abandoned.count_earlier(now).then_some(key);
        self.all_mut().filter_map(counts).collect()
    }

    /// All places that were called abandoned, the first of them first; also those where a sign of life disproved the
    /// word. It may rightly be said once more then, and is not written a second time.
    pub(super) fn all_abandoned(&self) -> Vec<u32> {
        let said = self.iter().filter(|(_, node)| node.abandoned.is_said());
        let mut said: Vec<_> = said.map(|(key, node)| (node.abandoned.nth(), *key)).collect();
        said.sort_unstable();
        said.into_iter().map(|(_, key)| key).collect()
    }
}

fn is_on(host: &HostName, register: &Register) -> bool {
    host.key == register.host.key
}

/// Whether this life ran on that host, and can be told from other processes there.
fn ran_on(host: &HostName, register: &Register) -> bool {
    register.process.start_ticks != 0 && is_on(host, register)
}

/// Whether this life ran in the place of the process that the word is about.
fn was_run_by(word: &ChildEnded, register: &Register) -> bool {
    is_on(&word.host, register) && register.launch.is_some() && word.launch == register.launch
}

#[cfg(test)]
#[path = "launcher_test.rs"]
mod tests;
