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
    /// The role of the node that caused it (MUSTER_ROLE_...); 0 where none did. If ranks called different collectives
    /// (MUSTER_ERR_MISMATCH) that is the rank that called something else than most of the group's members. If several did,
    /// it is the lowest rank. If no call has a majority, there is no culprit.
    pub role: i32,
    /// Its rank among the nodes of its role; -1 where it has none. On a process that is cut off from the others it is
    /// that process's own rank.
    pub rank: i32,
    /// Its process; 0 where none caused it.
    pub pid: i32,
    /// The epoch in which it happened.
    pub epoch: i64,
    /// The group that it broke: 0 world, 1 servers, 2 universe, 3 and up one that was made, which sentences call
    /// "group 3"; -1: the whole cluster. A lost node (MUSTER_ERR_PEER_LOST) breaks the whole cluster. Then this is the
    /// group of the collective in which, or after which, it was heard last; -1 where it was heard in none.
    pub group: i64,
    /// The group's collective in which it was noticed, counted from 1; 0 where there was none. Of a lost node: the one in
    /// which, or after which, it was heard last.
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
