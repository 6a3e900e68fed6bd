//! The one table of algorithms, and the choice among them.

use super::order::{Fold, Folds};
use super::widen::Schedule;
use super::{
    allgather, allgatherv, allreduce, alltoall, barrier, broadcast, exact, gather, reduce, reduce_scatter, scatter,
    widen, Action, Shape,
};
use crate::types::{CallKind, ReduceOp};

/// A way to carry out one kind of call.
pub struct Algorithm {
    /// The kind of call that it is for.
    pub kind: CallKind,
    /// What the field calls it.
    pub name: &'static str,
    /// Whether the algorithm works at all for a group of this size.
    pub works: fn(size: u32) -> bool,
    /// Whether the algorithm is a good choice. Must not look at what differs between the ranks of one call.
    pub suits: fn(&Shape<'_>, &Thresholds) -> bool,
    /// Whether it folds only neighbours, in order of rank: an operation that does not commute needs this.
    pub in_rank_order: bool,
    /// The order in which it folds.
    pub(super) folds: Folds,
    /// The schedule: what to do at this step, if no elements have to be made wider.
    pub(super) schedule: Schedule,
    /// How many bytes of scratch the schedule uses.
    pub(super) scratch: fn(&Shape<'_>) -> usize,
}

impl Algorithm {
    /// What to do at this step of a call, widened if it must be.
    pub fn step(&self, shape: &Shape<'_>, step: u32) -> Action {
        widen::step(self.schedule, shape, step)
    }

    /// How many bytes of scratch a call uses in all.
    pub fn scratch_bytes(&self, shape: &Shape<'_>) -> usize {
        widen::scratch_bytes(self.scratch, shape)
    }

    /// The block in which this element of the call's `count` lies, and where the block ends: elements of a block are
    /// folded in one order. In calls that leave each rank a part of the result, a part is a block, and has its rank's
    /// number.
    pub fn block_at(&self, shape: &Shape<'_>, element: usize) -> (u32, usize) {
        self.folds.block_at(shape, element)
    }

    /// Tells how a block is folded, one step after another. Returns the rank whose accumulator holds the result.
    pub fn fold(&self, shape: &Shape<'_>, block: u32, each: &mut impl FnMut(Fold)) -> u32 {
        self.folds.fold(shape, block, each)
    }
}

impl std::fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.kind, self.name)
    }
}

