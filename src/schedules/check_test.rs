//! Calls that make no sense, each named by what is wrong with it.

use super::*;
use crate::types::ReduceOp;

const SIZE: u32 = 4;

fn shape(kind: CallKind, count: u64) -> Shape<'static> {
    let call = Call { kind, dtype: Some(DType::Float64), op: Some(ReduceOp::Sum), root: Some(0), count, layout: 0 };
    Shape { rank: 0, size: SIZE, call, in_place: false, layout: None }
}

fn refused(shape: Shape<'_>, words: &str) {
    let error = shape.check().expect_err("it makes no sense");
    let named = error.message().starts_with(&format!("{}: ", shape.call.kind));
    assert!(named && error.message().contains(words), "{error}");
}

fn parts(counts: [u64; 4], displs: [u64; 4]) -> Parts {
    Parts { counts: counts.to_vec(), displs: displs.to_vec() }
}

fn collectives() -> impl Iterator<Item = CallKind> {
    CallKind::ALL.into_iter().filter(|kind| !matches!(kind, CallKind::GroupCreate | CallKind::GroupSplit))
}

/// A layout that is right for every kind with a count of 10.
fn layout() -> Layout {
    let packed = parts([2, 0, 5, 3], [0, 2, 2, 7]);
    Layout { own: 2, input: packed.clone(), output: packed }
}

#[test]
fn a_call_lacks_what_its_kind_needs() {
    let layout = layout();
    for kind in collectives() {
        let lists = matches!(kind.name().as_bytes(), [.., b'v']);
        let fine = Shape { layout: lists.then_some(&layout), ..shape(kind, 10) };
        assert!(fine.check().is_ok(), "{kind}: {:?}", fine.check());
        if kind == CallKind::Barrier {
            continue;
        }
        refused(Shape { call: Call { dtype: None, ..fine.call }, ..fine }, "an element type is needed");
        let (root, op) = match kind {
            CallKind::Broadcast | CallKind::Gather | CallKind::Gatherv => (true, false),
            CallKind::Scatter | CallKind::Scatterv => (true, false),
            CallKind::Reduce => (true, true),
            CallKind::Allreduce | CallKind::ReduceScatter | CallKind::ReduceScatterv => (false, true),
            _ => (false, false),
        };
        let without_op = Shape { call: Call { op: None, ..fine.call }, ..fine };
        let without_root = Shape { call: Call { root: None, ..fine.call }, ..fine };
        let wrong_root = Shape { call: Call { root: Some(SIZE), ..fine.call }, ..fine };
        if op {
            refused(without_op, "an operation is needed");
        } else {
            assert!(without_op.check().is_ok());
        }
        if root {
            refused(without_root, "the root is none; it must be a rank from 0 to 3");
            refused(wrong_root, "the root is 4; it must be a rank from 0 to 3");
        } else {
            assert!(without_root.check().is_ok());
        }
        if lists {
            refused(Shape { layout: None, ..fine }, "count of every rank's part is needed");
        } else {
            refused(Shape { layout: Some(&layout), ..fine }, "no list of counts belongs here");
        }
    }
    refused(shape(CallKind::GroupCreate, 1), "the scheduler carries it out");
    refused(shape(CallKind::GroupSplit, 0), "the scheduler carries it out");
    assert!(Shape { rank: 4, ..shape(CallKind::Barrier, 0) }.check().is_err());
}

#[test]
fn bitwise_operations_are_for_integers() {
    for op in [ReduceOp::And, ReduceOp::Or, ReduceOp::Xor] {
        for dtype in DType::ALL {
            let fine = shape(CallKind::Reduce, 3);
            let tried = Shape { call: Call { op: Some(op), dtype: Some(dtype), ..fine.call }, ..fine };
            if dtype.is_integer() {
                assert!(tried.check().is_ok());
            } else {
                refused(tried, &format!("{op} is a bitwise operation, and {dtype} is no integer type"));
            }
        }
    }
}

