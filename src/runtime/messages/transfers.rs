//! The messages of one group: what is posted, what has come, and how the two meet. It moves no frame: what is to be
//! sent waits with the peer ([`Peer`]), and the peer is noted as `dirty`.
//!
//! Invariants: an operation ends once, and from then on its buffer is not touched; no more than [`EAGER_CREDIT`] of one peer's
//! messages is kept. How operations are posted is in `posting`, how frames move in `traffic`; what is given up early in
//! `giving_up`; what happens when a peer leaves in `leaving`.

use super::buffer_pool::BufferPool;
use super::matching::{Matching, MessageId, OpId, Wanted};
use super::operation::{misfit, Operation, Stage};
use super::peer::{InboundStage, Peer, SuspectedPeer};
use super::queues::Map;
use super::ranks::Ranks;
use crate::error::{Culprit, Error, Result, Status};
use crate::runtime::base::request::Received;
use crate::runtime::links::link::LinkEnd;
use crate::runtime::links::peers::{Entry, Links, Slot};
use crate::runtime::state::roster::Roster;
use crate::runtime::state::silence::Finding;
use crate::schedules::{Buffer, Span};
use crate::types::{DType, Time};
use crate::wire::{MessageHeader, MessagePart, MessageWait, EAGER_CREDIT, WAITS_MAX};
use std::sync::Arc;

/// The messages of one group.
pub(super) struct Transfers {
    pub roster: Arc<Roster>,
    pub own: u32,
    pub links: Links<Peer>,
    pub operations: Map<OpId, Operation>,
    pub matching: Matching,
    /// Probes that wait. They are few, because each is a call that has not returned.
    pub probes: Vec<OpId>,
    pub next_op: OpId,
    /// Peers to which something is to be sent.
    pub dirty: Ranks,
    /// Peers to which a link is wanted.
    pub wanted: Vec<u32>,
    /// Peers whose link ended, or is silent.
    pub suspects: Vec<SuspectedPeer>,
    /// Peers that have left the cluster, or freed the group, and because of which an operation has ended.
    pub missed: Ranks,
    /// Buffers that were needed before, and will be needed again: so in the long run nothing is allocated.
    pub pool: BufferPool,
}

impl Transfers {
    /// The messages of a group in which nothing is posted, and nothing has come.
    pub(super) fn new(roster: &Arc<Roster>) -> Transfers {
        Transfers {
            roster: Arc::clone(roster),
            own: roster.rank.unwrap_or(u32::MAX),
            links: Links::among(roster.members.len()),
            operations: Map::default(),
            matching: Matching::default(),
            probes: Vec::new(),
            next_op: 1,
            dirty: Ranks::none_of(roster.members.len()),
            wanted: Vec::new(),
            suspects: Vec::new(),
            missed: Ranks::none_of(roster.members.len()),
            pool: BufferPool::default(),
        }
    }

    /// The number of the operation that is posted next.
    pub(super) fn upcoming(&self) -> OpId {
        self.next_op
    }

    /// The operations that have waited since before that time, the oldest first, as many as are told of. There may be
    /// very many: so this takes one pass, and its memory does not grow with what is posted.
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

    /// Makes sure that a link is open or asked for. Returns an error if there can be none to this peer.
    pub(super) fn reach(&mut self, rank: u32) -> Option<Error> {
        let entry = self.links.entry(rank);
        entry.want(|| self.wanted.push(rank));
        match &entry.slot {
            Slot::Unused | Slot::Asked | Slot::Up(_) => {}
            Slot::Ended(end) => {
                let end = end.clone();
                self.suspect(rank, end);
            }
            Slot::Left(culprit) => {
                let culprit = culprit.clone();
                self.missed.insert(rank);
                return Some(self.left_error(rank, culprit.as_ref()));
            }
        }
        None
    }

    /// The link to this peer has ended. It is not known what became of the peer.
    pub(super) fn suspect(&mut self, rank: u32, end: LinkEnd) {
        self.suspects.push(SuspectedPeer { rank, end, finding: Finding::Unknown });
    }

    pub(super) fn peer(&mut self, rank: u32) -> &mut Peer {
        &mut self.links.entry(rank).peer
    }

    /// Queues a word without a payload for a peer.
    pub(super) fn say(&mut self, to: u32, part: MessagePart, number: u64, count: u64, dtype: DType) {
        let (epoch, group) = (self.roster.formed.epoch, self.roster.id);
        let header = MessageHeader { epoch, group, part, dtype, tag: 0, number, count };
        self.peer(to).words.push_back(header);
        self.dirty.insert(to);
    }

