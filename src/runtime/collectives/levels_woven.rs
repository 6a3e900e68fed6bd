//! A long all-reduce, reduce or broadcast on two levels: some chunks are folded and handed out within the hosts while
//! others are on their way between hosts. So the network is idle at the beginning and at the end only.
//!
//! All members of a host take the same steps through memory, in the same order, so that they agree on what lies there.
//! In an all-reduce it is: fold chunk 0, fold chunk 1, hand out chunk 0, fold chunk 2, hand out chunk 1, and so on. The
//! speaker does two things at the same time: these steps, and the speakers' call for one chunk after another, each once
//! it is folded. It goes on with the first as far as that goes without waiting, then with the second. Where neither
//! goes on, it waits for both.

use super::call_progress::{CallProgress, Woven};
use super::engine::{Collectives, Driver};
use super::failure::is_late;
use super::levels::{Leveled, Step};
use super::shared::Levels;
use super::stop::{Running, Stop};
use crate::net::shm::LINE_BYTES;
use crate::runtime::base::polling::Idle;
use crate::runtime::memory::buffer::Memory;
use crate::schedules::kernels::UserFunction;
use crate::schedules::{Buffer, Shape, Span};
use crate::types::{CallKind, DType, ReduceOp};

/// How long a chunk is. It is to be long beside a frame, and short beside a call. Tests have short calls.
const CHUNK_BYTES: usize = if cfg!(test) { 64 << 10 } else { 2 << 20 };

/// Carries a call out on two levels, woven if it is long.
pub(super) fn carry_out(
    call: &Leveled<'_>,
    (group, driver): (&Collectives, &mut Driver),
    levels: &mut Levels,
    running: &Running<'_>,
    memory: &Memory<'_>,
    function: Option<UserFunction>,
) -> Result<(), Stop> {
    match Chunks::of(call, levels.hosts.most()) {
        Some(chunks) => chunks.weave((group, driver), levels, running, memory, function),
        None => call.carry_out((group, driver), levels, running, memory, function),
    }
}

/// How many bytes of scratch the call needs.
pub(super) fn scratch_bytes(call: &Leveled<'_>, group: &Collectives, levels: &Levels) -> usize {
    match Chunks::of(call, levels.hosts.most()) {
        Some(chunks) => 2 * chunks.scratch_bytes(group, levels),
        None => call.scratch_bytes(group, levels),
    }
}

/// The chunks of a call.
struct Chunks<'a> {
    call: &'a Leveled<'a>,
    element: usize,
    /// How many elements a chunk has; the last may have fewer.
    each: usize,
    number: u64,
}

/// What the members of a host do next through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Fold(u64),
    HandOut(u64),
}

