//! Messages whose peer lives, as far as anybody knows, and is not reached: as `silence` does it for collectives.

use super::super::silence::{in_words, patience, LOOK};
use super::engine::Engine;
use super::peer::Slot;
use crate::types::Time;
use std::collections::HashMap;

/// When the links of messages are looked at next, and since when each peer has been needed at every look.
#[derive(Default)]
pub(super) struct Signs {
    look_at: Option<Time>,
    needed: HashMap<u32, Needed>,
}

struct Needed {
    since: Time,
    last: Time,
}

impl Engine {
    /// An operation has been posted: when its link is looked at. That does not change when it ends, so that of many short ones
    /// one a second wakes the attendant.
    pub(super) fn look_at(&mut self, now: Time) -> Time {
        *self.signs.look_at.get_or_insert(now + LOOK)
    }

    /// Looks at the links to the peers that operations need, if it is time to. Returns when to come again.
    pub(super) fn look_for_signs(&mut self, now: Time) -> Time {
        match self.signs.look_at {
            None => return Time::NEVER,
            Some(look_at) if now < look_at => return look_at,
            Some(_) => {}
        }
        if self.failed.is_some() || self.operations.is_empty() {
            self.signs.look_at = None;
            self.signs.needed.clear();
            return Time::NEVER;
        }
        for rank in self.operations.values().filter_map(|operation| operation.peer()) {
            self.signs.needed.entry(rank).or_insert(Needed { since: now, last: now }).last = now;
        }
        self.signs.needed.retain(|_, needed| needed.last == now);
        self.signs.look_at = Some(now + LOOK);
        let patience = patience(&self.roster.formed.agreed);
        for (rank, Needed { since, .. }) in &self.signs.needed {
            let Some(peer) = self.peers.get_mut(rank) else { continue };
            let Slot::Up(link) = &mut peer.slot else { continue };
            let silence = link.silence(patience).unwrap_or_default().min(now.since(*since));
            if silence >= patience {
                let evidence = in_words(silence);
                peer.slot = Slot::Ended(evidence.clone());
                self.suspects.push((*rank, evidence));
            }
        }
        now + LOOK
    }
}
