//! Moves data between a call's memory and a segment that ranks share: puts it there, takes it from there, and folds it
//! there.
//!
//! Invariants: all places are checked against the segment's length, and all spans against their buffers' lengths. What
//! other processes write meanwhile may show in the result, and nowhere else: no place and no length is read from the
//! segment. A user's function reads the segment, and gets a copy of the operand over which it writes. Where the data is
//! checked first, a copy in this process's own memory takes the place of the segment.

use super::buffer::{Arithmetic, Memory};
use crate::net::shm::Segment;
use crate::schedules::{kernels, Conversion, Fold, Side, Span};

/// How many bytes of each rank are folded at a time: they stay in the nearest cache.
const STRETCH_BYTES: usize = 4096;

/// How many ranks can fold through memory.
pub(crate) const FOLDED_MAX: usize = 64;
/// So few operands are made ready in no time.
const FEW: usize = 8;

/// The place from which ranks' elements are read.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Shared(&'a Segment),
    Copy(&'a [u8]),
}

impl Source<'_> {
    /// A pointer to these bytes. In a segment others may write there at any time.
    #[inline]
    fn pointer(&self, at: usize, length: usize) -> *const u8 {
        match self {
            Source::Shared(segment) => segment.pointer(at, length).cast_const(),
            Source::Copy(bytes) => bytes[at..at + length].as_ptr(),
        }
    }
}

/// The place to which this rank's elements are written.
pub(crate) enum Sink<'a> {
    Shared(&'a Segment),
    Copy(&'a mut [u8]),
}

impl Sink<'_> {
    #[inline]
    fn pointer(&mut self, at: usize, length: usize) -> *mut u8 {
        match self {
            Sink::Shared(segment) => segment.pointer(at, length),
            Sink::Copy(bytes) => bytes[at..at + length].as_mut_ptr(),
        }
    }

    #[inline]
    fn write(&mut self, at: usize, bytes: &[u8]) {
        match self {
            Sink::Shared(segment) => segment.write(at, bytes),
            Sink::Copy(copy) => copy[at..at + bytes.len()].copy_from_slice(bytes),
        }
    }
}

impl Memory<'_> {
    /// Puts a span's elements there, converted if that is wanted.
    pub(crate) fn put(&self, span: Span, to: &mut Sink<'_>, at: usize, how: Option<Conversion>) {
        let Some(how) = how else { return to.write(at, self.bytes(span)) };
        let count = span.len / how.from.size();
        let to = to.pointer(at, count * how.to.size());
        // SAFETY: both were found to hold so many elements, and no span lies there.
        unsafe { kernels::convert(how, self.bytes(span).as_ptr(), to, count) };
    }

    /// Takes a span's bytes from there.
    pub(crate) fn take(&self, from: Source<'_>, at: usize, span: Span) {
        match from {
            Source::Shared(segment) => segment.read(at, self.bytes_mut(span)),
            Source::Copy(bytes) => self.bytes_mut(span).copy_from_slice(&bytes[at..at + span.len]),
        }
    }
}

/// How the ranks' elements are folded.
pub(crate) struct Folding<'a> {
    pub from: Source<'a>,
    /// The place for results that others want.
    pub to: Sink<'a>,
    pub arithmetic: Arithmetic,
    pub divisor: Option<u32>,
    /// The conversion of the result at the end.
    pub narrows: Option<Conversion>,
    /// Scratch, as long as [`scratch_bytes`] says.
    pub scratch: &'a mut [u8],
}

/// How long the scratch of a [`Folding`] is: room for a stretch of each rank's elements, and two more.
pub(crate) fn scratch_bytes(ranks: usize, element: usize) -> usize {
    (ranks + 2) * stretch_bytes(element)
}

fn stretch_bytes(element: usize) -> usize {
    STRETCH_BYTES.max(element)
}

/// How many elements are folded at a time.
pub(crate) fn stretch_elements(element: usize) -> usize {
    stretch_bytes(element) / element
}

