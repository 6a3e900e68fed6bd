//! The memory of one call: the caller's buffers and the group's scratch, reached by span. The one place in the runtime
//! where raw pointers become slices.
//!
//! Invariants: a span is held against its buffer's length before it is used. That sent and written bytes never overlap
//! within a step is the schedules' invariant (see `schedules`), which their simulation checks.

use super::checksums::Checksums;
use crate::schedules::kernels::UserFunction;
use crate::schedules::{kernels, Buffer, Conversion, Side, Span};
use crate::types::{DType, ReduceOp};
use std::cell::RefCell;
use std::marker::PhantomData;

/// What the caller gave: where a call reads and where it writes. Lives no longer than the call.
#[derive(Clone, Copy)]
pub struct CallBuffers<'a> {
    input: (*const u8, usize),
    output: (*mut u8, usize),
    in_place: bool,
    lifetime: PhantomData<&'a mut [u8]>,
}

// SAFETY: the pointers are the caller's, who promised `new` that nobody else touches what they point to for `'a`; which
// thread works on it does not matter.
unsafe impl Send for CallBuffers<'_> {}

impl<'a> CallBuffers<'a> {
    /// The caller's buffers, with their lengths in bytes. `in_place`: `input` lies where the kind of call says that the
    /// rank's own part of `output` lies.
    ///
    /// # Safety
    /// For `'a`, `input` is readable and `output` writable for their lengths, nobody else writes to either or reads
    /// `output`, and `input` is apart from `output` unless `in_place`. A pointer may be null where its length is 0.
    pub unsafe fn new(input: (*const u8, usize), output: (*mut u8, usize), in_place: bool) -> CallBuffers<'a> {
        CallBuffers { input, output, in_place, lifetime: PhantomData }
    }

    /// Buffers that Rust knows to be apart.
    pub fn of(input: &'a [u8], output: &'a mut [u8]) -> CallBuffers<'a> {
        let (input, output) = ((input.as_ptr(), input.len()), (output.as_mut_ptr(), output.len()));
        CallBuffers { input, output, in_place: false, lifetime: PhantomData }
    }

    /// Whether the input lies within the output.
    pub fn in_place(&self) -> bool {
        self.in_place
    }

    /// These bytes of the output, or of the input where there is no output.
    pub fn window(self, offset: usize, length: usize) -> CallBuffers<'a> {
        let (input, output) = (self.input, self.output);
        let whole = input.1.max(output.1);
        assert!(offset.checked_add(length).is_some_and(|end| end <= whole), "{length} bytes at {offset} of {whole}");
        if output.1 > 0 {
            return CallBuffers {
                input: (std::ptr::null(), 0),
                output: (output.0.wrapping_add(offset), length),
                ..self
            };
        }
        CallBuffers { input: (input.0.wrapping_add(offset), length), ..self }
    }

    /// The input of this and the output of that: what is to be copied, and where to.
    pub fn into_output_of(self, other: CallBuffers<'a>) -> CallBuffers<'a> {
        CallBuffers { output: other.output, ..self }
    }

    /// Without any scratch.
    pub fn memory(self) -> Memory<'a> {
        self.with_scratch(&mut [])
    }

    /// Together with the group's scratch.
    pub fn with_scratch<'s>(self, scratch: &'s mut [u8]) -> Memory<'s>
    where
        'a: 's,
    {
        let scratch = (scratch.as_mut_ptr(), scratch.len());
        Memory { input: self.input, output: self.output, scratch, known: None, lifetime: PhantomData }
    }
}

/// How a call combines elements.
#[derive(Clone, Copy, Debug)]
pub struct Arithmetic {
    /// Their type.
    pub dtype: DType,
    /// The operation.
    pub op: ReduceOp,
    /// What carries it out, if it is a user's.
    pub function: Option<UserFunction>,
}

impl Arithmetic {
    /// By an operation of our own.
    #[cfg(test)]
    pub fn of(dtype: DType, op: ReduceOp) -> Arithmetic {
        Arithmetic { dtype, op, function: None }
    }
}

/// The three buffers that a schedule's spans lie in.
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    input: (*const u8, usize),
    output: (*mut u8, usize),
    scratch: (*mut u8, usize),
    known: Option<&'a RefCell<Checksums>>,
    lifetime: PhantomData<&'a mut [u8]>,
}

impl<'a> Memory<'a> {
    /// The same memory, of whose pieces the checksums are remembered from now on.
    pub fn remembering(self, known: &'a RefCell<Checksums>) -> Memory<'a> {
        known.borrow_mut().clear();
        Memory { known: Some(known), ..self }
    }
}

impl Memory<'_> {
    /// The checksum of a span's bytes.
    pub fn checksum(&self, span: Span) -> u32 {
        let bytes = self.bytes(span);
        self.known.map_or_else(|| crc32fast::hash(bytes), |known| known.borrow_mut().of(bytes))
    }

