//! The turns of a group: its collectives run one after another, in the order in which they were called, whether
//! the caller waits for them or not.
//!
//! A turn's number is the sequence number of its collective. A thread that has taken one must end it, whatever happens in between,
//! or nobody comes after it. Tested below, and in every order of threads by `loom_test.rs`.

use crate::error::Result;
use crate::runtime::base::interrupts::{nudge, wait_until, Attention};
use crate::runtime::base::sync::{lock, Condvar, Mutex};
use std::cell::Cell;
use std::time::Duration;

/// The turns of one group. The first is number 1.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    taken: u64,
    ended: u64,
}

impl Turns {
    /// Takes the next turn.
    pub(crate) fn take(&self) -> Turn<'_> {
        let mut state = lock(&self.state);
        state.taken += 1;
        Turn { turns: self, number: state.taken, come: Cell::new(state.ended + 1 == state.taken) }
    }

    /// Takes the next turn for another thread, which is to hold it: its number.
    pub(crate) fn take_number(&self) -> u64 {
        let mut state = lock(&self.state);
        state.taken += 1;
        state.taken
    }

    /// Makes those that wait look whether the program has interrupted them.
    pub(crate) fn nudge(&self) {
        nudge((&self.state, &self.changed));
    }

    /// Holds the turn with this number, which was taken.
    pub(crate) fn hold(&self, number: u64) -> Turn<'_> {
        Turn { turns: self, number, come: Cell::new(false) }
    }
}

/// A turn that was taken; it ends with this.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
    /// It has come, as far as is known: it lasts until it is ended, so nobody need look again.
    come: Cell<bool>,
}

impl Turn<'_> {
    /// The sequence number of its collective.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Waits for it, at most so long, unless the program interrupts the call that waits. Returns whether it has come.
    pub(crate) fn wait(&self, limit: impl Fn() -> Option<Duration>, attention: &Attention<'_>) -> Result<bool> {
        if self.come.get() {
            return Ok(true);
        }
        let has_come = |state: &mut State| (state.ended + 1 >= self.number).then_some(());
        let waits = (&self.turns.state, &self.turns.changed);
        self.come.set(wait_until(waits, limit, attention, has_come)?.is_some());
        Ok(self.come.get())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Nobody may come before those who called earlier, not even by giving up.
        let _ = self.wait(|| None, &Attention::none()); // it has come
        let mut state = lock(&self.turns.state);
        state.ended += 1;
        if state.taken > state.ended {
            self.turns.changed.notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn turns_come_one_after_another_in_the_order_in_which_they_were_taken() {
        let turns = Turns::default();
        let (first, second) = (turns.take(), turns.take());
        assert_eq!((first.number(), second.number()), (1, 2));
        let come = |turn: &Turn<'_>| turn.wait(|| Some(Duration::ZERO), &Attention::none());
        assert_eq!(come(&first), Ok(true));
        assert_eq!(come(&second), Ok(false), "the first has not ended");
        drop(first);
        assert_eq!(come(&second), Ok(true));
        drop(second);

        let inside = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let turn = turns.take();
                        assert_eq!(turn.wait(|| None, &Attention::none()), Ok(true));
                        assert_eq!(inside.swap(turn.number(), Ordering::SeqCst), 0, "one at a time");
                        inside.store(0, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(turns.take_number(), 2 + 8 * 200 + 1);
    }
}
