//! Ranks that share memory get what ranks get that talk over TCP, to the bit: every kind of call, of lengths that go with a call's
//! line, in one piece and in several, in place and not. So do ranks whose calls change threads, wherever they sleep.

use super::cluster_test::{node_with, plain, scheduler_with};
use super::collectives::call_progress::CallProgress;
use super::collectives::queued_call::Work;
use super::groups::group::Group;
use super::links::upgrade::Upgrade;
use super::memory::buffer::CallBuffers;
use super::node::cluster::Cluster;
use crate::config::Config;
use crate::error::Status;
use crate::schedules::{Layout, Parts};
use crate::types::{Call, CallKind, DType, GroupId, ReduceOp, Time};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const KINDS: [CallKind; 14] = [
    CallKind::Barrier,
    CallKind::Broadcast,
    CallKind::Allreduce,
    CallKind::Allgather,
    CallKind::Reduce,
    CallKind::Gather,
    CallKind::Gatherv,
    CallKind::Scatter,
    CallKind::Scatterv,
    CallKind::ReduceScatter,
    CallKind::ReduceScatterv,
    CallKind::Allgatherv,
    CallKind::Alltoall,
    CallKind::Alltoallv,
];

/// In elements; the last is longer than all pieces that can be under way.
const COUNTS: [usize; 5] = [0, 1, 61, 3_000, 150_001];

/// Types and operations whose results depend on the order, on the width of sums, or on neither.
const REDUCTIONS: [(DType, ReduceOp); 9] = [
    (DType::Float32, ReduceOp::Sum),
    (DType::Float32, ReduceOp::SumExact),
    (DType::Float64, ReduceOp::SumExact),
    (DType::Bfloat16, ReduceOp::SumExact),
    (DType::Float64, ReduceOp::Prod),
    (DType::Bfloat16, ReduceOp::Avg),
    (DType::Float16, ReduceOp::Sum),
    (DType::Int8, ReduceOp::Avg),
    (DType::Uint16, ReduceOp::Xor),
];

/// The results of these are the same in whichever order they are folded.
const UNORDERED: [(DType, ReduceOp); 9] = [
    (DType::Int64, ReduceOp::Avg),
    (DType::Float32, ReduceOp::SumExact),
    (DType::Uint32, ReduceOp::Avg),
    (DType::Int32, ReduceOp::Sum),
    (DType::Uint64, ReduceOp::Prod),
    (DType::Bfloat16, ReduceOp::SumExact),
    (DType::Float64, ReduceOp::Max),
    (DType::Int8, ReduceOp::Avg),
    (DType::Uint16, ReduceOp::Xor),
];

/// What carries the calls.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Over {
    Links,
    Memory,
    /// Memory, with checksums of what lies there.
    Checked,
}

/// Runs a rank's part in clusters of this kind; what each rank returned.
fn run<T: Send>(over: Over, workers: u32, work: impl Fn(&Cluster) -> T + Sync) -> Vec<T> {
    run_on(over, &vec!["one"; workers as usize], work)
}

