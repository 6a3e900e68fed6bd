//! What a launcher says: a process that it had started has ended, or nobody will be started in its place (`abandoned.rs`).
//! Tested in `launcher_test.rs` and `abandoned_test.rs`.
//!
//! Its word is evidence of a node's end, like that of a peer whose link ended. But a launcher knows the process
//! itself. So its word counts however the node's connection ended, and it says how the process ended.
//!
//! Decision: anybody that reaches the port can say such a thing, so the word never puts out a node by itself.
//!
//! - It must name the process as the process registered: host, number, start time and pid namespace. No stranger is told
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

use super::abandoned::{is_on, ran_on};
use super::contract::ConnId;
use super::node::{Node, Witness};
use super::Scheduler;
use crate::strangers::Kind;
use crate::types::Time;
use crate::wire::{Abandoned, ChildEnded, Record, Register};

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
            if node.conn().is_none() {
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

/// Whether this life ran in the place of the process that the word is about.
fn was_run_by(word: &ChildEnded, register: &Register) -> bool {
    is_on(&word.host, register) && register.launch.is_some() && word.launch == register.launch
}

#[cfg(test)]
#[path = "launcher_test.rs"]
mod tests;
