//! What one step of a schedule asks of its driver: plain values, in bytes. The engine that carries the steps out brings
//! the memory.

use super::conversion::Conversion;

/// One of the three stretches of memory that a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// What the caller gives. In an in-place call it lies within `Output`.
    Input,
    /// Where the caller wants the result. A broadcast has this only.
    Output,
    /// The driver's own memory, as large as the algorithm's `scratch_bytes`; its contents at the beginning are
    /// arbitrary.
    Scratch,
}

/// Bytes of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The buffer in which the bytes lie.
    pub buffer: Buffer,
    /// Where it begins, in bytes.
    pub offset: usize,
    /// How long it is, in bytes.
    pub len: usize,
}

impl Span {
    /// No bytes: a barrier sends this.
    pub const EMPTY: Span = Span::new(Buffer::Scratch, 0, 0);

    /// `len` bytes of `buffer` from `offset`.
    pub const fn new(buffer: Buffer, offset: usize, len: usize) -> Span {
        Span { buffer, offset, len }
    }

    /// The bytes at the same place in another buffer.
    pub const fn within(self, buffer: Buffer) -> Span {
        Span { buffer, ..self }
    }
}

/// Rows of elements that are to be added: equally long spans of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// The first row.
    pub first: Span,
    /// How many bytes behind one row the next begins.
    pub stride: usize,
    /// How many rows there are.
    pub count: usize,
}

impl Rows {
    /// The row with this index.
    pub const fn row(self, index: usize) -> Span {
        Span::new(self.first.buffer, self.first.offset + index * self.stride, self.first.len)
    }
}

/// The side on which an operand stands: the kernels always compute op(lower, higher).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The first operand.
    Lower,
    /// The second operand.
    Higher,
}

/// What becomes of bytes that arrive. All spans named here are as long as the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Landing {
    /// They are laid down here.
    Place(Span),
    /// They are combined with `mine`, piece by piece as they arrive, and the result is laid down at `into`.
    Reduce {
        /// This rank's operand.
        mine: Span,
        /// Where the result goes; either exactly `mine` or apart from it.
        into: Span,
        /// Where the arriving operand stands.
        arrives: Side,
    },
}

impl Landing {
    /// The bytes that are written.
    pub fn into(&self) -> Span {
        match *self {
            Landing::Place(into) | Landing::Reduce { into, .. } => into,
        }
    }
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send one frame, receive one frame, or both at once; the step is done when both are done. The peers are ranks of
    /// the group. A span of length zero is still a frame. If there is neither, there is nothing to do.
    Exchange {
        /// The receiving rank, and what it gets.
        send: Option<(u32, Span)>,
        /// The sending rank, and what becomes of it.
        receive: Option<(u32, Landing)>,
    },
    /// Copy bytes to another place that is as long and does not overlap.
    Copy {
        /// From here.
        from: Span,
        /// To there.
        to: Span,
    },
    /// Combine `mine` with `other`.
    Reduce {
        /// One operand.
        mine: Span,
        /// The other operand, in `Scratch`: it may be lost.
        other: Span,
        /// Where the result goes; either exactly `mine` or apart from both.
        into: Span,
        /// Where `other` stands.
        other_side: Side,
    },
    /// Add the elements at each place of all these rows exactly, and round the sums once.
    SumExact {
        /// Rows in the caller's memory.
        own: Rows,
        /// Other rows.
        others: Rows,
        /// Where the sums go: exactly one of the rows, or apart from all of them; as long as each.
        into: Span,
    },
    /// Divide every element: the last step of an average.
    Divide {
        /// Which elements.
        span: Span,
        /// The divisor.
        by: u32,
    },
    /// Convert a span's elements: as many, of another type. The two spans do not overlap.
    Convert {
        /// What is read.
        from: Span,
        /// Where the converted elements go.
        to: Span,
        /// The conversion.
        how: Conversion,
    },
    /// The schedule has ended.
    Done,
}

impl Action {
    /// An exchange in both directions.
    pub(super) fn exchange(to: u32, span: Span, from: u32, landing: Landing) -> Action {
        Action::Exchange { send: Some((to, span)), receive: Some((from, landing)) }
    }
}
