//! Links to members that `Formed` does not list, as in a large cluster: the scheduler is asked where they are. While it is away
//! the links wait, as long as the operation that needs them may wait.
//!
//! Invariant: there is one question at a time about a member, and at most [`ASKED_MAX`] questions in all, because the
//! brain remembers only so many. Tested below, and through `mesh_test.rs`.

use crate::agent::Ask;
use crate::runtime::base::link_key::LinkKey;
use crate::types::GroupId;
use std::collections::{BTreeMap, BTreeSet};

/// How many members are asked for at a time.
const ASKED_MAX: usize = 256;
/// The bit that the numbers of these questions have. Those of callers' questions do not have it.
const OF_LINKS: Ask = 1 << 63;

/// The number of the question "where is this member?".
pub(crate) fn ask_for(index: u32) -> Ask {
    OF_LINKS | Ask::from(index)
}

/// Whether this is the number of such a question.
pub(crate) fn is_for_links(ask: Ask) -> bool {
    ask & OF_LINKS != 0
}

/// Links that wait for the scheduler's word.
#[derive(Debug, Default)]
pub(crate) struct AddressLookup {
    wanted: BTreeMap<u32, Vec<LinkKey>>,
    /// Members that have said hello, and whose node ids are not known yet.
    nameless: BTreeSet<u32>,
    asked: BTreeSet<u32>,
}

impl AddressLookup {
    /// This link waits until it is known where the member with this index is.
    pub(crate) fn wait(&mut self, index: u32, key: LinkKey) {
        let keys = self.wanted.entry(index).or_default();
        if !keys.contains(&key) {
            keys.push(key);
        }
    }

    /// A hello waits until it is known who the member with this index is.
    pub(crate) fn wait_for_name(&mut self, index: u32) {
        self.nameless.insert(index);
    }

    /// The next member to ask for.
    pub(crate) fn next(&mut self) -> Option<u32> {
        if self.asked.len() >= ASKED_MAX {
            return None;
        }
        let mut waited_for = self.wanted.keys().chain(&self.nameless).copied();
        let next = waited_for.find(|index| !self.asked.contains(index))?;
        self.asked.insert(next);
        Some(next)
    }

    /// It is known now where this member is. Returns the links that waited for that.
    pub(crate) fn found(&mut self, index: u32) -> Vec<LinkKey> {
        self.asked.remove(&index);
        self.nameless.remove(&index);
        self.wanted.remove(&index).unwrap_or_default()
    }

    /// A group has been freed.
    pub(crate) fn forget(&mut self, group: GroupId) {
        self.wanted.values_mut().for_each(|keys| keys.retain(|key| key.group != group));
        self.wanted.retain(|_, keys| !keys.is_empty());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::wire::Channel;

    fn key(group: GroupId, rank: u32) -> LinkKey {
        LinkKey::new(group, Channel::Collectives, rank)
    }

    #[test]
    fn each_is_asked_for_once_and_only_so_many_at_a_time() {
        let mut lookup = AddressLookup::default();
        for index in 0..ASKED_MAX as u32 + 2 {
            lookup.wait(index, key(GroupId::WORLD, index));
            lookup.wait(index, key(GroupId::WORLD, index));
            lookup.wait(index, key(GroupId::UNIVERSE, index));
        }
        let asked: Vec<u32> = std::iter::from_fn(|| lookup.next()).collect();
        assert_eq!(asked, (0..ASKED_MAX as u32).collect::<Vec<_>>());
        assert_eq!(lookup.found(7), [key(GroupId::WORLD, 7), key(GroupId::UNIVERSE, 7)]);
        assert_eq!((lookup.next(), lookup.next()), (Some(ASKED_MAX as u32), None));
        assert_eq!(lookup.found(7), [], "it was told already");
        lookup.forget(GroupId::WORLD);
        assert_eq!(lookup.found(8), [key(GroupId::UNIVERSE, 8)]);
        lookup.forget(GroupId::UNIVERSE);
        assert_eq!((lookup.found(9), lookup.next()), (Vec::new(), None));
    }

    #[test]
    fn its_questions_are_told_from_those_of_callers() {
        assert!(is_for_links(ask_for(0)) && is_for_links(ask_for(u32::MAX)));
        assert!(!is_for_links(1) && ask_for(3) != ask_for(4));
    }
}
