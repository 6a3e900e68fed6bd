//! Which rank a collective waited for, and how long: the last that began it, or the root if only that is needed. Of a
//! collective that failed it is the one rank that has not recorded it: that rank did not come, or did not live to write it down.

use super::read::{Recorded, Trace};
use muster::types::CallKind;
use std::collections::{BTreeSet, HashMap};

/// Waits shorter than this, in microseconds, are not told: the clocks are no better.
pub const LEAST_US: f64 = 1.0;

/// A rank in a collective waited for another, for so long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    pub us: f64,
    /// The trace of the other.
    pub late: usize,
}

/// The sums over one trace's collectives: its own time, and how long others waited for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sum {
    /// How long the rank was in collectives, and how long it waited there.
    pub inside_us: f64,
    pub waited_us: f64,
    /// How many collectives it was the last to begin, so that others waited; and how long they waited, all together.
    pub last: u64,
    pub caused_us: f64,
}

/// All waits: for each trace, of each of its collectives; and the sums.
pub struct Waits {
    pub of: Vec<Vec<Option<Wait>>>,
    pub sums: Vec<Sum>,
}

/// Whether no rank can leave such a collective before every rank has come.
pub fn needs_all(kind: CallKind) -> bool {
    !matches!(kind, CallKind::Broadcast | CallKind::Scatter | CallKind::Scatterv) && !gathers(kind)
}

/// Whether only the root waits for others.
fn gathers(kind: CallKind) -> bool {
    matches!(kind, CallKind::Reduce | CallKind::Gather | CallKind::Gatherv)
}

/// Finds the waits. The traces are on one clock.
pub fn of(traces: &[Trace]) -> Waits {
    let mut together: HashMap<(u64, u64, u64), Vec<(usize, usize)>> = HashMap::new();
    for (number, trace) in traces.iter().enumerate() {
        for (place, call) in trace.calls.iter().enumerate() {
            together.entry(call.key).or_default().push((number, place));
        }
    }
    let of = traces.iter().map(|trace| vec![None; trace.calls.len()]).collect();
    let mut waits = Waits { of, sums: vec![Sum::default(); traces.len()] };
    for (number, trace) in traces.iter().enumerate() {
        // The sum of no numbers is -0.
        waits.sums[number].inside_us = trace.calls.iter().map(|call| call.ended - call.begun).sum::<f64>() + 0.0;
    }
    // The traces that have recorded anything of a group, by epoch and group.
    let mut groups: HashMap<(u64, u64), BTreeSet<usize>> = HashMap::new();
    for ((epoch, group, _), members) in &together {
        groups.entry((*epoch, *group)).or_default().extend(members.iter().map(|(number, _)| *number));
    }
    for ((epoch, group, _), members) in &together {
        let has_failed = members.iter().all(|(number, place)| !traces[*number].calls[*place].is_ok);
        let absent = if has_failed { absent(&groups[&(*epoch, *group)], members) } else { Vec::new() };
        match &absent[..] {
            [] => one(traces, members, &mut waits),
            [absent] => in_vain(traces, members, *absent, &mut waits),
            _ => {} // nobody knows for which of them the others waited
        }
    }
    waits
}

/// The traces of a group that have not recorded this collective.
fn absent(group: &BTreeSet<usize>, members: &[(usize, usize)]) -> Vec<usize> {
    let came: BTreeSet<usize> = members.iter().map(|(number, _)| *number).collect();
    group.difference(&came).copied().collect()
}

/// A collective that failed, for which this rank did not come: the others waited for it to the end.
fn in_vain(traces: &[Trace], members: &[(usize, usize)], absent: usize, waits: &mut Waits) {
    let mut caused = 0.0;
    for (number, place) in members {
        let call = &traces[*number].calls[*place];
        let us = call.ended - call.begun;
        if us >= LEAST_US {
            waits.of[*number][*place] = Some(Wait { us, late: absent });
            waits.sums[*number].waited_us += us;
            caused += us;
        }
    }
    if caused > 0.0 {
        waits.sums[absent].last += 1;
        waits.sums[absent].caused_us += caused;
    }
}

