//! Pieces that flow along a chain of ranks: each is passed on while the next one comes in.

use super::phases::Phases;
use super::{Buffer, Shape, Span};
use crate::types::DType;

/// The size of a piece: so large that its fixed costs do not matter, and so small that it is still in the cache when it is
/// passed on. If the elements' size does not divide it, a piece holds as many elements as fit.
const PIECE_BYTES: usize = 128 * 1024;

const _: () = assert!(DType::ELEMENT_BYTES_MAX as usize <= PIECE_BYTES, "a piece holds one element at least");

/// A stretch of elements, cut into pieces. No element is split.
#[derive(Clone, Copy)]
pub(super) struct Pieces {
    of: Span,
    /// How long each piece but the last is.
    each: usize,
}

impl Pieces {
    /// The pieces of a span of this call's elements.
    pub(super) fn of(shape: &Shape<'_>, of: Span) -> Pieces {
        let element = shape.element().max(1);
        Pieces { of, each: PIECE_BYTES / element * element }
    }

    /// How many pieces there are.
    pub(super) fn count(self) -> u32 {
        self.of.len.div_ceil(self.each) as u32
    }

    /// The piece with this index.
    pub(super) fn piece(self, index: u32) -> Span {
        let offset = index as usize * self.each;
        Span::new(self.of.buffer, self.of.offset + offset, self.each.min(self.of.len - offset))
    }

    /// Where a piece lies in a scratch that holds two: the one that is passed on, and the one that comes in.
    pub(super) fn slot(self, index: u32) -> Span {
        Span::new(Buffer::Scratch, (index % 2) as usize * self.each, self.piece(index).len)
    }

    /// The scratch for [`Pieces::slot`].
    pub(super) fn slots_bytes(self) -> usize {
        self.of.len.min(2 * self.each)
    }

    /// The same pieces of another buffer.
    pub(super) fn within(self, buffer: Buffer) -> Pieces {
        Pieces { of: self.of.within(buffer), ..self }
    }
}

/// A phase in which `pieces` pieces flow through this rank. Returns which piece it receives and which it sends in this
/// step, if the step lies there. A rank that does both sends one piece behind.
pub(super) fn flow(
    phases: &mut Phases,
    pieces: u32,
    receives: bool,
    sends: bool,
) -> Option<(Option<u32>, Option<u32>)> {
    let both = receives && sends && pieces > 0;
    let steps = if receives || sends { pieces + u32::from(both) } else { 0 };
    let at = phases.within(steps)?;
    let receive = (receives && at < pieces).then_some(at);
    let send = if both { at.checked_sub(1) } else { sends.then_some(at) };
    Some((receive, send))
}