impl<'a> Chunks<'a> {
    /// The chunks of this call, if it is long enough to have several. `most` is the number of members on the largest
    /// host.
    fn of(call: &'a Leveled<'a>, most: usize) -> Option<Chunks<'a>> {
        let size = |shape: &Shape<'_>| shape.call.dtype.map_or(1, DType::size);
        // In an exact sum, a chunk comes together with all addends of a host.
        let rows = if call.shape.is_exact() { most } else { 1 };
        let (count, each) = (call.shape.call.count as usize, (CHUNK_BYTES / size(&call.shape) / rows).max(1));
        // A sum of addends is not woven: a rank's addends lie one whole vector after another.
        let is_woven = call.shape.call.op != Some(ReduceOp::SumOfAddends)
            && matches!(call.shape.call.kind, CallKind::Allreduce | CallKind::Reduce | CallKind::Broadcast);
        let (element, number) = (size(&call.called), count.div_ceil(each) as u64);
        (is_woven && count >= 2 * each).then_some(Chunks { call, element, each, number })
    }

    /// The steps before the speakers' call of a chunk; that call with the steps that follow at once; and the steps
    /// behind.
    fn steps(&self) -> [&'static [Step]; 3] {
        let steps = self.call.steps;
        let middle = steps.iter().position(|step| *step == Step::Between).unwrap_or(steps.len());
        let (before, rest) = steps.split_at(middle);
        let (between, behind) = rest.split_at(rest.iter().position(Step::is_within).unwrap_or(rest.len()));
        [before, between, behind]
    }

    /// One chunk as a call of its own, and where in the whole call's buffers it lies.
    fn chunk(&self, number: u64) -> (Leveled<'a>, [Span; 2]) {
        let shape = &self.call.called;
        let first = number as usize * self.each;
        let count = self.each.min(shape.call.count as usize - first);
        let span = |buffer| Span::new(buffer, first * self.element, count * self.element);
        let has_input = shape.call.kind != CallKind::Broadcast;
        let has_output = shape.call.kind != CallKind::Reduce || shape.call.root == Some(shape.rank);
        let input = if has_input { span(Buffer::Input) } else { Span::EMPTY };
        (self.call.part(count as u64), [input, if has_output { span(Buffer::Output) } else { Span::EMPTY }])
    }

    /// How many bytes of scratch a chunk needs. Two chunks are under way at the same time.
    fn scratch_bytes(&self, group: &Collectives, levels: &Levels) -> usize {
        let of = |chunk| self.chunk(chunk).0.scratch_bytes(group, levels);
        // The last chunk may be shorter, and take another schedule.
        of(0).max(of(self.number - 1)).next_multiple_of(LINE_BYTES)
    }

    /// How many steps there are through memory.
    fn steps_in_memory(&self) -> u64 {
        match self.call.shape.call.kind {
            CallKind::Allreduce => 2 * self.number,
            _ => self.number,
        }
    }

    /// The step through memory with this number.
    fn next(&self, step: u64) -> Option<Next> {
        if step >= self.steps_in_memory() {
            return None;
        }
        let next = match self.call.shape.call.kind {
            CallKind::Reduce => Next::Fold(step),
            CallKind::Broadcast => Next::HandOut(step),
            _ if step == 0 => Next::Fold(0),
            _ if step == 2 * self.number - 1 => Next::HandOut(self.number - 1),
            _ if step % 2 == 1 => Next::Fold(step / 2 + 1),
            _ => Next::HandOut(step / 2 - 1),
        };
        Some(next)
    }

    /// After how many steps through memory a chunk is folded.
    fn folded_after(&self, chunk: u64) -> u64 {
        match self.call.shape.call.kind {
            CallKind::Reduce => chunk + 1,
            CallKind::Broadcast => 0,
            _ if chunk == 0 => 1,
            _ => 2 * chunk,
        }
    }

    /// Carries the call out.
    fn weave(
        &self,
        (group, driver): (&Collectives, &mut Driver),
        levels: &mut Levels,
        running: &Running<'_>,
        memory: &Memory<'_>,
        function: Option<UserFunction>,
    ) -> Result<(), Stop> {
        let woven = match std::mem::take(&mut driver.progress) {
            CallProgress::Woven(woven) => *woven,
            _ => {
                let links = if self.call.speaks(&levels.hosts) { 0 } else { self.number };
                Woven { memory: (0, CallProgress::Beginning), links: (links, CallProgress::Beginning) }
            }
        };
        let scratch_bytes = self.scratch_bytes(group, levels);
        let mut weaver = Weaver { chunks: self, scratch_bytes, group, running, memory, function, woven };
        let outcome = weaver.carry_out(driver, levels);
        if outcome.as_ref().is_err_and(Stop::goes_on) {
            driver.progress = CallProgress::Woven(Box::new(weaver.woven));
        }
        outcome
    }
}

/// A call whose chunks are under way.
struct Weaver<'a> {
    chunks: &'a Chunks<'a>,
    /// How many bytes of scratch a chunk has.
    scratch_bytes: usize,
    group: &'a Collectives,
    running: &'a Running<'a>,
    memory: &'a Memory<'a>,
    function: Option<UserFunction>,
    woven: Woven,
}

/// Whether a part of the call waits, or only looks, where it cannot go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Waits,
    Looks,
}

