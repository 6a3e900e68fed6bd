//! Rules broken on purpose: each must be noticed, by the check that is there for it. Most change what passes between the
//! brains; where a brain itself does not let that through, what it tells is changed.

use super::once::Shape;
use super::plan::Plan;
use super::rounds::{Collective, Frame, What};
use super::world::World;
use crate::agent;
use crate::error::{Error, Failure, Status};
use crate::types::{Epoch, Role, Secret};
use crate::wire::{Blob, Members, Message, Record, StragglerState};
use std::sync::Arc;
use std::time::Duration;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sabotage {
    /// A write to the store is told of as durable before it is.
    AcknowledgeEarly,
    /// The newest epoch is forgotten when the scheduler is started again.
    ForgetEpoch,
    /// The job is forgotten when the scheduler is started again.
    ForgetJob,
    /// A restarted scheduler has forgotten which node has freed a group.
    ForgetFreed,
    /// Two members of an epoch are read as if they had one rank, or one node.
    SameRankKept,
    SameNode,
    /// Frames are let in whatever epoch they are of, or are numbered otherwise.
    AnyEpoch,
    AnySequence,
    /// Bytes are changed on their way, where the result is known beforehand, or where it is not.
    WrongResult,
    OtherResult,
    /// One program never goes into `muster_recover`.
    NeverRecovers,
    /// All leave when half is done.
    LeavesEarly,
    /// A job that ended well is called a failure.
    EndsBadly,
    /// A verdict names somebody else, who is well; or, to one node only, another cause.
    WrongCulprit,
    OtherCause,
    /// The scheduler itself says another cause to one node; or what a node that came back tells it is changed.
    TwoCauses,
    ForgetCause,
    /// A group's revocation has another cause for one node, or is of another epoch.
    OtherRevocation,
    OldRevocation,
    /// A verdict is of another epoch.
    OldVerdict,
    /// A node to which nothing has happened is put out.
    InnocentOut,
    /// Two nodes are told the same rank.
    SameRank,
    /// A life is told that it has a place that is another's, or that it is a member beside another.
    TwoLives,
    TwinToo,
    /// One node is told of an epoch with another secret, all of one with the secret of the epoch before.
    OtherEpoch,
    SameSecret,
    /// A scheduler of an earlier start is followed, into an earlier epoch.
    OldStart,
    OldEpoch,
    /// A group has other members.
    OtherGroup,
    /// The store answers additions with one number, and reads with what was not written.
    SameSum,
    WrongValue,
    /// One node is not told of an abort; a scheduler is not told of it by those who come back; somebody else is named.
    AbortHalfTold,
    ForgetKnown,
    WrongAborter,
    /// A node's address is another; nobody is said to be absent; a node is said to be absent that is not.
    WrongAddress,
    NobodyAbsent,
    WrongStragglers,
    /// The word that a place is abandoned: it is told of as durable before it is; is forgotten at the scheduler's restart;
    /// is not
    /// told to one node, or with another cause; one node is told of an epoch all the same; and the job is called done.
    AbandonedEarly,
    ForgetAbandoned,
    EndUntold,
    OtherEnd,
    FormedAllTheSame,
    DoneAllTheSame,
    /// A caller that asks how the job is is not answered, or disturbs it.
    AnswersNobody,
    AskingDisturbs,
    /// What is heard last takes the place of the first cause that a call has told.
    LastCause,
    /// A node is called otherwise by the verdict that names it; or nobody is named.
    WrongName,
    NoCulprit,
    /// The brain says its last word twice, or that the cluster is broken, or that a group is made.
    TalksOn,
    BrokenTwice,
    GroupTwice,
    /// The table has a wrong local rank; or two nodes register as each other.
    WrongTable,
    SwappedIds,
    /// The cluster has a place too many; or takes one that was told of another size.
    OneMore,
    Lenient,
    /// The node takes longer than it may to say that it failed, or to leave; or never says anything.
    LateAnswer,
    LeavesLate,
    NoAnswer,
    /// The node failed for another reason than it says.
    WrongError,
    /// One program is not told that the cluster is broken, that a group is revoked, that the cluster is complete, what the store
    /// answers; or leaves with a warning.
    BreakUntold,
    RevokedUntold,
    FormedUntold,
    NoReply,
    Warned,
    /// The scheduler says that it ended well, or for another reason; or never ends.
    EndsWell,
    EndsOtherwise,
    NeverEnds,
    /// A group that is freed stays with the scheduler; one has two numbers; one is not made; and there is no next epoch.
    KeepsGroup,
    TwoNumbers,
    NotMade,
    NoNextEpoch,
    /// The store answers what was not asked; counts too many; holds what nobody wrote; lets two claim.
    StrangeAnswer,
    HighSum,
    NeverWritten,
    TwoClaims,
}

