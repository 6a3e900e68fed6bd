//! What becomes of messages when a peer leaves, and when the group is over.

use super::engine::Engine;
use super::matching::{Matching, MessageId, OpId};
use super::operation::{Operation, Stage};
use super::peer::{Inbound, InboundStage, Peer};
use crate::error::{Culprit, Error, Failure, Status};
use crate::runtime::links::link::{LinkEnd, Moved};
use crate::runtime::links::peers::Slot;

impl Engine {
    /// A peer has left the cluster, or freed the group: what needs it ends; what it sent before still counts.
    pub(super) fn peer_left(&mut self, rank: u32, culprit: Option<Culprit>) {
        let error = self.left_error(rank, culprit.as_ref());
        let peer = self.peer(rank);
        peer.slot = Slot::Left(culprit);
        peer.writing = None;
        peer.words.clear();
        peer.heads.clear();
        peer.cleared.clear();
        peer.ours.clear();
        let unfinished = |theirs: &Inbound| !matches!(theirs.state, InboundStage::Kept(_));
        let gone: Vec<u64> =
            peer.theirs.iter().filter(|(_, theirs)| unfinished(theirs)).map(|(number, _)| *number).collect();
        for number in gone {
            self.peer(rank).theirs.remove(&number);
            self.matching.take_arrived(MessageId { source: rank, number });
        }
        self.part_from(rank);
        let all_left = self.all_left();
        let needs = |operation: &Operation| operation.peer().map_or(all_left, |peer| peer == rank);
        let ended: Vec<OpId> =
            self.operations.iter().filter(|(_, operation)| needs(operation)).map(|(op, _)| *op).collect();
        for op in ended {
            self.matching.take_posted(op);
            self.end(op, Err(error.clone()));
        }
    }

    /// Receives that have met a message of a peer that will not send it wait for another one, unless a part of it lies in
    /// their memory already: a shorter message would not cover that.
    fn part_from(&mut self, rank: u32) {
        let reading = self.peer(rank).reading.take();
        let untouched = |op: OpId, operation: &Operation| match operation.stage {
            Stage::Met(message) | Stage::Coming(message, 0) => {
                message.source == rank && !reading.as_ref().is_some_and(|reading| reading.bytes.is_of(op))
            }
            _ => false,
        };
        let met = self.operations.iter().filter(|(op, operation)| untouched(**op, operation));
        let mut met: Vec<OpId> = met.map(|(op, _)| *op).collect();
        met.sort_unstable(); // those that were posted first choose first
        met.into_iter().for_each(|op| self.wait_again(op));
    }

    /// As if this receive had never met a message: it waits in its old place for another one.
    pub(super) fn wait_again(&mut self, op: OpId) {
        let Some(operation) = self.operations.get_mut(&op) else { return };
        let Some(wanted) = operation.post.way.wanted() else { return };
        operation.stage = Stage::Posted;
        if let Some(message) = self.matching.post(op, wanted) {
            self.meet(op, message);
        }
    }

    /// Whether nobody else is left that a message could come from.
    pub(super) fn all_left(&self) -> bool {
        let others = self.roster.members.len() - 1;
        let left = |(rank, peer): (&u32, &Peer)| *rank != self.own && matches!(peer.slot, Slot::Left(_));
        others > 0 && self.peers.iter().filter(|entry| left(*entry)).count() == others
    }

    pub(super) fn left_error(&self, rank: u32, culprit: Option<&Culprit>) -> Error {
        let who = culprit.map_or_else(|| self.roster.describe(rank), ToString::to_string);
        let what = if self.roster.is_made() {
            format!("has freed {}, or left the cluster", self.roster.id)
        } else {
            "has left the cluster".to_owned()
        };
        Error::new(Status::PeerLeft, format!("{who} {what}, and a message to or from it cannot be completed"))
    }

    /// Nothing goes on any more: every operation ends so, and the peers are told on every link. From now on nothing is read,
    /// and nothing written but what `drain` says.
    pub(super) fn fail(&mut self, failure: &Failure, last_word: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(failure.clone());
        let operations: Vec<OpId> = self.operations.keys().copied().collect();
        for op in operations {
            self.end(op, Err(failure.clone().into()));
        }
        self.matching = Matching::default();
        self.deadlines.clear();
        for peer in self.peers.values_mut() {
            let (slot, writing) = (std::mem::replace(&mut peer.slot, Slot::Unused), peer.writing.take());
            *peer = Peer { slot, ..Peer::default() };
            let Slot::Up(link) = &mut peer.slot else { continue };
            if failure.status == Status::State {
                // One who leaves ends the frame that it is in: to the peer a part of one would be a broken link.
                peer.writing = writing.filter(|_| link.is_mid_frame());
                peer.last_word = Some(last_word.to_vec());
            } else {
                link.say_last(last_word); // in the middle of a frame nothing: the scheduler tells who asks
            }
        }
        self.drain();
    }

    /// Goes on with what is said last. Returns whether something of it has not reached its peer yet.
    pub(super) fn drain(&mut self) -> bool {
        let mut waits = false;
        for peer in self.peers.values_mut() {
            if peer.last_word.is_some() {
                match farewell(peer) {
                    Ok(Moved::Some | Moved::Nothing) => waits = true,
                    Ok(Moved::Done) | Err(_) => (peer.writing, peer.last_word) = (None, None),
                }
            }
            waits |= matches!(&peer.slot, Slot::Up(link) if link.unsent() > 1);
        }
        waits
    }

    /// Whether an operation cannot go on without this peer.
    pub(super) fn needs(&self, rank: u32) -> bool {
        self.operations.values().any(|operation| operation.peer() == Some(rank))
    }
}

/// The rest of the frame that was going out, and behind it the last word.
fn farewell(peer: &mut Peer) -> Result<Moved, LinkEnd> {
    let Peer { slot: Slot::Up(link), writing, last_word: Some(word), .. } = peer else { return Ok(Moved::Done) };
    if let Some(frame) = writing {
        if frame.send(link)? != Moved::Done {
            return Ok(Moved::Nothing);
        }
        *writing = None;
    }
    link.say_on(word)
}
