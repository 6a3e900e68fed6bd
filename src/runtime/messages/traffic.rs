//! How the frames of messages move on their links: what goes out next, and what each that comes in does.
//!
//! On a link words (CTSs, credit ...) go first; then pieces of cleared messages and the heads of new sends take turns, so
//! that neither keeps the other waiting. A frame is at most [`MESSAGE_PIECE_BYTES`] long.

use super::engine::{Engine, Trouble};
use super::matching::{MessageId, OpId};
use super::operation::{misfit, Direction, Stage};
use super::peer::{Bytes, Inbound, InboundStage, Outbound, Peer, Reading, Writing};
use crate::error::{Error, Status};
use crate::runtime::links::link::{Arrival, Link, LinkEnd, Moved};
use crate::runtime::links::peers::Slot;
use crate::runtime::links::sink::Sink;
use crate::schedules::{Buffer, Landing, Span};
use crate::wire::{
    FrameHeader, LinkKind, MessageHeader, MessagePart, EAGER_COST, EAGER_CREDIT, EAGER_MAX, MESSAGE_PIECE_BYTES,
    RTS_MAX,
};

/// How many frames one look at a link moves at most in each direction, before others get their turn.
const FRAMES: usize = 16;

impl Engine {
    /// Moves what can be moved on the link to a peer, in both directions.
    pub(super) fn pump(&mut self, rank: u32) {
        if self.failed.is_some() {
            return; // who reads on does not know any more where in a frame the link is
        }
        self.more.remove(rank);
        self.dirty.insert(rank);
        for _ in 0..FRAMES {
            match self.read_frame(rank) {
                Ok(Moved::Done) => {}
                Ok(Moved::Nothing) => return self.flush(),
                Ok(Moved::Some) => break, // the transport holds more
                Err(end) => {
                    self.flush();
                    return self.link_ended(rank, end);
                }
            }
        }
        self.more.insert(rank);
        self.flush();
    }

    /// Moves what can be moved on the link to this peer, or on all.
    pub(super) fn look(&mut self, peer: Option<u32>) {
        match peer {
            Some(rank) => self.pump(rank),
            None => {
                let open = |(rank, peer): (&u32, &Peer)| matches!(peer.slot, Slot::Up(_)).then_some(*rank);
                let mut ranks = std::mem::take(&mut self.open);
                ranks.extend(self.peers.iter().filter_map(open));
                ranks.drain(..).for_each(|rank| self.pump(rank));
                self.open = ranks;
            }
        }
    }

    /// Sends what waits to be sent, as far as the links take it.
    pub(super) fn flush(&mut self) {
        if self.failed.is_some() {
            return; // what is still to be said is said by `drain`
        }
        while let Some(rank) = self.dirty.pop_first() {
            for turn in 0.. {
                match self.write_frame(rank) {
                    Ok(Moved::Done) if turn < FRAMES => {}
                    Ok(Moved::Done) => {
                        self.more.insert(rank);
                        break;
                    }
                    Ok(_) => break,
                    Err(end) => {
                        // What the peer said before it closed tells more than that it closed.
                        while self.trouble.is_none() && matches!(self.read_frame(rank), Ok(Moved::Done)) {}
                        self.link_ended(rank, end);
                        break;
                    }
                }
            }
        }
    }

    fn link_ended(&mut self, rank: u32, end: LinkEnd) {
        if self.trouble.is_none() && matches!(self.peer(rank).slot, Slot::Up(_)) {
            self.ends(rank, end);
        }
    }

    /// A link does not come to stand.
    pub(super) fn never_up(&mut self, rank: u32, end: LinkEnd) {
        if matches!(self.peer(rank).slot, Slot::Unused | Slot::Asked) {
            self.ends(rank, end);
        }
    }

    fn ends(&mut self, rank: u32, end: LinkEnd) {
        self.peer(rank).slot = Slot::Ended(end.clone());
        let trouble = match end {
            LinkEnd::Ended(_) | LinkEnd::Silent(_) => return self.suspect(rank, end),
            LinkEnd::Corrupt(what) => Trouble::Corrupt(rank, what),
            LinkEnd::Over(failure) => Trouble::Heard(*failure),
        };
        self.trouble.get_or_insert(trouble);
    }