/// How much longer a node waits for the cluster, and until it says that it leaves.
pub(super) fn delays(sabotage: Option<Sabotage>) -> (Duration, Duration) {
    let longer = Duration::from_secs(12);
    match sabotage {
        Some(Sabotage::LateAnswer) => (longer, Duration::ZERO),
        Some(Sabotage::LeavesLate) => (Duration::ZERO, longer),
        _ => (Duration::ZERO, Duration::ZERO),
    }
}

/// What the brain says once more.
pub(super) fn said_again(sabotage: Option<Sabotage>, event: &agent::Event) -> Option<agent::Event> {
    let is_said_again = match event {
        agent::Event::Left(_) => sabotage == Some(Sabotage::TalksOn),
        agent::Event::Broken(_) => sabotage == Some(Sabotage::BrokenTwice),
        agent::Event::GroupMade(_) => sabotage == Some(Sabotage::GroupTwice),
        _ => false,
    };
    is_said_again.then(|| event.clone())
}

/// What becomes of a message of the scheduler's to this node.
pub(super) fn tampered(world: &World, to: Option<usize>, mut message: Message) -> Message {
    let Some(sabotage) = world.sabotage else { return message };
    let one = to.is_some_and(|node| world.processes[node].slot == 0);
    match (sabotage, &mut message) {
        (Sabotage::WrongCulprit, Message::Verdict(verdict)) if verdict.failure.status != Status::Aborted => {
            blame_another(world, &mut verdict.failure);
        }
        (Sabotage::WrongAborter, Message::Verdict(verdict)) if verdict.failure.status == Status::Aborted => {
            blame_another(world, &mut verdict.failure);
        }
        (Sabotage::WrongName, Message::Verdict(verdict)) => {
            verdict.failure.culprit.iter_mut().for_each(|culprit| culprit.node_id.push('x'));
        }
        (Sabotage::RevokedUntold, Message::Revoked(_)) if one => message = Message::Report,
        (Sabotage::NoReply, Message::StoreReply(_)) if one => message = Message::Report,
        (Sabotage::WrongTable, Message::Formed(formed)) => {
            let mut members = formed.members.to_vec();
            let other = (formed.index as usize + 1) % members.len();
            Arc::make_mut(&mut members[other]).local_rank += 1;
            formed.members = Members::new(members);
        }
        (Sabotage::OtherCause, Message::Verdict(verdict)) if one => verdict.failure.cause.push_str(", perhaps"),
        (Sabotage::OtherRevocation, Message::Revoked(revoked)) if one => revoked.failure.cause.push_str(", perhaps"),
        (Sabotage::AbortHalfTold, Message::Verdict(verdict)) if one && verdict.failure.status == Status::Aborted => {
            message = Message::Report;
        }
        (Sabotage::InnocentOut, Message::Verdict(verdict)) if one => verdict.failure.status = Status::Fenced,
        (Sabotage::SameRank, Message::Formed(formed)) => {
            let mut members = formed.members.to_vec();
            Arc::make_mut(&mut members[1]).rank = members[0].rank;
            formed.members = Members::new(members);
        }
        (Sabotage::TwoLives, Message::Formed(formed)) if formed.epoch.0 > 1 && believes_any_rank(world, to) => {
            (formed.index, formed.rank) = (0, 0);
        }
        (Sabotage::OtherEpoch, Message::Formed(formed)) if one => formed.secret.0[0] ^= 1,
        (Sabotage::SameSecret, Message::Formed(formed)) => formed.secret = Secret([7; 32]),
        (Sabotage::TwinToo, Message::Rejected(_) | Message::NotYet(_)) => {
            if let Some(formed) = to.and_then(|node| world.told.for_twin(world, node)) {
                message = Message::Formed(formed);
            }
        }
        (Sabotage::OtherGroup, Message::GroupMade(made)) if one => made.members.reverse(),
        (Sabotage::WrongAddress, Message::Located(located)) => located.member.addresses.clear(),
        (Sabotage::NobodyAbsent, Message::Absent(absent)) => (absent.total, absent.members) = (0, Vec::new()),
        (Sabotage::WrongStragglers, Message::Absent(absent)) => {
            let asks = to.and_then(|node| world.processes[node].formed.as_ref());
            let own = asks.and_then(|formed| formed.members.get(formed.index as usize));
            if let (Some(own), Some(first)) = (own, absent.members.first_mut()) {
                (first.culprit.role, first.culprit.rank) = (own.role, Some(own.rank));
                (first.culprit.pid, first.state) = (own.process.pid, StragglerState::Outside);
            }
        }
        (Sabotage::EndUntold, Message::NotRecovered(_)) if one => message = Message::Report,
        (Sabotage::OtherEnd, Message::NotRecovered(word)) if one => word.failure.cause.push_str(", perhaps"),
        (Sabotage::FormedAllTheSame, Message::NotRecovered(_)) => {
            let formed = to.and_then(|node| world.processes[node].formed.clone());
            if let Some(mut formed) = formed {
                (formed.epoch.0, formed.generation) = (formed.epoch.0 + 1, u64::MAX);
                formed.secret = Secret([7; 32]);
                if world.not_after_abandoning(formed.epoch).is_err() {
                    message = Message::Formed(formed);
                }
            }
        }
        (Sabotage::SameSum, Message::StoreReply(reply)) if reply.number > 0 => reply.number = 1,
        (Sabotage::HighSum, Message::StoreReply(reply)) if reply.number > 0 => reply.number += 1000,
        (Sabotage::WrongValue | Sabotage::TwoClaims, Message::StorePiece(piece)) => {
            let mut bytes = piece.bytes.as_slice().to_vec();
            let is_claim = bytes.starts_with(b"node");
            if is_claim == (sabotage == Sabotage::TwoClaims) && (one || !is_claim) {
                bytes.iter_mut().take(1).for_each(|byte| *byte ^= 64);
            }
            piece.bytes = Blob::new(bytes);
        }
        _ => {}
    }
    message
}

