//! What an incoming frame does: where its payload goes once its head is here, and what the frame means once all of it
//! is here.

use super::engine::{Engine, Trouble};
use super::matching::{MessageId, OpId};
use super::operation::Stage;
use super::peer::{Bytes, Inbound, InboundStage};
use crate::schedules::{Buffer, Span};
use crate::wire::{
    FrameHeader, MessageHeader, MessagePart, EAGER_COST, EAGER_CREDIT, EAGER_MAX, MESSAGE_PIECE_BYTES, RTS_MAX,
};

impl Engine {
    /// Where the payload of a frame goes whose head has come. An error if there can be no such frame.
    pub(super) fn begin_reading(
        &mut self,
        rank: u32,
        header: &FrameHeader,
        message: &MessageHeader,
    ) -> Result<Bytes, String> {
        let (epoch, group) = (self.transfers.roster.formed.epoch, self.transfers.roster.id);
        if (message.epoch, message.group) != (epoch, group) {
            return Err(format!("a message of {} in epoch {}", message.group, message.epoch.0));
        }
        let bytes = message.bytes().ok_or_else(|| format!("a message of {} elements", message.count))?;
        match message.part {
            MessagePart::Eager => self.eager_comes(rank, header.length, message, bytes),
            MessagePart::Piece => self.piece_comes(rank, header.length, message, bytes),
            _ if header.length > 0 => Err(format!("a {:?} with a payload", message.part)),
            _ => Ok(Bytes::Own(Vec::new())),
        }
    }

    fn eager_comes(&mut self, rank: u32, length: u64, message: &MessageHeader, bytes: usize) -> Result<Bytes, String> {
        let cost = length + EAGER_COST;
        if length != bytes as u64 || bytes > EAGER_MAX {
            return Err(format!("an eager message of {bytes} bytes with a payload of {length}"));
        }
        let peer = self.transfers.peer(rank);
        if peer.kept + cost > EAGER_CREDIT {
            return Err(format!("more eager messages than its credit of {EAGER_CREDIT} bytes"));
        }
        peer.kept += cost;
        self.announce(rank, message, InboundStage::Arriving(None))?;
        // If a receive waited for this message, it has been matched by now.
        let number = message.number;
        let inbound = self.transfers.peer(rank).inbound.get(&number);
        let met = inbound.and_then(|inbound| if let InboundStage::Arriving(op) = inbound.state { op } else { None });
        let operation = met.and_then(|op| Some((op, self.transfers.operations.get(&op)?)));
        Ok(match operation {
            Some((op, operation)) => Bytes::Callers(op, operation.post.buffers.window(0, bytes)),
            None => Bytes::Own(self.buffer(rank, bytes)?),
        })
    }

    /// Memory for a payload from a peer that has no place in a caller's memory.
    fn buffer(&mut self, rank: u32, bytes: usize) -> Result<Vec<u8>, String> {
        let buffer = self.transfers.pool.try_take(bytes);
        buffer.map_err(|_| self.lacks_memory(rank, bytes))
    }

    /// The peer may send so much without asking, so a lack of memory ends the group's messages.
    fn lacks_memory(&mut self, rank: u32, bytes: usize) -> String {
        self.trouble.get_or_insert(Trouble::Memory(rank, bytes));
        "no memory".to_owned()
    }

    /// Notes a new message of a peer.
    fn announce(&mut self, rank: u32, message: &MessageHeader, state: InboundStage) -> Result<(), String> {
        let inbound = Inbound { tag: message.tag, dtype: message.dtype, count: message.count, state };
        if self.transfers.matching.is_full() || self.transfers.peer(rank).is_full() {
            let made = self.transfers.matching.reserve().and_then(|()| self.transfers.peer(rank).reserve());
            made.map_err(|_| self.lacks_memory(rank, 0))?;
        }
        let peer = self.transfers.peer(rank);
        if message.number != peer.announced + 1 {
            return Err(format!("message {} where {} would be the next", message.number, peer.announced + 1));
        }
        peer.announced = message.number;
        let all = &mut peer.inbound;
        all.insert(message.number, inbound);
        if all.len() as u64 > RTS_MAX as u64 + EAGER_CREDIT / EAGER_COST {
            return Err(format!("more than {RTS_MAX} announced"));
        }
        self.transfers.arrive(MessageId { source: rank, number: message.number }, message.tag);
        Ok(())
    }

