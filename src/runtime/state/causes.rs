//! Why groups, and the cluster, cannot be used any more, as one node knows it: calls, `muster_failure` and
//! `muster_group_failure` all ask here, so that they tell the same.
//!
//! If something ended a group alone before the cluster ended, that is the group's first cause. Otherwise it is the
//! cluster's first cause. The cluster's first cause is what ended it as a whole, or one of its own groups (world,
//! servers, universe), whichever this node came to know first. If a made group ends with the cluster later, what a call
//! on world has told is the group's cause, too. If only groups are over that the program made, the cluster's first
//! cause is what ended the first of those.
//!
//! Invariants: a cause that was told of a group is told of it from then on, and so is the cluster's cause, with three
//! exceptions. A wish for the next epoch (`Revoked`) gives way to whatever was really wrong. As the cluster's cause,
//! what ended a made group gives way to what ends the cluster. If the others have given this node up (`Fenced`), that
//! takes the place of what ended the cluster, unless a call has told that already.

use crate::error::{Failure, Status};
use crate::types::GroupId;

/// What is known in one epoch: one entry for each group that is over, and one for the cluster as a whole (none), in
/// the order in which this node came to know them.
#[derive(Clone, Debug, Default)]
pub struct Causes(Vec<(Option<GroupId>, Failure)>);

/// Whether something went wrong, and the failure is not only a wish for the next epoch.
pub(super) fn is_real(failure: &Failure) -> bool {
    failure.status != Status::Revoked
}

impl Causes {
    /// Whether neither the cluster nor a group is over.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, what: Option<GroupId>) -> Option<&Failure> {
        self.0.iter().find(|(of, _)| *of == what).map(|(_, failure)| failure)
    }

    /// The cluster as a whole is over.
    pub fn break_cluster(&mut self, failure: Failure) {
        if failure.status == Status::Fenced {
            self.0.retain(|(of, known)| of.is_some() || known.status == Status::Fenced);
        }
        self.add(None, failure);
    }

    /// A group is over, as others say. If the cluster was over before, that is the reason for this group, too.
    pub fn revoke(&mut self, group: GroupId, failure: Failure) {
        if self.of(None).is_none() {
            self.add(Some(group), failure);
        }
    }

    /// A call is about to tell this failure. Returns what is told of the group from now on: this, unless another cause
    /// is known.
    pub fn settle(&mut self, group: GroupId, failure: Failure) -> Failure {
        let first = self.of_group(group).filter(|first| is_real(first)).cloned().unwrap_or(failure);
        self.add(Some(group), first);
        self.of_group(group).cloned().expect("there is one now")
    }

    /// What a call that is on no group tells when it ends for this reason because the cluster is over: the cluster's
    /// first cause. But if the job, or this node, is given up for good, the call tells that.
    pub fn of_call(&self, ending: &Failure) -> Failure {
        let is_for_good = matches!(ending.status, Status::Aborted | Status::Fenced);
        self.of_cluster().filter(|first| is_real(first) && !is_for_good).unwrap_or(ending).clone()
    }

    /// The program uses a group no longer.
    pub fn forget(&mut self, group: GroupId) {
        self.0.retain(|(of, _)| *of != Some(group));
    }

    fn add(&mut self, of: Option<GroupId>, failure: Failure) {
        match self.of(of) {
            Some(known) if is_real(known) || !is_real(&failure) => return,
            _ => self.0.retain(|(known, _)| *known != of),
        }
        self.0.push((of, failure));
    }

    /// Why a group is over, if it is.
    pub fn of_group(&self, group: GroupId) -> Option<&Failure> {
        let own = self.of(Some(group));
        let of_all = || self.of(None).map(|whole| self.of_all().unwrap_or(whole));
        own.filter(|own| is_real(own)).or_else(of_all).or(own)
    }

    /// What really ended the cluster as a whole, or the first of its own groups.
    fn of_all(&self) -> Option<&Failure> {
        let is_own = |of: &Option<GroupId>| of.is_none_or(|group| group <= GroupId::UNIVERSE);
        let is_of_all = |(of, failure): &&_| is_real(failure) && (is_own(of) || failure.group.is_none());
        self.0.iter().find(is_of_all).map(|(_, failure)| failure)
    }

    /// The failure that has ended the whole job for good, if a call has heard it: perhaps from a peer, before the agent
    /// thread did.
    pub fn of_job(&self) -> Option<&Failure> {
        self.of_cluster().filter(|first| first.status == Status::Aborted && first.group.is_none())
    }

    /// Why the cluster is over; if it is not, why the first group is over.
    pub fn of_cluster(&self) -> Option<&Failure> {
        let first = || self.0.iter().map(|(_, failure)| failure);
        self.of_all().or_else(|| first().find(|failure| is_real(failure))).or_else(|| first().next())
    }
}

#[cfg(all(test, not(loom)))]
#[path = "causes_test.rs"]
mod tests;
