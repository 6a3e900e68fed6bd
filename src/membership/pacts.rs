//! The groups that their members make by themselves: those that are open, and those that are made.
//!
//! Invariant: an open group waits for somebody. Tested in `by_members_test.rs`, through the whole brain.

use crate::types::GroupId;
use crate::wire::{ByMembersRecord, GroupRecord};
use std::collections::{BTreeMap, BTreeSet};

/// How many ranks, or awaited members, a sentence names.
pub(super) const NAMED_MAX: usize = 4;

/// The name of such a group: it is the n-th that these members make under this tag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    /// The members' indices, in order of rank.
    pub(super) members: Vec<u32>,
    pub(super) tag: String,
    pub(super) nth: u64,
}

/// The state of such a group.
#[derive(Debug)]
enum Pact {
    /// These members wait for the others, each with the number of its question.
    Open(BTreeMap<u32, u64>),
    Made(GroupId),
}

/// All groups that their members make by themselves.
#[derive(Debug, Default)]
pub(super) struct Pacts(BTreeMap<Name, Pact>);

impl Name {
    /// Whether there can be such a group, among so many workers.
    pub(super) fn can_be(&self, workers: u32) -> bool {
        let distinct: BTreeSet<&u32> = self.members.iter().collect();
        self.nth > 0
            && !self.members.is_empty()
            && distinct.len() == self.members.len()
            && self.members.iter().all(|member| *member < workers)
    }

    /// The record that is written down of it.
    pub(super) fn record(&self, group: GroupId, used: bool) -> ByMembersRecord {
        let group = GroupRecord { group, members: self.members.clone(), used };
        ByMembersRecord { tag: self.tag.clone(), nth: self.nth, group }
    }

    /// `the group of ranks 0, 1, 2 with the tag "x"`
    pub(super) fn in_words(&self) -> String {
        let ranks: Vec<String> = self.members.iter().take(2 * NAMED_MAX).map(u32::to_string).collect();
        let more = if ranks.len() < self.members.len() { ", ..." } else { "" };
        format!("the group of ranks {}{more} with the tag {:?}", ranks.join(", "), self.tag)
    }
}

impl Pacts {
    /// The group of this name, if it was made.
    pub(super) fn made(&self, name: &Name) -> Option<GroupId> {
        match self.0.get(name) {
            Some(Pact::Made(group)) => Some(*group),
            _ => None,
        }
    }

    /// Whether this group was made by its members alone, with this node among them.
    pub(super) fn has_made(&self, group: GroupId, key: u32) -> bool {
        let is_it = |(name, pact): (&Name, &Pact)| {
            matches!(pact, Pact::Made(made) if *made == group) && name.members.contains(&key)
        };
        self.0.iter().any(is_it)
    }

    /// The names of the groups that are open.
    pub(super) fn open(&self) -> impl Iterator<Item = &Name> {
        self.0.iter().filter(|(_, pact)| matches!(pact, Pact::Open(_))).map(|(name, _)| name)
    }

    /// The number of open groups for which a node waits.
    pub(super) fn open_by(&self, key: u32) -> usize {
        self.0.values().filter(|pact| matches!(pact, Pact::Open(asks) if asks.contains_key(&key))).count()
    }

    /// Whether a node waits for this group.
    pub(super) fn waits(&self, name: &Name, key: u32) -> bool {
        matches!(self.0.get(name), Some(Pact::Open(asks)) if asks.contains_key(&key))
    }

    /// A node that waits for another list of members under the same tag, where both nodes are in both lists.
    pub(super) fn disagreement(&self, name: &Name, key: u32) -> Option<(u32, Name)> {
        self.0.iter().find_map(|(open, pact)| {
            let Pact::Open(asks) = pact else { return None };
            let is_other = open.tag == name.tag && open.members != name.members;
            if !is_other || !open.members.contains(&key) || asks.contains_key(&key) {
                return None;
            }
            let other = asks.keys().find(|other| **other != key && name.members.contains(other))?;
            Some((*other, open.clone()))
        })
    }

    /// A node waits for this group, which is not made yet. Returns the questions of all members once all have asked.
    pub(super) fn join(&mut self, name: &Name, key: u32, ask: u64) -> Option<BTreeMap<u32, u64>> {
        let pact = self.0.entry(name.clone()).or_insert_with(|| Pact::Open(BTreeMap::new()));
        let Pact::Open(asks) = pact else { return None };
        asks.insert(key, ask);
        (asks.len() == name.members.len()).then(|| std::mem::take(asks))
    }

    /// A node does not wait for this group any more.
    pub(super) fn withdraw(&mut self, name: &Name, key: u32) {
        if let Some(Pact::Open(asks)) = self.0.get_mut(name) {
            asks.remove(&key);
            if asks.is_empty() {
                self.0.remove(name);
            }
        }
    }

    /// This open group will not be made. Returns the questions of the nodes that wait for it.
    pub(super) fn end(&mut self, name: &Name) -> BTreeMap<u32, u64> {
        match self.0.remove(name) {
            Some(Pact::Open(asks)) => asks,
            Some(made) => {
                self.0.insert(name.clone(), made);
                BTreeMap::new()
            }
            None => BTreeMap::new(),
        }
    }

    /// The group of this name is made, with this number.
    pub(super) fn is_made(&mut self, name: Name, group: GroupId) {
        self.0.insert(name, Pact::Made(group));
    }

    /// The records of all that are made.
    pub(super) fn records(&self, is_used: impl Fn(GroupId) -> bool) -> Vec<ByMembersRecord> {
        let made = self.0.iter().filter_map(|(name, pact)| match pact {
            Pact::Made(group) => Some(name.record(*group, is_used(*group))),
            Pact::Open(_) => None,
        });
        made.collect()
    }

    /// An epoch is over: the groups that were still open in it will not be made.
    pub(super) fn forget_open(&mut self) {
        self.0.retain(|_, pact| matches!(pact, Pact::Made(_)));
    }

    /// Nobody uses this group any more, and nobody comes back to make it again.
    pub(super) fn forget(&mut self, group: GroupId) {
        self.0.retain(|_, pact| !matches!(pact, Pact::Made(made) if *made == group));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