impl Folding<'_> {
    /// Folds so many elements, one stretch, of each rank; they lie at `places`. `order` tells how. The result goes to
    /// `span`, and to a place where others find it, if that is wanted.
    pub(crate) fn fold(
        &mut self,
        places: impl ExactSizeIterator<Item = usize>,
        count: usize,
        order: impl FnOnce(&mut dyn FnMut(Fold)) -> u32,
        memory: &Memory<'_>,
        (span, also): (Option<Span>, Option<usize>),
    ) {
        let (element, how) = (self.arithmetic.dtype.size(), self.arithmetic);
        let (room, bytes) = (stretch_bytes(element), count * element);
        assert!(bytes <= room, "{bytes} bytes are no stretch");
        let (ranks, mut few, mut many) = (places.len(), [std::ptr::null(); FEW], None);
        let operands = match ranks <= FEW {
            true => &mut few[..ranks],
            false => &mut many.insert([std::ptr::null(); FOLDED_MAX])[..ranks],
        };
        for (operand, place) in operands.iter_mut().zip(places) {
            *operand = self.from.pointer(place, bytes);
        }
        assert!(self.scratch.len() >= scratch_bytes(ranks, element), "{} bytes of scratch", self.scratch.len());
        let scratch = self.scratch.as_mut_ptr();
        let own = |rank: usize| scratch.wrapping_add(rank * room);
        let spare = own(ranks);
        let result = order(&mut |Fold { into, other, other_side }| {
            let (into, other) = (into as usize, other as usize);
            assert!(into < ranks && other < ranks && into != other, "{into} and {other} of {ranks}");
            let (lower, higher) = match other_side {
                Side::Higher => (operands[into], operands[other]),
                Side::Lower => (operands[other], operands[into]),
            };
            let out = own(into);
            match how.function {
                // SAFETY: the operands lie in the source, or in a rank's room in the scratch; each is as long as that. The result's
                // room is exactly one operand, or apart from both.
                None => unsafe { kernels::reduce(how.op, how.dtype, lower, higher, out, count) },
                Some(function) => {
                    // The function may write over its higher operand, which must not be another rank's.
                    // SAFETY: the spare room is apart from all operands.
                    unsafe { std::ptr::copy_nonoverlapping(higher, spare, bytes) };
                    // SAFETY: as above; the higher operand is a copy.
                    unsafe { function.reduce(how.dtype, lower, spare, out, count) };
                }
            }
            operands[into] = out.cast_const();
        });
        let from = operands[result as usize];
        assert!(from == own(result as usize).cast_const() || ranks == 1, "the result was folded");
        let result = own(result as usize);
        if let Some(by) = self.divisor {
            // SAFETY: the result lies in the scratch, and the divisor is a group's size.
            unsafe { kernels::divide(how.dtype, result, count, by) };
        }
        let (from, bytes) = match self.narrows {
            None => (from, bytes),
            Some(narrows) => {
                // SAFETY: the spare room is apart from the result's, and a narrow element is no longer than a wide one.
                unsafe { kernels::convert(narrows, from, spare, count) };
                (spare.cast_const(), count * narrows.to.size())
            }
        };
        // SAFETY: so many bytes were just written there, in this process's own memory.
        let result = unsafe { std::slice::from_raw_parts(from, bytes) };
        self.lay_down(result, memory, (span, also));
    }

    /// Adds so many elements, one stretch, of each vector exactly; `place` says where each lies. The result goes where
    /// that of `fold` does.
    pub(crate) fn sum_exact(
        &mut self,
        (vectors, place): (usize, &dyn Fn(usize) -> usize),
        count: usize,
        memory: &Memory<'_>,
        to: (Option<Span>, Option<usize>),
    ) {
        let dtype = self.arithmetic.dtype;
        let bytes = count * dtype.size();
        let scratch = std::mem::take(&mut self.scratch);
        let sum = &mut scratch[..bytes];
        let vector = |number: usize| self.from.pointer(place(number), bytes);
        // SAFETY: each vector was found to lie in the source; the sum is this process's own, and apart from all.
        unsafe { kernels::sum_exact(dtype, vectors, &vector, sum.as_mut_ptr(), count) };
        self.lay_down(sum, memory, to);
        self.scratch = scratch;
    }

    /// Writes a result to where it is wanted.
    fn lay_down(&mut self, result: &[u8], memory: &Memory<'_>, (span, also): (Option<Span>, Option<usize>)) {
        if let Some(span) = span {
            memory.bytes_mut(span).copy_from_slice(result);
        }
        if let Some(at) = also {
            self.to.write(at, result);
        }
    }
}
