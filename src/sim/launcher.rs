//! A process's end is told by its launcher, which has seen it end and tells the scheduler, as `muster run --join` does;
//! or by the process itself, whose program frees its cluster without leaving it. A word may come late, when another has
//! the place already. It may wait on the port for a scheduler that is away, and be lost there. It may be a lie, about a
//! process that lives. All this also goes for the word that nobody is started in a place any more (`abandoned.rs`).

use super::network::{Fate, Side};
use super::node::{End, Process};
use super::plan::SILENCE;
use super::table::Event as Met;
use super::world::{Event, World};
use crate::membership::{self, ConnId};
use crate::wire::{Abandoned, ChildEnded, HowEnded, Lane, Message};
use std::time::Duration;

/// What a launcher says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    /// This process has ended.
    Ended(usize),
    /// Nobody is started in this slot any more. The second number is the newest process that it had at that time.
    Abandoned(usize, usize),
}

impl World {
    /// A process has ended, and not in order: if it has a launcher, that sees it.
    pub(super) fn is_seen_to_end(&mut self, node: usize) {
        if !self.plan.launched {
            return;
        }
        let late = self.random.once_in(4);
        let after = if late { self.random.span_ms(300..4000) } else { self.random.span_us(100..20_000) };
        self.queue.put(self.now + after, Event::Word(Word::Ended(node)));
    }

    /// A launcher says something.
    pub(super) fn word(&mut self, word: Word) {
        if self.host.running.is_none() {
            if self.plan.port_is_kept && self.host.ended.is_none() {
                self.host.words.push(word);
            }
            return;
        }
        let message = self.said(word);
        let kind = message.kind();
        self.table.sends(kind, self.phase);
        if self.due_loss(kind).is_some() {
            self.fault(Duration::ZERO);
            return self.met(Met::MessageLost(kind));
        }
        if matches!(word, Word::Abandoned(..)) {
            self.abandoned.was_said = true;
        }
        let (node, manner) = self.manner(word);
        manner.into_iter().for_each(|manner| self.met(manner));
        let conn = self.network.connect(None);
        let inputs = [
            membership::Input::Opened(ConnId(conn as u64), format!("10.0.1.{node}:4002")),
            membership::Input::Received(ConnId(conn as u64), message),
        ];
        for input in inputs {
            let Fate::Arrives(at) = self.network.send(self.now, conn, Side::Node, Lane::Urgent) else { return };
            self.queue.put(at, Event::SchedulerInput(self.host.life, Some(conn), input));
        }
        if let Some(at) = self.network.finish(self.now, conn, Side::Node) {
            self.closed_at_scheduler(at, conn, "end of stream");
        }
    }

    /// The process that a word is about, and what is special about the word.
    fn manner(&self, word: Word) -> (usize, Option<Met>) {
        let current = |slot: usize| self.slots[slot].current;
        match word {
            Word::Ended(node) => {
                let process = &self.processes[node];
                let is_replaced = current(process.slot).is_some_and(|at| at != node && self.processes[at].epoch.0 > 0);
                let manner = match process.alive {
                    true => Met::FalseWord,
                    false if is_replaced => Met::LateWord,
                    false => Met::LaunchersWord,
                };
                (node, Some(manner))
            }
            Word::Abandoned(slot, before) => {
                let node = current(slot).unwrap_or(0);
                let is_one = |process: &&Process| process.alive && node < before;
                (node, self.processes.get(node).filter(is_one).map(|_| Met::FalselyAbandoned))
            }
        }
    }

    fn said(&self, word: Word) -> Message {
        match word {
            Word::Ended(node) => {
                let process = &self.processes[node];
                let (how, number) = match process.ended {
                    Some((_, End::Failed(_))) => (HowEnded::Exited, 1),
                    _ => (HowEnded::Killed, 9),
                };
                let (host, process) = (process.register.host.clone(), process.register.process);
                Message::ChildEnded(ChildEnded { host, process, how, number, launch: None })
            }
            Word::Abandoned(slot, before) => {
                let lives = self.processes.iter().take(before).filter(|process| process.slot == slot);
                let (processes, launches) = (lives.map(|life| life.register.process).collect(), Vec::new());
                let host = super::scheduler::host(self.plan.nodes[slot].host);
                Message::Abandoned(Abandoned { host, processes, launches })
            }
        }
    }

    /// A scheduler is there again: it accepts the words that have waited on its port.
    pub(super) fn words_are_heard(&mut self) {
        for word in std::mem::take(&mut self.host.words) {
            let soon = self.now + self.random.span_us(10..2000);
            self.queue.put(soon, Event::Word(word));
        }
    }

    /// Somebody says that a process has ended, although it lives.
    pub(super) fn lie(&mut self, slot: usize) {
        let slot = self.running(slot);
        let Some(node) = self.current(slot).filter(|_| self.host.running.is_some()) else { return };
        self.fault(Duration::ZERO);
        self.disturb(node, 1);
        // If the process has to attach again, the lie takes from it the time that it has for that.
        if self.now.since(self.host.started) < SILENCE * 2 {
            self.blame(node);
        }
        self.word(Word::Ended(node));
    }

    /// The program frees its cluster without leaving it.
    pub(super) fn frees(&mut self, slot: usize) {
        let slot = self.running(slot);
        let Some(node) = self.current(slot) else { return };
        self.met(Met::Freed);
        self.fault(Duration::ZERO);
        self.blame(node);
        self.send_to_scheduler(node, Message::Gone);
        self.abandons(node);
    }
}
