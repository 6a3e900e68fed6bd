//! What a group's handle stands for: the group of the present epoch. A new epoch begins with new groups, whose links and
//! sequence numbers are their own; handles stay what they are, for behind each is a seat that the next group takes.

use super::group::Group;
use super::registry::Registry;
use crate::error::{Error, Failure, Result};
use crate::runtime::state::causes::Causes;
use crate::runtime::state::roster::built_in;
use crate::types::GroupId;
use crate::wire::{Formed, GroupMade, Member};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The place of one group in all epochs.
pub struct Seat {
    id: GroupId,
    present: Mutex<Arc<Group>>,
}

impl Seat {
    fn new(group: Arc<Group>) -> Arc<Seat> {
        Arc::new(Seat { id: group.id(), present: Mutex::new(group) })
    }

    /// Which group.
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// The group of the present epoch.
    pub fn present(&self) -> Arc<Group> {
        Arc::clone(&self.locked())
    }

    /// The next epoch's group; gives the one before back.
    fn take(&self, next: Arc<Group>) -> Arc<Group> {
        std::mem::replace(&mut *self.locked(), next)
    }

    fn locked(&self) -> MutexGuard<'_, Arc<Group>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An epoch has begun: makes its groups, those that the user made included, and files it. (The agent thread's side.)
pub(crate) fn form(registry: &Arc<Registry>, formed: &Arc<Formed>, timeout_ms: i64) -> Result<Vec<Arc<Group>>> {
    let (shared, seats) = (&registry.shared, registry.kept().seats.clone());
    let groups: Result<Vec<Arc<Group>>> = if seats.is_empty() {
        let ids = [GroupId::WORLD, GroupId::SERVERS, GroupId::UNIVERSE].into_iter();
        ids.map(|id| Group::new(id, built_in(id, formed), registry, formed, timeout_ms).map(Arc::new)).collect()
    } else {
        seats.iter().map(|seat| seat.present().renewed(registry, formed).map(Arc::new)).collect()
    };
    let mut groups = groups?;
    keep_causes(registry);
    let mut over = Vec::new();
    shared.learn(|learnt| {
        let mut kept = registry.kept();
        if seats.is_empty() {
            kept.seats = groups.iter().map(|group| Seat::new(Arc::clone(group))).collect();
        } else {
            // Somebody may have freed one since.
            groups.retain(|group| kept.seats.iter().any(|seat| seat.id() == group.id()));
        }
        for group in &groups {
            let seat = seats.iter().find(|seat| seat.id() == group.id());
            over.extend(seat.map(|seat| seat.take(Arc::clone(group))));
        }
        kept.retired.extend(over.iter().cloned());
        learnt.formed = Some(Arc::clone(formed));
        learnt.broken = None;
        learnt.aborted = None;
        learnt.lost.clear();
        learnt.causes = Causes::default();
        learnt.peers.clear();
        learnt.parting.clear();
    });
    over.iter().for_each(|group| group.context.interrupt());
    Ok(groups)
}

/// What ended the epoch stays the cause for those who have not woken up yet to hear it.
fn keep_causes(registry: &Registry) {
    for group in registry.groups() {
        let first = registry.shared.first_cause(group.id(), group.epoch());
        if let Some(first) = first {
            group.context.break_with(first);
        }
    }
}

/// A group has been made; none where this node is not in it, or nobody waits for it any more; or why it cannot be here, for the
/// other members. (The agent thread's side.)
pub(crate) fn made(
    registry: &Arc<Registry>,
    made: GroupMade,
    timeout_ms: i64,
) -> std::result::Result<Option<Arc<Group>>, Box<Failure>> {
    let shared = &registry.shared;
    let Some(formed) = shared.learnt().formed.clone() else { return Ok(None) };
    let key = (formed.epoch, made.parent, made.nth);
    let group = made.group.map(|id| Group::new(id, made.members, registry, &formed, timeout_ms).map(Arc::new));
    let group = group.transpose();
    let mut wanted = Ok(None);
    shared.learn(|learnt| {
        if learnt.making.contains(&key) {
            wanted = group.clone().map_err(|error| cannot_make(&formed, made.group, &error));
            let mut kept = registry.kept();
            let id = group.map(|group| {
                kept.seats.extend(group.map(Seat::new));
                made.group
            });
            if let Some(parent) = kept.seats.iter().find(|seat| seat.id() == key.1) {
                parent.present().has_made(key.2); // the caller may wake in another epoch
            }
            learnt.made.insert(key, id);
        }
    });
    wanted
}

fn cannot_make(formed: &Formed, group: Option<GroupId>, error: &Error) -> Box<Failure> {
    let culprit = formed.members.find(formed.index).as_ref().map(Member::culprit);
    let (status, cause) = (error.status(), format!("cannot make the group: {}", error.message()));
    Box::new(Failure { status, culprit, cause, epoch: formed.epoch, group, sequence: 0 })
}

#[cfg(all(test, not(loom)))]
#[path = "handle_test.rs"]
mod tests;
