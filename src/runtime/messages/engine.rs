//! The messages of one group: what is posted, what has come, and what becomes of both.
//!
//! Invariants: an operation ends once, and from then on its buffer is not touched; on each link eager messages and announced
//! go out in the order in which their sends were posted; no more than [`EAGER_CREDIT`] of one peer's messages is kept. How
//! frames move is in `traffic`; what becomes of all this when a peer leaves, or the group is over, in `ending`.

use super::buffer_pool::BufferPool;
use super::matching::{Matching, MessageId, OpId, Wanted};
use super::operation::{asked_at, misfit, Direction, Operation, Post, Stage, DEADLINES_KEPT};
use super::peer::{Bytes, Inbound, InboundStage, Peer};
use super::queues::Map;
use super::ranks::Ranks;
use super::unreached::Suspect;
use crate::agent::Ask;
use crate::error::{Error, Failure, Result, Status};
use crate::runtime::base::request::{Completer, Received};
use crate::runtime::links::link::LinkEnd;
use crate::runtime::links::peers::Slot;
use crate::runtime::state::roster::Roster;
use crate::runtime::state::silence::{Bounds, Finding, SilenceWatch};
use crate::schedules::{Buffer, Span};
use crate::types::{DType, Time};
use crate::wire::{MessageHeader, MessagePart, MessageWait, EAGER_COST, EAGER_CREDIT, EAGER_MAX, WAITS_MAX};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, TryReserveError};
use std::sync::Arc;

/// What broke the messages of a group, and so the group.
pub(super) enum Trouble {
    /// A peer revoked it.
    Heard(Failure),
    /// What came from this rank is damaged.
    Corrupt(u32, String),
    /// There is no memory here for a message of so many bytes that came from this rank.
    Memory(u32, usize),
}

/// The state of one group's messages.
pub(super) struct Engine {
    pub roster: Arc<Roster>,
    pub own: u32,
    pub peers: Map<u32, Peer>,
    pub operations: Map<OpId, Operation>,
    pub matching: Matching,
    next_op: OpId,
    /// When the time of an operation is up, or nearly: then it is asked where its peer is.
    pub deadlines: BinaryHeap<Reverse<(Time, OpId)>>,
    /// When that was asked last of each peer, and under which number.
    pub asked: BTreeMap<u32, (Time, Ask)>,
    /// Peers that something is to be sent to.
    pub dirty: Ranks,
    /// Peers from which more can be read without waiting.
    pub more: Ranks,
    /// Peers to which links are wanted.
    pub wanted: Vec<u32>,
    /// Peers whose link ended, or is silent.
    pub suspects: Vec<Suspect>,
    pub trouble: Option<Trouble>,
    /// Why nothing can be posted any more.
    pub failed: Option<Failure>,
    /// The newest operation whose time was up: nothing is over because of it.
    pub late: Option<Failure>,
    /// Until when the progress thread sleeps at most.
    pub alarm: Time,
    /// How many frames have moved.
    pub moved: u64,
    /// What operations wait for.
    pub silence: SilenceWatch,
    /// What was needed before and will be again: so that in the long run nothing is allocated.
    pub spare: BufferPool,
    pub head: Vec<u8>,
    pub open: Vec<u32>,
}

impl Engine {
    /// Nothing posted, nothing come.
    pub(super) fn new(roster: &Arc<Roster>) -> Engine {
        Engine {
            roster: Arc::clone(roster),
            own: roster.rank.unwrap_or(u32::MAX),
            peers: Map::default(),
            operations: Map::default(),
            matching: Matching::default(),
            next_op: 1,
            deadlines: BinaryHeap::with_capacity(2 * DEADLINES_KEPT),
            asked: BTreeMap::new(),
            dirty: Ranks::none_of(roster.members.len()),
            more: Ranks::none_of(roster.members.len()),
            wanted: Vec::new(),
            suspects: Vec::new(),
            trouble: None,
            failed: None,
            late: None,
            alarm: Time::NEVER,
            moved: 0,
            silence: SilenceWatch::new(Bounds::of(&roster.formed.agreed)),
            spare: BufferPool::default(),
            head: Vec::new(),
            open: Vec::new(),
        }
    }

