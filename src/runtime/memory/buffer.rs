//! The memory of one call: the caller's buffers and the group's scratch, reached by span. The one place in the runtime
//! where raw pointers become slices.
//!
//! A buffer may be a list of the caller's: one stretch of memory for each rank's part. Then spans are counted as if the parts
//! followed each other. A schedule of a call whose parts differ in size reads and writes a part at a time. Only a copy, or a
//! conversion, may read several at once.
//!
//! Invariants: a span is checked against its buffer's length before it is used. That sent and written bytes never
//! overlap within a step is the schedules' invariant (see `schedules`), which their simulation checks.

use super::checksums::Checksums;
use crate::schedules::kernels::UserFunction;
use crate::schedules::{kernels, Buffer, Conversion, Parts, Rows, Side, Span};
use crate::types::{DType, ReduceOp};
use std::cell::RefCell;
use std::marker::PhantomData;

/// How the caller's input and output lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// They have no byte in common.
    Apart,
    /// One lies in the other, where the kind of call says that the rank's own part lies.
    InPlace,
    /// They overlap otherwise: the call works on a copy of the input.
    Overlapping,
}

/// What the caller gave: where a call reads and where it writes. It lives no longer than the call.
#[derive(Clone, Copy)]
pub struct CallBuffers<'a> {
    input: (*const u8, usize),
    output: (*mut u8, usize),
    placement: Placement,
    lifetime: PhantomData<&'a mut [u8]>,
}

// SAFETY: the pointers are the caller's, who promised `new` that nobody else touches what they point to for `'a`; which
// thread works on it does not matter.
unsafe impl Send for CallBuffers<'_> {}

impl<'a> CallBuffers<'a> {
    /// The caller's buffers, with their lengths in bytes.
    ///
    /// # Safety
    /// For `'a`, `input` is readable and `output` writable for their lengths, nobody else writes to either or reads
    /// `output`, and they lie as `placement` says. A pointer may be null where its length is 0, or where a [`PartList`] that
    /// goes with the call says where the parts lie; the same holds for those.
    pub unsafe fn new(input: (*const u8, usize), output: (*mut u8, usize), placement: Placement) -> CallBuffers<'a> {
        CallBuffers { input, output, placement, lifetime: PhantomData }
    }

    /// Buffers that Rust knows to be apart.
    pub fn of(input: &'a [u8], output: &'a mut [u8]) -> CallBuffers<'a> {
        let (input, output) = ((input.as_ptr(), input.len()), (output.as_mut_ptr(), output.len()));
        CallBuffers { input, output, placement: Placement::Apart, lifetime: PhantomData }
    }

    /// One buffer that is both input and output.
    #[cfg(test)]
    pub fn in_one(buffer: &'a mut [u8]) -> CallBuffers<'a> {
        let both = (buffer.as_mut_ptr(), buffer.len());
        CallBuffers { input: (both.0, both.1), output: both, placement: Placement::InPlace, lifetime: PhantomData }
    }

    /// A buffer, part of which is the input.
    #[cfg(test)]
    pub fn with_input_in(buffer: &'a mut [u8], part: std::ops::Range<usize>) -> CallBuffers<'a> {
        let input = (buffer[part.clone()].as_ptr(), part.len());
        CallBuffers { input, ..CallBuffers::in_one(buffer) }
    }

    /// A buffer, part of which is the output.
    #[cfg(test)]
    pub fn with_output_in(buffer: &'a mut [u8], part: std::ops::Range<usize>) -> CallBuffers<'a> {
        let output = (buffer[part.clone()].as_mut_ptr(), part.len());
        CallBuffers { output, ..CallBuffers::in_one(buffer) }
    }

    /// The same buffers, for a request that has ended before they go.
    #[cfg(test)]
    pub fn of_request(self) -> CallBuffers<'static> {
        CallBuffers { input: self.input, output: self.output, placement: self.placement, lifetime: PhantomData }
    }

    /// How many bytes the longer of the two buffers has.
    pub fn longer(&self) -> u64 {
        self.input.1.max(self.output.1) as u64
    }

    /// Whether the input lies within the output, or the output within the input.
    pub fn in_place(&self) -> bool {
        self.placement == Placement::InPlace
    }

    /// How many bytes of the input are to be copied.
    pub fn copied_bytes(&self) -> usize {
        match self.placement {
            Placement::Overlapping => self.input.1,
            Placement::Apart | Placement::InPlace => 0,
        }
    }

    /// Copies so many bytes from the beginning of the input to the beginning of the output.
    pub fn copy_first(&self, bytes: usize) {
        assert!(bytes <= self.input.1.min(self.output.1), "{bytes} bytes of {} to {}", self.input.1, self.output.1);
        if bytes > 0 {
            // SAFETY: both are as long, as was just found; `copy` allows them to overlap.
            unsafe { std::ptr::copy(self.input.0, self.output.0, bytes) }
        }
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

    /// The input of this call and the output of the other: what is to be copied, and where to.
    pub fn into_output_of(self, other: CallBuffers<'a>) -> CallBuffers<'a> {
        CallBuffers { output: other.output, ..self }
    }

    /// The buffers as a call's memory, without any scratch.
    pub fn memory(self) -> Memory<'a> {
        self.with_scratch(&mut [])
    }

    /// The buffers as a call's memory, with the group's scratch.
    pub fn with_scratch<'s>(self, scratch: &'s mut [u8]) -> Memory<'s>
    where
        'a: 's,
    {
        let scratch = (scratch.as_mut_ptr(), scratch.len());
        Memory { input: self.input, output: self.output, scratch, list: None, known: None, lifetime: PhantomData }
    }
}

/// Where the parts of one buffer lie, if each lies by itself.
pub struct PartList {
    /// The buffer.
    pub buffer: Buffer,
    /// The address of each rank's part. (Numbers, so that a group's lists of numbers can be used again for them.)
    pub starts: Vec<u64>,
}

/// A list of parts, and how long each part is.
#[derive(Clone, Copy)]
struct Listed<'a> {
    list: &'a PartList,
    parts: &'a Parts,
    element: usize,
}

