//! How long to wait before the next attempt to reach the scheduler.
//!
//! The first attempt after a success is made at once: a node whose connection broke has as little as 100 ms to be back
//! before it counts as lost. Later ones wait twice as long each, up to a bound, with jitter, so that a thousand nodes
//! do not come back in the same instant.

use std::time::Duration;

/// The first wait.
const FIRST: Duration = Duration::from_millis(10);
/// The longest.
pub(super) const LONGEST: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Backoff {
    failures: u32,
    state: u64,
}

impl Backoff {
    pub(super) fn new(seed: u64) -> Backoff {
        Backoff { failures: 0, state: seed }
    }

    /// The next attempt is the first one again, or one after so many failures.
    pub(super) fn begin_at(&mut self, failures: u32) {
        self.failures = failures;
    }

    /// How long to wait before the next attempt; none before the first.
    pub(super) fn next_wait(&mut self) -> Duration {
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        match failures {
            0 => Duration::ZERO,
            _ => self.jittered(FIRST.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST)),
        }
    }

    /// The longest wait: after an answer that will not change soon.
    pub(super) fn long_wait(&mut self) -> Duration {
        self.failures = self.failures.max(16);
        self.next_wait()
    }

    /// Between half of `wait` and all of it.
    fn jittered(&mut self, wait: Duration) -> Duration {
        let half = wait / 2;
        let nanos = u64::try_from(half.as_nanos()).expect("LONGEST is far below 2^64 ns").max(1);
        half + Duration::from_nanos(self.random() % nanos)
    }

    /// SplitMix64: plenty for jitter.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_attempt_is_immediate_and_the_waits_grow_to_their_bound() {
        let mut backoff = Backoff::new(7);
        assert_eq!(backoff.next_wait(), Duration::ZERO);
        let mut bound = FIRST;
        for _ in 0..40 {
            let wait = backoff.next_wait();
            assert!(wait >= bound / 2 && wait <= bound, "{wait:?} for {bound:?}");
            bound = (bound * 2).min(LONGEST);
        }
        backoff.begin_at(0);
        assert_eq!(backoff.next_wait(), Duration::ZERO);
        assert!(backoff.long_wait() >= LONGEST / 2);
    }

    #[test]
    fn nodes_with_other_seeds_wait_differently() {
        let waits = |seed| {
            let mut backoff = Backoff::new(seed);
            (0..8).map(|_| backoff.next_wait()).collect::<Vec<_>>()
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
    }
}
