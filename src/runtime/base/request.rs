//! A request: an operation that goes on while its caller does something else.
//!
//! It has two ends. The caller's, [`Request`], asks, waits and cancels. The other, [`Completer`], belongs to the
//! thread that carries the operation out, and ends it once. Until then the operation's buffers are in use.
//!
//! What both ends share is a record, which goes back to the group's [`Requests`] when the last of them is dropped: so a
//! request takes no memory where others ended before it. Invariant: a record that is given out anew has no end left of its
//! life before. Tested below, and in every order of threads by `loom_test.rs`.

#[cfg(all(test, loom))]
mod loom_test;
mod several;
mod told;

pub(crate) use told::Notified;

use super::interrupts::{nudge, wait_until, Attention, Interrupts};
use super::notices::Notices;
use super::polling::{GiveWay, Tester};
use super::sync::{lock, Arc, Bell, Condvar, Instant, Mutex, MutexGuard};
use crate::error::{Error, Result, Status};
use crate::types::Call;
pub use crate::types::Received;
use std::any::Any;
use std::ops::Range;
use std::time::Duration;
use told::{Hearers, Notice};

/// So many records are kept for requests to come; what more there were at a time go back to the system.
const SPARE_MAX: usize = 1024;

/// How an operation ended; what came, if it was a receive.
pub type Outcome = Result<Option<Received>>;

/// Which operation is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// This collective, and the number of its turn.
    Collective(Call, u64),
    /// These messages.
    Messages(Range<u64>),
}

/// What finds an operation and ends it, if it is not too late.
pub(crate) trait Cancels: Send + Sync {
    fn cancel(&self, operation: Operation);
}

/// A group's requests: the records of those that have ended, for those to come.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Shelf>);

#[derive(Default)]
struct Shelf {
    spare: Mutex<Vec<Arc<Record>>>,
    /// Those in whose waits the program's threads sleep: to be woken when it interrupts them.
    slept_in: Mutex<Vec<Arc<Record>>>,
    /// What interrupts them.
    interrupts: std::sync::Arc<Interrupts>,
    /// What calls the program's functions.
    notices: std::sync::Arc<Notices>,
}

/// One request's.
#[derive(Default)]
struct Life {
    outcome: Option<Outcome>,
    /// How many parts of the operation have not ended, and what those that have left.
    missing: u32,
    received: Option<Received>,
    error: Option<Error>,
    cancelled: bool,
    /// How many threads wait.
    waiting: u32,
    /// What else is told of the end: what can be read then, the waits for several requests, the program's function.
    bell: Option<Bell>,
    several: Vec<Arc<Record>>,
    notice: Notice,
    /// How many ends have not been dropped, and where the record goes with the last of them.
    ends: u32,
    home: Option<Requests>,
    /// See `Request::take_shell`.
    shell: Option<Box<dyn Any + Send>>,
}

#[derive(Default)]
struct Record {
    state: Mutex<Life>,
    changed: Condvar,
}

/// The caller's end.
pub struct Request {
    record: Arc<Record>,
    cancel: Option<(std::sync::Arc<dyn Cancels>, Operation)>,
}

/// The end that carries the operation out, or one of its two parts. Dropped without a word, the operation has failed.
pub struct Completer {
    /// None once it has told.
    record: Option<Arc<Record>>,
}

impl Requests {
    /// Requests whose waits this interrupts, and whose ends these tell.
    pub(crate) fn new(interrupts: &std::sync::Arc<Interrupts>, notices: &std::sync::Arc<Notices>) -> Requests {
        let (interrupts, notices) = (std::sync::Arc::clone(interrupts), std::sync::Arc::clone(notices));
        Requests(Arc::new(Shelf { interrupts, notices, ..Shelf::default() }))
    }

    /// Makes those that wait look whether the program has interrupted them.
    pub(crate) fn nudge(&self) {
        let slept_in = lock(&self.0.slept_in).clone();
        slept_in.iter().for_each(|record| nudge((&record.state, &record.changed)));
    }

    /// Whether the next one takes no memory.
    pub(crate) fn has_spare(&self) -> bool {
        !lock(&self.0.spare).is_empty()
    }

