//! The complete cluster: what its nodes are told of it, and what is written down. Tested in `forming_test.rs`, `recovery_test.rs`
//! and `promises_test.rs`.

use super::cluster::Cluster;
use super::contract::ConnId;
use super::node::Node;
use super::promises::{Behind, Queued};
use super::ranks::{places, schedule_peers};
use crate::types::Role;
use crate::wire::{
    Agreed, EpochRecord, Formed, Makings, Member, Members, Record, Register, SeatRecord, FULL_TABLE_NODES,
};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Cluster {
    /// Ranks stay; hosts, and what follows from them, may have changed.
    pub(super) fn place_anew(&mut self) {
        let rank = |node: &Node| node.place.map_or(0, |place| place.rank);
        let ranked = self.nodes.values().map(|node| (node.role(), &node.register.host.key[..], rank(node)));
        let places = places(&ranked.collect::<Vec<_>>());
        for ((_, node), place) in self.nodes.all_mut().zip(places) {
            node.place = Some(place);
        }
        self.list_members();
    }

    /// The table of all nodes, as they are now.
    pub(super) fn list_members(&mut self) {
        self.members = Members::new(self.nodes.iter().map(|(index, node)| Arc::new(member(*index, node))).collect());
        let first = self.members.first().map(|member| &member.host.key);
        self.is_one_host = self.members.iter().all(|member| Some(&member.host.key) == first);
    }

    /// Every node that is connected is told of the epoch.
    pub(super) fn tell_all(&mut self) {
        let all = self.nodes.iter().filter_map(|(index, node)| Some((node.conn?, *index))).collect();
        self.out.put_out(Behind::Epoch, Queued::Formed(self.epoch, all));
    }

    pub(super) fn queue_formed(&mut self, conn: ConnId, index: u32) {
        self.out.put_out(Behind::Epoch, Queued::Formed(self.epoch, [(conn, index)].into()));
    }

    /// What this node is told of the complete cluster.
    pub(super) fn formed(&self, index: u32, makings: Vec<Makings>) -> Formed {
        let node = &self.nodes[&index];
        let place = node.place.expect("the cluster has formed");
        Formed {
            instance: self.identity.instance,
            generation: self.generation,
            epoch: self.epoch,
            index,
            rank: place.rank,
            local_rank: place.local_rank,
            local_size: place.local_size,
            worker_num: self.rules.worker_num,
            server_num: self.rules.server_num,
            secret: self.identity.secret,
            agreed: self.agreed(),
            restarts: node.lives.restarts,
            makings,
            members: self.members_told(index, place.rank, node.role()),
        }
    }

    fn agreed(&self) -> Agreed {
        let mut agreed = self.rules.agreed.clone();
        if self.is_one_host {
            agreed.thresholds.clone_from(&self.rules.one_host);
        }
        agreed
    }

    /// What an epoch had agreed on that was begun before this scheduler was started. Some have been told of it already: the others
    /// are told the same, wherever this scheduler was started.
    pub(super) fn take_up_agreed(&mut self, agreed: Agreed) {
        if self.is_one_host {
            self.rules.one_host.clone_from(&agreed.thresholds);
        }
        let thresholds = std::mem::take(&mut self.rules.agreed.thresholds);
        self.rules.agreed = agreed;
        if self.is_one_host {
            self.rules.agreed.thresholds = thresholds;
        }
    }

    /// All, or in a large cluster those that the schedules on the node's groups use: that of its role, and the universe.
    fn members_told(&self, index: u32, rank: u32, role: Role) -> Members {
        if self.members.len() <= FULL_TABLE_NODES {
            return self.members.clone();
        }
        let first = index - rank;
        let of_role = schedule_peers(rank, self.number_of(role));
        let mut peers: BTreeSet<u32> = of_role.into_iter().map(|peer| first + peer).collect();
        peers.extend(schedule_peers(index, self.members.len() as u32));
        Members::new(peers.into_iter().map(|peer| Arc::clone(&self.members[peer as usize])).collect())
    }

    pub(super) fn promise_epoch(&mut self) {
        if self.rules.durable {
            let record = self.epoch_record();
            self.out.promise(Record::Epoch(record));
        }
    }

    pub(super) fn epoch_record(&self) -> EpochRecord {
        let seat = |node: &Node| SeatRecord {
            register: Register::clone(node.lives.before.as_ref().unwrap_or(&node.register)),
            rank: node.place.map_or(0, |place| place.rank),
            token: node.lives.token,
            restarts: node.lives.restarts,
        };
        EpochRecord {
            epoch: self.epoch,
            secret: self.identity.secret,
            agreed: self.agreed(),
            seats: self.nodes.values().map(|node| seat(node)).collect(),
            fenced: self.nodes.fenced(),
        }
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
