//! All-to-all: rank r gets part r of every rank's input. Its output has these parts in order of the ranks that gave them. Parts
//! may differ in size, except in [`bruck`].

use super::phases::{rounds, Phases};
use super::{Action, Buffer, Landing, Shape, Span};

/// Pairwise: n rounds, in each of which a rank exchanges with one other, or has its own part to copy. In round t two
/// ranks meet if their numbers add up to t, modulo n. So a part that is given away makes room for the one that comes. It
/// goes through scratch, because within a round no byte that is sent is also written.
pub(super) fn pairwise(shape: &Shape<'_>, step: u32) -> Action {
    let Some(at) = Phases::of(step).within(2 * shape.size) else { return Action::Done };
    let (peer, second) = (super::shape::around(at / 2, shape.size - shape.rank, shape.size), at % 2 == 1);
    let (give, take) = (shape.part(Buffer::Input, peer), shape.part(Buffer::Output, peer));
    let aside = Span::new(Buffer::Scratch, 0, take.len);
    match (peer == shape.rank, second) {
        (true, false) if !shape.in_place => Action::Copy { from: give, to: take },
        (false, false) if !shape.in_place => Action::exchange(peer, give, peer, Landing::Place(take)),
        (false, false) => Action::exchange(peer, give, peer, Landing::Place(aside)),
        (false, true) if shape.in_place => Action::Copy { from: aside, to: take },
        _ => Action::Exchange { send: None, receive: None },
    }
}

/// The scratch of [`pairwise`].
pub(super) fn pairwise_scratch(shape: &Shape<'_>) -> usize {
    if shape.in_place {
        (0..shape.size).map(|rank| shape.part(Buffer::Output, rank).len).max().unwrap_or(0)
    } else {
        0
    }
}

/// Bruck: ceil(log2 n) rounds for any n. Parts lie in scratch by how far above this rank they are to go. In round k all
/// whose distance has bit k set move 2^k ranks up, packed into one frame; in the end each is as far as it should be.
pub(super) fn bruck(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let held = |first: u32, end: u32| shape.parts(first, end).within(Buffer::Scratch);
    let above = shape.size - shape.rank;
    let input = |first, end| shape.parts(first, end).within(Buffer::Input);
    if phases.once(true) {
        return Action::Copy { from: input(shape.rank, shape.size), to: held(0, above) };
    }
    if phases.once(shape.rank > 0) {
        return Action::Copy { from: input(0, shape.rank), to: held(above, shape.size) };
    }
    for round in 0..rounds(shape.size) {
        let moving = moving(round, shape.size);
        let (packed, arrived) = (shape.size, shape.size + moving);
        if let Some(at) = phases.within(moving) {
            let place = nth_moving(round, at);
            return Action::Copy { from: held(place, place + 1), to: held(packed + at, packed + at + 1) };
        }
        if phases.once(true) {
            let landing = Landing::Place(held(arrived, arrived + moving));
            let distance = 1 << round;
            return Action::exchange(
                shape.above(distance),
                held(packed, packed + moving),
                shape.below(distance),
                landing,
            );
        }
        if let Some(at) = phases.within(moving) {
            let place = nth_moving(round, at);
            return Action::Copy { from: held(arrived + at, arrived + at + 1), to: held(place, place + 1) };
        }
    }
    match phases.within(shape.size) {
        // The part that had to go so far up came from as far below.
        Some(place) => {
            let from = shape.below(place);
            Action::Copy { from: held(place, place + 1), to: shape.parts(from, from + 1) }
        }
        None => Action::Done,
    }
}

/// The scratch of [`bruck`].
pub(super) fn bruck_scratch(shape: &Shape<'_>) -> usize {
    let most = (0..rounds(shape.size)).map(|round| moving(round, shape.size)).max().unwrap_or(0);
    shape.bytes() * (shape.size + 2 * most) as usize
}

/// How many distances below `size` have bit `round` set.
fn moving(round: u32, size: u32) -> u32 {
    let (period, half) = (2 << round, 1 << round);
    size / period * half + (size % period).saturating_sub(half)
}

/// The `at`-th distance, counted from 0, that has bit `round` set.
fn nth_moving(round: u32, at: u32) -> u32 {
    let half = 1 << round;
    at / half * 2 * half + half + at % half
}