    fn piece_comes(&mut self, rank: u32, length: u64, message: &MessageHeader, bytes: usize) -> Result<Bytes, String> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let odd = || format!("a piece of {length} bytes of a message of {bytes}");
        if length > MESSAGE_PIECE_BYTES {
            return Err(odd());
        }
        let Some(op) = self.cleared_op(rank, message.number) else { return self.buffer(rank, length).map(Bytes::Own) }; // dropped
        let Some(operation) = self.transfers.operations.get(&op) else {
            return self.buffer(rank, length).map(Bytes::Own);
        };
        let Stage::Coming(_, here) = operation.stage else { return Err(odd()) };
        let announced = self.transfers.links.known(rank).and_then(|entry| entry.peer.inbound.get(&message.number));
        let announced = announced.map(|told| (told.count, told.dtype));
        if announced != Some((message.count, message.dtype)) || length > bytes - here || (length == 0 && bytes > 0) {
            return Err(odd());
        }
        Ok(Bytes::Callers(op, operation.post.buffers.window(here, length)))
    }

    fn cleared_op(&self, rank: u32, number: u64) -> Option<OpId> {
        match self.transfers.links.known(rank)?.peer.inbound.get(&number)?.state {
            InboundStage::Cleared(op) => Some(op),
            _ => None,
        }
    }

    /// A frame has come to its end.
    pub(super) fn heard(
        &mut self,
        rank: u32,
        message: &MessageHeader,
        length: usize,
        bytes: Bytes,
    ) -> Result<(), String> {
        let number = message.number;
        match message.part {
            MessagePart::Eager => self.eager_came(rank, message, length, bytes),
            MessagePart::Piece => self.piece_came(rank, message, length),
            MessagePart::Rts => self.announce(rank, message, InboundStage::Requested)?,
            MessagePart::Cts => self.cleared(rank, number),
            MessagePart::Withdraw | MessagePart::Recall => self.transfers.taken_back(rank, message)?,
            MessagePart::Refuse | MessagePart::Drop => self.transfers.turned_down(rank, message),
            MessagePart::Credit => {
                let peer = self.transfers.peer(rank);
                peer.credit = peer.credit.saturating_add(message.count);
                if peer.credit > EAGER_CREDIT {
                    return Err(format!("a credit of {} that was never used", message.count));
                }
            }
        }
        Ok(())
    }

    fn eager_came(&mut self, rank: u32, message: &MessageHeader, length: usize, bytes: Bytes) {
        let number = message.number;
        let waits = self.transfers.matching.waits(MessageId { source: rank, number });
        let Some(inbound) = self.transfers.peer(rank).inbound.get_mut(&number) else { return };
        let (tag, count, dtype) = (inbound.tag, inbound.count, inbound.dtype);
        let InboundStage::Arriving(met) = inbound.state else { return };
        let own = match bytes {
            Bytes::Callers(..) => None,
            Bytes::Own(bytes) => Some(bytes),
        };
        match (met, own) {
            (Some(op), own) => {
                let buffers = self.transfers.operations.get(&op).map(|operation| operation.post.buffers);
                if let (Some(bytes), Some(buffers)) = (&own, buffers) {
                    let to = Span::new(Buffer::Output, 0, bytes.len());
                    buffers.window(0, bytes.len()).memory().bytes_mut(to).copy_from_slice(bytes);
                }
                self.transfers.pool.give(own.unwrap_or_default());
                self.transfers.peer(rank).inbound.remove(&number);
                self.transfers.received(op, rank, tag, count, dtype);
            }
            (None, Some(bytes)) if waits => {
                inbound.state = InboundStage::Kept(Bytes::Own(bytes));
                return;
            }
            // It met a receive that it does not fit.
            (None, own) => {
                self.transfers.pool.give(own.unwrap_or_default());
                self.transfers.peer(rank).inbound.remove(&number);
            }
        }
        self.transfers.release(rank, length as u64 + EAGER_COST);
    }

    fn piece_came(&mut self, rank: u32, message: &MessageHeader, length: usize) {
        let Some(op) = self.cleared_op(rank, message.number) else { return };
        let Some(operation) = self.transfers.operations.get_mut(&op) else { return };
        let Stage::Coming(id, here) = operation.stage else { return };
        operation.stage = Stage::Coming(id, here + length);
        if Some(here + length) == message.bytes() {
            let inbound = self.transfers.peer(rank).inbound.remove(&message.number);
            let Some(Inbound { tag, count, dtype, .. }) = inbound else { return };
            self.transfers.received(op, rank, tag, count, dtype);
        }
    }

    /// A peer clears a message of ours. A message that was given up meanwhile has been withdrawn.
    fn cleared(&mut self, rank: u32, number: u64) {
        let Some(op) = self.transfers.peer(rank).ours.get(&number).copied() else { return };
        let Some(operation) = self.transfers.operations.get_mut(&op) else { return };
        if [Stage::Requested(number), Stage::Recalled(number)].contains(&operation.stage) {
            operation.stage = Stage::Cleared(number, 0);
            self.transfers.peer(rank).cleared.push_back(op);
            self.transfers.dirty.insert(rank);
        }
    }
}
