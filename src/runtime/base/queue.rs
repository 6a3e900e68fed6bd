//! The jobs that a thread works off, one after another, until it is told to end. Another thread may borrow the next
//! job, to carry it out itself or to give it back. While others borrow what comes, the thread dozes instead of
//! sleeping: it looks by itself, a little later, and a job that comes need not wake it.
//!
//! Invariants:
//! - Whatever was taken in is worked off, also what was taken in just before the end.
//! - While a job is lent nobody gets the one behind it, and the thread does not end.
//!
//! Tested in `loom_test.rs`, in every order of threads, but for `poll`, which only looks.

use crate::error::{memory, Result};
use crate::runtime::base::sync::{lock, wait, Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::hint::spin_loop;
use std::time::Duration;

/// Jobs, and the thread `T` that works them off; there is none before the first job.
pub(crate) struct Queue<J, T> {
    state: Mutex<QueueState<J, T>>,
    changed: Condvar,
}

struct QueueState<J, T> {
    jobs: VecDeque<J>,
    /// How many promised jobs will still come, and find room.
    promised: usize,
    thread: Option<T>,
    rest: Rest,
    /// Whether a job is lent.
    lent: bool,
    /// How many jobs have been lent so far, and how many had been when the thread last went to rest.
    loans: u64,
    loans_before: u64,
    /// Whether a thread waits that does not borrow.
    hurried: bool,
    ended: bool,
}

/// What the thread does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// It works, or it has been woken.
    Awake,
    /// It looks by itself, after [`DOZE`].
    Dozes,
    Sleeps,
}

/// How long a job may lie before a thread that dozes finds it. To look takes some microseconds.
const DOZE: Duration = Duration::from_micros(500);

/// How many looks a polling thread leaves a job to others. With the pause between two looks, that is some microseconds.
const LOOKS_LEFT: u32 = 2;

/// How long that pause is. More looks would only hold up the threads that put jobs and borrow them.
const PAUSE: u32 = 32;

