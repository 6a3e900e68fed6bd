//! Hears from the scheduler how the job goes. A launcher must ask itself, because workers that are in no call do not
//! notice how the job goes. It is for a job on several hosts with a launcher on each, and without recovery.
//!
//! One connection stays for that (`Watch`). On it the scheduler says that the cluster has formed, that the job is
//! broken, and that it ends. If the scheduler ends without saying so, it has failed, and the job with it. A job with
//! recovery is heard of only once: a loss does not end it. If the last word was that all have left, nobody is stopped:
//! a worker may work on after that.
//!
//! Contract: nothing here waits, a thread hears. Tested below, and with real hosts by `tests/python/test_hosts_stop.py`.

use crate::status::ask::{NoAnswer, Unheard, Watching};
use crate::status::text::plain;
use crate::sys;
use muster::types::JobInstance;
use muster::wire::{JobNews, JobPhase};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How soon the launcher tries again to reach the scheduler; then the time doubles, up to the second of these: with
/// many hosts all try.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(4)];
/// How long the scheduler may take for its first news.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a scheduler whose cluster was complete may be out of reach: this, or the heartbeat time-out if that is
/// longer. A scheduler whose port refuses is gone at once.
const OUT_OF_REACH: Duration = Duration::from_secs(30);

/// How long the launcher waits before it says that the job is over. If a process of its own has ended the job, the
/// launcher sees that process's end in this time, and tells of it instead.
const OWN_FIRST: Duration = Duration::from_millis(150);

/// What was heard, and means something to the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The cluster is complete: other launchers hear of a failure.
    Formed,
    /// The job will not go on: the scheduler says why.
    Over(String),
    /// The job will not go on, for the scheduler is gone, as these words say.
    Gone(String),
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

/// Learns from the scheduler how the job goes.
pub struct JobCheck {
    bell: Arc<OwnedFd>,
    heard: Option<Receiver<Found>>,
    /// Why the job is over, as the scheduler has said.
    said: Option<String>,
}

impl JobCheck {
    /// A check of the job whose scheduler has this address, and whose nodes may be silent for so long; none if nobody
    /// need know.
    pub fn new(scheduler: Option<(String, u16)>, node_timeout: Duration) -> io::Result<JobCheck> {
        let bell = Arc::new(sys::bell()?);
        let Some((host, port)) = scheduler else { return Ok(JobCheck { bell, heard: None, said: None }) };
        let (tells, heard) = channel();
        let ear = Ear { bell: Arc::clone(&bell), tells, out_of_reach: OUT_OF_REACH.max(node_timeout) };
        let hears = move || {
            let begin = || Watching::begin(&host, port, PATIENCE).map(|mut watching| move || watching.next());
            ear.hear(begin, &format!("{host} port {port}"));
        };
        let _ = std::thread::Builder::new().name("muster-watches".to_owned()).spawn(hears); // without a thread nobody hears
        Ok(JobCheck { bell, heard: Some(heard), said: None })
    }

    /// Nothing more is heard: nobody need know.
    pub fn end(&mut self) {
        self.heard = None;
    }

    /// It can be read when there is something to [`look`](JobCheck::look) at.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The next thing that has come to be known, each once.
    pub fn look(&mut self) -> Option<Found> {
        sys::hush(&self.bell);
        let found = self.heard.as_ref()?.try_recv().ok()?;
        sys::ring(&self.bell); // there may be more
        if let Found::Over(why) = &found {
            self.said = Some(why.clone());
        }
        Some(found)
    }

    /// Why the job is over, if the scheduler has said so, and that was looked at.
    pub fn said(&self) -> Option<&str> {
        self.said.as_deref()
    }
}

/// The part that hears.
struct Ear {
    bell: Arc<OwnedFd>,
    tells: Sender<Found>,
    out_of_reach: Duration,
}

/// How one connection went.
enum Line {
    /// There was news, and then the connection ended; `lasted`: it was there for longer than a moment.
    Lost { lasted: bool },
    /// There was no news: the port refuses, or it is something else.
    Silent(NoAnswer),
    /// The scheduler gives no news.
    Rejected,
    /// There is nothing more to hear, or nobody wants it.
    Over,
}