/// Every algorithm but those of [`EXACT`]. A call takes the first one of its kind that works and suits. If its operands
/// may not be exchanged, it takes the first such one that folds in rank order.
#[rustfmt::skip]
pub static ALGORITHMS: &[Algorithm] = &[
    Algorithm { kind: CallKind::Barrier, name: "tree", works: any, suits: |s, t| u64::from(s.size) >= t.barrier_tree_ranks, in_rank_order: true, folds: Folds::Nothing, schedule: barrier::tree, scratch: none },
    Algorithm { kind: CallKind::Barrier, name: "dissemination", works: any, suits: always, in_rank_order: true, folds: Folds::Nothing, schedule: barrier::dissemination, scratch: none },
    Algorithm { kind: CallKind::Broadcast, name: "binomial", works: any, suits: |s, t| s.bytes() as u64 <= t.broadcast_binomial_bytes, in_rank_order: true, folds: Folds::Nothing, schedule: broadcast::binomial, scratch: none },
    Algorithm { kind: CallKind::Broadcast, name: "chain", works: any, suits: always, in_rank_order: true, folds: Folds::Nothing, schedule: broadcast::chain, scratch: none },
    Algorithm { kind: CallKind::Allgather, name: "doubling", works: power_of_two, suits: |s, t| s.total_bytes() <= t.allgather_doubling_bytes, in_rank_order: true, folds: Folds::Nothing, schedule: allgather::doubling, scratch: none },
    Algorithm { kind: CallKind::Allgather, name: "bruck", works: any, suits: |s, t| s.total_bytes() <= t.allgather_bruck_bytes, in_rank_order: true, folds: Folds::Nothing, schedule: allgather::bruck, scratch: allgather::bruck_scratch },
    Algorithm { kind: CallKind::Allgather, name: "circulant", works: any, suits: |s, t| s.total_bytes() <= t.allgather_circulant_bytes, in_rank_order: true, folds: Folds::Nothing, schedule: allgather::circulant, scratch: none },
    Algorithm { kind: CallKind::Allgather, name: "ring", works: any, suits: always, in_rank_order: true, folds: Folds::Nothing, schedule: allgather::ring, scratch: none },
    Algorithm { kind: CallKind::Allreduce, name: "tree", works: any, suits: |s, t| u64::from(s.size) >= t.allreduce_tree_ranks && s.bytes() as u64 <= t.allreduce_tree_bytes, in_rank_order: true, folds: Folds::Halves, schedule: allreduce::tree, scratch: allreduce::tree_scratch },
    Algorithm { kind: CallKind::Allreduce, name: "doubling", works: power_of_two, suits: |s, t| s.bytes() as u64 <= if s.size == 2 { t.allreduce_pair_bytes } else { t.allreduce_doubling_bytes }, in_rank_order: true, folds: Folds::Halves, schedule: allreduce::doubling, scratch: allreduce::doubling_scratch },
    Algorithm { kind: CallKind::Allreduce, name: "gather", works: any, suits: |s, t| s.total_bytes() <= t.allreduce_gather_bytes, in_rank_order: true, folds: Folds::Upward, schedule: allreduce::gather, scratch: allreduce::gather_scratch },
    Algorithm { kind: CallKind::Allreduce, name: "halving", works: power_of_two, suits: |s, t| s.size == 2 || s.bytes() as u64 <= t.allreduce_halving_bytes, in_rank_order: true, folds: Folds::Halves, schedule: allreduce::halving, scratch: none },
    Algorithm { kind: CallKind::Allreduce, name: "circulant", works: any, suits: |s, t| s.bytes() as u64 <= t.allreduce_circulant_bytes, in_rank_order: false, folds: Folds::Circulant, schedule: allreduce::circulant, scratch: none },
    Algorithm { kind: CallKind::Allreduce, name: "ring", works: any, suits: always, in_rank_order: false, folds: Folds::Ring, schedule: allreduce::ring, scratch: none },
    Algorithm { kind: CallKind::Allreduce, name: "chain", works: any, suits: always, in_rank_order: true, folds: Folds::Upward, schedule: allreduce::chain, scratch: allreduce::chain_scratch },
    Algorithm { kind: CallKind::Reduce, name: "binomial", works: any, suits: |s, t| s.bytes() as u64 <= t.reduce_binomial_bytes, in_rank_order: false, folds: Folds::HalvesFromRoot, schedule: reduce::binomial, scratch: reduce::binomial_scratch },
    Algorithm { kind: CallKind::Reduce, name: "chain", works: any, suits: always, in_rank_order: false, folds: Folds::TowardsRoot, schedule: reduce::chain, scratch: reduce::chain_scratch },
    Algorithm { kind: CallKind::Reduce, name: "tree", works: any, suits: |s, t| s.bytes() as u64 <= t.reduce_binomial_bytes, in_rank_order: true, folds: Folds::Halves, schedule: reduce::tree, scratch: reduce::tree_scratch },
    Algorithm { kind: CallKind::Reduce, name: "two chains", works: any, suits: always, in_rank_order: true, folds: Folds::Inwards, schedule: reduce::ordered, scratch: reduce::ordered_scratch },
    Algorithm { kind: CallKind::Gather, name: "binomial", works: any, suits: |s, t| s.total_bytes() <= t.gather_binomial_bytes, in_rank_order: true, folds: Folds::Nothing, schedule: gather::binomial, scratch: gather::binomial_scratch },
    Algorithm { kind: CallKind::Gather, name: "linear", works: any, suits: always, in_rank_order: true, folds: Folds::Nothing, schedule: gather::linear, scratch: none },
    Algorithm { kind: CallKind::Gatherv, name: "linear", works: any, suits: always, in_rank_order: true, folds: Folds::Nothing, schedule: gather::linear, scratch: none },
    Algorithm { kind: CallKind::Scatter, name: "binomial", works: any, suits: |s, t| s.total_bytes() <= t.scatter_binomial_bytes, in_rank_order: true, folds: Folds::Nothing, schedule: scatter::binomial, scratch: scatter::binomial_scratch },
    Algorithm { kind: CallKind::Scatter, name: "linear", works: any, suits: always, in_rank_order: true, folds: Folds::Nothing, schedule: scatter::linear, scratch: none },
    Algorithm { kind: CallKind::Scatterv, name: "linear", works: any, suits: always, in_rank_order: true, folds: Folds::Nothing, schedule: scatter::linear, scratch: none },
    Algorithm { kind: CallKind::ReduceScatter, name: "circulant", works: any, suits: |s, t| s.total_bytes() <= t.reduce_scatter_circulant_bytes, in_rank_order: false, folds: Folds::Circulant, schedule: reduce_scatter::circulant, scratch: reduce_scatter::circulant_scratch },
    Algorithm { kind: CallKind::ReduceScatter, name: "pairwise", works: any, suits: always, in_rank_order: false, folds: Folds::Pairwise, schedule: reduce_scatter::pairwise, scratch: none },
    Algorithm { kind: CallKind::ReduceScatter, name: "ordered", works: any, suits: always, in_rank_order: true, folds: Folds::Upward, schedule: reduce_scatter::ordered, scratch: reduce_scatter::ordered_scratch },
    Algorithm { kind: CallKind::ReduceScatterv, name: "circulant", works: any, suits: |s, t| s.bytes() as u64 <= t.reduce_scatter_circulant_bytes, in_rank_order: false, folds: Folds::Circulant, schedule: reduce_scatter::circulant, scratch: reduce_scatter::circulant_scratch },
    Algorithm { kind: CallKind::ReduceScatterv, name: "pairwise", works: any, suits: always, in_rank_order: false, folds: Folds::Pairwise, schedule: reduce_scatter::pairwise, scratch: none },
    Algorithm { kind: CallKind::ReduceScatterv, name: "ordered", works: any, suits: always, in_rank_order: true, folds: Folds::Upward, schedule: reduce_scatter::ordered, scratch: reduce_scatter::ordered_scratch },
    Algorithm { kind: CallKind::Allgatherv, name: "bruck", works: any, suits: |s, t| s.bytes() as u64 <= t.allgatherv_bruck_bytes, in_rank_order: true, folds: Folds::Nothing, schedule: allgatherv::bruck, scratch: allgatherv::bruck_scratch },
    Algorithm { kind: CallKind::Allgatherv, name: "ring", works: any, suits: always, in_rank_order: true, folds: Folds::Nothing, schedule: allgatherv::ring, scratch: none },
    Algorithm { kind: CallKind::Alltoall, name: "bruck", works: any, suits: |s, t| s.total_bytes() <= t.alltoall_bruck_bytes, in_rank_order: true, folds: Folds::Nothing, schedule: alltoall::bruck, scratch: alltoall::bruck_scratch },
    Algorithm { kind: CallKind::Alltoall, name: "pairwise", works: any, suits: always, in_rank_order: true, folds: Folds::Nothing, schedule: alltoall::pairwise, scratch: alltoall::pairwise_scratch },
    Algorithm { kind: CallKind::Alltoallv, name: "pairwise", works: any, suits: always, in_rank_order: true, folds: Folds::Nothing, schedule: alltoall::pairwise, scratch: alltoall::pairwise_scratch },
];

