//! Operations whose time is up: they end, each alone, with a sentence that says where their peers are.
//!
//! The scheduler is asked for that a little before, so that nobody waits for its answer; without one the sentence is shorter.

use super::engine::Engine;
use super::matching::OpId;
use super::operation::{asked_at, Stage, ASKED_BEFORE, DEADLINES_KEPT};
use super::transfers::Transfers;
use crate::agent::{Ask, Command};
use crate::error::{Error, Failure, Status};
use crate::runtime::state::node_state::{AgentCommand, NodeState};
use crate::runtime::state::roster::Roster;
use crate::runtime::state::stragglers::place_in_words;
use crate::types::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, TryReserveError};

/// When the time of an operation is up, or nearly: then it is asked where its peer is.
pub(super) struct Deadlines {
    times: BinaryHeap<Reverse<(Time, OpId)>>,
    /// When that was asked last of each peer, and under which number.
    asked: BTreeMap<u32, (Time, Ask)>,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines { times: BinaryHeap::with_capacity(2 * DEADLINES_KEPT), asked: BTreeMap::new() }
    }
}

impl Deadlines {
    /// Whether there may be no place for two more.
    pub(super) fn is_full(&self) -> bool {
        self.times.capacity() - self.times.len() < 2
    }

    pub(super) fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.times.try_reserve(2)
    }

    /// An operation is posted.
    pub(super) fn add(&mut self, since: Time, deadline: Time, op: OpId) {
        self.times.push(Reverse((asked_at(since, deadline), op)));
    }

    pub(super) fn clear(&mut self) {
        self.times.clear();
    }

    /// Most operations end long before their time: their deadlines are dropped by and by.
    pub(super) fn forget_ended(&mut self, transfers: &Transfers) {
        if self.times.len() > DEADLINES_KEPT + 2 * transfers.operations.len() {
            let operations = &transfers.operations;
            self.times.retain(|Reverse((_, op))| operations.contains_key(op));
        }
    }

    /// Asks where a peer is, once for all operations whose time is up soon.
    fn ask_where(&mut self, roster: &Roster, rank: u32, now: Time, shared: &NodeState) {
        let Some(index) = roster.members.get(rank as usize).filter(|_| shared.learnt().away.is_none()) else {
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
        let question = Command::WhereAre(ask, roster.id, u64::MAX, Some(*index));
        shared.ask(AgentCommand::Of(roster.formed.epoch, question));
    }

    /// Where it is, in words, as far as that was told in time.
    fn place_of(&self, roster: &Roster, rank: u32, now: Time, shared: &NodeState) -> Option<String> {
        let (_, ask) = self.asked.get(&rank).filter(|(at, _)| now.since(*at) <= ASKED_BEFORE * 4)?;
        let learnt = shared.learnt();
        let place = learnt.absent.get(ask)?.members.first()?;
        Some(format!("rank {rank}: {}", place_in_words(place, roster.id)))
    }
}

impl Engine {
    /// The time of some operations may be up. Returns when to come again.
    pub(super) fn expire(&mut self, shared: &NodeState) -> Time {
        let now = shared.clock.now();
        while let Some(Reverse((at, op))) = self.deadlines.times.peek().copied() {
            if at > now {
                return at;
            }
            self.deadlines.times.pop();
            let Some(operation) = self.transfers.operations.get(&op) else { continue };
            let (deadline, peer) = (operation.deadline, operation.peer().filter(|rank| *rank != self.transfers.own));
            if deadline > now {
                self.deadlines.times.push(Reverse((deadline, op))); // in the place of the one that was taken out
                peer.into_iter().for_each(|rank| self.deadlines.ask_where(&self.transfers.roster, rank, now, shared));
            } else {
                let place = peer.and_then(|rank| self.deadlines.place_of(&self.transfers.roster, rank, now, shared));
                self.time_out(op, place);
            }
        }
        Time::NEVER
    }

    fn time_out(&mut self, op: OpId, place: Option<String>) {
        let Some(operation) = self.transfers.operations.get(&op) else { return };
        let what = self.transfers.title(operation);
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
        let awaited = operation.peer().and_then(|rank| self.transfers.roster.culprit(rank));
        let cause = if awaited.is_some() { format!("is awaited in {sentence}") } else { sentence.clone() };
        let (status, epoch, group) =
            (Status::Timeout, self.transfers.roster.formed.epoch, Some(self.transfers.roster.id));
        self.late = Some(Failure { status, culprit: awaited, cause, epoch, group, sequence: 0 });
        self.transfers.give_up(op, Error::new(Status::Timeout, sentence));
    }
}
