//! The turns of a group: its collectives run one after another, in the order in which they were called, whether
//! the caller waits for them or not.
//!
//! A turn's number is the sequence number of its collective. A thread that has taken one must end it, whatever happens
//! in between, or no later turn comes. The thread need not wait until the turn comes: a turn that was given up is
//! passed over. A thread that holds a turn which another took may pass it on. A call is entered in the log under the
//! same lock as its turn, if the turn comes at once. So a call takes one lock at its beginning, and one at its end.
//! Tested below, and in every order of threads by `turns_loom_test.rs`.

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
    /// The turns that were given up before they came.
    given_up: Vec<u64>,
    log: CallLog,
}

/// The call of a turn, and when it was made; none if the turn is taken only to be ended.
pub(crate) type Called = Option<(Call, Time)>;

impl Turns {
    /// Takes the next turn.
    pub(crate) fn take(&self, called: Called) -> Turn<'_> {
        self.take_in(lock(&self.state), called)
    }

    /// Takes the next turn, if nobody has one. It has come then.
    pub(crate) fn take_if_free(&self, called: Called) -> Option<Turn<'_>> {
        let state = lock(&self.state);
        (state.taken == state.ended).then(|| self.take_in(state, called))
    }

    fn take_in(&self, mut state: MutexGuard<'_, State>, called: Called) -> Turn<'_> {
        state.taken += 1;
        let number = state.taken;
        let has_come = state.ended + 1 == number;
        let turn = self.turn(number, called, has_come);
        if has_come {
            turn.enter_in(&mut state);
        }
        turn
    }

    fn turn(&self, number: u64, called: Called, has_come: bool) -> Turn<'_> {
        let (called, come, end) = (Cell::new(called), Cell::new(has_come), Cell::new(End::Fails));
        Turn { turns: self, number, called, come, is_held: false, end }
    }

    /// Takes the next turn for another thread, which is to hold it. Returns its number, and whether the turn has come.
    pub(crate) fn take_number(&self) -> (u64, bool) {
        let mut state = lock(&self.state);
        state.taken += 1;
        (state.taken, state.ended + 1 == state.taken)
    }

    /// Whether the turn with this number has come.
    pub(crate) fn has_come(&self, number: u64) -> bool {
        lock(&self.state).ended + 1 == number
    }

    /// Makes those that wait look whether the program has interrupted them.
    pub(crate) fn nudge(&self) {
        nudge((&self.state, &self.changed));
    }

    /// Holds the turn with this number, which was taken.
    pub(crate) fn hold(&self, number: u64, called: Called) -> Turn<'_> {
        let mut turn = self.turn(number, called, false);
        turn.is_held = true;
        turn
    }

    /// Passes the log to `body`: it has what was called in turns that have come.
    pub(crate) fn with_log<R>(&self, body: impl FnOnce(&mut CallLog) -> R) -> R {
        body(&mut lock(&self.state).log)
    }
}

/// A turn that was taken. It ends when this is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
    /// None once it has been entered in the log.
    called: Cell<Called>,
    /// Whether it is known that the turn has come. It then lasts until it is ended, so one look is enough.
    come: Cell<bool>,
    /// Whether another thread took it.
    is_held: bool,
    end: Cell<End>,
}

/// How a thread's part in a turn ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The call has failed, or has not begun.
    Fails,
    /// The call has ended without an error.
    GoesWell,
    /// Another thread holds the turn from now on.
    PassesOn,
}