impl Listed<'_> {
    /// The part in which this byte lies, and the byte's place in it.
    fn find(&self, offset: usize) -> (usize, usize) {
        let begin = |displ: u64| displ as usize * self.element;
        let rank = self.parts.displs.partition_point(|displ| begin(*displ) <= offset) - 1;
        (rank, offset - begin(self.parts.displs[rank]))
    }

    /// Where this byte lies in memory.
    fn address(&self, offset: usize) -> *const u8 {
        let (rank, within) = self.find(offset);
        std::ptr::with_exposed_provenance::<u8>(self.list.starts[rank] as usize).wrapping_add(within)
    }

    /// How many of so many bytes lie together in memory from this byte on.
    fn together(&self, offset: usize, length: usize) -> usize {
        let (rank, within) = self.find(offset);
        length.min(self.parts.counts[rank] as usize * self.element - within)
    }
}

/// How a call combines elements.
#[derive(Clone, Copy, Debug)]
pub struct Arithmetic {
    /// The elements' type.
    pub dtype: DType,
    /// The operation.
    pub op: ReduceOp,
    /// The function that carries the operation out, if it is a user's.
    pub function: Option<UserFunction>,
}

impl Arithmetic {
    /// Arithmetic by an operation of our own.
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
    list: Option<Listed<'a>>,
    known: Option<&'a RefCell<Checksums>>,
    lifetime: PhantomData<&'a mut [u8]>,
}

impl<'a> Memory<'a> {
    /// The same memory; from now on the checksums of its pieces are remembered.
    pub fn remembering(self, known: &'a RefCell<Checksums>) -> Memory<'a> {
        known.borrow_mut().clear();
        Memory { known: Some(known), ..self }
    }

    /// The same memory, in which one buffer is a list of parts, counted as if they followed each other.
    pub fn listed(self, list: &'a PartList, parts: &'a Parts, element: usize) -> Memory<'a> {
        Memory { list: Some(Listed { list, parts, element }), ..self }
    }

    /// The same memory, with a copy of the input in its place. `copy` is as long as the input.
    pub fn with_copied_input(self, copy: &'a mut [u8]) -> Memory<'a> {
        let length = copy.len();
        assert!(length == self.input.1, "{length} bytes for a copy of {}", self.input.1);
        let aside = Memory { output: (copy.as_mut_ptr(), length), list: self.list_of(Buffer::Input), ..self };
        aside.copy(Span::new(Buffer::Input, 0, length), Span::new(Buffer::Output, 0, length));
        Memory { input: (copy.as_ptr(), length), list: self.list_of(Buffer::Output), ..self }
    }

    /// The same memory for a part of a call. These are the part's input and output, and its scratch begins there.
    pub fn part(self, [input, output]: [Span; 2], scratch_from: usize) -> Memory<'a> {
        assert!(scratch_from <= self.scratch.1, "{scratch_from} bytes of a scratch of {}", self.scratch.1);
        let scratch = (self.scratch.0.wrapping_add(scratch_from), self.scratch.1 - scratch_from);
        let (input, output) = ((self.start(input), input.len), (self.start_mut(output), output.len));
        Memory { input, output, scratch, list: None, ..self }
    }

