//! The items that a thread works off, one after another, until it is told to end. Another thread may borrow the next
//! item, to carry it out itself or to give it back. While others borrow what comes, the thread dozes instead of
//! sleeping: it looks by itself, a little later, and an item that comes need not wake it.
//!
//! Invariants:
//! - Whatever was taken in is worked off, also what was taken in just before the end.
//! - While an item is lent nobody gets the one behind it, and the thread does not end.
//!
//! Tested in `loom_test.rs`, in every order of threads, but for `poll`, which only looks.

use crate::error::{memory, Result};
use crate::runtime::base::sync::{lock, wait, Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::hint::spin_loop;
use std::time::Duration;

/// Items, and the thread `T` that works them off; there is none before the first item.
pub(crate) struct Queue<I, T> {
    state: Mutex<QueueState<I, T>>,
    changed: Condvar,
}

struct QueueState<I, T> {
    items: VecDeque<I>,
    /// How many promised items will still come, and find room.
    promised: usize,
    thread: Option<T>,
    rest: Rest,
    /// Whether an item is lent.
    lent: bool,
    /// How many items have been lent so far, and how many had been when the thread last went to rest.
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

/// How long an item may lie before a thread that dozes finds it. To look takes some microseconds.
const DOZE: Duration = Duration::from_micros(500);

/// How many looks a polling thread leaves an item to others. With the pause between two looks, that is some microseconds.
const LOOKS_LEFT: u32 = 2;

/// How long that pause is. More looks would only hold up the threads that put items and borrow them.
const PAUSE: u32 = 32;

impl<I, T> Default for Queue<I, T> {
    fn default() -> Self {
        let (items, thread, rest) = (VecDeque::new(), None, Rest::Awake);
        let state = QueueState {
            items,
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

impl<I, T> Queue<I, T> {
    /// Makes room for one more item.
    pub(crate) fn reserve(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let more = 1 + usize::from(state.lent); // what is lent may come back
        if state.items.capacity() - state.items.len() >= more {
            return Ok(());
        }
        memory::with_reserve("one request more", || state.items.try_reserve(more))
    }

    /// Takes in the item that `make` makes, and returns what its caller gets. Nothing is made once the queue has ended.
    /// Items are made one at a time, in the order in which they are worked off, and after `start` has started the
    /// thread.
    pub(crate) fn put<R>(&self, start: impl FnOnce() -> Result<T>, make: impl FnOnce() -> (I, R)) -> Result<Option<R>> {
        let mut state = lock(&self.state);
        if state.ended {
            return Ok(None);
        }
        if state.thread.is_none() {
            state.thread = Some(start()?);
        }
        let (item, given) = make();
        state.items.push_back(item);
        self.wake(state);
        Ok(Some(given))
    }

    /// Makes room for an item to come, so that [`Queue::keep`] need not ask for memory, and makes sure of the thread that
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
        memory::with_reserve("one request more", || state.items.try_reserve(more))?;
        state.promised = more;
        Ok(Some(()))
    }

    /// Takes in an item that was promised. A queue that has ended gives it back.
    pub(crate) fn keep(&self, item: I) -> Result<(), I> {
        let mut state = lock(&self.state);
        state.promised = state.promised.saturating_sub(1);
        if state.ended {
            return Err(item);
        }
        state.items.push_back(item);
        self.wake(state);
        Ok(())
    }

    /// Lends the next item, if it is wanted and no item is lent. It must be given back, or be said to be done.
    pub(crate) fn borrow(&self, is_wanted: impl FnOnce(&I) -> bool) -> Option<I> {
        let mut state = lock(&self.state);
        if state.lent || !state.items.front().is_some_and(is_wanted) {
            return None;
        }
        state.lent = true;
        state.loans += 1;
        state.items.pop_front()
    }

    /// Takes back an item that was lent; none if it is done.
    pub(crate) fn give_back(&self, item: Option<I>) {
        let mut state = lock(&self.state);
        state.lent = false;
        if let Some(item) = item {
            state.items.push_front(item); // back in its old place
            self.wake_at_once(state);
        } else {
            self.wake(state);
        }
    }

    /// A caller waits for an item that is in the queue, and does not borrow it. If the queue's thread dozes or polls,
    /// that thread takes the item at once.
    pub(crate) fn hurry(&self) {
        let mut state = lock(&self.state);
        if !state.lent && !state.items.is_empty() {
            state.hurried = true;
            if state.rest == Rest::Dozes {
                self.wake_at_once(state);
            }
        }
    }

    /// Waits a little for the next item without sleeping, as long as `looks_again` says so. `looks_again` lets others
    /// run, and is told whether an item has been lent since the last look. An item that comes meanwhile is left for some
    /// looks to threads that may borrow it: they are faster than this thread with another wake-up. (The thread's side.)
    pub(crate) fn poll(&self, mut looks_again: impl FnMut(bool) -> bool) {
        let mut looks = 0; // counted since an item is there
        let mut known = None;
        loop {
            let state = lock(&self.state);
            let is_there = !state.lent && !state.items.is_empty();
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

    /// Waits for the next item; none once the queue has ended and nothing is left. (The thread's side.)
    pub(crate) fn next(&self) -> Option<I> {
        let mut state = lock(&self.state);
        loop {
            if !state.lent {
                if let Some(item) = state.items.pop_front() {
                    state.hurried = false;
                    return Some(item);
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

    /// Takes nothing in any more. Returns the thread, which ends after its last item, so that the caller can wait for
    /// it.
    pub(crate) fn end(&self) -> Option<T> {
        let mut state = lock(&self.state);
        state.ended = true;
        let thread = state.thread.take();
        self.wake_at_once(state);
        thread
    }

    /// Wakes the thread, if it has something to do.
    fn wake(&self, state: MutexGuard<'_, QueueState<I, T>>) {
        let has_to_do = !state.lent && (state.ended || !state.items.is_empty());
        if has_to_do && state.rest == Rest::Sleeps {
            self.wake_at_once(state);
        }
    }

    fn wake_at_once(&self, mut state: MutexGuard<'_, QueueState<I, T>>) {
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
