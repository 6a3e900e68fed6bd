//! A question to the members of one group that called different collectives under one number. `comparing.rs` asks it.

use crate::error::Failure;
use crate::types::{Call, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What the members of one group are asked.
#[derive(Debug)]
pub(super) struct Dispute {
    pub(super) id: u64,
    pub(super) sequence: u64,
    /// What is known of what they called.
    pub(super) calls: BTreeMap<u32, Call>,
    /// The members whose call is not known, and who may still tell it.
    pub(super) asked: BTreeSet<u32>,
    /// The members among them that have not answered at all.
    pub(super) waiting: BTreeSet<u32>,
    /// When their time is up.
    pub(super) until: Time,
    /// The reason for the group's end if all members called the same, as far as the calls become known.
    pub(super) otherwise: Option<Failure>,
}

impl Dispute {
    /// Whether nothing more is to be learnt, in a group of so many: the others may not call the collective for a long
    /// time.
    pub(super) fn is_settled(&self, size: usize) -> bool {
        self.asked.is_empty() || (self.waiting.is_empty() && common(&self.calls, size).is_some())
    }
}

/// What a strict majority of so many members called, and how many those are.
pub(super) fn common(calls: &BTreeMap<u32, Call>, size: usize) -> Option<(Call, usize)> {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    calls.values().for_each(|call| *counts.entry(call.signature()).or_default() += 1);
    let (signature, count) = counts.into_iter().find(|(_, count)| 2 * count > size)?;
    Some((*calls.values().find(|call| call.signature() == signature)?, count))
}