    /// Ends an operation. Its buffer is not touched any more: a frame that has begun goes on with a copy of it.
    pub(super) fn end(&mut self, op: OpId, outcome: Result<Option<Received>>) {
        let Some(operation) = self.operations.remove(&op) else { return };
        self.probes.retain(|probe| *probe != op);
        if let Some(peer) = operation.peer().and_then(|rank| self.links.known_mut(rank)).map(|entry| &mut entry.peer) {
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

    /// A message has come, or its head: it meets the first receive that asks for it, or waits. If it does not fit, this
    /// returns what is wrong.
    pub(super) fn arrive(&mut self, message: MessageId, tag: i32) -> Option<Error> {
        match self.matching.arrive(message, tag) {
            Some(op) => self.meet(op, message),
            None => {
                self.tell_probes(message, tag);
                None
            }
        }
    }

    /// A message waits for a receive: tells each probe that asks for such a message.
    fn tell_probes(&mut self, message: MessageId, tag: i32) {
        let accepts = |op: &OpId| {
            let wanted = self.operations.get(op)?.post.direction.wanted()?;
            wanted.accepts(message.source, tag).then_some(*op)
        };
        let told: Vec<OpId> = self.probes.iter().filter_map(accepts).collect();
        told.into_iter().for_each(|op| self.end(op, Ok(self.arrived(message))));
    }

    /// What is known of a message that has come, or whose head has come.
    fn arrived(&self, message: MessageId) -> Option<Received> {
        let MessageId { source, number } = message;
        let inbound = self.links.known(source)?.peer.inbound.get(&number)?;
        Some(Received { source, tag: inbound.tag, count: inbound.count, dtype: inbound.dtype })
    }

    /// The message that such a receive would get now.
    pub(super) fn next_message(&self, wanted: Wanted) -> Option<Received> {
        self.matching.first_arrived(wanted).and_then(|message| self.arrived(message))
    }

    /// A receive and a message have met. If the message does not fit, this returns what is wrong.
    pub(super) fn meet(&mut self, op: OpId, message: MessageId) -> Option<Error> {
        let (source, number) = (message.source, message.number);
        let own = self.own;
        let operation = self.operations.get_mut(&op)?;
        let room = (operation.post.count, operation.post.dtype);
        let buffers = operation.post.buffers;
        let inbound = self.links.known_mut(source)?.peer.inbound.get_mut(&number)?;
        let sent = (inbound.count, inbound.dtype);
        let (tag, fits) = (inbound.tag, sent.1 == room.1 && sent.0 <= room.0);
        match &mut inbound.state {
            InboundStage::Arriving(of) => {
                operation.stage = Stage::Met(message);
                *of = fits.then_some(op); // a message that does not fit is dropped once it is here
            }
            InboundStage::Kept(_) => {
                let inbound = self.peer(source).inbound.remove(&number)?;
                let (cost, length) = (inbound.cost(), inbound.bytes());
                let InboundStage::Kept(bytes) = inbound.state else { return None };
                if fits {
                    let [from, to] = [Buffer::Input, Buffer::Output].map(|buffer| Span::new(buffer, 0, length));
                    bytes.input().into_output_of(buffers).memory().copy(from, to);
                }
                self.release(source, cost);
                self.pool.give(bytes.into_own());
                if fits {
                    self.received(op, source, tag, sent.0, sent.1);
                }
            }
            InboundStage::Requested if fits => {
                inbound.state = InboundStage::Cleared(op);
                operation.stage = Stage::Coming(message, 0);
                self.say(source, MessagePart::Cts, number, 0, sent.1);
            }
            InboundStage::Requested => {
                self.peer(source).inbound.remove(&number);
                self.say(source, MessagePart::Refuse, number, room.0, room.1);
            }
            InboundStage::Cleared(_) => {}
        }
        if fits {
            return None;
        }
        let (count, dtype) = sent;
        let sentence = misfit(sent, room, &self.roster.describe(source), &self.roster.describe(own));
        let error = Error::misfit(sentence, Received { source, tag, count, dtype });
        self.end(op, Err(error.clone()));
        Some(error)
    }

    /// So many bytes of the space for a peer's messages have become free. The peer is told in large steps.
    pub(super) fn release(&mut self, source: u32, cost: u64) {
        let peer = self.peer(source);
        peer.kept -= cost;
        peer.owed += cost;
        if source != self.own && self.peer(source).owed >= EAGER_CREDIT / 16 {
            let owed = std::mem::take(&mut self.peer(source).owed);
            self.say(source, MessagePart::Credit, 0, owed, DType::Uint8);
        }
    }

    /// Whether no other rank is left from which a message could come.
    pub(super) fn all_left(&self) -> bool {
        let others = self.roster.members.len() - 1;
        let left = |entry: &&Entry<Peer>| entry.rank != self.own && matches!(entry.slot, Slot::Left(_));
        others > 0 && self.links.used().iter().filter(left).count() == others
    }

    pub(super) fn left_error(&self, rank: u32, culprit: Option<&Culprit>) -> Error {
        let who = culprit.map_or_else(|| self.roster.describe(rank), ToString::to_string);
        let what = self.roster.parted();
        Error::new(Status::PeerLeft, format!("{who} {what}, and a message to or from it cannot be completed"))
    }

    /// Whether an operation cannot go on without this peer.
    pub(super) fn needs(&self, rank: u32) -> bool {
        self.operations.values().any(|operation| operation.peer() == Some(rank))
    }

    /// `send(4 int8, tag 3) to rank 1 (...) on world`
    pub(super) fn title(&self, operation: &Operation) -> String {
        let with = operation.peer().map_or("any rank".to_owned(), |rank| self.roster.describe(rank));
        format!("{} {with} on {}", operation.post.words(), self.roster.id)
    }

    pub(super) fn title_of(&self, op: OpId) -> String {
        self.operations.get(&op).map(|operation| self.title(operation)).unwrap_or_default()
    }
}
