//! The one source of chance in a simulation: SplitMix64, so that a seed gives the same run on every machine.

use std::ops::Range;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number in the range, which must not be empty.
    pub(super) fn below(&mut self, range: Range<u64>) -> u64 {
        assert!(!range.is_empty(), "a range with something in it");
        range.start + self.bits() % (range.end - range.start)
    }

    pub(super) fn index(&mut self, length: usize) -> usize {
        self.below(0..length as u64) as usize
    }

    /// True once in so many times.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.below(0..times) == 0
    }

    pub(super) fn span_us(&mut self, range: Range<u64>) -> Duration {
        Duration::from_micros(self.below(range))
    }

    pub(super) fn span_ms(&mut self, range: Range<u64>) -> Duration {
        Duration::from_micros(self.below(range.start * 1000..range.end * 1000))
    }

    pub(super) fn shuffle<T>(&mut self, things: &mut [T]) {
        for at in (1..things.len()).rev() {
            things.swap(at, self.index(at + 1));
        }
    }
}
