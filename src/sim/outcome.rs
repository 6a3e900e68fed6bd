//! What must be true of a story without recovery that has ended: everybody had an answer in time, and the right one.

use super::node::{End, Process};
use super::once::{Shape, FORMING};
use super::plan::FINALIZE;
use super::world::World;
use crate::error::{Error, Failure, Status};
use crate::types::{GroupId, Role, Time};
use std::time::Duration;

/// How much later than its bound an answer may come: the scheduler's grace of a second, and some time on the way.
const SLACK: Duration = Duration::from_millis(1500);

type Verdict = Result<(), String>;

/// Judges the whole story.
pub(super) fn at_end(world: &World) -> Verdict {
    if let Some(wrong) = &world.wrong {
        return Err(wrong.clone());
    }
    for (node, process) in world.processes.iter().enumerate() {
        answered_in_time(node, process)?;
        failed_rightly(world, node, process)?;
    }
    if !world.never_starts() {
        told_of_the_end(world)?;
    }
    match (world.plan.can_form(), world.is_clean()) {
        (false, _) => nobody_formed(world),
        (true, true) => all_is_well(world),
        (true, false) => Ok(()),
    }
}

impl Process {
    fn has_died(&self) -> bool {
        matches!(self.ended, Some((_, End::Died)))
    }

    fn failed(&self) -> Option<(Time, &Error)> {
        match &self.ended {
            Some((at, End::Failed(error))) => Some((*at, error)),
            _ => None,
        }
    }

    fn left(&self) -> Option<(Time, &Option<String>)> {
        match &self.ended {
            Some((at, End::Left(warning))) => Some((*at, warning)),
            _ => None,
        }
    }
}

fn answered_in_time(node: usize, process: &Process) -> Verdict {
    if process.has_died() {
        return Ok(());
    }
    if process.ended.is_none() {
        return Err(format!("node {node} never had an answer"));
    }
    let pause = process.paused_until.since(Time(0)).min(Duration::from_secs(4));
    let bound = process.started + FORMING + SLACK + pause;
    let joined = process.joined.or(process.failed().map(|(at, _)| at));
    if joined.is_none_or(|at| at > bound) {
        return Err(format!("node {node} had its answer at {joined:?}: {bound:?} is the latest"));
    }
    if let (Some((at, _)), Some(asked)) = (process.left(), process.asked_to_leave) {
        if at > asked + FINALIZE + SLACK + pause {
            return Err(format!("node {node} took from {asked:?} to {at:?} to leave"));
        }
    }
    Ok(())
}

/// Whether a node says this of itself: it heard nobody. The others hear that it is lost.
pub(super) fn is_of_itself(process: &Process, failure: &Failure) -> bool {
    let id = failure.culprit.as_ref().map(|culprit| &culprit.node_id);
    failure.status == Status::Unreachable && id == Some(&process.register.node_id)
}

fn failed_rightly(world: &World, node: usize, process: &Process) -> Verdict {
    let Some((at, error)) = process.failed() else { return Ok(()) };
    let is_about = |shape| world.plan.is_about(shape);
    let is_disturbed = process.disturbed[0];
    let gone = world.host.ended.as_ref().is_some_and(|(ended, _)| *ended <= at);
    let first_joined = world.processes.iter().filter_map(|process| process.joined).min();
    let loses_connects = world.plan.once.as_ref().is_some_and(|once| once.connect_lost_once_in > 0);
    let right = match error.status() {
        Status::Rejected => {
            is_about(Shape::DuplicateId)
                || is_about(Shape::WrongWorkerNum)
                || is_about(Shape::Surplus)
                || process.started > first_joined.unwrap_or(Time::NEVER)
        }
        Status::Unreachable => gone || world.never_starts() || loses_connects || is_disturbed,
        Status::Timeout => {
            // Nodes have the scheduler's own sentence, except those that could not hear it: for them it had ended for
            // another reason.
            let sentence = match &world.host.ended {
                Some((_, Err(ended))) if ended.status() == Status::Timeout => ended.message() == error.message(),
                _ => gone,
            };
            sentence || is_disturbed
        }
        // It was taken for dead before it could hear that the cluster was complete.
        Status::Fenced => is_disturbed && world.may_fail,
        Status::PeerLost | Status::Aborted => world.may_fail,
        _ => false,
    };
    match right {
        true => Ok(()),
        false => Err(format!("node {node} should not have failed so: {error:?}")),
    }
}

