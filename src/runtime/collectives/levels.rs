//! Carries a collective out on two levels, where a group's members are on several hosts, and some hosts have several
//! members. The members of a host use the memory that they share. One *speaker* of each host uses links to the other
//! hosts' speakers.
//!
//! So a host sends and receives as much as one rank would, and not as much as all of its ranks would.

use super::drive::Plan;
use super::engine::{Collectives, Driver};
use super::hosts::Hosts;
use super::shared::{HostMemory, Levels, PIECE_BYTES_LEAST};
use super::shared_drive::{share, sharing};
use super::stop::{Running, Stop};
use crate::net::shm::LINE_BYTES;
use crate::runtime::memory::buffer::Memory;
use crate::schedules::kernels::UserFunction;
use crate::schedules::{choose, sum_type, Buffer, Layout, Shape, Sharing, Span, Wide};
use crate::types::{Call, CallKind, DType, ReduceOp};

/// One step of a call on two levels. A rank that has no part in a step goes on to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A call among the members of each host; the speaker is the root, where there is one.
    Within(CallKind),
    /// The call itself, among the speakers.
    Between,
    /// Divides the sum of an average, at each speaker that has the result.
    Divide,
    /// Makes a wide copy of this rank's input, for an average of narrow elements. The steps that follow work on the
    /// copy.
    Widen,
    /// Makes the result narrow again, where this rank gets one.
    Narrow,
    /// Puts the ranks' parts of what was folded in the order of hosts, so that the parts of one host follow each other.
    OrderByHosts,
    /// Puts the ranks' parts of the result in the order of ranks.
    OrderByRanks,
}

impl Step {
    pub(super) fn is_within(&self) -> bool {
        matches!(self, Step::Within(_))
    }
}

/// A call puts its ranks' parts a second time into scratch only if all parts together are no longer than this.
const SCRATCH_BYTES_MAX: u64 = 64 << 20;

/// The steps of a call; none where one level is better, or is the only way. All ranks get the same steps.
fn steps(call: &Call, hosts: &Hosts) -> Option<&'static [Step]> {
    use CallKind::{Allgather, Allreduce, Barrier, Broadcast, Gather, Gatherv, Reduce, ReduceScatter, Scatter};
    use Step::{Between, Divide, Narrow, OrderByHosts, OrderByRanks, Widen, Within};
    let is_exact = call.op.is_some_and(ReduceOp::is_exact);
    let wide = call.dtype.filter(|_| call.op == Some(ReduceOp::Avg)).and_then(|dtype| sum_type(dtype, hosts.size()));
    let element = wide.or(call.dtype).map_or(0, DType::size);
    let can_fold = !is_exact && hosts.keep_order(call);
    let bytes = call.count.saturating_mul(element as u64).saturating_mul(hosts.size().into());
    let fits_scratch = bytes <= SCRATCH_BYTES_MAX;
    let steps: &'static [Step] = match call.kind {
        Barrier => &[Within(Barrier), Between, Within(Barrier)],
        Broadcast => &[Between, Within(Broadcast)],
        Allgather if hosts.are_in_order() || fits_scratch => {
            &[Within(Gather), Between, Within(Broadcast), OrderByRanks]
        }
        Allreduce if call.op == Some(ReduceOp::SumOfAddends) => &[Within(Gatherv), Between, Within(Broadcast)],
        Allreduce if is_exact => &[Within(Gather), Between, Within(Broadcast)],
        Allreduce if wide.is_some() => &[Widen, Within(Reduce), Between, Divide, Within(Broadcast), Narrow],
        Allreduce if can_fold => &[Within(Reduce), Between, Divide, Within(Broadcast)],
        Reduce if wide.is_some() => &[Widen, Within(Reduce), Between, Divide, Narrow],
        Reduce if can_fold => &[Within(Reduce), Between, Divide],
        // The speaker's piece has a part for each member.
        ReduceScatter if can_fold && fits_scratch && hosts.most() * element <= PIECE_BYTES_LEAST => match wide {
            Some(_) => &[Widen, Within(Reduce), OrderByHosts, Between, Divide, Within(Scatter), Narrow],
            None => &[Within(Reduce), OrderByHosts, Between, Divide, Within(Scatter)],
        },
        _ => return None,
    };
    (element <= LINE_BYTES).then_some(steps)
}

/// Whether a call is carried out on two levels, in a group on these hosts.
pub(super) fn takes_two(call: &Call, hosts: &Hosts) -> bool {
    hosts.count() > 1 && steps(call, hosts).is_some()
}

