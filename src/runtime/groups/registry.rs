//! The groups of one node, so that they can be found, told and ended: the groups of the present epoch, and those of
//! past epochs until somebody ends their threads.
//!
//! Invariant: a thread that holds the lock of this registry does not ask for the node's view (`state/node_state`). The
//! other way round is right.

use super::group::Group;
use super::handle::GroupHandle;
use crate::agent::Event;
use crate::error::{Error, Failure, Result, Status};
use crate::runtime::state::node_state::{EpochView, NodeState, Stirred};
use crate::runtime::state::roster::built_in;
use crate::types::{hash, Call, GroupId};
use crate::wire::{
    Formed, GroupCarrier, GroupMade, GroupProgress, MakeByMembers, Member, MessageWait, PeerState, CARRIERS_MAX,
    FEATURE_CARRIERS, PROGRESS_MAX, WAITS_MAX,
};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The standing of a member, as far as this node has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In the cluster.
    Present,
    /// The member is lost: the cluster is broken because of it.
    Lost,
    /// It has left, and a call that needed it found out.
    Left,
}

/// The groups that are kept, and what is known of their making.
#[derive(Default)]
pub(crate) struct Kept {
    pub handles: Vec<Arc<GroupHandle>>,
    pub retired: Vec<Arc<Group>>,
    /// How many groups were made of a list of members under a tag, by the hash of both: lists and tags may be long, and a
    /// count stays for good. No two are expected to have one hash of 64 bits.
    pub by_members: HashMap<u64, u64>,
    /// The members (indices, in order of rank) and the tags of the groups that this process makes just now.
    pub creating: HashSet<(Vec<u32>, String)>,
}

/// A number for a list of members and a tag, the same on all members.
pub(super) fn hash_of(members: &[u32], tag: &str) -> u64 {
    let length = std::iter::once(members.len() as u64);
    hash(length.chain(members.iter().map(|member| u64::from(*member))).chain(tag.bytes().map(u64::from)))
}

/// One node's groups.
pub struct Registry {
    pub(crate) state: Arc<NodeState>,
    kept: Mutex<Kept>,
}

impl Registry {
    /// A registry without groups.
    pub fn new(state: &Arc<NodeState>) -> Arc<Registry> {
        Arc::new(Registry { state: Arc::clone(state), kept: Mutex::default() })
    }

    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The groups of the newest epoch.
    pub fn groups(&self) -> Vec<Arc<Group>> {
        self.kept().handles.iter().map(|handle| handle.newest()).collect()
    }

    /// The program goes on in the newest epoch.
    pub(crate) fn show(&self) {
        self.kept().handles.iter().for_each(|handle| handle.show());
    }

    /// The place of this group in all epochs.
    pub fn handle(&self, id: GroupId) -> Option<Arc<GroupHandle>> {
        self.kept().handles.iter().find(|handle| handle.id() == id).cloned()
    }

    /// The group with this number in the newest epoch.
    pub fn group(&self, id: GroupId) -> Option<Arc<Group>> {
        self.handle(id).map(|handle| handle.newest())
    }

    /// Takes the groups of past epochs out; each is given once, to be ended.
    pub(crate) fn take_retired(&self) -> Vec<Arc<Group>> {
        std::mem::take(&mut self.kept().retired)
    }

