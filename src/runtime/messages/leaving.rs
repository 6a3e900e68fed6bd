//! What becomes of messages when a peer leaves the cluster, or frees the group.

use super::matching::{MessageId, OpId};
use super::operation::{Operation, Stage};
use super::peer::{Inbound, InboundStage};
use super::transfers::Transfers;
use crate::error::Culprit;
use crate::runtime::links::peers::{Entry, Slot};

impl Transfers {
    /// A peer has left the cluster, or freed the group. Operations that need it end; what it sent before still counts.
    pub(super) fn peer_left(&mut self, rank: u32, culprit: Option<Culprit>) {
        let error = self.left_error(rank, culprit.as_ref());
        let Entry { slot, peer, .. } = self.links.entry(rank);
        *slot = Slot::Left(culprit);
        peer.writing = None;
        peer.words.clear();
        peer.heads.clear();
        peer.cleared.clear();
        peer.ours.clear();
        let unfinished = |inbound: &Inbound| !matches!(inbound.state, InboundStage::Kept(_));
        let gone: Vec<u64> =
            peer.inbound.iter().filter(|(_, inbound)| unfinished(inbound)).map(|(number, _)| *number).collect();
        for number in gone {
            self.peer(rank).inbound.remove(&number);
            self.matching.take_arrived(MessageId { source: rank, number });
        }
        self.part_from(rank);
        let all_left = self.all_left();
        let needs = |operation: &Operation| operation.peer().map_or(all_left, |peer| peer == rank);
        let ended: Vec<OpId> =
            self.operations.iter().filter(|(_, operation)| needs(operation)).map(|(op, _)| *op).collect();
        if !ended.is_empty() {
            self.missed.insert(rank);
        }
        for op in ended {
            self.matching.take_posted(op);
            self.end(op, Err(error.clone()));
        }
    }

    /// If a receive has met a message that its peer will not send, it waits for another one; but not if a part of the
    /// message lies in its memory already, because a shorter message would not cover that part.
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
        met.sort_unstable(); // receives that were posted first choose first
        met.into_iter().for_each(|op| self.wait_again(op));
    }
}
