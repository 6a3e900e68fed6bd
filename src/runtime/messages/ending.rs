//! What becomes of messages when the group is over: every operation ends, and the peers are told why.

use super::engine::Engine;
use super::matching::{Matching, OpId};
use super::peer::Peer;
use crate::error::{Failure, Status};
use crate::runtime::links::link::{Link, LinkEnd, Moved};
use crate::runtime::links::peers::Entry;

impl Engine {
    /// Nothing goes on any more: every operation ends with this failure, and the peers are told on every link. From now
    /// on nothing is read, and only `drain` still writes.
    pub(super) fn fail(&mut self, failure: &Failure, last_word: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(failure.clone());
        let operations: Vec<OpId> = self.transfers.operations.keys().copied().collect();
        for op in operations {
            self.transfers.end(op, Err(failure.clone().into()));
        }
        self.transfers.matching = Matching::default();
        self.deadlines.clear();
        for Entry { slot, peer, .. } in self.transfers.links.used_mut() {
            let writing = std::mem::take(peer).writing;
            let Some(link) = slot.opened() else { continue };
            if failure.status == Status::State {
                // A rank that leaves first finishes the frame that it is sending: the peer would take a partial frame
                // for a broken link.
                peer.writing = writing.filter(|_| link.is_mid_frame());
                peer.last_word = Some(last_word.to_vec());
            } else {
                link.say_last(last_word); // in the middle of a frame it says nothing: the scheduler tells a peer that asks
            }
        }
        self.drain();
    }

    /// Goes on with the last words. Returns whether some of them have not reached their peers yet.
    pub(super) fn drain(&mut self) -> bool {
        let mut waits = false;
        for Entry { slot, peer, .. } in self.transfers.links.used_mut() {
            let Some(link) = slot.opened() else { continue };
            if peer.last_word.is_some() {
                match farewell(link, peer) {
                    Ok(Moved::Some | Moved::Nothing) => waits = true,
                    Ok(Moved::Done) | Err(_) => (peer.writing, peer.last_word) = (None, None),
                }
            }
            waits |= link.unsent() > 1;
        }
        waits
    }
}

/// The rest of the frame that was going out, and behind it the last word.
fn farewell(link: &mut Link, peer: &mut Peer) -> Result<Moved, LinkEnd> {
    let Peer { writing, last_word: Some(word), .. } = peer else { return Ok(Moved::Done) };
    if let Some(frame) = writing {
        if frame.send(link)? != Moved::Done {
            return Ok(Moved::Nothing);
        }
        *writing = None;
    }
    link.say_on(word)
}
