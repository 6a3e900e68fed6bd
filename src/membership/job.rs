//! The job's state, and every transition of it.
//!
//! ```text
//! forming --> running --> broken, open --> broken, abandoned
//!                ^             |    \
//!                |             |     '---> broken, over
//!                '-- next epoch
//! ```
//!
//! The job may end from each of these states. A broken job keeps its first cause; only an abort replaces it. Tested
//! below, and as a whole in `ending_test.rs` and `recovery_test.rs`.

use super::promises::Behind;
use crate::error::{Failure, Status};
use crate::types::{JobInstance, Time};
use crate::wire::{JobNews, JobPhase};

/// How far the job is.
#[derive(Debug)]
pub(super) struct Job {
    state: State,
    /// Whether nodes that are lost may come back at all: a setting.
    has_recovery: bool,
    /// The first member that left in order. The cluster can't be made whole again without it.
    first_left: Option<u32>,
}

#[derive(Debug)]
enum State {
    /// Waiting for nodes.
    Forming,
    /// Complete since then.
    Running { since: Time },
    /// Complete since then, and broken for this cause.
    Broken { since: Time, first: Failure, outlook: Outlook },
    /// Nothing follows. What the journal keeps of the job still depends on whether it was abandoned.
    Ended { abandoned: bool },
}

/// What a broken job can hope for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlook {
    /// Its nodes can come back: the next epoch is possible.
    Open,
    /// A lost node is not started again while this scheduler serves. A later scheduler can go on with the job.
    Abandoned,
    /// There is no next epoch.
    Over,
}

impl Job {
    /// A job that begins to form.
    pub(super) fn new(has_recovery: bool) -> Job {
        Job { state: State::Forming, has_recovery, first_left: None }
    }

    /// Every node has a place.
    pub(super) fn is_complete_since(&mut self, since: Time) {
        self.state = State::Running { since };
    }

    /// The job is broken for this cause, or is aborted after it broke.
    pub(super) fn break_with(&mut self, failure: Failure) {
        let outlook = match &self.state {
            State::Broken { outlook: Outlook::Abandoned, .. } => Outlook::Abandoned,
            _ if self.can_have_next_epoch() && failure.status != Status::Aborted => Outlook::Open,
            _ => Outlook::Over,
        };
        let since = self.complete_since().unwrap_or_default();
        self.state = State::Broken { since, first: failure, outlook };
    }

    /// A lost node is not started again while this scheduler serves. Returns whether that is news.
    pub(super) fn abandon(&mut self) -> bool {
        self.close(Outlook::Abandoned)
    }

    /// This member has left for good. Returns whether a broken job lost its hope by that.
    pub(super) fn left_by(&mut self, key: u32) -> bool {
        self.first_left.get_or_insert(key);
        self.close(Outlook::Over)
    }

    fn close(&mut self, to: Outlook) -> bool {
        match &mut self.state {
            State::Broken { outlook: outlook @ Outlook::Open, .. } => {
                *outlook = to;
                true
            }
            _ => false,
        }
    }

    /// The next epoch has begun.
    pub(super) fn is_whole_again(&mut self) {
        if let State::Broken { since, .. } = self.state {
            self.state = State::Running { since };
        }
    }

    /// Nothing follows.
    pub(super) fn end(&mut self) {
        self.state = State::Ended { abandoned: self.is_abandoned() };
    }

    pub(super) fn is_forming(&self) -> bool {
        matches!(self.state, State::Forming)
    }

    /// Whether every node has had its place, and the job has not ended.
    pub(super) fn is_complete(&self) -> bool {
        self.complete_since().is_some()
    }

    /// Since when every node has had its place.
    pub(super) fn complete_since(&self) -> Option<Time> {
        match self.state {
            State::Running { since } | State::Broken { since, .. } => Some(since),
            State::Forming | State::Ended { .. } => None,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended { .. })
    }

    /// Why it is broken, if it is.
    pub(super) fn verdict(&self) -> Option<&Failure> {
        match &self.state {
            State::Broken { first, .. } => Some(first),
            State::Forming | State::Running { .. } | State::Ended { .. } => None,
        }
    }

    /// How it goes, for launchers.
    pub(super) fn news(&self, instance: JobInstance) -> JobNews {
        let phase = match &self.state {
            State::Forming => JobPhase::Forming,
            State::Broken { .. } => JobPhase::Broken,
            State::Running { .. } | State::Ended { .. } => JobPhase::Running,
        };
        let why = self.verdict().map(|failure| failure.to_string());
        JobNews { instance, phase, recovery: self.has_recovery, why, ended: false }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.verdict().is_some()
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.verdict().is_some_and(|first| first.status == Status::Aborted)
    }

