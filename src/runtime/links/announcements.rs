//! What a node tells others beside its links: that a group or the job is over (`revoke_broadcast`), and, while the scheduler gives no
//! sign of life, that it lives (`watching`). Tested in `mesh_test.rs`.

use super::mesh::Mesh;
use super::watching::{self, key_of};
use crate::agent::{PeerSign, ToPeer};
use crate::error::Failure;
use crate::net::Poller;
use crate::types::{GroupId, Time};
use std::collections::HashSet;
use std::sync::Arc;

impl Mesh {
    /// Begins to tell the group's members that it is over, or all nodes except those that are `gone` that the job is
    /// over. Each word is told once.
    pub fn tell(&mut self, failure: Failure, gone: &HashSet<u32>, now: Time, poller: &Poller) {
        if let Some(roster) = self.rosters.group(failure.group.unwrap_or(GroupId::UNIVERSE)) {
            self.revoke_broadcast.begin(failure, roster, gone, &mut self.connections);
            self.tell_on(Time::default(), now, poller); // no turn ends at time 0
        }
    }

    /// Goes on telling. A turn ends if its time was up when the sockets were last looked at. Returns when to come again.
    pub fn tell_on(&mut self, looked_at: Time, now: Time, poller: &Poller) -> Time {
        self.revoke_broadcast.end_turns(looked_at, &mut self.connections);
        while let Some(turn) = self.revoke_broadcast.next_turn() {
            self.revoke_broadcast.begin_turn(turn, now);
            self.open_if_located(turn.key, poller); // nobody is asked where a node is: the scheduler does not answer
            if !self.connections.has_word(turn.key) {
                self.revoke_broadcast.cannot_begin(turn.key);
            }
        }
        self.revoke_broadcast.ends_at()
    }

    /// Which nodes do not know yet that this one has ended the job, and whether they are still being told.
    pub fn untold(&self) -> Option<(Vec<u32>, bool)> {
        self.revoke_broadcast.untold()
    }

    /// Does what the brain wants about a node that is watched. What is seen of the node waits in `take_signs`.
    pub fn tell_peer(&mut self, index: u32, what: ToPeer, poller: &Poller) {
        let key = key_of(index);
        match what {
            ToPeer::Watch if !self.connections.watches(key).is_empty() => self.watching.saw(index, PeerSign::Stands),
            ToPeer::Watch => {
                self.watching.make_room(self.rosters.formed().map(Arc::as_ref));
                self.open_if_located(key, poller);
            }
            ToPeer::Say(word) => {
                let bytes = watching::frame_of(&word);
                for token in self.connections.watches(key) {
                    if let Some(shake) = self.connections.get_mut(token) {
                        shake.outbound.extend_from_slice(&bytes);
                        self.advance(token, poller);
                    }
                }
            }
            ToPeer::Look => self.watching.saw(index, watching::look_at(key, &self.connections, &self.rosters)),
            ToPeer::Close => {
                for token in self.connections.watches(key) {
                    self.connections.remove(token);
                }
            }
        }
    }
}
