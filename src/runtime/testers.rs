//! Where threads sleep that wait by testing. A thread may test many requests in turn, of several groups, and sleeps in one place
//! only: so the end of any request of its node rouses it. Tested below, and in every order of threads by `loom_test.rs`.

use super::sync::{lock, wait, Condvar, Instant, Mutex};
use std::time::Duration;

/// A node's.
#[derive(Default)]
pub(super) struct Testers {
    state: Mutex<State>,
    roused: Condvar,
}

#[derive(Default)]
struct State {
    sleeping: u32,
    /// How often requests have ended while somebody slept.
    ends: u64,
}

impl Testers {
    /// A request has ended.
    pub(super) fn rouse(&self) {
        let mut state = lock(&self.state);
        if state.sleeping > 0 {
            state.ends += 1;
            drop(state);
            self.roused.notify_all(); // outside the lock, which they want next
        }
    }

    /// Sleeps until a request ends, at most so long (`None`: without limit); not at all if the one that is tested has ended.
    pub(super) fn sleep(&self, limit: Option<Duration>, has_ended: impl FnOnce() -> bool) {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut state = lock(&self.state);
        if has_ended() {
            return; // what ends from now on finds this thread asleep
        }
        let ends = state.ends;
        state.sleeping += 1;
        while state.ends == ends {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break;
            }
            state = wait(&self.roused, state, left);
        }
        state.sleeping -= 1;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_whose_request_has_ended_does_not_sleep_and_another_not_for_longer_than_it_wants() {
        let testers = Testers::default();
        testers.sleep(None, || true);
        testers.sleep(Some(Duration::from_millis(1)), || false);
        testers.rouse();
        let state = lock(&testers.state);
        assert_eq!((state.sleeping, state.ends), (0, 0), "nobody slept when one ended");
    }
}
