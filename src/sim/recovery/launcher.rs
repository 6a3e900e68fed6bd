//! Who says that a process has ended: its launcher, which has seen it end and tells the scheduler, as `muster run --join` does; or
//! the process itself, whose program frees its cluster without leaving it. A word may come late, when another has the place
//! already; wait on the port for a scheduler that is away, or be lost then; and be a lie, about one that lives.

use super::node::End;
use super::plan::SILENCE;
use super::table::Event as Met;
use super::world::{Event, World};
use crate::membership::{self, ConnId};
use crate::sim::network::{Fate, Side};
use crate::wire::{ChildEnded, HowEnded, Lane, Message};
use std::time::Duration;

impl World {
    /// A process has ended, and not in order: its launcher sees that, where it has one.
    pub(super) fn is_seen_to_end(&mut self, node: usize) {
        if !self.plan.launched {
            return;
        }
        let late = self.random.once_in(4);
        let after = if late { self.random.span_ms(300..4000) } else { self.random.span_us(100..20_000) };
        self.queue.put(self.now + after, Event::Word(node));
    }

    /// A launcher says that this process has ended.
    pub(super) fn word(&mut self, node: usize) {
        if self.host.running.is_none() {
            if self.plan.port_is_kept && self.host.ended.is_none() {
                self.host.words.push(node);
            }
            return;
        }
        let kind = self.word_of(node).kind();
        if self.due_loss(kind).is_some() {
            self.fault(Duration::ZERO);
            return self.met(Met::MessageLost(kind));
        }
        let process = &self.processes[node];
        let is_replaced =
            self.slots[process.slot].current.is_some_and(|at| at != node && self.processes[at].epoch.0 > 0);
        self.met(match process.alive {
            true => Met::FalseWord,
            false if is_replaced => Met::LateWord,
            false => Met::LaunchersWord,
        });
        let word = self.word_of(node);
        let conn = self.network.connect(None);
        let inputs = [
            membership::Input::Opened(ConnId(conn as u64), format!("10.0.1.{node}:4002")),
            membership::Input::Received(ConnId(conn as u64), word),
        ];
        for input in inputs {
            let Fate::Arrives(at) = self.network.send(self.now, conn, Side::Node, Lane::Urgent) else { return };
            self.queue.put(at, Event::ToScheduler(self.host.life, Some(conn), input));
        }
        if let Some(at) = self.network.finish(self.now, conn, Side::Node) {
            self.closed_at_scheduler(at, conn, "end of stream");
        }
    }

    fn word_of(&self, node: usize) -> Message {
        let process = &self.processes[node];
        let (how, number) = match process.ended {
            Some((_, End::Failed(_))) => (HowEnded::Exited, 1),
            _ => (HowEnded::Killed, 9),
        };
        let (host, process) = (process.register.host.clone(), process.register.process);
        Message::ChildEnded(ChildEnded { host, process, how, number, launch: None })
    }

    /// A scheduler is there again: it accepts those who have waited on its port.
    pub(super) fn words_are_heard(&mut self) {
        for node in std::mem::take(&mut self.host.words) {
            let soon = self.now + self.random.span_us(10..2000);
            self.queue.put(soon, Event::Word(node));
        }
    }

    /// Somebody says of a process that lives that it has ended.
    pub(super) fn lie(&mut self, slot: usize) {
        let slot = self.running(slot);
        let Some(node) = self.current(slot).filter(|_| self.host.running.is_some()) else { return };
        self.fault(Duration::ZERO);
        self.disturb(node, 1);
        // Where it is to attach again, that takes from it the time that it has.
        if self.now.since(self.host.started) < SILENCE * 2 {
            self.blame(node);
        }
        self.word(node);
    }

    /// The program frees its cluster without leaving it.
    pub(super) fn frees(&mut self, slot: usize) {
        let slot = self.running(slot);
        let Some(node) = self.current(slot) else { return };
        self.met(Met::Freed);
        self.fault(Duration::ZERO);
        self.blame(node);
        self.send_to_scheduler(node, Message::Gone);
        self.gives_up(node);
    }
}
