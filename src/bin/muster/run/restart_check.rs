//! Asks the scheduler whether the job goes on, before a worker is started again. No worker of an aborted job comes
//! back; one that was started would wait for others in vain.
//!
//! The question is that of `muster status`, and takes about a millisecond. If there is no answer within [`PATIENCE`],
//! the worker is started: a scheduler that was killed, too, must not keep the others from coming back. A connection
//! that ends without an answer says nothing either way (the scheduler may have been killed, or be about to end for
//! good). So the scheduler is asked again within that time. A port that refuses is an answer at once.
//!
//! The launcher beside a scheduler keeps its port as long as the scheduler may come back. So if the port of a scheduler
//! on another host has refused for [`GONE_AFTER`], the run is over, and a worker that was started again would wait in
//! `muster_init` for nobody.
//!
//! Contract: [`RestartCheck::look`] returns at once, for a thread asks. One question is under way at a time. It is
//! about all workers that wait to be started when it begins: a worker that ends later may have ended because the job
//! was aborted meanwhile. Tested in `restart_check_test.rs`, and with real processes by `tests/python/test_restarts.py`
//! and `test_hosts.py`.

use super::question::Question;
use crate::status::ask::ask;
use crate::status::text::plain;
use muster::error::Status;
use std::time::{Duration, Instant};

/// How long the scheduler may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How soon it is asked again when the connection has ended.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How long the port on another host may refuse before the run counts as over.
pub const GONE_AFTER: Duration = Duration::from_secs(5);
/// How soon a port that refuses is looked at again meanwhile.
pub const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The job was not aborted.
    GoesOn,
    /// The job was aborted; in the scheduler's words.
    Aborted(String),
    /// Nobody listens at the scheduler's port.
    Refused,
    /// Nobody has listened for long, and the scheduler is on another host.
    Gone,
    /// There is no answer.
    Silence,
}

/// Asks the scheduler whether the job goes on, before a worker is started again.
pub struct RestartCheck {
    scheduler: (String, u16),
    /// The scheduler runs on another host.
    is_remote: bool,
    refused_since: Option<Duration>,
    asked: Option<Question<Answer>>,
}

impl RestartCheck {
    /// Asks the scheduler at this address.
    pub fn new(scheduler: (String, u16), is_remote: bool) -> RestartCheck {
        RestartCheck { scheduler, is_remote, refused_since: None, asked: None }
    }

    /// These have ended and are to be started again now. Gives the answer if there is one, and the workers that it is
    /// about. A worker that is not among them waits until [`looks_at`](RestartCheck::looks_at).
    pub fn look(&mut self, due: &[usize], now: Duration) -> (Vec<usize>, Answer) {
        let (about, answer) = match Question::look(&mut self.asked, now) {
            Some((about, answer)) => (about, self.weigh(answer.unwrap_or(Answer::Silence), now)),
            None => (Vec::new(), Answer::Silence),
        };
        let others: Vec<usize> = due.iter().copied().filter(|child| !about.contains(child)).collect();
        if self.asked.is_none() && !others.is_empty() {
            let (host, port) = self.scheduler.clone();
            self.asked = Some(Question::ask(others, now, move || how_is_it(&host, port)));
        }
        (about, answer)
    }

    /// When to look next.
    pub fn looks_at(&self) -> Duration {
        self.asked.as_ref().map_or(Duration::ZERO, Question::looks_at)
    }

    /// A port on another host that has refused for long enough means that the scheduler is gone.
    fn weigh(&mut self, answer: Answer, now: Duration) -> Answer {
        if answer != Answer::Refused {
            self.refused_since = None;
            return answer;
        }
        let since = *self.refused_since.get_or_insert(now);
        let is_gone = self.is_remote && now.saturating_sub(since) >= GONE_AFTER;
        if is_gone {
            Answer::Gone
        } else {
            Answer::Refused
        }
    }
}

fn how_is_it(host: &str, port: u16) -> Answer {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Answer::Silence;
        }
        match ask(host, port, left, |_| false) {
            Ok(told) => {
                let aborted = told.job.failure.filter(|first| first.status == Status::Aborted);
                return aborted.map_or(Answer::GoesOn, |first| Answer::Aborted(plain(&first.to_string())));
            }
            Err(why) if why.is_refused => return Answer::Refused,
            Err(_) => std::thread::sleep(ASK_AGAIN),
        }
    }
}

#[cfg(test)]
#[path = "restart_check_test.rs"]
mod tests;
