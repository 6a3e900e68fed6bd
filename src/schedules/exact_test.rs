//! Exact sums: every algorithm, on every float type, with inputs of any bits, against the kernel's sum of all addends. That
//! the kernel is right is shown beside it.

use super::parts_test::{call, case, root, Case};
use super::simulation::{fold_with_kernels, run_with, InPlace, Random};
use super::simulation_test::{random_bytes, IN_PLACE};
use super::{choose, kernels, Algorithm, Layout, Parts, Shape, Thresholds, EXACT};
use crate::types::{Call, CallKind, DType, ReduceOp};

const FLOATS: [DType; 4] = [DType::Float16, DType::Bfloat16, DType::Float32, DType::Float64];

/// What a rank's output must be: the sum of `part` of all rows.
fn summed(dtype: DType, rows: &[&[u8]], part: std::ops::Range<usize>) -> Vec<u8> {
    let rows: Vec<&[u8]> = rows.iter().map(|row| &row[part.clone()]).collect();
    let mut sum = vec![0; part.len()];
    kernels::sum_exact_slices(dtype, &rows, &mut sum);
    sum
}

fn check(case: &Case, algorithm: &Algorithm, random: &mut Random, expected: impl Fn(usize) -> Vec<u8>) {
    let Case { call, size, inputs, layouts, .. } = case;
    for in_place in IN_PLACE {
        let seed = random.next();
        let outputs = run_with(fold_with_kernels, algorithm, *call, inputs, in_place, seed, layouts).outputs;
        for (rank, output) in outputs.iter().enumerate() {
            assert!(
                *output == expected(rank),
                "{algorithm:?}, {call}, {size} ranks, {in_place:?}, seed {seed}: rank {rank} is wrong"
            );
        }
    }
}

/// Where the part of the sum lies that a rank gets, in bytes.
fn own_part(case: &Case, rank: usize) -> std::ops::Range<usize> {
    let element = case.call.dtype.expect("it has a type").size();
    let (start, count) = match case.call.kind {
        CallKind::Reduce if case.call.root != Some(rank as u32) => (0, 0),
        CallKind::ReduceScatter => (rank * case.call.count as usize, case.call.count as usize),
        CallKind::ReduceScatterv => {
            let Parts { counts, displs } = &case.layouts[rank].input;
            (displs[rank] as usize, counts[rank] as usize)
        }
        _ => (0, case.call.count as usize),
    };
    start * element..(start + count) * element
}

#[test]
fn every_algorithm_gives_the_sum_of_all() {
    let mut random = Random(41);
    for algorithm in EXACT {
        for size in [1, 2, 3, 4, 5, 7, 8, 13, 40] {
            for dtype in FLOATS {
                let count = [0, 1, random.below(60) as u64][random.below(3)];
                let root = root(&mut random, algorithm.kind, size);
                let call = call(algorithm.kind, dtype, count, Some(ReduceOp::SumExact), root);
                let input = |random: &mut Random, count: u64| random_bytes(random, count as usize * dtype.size());
                let case = case(&mut random, call, size, 20, input);
                let rows: Vec<&[u8]> = case.inputs.iter().map(Vec::as_slice).collect();
                check(&case, algorithm, &mut random, |rank| summed(dtype, &rows, own_part(&case, rank)));
            }
        }
    }
}

/// A case that sums so many addends of each rank.
fn addends(random: &mut Random, dtype: DType, count: u64, numbers: &[u64]) -> Case {
    let call = call(CallKind::Allreduce, dtype, count, Some(ReduceOp::SumOfAddends), None);
    let displs = numbers.iter().scan(0, |all, number| Some(std::mem::replace(all, *all + number))).collect();
    let input = Parts { counts: numbers.to_vec(), displs };
    let layout = |own: &u64| Layout { own: *own, input: input.clone(), output: Parts::default() };
    let bytes = |own: &u64| (own * count) as usize * dtype.size();
    let inputs: Vec<Vec<u8>> = numbers.iter().map(|own| random_bytes(random, bytes(own))).collect();
    let layouts = numbers.iter().map(layout).collect();
    Case { call, size: numbers.len() as u32, layouts, inputs, fold: fold_with_kernels }
}

/// The algorithm that is chosen for a case.
fn chosen(case: &Case) -> &'static Algorithm {
    let layout = Some(&case.layouts[0]);
    choose(&Shape { rank: 0, size: case.size, call: case.call, in_place: false, layout }, &Thresholds::default())
}

