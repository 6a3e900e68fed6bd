//! Sums that are exact: all elements of all ranks are added at once, and the sum is rounded once. So the result depends neither
//! on which rank brings an element nor on the order of the elements. The ranks exchange addends, and no partial sums.
//!
//! An all-reduce may add as many vectors as each rank brings; in other calls each rank brings one. The ranks' vectors
//! are called *rows* here, because a sum has a column for each element.

use super::allgather::{collected, spread};
use super::broadcast::{self, rank_at};
use super::phases::{rounds, Phases};
use super::tree::{children, parent, subtree};
use super::{Action, Buffer, Landing, Rows, Shape, Span};
use crate::types::{CallKind, ReduceOp};

/// The scratch in which [`pairwise`] collects rows: so much is still in the cache when it is summed.
const ROOM_BYTES: usize = 512 << 10;

/// The least part of one row that moves at a time, if there are many rows. Smaller frames would cost more than the cache saves.
const PIECE_BYTES_MIN: usize = 4 << 10;

/// Gather, then sum: a Bruck all-gather of rows in ceil(log2 n) rounds, then everyone adds everything. For few bytes. Rows are counted
/// from this rank going round.
pub(super) fn gather(shape: &Shape<'_>, step: u32) -> Action {
    let (mut phases, own) = (Phases::of(step), shape.addends(shape.rank));
    let own_rows = Span::new(Buffer::Input, 0, own as usize * shape.bytes());
    // With up to three ranks, each sends only what it brings.
    if phases.once(shape.size > 3) {
        return Action::Copy { from: own_rows, to: rows_above(shape, 0, 1) };
    }
    if let Some(round) = phases.within(rounds(shape.size)) {
        let distance = 1 << round;
        let more = distance.min(shape.size - distance);
        let sent = if more == 1 { own_rows } else { rows_above(shape, 0, more) };
        let landing = Landing::Place(rows_above(shape, distance, distance + more));
        return Action::exchange(shape.below(distance), sent, shape.above(distance), landing);
    }
    if phases.once(true) {
        let rows =
            |span: Span, count| Rows { first: Span { len: shape.bytes(), ..span }, stride: shape.bytes(), count };
        let others = rows(rows_above(shape, 1, shape.size), shape.all_addends() - own as usize);
        return Action::SumExact { own: rows(own_rows, own as usize), others, into: shape.whole(Buffer::Output) };
    }
    Action::Done
}

/// The scratch of [`gather`].
pub(super) fn gather_scratch(shape: &Shape<'_>) -> usize {
    shape.bytes() * shape.all_addends()
}

/// The rows of the ranks that stand `first..end` above this one, in the scratch of [`gather`].
fn rows_above(shape: &Shape<'_>, first: u32, end: u32) -> Span {
    let before = |place: u32| {
        let (all, rank) = (shape.all_addends(), shape.above(place));
        let goes_round = rank < shape.rank || place == shape.size;
        (if goes_round { all } else { 0 }) + shape.addends_below(rank) - shape.addends_below(shape.rank)
    };
    let (begin, end) = (before(first), before(end));
    Span::new(Buffer::Scratch, begin * shape.bytes(), (end - begin) * shape.bytes())
}

/// Tree: rows are collected on the way to rank 0, which sums them; the sum goes down the same way. It takes twice as many
/// rounds in a row as [`gather`], but 2(n-1) frames in all. It is for ranks that share a few cores.
pub(super) fn tree(shape: &Shape<'_>, step: u32) -> Action {
    let before = children(shape) + 2;
    match step.checked_sub(before) {
        None => binomial_step(shape, &mut Phases::of(step)),
        Some(step) => broadcast::binomial(shape, step),
    }
}

/// Binomial tree: ceil(log2 n) rounds, in which rows are collected on the way to the root. The root sums them. For few
/// bytes.
pub(super) fn binomial(shape: &Shape<'_>, step: u32) -> Action {
    if step < children(shape) + 2 {
        binomial_step(shape, &mut Phases::of(step))
    } else {
        Action::Done
    }
}