    /// Both ends of a new request.
    pub(crate) fn make(&self) -> (Request, Completer) {
        let spare = lock(&self.0.spare).pop();
        let record = spare.unwrap_or_default();
        {
            let mut state = lock(&record.state);
            (state.missing, state.ends, state.home) = (1, 2, Some(self.clone()));
        }
        (Request { record: Arc::clone(&record), cancel: None }, Completer { record: Some(record) })
    }

    /// As `Request::wait`, for a call with this attention.
    pub(crate) fn wait_in(
        &self,
        request: &Request,
        limit: Option<Duration>,
        attention: &Attention<'_>,
    ) -> Result<Option<Outcome>> {
        if let Some(outcome) = request.test() {
            return Ok(Some(outcome));
        }
        let _asleep = self.asleep(&request.record);
        request.record.wait_for(limit, attention)
    }

    /// From now on the program's thread sleeps in the record's waits: what interrupts this node's calls wakes it.
    fn asleep<'a>(&'a self, record: &'a Arc<Record>) -> Asleep<'a> {
        lock(&self.0.slept_in).push(Arc::clone(record));
        Asleep { of: self, record }
    }

    fn take_back(&self, record: &Arc<Record>) {
        let mut spare = lock(&self.0.spare);
        if spare.len() < SPARE_MAX {
            spare.push(Arc::clone(record));
        }
    }

    #[cfg(test)]
    pub(crate) fn spare(&self) -> usize {
        lock(&self.0.spare).len()
    }
}

/// A wait in which the program's thread sleeps.
struct Asleep<'a> {
    of: &'a Requests,
    record: &'a Arc<Record>,
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        let mut slept_in = lock(&self.of.0.slept_in);
        let place = slept_in.iter().position(|other| Arc::ptr_eq(other, self.record));
        place.map(|place| slept_in.swap_remove(place));
    }
}

/// Does this when it is told to cancel.
#[cfg(test)]
pub(crate) struct Told<F>(pub F);

#[cfg(test)]
impl<F: Fn() + Send + Sync> Cancels for Told<F> {
    fn cancel(&self, _: Operation) {
        (self.0)();
    }
}

/// Both ends of a request that no group made.
#[cfg(test)]
pub(crate) fn request() -> (Request, Completer) {
    Requests::default().make()
}

/// The caller's end is dropped, and with it what can be read.
fn let_go(record: &Arc<Record>) {
    let mut state = lock(&record.state);
    let bell = state.bell.take();
    state.ends -= 1;
    leave(record, state);
    drop(bell);
}

/// A part of the operation has ended, and with the last one the whole: with the first error of any. Its end is gone when
/// the caller hears of that, so that a record that the caller lets go at once can be used again at once.
fn end(record: &Arc<Record>, outcome: Outcome) {
    let mut state = lock(&record.state);
    match outcome {
        Ok(received) => state.received = state.received.or(received),
        Err(error) => drop(state.error.get_or_insert(error)),
    }
    (state.missing, state.ends) = (state.missing - 1, state.ends - 1);
    let mut told = Hearers::default();
    if state.missing == 0 {
        state.outcome = Some(state.error.take().map_or(Ok(state.received), Err));
        told = state.tell(record);
    }
    leave(record, state);
    told.tell(record);
}

/// The record goes home with its last end.
fn leave(record: &Arc<Record>, mut state: MutexGuard<'_, Life>) {
    if state.ends > 0 {
        return;
    }
    let (home, shell) = (state.home.take(), state.shell.take());
    let over = std::mem::replace(&mut *state, Life { shell, ..Life::default() });
    drop(state);
    drop(over);
    if let Some(home) = home {
        home.take_back(record);
    }
}

impl Record {
    /// Waits for something in its life, at most so long. Those that end it look whether anybody does.
    fn wait_until<T>(
        &self,
        limit: Option<Duration>,
        attention: &Attention<'_>,
        mut check: impl FnMut(&mut Life) -> Option<T>,
    ) -> Result<Option<T>> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let mut is_counted = false;
        let found = wait_until((&self.state, &self.changed), left, attention, |life| {
            let found = check(life);
            let waits = found.is_none();
            life.waiting = life.waiting + u32::from(waits && !is_counted) - u32::from(!waits && is_counted);
            is_counted = waits;
            found
        });
        if is_counted {
            lock(&self.state).waiting -= 1;
        }
        found
    }

    fn wait_for(&self, limit: Option<Duration>, attention: &Attention<'_>) -> Result<Option<Outcome>> {
        self.wait_until(limit, attention, |life| life.outcome.clone())
    }
}