/// The same on several hosts, that of each rank.
fn run_on<T: Send>(over: Over, hosts: &[&str], work: impl Fn(&Cluster) -> T + Sync) -> Vec<T> {
    let workers = hosts.len() as u32;
    let scheduler = scheduler_with(workers, |config| {
        config.set("shm", if over == Over::Links { "off" } else { "require" }).unwrap();
        config.set("checksums", if over == Over::Checked { "all" } else { "1" }).unwrap();
    });
    let results = std::thread::scope(|scope| {
        let start = |rank: u32| {
            let (scheduler, work) = (&scheduler, &work);
            scope.spawn(move || {
                let set = |config: &mut Config| config.set("host_id", hosts[rank as usize]).unwrap();
                let cluster = node_with(scheduler, workers, rank, plain(), Upgrade::none(), set);
                let result = work(&cluster);
                cluster.finalize().unwrap();
                result
            })
        };
        let ranks: Vec<_> = (0..workers).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    assert!(scheduler.wait(Some(Duration::from_secs(20))).is_some(), "the scheduler ends when all have left");
    results
}

/// Numbers of very different size, of which no sum is exact.
fn numbers(dtype: DType, seed: usize, count: usize) -> Vec<u8> {
    let mut state = seed as u64 * 0x9e37_79b9 + 1;
    let mut bytes = Vec::with_capacity(count * dtype.size());
    for _ in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bits = state ^ state >> 31;
        let number = (bits as i32 as f32) * [1e-9, 1e-4, 1.0, 1e3][(bits >> 40) as usize % 4];
        match dtype {
            DType::Float32 => bytes.extend(number.to_le_bytes()),
            DType::Float64 => bytes.extend(f64::from(number).to_le_bytes()),
            _ => bytes.extend(&bits.to_le_bytes()[..dtype.size()]),
        }
    }
    bytes
}

/// Parts of different sizes, one of them empty, one after another.
fn parts(ranks: usize, count: usize) -> Parts {
    let counts: Vec<u64> = (0..ranks).map(|rank| (count * rank / ranks) as u64).collect();
    let displs = (0..ranks).map(|rank| counts[..rank].iter().sum()).collect();
    Parts { counts, displs }
}

/// How a call is made: returns when it has ended.
type Make<'a> = &'a dyn Fn(&Group, Work<'_>);

/// Calls this, and gives what came of it.
fn outcome(
    (group, make): (&Group, Make<'_>),
    (kind, dtype, op): (CallKind, DType, Option<ReduceOp>),
    count: usize,
    in_place: bool,
) -> Vec<u8> {
    use CallKind::*;
    let (rank, ranks) = (group.rank().unwrap() as usize, group.size() as usize);
    let root = ranks - 1;
    let is_root = rank == root;
    let has_root = matches!(kind, Broadcast | Reduce | Gather | Gatherv | Scatter | Scatterv);
    let unequal = matches!(kind, Gatherv | Scatterv | ReduceScatterv | Allgatherv | Alltoallv);
    let all = parts(ranks, count);
    let (own, sum) = (all.counts[rank] as usize, all.counts.iter().sum::<u64>() as usize);
    let (given, taken) = match kind {
        Barrier | GroupCreate | GroupSplit => (0, 0),
        Broadcast => (0, count),
        Allreduce => (count, count),
        Reduce => (count, if is_root { count } else { 0 }),
        Allgather => (count, count * ranks),
        Gather => (count, if is_root { count * ranks } else { 0 }),
        Scatter => (if is_root { count * ranks } else { 0 }, count),
        ReduceScatter => (count * ranks, count),
        Alltoall => (count * ranks, count * ranks),
        Allgatherv => (own, sum),
        Gatherv => (own, if is_root { sum } else { 0 }),
        Scatterv => (if is_root { sum } else { 0 }, own),
        ReduceScatterv => (sum, own),
        Alltoallv => (own * ranks, sum),
    };
    let layout = unequal.then(|| {
        let equal = Parts { counts: vec![own as u64; ranks], displs: (0..ranks).map(|to| (to * own) as u64).collect() };
        let (input, output) = match kind {
            Allgatherv => (Parts::default(), all.clone()),
            Gatherv if is_root => (Parts::default(), all.clone()),
            Scatterv if is_root => (all.clone(), Parts::default()),
            ReduceScatterv => (all.clone(), Parts::default()),
            Alltoallv => (equal, all.clone()),
            _ => (Parts::default(), Parts::default()),
        };
        Layout { own: own as u64, input, output }
    });
    let known = matches!(kind, ReduceScatterv | Allgatherv);
    let call = Call {
        kind,
        dtype: (kind != Barrier).then_some(dtype),
        op,
        root: has_root.then_some(root as u32),
        count: if unequal { sum as u64 * u64::from(known) } else { count as u64 },
        layout: if known { crate::types::hash(all.counts.iter().copied()) } else { 0 },
    };
    let (mut input, mut output) = (numbers(dtype, rank + count, given), vec![0; taken * dtype.size()]);
    if kind == Broadcast && is_root {
        output = numbers(dtype, count, taken);
    }
    let whole = if given < taken { &mut output } else { &mut input };
    let own = (rank * count * dtype.size())..((rank + 1) * count * dtype.size());
    let buffers = match (in_place, kind) {
        (true, Allreduce | Reduce | Alltoall) if given == taken => CallBuffers::in_one(&mut input),
        (true, Allgather) => {
            whole[own.clone()].copy_from_slice(&numbers(dtype, rank + count, given));
            CallBuffers::with_input_in(whole, own.clone())
        }
        (true, ReduceScatter) => CallBuffers::with_output_in(whole, own.clone()),
        _ => CallBuffers::of(&input, &mut output),
    };
    make(group, Work { layout, ..Work::plain(call, buffers) });
    match (in_place, kind) {
        (true, Allreduce | Reduce | Alltoall) if given == taken => input,
        (true, ReduceScatter) => input[own].to_vec(),
        _ => output,
    }
}

/// Everything, one after another.
fn all_outcomes(cluster: &Cluster, make: Make<'_>, reductions: &[(DType, ReduceOp)]) -> Vec<Vec<u8>> {
    let of = (&*cluster.group(GroupId::WORLD), make);
    let group = of.0;
    for _ in 0..4 {
        outcome(of, (CallKind::Barrier, DType::Uint8, None), 0, false);
    }
    let mut outcomes = Vec::new();
    for kind in KINDS {
        let reduces =
            matches!(kind, CallKind::Allreduce | CallKind::Reduce | CallKind::ReduceScatter | CallKind::ReduceScatterv);
        for count in COUNTS {
            // The longest calls with few types: a debug build takes its time.
            let some = if count > 100_000 { 3 } else { reductions.len() };
            match reduces {
                true => reductions[..some].iter().for_each(|(dtype, op)| {
                    for in_place in [false, true] {
                        outcomes.push(outcome(of, (kind, *dtype, Some(*op)), count, in_place));
                    }
                }),
                false => {
                    let count = count / group.size() as usize;
                    for in_place in [false, true] {
                        outcomes.push(outcome(of, (kind, DType::Uint16, None), count, in_place));
                    }
                }
            }
        }
    }
    outcomes
}

/// The same by calls that return when they are done.
fn at_once(cluster: &Cluster) -> Vec<Vec<u8>> {
    all_outcomes(cluster, &|group, work| group.run(work).unwrap(), &REDUCTIONS)
}

fn assert_equal(ranks: impl Iterator<Item = (Vec<Vec<u8>>, Vec<Vec<u8>>)>, what: &str) {
    for (rank, (one, other)) in ranks.enumerate() {
        let differs = one.iter().zip(&other).position(|(one, other)| one != other);
        assert_eq!((differs, one.len()), (None, other.len()), "{what}, rank {rank}");
    }
}

#[test]
fn results_are_those_of_tcp_to_the_bit() {
    for workers in [2, 3, 5, 8] {
        let over_links = run(Over::Links, workers, at_once);
        for over in [Over::Memory, Over::Checked] {
            let shared = run(over, workers, at_once);
            assert_equal(over_links.clone().into_iter().zip(shared), &format!("{workers} ranks, {over:?}"));
        }
    }
}

/// Ranks of these calls know different counts. One that gives more than is expected is named, as over links.
#[test]
fn a_rank_that_gives_other_counts_is_named() {
    for kind in [CallKind::Gatherv, CallKind::Scatterv, CallKind::Alltoallv] {
        let fails = |cluster: &Cluster| {
            let group = cluster.group(GroupId::WORLD);
            let of = (&*group, &(|group: &Group, work: Work<'_>| group.run(work).unwrap()) as Make<'_>);
            for _ in 0..4 {
                outcome(of, (CallKind::Barrier, DType::Uint8, None), 0, false);
            }
            let cause = std::cell::RefCell::new(String::new());
            let make = |group: &Group, mut work: Work<'_>| {
                let layout = work.layout.as_mut().expect("parts differ");
                let is_odd = group.rank() == Some(if kind == CallKind::Scatterv { 2 } else { 1 });
                // The root of a scatterv gives rank 1 less than that expects; otherwise rank 1 gives rank 2 more.
                match kind {
                    CallKind::Gatherv if is_odd => layout.own += 1,
                    CallKind::Scatterv if is_odd => layout.input.counts[1] -= 1,
                    CallKind::Alltoallv if is_odd => layout.input.counts[2] -= 1,
                    _ => {}
                }
                let longer = vec![0; 4096];
                let mut output = vec![0; 4096];
                let buffers = CallBuffers::of(&longer, &mut output);
                let barrier = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
                // A rank of which nobody expects anything else may end the call.
                let next = |()| group.run(Work::plain(barrier, CallBuffers::of(&[], &mut [])));
                let error = group.run(Work { buffers, ..work }).and_then(next).expect_err("counts differ");
                assert_eq!(error.status(), Status::Mismatch, "{error:?}");
                *cause.borrow_mut() = error.message().to_owned();
            };
            outcome((&*group, &make), (kind, DType::Uint16, None), 9, false);
            cause.into_inner()
        };
        let causes = run(Over::Memory, 3, fails);
        let [giver, taker, given, expected] = match kind {
            CallKind::Gatherv => [1, 2, 4, 3],
            CallKind::Scatterv => [2, 1, 2, 3],
            _ => [1, 2, 2, 3],
        };
        for cause in causes {
            assert!(cause.contains(&format!("rank {giver} ")) && cause.contains(&format!("rank {taker} ")), "{cause}");
            assert!(
                cause.contains(&format!(" {given} elements")) && cause.contains(&format!(" {expected} are expected"))
            );
        }
    }
}

/// The line of a call has the header of the calls before. What is told of a call that differs then is of that call, on each rank.
#[test]
fn a_rank_that_calls_something_else_after_many_equal_calls_is_named() {
    for over in [Over::Memory, Over::Checked] {
        let causes = run(over, 3, |cluster| {
            let group = cluster.group(GroupId::WORLD);
            let of = (&*group, &(|group: &Group, work: Work<'_>| group.run(work).unwrap()) as Make<'_>);
            for _ in 0..12 {
                outcome(of, (CallKind::Allreduce, DType::Float32, Some(ReduceOp::Sum)), 3, false);
            }
            let cause = std::cell::RefCell::new(String::new());
            let make = |group: &Group, work: Work<'_>| {
                let error = group.run(work).expect_err("rank 1 calls something else");
                assert_eq!(error.status(), Status::Mismatch, "{error:?}");
                *cause.borrow_mut() = error.message().to_owned();
            };
            let kind = if group.rank() == Some(1) { CallKind::Allgather } else { CallKind::Allreduce };
            let op = (kind == CallKind::Allreduce).then_some(ReduceOp::Sum);
            outcome((&*group, &make), (kind, DType::Float32, op), 3, false);
            cause.into_inner()
        });
        for cause in causes {
            assert!(
                cause.contains("allgather") && cause.contains("allreduce") && cause.contains("#13"),
                "{over:?}: {cause}"
            );
        }
    }
}

/// A cluster of one enters no short call in its log; another does. What has been started before is done before.
#[test]
fn a_short_call_in_a_cluster_of_one_is_a_copy_and_overtakes_nothing() {
    let sum = |count| {
        let (dtype, op) = (Some(DType::Uint8), Some(ReduceOp::Sum));
        Call { kind: CallKind::Allreduce, dtype, op, root: None, count, layout: 0 }
    };
    let entered = |cluster: &Cluster| {
        let group = cluster.group(GroupId::WORLD);
        let newest = || group.log(|log| log.newest(GroupId::WORLD, Time(0)));
        let (input, mut output) = ([7; 5], [0; 5]);
        group.run(Work::plain(sum(5), CallBuffers::of(&input, &mut output))).unwrap();
        let after_short = newest().map(|newest| newest.entered);
        let (long_input, mut long_output) = (vec![7; 20 << 20], vec![0; 20 << 20]);
        let long = Work::plain(sum(20 << 20), CallBuffers::of(&long_input, &mut long_output).of_request());
        let request = group.start(long).unwrap();
        group.run(Work::plain(sum(5), CallBuffers::of(&input, &mut output))).unwrap();
        assert!(request.wait(Some(Duration::ZERO)).is_some(), "it was called before");
        assert_eq!((output[0], long_output[0]), (7 * group.size() as u8, 7 * group.size() as u8));
        (after_short, newest().map(|newest| newest.entered))
    };
    assert_eq!(run(Over::Links, 1, entered)[0].0, None);
    for (after_short, after_all) in run(Over::Links, 2, entered) {
        assert_eq!((after_short, after_all), (Some(1), Some(3)));
    }
}

/// A progress thread that sleeps holds no place among those that poll.
#[test]
fn a_progress_thread_gives_its_place_back_before_it_sleeps() {
    run(Over::Links, 1, |cluster| {
        let group = cluster.group(GroupId::WORLD);
        let (input, mut output) = (vec![7; 1 << 20], vec![0; 1 << 20]);
        let (dtype, op) = (Some(DType::Uint8), Some(ReduceOp::Sum));
        let call = Call { kind: CallKind::Allreduce, dtype, op, root: None, count: 1 << 20, layout: 0 };
        let work = Work::plain(call, CallBuffers::of(&input, &mut output).of_request());
        group.start(work).unwrap().wait(None).unwrap().unwrap();
        let polling = &group.context.state.polling;
        let begun = Instant::now();
        while polling.has_servants() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it polls for much less");
            std::thread::yield_now();
        }
    });
}

/// Everything by requests for which a thread waits that is interrupted all the time; and how often a call was found that had to
/// change threads in its middle.
fn interrupted(cluster: &Cluster, reductions: &[(DType, ReduceOp)]) -> (Vec<Vec<u8>>, usize) {
    let (is_over, changes) = (AtomicBool::new(false), std::cell::Cell::new(0));
    let outcomes = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                cluster.interrupt();
                // Nothing waits for this: it only leaves the ranks a processor between two interruptions.
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        let make = |group: &Group, work: Work<'_>| {
            let Work { call, layout, list, function, buffers } = work;
            let request = group.start(Work { call, layout, list, function, buffers: buffers.of_request() }).unwrap();
            loop {
                match request.wait_attentively(None) {
                    Ok(outcome) => {
                        outcome.expect("it waits for the end").unwrap();
                        return;
                    }
                    Err(why) => assert_eq!(why.status(), Status::Interrupted, "{why:?}"),
                }
                if let Some(exclusive) = group.collectives.exclusive_if_idle() {
                    let is_begun = !matches!(exclusive.driver.progress, CallProgress::Beginning);
                    changes.set(changes.get() + usize::from(is_begun));
                }
            }
        };
        let outcomes = all_outcomes(cluster, &make, reductions);
        is_over.store(true, Ordering::SeqCst);
        outcomes
    });
    (outcomes, changes.get())
}

