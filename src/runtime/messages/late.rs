//! Operations whose time is up: they end, each alone, with a sentence that says where their peers are.
//!
//! The scheduler is asked for that a little before, so that nobody waits for its answer; without one the sentence is shorter.

use super::super::absence::place_in_words;
use super::super::shared::{Shared, ToNode};
use super::engine::Engine;
use super::matching::OpId;
use super::operation::{Operation, Stage};
use crate::agent::{Ask, Command};
use crate::error::{Error, Failure, Status};
use crate::types::Time;
use crate::wire::Absent;
use std::cmp::Reverse;
use std::time::Duration;

/// How many deadlines of operations that have ended may be kept.
pub(super) const DEADLINES_KEPT: usize = 1024;
/// How long before that it is asked where the peer is.
const ASKED_BEFORE: Duration = Duration::from_millis(250);

/// When it is asked where the peer of an operation is.
pub(super) fn asked_at(since: Time, deadline: Time) -> Time {
    deadline - ASKED_BEFORE.min(deadline.since(since) / 2)
}

impl Engine {
    /// The time of some operations may be up. Returns when to come again.
    pub(super) fn expire(&mut self, shared: &Shared) -> Time {
        let now = shared.clock.now();
        while let Some(Reverse((at, op, ask))) = self.deadlines.peek().copied() {
            if at > now {
                return at;
            }
            self.deadlines.pop();
            let answer = if ask == 0 { None } else { shared.learnt().absent.remove(&ask) };
            match self.operations.get(&op) {
                None => {}
                Some(operation) if operation.deadline > now => {
                    let next = (operation.deadline, op, self.ask_where(operation, shared));
                    self.deadlines.push(Reverse(next)); // in the place of the one that was taken out
                }
                Some(_) => self.time_out(op, answer),
            }
        }
        Time::NEVER
    }

    /// Asks where the peer of an operation is. The answer's number; 0 where nobody is asked.
    fn ask_where(&self, operation: &Operation, shared: &Shared) -> Ask {
        let peer =
            operation.peer().filter(|rank| *rank != self.own).and_then(|rank| self.roster.members.get(rank as usize));
        let Some(index) = peer.filter(|_| shared.learnt().away.is_none()) else { return 0 };
        let ask = shared.next_ask();
        let question = Command::WhereAre(ask, self.roster.id, u64::MAX, Some(*index));
        shared.ask(ToNode::Of(self.roster.formed.epoch, question));
        ask
    }

    /// Most operations end long before their time: their deadlines are dropped by and by.
    pub(super) fn forget_ended(&mut self) {
        if self.deadlines.len() > DEADLINES_KEPT + 2 * self.operations.len() {
            let operations = &self.operations;
            self.deadlines.retain(|Reverse((_, op, ask))| *ask != 0 || operations.contains_key(op));
        }
    }

    fn time_out(&mut self, op: OpId, answer: Option<Absent>) {
        let Some(operation) = self.operations.get(&op) else { return };
        let what = self.title(operation);
        let state = match operation.stage {
            Stage::Posted => "no such message has come",
            Stage::Waiting | Stage::Offered(_) => "it is not received",
            Stage::Leaving | Stage::Granted(..) => "not all of it has gone",
            Stage::Met(_) | Stage::Coming(..) => "not all of it has come",
        };
        let limit = operation.limit_ms as f64 / 1000.0;
        let mut sentence = format!("{what}: {state} within the {limit} s that it may take");
        if let (Some(rank), Some(place)) = (operation.peer(), answer.as_ref().and_then(|answer| answer.members.first()))
        {
            sentence += &format!("; rank {rank}: {}", place_in_words(place, self.roster.id));
        }
        let awaited = operation.peer().and_then(|rank| self.roster.culprit(rank));
        let cause = if awaited.is_some() { format!("is awaited in {sentence}") } else { sentence.clone() };
        let (status, epoch, group) = (Status::Timeout, self.roster.formed.epoch, Some(self.roster.id));
        self.late = Some(Failure { status, culprit: awaited, cause, epoch, group, sequence: 0 });
        self.give_up(op, Error::new(Status::Timeout, sentence));
    }
}
