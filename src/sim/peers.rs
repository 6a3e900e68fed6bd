//! What nodes without recovery see and say of each other without their scheduler, what they conclude from another's
//! end, and strangers.

use super::network::{Fate, Side};
use super::node::End;
use super::once::Shape;
use super::plan::{Trouble, When};
use super::table::Event as Met;
use super::world::{Event, World};
use crate::agent::{self, Command, PeerProcess, PeerSign, Seen, ToPeer};
use crate::membership::{self, ConnId};
use crate::types::Epoch;
use crate::wire::{Lane, Message};
use std::time::Duration;

/// How many peers notice a death over their own links, at most.
const WITNESSES_MAX: usize = 6;

impl World {
    /// Nodes reach each other over a network of its own. It holds back what goes to or from a node that is cut off,
    /// until the node is cut off no longer, as TCP does.
    pub(super) fn tell_peer(&mut self, node: usize, peer_index: u32, what: ToPeer) {
        let index = |node: usize| self.processes[node].formed.as_ref().map(|formed| formed.index);
        let found = (0..self.processes.len()).find(|node| index(*node) == Some(peer_index));
        let (Some(peer), Some(own_index)) = (found, index(node)) else { return };
        let (own, other) = (&self.processes[node], &self.processes[peer]);
        let passes_at = self.now.max(own.apart_until).max(other.apart_until);
        let signs = match what {
            ToPeer::Look => {
                let sign = PeerSign::Seen(Seen { process: PeerProcess::Unknown, answers: passes_at == self.now });
                return self.queue.put(self.now, Event::NodeInput(node, None, agent::Input::of_peer(peer_index, sign)));
            }
            what if passes_at > self.now => return self.queue.put(passes_at, Event::ToPeer(node, peer_index, what)),
            ToPeer::Watch if other.alive => {
                vec![(peer, own_index, PeerSign::Stands), (node, peer_index, PeerSign::Stands)]
            }
            ToPeer::Watch => vec![(node, peer_index, PeerSign::Refused("connection refused".to_owned()))],
            ToPeer::Say(word) => vec![(peer, own_index, PeerSign::Says(word))],
            ToPeer::Close => vec![(peer, own_index, PeerSign::Ended("it closed the connection".to_owned()))],
        };
        for (to, from, sign) in signs {
            let at = self.now + Duration::from_micros(50);
            self.queue.put(at, Event::NodeInput(to, None, agent::Input::of_peer(from, sign)));
        }
    }

    /// Some peers notice a death over their own links. Some of those end because of it, without a word but their
    /// suspicion.
    pub(super) fn peers_notice(&mut self, dead: usize, with_host: bool) {
        let Some(index) = self.processes[dead].formed.as_ref().map(|formed| formed.index) else { return };
        let is_there = |peer: &usize| self.processes[*peer].alive && self.processes[*peer].epoch > Epoch(0);
        let mut peers: Vec<usize> = (0..self.processes.len()).filter(is_there).collect();
        self.random.shuffle(&mut peers);
        let witnesses = self.random.index(WITNESSES_MAX);
        for peer in peers.into_iter().take(witnesses) {
            let at = self.now + self.random.span_ms(0..if with_host { 1500 } else { 30 });
            let command = Command::Suspect { peer: index, evidence: "its link ended".to_owned() };
            self.queue.put(at, Event::NodeInput(peer, None, agent::Input::Command(command)));
            if self.random.once_in(2) {
                let gone = at + self.random.span_ms(1..30);
                self.queue.put(gone, Event::Follow(peer));
            }
        }
    }

    /// A process that gives up because of another's end, before it has heard a verdict.
    pub(super) fn follows(&mut self, node: usize) {
        let process = &self.processes[node];
        let slot = process.slot;
        if process.alive && process.broken.is_none() && process.asked_to_leave.is_none() {
            self.met(Met::Consequence);
            self.let_die(node);
            self.slots[slot].finished = true;
        }
    }

    /// Suspects a peer to which nothing happens: a second witness would make a short absence a loss.
    pub(super) fn suspect_somebody(&mut self, node: usize) {
        let peer = self.random.index(self.plan.size() as usize) as u32;
        let Some(formed) = &self.processes[node].formed else { return };
        let suspected = formed.members[peer as usize].process.pid as usize - 1000;
        let slot = self.processes[suspected].slot;
        let is_planned = self.plan.troubles.iter().any(|(_, trouble)| trouble.befalls(slot));
        if suspected == node || is_planned {
            return;
        }
        self.met(Met::WrongSuspicion);
        self.command(node, Command::Suspect { peer, evidence: "its link ended".to_owned() });
    }

    /// A stranger on the port: says nothing, or something that no node begins with.
    pub(super) fn stranger(&mut self) {
        if self.host.running.is_none() {
            return;
        }
        self.met(Met::Stranger);
        let (life, conn) = (self.host.life, self.network.connect(None));
        let opened = membership::Input::Opened(ConnId(conn as u64), "192.0.2.7:5000".to_owned());
        self.queue.put(self.now, Event::SchedulerInput(life, Some(conn), opened));
        match self.random.below(0..3) {
            0 => {}
            1 => {
                if let Fate::Arrives(at) = self.network.send(self.now, conn, Side::Node, Lane::Urgent) {
                    let input = membership::Input::Received(ConnId(conn as u64), Message::TimeUp);
                    self.queue.put(at, Event::SchedulerInput(life, Some(conn), input));
                }
            }
            _ => {
                let at = self.now + self.random.span_ms(1..3000);
                self.queue.put(at, Event::StrangerGoes(conn));
            }
        }
    }

    pub(super) fn stranger_goes(&mut self, conn: usize) {
        if let Some(at) = self.network.finish(self.now, conn, Side::Node) {
            self.closed_at_scheduler(at, conn, "end of stream");
        }
    }

    /// The cluster is complete for the first time: the troubles planned for that time begin.
    pub(super) fn troubles_begin(&mut self) {
        for (when, trouble) in self.plan.troubles.clone() {
            if let When::Formed(span) = when {
                self.queue.put(self.now + span, Event::Trouble(trouble));
            }
        }
    }

    /// Whether the cluster should form, and the job end well.
    pub(super) fn is_clean(&self) -> bool {
        self.plan.can_form() && !self.may_fail && !self.plan.is_about(Shape::Abort)
    }

    /// A process ends, and is not started again.
    pub(super) fn is_over_once(&mut self, node: usize, end: End) {
        self.process_ends(node, end);
        let slot = self.processes[node].slot;
        self.slots[slot].finished = true;
    }
}

impl Trouble {
    /// Whether this trouble concerns that slot's process.
    fn befalls(&self, slot: usize) -> bool {
        match self {
            Trouble::Reset { slot: it, .. }
            | Trouble::HalfOpen { slot: it, .. }
            | Trouble::Stall { slot: it, .. }
            | Trouble::Partition { slot: it, .. }
            | Trouble::Kill { slot: it, .. }
            | Trouble::Vanish { slot: it, .. }
            | Trouble::Stop { slot: it, .. } => *it == slot,
            _ => false,
        }
    }
}
