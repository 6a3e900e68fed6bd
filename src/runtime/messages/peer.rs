//! What is known of one peer beside its link: what is to be said on it, and what has come.

use super::matching::OpId;
use crate::runtime::links::link::{Link, LinkEnd, Moved};
use crate::runtime::memory::buffer::CallBuffers;
use crate::runtime::state::silence::Finding;
use crate::schedules::{Buffer, Span};
use crate::types::DType;
use crate::wire::{MessageHeader, EAGER_COST, EAGER_CREDIT};
use std::collections::{HashMap, TryReserveError, VecDeque};

/// The memory of a frame: the caller's, or, once the caller does not wait any more, our own copy of it.
pub(super) enum Bytes {
    Callers(OpId, CallBuffers<'static>),
    Own(Vec<u8>),
}

impl Bytes {
    /// The memory as the input of a send.
    pub(super) fn input(&self) -> CallBuffers<'_> {
        match self {
            Bytes::Callers(_, buffers) => *buffers,
            Bytes::Own(bytes) => CallBuffers::of(bytes, &mut []),
        }
    }

    /// The memory as the output of a receive.
    pub(super) fn output(&mut self) -> CallBuffers<'_> {
        match self {
            Bytes::Callers(_, buffers) => *buffers,
            Bytes::Own(bytes) => CallBuffers::of(&[], bytes),
        }
    }

    /// Our own memory, to be used again; empty if the memory is the caller's.
    pub(super) fn into_own(self) -> Vec<u8> {
        match self {
            Bytes::Callers(..) => Vec::new(),
            Bytes::Own(bytes) => bytes,
        }
    }

    /// Whether it is this operation's memory.
    pub(super) fn is_of(&self, op: OpId) -> bool {
        matches!(self, Bytes::Callers(owner, _) if *owner == op)
    }

    /// Makes this a copy from now on: the caller's memory is not touched any more.
    pub(super) fn adopt(&mut self, buffer: Buffer, length: usize) {
        if let Bytes::Callers(_, buffers) = self {
            *self = Bytes::Own(buffers.memory().bytes(Span::new(buffer, 0, length)).to_vec());
        }
    }
}

/// The frame that is going out.
pub(super) struct Writing {
    pub what: Outbound,
    pub length: usize,
    pub bytes: Bytes,
}

impl Writing {
    /// Sends on, until the frame has gone or the transport takes no more: `Some`, if it has taken a part.
    pub(super) fn send(&self, link: &mut Link) -> Result<Moved, LinkEnd> {
        let mut moved = Moved::Nothing;
        loop {
            match link.send(&self.bytes.input().memory())? {
                Moved::Some => moved = Moved::Some,
                Moved::Nothing => return Ok(moved),
                Moved::Done => return Ok(Moved::Done),
            }
        }
    }
}

/// What an outgoing frame is to its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outbound {
    /// A word without a payload.
    Word,
    /// The whole of this send.
    Eager(OpId),
    /// A part of this send.
    Piece(OpId),
}

/// The frame that is coming in.
pub(super) struct Reading {
    pub header: MessageHeader,
    pub length: usize,
    pub bytes: Bytes,
}

/// A message of the peer with which we are not done.
pub(super) struct Inbound {
    pub tag: i32,
    pub dtype: DType,
    pub count: u64,
    pub state: InboundStage,
}

impl Inbound {
    /// The message's length in bytes, once its count is known to be a valid length.
    pub(super) fn bytes(&self) -> usize {
        self.count as usize * self.dtype.size()
    }

    /// How much of its sender's credit the message uses while it is kept.
    pub(super) fn cost(&self) -> u64 {
        match &self.state {
            InboundStage::Kept(_) => self.bytes() as u64 + EAGER_COST,
            _ => 0,
        }
    }
}

pub(super) enum InboundStage {
    /// Eager, and coming in; this receive will have it, if one has met it.
    Arriving(Option<OpId>),
    /// Eager, and here. (A message to oneself lies where it is sent from, until it is known whether a receive waits for
    /// it.)
    Kept(Bytes),
    /// Requested, and not cleared.
    Requested,
    /// Cleared, for this receive.
    Cleared(OpId),
}

/// One peer.
pub(super) struct Peer {
    /// The number of our last message to it, and of its last to us.
    pub numbered: u64,
    pub announced: u64,
    /// How much we may still send without asking.
    pub credit: u64,
    /// How much we keep of its eager messages, and how much of that has become free without the peer's knowledge.
    pub kept: u64,
    pub owed: u64,
    pub words: VecDeque<MessageHeader>,
    /// Sends that have not begun, in order.
    pub heads: VecDeque<OpId>,
    /// Sends that go out in pieces, in turn.
    pub cleared: VecDeque<OpId>,
    /// Whether the next frame is a piece, if there is one.
    pub piece_next: bool,
    /// Our messages to it that are announced or cleared, by number.
    pub ours: HashMap<u64, OpId>,
    pub inbound: HashMap<u64, Inbound>,
    pub writing: Option<Writing>,
    pub reading: Option<Reading>,
    /// The last word before this node leaves: it goes behind the frame that is going out.
    pub last_word: Option<Vec<u8>>,
}

impl Peer {
    /// Whether there may be no room for one more message.
    pub(super) fn is_full(&self) -> bool {
        self.heads.len() == self.heads.capacity() || self.inbound.len() == self.inbound.capacity()
    }

    /// Makes that room.
    pub(super) fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.heads.try_reserve(1)?;
        self.inbound.try_reserve(1)
    }
}

/// A peer with which something may be wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SuspectedPeer {
    pub rank: u32,
    pub end: LinkEnd,
    pub finding: Finding,
}

impl Default for Peer {
    fn default() -> Self {
        Peer {
            numbered: 0,
            announced: 0,
            credit: EAGER_CREDIT,
            kept: 0,
            owed: 0,
            words: VecDeque::new(),
            heads: VecDeque::new(),
            cleared: VecDeque::new(),
            piece_next: false,
            ours: HashMap::new(),
            inbound: HashMap::new(),
            writing: None,
            reading: None,
            last_word: None,
        }
    }
}
