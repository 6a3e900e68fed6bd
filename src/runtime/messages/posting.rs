//! How a caller posts operations: what is refused, the memory that they may need, and where each begins to wait.

use super::matching::OpId;
use super::matching::{MessageId, Wanted};
use super::operation::{Direction, Operation, Post, Stage};
use super::peer::{Bytes, Inbound, InboundStage};
use super::transfers::Transfers;
use crate::error::{Error, Result, Status};
use crate::runtime::base::request::{Completer, Received};
use crate::schedules::{Buffer, Span};
use crate::types::Time;
use crate::wire::{EAGER_COST, EAGER_CREDIT, EAGER_MAX};
use std::collections::TryReserveError;

impl Transfers {
    /// Whether these may be posted, one after the other. Once the first is posted, it is too late to refuse the second.
    pub(super) fn check(&self, first: &Post, second: Option<&Post>) -> Result<()> {
        match second {
            None => self.check_own(first, None),
            Some(send) => self.check_own(send, first.direction.wanted()),
        }
    }

    /// The rank to which one of these posts sends; and how many bytes may have to be kept here, if that is this rank.
    pub(super) fn keeps(&self, first: &Post, second: Option<&Post>) -> (Option<u32>, usize) {
        let send = [Some(first), second].into_iter().flatten().find_map(|post| match post.direction {
            Direction::Send { to, .. } => Some((to, post.bytes())),
            Direction::Receive { .. } | Direction::Probe { .. } => None,
        });
        let kept = send.filter(|(to, bytes)| *to == self.own && *bytes <= EAGER_MAX);
        (send.map(|(to, _)| to), kept.map_or(0, |(_, bytes)| bytes))
    }

    /// Whether a post may need more memory than there is: for two operations and the queues in which they wait, and for
    /// a message to oneself of so many bytes.
    pub(super) fn is_full(&self, to: Option<u32>, own_bytes: usize) -> bool {
        let operations = &self.operations;
        let entry = to.map(|rank| self.links.known(rank));
        operations.capacity() - operations.len() < 2
            || entry.is_some_and(|entry| entry.is_none_or(|entry| entry.peer.is_full()))
            || self.matching.is_full()
            || self.probes.capacity() == self.probes.len()
            || !self.pool.has(own_bytes)
    }

    /// Makes room for such a post.
    pub(super) fn reserve(&mut self, to: Option<u32>, own_bytes: usize) -> Result<(), TryReserveError> {
        self.operations.try_reserve(2)?;
        self.links.reserve_one()?;
        if let Some(entry) = to.and_then(|rank| self.links.known_mut(rank)) {
            entry.peer.reserve()?;
        }
        self.matching.reserve()?;
        self.probes.try_reserve(1)?;
        Vec::<u8>::new().try_reserve_exact(2 * own_bytes) // a buffer may be twice as long as what it is for
    }

    /// Posts an operation that has been checked; it may have ended when this returns.
    pub(super) fn post(&mut self, post: Post, since: Time, limit_ms: i64, deadline: Time, completer: Completer) {
        let op = self.next_op;
        let stage = if post.direction.wanted().is_some() { Stage::Posted } else { Stage::Waiting };
        let operation = Operation { post, stage, is_cancelled: false, since, limit_ms, deadline, completer };
        self.next_op += 1;
        let direction = operation.post.direction;
        self.operations.insert(op, operation);
        match direction {
            Direction::Send { to, tag } if to == self.own => self.send_to_self(op, tag),
            Direction::Send { to, .. } => self.send(op, to),
            Direction::Receive { from, .. } => self.receive(op, from),
            Direction::Probe { from, tag } => self.probe(op, Wanted { source: from, tag }),
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
        let Some(wanted) = self.operations.get(&op).and_then(|operation| operation.post.direction.wanted()) else {
            return;
        };
        if let Some(message) = self.matching.post(op, wanted) {
            self.meet(op, message);
            return;
        }
        if let Some(error) = self.reach_sender(from) {
            self.matching.take_posted(op);
            self.end(op, Err(error));
        }
    }

    /// Posts a probe. It ends at once if the message is there; if not, it waits until one comes.
    fn probe(&mut self, op: OpId, wanted: Wanted) {
        match self.look_for(wanted) {
            Ok(None) => self.probes.push(op),
            outcome => self.end(op, outcome),
        }
    }

    /// The message that such a receive would get, if there is one now. An error for a receive that could never get one.
    pub(super) fn look_for(&mut self, wanted: Wanted) -> Result<Option<Received>> {
        match self.next_message(wanted) {
            None => self.reach_sender(wanted.source).map_or(Ok(None), Err),
            message => Ok(message),
        }
    }

    /// Asks for a link to the sender, even if it never sends: the link's end tells of the sender's end. An error if the
    /// sender has left.
    fn reach_sender(&mut self, from: Option<u32>) -> Option<Error> {
        let sender = match from {
            Some(from) => Some(from).filter(|from| *from != self.own),
            // In a group of two only the other rank can be the sender.
            None if self.all_left() || self.roster.members.len() == 2 => {
                (0..self.roster.members.len() as u32).find(|rank| *rank != self.own)
            }
            None => None,
        };
        sender.and_then(|rank| self.reach(rank))
    }

    /// Refuses a message to oneself that no receive could ever take: the call would hang. `beside`: what the receive
    /// asks for that is posted just before the send.
    fn check_own(&self, post: &Post, beside: Option<Wanted>) -> Result<()> {
        let Direction::Send { to, tag } = post.direction else { return Ok(()) };
        let bytes = post.bytes() as u64;
        let before = beside.and_then(|wanted| self.matching.first_arrived(wanted));
        let meets = before.is_none() && beside.is_some_and(|wanted| wanted.accepts(to, tag));
        if to != self.own || meets || self.matching.would_meet(to, tag) {
            return Ok(());
        }
        let what =
            |why: &str| format!("{} {}, which is this rank itself: {why}", post.words(), self.roster.describe(to));
        if bytes > EAGER_MAX as u64 {
            let why = format!("a message to oneself of more than {EAGER_MAX} bytes needs a posted receive");
            return Err(Error::new(Status::State, what(&why)));
        }
        let own = self.links.known(to).map(|entry| &entry.peer);
        let freed = before.filter(|message| message.source == to).and_then(|message| own?.inbound.get(&message.number));
        let kept = own.map_or(0, |own| own.kept) - freed.map_or(0, Inbound::cost);
        if kept + bytes + EAGER_COST > EAGER_CREDIT {
            let why = format!(
                "the messages that it has sent to itself and not received fill the {EAGER_CREDIT} bytes that are kept for \
                 them (each counts {EAGER_COST} bytes more than it has)"
            );
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
        peer.inbound.insert(number, Inbound { tag, dtype, count, state });
        let misfit = self.arrive(MessageId { source: own, number }, tag);
        // A message that no receive waited for is kept as a copy: the caller's memory is not touched any more.
        if let Some(inbound) = self.links.known_mut(own).and_then(|entry| entry.peer.inbound.get_mut(&number)) {
            let bytes = self.pool.copy(buffers.memory().bytes(Span::new(Buffer::Input, 0, length)));
            inbound.state = InboundStage::Kept(Bytes::Own(bytes));
        }
        // An eager send has ended before its message meets anything; a longer one has waited for its receive.
        self.end(op, misfit.filter(|_| length > EAGER_MAX).map_or(Ok(None), Err));
    }
}
