//! Reduce: every rank's elements are combined, and the root gets the result. Nobody else has an output.

use super::broadcast::{place, rank_at};
use super::phases::Phases;
use super::pipeline::{flow, Pieces};
use super::tree::{children, parent};
use super::{Action, Buffer, Landing, Shape, Side};
use crate::types::Call;

/// Binomial tree: ceil(log2 n) rounds. A rank hears from its children, the nearest first, and then tells its parent. Folds
/// in order of place, counted from the root.
pub(super) fn binomial(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let (place, children) = (place(shape), children(shape));
    let input = shape.whole(Buffer::Input);
    let sum = input.within(if place == 0 { Buffer::Output } else { Buffer::Scratch });
    if let Some(child) = phases.within(children) {
        let mine = if child == 0 { input } else { sum };
        let landing = Landing::Reduce { mine, into: sum, arrives: Side::Higher };
        return Action::Exchange { send: None, receive: Some((rank_at(shape, place + (1 << child)), landing)) };
    }
    if place > 0 {
        let send = (rank_at(shape, parent(shape)), if children > 0 { sum } else { input });
        return if phases.once(true) { Action::Exchange { send: Some(send), receive: None } } else { Action::Done };
    }
    finish(shape, &mut phases)
}

/// The scratch of [`binomial`].
pub(super) fn binomial_scratch(shape: &Shape<'_>) -> usize {
    if place(shape) > 0 && children(shape) > 0 {
        shape.bytes()
    } else {
        0
    }
}

/// Chain: pieces flow from the place farthest from the root to the root, and grow by each rank's elements on their way.
/// Every link carries everything once. Folds in order of place.
pub(super) fn chain(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let place = place(shape);
    let input = Pieces::of(shape, shape.whole(Buffer::Input));
    let receives = place < shape.size - 1;
    if let Some((receive, send)) = flow(&mut phases, input.count(), receives, place > 0) {
        let into = |index| if place == 0 { input.within(Buffer::Output).piece(index) } else { input.slot(index) };
        let landing = |index| Landing::Reduce { mine: input.piece(index), into: into(index), arrives: Side::Higher };
        let from = |index| if receives { input.slot(index) } else { input.piece(index) };
        return Action::Exchange {
            send: send.map(|index| (shape.below(1), from(index))),
            receive: receive.map(|index| (shape.above(1), landing(index))),
        };
    }
    if place > 0 {
        return Action::Done;
    }
    finish(shape, &mut phases)
}

/// The scratch of [`chain`].
pub(super) fn chain_scratch(shape: &Shape<'_>) -> usize {
    if (1..shape.size - 1).contains(&place(shape)) {
        Pieces::of(shape, shape.whole(Buffer::Input)).slots_bytes()
    } else {
        0
    }
}

/// Binomial tree over the ranks themselves, for operations that do not commute: ceil(log2 n) rounds, and one more in
/// which rank 0 sends the result to the root. Folds in order of rank.
pub(super) fn tree(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let from_first = over_ranks(shape);
    let (rank, is_root, children) = (shape.rank, shape.is_root(), children(&from_first));
    let input = shape.whole(Buffer::Input);
    let sum = input.within(if is_root { Buffer::Output } else { Buffer::Scratch });
    if let Some(child) = phases.within(children) {
        let mine = if child == 0 { input } else { sum };
        let landing = Landing::Reduce { mine, into: sum, arrives: Side::Higher };
        return Action::Exchange { send: None, receive: Some((rank + (1 << child), landing)) };
    }
    if phases.once(rank > 0 || !is_root) {
        let to = if rank > 0 { parent(&from_first) } else { shape.root() };
        return Action::Exchange { send: Some((to, if children > 0 { sum } else { input })), receive: None };
    }
    if phases.once(rank > 0 && is_root) {
        return Action::Exchange { send: None, receive: Some((0, Landing::Place(sum))) };
    }
    if is_root {
        finish(shape, &mut phases)
    } else {
        Action::Done
    }
}

/// The scratch of [`tree`].
pub(super) fn tree_scratch(shape: &Shape<'_>) -> usize {
    if !shape.is_root() && children(&over_ranks(shape)) > 0 {
        shape.bytes()
    } else {
        0
    }
}

/// The same call with rank 0 as its root, so that places are ranks.
fn over_ranks<'a>(shape: &Shape<'a>) -> Shape<'a> {
    Shape { call: Call { root: Some(0), ..shape.call }, ..*shape }
}

/// Two chains, for operations that do not commute. Pieces flow to the root from the first rank up and from the last
/// rank down. Each rank on their way combines its own elements into them. The root puts its own between the two. Folds
/// in order of rank.
pub(super) fn ordered(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let (rank, last) = (shape.rank, shape.size - 1);
    let input = Pieces::of(shape, shape.whole(Buffer::Input));
    let (below, above) = (rank > 0, rank < last);
    if !shape.is_root() {
        let is_lower = rank < shape.root();
        let (arrives, next) = if is_lower { (Side::Lower, rank + 1) } else { (Side::Higher, rank - 1) };
        let Some((receive, send)) = flow(&mut phases, input.count(), below && above, true) else {
            return Action::Done;
        };
        let from = |index| if below && above { input.slot(index) } else { input.piece(index) };
        return Action::Exchange {
            send: send.map(|index| (next, from(index))),
            receive: receive.map(|index| {
                let landing = Landing::Reduce { mine: input.piece(index), into: input.slot(index), arrives };
                (if is_lower { rank - 1 } else { rank + 1 }, landing)
            }),
        };
    }
    let output = input.within(Buffer::Output);
    let sides = u32::from(below) + u32::from(above);
    if let Some(at) = phases.within(input.count() * sides) {
        let (index, first) = (at / sides, at % sides == 0);
        let mine = if first { input } else { output }.piece(index);
        let (from, arrives) = if first && below { (rank - 1, Side::Lower) } else { (rank + 1, Side::Higher) };
        let landing = Landing::Reduce { mine, into: output.piece(index), arrives };
        return Action::Exchange { send: None, receive: Some((from, landing)) };
    }
    finish(shape, &mut phases)
}

/// The scratch of [`ordered`].
pub(super) fn ordered_scratch(shape: &Shape<'_>) -> usize {
    if !shape.is_root() && (1..shape.size - 1).contains(&shape.rank) {
        Pieces::of(shape, shape.whole(Buffer::Input)).slots_bytes()
    } else {
        0
    }
}

/// The root's last steps.
fn finish(shape: &Shape<'_>, phases: &mut Phases) -> Action {
    let output = shape.whole(Buffer::Output);
    if phases.once(shape.size == 1 && !shape.in_place) {
        return Action::Copy { from: output.within(Buffer::Input), to: output };
    }
    if phases.once(shape.is_average()) {
        return Action::Divide { span: output, by: shape.size };
    }
    Action::Done
}
