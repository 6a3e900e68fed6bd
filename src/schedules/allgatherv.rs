//! All-gather of parts that differ in size: every rank knows all counts, and where it wants each part.

use super::phases::{rounds, Phases};
use super::shape::around;
use super::{Action, Buffer, Landing, Shape, Span};

/// Bruck: ceil(log2 n) rounds for any n, as for equal parts. Parts are collected without gaps in scratch, counted from
/// this rank going round; in the end each is put where it belongs.
pub(super) fn bruck(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    if phases.once(true) {
        return Action::Copy { from: Span::new(Buffer::Input, 0, shape.own_bytes()), to: collected(shape, 0, 1) };
    }
    if let Some(round) = phases.within(rounds(shape.size)) {
        let distance = 1 << round;
        let more = distance.min(shape.size - distance);
        let landing = Landing::Place(collected(shape, distance, distance + more));
        return Action::exchange(shape.below(distance), collected(shape, 0, more), shape.above(distance), landing);
    }
    match phases.within(shape.size) {
        Some(at) => {
            Action::Copy { from: collected(shape, at, at + 1), to: shape.part(Buffer::Output, shape.above(at)) }
        }
        None => Action::Done,
    }
}

/// The scratch of [`bruck`].
pub(super) fn bruck_scratch(shape: &Shape<'_>) -> usize {
    collected(shape, 0, shape.size).len
}

/// The parts of the ranks that stand `first..end` above this one, in the scratch of [`bruck`].
fn collected(shape: &Shape<'_>, first: u32, end: u32) -> Span {
    let bytes = |places: std::ops::Range<u32>| {
        places.map(|place| shape.part(Buffer::Output, shape.above(place)).len).sum::<usize>()
    };
    Span::new(Buffer::Scratch, bytes(0..first), bytes(first..end))
}

/// Ring: n-1 rounds, each link carries every part but one.
pub(super) fn ring(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let part = |behind: u32| shape.part(Buffer::Output, around(shape.rank, shape.size - behind, shape.size));
    if phases.once(!shape.in_place) {
        return Action::Copy { from: Span::new(Buffer::Input, 0, shape.own_bytes()), to: part(0) };
    }
    match phases.within(shape.size - 1) {
        Some(round) => Action::exchange(shape.above(1), part(round), shape.below(1), Landing::Place(part(round + 1))),
        None => Action::Done,
    }
}
