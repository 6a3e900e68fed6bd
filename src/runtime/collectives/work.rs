//! A group's collectives, one after another: taking a turn, waiting for it, and doing the work in it, on the thread that
//! calls or, for one that does not wait, on the group's progress thread.
//!
//! The progress thread exists from the first such call on until the group is ended; it does nothing but what a caller's
//! thread would do, in the order of the turns. A thread that waits for a request which nobody has begun carries the
//! request out itself, and need not be woken. If it is interrupted, it leaves the rest to the progress thread. A short
//! call that need not wait for anybody is done at once. How the work itself is done is in `drive`; what happens when it
//! cannot go on, in `failure`.

use super::call_progress::{CallProgress, Patience};
use super::drive::{grow, Plan};
use super::engine::{Collectives, Driver, Exclusive};
use super::failure::give_up_for_one_behind;
use super::levels::{takes_two, Leveled};
use super::levels_woven;
use super::queued_call::{CallQueue, QueuedCall, Work};
use super::shared::CarrierChoice;
use super::shared_drive::{share_all, sharing};
use super::shared_setup::find_way;
use super::stop::{Running, Stop};
use super::turns::Turn;
use crate::error::{memory, Error, Result};
use crate::net::thread;
use crate::runtime::base::interrupts::{in_call, Attention};
use crate::runtime::base::polling::{Idle, Polls};
use crate::runtime::base::request::{Request, RequestEngine, RequestedOperation};
use crate::runtime::links::link::LinkEnd;
use crate::runtime::memory::buffer::{CallBuffers, Memory};
use crate::runtime::state::context::TimeLimit;
use crate::runtime::state::node_state::NodeState;
use crate::runtime::state::trace_file::Entry;
use crate::schedules::kernels::UserFunction;
use crate::schedules::{choose, Algorithm, Shape, Sharing};
use crate::types::{Call, CallKind, DType, ReduceOp, Time};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A copy of a caller's input is aligned as memory from the system is.
const COPY_ALIGNMENT: usize = 16;

/// The thread that starts a call carries it out if it moves no more than this and need not wait: copying that takes
/// less time than waking another thread.
const AT_ONCE_BYTES_MAX: u64 = 64 << 10;