    /// The list of this buffer, if it is a list.
    fn list_of(&self, buffer: Buffer) -> Option<Listed<'a>> {
        self.list.filter(|listed| listed.list.buffer == buffer)
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
        if span.len == 0 {
            return std::ptr::NonNull::dangling().as_ptr();
        }
        if let Some(listed) = self.list_of(span.buffer) {
            let together = listed.together(span.offset, span.len);
            assert!(together == span.len, "a schedule keeps inside a part: {span:?}, of which {together} lie together");
            return listed.address(span.offset);
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

    /// Combines `mine` with `other` into `into`. `other` lies outside the call's memory: it is a piece that has just
    /// arrived. Its content may be lost.
    pub fn reduce_arrived(&self, mine: Span, other: &mut [u8], into: Span, arrives: Side, how: Arithmetic) {
        assert!(mine.len == into.len && mine.len == other.len(), "a reduction's operands are equally long");
        self.combine(self.start(mine), other.as_mut_ptr(), self.start_mut(into), into.len, arrives, how);
    }

    /// Combines two spans into a third. The content of `other` may be lost.
    pub fn reduce(&self, mine: Span, other: Span, into: Span, other_side: Side, how: Arithmetic) {
        assert!(mine.len == into.len && mine.len == other.len, "a reduction's operands are equally long");
        let (mine, other) = (self.start(mine), self.start_mut(other));
        self.combine(mine, other, self.start_mut(into), into.len, other_side, how);
    }

    fn combine(&self, mine: *const u8, other: *mut u8, into: *mut u8, bytes: usize, side: Side, how: Arithmetic) {
        let (lower, higher) = match side {
            Side::Lower => (other.cast_const(), mine),
            Side::Higher => (mine, other.cast_const()),
        };
        // SAFETY: all three were found to be `bytes` long; the schedules' invariant says that `into` is exactly `mine`
        // or apart from both. So where a function's result goes to the lower operand the higher one is `other`, which may be
        // written.
        unsafe {
            match how.function {
                Some(function) => function.reduce(how.dtype, lower, higher.cast_mut(), into, bytes / how.dtype.size()),
                None => kernels::reduce(how.op, how.dtype, lower, higher, into, bytes / how.dtype.size()),
            }
        }
    }

    /// Adds rows of elements exactly.
    pub fn sum_exact(&self, [own, others]: [Rows; 2], into: Span, dtype: DType) {
        let row = |at: usize| if at < own.count { own.row(at) } else { others.row(at - own.count) };
        let rows = own.count + others.count;
        assert!((0..rows).all(|at| row(at).len == into.len), "rows are as long as their sum");
        // SAFETY: all rows and the sum were found to be inside, and equally long; the schedules' invariant says that `into` is
        // exactly one of them, or apart from all.
        unsafe {
            let out = self.start_mut(into);
            kernels::sum_exact(dtype, rows, &|at| self.start(row(at)), out, into.len / dtype.size());
        }
    }

    /// Calls `each` for each stretch of a span that lies together, with its place in the span and the stretch.
    fn each_stretch(&self, span: Span, mut each: impl FnMut(usize, Span)) {
        let Some(listed) = self.list_of(span.buffer) else { return each(0, span) };
        let mut done = 0;
        while done < span.len {
            let length = listed.together(span.offset + done, span.len - done);
            each(done, Span::new(span.buffer, span.offset + done, length));
            done += length;
        }
    }

    /// Copies a span onto another.
    pub fn copy(&self, from: Span, to: Span) {
        assert!(from.len == to.len, "a copy's ends are equally long");
        self.each_stretch(from, |at, from| {
            let to = Span::new(to.buffer, to.offset + at, from.len);
            // SAFETY: both were found to be inside; `copy` allows them to overlap.
            unsafe { std::ptr::copy(self.start(from), self.start_mut(to), to.len) }
        });
    }

    /// Converts a span's elements into those of another span.
    pub fn convert(&self, from: Span, to: Span, how: Conversion) {
        let (narrow, wide) = (how.from.size(), how.to.size());
        assert!(to.len == from.len / narrow * wide, "as many elements as there were");
        self.each_stretch(from, |at, from| {
            let count = from.len / narrow;
            let to = Span::new(to.buffer, to.offset + at / narrow * wide, count * wide);
            // SAFETY: both were found to be inside, and hold as many elements; the schedules keep them apart.
            unsafe { kernels::convert(how, self.start(from), self.start_mut(to), count) }
        });
    }

    /// Divides every element of a span.
    pub fn divide(&self, span: Span, by: u32, dtype: DType) {
        // SAFETY: the span was found to be inside, and `by` is a group's size, so not 0.
        unsafe { kernels::divide(dtype, self.start_mut(span), span.len / dtype.size(), by) }
    }
}
