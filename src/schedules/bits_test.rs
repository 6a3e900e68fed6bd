//! Every rank gets the same bits, in every run, whichever ranks are in place. The elements have all magnitudes, where
//! the order of operations shows. Infinities, NaNs of any sign and payload, denormals and both zeros are among them.

use super::parts_test::{call, case, root};
use super::simulation::{run_with, InPlace, Random};
use super::simulation_test::{algorithms, IN_PLACE};
use crate::types::{CallKind, DType, ReduceOp};

/// The bits of an element's exponent and of its fraction; an integer has neither.
fn format(dtype: DType) -> Option<(u32, u32)> {
    match dtype {
        DType::Float16 => Some((5, 10)),
        DType::Bfloat16 => Some((8, 7)),
        DType::Float32 => Some((8, 23)),
        DType::Float64 => Some((11, 52)),
        _ => None,
    }
}

/// Elements of a type, a third of the floats among them special.
fn wild(random: &mut Random, dtype: DType, count: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        let bits = match format(dtype) {
            Some((exponent, fraction)) => {
                let (all, bias) = ((1u64 << exponent) - 1, (1u64 << (exponent - 1)) - 1);
                let payload = random.next() & ((1 << fraction) - 1);
                let (power, rest) = match random.below(18) {
                    0 => (all, payload | 1 << (fraction - 1)), // a quiet NaN
                    1 => (all, payload >> 1 | 1),              // a signalling one
                    2 => (all, 0),
                    3 => (0, 0),
                    4 => (0, payload),
                    5 => (all - 1, payload), // its sums overflow
                    _ => (bias - 5 + random.below(10) as u64, payload),
                };
                (random.next() & 1) << (exponent + fraction) | power << fraction | rest
            }
            None => random.next(),
        };
        bytes.extend(&bits.to_le_bytes()[..dtype.size()]);
    }
    bytes
}

#[test]
fn the_bits_are_the_same_on_every_rank_and_in_every_run() {
    let mut random = Random(21);
    for kind in [CallKind::Allreduce, CallKind::Reduce, CallKind::ReduceScatter, CallKind::ReduceScatterv] {
        for size in [1, 2, 3, 4, 5, 7, 8, 16] {
            for dtype in DType::ALL {
                for op in ReduceOp::ALL.into_iter().filter(|op| op.is_for(dtype) && !op.is_exact()) {
                    check(&mut random, kind, size, dtype, op);
                }
            }
        }
    }
}

fn check(random: &mut Random, kind: CallKind, size: u32, dtype: DType, op: ReduceOp) {
    let call = call(kind, dtype, 37, Some(op), root(random, kind, size));
    let case = case(random, call, size, 20, |random, count| wild(random, dtype, count));
    for algorithm in algorithms(kind, size) {
        let run = |random: &mut Random, in_place| {
            let seed = random.next();
            run_with(case.fold, algorithm, case.call, &case.inputs, in_place, seed, &case.layouts).outputs
        };
        let first = run(random, InPlace::Nobody);
        let alike = kind != CallKind::Allreduce || first.iter().all(|output| *output == first[0]);
        assert!(alike, "{algorithm:?}, {call}, {size} ranks: the ranks' bits differ");
        for in_place in IN_PLACE {
            assert!(run(random, in_place) == first, "{algorithm:?}, {call}, {size} ranks, {in_place:?}: other bits");
        }
    }
}

#[test]
fn the_order_shows_in_these_elements() {
    // Without this the test above would show nothing: the same elements, dealt out to the ranks the other way round.
    let mut random = Random(22);
    for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_integer()) {
        let call = call(CallKind::Allreduce, dtype, 400, Some(ReduceOp::Sum), None);
        let mut case = case(&mut random, call, 5, 1, |random, count| wild(random, dtype, count));
        let chain =
            algorithms(CallKind::Allreduce, 5).find(|algorithm| algorithm.name == "chain").expect("in the table");
        let run = |inputs: &[Vec<u8>]| run_with(case.fold, chain, call, inputs, InPlace::Nobody, 1, &[]).outputs;
        let first = run(&case.inputs);
        case.inputs.reverse();
        assert_ne!(run(&case.inputs), first, "{dtype}");
    }
}
