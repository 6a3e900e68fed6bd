//! Telling the members of a group that it is over where the scheduler does not: over a connection of its own to each, which no
//! data stands in the way of, and which one who has no link to this node gets as well.
//!
//! The first to give up tells; who is told passes it on over the links that are open (`giveup`), no further. As long as the
//! scheduler answers it tells everyone, and nothing of this happens. Tested in `mesh_groups_test.rs`, by two meshes,
//! and with processes in `ctests/later.c`.

use super::handshake::{frame, Stage};
use super::mesh::{LinkKey, Mesh, HELLO_WAIT};
use crate::agent::Event;
use crate::error::Failure;
use crate::net::{Poller, Token};
use crate::types::{GroupId, Time};
use crate::wire::{Channel, LinkKind, LinkRevoke};
use std::collections::{HashMap, VecDeque};

/// How many members are told at a time: each takes a descriptor.
const AT_A_TIME: usize = 64;

/// What is still to be told, and to whom.
#[derive(Default)]
pub(super) struct Telling {
    words: HashMap<GroupId, Vec<u8>>,
    queue: VecDeque<LinkKey>,
    /// Until when each member that is being told may take.
    under_way: HashMap<LinkKey, Time>,
}

impl Mesh {
    /// Begins to tell the group's members; each group's word is told once.
    pub fn tell(&mut self, failure: Failure, now: Time, poller: &Poller) {
        let Some(group) = failure.group.and_then(|id| self.groups.get(&id)) else { return };
        let (id, own) = (group.id(), group.rank());
        let others = (0..group.size()).filter(|rank| Some(*rank) != own);
        let keys: Vec<LinkKey> = others.map(|rank| LinkKey::new(id, Channel::Word, rank)).collect();
        if self.telling.words.contains_key(&id) {
            return;
        }
        self.telling.words.insert(id, frame(LinkKind::Revoke, &LinkRevoke { failure }));
        self.telling.queue.extend(keys);
        self.tell_on(now, poller);
    }

    /// Goes on telling. Returns when to come again.
    pub fn tell_on(&mut self, now: Time, poller: &Poller) -> Time {
        let mut under_way = std::mem::take(&mut self.telling.under_way);
        under_way.retain(|key, until| {
            let goes_on = *until > now;
            if !goes_on {
                self.dials.remove(key);
                self.handshakes.retain(|_, shake| !tells(&shake.stage, *key));
            }
            goes_on && (self.dials.contains_key(key) || self.handshakes.values().any(|shake| tells(&shake.stage, *key)))
        });
        while under_way.len() < AT_A_TIME {
            let Some(key) = self.telling.queue.pop_front() else { break };
            under_way.insert(key, now + HELLO_WAIT);
            self.open(key, poller);
        }
        let next = under_way.values().min().copied().unwrap_or(Time::NEVER);
        self.telling.under_way = under_way;
        next
    }

    /// The handshake for a word is done: its dialler says it, the other side waits for it.
    pub(super) fn tell_or_hear(&mut self, token: Token, key: LinkKey, poller: &Poller) {
        let Some(shake) = self.handshakes.get_mut(&token) else { return };
        shake.stage = match shake.stage {
            Stage::Dialled(_) => {
                shake.outbound = self.telling.words.get(&key.group).cloned().unwrap_or_default();
                Stage::Telling(key)
            }
            _ => Stage::Hearing(key),
        };
        self.advance(token, poller);
    }

    /// A member says that a group is over: as if the scheduler had said so.
    pub(super) fn heard(&self, key: LinkKey, failure: Failure) {
        let Some(group) = self.groups.get(&key.group) else { return };
        if (failure.group, failure.epoch) == (Some(key.group), group.epoch()) {
            if let Ok(shared) = group.shared() {
                shared.file(Event::Revoked(failure));
            }
        }
    }
}

fn tells(stage: &Stage, key: LinkKey) -> bool {
    matches!(stage, Stage::Dialled(of) | Stage::Telling(of) if *of == key)
}
