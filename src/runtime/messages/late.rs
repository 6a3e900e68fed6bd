//! Operations whose time is up: they end, each alone, with a sentence that says where their peers are.
//!
//! The scheduler is asked for that a little before, so that nobody waits for its answer; without one the sentence is shorter.

use super::engine::Engine;
use super::matching::OpId;
use super::operation::{Stage, ASKED_BEFORE, DEADLINES_KEPT};
use crate::agent::Command;
use crate::error::{Error, Failure, Status};
use crate::runtime::state::node_state::{AgentCommand, NodeState};
use crate::runtime::state::stragglers::place_in_words;
use crate::types::Time;
use std::cmp::Reverse;

impl Engine {
    /// The time of some operations may be up. Returns when to come again.
    pub(super) fn expire(&mut self, shared: &NodeState) -> Time {
        let now = shared.clock.now();
        while let Some(Reverse((at, op))) = self.deadlines.peek().copied() {
            if at > now {
                return at;
            }
            self.deadlines.pop();
            let Some(operation) = self.operations.get(&op) else { continue };
            let (deadline, peer) = (operation.deadline, operation.peer().filter(|rank| *rank != self.own));
            if deadline > now {
                self.deadlines.push(Reverse((deadline, op))); // in the place of the one that was taken out
                peer.into_iter().for_each(|rank| self.ask_where(rank, now, shared));
            } else {
                let place = peer.and_then(|rank| self.place_of(rank, now, shared));
                self.time_out(op, place);
            }
        }
        Time::NEVER
    }

    /// Asks where a peer is, once for all operations whose time is up soon.
    fn ask_where(&mut self, rank: u32, now: Time, shared: &NodeState) {
        let Some(index) = self.roster.members.get(rank as usize).filter(|_| shared.learnt().away.is_none()) else {
            return;
        };
        let before = self.asked.get(&rank).copied();
        if before.is_some_and(|(at, _)| now.since(at) < ASKED_BEFORE) {
            return;
        }
        let ask = shared.next_ask();
        self.asked.insert(rank, (now, ask));
        if let Some((_, over)) = before {
            shared.learnt().absent.remove(&over);
        }
        let question = Command::WhereAre(ask, self.roster.id, u64::MAX, Some(*index));
        shared.ask(AgentCommand::Of(self.roster.formed.epoch, question));
    }

    /// Where it is, in words, as far as that was told in time.
    fn place_of(&self, rank: u32, now: Time, shared: &NodeState) -> Option<String> {
        let (_, ask) = self.asked.get(&rank).filter(|(at, _)| now.since(*at) <= ASKED_BEFORE * 4)?;
        let learnt = shared.learnt();
        let place = learnt.absent.get(ask)?.members.first()?;
        Some(format!("rank {rank}: {}", place_in_words(place, self.roster.id)))
    }

    /// Most operations end long before their time: their deadlines are dropped by and by.
    pub(super) fn forget_ended(&mut self) {
        if self.deadlines.len() > DEADLINES_KEPT + 2 * self.operations.len() {
            let operations = &self.operations;
            self.deadlines.retain(|Reverse((_, op))| operations.contains_key(op));
        }
    }

    fn time_out(&mut self, op: OpId, place: Option<String>) {
        let Some(operation) = self.operations.get(&op) else { return };
        let what = self.title(operation);
        let state = match operation.stage {
            Stage::Posted => "no such message has come",
            Stage::Waiting | Stage::Requested(_) => "it is not received",
            Stage::Leaving | Stage::Cleared(..) => "not all of it has gone",
            Stage::Met(_) | Stage::Coming(..) => "not all of it has come",
        };
        let limit = operation.limit_ms as f64 / 1000.0;
        let mut sentence = format!("{what}: {state} within the {limit} s that it may take");
        if let Some(place) = place {
            sentence += &format!("; {place}");
        }
        let awaited = operation.peer().and_then(|rank| self.roster.culprit(rank));
        let cause = if awaited.is_some() { format!("is awaited in {sentence}") } else { sentence.clone() };
        let (status, epoch, group) = (Status::Timeout, self.roster.formed.epoch, Some(self.roster.id));
        self.late = Some(Failure { status, culprit: awaited, cause, epoch, group, sequence: 0 });
        self.give_up(op, Error::new(Status::Timeout, sentence));
    }
}