/// What is known of the job.
#[derive(Default)]
struct Known {
    instance: Option<JobInstance>,
    /// The scheduler has told of a complete cluster, and has not said that it tells no more. So it will say that it
    /// ends.
    is_promised: bool,
}

impl Ear {
    /// Hears until there is nothing more to hear, or nobody wants it. `begin` connects; what it gives waits for the
    /// next news.
    fn hear<N>(&self, begin: impl Fn() -> Result<N, NoAnswer>, scheduler: &str)
    where
        N: FnMut() -> Result<JobNews, Unheard>,
    {
        let (mut known, mut pause) = (Known::default(), PAUSES[0]);
        let mut lost_at: Option<Instant> = None;
        loop {
            match self.hear_line(&begin, scheduler, &mut known) {
                Line::Over => return,
                Line::Lost { lasted } => {
                    (lost_at, pause) = (Some(Instant::now()), PAUSES[0]);
                    if lasted {
                        continue; // a scheduler that is gone is found to be gone at once
                    }
                }
                Line::Rejected => (lost_at, known.is_promised) = (None, false),
                // A scheduler that was not there yet may come.
                Line::Silent(_) if !known.is_promised => {}
                Line::Silent(why) => {
                    let since = *lost_at.get_or_insert_with(Instant::now);
                    let seconds = self.out_of_reach.as_secs();
                    let how = match why.is_refused {
                        true => Some("its port refuses connections, and it has not said that it ends".to_owned()),
                        false if since.elapsed() < self.out_of_reach => None,
                        false => Some(format!("it is out of reach for {seconds} s: {}", plain(&why.words))),
                    };
                    if let Some(how) = how {
                        return self.tell_gone(scheduler, &how);
                    }
                }
            }
            // Nothing tells when a scheduler is there, or there again. This thread does nothing else, and nobody waits
            // for it.
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    fn hear_line<N>(&self, begin: impl Fn() -> Result<N, NoAnswer>, scheduler: &str, known: &mut Known) -> Line
    where
        N: FnMut() -> Result<JobNews, Unheard>,
    {
        let mut next = match begin() {
            Ok(next) => next,
            Err(why) => return Line::Silent(why),
        };
        let (begun, mut was_heard) = (Instant::now(), false);
        loop {
            let news = match next() {
                Ok(news) => news,
                Err(Unheard::Rejected) => return Line::Rejected,
                Err(Unheard::Ended(_)) if was_heard => return Line::Lost { lasted: begun.elapsed() > PAUSES[0] },
                Err(Unheard::Ended(words)) => return Line::Silent(NoAnswer::from(words)),
            };
            was_heard = true;
            if *known.instance.get_or_insert(news.instance) != news.instance {
                if known.is_promised {
                    self.tell_gone(scheduler, "another job has its port, and it has not said that it ends");
                }
                return Line::Over;
            }
            match meaning(&news) {
                Meaning::GoesOn => {}
                Meaning::Formed if known.is_promised => {}
                Meaning::Formed => {
                    known.is_promised = true;
                    if self.tell(Found::Formed).is_err() {
                        return Line::Over;
                    }
                }
                Meaning::Over(why) => {
                    self.tell_end(Found::Over(why));
                    return Line::Over;
                }
                Meaning::Done => return Line::Over,
            }
        }
    }

    fn tell_gone(&self, scheduler: &str, how: &str) {
        self.tell_end(Found::Gone(format!("the scheduler at {scheduler} is gone: {how}")));
    }

    fn tell_end(&self, end: Found) {
        // The kernel closes a process's connections before it tells the parent of its end: that word is to come first. The launcher
        // does not wait here, this thread does.
        std::thread::sleep(OWN_FIRST);
        let _ = self.tell(end); // nobody wants to know any more
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
        // Each worker is told why the cluster has not formed, and may go on alone.
        (_, JobPhase::Forming) if news.ended => Meaning::Done,
        (Some(why), _) => Meaning::Over(plain(why)),
        _ if news.ended => Meaning::Done,
        (None, JobPhase::Forming) => Meaning::GoesOn,
        (None, _) => Meaning::Formed,
    }
}

#[cfg(test)]
#[path = "job_check_test.rs"]
mod tests;
