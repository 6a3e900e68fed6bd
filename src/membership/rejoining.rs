//! A node calls `muster_recover`, and the next epoch begins. Tested in `recovery_test.rs`.

use super::conductor::Conductor;
use super::node::span;
use crate::error::Status;
use crate::types::{Epoch, GroupId, Secret, Time};
use crate::wire::{InEpoch, Recover};

impl Conductor {
    /// A node wants the cluster made whole, or stops waiting for that.
    pub(super) fn recover(&mut self, now: Time, key: u32, wish: &Recover) {
        if wish.epoch != self.cluster.epoch {
            return; // this node has been told of the present epoch
        }
        let Some(conn) = self.cluster.nodes.conn(key) else { return };
        if !wish.inside {
            let failure = self.recovery.still_awaited(&self.cluster, key);
            self.recovery.gives_up(&self.cluster, key);
            return self.cluster.tell_not_recovered(conn, failure);
        }
        self.groups.settle_disputes(&mut self.cluster, now);
        if !self.cluster.job.is_broken() {
            self.revoke_all(now, key); // in a broken job a verdict has ended the groups already
            self.end_all_pacts(key);
        }
        if let Some(failure) = self.cluster.cannot_recover() {
            return self.cluster.tell_not_recovered(conn, failure);
        }
        self.recovery.enter(&mut self.cluster, now, key);
        self.recover_if_complete(now);
    }

    /// Revokes every group that still holds. This node has given up all groups, and nobody shall wait for it.
    fn revoke_all(&mut self, now: Time, key: u32) {
        let culprit = self.cluster.nodes.get(&key).map(|node| node.culprit());
        let groups: Vec<GroupId> = self.groups.all().filter(|group| !self.groups.is_revoked(*group)).collect();
        for group in groups {
            if self.groups.table.members_of(group).is_some_and(|members| members.len() > 1) {
                let cause = format!("called muster_recover, which ends epoch {}", self.cluster.epoch.0);
                let mut failure = self.cluster.failure(Status::Revoked, culprit.clone(), cause);
                failure.group = Some(group);
                self.groups.revoke_group(&mut self.cluster, now, group, failure);
            }
        }
    }

    /// The next epoch's secret was drawn.
    pub(super) fn secret(&mut self, now: Time, secret: Secret) {
        self.recovery.has_drawn(secret);
        self.recover_if_complete(now);
    }

    /// Begins the next epoch if everybody is ready for it.
    pub(super) fn recover_if_complete(&mut self, now: Time) {
        let cluster = &mut self.cluster;
        let Some((secret, since)) = self.recovery.complete(cluster) else { return };
        cluster.epoch = Epoch(cluster.epoch.0 + 1);
        cluster.identity.secret = secret;
        cluster.job.is_whole_again();
        for key in cluster.nodes.with_another_life() {
            self.store.gone(key);
        }
        cluster.nodes.begin_epoch(cluster.epoch);
        self.groups.begin_epoch();
        self.stragglers.begin_epoch();
        cluster.place_anew();
        cluster.promise_epoch();
        let (epoch, after) = (cluster.epoch.0, span(now.since(since)));
        cluster.out.warn(format!("epoch {epoch} has begun: the cluster is whole again after {after}"));
        cluster.tell_all();
    }

    /// A node has taken up an epoch: what it says from now on belongs to that epoch.
    pub(super) fn in_epoch(&mut self, key: u32, word: &InEpoch) {
        if let Some(node) = self.cluster.nodes.get_mut(key) {
            node.epoch = (word.epoch >= Epoch::FIRST).then_some(word.epoch); // no epoch has a lower number
            node.contact.has_answered();
        }
    }
}
