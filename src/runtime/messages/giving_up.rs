//! How either end gives a message up early, and what the other end then does.
//!
//! A send that a receive has matched is not cancelled any more. Only the receiver knows whether one has: so an
//! announced send is recalled, and goes on unless the receiver gives it back. An operation whose time is up is given up
//! without asking. An interrupted caller does not wait long for the answer either.

use super::matching::{MessageId, OpId};
use super::operation::{misfit, Stage};
use super::peer::InboundStage;
use super::transfers::Transfers;
use crate::error::{Error, Status};
use crate::wire::{MessageHeader, MessagePart, RTS_MAX};

/// How many words to a peer may wait for it to read. At most [`RTS_MAX`] messages are announced in each direction, and each needs
/// two words at most; those of eager messages and credit are few.
const WORDS_MAX: usize = 8 * RTS_MAX;

fn cancelled(title: &str) -> Error {
    Error::new(Status::Aborted, format!("{title} was cancelled"))
}

impl Transfers {
    /// Cancels an operation for its caller, if it has not met its other half. In the case of an announced send, only
    /// the receiver knows that.
    pub(super) fn cancel(&mut self, op: OpId) {
        let Some(operation) = self.operations.get_mut(&op) else { return };
        match (operation.stage, operation.peer()) {
            (Stage::Waiting | Stage::Posted, _) => {
                let error = cancelled(&self.title_of(op));
                self.give_up(op, error);
            }
            (Stage::Requested(number), Some(to)) => {
                operation.stage = Stage::Recalled(number);
                let dtype = operation.post.dtype;
                self.say(to, MessagePart::Recall, number, 0, dtype);
            }
            _ => operation.is_cancelled = true,
        }
    }

    /// Gives up a recalled send, as if it had timed out, because the receiver does not say whether a receive has
    /// matched it.
    pub(super) fn give_up_recalled(&mut self, op: OpId) {
        let stage = self.operations.get(&op).map(|operation| operation.stage);
        if matches!(stage, Some(Stage::Recalled(_))) {
            let error = cancelled(&self.title_of(op));
            self.give_up(op, error);
        }
    }

    /// Ends an operation early. The other end is told, if it still waits for this one.
    pub(super) fn give_up(&mut self, op: OpId, error: Error) {
        let Some(operation) = self.operations.get(&op) else { return };
        let (stage, dtype) = (operation.stage, operation.post.dtype);
        let peer = operation.peer();
        match (stage, peer) {
            (Stage::Posted, _) => drop(self.matching.take_posted(op)),
            (Stage::Requested(number) | Stage::Recalled(number) | Stage::Cleared(number, _), Some(to)) => {
                self.peer(to).ours.remove(&number);
                self.say(to, MessagePart::Withdraw, number, 0, dtype);
            }
            (Stage::Coming(message, _), Some(from)) => {
                self.peer(from).inbound.remove(&message.number);
                self.say(from, MessagePart::Drop, message.number, 0, dtype);
            }
            _ => {}
        }
        self.end(op, Err(error));
        // If its receive goes while a message comes in, the message waits for another receive.
        let Stage::Met(message) = stage else { return };
        let inbound =
            self.links.known_mut(message.source).and_then(|entry| entry.peer.inbound.get_mut(&message.number));
        let Some(inbound) = inbound else { return };
        if let InboundStage::Arriving(of) = &mut inbound.state {
            *of = None;
            let tag = inbound.tag;
            self.arrive(message, tag);
        }
    }

    /// A peer's message will not come, or not completely; or the peer asks for it back. The peer gets it back if no
    /// receive has matched it. If a receive has matched it, or if the message was refused or dropped, this node has
    /// told the peer so already.
    pub(super) fn taken_back(&mut self, rank: u32, header: &MessageHeader) -> Result<(), String> {
        let MessageHeader { part, number, dtype, .. } = *header;
        let (message, asks) = (MessageId { source: rank, number }, part == MessagePart::Recall);
        if self.peer(rank).words.len() > WORDS_MAX {
            return Err(format!("it takes back message after message, and does not read the {WORDS_MAX} words to it"));
        }
        let inbound = &mut self.peer(rank).inbound;
        match inbound.get(&number).map(|inbound| &inbound.state) {
            None => {}
            Some(InboundStage::Cleared(_)) if asks => {}
            Some(InboundStage::Requested) => {
                inbound.remove(&number);
                self.matching.take_arrived(message);
                if asks {
                    self.say(rank, MessagePart::Drop, number, 0, dtype);
                }
            }
            Some(&InboundStage::Cleared(op)) => {
                inbound.remove(&number);
                if self.operations.get(&op).is_some_and(|operation| operation.stage == Stage::Coming(message, 0)) {
                    self.wait_again(op);
                    return Ok(());
                }
                let sentence = format!("{}: its sender gave it up in the middle", self.title_of(op));
                self.end(op, Err(Error::new(Status::Aborted, sentence)));
            }
            Some(InboundStage::Arriving(_) | InboundStage::Kept(_)) => {
                let what = if asks { "recalled" } else { "withdrawn" };
                return Err(format!("message {number} is {what}, and was never announced"));
            }
        }
        Ok(())
    }

    /// A peer does not want a message of ours, or gives it back. If the send has timed out meanwhile, the two words
    /// cross. Then each end has ended for its own reason (the receive did not fit, for instance, and the send timed
    /// out), and neither waits for the other.
    pub(super) fn turned_down(&mut self, rank: u32, message: &MessageHeader) {
        let Some(op) = self.peer(rank).ours.remove(&message.number) else { return };
        let Some(operation) = self.operations.get(&op) else { return };
        let error = if message.part == MessagePart::Refuse {
            let (sent, room) = ((operation.post.count, operation.post.dtype), (message.count, message.dtype));
            let [own, peer] = [self.own, rank].map(|rank| self.roster.describe(rank));
            Error::new(Status::Mismatch, misfit(sent, room, &own, &peer))
        } else if operation.stage == Stage::Recalled(message.number) {
            cancelled(&self.title_of(op))
        } else {
            let sentence = format!("{}: its receiver gave up receiving it", self.title_of(op));
            Error::new(Status::Aborted, sentence)
        };
        self.end(op, Err(error));
    }

    /// Lets a receive wait in its old place for another message, as if it had never met one. If it was cancelled
    /// meanwhile, it ends.
    pub(super) fn wait_again(&mut self, op: OpId) {
        let Some(operation) = self.operations.get_mut(&op) else { return };
        let Some(wanted) = operation.post.direction.wanted() else { return };
        if operation.is_cancelled {
            let error = cancelled(&self.title_of(op));
            return self.end(op, Err(error));
        }
        operation.stage = Stage::Posted;
        if let Some(message) = self.matching.post(op, wanted) {
            self.meet(op, message);
        }
    }
}
