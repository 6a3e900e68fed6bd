//! Hears from the scheduler how the job goes: what a launcher must know whose workers are in no call, for they do not tell it. It
//! is for a job on several hosts with a launcher on each, and without recovery.
//!
//! One connection stays for that (`Watch`). On it the scheduler says that the cluster has formed, that the job is broken, and that it
//! ends. A scheduler that goes without that word has failed, and with it the job. A job with recovery is heard of once: a
//! loss does not end it. One whose last word was that all have left stops nobody: a worker may work on after that.
//!
//! Contract: nothing here waits, a thread hears. Tested below, and with real hosts by `tests/python/test_hosts_stop.py`.

use crate::status::ask::{NoAnswer, Watching};
use crate::status::text::plain;
use crate::sys;
use muster::wire::{JobNews, JobPhase};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How soon it is tried again to reach the scheduler.
const PAUSE: Duration = Duration::from_millis(250);
/// How long the scheduler may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// For how long a scheduler that has told of a complete cluster may be out of reach. One whose port refuses is gone at once.
const OUT_OF_REACH: Duration = Duration::from_secs(30);

/// How much later it is told that the job is over. What has ended it may be a process of this launcher's own, whose end is seen
/// within that, and is then what is said.
const OWN_FIRST: Duration = Duration::from_millis(150);

/// What was heard, and means something to the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The cluster is complete: other launchers hear of a failure.
    Formed,
    /// The job will not go on, for this reason.
    Over(String),
}

/// What one piece of news means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Meaning {
    GoesOn,
    Formed,
    Over(String),
    /// Nothing more is of interest.
    Done,
}

/// See the module.
pub struct JobCheck {
    bell: Arc<OwnedFd>,
    heard: Option<Receiver<Found>>,
}

impl JobCheck {
    /// Of the job whose scheduler has this address; none where nobody need know.
    pub fn new(scheduler: Option<(String, u16)>) -> io::Result<JobCheck> {
        let bell = Arc::new(sys::bell()?);
        let Some((host, port)) = scheduler else { return Ok(JobCheck { bell, heard: None }) };
        let (tells, heard) = channel();
        let ear = Ear { bell: Arc::clone(&bell), tells };
        let hears = move || {
            let begin = || Watching::begin(&host, port, PATIENCE).map(|mut watching| move || watching.next());
            ear.hear(begin, &format!("{host} port {port}"), OUT_OF_REACH);
        };
        std::thread::Builder::new().name("muster-watches".to_owned()).spawn(hears)?;
        Ok(JobCheck { bell, heard: Some(heard) })
    }

    /// Nothing more is heard: nobody need know.
    pub fn end(&mut self) {
        self.heard = None;
    }

    /// It can be read when there is something to [`look`](JobCheck::look) at.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// What has come to be known, each once.
    pub fn look(&mut self) -> Option<Found> {
        sys::hush(&self.bell);
        let found = self.heard.as_ref()?.try_recv().ok()?;
        sys::ring(&self.bell); // there may be more
        Some(found)
    }
}

/// What hears.
struct Ear {
    bell: Arc<OwnedFd>,
    tells: Sender<Found>,
}

impl Ear {
    /// Hears until there is nothing more to hear, or nobody who wants it. `begin` connects; what that gives waits for the next news.
    fn hear<N>(&self, begin: impl Fn() -> Result<N, NoAnswer>, scheduler: &str, out_of_reach: Duration)
    where
        N: FnMut() -> Result<JobNews, String>,
    {
        let mut formed = false;
        let mut lost_at: Option<Instant> = None;
        loop {
            match begin() {
                Ok(mut next) => {
                    while let Ok(news) = next() {
                        lost_at = None;
                        match meaning(&news) {
                            Meaning::GoesOn => {}
                            Meaning::Formed if formed => {}
                            Meaning::Formed => {
                                formed = true;
                                if self.tell(Found::Formed).is_err() {
                                    return;
                                }
                            }
                            Meaning::Over(why) => return self.tell_over(why),
                            Meaning::Done => return,
                        }
                    }
                }
                // A scheduler that was not there yet may come.
                Err(why) if formed => {
                    let since = *lost_at.get_or_insert_with(Instant::now);
                    let how = match why.is_refused {
                        true => "its port refuses connections, and it has not said that it ends".to_owned(),
                        false if since.elapsed() < out_of_reach => String::new(),
                        false => format!("it is out of reach for {} s: {}", out_of_reach.as_secs(), plain(&why.words)),
                    };
                    if !how.is_empty() {
                        return self.tell_over(format!("the scheduler at {scheduler} is gone: {how}"));
                    }
                }
                Err(_) => {}
            }
            // One that is gone without a word is found to be gone at once.
            if !formed || lost_at.is_some() {
                std::thread::sleep(PAUSE);
            }
            lost_at = lost_at.or(formed.then(Instant::now));
        }
    }

    fn tell_over(&self, why: String) {
        std::thread::sleep(OWN_FIRST);
        let _ = self.tell(Found::Over(why)); // nobody wants to know any more
    }

    fn tell(&self, found: Found) -> Result<(), std::sync::mpsc::SendError<Found>> {
        let told = self.tells.send(found);
        sys::ring(&self.bell);
        told
    }
}

fn meaning(news: &JobNews) -> Meaning {
    match (&news.why, news.phase) {
        _ if news.recovery => Meaning::Done,
        (Some(why), _) => Meaning::Over(plain(why)),
        _ if news.ended => Meaning::Done,
        (None, JobPhase::Forming) => Meaning::GoesOn,
        (None, _) => Meaning::Formed,
    }
}

#[cfg(test)]
#[path = "job_check_test.rs"]
mod tests;