#[test]
fn absurd_counts_are_named() {
    for kind in [CallKind::Broadcast, CallKind::Allreduce, CallKind::Reduce] {
        assert!(shape(kind, (1 << 44) - 1).check().is_ok());
        refused(shape(kind, 1 << 44), "can be addressed");
        refused(shape(kind, u64::MAX), "can be addressed");
    }
    let per_rank =
        [CallKind::Allgather, CallKind::Gather, CallKind::Scatter, CallKind::ReduceScatter, CallKind::Alltoall];
    for kind in per_rank {
        assert!(shape(kind, (1 << 42) - 1).check().is_ok());
        refused(shape(kind, 1 << 42), "can be addressed");
        refused(shape(kind, 1 << 62), "can be addressed");
    }
}

#[test]
fn lists_that_make_no_sense_are_named() {
    let right = layout();
    let check = |kind: CallKind, change: &dyn Fn(&mut Layout), words: &str| {
        let mut wrong = right.clone();
        change(&mut wrong);
        refused(Shape { layout: Some(&wrong), ..shape(kind, 10) }, words);
    };
    for kind in [CallKind::Scatterv, CallKind::ReduceScatterv, CallKind::Alltoallv] {
        check(kind, &|layout| layout.input.counts.truncate(3), "3 counts are given for the parts of the input");
        check(kind, &|layout| layout.input.displs.push(0), "5 displacements are given for the parts of the input");
        check(kind, &|layout| layout.input.counts[0] = 1, "has 2 elements, but 1 in the input's counts");
        check(kind, &|layout| layout.input.counts[3] = u64::MAX, "all parts of the input together");
        check(kind, &|layout| layout.input.displs[2] = u64::MAX, "up to the end of rank 2's part");
    }
    for kind in [CallKind::Gatherv, CallKind::Allgatherv, CallKind::Alltoallv] {
        check(kind, &|layout| layout.output = Parts::default(), "0 counts are given for the parts of the output");
        check(kind, &|layout| layout.output.counts[0] = 3, "has 2 elements, but 3 in the output's counts");
        check(kind, &|layout| layout.output.counts[1] = 1 << 44, "all parts of the output together");
        check(kind, &|layout| layout.output.displs[3] = 1 << 44, "up to the end of rank 3's part");
    }
    let more = |layout: &mut Layout| {
        layout.input.counts[3] += 1;
        layout.output.counts[3] += 1;
    };
    for kind in [CallKind::Allgatherv, CallKind::ReduceScatterv] {
        check(kind, &more, "the count is 10; it must be the sum of all ranks' counts, 11");
    }
    check(CallKind::ReduceScatterv, &|layout| layout.input.displs[2] = 3, "begins at 3; it must follow");
    check(CallKind::Gatherv, &|layout| layout.own = 1 << 44, "this rank's own part comes to");
}

#[test]
fn only_the_root_needs_lists_where_there_is_one() {
    let layout = Layout { own: 9, ..Layout::default() };
    for kind in [CallKind::Gatherv, CallKind::Scatterv] {
        assert!(Shape { rank: 1, layout: Some(&layout), ..shape(kind, 0) }.check().is_ok());
        refused(Shape { layout: Some(&layout), ..shape(kind, 0) }, "0 counts are given");
    }
}

#[test]
fn an_exchange_in_place_has_one_layout() {
    let one = layout();
    let two = Layout { output: parts([2, 5, 0, 3], [0, 2, 7, 7]), ..layout() };
    let apart = shape(CallKind::Alltoallv, 0);
    assert!(Shape { in_place: true, layout: Some(&one), ..apart }.check().is_ok());
    refused(Shape { in_place: true, layout: Some(&two), ..apart }, "must lie where what comes from it will");
    assert!(Shape { layout: Some(&two), ..apart }.check().is_ok());
}