/// One of the steps in which rows go up a binomial tree: two, and one for each child.
fn binomial_step(shape: &Shape<'_>, phases: &mut Phases) -> Action {
    let place = broadcast::place(shape);
    if phases.once(true) {
        return Action::Copy { from: shape.whole(Buffer::Input), to: collected(shape, 0, 1) };
    }
    if let Some(child) = phases.within(children(shape)) {
        let child = 1 << child;
        let landing = Landing::Place(collected(shape, child, child + subtree(place + child, shape.size)));
        return Action::Exchange { send: None, receive: Some((rank_at(shape, place + child), landing)) };
    }
    if place == 0 {
        return sum_with_collected(shape);
    }
    let all = collected(shape, 0, subtree(place, shape.size));
    Action::Exchange { send: Some((rank_at(shape, parent(shape)), all)), receive: None }
}

/// The scratch of [`tree`] and [`binomial`].
pub(super) fn tree_scratch(shape: &Shape<'_>) -> usize {
    shape.bytes() * subtree(broadcast::place(shape), shape.size) as usize
}

/// Sums this rank's row and those of the other ranks, which are in the scratch.
fn sum_with_collected(shape: &Shape<'_>) -> Action {
    let own = Rows { first: shape.whole(Buffer::Input), stride: 0, count: 1 };
    let first = Span::new(Buffer::Scratch, shape.bytes(), shape.bytes());
    let others = Rows { first, stride: shape.bytes(), count: shape.size as usize - 1 };
    Action::SumExact { own, others, into: shape.whole(Buffer::Output) }
}

/// Pairwise: every rank owns a part of the result. It gets what the others have of that part, from the nearest below
/// first, and sums it one piece after another, so that little scratch is needed. An all-reduce then spreads the parts;
/// a reduce gathers them. Until then every link carries no more than in a ring, if each rank brings one row.
pub(super) fn pairwise(shape: &Shape<'_>, step: u32) -> Action {
    let mut phases = Phases::of(step);
    let sums = Sums::of(shape);
    if let Some(at) = phases.within(sums.steps()) {
        return sums.step(at);
    }
    match shape.call.kind {
        CallKind::Allreduce => {
            let blocks = |first, end, part| shape.arc(first, end, part).map(|(first, end)| shape.blocks(first, end));
            match phases.within(2 * rounds(shape.size)) {
                Some(at) => spread(shape, at / 2, at % 2, blocks),
                None => Action::Done,
            }
        }
        CallKind::Reduce => gather_parts(shape, &sums, &mut phases),
        _ => Action::Done,
    }
}

/// Gathers everyone's part of the sum at the root.
fn gather_parts(shape: &Shape<'_>, sums: &Sums<'_, '_>, phases: &mut Phases) -> Action {
    if !shape.is_root() {
        let send = Some((shape.root(), sums.result()));
        return if phases.once(true) { Action::Exchange { send, receive: None } } else { Action::Done };
    }
    match phases.within(shape.size - 1) {
        Some(other) => {
            let from = shape.above(other + 1);
            Action::Exchange { send: None, receive: Some((from, Landing::Place(shape.blocks(from, from + 1)))) }
        }
        None => Action::Done,
    }
}

/// The scratch of [`pairwise`].
pub(super) fn pairwise_scratch(shape: &Shape<'_>) -> usize {
    let sums = Sums::of(shape);
    let result = sums.result();
    sums.collected_bytes() + if result.buffer == Buffer::Scratch { result.len } else { 0 }
}

/// How many steps the sums of a [`pairwise`] call take.
pub(super) fn pairwise_steps(shape: &Shape<'_>) -> u64 {
    let Sums { pieces, most, .. } = Sums::of(shape);
    u64::from(pieces).saturating_mul((u64::from(shape.size) - 1).saturating_mul(u64::from(most)).saturating_add(1))
}

/// The first half of a [`pairwise`] call.
struct Sums<'s, 'a> {
    shape: &'s Shape<'a>,
    /// How many bytes of a row move at a time.
    piece: usize,
    /// How many pieces the longest part has, one at least.
    pieces: u32,
    /// How many rows the rank with most of them has.
    most: u32,
}

