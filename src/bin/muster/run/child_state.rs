//! What the supervisor knows of one child, and how that changes: pure. Tested in `supervise_test.rs`.
//!
//! A child has one life after another. Each runs, ends, and may be followed by the next. If the next life is put off
//! just before it begins, the life before it is the present one again.

use super::restarts::Restarts;
use crate::sys::Ending;
use muster::types::Role;
use std::time::Duration;

/// How far the present life is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is not yet known to have ended.
    Runs,
    /// It has ended, and none is to follow so far.
    Ended(Ending),
    /// It has ended, and the next one begins at this time.
    StartsAgain { ending: Ending, at: Duration },
}

/// A child, as the supervisor sees it.
pub(super) struct ChildState {
    role: Role,
    stage: Stage,
    /// It was told to end before it was seen to have ended.
    told: bool,
    /// How the life before this one ended.
    before: Option<Ending>,
    /// When its newest loss was noticed.
    lost_at: Duration,
    restarts: Restarts,
}

impl ChildState {
    /// A child that has just been started, as the run begins.
    pub(super) fn new(role: Role, max_restarts: u32) -> ChildState {
        let (lost_at, restarts) = (Duration::ZERO, Restarts::new(max_restarts));
        ChildState { role, stage: Stage::Runs, told: false, before: None, lost_at, restarts }
    }

    /// Whether it is the scheduler.
    pub(super) fn is_scheduler(&self) -> bool {
        self.role == Role::Scheduler
    }

    /// Whether the present life is not yet known to have ended.
    pub(super) fn runs(&self) -> bool {
        self.stage == Stage::Runs
    }

    /// How the present life ended, if it has.
    pub(super) fn ending(&self) -> Option<Ending> {
        match self.stage {
            Stage::Runs => None,
            Stage::Ended(ending) | Stage::StartsAgain { ending, .. } => Some(ending),
        }
    }

    /// When the next life begins, if one is to follow.
    pub(super) fn starts_at(&self) -> Option<Duration> {
        match self.stage {
            Stage::Runs | Stage::Ended(_) => None,
            Stage::StartsAgain { at, .. } => Some(at),
        }
    }

    /// Whether the present life has ended, and none is to follow.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Ended(_))
    }

    /// Whether it is done, and ended well by itself.
    pub(super) fn ended_well(&self) -> bool {
        self.stage == Stage::Ended(Ending::Exit(0)) && !self.told
    }

    /// Whether it was told to end before it was seen to have ended.
    pub(super) fn was_told(&self) -> bool {
        self.told
    }

    /// Whether it is a scheduler that has ended by itself, with this code.
    pub(super) fn is_scheduler_that_says(&self, code: i32) -> bool {
        self.is_scheduler() && !self.told && self.ending() == Some(Ending::Exit(code))
    }

    /// Whether the present life has ended badly, by itself.
    pub(super) fn failed(&self) -> bool {
        !self.told && self.ending().is_some_and(|ending| ending != Ending::Exit(0))
    }

    /// How the life before the present one ended.
    pub(super) fn before(&self) -> Option<Ending> {
        self.before
    }

    /// The same, if the present one only ended because it was told to.
    pub(super) fn before_if_told(&self) -> Option<Ending> {
        self.before.filter(|_| self.told)
    }

    /// Notes that it is lost: it has failed, or ended without leaving.
    pub(super) fn is_found_lost(&mut self, now: Duration) {
        self.lost_at = now;
    }

    /// When its newest loss was noticed.
    pub(super) fn lost_at(&self) -> Duration {
        self.lost_at
    }

    /// Its restarts: how many it has had, and may have.
    pub(super) fn restarts(&self) -> &Restarts {
        &self.restarts
    }

    /// Notes that it is told to end, if it has this role and still runs.
    pub(super) fn tell(&mut self, role: Role) {
        self.told |= self.role == role && self.runs();
    }

    /// The present life has ended. Returns whether that is news.
    pub(super) fn ends(&mut self, ending: Ending) -> bool {
        let is_news = self.runs();
        if is_news {
            self.stage = Stage::Ended(ending);
        }
        is_news
    }

    /// Another life is to follow the one that has ended. Returns whether one is left.
    pub(super) fn comes_back(&mut self, now: Duration) -> bool {
        let Stage::Ended(ending) = self.stage else { return false };
        let next = self.restarts.next(now);
        if let Some(at) = next {
            self.stage = Stage::StartsAgain { ending, at };
        }
        next.is_some()
    }

    /// No life is to follow. Returns whether one was to.
    pub(super) fn begins_no_more(&mut self) -> bool {
        let Stage::StartsAgain { ending, .. } = self.stage else { return false };
        self.stage = Stage::Ended(ending);
        true
    }

    /// The next life begins, if its time has come. Returns whether it has.
    pub(super) fn begins_if_due(&mut self, now: Duration) -> bool {
        match self.stage {
            Stage::StartsAgain { ending, at } if at <= now => {
                (self.stage, self.before) = (Stage::Runs, Some(ending));
                self.restarts.begins(now);
                true
            }
            Stage::Runs | Stage::Ended(_) | Stage::StartsAgain { .. } => false,
        }
    }

    /// The life that was about to begin is to begin at this time; if there is none, never. A child that was told to end
    /// stays told.
    pub(super) fn put_off(&mut self, until: Option<Duration>) {
        // A first life cannot be put off: it has begun with the run.
        let Some(ending) = self.before.take() else { return };
        self.stage = match until {
            Some(at) => Stage::StartsAgain { ending, at },
            None => Stage::Ended(ending),
        };
    }
}

/// The workers that were lost after all had left, and have come back, or are about to.
pub(super) fn back_after_the_end(children: &[ChildState]) -> Vec<usize> {
    let end = children.iter().find(|one| one.is_scheduler_that_says(0)).map(ChildState::lost_at);
    let is_back = |one: &ChildState| {
        let comes_back = one.starts_at().is_some() || one.runs() && one.before().is_some();
        comes_back && !one.is_scheduler() && end.is_some_and(|end| one.lost_at() >= end)
    };
    (0..children.len()).filter(|child| is_back(&children[*child])).collect()
}

/// Those of this role are told to end, if they still run.
pub(super) fn tell(children: &mut [ChildState], role: Role) {
    children.iter_mut().for_each(|one| one.tell(role));
}
