//! The turns of a group: its collectives run one after another, in the order in which they were called, whether
//! the caller waits for them or not.
//!
//! A turn's number is the sequence number of its collective. A thread that has taken one must end it, whatever happens in between,
//! or nobody comes after it. What is called is noted as its turn comes, under the same lock: one lock at a call's beginning, and
//! one at its end. Tested below, and in every order of threads by `loom_test.rs`.

use super::call_log::CallLog;
use crate::error::Result;
use crate::runtime::base::interrupts::{nudge, wait_until, Attention};
use crate::runtime::base::sync::{lock, Condvar, Mutex, MutexGuard};
use crate::types::{Call, Time};
use std::cell::Cell;
use std::time::Duration;

/// The turns of one group. The first is number 1.
#[derive(Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    taken: u64,
    ended: u64,
    log: CallLog,
}

/// What is called in a turn, and when; nothing, where it is taken only to be ended.
pub(crate) type Called = Option<(Call, Time)>;

impl Turns {
    /// Takes the next turn.
    pub(crate) fn take(&self, called: Called) -> Turn<'_> {
        self.take_in(lock(&self.state), called)
    }

    /// The same, if nobody has one: then it has come.
    pub(crate) fn take_if_free(&self, called: Called) -> Option<Turn<'_>> {
        let state = lock(&self.state);
        (state.taken == state.ended).then(|| self.take_in(state, called))
    }

    fn take_in(&self, mut state: MutexGuard<'_, State>, called: Called) -> Turn<'_> {
        state.taken += 1;
        let number = state.taken;
        let has_come = state.enter_if_come(number, called);
        Turn { turns: self, number, called, come: Cell::new(has_come), went_well: Cell::new(false) }
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
    pub(crate) fn hold(&self, number: u64, called: Called) -> Turn<'_> {
        Turn { turns: self, number, called, come: Cell::new(false), went_well: Cell::new(false) }
    }

    /// What was called in turns that have come.
    pub(crate) fn with_log<R>(&self, body: impl FnOnce(&mut CallLog) -> R) -> R {
        body(&mut lock(&self.state).log)
    }
}

impl State {
    fn enter_if_come(&mut self, number: u64, called: Called) -> bool {
        let has_come = self.ended + 1 >= number;
        if let Some((call, since)) = called.filter(|_| has_come) {
            self.log.enter(number, call, since);
        }
        has_come
    }
}

/// A turn that was taken; it ends with this.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
    called: Called,
    /// It has come, as far as is known: it lasts until it is ended, so nobody need look again.
    come: Cell<bool>,
    went_well: Cell<bool>,
}

impl Turn<'_> {
    /// The sequence number of its collective.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Waits for it, at most so long, unless the program interrupts the call that waits. Returns whether it has come.
    pub(crate) fn wait(&self, limit: impl Fn() -> Option<Duration>, attention: &Attention<'_>) -> Result<bool> {
        self.wait_as(self.called, limit, attention)
    }

    fn wait_as(&self, called: Called, limit: impl Fn() -> Option<Duration>, attention: &Attention<'_>) -> Result<bool> {
        if self.come.get() {
            return Ok(true);
        }
        let has_come = |state: &mut State| state.enter_if_come(self.number, called).then_some(());
        let waits = (&self.turns.state, &self.turns.changed);
        self.come.set(wait_until(waits, limit, attention, has_come)?.is_some());
        Ok(self.come.get())
    }

    /// What was called has ended without an error.
    pub(crate) fn went_well(&self) {
        self.went_well.set(true);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Nobody may come before those who called earlier, not even by giving up. What was given up before is not entered.
        let _ = self.wait_as(None, || None, &Attention::none()); // it has come
        let mut state = lock(&self.turns.state);
        state.ended += 1;
        if self.went_well.get() {
            state.log.finish(self.number);
        }
        if state.taken > state.ended {
            self.turns.changed.notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::types::{CallKind, GroupId};
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn turns_come_one_after_another_in_the_order_in_which_they_were_taken() {
        let turns = Turns::default();
        let (first, second) = (turns.take(None), turns.take(None));
        assert!(turns.take_if_free(None).is_none(), "it would have to be waited for");
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
                        let turn = turns.take(None);
                        assert_eq!(turn.wait(|| None, &Attention::none()), Ok(true));
                        assert_eq!(inside.swap(turn.number(), Ordering::SeqCst), 0, "one at a time");
                        inside.store(0, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(turns.take_if_free(None).map(|turn| turn.number()), Some(2 + 8 * 200 + 1));
        assert_eq!(turns.take_number(), 2 + 8 * 200 + 2);
    }

    #[test]
    fn a_call_is_entered_when_its_turn_comes_and_not_where_it_was_given_up_before() {
        let turns = Turns::default();
        let call = |count| Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count, layout: 0 };
        let newest = || turns.with_log(|log| log.newest(GroupId::WORLD, Time(0)));
        let numbers = || newest().map(|newest| (newest.entered, newest.finished));
        let [first, second, third] = [1, 2, 3].map(|count| turns.take(Some((call(count), Time(0)))));
        assert_eq!(numbers(), Some((1, 0)), "the others have not come");
        first.went_well();
        drop(first);
        assert_eq!(numbers(), Some((1, 1)));
        drop(second);
        assert_eq!(numbers(), Some((1, 1)), "it was given up before it came");
        assert_eq!(third.wait(|| None, &Attention::none()), Ok(true));
        assert_eq!((numbers(), newest().and_then(|newest| newest.call)), (Some((3, 1)), Some(call(3))));
        drop(third);
        assert_eq!(numbers(), Some((3, 1)), "it has failed");
        let number = turns.take_number();
        let held = turns.hold(number, Some((call(4), Time(0))));
        assert_eq!(numbers(), Some((3, 1)), "nobody has looked whether it has come");
        assert_eq!(held.wait(|| None, &Attention::none()), Ok(true));
        held.went_well();
        drop(held);
        assert_eq!(numbers(), Some((4, 4)));
    }
}
