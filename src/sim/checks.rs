//! What must be true after every step, and of every story when it has ended.

use super::plan::{Shape, FINALIZE, FORMING};
use super::world::{NodeSide, World};
use crate::error::{Failure, Status};
use crate::types::{GroupId, Role, Time};
use crate::wire::{Formed, Member};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How much later than its bound an answer may come: the scheduler's grace of a second, and some travelling.
const SLACK: Duration = Duration::from_millis(1500);

type Verdict = Result<(), String>;

/// After every step that may have let somebody in or out: one life per node id, ranks unique and dense.
pub(super) fn after_step(world: &mut World) -> Verdict {
    if !std::mem::take(&mut world.seats_changed) {
        return Ok(());
    }
    let Some(scheduler) = &world.scheduler else { return Ok(()) };
    let mut ids = BTreeSet::new();
    let mut ranks: BTreeMap<Role, BTreeSet<u32>> = BTreeMap::new();
    let (mut seats, mut ranked) = (0, 0);
    for seat in scheduler.seats() {
        seats += 1;
        if !ids.insert(seat.register.node_id.as_str()) {
            return Err(format!("two lives of node {:?} are admitted", seat.register.node_id));
        }
        if let Some(rank) = seat.rank {
            ranked += 1;
            if !ranks.entry(seat.register.role).or_default().insert(rank) {
                return Err(format!("two nodes have {} rank {rank}", seat.register.role));
            }
        }
    }
    if seats > world.plan.workers + world.plan.servers {
        return Err(format!("{seats} nodes are admitted"));
    }
    let all = [(Role::Worker, world.plan.workers), (Role::Server, world.plan.servers)];
    for (role, number) in all.into_iter().filter(|_| ranked > 0) {
        let dense: BTreeSet<u32> = (0..number).collect();
        if ranks.get(&role).cloned().unwrap_or_default() != dense {
            return Err(format!("{role} ranks are not 0 to {number}: {ranks:?}"));
        }
    }
    Ok(())
}

/// A node's brain says nothing after its last word, nor one word before it has joined.
pub(super) fn still_talking(world: &World, node: usize) -> Verdict {
    match world.nodes[node].is_over() {
        true => Err(format!("node {node} goes on talking after its last word")),
        false => Ok(()),
    }
}

/// Everybody is told the same, and each its own place in it.
pub(super) fn formed(world: &World, node: usize, formed: &Formed) -> Verdict {
    let side = &world.nodes[node];
    if side.formed.is_some() {
        return Err(format!("node {node} was told twice that the cluster is complete"));
    }
    let known = world.nodes.iter().find_map(|other| other.formed.as_ref());
    match known {
        Some((_, known)) => {
            let same = (known.instance, known.epoch, known.secret) == (formed.instance, formed.epoch, formed.secret);
            if !same || known.members != formed.members || known.agreed != formed.agreed {
                return Err(format!("node {node} was told of another cluster than others"));
            }
        }
        None => table(world, &formed.members)?,
    }
    let Some(own) = formed.members.get(formed.index as usize) else {
        return Err(format!("node {node} has index {}", formed.index));
    };
    let place = (own.role, own.rank, own.local_rank, own.process.pid as usize);
    if place != (side.plan.role, formed.rank, formed.local_rank, 1000 + node) {
        return Err(format!("node {node} was given the place of {own:?}"));
    }
    let plain = side.plan.id_given && side.plan.node_id.parse().is_ok_and(|rank: u32| rank < world.plan.workers);
    let own_rank = if plain { side.plan.node_id.parse().ok() } else { side.plan.rank };
    if side.plan.role == Role::Worker && own_rank.is_some_and(|rank| rank != formed.rank) {
        return Err(format!("node {node} is rank {own_rank:?} by its own account, and was given {}", formed.rank));
    }
    Ok(())
}

/// Workers by rank, then servers by rank; local ranks are dense on each host.
fn table(world: &World, members: &[Arc<Member>]) -> Verdict {
    let mut local: BTreeMap<(Role, &str), u32> = BTreeMap::new();
    if members.len() as u32 != world.plan.workers + world.plan.servers {
        return Err(format!("{} nodes in the table", members.len()));
    }
    for (at, member) in (0u32..).zip(members) {
        let (role, rank) = match at.checked_sub(world.plan.workers) {
            None => (Role::Worker, at),
            Some(rank) => (Role::Server, rank),
        };
        let next = local.entry((role, &member.host.key)).or_default();
        if (member.index, member.role, member.rank, member.local_rank) != (at, role, rank, *next) {
            return Err(format!("place {at} of the table is {member:?}"));
        }
        *next += 1;
    }
    Ok(())
}

