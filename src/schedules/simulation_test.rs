//! Every algorithm of the table against computed answers, for many sizes, counts, types and operations.

use super::phases::rounds;
use super::simulation::{run, run_with, InPlace, Random};
use super::{choose, kernels, Algorithm, Shape, Thresholds, ALGORITHMS, EXACT};
use crate::types::{Call, CallKind, DType, ReduceOp};
use std::collections::{BTreeMap, VecDeque};

/// The kinds that have schedules.
pub(super) const KINDS: &[CallKind] = CallKind::ALL.split_at(14).0;

pub(super) const IN_PLACE: [InPlace; 3] = [InPlace::Nobody, InPlace::Everybody, InPlace::OddRanks];

/// The algorithms for calls of this kind, but for exact sums.
pub(super) fn algorithms(kind: CallKind, size: u32) -> impl Iterator<Item = &'static Algorithm> {
    ALGORITHMS.iter().filter(move |algorithm| algorithm.kind == kind && (algorithm.works)(size))
}

pub(super) fn call(kind: CallKind, dtype: DType, count: u64) -> Call {
    Call { kind, dtype: Some(dtype), op: None, root: None, count, layout: 0 }
}

/// Counts that tend to go wrong, for so many ranks.
pub(super) fn counts(size: u32) -> Vec<u64> {
    let size = u64::from(size);
    vec![0, 1, 2, 3, size - 1, size, size + 1, 2 * size + 1, 1000 + 97]
}

pub(super) fn random_bytes(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.next() as u8).collect()
}

/// Elements for which the result is exact in any order: small whole numbers; for products, powers of two.
pub(super) fn exact_elements(random: &mut Random, dtype: DType, op: ReduceOp, count: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        let choice = random.below(4);
        let value = if op == ReduceOp::Prod { [1u8, 1, 1, 2][choice] } else { [0u8, 1, 2, 3][choice] };
        match dtype {
            DType::Float16 => bytes.extend([0u16, 0x3c00, 0x4000, 0x4200][usize::from(value)].to_ne_bytes()),
            DType::Bfloat16 => bytes.extend(((f32::from(value).to_bits() >> 16) as u16).to_ne_bytes()),
            DType::Float32 => bytes.extend(f32::from(value).to_ne_bytes()),
            DType::Float64 => bytes.extend(f64::from(value).to_ne_bytes()),
            _ => bytes.extend(&u64::from(value).to_le_bytes()[..dtype.size()]),
        }
    }
    bytes
}

/// All inputs folded one after another, in order of rank.
pub(super) fn folded(call: Call, inputs: &[Vec<u8>]) -> Vec<u8> {
    let (dtype, op) = (call.dtype.expect("it has a type"), call.op.expect("it has an operation"));
    if op == ReduceOp::Avg && inputs.len() > 1 && super::widen_test::is_narrow(dtype) {
        return super::widen_test::averaged(dtype, &inputs.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
    let mut result = inputs[0].clone();
    for input in &inputs[1..] {
        kernels::reduce_slices(op, dtype, &mut result, input, false);
    }
    if op == ReduceOp::Avg && inputs.len() > 1 {
        kernels::divide_slice(dtype, &mut result, inputs.len() as u32);
    }
    result
}

fn check_allreduce(size: u32, dtype: DType, op: ReduceOp, count: u64, random: &mut Random) {
    let call = Call { op: Some(op), ..call(CallKind::Allreduce, dtype, count) };
    let inputs: Vec<Vec<u8>> = (0..size).map(|_| exact_elements(random, dtype, op, count)).collect();
    let expected = folded(call, &inputs);
    for algorithm in algorithms(CallKind::Allreduce, size) {
        for in_place in IN_PLACE {
            let seed = random.next();
            let outcome = run(algorithm, call, &inputs, in_place, seed);
            let right = outcome.outputs.iter().all(|output| *output == expected);
            assert!(right, "{algorithm:?}, {call}, {size} ranks, {in_place:?}, seed {seed}: a wrong result");
            check_rounds(algorithm, size, outcome.rounds);
        }
    }
}

pub(super) fn check_rounds(algorithm: &Algorithm, size: u32, taken: u32) {
    let least = rounds(size);
    let allowed = match algorithm.name {
        "dissemination" | "binomial" | "doubling" | "bruck" | "gather" => least,
        "tree" if algorithm.kind == CallKind::Allreduce => (2 * least).saturating_sub(1),
        "tree" => least + 1,
        "halving" => 2 * least,
        // Twice as many frames where blocks reach round the end, but those follow each other without waiting.
        "circulant" => 4 * least,
        _ => return,
    };
    assert!(taken <= allowed, "{algorithm:?}, {size} ranks: {taken} rounds, {allowed} would do");
}

#[test]
fn allreduce_is_right_for_every_size() {
    let mut random = Random(1);
    for size in 1..=64 {
        for count in [1, 67, u64::from(size) * 3 + 1] {
            check_allreduce(size, DType::Int32, ReduceOp::Sum, count, &mut random);
        }
    }
}

#[test]
fn allreduce_is_right_for_every_count() {
    let mut random = Random(2);
    for size in 1..=17 {
        for count in counts(size) {
            check_allreduce(size, DType::Float32, ReduceOp::Avg, count, &mut random);
        }
    }
}

#[test]
fn allreduce_is_right_for_every_type_and_operation() {
    let mut random = Random(3);
    for size in [1, 2, 3, 4, 7, 8] {
        for dtype in DType::ALL {
            for op in ReduceOp::ALL.into_iter().filter(|op| op.is_for(dtype) && !op.is_exact()) {
                check_allreduce(size, dtype, op, 41, &mut random);
            }
        }
    }
}

/// Elements stand for functions x -> ax + b, with a in the lower half of their bits and b in the upper; elements of the
/// caller's own size use their first eight bytes for this. The operation does the lower rank's function first and then
/// the higher's. It does not commute. The bits beyond these bytes come from the lower rank.
pub(super) fn compose(call: &Call, mine: &mut [u8], other: &[u8], other_lower: bool) {
    let element = call.dtype.expect("it has a type").size();
    assert!(mine.len().is_multiple_of(element), "{call}: an element is split in {} bytes", mine.len());
    let size = element.min(8);
    let half = 4 * size;
    let mask = (1u64 << half) - 1;
    let halves = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..size].copy_from_slice(&bytes[..size]);
        let word = u64::from_le_bytes(word);
        (word & mask, word >> half)
    };
    for (mine, other) in mine.chunks_mut(element).zip(other.chunks(element)) {
        let (low, high) = if other_lower { (halves(other), halves(mine)) } else { (halves(mine), halves(other)) };
        let factor = low.0.wrapping_mul(high.0) & mask;
        let addend = high.0.wrapping_mul(low.1).wrapping_add(high.1) & mask;
        mine[..size].copy_from_slice(&(factor | addend << half).to_le_bytes()[..size]);
        if other_lower {
            mine[size..].copy_from_slice(&other[size..]);
        }
    }
}

