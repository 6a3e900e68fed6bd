//! Barrier: nobody leaves before everybody has come.

use super::phases::{rounds, Phases};
use super::tree::{children, parent};
use super::{Action, Landing, Shape, Span};

const NOTHING: Landing = Landing::Place(Span::EMPTY);

/// Dissemination: in round k every rank tells the one 2^k above, and hears from the one 2^k below. After ceil(log2 n)
/// rounds each has heard, through others, from all.
pub(super) fn dissemination(shape: &Shape<'_>, step: u32) -> Action {
    match Phases::of(step).within(rounds(shape.size)) {
        Some(round) => {
            let distance = 1 << round;
            Action::exchange(shape.above(distance), Span::EMPTY, shape.below(distance), NOTHING)
        }
        None => Action::Done,
    }
}

/// Tree: rank 0 hears, through those above it, that all have come, and tells them so the same way. Twice as many rounds as
/// dissemination in a row, but 2(n-1) frames in all in place of n log2 n, over n-1 links: for ranks that share a few cores.
pub(super) fn tree(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let children = children(shape);
    if let Some(child) = phases.within(children) {
        return Action::Exchange { send: None, receive: Some((shape.rank + (1 << child), NOTHING)) };
    }
    if phases.once(shape.rank != 0) {
        return Action::Exchange { send: Some((parent(shape), Span::EMPTY)), receive: None };
    }
    if phases.once(shape.rank != 0) {
        return Action::Exchange { send: None, receive: Some((parent(shape), NOTHING)) };
    }
    match phases.within(children) {
        Some(child) => {
            let child = shape.rank + (1 << (children - 1 - child));
            Action::Exchange { send: Some((child, Span::EMPTY)), receive: None }
        }
        None => Action::Done,
    }
}