/// The places in this rank's memory where a call's steps read and write.
struct Areas {
    /// What this host's members have brought together, in the order of ranks. Its speaker has it.
    folded: Span,
    /// The same data in the order in which the speakers' call takes it.
    brought: Span,
    /// What the speakers' call gives this host.
    got: Span,
    /// The scratch is free from this byte on.
    free: usize,
}

/// A call on two levels.
#[derive(Clone, Copy)]
pub(super) struct Leveled<'a> {
    /// The call as the caller makes it.
    pub called: Shape<'a>,
    /// The call as it is carried out: on wide elements, where it is an average of narrow ones.
    pub shape: Shape<'a>,
    pub steps: &'static [Step],
    /// The wide copy and its conversions, where the two differ.
    wide: Option<Wide<'a>>,
    /// How many vectors this host's members bring to an exact sum.
    addends: usize,
}

impl<'a> Leveled<'a> {
    /// The call with this shape, if it is carried out on two levels.
    pub(super) fn of(levels: &mut Levels, shape: &Shape<'a>) -> Option<Leveled<'a>> {
        let Levels { hosts, parts, addends, .. } = levels;
        let (steps, count) = (steps(&shape.call, hosts)?, shape.call.count);
        let call = Leveled::with(*shape, steps);
        match shape.call.kind {
            CallKind::Allgather | CallKind::ReduceScatter => hosts.lay_out(|_| count, parts),
            CallKind::Allreduce if shape.is_exact() => {
                hosts.lay_out(|rank| shape.addends(rank).into(), parts);
                hosts.lay_out_here(|rank| u64::from(shape.addends(rank)) * count, addends);
                let most = parts.input.counts.iter().copied().max().unwrap_or(0);
                let all_fit = most.saturating_mul(call.bytes(1) as u64) <= SCRATCH_BYTES_MAX;
                if shape.call.op == Some(ReduceOp::SumOfAddends) && !(all_fit && most <= Shape::ADDENDS_MAX.into()) {
                    return None;
                }
                return Some(Leveled { addends: parts.own as usize, ..call });
            }
            _ => {}
        }
        Some(call)
    }

    pub(super) fn with(called: Shape<'a>, steps: &'static [Step]) -> Leveled<'a> {
        let wide = Wide::of(&called);
        let shape = wide.map_or(called, |wide| wide.shape);
        Leveled { called, shape, steps, wide, addends: 0 }
    }

