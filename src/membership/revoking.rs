//! Revoked groups, and ranks that call different collectives. Tested in `revocation_test.rs`.

use super::cluster_state::ClusterState;
use super::groups::Groups;
use super::revocation::Revocation;
use super::timers::HELD;
use crate::error::{Failure, Status};
use crate::types::{GroupId, Time};
use crate::wire::{GroupProgress, Message, Revoked};
use std::time::Duration;

impl Groups {
    /// Keeps the first cause, and tells every member that has not freed the group.
    pub(super) fn revoke_group(&mut self, cluster: &mut ClusterState, now: Time, group: GroupId, failure: Failure) {
        // While the members are being asked what they called, their difference is the first cause, and is told soon.
        let is_known = self.revoked.contains_key(&group) || self.disputes.contains_key(&group);
        let Some(members) = self.table.members_of(group).filter(|_| !is_known) else { return };
        cluster.out.warn(format!("{group} is revoked: {failure}"));
        self.revoked.insert(group, Revocation::new(now, failure.clone()));
        self.calls.remove(&group);
        self.table.give_up(group);
        for key in members.into_iter().filter(|key| self.table.is_used_by(*key, group)) {
            cluster.send_to(key, Message::Revoked(Revoked { failure: failure.clone() }));
        }
    }

    /// The cause that a node's end follows from: one of its groups was revoked before it went. There are two exceptions.
    /// A group may have been revoked because a node was missed. That is not the cause if the missed node is this one, or
    /// may really be lost. (If the missed node is well, or has lived on where a link was lost, it was only out of reach.) And a program may have made the group.
    /// Its end is not the cause if this node has gone on since it was told of it: for longer than the heartbeat
    /// time-out, or with other groups.
    pub(super) fn cause_before(&self, cluster: &ClusterState, key: u32, gone: Time) -> Option<Failure> {
        // A program may not mind the end of a group that it has made, and go on.
        let patience = cluster.silence();
        let may_be_why =
            |revoked: &Revocation| gone.since(revoked.at) <= patience && !self.has_gone_on(cluster, key, revoked);
        let led_to_it = |group: GroupId, revoked: &Revocation| {
            revoked.at <= gone && (group <= GroupId::UNIVERSE || may_be_why(revoked))
        };
        let groups = self
            .revoked
            .iter()
            .filter(|(group, revoked)| led_to_it(**group, revoked) && self.table.is_in(**group, key));
        let groups = groups.filter(|(_, revoked)| revoked.failure.status != Status::Revoked);
        let first = groups.map(|(_, revoked)| revoked).min_by_key(|revoked| revoked.at)?;
        let missed = first.failure.culprit.as_ref();
        match first.failure.status {
            Status::PeerLost | Status::Link if cluster.nodes.is_well(missed, key) => {
                Some(Failure { status: Status::Link, ..first.failure.clone() })
            }
            // The ranks at both ends of a link end, too, when they are told.
            Status::Link => {
                let missed = missed.and_then(|missed| cluster.nodes.named(&missed.node_id));
                missed.filter(|missed| cluster.nodes.gone_since(*missed) > first.at).map(|_| first.failure.clone())
            }
            Status::PeerLost => None,
            _ => Some(first.failure.clone()),
        }
    }

    /// Keeps what a node says: its program has gone on after these groups were over.
    pub(super) fn keep_gone_on(&mut self, key: u32, gone_on: &[GroupId]) {
        for group in gone_on {
            if let Some(revoked) = self.revoked.get_mut(group) {
                revoked.gone_on.insert(key);
            }
        }
    }

    /// Whether this node's program has gone on since this group was over: its heartbeats say so, or it has entered a
    /// collective of another group, which is not over, well after that.
    fn has_gone_on(&self, cluster: &ClusterState, key: u32, revoked: &Revocation) -> bool {
        let Some(node) = cluster.nodes.get(&key) else { return false };
        if revoked.gone_on.contains(&key) {
            return true;
        }
        let entered = |(progress, told): &(GroupProgress, Time)| *told - Duration::from_millis(progress.age_ms);
        let goes_on = |group: GroupId| !self.revoked.contains_key(&group);
        node.course.progress.iter().any(|known| goes_on(known.0.group) && entered(known) > revoked.at + HELD)
    }
}

#[cfg(test)]
#[path = "revocation_test.rs"]
pub(super) mod tests;
