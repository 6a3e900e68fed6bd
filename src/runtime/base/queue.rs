//! What a thread works off: jobs, one after another, until it is told to end.
//!
//! Invariant: whatever was taken in is worked off, also what was taken in just before the end. Tested in `loom_test.rs`, in
//! every order of threads.

use crate::error::{memory, Result};
use crate::runtime::base::sync::{lock, wait, Condvar, Mutex};
use std::collections::VecDeque;

/// Jobs, and the thread `T` that works them off; there is none before the first job.
pub(crate) struct Queue<J, T> {
    state: Mutex<Work<J, T>>,
    changed: Condvar,
}

struct Work<J, T> {
    jobs: VecDeque<J>,
    /// So many will come, and find room.
    promised: usize,
    thread: Option<T>,
    ended: bool,
}

impl<J, T> Default for Queue<J, T> {
    fn default() -> Self {
        let state = Work { jobs: VecDeque::new(), promised: 0, thread: None, ended: false };
        Queue { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<J, T> Queue<J, T> {
    /// Room for one job more.
    pub(crate) fn reserve(&self) -> Result<()> {
        let mut state = lock(&self.state);
        if state.jobs.len() < state.jobs.capacity() {
            return Ok(());
        }
        memory::with_reserve("one request more", || state.jobs.try_reserve(1))
    }

    /// Takes in the job that `make` makes, with what its caller gets; nothing is made once the queue has ended. Jobs are
    /// made one at a time, in the order in which they are worked off, and after `start` has started the thread.
    pub(crate) fn put<R>(&self, start: impl FnOnce() -> Result<T>, make: impl FnOnce() -> (J, R)) -> Result<Option<R>> {
        let mut state = lock(&self.state);
        if state.ended {
            return Ok(None);
        }
        if state.thread.is_none() {
            state.thread = Some(start()?);
        }
        let (job, given) = make();
        state.jobs.push_back(job);
        drop(state); // the thread wants it next
        self.changed.notify_all();
        Ok(Some(given))
    }

    /// Room for a job to come, for which [`Queue::keep`] has no memory to ask, and the thread that works it off. Nothing once the
    /// queue has ended.
    pub(crate) fn promise(&self, start: impl FnOnce() -> Result<T>) -> Result<Option<()>> {
        let mut state = lock(&self.state);
        if state.ended {
            return Ok(None);
        }
        if state.thread.is_none() {
            state.thread = Some(start()?);
        }
        let more = state.promised + 1;
        memory::with_reserve("one request more", || state.jobs.try_reserve(more))?;
        state.promised = more;
        Ok(Some(()))
    }

    /// Takes in a job that was promised; given back by a queue that has ended.
    pub(crate) fn keep(&self, job: J) -> Result<(), J> {
        let mut state = lock(&self.state);
        state.promised = state.promised.saturating_sub(1);
        if state.ended {
            return Err(job);
        }
        state.jobs.push_back(job);
        drop(state); // the thread wants it next
        self.changed.notify_all();
        Ok(())
    }

    /// The next job, waiting for it; none once the queue has ended and nothing is left. (The thread's side.)
    pub(crate) fn next(&self) -> Option<J> {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.ended {
                return None;
            }
            state = wait(&self.changed, state, None);
        }
    }

    /// Takes nothing in any more. Gives the thread, which ends after its last job, so that one can wait for it.
    pub(crate) fn end(&self) -> Option<T> {
        let mut state = lock(&self.state);
        state.ended = true;
        self.changed.notify_all();
        state.thread.take()
    }
}
