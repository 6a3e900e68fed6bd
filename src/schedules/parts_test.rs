//! The collectives in which each rank has a part, or only the root has a result, against computed answers.

use super::simulation::{fold_with_kernels, run_with, Fold, InPlace, Random, JUNK};
use super::simulation_test::{algorithms, check_rounds, compose, exact_elements, random_bytes, IN_PLACE};
use super::widen_test as widen;
use super::{kernels, Layout, Parts};
use crate::types::{hash, Call, CallKind, DType, ReduceOp};

/// The sizes that the tests try.
const SIZES: [u32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17];

/// One call, as all ranks make it.
pub(super) struct Case {
    pub call: Call,
    pub size: u32,
    pub layouts: Vec<Layout>,
    pub inputs: Vec<Vec<u8>>,
    pub fold: Fold,
}

impl Case {
    fn element(&self) -> usize {
        self.call.dtype.expect("it has a type").size()
    }

    /// How many elements go from one rank to another.
    fn count(&self, from: usize, to: usize) -> u64 {
        let (at_root, layout) = (self.call.root == Some(to as u32), |rank: usize| &self.layouts[rank]);
        match self.call.kind {
            CallKind::Allgather | CallKind::Alltoall | CallKind::ReduceScatter => self.call.count,
            CallKind::Reduce | CallKind::Allreduce => self.call.count,
            CallKind::Broadcast => self.call.count * u64::from(self.call.root == Some(from as u32)),
            CallKind::Gather => self.call.count * u64::from(at_root),
            CallKind::Gatherv => layout(from).own * u64::from(at_root),
            CallKind::Scatter => self.call.count * u64::from(self.call.root == Some(from as u32)),
            CallKind::Scatterv => layout(to).own * u64::from(self.call.root == Some(from as u32)),
            CallKind::Allgatherv => layout(to).output.counts[from],
            CallKind::ReduceScatterv => layout(from).input.counts[to],
            CallKind::Alltoallv => layout(from).input.counts[to],
            _ => unreachable!("not tested here"),
        }
    }

    /// The bytes of a rank's input that are meant for another.
    fn given(&self, from: usize, to: usize) -> &[u8] {
        let parts = self.layouts.get(from).map(|layout| &layout.input).filter(|parts| !parts.counts.is_empty());
        let displ = match self.call.kind {
            CallKind::Scatter | CallKind::Alltoall | CallKind::ReduceScatter => to as u64 * self.call.count,
            _ => parts.map_or(0, |parts| parts.displs[to]),
        };
        let (start, len) = (displ as usize * self.element(), self.count(from, to) as usize * self.element());
        &self.inputs[from][start..start + len]
    }

    /// The place in a rank's output of what comes from another.
    fn place(&self, from: usize, to: usize) -> usize {
        let parts = self.layouts.get(to).map(|layout| &layout.output).filter(|parts| !parts.counts.is_empty());
        let displ = match self.call.kind {
            CallKind::Allgather | CallKind::Gather | CallKind::Alltoall => from as u64 * self.call.count,
            _ => parts.map_or(0, |parts| parts.displs[from]),
        };
        displ as usize * self.element()
    }

    /// The content that a rank's output must have: where, and what.
    fn expected(&self, to: usize) -> Vec<(usize, Vec<u8>)> {
        let ranks = 0..self.size as usize;
        if self.call.op.is_none() {
            let parts = ranks.map(|from| (self.place(from, to), self.given(from, to).to_vec()));
            return parts.filter(|(_, bytes)| !bytes.is_empty()).collect();
        }
        if self.call.kind == CallKind::Reduce && self.call.root != Some(to as u32) {
            return Vec::new();
        }
        let dtype = self.call.dtype.expect("it has a type");
        if self.call.op == Some(ReduceOp::Avg) && self.size > 1 && widen::is_narrow(dtype) {
            let given: Vec<&[u8]> = ranks.map(|from| self.given(from, to)).collect();
            return vec![(0, widen::averaged(dtype, &given))];
        }
        let mut result = self.given(0, to).to_vec();
        ranks.skip(1).for_each(|from| (self.fold)(&self.call, &mut result, self.given(from, to), false));
        if self.call.op == Some(ReduceOp::Avg) && self.size > 1 {
            kernels::divide_slice(dtype, &mut result, self.size);
        }
        vec![(0, result)]
    }

    pub(super) fn check(&self, random: &mut Random, only_in_rank_order: bool) {
        let fits = |in_rank_order| in_rank_order || !only_in_rank_order;
        for algorithm in algorithms(self.call.kind, self.size).filter(|algorithm| fits(algorithm.in_rank_order)) {
            for in_place in IN_PLACE {
                let seed = random.next();
                let (call, size) = (self.call, self.size);
                let outcome = run_with(self.fold, algorithm, call, &self.inputs, in_place, seed, &self.layouts);
                for (rank, output) in outcome.outputs.iter().enumerate() {
                    let mut expected = vec![JUNK; output.len()];
                    if in_place != InPlace::Nobody {
                        expected.clone_from(output); // between the parts lies what the input held there
                    }
                    for (place, bytes) in self.expected(rank) {
                        expected[place..place + bytes.len()].copy_from_slice(&bytes);
                    }
                    assert!(
                        *output == expected,
                        "{algorithm:?}, {call}, {size} ranks, {in_place:?}, seed {seed}: rank {rank} is wrong"
                    );
                }
                check_rounds(algorithm, size, outcome.rounds);
            }
        }
    }
}

