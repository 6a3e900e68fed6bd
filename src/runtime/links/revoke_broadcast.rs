//! Tells the members of a group that it is over where the scheduler does not. Each member is told over a connection of its
//! own: no data stands in the way there, and a member that has no link to this node is told as well. In the same way all
//! nodes are told that one of them has ended the job.
//!
//! The first node to give up tells the others. A member that is told passes it on over its open links
//! (`collectives/failure`), no further. As long as the scheduler answers, the scheduler tells everyone, and this file
//! does nothing. This file knows what is still to be told, and to whom; the mesh opens the connections. Tested in
//! `mesh_groups_test.rs`, by two meshes, and with processes in `ctests/away.c`.

use super::handshake::{frame, HELLO_WAIT};
use super::mesh_connections::MeshConnections;
use crate::error::Failure;
use crate::runtime::base::link_key::LinkKey;
use crate::runtime::state::roster::Roster;
use crate::types::{GroupId, Time};
use crate::wire::{Channel, LinkKind, LinkRevoke};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

/// How many members are told at a time: each takes a descriptor.
const AT_A_TIME: usize = 64;
/// How long a member that does not answer keeps its turn while others wait. Its next turns come after those of the others, and
/// are longer.
const TURN: Duration = Duration::from_millis(250);

/// One member's turn to be told: its first, which is short where others wait, or a long one.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub key: LinkKey,
    is_long: bool,
}

/// A turn that goes on until a time.
struct UnderWay {
    turn: Turn,
    until: Time,
    /// The member closed the connection before it was told, or this node had no descriptor for a connection. Either may be too
    /// busy. The member is tried again when the turn is over.
    is_unheard: bool,
}

/// What is still to be told, and to whom.
#[derive(Default)]
pub(crate) struct RevokeBroadcast {
    words: HashMap<GroupId, Vec<u8>>,
    queue: VecDeque<Turn>,
    /// The members that are being told, and until when each may take.
    under_way: HashMap<LinkKey, UnderWay>,
    /// The nodes that have not been told that the job is over, where this node ended it.
    untold: Option<BTreeSet<u32>>,
}

impl RevokeBroadcast {
    /// Begins to tell the members of this group that it is over, or all nodes except those that are `gone` that the job
    /// is over. Each word is told once.
    pub fn begin(&mut self, failure: Failure, roster: &Roster, gone: &HashSet<u32>, connections: &mut MeshConnections) {
        let is_abort = failure.group.is_none();
        if self.untold.is_some() || (self.words.contains_key(&roster.id) && !is_abort) {
            return; // after the job's end there is nothing more to tell
        }
        let is_told = |rank: &u32| Some(*rank) != roster.rank && !(is_abort && gone.contains(rank));
        let others: Vec<u32> = (0..roster.size()).filter(is_told).collect();
        if is_abort {
            // News of a group's end gives way to the news that the job is over.
            connections.drop_all_words();
            *self = RevokeBroadcast { untold: Some(others.iter().copied().collect()), ..RevokeBroadcast::default() };
        }
        self.words.insert(roster.id, frame(LinkKind::Revoke, &LinkRevoke { failure }));
        let keys = others.into_iter().map(|rank| LinkKey::new(roster.id, Channel::Word, rank));
        self.queue.extend(keys.map(|key| Turn { key, is_long: false }));
    }

    /// Ends the turns of members that have been told, cannot be reached, or have had their time. A member of a group gets one
    /// turn after another, until it has been told or cannot be reached. The job's end is told in one long turn at most, because a
    /// caller waits for that.
    pub fn end_turns(&mut self, now: Time, connections: &mut MeshConnections) {
        let (queue, is_abort) = (&mut self.queue, self.untold.is_some());
        self.under_way.retain(|key, UnderWay { turn, until, is_unheard }| {
            let goes_on = *is_unheard || connections.has_word(*key);
            if goes_on && *until <= now {
                connections.drop_word(*key);
                if !(is_abort && turn.is_long) {
                    queue.push_back(Turn { is_long: true, ..*turn });
                }
            }
            goes_on && *until > now
        });
    }

    /// This member, of this group, has closed the connection before it was told, or there is no descriptor for a connection.
    pub fn is_unheard(&mut self, key: LinkKey) {
        if let Some(under_way) = self.under_way.get_mut(&key).filter(|_| self.untold.is_none()) {
            under_way.is_unheard = true;
        }
    }

    /// The member that is to be told next, where there is room for another one.
    pub fn next_turn(&mut self) -> Option<Turn> {
        (self.under_way.len() < AT_A_TIME).then(|| self.queue.pop_front()).flatten()
    }

    /// A member is being told from now on.
    pub fn begin_turn(&mut self, turn: Turn, now: Time) {
        let is_long = turn.is_long || self.queue.is_empty();
        let until = now + if is_long { HELLO_WAIT } else { TURN };
        self.under_way.insert(turn.key, UnderWay { turn: Turn { is_long, ..turn }, until, is_unheard: false });
    }

    /// There is no connection to this member. Unless it is tried again, its turn makes room for the next one.
    pub fn cannot_begin(&mut self, key: LinkKey) {
        if self.under_way.get(&key).is_some_and(|under_way| !under_way.is_unheard) {
            self.under_way.remove(&key);
        }
    }

    /// When the next turn ends.
    pub fn ends_at(&self) -> Time {
        self.under_way.values().map(|under_way| under_way.until).min().unwrap_or(Time::NEVER)
    }

    /// What a member of this group is told.
    pub fn word(&self, group: GroupId) -> Vec<u8> {
        self.words.get(&group).cloned().unwrap_or_default()
    }

    /// This member has been told.
    pub fn has_told(&mut self, key: LinkKey) {
        if let Some(untold) = self.untold.as_mut().filter(|_| key.group == GroupId::UNIVERSE) {
            untold.remove(&key.rank);
        }
    }

    /// Which nodes do not know yet that this one has ended the job, and whether they are still being told.
    pub fn untold(&self) -> Option<(Vec<u32>, bool)> {
        let untold = self.untold.as_ref()?;
        Some((untold.iter().copied().collect(), !self.queue.is_empty() || !self.under_way.is_empty()))
    }
}
