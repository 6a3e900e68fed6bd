//! What happened in which phase, how often: the table that says what the stories reach.

use super::cells::{cells, required, unaimed, BESIDE};
use crate::wire::{Message, Record};
use std::collections::BTreeMap;
use std::fmt;

/// How far a story is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// No epoch has been told yet.
    Forming,
    /// All nodes work in one epoch.
    Running,
    /// Somebody is lost, or has given up the present epoch.
    Recovering,
    /// Somebody has begun to leave.
    Finishing,
    /// All of a story without recovery.
    Once,
}

impl Phase {
    /// The phases of a story with recovery.
    pub(super) const ALL: [Phase; 4] = [Phase::Forming, Phase::Running, Phase::Recovering, Phase::Finishing];
}

/// Declares what the scheduler writes down.
macro_rules! written {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// What the scheduler writes down.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Written {
            $($(#[$about])* $name,)*
        }

        impl Written {
            pub(super) const ALL: &[Written] = &[$(Written::$name,)*];
        }
    };
}

written! {
    /// A job begins, and with it its scheduler's first start.
    Job,
    /// The scheduler is started again.
    Generation,
    Epoch,
    Creation,
    Freed,
    Store,
    Left,
    Abandoned,
    Done,
}

impl Written {
    pub(super) fn of(record: &Record) -> Written {
        match record {
            Record::Job(_) => Written::Job,
            Record::Generation(_) => Written::Generation,
            Record::Epoch(_) => Written::Epoch,
            Record::Creation(_) | Record::ByMembers(_) => Written::Creation,
            Record::Freed(_) => Written::Freed,
            Record::Store(_) => Written::Store,
            Record::Left(_) => Written::Left,
            Record::Abandoned(_) => Written::Abandoned,
            Record::Done => Written::Done,
        }
    }
}

/// One kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    NodeKilled,
    NodeVanished,
    SeveralKilled,
    AllButOne,
    /// A program aborts the job.
    Aborted,
    NodeStopped,
    /// A process that was replaced goes on.
    OldLifeReturns,
    /// A second process wants the place of one that lives.
    Twin,
    /// A program frees its cluster without leaving it.
    Freed,
    /// A launcher tells of a process that has ended; or tells so when another has its place; or of a process that
    /// lives.
    LaunchersWord,
    LateWord,
    FalseWord,
    /// A launcher has no restarts left, and starts nobody any more; or it says so of a process that lives; or
    /// everything is started once more after the job had ended by that.
    GivesUp,
    FalselyAbandoned,
    OnceMore,
    /// A node's machine died in the middle of an operation of its disk.
    NodeDisk,
    /// A node comes back without what it had kept.
    WithoutToken,
    SchedulerKilled,
    SchedulerMachineDies,
    SchedulerAndNode,
    EverythingDies,
    /// The scheduler's machine died in the middle of an operation of its disk.
    DiskOperation,
    DiskFull,
    SyncFailed,
    SlowDisk,
    Rewritten,
    ConnectionReset,
    ConnectionHalfOpen,
    OneWaySilence,
    Partition,
    /// Nodes reach neither the scheduler nor the other nodes.
    PartitionOfLinks,
    DuplicateConnection,
    LinkCut,
    /// What one node sends another is lost, or held back.
    LinkSilent,
    LinkSlow,
    /// A node was lost while there was no scheduler.
    LostMeanwhile,
    /// Somebody asked how the job is, and there was a scheduler, or none.
    Asked,
    AskedWhileAway,
    /// A node attached again, before its loss was said or afterwards.
    BackBeforeVerdict,
    BackAfterVerdict,
    /// A message took much longer than its neighbours; overtook one that had been sent earlier, over another connection or in the
    /// other lane; was lost with its connection.
    Delayed,
    Reordered,
    Lost,
    /// A connection ended at one end; the other learns of it when it sends.
    HalfOpenTold,
    /// A connection carried nothing for a while, then everything.
    Stalled,
    /// An attempt to connect got no answer, or met nobody.
    ConnectLost,
    ConnectRefused,
    /// A life of a node registered once more.
    RegisteredAgain,
    LateNode,
    LateScheduler,
    NoScheduler,
    /// A process said that it ends without leaving.
    LastWord,
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
    /// Two ranks called different collectives.
    Mismatch,
    Revocation,
    /// A live peer was suspected.
    WrongSuspicion,
    SchedulerPaused,
    /// No trouble: a node was told of a group.
    GroupMade,
    /// A node was told of a group that its members made; or a member stopped waiting for one.
    MadeByMembers,
    NotAwaited,
    /// The scheduler died at a moment of a record.
    Unsynced(Written),
    Durable(Written),
    HalfTold(Written),
    /// It died before or after it had read a message of this kind.
    SchedulerBefore(u8),
    SchedulerAfter(u8),
    /// A node died when it was to get a message of this kind, or when it had sent one.
    NodeWith(u8),
    /// A message of this kind was lost with its connection.
    MessageLost(u8),
}