/// Random counts, at random places that do not overlap, in any order and with gaps.
fn parts(random: &mut Random, counts: Vec<u64>) -> Parts {
    let mut order: Vec<usize> = (0..counts.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at + 1));
    }
    let mut displs = vec![0; counts.len()];
    let mut end = 0;
    for rank in order {
        displs[rank] = end + random.below(3) as u64;
        end = displs[rank] + counts[rank];
    }
    Parts { counts, displs }
}

fn without_gaps(counts: Vec<u64>) -> Parts {
    let displs = counts
        .iter()
        .scan(0, |end, count| {
            *end += count;
            Some(*end - count)
        })
        .collect();
    Parts { counts, displs }
}

/// Every rank's layout for this kind of call, and the call with what all must agree on.
fn layouts(random: &mut Random, mut call: Call, size: u32, most: usize) -> (Call, Vec<Layout>) {
    let counts = |random: &mut Random| -> Vec<u64> {
        (0..size).map(|_| if random.below(4) == 0 { 0 } else { random.below(most) as u64 }).collect()
    };
    let ranks = 0..size as usize;
    let all = counts(random);
    let agreed = |call: &mut Call| (call.count, call.layout) = (all.iter().sum(), hash(all.iter().copied()));
    let at_root = |rank: usize| call.root == Some(rank as u32);
    let none = Parts::default;
    let layouts = match call.kind {
        CallKind::Allgatherv => {
            agreed(&mut call);
            ranks.map(|rank| Layout { own: all[rank], input: none(), output: parts(random, all.clone()) }).collect()
        }
        CallKind::ReduceScatterv => {
            agreed(&mut call);
            ranks.map(|rank| Layout { own: all[rank], input: without_gaps(all.clone()), output: none() }).collect()
        }
        CallKind::Gatherv => ranks
            .map(|rank| {
                let output = if at_root(rank) { parts(random, all.clone()) } else { none() };
                Layout { own: all[rank], input: none(), output }
            })
            .collect(),
        CallKind::Scatterv => ranks
            .map(|rank| {
                let input = if at_root(rank) { parts(random, all.clone()) } else { none() };
                Layout { own: all[rank], input, output: none() }
            })
            .collect(),
        CallKind::Alltoallv => {
            // Every other time all ranks' inputs and outputs are laid out alike, so that they can be in place.
            let alike = random.below(2) == 0;
            let mut matrix: Vec<Vec<u64>> = ranks.clone().map(|_| counts(random)).collect();
            if alike {
                let same = matrix.clone();
                for (from, row) in matrix.iter_mut().enumerate() {
                    row.iter_mut().zip(&same).take(from).for_each(|(count, other)| *count = other[from]);
                }
            }
            ranks
                .clone()
                .map(|rank| {
                    let input = parts(random, matrix[rank].clone());
                    let column: Vec<u64> = ranks.clone().map(|from| matrix[from][rank]).collect();
                    let output = if alike { input.clone() } else { parts(random, column) };
                    Layout { own: matrix[rank][rank], input, output }
                })
                .collect()
        }
        _ => Vec::new(),
    };
    (call, layouts)
}

/// How many elements a rank gives.
fn given(call: &Call, size: u32, layouts: &[Layout], rank: usize) -> u64 {
    let extent = |parts: &Parts| parts.counts.iter().zip(&parts.displs).map(|(count, displ)| count + displ).max();
    match call.kind {
        CallKind::Allgather | CallKind::Gather | CallKind::Reduce | CallKind::Allreduce | CallKind::Broadcast => {
            call.count
        }
        CallKind::Alltoall | CallKind::ReduceScatter | CallKind::Scatter => call.count * u64::from(size),
        CallKind::Allgatherv | CallKind::Gatherv => layouts[rank].own,
        _ => extent(&layouts[rank].input).unwrap_or(0),
    }
}

pub(super) fn case(
    random: &mut Random,
    call: Call,
    size: u32,
    most: usize,
    input: impl Fn(&mut Random, u64) -> Vec<u8>,
) -> Case {
    let (call, layouts) = layouts(random, call, size, most);
    let inputs = (0..size as usize).map(|rank| input(random, given(&call, size, &layouts, rank))).collect();
    Case { call, size, layouts, inputs, fold: fold_with_kernels }
}

pub(super) fn call(kind: CallKind, dtype: DType, count: u64, op: Option<ReduceOp>, root: Option<u32>) -> Call {
    Call { kind, dtype: Some(dtype), op, root, count, layout: 0 }
}