/// One collective: trace and place of each rank's part.
fn one(traces: &[Trace], members: &[(usize, usize)], waits: &mut Waits) {
    let call = |&(number, place): &(usize, usize)| &traces[number].calls[place];
    let begun = |member: &(usize, usize)| call(member).begun + traces[member.0].shift;
    let is_root = |call: &Recorded| call.root == Some(call.rank);
    let kind = call(&members[0]).kind;
    let roots = members.iter().filter(|member| needs_all(kind) || gathers(kind) || is_root(call(member)));
    let Some(awaited) = roots.max_by(|one, other| begun(one).total_cmp(&begun(other))) else { return };
    let mut caused = 0.0;
    for member in members.iter().filter(|member| !gathers(kind) || is_root(call(member))) {
        let us = begun(awaited).min(call(member).ended + traces[member.0].shift) - begun(member);
        if us >= LEAST_US {
            waits.of[member.0][member.1] = Some(Wait { us, late: awaited.0 });
            waits.sums[member.0].waited_us += us;
            caused += us;
        }
    }
    if caused > 0.0 {
        waits.sums[awaited.0].last += 1;
        waits.sums[awaited.0].caused_us += caused;
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::testing::{call, trace};
    use super::*;
    use muster::types::CallKind::{Barrier, Broadcast, Gather};

    /// Three ranks that begin at these times and end at 50; rank 0 is the root.
    fn waited(kind: CallKind, begun: [f64; 3]) -> Vec<Option<(f64, usize)>> {
        let traces: Vec<Trace> = (0..3)
            .map(|rank| {
                let mut trace = trace(rank, "a", 0.0);
                trace.shift = 10.0 * rank as f64;
                trace.calls = vec![call(kind, 1, rank, begun[rank as usize] - trace.shift, 50.0 - trace.shift)];
                trace
            })
            .collect();
        let waits = of(&traces);
        let (waited, caused): (f64, f64) =
            waits.sums.iter().fold((0.0, 0.0), |sum, own| (sum.0 + own.waited_us, sum.1 + own.caused_us));
        assert_eq!(waited, caused);
        waits.of.iter().map(|own| own[0].map(|wait| (wait.us, wait.late))).collect()
    }

    #[test]
    fn the_last_rank_is_waited_for() {
        assert_eq!(waited(Barrier, [0.0, 30.0, 20.0]), [Some((30.0, 1)), None, Some((10.0, 1))]);
        assert_eq!(waited(Barrier, [5.0, 5.5, 5.5]), [None; 3]);
        assert_eq!(
            waited(Barrier, [0.0, 70.0, 0.0]),
            [Some((50.0, 1)), None, Some((50.0, 1))],
            "no longer than the call"
        );
    }

    #[test]
    fn a_rank_that_did_not_come_is_waited_for_to_the_end_of_a_call_that_failed() {
        let mut traces: Vec<Trace> = (0..3).map(|rank| trace(rank, "a", 0.0)).collect();
        for (rank, trace) in traces.iter_mut().enumerate() {
            trace.calls = vec![call(Barrier, 1, rank as u64, 0.0, 10.0)];
        }
        for (rank, begun) in [(0, 20.0), (2, 50.0)] {
            let failed = Recorded { is_ok: false, ..call(Barrier, 2, rank as u64, begun, 100.0) };
            traces[rank].calls.push(failed);
        }
        let waits = of(&traces);
        assert_eq!(waits.of[0][1], Some(Wait { us: 80.0, late: 1 }));
        assert_eq!(waits.of[2][1], Some(Wait { us: 50.0, late: 1 }));
        assert_eq!((waits.sums[1].last, waits.sums[1].caused_us), (1, 130.0));
        let failed = traces[2].calls.pop();
        assert_eq!(of(&traces).of[0][1], None, "nobody knows for which of two it waited");
        traces[2].calls.extend(failed);
        traces[0].calls[1].is_ok = true; // it went well, so all had come: a record is missing
        assert_eq!(of(&traces).of[0][1], Some(Wait { us: 30.0, late: 2 }));
    }

    #[test]
    fn a_root_that_gives_is_waited_for_and_one_that_takes_waits() {
        assert_eq!(waited(Broadcast, [20.0, 30.0, 0.0]), [None, None, Some((20.0, 0))]);
        assert_eq!(waited(Gather, [0.0, 30.0, 10.0]), [Some((30.0, 1)), None, None]);
    }
}