    /// The number of the operation that is posted next.
    pub(super) fn upcoming(&self) -> OpId {
        self.next_op
    }

    /// Whether there is something that only the progress thread can do.
    pub(super) fn needs_attention(&self) -> bool {
        !self.more.is_empty() || !self.suspects.is_empty() || self.trouble.is_some()
    }

    /// Whether these may be posted, one after the other: once one of them has been, it is too late to refuse the other.
    pub(super) fn check(&self, first: &Post, second: Option<&Post>) -> Result<()> {
        if let Some(failure) = &self.failed {
            return Err(failure.clone().into());
        }
        match second {
            None => self.check_own(first, None),
            Some(send) => self.check_own(send, first.way.wanted()),
        }
    }

    /// To whom one of these sends, and how much of it may have to be kept here, for it is to oneself.
    pub(super) fn keeps(&self, first: &Post, second: Option<&Post>) -> (Option<u32>, usize) {
        let send = [Some(first), second].into_iter().flatten().find_map(|post| match post.way {
            Direction::Send { to, .. } => Some((to, post.bytes())),
            Direction::Receive { .. } => None,
        });
        let kept = send.filter(|(to, bytes)| *to == self.own && *bytes <= EAGER_MAX);
        (send.map(|(to, _)| to), kept.map_or(0, |(_, bytes)| bytes))
    }

    /// Whether what is to be posted may need more memory than there is: for two operations and what they wait in, and for a
    /// message to oneself of so many bytes.
    pub(super) fn is_full(&self, to: Option<u32>, own_bytes: usize) -> bool {
        let operations = &self.operations;
        let peer = to.map(|rank| self.peers.get(&rank));
        operations.capacity() - operations.len() < 2
            || self.deadlines.capacity() - self.deadlines.len() < 2
            || peer.is_some_and(|peer| peer.is_none_or(Peer::is_full))
            || self.matching.is_full()
            || !self.spare.has(own_bytes)
    }

    /// Makes place for that.
    pub(super) fn reserve(&mut self, to: Option<u32>, own_bytes: usize) -> Result<(), TryReserveError> {
        self.operations.try_reserve(2)?;
        self.deadlines.try_reserve(2)?;
        self.peers.try_reserve(1)?;
        if let Some(peer) = to.and_then(|rank| self.peers.get_mut(&rank)) {
            peer.reserve()?;
        }
        self.matching.reserve()?;
        Vec::<u8>::new().try_reserve_exact(2 * own_bytes) // a buffer may be twice as long as what it is for
    }

    /// Posts an operation that has been checked; it may have ended when this returns.
    pub(super) fn post(&mut self, post: Post, since: Time, limit_ms: i64, deadline: Time, completer: Completer) {
        let op = self.next_op;
        let stage = if post.way.wanted().is_some() { Stage::Posted } else { Stage::Waiting };
        let operation = Operation { post, stage, since, limit_ms, deadline, completer };
        self.next_op += 1;
        if deadline != Time::NEVER {
            self.deadlines.push(Reverse((asked_at(since, deadline), op)));
            self.forget_ended();
        }
        let way = operation.post.way;
        self.operations.insert(op, operation);
        match way {
            Direction::Send { to, tag } if to == self.own => self.send_to_self(op, tag),
            Direction::Send { to, .. } => self.send(op, to),
            Direction::Receive { from, .. } => self.receive(op, from),
        }
    }

    fn send(&mut self, op: OpId, to: u32) {
        if let Some(error) = self.reach(to) {
            return self.end(op, Err(error));
        }
        self.peer(to).heads.push_back(op);
        self.dirty.insert(to);
    }

