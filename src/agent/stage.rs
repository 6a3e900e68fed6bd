//! How far this life of the node has come, and all that changes it: it forms, it is a member, it is over.
//!
//! A member knows how the cluster stands, and whether it stays in it itself. Only the methods here change either.

use super::complaints::Complaints;
use super::line::Line;
use crate::error::{Failure, Status};
use crate::types::{Epoch, JobInstance, Time};
use crate::wire::{Formed, Known, LostNodes, Message, Told};
use std::time::Duration;

/// How long the scheduler has for its sentence once the time for forming is up.
const VERDICT_GRACE: Duration = Duration::from_secs(1);
/// How long the scheduler may be away before a node leaves without it.
const AWAY_MAX: Duration = Duration::from_secs(5);
/// How long leaving may take at most if nobody waits for it; and how long a node that leaves looks for the scheduler at
/// least.
const SHORT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum Stage {
    /// The cluster is not complete yet.
    Forming(Forming),
    /// The cluster is complete, or was.
    Member(Member),
    /// Everything has been said.
    Over,
}

#[derive(Debug)]
pub(super) struct Forming {
    /// When the time for it is up.
    deadline: Time,
    /// Until when the scheduler may say why, once the time is up.
    grace: Option<Time>,
    /// When to say that the scheduler can't be reached.
    complaints: Complaints,
}

/// What follows from the clock of forming.
pub(super) enum FormingClock {
    Runs,
    /// The time is up: the scheduler is asked who is missing.
    AsksWhy,
    IsUp,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) instance: JobInstance,
    pub(super) generation: u64,
    pub(super) epoch: Epoch,
    /// The highest number of a group of its own that was made, and that it was told of; 0: none.
    group: u32,
    /// The nodes lost in this epoch, by index.
    lost: Vec<u32>,
    recovery: bool,
    health: ClusterHealth,
    presence: Presence,
}

/// The health of the cluster, as far as this node was told.
#[derive(Debug)]
enum ClusterHealth {
    Whole,
    /// Broken, for this first cause; the next epoch may make it whole again.
    Broken(Failure),
    /// Broken for good.
    Over {
        first: Failure,
        /// It was aborted, and no scheduler has said so yet: it is told on each connection.
        is_news: bool,
    },
}

/// Whether this node stays in the cluster.
#[derive(Debug)]
enum Presence {
    Stays,
    Leaves {
        since: Time,
        until: Time,
    },
    /// The scheduler has put it out: nothing will be answered any more.
    PutOut,
}

impl Stage {
    pub(super) fn member(&self) -> Option<&Member> {
        match self {
            Stage::Member(member) => Some(member),
            _ => None,
        }
    }

    pub(super) fn member_mut(&mut self) -> Option<&mut Member> {
        match self {
            Stage::Member(member) => Some(member),
            _ => None,
        }
    }

    /// Whether this is the present epoch of a member.
    pub(super) fn is_in(&self, epoch: Epoch) -> bool {
        self.member().is_some_and(|member| member.epoch == epoch)
    }
}

impl Forming {
    pub(super) fn new(now: Time, deadline: Time) -> Forming {
        Forming { deadline, grace: None, complaints: Complaints::from(now) }
    }

    /// What to say of the scheduler, if something is wrong with it, and it is time to say so.
    pub(super) fn complain(&mut self, now: Time, line: &Line) -> Option<String> {
        let looks = self.complaints.looks(now) && line.is_amiss(now);
        let says = looks && self.complaints.says(now, &line.search.wrong());
        says.then(|| format!("still trying: {}", line.search.complaint(now)))
    }

    /// The scheduler has spoken.
    pub(super) fn hears(&mut self) {
        self.complaints.settle();
    }

    /// The scheduler is there, and wants to be asked again at this time.
    pub(super) fn waits_until(&mut self, at: Time) {
        self.complaints = Complaints::from(at);
    }

    /// Whether the scheduler has its last second.
    pub(super) fn is_in_grace(&self) -> bool {
        self.grace.is_some()
    }

    pub(super) fn clock(&mut self, now: Time, line: &Line) -> FormingClock {
        match self.grace {
            Some(grace) if now >= grace => FormingClock::IsUp,
            None if now >= self.deadline && line.is_up() => {
                self.grace = Some(now + VERDICT_GRACE);
                FormingClock::AsksWhy
            }
            None if now >= self.deadline => FormingClock::IsUp,
            _ => FormingClock::Runs,
        }
    }

    pub(super) fn next_look(&self, line: &Line) -> Time {
        let is_fine = line.is_up() && line.search.has_met_the_scheduler();
        let complaint = if is_fine { Time::NEVER } else { self.complaints.look_at() };
        self.grace.unwrap_or(self.deadline).min(complaint)
    }
}

impl Member {
    pub(super) fn new(formed: &Formed, recovery: bool) -> Member {
        Member {
            instance: formed.instance,
            generation: formed.generation,
            epoch: formed.epoch,
            group: 0,
            lost: Vec::new(),
            recovery,
            health: ClusterHealth::Whole,
            presence: Presence::Stays,
        }
    }

    /// The cluster is whole again, in a new epoch.
    pub(super) fn renew(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.lost.clear();
        self.health = ClusterHealth::Whole;
    }