impl<J, T> Default for Queue<J, T> {
    fn default() -> Self {
        let (jobs, thread, rest) = (VecDeque::new(), None, Rest::Awake);
        let state = QueueState {
            jobs,
            promised: 0,
            thread,
            rest,
            lent: false,
            loans: 0,
            loans_before: 0,
            hurried: false,
            ended: false,
        };
        Queue { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<J, T> Queue<J, T> {
    /// Makes room for one more job.
    pub(crate) fn reserve(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let more = 1 + usize::from(state.lent); // what is lent may come back
        if state.jobs.capacity() - state.jobs.len() >= more {
            return Ok(());
        }
        memory::with_reserve("one request more", || state.jobs.try_reserve(more))
    }

    /// Takes in the job that `make` makes, and returns what its caller gets. Nothing is made once the queue has ended.
    /// Jobs are made one at a time, in the order in which they are worked off, and after `start` has started the
    /// thread.
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
        self.wake(state);
        Ok(Some(given))
    }

    /// Makes room for a job to come, so that [`Queue::keep`] need not ask for memory, and makes sure of the thread that
    /// works it off. Does nothing once the queue has ended.
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

    /// Takes in a job that was promised. A queue that has ended gives it back.
    pub(crate) fn keep(&self, job: J) -> Result<(), J> {
        let mut state = lock(&self.state);
        state.promised = state.promised.saturating_sub(1);
        if state.ended {
            return Err(job);
        }
        state.jobs.push_back(job);
        self.wake(state);
        Ok(())
    }

    /// Lends the next job, if it is wanted and no job is lent. It must be given back, or be said to be done.
    pub(crate) fn borrow(&self, is_wanted: impl FnOnce(&J) -> bool) -> Option<J> {
        let mut state = lock(&self.state);
        if state.lent || !state.jobs.front().is_some_and(is_wanted) {
            return None;
        }
        state.lent = true;
        state.loans += 1;
        state.jobs.pop_front()
    }

    /// Takes back a job that was lent; none if it is done.
    pub(crate) fn give_back(&self, job: Option<J>) {
        let mut state = lock(&self.state);
        state.lent = false;
        if let Some(job) = job {
            state.jobs.push_front(job); // back in its old place
            self.wake_at_once(state);
        } else {
            self.wake(state);
        }
    }

    /// A thread waits for a job that is there, and does not borrow it. If the queue's thread dozes or polls, it takes
    /// the job at once.
    pub(crate) fn hurry(&self) {
        let mut state = lock(&self.state);
        if !state.lent && !state.jobs.is_empty() {
            state.hurried = true;
            if state.rest == Rest::Dozes {
                self.wake_at_once(state);
            }
        }
    }

    /// Waits a little for the next job without sleeping, as long as `looks_again` says so. `looks_again` lets others
    /// run, and is told whether a job has been lent since the last look. A job that comes meanwhile is left for some
    /// looks to threads that may borrow it: they are faster than this thread with another wake-up. (The thread's side.)
    pub(crate) fn poll(&self, mut looks_again: impl FnMut(bool) -> bool) {
        let mut looks = 0; // counted since a job is there
        let mut known = None;
        loop {
            let state = lock(&self.state);
            let is_there = !state.lent && !state.jobs.is_empty();
            looks = if is_there { looks + 1 } else { 0 };
            let is_left = !state.hurried && looks <= LOOKS_LEFT && known.is_some();
            let is_over = state.ended || (is_there && !is_left);
            let is_lent = known != Some(state.loans);
            known = Some(state.loans);
            drop(state);
            if is_over || !looks_again(is_lent) {
                return;
            }
            (0..PAUSE).for_each(|_| spin_loop());
        }
    }

    /// Waits for the next job; none once the queue has ended and nothing is left. (The thread's side.)
    pub(crate) fn next(&self) -> Option<J> {
        let mut state = lock(&self.state);
        loop {
            if !state.lent {
                if let Some(job) = state.jobs.pop_front() {
                    state.hurried = false;
                    return Some(job);
                }
                if state.ended {
                    return None;
                }
            }
            let dozes = state.loans != state.loans_before;
            state.loans_before = state.loans;
            state.rest = if dozes { Rest::Dozes } else { Rest::Sleeps };
            state = wait(&self.changed, state, dozes.then_some(DOZE));
            state.rest = Rest::Awake;
        }
    }

    /// Takes nothing in any more. Returns the thread, which ends after its last job, so that the caller can wait for
    /// it.
    pub(crate) fn end(&self) -> Option<T> {
        let mut state = lock(&self.state);
        state.ended = true;
        let thread = state.thread.take();
        self.wake_at_once(state);
        thread
    }

    /// Wakes the thread, if it has something to do.
    fn wake(&self, state: MutexGuard<'_, QueueState<J, T>>) {
        let has_to_do = !state.lent && (state.ended || !state.jobs.is_empty());
        if has_to_do && state.rest == Rest::Sleeps {
            self.wake_at_once(state);
        }
    }

    fn wake_at_once(&self, mut state: MutexGuard<'_, QueueState<J, T>>) {
        if std::mem::replace(&mut state.rest, Rest::Awake) != Rest::Awake {
            drop(state); // the thread wants it next
            self.changed.notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// How often a thread looks that polls in this queue and gives way at most so often; `meanwhile` happens with its
    /// third look.
    fn looks(queue: &Queue<u32, ()>, most: u32, meanwhile: impl Fn()) -> u32 {
        let looks = Cell::new(0);
        queue.poll(|_| {
            looks.set(looks.get() + 1);
            if looks.get() == 3 {
                meanwhile();
            }
            looks.get() < most
        });
        looks.get()
    }

    #[test]
    fn a_thread_polls_until_something_comes_which_it_leaves_to_others_for_a_while() {
        let queue = Queue::default();
        let put = || {
            queue.put(|| Ok(()), || (5, ())).unwrap();
        };
        assert_eq!(looks(&queue, 10, || {}), 10, "nothing comes");
        assert_eq!(looks(&queue, 100, put), 3 + LOOKS_LEFT);
        assert_eq!(looks(&queue, 100, || {}), 0, "it was there before");
        assert_eq!(queue.next(), Some(5));
        let put_and_wait = || {
            put();
            queue.hurry();
        };
        assert_eq!(looks(&queue, 100, put_and_wait), 3, "a thread waits for it that does not borrow it");
        assert_eq!(queue.borrow(|_| true), Some(5));
        assert_eq!(looks(&queue, 10, || {}), 10, "it is lent");
        queue.give_back(Some(5));
        assert_eq!(looks(&queue, 100, || {}), 0, "it is given back");
        assert_eq!(queue.next(), Some(5));
    }

    #[test]
    fn a_thread_that_polls_hears_that_others_borrow_what_comes() {
        let queue = Queue::default();
        let mut heard = Vec::new();
        queue.poll(|is_lent| {
            heard.push(is_lent);
            let taken = match heard.len() {
                2 => {
                    queue.put(|| Ok(()), || (5, ())).unwrap();
                    queue.borrow(|_| true)
                }
                4 => {
                    queue.give_back(None);
                    queue.put(|| Ok(()), || (5, ())).unwrap();
                    queue.borrow(|_| true)
                }
                _ => None,
            };
            if taken.is_some() && heard.len() == 4 {
                queue.give_back(None);
            }
            heard.len() < 7
        });
        assert_eq!(heard, [true, false, true, false, true, false, false], "the first look knows nothing of before");
    }

    #[test]
    fn nobody_polls_for_longer_than_is_said_or_after_the_end() {
        let queue = Queue::default();
        let put = || {
            queue.put(|| Ok(()), || (5, ())).unwrap();
        };
        assert_eq!(looks(&queue, 4, put), 4);
        assert_eq!(queue.next(), Some(5));
        queue.end();
        assert_eq!(looks(&queue, 100, || {}), 0);
    }
}