/// How often each happened in each phase.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    events: BTreeMap<(Event, Phase), u64>,
    /// How many messages of each kind were sent.
    sent: BTreeMap<(u8, Phase), u64>,
}

impl Table {
    pub(super) fn count(&mut self, event: Event, phase: Phase) {
        *self.events.entry((event, phase)).or_default() += 1;
    }

    pub(super) fn sends(&mut self, kind: u8, phase: Phase) {
        *self.sent.entry((kind, phase)).or_default() += 1;
    }

    /// The messages that were sent at least so often, and in which phase.
    pub(super) fn often_sent(&self, least: u64) -> impl Iterator<Item = (u8, Phase, u64)> + '_ {
        self.sent
            .iter()
            .filter(move |(_, times)| **times >= least)
            .map(|((kind, phase), times)| (*kind, *phase, *times))
    }

    pub(super) fn add(&mut self, other: &Table) {
        other.events.iter().for_each(|(cell, times)| *self.events.entry(*cell).or_default() += times);
        other.sent.iter().for_each(|(cell, times)| *self.sent.entry(*cell).or_default() += times);
    }

    pub(super) fn of(&self, event: Event, phase: Phase) -> u64 {
        self.events.get(&(event, phase)).copied().unwrap_or(0)
    }

    fn everywhere(&self, event: Event) -> u64 {
        Phase::ALL.iter().chain([&Phase::Once]).map(|phase| self.of(event, *phase)).sum()
    }

    /// The cells that were hit less often.
    pub(super) fn missing(&self, least: u64) -> Vec<String> {
        let beside = BESIDE.map(|(_, event, phase)| (event, phase));
        let wanted = cells().into_iter().chain(unaimed()).chain(beside);
        let times = wanted.map(|(event, phase)| (event, phase, self.of(event, phase)));
        let missing = times.filter(|(.., times)| *times < least);
        missing.map(|(event, phase, times)| format!("{} while {phase:?}: {times}", name(event))).collect()
    }
}

/// The name of a kind of message.
pub(super) fn message(kind: u8) -> &'static str {
    Message::KINDS.iter().find(|(known, _)| *known == kind).map_or("another", |(_, name)| name)
}

pub(super) fn name(event: Event) -> String {
    match event {
        Event::Unsynced(written) => format!("scheduler dies, {written:?} not synced"),
        Event::Durable(written) => format!("scheduler dies, {written:?} durable and not told"),
        Event::HalfTold(written) => format!("scheduler dies, {written:?} told to one"),
        Event::SchedulerBefore(kind) => format!("scheduler dies before {}", message(kind)),
        Event::SchedulerAfter(kind) => format!("scheduler dies after {}", message(kind)),
        Event::NodeWith(kind) => format!("node dies with {}", message(kind)),
        Event::MessageLost(kind) => format!("lost with its connection: {}", message(kind)),
        other => format!("{other:?}"),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["forming", "running", "recovering", "finishing", "no recovery"];
        let [forming, running, recovering, finishing, once] = heads;
        writeln!(f, "{:44} {forming:>8} {running:>8} {recovering:>10} {finishing:>9} {once:>11}", "")?;
        let mut events: Vec<Event> = required().into_iter().map(|(event, _)| event).collect();
        events.extend(self.events.keys().map(|(event, _)| *event));
        events.sort_unstable();
        events.dedup();
        for event in events.into_iter().filter(|event| self.everywhere(*event) > 0) {
            let cell = |phase| self.of(event, phase);
            let (forming, running) = (cell(Phase::Forming), cell(Phase::Running));
            let (recovering, finishing, once) = (cell(Phase::Recovering), cell(Phase::Finishing), cell(Phase::Once));
            writeln!(f, "{:44} {forming:>8} {running:>8} {recovering:>10} {finishing:>9} {once:>11}", name(event))?;
        }
        Ok(())
    }
}
