//! Abandoned places: a launcher starts nobody in them any more. Tested in `abandoned_test.rs`.
//!
//! With recovery a launcher that has told of a process's end (`launcher.rs`) may add this: its restarts are used up. The others
//! would then wait for a next epoch that cannot begin. So they are told the first cause at once, and the job ends.
//!
//! - That word counts for a place that is lost, or that is lost later without having disproved it. It takes no place
//!   from anybody. It must name the process as the word of an end does; any life that had the place will do.
//! - No epoch is formed with a node while such a word stands against it: most likely the node dies, and the end of its
//!   connection is on its way. A lie delays the next epoch until the node's next heartbeat.
//! - So a lie costs the next epoch only if other evidence shows that this very node is lost. A liar could as well keep
//!   the node from being started again. Nothing durable is lost: the job is not done, and goes on where it was when
//!   all are started once more. A node that leaves then leaves this run of the job: it gets its Bye, and that is not
//!   written.
//! - The word is written down before anybody is told what follows from it: a launcher that has abandoned a place may
//!   not be there to say it again when the scheduler dies. The next scheduler cannot know why it was started: only
//!   for the nodes that still wait, or with all others so that the job goes on. So a written word counts once a node attaches
//!   again that was in this epoch before. It counts no more once somebody is started in the place, or its node attaches
//!   again. It is not written down when a sign of life disproves the word.

use super::node::Node;
use super::nodes::Nodes;
use crate::types::{HostName, LaunchId, Process, Time};
use crate::wire::{Abandoned, Register};
use std::collections::HashSet;

impl Nodes {
    /// The nodes whose places a launcher abandons.
    pub(super) fn meant_by(&self, word: &Abandoned) -> Vec<u32> {
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
    pub(super) fn abandon(&mut self, key: u32, now: Time) -> bool {
        let is_news = self.get_mut(key).is_some_and(|node| node.abandoned.say(now));
        self.count_abandoned(key);
        is_news
    }

    /// Takes up what an earlier scheduler was told: nobody is started in this place any more.
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

    /// The absent node whose place was abandoned first. None if this node's place was abandoned before that.
    /// (A node may have heard of the abandonment and have left this run. No record says so, and this node is then
    /// not the cause.)
    pub(super) fn abandoned_earlier(&self, key: u32) -> Option<u32> {
        let own = self.get(&key)?.abandoned.nth().unwrap_or(usize::MAX);
        let earlier = self.iter().filter(|(_, node)| node.is_member() && node.conn().is_none());
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

pub(super) fn is_on(host: &HostName, register: &Register) -> bool {
    host.key == register.host.key
}

/// Whether this life ran on that host, and can be told from other processes there.
pub(super) fn ran_on(host: &HostName, register: &Register) -> bool {
    register.process.start_ticks != 0 && is_on(host, register)
}

#[cfg(test)]
#[path = "abandoned_test.rs"]
mod tests;
