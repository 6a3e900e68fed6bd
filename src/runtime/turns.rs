//! Whose turn it is: the collectives of a group run one after another, in the order in which they were called, whether
//! the caller waits for them or not.
//!
//! A turn's number is the sequence number of its collective. Who has taken one must end it, whatever happens in between,
//! or nobody comes after it. Tested below, and in every order of threads by `loom_test.rs`.

use super::sync::{lock, wait, Condvar, Mutex};
use std::time::Duration;

/// The turns of one group. The first is number 1.
#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    taken: u64,
    ended: u64,
}

impl Turns {
    /// Takes the next turn: its number.
    pub(super) fn take(&self) -> u64 {
        self.take_and(|turn| turn)
    }

    /// Takes the next turn, and does something with its number before anybody can take another.
    pub(super) fn take_and<R>(&self, then: impl FnOnce(u64) -> R) -> R {
        let mut state = lock(&self.state);
        state.taken += 1;
        then(state.taken)
    }

    /// Waits for this turn, at most so long. Returns whether it has come.
    pub(super) fn wait_for(&self, turn: u64, limit: impl Fn() -> Option<Duration>) -> bool {
        let mut state = lock(&self.state);
        while state.ended + 1 < turn {
            let left = limit();
            if left == Some(Duration::ZERO) {
                return false;
            }
            state = wait(&self.changed, state, left);
        }
        true
    }

    /// Ends the turn that has come.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.ended += 1;
        if state.taken > state.ended {
            self.changed.notify_all();
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
        assert_eq!((first, second), (1, 2));
        assert!(turns.wait_for(first, || Some(Duration::ZERO)));
        assert!(!turns.wait_for(second, || Some(Duration::ZERO)), "the first has not ended");
        turns.end();
        assert!(turns.wait_for(second, || Some(Duration::ZERO)));
        turns.end();

        let inside = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let turn = turns.take();
                        assert!(turns.wait_for(turn, || None));
                        assert_eq!(inside.swap(turn, Ordering::SeqCst), 0, "one at a time");
                        inside.store(0, Ordering::SeqCst);
                        turns.end();
                    }
                });
            }
        });
        assert_eq!(turns.take(), 2 + 8 * 200 + 1);
    }
}
