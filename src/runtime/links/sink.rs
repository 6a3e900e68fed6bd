//! What becomes of a frame that is being received: where its payload lands, and how it is combined with what is there.
//!
//! A payload that is only placed is received where it belongs. A payload that is combined arrives in a scratch, which stays in
//! the cache. The scratch has room before the payload for the frame's head, and behind it for the checksum. So one read into one
//! place takes all three, and costs less than one into three places. Tested with the link that receives, in `link_test.rs`.
//!
//! A piece may end within an element of the caller's own size. The first part of that element then waits at the beginning of
//! the scratch, and the next piece arrives behind it: so only whole elements are combined.

use super::outgoing::HEAD_BYTES;
use crate::runtime::memory::buffer::{Arithmetic, Memory};
use crate::schedules::{Landing, Span};
use crate::wire::{CHECKSUM_BYTES, PIECE_BYTES};
use std::io::IoSliceMut;

/// How much room the scratch has before a piece: for the head of its frame, and such that the piece is aligned as the scratch is.
const BEFORE: usize = HEAD_BYTES.next_multiple_of(ALIGNMENT);
/// A line of the cache.
const ALIGNMENT: usize = 64;

/// How long a scratch has to be for a payload of `payload` bytes, whose elements have `element` bytes each.
pub fn scratch_bytes(payload: usize, element: usize) -> usize {
    let begun = if PIECE_BYTES.is_multiple_of(element) { 0 } else { element };
    BEFORE + payload.min(PIECE_BYTES + begun) + CHECKSUM_BYTES + ALIGNMENT
}

/// What becomes of the frame that is being received.
#[derive(Clone, Copy)]
pub struct Sink<'a> {
    /// The call's memory.
    pub memory: &'a Memory<'a>,
    /// Where the payload lands.
    pub landing: Landing,
    /// How elements are combined, where the landing reduces.
    pub arithmetic: Option<Arithmetic>,
}

impl Sink<'_> {
    /// How long the payload has to be.
    pub(crate) fn total(&self) -> usize {
        Landing::into(&self.landing).len
    }

    /// Where the piece of `length` bytes that begins at `from` is received.
    pub(crate) fn target<'p>(&'p self, from: usize, length: usize, scratch: &'p mut [u8]) -> &'p mut [u8] {
        match self.landing {
            Landing::Place(into) => self.memory.bytes_mut(part(into, from, length)),
            Landing::Reduce { .. } => &mut aligned(scratch)[BEFORE + self.begun(from)..][..length],
        }
    }

    /// How many bytes before `from` belong to an element of which the rest has not been received yet.
    fn begun(&self, from: usize) -> usize {
        self.arithmetic.map_or(0, |how| from % how.dtype.size())
    }

    /// Reads a frame's head, the first piece as far as it is there, and what stands behind it, with one read.
    pub(crate) fn read_first<T>(
        &self,
        length: usize,
        scratch: &mut [u8],
        (head, tail): (&mut [u8], &mut [u8]),
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> T,
    ) -> T {
        if let Landing::Place(_) = self.landing {
            let target = self.target(0, length, scratch);
            return read(&mut [IoSliceMut::new(head), IoSliceMut::new(target), IoSliceMut::new(tail)]);
        }
        let whole = &mut aligned(scratch)[BEFORE - head.len()..][..head.len() + length + tail.len()];
        let result = read(&mut [IoSliceMut::new(whole)]);
        head.copy_from_slice(&whole[..head.len()]);
        tail.copy_from_slice(&whole[head.len() + length..]);
        result
    }

    /// Reads on in the piece that begins at `from`, of which `here` bytes are there, and then what stands behind it.
    pub(crate) fn read_on<T>(
        &self,
        (from, length, here): (usize, usize, usize),
        scratch: &mut [u8],
        tail: &mut [u8],
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> T,
    ) -> T {
        if here == length {
            return read(&mut [IoSliceMut::new(tail)]);
        }
        if let Landing::Place(_) = self.landing {
            let rest = &mut self.target(from, length, scratch)[here..];
            return read(&mut [IoSliceMut::new(rest), IoSliceMut::new(tail)]);
        }
        let whole = &mut aligned(scratch)[BEFORE + self.begun(from) + here..][..length - here + tail.len()];
        let result = read(&mut [IoSliceMut::new(whole)]);
        tail.copy_from_slice(&whole[length - here..]);
        result
    }

    /// A whole piece has been received, with this checksum. It is kept if the payload is only placed.
    pub(crate) fn note_checksum(&self, from: usize, length: usize, checksum: u32) {
        if let Landing::Place(into) = self.landing {
            self.memory.note_checksum(part(into, from, length), checksum);
        }
    }

    /// A whole piece has been received: combines it, if the landing reduces.
    pub(crate) fn take_in(&self, from: usize, length: usize, scratch: &mut [u8]) {
        if let Landing::Reduce { mine, into, arrives } = self.landing {
            let how = self.arithmetic.expect("a schedule that reduces has a type and an operation");
            let begun = self.begun(from);
            let here = begun + length;
            let whole = here - here % how.dtype.size();
            let (mine, into) = (part(mine, from - begun, whole), part(into, from - begun, whole));
            let scratch = &mut aligned(scratch)[BEFORE..];
            self.memory.reduce_arrived(mine, &mut scratch[..whole], into, arrives, how);
            if whole < here {
                scratch.copy_within(whole..here, 0);
            }
        }
    }
}

fn aligned(scratch: &mut [u8]) -> &mut [u8] {
    let skip = scratch.as_ptr().align_offset(ALIGNMENT);
    &mut scratch[skip..]
}

fn part(span: Span, from: usize, length: usize) -> Span {
    Span::new(span.buffer, span.offset + from, length)
}