#[test]
fn what_does_not_commute_is_folded_in_rank_order_where_that_is_promised() {
    let mut random = Random(7);
    let call = Call { op: Some(ReduceOp::Sum), ..call(CallKind::Allreduce, DType::Uint64, 70) };
    for size in 1..=33 {
        let inputs: Vec<Vec<u8>> = (0..size).map(|_| random_bytes(&mut random, 70 * 8)).collect();
        let mut expected = inputs[0].clone();
        inputs[1..].iter().for_each(|input| compose(&call, &mut expected, input, false));
        for algorithm in algorithms(CallKind::Allreduce, size).filter(|algorithm| algorithm.in_rank_order) {
            for in_place in IN_PLACE {
                let outputs = run_with(compose, algorithm, call, &inputs, in_place, random.next(), &[]).outputs;
                let right = outputs.iter().all(|output| *output == expected);
                assert!(right, "{algorithm:?}, {size} ranks, {in_place:?}: not in rank order");
            }
        }
    }
}

#[test]
fn allgather_is_right() {
    let mut random = Random(5);
    for size in (1..=17).chain([32, 33, 63, 64]) {
        for count in counts(size).into_iter().filter(|count| size <= 17 || *count < 100) {
            let inputs: Vec<Vec<u8>> = (0..size).map(|_| random_bytes(&mut random, count as usize)).collect();
            let call = call(CallKind::Allgather, DType::Int8, count);
            for algorithm in algorithms(CallKind::Allgather, size) {
                for in_place in IN_PLACE {
                    let outcome = run(algorithm, call, &inputs, in_place, random.next());
                    let right = outcome.outputs.iter().all(|output| *output == inputs.concat());
                    assert!(right, "{algorithm:?}, {call}, {size} ranks, {in_place:?}: a wrong result");
                    check_rounds(algorithm, size, outcome.rounds);
                }
            }
        }
    }
}

fn check_broadcast(size: u32, root: u32, count: u64, random: &mut Random) {
    let inputs: Vec<Vec<u8>> = (0..size).map(|_| random_bytes(random, count as usize)).collect();
    let call = Call { root: Some(root), ..call(CallKind::Broadcast, DType::Uint8, count) };
    for algorithm in algorithms(CallKind::Broadcast, size) {
        let outcome = run(algorithm, call, &inputs, InPlace::Nobody, random.next());
        let right = outcome.outputs.iter().all(|output| *output == inputs[root as usize]);
        assert!(right, "{algorithm:?}, {call}, {size} ranks: a wrong result");
        check_rounds(algorithm, size, outcome.rounds);
    }
}

