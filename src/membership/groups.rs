//! The groups of an epoch: which there are, what their members call, and which are revoked.
//!
//! `revoking.rs` ends groups, `comparing.rs` compares what their members call, `creation.rs` makes and frees them. Each
//! of these files calls those before it.

use super::dispute::Dispute;
use super::group_table::GroupTable;
use super::revocation::{Calls, Revocation};
use crate::types::{GroupId, Time};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// All groups.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) table: GroupTable,
    pub(super) revoked: BTreeMap<GroupId, Revocation>,
    pub(super) calls: HashMap<GroupId, Calls>,
    pub(super) disputes: BTreeMap<GroupId, Dispute>,
    pub(super) next_dispute: u64,
}

impl Groups {
    pub(super) fn new(table: GroupTable) -> Groups {
        Groups { table, revoked: BTreeMap::new(), calls: HashMap::new(), disputes: BTreeMap::new(), next_dispute: 0 }
    }

    pub(super) fn is_revoked(&self, group: GroupId) -> bool {
        self.revoked.contains_key(&group)
    }

    /// Every group, the built-in ones first.
    pub(super) fn all(&self) -> impl Iterator<Item = GroupId> {
        [GroupId::WORLD, GroupId::SERVERS, GroupId::UNIVERSE].into_iter().chain(self.table.all())
    }

    /// A new epoch: no group of it is over.
    pub(super) fn begin_epoch(&mut self) {
        self.revoked.clear();
        self.calls.clear();
        self.disputes.clear();
        self.table.begin_epoch();
    }

    /// The scheduler itself stood still for this long.
    pub(super) fn forgive(&mut self, late: Duration, now: Time) {
        self.revoked.values_mut().for_each(|revoked| revoked.at.forgive(late, now));
    }
}
