//! A node that has no descriptor left for a link says so: the group that needs the link is over for all, by the name of that
//! node, with its limit.
//!
//! It can say so to a peer that dials it because it keeps one descriptor for that (`spare_descriptor`). It waits a while before, in
//! which the program may close some. Deliberately absent: the limit itself (`net::limit`). Tested with processes in
//! `tests/python/test_descriptors.py`.

use crate::error::{Failure, Status};
use crate::runtime::base::link_key::LinkKey;
use crate::runtime::state::roster::Roster;

/// Why a group is over of which this node cannot have a link. `whose`: whose limit that is.
pub(crate) fn failure(roster: &Roster, key: LinkKey, whose: &str) -> Option<Failure> {
    let cause = format!("has no descriptor left for a link to rank {} of {}; {whose}", key.rank, key.group);
    let (status, culprit, group) = (Status::System, roster.culprit(roster.rank?), Some(key.group));
    Some(Failure { status, culprit, cause, epoch: roster.formed.epoch, group, sequence: 0 })
}