    /// Writes on a frame, or begins the next. `Done`: one has gone, and there may be another.
    fn write_frame(&mut self, rank: u32) -> Result<Moved, LinkEnd> {
        let Some(peer) = self.peers.get_mut(&rank) else { return Ok(Moved::Nothing) };
        if !matches!(peer.slot, Slot::Up(_)) {
            return Ok(Moved::Nothing);
        }
        if peer.writing.is_none() && !self.begin_frame(rank) {
            return Ok(Moved::Nothing);
        }
        let Peer { slot: Slot::Up(link), writing: Some(writing), .. } = self.peer(rank) else {
            return Ok(Moved::Nothing);
        };
        match writing.send(link)? {
            Moved::Done => {}
            other => return Ok(other),
        }
        self.moved += 1;
        let Some(Writing { what, length, .. }) = self.peer(rank).writing.take() else { return Ok(Moved::Nothing) };
        self.sent(rank, what, length);
        Ok(Moved::Done)
    }

    /// A frame has gone.
    fn sent(&mut self, rank: u32, what: Outbound, length: usize) {
        match what {
            Outbound::Word => {}
            Outbound::Eager(op) => self.end(op, Ok(None)),
            Outbound::Piece(op) => {
                let Some(operation) = self.operations.get_mut(&op) else { return };
                let Stage::Cleared(number, gone) = operation.stage else { return };
                operation.stage = Stage::Cleared(number, gone + length);
                if gone + length < operation.bytes() {
                    return self.peer(rank).cleared.push_back(op);
                }
                self.peer(rank).ours.remove(&number);
                self.end(op, Ok(None));
            }
        }
    }

    /// Begins the next frame to a peer. Returns whether there is one.
    fn begin_frame(&mut self, rank: u32) -> bool {
        let peer = self.peer(rank);
        if let Some(word) = peer.words.pop_front() {
            self.start(rank, word, Outbound::Word, Bytes::Own(Vec::new()), 0);
            return true;
        }
        let piece_first = std::mem::take(&mut peer.piece_next);
        peer.piece_next = !piece_first;
        let mut turns: [fn(&mut Engine, u32) -> bool; 2] = [Engine::begin_head, Engine::begin_piece];
        if piece_first {
            turns.reverse();
        }
        turns.into_iter().any(|begin| begin(self, rank))
    }

    fn begin_head(&mut self, rank: u32) -> bool {
        loop {
            let Some(op) = self.peer(rank).heads.pop_front() else { return false };
            let Some(operation) = self.operations.get_mut(&op) else { continue }; // given up
            let Direction::Send { tag, .. } = operation.post.way else { continue };
            let (dtype, count) = (operation.post.dtype, operation.post.count);
            let (length, buffers) = (operation.bytes(), operation.post.buffers);
            let peer = self.peers.entry(rank).or_default();
            let cost = length as u64 + EAGER_COST;
            let eager = length <= EAGER_MAX && cost <= peer.credit;
            if !eager && peer.ours.len() >= RTS_MAX {
                peer.heads.push_front(op); // it waits for one of them to end, and what is behind it does, too
                return false;
            }
            peer.numbered += 1;
            let number = peer.numbered;
            let (epoch, group) = (self.roster.formed.epoch, self.roster.id);
            let header = MessageHeader { epoch, group, part: MessagePart::Rts, dtype, tag, number, count };
            if eager {
                peer.credit -= cost;
                operation.stage = Stage::Leaving;
                let eager = MessageHeader { part: MessagePart::Eager, ..header };
                self.start(rank, eager, Outbound::Eager(op), Bytes::Callers(op, buffers), length);
            } else {
                operation.stage = Stage::Requested(number);
                peer.ours.insert(number, op);
                self.start(rank, header, Outbound::Word, Bytes::Own(Vec::new()), 0);
            }
            return true;
        }
    }

