//! A scheduler on a thread of its own, for a program that hosts one. Every wait for it ends: its loop answers, and its
//! own waits have limits. Tested in `writer_test.rs`, where the disk stands still, and through clusters.

use super::serving::{Serving, STOP, VANISH};
use crate::config::Settings;
use crate::error::{Error, Result, Status};
use crate::net::Waker;
use crate::runtime::base::clock::Clock;
use crate::runtime::base::interrupts::{in_call, nudge, wait_until, Attention, Interrupts};
use crate::runtime::base::sync::{lock, Condvar, Mutex};
use crate::types::Time;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::time::Duration;

type Outcome = Arc<(Mutex<Option<Result<()>>>, Condvar)>;

/// A scheduler on a thread of its own.
pub struct SchedulerThread {
    thread: Option<std::thread::JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
    outcome: Outcome,
    wanted: Arc<AtomicU8>,
    waker: Waker,
    /// The interruptions that end the waits of the program that started it.
    interrupts: Interrupts,
    /// What it is asked when it is dropped.
    when_dropped: u8,
}

impl SchedulerThread {
    /// Binds a scheduler, and serves on a new thread.
    pub fn start(settings: &Settings) -> Result<SchedulerThread> {
        let mut started = SchedulerThread::of(Serving::new(settings)?)?;
        started.interrupts = Interrupts::new(settings.interrupt.clone());
        Ok(started)
    }

    /// Serves this scheduler on a new thread.
    pub(crate) fn of(serving: Serving) -> Result<SchedulerThread> {
        let (addresses, wanted, waker) = (serving.addresses(), Arc::clone(&serving.wanted), serving.waker.clone());
        let outcome = Outcome::default();
        let (told, logger) = (Arc::clone(&outcome), Arc::clone(&serving.logger));
        let thread = crate::net::thread::spawn("muster-sched", move || {
            let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| serving.run()));
            let result = run.unwrap_or_else(|_| Err(Error::new(Status::Internal, "the scheduler's thread panicked")));
            // The nodes learn how a job ends. But if the scheduler cannot go on, they only see that it is gone.
            match &result {
                Err(error) if matches!(error.status(), Status::Journal | Status::System | Status::Internal) => {
                    logger.error(&format!("the scheduler has ended: {error}"));
                }
                _ => {}
            }
            *lock(&told.0) = Some(result);
            told.1.notify_all();
        });
        Ok(SchedulerThread {
            thread: Some(thread?),
            addresses,
            outcome,
            wanted,
            waker,
            interrupts: Interrupts::default(),
            when_dropped: STOP,
        })
    }

    /// The addresses at which the scheduler listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Waits until the job has ended, at most so long. Returns the job's result, or `None` when the time is up.
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Result<()>> {
        self.wait_for(timeout, &Attention::none()).unwrap_or_default()
    }

    /// Waits like [`wait`](SchedulerThread::wait), for a call of the program that started it. The program's hook may
    /// end the wait.
    pub fn wait_attentively(&self, timeout: Option<Duration>) -> Result<Option<Result<()>>> {
        let outcome = self.wait_for(timeout, &self.interrupts.attention());
        outcome.map_err(|why| in_call("the wait for the scheduler", &why))
    }

    /// Makes the threads that wait look whether the program has interrupted them.
    pub(crate) fn nudge(&self) {
        nudge((&self.outcome.0, &self.outcome.1));
    }

    /// Waits like [`wait`](SchedulerThread::wait), unless a call with this attention is interrupted.
    pub(crate) fn wait_for(&self, timeout: Option<Duration>, attention: &Attention<'_>) -> Result<Option<Result<()>>> {
        let clock = Clock::start();
        let deadline = timeout.map_or(Time::NEVER, |timeout| clock.now() + timeout);
        let waits = (&self.outcome.0, &self.outcome.1);
        wait_until(waits, || clock.until(deadline), attention, |result| result.clone())
    }

    /// The same thread; when it is dropped it vanishes, in place of being stopped.
    pub fn vanishing(mut self) -> SchedulerThread {
        self.when_dropped = VANISH;
        self
    }

    /// Ends the job, for all nodes that are still in it, and waits until it has ended.
    pub fn stop(&self) -> Result<()> {
        self.end(STOP)
    }

    /// Ends without a word to anybody, as at the death of its process: a process that starts it again goes on with the
    /// job.
    pub fn vanish(&self) {
        let _ = self.end(VANISH); // the result only says that it was given up
    }

    fn end(&self, how: u8) -> Result<()> {
        self.wanted.store(how, Ordering::SeqCst);
        self.waker.wake();
        self.wait(None).unwrap_or(Ok(()))
    }
}

impl Drop for SchedulerThread {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.end(self.when_dropped);
            let _ = thread.join(); // its panic was caught
        }
    }
}
