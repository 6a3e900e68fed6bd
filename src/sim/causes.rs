//! The first cause of what broke, as the scheduler says it and as the nodes hear it: one for each epoch and group.
//!
//! A scheduler that dies takes with it which nodes it has called lost. The next one asks nobody, but nodes that come
//! back tell it. From then on it says the same; only before may it have found another cause. What nodes hear is what
//! was said.

use super::abandoned::is_first_cause;
use super::outcome;
use super::world::World;
use crate::error::{Failure, Status};
use crate::types::{Epoch, GroupId};
use crate::wire::Message;
use std::collections::{BTreeMap, BTreeSet};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Broken {
    /// The epoch, by a loss or otherwise.
    Cluster,
    /// The job, for good.
    Job,
    Group(Option<GroupId>),
}

type Key = (Epoch, Broken);

#[derive(Debug, Default)]
pub(super) struct Causes {
    /// What each life of the scheduler said.
    said: BTreeMap<Key, Vec<(u64, Failure)>>,
    /// Which processes have heard it.
    known_by: BTreeMap<Key, BTreeSet<usize>>,
    /// The connections on which a node came back and has said in which epoch it is.
    came_back: BTreeSet<usize>,
    /// The life of the scheduler that was told by a node that came back.
    told_to: BTreeMap<Key, u64>,
}

impl Causes {
    /// Whether this life of the scheduler was told by a node that came back.
    pub(super) fn was_told(&self, life: u64, epoch: Epoch, what: Broken) -> bool {
        self.told_to.get(&(epoch, what)) == Some(&life)
    }

    /// The revocation of this group that this process has heard of, in whatever epoch.
    pub(super) fn heard_by(&self, node: usize, group: GroupId) -> Option<&Failure> {
        let is_of = |key: &Key| key.1 == Broken::Group(Some(group));
        let (key, _) = self.known_by.iter().find(|(key, nodes)| is_of(key) && nodes.contains(&node))?;
        self.said.get(key)?.first().map(|(_, failure)| failure)
    }
}

fn key(failure: &Failure, group: bool) -> Key {
    let what = match failure.status {
        _ if group => Broken::Group(failure.group),
        Status::Aborted => Broken::Job,
        _ => Broken::Cluster,
    };
    (failure.epoch, what)
}

fn is_same(one: &Failure, other: &Failure) -> bool {
    (one.status, &one.culprit, &one.cause) == (other.status, &other.culprit, &other.cause)
}

/// The scheduler says what has broken: always the same in one life, and the same as it was told.
pub(super) fn said(world: &mut World, message: &Message) -> Result<(), String> {
    let (key, failure) = match message {
        Message::Verdict(verdict) => (key(&verdict.failure, false), &verdict.failure),
        Message::Revoked(revoked) => (key(&revoked.failure, true), &revoked.failure),
        // There is no next epoch, for that reason.
        Message::NotRecovered(word) if is_first_cause(&word.failure) => (key(&word.failure, false), &word.failure),
        _ => return Ok(()),
    };
    let life = world.host.life;
    let causes = &mut world.told.causes;
    let said = causes.said.entry(key).or_default();
    if let Some((_, first)) = said.iter().find(|(by, _)| *by == life) {
        return match is_same(first, failure) {
            true => Ok(()),
            false => Err(format!("the scheduler says two first causes of {key:?}: {first}; and {failure}")),
        };
    }
    let is_known = said.iter().any(|(_, known)| is_same(known, failure));
    if causes.told_to.get(&key) == Some(&life) && !is_known {
        return Err(format!(
            "the scheduler was told the first cause of {key:?}, and says another: {failure}; {said:?}"
        ));
    }
    said.push((life, failure.clone()));
    Ok(())
}

/// A process hears what has broken: one of what was said.
pub(super) fn heard(world: &mut World, node: usize, failure: &Failure, group: bool) -> Result<(), String> {
    let key = key(failure, group);
    let job = world.processes[node].formed.as_ref().map(|formed| formed.instance);
    if job != world.host.instance {
        return Ok(()); // the failure is of a job that is done
    }
    let causes = &mut world.told.causes;
    causes.known_by.entry(key).or_default().insert(node);
    // A node that hears nobody says so of itself.
    if outcome::is_of_itself(&world.processes[node], failure) && !world.plan.recovers() {
        return Ok(());
    }
    let causes = &mut world.told.causes;
    let said = causes.said.get(&key).map_or(&[][..], |said| said);
    match said.iter().any(|(_, said)| is_same(said, failure)) {
        true => Ok(()),
        false => Err(format!("node {node} was told of another first cause than others: {failure}; they: {said:?}")),
    }
}

impl World {
    /// The scheduler hears from a node. It has heard what the node knew when it came back before the node's next
    /// heartbeat.
    pub(super) fn one_is_heard(&mut self, conn: usize, message: &Message) {
        let Some(node) = self.network.node_of(conn) else { return };
        let process = &self.processes[node];
        if process.epoch != self.newest || process.to_blame.is_some() {
            return;
        }
        let knows_of_abort = process.knows_of_abort();
        let (life, causes) = (self.host.life, &mut self.told.causes);
        match message {
            Message::InEpoch(word) if word.epoch == process.epoch => drop(causes.came_back.insert(conn)),
            Message::Heartbeat(_) | Message::Known(_) if causes.came_back.contains(&conn) => {
                let is_broken = causes.said.get(&(process.epoch, Broken::Cluster));
                let is_broken = is_broken.is_some_and(|said| said.iter().any(|(by, _)| *by == life));
                let brings =
                    |what| causes.known_by.get(&(process.epoch, what)).is_some_and(|nodes| nodes.contains(&node));
                let is_broken = is_broken || brings(Broken::Cluster) || brings(Broken::Job);
                for (key, nodes) in causes.known_by.iter().filter(|((epoch, _), _)| *epoch == process.epoch) {
                    let is_kept = match key.1 {
                        Broken::Cluster => !knows_of_abort, // the node brings the abort
                        Broken::Job => true,
                        Broken::Group(_) => !is_broken, // the cluster's break is the reason why its groups are over
                    };
                    if is_kept && nodes.contains(&node) {
                        causes.told_to.insert(*key, life);
                    }
                }
            }
            _ => {}
        }
    }
}