    fn begin_piece(&mut self, rank: u32) -> bool {
        loop {
            let Some(op) = self.peer(rank).cleared.pop_front() else { return false };
            let Some(operation) = self.operations.get(&op) else { continue }; // given up
            let Stage::Cleared(number, gone) = operation.stage else { continue };
            let length = (operation.bytes() - gone).min(MESSAGE_PIECE_BYTES);
            let buffers = operation.post.buffers.window(gone, length);
            let (epoch, group, dtype) = (self.roster.formed.epoch, self.roster.id, operation.post.dtype);
            let count = operation.post.count;
            let header = MessageHeader { epoch, group, part: MessagePart::Piece, dtype, tag: 0, number, count };
            self.start(rank, header, Outbound::Piece(op), Bytes::Callers(op, buffers), length);
            return true;
        }
    }

    fn start(&mut self, rank: u32, header: MessageHeader, what: Outbound, bytes: Bytes, length: usize) {
        let head = header.encode_in(&mut self.head);
        let peer = self.peer(rank);
        let Slot::Up(link) = &mut peer.slot else { return };
        link.start_send(LinkKind::Message, &head, Span::new(Buffer::Input, 0, length));
        peer.writing = Some(Writing { what, length, bytes });
    }

    /// Reads on in a frame, or the next one. `Done`: one has come to its end, and there may be another.
    fn read_frame(&mut self, rank: u32) -> Result<Moved, LinkEnd> {
        let Some(peer) = self.peers.get_mut(&rank) else { return Ok(Moved::Nothing) };
        let Slot::Up(link) = &mut peer.slot else { return Ok(Moved::Nothing) };
        if peer.reading.is_none() {
            let (header, message) = match link.peek()? {
                None => return Ok(held(link)),
                Some(Arrival::Message(header, message)) => (header, message),
                Some(Arrival::Data(..)) => {
                    return Err(LinkEnd::Corrupt("a collective's data on a link for messages".to_owned()))
                }
                Some(Arrival::Revoke(failure)) => {
                    self.trouble.get_or_insert(Trouble::Heard(failure));
                    return Ok(Moved::Nothing);
                }
                Some(Arrival::Leave) => {
                    self.peer_left(rank, None);
                    return Ok(Moved::Nothing);
                }
            };
            let bytes = self.begin_reading(rank, &header, &message).map_err(LinkEnd::Corrupt)?;
            let length = header.length as usize;
            self.peer(rank).reading = Some(Reading { header: message, length, bytes });
        }
        let Peer { slot: Slot::Up(link), reading: Some(reading), .. } = self.peer(rank) else {
            return Ok(Moved::Nothing);
        };
        let landing = Landing::Place(Span::new(Buffer::Output, 0, reading.length));
        let memory = reading.bytes.output().memory();
        match link.receive(&Sink { memory: &memory, landing, arithmetic: None }, &mut [])? {
            Moved::Done => {}
            Moved::Some | Moved::Nothing => return Ok(held(link)),
        }
        let Some(Reading { header, length, bytes }) = self.peer(rank).reading.take() else { return Ok(Moved::Nothing) };
        self.moved += 1;
        self.heard(rank, &header, length, bytes).map_err(LinkEnd::Corrupt)?;
        Ok(Moved::Done)
    }

    /// Where the payload of a frame goes whose head has come; an error if there can be no such frame.
    fn begin_reading(&mut self, rank: u32, header: &FrameHeader, message: &MessageHeader) -> Result<Bytes, String> {
        let (epoch, group) = (self.roster.formed.epoch, self.roster.id);
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
        let peer = self.peer(rank);
        if peer.kept + cost > EAGER_CREDIT {
            return Err(format!("more eager messages than the {EAGER_CREDIT} bytes that were granted"));
        }
        peer.kept += cost;
        self.announce(rank, message, InboundStage::Arriving(None))?;
        // A receive that waits for it has met it by now.
        let number = message.number;
        let theirs = self.peer(rank).theirs.get(&number);
        let met = theirs.and_then(|theirs| if let InboundStage::Arriving(op) = theirs.state { op } else { None });
        let operation = met.and_then(|op| Some((op, self.operations.get(&op)?)));
        Ok(match operation {
            Some((op, operation)) => Bytes::Callers(op, operation.post.buffers.window(0, bytes)),
            None => Bytes::Own(self.buffer(rank, bytes)?),
        })
    }

