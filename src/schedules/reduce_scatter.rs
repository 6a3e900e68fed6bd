//! Reduce-scatter: the ranks' inputs are combined, and each rank gets its part of the result. Parts may differ in size;
//! they follow each other in the input.

use super::allreduce::fold_round;
use super::phases::{rounds, Phases};
use super::{Action, Buffer, Landing, Shape, Side, Span};

/// Circulant: ceil(log2 n) rounds for any n, on a copy of the input in scratch: the first half of the all-reduce of
/// that name. Only operations that commute may come here.
pub(super) fn circulant(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let parts = |first: u32, end: u32, part: u32| {
        shape.arc(first, end, part).map(|(first, end)| span(shape, first, end).within(Buffer::Scratch))
    };
    if phases.once(true) {
        let all = span(shape, 0, shape.size);
        return Action::Copy { from: all, to: all.within(Buffer::Scratch) };
    }
    if let Some(at) = phases.within(2 * rounds(shape.size)) {
        return fold_round(shape, at, [Buffer::Scratch; 2], parts);
    }
    if phases.once(true) {
        return Action::Copy { from: span(shape, shape.rank, shape.rank + 1).within(Buffer::Scratch), to: own(shape) };
    }
    finish(shape, &mut phases)
}

/// The scratch of [`circulant`].
pub(super) fn circulant_scratch(shape: &Shape<'_>) -> usize {
    span(shape, 0, shape.size).len
}

/// Pairwise: n-1 rounds in which every rank gets another's contribution to its part, the nearest below first, and folds
/// it at once. Every link carries what it must. Only operations that commute may come here.
pub(super) fn pairwise(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    if phases.once(!shape.in_place) {
        return Action::Copy { from: shape.part(Buffer::Input, shape.rank), to: own(shape) };
    }
    if let Some(round) = phases.within(shape.size - 1) {
        let (to, from) = (shape.above(round + 1), shape.below(round + 1));
        let arrives = if from < shape.rank { Side::Lower } else { Side::Higher };
        let landing = Landing::Reduce { mine: own(shape), into: own(shape), arrives };
        return Action::exchange(to, shape.part(Buffer::Input, to), from, landing);
    }
    finish(shape, &mut phases)
}

/// Pairwise, but the contributions are kept, and folded in order of rank when all are there.
pub(super) fn ordered(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let own = own(shape);
    let of_rank = |rank: u32| Span::new(Buffer::Scratch, rank as usize * own.len, own.len);
    if phases.once(shape.size > 1 || !shape.in_place) {
        let to = if shape.size > 1 { of_rank(shape.rank) } else { own };
        return Action::Copy { from: shape.part(Buffer::Input, shape.rank), to };
    }
    if let Some(round) = phases.within(shape.size - 1) {
        let (to, from) = (shape.above(round + 1), shape.below(round + 1));
        return Action::exchange(to, shape.part(Buffer::Input, to), from, Landing::Place(of_rank(from)));
    }
    if let Some(done) = phases.within(shape.size - 1) {
        let mine = if done == 0 { of_rank(0) } else { own };
        return Action::Reduce { mine, other: of_rank(done + 1), into: own, other_side: Side::Higher };
    }
    finish(shape, &mut phases)
}

/// The scratch of [`ordered`].
pub(super) fn ordered_scratch(shape: &Shape<'_>) -> usize {
    if shape.size > 1 {
        own(shape).len * shape.size as usize
    } else {
        0
    }
}

fn finish(shape: &Shape<'_>, phases: &mut Phases) -> Action {
    if phases.once(shape.is_average()) {
        return Action::Divide { span: own(shape), by: shape.size };
    }
    Action::Done
}

/// The parts of the ranks `first..end` in the input.
fn span(shape: &Shape<'_>, first: u32, end: u32) -> Span {
    let start = shape.part(Buffer::Input, first).offset;
    let last = shape.part(Buffer::Input, end - 1);
    Span::new(Buffer::Input, start, last.offset + last.len - start)
}

/// This rank's part of the result.
fn own(shape: &Shape<'_>) -> Span {
    Span::new(Buffer::Output, 0, shape.part(Buffer::Input, shape.rank).len)
}