impl Weaver<'_> {
    fn carry_out(&mut self, driver: &mut Driver, levels: &mut Levels) -> Result<(), Stop> {
        let mut idle = Idle::default();
        loop {
            match (self.next_in_memory(), self.next_between()) {
                (None, None) => return Ok(()),
                (Some(next), None) => self.go_on_in_memory(driver, levels, next, Manner::Waits)?,
                (None, Some(chunk)) => self.go_on_between(driver, levels, chunk, Manner::Waits)?,
                (Some(next), Some(chunk)) => {
                    let in_memory = self.go_on_in_memory(driver, levels, next, Manner::Looks);
                    let between = self.go_on_between(driver, levels, chunk, Manner::Looks);
                    match (in_memory, between) {
                        (Err(Stop::NotYet(peer)), Err(Stop::NotYet(_))) => {
                            self.wait_for_both(driver, levels, peer, &mut idle)?;
                        }
                        (in_memory, between) => {
                            for outcome in [in_memory, between] {
                                if !matches!(outcome, Err(Stop::NotYet(_))) {
                                    outcome?;
                                }
                            }
                            idle.end();
                            self.keep_to_time()?;
                        }
                    }
                }
            }
        }
    }

    /// Looks at the clock, because nothing waits while both parts go on.
    fn keep_to_time(&self) -> Result<(), Stop> {
        match is_late(self.group, self.running.deadline) {
            true => Err(Stop::Timeout(None)),
            false => Ok(()),
        }
    }

    /// The next step through memory, if it can begin.
    fn next_in_memory(&self) -> Option<Next> {
        let next = self.chunks.next(self.woven.memory.0)?;
        match next {
            Next::HandOut(chunk) if chunk >= self.woven.links.0 => None,
            // A chunk is folded into the place of the chunk two before it.
            Next::Fold(chunk) if chunk >= self.woven.links.0 + 2 => None,
            next => Some(next),
        }
    }

    /// The next chunk for the speakers' call, if there is one, and it is folded.
    fn next_between(&self) -> Option<u64> {
        let chunk = self.woven.links.0;
        let is_folded = self.woven.memory.0 >= self.chunks.folded_after(chunk);
        (chunk < self.chunks.number && is_folded).then_some(chunk)
    }

    fn go_on_in_memory(
        &mut self,
        driver: &mut Driver,
        levels: &mut Levels,
        next: Next,
        manner: Manner,
    ) -> Result<(), Stop> {
        let [before, _, behind] = self.chunks.steps();
        let (chunk, steps) = match next {
            Next::Fold(chunk) => (chunk, before),
            Next::HandOut(chunk) => (chunk, behind),
        };
        std::mem::swap(&mut driver.piece, &mut levels.piece);
        driver.progress = std::mem::take(&mut self.woven.memory.1);
        let outcome = self.take(driver, levels, chunk, steps, manner);
        std::mem::swap(&mut driver.piece, &mut levels.piece);
        note(&mut self.woven.memory, driver, &outcome);
        outcome
    }

    fn go_on_between(
        &mut self,
        driver: &mut Driver,
        levels: &mut Levels,
        chunk: u64,
        manner: Manner,
    ) -> Result<(), Stop> {
        driver.progress = std::mem::take(&mut self.woven.links.1);
        let [_, steps, _] = self.chunks.steps();
        let outcome = self.take(driver, levels, chunk, steps, manner);
        note(&mut self.woven.links, driver, &outcome);
        outcome
    }

    fn take(
        &self,
        driver: &mut Driver,
        levels: &mut Levels,
        chunk: u64,
        steps: &[Step],
        manner: Manner,
    ) -> Result<(), Stop> {
        let (call, spans) = self.chunks.chunk(chunk);
        let memory = self.memory.part(spans, chunk as usize % 2 * self.scratch_bytes);
        let running = Running { is_woven: manner == Manner::Looks, ..*self.running };
        // Once a chunk has begun, its steps may have written over the wide copy.
        let is_begun = !matches!(driver.progress, CallProgress::Beginning);
        steps.iter().filter(|step| **step != Step::Widen || !is_begun).try_for_each(|step| {
            call.take_step((self.group, &mut *driver), levels, &running, (*step, &memory), self.function)
        })
    }

    /// Waits until one of the two parts can go on.
    fn wait_for_both(
        &mut self,
        driver: &mut Driver,
        levels: &mut Levels,
        peer: Option<u32>,
        idle: &mut Idle,
    ) -> Result<(), Stop> {
        let state = &self.group.context.state;
        if state.polling.poll(idle, &self.group.context.polls, &state.clock) {
            return Ok(());
        }
        let (Some(peer), Some(next)) = (peer, self.next_in_memory()) else { return Ok(()) };
        levels.shared.iter().for_each(|shared| shared.fall_asleep(peer));
        // A link to the peer lets this rank hear of the peer's end. What the peer published before its end counts.
        let member = levels.shared.as_ref().map_or(0, |shared| shared.members[peer as usize]);
        let ended = driver.peers.link(&self.group.context, member, true).map(drop).err();
        // The peer may have published just before this rank said that it sleeps.
        let outcome = match (self.go_on_in_memory(driver, levels, next, Manner::Looks), ended) {
            (Err(Stop::NotYet(Some(still))), None) if still == peer => self.sleep(driver, levels),
            (Err(Stop::NotYet(Some(still))), Some(ended)) if still == peer => Err(ended),
            (Err(Stop::NotYet(_)), _) => Ok(()),
            (outcome, _) => outcome,
        };
        levels.shared.iter().for_each(|shared| shared.wake_up());
        outcome
    }

    fn sleep(&mut self, driver: &mut Driver, levels: &mut Levels) -> Result<(), Stop> {
        let (CallProgress::Exchange(_, exchange), Some(shared)) = (&mut self.woven.links.1, &levels.shared) else {
            return Ok(());
        };
        self.group.sleep(driver, self.running, exchange, Some(shared.own.descriptor()))
    }
}