/// What the scheduler says to this node.
pub(super) fn said_twice(world: &World, to: Option<usize>, mut message: Message) -> Message {
    let one = to.is_some_and(|node| world.processes[node].slot == 0);
    match (world.sabotage, &mut message) {
        (Some(Sabotage::TwoCauses), Message::Verdict(verdict)) if one => verdict.failure.cause.push_str(", perhaps"),
        _ => {}
    }
    message
}

/// What a node says.
pub(super) fn sent_by_node(world: &World, mut message: Message) -> Message {
    match (world.sabotage, &mut message) {
        (Some(Sabotage::ForgetKnown), Message::Known(known)) => {
            known.failure = known.failure.take().filter(|failure| failure.status != Status::Aborted);
        }
        (Some(Sabotage::ForgetCause), Message::Known(known)) => {
            known.failure.iter_mut().for_each(|failure| failure.cause.push_str(", perhaps"));
        }
        (Some(Sabotage::SwappedIds), Message::Register(register)) => {
            register.node_id = match &register.node_id[..] {
                "0" => "1".to_owned(),
                "1" => "0".to_owned(),
                other => other.to_owned(),
            };
        }
        (Some(Sabotage::OneMore), Message::Register(register)) => register.worker_num = workers(world),
        (Some(Sabotage::Lenient), Message::Register(register)) => register.worker_num = world.plan.workers,
        (Some(Sabotage::NeverWritten), Message::StoreBegin(begin)) => {
            let is_never = |key: &&mut Blob| key.as_slice() == b"never";
            begin.keys.iter_mut().filter(is_never).for_each(|key| *key = Blob::new(b"counter".to_vec()));
        }
        _ => {}
    }
    message
}

/// How many workers the scheduler awaits.
pub(super) fn workers(world: &World) -> u32 {
    world.plan.workers + u32::from(world.sabotage == Some(Sabotage::OneMore))
}

/// Blames a node that is well.
fn blame_another(world: &World, failure: &mut Failure) {
    let innocent = world.processes.iter().position(|process| process.alive && process.to_blame.is_none());
    if let (Some(node), Some(culprit)) = (innocent, &mut failure.culprit) {
        culprit.pid = 1000 + node as u32;
    }
}