    /// The same call on only so many of the elements.
    pub(super) fn part(&self, count: u64) -> Leveled<'a> {
        let called = Shape { call: Call { count, ..self.called.call }, ..self.called };
        Leveled { addends: self.addends, ..Leveled::with(called, self.steps) }
    }

    /// The rank that speaks for a host.
    fn speaker(&self, hosts: &Hosts, host: u32) -> u32 {
        hosts.speaker(host, self.shape.call.root)
    }

    pub(super) fn speaks(&self, hosts: &Hosts) -> bool {
        self.speaker(hosts, hosts.own_host()) == self.shape.rank
    }

    /// The length in bytes of so many ranks' parts; where ranks have no parts, a part is a whole vector.
    fn bytes(&self, parts: usize) -> usize {
        self.shape.call.count as usize * self.shape.call.dtype.map_or(0, DType::size) * parts
    }

    fn areas(&self, hosts: &Hosts) -> Areas {
        use CallKind::{Allgather, Allreduce, Broadcast, Reduce, ReduceScatter};
        let (ranks, here) = (hosts.size() as usize, hosts.here().len());
        let is_alone = here == 1;
        let span = |buffer, first: usize, parts: usize| Span::new(buffer, self.bytes(first), self.bytes(parts));
        let nothing = Span::EMPTY;
        let output = span(Buffer::Output, 0, 1);
        let input = span(Buffer::Input, 0, 1);
        match (self.shape.call.kind, self.speaks(hosts)) {
            (Broadcast, _) => Areas { folded: nothing, brought: nothing, got: output, free: 0 },
            (Allreduce, false) if self.shape.is_exact() => {
                Areas { folded: nothing, brought: nothing, got: output, free: 0 }
            }
            (Allreduce, true) if self.shape.is_exact() => {
                let buffer = if is_alone { Buffer::Input } else { Buffer::Scratch };
                let folded = span(buffer, 0, self.addends);
                let free = if is_alone { 0 } else { folded.len };
                Areas { folded, brought: folded, got: output, free }
            }
            (Allreduce, _) => {
                let folded = if is_alone { input } else { output };
                Areas { folded, brought: folded, got: output, free: 0 }
            }
            (Reduce, true) => {
                let is_root = self.shape.call.root == Some(self.shape.rank);
                let got = if is_root { output } else { nothing };
                let (folded, free) = match (is_alone, is_root) {
                    (true, _) => (input, 0),
                    (false, true) => (output, 0),
                    (false, false) => (span(Buffer::Scratch, 0, 1), self.bytes(1)),
                };
                Areas { folded, brought: folded, got, free }
            }
            (Allgather, _) => {
                let (buffer, free) = match hosts.are_in_order() {
                    true => (Buffer::Output, 0),
                    false => (Buffer::Scratch, self.bytes(ranks)),
                };
                let folded = if is_alone { input } else { span(buffer, hosts.ranks_before(), here) };
                Areas { folded, brought: folded, got: span(buffer, 0, ranks), free }
            }
            (ReduceScatter, true) => {
                let mut taken = 0;
                let mut scratch = |parts: usize| {
                    taken += parts;
                    span(Buffer::Scratch, taken - parts, parts)
                };
                let folded = if is_alone { span(Buffer::Input, 0, ranks) } else { scratch(ranks) };
                let brought = if hosts.are_in_order() { folded } else { scratch(ranks) };
                let got = if is_alone { output } else { scratch(here) };
                Areas { folded, brought, got, free: self.bytes(taken) }
            }
            _ => Areas { folded: nothing, brought: nothing, got: nothing, free: 0 },
        }
    }

    /// The call that the speakers make. `parts` are the hosts' parts.
    fn between<'p>(&self, hosts: &Hosts, parts: &'p Layout) -> Shape<'p> {
        use CallKind::{Allgather, Allgatherv, Allreduce, Reduce, ReduceScatter, ReduceScatterv};
        let own = &self.shape.call;
        let (is_alone, in_place) = (hosts.here().len() == 1, self.shape.in_place);
        let is_equal = hosts.size() as usize == hosts.most() * hosts.count();
        let is_exact = self.shape.is_exact();
        let in_place = match own.kind {
            Allreduce if is_exact => in_place && is_alone,
            Allreduce => in_place || !is_alone,
            Reduce => own.root == Some(self.shape.rank) && (in_place || !is_alone),
            Allgather => (in_place && hosts.are_in_order()) || !is_alone,
            ReduceScatter => in_place && hosts.are_in_order() && is_alone,
            _ => false,
        };
        let (kind, count, layout) = match own.kind {
            Allgather | ReduceScatter if is_equal => (own.kind, own.count * hosts.most() as u64, None),
            Allgather => (Allgatherv, own.count * u64::from(hosts.size()), Some(parts)),
            ReduceScatter => (ReduceScatterv, own.count * u64::from(hosts.size()), Some(parts)),
            Allreduce if is_exact => (own.kind, own.count, Some(parts)),
            _ => (own.kind, own.count, None),
        };
        let root = own.root.map(|root| hosts.host_of(root));
        let call = Call { kind, op: self.summed(), root, count, ..*own };
        Shape { rank: hosts.own_host(), size: hosts.count() as u32, call, in_place, layout }
    }

    /// The operation of each level. A host may bring several addends where each rank brings one.
    fn summed(&self) -> Option<ReduceOp> {
        self.shape.call.op.map(|op| match op {
            ReduceOp::Avg => ReduceOp::Sum,
            ReduceOp::SumExact => ReduceOp::SumOfAddends,
            op => op,
        })
    }

    /// The call that a host's members make, and where its input and output lie. `addends` are the members' addends.
    fn within<'p>(&self, hosts: &Hosts, kind: CallKind, addends: &'p Layout) -> (Shape<'p>, [Span; 2]) {
        let areas = self.areas(hosts);
        let speaker = self.speaker(hosts, hosts.own_host());
        let place = hosts.here().iter().position(|rank| *rank == speaker).unwrap_or(0) as u32;
        let own = &self.shape.call;
        // A reduce-scatter folds all ranks' parts, and an all-gather gives all ranks' parts.
        let is_of_all = match kind {
            CallKind::Reduce => own.kind == CallKind::ReduceScatter,
            CallKind::Broadcast => own.kind == CallKind::Allgather,
            _ => false,
        };
        let parts = if is_of_all { hosts.size() as usize } else { 1 };
        let given = |parts| Span::new(Buffer::Input, 0, self.bytes(parts));
        let spans = match kind {
            CallKind::Gatherv => [given(self.shape.addends(self.shape.rank) as usize), areas.folded],
            CallKind::Reduce | CallKind::Gather => [given(parts), areas.folded],
            CallKind::Scatter => [areas.got, Span::new(Buffer::Output, 0, self.bytes(1))],
            _ => [Span::EMPTY, areas.got],
        };
        let call = Call {
            kind,
            op: self.summed().filter(|_| kind == CallKind::Reduce),
            root: (kind != CallKind::Barrier).then_some(place),
            count: if kind == CallKind::Gatherv { 0 } else { own.count * parts as u64 },
            ..*own
        };
        let in_place = own.kind == CallKind::Allgather && self.shape.in_place && hosts.are_in_order();
        let in_place = kind == CallKind::Gather && in_place;
        let layout = (kind == CallKind::Gatherv).then_some(addends);
        let shape = Shape { rank: hosts.place() as u32, size: hosts.here().len() as u32, call, in_place, layout };
        (shape, spans)
    }

    /// How a call within the host is carried out in the shared memory, if it can be.
    fn sharing<'p>(&self, (group, shared): (&Collectives, &HostMemory), shape: &Shape<'p>) -> Option<Sharing<'p>> {
        let sharing = sharing(shared, shape, choose(shape, &group.thresholds))?;
        match shape.layout {
            // The members know already how many addends each of them brings.
            Some(addends) => sharing.told(|rank, _| addends.output.counts[rank as usize]).ok(),
            None => Some(sharing),
        }
    }

    /// How many bytes of scratch the call needs.
    pub(super) fn scratch_bytes(&self, group: &Collectives, levels: &Levels) -> usize {
        let between = self.between(&levels.hosts, &levels.parts);
        let of_schedule = match self.speaks(&levels.hosts) {
            true => choose(&between, &group.thresholds).scratch_bytes(&between),
            false => 0,
        };
        self.wide_bytes() + self.areas(&levels.hosts).free + of_schedule
    }

    /// The length of the wide copy, which lies at the start of the scratch.
    fn wide_bytes(&self) -> usize {
        self.wide.map_or(0, |wide| wide.copy().len)
    }

    /// The memory of the call as it is carried out. A wide copy takes the place of the input, and has the place of the
    /// output.
    fn carried<'m>(&self, memory: &Memory<'m>) -> Memory<'m> {
        let Some(wide) = self.wide else { return *memory };
        let output = wide.result().map_or(Span::EMPTY, |(result, _)| result);
        memory.part([wide.copy(), output], self.wide_bytes())
    }

    /// Carries the call out, step by step.
    pub(super) fn carry_out(
        &self,
        (group, driver): (&Collectives, &mut Driver),
        levels: &mut Levels,
        running: &Running<'_>,
        memory: &Memory<'_>,
        function: Option<UserFunction>,
    ) -> Result<(), Stop> {
        driver.by_steps(self.steps.len(), |driver, step| {
            self.take_step((group, driver), levels, running, (self.steps[step], memory), function)
        })
    }

    pub(super) fn take_step(
        &self,
        (group, driver): (&Collectives, &mut Driver),
        levels: &mut Levels,
        running: &Running<'_>,
        (step, memory): (Step, &Memory<'_>),
        function: Option<UserFunction>,
    ) -> Result<(), Stop> {
        let Levels { shared, hosts, parts, addends, .. } = levels;
        let (called, memory) = (memory, &self.carried(memory));
        match (step, shared) {
            (Step::Between, _) if self.speaks(hosts) => {
                let shape = self.between(hosts, parts);
                let algorithm = choose(&shape, &group.thresholds);
                let plan = Plan { shape: &shape, algorithm, ranks: Some(&|host| self.speaker(hosts, host)) };
                let Areas { brought, got, free, .. } = self.areas(hosts);
                group.carry_out(driver, running, &plan, &memory.part([brought, got], free), function)
            }
            (Step::Within(kind), Some(shared)) => {
                let (shape, spans) = self.within(hosts, kind, addends);
                let sharing = self.sharing((group, shared), &shape).ok_or(Stop::Bug)?;
                let Areas { folded, free, .. } = self.areas(hosts);
                // Another chunk may have lain there and been sent: checksums from then do not hold any more.
                memory.forget_checksums(folded);
                share((group, driver), shared, running, &sharing, &memory.part(spans, free), function)
            }
            (Step::Divide, _) => {
                self.divide(hosts, memory);
                Ok(())
            }
            (Step::Widen | Step::Narrow, _) => {
                self.convert(step, called);
                Ok(())
            }
            (Step::OrderByHosts, _) if self.speaks(hosts) => {
                let Areas { folded, brought, .. } = self.areas(hosts);
                self.order(hosts, memory, |ordered, rank| [(folded, rank), (brought, ordered)]);
                Ok(())
            }
            (Step::OrderByRanks, _) => {
                let (got, output) = (self.areas(hosts).got, Span::new(Buffer::Output, 0, 0));
                self.order(hosts, memory, |ordered, rank| [(got, ordered), (output, rank)]);
                Ok(())
            }
            // This rank has no part in the step: another rank speaks for it, or it is alone on its host and has all in
            // its input.
            (Step::Between | Step::OrderByHosts | Step::Within(_), _) => Ok(()),
        }
    }

    /// Divides the sum of an average, where this rank has it.
    fn divide(&self, hosts: &Hosts, memory: &Memory<'_>) {
        let Some(dtype) = self.shape.call.dtype.filter(|_| self.shape.call.op == Some(ReduceOp::Avg)) else { return };
        let got = self.areas(hosts).got;
        if self.speaks(hosts) {
            memory.forget_checksums(got);
            memory.divide(got, hosts.size(), dtype);
        }
    }

    /// Makes the wide copy, or makes the caller's result from it.
    fn convert(&self, step: Step, memory: &Memory<'_>) {
        let Some(wide) = self.wide else { return };
        let [there, back] = wide.conversions();
        let conversion = match step {
            Step::Widen => Some((wide.original(), wide.copy(), there)),
            _ => wide.result().map(|(from, to)| (from, to, back)),
        };
        if let Some((from, to, how)) = conversion {
            memory.forget_checksums(to);
            memory.convert(from, to, how);
        }
    }

    /// Copies each rank's part from one area to another, if the order of hosts is not the order of ranks. `ends` gets a
    /// part's place in the order of hosts, and its rank. It returns the area and the number of the part to copy from,
    /// then to copy to.
    fn order(&self, hosts: &Hosts, memory: &Memory<'_>, ends: impl Fn(usize, usize) -> [(Span, usize); 2]) {
        if hosts.are_in_order() {
            return;
        }
        for (ordered, rank) in hosts.ranks().enumerate() {
            let [from, to] = ends(ordered, rank as usize)
                .map(|(area, part)| Span::new(area.buffer, area.offset + self.bytes(part), self.bytes(1)));
            memory.forget_checksums(to);
            memory.copy(from, to);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn calls_that_two_levels_would_falsify_take_one() {
        let hosts = |names: &[&str]| Hosts::of_names(names, 0).expect("a member");
        let (apart, mixed) = (hosts(&["a", "a", "b"]), hosts(&["a", "b", "a"]));
        let call = |kind, op| Call { kind, dtype: Some(DType::Float32), op, root: None, count: 1, layout: 0 };
        let takes = |op, hosts| steps(&call(CallKind::Allreduce, Some(op)), hosts).is_some();
        let ordered = ReduceOp::User { number: 0, commutative: false };
        assert!(takes(ReduceOp::Sum, &mixed) && takes(ordered, &apart) && !takes(ordered, &mixed));
        assert!([ReduceOp::Avg, ReduceOp::SumExact, ReduceOp::SumOfAddends].iter().all(|op| takes(*op, &mixed)));
        assert!(steps(&call(CallKind::Reduce, Some(ReduceOp::SumExact)), &apart).is_none());
        assert!(steps(&call(CallKind::Alltoall, None), &apart).is_none());
        let parts = |count| Call { count, ..call(CallKind::Allgather, None) };
        let most = SCRATCH_BYTES_MAX / 12; // of 3 ranks
        assert!(steps(&parts(most), &mixed).is_some() && steps(&parts(most + 1), &mixed).is_none());
        assert!(steps(&parts(most + 1), &apart).is_some(), "it needs no scratch");
        let large = Call { dtype: Some(DType::Element(LINE_BYTES as u32 + 1)), ..call(CallKind::Allgather, None) };
        assert!(steps(&large, &apart).is_none());
    }
}