/// Notes how far a part of the call is, after it has gone on.
fn note((done, progress): &mut (u64, CallProgress), driver: &mut Driver, outcome: &Result<(), Stop>) {
    match outcome {
        Ok(()) => *done += 1,
        Err(_) => *progress = std::mem::take(&mut driver.progress),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Next::{Fold, HandOut};
    use super::*;
    use crate::types::Call;

    #[test]
    fn a_chunk_is_handed_out_after_the_next_one_is_folded() {
        let call = |kind, count| {
            let (dtype, op) = (Some(DType::Float32), Some(ReduceOp::Sum));
            let call = Call { kind, dtype, op, root: Some(1), count, layout: 0 };
            Leveled::with(Shape { rank: 0, size: 4, call, in_place: false, layout: None }, &[])
        };
        let each = CHUNK_BYTES as u64 / 4;
        assert!(Chunks::of(&call(CallKind::Allreduce, 2 * each - 1), 2).is_none(), "it is short");
        assert!(Chunks::of(&call(CallKind::Allgather, 9 * each), 2).is_none(), "it is not woven");
        let orders = [
            (CallKind::Allreduce, "F0 F1 H0 F2 H1 F3 H2 H3"),
            (CallKind::Reduce, "F0 F1 F2 F3"),
            (CallKind::Broadcast, "H0 H1 H2 H3"),
        ];
        for (kind, order) in orders {
            let long = call(kind, 3 * each + 1);
            let chunks = Chunks::of(&long, 2).expect("it is long");
            let steps: Vec<_> = (0..9).map_while(|step| chunks.next(step)).collect();
            let words = steps.iter().map(|next| match next {
                Fold(chunk) => format!("F{chunk}"),
                HandOut(chunk) => format!("H{chunk}"),
            });
            assert_eq!(words.collect::<Vec<_>>().join(" "), order);
            for chunk in 0..4 {
                let at = steps.iter().position(|step| *step == Fold(chunk));
                assert_eq!(chunks.folded_after(chunk), at.map_or(0, |at| at as u64 + 1), "{kind}");
            }
            let (last, [input, output]) = chunks.chunk(3);
            let spans = [input, output].map(|span| (span.offset, span.len));
            let (there, none) = ((3 * CHUNK_BYTES, 4), (0, 0));
            let wanted = match kind {
                CallKind::Reduce => [there, none], // rank 1 is the root
                CallKind::Broadcast => [none, there],
                _ => [there; 2],
            };
            assert_eq!((last.shape.call.count, spans), (1, wanted), "{kind}");
        }
    }
}
