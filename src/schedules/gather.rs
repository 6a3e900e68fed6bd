//! Gather: the root's output gets every rank's part, in order of rank. The other ranks have no output.

use super::broadcast::{place, rank_at};
use super::phases::Phases;
use super::tree::{children, parent, subtree};
use super::{Action, Buffer, Landing, Shape, Span};

/// Binomial tree: ceil(log2 n) rounds. Parts are collected in scratch, by place, which is rank counted from the root; in
/// the end the root puts them in order.
pub(super) fn binomial(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let (place, children) = (place(shape), children(shape));
    let collected = |first: u32, end: u32| shape.parts(first, end).within(Buffer::Scratch);
    let own = shape.whole(Buffer::Input);
    if place == 0 && shape.size == 1 {
        return linear(shape, step);
    }
    if phases.once(children > 0) {
        return Action::Copy { from: own, to: collected(0, 1) };
    }
    if let Some(child) = phases.within(children) {
        let child = 1 << child;
        let landing = Landing::Place(collected(child, child + subtree(place + child, shape.size)));
        return Action::Exchange { send: None, receive: Some((rank_at(shape, place + child), landing)) };
    }
    if place > 0 {
        let all = if children > 0 { collected(0, subtree(place, shape.size)) } else { own };
        let send = Some((rank_at(shape, parent(shape)), all));
        return if phases.once(true) { Action::Exchange { send, receive: None } } else { Action::Done };
    }
    let above = shape.size - shape.rank;
    if phases.once(true) {
        return Action::Copy { from: collected(0, above), to: shape.parts(shape.rank, shape.size) };
    }
    if phases.once(shape.rank > 0) {
        return Action::Copy { from: collected(above, shape.size), to: shape.parts(0, shape.rank) };
    }
    Action::Done
}

/// The scratch of [`binomial`].
pub(super) fn binomial_scratch(shape: &Shape<'_>) -> usize {
    if children(shape) > 0 {
        shape.bytes() * subtree(place(shape), shape.size) as usize
    } else {
        0
    }
}

/// Everyone sends to the root, whose links carry each part once. Parts may differ in size.
pub(super) fn linear(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let own = Span::new(Buffer::Input, 0, shape.own_bytes());
    if shape.rank != shape.root() {
        let send = Some((shape.root(), own));
        return if phases.once(true) { Action::Exchange { send, receive: None } } else { Action::Done };
    }
    if phases.once(!shape.in_place) {
        return Action::Copy { from: own, to: shape.part(Buffer::Output, shape.rank) };
    }
    match phases.within(shape.size - 1) {
        Some(other) => {
            let from = shape.above(other + 1);
            let landing = Landing::Place(shape.part(Buffer::Output, from));
            Action::Exchange { send: None, receive: Some((from, landing)) }
        }
        None => Action::Done,
    }
}