/// The algorithms of sums that are exact, in which operands are not folded one by one. Chosen in the same way.
#[rustfmt::skip]
pub static EXACT: &[Algorithm] = &[
    Algorithm { kind: CallKind::Allreduce, name: "tree", works: any, suits: |s, t| s.is_one_row_each() && u64::from(s.size) >= t.allreduce_tree_ranks && s.bytes() as u64 <= t.allreduce_tree_bytes, in_rank_order: true, folds: Folds::Nothing, schedule: exact::tree, scratch: exact::tree_scratch },
    Algorithm { kind: CallKind::Allreduce, name: "gather", works: any, suits: |s, t| s.all_addends().saturating_mul(s.bytes()) as u64 <= t.allreduce_gather_bytes || (s.is_one_row_each() && s.size == 2 && s.bytes() as u64 <= t.allreduce_pair_bytes), in_rank_order: true, folds: Folds::Nothing, schedule: exact::gather, scratch: exact::gather_scratch },
    Algorithm { kind: CallKind::Allreduce, name: "pairwise", works: any, suits: always, in_rank_order: true, folds: Folds::Nothing, schedule: exact::pairwise, scratch: exact::pairwise_scratch },
    Algorithm { kind: CallKind::Reduce, name: "binomial", works: any, suits: |s, t| s.total_bytes() <= t.gather_binomial_bytes, in_rank_order: true, folds: Folds::Nothing, schedule: exact::binomial, scratch: exact::tree_scratch },
    Algorithm { kind: CallKind::Reduce, name: "pairwise", works: any, suits: always, in_rank_order: true, folds: Folds::Nothing, schedule: exact::pairwise, scratch: exact::pairwise_scratch },
    Algorithm { kind: CallKind::ReduceScatter, name: "pairwise", works: any, suits: always, in_rank_order: true, folds: Folds::Nothing, schedule: exact::pairwise, scratch: exact::pairwise_scratch },
    Algorithm { kind: CallKind::ReduceScatterv, name: "pairwise", works: any, suits: always, in_rank_order: true, folds: Folds::Nothing, schedule: exact::pairwise, scratch: exact::pairwise_scratch },
];