    fn receive(&mut self, op: OpId, from: Option<u32>) {
        let Some(wanted) = self.operations.get(&op).and_then(|operation| operation.post.way.wanted()) else { return };
        if let Some(message) = self.matching.post(op, wanted) {
            self.meet(op, message);
            return;
        }
        // A link to the sender is wanted even if it never sends: its end tells of the sender's.
        let missed = match from {
            Some(from) => Some(from).filter(|from| *from != self.own),
            None if self.all_left() => self.peers.keys().copied().find(|rank| *rank != self.own),
            None => None,
        };
        if let Some(error) = missed.and_then(|rank| self.reach(rank)) {
            self.matching.take_posted(op);
            self.end(op, Err(error));
        }
    }

    /// What it waits for since before then, the oldest first, as far as that is told. In one pass and with no memory that grows with
    /// what is posted: there may be very many.
    pub(super) fn waits(&self, before: Time, now: Time) -> Vec<MessageWait> {
        let mut oldest: Vec<(Time, OpId)> = Vec::with_capacity(WAITS_MAX + 1);
        for (op, operation) in self.operations.iter().filter(|(_, operation)| operation.since <= before) {
            let at = oldest.partition_point(|known| *known < (operation.since, *op));
            if at < WAITS_MAX {
                oldest.insert(at, (operation.since, *op));
                oldest.truncate(WAITS_MAX);
            }
        }
        oldest.iter().filter_map(|(_, op)| Some(self.operations.get(op)?.wait(self.roster.id, now))).collect()
    }

    /// Sees to it that there is a link; the error of a peer to which there can be none.
    fn reach(&mut self, rank: u32) -> Option<Error> {
        let peer = self.peers.entry(rank).or_default();
        if let Slot::Left(culprit) = &peer.slot {
            let culprit = culprit.clone();
            return Some(self.left_error(rank, culprit.as_ref()));
        }
        if matches!(peer.slot, Slot::Unused) {
            peer.slot = Slot::Asked;
            self.wanted.push(rank);
        }
        if let Slot::Ended(end) = &peer.slot {
            let end = end.clone();
            self.suspect(rank, end);
        }
        None
    }

    /// The link to this peer has ended: what became of the peer is not known.
    pub(super) fn suspect(&mut self, rank: u32, end: LinkEnd) {
        self.suspects.push(Suspect { rank, end, finding: Finding::Unknown });
    }

    pub(super) fn peer(&mut self, rank: u32) -> &mut Peer {
        self.peers.entry(rank).or_default()
    }

    /// A word without a payload, to be sent to a peer.
    pub(super) fn say(&mut self, to: u32, part: MessagePart, number: u64, count: u64, dtype: DType) {
        let (epoch, group) = (self.roster.formed.epoch, self.roster.id);
        let header = MessageHeader { epoch, group, part, dtype, tag: 0, number, count };
        self.peer(to).words.push_back(header);
        self.dirty.insert(to);
    }

    /// Ends an operation. Its buffer is not touched any more: a frame that has begun goes on with a copy.
    pub(super) fn end(&mut self, op: OpId, outcome: Result<Option<Received>>) {
        let Some(operation) = self.operations.remove(&op) else { return };
        if let Some(peer) = operation.peer().and_then(|rank| self.peers.get_mut(&rank)) {
            if let Some(writing) = peer.writing.as_mut().filter(|writing| writing.bytes.is_of(op)) {
                writing.bytes.adopt(Buffer::Input, writing.length);
            }
            if let Some(reading) = peer.reading.as_mut().filter(|reading| reading.bytes.is_of(op)) {
                reading.bytes.adopt(Buffer::Output, reading.length);
            }
        }
        operation.completer.complete(outcome);
    }

    /// A receive has got all of its message.
    pub(super) fn received(&mut self, op: OpId, source: u32, tag: i32, count: u64, dtype: DType) {
        self.end(op, Ok(Some(Received { source, tag, count, dtype })));
    }

