//! The kinds of trouble that a simulation makes, and how often it made each.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// A message took much longer than its neighbours.
    MessageDelayed,
    /// A message overtook one that had been sent earlier over another connection, or in the other lane.
    Reordered,
    /// A message was lost with its connection.
    MessageLost,
    /// A connection ended at both ends.
    ConnectionLost,
    /// A connection ended at one end; the other learns of it when it sends.
    HalfOpenReset,
    /// A connection ended at one end; the other never hears again.
    HalfOpenSilent,
    /// A connection carried nothing for a while, then everything.
    Stall,
    /// A node was cut off from everybody.
    Isolation,
    /// An attempt to connect got no answer.
    ConnectLost,
    /// An attempt to connect met nobody.
    ConnectRefused,
    /// A life of a node registered once more.
    RepeatedRegistration,
    LateNode,
    LateScheduler,
    /// No scheduler at all.
    NoScheduler,
    /// A process ended without leaving.
    NodeKilled,
    /// A process said that it ends without leaving.
    LastWord,
    /// A host vanished without a word.
    HostVanished,
    /// A process ended because of another's end.
    Consequence,
    /// A node died before the cluster was complete, and another life took its place.
    Replaced,
    DuplicateId,
    WrongWorkerNum,
    Surplus,
    OneTooFew,
    /// Somebody else connected to the scheduler's port.
    Stranger,
    Abort,
    /// Two ranks called different collectives.
    Mismatch,
    Revocation,
    /// A live peer was suspected.
    WrongSuspicion,
    /// A node's process stood still for a while.
    NodePaused,
    SchedulerPaused,
}

impl Fault {
    pub(super) const ALL: [Fault; 30] = [
        Fault::MessageDelayed,
        Fault::Reordered,
        Fault::MessageLost,
        Fault::ConnectionLost,
        Fault::HalfOpenReset,
        Fault::HalfOpenSilent,
        Fault::Stall,
        Fault::Isolation,
        Fault::ConnectLost,
        Fault::ConnectRefused,
        Fault::RepeatedRegistration,
        Fault::LateNode,
        Fault::LateScheduler,
        Fault::NoScheduler,
        Fault::NodeKilled,
        Fault::LastWord,
        Fault::HostVanished,
        Fault::Consequence,
        Fault::Replaced,
        Fault::DuplicateId,
        Fault::WrongWorkerNum,
        Fault::Surplus,
        Fault::OneTooFew,
        Fault::Stranger,
        Fault::Abort,
        Fault::Mismatch,
        Fault::Revocation,
        Fault::WrongSuspicion,
        Fault::NodePaused,
        Fault::SchedulerPaused,
    ];
}

/// How many of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally(BTreeMap<Fault, u64>);

impl Tally {
    pub(super) fn count(&mut self, fault: Fault) {
        *self.0.entry(fault).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Tally) {
        other.0.iter().for_each(|(fault, times)| *self.0.entry(*fault).or_default() += times);
    }

    pub(super) fn of(&self, fault: Fault) -> u64 {
        self.0.get(&fault).copied().unwrap_or(0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Fault::ALL.iter().try_for_each(|fault| writeln!(f, "{:>8}  {fault:?}", self.of(*fault)))
    }
}
