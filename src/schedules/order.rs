//! The order in which an algorithm folds the ranks' elements, apart from how it moves them.
//!
//! The bits of a sum depend on this order. Ranks that share memory fold the same call in another way than its schedule.
//! They take the order from here, so every rank gets the bits that the schedule would have given. `order_test.rs` holds
//! each order to its schedule.
//!
//! Each rank's elements are an accumulator at first. One [`Fold`] after another combines two accumulators into the
//! first, until one holds the result. If an algorithm folds some elements in another order than others, the elements
//! are cut into *blocks*.

use super::phases::rounds;
use super::shape::{around, Shape};
use super::Side;
use crate::types::CallKind;

/// All orders of folding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Folds {
    /// Nothing is folded.
    Nothing,
    /// From rank 0 up, one after another.
    Upward,
    /// Neighbours, then neighbouring pairs, and so on: a binomial tree over the ranks.
    Halves,
    /// A binomial tree, as in `Halves`, over places counted from the root.
    HalvesFromRoot,
    /// From the place farthest from the root to the root.
    TowardsRoot,
    /// From both ends of the ranks to the root.
    Inwards,
    /// A block goes round once, from the rank above its own to its own.
    Ring,
    /// A block is halved round by round, around its own rank.
    Circulant,
    /// A block's own rank folds the others, the nearest below first.
    Pairwise,
}

/// The accumulator of `into` takes in that of `other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fold {
    /// The rank whose accumulator gets the result.
    pub into: u32,
    /// The rank whose accumulator is not needed any more.
    pub other: u32,
    /// The side on which `other` stands as an operand.
    pub other_side: Side,
}

impl Folds {
    /// The block in which this element of the call's `count` lies, and where the block ends. In calls that leave each
    /// rank a part of the result, a part is a block, and has its rank's number.
    pub(super) fn block_at(self, shape: &Shape<'_>, element: usize) -> (u32, usize) {
        if !matches!(self, Folds::Ring | Folds::Circulant) || shape.call.kind != CallKind::Allreduce {
            return (0, shape.count());
        }
        let (size, count) = (shape.size as usize, shape.count());
        let (each, rest) = (count / size, count % size);
        // Each of the first `rest` blocks has one more element.
        let longer = rest * (each + 1);
        let block = if element < longer { element / (each + 1) } else { rest + (element - longer) / each };
        (block as u32, (block + 1) * each + (block + 1).min(rest))
    }

    /// Tells how a block is folded, one step after another. Returns the rank whose accumulator holds the result.
    pub(super) fn fold(self, shape: &Shape<'_>, block: u32, each: &mut impl FnMut(Fold)) -> u32 {
        let (size, root) = (shape.size, shape.root());
        let place = |place: u32| around(root, place, size);
        match self {
            Folds::Nothing => 0,
            Folds::Upward => run((0..size).map(|rank| (rank, Side::Higher)), each),
            Folds::Halves => halves(size, 0, &|rank| rank, each),
            Folds::HalvesFromRoot => halves(size, 0, &place, each),
            Folds::TowardsRoot => run((0..size).rev().map(|at| (place(at), Side::Lower)), each),
            Folds::Inwards => inwards(size, root, each),
            Folds::Ring => run((1..=size).map(|distance| (around(block, distance, size), Side::Higher)), each),
            Folds::Circulant => circulant(size, block, each),
            Folds::Pairwise => {
                let below = (1..size).map(|distance| around(block, size - distance, size));
                let side = |rank: u32| if rank < block { Side::Lower } else { Side::Higher };
                run([(block, Side::Higher)].into_iter().chain(below.map(|rank| (rank, side(rank)))), each)
            }
        }
    }
}

/// Lets one accumulator take in all others. `each` is told of every fold, with its side.
fn run(mut ranks: impl Iterator<Item = (u32, Side)>, each: &mut impl FnMut(Fold)) -> u32 {
    let into = ranks.next().map_or(0, |(rank, _)| rank);
    ranks.for_each(|(other, other_side)| each(Fold { into, other, other_side }));
    into
}

/// Lets a place take in its children, the nearest first, each of them with what is below it.
fn halves(size: u32, place: u32, rank: &impl Fn(u32) -> u32, each: &mut impl FnMut(Fold)) -> u32 {
    let levels = if place == 0 { rounds(size) } else { place.trailing_zeros() };
    for child in (0..levels).map(|level| place + (1 << level)).take_while(|child| *child < size) {
        halves(size, child, rank, each);
        each(Fold { into: rank(place), other: rank(child), other_side: Side::Higher });
    }
    rank(place)
}

fn inwards(size: u32, root: u32, each: &mut impl FnMut(Fold)) -> u32 {
    if root > 0 {
        let lower = run((0..root).map(|rank| (rank, Side::Higher)), each);
        each(Fold { into: root, other: lower, other_side: Side::Lower });
    }
    if root < size - 1 {
        let higher = run((root + 1..size).rev().map(|rank| (rank, Side::Lower)), each);
        each(Fold { into: root, other: higher, other_side: Side::Higher });
    }
    root
}

/// The ranks are named by how far they stand below the block's own rank. Round by round, the farther half goes to the
/// nearer one.
fn circulant(size: u32, block: u32, each: &mut impl FnMut(Fold)) -> u32 {
    let rank = |below: u32| around(block, size - below, size);
    for round in 0..rounds(size) {
        let distance = (size.next_power_of_two() / 2) >> round;
        for below in 0..distance.min(size - distance) {
            each(Fold { into: rank(below), other: rank(below + distance), other_side: Side::Lower });
        }
    }
    block
}
