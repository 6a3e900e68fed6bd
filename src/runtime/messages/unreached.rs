//! Messages whose peer lives, as far as anybody knows, and is not reached: as `collectives/standstill` does it for collectives.

use super::engine::Engine;
use super::signs::{Needed, Suspect};
use crate::runtime::links::link::LinkEnd;
use crate::runtime::links::peers::Slot;
use crate::runtime::state::silence::{in_words, Finding};
use crate::types::Time;
use crate::wire::PeerState;

impl Engine {
    /// An operation has been posted: when its link is looked at. That does not change when it ends, so that of many short ones
    /// one in that time wakes the progress thread.
    pub(super) fn look_at(&mut self, now: Time) -> Time {
        *self.signs.look_at.get_or_insert(now + self.signs.bounds.every)
    }

    /// Looks at the links to the peers that operations need, if it is time to. Returns when to come again. `answer_about`: what the
    /// scheduler has said of a peer since it was asked.
    pub(super) fn look_for_signs(&mut self, now: Time, answer_about: impl Fn(u32) -> Option<PeerState>) -> Time {
        let bounds = self.signs.bounds;
        let late = match self.signs.look_at {
            None => return Time::NEVER,
            Some(look_at) if now < look_at => return look_at,
            Some(look_at) => bounds.late(now, look_at),
        };
        if self.failed.is_some() || self.operations.is_empty() {
            self.signs.look_at = None;
            self.signs.needed.clear();
            return Time::NEVER;
        }
        for rank in self.operations.values().filter_map(|operation| operation.peer()) {
            let begins = Needed { since: now, last: now, asked: false };
            self.signs.needed.entry(rank).or_insert(begins).last = now;
        }
        self.signs.needed.retain(|_, needed| needed.last == now);
        for (rank, needed) in &mut self.signs.needed {
            let Some(peer) = self.peers.get_mut(rank) else { continue };
            let Slot::Up(link) = &mut peer.slot else { continue };
            let silence = link.silence(now, late).min(now.since(needed.since));
            needed.asked &= !silence.is_zero();
            let finding = bounds.finding(silence, needed.asked, || answer_about(*rank));
            match finding {
                Finding::Nothing => continue,
                Finding::Ask => needed.asked = true,
                Finding::Unreached | Finding::Unknown => peer.slot = Slot::Ended(LinkEnd::Silent(in_words(silence))),
            }
            self.suspects.push(Suspect { rank: *rank, end: LinkEnd::Silent(in_words(silence)), finding });
        }
        self.signs.look_at = Some(now + bounds.every);
        now + bounds.every
    }
}
