//! Asks the scheduler whether the job goes on, before a worker is started again. No worker of an aborted job comes
//! back; one that was started would wait for others in vain.
//!
//! The question is that of `muster status`, and takes about a millisecond. Where nothing comes of it within
//! [`PATIENCE`] the worker is started: a scheduler that was killed too must not keep the others from coming back. A
//! connection that ends without an answer says nothing either way (the scheduler may have been killed, or be about to
//! end for good). So the scheduler is asked again within that time. A port that refuses is an answer at once.
//!
//! Contract: [`Inquiry::look`] returns at once, for a thread asks. One question is under way at a time, about all who wait to be
//! started as it begins: who ends later may have ended because the job was aborted meanwhile. Tested in `inquiry_test.rs`, and
//! with real processes by `tests/python/test_restarts.py` and `test_hosts.py`.

use super::remote_scheduler::refuses;
use crate::status::ask::ask;
use muster::error::Status;
use std::sync::mpsc::{channel, Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// How long the scheduler may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How soon it is looked whether it has answered, and then in twice the time, up to the second of these.
const LOOKS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];
/// How soon it is asked again when the connection has ended.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The job was not aborted.
    GoesOn,
    /// It was, in the scheduler's words.
    Aborted(String),
    /// Nobody listens at the scheduler's port.
    Refused,
    /// There is none.
    Silence,
}

/// See the module.
pub struct Inquiry {
    scheduler: (String, u16),
    asked: Option<Asked>,
}

/// A question under way.
struct Asked {
    about: Vec<usize>,
    answer: Receiver<Answer>,
    looks_at: Duration,
    pause: Duration,
}

impl Inquiry {
    /// Of the scheduler at this address.
    pub fn new(scheduler: (String, u16)) -> Inquiry {
        Inquiry { scheduler, asked: None }
    }

    /// These have ended and are to be started again now. Gives the answer if there is one, and the workers that it is
    /// about. A worker that is not among them waits until [`looks_at`](Inquiry::looks_at).
    pub fn look(&mut self, due: &[usize], now: Duration) -> (Vec<usize>, Answer) {
        let (about, answer) = match self.asked.as_mut().and_then(|asked| asked.look(now)) {
            Some(answer) => (self.asked.take().map_or_else(Vec::new, |asked| asked.about), answer),
            None => (Vec::new(), Answer::Silence),
        };
        let others: Vec<usize> = due.iter().copied().filter(|child| !about.contains(child)).collect();
        if self.asked.is_none() && !others.is_empty() {
            self.ask(others, now);
        }
        (about, answer)
    }

    /// When to look next.
    pub fn looks_at(&self) -> Duration {
        self.asked.as_ref().map_or(Duration::ZERO, |asked| asked.looks_at)
    }

    fn ask(&mut self, about: Vec<usize>, now: Duration) {
        let ((answers, answer), (host, port)) = (channel(), self.scheduler.clone());
        let asks = move || {
            let _ = answers.send(how_is_it(&host, port));
        };
        // Without a thread nobody answers.
        let _ = std::thread::Builder::new().name("muster-inquiry".to_owned()).spawn(asks);
        self.asked = Some(Asked { about, answer, looks_at: now + LOOKS[0], pause: LOOKS[0] });
    }
}

impl Asked {
    fn look(&mut self, now: Duration) -> Option<Answer> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Disconnected) => Some(Answer::Silence),
            Err(TryRecvError::Empty) => {
                self.pause = (self.pause * 2).min(LOOKS[1]);
                self.looks_at = now + self.pause;
                None
            }
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
                return aborted.map_or(Answer::GoesOn, |first| Answer::Aborted(first.to_string()));
            }
            Err(_) if Instant::now() < deadline && refuses(host, port) => return Answer::Refused,
            Err(_) => std::thread::sleep(ASK_AGAIN),
        }
    }
}

#[cfg(test)]
#[path = "restart_check_test.rs"]
mod tests;
