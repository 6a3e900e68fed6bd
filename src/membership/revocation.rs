//! Why a group is over, and what its members called in its newest collectives.

use crate::error::Failure;
use crate::types::{Call, Time};
use std::collections::{BTreeMap, BTreeSet};

/// How many of a group's newest collectives are remembered for comparison.
const CALLS_KEPT: usize = 1024;

/// What was called in a group's newest collectives: by sequence number, with the node that was the first to say so.
#[derive(Debug, Default)]
pub(super) struct Calls {
    by_sequence: BTreeMap<u64, (Call, u32)>,
}

impl Calls {
    /// What was called in a collective, and the node that was the first to say so.
    pub(super) fn first(&self, sequence: u64) -> Option<(Call, u32)> {
        self.by_sequence.get(&sequence).copied()
    }

    /// What another node called in the same collective, if that was something else.
    pub(super) fn disagreement(&mut self, key: u32, sequence: u64, call: Call) -> Option<(u32, Call)> {
        let (first, by) = *self.by_sequence.entry(sequence).or_insert((call, key));
        if self.by_sequence.len() > CALLS_KEPT {
            self.by_sequence.pop_first();
        }
        (first.signature() != call.signature()).then_some((by, first))
    }
}

/// The first cause for which a group was revoked.
#[derive(Clone, Debug)]
pub(super) struct Revocation {
    pub(super) at: Time,
    pub(super) failure: Failure,
    /// Members whose program has gone on after it.
    pub(super) gone_on: BTreeSet<u32>,
}

impl Revocation {
    pub(super) fn new(at: Time, failure: Failure) -> Revocation {
        Revocation { at, failure, gone_on: BTreeSet::new() }
    }
}
