//! Barrier: nobody leaves before everybody has come.

use super::phases::{rounds, Phases};
use super::tree::{children_below_heads, other_head, parent};
use super::{Action, Landing, Shape, Span};

const NOTHING: Landing = Landing::Place(Span::EMPTY);

/// Dissemination: in round k every rank tells the rank 2^k above, and hears from the one 2^k below. After ceil(log2 n)
/// rounds each has heard from all, through others.
pub(super) fn dissemination(shape: &Shape<'_>, step: u32) -> Action {
    match Phases::of(step).within(rounds(shape.size)) {
        Some(round) => {
            let distance = 1 << round;
            Action::exchange(shape.above(distance), Span::EMPTY, shape.below(distance), NOTHING)
        }
        None => Action::Done,
    }
}

/// Tree: each of a binomial tree's two heads hears, through the ranks above it, that all of these have come. The heads
/// tell each other, and the word goes back the same way. It takes nearly twice as many rounds in a row as
/// dissemination, but 2(n-1) frames in all in place of n log2 n, over n-1 links. It is for ranks that share a few
/// cores.
pub(super) fn tree(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let (rank, children) = (shape.rank, children_below_heads(shape));
    if let Some(child) = phases.within(children) {
        return Action::Exchange { send: None, receive: Some((rank + (1 << child), NOTHING)) };
    }
    if let Some(other) = other_head(shape) {
        if phases.once(true) {
            return Action::exchange(other, Span::EMPTY, other, NOTHING);
        }
    } else if shape.size > 1 {
        if phases.once(true) {
            return Action::Exchange { send: Some((parent(shape), Span::EMPTY)), receive: None };
        }
        if phases.once(true) {
            return Action::Exchange { send: None, receive: Some((parent(shape), NOTHING)) };
        }
    }
    match phases.within(children) {
        Some(child) => {
            Action::Exchange { send: Some((rank + (1 << (children - 1 - child)), Span::EMPTY)), receive: None }
        }
        None => Action::Done,
    }
}
