//! Buffers for messages that nobody has asked for yet. Used buffers are kept for later messages, by size.
//! Tested below.

use crate::wire::{EAGER_COST, EAGER_CREDIT, EAGER_MAX};
use std::collections::TryReserveError;

/// How many bytes one group keeps that are not in use, each buffer counted with [`EAGER_COST`] more. What is beyond
/// goes back to the system.
const SPARE_BYTES_MAX: usize = EAGER_CREDIT as usize / 4;
/// The shortest buffers are so long; each size is twice the one before it.
const SHORTEST: usize = 64;
const SIZES: usize = (EAGER_MAX / SHORTEST).ilog2() as usize + 1;

/// Buffers that are not in use.
#[derive(Default)]
pub(super) struct BufferPool {
    buffers: [Vec<Vec<u8>>; SIZES],
    bytes: usize,
}

impl BufferPool {
    /// Whether a buffer of this length takes no memory.
    pub(super) fn has(&self, length: usize) -> bool {
        length == 0 || (length <= EAGER_MAX && !self.buffers[size_of(long(length))].is_empty())
    }

    /// A buffer of this length, with anything in it, if there is memory for it.
    pub(super) fn try_take(&mut self, length: usize) -> Result<Vec<u8>, TryReserveError> {
        if !self.has(length) {
            let (mut buffer, long) = (Vec::new(), if length > EAGER_MAX { length } else { long(length) });
            buffer.try_reserve_exact(long)?;
            buffer.resize(length, 0);
            return Ok(buffer);
        }
        Ok(self.take(length))
    }

    /// A buffer of this length, with anything in it.
    pub(super) fn take(&mut self, length: usize) -> Vec<u8> {
        if length == 0 || length > EAGER_MAX {
            return vec![0; length];
        }
        let long = long(length);
        let spare = self.buffers[size_of(long)].pop();
        if let Some(spare) = &spare {
            self.bytes -= cost(spare);
        }
        let mut buffer = spare.unwrap_or_else(|| Vec::with_capacity(long));
        buffer.resize(length, 0);
        buffer
    }

    /// A copy of these bytes.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.take(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// This buffer is not needed any more.
    pub(super) fn give(&mut self, buffer: Vec<u8>) {
        if (SHORTEST..2 * EAGER_MAX).contains(&buffer.capacity()) && self.bytes + cost(&buffer) <= SPARE_BYTES_MAX {
            self.bytes += cost(&buffer);
            self.buffers[size_of(buffer.capacity())].push(buffer);
        }
    }
}

/// The length of the buffer that is made for so many bytes.
fn long(length: usize) -> usize {
    length.next_power_of_two().max(SHORTEST)
}

/// The size class of a buffer, at least.
fn size_of(capacity: usize) -> usize {
    (capacity / SHORTEST).ilog2() as usize
}

fn cost(buffer: &Vec<u8>) -> usize {
    buffer.capacity() + EAGER_COST as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_for_what_fits_it() {
        let mut pool = BufferPool::default();
        for (first, then) in [(1, 64), (64, 1), (65, 128), (4096, 2049), (EAGER_MAX, EAGER_MAX)] {
            let buffer = pool.take(first);
            let at = buffer.as_ptr();
            assert_eq!(buffer.len(), first);
            pool.give(buffer);
            let again = pool.take(then);
            assert_eq!((again.as_ptr(), again.len(), pool.bytes), (at, then, 0));
        }
        pool.give(vec![1; 100]); // not one of its own: long enough for 64
        assert_eq!(pool.take(128).len(), 128);
        assert_eq!((pool.take(64)[..].len(), pool.bytes), (64, 0));
        assert_eq!((pool.take(0).capacity(), pool.copy(b"abc")), (0, b"abc".to_vec()));
        for length in [0, 1, 100, EAGER_MAX, EAGER_MAX + 1] {
            let buffer = pool.try_take(length).unwrap();
            assert_eq!(buffer.len(), length);
            pool.give(buffer);
            assert_eq!(pool.has(length), length <= EAGER_MAX);
        }
        assert!(pool.try_take(1 << 60).is_err());
    }

    #[test]
    fn no_more_is_kept_than_it_may_be() {
        for length in [1, EAGER_MAX] {
            let mut pool = BufferPool::default();
            let buffers: Vec<_> = (0..2 * SPARE_BYTES_MAX / (length + 512)).map(|_| pool.take(length)).collect();
            buffers.into_iter().for_each(|buffer| pool.give(buffer));
            let (kept, all) = (pool.buffers.iter().flatten().map(cost).sum::<usize>(), SPARE_BYTES_MAX);
            assert!(pool.bytes == kept && kept <= all && kept > all - 2 * EAGER_MAX, "{kept} of {all}");
        }
        let mut pool = BufferPool::default();
        pool.give(Vec::new());
        pool.give(vec![0; 4 * EAGER_MAX]);
        assert_eq!(pool.bytes, 0);
    }
}
