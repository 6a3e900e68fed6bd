//! Asks the scheduler whether the job is over for good: what a launcher must know whose workers are in no call, for they do not
//! tell it. It is for a job on several hosts with a launcher on each, and without recovery.
//!
//! The question is that of `muster status`, of which the first part is heard. Each launcher asks [`EVERY`]; in a job of many hosts
//! more seldom, so that the scheduler answers 1 s / [`PER_HOST`] questions a second at most. A job with recovery is asked about
//! once: a loss does not end it. A port that refuses after an answer ends the questions and stops nobody: a scheduler ends, too,
//! when all have left, and a worker may work on after that.
//!
//! Contract: nothing here waits, a thread asks. Tested below, and with real hosts by `tests/python/test_two_hosts.py`.

use super::question::Question;
use crate::status::ask::ask;
use crate::status::text::plain;
use muster::wire::{JobPhase, StatusJob};
use std::time::Duration;

/// How often each launcher asks.
const EVERY: Duration = Duration::from_millis(250);
/// How much longer the pause is at least for each host: all together ask 250 times a second at most.
const PER_HOST: Duration = Duration::from_millis(4);
/// How long the scheduler may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What an answer means for the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The cluster is complete: other launchers hear of a failure by asking.
    Formed,
    /// The job will not go on, for this reason.
    Over(String),
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Forming,
    GoesOn,
    Over(String),
    /// A loss does not end this job.
    Recovers,
    /// Nobody listens at the scheduler's port.
    Refused,
    Silence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No complete cluster is known yet.
    Early,
    Formed,
    /// Nothing more is asked.
    Done,
}

/// See the module.
pub struct JobCheck {
    scheduler: (String, u16),
    pause: Duration,
    asks_at: Duration,
    asked: Option<Question<Answer>>,
    state: State,
}

impl JobCheck {
    /// Of the job whose scheduler has this address, on about so many hosts.
    pub fn new(scheduler: (String, u16), hosts: u32) -> JobCheck {
        let pause = EVERY.max(PER_HOST * hosts);
        JobCheck { scheduler, pause, asks_at: pause, asked: None, state: State::Early }
    }

    /// Nothing more is asked: nobody need know.
    pub fn end(&mut self) {
        (self.state, self.asked) = (State::Done, None);
    }

    /// When to look next, if there is a reason to.
    pub fn deadline(&self) -> Option<Duration> {
        (self.state != State::Done).then(|| self.asked.as_ref().map_or(self.asks_at, Question::looks_at))
    }

    /// What has come to be known, each once.
    pub fn look(&mut self, now: Duration) -> Option<Found> {
        if self.deadline().is_none_or(|at| at > now) {
            return None;
        }
        if self.asked.is_none() {
            self.asks_at = now + self.pause;
            let (host, port) = self.scheduler.clone();
            self.asked = Some(Question::ask(Vec::new(), now, move || how_is_it(&host, port)));
            return None;
        }
        let (_, answer) = Question::look(&mut self.asked, now)?;
        self.weigh(answer.unwrap_or(Answer::Silence))
    }

    fn weigh(&mut self, answer: Answer) -> Option<Found> {
        match answer {
            Answer::GoesOn if self.state == State::Early => {
                self.state = State::Formed;
                Some(Found::Formed)
            }
            Answer::Over(why) => {
                self.end();
                Some(Found::Over(why))
            }
            Answer::Recovers => {
                self.end();
                None
            }
            // A scheduler that was not there yet may come.
            Answer::Refused if self.state == State::Formed => {
                self.end();
                None
            }
            Answer::Forming | Answer::GoesOn | Answer::Refused | Answer::Silence => None,
        }
    }
}

fn how_is_it(host: &str, port: u16) -> Answer {
    match ask(host, port, PATIENCE, |_| false) {
        Ok(told) => meaning(&told.job),
        Err(why) if why.is_refused => Answer::Refused,
        Err(_) => Answer::Silence,
    }
}

fn meaning(job: &StatusJob) -> Answer {
    match (&job.failure, job.phase) {
        _ if job.recovery => Answer::Recovers,
        (Some(first), _) => Answer::Over(plain(&first.to_string())),
        (None, JobPhase::Forming) => Answer::Forming,
        (None, _) => Answer::GoesOn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster::error::{Failure, Status};
    use muster::types::{Epoch, JobInstance};

    fn job(phase: JobPhase, recovery: bool, failure: Option<Failure>) -> StatusJob {
        let (instance, epoch) = (JobInstance([1; 16]), Epoch(1));
        let (job_id, version, words) = (None, String::new(), String::new());
        let (worker_num, server_num, generation, age_ms) = (4, 0, 1, 1);
        StatusJob {
            instance,
            job_id,
            version,
            recovery,
            worker_num,
            server_num,
            generation,
            age_ms,
            epoch,
            phase,
            words,
            failure,
        }
    }

    fn loss() -> Failure {
        let (culprit, cause, epoch) = (None, "rank 3 is lost".to_owned(), Epoch(1));
        Failure { status: Status::PeerLost, culprit, cause, epoch, group: None, sequence: 0 }
    }

    fn check(hosts: u32) -> JobCheck {
        JobCheck::new(("127.0.0.1".to_owned(), 1), hosts)
    }

    #[test]
    fn only_a_failure_of_a_job_without_recovery_means_that_it_is_over() {
        let over = Answer::Over(loss().to_string());
        assert_eq!(meaning(&job(JobPhase::Broken, false, Some(loss()))), over);
        assert_eq!(meaning(&job(JobPhase::Broken, true, Some(loss()))), Answer::Recovers);
        assert_eq!(meaning(&job(JobPhase::Forming, false, None)), Answer::Forming);
        for phase in [JobPhase::Running, JobPhase::Ending] {
            assert_eq!(meaning(&job(phase, false, None)), Answer::GoesOn, "{phase:?}");
        }
    }

    #[test]
    fn each_answer_is_told_once_and_the_last_ends_the_questions() {
        let mut asks = check(2);
        for early in [Answer::Refused, Answer::Silence, Answer::Forming] {
            assert_eq!(asks.weigh(early), None);
        }
        assert_eq!(asks.weigh(Answer::GoesOn), Some(Found::Formed));
        assert_eq!(asks.weigh(Answer::GoesOn), None);
        assert!(asks.deadline().is_some());
        assert_eq!(asks.weigh(Answer::Over("lost".to_owned())), Some(Found::Over("lost".to_owned())));
        assert_eq!(asks.deadline(), None);
    }

    #[test]
    fn neither_recovery_nor_the_end_of_the_scheduler_stops_anybody() {
        let mut asks = check(2);
        assert_eq!((asks.weigh(Answer::Recovers), asks.deadline()), (None, None));
        let mut asks = check(2);
        asks.weigh(Answer::GoesOn);
        assert_eq!((asks.weigh(Answer::Refused), asks.deadline()), (None, None));
    }

    #[test]
    fn many_hosts_ask_more_seldom() {
        let pauses = [2, 62, 1000].map(|hosts| check(hosts).deadline().unwrap().as_millis());
        assert_eq!(pauses, [250, 250, 4000]);
    }
}