/// How often a call that waits for its turn checks whether its group is over. If a user's function never returns in the call
/// ahead, the turn never comes.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Collectives {
    /// Carries out one collective, and returns when it is done.
    pub fn run(&self, mut work: Work<'_>) -> Result<()> {
        let shape = self.shape(&work)?;
        shape.check()?;
        self.context.begin()?;
        if copy_alone(self, &shape, &work.buffers) {
            return Ok(());
        }
        let time = self.context.time_limit();
        let attention = self.context.state.program.interrupts.attention();
        let turn = self.turns.take(Some((work.call, time.since)));
        self.context.told_by(self.work(&turn, time, &attention, &mut work))
    }

    /// Starts one collective, which goes on while the caller does something else.
    pub fn start(self: &Arc<Self>, work: Work<'static>) -> Result<Request> {
        self.start_on(work, |group| thread::spawn("muster-progress", move || group.work_off()))
    }

    /// Starts one collective. `spawn` starts the progress thread, if there is none yet.
    pub(crate) fn start_on(
        self: &Arc<Self>,
        work: Work<'static>,
        spawn: impl FnOnce(Arc<Collectives>) -> Result<JoinHandle<()>>,
    ) -> Result<Request> {
        self.shape(&work)?.check()?;
        self.context.begin()?;
        let (time, call) = (self.context.time_limit(), work.call);
        let roomy = if self.context.requests.has_spare() {
            Ok(())
        } else {
            memory::with_reserve("one request more", || Ok(()))
        };
        roomy.map_err(|error| self.cannot_start(call, time, &error))?;
        if let Some(turn) = self.turn_of_its_own(&work, time.since) {
            let (request, completer) = self.context.requests.make();
            let outcome = self.work(&turn, time, &Attention::none(), &mut { work });
            completer.complete(outcome.map(|()| None));
            return Ok(request);
        }
        self.queue.reserve().map_err(|error| self.cannot_start(call, time, &error))?;
        let mut is_hasty = false;
        let started = self.queue.put(
            || spawn(Arc::clone(self)),
            || {
                let (request, completer) = self.context.requests.make();
                let (turn, has_come) = self.turns.take_number();
                is_hasty = self.behind.started((turn, call, time), has_come);
                let own: Arc<dyn RequestEngine> = self.clone();
                let request = request.of(own, RequestedOperation::Collective(call, turn));
                (QueuedCall { turn, time, work, completer }, request)
            },
        );
        let started = started.map_err(|error| self.cannot_start(call, time, &error))?;
        if is_hasty {
            self.context.bells.collectives.raise();
            self.turns.nudge();
        }
        started.ok_or_else(|| self.context.freed_error())
    }

    /// The turn of a call that ends sooner if the starting thread carries it out itself: the group has no other member
    /// to wait for, no turn is before this one, and the call moves little.
    fn turn_of_its_own(&self, work: &Work<'_>, since: Time) -> Option<Turn<'_>> {
        let is_short = self.context.size() == 1 && work.buffers.longer() <= AT_ONCE_BYTES_MAX;
        is_short.then(|| self.turns.take_if_free(Some((work.call, since)))).flatten()
    }

    /// Ends the group: a collective that cannot begin here has failed like one that cannot go on, for others may be in
    /// it.
    fn cannot_start(&self, call: Call, time: TimeLimit, error: &Error) -> Error {
        let turn = self.turns.take(None);
        let attention = Attention::none();
        let running = self.running(call, turn.number(), time, &attention);
        self.give_up_for_all(running.failed(error)).into()
    }

    fn shape<'a>(&self, work: &'a Work<'_>) -> Result<Shape<'a>> {
        let Some(rank) = self.context.rank() else {
            return Err(Error::invalid(format!(
                "{}: this process is no member of {}",
                work.call.kind,
                self.context.id()
            )));
        };
        let in_place = work.buffers.in_place();
        Ok(Shape { rank, size: self.context.size(), call: work.call, in_place, layout: work.layout.as_ref() })
    }

    fn work(&self, turn: &Turn<'_>, time: TimeLimit, attention: &Attention<'_>, work: &mut Work<'_>) -> Result<()> {
        let bytes = work.buffers.longer();
        let outcome = self.in_turn(turn, (work.call, bytes), (time, attention), |exclusive, running| {
            let Exclusive { driver, carrier, scratch, checksums } = exclusive;
            find_way(self, driver, carrier, running)?;
            self.tell_addends(driver, carrier, running, work)?;
            let shape = self.shape(work).map_err(Stop::Failed)?;
            let algorithm = choose(&shape, &self.thresholds);
            let call_carrier = CallCarrier::of(carrier, &shape, algorithm);
            let scratch_bytes = call_carrier.scratch_bytes(self, carrier, (&shape, algorithm));
            let copied_bytes = work.buffers.copied_bytes();
            let copied_from = scratch_bytes.next_multiple_of(COPY_ALIGNMENT);
            grow(scratch, if copied_bytes > 0 { copied_from + copied_bytes } else { scratch_bytes })?;
            let middle = copied_from.min(scratch.len());
            let (scratch, copy) = scratch.split_at_mut(middle);
            let mut memory = work.buffers.with_scratch(scratch).remembering(checksums);
            if let (Some(list), Some(layout), Some(dtype)) = (&work.list, &work.layout, work.call.dtype) {
                memory = memory.listed(list, layout.parts(list.buffer), dtype.size());
            }
            if copied_bytes > 0 {
                memory = memory.with_copied_input(&mut copy[..copied_bytes]);
            }
            call_carrier.carry_out((self, driver), carrier, running, (&shape, algorithm), &memory, work.function)
        });
        if !turn.is_passed_on() {
            self.take_lists(work.layout.take(), work.list.take());
        }
        outcome
    }

    /// The ranks of a sum of addends tell each other how many addends they bring, by an all-gather ahead of the sum.
    fn tell_addends(
        &self,
        driver: &mut Driver,
        carrier: &mut CarrierChoice,
        running: &Running<'_>,
        work: &mut Work<'_>,
    ) -> Result<(), Stop> {
        if work.call.op != Some(ReduceOp::SumOfAddends) {
            return Ok(());
        }
        let Some(layout) = &mut work.layout else { return Ok(()) };
        let (size, rank) = (self.context.size(), self.context.rank().unwrap_or_default());
        let dtype = DType::Uint64;
        let call = Call { kind: CallKind::Allgather, dtype: Some(dtype), op: None, root: None, count: 1, layout: 0 };
        let shape = Shape { rank, size, call, in_place: false, layout: None };
        let algorithm = choose(&shape, &self.thresholds);
        let (own, mut all) = (layout.own.to_le_bytes(), Vec::new());
        grow(&mut all, dtype.size() * size as usize)?;
        let call_carrier = CallCarrier::of(carrier, &shape, algorithm);
        let mut scratch = Vec::new();
        grow(&mut scratch, call_carrier.scratch_bytes(self, carrier, (&shape, algorithm)))?;
        let memory = CallBuffers::of(&own, &mut all).with_scratch(&mut scratch);
        call_carrier.carry_out((self, driver), carrier, running, (&shape, algorithm), &memory, None)?;
        let mut below = 0;
        for (rank, addends) in (0..).zip(all.as_chunks().0) {
            let addends = u64::from_le_bytes(*addends);
            if addends > u64::from(Shape::ADDENDS_MAX) {
                return Err(Stop::Ended(rank, LinkEnd::Corrupt(format!("it brings {addends} addends"))));
            }
            layout.input.counts.push(addends);
            layout.input.displs.push(below);
            below += addends;
        }
        self.shape(work).and_then(|shape| shape.check()).map_err(Stop::Failed)
    }

    /// Waits for a turn, and does something in it as the group's next collective, which has a buffer of so many bytes.
    /// A panic in it is a bug of this library; it ends the group, so that the others do not wait for what is left
    /// undone.
    pub(crate) fn in_turn<T>(
        &self,
        turn: &Turn<'_>,
        (call, bytes): (Call, u64),
        (time, attention): (TimeLimit, &Attention<'_>),
        body: impl FnOnce(&mut Exclusive, &Running<'_>) -> Result<T, Stop>,
    ) -> Result<T> {
        let mut running = self.running(call, turn.number(), time, attention);
        if turn.is_behind_others() {
            self.queue.hurry();
        }
        await_turn(self, turn, &running)?;
        self.behind.begins(turn.number());
        let mut exclusive = self.exclusive();
        // The call before it in this process may have been interrupted as well, and have ended the group.
        self.context.refuse_if_broken().map_err(|first| match running.attention.is_due() {
            Err(interrupted) if !turn.is_held() => in_call(&running.title(), &interrupted),
            _ => first,
        })?;
        let exclusive = &mut *exclusive;
        let driver = &mut exclusive.driver;
        running.data.digest = driver.digest.in_short();
        if matches!(driver.progress, CallProgress::Beginning) {
            // The wait for the turn does not count as a wait for other ranks.
            let is_soon = turn.came_at_once() && self.track.is_none();
            driver.begun = if is_soon { time.since } else { self.context.state.clock.now() };
            driver.patience = Patience::since(driver.begun);
            driver.turns = 0;
        }
        turn.enter();
        let mut outcome = Err(Stop::Bug);
        let guarded = AssertUnwindSafe(|| {
            outcome = self.check_revokes(&mut exclusive.driver, &running).and_then(|()| body(exclusive, &running));
        });
        let _ = catch_unwind(guarded); // then the outcome is the bug
        let driver = &mut exclusive.driver;
        if let Err(Stop::Interrupted(why)) = &outcome {
            if turn.pass_on() {
                return Err(why.clone());
            }
        }
        if let Some(track) = &self.track {
            let ended = self.context.state.clock.now();
            let (sequence, begun, is_ok) = (running.sequence, driver.begun, outcome.is_ok());
            track.record(&Entry { call, sequence, bytes, called: time.since, begun, ended, is_ok });
        }
        match outcome {
            Ok(result) => {
                driver.digest.add(running.data.signature);
                turn.went_well();
                Ok(result)
            }
            Err(stop) => {
                let interrupted = stop.interrupted().map(|why| in_call(&running.title(), why));
                let first = self.give_up(driver, &running, stop);
                Err(interrupted.unwrap_or_else(|| first.into()))
            }
        }
    }

    /// Cancels a call for its caller. That ends the group for everyone, because others may be in the call already.
    fn cancel_call(&self, call: Call, turn: u64) {
        let attention = Attention::none();
        let running = self.running(call, turn, self.context.time_limit(), &attention);
        self.give_up_for_all(running.cancelled());
    }

    fn work_off(&self) {
        let NodeState { polling, clock, .. } = &*self.context.state;
        loop {
            let formed = self.context.formed();
            if let Some(_place) = polling.place_beside(formed.local_size.saturating_add(formed.server_num)) {
                let (mut idle, polls) = (Idle::default(), Polls::new(1, 1, polling.set));
                self.queue.poll(|is_lent| {
                    if is_lent {
                        idle.end(); // more may come
                    }
                    polling.poll(&mut idle, &polls, clock)
                });
            }
            let Some(queued) = self.queue.next() else { break };
            self.work_and_tell(queued, &Attention::none()); // nothing interrupts it
        }
    }

    /// Carries out a started call, and completes the request within the call's turn: when a blocking call behind it has
    /// succeeded, the request has ended. If this is interrupted, it gives the call back with the reason.
    fn work_and_tell(&self, mut queued: QueuedCall, attention: &Attention<'_>) -> Option<(QueuedCall, Error)> {
        let turn = self.turns.hold(queued.turn, Some((queued.work.call, queued.time.since)));
        let outcome = self.work(&turn, queued.time, attention, &mut queued.work);
        match outcome {
            Err(why) if turn.is_passed_on() => return Some((queued, why)),
            outcome => queued.completer.complete(outcome.map(|()| None)),
        }
        None
    }
}

/// Waits until a call's turn comes. Returns an error if its group is over, its time is up, or the program interrupts it.
fn await_turn(group: &Collectives, turn: &Turn<'_>, running: &Running<'_>) -> Result<()> {
    let clock = &group.context.state.clock;
    loop {
        let next_look = clock.now() + LOOK_AGAIN;
        match turn.wait(|| clock.until(running.deadline.min(group.behind.first()).min(next_look)), running.attention) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                give_up_for_one_behind(group, clock.now()); // another thread may have seen to it
                if group.context.told().is_some() || clock.now() >= running.deadline {
                    return Err(group.give_up_for_all(running.never_began()).into());
                }
            }
            Err(interrupted) => {
                group.give_up_for_all(running.interrupted());
                return Err(in_call(&running.title(), &interrupted));
            }
        }
    }
}

