//! How the frames of messages move on their links: what goes out next, and what each incoming frame does.
//!
//! On a link words (CTSs, credit ...) go first; then pieces of cleared messages and the heads of new sends take turns, so
//! that neither keeps the other waiting. A frame is at most [`MESSAGE_PIECE_BYTES`] long.

use super::engine::{Engine, Trouble};
use super::operation::{Direction, Stage};
use super::peer::{Bytes, Outbound, Peer, Reading, Writing};
use crate::runtime::links::link::{Arrival, Link, LinkEnd, Moved};
use crate::runtime::links::peers::{Entry, Slot};
use crate::runtime::links::sink::Sink;
use crate::schedules::{Buffer, Landing, Span};
use crate::wire::{LinkKind, MessageHeader, MessagePart, EAGER_COST, EAGER_MAX, MESSAGE_PIECE_BYTES, RTS_MAX};

/// How many frames one look at a link moves at most in each direction, before others get their turn.
const FRAMES: usize = 16;

impl Engine {
    /// Moves what can be moved on the link to a peer, in both directions.
    pub(super) fn pump(&mut self, rank: u32) {
        if self.failed.is_some() {
            return; // reading on is useless: where the next frame begins is not known any more
        }
        self.more.remove(rank);
        self.transfers.dirty.insert(rank);
        for _ in 0..FRAMES {
            match self.read_frame(rank) {
                Ok(Moved::Done) => {}
                Ok(Moved::Nothing) => {
                    self.flush();
                    return self.leave_link(rank);
                }
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

    /// Nothing can be moved on a link just now. From now on the poller says when something can, unless callers look.
    fn leave_link(&mut self, rank: u32) {
        let Some(link) = self.transfers.links.opened(rank) else { return };
        if self.callers > 0 {
            self.looked_at.insert(rank);
        } else if !link.transport().may_sleep() {
            self.more.insert(rank);
        }
    }

    /// A caller stops looking. The last caller moves what has come, and leaves the rest to the poller.
    pub(super) fn caller_leaves(&mut self) {
        self.callers -= 1;
        while self.callers == 0 {
            let Some(rank) = self.looked_at.pop_first() else { break };
            self.pump(rank);
        }
    }

    /// Moves what can be moved on the link to this peer, or on all links; and on the links at which callers look.
    /// Returns whether anything that was asked for has moved.
    pub(super) fn look(&mut self, peer: Option<u32>) -> bool {
        let before = self.moved;
        match peer {
            Some(rank) => {
                let mut ranks = std::mem::take(&mut self.open);
                ranks.extend(std::iter::from_fn(|| self.looked_at.pop_first()).filter(|other| *other != rank));
                self.pump(rank);
                let has_moved = self.moved != before;
                ranks.drain(..).for_each(|rank| self.pump(rank));
                self.open = ranks;
                has_moved
            }
            None => {
                let mut ranks = std::mem::take(&mut self.open);
                ranks.extend(self.transfers.links.all_opened().map(|(rank, _)| rank));
                ranks.drain(..).for_each(|rank| self.pump(rank));
                self.open = ranks;
                self.moved != before
            }
        }
    }

    /// Sends what waits to be sent, as far as the links take it.
    pub(super) fn flush(&mut self) {
        if self.failed.is_some() {
            return; // `drain` sends what is left
        }
        while let Some(rank) = self.transfers.dirty.pop_first() {
            for turn in 0.. {
                match self.write_frame(rank) {
                    Ok(Moved::Done) if turn < FRAMES => {}
                    Ok(Moved::Done) => {
                        self.more.insert(rank);
                        break;
                    }
                    Ok(_) => {
                        self.leave_link(rank);
                        break;
                    }
                    Err(end) => {
                        // The peer's last word tells more than the closed link does.
                        while self.trouble.is_none() && matches!(self.read_frame(rank), Ok(Moved::Done)) {}
                        self.link_ended(rank, end);
                        break;
                    }
                }
            }
        }
    }

    fn link_ended(&mut self, rank: u32, end: LinkEnd) {
        if self.trouble.is_none() && self.transfers.links.opened(rank).is_some() {
            self.ends(rank, end);
        }
    }

    /// The link to this peer has ended, or does not come to stand.
    pub(super) fn ends(&mut self, rank: u32, end: LinkEnd) {
        self.transfers.links.entry(rank).slot = Slot::Ended(end.clone());
        let trouble = match end {
            LinkEnd::Ended(_) | LinkEnd::Silent(_) => return self.transfers.suspect(rank, end),
            LinkEnd::Corrupt(what) => Trouble::Corrupt(rank, what),
            LinkEnd::Unsupported(what) => Trouble::Unsupported(rank, what),
            LinkEnd::Over(failure) => Trouble::Heard(*failure),
        };
        self.trouble.get_or_insert(trouble);
    }

    /// Goes on writing a frame, or begins the next. `Done`: one frame has gone, and there may be another.
    fn write_frame(&mut self, rank: u32) -> Result<Moved, LinkEnd> {
        let Some(Entry { slot: Slot::Up(_), peer, .. }) = self.transfers.links.known_mut(rank) else {
            return Ok(Moved::Nothing);
        };
        if peer.writing.is_none() && !self.begin_frame(rank) {
            return Ok(Moved::Nothing);
        }
        let Entry { slot: Slot::Up(link), peer: Peer { writing: Some(writing), .. }, .. } =
            self.transfers.links.entry(rank)
        else {
            return Ok(Moved::Nothing);
        };
        let sent = writing.send(link)?;
        self.moved += u64::from(sent != Moved::Nothing);
        if sent != Moved::Done {
            return Ok(Moved::Nothing);
        }
        let Some(Writing { what, length, .. }) = self.transfers.peer(rank).writing.take() else {
            return Ok(Moved::Nothing);
        };
        self.sent(rank, what, length);
        Ok(Moved::Done)
    }

    /// A frame has gone.
    fn sent(&mut self, rank: u32, what: Outbound, length: usize) {
        match what {
            Outbound::Word => {}
            Outbound::Eager(op) => self.transfers.end(op, Ok(None)),
            Outbound::Piece(op) => {
                let Some(operation) = self.transfers.operations.get_mut(&op) else { return };
                let Stage::Cleared(number, gone) = operation.stage else { return };
                operation.stage = Stage::Cleared(number, gone + length);
                if gone + length < operation.bytes() {
                    return self.transfers.peer(rank).cleared.push_back(op);
                }
                self.transfers.peer(rank).ours.remove(&number);
                self.transfers.end(op, Ok(None));
            }
        }
    }

    /// Begins the next frame to a peer. Returns whether there is one.
    fn begin_frame(&mut self, rank: u32) -> bool {
        let peer = self.transfers.peer(rank);
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
            let Some(op) = self.transfers.peer(rank).heads.pop_front() else { return false };
            let Some(operation) = self.transfers.operations.get_mut(&op) else { continue }; // given up
            let Direction::Send { tag, .. } = operation.post.direction else { continue };
            let (dtype, count) = (operation.post.dtype, operation.post.count);
            let (length, buffers) = (operation.bytes(), operation.post.buffers);
            let peer = &mut self.transfers.links.entry(rank).peer;
            let cost = length as u64 + EAGER_COST;
            let eager = length <= EAGER_MAX && cost <= peer.credit;
            if !eager && peer.ours.len() >= RTS_MAX {
                peer.heads.push_front(op); // this send, and all behind it, wait until one of those has ended
                return false;
            }
            peer.numbered += 1;
            let number = peer.numbered;
            let (epoch, group) = (self.transfers.roster.formed.epoch, self.transfers.roster.id);
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
            let Some(op) = self.transfers.peer(rank).cleared.pop_front() else { return false };
            let Some(operation) = self.transfers.operations.get(&op) else { continue }; // given up
            let Stage::Cleared(number, gone) = operation.stage else { continue };
            let length = (operation.bytes() - gone).min(MESSAGE_PIECE_BYTES);
            let buffers = operation.post.buffers.window(gone, length);
            let (epoch, group, dtype) =
                (self.transfers.roster.formed.epoch, self.transfers.roster.id, operation.post.dtype);
            let count = operation.post.count;
            let header = MessageHeader { epoch, group, part: MessagePart::Piece, dtype, tag: 0, number, count };
            self.start(rank, header, Outbound::Piece(op), Bytes::Callers(op, buffers), length);
            return true;
        }
    }

    fn start(&mut self, rank: u32, header: MessageHeader, what: Outbound, bytes: Bytes, length: usize) {
        let head = header.encode_in(&mut self.head);
        let Entry { slot: Slot::Up(link), peer, .. } = self.transfers.links.entry(rank) else { return };
        link.start_send(LinkKind::Message, &head, Span::new(Buffer::Input, 0, length));
        peer.writing = Some(Writing { what, length, bytes });
    }

    /// Goes on reading a frame, or begins the next. `Done`: one frame has come to its end, and there may be another.
    fn read_frame(&mut self, rank: u32) -> Result<Moved, LinkEnd> {
        let Some(Entry { slot: Slot::Up(link), peer, .. }) = self.transfers.links.known_mut(rank) else {
            return Ok(Moved::Nothing);
        };
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
                    self.transfers.peer_left(rank, None);
                    return Ok(Moved::Nothing);
                }
            };
            let bytes = self.begin_reading(rank, &header, &message).map_err(LinkEnd::Corrupt)?;
            let length = header.length as usize;
            self.transfers.peer(rank).reading = Some(Reading { header: message, length, bytes });
        }
        let Entry { slot: Slot::Up(link), peer: Peer { reading: Some(reading), .. }, .. } =
            self.transfers.links.entry(rank)
        else {
            return Ok(Moved::Nothing);
        };
        let landing = Landing::Place(Span::new(Buffer::Output, 0, reading.length));
        let memory = reading.bytes.output().memory();
        match link.receive(&Sink { memory: &memory, landing, arithmetic: None }, &mut [])? {
            Moved::Done => {}
            moved => {
                let held = held(link);
                self.moved += u64::from(moved == Moved::Some);
                return Ok(held);
            }
        }
        let Some(Reading { header, length, bytes }) = self.transfers.peer(rank).reading.take() else {
            return Ok(Moved::Nothing);
        };
        self.moved += 1;
        self.heard(rank, &header, length, bytes).map_err(LinkEnd::Corrupt)?;
        Ok(Moved::Done)
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
