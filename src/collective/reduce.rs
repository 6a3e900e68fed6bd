//! Reduce: every rank's elements are combined, and the root gets the result. Nobody else has an output.

use super::broadcast::{place, rank_at};
use super::phases::Phases;
use super::pipeline::{flow, piece, pieces, slot, slots_bytes};
use super::tree::{children, parent};
use super::{Action, Buffer, Landing, Shape, Side};

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
    let input = shape.whole(Buffer::Input);
    let receives = place < shape.size - 1;
    if let Some((receive, send)) = flow(&mut phases, pieces(input.len), receives, place > 0) {
        let into = |index| if place == 0 { piece(input, index).within(Buffer::Output) } else { slot(input, index) };
        let landing = |index| Landing::Reduce { mine: piece(input, index), into: into(index), arrives: Side::Higher };
        let from = |index| if receives { slot(input, index) } else { piece(input, index) };
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
        slots_bytes(shape.bytes())
    } else {
        0
    }
}

/// Chain in order of rank, for what does not commute: from rank 0 to the last, which sends the result to the root.
pub(super) fn ordered(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let last = shape.size - 1;
    let input = shape.whole(Buffer::Input);
    let (is_last, is_root) = (shape.rank == last, shape.rank == shape.root());
    let result = input.within(if is_root { Buffer::Output } else { Buffer::Scratch });
    if let Some((receive, send)) = flow(&mut phases, pieces(input.len), shape.rank > 0, !is_last) {
        let into = |index| if is_last { piece(result, index) } else { slot(input, index) };
        let landing = |index| Landing::Reduce { mine: piece(input, index), into: into(index), arrives: Side::Lower };
        let from = |index| if shape.rank > 0 { slot(input, index) } else { piece(input, index) };
        return Action::Exchange {
            send: send.map(|index| (shape.rank + 1, from(index))),
            receive: receive.map(|index| (shape.rank - 1, landing(index))),
        };
    }
    if phases.once(is_last != is_root) {
        return Action::Exchange {
            send: is_last.then_some((shape.root(), result)),
            receive: is_root.then_some((last, Landing::Place(result))),
        };
    }
    if is_root {
        finish(shape, &mut phases)
    } else {
        Action::Done
    }
}

/// The scratch of [`ordered`].
pub(super) fn ordered_scratch(shape: &Shape<'_>) -> usize {
    match shape.rank {
        rank if rank == shape.size - 1 => shape.bytes() * usize::from(rank != shape.root()),
        0 => 0,
        _ => slots_bytes(shape.bytes()),
    }
}

/// What the root does in the end.
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
