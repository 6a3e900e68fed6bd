//! The table of a complete cluster's nodes, as each of them is told of it. Tested in `forming_test.rs`.

use super::contract::Rules;
use super::node::Node;
use super::nodes::Nodes;
use super::ranks::schedule_peers;
use crate::wire::{Agreed, Member, Members, FULL_TABLE_NODES};
use std::collections::BTreeSet;
use std::sync::Arc;

/// All nodes, by index; none while the cluster forms.
#[derive(Debug)]
pub(super) struct MemberTable {
    pub(super) members: Members,
    /// Whether they are all on one host.
    pub(super) is_one_host: bool,
}

impl Default for MemberTable {
    fn default() -> MemberTable {
        MemberTable { members: Members::new(Vec::new()), is_one_host: false }
    }
}

impl MemberTable {
    /// The table of these nodes, as they are now.
    pub(super) fn of(nodes: &Nodes) -> MemberTable {
        let members = Members::new(nodes.iter().map(|(index, node)| Arc::new(member(*index, node))).collect());
        let first = members.first().map(|member| &member.host.key);
        let is_one_host = members.iter().all(|member| Some(&member.host.key) == first);
        MemberTable { members, is_one_host }
    }

    /// What all nodes do alike.
    pub(super) fn agreed(&self, rules: &Rules) -> Agreed {
        let mut agreed = rules.agreed.clone();
        if self.is_one_host {
            agreed.thresholds.clone_from(&rules.one_host);
        }
        agreed
    }

    /// The members that a node is told, by its index, its rank, and the number of nodes in its role. It is told all; in
    /// a large cluster those that the schedules on its groups use. Its groups are that of its role, and the universe.
    pub(super) fn told(&self, index: u32, rank: u32, size: u32) -> Members {
        if self.members.len() <= FULL_TABLE_NODES {
            return self.members.clone();
        }
        let first = index - rank;
        let mut peers: BTreeSet<u32> = schedule_peers(rank, size).into_iter().map(|peer| first + peer).collect();
        peers.extend(schedule_peers(index, self.members.len() as u32));
        Members::new(peers.into_iter().map(|peer| Arc::clone(&self.members[peer as usize])).collect())
    }
}

fn member(index: u32, node: &Node) -> Member {
    let place = node.place.expect("places were just given");
    Member {
        index,
        role: node.role(),
        rank: place.rank,
        local_rank: place.local_rank,
        node_id: node.register.node_id.clone(),
        host: node.register.host.clone(),
        process: node.register.process,
        addresses: node.register.addresses.clone(),
        device: node.register.device,
    }
}
