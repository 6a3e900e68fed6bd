//! When the scheduler's brain wants to be woken, and for what.
//!
//! Invariant: an entry is a hint, not a promise. The code that handles one looks at the state it concerns, so entries
//! are never searched for and cancelled. Tested through the whole brain in `liveness_test.rs`.

use crate::types::{GroupId, Time};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long the answer "nothing is wrong with it" is held back: the node's end may be noticed in a moment. A node's message
/// that comes within this time of its loss, or of a launcher's word of its end, may have been sent before that.
pub(super) const HELD: Duration = Duration::from_millis(150);

/// How long the nodes that are asked may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The oldest connection that has not registered has had its time.
    Greeting,
    /// Say how far forming is.
    FormingLine,
    /// Look at every node's last sign of life.
    Tick,
    /// Look again at this node, whose connection has ended, or whose loss waits for another node's judgement.
    Judge(u32),
    /// Answer this node's held suspicions.
    Answer(u32),
    /// Answer this question about absent members with what is known.
    Query(u64),
    /// Members of this group have had their time to answer what they called.
    Dispute(GroupId, u64),
    /// Members that make a group have had their time to say what they called before.
    Creations,
    /// The survivors of a broken job have had their time.
    Linger,
    /// Say who is awaited for the next epoch.
    RecoveryLine,
    /// All nodes are lost, and none has come back.
    Vacant,
}

/// Everything due, in order.
#[derive(Debug, Default)]
pub(super) struct Timers {
    entries: BTreeSet<(Time, Due)>,
}

impl Timers {
    pub(super) fn at(&mut self, time: Time, due: Due) {
        self.entries.insert((time, due));
    }

    pub(super) fn first(&self) -> Option<Time> {
        self.entries.first().map(|(time, _)| *time)
    }

    /// Takes the next entry that is due now.
    pub(super) fn take(&mut self, now: Time) -> Option<Due> {
        let (time, due) = *self.entries.first()?;
        (time <= now).then(|| {
            self.entries.remove(&(time, due));
            due
        })
    }

    /// Moves every entry: the scheduler itself was late.
    pub(super) fn shift(&mut self, late: Duration) {
        self.entries = std::mem::take(&mut self.entries).into_iter().map(|(time, due)| (time + late, due)).collect();
    }
}