    /// A scheduler of this generation has confirmed the membership. Returns whether it is another generation than the
    /// last.
    pub(super) fn follow(&mut self, generation: u64) -> bool {
        std::mem::replace(&mut self.generation, generation) != generation
    }

    /// It was told of a group of this number.
    pub(super) fn group_made(&mut self, group: u32) {
        self.group = self.group.max(group);
    }

    /// Takes in the nodes lost by now. Returns whether that is of the present epoch.
    pub(super) fn lose(&mut self, lost: &LostNodes) -> bool {
        let is_present = self.epoch == lost.epoch;
        if is_present {
            self.lost.clone_from(&lost.nodes);
        }
        is_present
    }

    /// The cluster is broken by this. Returns whether to tell that: the first cause is told, and the end of a cluster
    /// that could have become whole again.
    pub(super) fn break_by(&mut self, failure: &Failure) -> bool {
        let is_end = !self.recovery || matches!(failure.status, Status::Aborted | Status::Fenced);
        let first = failure.clone();
        self.health = match (&self.health, is_end) {
            (ClusterHealth::Over { .. }, _) | (ClusterHealth::Broken(_), false) => return false,
            (_, true) => ClusterHealth::Over { first, is_news: false },
            (ClusterHealth::Whole, false) => ClusterHealth::Broken(first),
        };
        true
    }

    /// A node has aborted the job. Returns whether the scheduler is to be told of it.
    pub(super) fn hear_abort_of_a_peer(&mut self) -> bool {
        match &mut self.health {
            ClusterHealth::Over { first, is_news } if first.status == Status::Aborted => *is_news = true,
            _ => return false,
        }
        true
    }

    /// The scheduler says itself that the job is aborted.
    pub(super) fn hear_abort_of_the_scheduler(&mut self) {
        if let ClusterHealth::Over { is_news, .. } = &mut self.health {
            *is_news = false;
        }
    }

    /// The first cause, once the cluster is broken.
    pub(super) fn first_cause(&self) -> Option<&Failure> {
        match &self.health {
            ClusterHealth::Whole => None,
            ClusterHealth::Broken(first) | ClusterHealth::Over { first, .. } => Some(first),
        }
    }

    /// The first cause, once the cluster is broken for good.
    pub(super) fn end_cause(&self) -> Option<&Failure> {
        self.first_cause().filter(|_| matches!(self.health, ClusterHealth::Over { .. }))
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.end_cause().is_some_and(|first| first.status == Status::Aborted)
    }

    /// Whether a peer's abort is still to be told to a scheduler.
    pub(super) fn has_news(&self) -> bool {
        matches!(self.health, ClusterHealth::Over { is_news: true, .. })
    }

    /// What this node was told, for a scheduler that may not know it.
    pub(super) fn known(&self, revoked: Vec<Failure>) -> Option<Message> {
        let failure = self.first_cause().cloned();
        let is_something = failure.is_some() || !revoked.is_empty();
        is_something.then(|| Message::Known(Known { epoch: self.epoch, failure, lost: self.lost.clone(), revoked }))
    }

    /// What it was told, for its registration.
    pub(super) fn told(&self, change: u64) -> Told {
        Told { epoch: self.epoch, change, group: self.group }
    }

    /// The scheduler puts this node out. Returns whether that is news.
    pub(super) fn put_out(&mut self) -> bool {
        !matches!(std::mem::replace(&mut self.presence, Presence::PutOut), Presence::PutOut)
    }

    pub(super) fn is_put_out(&self) -> bool {
        matches!(self.presence, Presence::PutOut)
    }

    /// This node wants to leave, within this time; sooner if the cluster is broken. Returns whether that is news.
    pub(super) fn leave(&mut self, now: Time, timeout: Duration) -> bool {
        let stays = matches!(self.presence, Presence::Stays);
        if stays {
            self.presence = Presence::Leaves { since: now, until: now + timeout };
            if self.first_cause().is_some() {
                self.hasten(now);
            }
        }
        stays
    }

    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.presence, Presence::Leaves { .. })
    }

    /// The cluster is broken: nobody waits for the goodbye.
    pub(super) fn hasten(&mut self, now: Time) {
        if let Presence::Leaves { until, .. } = &mut self.presence {
            *until = (*until).min(now + SHORT);
        }
    }

    /// When this node has left without a goodbye, if its scheduler has been away since that time.
    pub(super) fn leave_deadline(&self, away_since: Option<Time>) -> Time {
        let Presence::Leaves { since, until } = self.presence else { return Time::NEVER };
        let tells_abort = self.has_news() && self.recovery;
        match away_since {
            // If the job is broken, the scheduler may well have gone for good.
            Some(_) if self.first_cause().is_some() && !tells_abort => since,
            Some(away) => until.min((away + AWAY_MAX).max(since + SHORT)),
            None => until,
        }
    }

    /// Whether the scheduler's absence, and the fate of the other nodes, still matter to this node.
    pub(super) fn cares(&self) -> bool {
        matches!(self.presence, Presence::Stays) && self.end_cause().is_none()
    }

    /// Whether this node judges the others if no scheduler does. A scheduler with recovery comes back and does it.
    pub(super) fn may_judge(&self) -> bool {
        matches!((&self.presence, &self.health), (Presence::Stays, ClusterHealth::Whole)) && !self.recovery
    }

    pub(super) fn may_recover(&self) -> bool {
        self.recovery && self.end_cause().is_none()
    }
}