    /// Whether it is broken, and its nodes can't come back to this scheduler.
    pub(super) fn is_broken_for_good(&self) -> bool {
        matches!(self.state, State::Broken { outlook: Outlook::Abandoned | Outlook::Over, .. })
    }

    /// Whether the job is broken for good, and its nodes are told that there is no hope. It is so where the settings
    /// gave hope, and the job was not aborted: an abort says it itself.
    pub(super) fn is_refused(&self) -> bool {
        self.is_broken_for_good() && self.has_recovery && !self.is_aborted()
    }

    /// Whether a lost node's place stays empty while this scheduler serves: nodes that leave then leave this run, not the job.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(self.state, State::Broken { outlook: Outlook::Abandoned, .. } | State::Ended { abandoned: true })
    }

    /// Whether nodes can come back to this job as it is now.
    pub(super) fn is_recoverable(&self) -> bool {
        self.is_unfinished() && !self.is_abandoned()
    }

    /// Whether the job is broken, and its nodes may come back.
    pub(super) fn is_hoped_for(&self) -> bool {
        matches!(self.state, State::Broken { outlook: Outlook::Open, .. })
    }

    /// Whether the job can go on, with this scheduler or with one that is started later.
    pub(super) fn is_unfinished(&self) -> bool {
        self.can_have_next_epoch() && !self.is_aborted()
    }

    fn can_have_next_epoch(&self) -> bool {
        self.has_recovery && self.first_left.is_none()
    }

    /// The first member that left in order.
    pub(super) fn first_left(&self) -> Option<u32> {
        self.first_left
    }

    /// Which records must be durable before a message that lets a node end: all of them, if a record ends the job.
    pub(super) fn behind_its_end(&self, otherwise: Behind) -> Behind {
        match self.is_abandoned() || self.is_aborted() || self.first_left.is_some() {
            true => Behind::Everything,
            false => otherwise,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Epoch;

    fn failure(status: Status) -> Failure {
        Failure { status, culprit: None, cause: "is lost".to_owned(), epoch: Epoch(1), group: None, sequence: 0 }
    }

    fn broken(has_recovery: bool) -> Job {
        let mut job = Job::new(has_recovery);
        job.is_complete_since(Time(7));
        assert!(job.is_complete() && !job.is_broken() && job.is_recoverable() == has_recovery);
        job.break_with(failure(Status::PeerLost));
        job
    }

    #[test]
    fn a_job_without_recovery_breaks_for_good() {
        let job = broken(false);
        assert!(job.is_broken_for_good() && !job.is_unfinished() && !job.is_refused());
    }

    #[test]
    fn with_recovery_a_broken_job_becomes_whole_again() {
        let mut job = broken(true);
        assert!(job.is_recoverable() && !job.is_broken_for_good());
        job.is_whole_again();
        assert_eq!((job.is_broken(), job.complete_since()), (false, Some(Time(7))));
    }

    #[test]
    fn hope_is_lost_once() {
        let mut job = broken(true);
        assert!(job.abandon() && !job.abandon());
        assert!(job.is_broken_for_good() && job.is_refused() && job.is_unfinished() && !job.is_recoverable());
        let mut job = broken(true);
        assert!(job.left_by(3) && !job.left_by(4) && !job.abandon());
        assert!(job.is_refused() && !job.is_unfinished() && !job.is_abandoned());
        assert_eq!(job.first_left(), Some(3));
    }

    #[test]
    fn one_that_breaks_after_a_member_has_left_is_over() {
        let mut job = Job::new(true);
        job.is_complete_since(Time(7));
        assert!(!job.left_by(0) && !job.is_unfinished());
        job.break_with(failure(Status::PeerLost));
        assert!(job.is_broken_for_good() && job.is_refused());
    }

    #[test]
    fn an_abort_takes_the_place_of_the_first_cause() {
        for abandoned in [false, true] {
            let mut job = broken(true);
            assert_eq!(abandoned, abandoned && job.abandon());
            job.break_with(failure(Status::Aborted));
            assert!(job.is_aborted() && job.is_broken_for_good() && !job.is_unfinished() && !job.is_refused());
            assert_eq!(job.is_abandoned(), abandoned);
        }
    }

    #[test]
    fn nothing_follows_the_end() {
        for abandoned in [false, true] {
            let mut job = broken(true);
            assert_eq!(abandoned, abandoned && job.abandon());
            job.end();
            assert!(job.has_ended() && !job.is_complete() && !job.is_broken());
            assert_eq!(job.is_abandoned(), abandoned);
        }
    }
}
