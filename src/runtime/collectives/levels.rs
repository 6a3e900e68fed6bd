//! How a collective is carried out on two levels, where a group's members are on several hosts, and some of these have several: the
//! members of a host through the memory that they share, and one *speaker* of each host with the others over links.
//!
//! So a host sends and receives what one rank would, and not what all of its ranks would.

use super::drive::Plan;
use super::engine::{Collectives, Driver};
use super::hosts::Hosts;
use super::place::Place;
use super::shared::Levels;
use super::shared_drive::{share, sharing};
use super::stop::{Running, Stop};
use crate::net::shm::LINE_BYTES;
use crate::runtime::memory::buffer::Memory;
use crate::schedules::kernels::UserFunction;
use crate::schedules::{choose, Buffer, Shape, Span};
use crate::types::{Call, CallKind, DType, ReduceOp};

/// One of the calls of which a call on two levels consists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Among the members of each host; the speaker is the root, where there is one.
    Within(CallKind),
    /// The call itself, among the speakers.
    Between,
}

/// The steps of a call; none where one level does better, or where alone it can do it: the same on every rank. An average is one, for
/// its sum would be rounded, or overflow, before it is divided.
fn steps(call: &Call, hosts: &Hosts) -> Option<&'static [Step]> {
    use CallKind::{Allreduce, Barrier, Broadcast, Reduce};
    let is_folded_whole = call.op.is_some_and(|op| op == ReduceOp::Avg || op.is_exact());
    let fits = call.dtype.is_none_or(|dtype| dtype.size() <= LINE_BYTES);
    match call.kind {
        Barrier => Some(&[Step::Within(Barrier), Step::Between, Step::Within(Barrier)]),
        Broadcast if fits => Some(&[Step::Between, Step::Within(Broadcast)]),
        Allreduce if fits && !is_folded_whole && hosts.keep_order(call) => {
            Some(&[Step::Within(Reduce), Step::Between, Step::Within(Broadcast)])
        }
        _ => None,
    }
}

/// Whether a call is carried out so, in a group on these hosts.
pub(super) fn takes_two(call: &Call, hosts: &Hosts) -> bool {
    hosts.count() > 1 && steps(call, hosts).is_some()
}

/// A call on two levels.
pub(super) struct Leveled<'a> {
    shape: Shape<'a>,
    steps: &'static [Step],
}

impl<'a> Leveled<'a> {
    /// The call with this shape, if it is carried out so.
    pub(super) fn of(levels: &Levels, shape: &Shape<'a>) -> Option<Leveled<'a>> {
        Some(Leveled { shape: *shape, steps: steps(&shape.call, &levels.hosts)? })
    }

    /// The rank that speaks for a host.
    fn speaker(&self, hosts: &Hosts, host: u32) -> u32 {
        hosts.speaker(host, self.shape.call.root)
    }

    /// What the speakers call.
    fn between(&self, hosts: &Hosts) -> Shape<'a> {
        let call = Call { root: self.shape.call.root.map(|root| hosts.host_of(root)), ..self.shape.call };
        let in_place = call.kind == CallKind::Allreduce;
        Shape { rank: hosts.own_host(), size: hosts.count() as u32, call, in_place, layout: None }
    }

    /// What the members of a host call.
    fn within(&self, hosts: &Hosts, kind: CallKind) -> Shape<'a> {
        let speaker = self.speaker(hosts, hosts.own_host());
        let place = hosts.here().iter().position(|rank| *rank == speaker).unwrap_or(0) as u32;
        let call = Call {
            kind,
            op: self.shape.call.op.filter(|_| kind == CallKind::Reduce),
            root: (kind != CallKind::Barrier).then_some(place),
            ..self.shape.call
        };
        let in_place = self.shape.in_place && kind == CallKind::Reduce;
        Shape { rank: hosts.place() as u32, size: hosts.here().len() as u32, call, in_place, layout: None }
    }

    /// The scratch that its schedule needs.
    pub(super) fn scratch_bytes(&self, group: &Collectives, hosts: &Hosts) -> usize {
        let between = self.between(hosts);
        match self.speaks(hosts) {
            true => choose(&between, &group.thresholds).scratch_bytes(&between),
            false => 0,
        }
    }

    fn speaks(&self, hosts: &Hosts) -> bool {
        self.speaker(hosts, hosts.own_host()) == self.shape.rank
    }

    /// Carries it out.
    pub(super) fn carry_out(
        &self,
        (group, driver): (&Collectives, &mut Driver),
        levels: &mut Levels,
        running: &Running<'_>,
        memory: &Memory<'_>,
        function: Option<UserFunction>,
    ) -> Result<(), Stop> {
        let first = match std::mem::take(&mut driver.place) {
            Place::Step(step, inside) => {
                driver.place = *inside;
                step
            }
            _ => 0,
        };
        for (number, step) in self.steps.iter().enumerate().skip(first) {
            let outcome = self.take_step((group, driver), levels, running, (*step, memory), function);
            if let Err(Stop::Interrupted(_)) = outcome {
                driver.place = Place::Step(number, Box::new(std::mem::take(&mut driver.place)));
            }
            outcome?;
        }
        Ok(())
    }

    fn take_step(
        &self,
        (group, driver): (&Collectives, &mut Driver),
        levels: &mut Levels,
        running: &Running<'_>,
        (step, memory): (Step, &Memory<'_>),
        function: Option<UserFunction>,
    ) -> Result<(), Stop> {
        let Levels { shared, hosts } = levels;
        match (step, shared) {
            (Step::Between, _) if self.speaks(hosts) => {
                let shape = self.between(hosts);
                let algorithm = choose(&shape, &group.thresholds);
                let plan = Plan { shape: &shape, algorithm, ranks: Some(&|host| self.speaker(hosts, host)) };
                let memory = if shape.in_place { memory.on_output() } else { *memory };
                group.carry_out(driver, running, &plan, &memory, function)
            }
            (Step::Within(kind), Some(shared)) => {
                let shape = self.within(hosts, kind);
                let sharing = sharing(shared, &shape, choose(&shape, &group.thresholds));
                share((group, driver), shared, running, sharing.ok_or(Stop::Bug)?, memory, function)
            }
            // It has no part in this: another speaks for it, or nobody else is on its host. Then its input is all that there is.
            (Step::Between, _) => Ok(()),
            (Step::Within(CallKind::Reduce), None) if !self.shape.in_place => {
                let bytes = self.shape.call.count as usize * self.shape.call.dtype.map_or(1, DType::size);
                memory.copy(Span::new(Buffer::Input, 0, bytes), Span::new(Buffer::Output, 0, bytes));
                Ok(())
            }
            (Step::Within(_), None) => Ok(()),
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
        assert!(!takes(ReduceOp::Avg, &apart) && !takes(ReduceOp::SumExact, &apart));
        assert!(steps(&call(CallKind::Alltoall, None), &apart).is_none());
    }
}
