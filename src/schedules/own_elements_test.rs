//! Elements of the caller's own size: every algorithm moves and combines them, and splits none.

use super::parts_test::{call, case, root, Case};
use super::simulation::Random;
use super::simulation_test::{compose, random_bytes, KINDS};
use crate::types::{Call, CallKind, DType, ReduceOp};

/// Sizes in bytes, with how many elements are more than two pieces of a chain.
const SIZES: [(u32, u64); 5] = [(1, 300_007), (3, 90_001), (24, 12_345), (8_094, 41), (DType::ELEMENT_BYTES_MAX, 5)];

/// Elements are numbers of as many bytes, the lowest first, which are added: a carry goes through the whole of one.
pub(super) fn add(call: &Call, mine: &mut [u8], other: &[u8], _other_lower: bool) {
    let element = call.dtype.expect("it has a type").size();
    assert!(mine.len().is_multiple_of(element), "{call}: an element is split in {} bytes", mine.len());
    for (mine, other) in mine.chunks_mut(element).zip(other.chunks(element)) {
        let mut carry = 0;
        for (mine, other) in mine.iter_mut().zip(other) {
            let sum = u16::from(*mine) + u16::from(*other) + carry;
            (*mine, carry) = (sum as u8, sum >> 8);
        }
    }
}

fn check(random: &mut Random, kind: CallKind, size: u32, bytes: u32, count: u64) {
    use CallKind::{Allreduce, Reduce, ReduceScatter, ReduceScatterv};
    let reduces = matches!(kind, Allreduce | Reduce | ReduceScatter | ReduceScatterv);
    for commutative in if reduces { &[true, false][..] } else { &[true][..] } {
        let op = reduces.then_some(ReduceOp::Given { commutative: *commutative });
        let call = call(kind, DType::Element(bytes), count, op, root(random, kind, size));
        let input = |random: &mut Random, count: u64| random_bytes(random, count as usize * bytes as usize);
        let fold = if *commutative { add } else { compose };
        Case { fold, ..case(random, call, size, 4, input) }.check(random, !commutative);
    }
}

fn kinds() -> impl Iterator<Item = CallKind> {
    KINDS.iter().copied().filter(|kind| *kind != CallKind::Barrier)
}

#[test]
fn they_are_moved_and_combined_whole() {
    let mut random = Random(31);
    for kind in kinds() {
        for size in [1, 2, 3, 4, 5, 8] {
            for (bytes, _) in SIZES {
                check(&mut random, kind, size, bytes, 3);
            }
        }
    }
}

#[test]
fn they_are_whole_in_every_piece_of_a_long_call() {
    let mut random = Random(32);
    for kind in [CallKind::Broadcast, CallKind::Allreduce, CallKind::Reduce] {
        for size in [2, 3, 4] {
            for (bytes, count) in SIZES {
                check(&mut random, kind, size, bytes, count);
            }
        }
    }
}
