//! When operations time out, and where their peers are then.
//!
//! The scheduler is asked a little earlier where the peers are, so that nobody waits for its answer.

use super::matching::OpId;
use super::operation::{asked_at, ASKED_BEFORE, DEADLINES_KEPT};
use super::transfers::Transfers;
use crate::agent::{Ask, Command};
use crate::runtime::state::node_state::{AgentCommand, NodeState};
use crate::runtime::state::roster::Roster;
use crate::runtime::state::stragglers::place_in_words;
use crate::types::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, TryReserveError};

/// When the time of each operation is up, or nearly up: then the scheduler is asked where its peer is.
pub(super) struct Deadlines {
    times: BinaryHeap<Reverse<(Time, OpId)>>,
    /// When the scheduler was asked last where each peer is, and under which number.
    asked: BTreeMap<u32, (Time, Ask)>,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines { times: BinaryHeap::with_capacity(2 * DEADLINES_KEPT), asked: BTreeMap::new() }
    }
}

impl Deadlines {
    /// Whether there may be no room for two more.
    pub(super) fn is_full(&self) -> bool {
        self.times.capacity() - self.times.len() < 2
    }

    pub(super) fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.times.try_reserve(2)
    }

    /// Adds an operation that is posted.
    pub(super) fn add(&mut self, since: Time, deadline: Time, op: OpId) {
        self.times.push(Reverse((asked_at(since, deadline), op)));
    }

    /// Takes out an operation that has timed out, or soon will. If there is none, returns when the next one is due.
    pub(super) fn due(&mut self, now: Time) -> Result<OpId, Time> {
        match self.times.peek() {
            Some(Reverse((at, op))) if *at <= now => {
                let op = *op;
                self.times.pop();
                Ok(op)
            }
            Some(Reverse((at, _))) => Err(*at),
            None => Err(Time::NEVER),
        }
    }

    /// Adds an operation again whose time is nearly up: it takes the place of the entry that was taken out.
    pub(super) fn add_again(&mut self, deadline: Time, op: OpId) {
        self.times.push(Reverse((deadline, op)));
    }

    pub(super) fn clear(&mut self) {
        self.times.clear();
    }

    /// The group is over: nobody waits for an answer of the scheduler's any more.
    pub(super) fn forget_questions(&mut self, state: &NodeState) {
        let mut view = state.view();
        std::mem::take(&mut self.asked).into_values().for_each(|(_, ask)| drop(view.absent.remove(&ask)));
    }

    /// Most operations end long before their deadlines, which are then dropped from time to time.
    pub(super) fn forget_ended(&mut self, transfers: &Transfers) {
        if self.times.len() > DEADLINES_KEPT + 2 * transfers.operations.len() {
            let operations = &transfers.operations;
            self.times.retain(|Reverse((_, op))| operations.contains_key(op));
        }
    }

    /// Asks where a peer is, once for all operations whose time is up soon.
    pub(super) fn ask_where(&mut self, roster: &Roster, rank: u32, now: Time, state: &NodeState) {
        let Some(index) = roster.members.get(rank as usize).filter(|_| state.view().away.is_none()) else {
            return;
        };
        let before = self.asked.get(&rank).copied();
        if before.is_some_and(|(at, _)| now.since(at) < ASKED_BEFORE) {
            return;
        }
        let ask = state.next_ask();
        self.asked.insert(rank, (now, ask));
        let mut view = state.view();
        if let Some((_, over)) = before {
            view.absent.remove(&over);
        }
        view.absent.insert(ask, None);
        drop(view);
        let question = Command::WhereAre(ask, roster.id, u64::MAX, Some(*index));
        state.ask(AgentCommand::Of(roster.formed.epoch, question));
    }

    /// The words that say where a peer is, if the scheduler has told that in time.
    pub(super) fn place_of(&self, roster: &Roster, rank: u32, now: Time, state: &NodeState) -> Option<String> {
        let (_, ask) = self.asked.get(&rank).filter(|(at, _)| now.since(*at) <= ASKED_BEFORE * 4)?;
        let view = state.view();
        let place = view.absent.get(ask)?.as_ref()?.members.first()?;
        Some(format!("rank {rank}: {}", place_in_words(place, roster.id)))
    }
}
