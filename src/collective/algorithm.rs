//! The one table of algorithms, and the choice among them.

use super::{allgather, allreduce, barrier, broadcast, Action, Shape};
use crate::types::CallKind;

/// A way to carry out one kind of call.
pub struct Algorithm {
    /// The kind of call that it is for.
    pub kind: CallKind,
    /// What the field calls it.
    pub name: &'static str,
    /// Whether it works at all for a group of this size.
    pub works: fn(size: u32) -> bool,
    /// Whether it is a good choice. Must not look at what differs between the ranks of one call.
    pub suits: fn(&Shape<'_>, &Thresholds) -> bool,
    /// Whether it folds neighbours only, in order of rank: what an operation needs that does not commute.
    pub in_rank_order: bool,
    /// The schedule: what to do at this step.
    pub step: fn(&Shape<'_>, u32) -> Action,
    /// How many bytes of scratch the schedule uses.
    pub scratch_bytes: fn(&Shape<'_>) -> usize,
}

impl std::fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.kind, self.name)
    }
}

/// Every algorithm. Among those of a kind the first that works and suits is taken.
#[rustfmt::skip]
pub static ALGORITHMS: &[Algorithm] = &[
    Algorithm { kind: CallKind::Barrier, name: "dissemination", works: any, suits: always, in_rank_order: true, step: barrier::dissemination, scratch_bytes: none },
    Algorithm { kind: CallKind::Broadcast, name: "binomial", works: any, suits: |s, t| s.bytes() as u64 <= t.broadcast_binomial_bytes, in_rank_order: true, step: broadcast::binomial, scratch_bytes: none },
    Algorithm { kind: CallKind::Broadcast, name: "chain", works: any, suits: always, in_rank_order: true, step: broadcast::chain, scratch_bytes: none },
    Algorithm { kind: CallKind::Allgather, name: "doubling", works: power_of_two, suits: |s, t| s.total_bytes() <= t.allgather_doubling_bytes, in_rank_order: true, step: allgather::doubling, scratch_bytes: none },
    Algorithm { kind: CallKind::Allgather, name: "bruck", works: any, suits: |s, t| s.total_bytes() <= t.allgather_bruck_bytes, in_rank_order: true, step: allgather::bruck, scratch_bytes: allgather::bruck_scratch },
    Algorithm { kind: CallKind::Allgather, name: "circulant", works: any, suits: |s, t| s.total_bytes() <= t.allgather_circulant_bytes, in_rank_order: true, step: allgather::circulant, scratch_bytes: none },
    Algorithm { kind: CallKind::Allgather, name: "ring", works: any, suits: always, in_rank_order: true, step: allgather::ring, scratch_bytes: none },
    Algorithm { kind: CallKind::Allreduce, name: "doubling", works: power_of_two, suits: |s, t| s.bytes() as u64 <= t.allreduce_doubling_bytes, in_rank_order: true, step: allreduce::doubling, scratch_bytes: allreduce::doubling_scratch },
    Algorithm { kind: CallKind::Allreduce, name: "gather", works: any, suits: |s, t| s.total_bytes() <= t.allreduce_gather_bytes, in_rank_order: true, step: allreduce::gather, scratch_bytes: allreduce::gather_scratch },
    Algorithm { kind: CallKind::Allreduce, name: "halving", works: power_of_two, suits: |s, t| s.size == 2 || s.bytes() as u64 <= t.allreduce_halving_bytes, in_rank_order: true, step: allreduce::halving, scratch_bytes: none },
    Algorithm { kind: CallKind::Allreduce, name: "circulant", works: any, suits: |s, t| s.bytes() as u64 <= t.allreduce_circulant_bytes, in_rank_order: false, step: allreduce::circulant, scratch_bytes: none },
    Algorithm { kind: CallKind::Allreduce, name: "ring", works: any, suits: always, in_rank_order: false, step: allreduce::ring, scratch_bytes: none },
];

/// The algorithm for a call. Every rank chooses alike, for it depends on call, size and thresholds only.
pub fn choose(shape: &Shape<'_>, thresholds: &Thresholds) -> &'static Algorithm {
    let fits = |algorithm: &&Algorithm| {
        algorithm.kind == shape.call.kind && (algorithm.works)(shape.size) && (algorithm.suits)(shape, thresholds)
    };
    ALGORITHMS.iter().find(fits).expect("the last of each kind works and suits always")
}

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

// The order is that of the wire: a new one goes to the end.
thresholds! {
    /// Broadcast as a binomial tree.
    broadcast_binomial_bytes = 128 << 10;
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
    /// All-reduce by halving and doubling; two ranks always do that beyond small sizes.
    allreduce_halving_bytes = 64 << 20;
    /// All-reduce by the circulant algorithm.
    allreduce_circulant_bytes = 1 << 20;
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