fn assert_interrupted(over: Over, hosts: &[&str], reductions: &[(DType, ReduceOp)], expected: Vec<Vec<Vec<u8>>>) {
    let others = run_on(over, hosts, |cluster| interrupted(cluster, reductions));
    let changes: usize = others.iter().map(|(_, changes)| changes).sum();
    let outcomes = others.into_iter().map(|(outcomes, _)| outcomes);
    assert_equal(expected.into_iter().zip(outcomes), &format!("{over:?}, {}", hosts.join(" ")));
    assert!(changes > 10, "{over:?}: {changes} calls changed threads");
}

#[test]
fn a_call_may_change_threads_wherever_it_sleeps() {
    for over in [Over::Links, Over::Memory, Over::Checked] {
        assert_interrupted(over, &["a"; 3], &REDUCTIONS, run(over, 3, at_once));
    }
}

/// On two levels results depend on how many ranks each host has, but for those that come out the same in any order.
#[test]
fn results_on_two_levels_are_those_of_one_level_where_order_does_not_matter() {
    let plain = |cluster: &Cluster| all_outcomes(cluster, &|group, work| group.run(work).unwrap(), &UNORDERED);
    for hosts in [&["a", "a", "a", "a", "b", "b", "b"][..], &["a", "a", "a", "a", "b"], &["a", "b", "a", "b", "c", "b"]]
    {
        let one = run_on(Over::Links, hosts, plain);
        for over in [Over::Memory, Over::Checked] {
            assert_equal(one.clone().into_iter().zip(run_on(over, hosts, plain)), &hosts.join(" "));
        }
        let over = if hosts.len() == 5 { Over::Checked } else { Over::Memory };
        assert_interrupted(over, hosts, &UNORDERED, one);
    }
}