    /// Memory for what comes from a peer, and has no place of a caller's.
    fn buffer(&mut self, rank: u32, bytes: usize) -> Result<Vec<u8>, String> {
        let buffer = self.spare.try_take(bytes);
        buffer.map_err(|_| self.lacks_memory(rank, bytes))
    }

    /// The peer was told that so much might come, so this is the end of the group's messages.
    fn lacks_memory(&mut self, rank: u32, bytes: usize) -> String {
        self.trouble.get_or_insert(Trouble::Memory(rank, bytes));
        "no memory".to_owned()
    }

    /// A new message of a peer's.
    fn announce(&mut self, rank: u32, message: &MessageHeader, state: InboundStage) -> Result<(), String> {
        let theirs = Inbound { tag: message.tag, dtype: message.dtype, count: message.count, state };
        if self.matching.is_full() || self.peer(rank).is_full() {
            let made = self.matching.reserve().and_then(|()| self.peer(rank).reserve());
            made.map_err(|_| self.lacks_memory(rank, 0))?;
        }
        let all = &mut self.peer(rank).theirs;
        if all.insert(message.number, theirs).is_some() {
            return Err(format!("two messages with number {}", message.number));
        }
        if all.len() as u64 > RTS_MAX as u64 + EAGER_CREDIT / EAGER_COST {
            return Err(format!("more than {RTS_MAX} announced"));
        }
        self.arrive(MessageId { source: rank, number: message.number }, message.tag);
        Ok(())
    }

