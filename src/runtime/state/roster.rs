//! The members of a group, and how sentences name them.

use crate::error::{Culprit, Failure, Status};
use crate::types::{GroupId, Role};
use crate::wire::{Formed, Member};
use std::sync::Arc;

/// A group's members, in order of rank.
#[derive(Debug)]
pub(crate) struct Roster {
    /// The group's id.
    pub id: GroupId,
    /// The members' indices among all nodes.
    pub members: Vec<u32>,
    /// This node's rank in the group; none if it is no member.
    pub rank: Option<u32>,
    /// The cluster.
    pub formed: Arc<Formed>,
}

impl Roster {
    /// The roster of these nodes (indices in the cluster, in order of rank).
    pub(crate) fn of(id: GroupId, members: Vec<u32>, formed: &Arc<Formed>) -> Roster {
        let own = Roster { id, members, rank: None, formed: Arc::clone(formed) };
        Roster { rank: own.rank_of(formed.index), ..own }
    }

    /// Whether the user made the group, so that a member can free it.
    pub(crate) fn is_made(&self) -> bool {
        self.id.0 > GroupId::UNIVERSE.0
    }

    /// The member with this rank, if its data came with `Formed`.
    pub(crate) fn member(&self, rank: u32) -> Option<Member> {
        self.formed.members.find(*self.members.get(rank as usize)?)
    }

    /// How many members the group has.
    pub(crate) fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// The member's index among all nodes.
    pub(crate) fn index_of(&self, rank: u32) -> Option<u32> {
        self.members.get(rank as usize).copied()
    }

    /// The rank of the node with this index.
    pub(crate) fn rank_of(&self, index: u32) -> Option<u32> {
        self.members.iter().position(|member| *member == index).map(|rank| rank as u32)
    }

    /// What a member that is gone has done, as words that go on after its name.
    pub(crate) fn parted(&self) -> String {
        match self.is_made() {
            true => format!("has freed {}, or left the cluster", self.id),
            false => "has left the cluster".to_owned(),
        }
    }

    /// How a failure names the member with this rank.
    pub(crate) fn culprit(&self, rank: u32) -> Option<Culprit> {
        self.member(rank).as_ref().map(Member::culprit)
    }

    /// How a sentence names the member with this rank.
    pub(crate) fn describe(&self, rank: u32) -> String {
        self.culprit(rank).map_or_else(|| format!("rank {rank}"), |culprit| culprit.to_string())
    }
}

/// Whether a failure says that this very node is lost.
pub(crate) fn calls_this_node_lost(formed: &Formed, failure: &Failure) -> bool {
    let Some(culprit) = failure.culprit.as_ref().filter(|_| failure.status == Status::PeerLost) else { return false };
    formed.members.find(formed.index).as_ref().map(Member::culprit).is_some_and(|own| own.is(culprit))
}

/// The node indices of the built-in groups.
pub fn built_in(id: GroupId, formed: &Formed) -> Vec<u32> {
    let all = formed.worker_num + formed.server_num;
    match id {
        GroupId::WORLD => (0..formed.worker_num).collect(),
        GroupId::SERVERS => (formed.worker_num..all).collect(),
        _ => (0..all).collect(),
    }
}

/// The node's own role, as its index tells.
pub fn own_role(formed: &Formed) -> Role {
    if formed.index < formed.worker_num {
        Role::Worker
    } else {
        Role::Server
    }
}
