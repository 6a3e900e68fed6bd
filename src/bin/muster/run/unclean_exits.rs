//! Children that have ended with code 0 without leaving the cluster, or without ever joining it, while the others wait
//! for them: a loss like any other, but only the scheduler knows of it.
//!
//! So the scheduler is asked, as by `muster status`, once a worker has ended with code 0: soon, and then ever more
//! seldom. While the next epoch is waited for, a worker has ended uncleanly if the place of one of its lives has
//! neither left nor waits for that epoch. So has a worker that ended before it joined again. (If nobody waits, no
//! worker has: a program may well end without `muster_finalize` when all is done.) While the cluster forms and somebody
//! waits, a worker that has no place has ended without joining. A scheduler that does not answer is asked again. If a
//! worker has failed, which ends the run in any case, the scheduler is asked at once whether it had joined, so that the
//! user is told. The answer also says whether the job was broken by then ([`AtFirst`]).
//!
//! A launcher on a host without the scheduler may see all its workers end with code 0 before any of that. So it asks once
//! more, at once, before it ends well itself ([`Later`]). A port that refuses is an answer then: the job is over.
//! So is the word that all these workers have left, that nobody waits yet, or that another has broken the job. Where a
//! worker's place has neither left nor is lost yet, the launcher asks again, for [`PATIENCE`] at most.
//!
//! Contract: nothing here waits. A thread asks, for [`PATIENCE`] at most. Tested below, and with real processes by
//! `tests/python/test_restarts.py`, `test_hosts.py`, `test_hosts_stop.py` and `test_run_forming.py`.

use super::children::Child;
use super::question::Question;
use crate::status::ask::ask;
use crate::status::text::plain;
use muster::error::Culprit;
use muster::net::host;
use muster::types::{Process, Role};
use muster::wire::{JobPhase, NodeStanding, StatusJob, StatusNode};
use std::time::Duration;

/// How soon after an end the scheduler is asked; then the time doubles, up to the second of these.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(10)];
/// The longest pause while the cluster forms: nodes that wait there are to be told soon.
const FORMING_PAUSE: Duration = Duration::from_secs(1);
/// How long the scheduler may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How soon the last question is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How many nodes a job may have for the first failure's question and the last one to hear of all of them. Every host asks the
/// last one at the end.
const LISTED_MAX: u32 = 4096;

/// How the job is.
struct Told {
    phase: JobPhase,
    /// The one that has broken it, if it is known.
    culprit: Option<Culprit>,
    /// Why it is broken, if it is.
    why: Option<String>,
    /// Whether none of its groups is known to be revoked.
    groups_are_whole: bool,
    /// Its nodes; none of them if nobody is awaited in the job, and the question is neither the first failure's nor the last.
    nodes: Vec<StatusNode>,
}

/// Nobody has answered.
struct NotTold {
    is_refused: bool,
}

/// What is asked of a job whose cluster has formed, and before a run ends well whose workers have all ended with code 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// As long as the job runs, whether others wait for a worker to come back: there are restarts. Nothing at the end.
    Returning,
    /// Nothing: this launcher has the scheduler, or all workers of the job, or the job has recovery.
    Nothing,
    /// At the end, whether others wait for one of the workers to join. The launcher that leads this one hears of a loss by
    /// itself.
    Joining,
    /// At the end, whether one of them has broken the job, too.
    Leaving,
}

/// How the job was when the first failure was noticed here, before this launcher asked the others to end. What the scheduler
/// says later may only be a consequence of that request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtFirst {
    /// Nobody has told in time.
    Unknown,
    /// Nothing had broken it.
    Whole,
    /// Nothing had broken it or a group of it, and this child, which failed, had left the cluster: no other failure is known that
    /// could have made it fail.
    Left(usize),
    /// It was broken, for this reason.
    Broken(String),
}

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
    asked: Option<Question<Result<Told, NotTold>>>,
    later: Later,
    /// The cluster of this run was complete. If a cluster forms at its port now, it is another one.
    has_formed: bool,
    /// The worker that failed first, until others are asked to end.
    first: Option<usize>,
    at_first: AtFirst,
    /// Until when an answer to the last question is waited for, if it is being asked.
    settles_by: Option<Duration>,
}

impl UncleanExits {
    /// No such workers yet; the scheduler is at this address.
    pub fn new(scheduler: (String, u16), later: Later) -> UncleanExits {
        UncleanExits {
            scheduler,
            doubtful: Vec::new(),
            asks_at: Duration::ZERO,
            pause: PAUSES[0],
            asked: None,
            later,
            has_formed: false,
            first: None,
            at_first: AtFirst::Unknown,
            settles_by: None,
        }
    }

    /// The cluster is complete.
    pub fn formed(&mut self) {
        self.has_formed = true;
    }

    /// This worker has ended with code 0.
    pub fn doubt(&mut self, child: usize, now: Duration) {
        self.doubtful.push(child);
        self.settles_by = None;
        (self.asks_at, self.pause) = (now + PAUSES[0], PAUSES[0]);
    }

    /// This worker has not joined, but a process that it has left behind may join in its place. Before a run ends well
    /// nobody waits for that.
    pub fn may_join_yet(&mut self, child: usize, now: Duration) {
        if self.settles_by.is_none() {
            self.doubt(child, now);
        }
    }

    /// This worker has failed, and ends the run.
    pub fn failed(&mut self, child: usize, now: Duration) {
        self.doubtful.push(child);
        // A question that is under way may have been asked before.
        (self.first, self.asked) = (Some(child), None);
        (self.asks_at, self.pause) = (now, PAUSES[0]);
    }

