//! Broadcast: every rank's output gets the content of the root's output. Ranks are counted from the root, going round.

use super::phases::{rounds, Phases};
use super::pipeline::{flow, Pieces};
use super::shape::around;
use super::{Action, Buffer, Landing, Shape};

/// Binomial tree: ceil(log2 n) rounds. A rank hears from the one that has its lowest set bit cleared, and then
/// tells the ranks below that bit, the one with most descendants first.
pub(super) fn binomial(shape: &Shape<'_>, step: u32) -> Action {
    let place = place(shape);
    let all = shape.whole(Buffer::Output);
    let mut phases = Phases::of(step);
    if phases.once(place != 0) {
        let parent = rank_at(shape, place & (place - 1));
        return Action::Exchange { send: None, receive: Some((parent, Landing::Place(all))) };
    }
    // Children stand at place + 2^k for each k below the lowest set bit. The first few may lie beyond the last rank.
    let below = if place == 0 { rounds(shape.size) } else { place.trailing_zeros() };
    let beyond = (0..below).rev().take_while(|bit| shape.size - place <= 1 << bit).count() as u32;
    match phases.within(below - beyond) {
        Some(child) => {
            let child = rank_at(shape, place + (1 << (below - beyond - 1 - child)));
            Action::Exchange { send: Some((child, all)), receive: None }
        }
        None => Action::Done,
    }
}

/// Chain: each rank passes pieces on to the next while it receives the one after. Every link carries
/// everything once, and all links are busy at once; the end lags behind by a piece per rank.
pub(super) fn chain(shape: &Shape<'_>, step: u32) -> Action {
    let place = place(shape);
    let all = Pieces::of(shape, shape.whole(Buffer::Output));
    match flow(&mut Phases::of(step), all.count(), place > 0, place < shape.size - 1) {
        Some((receive, send)) => Action::Exchange {
            send: send.map(|index| (shape.above(1), all.piece(index))),
            receive: receive.map(|index| (shape.below(1), Landing::Place(all.piece(index)))),
        },
        None => Action::Done,
    }
}

/// How far this rank stands from the root.
pub(super) fn place(shape: &Shape<'_>) -> u32 {
    around(shape.rank, shape.size - shape.root(), shape.size)
}

/// The rank at `place`.
pub(super) fn rank_at(shape: &Shape<'_>, place: u32) -> u32 {
    around(shape.root(), place, shape.size)
}