impl Turn<'_> {
    /// The sequence number of its collective.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Waits for the turn, at most so long, unless the program interrupts the call that waits. Returns whether the turn
    /// has come.
    pub(crate) fn wait(&self, limit: impl Fn() -> Option<Duration>, attention: &Attention<'_>) -> Result<bool> {
        if self.come.get() {
            return Ok(true);
        }
        let has_come = |state: &mut State| (state.ended + 1 >= self.number).then_some(());
        let waits = (&self.turns.state, &self.turns.changed);
        self.come.set(wait_until(waits, limit, attention, has_come)?.is_some());
        Ok(self.come.get())
    }

    /// Whether the turn came as it was taken, and its call was entered then.
    pub(crate) fn came_at_once(&self) -> bool {
        self.come.get() && self.called.get().is_none()
    }

    /// The turn has come, and its call begins: the log has the call from now on.
    pub(crate) fn enter(&self) {
        if self.called.get().is_some() {
            self.enter_in(&mut lock(&self.turns.state));
        }
    }

    fn enter_in(&self, state: &mut State) {
        if let Some((call, since)) = self.called.take() {
            state.log.enter(self.number, call, since);
        }
    }

    /// The call has ended without an error.
    pub(crate) fn went_well(&self) {
        self.end.set(End::GoesWell);
    }

    /// Whether the thread that took it is to wait for it.
    pub(crate) fn is_behind_others(&self) -> bool {
        !self.is_held && !self.come.get()
    }

    /// Whether another thread took it.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Leaves the turn to another thread, if this thread did not take it itself. Returns whether it does.
    pub(crate) fn pass_on(&self) -> bool {
        if self.is_held {
            self.end.set(End::PassesOn);
        }
        self.is_held
    }

    pub(crate) fn is_passed_on(&self) -> bool {
        self.end.get() == End::PassesOn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.is_passed_on() {
            return;
        }
        let mut state = lock(&self.turns.state);
        if state.ended + 1 < self.number {
            state.given_up.push(self.number);
            return;
        }
        state.ended += 1;
        if self.end.get() == End::GoesWell {
            state.log.finish(self.number);
        }
        while let Some(nth) = state.given_up.iter().position(|given_up| *given_up == state.ended + 1) {
            state.given_up.swap_remove(nth);
            state.ended += 1;
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

        let [first, second, third, fourth] = [(); 4].map(|()| turns.take(None));
        drop(third);
        drop(second);
        assert_eq!(come(&fourth), Ok(false), "the first has not ended");
        drop(first);
        assert_eq!(come(&fourth), Ok(true), "those before it were given up");
        drop(fourth);

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
        assert_eq!(turns.take_if_free(None).map(|turn| turn.number()), Some(6 + 8 * 200 + 1));
        assert_eq!(turns.take_number(), (6 + 8 * 200 + 2, true));
    }

    #[test]
    fn a_call_is_entered_in_its_turn_and_not_where_it_was_given_up_before() {
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
        third.enter();
        assert_eq!((numbers(), newest().and_then(|newest| newest.call)), (Some((3, 1)), Some(call(3))));
        drop(third);
        assert_eq!(numbers(), Some((3, 1)), "it has failed");
        let (number, _) = turns.take_number();
        let held = turns.hold(number, Some((call(4), Time(0))));
        assert_eq!(held.wait(|| None, &Attention::none()), Ok(true));
        assert_eq!(numbers(), Some((3, 1)), "it has not begun");
        held.enter();
        held.went_well();
        drop(held);
        assert_eq!(numbers(), Some((4, 4)));
    }

    #[test]
    fn a_turn_that_is_passed_on_goes_on_for_the_next_thread_that_holds_it() {
        let turns = Turns::default();
        let call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
        let ((first, is_free), (second, _)) = (turns.take_number(), turns.take_number());
        assert!(is_free);
        assert_eq!((turns.has_come(first), turns.has_come(second)), (true, false));
        let held = turns.hold(first, Some((call, Time(0))));
        held.enter();
        assert!(held.pass_on());
        drop(held);
        assert_eq!((turns.has_come(first), turns.has_come(second)), (true, false), "it has not ended");
        let held = turns.hold(first, Some((call, Time(0))));
        held.enter();
        held.went_well();
        drop(held);
        assert!(turns.has_come(second));
        assert!(!turns.hold(second, None).is_passed_on());
        assert!(!turns.take(None).pass_on(), "the thread is its caller");
        let newest = turns.with_log(|log| log.newest(GroupId::WORLD, Time(0)));
        assert_eq!(newest.map(|newest| (newest.entered, newest.finished)), Some((first, first)));
    }
}