/// A small whole number as one of the half floats.
fn half(dtype: DType, number: u32) -> [u8; 2] {
    let bits = match (dtype, number) {
        (_, 0) => 0,
        (DType::Bfloat16, _) => (number as f32).to_bits() >> 16,
        _ => (15 + number.ilog2()) << 10 | (number << (10 - number.ilog2()) & 0x3ff),
    };
    (bits as u16).to_le_bytes()
}

/// Averages of halves, in place and not, of so few bits that no addition rounds.
fn averages_of_halves(cluster: &Cluster) -> Vec<Vec<u8>> {
    let group = cluster.group(GroupId::WORLD);
    let (rank, ranks) = (group.rank().unwrap(), group.size() as usize);
    let mut outcomes = Vec::new();
    for kind in [CallKind::Allreduce, CallKind::Reduce, CallKind::ReduceScatter] {
        for dtype in [DType::Bfloat16, DType::Float16] {
            for count in [1, 777, 40_001] {
                let (given, taken) = match kind {
                    CallKind::ReduceScatter => (count * ranks, count),
                    CallKind::Reduce if rank != 1 => (count, 0),
                    _ => (count, count),
                };
                let numbers = (0..given as u32).flat_map(|at| half(dtype, (at * 7 + rank * 5) % 61));
                let mut input: Vec<u8> = numbers.collect();
                let call = Call {
                    kind,
                    dtype: Some(dtype),
                    op: Some(ReduceOp::Avg),
                    root: (kind == CallKind::Reduce).then_some(1),
                    count: count as u64,
                    layout: 0,
                };
                let mut output = vec![0; taken * dtype.size()];
                group.run(Work::plain(call, CallBuffers::of(&input, &mut output))).unwrap();
                let own = rank as usize * count * dtype.size()..(rank as usize + 1) * count * dtype.size();
                let (in_place, part) = match kind {
                    CallKind::ReduceScatter => (CallBuffers::with_output_in(&mut input, own.clone()), own),
                    _ if taken == 0 => continue,
                    _ => (CallBuffers::in_one(&mut input), 0..taken * dtype.size()),
                };
                if kind != CallKind::Reduce {
                    group.run(Work::plain(call, in_place)).unwrap();
                    assert_eq!(output, input[part], "{kind} in place");
                }
                outcomes.push(output);
            }
        }
    }
    outcomes
}