    /// A message has come, or the head of one: it meets the first receive that asks for it, or waits. Returns what is wrong
    /// if it does not fit.
    pub(super) fn arrive(&mut self, message: MessageId, tag: i32) -> Option<Error> {
        let op = self.matching.arrive(message, tag)?;
        self.meet(op, message)
    }

    /// A receive and a message have met. Returns what is wrong if the message does not fit.
    pub(super) fn meet(&mut self, op: OpId, message: MessageId) -> Option<Error> {
        let (source, number) = (message.source, message.number);
        let own = self.own;
        let operation = self.operations.get_mut(&op)?;
        let room = (operation.post.count, operation.post.dtype);
        let buffers = operation.post.buffers;
        let theirs = self.peers.get_mut(&source)?.theirs.get_mut(&number)?;
        let sent = (theirs.count, theirs.dtype);
        let (tag, fits) = (theirs.tag, sent.1 == room.1 && sent.0 <= room.0);
        match &mut theirs.state {
            InboundStage::Arriving(of) => {
                operation.stage = Stage::Met(message);
                *of = fits.then_some(op); // what nobody will have is dropped when it is here
            }
            InboundStage::Kept(_) => {
                let theirs = self.peer(source).theirs.remove(&number)?;
                let (cost, length) = (theirs.cost(), theirs.bytes());
                let InboundStage::Kept(bytes) = theirs.state else { return None };
                if fits {
                    let [from, to] = [Buffer::Input, Buffer::Output].map(|buffer| Span::new(buffer, 0, length));
                    bytes.input().into_output_of(buffers).memory().copy(from, to);
                }
                self.release(source, cost);
                self.spare.give(bytes.into_own());
                if fits {
                    self.received(op, source, tag, sent.0, sent.1);
                }
            }
            InboundStage::Requested if fits => {
                theirs.state = InboundStage::Cleared(op);
                operation.stage = Stage::Coming(message, 0);
                self.say(source, MessagePart::Cts, number, 0, sent.1);
            }
            InboundStage::Requested => {
                self.peer(source).theirs.remove(&number);
                self.say(source, MessagePart::Refuse, number, room.0, room.1);
            }
            InboundStage::Cleared(_) => {}
        }
        if fits {
            return None;
        }
        let error = misfit(sent, room, &self.roster.describe(source), &self.roster.describe(own));
        self.end(op, Err(error.clone()));
        Some(error)
    }

    /// So much of what a peer's messages take here has become free; told in large steps.
    pub(super) fn release(&mut self, source: u32, cost: u64) {
        let peer = self.peer(source);
        peer.kept -= cost;
        peer.owed += cost;
        if source != self.own && self.peer(source).owed >= EAGER_CREDIT / 16 {
            let owed = std::mem::take(&mut self.peer(source).owed);
            self.say(source, MessagePart::Credit, 0, owed, DType::Uint8);
        }
    }

    /// A message to oneself that nobody would ever take is an error, not a hang. `beside`: what a receive asks for that is
    /// posted just before it.
    fn check_own(&self, post: &Post, beside: Option<Wanted>) -> Result<()> {
        let Direction::Send { to, tag } = post.way else { return Ok(()) };
        let bytes = post.bytes() as u64;
        let before = beside.and_then(|wanted| self.matching.first_arrived(wanted));
        let meets = before.is_none() && beside.is_some_and(|wanted| wanted.accepts(to, tag));
        if to != self.own || meets || self.matching.would_meet(to, tag) {
            return Ok(());
        }
        let what =
            |why: &str| format!("{} {}, which is this rank itself: {why}", post.words(), self.roster.describe(to));
        if bytes > EAGER_MAX as u64 {
            let why = format!("no receive is posted for it, and beyond {EAGER_MAX} bytes nothing is kept for one");
            return Err(Error::new(Status::State, what(&why)));
        }
        let own = self.peers.get(&to);
        let freed = before.filter(|message| message.source == to).and_then(|message| own?.theirs.get(&message.number));
        let kept = own.map_or(0, |own| own.kept) - freed.map_or(0, Inbound::cost);
        if kept + bytes + EAGER_COST > EAGER_CREDIT {
            let why =
                format!("what it has sent to itself and not received fills the {EAGER_CREDIT} bytes that are kept");
            return Err(Error::new(Status::Limit, what(&why)));
        }
        Ok(())
    }

