//! All-reduce: every rank's elements are combined, and everyone gets the result.

use super::allgather::{collect, collected, spread};
use super::phases::{rounds, Phases};
use super::pipeline::{flow, Pieces};
use super::shape::around;
use super::tree::{children_below_heads, other_head, parent};
use super::{Action, Buffer, Landing, Shape, Side, Span};

/// Recursive doubling: log2 n rounds where n is a power of two; everything goes back and forth in each. Folds in
/// order of rank.
///
/// A round must not overwrite what it sends. So the rounds write to output and scratch in turn, such that the last one
/// writes to the output. If that would begin by overwriting the input, the last round puts what comes into the scratch,
/// and combines it when all has been sent.
pub(super) fn doubling(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let rounds = rounds(shape.size);
    let first_into_output = rounds % 2 == 1 && !shape.in_place;
    let combines_later = rounds % 2 == 1 && shape.in_place;
    let side = |peer: u32| if peer < shape.rank { Side::Lower } else { Side::Higher };
    if let Some(round) = phases.within(rounds) {
        let written = |round: u32| match round.is_multiple_of(2) == first_into_output {
            true => Buffer::Output,
            false => Buffer::Scratch,
        };
        let mine = shape.whole(round.checked_sub(1).map_or(Buffer::Input, written));
        let peer = shape.rank ^ (1 << round);
        let landing = match combines_later && round == rounds - 1 {
            true => Landing::Place(shape.whole(Buffer::Scratch)),
            false => Landing::Reduce { mine, into: shape.whole(written(round)), arrives: side(peer) },
        };
        return Action::exchange(peer, mine, peer, landing);
    }
    if phases.once(combines_later) {
        let (other, into) = (shape.whole(Buffer::Scratch), shape.whole(Buffer::Output));
        return Action::Reduce { mine: into, other, into, other_side: side(shape.rank ^ (1 << (rounds - 1))) };
    }
    if phases.once(rounds == 0 && !shape.in_place) {
        return Action::Copy { from: shape.whole(Buffer::Input), to: shape.whole(Buffer::Output) };
    }
    if phases.once(shape.is_average()) {
        return divide(shape, shape.whole(Buffer::Output));
    }
    Action::Done
}

/// Tree: a binomial tree with two heads. What is below each head is combined on the way up. The heads exchange what
/// they have, and the result goes down the same way. It takes nearly twice as many rounds in a row as doubling, but
/// 2(n-1) frames in all in place of n log2 n, over n-1 links. It is for ranks that share a few cores. Folds in order
/// of rank.
pub(super) fn tree(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let (rank, children, other_head) = (shape.rank, children_below_heads(shape), other_head(shape));
    let (input, output, scratch) =
        (shape.whole(Buffer::Input), shape.whole(Buffer::Output), shape.whole(Buffer::Scratch));
    if let Some(child) = phases.within(children) {
        let mine = if child == 0 { input } else { output };
        let landing = Landing::Reduce { mine, into: output, arrives: Side::Higher };
        return Action::Exchange { send: None, receive: Some((rank + (1 << child), landing)) };
    }
    let mine = if children > 0 { output } else { input };
    match other_head {
        Some(other) => {
            // The outgoing bytes must not be overwritten meanwhile, so what comes in waits in the scratch.
            if phases.once(true) {
                return Action::exchange(other, mine, other, Landing::Place(scratch));
            }
            if phases.once(true) {
                let other_side = if other < rank { Side::Lower } else { Side::Higher };
                return Action::Reduce { mine, other: scratch, into: output, other_side };
            }
            if phases.once(shape.is_average()) {
                return divide(shape, output);
            }
        }
        None if shape.size == 1 => {
            if phases.once(!shape.in_place) {
                return Action::Copy { from: input, to: output };
            }
        }
        None => {
            if phases.once(true) {
                return Action::Exchange { send: Some((parent(shape), mine)), receive: None };
            }
            if phases.once(true) {
                return Action::Exchange { send: None, receive: Some((parent(shape), Landing::Place(output))) };
            }
        }
    }
    match phases.within(children) {
        Some(child) => Action::Exchange { send: Some((rank + (1 << (children - 1 - child)), output)), receive: None },
        None => Action::Done,
    }
}

/// The scratch of [`tree`].
pub(super) fn tree_scratch(shape: &Shape<'_>) -> usize {
    other_head(shape).map_or(0, |_| shape.bytes())
}

/// The scratch of [`doubling`].
pub(super) fn doubling_scratch(shape: &Shape<'_>) -> usize {
    match rounds(shape.size) {
        0 => 0,
        1 if !shape.in_place => 0,
        _ => shape.bytes(),
    }
}