#[test]
fn broadcast_is_right() {
    let mut random = Random(6);
    for size in 1..=17 {
        for root in 0..size {
            for count in [0, 1, 128, 4108] {
                check_broadcast(size, root, count, &mut random);
            }
        }
    }
    for size in [31, 32, 33, 64] {
        check_broadcast(size, size / 2, u64::from(size) + 1, &mut random);
    }
    for size in [1, 2, 3, 5] {
        for count in [256 * 1024, 3 * 256 * 1024 + 5] {
            check_broadcast(size, size - 1, count, &mut random);
        }
    }
}

#[test]
fn barrier_ends_in_as_few_rounds_as_possible() {
    let call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
    for size in 1..=64 {
        for algorithm in algorithms(CallKind::Barrier, size).filter(|it| it.name == "dissemination") {
            for seed in 0..4 {
                let outcome = run(algorithm, call, &vec![Vec::new(); size as usize], InPlace::Nobody, seed);
                assert_eq!(outcome.rounds, rounds(size));
            }
        }
    }
}

/// One rank in a barrier: how far it is, which ranks it has heard of, and whether its present step has begun.
#[derive(Clone)]
struct Comer {
    step: u32,
    heard: u64,
    has_sent: bool,
    done: bool,
}

#[test]
fn nobody_leaves_a_barrier_before_everybody_has_come() {
    // Which rank has heard from which is a matter of the schedule: every frame brings all that its sender has heard of.
    let call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
    for (size, algorithm) in (1..=64u32).flat_map(|size| algorithms(CallKind::Barrier, size).map(move |it| (size, it)))
    {
        let comer = |rank: u32| Comer { step: 0, heard: 1u64 << rank, has_sent: false, done: false };
        let mut ranks: Vec<Comer> = (0..size).map(comer).collect();
        let mut frames: BTreeMap<(u32, u32), VecDeque<u64>> = BTreeMap::new();
        for _ in 0..20 * size {
            for rank in 0..size {
                let shape = Shape { rank, size, call, in_place: false, layout: None };
                let me = &mut ranks[rank as usize];
                let super::Action::Exchange { send, receive } = algorithm.step(&shape, me.step) else {
                    me.done = true;
                    continue;
                };
                if let Some((to, _)) = send.filter(|_| !me.has_sent) {
                    frames.entry((rank, to)).or_default().push_back(me.heard);
                }
                me.has_sent = true;
                if let Some((from, _)) = receive {
                    let Some(heard) = frames.get_mut(&(from, rank)).and_then(VecDeque::pop_front) else { continue };
                    me.heard |= heard;
                }
                (me.step, me.has_sent) = (me.step + 1, false);
            }
        }
        assert!(ranks.iter().all(|rank| rank.done && rank.heard.count_ones() == size), "{size} ranks, {algorithm:?}");
        assert!(frames.values().all(VecDeque::is_empty), "{size} ranks, {algorithm:?}");
    }
}

#[test]
fn every_call_has_an_algorithm_and_all_ranks_choose_it() {
    for &kind in KINDS {
        for size in 1..=64 {
            for count in [0, 1, 1 << 10, 1 << 20, 1 << 40] {
                for op in [ReduceOp::Sum, ReduceOp::User { number: 0, commutative: false }, ReduceOp::SumExact] {
                    let call = Call { op: Some(op), root: Some(0), ..call(kind, DType::Int8, count) };
                    let shape = |rank, in_place| Shape { rank, size, call, in_place, layout: None };
                    let first = choose(&shape(0, false), &Thresholds::default());
                    assert!(first.in_rank_order || op.is_commutative(), "{first:?} for {call}");
                    for rank in 0..size {
                        for in_place in [false, true] {
                            let chosen = choose(&shape(rank, in_place), &Thresholds::default());
                            assert!(std::ptr::eq(first, chosen), "{kind}, {size} ranks, count {count}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_algorithm_is_chosen_for_something() {
    for algorithm in ALGORITHMS.iter().chain(EXACT) {
        let thresholds = [Thresholds::default(), Thresholds::for_one_host(2, 1)];
        let user = ReduceOp::User { number: 0, commutative: false };
        let ops = [ReduceOp::Sum, user, ReduceOp::SumExact, ReduceOp::SumOfAddends];
        let chosen = (1..=33).any(|size| {
            (0..=30).any(|bits| {
                ops.into_iter().any(|op| {
                    let call = Call { op: Some(op), root: Some(0), ..call(algorithm.kind, DType::Int8, 1 << bits) };
                    let shape = Shape { rank: 0, size, call, in_place: false, layout: None };
                    thresholds.iter().any(|thresholds| std::ptr::eq(choose(&shape, thresholds), algorithm))
                })
            })
        });
        assert!(chosen, "{algorithm:?} is never chosen");
    }
}