/// What a program hears of what its brain tells.
pub(super) fn misheard(world: &World, node: usize, mut event: agent::Event) -> agent::Event {
    let is_survivor = world.processes[node].formed.is_some();
    let one = world.processes[node].slot == 0;
    let before = |epoch: &mut Epoch| epoch.0 = epoch.0.saturating_sub(1);
    match (world.sabotage, &mut event) {
        (Some(Sabotage::OldVerdict), agent::Event::Broken(failure))
        | (Some(Sabotage::OldRevocation), agent::Event::Revoked(failure)) => before(&mut failure.epoch),
        (Some(Sabotage::NoCulprit), agent::Event::Broken(failure)) => failure.culprit = None,
        (Some(Sabotage::FormedUntold), agent::Event::Formed(_)) if one => {
            event = agent::Event::Failed(Error::new(Status::Rejected, "it is said so"));
        }
        (Some(Sabotage::WrongError), agent::Event::Failed(error)) => {
            *error = Error::new(Status::Internal, "it is said so")
        }
        (Some(Sabotage::BreakUntold), agent::Event::Broken(_)) if one => event = agent::Event::Lost(Vec::new()),
        (Some(Sabotage::NoNextEpoch), agent::Event::Broken(failure)) => {
            event = agent::Event::NotRecovered(failure.clone());
        }
        (Some(Sabotage::Warned), agent::Event::Left(warning)) => *warning = Some("it is said so".to_owned()),
        (Some(Sabotage::TwoNumbers), agent::Event::GroupMade(made)) if one => {
            made.group.iter_mut().for_each(|group| group.0 += 1000);
        }
        (Some(Sabotage::NotMade), agent::Event::GroupMade(made)) => {
            let error = Error::new(Status::Internal, "it is said so");
            event = agent::Event::NotMade(made.parent, made.nth, error);
        }
        (Some(Sabotage::StrangeAnswer), agent::Event::Stored(ask, _)) => *ask += 1000,
        (Some(Sabotage::OldStart), agent::Event::Formed(formed)) if is_survivor => formed.generation = 0,
        (Some(Sabotage::OldEpoch), agent::Event::Formed(formed)) if is_survivor => before(&mut formed.epoch),
        _ => {}
    }
    event
}

/// What becomes of a frame between two nodes.
pub(super) fn spoiled(world: &mut World, collective: &Collective, frame: &mut Frame) {
    let Some(sabotage) = world.sabotage else { return };
    let agrees = collective.what == What::Agree;
    match sabotage {
        Sabotage::WrongResult if !agrees && world.random.once_in(200) => {
            frame.bytes.iter_mut().take(1).for_each(|byte| *byte ^= 4);
        }
        Sabotage::OtherResult if agrees && world.random.once_in(20) => frame.bytes.fill(0),
        Sabotage::AnySequence if world.random.once_in(100) => frame.sequence += 1,
        _ => {}
    }
}

/// What a restarted scheduler reads.
pub(super) fn reread(world: &World, records: &mut Vec<Record>) {
    let is_later = |record: &Record| matches!(record, Record::Epoch(epoch) if epoch.epoch.0 > 1);
    match world.sabotage {
        Some(Sabotage::ForgetEpoch) => drop(records.iter().rposition(is_later).map(|at| records.remove(at))),
        Some(Sabotage::ForgetFreed) => records.retain(|record| !matches!(record, Record::Freed(_))),
        Some(Sabotage::ForgetAbandoned) => records.retain(|record| !matches!(record, Record::Abandoned(_))),
        Some(Sabotage::ForgetJob) if records.iter().any(is_later) => records.push(Record::Done),
        Some(sabotage @ (Sabotage::SameRankKept | Sabotage::SameNode)) => {
            for record in records {
                let Record::Epoch(epoch) = record else { continue };
                let first = epoch.members[0].clone();
                match sabotage {
                    Sabotage::SameRankKept => epoch.members[1].rank = first.rank,
                    _ => epoch.members[1].register.node_id = first.register.node_id,
                }
            }
        }
        _ => {}
    }
}

