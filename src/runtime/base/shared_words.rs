//! Words of memory that processes share. The code by which processes wait for each other uses this trait, so that a
//! model checker can run it.

use crate::net::shm::Segment;

/// The words of a segment, by their places. Each has one writer.
pub(crate) trait SharedWords {
    /// The word that is there. What was written before it was published can be read from now on.
    fn load(&self, at: usize) -> u64;

    /// Publishes a word, and with it all that was written before.
    fn store(&self, at: usize, value: u64);
}

impl SharedWords for Segment {
    #[inline]
    fn load(&self, at: usize) -> u64 {
        Segment::load(self, at)
    }

    #[inline]
    fn store(&self, at: usize, value: u64) {
        Segment::store(self, at, value);
    }
}