/// A group has one first cause, and everybody hears that one.
pub(super) fn revoked(world: &mut World, node: usize, failure: Failure) -> Verdict {
    let Some(group) = failure.group else { return Err(format!("node {node}: {failure:?} revokes no group")) };
    let known = world.nodes.iter().find_map(|side| side.revoked.get(&group));
    if known.is_some_and(|known| *known != failure) {
        return Err(format!("{group} was revoked for {known:?}, and for {failure:?}"));
    }
    world.nodes[node].revoked.insert(group, failure);
    Ok(())
}

/// The whole story.
pub(super) fn at_end(world: &World) -> Verdict {
    for (node, side) in world.nodes.iter().enumerate() {
        answered_in_time(node, side)?;
        if let Some(failure) = &side.broken {
            first_cause(world, node, failure)?;
        }
        failed_rightly(world, node, side)?;
    }
    if world.plan.scheduler_starts.is_some() {
        told_of_the_end(world)?;
    }
    match (world.plan.can_form(), world.is_clean()) {
        (false, _) => nobody_formed(world),
        (true, true) => all_is_well(world),
        (true, false) => Ok(()),
    }
}

fn answered_in_time(node: usize, side: &NodeSide) -> Verdict {
    if side.dead {
        return Ok(());
    }
    if !side.is_over() {
        return Err(format!("node {node} never had an answer"));
    }
    let pause = side.paused_until.since(Time(0)).min(Duration::from_secs(4));
    let bound = side.plan.starts + FORMING + SLACK + pause;
    let joined = side.formed.as_ref().map(|(at, _)| *at).or(side.failed.as_ref().map(|(at, _)| *at));
    if joined.is_none_or(|at| at > bound) {
        return Err(format!("node {node} had its answer at {joined:?}: {bound:?} is the latest"));
    }
    if let (Some((at, _)), Some(asked)) = (&side.left, side.asked_to_leave) {
        if *at > asked + FINALIZE + SLACK + pause {
            return Err(format!("node {node} took from {asked:?} to {at:?} to leave"));
        }
    }
    Ok(())
}

/// One that heard nobody says so of itself; the others hear that it is lost.
fn is_of_itself(side: &NodeSide, failure: &Failure) -> bool {
    let id = failure.culprit.as_ref().map(|culprit| &culprit.node_id);
    failure.status == Status::Unreachable && id == Some(&side.plan.node_id)
}

/// The cause that this node was told is the one that everybody was told, and its culprit did fail.
fn first_cause(world: &World, node: usize, failure: &Failure) -> Verdict {
    if failure.status == Status::Fenced {
        return match world.nodes[node].to_blame {
            true => Ok(()),
            false => Err(format!("node {node}, to which nothing happened, was put out: {failure}")),
        };
    }
    if is_of_itself(&world.nodes[node], failure) && world.nodes[node].to_blame {
        return Ok(());
    }
    let is_shared = |side: &NodeSide, other: &Failure| other.status != Status::Fenced && !is_of_itself(side, other);
    let told = |side: &&NodeSide| side.broken.as_ref().is_some_and(|other| is_shared(side, other));
    let others = world.nodes.iter().filter(told).find(|side| side.broken.as_ref() != Some(failure));
    if let Some(other) = others {
        return Err(format!("node {node} was told {failure:?}, another {:?}", other.broken));
    }
    let Some(culprit) = &failure.culprit else { return Err(format!("{failure:?} names nobody")) };
    match world.nodes.get(culprit.pid as usize - 1000) {
        Some(named) if named.to_blame && named.plan.node_id == culprit.node_id => Ok(()),
        _ => Err(format!("{culprit} was named, to which nothing had happened first: {failure}")),
    }
}