/// How a job is said to have ended.
pub(super) fn misjudged(world: &World, result: Result<(), Error>) -> Result<(), Error> {
    match world.sabotage {
        Some(Sabotage::EndsBadly) if result.is_ok() => Err(Error::new(Status::Internal, "it is said so")),
        Some(Sabotage::EndsWell) => Ok(()),
        Some(Sabotage::EndsOtherwise) => result.map_err(|error| match error.failure().cloned() {
            Some(failure) => Failure { cause: "it is said so".to_owned(), ..failure }.into(),
            None => error,
        }),
        _ => result,
    }
}

/// Whether a node does not know better itself which rank of the workers it has.
fn believes_any_rank(world: &World, node: Option<usize>) -> bool {
    let plan = node.map(|node| &world.plan.nodes[world.processes[node].slot]);
    plan.is_some_and(|plan| plan.role == Role::Worker && plan.rank.is_none())
}

/// Plays stories of a kind until one is found wrong. Returns how, if that is not in these words.
fn noticed_otherwise(sabotage: Sabotage, stories: fn(&Plan) -> bool, words: &str) -> Option<String> {
    for plan in (0..1000).map(Plan::of).filter(stories) {
        let mut world = World::new(plan, false);
        world.sabotage = Some(sabotage);
        if let Err(wrong) = world.play() {
            return (!wrong.contains(words)).then(|| format!("{sabotage:?} was noticed as: {wrong}"));
        }
    }
    Some(format!("{sabotage:?} was not noticed"))
}

#[test]
fn each_rule_that_is_broken_is_noticed_by_its_check() {
    let mut otherwise = Vec::new();
    for (sabotage, words) in [
        (Sabotage::AcknowledgeEarly, "an acknowledged write is lost"),
        (Sabotage::ForgetEpoch, "the epoch went back"),
        (Sabotage::ForgetJob, "the journal forgot a job that goes on"),
        (Sabotage::ForgetFreed, "the scheduler has forgotten that node"),
        (Sabotage::SameRankKept, "in the scheduler's tables ranks are not unique and dense"),
        (Sabotage::SameNode, "in the scheduler's tables two lives of node"),
        (Sabotage::AnyEpoch, "on a frame of epoch"),
        (Sabotage::AnySequence, "acts in collective"),
        (Sabotage::WrongResult, "has a wrong result"),
        (Sabotage::OtherResult, "has another result than elsewhere"),
        (Sabotage::NeverRecovers, "no end within the bound"),
        (Sabotage::LeavesEarly, "the job ended well before all was done"),
        (Sabotage::EndsBadly, "the job ended badly, although everything came back"),
        (Sabotage::WrongCulprit, "the culprit did not fail"),
        (Sabotage::OtherCause, "was told of another first cause than others"),
        (Sabotage::TwoCauses, "the scheduler says two first causes"),
        (Sabotage::ForgetCause, "the scheduler was told the first cause"),
        (Sabotage::OtherRevocation, "was told of another first cause than others"),
        (Sabotage::OldRevocation, "of a revocation in"),
        (Sabotage::OldVerdict, "is broken:"),
        (Sabotage::InnocentOut, "to which nothing had happened, was put out"),
        (Sabotage::SameRank, "was told: two nodes have"),
        (Sabotage::TwoLives, "was given the place of another"),
        (Sabotage::TwinToo, "two lives of index"),
        (Sabotage::OtherEpoch, "was told of another epoch"),
        (Sabotage::SameSecret, "is not made of the nodes of the one before"),
        (Sabotage::OldStart, "follows a scheduler of start 0"),
        (Sabotage::OldEpoch, "goes back from epoch"),
        (Sabotage::OtherGroup, "were wanted"),
        (Sabotage::SameSum, "two additions were answered"),
        (Sabotage::WrongValue, "is possible"),
        (Sabotage::AbortHalfTold, "was there when the job was aborted, and was not told"),
        (Sabotage::ForgetKnown, "and the scheduler that it came back to did not"),
        (Sabotage::WrongAborter, "is blamed for the abort, and did not abort the job"),
        (Sabotage::WrongAddress, "asked for the address of"),
        (Sabotage::NobodyAbsent, "was not told that"),
        (Sabotage::WrongStragglers, "was told that one who is in"),
        (Sabotage::AbandonedEarly, "was said before it was durable why"),
        (Sabotage::ForgetAbandoned, "the scheduler has forgotten that slot"),
        (Sabotage::EndUntold, "was there when the job was abandoned, and was not told"),
        (Sabotage::OtherEnd, "was told of another first cause than others"),
        (Sabotage::FormedAllTheSame, "was formed, although slot"),
        (Sabotage::DoneAllTheSame, "a job that was abandoned unfinished is called done"),
        (Sabotage::AnswersNobody, "the reader of the job's status was answered 0 times"),
        (Sabotage::LastCause, "tells two first causes"),
        (Sabotage::AskingDisturbs, "to ask how the job is has changed something"),
    ] {
        otherwise.extend(noticed_otherwise(sabotage, Plan::recovers, words));
    }
    assert!(otherwise.is_empty(), "{}", otherwise.join("\n"));
}

