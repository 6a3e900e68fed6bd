//! How ranks that share memory wait for each other and wake each other: by counters that only grow, and words of
//! sleeping ranks.
//!
//! A rank that publishes looks afterwards which ranks sleep for it. A rank that is about to sleep first says for which
//! rank, and then looks once more. Each of the two stores and then loads what the other stores, so a fence stands
//! between: without it both might miss the other, and the sleeper would not be woken. `shared_loom_test.rs` runs this
//! code in every order.

use crate::runtime::base::shared_words::SharedWords;
use crate::runtime::base::sync::{fence, Ordering};

/// Publishes a word of this rank, and rings the others that sleep for this rank. Each of `others` has the place where
/// it says so. Waking the rest would cost both sides, for nothing. `ring` also gets the number of the sleep: a rank
/// that was rung once in a sleep wakes from it, and need not be rung again.
#[inline]
pub(super) fn publish<T>(
    words: &impl SharedWords,
    at: usize,
    value: u64,
    own: u32,
    others: impl Iterator<Item = (T, usize)>,
    mut ring: impl FnMut(T, u64),
) {
    words.store(at, value);
    fence(Ordering::SeqCst);
    for (other, asleep) in others {
        let sleep = words.load(asleep);
        if sleep as u32 == sleeps_for(own) {
            ring(other, sleep);
        }
    }
}

/// The lower half of a rank's word while it sleeps for this peer. The upper half numbers its sleeps. 0 says that it is awake.
fn sleeps_for(peer: u32) -> u32 {
    peer + 1
}

/// Says, at this place, that this rank is about to sleep for a peer, for the `nth` time. Before it sleeps it must look once
/// more for what it waits for.
pub(super) fn fall_asleep(words: &impl SharedWords, at: usize, nth: u32, peer: u32) {
    words.store(at, u64::from(nth) << 32 | u64::from(sleeps_for(peer)));
    fence(Ordering::SeqCst);
}

/// Says that it is awake.
pub(super) fn wake_up(words: &impl SharedWords, at: usize) {
    words.store(at, 0);
}
