//! The complete cluster: what its nodes are told of it, and what is written down. Tested in `forming_test.rs`, `recovery_test.rs`
//! and `promises_test.rs`.

use super::cluster_state::ClusterState;
use super::contract::ConnId;
use super::member_table::MemberTable;
use super::node::Node;
use super::promises::{Behind, Queued};
use super::ranks::places;
use crate::wire::{Agreed, Creations, EpochRecord, Formed, Later, MemberRecord, Record, FEATURES};

impl ClusterState {
    /// Ranks stay; hosts, and what follows from them, may have changed.
    pub(super) fn place_anew(&mut self) {
        let rank = |node: &Node| node.place.map_or(0, |place| place.rank);
        let ranked = self.nodes.values().map(|node| (node.role(), &node.register.host.key[..], rank(node)));
        let places = places(&ranked.collect::<Vec<_>>());
        for ((_, node), place) in self.nodes.all_mut().zip(places) {
            node.place = Some(place);
        }
        self.table = MemberTable::of(&self.nodes);
    }

    /// Tells every connected node of the epoch.
    pub(super) fn tell_all(&mut self) {
        let all = self.nodes.iter().filter_map(|(index, node)| Some((node.conn()?, *index))).collect();
        self.out.put_out(Behind::Epoch, Queued::Formed(self.epoch, all));
    }

    pub(super) fn queue_formed(&mut self, conn: ConnId, index: u32) {
        self.out.put_out(Behind::Epoch, Queued::Formed(self.epoch, [(conn, index)].into()));
    }

    /// What this node is told of the complete cluster.
    pub(super) fn formed(&self, index: u32, creations: Vec<Creations>) -> Formed {
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
            agreed: self.table.agreed(&self.rules),
            restarts: node.lives.restarts,
            creations,
            members: self.table.told(index, place.rank, self.number_of(node.role())),
            features: Later(node.register.features & FEATURES),
        }
    }

    /// Takes up what the nodes of an epoch had agreed on that began before this scheduler was started. Some nodes have
    /// been told of it already: the others are told the same, wherever this scheduler was started.
    pub(super) fn take_up_agreed(&mut self, agreed: Agreed) {
        if self.table.is_one_host {
            self.rules.one_host.clone_from(&agreed.thresholds);
        }
        let thresholds = std::mem::take(&mut self.rules.agreed.thresholds);
        self.rules.agreed = agreed;
        if self.table.is_one_host {
            self.rules.agreed.thresholds = thresholds;
        }
    }

    pub(super) fn promise_epoch(&mut self) {
        if self.rules.durable {
            let record = self.epoch_record();
            self.out.promise(Record::Epoch(record));
        }
    }

    pub(super) fn epoch_record(&self) -> EpochRecord {
        let member = |node: &Node| MemberRecord {
            register: node.seated().clone(),
            rank: node.place.map_or(0, |place| place.rank),
            token: node.lives.token,
            restarts: node.lives.restarts,
        };
        EpochRecord {
            epoch: self.epoch,
            secret: self.identity.secret,
            agreed: self.table.agreed(&self.rules),
            members: self.nodes.values().map(|node| member(node)).collect(),
            fenced: self.nodes.fenced(),
        }
    }
}
