//! Peers that operations need, and that may not be reached: their link has ended, or it is silent (`state/silence`).

use super::engine::Engine;
use super::peer::SuspectedPeer;
use crate::runtime::links::link::LinkEnd;
use crate::runtime::links::peers::Slot;
use crate::runtime::state::silence::{in_words, Finding, Silent};
use crate::types::Time;
use crate::wire::PeerState;

impl Engine {
    /// Looks at the links to the peers that operations need, if it is time to. Returns the time of the next look.
    /// `answer_about`: what the scheduler has said of a peer since it was asked.
    pub(super) fn look_for_signs(&mut self, now: Time, answer_about: impl Fn(u32) -> Option<PeerState>) -> Time {
        if self.silence.look_at() <= now && (self.failed.is_some() || self.transfers.operations.is_empty()) {
            self.silence.end();
        }
        let (links, needed) =
            (&mut self.transfers.links, self.transfers.operations.values().filter_map(|operation| operation.peer()));
        let silence = |rank, late| links.silence(rank, now, late);
        for Silent { rank, silence, finding } in self.silence.look(now, needed, silence, answer_about) {
            let end = LinkEnd::Silent(in_words(silence));
            if finding != Finding::Ask {
                self.transfers.links.entry(rank).slot = Slot::Ended(end.clone());
            }
            self.transfers.suspects.push(SuspectedPeer { rank, end, finding });
        }
        self.silence.look_at()
    }
}
