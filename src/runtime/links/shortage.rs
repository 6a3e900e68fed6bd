//! A node that has no descriptor left for a link says so. Then the group that needs the link ends for all members, and
//! the failure names that node and its limit.
//!
//! The node keeps one descriptor, on which it says so to a peer that dials it (`spare_descriptor`). It waits a while before that:
//! the program may close some. Deliberately absent: the limit itself (`net::limit`). Tested with processes in
//! `tests/python/test_descriptors.py`.

use crate::error::{Failure, Status};
use crate::runtime::base::link_key::LinkKey;
use crate::runtime::state::roster::Roster;

/// The reason for the end of a group: this node has no descriptor for a link that the group needs. `whose`: whose limit that is.
pub(crate) fn failure(roster: &Roster, key: LinkKey, whose: &str) -> Option<Failure> {
    let cause = format!("has no descriptor left for a link to rank {} of {}; {whose}", key.rank, key.group);
    let (status, culprit, group) = (Status::System, roster.culprit(roster.rank?), Some(key.group));
    Some(Failure { status, culprit, cause, epoch: roster.formed.epoch, group, sequence: 0 })
}
