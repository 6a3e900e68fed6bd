//! All-gather: every rank's output gets the parts of all ranks, in order of rank.

use super::phases::{rounds, Phases};
use super::shape::around;
use super::{Action, Buffer, Landing, Shape, Span};

/// Bruck: ceil(log2 n) rounds for any n. Parts are collected in scratch, counted from this rank going round. So the
/// bytes that are sent always lie together; in the end the parts are put in order.
pub(super) fn bruck(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    if phases.once(true) {
        return Action::Copy { from: shape.whole(Buffer::Input), to: collected(shape, 0, 1) };
    }
    if let Some(round) = phases.within(rounds(shape.size)) {
        return collect(shape, round);
    }
    let above = shape.size - shape.rank;
    if phases.once(true) {
        return Action::Copy { from: collected(shape, 0, above), to: shape.parts(shape.rank, shape.size) };
    }
    if phases.once(shape.rank > 0) {
        return Action::Copy { from: collected(shape, above, shape.size), to: shape.parts(0, shape.rank) };
    }
    Action::Done
}

/// The scratch of [`bruck`].
pub(super) fn bruck_scratch(shape: &Shape<'_>) -> usize {
    shape.bytes() * shape.size as usize
}

/// One round of [`bruck`]: the parts collected so far, as many as are still wanted, go to the rank 2^round below.
pub(super) fn collect(shape: &Shape<'_>, round: u32) -> Action {
    let distance = 1 << round;
    let more = distance.min(shape.size - distance);
    let landing = Landing::Place(collected(shape, distance, distance + more));
    Action::exchange(shape.below(distance), collected(shape, 0, more), shape.above(distance), landing)
}

/// The parts of the ranks that stand `first..end` above this one, in the scratch of [`bruck`].
pub(super) fn collected(shape: &Shape<'_>, first: u32, end: u32) -> Span {
    shape.parts(first, end).within(Buffer::Scratch)
}

/// Recursive doubling: log2 n rounds where n is a power of two. Neighbours of ever larger size exchange all they
/// have, which lies together in the output from the beginning.
pub(super) fn doubling(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    if phases.once(!shape.in_place) {
        return own_part(shape);
    }
    match phases.within(rounds(shape.size)) {
        Some(round) => {
            let width = 1 << round;
            let peer = shape.rank ^ width;
            let group = |rank: u32| {
                let first = rank & !(width - 1);
                shape.parts(first, first + width)
            };
            Action::exchange(peer, group(shape.rank), peer, Landing::Place(group(peer)))
        }
        None => Action::Done,
    }
}

/// Circulant: Bruck's rounds without his scratch. Parts lie in their place in the output from the beginning; a round
/// has a second frame where its parts reach round the end.
pub(super) fn circulant(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    if phases.once(!shape.in_place) {
        return own_part(shape);
    }
    let parts =
        |first: u32, end: u32, part: u32| shape.arc(first, end, part).map(|(first, end)| shape.parts(first, end));
    match phases.within(2 * rounds(shape.size)) {
        Some(at) => spread(shape, at / 2, at % 2, parts),
        None => Action::Done,
    }
}

/// Half a round of a circulant all-gather: of all that this rank has, as much as is still wanted goes to the rank
/// 2^round below. `span` says where the parts of these ranks lie, counted from this one going round: half 0 lies before
/// the end, half 1 after it.
pub(super) fn spread(shape: &Shape<'_>, round: u32, half: u32, span: impl Fn(u32, u32, u32) -> Option<Span>) -> Action {
    let distance = 1 << round;
    let more = distance.min(shape.size - distance);
    Action::Exchange {
        send: span(0, more, half).map(|span| (shape.below(distance), span)),
        receive: span(distance, distance + more, half).map(|span| (shape.above(distance), Landing::Place(span))),
    }
}

/// Ring: n-1 rounds, each link carries every part but one.
pub(super) fn ring(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    if phases.once(!shape.in_place) {
        return own_part(shape);
    }
    match phases.within(shape.size - 1) {
        Some(round) => {
            let part = |behind: u32| {
                let rank = around(shape.rank, shape.size - behind, shape.size);
                shape.parts(rank, rank + 1)
            };
            Action::exchange(shape.above(1), part(round), shape.below(1), Landing::Place(part(round + 1)))
        }
        None => Action::Done,
    }
}

fn own_part(shape: &Shape<'_>) -> Action {
    Action::Copy { from: shape.whole(Buffer::Input), to: shape.parts(shape.rank, shape.rank + 1) }
}
