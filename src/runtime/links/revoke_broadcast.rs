//! Tells the members of a group that it is over where the scheduler does not: over a connection of its own to each, which no
//! data stands in the way of, and which one who has no link to this node gets as well. All nodes are told likewise that one of
//! them has ended the job.
//!
//! The first to give up tells; who is told passes it on over the links that are open (`collectives/failure`), no further. As long as the
//! scheduler answers it tells everyone, and nothing of this happens. Tested in `mesh_groups_test.rs`, by two meshes,
//! and with processes in `ctests/later.c` and `ctests/abort_away.c`.

use super::handshake::{frame, Stage};
use super::mesh::{Mesh, HELLO_WAIT};
use super::peers::MeshEvent;
use super::to_tell::{RevokeBroadcast, Turn};
use crate::error::Failure;
use crate::net::{Poller, Token};
use crate::runtime::base::link_key::LinkKey;
use crate::types::{GroupId, Time};
use crate::wire::{Channel, LinkKind, LinkRevoke};
use std::collections::HashSet;
use std::time::Duration;

/// How many members are told at a time: each takes a descriptor.
const AT_A_TIME: usize = 64;
/// How long one that says nothing keeps its place while others wait for one. It is tried once more, after them.
const TURN: Duration = Duration::from_millis(250);

impl Mesh {
    /// Begins to tell the group's members, or of the job's end all nodes but those that are `gone`; each word is told once.
    pub fn tell(&mut self, failure: Failure, gone: &HashSet<u32>, now: Time, poller: &Poller) {
        let is_abort = failure.group.is_none();
        let Some(roster) = self.rosters.get(&failure.group.unwrap_or(GroupId::UNIVERSE)) else { return };
        let (id, own) = (roster.id, roster.rank);
        let is_told = |rank: &u32| Some(*rank) != own && !(is_abort && gone.contains(rank));
        let others = (0..roster.size()).filter(is_told);
        let keys: Vec<LinkKey> = others.map(|rank| LinkKey::new(id, Channel::Word, rank)).collect();
        if self.telling.untold.is_some() || (self.telling.words.contains_key(&id) && !is_abort) {
            return; // after the job's end there is nothing more to tell
        }
        if is_abort {
            self.stop_telling();
            self.telling.untold = Some(keys.iter().map(|key| key.rank).collect());
        }
        self.telling.words.insert(id, frame(LinkKind::Revoke, &LinkRevoke { failure }));
        self.telling.queue.extend(keys.into_iter().map(|key| Turn { key, is_last: false }));
        self.tell_on(now, poller);
    }

    /// Goes on telling. Returns when to come again.
    pub fn tell_on(&mut self, now: Time, poller: &Poller) -> Time {
        let mut under_way = std::mem::take(&mut self.telling.under_way);
        under_way.retain(|key, (turn, until)| {
            let goes_on = self.is_telling(*key);
            if goes_on && *until <= now {
                self.dials.remove(key);
                self.handshakes.retain(|_, shake| !tells(&shake.stage, *key));
                if !turn.is_last {
                    self.telling.queue.push_back(Turn { is_last: true, ..*turn });
                }
            }
            goes_on && *until > now
        });
        while under_way.len() < AT_A_TIME {
            let Some(turn) = self.telling.queue.pop_front() else { break };
            self.open_if_located(turn.key, poller); // nobody is asked where one is: the scheduler does not answer
            if self.is_telling(turn.key) {
                let is_last = turn.is_last || self.telling.queue.is_empty();
                let until = now + if is_last { HELLO_WAIT } else { TURN };
                under_way.insert(turn.key, (Turn { is_last, ..turn }, until));
            }
        }
        let next = under_way.values().map(|(_, until)| *until).min().unwrap_or(Time::NEVER);
        self.telling.under_way = under_way;
        next
    }

    fn is_telling(&self, key: LinkKey) -> bool {
        self.dials.contains_key(&key) || self.handshakes.values().any(|shake| tells(&shake.stage, key))
    }

    /// What is being told gives way to what ends it all.
    fn stop_telling(&mut self) {
        self.dials.retain(|key, _| key.channel != Channel::Word);
        let tells = |stage: &Stage| matches!(stage, Stage::Dialled(of) | Stage::RevokeBroadcast(of) if of.channel == Channel::Word);
        self.handshakes.retain(|_, shake| !tells(&shake.stage));
        self.telling = RevokeBroadcast::default();
    }

    /// This member has been told.
    pub(crate) fn has_told(&mut self, key: LinkKey) {
        if let Some(untold) = self.telling.untold.as_mut().filter(|_| key.group == GroupId::UNIVERSE) {
            untold.remove(&key.rank);
        }
    }

    /// Which nodes do not know yet that this one has ended the job, and whether they are still being told.
    pub fn untold(&self) -> Option<(Vec<u32>, bool)> {
        let untold = self.telling.untold.as_ref()?;
        let goes_on = !self.telling.queue.is_empty() || !self.telling.under_way.is_empty();
        Some((untold.iter().copied().collect(), goes_on))
    }

    /// The handshake for a word is done: its dialler says it, the other side waits for it.
    pub(crate) fn tell_or_hear(&mut self, token: Token, key: LinkKey, poller: &Poller) {
        let Some(shake) = self.handshakes.get_mut(&token) else { return };
        shake.stage = match shake.stage {
            Stage::Dialled(_) => {
                shake.outbound = self.telling.words.get(&key.group).cloned().unwrap_or_default();
                Stage::RevokeBroadcast(key)
            }
            _ => Stage::Hearing(key),
        };
        self.advance(token, poller);
    }

    /// A member says that a group, or the job, is over.
    pub(crate) fn heard(&mut self, key: LinkKey, failure: Failure) {
        if self.rosters.get(&key.group).is_none_or(|roster| failure.epoch != roster.formed.epoch) {
            return;
        }
        match failure.group {
            Some(id) if id == key.group => self.events.push_back(MeshEvent::Revoked(failure)),
            // Its rank in universe is its index.
            None if key.group == GroupId::UNIVERSE => self.events.push_back(MeshEvent::Aborted(key.rank, failure)),
            _ => {}
        }
    }
}

fn tells(stage: &Stage, key: LinkKey) -> bool {
    matches!(stage, Stage::Dialled(of) | Stage::RevokeBroadcast(of) if *of == key)
}