/// Gather, then reduce: a Bruck all-gather in ceil(log2 n) rounds for any n, then everyone combines
/// everything in order of rank. For few bytes.
pub(super) fn gather(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    if phases.once(shape.size > 1 || !shape.in_place) {
        let to = if shape.size > 1 { collected(shape, 0, 1) } else { shape.whole(Buffer::Output) };
        return Action::Copy { from: shape.whole(Buffer::Input), to };
    }
    if let Some(round) = phases.within(rounds(shape.size)) {
        return collect(shape, round);
    }
    if let Some(done) = phases.within(shape.size - 1) {
        let of_rank = |rank: u32| {
            let place = around(rank, shape.size - shape.rank, shape.size);
            collected(shape, place, place + 1)
        };
        let into = shape.whole(Buffer::Output);
        let mine = if done == 0 { of_rank(0) } else { into };
        return Action::Reduce { mine, other: of_rank(done + 1), into, other_side: Side::Higher };
    }
    if phases.once(shape.is_average()) {
        return divide(shape, shape.whole(Buffer::Output));
    }
    Action::Done
}

/// The scratch of [`gather`].
pub(super) fn gather_scratch(shape: &Shape<'_>) -> usize {
    if shape.size > 1 {
        shape.bytes() * shape.size as usize
    } else {
        0
    }
}

/// Ring: the output is cut into n blocks. Each goes round once to be reduced, from the rank above its own to its own,
/// and once more to be spread. That takes 2(n-1) rounds; every link carries each block but one, twice. Each block is
/// folded in an order of its own, so only operations that commute may come here.
pub(super) fn ring(shape: &Shape<'_>, step: u32) -> Action {
    let block = |behind: u32| {
        let block = shape.below(behind);
        shape.blocks(block, block + 1)
    };
    let mut phases = Phases::of(step);
    if phases.once(shape.size == 1 && !shape.in_place) {
        return Action::Copy { from: shape.whole(Buffer::Input), to: shape.whole(Buffer::Output) };
    }
    if let Some(round) = phases.within(shape.size - 1) {
        let send = block(round + 1).within(if round == 0 { Buffer::Input } else { Buffer::Output });
        let into = block(round + 2);
        let landing = Landing::Reduce { mine: into.within(Buffer::Input), into, arrives: Side::Lower };
        return Action::exchange(shape.above(1), send, shape.below(1), landing);
    }
    if phases.once(shape.is_average()) {
        return divide(shape, block(0));
    }
    if let Some(round) = phases.within(shape.size - 1) {
        let landing = Landing::Place(block(round + 1));
        return Action::exchange(shape.above(1), block(round), shape.below(1), landing);
    }
    Action::Done
}

/// Halving and doubling (Rabenseifner): 2 log2 n rounds where n is a power of two. In each round a rank and its
/// partner each give away half of what they still have to reduce, until each rank has finished a part. Then the parts
/// spread back the same way. Every link carries no more than in a ring. Folds in order of rank.
pub(super) fn halving(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let rounds = rounds(shape.size);
    if phases.once(rounds == 0 && !shape.in_place) {
        return Action::Copy { from: shape.whole(Buffer::Input), to: shape.whole(Buffer::Output) };
    }
    if let Some(round) = phases.within(rounds) {
        let peer = shape.rank ^ (1 << round);
        let from = if round == 0 { Buffer::Input } else { Buffer::Output };
        let into = share(shape, shape.rank, round + 1);
        let arrives = if peer < shape.rank { Side::Lower } else { Side::Higher };
        let landing = Landing::Reduce { mine: into.within(from), into, arrives };
        return Action::exchange(peer, share(shape, peer, round + 1).within(from), peer, landing);
    }
    if phases.once(shape.is_average()) {
        return divide(shape, share(shape, shape.rank, rounds));
    }
    if let Some(round) = phases.within(rounds) {
        let bit = rounds - 1 - round;
        let peer = shape.rank ^ (1 << bit);
        let landing = Landing::Place(share(shape, peer, bit + 1));
        return Action::exchange(peer, share(shape, shape.rank, bit + 1), peer, landing);
    }
    Action::Done
}

/// The elements that `rank` still has to reduce after so many rounds of [`halving`]: each bit of it, from the lowest,
/// chooses a half.
fn share(shape: &Shape<'_>, rank: u32, rounds: u32) -> Span {
    let (mut first, mut end) = (0, shape.count());
    for bit in 0..rounds {
        let middle = first + (end - first) / 2;
        if rank >> bit & 1 == 0 {
            end = middle;
        } else {
            first = middle;
        }
    }
    shape.elements(first, end)
}

