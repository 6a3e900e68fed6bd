//! Barrier: nobody leaves before everybody has come.

use super::phases::{rounds, Phases};
use super::{Action, Landing, Shape, Span};

/// Dissemination: in round k every rank tells the one 2^k above, and hears from the one 2^k below. After ceil(log2 n)
/// rounds each has heard, through others, from all.
pub(super) fn dissemination(shape: &Shape<'_>, step: u32) -> Action {
    match Phases::of(step).within(rounds(shape.size)) {
        Some(round) => {
            let distance = 1 << round;
            Action::exchange(shape.above(distance), Span::EMPTY, shape.below(distance), Landing::Place(Span::EMPTY))
        }
        None => Action::Done,
    }
}
