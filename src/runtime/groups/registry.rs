//! The groups of one node, so that they can be found, told and ended: those of the present epoch, and those of epochs that are
//! over until somebody ends their threads.
//!
//! Invariant: nobody asks for what was learnt (`state/node_state`) while holding what is kept here; the other way round is right.

use super::group::Group;
use super::handle::Seat;
use crate::agent::Event;
use crate::runtime::state::node_state::{Shared, Stirred};
use crate::types::{Call, GroupId};
use crate::wire::{GroupProgress, MessageWait, PROGRESS_MAX, WAITS_MAX};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What there is of groups.
#[derive(Default)]
pub(crate) struct Kept {
    pub seats: Vec<Arc<Seat>>,
    pub retired: Vec<Arc<Group>>,
}

/// One node's groups.
pub struct Registry {
    pub(crate) shared: Arc<Shared>,
    kept: Mutex<Kept>,
}

impl Registry {
    /// No groups yet.
    pub fn new(shared: &Arc<Shared>) -> Arc<Registry> {
        Arc::new(Registry { shared: Arc::clone(shared), kept: Mutex::default() })
    }

    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The groups of the present epoch.
    pub fn groups(&self) -> Vec<Arc<Group>> {
        self.kept().seats.iter().map(|seat| seat.present()).collect()
    }

    /// The place of this group in all epochs.
    pub fn seat(&self, id: GroupId) -> Option<Arc<Seat>> {
        self.kept().seats.iter().find(|seat| seat.id() == id).cloned()
    }

    /// The group with this number in the present epoch.
    pub fn group(&self, id: GroupId) -> Option<Arc<Group>> {
        self.seat(id).map(|seat| seat.present())
    }

    /// Groups of epochs that are over; each is given once, to be ended.
    pub(crate) fn take_retired(&self) -> Vec<Arc<Group>> {
        std::mem::take(&mut self.kept().retired)
    }

    /// Files what the brain tells, and makes the groups that it ends look up. (The agent thread's side.)
    pub fn file(&self, event: Event) {
        let stirred = match self.shared.file(event) {
            Stirred::Nobody => Vec::new(),
            Stirred::One(id) => self.group(id).into_iter().collect(),
            Stirred::All => self.groups(),
        };
        stirred.iter().for_each(|group| group.context.interrupt());
        stirred.iter().for_each(|group| group.collectives.pass_on_if_idle());
    }

    /// What a heartbeat tells of the groups: their newest calls first.
    pub(crate) fn progress(&self) -> Vec<GroupProgress> {
        let (now, groups) = (self.shared.clock.now(), self.groups());
        let parting = std::mem::take(&mut self.shared.learnt().parting);
        let newest = groups.iter().filter_map(|group| group.collectives.newest_call(now));
        let earlier = groups.iter().flat_map(|group| group.collectives.earlier_calls(now));
        newest.chain(parting).chain(earlier).take(PROGRESS_MAX).collect()
    }

    /// What it tells of messages: those that are waited for longest.
    pub(crate) fn message_waits(&self) -> Vec<MessageWait> {
        let (now, groups) = (self.shared.clock.now(), self.groups());
        let mut waits: Vec<MessageWait> = groups.iter().flat_map(|group| group.messages.waits(now)).collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.age_ms));
        waits.truncate(WAITS_MAX);
        waits
    }

    /// What this rank called on a group under this number.
    pub(crate) fn called(&self, group: GroupId, sequence: u64) -> Option<Call> {
        self.group(group)?.collectives.called(sequence)
    }
}
