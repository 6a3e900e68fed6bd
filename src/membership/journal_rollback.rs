//! Detects a journal that is an older copy: somebody has put it in the place of a newer one, or the file system has
//! lost what was synced.
//!
//! Whatever a node is told by [`Formed`], [`GroupMade`] or [`StoreReply`] was durable before. When the node registers
//! again, it brings the newest number of each that it was told ([`Told`]). A scheduler that does not know that much
//! ends: it would go on with something else than what it had promised. A change of the store is counted in the order of
//! the journal, so that a scheduler that knows one change knows all before it. Each life of a node is counted by
//! itself: so nothing that others do with the copy hides the rollback, however often the copy is started.
//!
//! This cannot see what was acknowledged to nodes that have since ended or left. The scheduler serves nodes until the first
//! node registers that was told more than the scheduler knows.
//!
//! Only the word of a known life, with its token, ends a scheduler. Any other process with such a word is only
//! refused, because anybody can reach the port. Tested in `journal_rollback_test.rs`.
//!
//! [`Formed`]: crate::wire::Formed
//! [`GroupMade`]: crate::wire::GroupMade
//! [`StoreReply`]: crate::wire::StoreReply
//! [`Told`]: crate::wire::Told

use super::admission::{Newcomer, Refusal};
use super::cluster_state::ClusterState;
use super::group_table::GroupTable;
use super::node::name;
use super::standing::Presence;
use super::store::Store;
use crate::error::{Error, Status};
use crate::types::Epoch;

impl Newcomer<'_> {
    /// What this life was told, and this scheduler does not know, in words.
    pub(super) fn is_behind(&self, key: u32, store: &Store, groups: &GroupTable) -> Option<String> {
        let node = self.cluster.nodes.get(&key).filter(|node| node.presence != Presence::Left)?;
        if !self.cluster.rules.durable || self.register.instance.is_none() {
            return None;
        }
        let (told, who) = (&self.register.told, node.culprit());
        let (epoch, changes, group) = (newest_epoch(self.cluster), store.changes_of(key), groups.highest());
        if told.epoch > epoch {
            return Some(format!(
                "{who} was told of epoch {}, and the last that this scheduler knows is {}",
                told.epoch.0, epoch.0
            ));
        }
        if told.change > changes {
            let acknowledged = told.change;
            return Some(format!(
                "{who} was told that its change {acknowledged} of the store was made, and the last that this scheduler knows is {changes}"
            ));
        }
        (told.group > group).then(|| {
            format!("{who} was told of group {}, and the last that this scheduler knows is {group}", told.group)
        })
    }

    /// Checks a life that is not known here, and that was told of a later epoch: it has its place in that epoch.
    pub(super) fn check_epoch_told(&self) -> Result<(), Refusal> {
        let (register, epoch) = (self.register, newest_epoch(self.cluster));
        if !self.cluster.rules.durable || register.told.epoch <= epoch {
            return Ok(());
        }
        let reason = format!(
            "{} was told of epoch {}, and the last that this scheduler knows is {}: its journal is an older copy",
            name(register),
            register.told.epoch.0,
            epoch.0
        );
        Err((Status::Rejected, reason))
    }
}

/// The sentence with which a scheduler ends if its journal is older than what it has promised. It promises nothing any
/// more.
pub(super) fn rolled_back(words: &str) -> Error {
    let message = format!(
        "the journal is an older copy: {words}; expected the newest one in its place, or all nodes to have ended: a job \
         that is started again with this copy goes on without what came after it"
    );
    Error::new(Status::Journal, message)
}

fn newest_epoch(cluster: &ClusterState) -> Epoch {
    match cluster.job.is_complete() {
        true => cluster.epoch,
        false => Epoch(0),
    }
}

#[cfg(test)]
#[path = "journal_rollback_test.rs"]
mod tests;
