//! The first cause, as C programs get it.

use super::constants::{muster_status_t, MUSTER_CAUSE_BYTES, MUSTER_NAME_BYTES};
use super::convert::fixed;
use crate::error::Failure;
use std::ffi::c_char;

/// What broke a cluster or a group: the first cause.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct muster_failure_t {
    /// The status that the failing calls returned.
    pub status: muster_status_t,
    /// The role of the culprit, the node that caused the failure (MUSTER_ROLE_...); 0 if there is no culprit. If ranks
    /// called different collectives (MUSTER_ERR_MISMATCH), the culprit is the rank that disagrees with the majority of
    /// the group's members. If several ranks disagree, it is the lowest of them. If no call has a majority, there is no
    /// culprit.
    pub role: i32,
    /// The culprit's rank among the nodes of its role; -1 if it has none. On a process that is cut off from the others
    /// this is that process's own rank.
    pub rank: i32,
    /// The culprit's process id; 0 if there is no culprit.
    pub pid: i32,
    /// The epoch in which the failure happened.
    pub epoch: i64,
    /// The group that the failure broke: 0 is world, 1 servers, 2 universe, -1 the whole cluster. From 3 on it is a
    /// group that the program made, which error sentences call "group 3". A lost node (MUSTER_ERR_PEER_LOST) breaks the
    /// whole cluster. Then this is the group of the collective in which, or after which, the node was heard last; -1 if
    /// there is no such collective.
    pub group: i64,
    /// The number of the group's collective in which the failure was noticed, from 1; 0 if there was none. If a node
    /// was lost, this is the collective in which, or after which, the node was heard last.
    pub sequence: u64,
    /// The node's id.
    pub node_id: [c_char; MUSTER_NAME_BYTES],
    /// Its host's name.
    pub host: [c_char; MUSTER_NAME_BYTES],
    /// What happened, in words.
    pub cause: [c_char; MUSTER_CAUSE_BYTES],
}

impl From<&Failure> for muster_failure_t {
    fn from(failure: &Failure) -> muster_failure_t {
        let culprit = failure.culprit.as_ref();
        let last_call = culprit.and_then(|culprit| culprit.last_call);
        let group = last_call.map(|last| last.group).or(failure.group);
        muster_failure_t {
            status: failure.status.code(),
            role: culprit.map_or(0, |culprit| culprit.role as i32),
            rank: culprit.and_then(|culprit| culprit.rank).map_or(-1, |rank| rank as i32),
            pid: culprit.map_or(0, |culprit| culprit.pid as i32),
            epoch: failure.epoch.0 as i64,
            group: group.map_or(-1, |group| i64::from(group.0)),
            sequence: last_call.map_or(failure.sequence, |last| last.sequence),
            node_id: fixed(culprit.map_or("", |culprit| &culprit.node_id)),
            host: fixed(culprit.map_or("", |culprit| &culprit.host)),
            cause: fixed(&failure.cause),
        }
    }
}