impl Request {
    /// The same request, which is cancelled so.
    pub(crate) fn cancelled_by(self, by: std::sync::Arc<dyn Cancels>, operation: Operation) -> Request {
        let mut request = self;
        request.cancel = Some((by, operation));
        request
    }

    /// How the operation ended, if it has.
    pub fn test(&self) -> Option<Outcome> {
        lock(&self.record.state).outcome.clone()
    }

    /// The same for a caller's thread, which may wait by testing again and again: it then gives way to who does the work.
    pub fn test_by(&self, tester: &mut Tester) -> Option<Outcome> {
        let outcome = self.test();
        if outcome.is_some() {
            tester.found();
            return outcome;
        }
        let way = tester.found_nothing();
        let outcome = match way {
            GiveWay::No => return None,
            GiveWay::Yield => {
                std::thread::yield_now();
                self.test()
            }
            GiveWay::Sleep(limit) => self.wait(Some(limit)),
        };
        tester.gave_way(&way);
        outcome
    }

    /// Waits for the end, at most so long (`None`: without limit).
    pub fn wait(&self, limit: Option<Duration>) -> Option<Outcome> {
        self.record.wait_for(limit, &Attention::none()).unwrap_or_default()
    }

    /// The same for a call of the program, unless it is interrupted: the operation goes on.
    pub(crate) fn wait_attentively(&self, limit: Option<Duration>) -> Result<Option<Outcome>> {
        let state = lock(&self.record.state);
        let (Some(requests), None) = (&state.home, &state.outcome) else { return Ok(state.outcome.clone()) };
        let requests = requests.clone();
        drop(state);
        let attention = requests.0.interrupts.attention();
        requests.wait_in(self, limit, &attention)
    }

    /// Asks for the end. The operation may have ended before, or be too far on to be stopped: then it ends as it would
    /// have. Asking twice is asking once.
    pub fn cancel(&self) {
        let mut state = lock(&self.record.state);
        if state.outcome.is_some() || std::mem::replace(&mut state.cancelled, true) {
            return;
        }
        drop(state);
        if let Some((by, operation)) = &self.cancel {
            by.cancel(operation.clone());
        }
    }

    /// The memory in which its holder kept an earlier request with this record, if there is any: nothing in it is of use.
    pub fn take_shell(&self) -> Option<Box<dyn Any + Send>> {
        lock(&self.record.state).shell.take()
    }

    /// Drops it, and leaves the memory that it was kept in for the next one.
    pub fn leave_shell(self, shell: Box<dyn Any + Send>) {
        lock(&self.record.state).shell = Some(shell);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let_go(&self.record);
    }
}

impl Completer {
    /// Whether the caller has asked for the end.
    #[cfg(all(test, not(loom)))]
    pub fn is_cancelled(&self) -> bool {
        self.record.as_ref().is_some_and(|record| lock(&record.state).cancelled)
    }

    /// The two ends of an operation of two parts. It ends with the later one, with the first error of either.
    pub(crate) fn halves(self) -> [Completer; 2] {
        let other = self.record.as_ref().map(|record| {
            let mut state = lock(&record.state);
            state.missing += 1;
            state.ends += 1;
            Arc::clone(record)
        });
        [self, Completer { record: other }]
    }

    /// The operation has ended; its buffers are no longer touched.
    pub fn complete(mut self, outcome: Outcome) {
        self.tell(|| outcome);
    }

    fn tell(&mut self, outcome: impl FnOnce() -> Outcome) {
        if let Some(record) = self.record.take() {
            end(&record, outcome());
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        let given_up = "the operation was given up: a bug in this library; please report it";
        self.tell(|| Err(Error::new(Status::Internal, given_up)));
    }
}

#[cfg(all(test, not(loom)))]
#[path = "request_test.rs"]
mod tests;
