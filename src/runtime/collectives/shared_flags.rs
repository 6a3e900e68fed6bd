//! What makes ranks that share memory wait for each other and wake each other: counters that only grow, and who sleeps.
//!
//! A rank that publishes looks afterwards who sleeps. A rank that is about to sleep says so first, and looks once more
//! afterwards. Each of the two stores and then loads what the other stores, so a fence stands between: without it both might miss
//! the other, and the sleeper would not be woken. `shared_loom_test.rs` runs this code in every order.

use crate::runtime::base::sync::{fence, Ordering};

/// The words of a segment, by their places.
pub(super) trait Words {
    /// What is there. What was written before it was published can be read from now on.
    fn load(&self, at: usize) -> u64;

    /// Publishes a word, and with it what was written before.
    fn store(&self, at: usize, value: u64);
}

/// Publishes a word, and rings whoever sleeps of these: each with the place where it says so.
#[inline]
pub(super) fn publish<T>(
    words: &impl Words,
    at: usize,
    value: u64,
    others: impl Iterator<Item = (T, usize)>,
    mut ring: impl FnMut(T),
) {
    words.store(at, value);
    fence(Ordering::SeqCst);
    for (other, asleep) in others {
        if words.load(asleep) != 0 {
            ring(other);
        }
    }
}

/// Says that this rank is about to sleep. Then it is to look once more for what it waits for.
pub(super) fn fall_asleep(words: &impl Words, own: usize) {
    words.store(own, 1);
    fence(Ordering::SeqCst);
}

/// Says that it is awake.
pub(super) fn wake_up(words: &impl Words, own: usize) {
    words.store(own, 0);
}
