//! Started calls that time out sooner than a call ahead of them, because the group's time-out was shortened in between.
//!
//! A group's calls end one after another, so nobody looks at the time of such a call before its turn comes. The thread
//! that has the turn ahead, or waits for it, does it instead. Usually there is no such call, and the check is one load.

use crate::runtime::base::sync::{lock, Mutex};
use crate::runtime::state::context::TimeLimit;
use crate::types::{Call, Time};
use std::sync::atomic::{AtomicU64, Ordering};

/// A started call, by the number of its turn.
pub(crate) type CallBehind = (u64, Call, TimeLimit);

/// The calls of one group that are behind a call with a later deadline.
pub(crate) struct DeadlinesBehind {
    /// The earliest of their deadlines; never, if there is no such call.
    first: AtomicU64,
    state: Mutex<Behind>,
}

#[derive(Default)]
struct Behind {
    /// The latest deadline of the calls ahead.
    latest: Time,
    calls: Vec<CallBehind>,
}

impl Default for DeadlinesBehind {
    fn default() -> DeadlinesBehind {
        DeadlinesBehind { first: AtomicU64::new(Time::NEVER.0), state: Mutex::default() }
    }
}

impl DeadlinesBehind {
    /// The earliest deadline of the calls behind; never, if there are none.
    pub(crate) fn first(&self) -> Time {
        Time(self.first.load(Ordering::Relaxed))
    }

    /// Notes a started call; nothing is ahead of it if its turn `has_come`. Returns whether its deadline is before that of a
    /// call ahead. Then the thread that has the turn must look again.
    pub(crate) fn started(&self, (number, call, time): CallBehind, has_come: bool) -> bool {
        let (mut state, deadline) = (lock(&self.state), time.deadline());
        if has_come || deadline >= state.latest {
            state.latest = deadline;
            return false;
        }
        state.calls.push((number, call, time));
        self.tell_first(&state);
        true
    }

    /// The turn with this number has come: from now on its thread checks the deadline itself.
    pub(crate) fn begins(&self, number: u64) {
        if self.first() != Time::NEVER {
            let mut state = lock(&self.state);
            state.calls.retain(|(other, ..)| *other > number);
            self.tell_first(&state);
        }
    }

    /// A call whose time is up; it is forgotten.
    pub(crate) fn late(&self, now: Time) -> Option<CallBehind> {
        let mut state = lock(&self.state);
        let place = state.calls.iter().position(|(.., time)| time.deadline() <= now)?;
        let late = state.calls.remove(place);
        self.tell_first(&state);
        Some(late)
    }

    fn tell_first(&self, state: &Behind) {
        let first = state.calls.iter().map(|(.., time)| time.deadline()).min();
        self.first.store(first.unwrap_or(Time::NEVER).0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::types::CallKind;

    fn call(number: u64, since: u64, limit_ms: i64) -> CallBehind {
        let call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
        (number, call, TimeLimit { since: Time(since), limit_ms })
    }

    #[test]
    fn only_a_call_that_has_less_time_than_one_ahead_of_it_is_looked_after() {
        let (behind, ms) = (DeadlinesBehind::default(), |ms: u64| Time(1_000_000 * ms));
        assert!(!behind.started(call(1, 0, 1000), true) && !behind.started(call(2, 5, 1000), false));
        assert_eq!((behind.first(), behind.late(Time::NEVER).map(|late| late.0)), (Time::NEVER, None));
        assert!(behind.started(call(3, 0, 700), false) && behind.started(call(4, 0, 500), false));
        assert!(!behind.started(call(5, 0, i64::MAX), false) && behind.started(call(6, 0, 2000), false));
        assert_eq!(behind.first(), ms(500));
        assert_eq!(behind.late(ms(500) - std::time::Duration::from_nanos(1)).map(|late| late.0), None);
        behind.begins(4);
        assert_eq!(behind.first(), ms(2000), "the others keep to their time themselves");
        assert_eq!((behind.late(ms(2000)).map(|late| late.0), behind.first()), (Some(6), Time::NEVER));
        assert!(!behind.started(call(7, 0, 10), true), "nothing is ahead of it");
        assert!(!behind.started(call(8, 0, 20), false));
    }
}
