//! Brings the clocks of several hosts together. Processes of one host have read one clock. Between two hosts there are
//! two signs:
//!
//! - All nodes learn at about the same time that an epoch is complete.
//! - No rank leaves a collective that needs all before the last one has come. So each such collective gives a lower and
//!   an upper bound for how far apart two clocks are. All of them together give narrow bounds.

use super::read::Trace;
use super::waits::needs_all;
use std::collections::{BTreeMap, HashMap};

/// How well the clocks were brought together.
#[derive(Debug, PartialEq)]
pub struct Clocks {
    /// How many clocks there were.
    pub count: usize,
    /// How many microseconds a clock may still be off, as far as that is known; nothing if no collective joined two
    /// clocks.
    pub error_us: Option<f64>,
}

/// Sets every trace's shift. Its times plus the shift are times of the first trace's clock.
pub fn align(traces: &mut [Trace]) -> Clocks {
    let mut by_clock: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, trace) in traces.iter().enumerate() {
        by_clock.entry(trace.clock.clone()).or_default().push(number);
    }
    // First every trace is put on its host's clock.
    let zero = traces.first().map_or(0.0, |first| first.clock_us);
    traces.iter_mut().for_each(|trace| trace.shift = trace.clock_us - zero);
    let Some(first) = traces.first().map(|trace| trace.clock.clone()) else {
        return Clocks { count: 0, error_us: None };
    };
    let (count, reference) = (by_clock.len(), by_clock.remove(&first).expect("the first trace has a clock"));
    let mut error_us = Some(0.0_f64);
    for others in by_clock.values() {
        let (shift, error) = apart(traces, &reference, others);
        others.iter().for_each(|number| traces[*number].shift += shift);
        error_us = error_us.zip(error).map(|(worst, error)| worst.max(error));
    }
    let earliest = traces.iter().flat_map(first_time).fold(f64::INFINITY, f64::min);
    if earliest.is_finite() {
        traces.iter_mut().for_each(|trace| trace.shift -= earliest);
    }
    Clocks { count, error_us }
}

/// The time of its first event.
fn first_time(trace: &Trace) -> Option<f64> {
    let epochs = trace.epochs.iter().map(|(_, at)| *at);
    epochs.chain(trace.calls.iter().map(|call| call.begun)).min_by(f64::total_cmp).map(|at| at + trace.shift)
}

/// What to add to the times of these others, and by how much that may be off.
fn apart(traces: &[Trace], reference: &[usize], others: &[usize]) -> (f64, Option<f64>) {
    let (here, there) = (calls(traces, reference), calls(traces, others));
    let (mut least, mut most) = (f64::NEG_INFINITY, f64::INFINITY);
    for (key, (last_here, first_out_here)) in &here {
        if let Some((last_there, first_out_there)) = there.get(key) {
            least = least.max(last_here - first_out_there);
            most = most.min(first_out_here - last_there);
        }
    }
    if least.is_finite() {
        return ((least + most) / 2.0, Some((most - least).abs() / 2.0));
    }
    (by_forming(traces, reference, others), None)
}

/// For each collective that needs all: when the last of these ranks began it, and when the first of them left it.
fn calls(traces: &[Trace], of: &[usize]) -> HashMap<(u64, u64, u64), (f64, f64)> {
    let mut found = HashMap::new();
    for trace in of.iter().map(|number| &traces[*number]) {
        for call in trace.calls.iter().filter(|call| call.is_ok && needs_all(call.kind)) {
            let (last, out) = found.entry(call.key).or_insert((f64::NEG_INFINITY, f64::INFINITY));
            *last = last.max(call.begun + trace.shift);
            *out = out.min(call.ended + trace.shift);
        }
    }
    found
}

/// The shift by the newest epoch that both have seen begin.
fn by_forming(traces: &[Trace], reference: &[usize], others: &[usize]) -> f64 {
    let began = |of: &[usize]| {
        let mut began: BTreeMap<u64, f64> = BTreeMap::new();
        for trace in of.iter().map(|number| &traces[*number]) {
            for (epoch, at) in &trace.epochs {
                let first = began.entry(*epoch).or_insert(f64::INFINITY);
                *first = first.min(at + trace.shift);
            }
        }
        began
    };
    let (here, there) = (began(reference), began(others));
    here.iter().rev().find_map(|(epoch, at)| Some(at - there.get(epoch)?)).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::read::testing::{call, trace};
    use super::*;
    use muster::types::CallKind::{Allreduce, Broadcast};

    /// The same moment on every clock: ranks 0 and 1 share one, the others have their own.
    fn moments(traces: &[Trace]) -> Vec<f64> {
        traces.iter().map(|trace| trace.epochs[0].1 + trace.shift).collect()
    }

    #[test]
    fn one_host_needs_nothing_but_its_clock() {
        let mut traces = vec![trace(0, "a", 1000.0), trace(1, "a", 1500.0)];
        traces[0].epochs = vec![(1, 500.0)];
        traces[1].epochs = vec![(1, 0.0)];
        assert_eq!(align(&mut traces), Clocks { count: 1, error_us: Some(0.0) });
        assert_eq!(moments(&traces), [0.0, 0.0]);
    }

    #[test]
    fn collectives_say_how_far_clocks_are_apart() {
        let mut traces = vec![trace(0, "a", 0.0), trace(1, "b", 70_000.0)];
        // The second clock is 1,000 us ahead, and its forming was heard 300 us late.
        for (trace, ahead, late) in [(0, 0.0, 0.0), (1, 1000.0, 300.0)] {
            let (skew, own) = (ahead - traces[trace].clock_us, &mut traces[trace]);
            own.epochs = vec![(1, late + skew)];
            let times = [[(100.0, 220.0), (200.0, 240.0)], [(500.0, 530.0), (480.0, 520.0)]];
            for (sequence, ranks) in (1..).zip(times) {
                let (begun, ended) = ranks[trace];
                own.calls.push(call(Allreduce, sequence, trace as u64, begun + skew, ended + skew));
            }
        }
        let clocks = align(&mut traces);
        assert_eq!(clocks, Clocks { count: 2, error_us: Some(20.0) });
        let apart = traces[1].calls[0].begun + traces[1].shift - traces[0].calls[0].begun - traces[0].shift;
        assert!((apart - 100.0).abs() <= 20.0, "{apart}");
    }

    #[test]
    fn without_them_the_forming_says_it() {
        let mut traces = vec![trace(0, "a", 0.0), trace(1, "b", 9000.0)];
        traces[0].epochs = vec![(1, 0.0), (2, 50.0)];
        traces[1].epochs = vec![(2, 3.0)];
        traces[1].calls = vec![call(Broadcast, 1, 1, 7.0, 8.0)];
        assert_eq!(align(&mut traces), Clocks { count: 2, error_us: None });
        assert_eq!(traces[1].epochs[0].1 + traces[1].shift, traces[0].epochs[1].1 + traces[0].shift);
    }
}