fn failed_rightly(world: &World, node: usize, side: &NodeSide) -> Verdict {
    let Some((at, error)) = &side.failed else { return Ok(()) };
    let gone = world.ended.as_ref().is_some_and(|(ended, _)| ended <= at);
    let right = match error.status() {
        Status::Rejected => {
            matches!(world.plan.shape, Shape::DuplicateId | Shape::WrongWorkerNum | Shape::Surplus)
                || (side.plan.starts > world.first_formed.unwrap_or(Time::NEVER))
        }
        Status::Unreachable => {
            gone || world.scheduler.is_none() || world.plan.connect_lost_once_in > 0 || side.disturbed
        }
        Status::Timeout => {
            // The scheduler's own sentence, but for those who could not hear it: it had ended for another reason.
            let sentence = match &world.ended {
                Some((_, Err(ended))) if ended.status() == Status::Timeout => ended.message() == error.message(),
                _ => gone,
            };
            sentence || side.disturbed
        }
        // It was taken for dead before it could hear that the cluster was complete.
        Status::Fenced => side.disturbed && world.unclean,
        Status::PeerLost | Status::Aborted => world.unclean || world.plan.shape == Shape::Abort,
        _ => false,
    };
    match right {
        true => Ok(()),
        false => Err(format!("node {node} should not have failed so: {error:?}")),
    }
}

/// Whoever was there when the job broke has been told.
fn told_of_the_end(world: &World) -> Verdict {
    let Some((ended, result)) = &world.ended else { return Err("the scheduler never ended".to_owned()) };
    let Err(error) = result else {
        return match world.nodes.iter().position(|side| side.broken.is_some()) {
            Some(node) => Err(format!("node {node} was told that the job broke, the scheduler says it ended well")),
            None => Ok(()),
        };
    };
    let Some(failure) = error.failure() else { return Ok(()) };
    for (node, side) in world.nodes.iter().enumerate() {
        let there = side.formed.is_some() && side.asked_to_leave.is_none_or(|asked| asked > *ended);
        if there && side.broken.is_none() && !side.dead && !side.disturbed {
            return Err(format!("node {node} was not told: {failure}"));
        }
        let is_other = |told: &Failure| told.status != Status::Fenced && !is_of_itself(side, told) && told != failure;
        if side.broken.as_ref().is_some_and(is_other) {
            return Err(format!("node {node} was told {:?}, the scheduler says {failure:?}", side.broken));
        }
    }
    Ok(())
}

fn nobody_formed(world: &World) -> Verdict {
    if let Some(node) = world.nodes.iter().position(|side| side.formed.is_some()) {
        return Err(format!("node {node} joined a cluster that can't be"));
    }
    match &world.ended {
        Some((_, Err(error))) if error.status() == Status::Timeout => Ok(()),
        None if world.plan.scheduler_starts.is_none() => Ok(()),
        other => Err(format!("the scheduler ended with {other:?}")),
    }
}

/// Nothing happened that a cluster does not bear: it forms, works, and ends well.
fn all_is_well(world: &World) -> Verdict {
    let mut joined = 0;
    for (node, side) in world.nodes.iter().enumerate().filter(|(_, side)| !side.dead) {
        let may_fail = side.plan.extra || world.plan.shape == Shape::Surplus;
        match (&side.failed, &side.left) {
            (Some(_), _) if may_fail => continue,
            (None, Some((_, None))) => {}
            // Its goodbye was lost with its connection, and the scheduler had nobody left to wait for.
            (None, Some(_)) if side.disturbed || world.plan.shape == Shape::SchedulerPaused => {}
            (failed, left) => return Err(format!("node {node} ended with {failed:?}, {left:?}")),
        }
        joined += 1;
        if let Some(failure) = &side.broken {
            return Err(format!("node {node} was told that the cluster broke: {failure}"));
        }
        let expected = match world.plan.shape {
            Shape::Revocation => Some((GroupId::UNIVERSE, Status::Timeout)),
            Shape::Mismatch if side.plan.role == Role::Worker => Some((GroupId::WORLD, Status::Mismatch)),
            _ => None,
        };
        if let Some((group, status)) = expected {
            if side.revoked.get(&group).map(|failure| failure.status) != Some(status) {
                return Err(format!("node {node} was not told that {group} is revoked ({status:?})"));
            }
        }
    }
    if joined != world.plan.workers + world.plan.servers {
        return Err(format!("{joined} nodes joined"));
    }
    match &world.ended {
        Some((_, Ok(()))) => {
            // Nothing is left of groups that all have freed; a word that is lost with its connection is said again.
            let kept = world.scheduler.as_ref().map_or(0, |scheduler| scheduler.groups_kept());
            if kept > 0 {
                return Err(format!("the scheduler still keeps {kept} groups"));
            }
            world.book.judge_sum()
        }
        other => Err(format!("the scheduler ended with {other:?}")),
    }
}
