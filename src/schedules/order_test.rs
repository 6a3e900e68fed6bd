//! Each order is that of its schedule: elements are folded by a function under which every other order gives something else.

use super::parts_test::{call, case, root};
use super::simulation::{run_with, InPlace, Random};
use super::simulation_test::{algorithms, random_bytes};
use super::{Algorithm, Shape, Side};
use crate::types::{Call, CallKind, DType, ReduceOp};

const ELEMENT: usize = 8;

/// An operation that is neither commutative nor associative.
fn mixed(lower: u64, higher: u64) -> u64 {
    let mixed = lower.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ higher.rotate_left(17).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 29
}

fn mix(_call: &Call, mine: &mut [u8], other: &[u8], other_lower: bool) {
    for (mine, other) in mine.chunks_mut(ELEMENT).zip(other.chunks(ELEMENT)) {
        let (one, two) = (number(mine), number(other));
        let result = if other_lower { mixed(two, one) } else { mixed(one, two) };
        mine.copy_from_slice(&result.to_le_bytes());
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// The result for one element of all that the ranks give.
fn by_order(algorithm: &Algorithm, shape: &Shape<'_>, block: u32, inputs: &[Vec<u8>], element: usize) -> u64 {
    let mut accumulators: Vec<Option<u64>> =
        inputs.iter().map(|input| Some(number(&input[element * ELEMENT..][..ELEMENT]))).collect();
    let result = algorithm.fold(shape, block, &mut |fold| {
        let other = accumulators[fold.other as usize].take().expect("each is used once");
        let into = accumulators[fold.into as usize].as_mut().expect("it was not given away");
        *into = if fold.other_side == Side::Lower { mixed(other, *into) } else { mixed(*into, other) };
    });
    let result = accumulators[result as usize].take().expect("it is there");
    assert!(accumulators.iter().all(Option::is_none), "{algorithm:?}: all are folded");
    result
}

#[test]
fn orders_are_those_of_the_schedules() {
    let mut random = Random(41);
    for kind in [CallKind::Allreduce, CallKind::Reduce, CallKind::ReduceScatter, CallKind::ReduceScatterv] {
        for size in [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 33] {
            for count in [0, 1, 2, 7, 40] {
                check(&mut random, kind, size, count);
            }
        }
    }
}

fn check(random: &mut Random, kind: CallKind, size: u32, count: u64) {
    let op = ReduceOp::Given { commutative: true };
    let call = call(kind, DType::Element(ELEMENT as u32), count, Some(op), root(random, kind, size));
    let case = case(random, call, size, 4, |random, count| random_bytes(random, count as usize * ELEMENT));
    for algorithm in algorithms(kind, size) {
        let seed = random.next();
        let outcome = run_with(mix, algorithm, case.call, &case.inputs, InPlace::Nobody, seed, &case.layouts);
        for (rank, output) in (0..size).zip(&outcome.outputs) {
            let layout = case.layouts.get(rank as usize);
            let shape = Shape { rank, size, call: case.call, in_place: false, layout };
            let is_part = matches!(kind, CallKind::ReduceScatter | CallKind::ReduceScatterv);
            let begin = if is_part { shape.part(super::Buffer::Input, rank).offset / ELEMENT } else { 0 };
            for (at, bytes) in output.chunks(ELEMENT).enumerate() {
                let (block, end) = if is_part { (rank, usize::MAX) } else { algorithm.block_at(&shape, at) };
                assert!(at < end, "{algorithm:?}: element {at} lies in block {block}, which ends at {end}");
                let expected = by_order(algorithm, &shape, block, &case.inputs, begin + at);
                assert_eq!(
                    number(bytes),
                    expected,
                    "{algorithm:?}, {size} ranks, rank {rank}, element {at} of {count}"
                );
            }
        }
    }
}
