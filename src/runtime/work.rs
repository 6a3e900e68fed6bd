//! A group's collectives, one after another: taking a turn, waiting for it, and doing the work in it, on the thread that
//! calls or, for one that does not wait, on the group's progress thread.
//!
//! The progress thread exists from the first such call on until the group is ended; it does nothing but what a caller's
//! thread would do, in the order of the turns. How the work itself is done is in `drive`; what happens when it cannot go
//! on, in `giveup`.

use super::buffer::CallBuffers;
use super::drive::{grow, Running, Stop};
use super::group::{Driver, Group};
use super::request::{request, Completer, Request};
use super::shared::Shared;
use super::sync::{lock, wait, Condvar, Mutex};
use crate::collective::kernels::UserFunction;
use crate::collective::{choose, Layout, Shape};
use crate::error::{Error, Failure, Result, Status};
use crate::net::thread;
use crate::types::{Call, Time};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

/// One collective, as one rank calls it.
pub struct Work<'a> {
    /// What is called.
    pub call: Call,
    /// Where the parts of its buffers lie, if each has a size of its own.
    pub layout: Option<Layout>,
    /// What combines elements, if that is a user's function.
    pub function: Option<UserFunction>,
    /// Its buffers, as long as `Shape` says.
    pub buffers: CallBuffers<'a>,
}

#[cfg(test)]
impl<'a> Work<'a> {
    /// A call whose parts are equally long, and which needs no user's function.
    pub fn plain(call: Call, buffers: CallBuffers<'a>) -> Work<'a> {
        Work { call, layout: None, function: None, buffers }
    }
}

/// A collective whose caller does not wait.
struct Job {
    turn: u64,
    since: Time,
    work: Work<'static>,
    completer: Completer,
}

/// What the progress thread has before it.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    thread: Option<JoinHandle<()>>,
    ended: bool,
}

/// A turn that was taken; it ends with this, whatever happens.
pub(super) struct Turn<'a> {
    group: &'a Group,
    number: u64,
}

impl Turn<'_> {
    /// Takes the group's next turn.
    pub(super) fn take(group: &Group) -> Turn<'_> {
        Turn { group, number: group.turns.take() }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Nobody may come before those who called earlier, not even by giving up.
        self.group.turns.wait_for(self.number, || None);
        self.group.turns.end();
    }
}

impl Group {
    /// Carries out one collective, and returns when it is done.
    pub fn run(&self, work: Work<'_>) -> Result<()> {
        let shared = self.shared()?;
        self.check(&work)?;
        self.refuse_if_broken(&shared)?;
        let since = shared.clock.now();
        let turn = Turn::take(self);
        self.work(&shared, turn, since, work)
    }

    /// Starts one collective, which goes on while the caller does something else.
    pub fn start(self: &Arc<Self>, work: Work<'static>) -> Result<Request> {
        let shared = self.shared()?;
        self.check(&work)?;
        self.refuse_if_broken(&shared)?;
        self.ensure_progress()?;
        let (request, completer) = request();
        let (since, call) = (shared.clock.now(), work.call);
        self.turns.take_and(|turn| {
            let group = Arc::downgrade(self);
            completer.on_cancel(move || {
                if let Some(group) = group.upgrade() {
                    group.cancel(call, turn);
                }
            });
            lock(&self.queue.state).jobs.push_back(Job { turn, since, work, completer });
        });
        self.queue.changed.notify_all();
        Ok(request)
    }

    fn check(&self, work: &Work<'_>) -> Result<()> {
        self.shape(work)?.check()
    }

    fn shape<'a>(&self, work: &'a Work<'_>) -> Result<Shape<'a>> {
        let Some(rank) = self.rank() else {
            return Err(Error::invalid(format!("{}: this process is no member of {}", work.call.kind, self.id())));
        };
        let in_place = work.buffers.in_place();
        Ok(Shape { rank, size: self.size(), call: work.call, in_place, layout: work.layout.as_ref() })
    }

    pub(super) fn refuse_if_broken(&self, shared: &Shared) -> Result<()> {
        self.told(shared).map_or(Ok(()), |failure| Err(self.break_with(failure).into()))
    }

    fn work(&self, shared: &Shared, turn: Turn<'_>, since: Time, work: Work<'_>) -> Result<()> {
        let shape = self.shape(&work)?;
        self.in_turn(shared, turn, work.call, since, |driver, running| {
            let algorithm = choose(&shape, &self.thresholds);
            let scratch_bytes = (algorithm.scratch_bytes)(&shape);
            let mut scratch = std::mem::take(&mut driver.scratch);
            let outcome = grow(&mut scratch, scratch_bytes).and_then(|()| {
                let memory = work.buffers.with_scratch(&mut scratch);
                self.carry_out(driver, running, &shape, algorithm.step, &memory, work.function)
            });
            driver.scratch = scratch;
            outcome
        })
    }

    /// Waits for a turn and does something in it, as the group's next collective.
    pub(super) fn in_turn<T>(
        &self,
        shared: &Shared,
        turn: Turn<'_>,
        call: Call,
        since: Time,
        body: impl FnOnce(&mut Driver, &Running<'_>) -> Result<T, Stop>,
    ) -> Result<T> {
        let running = self.running(shared, call, turn.number, since);
        if !self.turns.wait_for(turn.number, || shared.clock.until(running.deadline)) {
            return Err(self.give_up_waiting(&running).into());
        }
        let mut driver = self.driver();
        self.refuse_if_broken(shared)?;
        let driver = &mut *driver;
        self.enter(running.sequence, call, since);
        match body(driver, &running) {
            Ok(result) => {
                driver.previous = Some(call);
                self.finish(running.sequence);
                Ok(result)
            }
            Err(stop) => Err(self.give_up(driver, &running, stop).into()),
        }
    }

    /// The caller of a collective wants its end: that ends the group for everyone, for others may be in it already.
    fn cancel(&self, call: Call, turn: u64) {
        let Ok(shared) = self.shared() else { return };
        let running = self.running(&shared, call, turn, shared.clock.now());
        self.give_up_for_all(&running, self.cancelled(&running));
    }

    /// The progress thread, from now on.
    fn ensure_progress(self: &Arc<Self>) -> Result<()> {
        let mut queue = lock(&self.queue.state);
        if queue.ended {
            return Err(Error::new(Status::State, format!("{} has been freed, or its cluster left", self.id())));
        }
        if queue.thread.is_none() {
            let group = Arc::clone(self);
            queue.thread = Some(thread::spawn("muster-progress", move || group.work_off())?);
        }
        Ok(())
    }

    fn work_off(&self) {
        while let Some(Job { turn, since, work, completer }) = self.next_job() {
            let turn = Turn { group: self, number: turn };
            let outcome = self.shared().and_then(|shared| self.work(&shared, turn, since, work));
            completer.complete(outcome.map(|()| None));
        }
    }

    /// The next job; none once the group is ended and nothing is left.
    fn next_job(&self) -> Option<Job> {
        let mut queue = lock(&self.queue.state);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.ended {
                return None;
            }
            queue = wait(&self.queue.changed, queue, None);
        }
    }

    /// Ends the group's threads. What is under way ends first, for the group is broken: with `over` if it was not before.
    pub(super) fn end_progress(&self, over: Failure) {
        self.break_with(over);
        self.interrupt();
        let thread = {
            let mut queue = lock(&self.queue.state);
            queue.ended = true;
            queue.thread.take()
        };
        self.queue.changed.notify_all();
        if let Some(thread) = thread {
            let _ = thread.join(); // it has no result; a panic was printed
        }
        self.end_messages();
    }
}