/// Carries out a short call that is no more than a copy, in a cluster of one: no other node waits for it, or is told of
/// it.
fn copy_alone(group: &Collectives, shape: &Shape<'_>, buffers: &CallBuffers<'_>) -> bool {
    let formed = group.context.formed();
    let is_short = buffers.longer() <= AT_ONCE_BYTES_MAX && buffers.copied_bytes() == 0;
    if !is_short || group.track.is_some() || formed.worker_num + formed.server_num > 1 {
        return false;
    }
    let Some(bytes) = shape.copy_alone() else { return false };
    let Some(_turn) = group.turns.take_if_free(None) else { return false };
    buffers.copy_first(bytes);
    true
}

/// A borrowed call. It is given back when this is dropped, for whatever reason; a call that is done is not.
struct Lent<'a> {
    queue: &'a CallQueue,
    back: Option<QueuedCall>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.queue.give_back(self.back.take());
    }
}

/// What carries one call.
enum CallCarrier<'a> {
    Links,
    Memory(Sharing<'a>),
    Levels(Leveled<'a>),
}

impl<'a> CallCarrier<'a> {
    /// Chooses what carries a call: the same on every rank.
    fn of(group_carrier: &mut CarrierChoice, shape: &Shape<'a>, algorithm: &'static Algorithm) -> CallCarrier<'a> {
        match group_carrier {
            CarrierChoice::Memory(shared) => {
                sharing(shared, shape, algorithm).map_or(CallCarrier::Links, CallCarrier::Memory)
            }
            CarrierChoice::Levels(levels) => Leveled::of(levels, shape).map_or(CallCarrier::Links, CallCarrier::Levels),
            CarrierChoice::Untried | CarrierChoice::Apart | CarrierChoice::Links => CallCarrier::Links,
        }
    }

    /// The scratch that the call needs.
    fn scratch_bytes(
        &self,
        group: &Collectives,
        group_carrier: &CarrierChoice,
        (shape, algorithm): (&Shape<'_>, &'static Algorithm),
    ) -> usize {
        match (self, group_carrier) {
            (CallCarrier::Memory(_), _) => 0,
            (CallCarrier::Levels(leveled), CarrierChoice::Levels(levels)) => {
                levels_woven::scratch_bytes(leveled, group, levels)
            }
            _ => algorithm.scratch_bytes(shape),
        }
    }

    /// Carries the call out.
    fn carry_out(
        &self,
        (group, driver): (&Collectives, &mut Driver),
        group_carrier: &mut CarrierChoice,
        running: &Running<'_>,
        (shape, algorithm): (&Shape<'_>, &'static Algorithm),
        memory: &Memory<'_>,
        function: Option<UserFunction>,
    ) -> Result<(), Stop> {
        match (self, group_carrier) {
            (CallCarrier::Memory(sharing), CarrierChoice::Memory(shared)) => {
                share_all((group, driver), shared, running, sharing, memory, function)
            }
            (CallCarrier::Levels(leveled), CarrierChoice::Levels(levels)) => {
                levels_woven::carry_out(leveled, (group, driver), levels, running, memory, function)
            }
            _ => group.carry_out(driver, running, &Plan::of_all(shape, algorithm), memory, function),
        }
    }
}