const MOVING: [CallKind; 7] = [
    CallKind::Gather,
    CallKind::Gatherv,
    CallKind::Scatter,
    CallKind::Scatterv,
    CallKind::Allgatherv,
    CallKind::Alltoall,
    CallKind::Alltoallv,
];
const REDUCING: [CallKind; 3] = [CallKind::Reduce, CallKind::ReduceScatter, CallKind::ReduceScatterv];

/// A root for the kinds that have one.
pub(super) fn root(random: &mut Random, kind: CallKind, size: u32) -> Option<u32> {
    use CallKind::{Broadcast, Gather, Gatherv, Reduce, Scatter, Scatterv};
    matches!(kind, Broadcast | Gather | Gatherv | Scatter | Scatterv | Reduce)
        .then(|| random.below(size as usize) as u32)
}

#[test]
fn parts_come_where_they_belong_for_every_type() {
    let mut random = Random(11);
    for kind in MOVING {
        for size in SIZES {
            for dtype in DType::ALL {
                let count = [0, 1, random.below(40) as u64][random.below(3)];
                let call = call(kind, dtype, count, None, root(&mut random, kind, size));
                let input = |random: &mut Random, count: u64| random_bytes(random, count as usize * dtype.size());
                case(&mut random, call, size, 20, input).check(&mut random, false);
            }
        }
    }
}

#[test]
fn every_rank_can_be_the_root() {
    let mut random = Random(12);
    for kind in [CallKind::Gather, CallKind::Gatherv, CallKind::Scatter, CallKind::Scatterv] {
        for size in 1..=12 {
            for root in 0..size {
                let call = call(kind, DType::Uint16, 3, None, Some(root));
                let input = |random: &mut Random, count: u64| random_bytes(random, count as usize * 2);
                case(&mut random, call, size, 6, input).check(&mut random, false);
            }
        }
    }
    for size in 1..=12 {
        for root in 0..size {
            let call = call(CallKind::Reduce, DType::Int32, 5, Some(ReduceOp::Sum), Some(root));
            let input = |random: &mut Random, count| exact_elements(random, DType::Int32, ReduceOp::Sum, count);
            case(&mut random, call, size, 6, input).check(&mut random, false);
        }
    }
}

#[test]
fn reductions_are_right_for_every_type_and_operation() {
    let mut random = Random(13);
    for kind in REDUCING {
        for size in [1, 2, 3, 4, 5, 7, 8, 16] {
            for dtype in DType::ALL {
                for op in ReduceOp::ALL.into_iter().filter(|op| op.is_for(dtype) && !op.is_exact()) {
                    let count = [0, 1, random.below(30) as u64][random.below(3)];
                    let call = call(kind, dtype, count, Some(op), root(&mut random, kind, size));
                    let input = |random: &mut Random, count| exact_elements(random, dtype, op, count);
                    case(&mut random, call, size, 12, input).check(&mut random, false);
                }
            }
        }
    }
}

#[test]
fn long_ones_are_right_too() {
    let mut random = Random(14);
    for (kind, count) in [(CallKind::Reduce, 100_003), (CallKind::ReduceScatter, 20_001), (CallKind::Alltoall, 9_000)] {
        for size in [1, 2, 3, 4, 7] {
            let op = (kind != CallKind::Alltoall).then_some(ReduceOp::Avg);
            let call = call(kind, DType::Float64, count, op, root(&mut random, kind, size));
            let input = |random: &mut Random, count| exact_elements(random, DType::Float64, ReduceOp::Avg, count);
            case(&mut random, call, size, 12, input).check(&mut random, false);
        }
    }
}

#[test]
fn what_does_not_commute_is_folded_in_rank_order_piece_by_piece() {
    let mut random = Random(17);
    for kind in [CallKind::Allreduce, CallKind::Reduce] {
        for size in [2, 3, 5, 6] {
            for root in if kind == CallKind::Reduce { 0..size } else { 0..1 } {
                let op = Some(ReduceOp::User { number: 0, commutative: false });
                let root = (kind == CallKind::Reduce).then_some(root);
                let call = call(kind, DType::Uint64, 50_003, op, root);
                let input = |random: &mut Random, count: u64| random_bytes(random, count as usize * 8);
                let case = Case { fold: compose, ..case(&mut random, call, size, 30, input) };
                case.check(&mut random, true);
            }
        }
    }
}

#[test]
fn what_does_not_commute_is_folded_in_rank_order() {
    let mut random = Random(15);
    for kind in [CallKind::Reduce, CallKind::ReduceScatter, CallKind::ReduceScatterv] {
        for size in SIZES {
            for count in [0, 1, 70, 40_000 / u64::from(size)] {
                let op = Some(ReduceOp::User { number: 0, commutative: false });
                let call = call(kind, DType::Uint64, count, op, root(&mut random, kind, size));
                let input = |random: &mut Random, count: u64| random_bytes(random, count as usize * 8);
                let case = Case { fold: compose, ..case(&mut random, call, size, 30, input) };
                case.check(&mut random, true);
            }
        }
    }
}
