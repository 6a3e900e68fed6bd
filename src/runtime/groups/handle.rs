//! A group's handle, which stands for the group of the present epoch. A new epoch begins with new groups, whose links
//! and sequence numbers are their own. Handles stay what they are: the next group takes the place of the one before.
//!
//! Invariant: the program's calls go to the group of the epoch that its `muster_recover` returned last. An epoch may begin after that
//! call has given up. Then the agent thread has the groups of the new epoch, and the program those of the one before, which are revoked:
//! it has not been told that they are new. The next `muster_recover` shows it the new ones.

use super::group::Group;
use crate::error::Result;
use crate::types::GroupId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The place of one group in all epochs.
pub struct GroupHandle {
    id: GroupId,
    groups: Mutex<Groups>,
}

struct Groups {
    /// The group that the program has.
    present: Arc<Group>,
    /// The group of a newer epoch, which the program has not been told of yet.
    next: Option<Arc<Group>>,
}

impl GroupHandle {
    pub(super) fn new(present: Arc<Group>) -> Arc<GroupHandle> {
        Arc::new(GroupHandle { id: present.id(), groups: Mutex::new(Groups { present, next: None }) })
    }

    /// The group's id.
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// The group that the program has.
    pub fn present(&self) -> Arc<Group> {
        Arc::clone(&self.locked().present)
    }

    /// The group of the newest epoch.
    pub fn newest(&self) -> Arc<Group> {
        let groups = self.locked();
        Arc::clone(groups.next.as_ref().unwrap_or(&groups.present))
    }

    /// Takes the next epoch's group, and gives back the newest one before it.
    pub(super) fn take(&self, next: Arc<Group>) -> Arc<Group> {
        let mut groups = self.locked();
        let _ = next.set_timeout_ms(groups.present.context.timeout_ms()); // no error: it was taken before
        groups.next.replace(next).unwrap_or_else(|| Arc::clone(&groups.present))
    }

    /// Sets how long an operation may take, as [`Group::set_timeout_ms`], in this epoch and those to come.
    pub fn set_timeout_ms(&self, timeout_ms: i64) -> Result<()> {
        let groups = self.locked();
        groups.present.set_timeout_ms(timeout_ms)?;
        groups.next.as_ref().map_or(Ok(()), |next| next.set_timeout_ms(timeout_ms))
    }

    /// From now on the program has the newest group.
    pub(super) fn show(&self) {
        let mut groups = self.locked();
        if let Some(next) = groups.next.take() {
            groups.present = next;
        }
    }

    fn locked(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
