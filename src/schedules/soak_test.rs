//! Calls drawn by seed: any kind, type, operation, root, size and count, on every algorithm that may carry them out.
//! The test is in `sim`, because the environment says how many calls are tried.

use super::own_elements_test::add;
use super::parts_test::{call, case, root, Case};
use super::simulation::Random;
use super::simulation_test::{compose, exact_elements, random_bytes, KINDS};
use crate::types::{CallKind, DType, ReduceOp};

fn reduces(kind: CallKind) -> bool {
    use CallKind::{Allreduce, Reduce, ReduceScatter, ReduceScatterv};
    matches!(kind, Allreduce | Reduce | ReduceScatter | ReduceScatterv)
}

fn try_one(seed: u64, sizes: usize, counts: usize) {
    let mut random = Random(seed);
    let kinds: Vec<CallKind> = KINDS.iter().copied().filter(|kind| *kind != CallKind::Barrier).collect();
    let kind = kinds[random.below(kinds.len())];
    let size = 1 + random.below(sizes) as u32;
    let own_sizes = [3, 24].map(DType::Element);
    let at = random.below(DType::ALL.len() + own_sizes.len());
    let dtype = DType::ALL.get(at).copied().unwrap_or_else(|| own_sizes[at - DType::ALL.len()]);
    let ordered = random.below(2) == 0;
    let own = ReduceOp::ALL[random.below(if dtype.is_integer() { 8 } else { 5 })];
    let op = match ordered {
        true => ReduceOp::User { number: 0, commutative: false },
        false if dtype.is_opaque() => ReduceOp::Given { commutative: true },
        false => own,
    };
    let count = [0, 1, random.below(counts) as u64][random.below(3)];
    let root = root(&mut random, kind, size);
    println!("seed {seed}: {kind}, {size} ranks, {dtype}, {op}, count {count}");
    if !reduces(kind) || op.is_users() {
        let call = call(kind, dtype, count, reduces(kind).then_some(op), root);
        let input = |random: &mut Random, count: u64| random_bytes(random, count as usize * dtype.size());
        let case = case(&mut random, call, size, counts, input);
        let fold = if op.is_commutative() { add } else { compose };
        return Case { fold, ..case }.check(&mut random, ordered);
    }
    let call = call(kind, dtype, count, Some(op), root);
    let input = |random: &mut Random, count| exact_elements(random, dtype, op, count);
    case(&mut random, call, size, counts, input).check(&mut random, false);
}

/// Tries so many calls, of at most so many ranks and elements.
pub(crate) fn try_calls(calls: u64, sizes: usize, counts: usize) {
    for seed in 0..calls {
        try_one(seed, sizes, counts);
    }
}
