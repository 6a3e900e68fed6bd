//! What the stories must meet, and in which phases: every trouble; the scheduler's death around every record and every message
//! that it reads; a node's death with every message that it gets or sends; the loss of every message.

use super::table::{name, Event, Phase, Written};
use crate::wire::Message;

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
        (Event::GivesUp, WORKING),
        (Event::FalselyAbandoned, NOT_FINISHING),
        (Event::OnceMore, &[Recovering]),
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

/// The speaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Node,
    Scheduler,
    /// Either of them.
    Both,
    Launcher,
    /// Somebody who asks how the job is, or the answer to that.
    Reader,
}

const FORMING: &[Phase] = &[Phase::Forming];
const RUNNING: &[Phase] = &[Phase::Running];
const RECOVERING: &[Phase] = &[Phase::Recovering];
const FINISHING: &[Phase] = &[Phase::Finishing];
const RETURNING: &[Phase] = &[Phase::Recovering, Phase::Finishing];
const ENDS: &[Phase] = &[Phase::Running, Phase::Finishing];
const NEVER: &[Phase] = &[];

/// For each kind of message: who sends it; in which phases it is lost with its connection; when the scheduler dies
/// before and after it has read it; and when the node dies that sends or gets it.
type Said = (u8, From, &'static [Phase], &'static [Phase], &'static [Phase]);

const MESSAGES: &[Said] = &[
    (1, From::Node, ALL, ALL, ALL),
    (2, From::Scheduler, WORKING, NEVER, NEVER),
    (3, From::Scheduler, ALL, NEVER, ALL),
    (4, From::Node, ALL, ALL, ALL),
    (5, From::Scheduler, ALL, NEVER, ALL),
    (6, From::Scheduler, WORKING, NEVER, WORKING),
    (7, From::Node, RECOVERING, RECOVERING, RECOVERING),
    (8, From::Node, FINISHING, FINISHING, FINISHING),
    (9, From::Scheduler, FINISHING, NEVER, FINISHING),
    (10, From::Node, WORKING, WORKING, WORKING),
    (11, From::Scheduler, WORKING, NEVER, WORKING),
    (12, From::Scheduler, RECOVERING, NEVER, RECOVERING),
    (13, From::Node, RECOVERING, RECOVERING, RECOVERING),
    (14, From::Scheduler, RECOVERING, NEVER, RECOVERING),
    (15, From::Node, WORKING, WORKING, WORKING),
    (16, From::Scheduler, WORKING, NEVER, WORKING),
    (17, From::Node, WORKING, WORKING, WORKING),
    (18, From::Scheduler, WORKING, NEVER, WORKING),
    (19, From::Node, RECOVERING, RECOVERING, RECOVERING),
    (20, From::Node, WORKING, RECOVERING, NEVER),
    (21, From::Node, WORKING, WORKING, WORKING),
    (22, From::Scheduler, WORKING, NEVER, WORKING),
    (23, From::Node, FORMED, FORMED, FORMED),
    (24, From::Node, RECOVERING, RECOVERING, RECOVERING),
    (25, From::Scheduler, RECOVERING, NEVER, RECOVERING),
    (26, From::Node, FORMED, FORMED, FORMED),
    (27, From::Scheduler, RETURNING, NEVER, RETURNING),
    (28, From::Scheduler, RETURNING, NEVER, RETURNING),
    (29, From::Node, RECOVERING, RECOVERING, RECOVERING),
    (30, From::Reader, NEVER, NEVER, NEVER),
    (31, From::Reader, NEVER, NEVER, NEVER),
    (32, From::Node, WORKING, WORKING, WORKING),
    (33, From::Both, WORKING, WORKING, WORKING),
    (34, From::Node, WORKING, WORKING, WORKING),
    (35, From::Scheduler, WORKING, NEVER, WORKING),
    (36, From::Launcher, RETURNING, RETURNING, NEVER),
    (37, From::Launcher, WORKING, WORKING, NEVER),
    (38, From::Scheduler, FORMED, NEVER, FORMED),
    (39, From::Scheduler, NEVER, NEVER, NEVER),
    (40, From::Scheduler, NEVER, NEVER, NEVER),
    (41, From::Node, NEVER, NEVER, NEVER),
    (42, From::Node, NEVER, NEVER, NEVER),
    (43, From::Scheduler, NEVER, NEVER, NEVER),
    (44, From::Reader, NEVER, NEVER, NEVER),
    (45, From::Reader, NEVER, NEVER, NEVER),
];

/// For each record: when the scheduler dies before it is synced, and when it is durable and nobody has been told what
/// follows from it; and when it dies after one node has been told.
const RECORDS: &[(Written, &[Phase], &[Phase])] = &[
    (Written::Job, FORMING, NEVER),
    (Written::Generation, ALL, NEVER),
    (Written::Epoch, &[Phase::Forming, Phase::Recovering], &[Phase::Forming, Phase::Recovering]),
    (Written::Creation, RUNNING, RUNNING),
    (Written::Freed, ENDS, ENDS),
    (Written::Store, WORKING, WORKING),
    (Written::Left, FINISHING, FINISHING),
    (Written::Abandoned, WORKING, RECOVERING),
    (Written::Done, FINISHING, NEVER),
];

/// Events that never happen, and why.
fn left_out() -> Vec<(Event, &'static str)> {
    let reader = "a reader of the job's status asks over no connection of the network's, so that a seed gives the same story without";
    let watcher = "no launcher watches these stories; src/membership/watch_test.rs has what one is told";
    let ends = "a node that says or is told so ends by that";
    let launched = "no launcher started the nodes of a story, so that none knows of another job";
    let whole = "nothing is told in consequence of it alone: everything is";
    let alike = "ranks call the same in these stories; where they do not is in src/membership/dispute_test.rs";
    let alone = "stories with recovery make groups with all; by members alone those without, and src/membership/by_members_test.rs";
    vec![
        (Event::MessageLost(42), alone),
        (Event::SchedulerBefore(42), alone),
        (Event::SchedulerAfter(42), alone),
        (Event::NodeWith(42), alone),
        (Event::MessageLost(43), alone),
        (Event::NodeWith(43), alone),
        (Event::MessageLost(40), alike),
        (Event::NodeWith(40), alike),
        (Event::MessageLost(41), alike),
        (Event::SchedulerBefore(41), alike),
        (Event::SchedulerAfter(41), alike),
        (Event::NodeWith(41), alike),
        (Event::MessageLost(30), reader),
        (Event::SchedulerBefore(30), reader),
        (Event::SchedulerAfter(30), reader),
        (Event::MessageLost(31), reader),
        (Event::MessageLost(44), watcher),
        (Event::SchedulerBefore(44), watcher),
        (Event::SchedulerAfter(44), watcher),
        (Event::MessageLost(45), watcher),
        (Event::NodeWith(2), ends),
        (Event::NodeWith(20), ends),
        (Event::MessageLost(39), launched),
        (Event::NodeWith(39), launched),
        (Event::HalfTold(Written::Job), whole),
        (Event::HalfTold(Written::Generation), whole),
        (Event::HalfTold(Written::Done), "the scheduler ends by it, and tells nobody"),
    ]
}

/// What goes wrong with messages of this kind, and when.
fn with_message((kind, _, lost, read, with): &Said) -> [(Event, &'static [Phase]); 4] {
    [
        (Event::SchedulerBefore(*kind), *read),
        (Event::SchedulerAfter(*kind), *read),
        (Event::NodeWith(*kind), *with),
        (Event::MessageLost(*kind), *lost),
    ]
}

/// Everything that must be met, and in which phases it can be.
pub(super) fn required() -> Vec<(Event, &'static [Phase])> {
    let mut required = troubles();
    for (written, phases, told) in RECORDS {
        required.extend([(Event::Unsynced(*written), *phases), (Event::Durable(*written), *phases)]);
        required.push((Event::HalfTold(*written), *told));
    }
    required.extend(MESSAGES.iter().flat_map(with_message));
    required.retain(|(_, phases)| !phases.is_empty());
    required
}

/// The events that can be met, by who sends a message.
fn possible(kind: u8, from: From) -> Vec<Event> {
    let read = [Event::SchedulerBefore(kind), Event::SchedulerAfter(kind)];
    let mut possible = vec![Event::MessageLost(kind)];
    if from != From::Scheduler && (from != From::Reader || matches!(kind, 30 | 44)) {
        possible.extend(read);
    }
    if matches!(from, From::Node | From::Scheduler | From::Both) {
        possible.push(Event::NodeWith(kind));
    }
    possible
}

/// Messages that are often sent in a phase in which nothing is required to happen with them.
pub(super) fn passed_over(often: impl Iterator<Item = (u8, Phase, u64)>) -> Vec<String> {
    let cells = cells();
    let mut passed = Vec::new();
    for (kind, phase, times) in often {
        let Some(said) = MESSAGES.iter().find(|said| said.0 == kind) else { continue };
        for (event, phases) in with_message(said) {
            let is_beside = BESIDE.iter().any(|beside| (beside.1, beside.2) == (event, phase));
            if !phases.is_empty() && !is_beside && !cells.contains(&(event, phase)) {
                passed.push(format!("{}: sent {times} times while {phase:?}", name(event)));
            }
        }
    }
    passed
}

/// What a story without recovery meets.
const ONCE: [Event; 33] = [
    Event::NodeKilled,
    Event::NodeVanished,
    Event::Aborted,
    Event::NodeStopped,
    Event::ConnectionReset,
    Event::ConnectionHalfOpen,
    Event::PartitionOfLinks,
    Event::Delayed,
    Event::Reordered,
    Event::Lost,
    Event::HalfOpenTold,
    Event::Stalled,
    Event::ConnectLost,
    Event::ConnectRefused,
    Event::RegisteredAgain,
    Event::LateNode,
    Event::LateScheduler,
    Event::NoScheduler,
    Event::LastWord,
    Event::Consequence,
    Event::Replaced,
    Event::DuplicateId,
    Event::WrongWorkerNum,
    Event::Surplus,
    Event::OneTooFew,
    Event::Stranger,
    Event::Mismatch,
    Event::Revocation,
    Event::WrongSuspicion,
    Event::SchedulerPaused,
    Event::GroupMade,
    Event::MadeByMembers,
    Event::NotAwaited,
];

/// What happens by itself, or by the shape of a story, so that no plan aims at it.
pub(super) fn unaimed() -> Vec<(Event, Phase)> {
    let asked = Phase::ALL.into_iter().flat_map(|phase| [(Event::Asked, phase), (Event::AskedWhileAway, phase)]);
    asked.chain(ONCE.map(|event| (event, Phase::Once))).collect()
}

/// Cells that stories aim at beside what else they aim at: of each nine stories with recovery, those with these numbers. In
/// `MESSAGES` they would make another story of each seed. No seed of `found.rs` has one of these numbers.
pub(super) const BESIDE: [(u64, Event, Phase); 3] = [
    (2, Event::SchedulerBefore(36), Phase::Forming),
    (4, Event::SchedulerAfter(36), Phase::Forming),
    (7, Event::MessageLost(36), Phase::Forming),
];

/// Every cell that must be hit, and can be aimed at.
pub(super) fn cells() -> Vec<(Event, Phase)> {
    required().into_iter().flat_map(|(event, phases)| phases.iter().map(move |phase| (event, *phase))).collect()
}

#[test]
fn every_message_and_every_record_is_met_by_the_stories_or_it_is_said_why_not() {
    let (required, left_out) = (required(), left_out());
    let is_required = |event: &Event| required.iter().any(|(required, _)| required == event);
    let is_left_out = |event: &Event| left_out.iter().any(|(left, _)| left == event);
    let mut possible_ones = Vec::new();
    for (kind, name) in Message::KINDS {
        let mut said = MESSAGES.iter().filter(|said| said.0 == *kind);
        let (_, from, ..) = said.next().unwrap_or_else(|| panic!("{name} ({kind}): in which phases is it lost?"));
        assert!(said.next().is_none(), "{name} twice");
        possible_ones.extend(possible(*kind, *from));
    }
    assert_eq!(MESSAGES.len(), Message::KINDS.len(), "a message that there is not");
    for written in Written::ALL {
        let known = RECORDS.iter().filter(|record| record.0 == *written).count();
        assert_eq!(known, 1, "{written:?}: when does the scheduler die around it?");
        possible_ones.extend([Event::Unsynced(*written), Event::Durable(*written), Event::HalfTold(*written)]);
    }
    for event in &possible_ones {
        assert!(is_required(event) != is_left_out(event), "{}: required, or left out with a reason", name(*event));
    }
    for event in required.iter().map(|(event, _)| event).chain(left_out.iter().map(|(event, _)| event)) {
        let of_message = matches!(
            event,
            Event::SchedulerBefore(_) | Event::SchedulerAfter(_) | Event::NodeWith(_) | Event::MessageLost(_)
        );
        assert!(!of_message || possible_ones.contains(event), "{} cannot be", name(*event));
    }
}

#[test]
fn a_message_that_is_often_sent_and_never_lost_is_noticed() {
    let often = [(19, Phase::Recovering, 1000), (19, Phase::Running, 1001), (30, Phase::Running, 1002)];
    let passed = passed_over(often.into_iter());
    assert!(passed.len() == 4 && passed.iter().all(|line| line.contains("Abort: sent 1001 times")), "{passed:?}");
}