/// Circulant: 2 ceil(log2 n) rounds for any n, and every link carries no more than in a ring. The output is cut into n
/// blocks, counted from this rank going round. To reduce, each rank hands the upper part of the blocks that it still
/// has to the rank nearest to these, until it is left with its own block. To spread, the same happens backwards, which
/// is Bruck's all-gather. A round has a second frame where its blocks reach round the end. Each block is folded in an
/// order of its own, so only what commutes may come here.
pub(super) fn circulant(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let rounds = rounds(shape.size);
    let blocks =
        |first: u32, end: u32, part: u32| shape.arc(first, end, part).map(|(first, end)| shape.blocks(first, end));
    // Elements that the first round neither sends nor receives are taken along as they are.
    let distance = shape.size.next_power_of_two() / 2;
    if let Some(part) = phases.within(if shape.in_place { 0 } else { 2 }) {
        let kept = if shape.size == 1 { blocks(0, 1, part) } else { blocks(shape.size - distance, distance, part) };
        let to = kept.unwrap_or(Span::EMPTY.within(Buffer::Output));
        return Action::Copy { from: to.within(Buffer::Input), to };
    }
    if let Some(at) = phases.within(2 * rounds) {
        return fold_round(shape, at, [Buffer::Input, Buffer::Output], blocks);
    }
    if phases.once(shape.is_average()) {
        return divide(shape, shape.blocks(shape.rank, shape.rank + 1));
    }
    if let Some(at) = phases.within(2 * rounds) {
        return spread(shape, at / 2, at % 2, blocks);
    }
    Action::Done
}

/// Half a round, `at`, of the first half of [`circulant`]. What this rank still has to reduce lies at `blocks`,
/// counted from this rank going round: in one buffer in the first round, in another from then on. The upper part goes to the
/// rank nearest to it.
pub(super) fn fold_round(
    shape: &Shape<'_>,
    at: u32,
    [first, buffer]: [Buffer; 2],
    blocks: impl Fn(u32, u32, u32) -> Option<Span>,
) -> Action {
    let (round, part) = (at / 2, at % 2);
    let distance = (shape.size.next_power_of_two() / 2) >> round;
    let more = distance.min(shape.size - distance);
    let from = if round == 0 { first } else { buffer };
    let send = blocks(distance, distance + more, part).map(|span| (shape.above(distance), span.within(from)));
    let landing = |into: Span| Landing::Reduce { mine: into.within(from), into, arrives: Side::Lower };
    let receive = blocks(0, more, part).map(|into| (shape.below(distance), landing(into)));
    Action::Exchange { send, receive }
}

/// Chain: pieces flow up the ranks and grow by each rank's elements on their way; the last rank has the result, which flows
/// back down. Every link carries everything once each way. Folds in order of rank.
pub(super) fn chain(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let (input, output) = (shape.whole(Buffer::Input), shape.whole(Buffer::Output));
    let (first, last) = (shape.rank == 0, shape.rank == shape.size - 1);
    if phases.once(shape.size == 1 && !shape.in_place) {
        return Action::Copy { from: input, to: output };
    }
    let (given, result) = (Pieces::of(shape, input), Pieces::of(shape, output));
    if let Some((receive, send)) = flow(&mut phases, given.count(), !first, !last) {
        let into = |index| if last { result.piece(index) } else { given.slot(index) };
        let landing = |index| Landing::Reduce { mine: given.piece(index), into: into(index), arrives: Side::Lower };
        let from = |index| if first { given.piece(index) } else { given.slot(index) };
        return Action::Exchange {
            send: send.map(|index| (shape.rank + 1, from(index))),
            receive: receive.map(|index| (shape.rank - 1, landing(index))),
        };
    }
    if phases.once(last && shape.is_average()) {
        return divide(shape, output);
    }
    match flow(&mut phases, result.count(), !last, !first) {
        Some((receive, send)) => Action::Exchange {
            send: send.map(|index| (shape.rank - 1, result.piece(index))),
            receive: receive.map(|index| (shape.rank + 1, Landing::Place(result.piece(index)))),
        },
        None => Action::Done,
    }
}

/// The scratch of [`chain`].
pub(super) fn chain_scratch(shape: &Shape<'_>) -> usize {
    if (1..shape.size - 1).contains(&shape.rank) {
        Pieces::of(shape, shape.whole(Buffer::Input)).slots_bytes()
    } else {
        0
    }
}

fn divide(shape: &Shape<'_>, span: Span) -> Action {
    Action::Divide { span, by: shape.size }
}
