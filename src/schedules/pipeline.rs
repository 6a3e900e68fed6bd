//! Pieces that flow along a chain of ranks: each is passed on while the next one comes in.

use super::phases::Phases;
use super::{Buffer, Span};

/// The size of a piece: large enough that its fixed costs vanish, small enough that it is still in the cache when it is
/// passed on. A multiple of every element's size.
pub(super) const PIECE_BYTES: usize = 128 * 1024;

/// How many pieces so many bytes are.
pub(super) fn pieces(bytes: usize) -> u32 {
    bytes.div_ceil(PIECE_BYTES) as u32
}

/// A piece of a span.
pub(super) fn piece(of: Span, index: u32) -> Span {
    let offset = index as usize * PIECE_BYTES;
    Span::new(of.buffer, of.offset + offset, PIECE_BYTES.min(of.len - offset))
}

/// Where a piece lies in a scratch that holds two: the one that is passed on, and the one that comes in.
pub(super) fn slot(of: Span, index: u32) -> Span {
    let len = piece(of, index).len;
    Span::new(Buffer::Scratch, (index % 2) as usize * PIECE_BYTES, len)
}

/// The scratch for [`slot`].
pub(super) fn slots_bytes(bytes: usize) -> usize {
    bytes.min(2 * PIECE_BYTES)
}

/// A phase in which `pieces` pieces flow through this rank. Which piece it receives and which it sends in this step,
/// if the step lies there. A rank that does both is a piece behind with its sending.
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