    /// An epoch has begun: makes its groups, also those that the user made, and files the epoch. (The agent thread's
    /// side.)
    pub(crate) fn form(&self, formed: &Arc<Formed>, timeout_ms: i64) -> Result<Vec<Arc<Group>>> {
        let (state, handles) = (&self.state, self.kept().handles.clone());
        let groups: Result<Vec<Arc<Group>>> = if handles.is_empty() {
            let ids = [GroupId::WORLD, GroupId::SERVERS, GroupId::UNIVERSE].into_iter();
            ids.map(|id| Group::new(id, built_in(id, formed), state, formed, timeout_ms).map(Arc::new)).collect()
        } else {
            handles.iter().map(|handle| handle.newest().renewed(formed).map(Arc::new)).collect()
        };
        let mut groups = groups?;
        self.keep_causes();
        let mut over = Vec::new();
        state.learn(|view| {
            let mut kept = self.kept();
            if handles.is_empty() {
                kept.handles = groups.iter().map(|group| GroupHandle::new(Arc::clone(group))).collect();
            } else {
                // Somebody may have freed a group since.
                groups.retain(|group| kept.handles.iter().any(|handle| handle.id() == group.id()));
            }
            for group in &groups {
                let handle = handles.iter().find(|handle| handle.id() == group.id());
                over.extend(handle.map(|handle| handle.take(Arc::clone(group))));
            }
            kept.retired.extend(over.iter().cloned());
            view.epoch = EpochView::of(Arc::clone(formed));
        });
        over.iter().for_each(|group| group.context.interrupt());
        Ok(groups)
    }

    /// Keeps what ended the epoch as the cause, for calls that have not woken up yet to hear it.
    fn keep_causes(&self) {
        for group in self.groups() {
            let first = self.state.first_cause(group.id(), group.epoch());
            if let Some(first) = first {
                group.context.break_with(first);
            }
        }
    }

    /// A group has been made. There is none if this node is not in it, or nobody waits for it any more. Returns why the
    /// group cannot be here, for the other members. (The agent thread's side.)
    pub(crate) fn made(
        &self,
        made: GroupMade,
        timeout_ms: i64,
    ) -> std::result::Result<Option<Arc<Group>>, Box<Failure>> {
        let state = &self.state;
        let Some(formed) = state.view().epoch.formed.clone() else { return Ok(None) };
        let key = (formed.epoch, made.parent, made.nth);
        let group = made.group.map(|id| Group::new(id, made.members, state, &formed, timeout_ms).map(Arc::new));
        let group = group.transpose();
        let mut wanted = Ok(None);
        state.learn(|view| {
            if view.creating.contains(&key) {
                wanted = group.clone().map_err(|error| cannot_make(&formed, made.group, &error));
                let mut kept = self.kept();
                let id = group.map(|group| {
                    kept.handles.extend(group.map(GroupHandle::new));
                    made.group
                });
                if let Some(parent) = kept.handles.iter().find(|handle| handle.id() == key.1) {
                    parent.newest().has_made(key.2); // the caller may wake in another epoch
                }
                view.made.insert(key, id);
            }
        });
        wanted
    }

    /// A group that its members make alone has been made, or refused. (The agent thread's side.)
    pub(crate) fn made_by_members(
        &self,
        wanted: MakeByMembers,
        outcome: Result<GroupId>,
        timeout_ms: i64,
    ) -> std::result::Result<Option<Arc<Group>>, Box<Failure>> {
        let MakeByMembers { ask, tag, nth, members, .. } = wanted;
        let state = &self.state;
        let Some(formed) = state.view().epoch.formed.clone() else { return Ok(None) };
        let id = outcome.as_ref().ok().copied();
        let group = outcome.and_then(|id| Group::new(id, members.clone(), state, &formed, timeout_ms).map(Arc::new));
        let mut wanted = Ok(None);
        state.learn(|view| {
            let mut kept = self.kept();
            // If nobody waits any more, the program will ask for this group again.
            let Some(waits) = view.by_members.get_mut(&ask) else { return };
            if id.is_some() {
                kept.by_members.insert(hash_of(&members, &tag), nth); // the others have it, also if this process cannot make it
            }
            match (id, &group) {
                (Some(id), Err(error)) => wanted = Err(cannot_make(&formed, Some(id), error)),
                (_, Ok(group)) => {
                    kept.handles.push(GroupHandle::new(Arc::clone(group)));
                    wanted = Ok(Some(Arc::clone(group)));
                }
                (None, Err(_)) => {}
            }
            *waits = Some(group.map(|group| group.id()));
        });
        wanted
    }

