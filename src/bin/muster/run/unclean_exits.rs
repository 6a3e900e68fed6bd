//! Children that have ended with code 0 without leaving the cluster, or without ever joining it, while the others wait
//! for them: a loss like any other, but only the scheduler knows of it.
//!
//! So the scheduler is asked, as by `muster status`, once a worker has ended with code 0: soon, and then ever more
//! seldom. While the next epoch is waited for, a worker has ended uncleanly if the place of one of its lives has
//! neither left nor waits for that epoch. So has a worker that ended before it joined again. (If nobody waits, no
//! worker has: a program may well end without `muster_finalize` when all is done.) While the cluster forms and somebody
//! waits, a worker that has no place has ended without joining. A scheduler that does not answer is asked again. If a
//! worker has failed, which ends the run in any case, the scheduler is asked at once whether it had joined, so that the
//! user is told.
//!
//! Contract: nothing here waits. A thread asks, for [`PATIENCE`] at most. Tested below, and with real processes by
//! `tests/python/test_restarts.py`, `test_hosts.py` and `test_run_forming.py`.

use super::children::Child;
use super::question::Question;
use crate::status::ask::ask;
use muster::error::Culprit;
use muster::net::host;
use muster::types::{Process, Role};
use muster::wire::{JobPhase, NodeStanding, StatusNode};
use std::time::Duration;

/// How soon after an end the scheduler is asked; then the time doubles, up to the second of these.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(10)];
/// The longest pause while the cluster forms: nodes that wait there are to be told soon.
const FORMING_PAUSE: Duration = Duration::from_secs(1);
/// How long the scheduler may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How the job is, and its nodes; not all of them if nobody is awaited in the job.
type Told = (JobPhase, Vec<StatusNode>);

/// What an awaited worker did not do before it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// It did not leave the cluster.
    Leaving,
    /// It did not join it: so many others have joined, and wait.
    Joining(usize),
}

/// The workers that ended with code 0 or failed, and what is asked about them.
pub struct UncleanExits {
    scheduler: (String, u16),
    doubtful: Vec<usize>,
    /// When to ask next, and how long the pause after that is.
    asks_at: Duration,
    pause: Duration,
    asked: Option<Question<Option<Told>>>,
    /// A process that is lost once the cluster has formed may come back.
    can_return: bool,
}

impl UncleanExits {
    /// No such workers yet; the scheduler is at this address. Without restarts only a cluster that forms waits for
    /// anybody.
    pub fn new(scheduler: (String, u16), can_return: bool) -> UncleanExits {
        let (asks_at, pause) = (Duration::ZERO, PAUSES[0]);
        UncleanExits { scheduler, doubtful: Vec::new(), asks_at, pause, asked: None, can_return }
    }

    /// This worker has ended with code 0.
    pub fn doubt(&mut self, child: usize, now: Duration) {
        self.doubtful.push(child);
        (self.asks_at, self.pause) = (now + PAUSES[0], PAUSES[0]);
    }

    /// This worker has failed, and ends the run.
    pub fn failed(&mut self, child: usize, now: Duration) {
        self.doubtful.push(child);
        (self.asks_at, self.pause) = (now, PAUSES[0]);
    }

    /// When to look, if there is a reason to.
    pub fn deadline(&self) -> Option<Duration> {
        let at = self.asked.as_ref().map_or(self.asks_at, Question::looks_at);
        (!self.doubtful.is_empty()).then_some(at)
    }

    /// The workers that are awaited, each once; nobody before the next look is due. `lives` are the processes that a
    /// child has been.
    pub fn look<'a>(
        &mut self,
        children: &[Child],
        lives: impl Fn(usize) -> &'a [Process],
        now: Duration,
    ) -> Vec<(usize, Without)> {
        if self.deadline().is_none_or(|at| at > now) {
            return Vec::new();
        }
        if self.asked.is_none() {
            self.ask(now);
            return Vec::new();
        }
        let Some((about, answer)) = Question::look(&mut self.asked, now) else { return Vec::new() };
        let Some((phase, nodes)) = answer.flatten() else { return Vec::new() };
        match phase {
            JobPhase::Forming => self.asks_at = self.asks_at.min(now + FORMING_PAUSE),
            _ if !self.can_return => self.doubtful.clear(), // it has formed, and nobody will be awaited again
            _ => {}
        }
        let without = |child: usize| {
            let (one, lives) = (&children[child], lives(child));
            match phase {
                JobPhase::Forming if nodes.is_empty() => None,
                JobPhase::Forming => has_no_place(&nodes, one, lives).then_some(Without::Joining(nodes.len())),
                JobPhase::Recovering => {
                    nodes.iter().any(|node| is_awaited(node, one, lives)).then_some(Without::Leaving)
                }
                _ => None,
            }
        };
        let found: Vec<(usize, Without)> =
            about.into_iter().filter_map(|child| Some((child, without(child)?))).collect();
        self.doubtful.retain(|child| found.iter().all(|(other, _)| other != child));
        found
    }

    fn ask(&mut self, now: Duration) {
        self.asks_at = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSES[1]);
        let (host, port) = self.scheduler.clone();
        self.asked = Some(Question::ask(self.doubtful.clone(), now, move || {
            let told = ask(&host, port, PATIENCE, |job| waits(job.phase)).ok();
            told.map(|told| (told.job.phase, told.nodes))
        }));
    }
}

/// Whether somebody may wait for a worker that is missing.
fn waits(phase: JobPhase) -> bool {
    matches!(phase, JobPhase::Forming | JobPhase::Recovering)
}

/// Whether no process of this child waits for the cluster to form.
fn has_no_place(nodes: &[StatusNode], child: &Child, lives: &[Process]) -> bool {
    !nodes.iter().any(|node| is_place_of(&node.who, child, lives))
}

/// Whether this is the place of this child: by host and process, for processes of two hosts may have one number; or by role
/// and rank, for the node may be a child of the child.
fn is_place_of(who: &Culprit, child: &Child, lives: &[Process]) -> bool {
    let is_own = is_one_of(who, lives) && host::name().is_ok_and(|name| name == who.host);
    is_own || (who.role == Role::Worker && who.rank.is_some() && who.rank == child.part.rank())
}

/// Whether this has the number of one of these processes.
fn is_one_of(who: &Culprit, lives: &[Process]) -> bool {
    lives.iter().any(|life| life.pid == who.pid)
}

/// Whether the others wait for this place, which belonged to one of these lives. If the child was a script, and the
/// node a child of that, the place is known by its rank alone. So it must be lost for sure.
fn is_awaited(node: &StatusNode, child: &Child, lives: &[Process]) -> bool {
    let is_sure = node.state == NodeStanding::Lost;
    let is_awaited = is_sure || matches!(node.state, NodeStanding::Member | NodeStanding::Away);
    is_awaited && is_place_of(&node.who, child, lives) && (is_sure || is_one_of(&node.who, lives))
}

#[cfg(test)]
#[path = "unclean_exits_test.rs"]
mod tests;