/// Exact sums of which each rank brings another number of addends, some of them none.
fn sums_of_addends(cluster: &Cluster) -> Vec<Vec<u8>> {
    let group = cluster.group(GroupId::WORLD);
    let (rank, dtype) = (group.rank().unwrap() as usize, DType::Float32);
    let mut outcomes = Vec::new();
    for count in [0, 1, 61, 3_000, 40_001] {
        for most in [1, 3, 6] {
            let addends = rank * 2 % most;
            let mut input = numbers(dtype, rank + count, addends * count);
            let (op, count) = (Some(ReduceOp::SumOfAddends), count as u64);
            let call = Call { kind: CallKind::Allreduce, dtype: Some(dtype), op, root: None, count, layout: 0 };
            let layout = Layout { own: addends as u64, ..Layout::default() };
            let bytes = count as usize * dtype.size();
            let mut output = vec![0; bytes];
            let buffers = CallBuffers::of(&input, &mut output);
            group.run(Work { layout: Some(layout.clone()), ..Work::plain(call, buffers) }).unwrap();
            // A rank that brings some may do it in place, whatever others do.
            let mut again = vec![0; bytes];
            let buffers = match addends {
                0 => CallBuffers::of(&[], &mut again),
                _ => CallBuffers::with_output_in(&mut input, 0..bytes),
            };
            group.run(Work { layout: Some(layout), ..Work::plain(call, buffers) }).unwrap();
            assert_eq!(output, if addends == 0 { again } else { input[..bytes].to_vec() }, "in place");
            outcomes.push(output);
        }
    }
    outcomes
}

#[test]
fn averages_of_halves_and_sums_of_addends_on_two_levels_are_those_of_one() {
    for hosts in [&["a", "a", "b"][..], &["a", "b", "a", "b", "b", "b"], &["a", "a", "a", "b", "c", "c"]] {
        for work in [averages_of_halves, sums_of_addends] {
            let one = run_on(Over::Links, hosts, work);
            for over in [Over::Memory, Over::Checked] {
                assert_equal(one.clone().into_iter().zip(run_on(over, hosts, work)), &hosts.join(" "));
            }
        }
    }
}
