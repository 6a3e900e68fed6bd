//! Scatter: each rank gets its part of the root's input. Nobody else has an input.

use super::broadcast::{place, rank_at};
use super::phases::Phases;
use super::tree::{children, parent, subtree};
use super::{Action, Buffer, Landing, Shape, Span};

/// Binomial tree: ceil(log2 n) rounds. A rank gets the parts of its whole subtree, by place, which is rank counted from
/// the root, and hands its children theirs, the one with most descendants first.
pub(super) fn binomial(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let (place, children) = (place(shape), children(shape));
    let held = |first: u32, end: u32| shape.parts(first, end).within(Buffer::Scratch);
    let output = shape.whole(Buffer::Output);
    if shape.size == 1 {
        return linear(shape, step);
    }
    if place == 0 {
        let above = shape.size - shape.rank;
        let input = |first, end| shape.parts(first, end).within(Buffer::Input);
        if phases.once(true) {
            return Action::Copy { from: input(shape.rank, shape.size), to: held(0, above) };
        }
        if phases.once(shape.rank > 0) {
            return Action::Copy { from: input(0, shape.rank), to: held(above, shape.size) };
        }
    } else if phases.once(true) {
        let all = if children > 0 { held(0, subtree(place, shape.size)) } else { output };
        return Action::Exchange { send: None, receive: Some((rank_at(shape, parent(shape)), Landing::Place(all))) };
    }
    if let Some(sent) = phases.within(children) {
        let child = 1 << (children - 1 - sent);
        let span = held(child, child + subtree(place + child, shape.size));
        return Action::Exchange { send: Some((rank_at(shape, place + child), span)), receive: None };
    }
    if phases.once(children > 0 && !shape.in_place) {
        return Action::Copy { from: held(0, 1), to: output };
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

/// The root sends to everyone; its links carry each part once. Parts may differ in size.
pub(super) fn linear(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let own = Span::new(Buffer::Output, 0, shape.own_bytes());
    if shape.rank != shape.root() {
        let receive = Some((shape.root(), Landing::Place(own)));
        return if phases.once(true) { Action::Exchange { send: None, receive } } else { Action::Done };
    }
    if let Some(other) = phases.within(shape.size - 1) {
        let to = shape.above(other + 1);
        return Action::Exchange { send: Some((to, shape.part(Buffer::Input, to))), receive: None };
    }
    if phases.once(!shape.in_place) {
        return Action::Copy { from: shape.part(Buffer::Input, shape.rank), to: own };
    }
    Action::Done
}