#[test]
fn ranks_bring_as_many_addends_as_they_like() {
    let mut random = Random(42);
    for size in [1, 2, 3, 4, 5, 8, 13] {
        for dtype in FLOATS {
            for most in [1, 2, 5] {
                let numbers: Vec<u64> = (0..size).map(|_| random.below(most + 1) as u64).collect();
                let count = [0, 1, random.below(60) as u64][random.below(3)];
                let case = addends(&mut random, dtype, count, &numbers);
                let row = count as usize * dtype.size();
                let rows: Vec<&[u8]> =
                    case.inputs.iter().flat_map(|input| input.chunks(row.max(1))).filter(|_| row > 0).collect();
                check(&case, chosen(&case), &mut random, |_| summed(dtype, &rows, 0..row));
            }
        }
    }
}

#[test]
fn the_same_addends_on_other_ranks_have_the_same_sum() {
    let mut random = Random(43);
    let whole = addends(&mut random, DType::Float32, 33, &[12]);
    let sum = summed(DType::Float32, &whole.inputs[0].chunks(33 * 4).collect::<Vec<_>>(), 0..33 * 4);
    for numbers in [&[12][..], &[6, 6], &[4, 4, 4], &[0, 12, 0], &[1, 2, 3, 6], &[2, 2, 2, 2, 2, 2, 0, 0]] {
        let mut case = addends(&mut random, DType::Float32, 33, numbers);
        let mut rest = &whole.inputs[0][..];
        for input in &mut case.inputs {
            let (own, others) = rest.split_at(input.len());
            (*input, rest) = (own.to_vec(), others);
        }
        check(&case, chosen(&case), &mut random, |_| sum.clone());
    }
}

#[test]
fn a_part_is_summed_piece_by_piece() {
    let mut random = Random(44);
    let case = addends(&mut random, DType::Float16, 6_200, &[600, 400, 100]);
    let rows: Vec<&[u8]> = case.inputs.iter().flat_map(|input| input.chunks(6_200 * 2)).collect();
    let shape = Shape { rank: 1, size: 3, call: case.call, in_place: false, layout: Some(&case.layouts[1]) };
    assert!(shape.check().is_ok());
    assert!(chosen(&case).scratch_bytes(&shape) < 4 << 20, "the rows of a piece, not of a part");
    let outputs =
        run_with(fold_with_kernels, chosen(&case), case.call, &case.inputs, InPlace::OddRanks, 5, &case.layouts)
            .outputs;
    let sum = summed(DType::Float16, &rows, 0..6_200 * 2);
    assert!(outputs.iter().all(|output| *output == sum));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut random = Random(45);
    let refused = |case: &Case, words: &str| {
        let layout = case.layouts.first();
        let shape = Shape { rank: 0, size: case.size, call: case.call, in_place: false, layout };
        let error = shape.check().expect_err("it makes no sense");
        assert!(error.message().contains(words), "{error}");
    };
    for dtype in [DType::Int32, DType::Uint8, DType::Element(4)] {
        let mut case = addends(&mut random, DType::Float32, 4, &[1, 1]);
        case.call = Call { dtype: Some(dtype), ..case.call };
        refused(&case, if dtype == DType::Element(4) { "does not know" } else { "is no float type" });
        case.call = Call { op: Some(ReduceOp::SumExact), ..case.call };
        refused(&case, if dtype == DType::Element(4) { "does not know" } else { "is no float type" });
    }
    let mut case = addends(&mut random, DType::Float32, 4, &[1, 1]);
    case.layouts[0].input.counts[1] = 1 << 40;
    refused(&case, "addends is 1099511627776: expected 65536 at most");
    let mut case = addends(&mut random, DType::Float32, 4, &[1, 1]);
    case.layouts[0].input.counts[0] = 2;
    refused(&case, "2 numbers of addends are given for 2 ranks");
    let mut case = addends(&mut random, DType::Float32, 4, &[1, 1]);
    case.call = Call { count: 1 << 27, ..case.call };
    case.layouts[0].input = Parts { counts: vec![1, 1 << 16], displs: vec![0, 1] };
    refused(&case, "are more than one call can add");
    case.layouts.clear();
    refused(&case, "needs their number");
}