    /// Others are asked to end now: what the scheduler says from now on may be a consequence of that.
    pub fn others_are_told(&mut self) {
        self.first = None;
    }

    /// How the job was when the first failure was noticed.
    pub fn at_first(&self) -> &AtFirst {
        &self.at_first
    }

    /// Whether nothing is left to ask about these workers. All workers here have ended, and the run would end well. If there
    /// is something left it is asked now, and this is to be called again after each look.
    pub fn is_settled(&mut self, now: Duration) -> bool {
        if matches!(self.later, Later::Returning | Later::Nothing) || self.doubtful.is_empty() {
            return true;
        }
        let by = *self.settles_by.get_or_insert_with(|| {
            // A question that is under way may not be about all of them.
            (self.asked, self.asks_at) = (None, now);
            now + PATIENCE
        });
        by <= now
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
        let told = match answer {
            Some(Ok(told)) => told,
            Some(Err(NotTold { is_refused })) => return self.is_not_told(is_refused, now),
            None => return self.is_not_told(false, now),
        };
        if self.first.is_some_and(|child| about.contains(&child)) {
            let lives = self.first.map_or(&[][..], &lives);
            self.at_first = self.at_first_by(&told, children, lives);
        }
        let without = |child: usize| Some((child, self.without(&told, &children[child], lives(child))?));
        let found: Vec<(usize, Without)> = about.into_iter().filter_map(without).collect();
        let mut doubtful = std::mem::take(&mut self.doubtful);
        doubtful.retain(|child| found.iter().all(|(other, _)| other != child));
        match told.phase {
            _ if self.settles_by.is_some() => {
                doubtful.retain(|child| self.is_open(&told, &children[*child], lives(*child)));
                self.asks_at = now + ASK_AGAIN;
            }
            JobPhase::Forming => self.asks_at = self.asks_at.min(now + FORMING_PAUSE),
            _ if self.later != Later::Returning => doubtful.clear(), // it has formed, and nobody will be awaited again
            _ => {}
        }
        self.doubtful = doubtful;
        found
    }

    /// How the job was, by this answer to the question about the first failure.
    fn at_first_by(&self, told: &Told, children: &[Child], lives: &[Process]) -> AtFirst {
        let had_left = |child: &Child| {
            told.nodes.iter().any(|node| node.state == NodeStanding::Left && is_place_of(&node.who, child, lives))
        };
        match (&told.why, self.first) {
            (Some(why), _) => AtFirst::Broken(why.clone()),
            (None, Some(first)) if told.groups_are_whole && had_left(&children[first]) => AtFirst::Left(first),
            (None, _) => AtFirst::Whole,
        }
    }

    /// Nobody has answered. Where the run ends, a port that refuses means that the job is over.
    fn is_not_told(&mut self, is_refused: bool, now: Duration) -> Vec<(usize, Without)> {
        if self.settles_by.is_some() {
            self.asks_at = now + ASK_AGAIN;
            if is_refused {
                self.doubtful.clear();
            }
        }
        Vec::new()
    }

    /// What this worker did not do before it ended, if it is awaited.
    fn without(&self, told: &Told, child: &Child, lives: &[Process]) -> Option<Without> {
        let nodes = &told.nodes;
        let hears_of_loss = self.settles_by.is_some() && self.later == Later::Leaving;
        match told.phase {
            JobPhase::Forming if nodes.is_empty() || self.has_formed => None,
            JobPhase::Forming => has_no_place(nodes, child, lives).then_some(Without::Joining(nodes.len())),
            JobPhase::Recovering => nodes.iter().any(|node| is_awaited(node, child, lives)).then_some(Without::Leaving),
            JobPhase::Broken if hears_of_loss => {
                told.culprit.as_ref().filter(|who| is_place_of(who, child, lives)).map(|_| Without::Leaving)
            }
            _ => None,
        }
    }

    /// Whether another answer may yet say of this worker that it is awaited. The end of a connection is known before the loss of
    /// the node is certain.
    fn is_open(&self, told: &Told, child: &Child, lives: &[Process]) -> bool {
        let may_be_awaited =
            self.later == Later::Leaving && !matches!(told.phase, JobPhase::Forming | JobPhase::Broken);
        let has_not_left = |node: &StatusNode| node.state != NodeStanding::Left;
        may_be_awaited && told.nodes.iter().any(|node| has_not_left(node) && is_place_of(&node.who, child, lives))
    }

    fn ask(&mut self, now: Duration) {
        self.asks_at = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSES[1]);
        let (host, port) = self.scheduler.clone();
        let (is_last, is_first) = (self.settles_by.is_some(), self.first.is_some());
        self.asked = Some(Question::ask(self.doubtful.clone(), now, move || {
            let lists = |job: &StatusJob| {
                let nodes = job.worker_num.saturating_add(job.server_num);
                (is_last || (is_first && job.failure.is_none())) && nodes <= LISTED_MAX
            };
            let wanted = |job: &StatusJob| waits(job.phase) || lists(job);
            match ask(&host, port, PATIENCE, wanted) {
                Ok(told) => {
                    let why = told.job.failure.as_ref().map(|failure| plain(&failure.to_string()));
                    let culprit = told.job.failure.and_then(|failure| failure.culprit);
                    let groups_are_whole = told.groups.iter().all(|group| group.failure.is_none());
                    Ok(Told { phase: told.job.phase, culprit, why, groups_are_whole, nodes: told.nodes })
                }
                Err(why) => Err(NotTold { is_refused: why.is_refused }),
            }
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