    /// Keeps what the brain tells, and makes the groups that it ends look up. (The agent thread's side.)
    pub fn file(&self, event: Event) {
        let stirred = match self.state.file(event) {
            Stirred::Nobody => Vec::new(),
            Stirred::One(id) => self.group(id).into_iter().collect(),
            Stirred::All => self.groups(),
        };
        stirred.iter().for_each(|group| group.context.interrupt());
        stirred.iter().for_each(|group| group.collectives.pass_on_if_idle());
    }

    /// The member with this rank, and its standing. Asks the scheduler, if `Formed` did not tell of the member.
    pub fn find_member(&self, group: &Group, rank: i32) -> Result<(Member, Standing)> {
        let index = group.context.checked_index(rank)?;
        group.context.refuse_if_freed()?;
        let state = &self.state;
        let member = state.member(group.context.formed(), index)?;
        let (broken, reported, is_lost) = {
            let view = state.view();
            let left = matches!(view.epoch.peers.get(&index), Some((PeerState::Left, _)));
            (view.epoch.broken.clone(), left, view.epoch.lost.contains(&index))
        };
        let blames = |failure: &Failure, status| {
            failure.status == status
                && failure.culprit.as_ref().is_some_and(|culprit| culprit.node_id == member.node_id)
        };
        // A call usually learns over its link that a member has left. Then the group's first cause says so, or the
        // group's messages do (if only a message ended). In a group that the program made, the member may have left
        // only that group.
        let left = |group: &Arc<Group>| {
            let ended_by_it = || group.context.told().is_some_and(|failure| blames(&failure, Status::PeerLeft));
            !group.is_made() && (ended_by_it() || group.messages.has_missed(index))
        };
        let is_first = |failure: &Failure| blames(failure, Status::PeerLost);
        let standing = match () {
            () if is_lost || broken.as_ref().is_some_and(is_first) => Standing::Lost,
            () if reported || self.groups().iter().any(left) => Standing::Left,
            () => Standing::Present,
        };
        Ok((member, standing))
    }

    /// What a heartbeat tells of the groups: their newest calls first.
    pub(crate) fn progress(&self) -> Vec<GroupProgress> {
        let (now, groups) = (self.state.clock.now(), self.groups());
        let parting = std::mem::take(&mut self.state.view().epoch.parting);
        let newest = groups.iter().filter_map(|group| group.log(|log| log.newest(group.id(), now)));
        let earlier = groups.iter().flat_map(|group| group.log(|log| log.earlier(group.id(), now)));
        newest.chain(parting).chain(earlier).take(PROGRESS_MAX).collect()
    }

    /// What a heartbeat tells of messages: those that have waited longest.
    pub(crate) fn message_waits(&self) -> Vec<MessageWait> {
        let (now, groups) = (self.state.clock.now(), self.groups());
        let mut waits: Vec<MessageWait> = groups.iter().flat_map(|group| group.messages.waits(now)).collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.age_ms));
        waits.truncate(WAITS_MAX);
        waits
    }

    /// What a heartbeat tells of the groups' carriers. Each group's rank 0 tells, because all members have found out
    /// the same.
    pub(crate) fn carriers(&self) -> Vec<GroupCarrier> {
        let groups = self.groups();
        let wanted = |group: &&Arc<Group>| group.context.formed().features.0 & FEATURE_CARRIERS != 0;
        let own = groups.iter().filter(|group| group.context.rank() == Some(0)).filter(wanted);
        own.filter_map(|group| group.collectives.carrier.get().cloned()).take(CARRIERS_MAX).collect()
    }

    /// The call that this rank made on a group under this number.
    pub(crate) fn called(&self, group: GroupId, sequence: u64) -> Option<Call> {
        self.group(group)?.log(|log| log.called(sequence))
    }
}

fn cannot_make(formed: &Formed, group: Option<GroupId>, error: &Error) -> Box<Failure> {
    let culprit = formed.members.find(formed.index).as_ref().map(Member::culprit);
    let (status, cause) = (error.status(), format!("cannot make the group: {}", error.message()));
    Box::new(Failure { status, culprit, cause, epoch: formed.epoch, group, sequence: 0 })
}

#[cfg(all(test, not(loom)))]
#[path = "registry_test.rs"]
mod tests;