    fn piece_comes(&mut self, rank: u32, length: u64, message: &MessageHeader, bytes: usize) -> Result<Bytes, String> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let odd = || format!("a piece of {length} bytes of a message of {bytes}");
        if length > MESSAGE_PIECE_BYTES {
            return Err(odd());
        }
        let Some(op) = self.cleared_op(rank, message.number) else { return self.buffer(rank, length).map(Bytes::Own) }; // dropped
        let Some(operation) = self.operations.get(&op) else { return self.buffer(rank, length).map(Bytes::Own) };
        let Stage::Coming(_, here) = operation.stage else { return Err(odd()) };
        let announced = self.peers.get(&rank).and_then(|peer| peer.theirs.get(&message.number));
        let announced = announced.map(|told| (told.count, told.dtype));
        if announced != Some((message.count, message.dtype)) || length > bytes - here || (length == 0 && bytes > 0) {
            return Err(odd());
        }
        Ok(Bytes::Callers(op, operation.post.buffers.window(here, length)))
    }

    fn cleared_op(&self, rank: u32, number: u64) -> Option<OpId> {
        match self.peers.get(&rank)?.theirs.get(&number)?.state {
            InboundStage::Cleared(op) => Some(op),
            _ => None,
        }
    }

    /// A frame has come to its end.
    fn heard(&mut self, rank: u32, message: &MessageHeader, length: usize, bytes: Bytes) -> Result<(), String> {
        let number = message.number;
        match message.part {
            MessagePart::Eager => self.eager_came(rank, message, length, bytes),
            MessagePart::Piece => self.piece_came(rank, message, length),
            MessagePart::Rts => self.announce(rank, message, InboundStage::Requested)?,
            MessagePart::Cts => self.cleared(rank, number),
            MessagePart::Withdraw => self.withdrawn(rank, number)?,
            MessagePart::Refuse | MessagePart::Drop => self.turned_down(rank, message),
            MessagePart::Credit => {
                let peer = self.peer(rank);
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
        let waits = self.matching.waits(MessageId { source: rank, number });
        let Some(theirs) = self.peer(rank).theirs.get_mut(&number) else { return };
        let (tag, count, dtype) = (theirs.tag, theirs.count, theirs.dtype);
        let InboundStage::Arriving(met) = theirs.state else { return };
        let own = match bytes {
            Bytes::Callers(..) => None,
            Bytes::Own(bytes) => Some(bytes),
        };
        match (met, own) {
            (Some(op), own) => {
                let buffers = self.operations.get(&op).map(|operation| operation.post.buffers);
                if let (Some(bytes), Some(buffers)) = (&own, buffers) {
                    let to = Span::new(Buffer::Output, 0, bytes.len());
                    buffers.window(0, bytes.len()).memory().bytes_mut(to).copy_from_slice(bytes);
                }
                self.spare.give(own.unwrap_or_default());
                self.peer(rank).theirs.remove(&number);
                self.received(op, rank, tag, count, dtype);
            }
            (None, Some(bytes)) if waits => {
                theirs.state = InboundStage::Kept(Bytes::Own(bytes));
                return;
            }
            // It met a receive that it does not fit.
            (None, own) => {
                self.spare.give(own.unwrap_or_default());
                self.peer(rank).theirs.remove(&number);
            }
        }
        self.release(rank, length as u64 + EAGER_COST);
    }

    fn piece_came(&mut self, rank: u32, message: &MessageHeader, length: usize) {
        let Some(op) = self.cleared_op(rank, message.number) else { return };
        let Some(operation) = self.operations.get_mut(&op) else { return };
        let Stage::Coming(id, here) = operation.stage else { return };
        operation.stage = Stage::Coming(id, here + length);
        if Some(here + length) == message.bytes() {
            let theirs = self.peer(rank).theirs.remove(&message.number);
            let Some(Inbound { tag, count, dtype, .. }) = theirs else { return };
            self.received(op, rank, tag, count, dtype);
        }
    }

    /// A peer CTSs a message of ours; one that was given up meanwhile has been withdrawn.
    fn cleared(&mut self, rank: u32, number: u64) {
        let Some(op) = self.peer(rank).ours.get(&number).copied() else { return };
        let Some(operation) = self.operations.get_mut(&op) else { return };
        if operation.stage == Stage::Requested(number) {
            operation.stage = Stage::Cleared(number, 0);
            self.peer(rank).cleared.push_back(op);
            self.dirty.insert(rank);
        }
    }

    /// A peer's message will not come, or not to its end. What it was refused, or what was dropped, may not be here.
    fn withdrawn(&mut self, rank: u32, number: u64) -> Result<(), String> {
        let message = MessageId { source: rank, number };
        match self.peer(rank).theirs.remove(&number).map(|theirs| theirs.state) {
            None => {}
            Some(InboundStage::Requested) => drop(self.matching.take_arrived(message)),
            Some(InboundStage::Cleared(op)) => {
                if self.operations.get(&op).is_some_and(|operation| operation.stage == Stage::Coming(message, 0)) {
                    self.wait_again(op);
                    return Ok(());
                }
                let sentence = format!("{}: its sender gave it up in the middle", self.title_of(op));
                self.end(op, Err(Error::new(Status::Aborted, sentence)));
            }
            Some(InboundStage::Arriving(_) | InboundStage::Kept(_)) => {
                return Err(format!("message {number} is withdrawn, and was never announced"));
            }
        }
        Ok(())
    }

    /// A peer does not want a message of ours. If that was given up meanwhile, this crosses the word of it, and both ends
    /// have ended for their own reason: the receive with a misfit, say, and the send cancelled. Neither waits for another.
    fn turned_down(&mut self, rank: u32, message: &MessageHeader) {
        let Some(op) = self.peer(rank).ours.remove(&message.number) else { return };
        let Some(operation) = self.operations.get(&op) else { return };
        let error = if message.part == MessagePart::Refuse {
            let (sent, room) = ((operation.post.count, operation.post.dtype), (message.count, message.dtype));
            misfit(sent, room, &self.roster.describe(self.own), &self.roster.describe(rank))
        } else {
            let sentence = format!("{}: its receiver gave up receiving it", self.title_of(op));
            Error::new(Status::Aborted, sentence)
        };
        self.end(op, Err(error));
    }

    fn title_of(&self, op: OpId) -> String {
        self.operations.get(&op).map(|operation| self.title(operation)).unwrap_or_default()
    }
}

/// Nothing more can be read just now, unless the transport holds something that the poller does not know of.
fn held(link: &Link) -> Moved {
    if link.holds_readable() {
        Moved::Some
    } else {
        Moved::Nothing
    }
}