    /// A span's bytes have just been received, and have this checksum.
    pub fn note_checksum(&self, span: Span, checksum: u32) {
        if let Some(known) = self.known {
            known.borrow_mut().note(self.bytes(span), checksum);
        }
    }

    /// A span is about to be written: what is remembered of its bytes does not hold any more.
    pub fn forget_checksums(&self, span: Span) {
        if let Some(known) = self.known {
            known.borrow_mut().forget(self.start(span), span.len);
        }
    }

    fn start(&self, span: Span) -> *const u8 {
        let (start, length) = match span.buffer {
            Buffer::Input => self.input,
            Buffer::Output => (self.output.0.cast_const(), self.output.1),
            Buffer::Scratch => (self.scratch.0.cast_const(), self.scratch.1),
        };
        let inside = span.offset.checked_add(span.len).is_some_and(|end| end <= length);
        assert!(inside, "a schedule keeps inside its buffers: {span:?} of {length} bytes");
        if start.is_null() {
            return std::ptr::NonNull::dangling().as_ptr(); // the length is 0
        }
        // SAFETY: the span was just found to lie inside the buffer.
        unsafe { start.add(span.offset) }
    }

    fn start_mut(&self, span: Span) -> *mut u8 {
        assert!(span.buffer != Buffer::Input, "a schedule never writes the input: {span:?}");
        self.start(span).cast_mut()
    }

    /// A span's bytes, to be sent.
    pub fn bytes(&self, span: Span) -> &[u8] {
        // SAFETY: `start` checked the bounds; `CallBuffers::new`'s contract makes the memory readable, and the schedules'
        // invariant says that nothing which is sent in a step is written in it.
        unsafe { std::slice::from_raw_parts(self.start(span), span.len) }
    }

    /// A span's bytes, to be received into.
    #[allow(clippy::mut_from_ref)] // the spans of one step are disjoint: see the module's head
    pub fn bytes_mut(&self, span: Span) -> &mut [u8] {
        // SAFETY: as for `bytes`; what is written in a step is written by one landing only, and not read meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.start_mut(span), span.len) }
    }

    /// Combines `mine` with `other`, which lies outside the call's memory (a piece that has just arrived), into `into`.
    pub fn reduce_arrived(&self, mine: Span, other: &[u8], into: Span, arrives: Side, how: Arithmetic) {
        assert!(mine.len == into.len && mine.len == other.len(), "a reduction's operands are equally long");
        self.combine(self.start(mine), other.as_ptr(), self.start_mut(into), into.len, arrives, how);
    }

    /// Combines two spans.
    pub fn reduce(&self, mine: Span, other: Span, into: Span, other_side: Side, how: Arithmetic) {
        assert!(mine.len == into.len && mine.len == other.len, "a reduction's operands are equally long");
        let (mine, other) = (self.start(mine), self.start(other));
        self.combine(mine, other, self.start_mut(into), into.len, other_side, how);
    }

    fn combine(&self, mine: *const u8, other: *const u8, into: *mut u8, bytes: usize, side: Side, how: Arithmetic) {
        let (lower, higher) = match side {
            Side::Lower => (other, mine),
            Side::Higher => (mine, other),
        };
        // SAFETY: all three were found to be `bytes` long; the schedules' invariant says that `into` is exactly `mine`
        // or apart from both.
        unsafe {
            match how.function {
                Some(function) => function.reduce(how.dtype, lower, higher, into, bytes / how.dtype.size()),
                None => kernels::reduce(how.op, how.dtype, lower, higher, into, bytes / how.dtype.size()),
            }
        }
    }

    /// Copies a span onto another.
    pub fn copy(&self, from: Span, to: Span) {
        assert!(from.len == to.len, "a copy's ends are equally long");
        // SAFETY: both were found to be inside; `copy` allows them to overlap.
        unsafe { std::ptr::copy(self.start(from), self.start_mut(to), to.len) }
    }

    /// Makes other elements of a span's.
    pub fn convert(&self, from: Span, to: Span, how: Conversion) {
        let count = from.len / how.from.size();
        assert!(to.len == count * how.to.size(), "as many elements as there were");
        // SAFETY: both were found to be inside, and hold as many elements; the schedules keep them apart.
        unsafe { kernels::convert(how, self.start(from), self.start_mut(to), count) }
    }

    /// Divides every element of a span.
    pub fn divide(&self, span: Span, by: u32, dtype: DType) {
        // SAFETY: the span was found to be inside, and `by` is a group's size, so not 0.
        unsafe { kernels::divide(dtype, self.start_mut(span), span.len / dtype.size(), by) }
    }
}