impl RequestEngine for Collectives {
    fn cancel(&self, operation: RequestedOperation) {
        if let RequestedOperation::Collective(call, turn) = operation {
            self.cancel_call(call, turn);
        }
    }

    fn carry_out(&self, operation: &RequestedOperation, attention: &Attention<'_>) -> Result<()> {
        let RequestedOperation::Collective(_, last) = operation else { return Ok(()) };
        // The call that finds out what carries a group's calls must not change threads, because it cannot be left in
        // the middle.
        let finds_way = |queued: &QueuedCall| {
            let stays_apart = || self.apart.get().is_some_and(|hosts| !takes_two(&queued.work.call, hosts));
            self.context.size() > 1 && self.carrier.get().is_none() && !stays_apart()
        };
        let is_next = |queued: &QueuedCall| {
            queued.turn <= *last
                && queued.may_change_threads()
                && !finds_way(queued)
                && self.turns.has_come(queued.turn)
        };
        loop {
            attention.ask()?;
            let Some(queued) = self.queue.borrow(is_next) else { break };
            let mut lent = Lent { queue: &self.queue, back: None };
            let (queued, why) = self.work_and_tell(queued, attention).unzip();
            lent.back = queued;
            drop(lent);
            why.map_or(Ok(()), Err)?;
        }
        self.queue.hurry(); // the progress thread does what is left
        Ok(())
    }

    fn hurry(&self) {
        self.queue.hurry();
    }
}