/// Every node that was there when the job broke has been told.
fn told_of_the_end(world: &World) -> Verdict {
    let Some((ended, result)) = &world.host.ended else { return Err("the scheduler never ended".to_owned()) };
    let Err(error) = result else {
        return match world.processes.iter().position(|process| process.broken.is_some()) {
            Some(node) => Err(format!("node {node} was told that the job broke, the scheduler says it ended well")),
            None => Ok(()),
        };
    };
    let Some(failure) = error.failure() else { return Ok(()) };
    for (node, process) in world.processes.iter().enumerate() {
        let there = process.joined.is_some() && process.asked_to_leave.is_none_or(|asked| asked > *ended);
        if there && process.broken.is_none() && !process.has_died() && !process.disturbed[0] {
            return Err(format!("node {node} was not told: {failure}"));
        }
        let is_other =
            |told: &Failure| told.status != Status::Fenced && !is_of_itself(process, told) && told != failure;
        if process.broken.as_ref().is_some_and(is_other) {
            return Err(format!("node {node} was told {:?}, the scheduler says {failure:?}", process.broken));
        }
    }
    Ok(())
}

fn nobody_formed(world: &World) -> Verdict {
    if let Some(node) = world.processes.iter().position(|process| process.joined.is_some()) {
        return Err(format!("node {node} joined a cluster that can't be"));
    }
    match &world.host.ended {
        Some((_, Err(error))) if error.status() == Status::Timeout => Ok(()),
        None if world.never_starts() => Ok(()),
        other => Err(format!("the scheduler ended with {other:?}, and there was no cluster")),
    }
}

/// Nothing happened that a cluster does not bear: it forms, works, and ends well.
fn all_is_well(world: &World) -> Verdict {
    let mut joined = 0;
    for (node, process) in world.processes.iter().enumerate().filter(|(_, process)| !process.has_died()) {
        let may_fail = world.plan.nodes[process.slot].extra || world.plan.is_about(Shape::Surplus);
        match (process.failed(), process.left()) {
            (Some(_), _) if may_fail => continue,
            (None, Some((_, None))) => {}
            // Its goodbye was lost with its connection, and then the scheduler had nobody left to wait for.
            (None, Some(_)) if process.disturbed[0] || world.plan.is_about(Shape::SchedulerPaused) => {}
            (failed, left) => return Err(format!("node {node} ended with {failed:?}, {left:?}")),
        }
        joined += 1;
        let expected = match process.register.role {
            _ if world.plan.is_about(Shape::Revocation) => Some((GroupId::UNIVERSE, Status::Timeout)),
            Role::Worker if world.plan.is_about(Shape::Mismatch) => Some((GroupId::WORLD, Status::Mismatch)),
            _ => None,
        };
        let Some((group, status)) = expected else { continue };
        if world.told.causes.heard_by(node, group).is_none_or(|failure| failure.status != status) {
            return Err(format!("node {node} was not told that {group} is revoked ({status:?})"));
        }
    }
    if joined != world.plan.size() {
        return Err(format!("{joined} nodes joined"));
    }
    // Nothing is left of groups that all have freed. A word that is lost with its connection is said again.
    match &world.host.ended {
        Some((_, Ok(()))) if world.host.groups_kept > 0 => {
            Err(format!("the scheduler still keeps {} groups", world.host.groups_kept))
        }
        Some((_, Ok(()))) => Ok(()),
        other => Err(format!("the scheduler ended with {other:?}, and all was well")),
    }
}
