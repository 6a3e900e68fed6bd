//! What happened in which phase, how often: the table that says what the stories reach.

use crate::wire::Record;
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
}

impl Phase {
    pub(super) const ALL: [Phase; 4] = [Phase::Forming, Phase::Running, Phase::Recovering, Phase::Finishing];
}

/// What the scheduler writes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Written {
    Start,
    Epoch,
    Making,
    Store,
    Left,
    Done,
}

impl Written {
    pub(super) const ALL: [Written; 6] =
        [Written::Start, Written::Epoch, Written::Making, Written::Store, Written::Left, Written::Done];

    pub(super) fn of(record: &Record) -> Written {
        match record {
            Record::Job(_) | Record::Generation(_) => Written::Start,
            Record::Epoch(_) | Record::GivenUp(_) => Written::Epoch,
            Record::Making(_) | Record::Freed(_) => Written::Making,
            Record::Store(_) => Written::Store,
            Record::Left(_) => Written::Left,
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
    /// A launcher tells of a process that has ended; when another has its place; of one that lives.
    LaunchersWord,
    LateWord,
    FalseWord,
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
pub(super) struct Table(BTreeMap<(Event, Phase), u64>);

impl Table {
    pub(super) fn count(&mut self, event: Event, phase: Phase) {
        *self.0.entry((event, phase)).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Table) {
        other.0.iter().for_each(|(cell, times)| *self.0.entry(*cell).or_default() += times);
    }

    pub(super) fn of(&self, event: Event, phase: Phase) -> u64 {
        self.0.get(&(event, phase)).copied().unwrap_or(0)
    }

    fn everywhere(&self, event: Event) -> u64 {
        Phase::ALL.iter().map(|phase| self.of(event, *phase)).sum()
    }

    /// The cells that were not hit so often.
    pub(super) fn missing(&self, least: u64) -> Vec<String> {
        let times = cells().into_iter().chain(unaimed()).map(|(event, phase)| (event, phase, self.of(event, phase)));
        let missing = times.filter(|(.., times)| *times < least);
        missing.map(|(event, phase, times)| format!("{} while {phase:?}: {times}", name(event))).collect()
    }
}

const ALL: &[Phase] = &Phase::ALL;
const FORMED: &[Phase] = &[Phase::Running, Phase::Recovering, Phase::Finishing];
const WORKING: &[Phase] = &[Phase::Running, Phase::Recovering];
const NOT_FINISHING: &[Phase] = &[Phase::Forming, Phase::Running, Phase::Recovering];

/// What happens to processes, disks and connections, and in which phases it must be met.
fn troubles() -> Vec<(Event, &'static [Phase])> {
    use Phase::Recovering;
    vec![
        (Event::NodeKilled, ALL),
        (Event::NodeVanished, ALL),
        (Event::SeveralKilled, ALL),
        (Event::AllButOne, ALL),
        (Event::Aborted, WORKING),
        (Event::NodeStopped, NOT_FINISHING),
        (Event::OldLifeReturns, &[Recovering]),
        (Event::Twin, NOT_FINISHING),
        (Event::Freed, NOT_FINISHING),
        (Event::LaunchersWord, &[Phase::Forming, Recovering, Phase::Finishing]),
        (Event::LateWord, WORKING),
        (Event::FalseWord, NOT_FINISHING),
        (Event::NodeDisk, &[Phase::Forming, Recovering]),
        (Event::WithoutToken, &[Recovering]),
        (Event::SchedulerKilled, ALL),
        (Event::SchedulerMachineDies, ALL),
        (Event::SchedulerAndNode, NOT_FINISHING),
        (Event::EverythingDies, ALL),
        (Event::DiskOperation, ALL),
        (Event::DiskFull, ALL),
        (Event::SyncFailed, ALL),
        (Event::SlowDisk, ALL),
        (Event::Rewritten, FORMED),
        (Event::ConnectionReset, ALL),
        (Event::ConnectionHalfOpen, NOT_FINISHING),
        (Event::OneWaySilence, NOT_FINISHING),
        (Event::Partition, NOT_FINISHING),
        (Event::PartitionOfLinks, NOT_FINISHING),
        (Event::DuplicateConnection, NOT_FINISHING),
        (Event::LinkCut, WORKING),
        (Event::LinkSilent, WORKING),
        (Event::LinkSlow, WORKING),
        (Event::LostMeanwhile, ALL),
        (Event::BackBeforeVerdict, FORMED),
        (Event::BackAfterVerdict, &[Recovering]),
    ]
}

/// Everything that must be met, and in which phases it can be.
fn required() -> Vec<(Event, &'static [Phase])> {
    use Phase::{Finishing, Forming, Recovering, Running};
    let mut required = troubles();
    for (written, phases) in [
        (Written::Start, &[Forming, Recovering][..]),
        (Written::Epoch, &[Forming, Recovering]),
        (Written::Making, &[Running]),
        (Written::Store, &[Running]),
        (Written::Left, &[Finishing]),
        (Written::Done, &[Finishing]),
    ] {
        required.push((Event::Unsynced(written), phases));
        required.push((Event::Durable(written), phases));
        if !matches!(written, Written::Start | Written::Done) {
            required.push((Event::HalfTold(written), phases));
        }
    }
    for (kind, phases) in [
        (1, &[Forming, Recovering][..]),
        (4, NOT_FINISHING),
        (7, &[Recovering]),
        (8, &[Finishing]),
        (10, &[Recovering]),
        (13, &[Recovering]),
        (15, WORKING),
        (17, WORKING),
        (19, &[Recovering]),
        (20, &[Recovering]),
        (21, &[Running]),
        (23, &[Finishing]),
        (24, &[Recovering]),
        (26, WORKING),
        (29, &[Recovering]),
        (32, &[Running]),
        (33, &[Running]),
        (34, &[Running]),
        (36, &[Recovering]),
    ] {
        required.push((Event::SchedulerBefore(kind), phases));
        required.push((Event::SchedulerAfter(kind), phases));
    }
    for (kind, phases) in [
        (1, &[Forming, Recovering][..]),
        (3, &[Recovering]),
        (4, NOT_FINISHING),
        (8, &[Finishing]),
        (9, &[Finishing]),
        (11, &[Recovering]),
        (12, &[Recovering]),
        (13, &[Recovering]),
        (14, &[Recovering]),
        (15, WORKING),
        (16, WORKING),
        (17, WORKING),
        (18, WORKING),
        (19, &[Recovering]),
        (21, &[Running]),
        (22, &[Running]),
        (23, &[Finishing]),
        (24, &[Recovering]),
        (26, &[Recovering]),
        (27, &[Recovering]),
        (28, &[Recovering]),
        (29, &[Recovering]),
        (32, &[Running]),
        (33, &[Running]),
        (34, &[Running]),
        (35, &[Running]),
    ] {
        required.push((Event::NodeWith(kind), phases));
    }
    required.extend(losses());
    required
}

/// Every message that is ever sent is lost, in a phase in which it must not be missed for good.
fn losses() -> Vec<(Event, &'static [Phase])> {
    use Phase::{Finishing, Forming, Recovering, Running};
    let losses = [
        (1, &[Forming, Recovering][..]),
        (2, WORKING),
        (3, &[Forming, Recovering]),
        (4, NOT_FINISHING),
        (5, WORKING),
        (6, &[Recovering]),
        (7, &[Recovering]),
        (8, &[Finishing]),
        (9, &[Finishing]),
        (10, &[Recovering]),
        (11, &[Recovering]),
        (12, &[Recovering]),
        (13, &[Recovering]),
        (14, &[Recovering]),
        (15, WORKING),
        (16, WORKING),
        (17, WORKING),
        (18, WORKING),
        (19, &[Recovering]),
        (20, WORKING),
        (21, &[Running]),
        (22, &[Running]),
        (23, &[Finishing]),
        (24, &[Recovering]),
        (25, &[Recovering]),
        (26, WORKING),
        (27, &[Recovering]),
        (28, &[Recovering]),
        (29, &[Recovering]),
        (32, &[Running]),
        (33, &[Running]),
        (34, &[Running]),
        (35, &[Running]),
        (36, &[Recovering]),
    ];
    losses.into_iter().map(|(kind, phases)| (Event::MessageLost(kind), phases)).collect()
}

/// What happens by itself in every story, so that no plan aims at it.
fn unaimed() -> Vec<(Event, Phase)> {
    Phase::ALL.into_iter().flat_map(|phase| [(Event::Asked, phase), (Event::AskedWhileAway, phase)]).collect()
}

/// Every cell that must be hit, and can be aimed at.
pub(super) fn cells() -> Vec<(Event, Phase)> {
    required().into_iter().flat_map(|(event, phases)| phases.iter().map(move |phase| (event, *phase))).collect()
}

/// What a message is called, for those that something happens with.
fn message(kind: u8) -> &'static str {
    match kind {
        1 => "Register",
        2 => "Rejected",
        3 => "Formed",
        4 => "Heartbeat",
        5 => "HeartbeatEcho",
        6 => "Report",
        7 => "TimeUp",
        8 => "Leave",
        9 => "Bye",
        10 => "Suspect",
        11 => "PeerReport",
        12 => "Verdict",
        13 => "Revoke",
        14 => "Revoked",
        15 => "WhereAre",
        16 => "Absent",
        17 => "Locate",
        18 => "Located",
        19 => "Abort",
        20 => "Gone",
        21 => "MakeGroup",
        22 => "GroupMade",
        23 => "FreeGroup",
        24 => "Recover",
        25 => "NotRecovered",
        26 => "InEpoch",
        27 => "NotYet",
        28 => "LostNodes",
        29 => "Known",
        32 => "StoreBegin",
        33 => "StorePiece",
        34 => "StoreCancel",
        35 => "StoreReply",
        36 => "ChildEnded",
        38 => "GroupFreed",
        _ => "another",
    }
}

fn name(event: Event) -> String {
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
        writeln!(f, "{:44} {:>8} {:>8} {:>10} {:>9}", "", "forming", "running", "recovering", "finishing")?;
        let mut events: Vec<Event> = required().into_iter().map(|(event, _)| event).collect();
        events.extend(self.0.keys().map(|(event, _)| *event));
        events.sort_unstable();
        events.dedup();
        for event in events.into_iter().filter(|event| self.everywhere(*event) > 0) {
            let cell = |phase| self.of(event, phase);
            let (forming, running) = (cell(Phase::Forming), cell(Phase::Running));
            let (recovering, finishing) = (cell(Phase::Recovering), cell(Phase::Finishing));
            writeln!(f, "{:44} {forming:>8} {running:>8} {recovering:>10} {finishing:>9}", name(event))?;
        }
        Ok(())
    }
}