impl<'s, 'a> Sums<'s, 'a> {
    fn of(shape: &'s Shape<'a>) -> Sums<'s, 'a> {
        let longest = match shape.call.kind {
            CallKind::Allreduce | CallKind::Reduce => shape.blocks(0, 1).len,
            CallKind::ReduceScatter => shape.bytes(),
            _ => (0..shape.size).map(|rank| shape.part(Buffer::Input, rank).len).max().unwrap_or(0),
        };
        let element = shape.element();
        let room = (ROOM_BYTES / shape.all_addends().max(1)).max(PIECE_BYTES_MIN).min(longest.max(element));
        let piece = room / element * element;
        Sums { shape, piece, pieces: longest.div_ceil(piece).max(1) as u32, most: shape.most_addends() }
    }

    fn steps_of_a_piece(&self) -> u32 {
        (self.shape.size - 1) * self.most + 1
    }

    fn steps(&self) -> u32 {
        self.pieces * self.steps_of_a_piece()
    }

    fn step(&self, at: u32) -> Action {
        let shape = self.shape;
        let (index, within) = (at / self.steps_of_a_piece(), at % self.steps_of_a_piece());
        if within == self.steps_of_a_piece() - 1 {
            let own = self.piece_of(self.part(shape.rank), index);
            return match own.zip(self.piece_of(self.result(), index)) {
                Some((own, into)) => self.sum(own, into),
                None => Action::Exchange { send: None, receive: None },
            };
        }
        let (distance, row) = (within / self.most + 1, within % self.most);
        let (to, from) = (shape.above(distance), shape.below(distance));
        let sent = self.piece_of(self.part(to), index).filter(|_| row < shape.addends(shape.rank));
        let taken = self.piece_of(self.part(shape.rank), index).filter(|_| row < shape.addends(from));
        Action::Exchange {
            send: sent.map(|piece| (to, Span::new(Buffer::Input, piece.offset + self.row_at(row), piece.len))),
            receive: taken.map(|piece| (from, Landing::Place(self.collected(from, row, piece.len)))),
        }
    }

    /// The sum of one piece of this rank's part.
    fn sum(&self, own: Span, into: Span) -> Action {
        let shape = self.shape;
        let count = shape.addends(shape.rank) as usize;
        let own = Rows { first: own, stride: self.row_at(1), count };
        let first = Span::new(Buffer::Scratch, 0, own.first.len);
        let others = Rows { first, stride: self.piece, count: shape.all_addends() - count };
        Action::SumExact { own, others, into }
    }

    /// The place of a rank's part in the first row of the input.
    fn part(&self, rank: u32) -> Span {
        match self.shape.call.kind {
            CallKind::Allreduce | CallKind::Reduce => self.shape.blocks(rank, rank + 1).within(Buffer::Input),
            _ => self.shape.part(Buffer::Input, rank),
        }
    }

    /// Where the sum of this rank's part goes: where the caller wants it, or behind the collected rows.
    fn result(&self) -> Span {
        let part = self.part(self.shape.rank);
        match self.shape.call.kind {
            CallKind::Allreduce => part.within(Buffer::Output),
            CallKind::Reduce if self.shape.is_root() => part.within(Buffer::Output),
            CallKind::Reduce => Span::new(Buffer::Scratch, self.collected_bytes(), part.len),
            _ => Span::new(Buffer::Output, 0, part.len),
        }
    }

    /// The piece of a part with this index, if the part has so many. It has one at least, which may be empty: a frame
    /// says that a rank has come.
    fn piece_of(&self, part: Span, index: u32) -> Option<Span> {
        let offset = index as usize * self.piece;
        let is_there = index == 0 || offset < part.len;
        is_there.then(|| Span::new(part.buffer, part.offset + offset, self.piece.min(part.len - offset)))
    }

    /// How many bytes behind the first row of the input another row lies.
    fn row_at(&self, row: u32) -> usize {
        match self.shape.call.op {
            Some(ReduceOp::SumOfAddends) => row as usize * self.shape.bytes(),
            _ => 0,
        }
    }

    /// Where a row of another rank is collected.
    fn collected(&self, from: u32, row: u32, bytes: usize) -> Span {
        let shape = self.shape;
        let own = if from > shape.rank { shape.addends(shape.rank) as usize } else { 0 };
        let place = shape.addends_below(from) - own + row as usize;
        Span::new(Buffer::Scratch, place * self.piece, bytes)
    }

    fn collected_bytes(&self) -> usize {
        (self.shape.all_addends() - self.shape.addends(self.shape.rank) as usize) * self.piece
    }
}