#[test]
fn each_rule_of_stories_without_recovery_is_noticed_by_its_check() {
    let is_any: fn(&Plan) -> bool = |plan| !plan.recovers();
    let has_lost: fn(&Plan) -> bool = |plan| plan.is_about(Shape::Killed);
    let is_plain: fn(&Plan) -> bool = |plan| plan.is_about(Shape::Plain);
    let has_too_many: fn(&Plan) -> bool = |plan| plan.is_about(Shape::Surplus);
    let has_too_few: fn(&Plan) -> bool = |plan| plan.is_about(Shape::OneTooFew);
    let has_stray: fn(&Plan) -> bool = |plan| plan.is_about(Shape::WrongWorkerNum) && !plan.can_form();
    let has_none: fn(&Plan) -> bool = |plan| plan.is_about(Shape::NoScheduler);
    let is_revoked: fn(&Plan) -> bool = |plan| plan.is_about(Shape::Revocation) || plan.is_about(Shape::Mismatch);
    let mut otherwise = Vec::new();
    for (sabotage, stories, words) in [
        (Sabotage::WrongName, has_lost, "the culprit did not fail"),
        (Sabotage::NoCulprit, has_lost, "names nobody"),
        (Sabotage::InnocentOut, has_lost, "to which nothing had happened, was put out"),
        (Sabotage::TalksOn, is_any, "goes on talking after its last word"),
        (Sabotage::BrokenTwice, has_lost, "was told twice that the cluster is broken"),
        (Sabotage::GroupTwice, is_any, "which it had not asked for, or twice"),
        (Sabotage::WrongTable, is_any, "of the table is"),
        (Sabotage::SwappedIds, is_plain, "by its own account"),
        (Sabotage::OneMore, has_too_many, "nodes are admitted"),
        (Sabotage::Lenient, has_stray, "joined a cluster that can't be"),
        (Sabotage::LateAnswer, has_none, "had its answer at"),
        (Sabotage::LeavesLate, is_plain, "to leave"),
        (Sabotage::NoAnswer, has_none, "never had an answer"),
        (Sabotage::WrongError, is_any, "should not have failed so"),
        (Sabotage::BreakUntold, has_lost, "was not told: "),
        (Sabotage::RevokedUntold, is_revoked, "is revoked ("),
        (Sabotage::FormedUntold, has_too_many, "nodes joined"),
        (Sabotage::NoReply, is_plain, "still waits for answers"),
        (Sabotage::Warned, is_plain, "ended with None, Some"),
        (Sabotage::EndsWell, has_lost, "the scheduler says it ended well"),
        (Sabotage::EndsWell, has_too_few, "and there was no cluster"),
        (Sabotage::EndsBadly, is_plain, "and all was well"),
        (Sabotage::EndsOtherwise, has_lost, "the scheduler says Failure"),
        (Sabotage::NeverEnds, is_plain, "the scheduler never ended"),
        (Sabotage::KeepsGroup, is_plain, "the scheduler still keeps"),
        (Sabotage::TwoNumbers, is_any, "others of"),
        (Sabotage::NotMade, is_any, "gets no group"),
        (Sabotage::NoNextEpoch, has_lost, "never asked for another epoch"),
        (Sabotage::StrangeAnswer, is_any, "which it had not asked"),
        (Sabotage::HighSum, is_any, "a sum of"),
        (Sabotage::NeverWritten, is_any, "a key that nobody writes has a value"),
        (Sabotage::TwoClaims, is_any, "the claim is"),
    ] {
        otherwise.extend(noticed_otherwise(sabotage, stories, words));
    }
    assert!(otherwise.is_empty(), "{}", otherwise.join("\n"));
}
