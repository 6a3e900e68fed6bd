//! What goes wrong: connections, hosts and processes.

use super::driver::closed;
use super::faults::Fault;
use super::network::{Fate, Side};
use super::plan::{Mishap, Shape};
use super::world::{Event, Line, World};
use crate::agent::{self, Command};
use crate::membership::{self, Closed, ConnId};
use crate::wire::Message;
use std::time::Duration;

/// A process that stands still for no longer than this is not taken for dead.
const HARMLESS_PAUSE: Duration = Duration::from_millis(400);
/// How many peers notice a death over their own links.
const WITNESSES_MAX: usize = 6;

impl World {
    pub(super) fn mishap(&mut self, mishap: Mishap) {
        self.say(None, || format!("*** {mishap:?}"));
        match mishap {
            Mishap::Stranger => self.stranger(),
            Mishap::PauseScheduler(span) => {
                if self.ended.is_none() {
                    self.network.tally.count(Fault::SchedulerPaused);
                    self.scheduler_paused_until = self.now + span;
                }
            }
            Mishap::Kill(node) | Mishap::Vanish(node) => {
                if self.nodes[node].alive {
                    self.end_process(node, matches!(mishap, Mishap::Vanish(_)));
                }
            }
            Mishap::Isolate(node, span) => {
                if self.nodes[node].alive {
                    self.network.tally.count(Fault::Isolation);
                    self.blame(node);
                    self.nodes[node].isolated_until = self.now + span;
                    self.cut_off(node);
                }
            }
            Mishap::PauseNode(node, span) => {
                if self.nodes[node].alive {
                    self.network.tally.count(Fault::NodePaused);
                    self.nodes[node].paused_until = self.now + span;
                    self.nodes[node].disturbed = true;
                    if span > HARMLESS_PAUSE {
                        self.blame(node);
                    }
                }
            }
            Mishap::Reset(node)
            | Mishap::LostAtNode(node)
            | Mishap::LostAtScheduler { node, .. }
            | Mishap::LostSilently(node)
            | Mishap::Stall(node, _) => {
                if let (true, Line::Up(conn)) = (self.nodes[node].alive, self.nodes[node].line) {
                    self.nodes[node].disturbed = true;
                    self.connection_mishap(node, conn, mishap);
                }
            }
        }
    }

    fn connection_mishap(&mut self, node: usize, conn: usize, mishap: Mishap) {
        let (soon, later) = (self.now + self.network.delay(), self.now + self.network.delay());
        // A delay of many times the usual makes every return uncertain.
        let uncertain = self.plan.spikes;
        let (fault, blamed) = match mishap {
            Mishap::Reset(_) => {
                self.network.cut(conn, [false; 2]);
                self.queue.put(soon, closed(node, conn, "connection reset by peer"));
                self.closed_at_scheduler(later, conn, Closed::Ended, "connection reset by peer");
                (Fault::ConnectionLost, uncertain)
            }
            Mishap::LostAtNode(_) => {
                let told = self.random.once_in(2);
                self.network.cut(conn, [false, told]);
                self.queue.put(soon, closed(node, conn, "connection reset by peer"));
                (if told { Fault::HalfOpenReset } else { Fault::HalfOpenSilent }, uncertain)
            }
            Mishap::LostAtScheduler { ended, told, .. } => {
                self.network.cut(conn, [told, false]);
                let how = if ended { Closed::Ended } else { Closed::Broken };
                self.closed_at_scheduler(later, conn, how, "the network says so");
                (if told { Fault::HalfOpenReset } else { Fault::HalfOpenSilent }, ended || !told || uncertain)
            }
            Mishap::Stall(_, span) => {
                self.network.stall(conn, self.now + span);
                (Fault::Stall, false)
            }
            _ => {
                self.network.cut(conn, [false; 2]);
                (Fault::HalfOpenSilent, true)
            }
        };
        self.network.tally.count(fault);
        if blamed {
            self.blame(node);
        }
    }

    /// From now on this node may rightly be called lost.
    fn blame(&mut self, node: usize) {
        self.nodes[node].to_blame = true;
        self.nodes[node].disturbed = true;
        self.unclean = true;
    }

    fn cut_off(&mut self, node: usize) {
        self.network.of_node(node).into_iter().for_each(|conn| self.network.cut(conn, [false; 2]));
    }

    /// A process ends without leaving; its host goes with it, or closes its connections for it.
    fn end_process(&mut self, node: usize, with_host: bool) {
        self.network.tally.count(if with_host { Fault::HostVanished } else { Fault::NodeKilled });
        let replaced = self.plan.shape == Shape::Replaced && self.first_formed.is_none();
        match replaced {
            true => self.nodes[node].to_blame = true,
            false => self.blame(node),
        }
        self.let_die(node, with_host);
        self.tell_peers(node, with_host);
    }

    fn let_die(&mut self, node: usize, with_host: bool) {
        self.nodes[node].dead = true;
        self.nodes[node].alive = false;
        self.nodes[node].line = Line::None;
        if with_host {
            return self.cut_off(node);
        }
        let says_so = self.random.once_in(3);
        for conn in self.network.of_node(node) {
            if self.network.is_open(conn, Side::Node) {
                if says_so {
                    self.last_word(conn);
                }
                if let Some(at) = self.network.finish(self.now, conn, Side::Node) {
                    self.closed_at_scheduler(at, conn, Closed::Ended, "connection reset by peer");
                }
            }
        }
    }

    /// A process that ends without leaving, but in order, says that it is gone.
    fn last_word(&mut self, conn: usize) {
        if let Fate::Arrives(at) = self.network.send(self.now, conn, Side::Node, Message::Gone.lane()) {
            self.network.tally.count(Fault::LastWord);
            let input = membership::Input::Received(ConnId(conn as u64), Message::Gone);
            self.queue.put(at, Event::ToScheduler(Some(conn), input));
        }
    }

    /// Some peers notice over their own links, and some of those end for it, without a word but their suspicion.
    fn tell_peers(&mut self, node: usize, with_host: bool) {
        let Some((_, formed)) = &self.nodes[node].formed else { return };
        let index = formed.index;
        let mut peers: Vec<usize> = (0..self.nodes.len())
            .filter(|peer| self.nodes[*peer].alive && self.nodes[*peer].formed.is_some())
            .collect();
        self.random.shuffle(&mut peers);
        let witnesses = self.random.index(WITNESSES_MAX);
        for peer in peers.into_iter().take(witnesses) {
            let at = self.now + self.random.span_ms(0..if with_host { 1500 } else { 30 });
            let command = Command::Suspect { peer: index, evidence: "its link ended".to_owned() };
            self.queue.put(at, Event::ToNode(peer, None, agent::Input::Command(command)));
            if self.random.once_in(4) {
                let gone = at + self.random.span_ms(1..60);
                self.queue.put(gone, Event::Follow(peer));
            }
        }
    }

    /// A process that gives up because of another's end, before it has heard a verdict.
    pub(super) fn follow(&mut self, node: usize) {
        let side = &self.nodes[node];
        if side.alive && side.broken.is_none() && side.asked_to_leave.is_none() {
            self.say(Some(node), || "*** follows".to_owned());
            self.network.tally.count(Fault::Consequence);
            self.let_die(node, false);
        }
    }
}