    fn send_to_self(&mut self, op: OpId, tag: i32) {
        let own = self.own;
        let Some(operation) = self.operations.get(&op) else { return };
        let Operation { post: Post { count, dtype, buffers, .. }, .. } = *operation;
        let length = operation.bytes();
        let peer = self.peer(own);
        peer.numbered += 1;
        peer.kept += length as u64 + EAGER_COST;
        let number = peer.numbered;
        let state = InboundStage::Kept(Bytes::Callers(op, buffers));
        peer.theirs.insert(number, Inbound { tag, dtype, count, state });
        let misfit = self.arrive(MessageId { source: own, number }, tag);
        // What no receive waited for is kept, and the caller's memory is not touched any more.
        if let Some(theirs) = self.peers.get_mut(&own).and_then(|peer| peer.theirs.get_mut(&number)) {
            let bytes = self.spare.copy(buffers.memory().bytes(Span::new(Buffer::Input, 0, length)));
            theirs.state = InboundStage::Kept(Bytes::Own(bytes));
        }
        // An eager one has ended before it meets anything; a longer one has waited for its receive.
        self.end(op, misfit.filter(|_| length > EAGER_MAX).map_or(Ok(None), Err));
    }

    /// `send(4 int8, tag 3) to rank 1 (...) on world`
    pub(super) fn title(&self, operation: &Operation) -> String {
        let with = operation.peer().map_or("any rank".to_owned(), |rank| self.roster.describe(rank));
        format!("{} {with} on {}", operation.post.words(), self.roster.id)
    }

    /// The caller wants the end of an operation: of one that has not met its other half yet.
    pub(super) fn cancel(&mut self, op: OpId) {
        let Some(operation) = self.operations.get(&op) else { return };
        if matches!(operation.stage, Stage::Waiting | Stage::Requested(_) | Stage::Posted) {
            let sentence = format!("{} was cancelled", self.title(operation));
            self.give_up(op, Error::new(Status::Aborted, sentence));
        }
    }

    /// Ends an operation before its time; its other half hears of it where it waits for more.
    pub(super) fn give_up(&mut self, op: OpId, error: Error) {
        let Some(operation) = self.operations.get(&op) else { return };
        let (stage, dtype) = (operation.stage, operation.post.dtype);
        let peer = operation.peer();
        match (stage, peer) {
            (Stage::Posted, _) => drop(self.matching.take_posted(op)),
            (Stage::Requested(number) | Stage::Cleared(number, _), Some(to)) => {
                self.peer(to).ours.remove(&number);
                self.say(to, MessagePart::Withdraw, number, 0, dtype);
            }
            (Stage::Coming(message, _), Some(from)) => {
                self.peer(from).theirs.remove(&message.number);
                self.say(from, MessagePart::Drop, message.number, 0, dtype);
            }
            _ => {}
        }
        self.end(op, Err(error));
        if let Stage::Met(message) = stage {
            self.set_free(message);
        }
    }

    /// A message whose receive went while it came in waits for another one.
    fn set_free(&mut self, message: MessageId) {
        let theirs = self.peers.get_mut(&message.source).and_then(|peer| peer.theirs.get_mut(&message.number));
        let Some(theirs) = theirs else { return };
        if let InboundStage::Arriving(of) = &mut theirs.state {
            *of = None;
            let tag = theirs.tag;
            self.arrive(message, tag);
        }
    }
}
