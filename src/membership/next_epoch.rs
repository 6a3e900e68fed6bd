//! Whether there can be a next epoch, and how nodes are told that there is none. Tested in `recovery_test.rs` and
//! `abandoned_test.rs`.

use super::cluster_state::ClusterState;
use super::contract::ConnId;
use super::promises::Behind;
use crate::error::{Failure, Status};
use crate::wire::{Message, NotRecovered};

impl ClusterState {
    /// Why there will be no next epoch.
    pub(super) fn cannot_recover(&self) -> Option<Failure> {
        self.missed_for_good().or_else(|| self.job.verdict().cloned().filter(|_| self.job.is_broken_for_good()))
    }

    /// The reason where a member has left: the cluster will not be whole again.
    fn missed_for_good(&self) -> Option<Failure> {
        let left = self.nodes.get(&self.job.first_left()?)?;
        let cause = "has left the cluster, which cannot be made whole again without it".to_owned();
        Some(self.failure(Status::PeerLeft, Some(left.culprit()), cause))
    }

    /// The job is broken, and the cluster will not be whole again: all nodes that are there are told why, once. Nodes
    /// that have not asked for the next epoch yet are told, too: when they ask, this scheduler may have ended. (An
    /// abort's verdict says it itself.)
    pub(super) fn refuse_next_epoch(&mut self) {
        let conns: Vec<ConnId> =
            self.nodes.values().filter(|node| node.takes_part()).filter_map(|node| node.conn()).collect();
        conns.into_iter().for_each(|conn| self.tell_no_next_epoch(conn));
    }

    /// Says that there will be no next epoch while this scheduler serves.
    pub(super) fn tell_no_next_epoch(&mut self, conn: ConnId) {
        if let Some(failure) = self.cannot_recover() {
            self.tell_not_recovered(conn, failure);
        }
    }

    /// A node that is lost wants to go on: another process has its place, or will have.
    pub(super) fn refuse_recovery_of_lost(&mut self, key: u32) {
        let Some((conn, culprit)) = self.nodes.get(&key).and_then(|node| Some((node.conn()?, node.culprit()))) else {
            return;
        };
        let cause = "was taken for lost by the others while it did not answer; it has to be started again".to_owned();
        let failure = self.failure(Status::Fenced, Some(culprit), cause);
        self.tell_not_recovered(conn, failure);
    }

    /// Tells a node that there is no next epoch for it. The reason may have to be durable before.
    pub(super) fn tell_not_recovered(&mut self, conn: ConnId, failure: Failure) {
        let behind = self.job.behind_its_end(Behind::Epoch);
        self.out.send_behind(behind, conn, Message::NotRecovered(NotRecovered { failure }));
    }
}
