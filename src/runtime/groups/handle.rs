//! A group's handle, which stands for the group of the present epoch. A new epoch begins with new groups, whose links
//! and sequence numbers are their own. Handles stay what they are: the next group takes the place of the one before.

use super::group::Group;
use crate::types::GroupId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The place of one group in all epochs.
pub struct GroupHandle {
    id: GroupId,
    present: Mutex<Arc<Group>>,
}

impl GroupHandle {
    pub(super) fn new(group: Arc<Group>) -> Arc<GroupHandle> {
        Arc::new(GroupHandle { id: group.id(), present: Mutex::new(group) })
    }

    /// The group's id.
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// The group of the present epoch.
    pub fn present(&self) -> Arc<Group> {
        Arc::clone(&self.locked())
    }

    /// Takes the next epoch's group, and gives the one before back.
    pub(super) fn take(&self, next: Arc<Group>) -> Arc<Group> {
        std::mem::replace(&mut *self.locked(), next)
    }

    fn locked(&self) -> MutexGuard<'_, Arc<Group>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