/// The algorithm for a call. Every rank chooses alike, because the choice depends on call, size and thresholds only.
pub fn choose(shape: &Shape<'_>, thresholds: &Thresholds) -> &'static Algorithm {
    // By the bytes that move.
    let shape = &Shape { call: shape.summed(), ..*shape };
    let fits = |algorithm: &&Algorithm| {
        algorithm.kind == shape.call.kind
            && (algorithm.in_rank_order || shape.call.op.is_none_or(ReduceOp::is_commutative))
            && (algorithm.works)(shape.size)
            && (algorithm.suits)(shape, thresholds)
    };
    let lines = if shape.is_exact() { EXACT } else { &ALGORITHMS[FIRST_LINES[shape.call.kind as usize]..] };
    lines.iter().find(fits).expect("the last of each kind works and suits always")
}

/// The places in [`ALGORITHMS`] where each kind's lines begin, by the kind's number. So a call looks only at the lines of its
/// own kind.
static FIRST_LINES: [usize; CallKind::ALL.len() + 1] = {
    let mut firsts = [0; CallKind::ALL.len() + 1];
    let mut line = ALGORITHMS.len();
    while line > 0 {
        line -= 1;
        firsts[ALGORITHMS[line].kind as usize] = line;
    }
    firsts
};

macro_rules! thresholds {
    ($($(#[doc = $doc:expr])* $name:ident = $default:expr;)*) => {
        /// Up to how many bytes each algorithm is chosen; beyond, the next line of [`ALGORITHMS`] is asked. The
        /// scheduler tells them to all ranks, so that all choose alike.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct Thresholds {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Default for Thresholds {
            fn default() -> Thresholds {
                Thresholds { $($name: $default,)* }
            }
        }

        impl Thresholds {
            /// Their names, in the order in which they travel.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// How many there are.
            pub const COUNT: usize = Thresholds::NAMES.len();

            /// The numbers, in the order in which they travel.
            pub fn to_array(&self) -> [u64; Thresholds::COUNT] {
                [$(self.$name),*]
            }

            /// The thresholds with these numbers; none unless there are exactly [`Thresholds::COUNT`] of them.
            pub fn from_slice(numbers: &[u64]) -> Option<Thresholds> {
                let [$($name),*] = *<&[u64; Thresholds::COUNT]>::try_from(numbers).ok()?;
                Some(Thresholds { $($name),* })
            }
        }
    };
}

impl Thresholds {
    /// The thresholds for so many ranks that are all on one host with so many processors. If the ranks share
    /// processors, the work of all together counts: few frames are best then, even if more of them follow one on
    /// another.
    pub fn for_one_host(ranks: u32, cores: u32) -> Thresholds {
        if ranks <= cores {
            return Thresholds::default();
        }
        Thresholds {
            barrier_tree_ranks: 3,
            allreduce_tree_ranks: 3,
            allgather_doubling_bytes: 4 << 20,
            allgather_circulant_bytes: 2 << 20,
            reduce_binomial_bytes: 512 << 10,
            ..Thresholds::default()
        }
    }
}

// The order is that of the wire: a new one goes to the end.
thresholds! {
    /// Broadcast as a binomial tree.
    broadcast_binomial_bytes = 64 << 10;
    /// All-gather by recursive doubling; of the whole result.
    allgather_doubling_bytes = 512 << 10;
    /// All-gather by Bruck's algorithm; of the whole result.
    allgather_bruck_bytes = 64 << 10;
    /// All-reduce by recursive doubling.
    allreduce_doubling_bytes = 16 << 10;
    /// All-reduce by gathering and reducing locally; of all ranks' elements together.
    allreduce_gather_bytes = 64 << 10;
    /// All-gather by the circulant algorithm; of the whole result.
    allgather_circulant_bytes = 512 << 10;
    /// All-reduce by halving and doubling. Beyond small sizes two ranks always use it.
    allreduce_halving_bytes = 64 << 20;
    /// All-reduce by the circulant algorithm.
    allreduce_circulant_bytes = 1 << 20;
    /// Reduce as a binomial tree, in order of rank or not.
    reduce_binomial_bytes = 64 << 10;
    /// Gather as a binomial tree; of the whole result.
    gather_binomial_bytes = 64 << 10;
    /// Scatter as a binomial tree; of the whole input.
    scatter_binomial_bytes = 64 << 10;
    /// Reduce-scatter by the circulant algorithm; of the whole input.
    reduce_scatter_circulant_bytes = 64 << 10;
    /// All-gather of unequal parts by Bruck's algorithm; of the whole result.
    allgatherv_bruck_bytes = 64 << 10;
    /// All-to-all by Bruck's algorithm; of a rank's whole input.
    alltoall_bruck_bytes = 8 << 10;
    /// Barrier as a tree: from this many ranks on, not up to.
    barrier_tree_ranks = u64::MAX;
    /// All-reduce of two ranks by recursive doubling, which is one round.
    allreduce_pair_bytes = 256 << 10;
    /// All-reduce as a tree: from this many ranks on, not up to.
    allreduce_tree_ranks = u64::MAX;
    /// All-reduce as a tree; from that many ranks on.
    allreduce_tree_bytes = 256 << 10;
}

fn any(_size: u32) -> bool {
    true
}

fn power_of_two(size: u32) -> bool {
    size.is_power_of_two()
}

fn always(_shape: &Shape<'_>, _thresholds: &Thresholds) -> bool {
    true
}

fn none(_shape: &Shape<'_>) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_survive_the_journey() {
        let mut numbers = Thresholds::default().to_array();
        numbers[0] = 7;
        let there = Thresholds::from_slice(&numbers).expect("as many as there are");
        assert_eq!(there.broadcast_binomial_bytes, 7);
        assert_eq!(there.to_array(), numbers);
        assert_eq!(Thresholds::from_slice(&numbers[1..]), None);
    }
}
