//! Operations that have timed out: each ends alone, with a sentence that says where its peer is, if that is known.

use super::engine::Engine;
use super::matching::OpId;
use super::operation::Stage;
use crate::error::{Error, Failure, Status};
use crate::runtime::state::node_state::NodeState;
use crate::types::Time;

impl Engine {
    /// Ends the operations whose time is up. Returns the time of the next look.
    pub(super) fn expire(&mut self, state: &NodeState) -> Time {
        let now = state.clock.now();
        loop {
            let op = match self.deadlines.due(now) {
                Ok(op) => op,
                Err(next) => return next,
            };
            let Some(operation) = self.transfers.operations.get(&op) else { continue };
            let (deadline, peer) = (operation.deadline, operation.peer().filter(|rank| *rank != self.transfers.own));
            if deadline > now {
                self.deadlines.add_again(deadline, op);
                peer.into_iter().for_each(|rank| self.deadlines.ask_where(&self.transfers.roster, rank, now, state));
            } else {
                let place = peer.and_then(|rank| self.deadlines.place_of(&self.transfers.roster, rank, now, state));
                self.time_out(op, place);
            }
        }
    }

    fn time_out(&mut self, op: OpId, place: Option<String>) {
        let Some(operation) = self.transfers.operations.get(&op) else { return };
        let what = self.transfers.title(operation);
        let state = match operation.stage {
            Stage::Posted => "no such message has come",
            Stage::Waiting | Stage::Requested(_) | Stage::Recalled(_) => "it is not received",
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
