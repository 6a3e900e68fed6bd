//! A request: an operation that goes on while its caller does something else.
//!
//! It has two ends. The caller's, [`Request`], asks, waits and cancels. The other, [`Completer`], belongs to the
//! thread that carries the operation out, and ends it once. Until then the operation's buffers are in use.
//!
//! What both ends share is a record, which goes back to the group's [`Requests`] when the last of them is dropped: so a
//! request takes no memory where others ended before it. Invariant: a record that is given out anew has no end left of its
//! life before. Tested below, and in every order of threads by `loom_test.rs`.

use super::interrupts::{Attention, Interrupts};
use super::polling::{GiveWay, Tester};
use super::sync::{lock, wait, Arc, Condvar, Instant, Mutex, MutexGuard};
use crate::error::{Error, Result, Status};
use crate::types::Call;
pub use crate::types::Received;
use std::any::Any;
use std::ops::Range;
use std::time::Duration;

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
}

#[derive(Default)]
struct State {
    outcome: Option<Outcome>,
    /// How many parts of the operation have not ended, and what those that have left.
    missing: u32,
    received: Option<Received>,
    error: Option<Error>,
    cancelled: bool,
    /// How many threads wait.
    waiting: u32,
    /// How many ends have not been dropped, and where the record goes with the last of them.
    ends: u32,
    home: Option<Requests>,
    /// See `Request::take_shell`.
    shell: Option<Box<dyn Any + Send>>,
}

#[derive(Default)]
struct Record {
    state: Mutex<State>,
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
    /// Requests whose waits this interrupts.
    pub(crate) fn new(interrupts: &std::sync::Arc<Interrupts>) -> Requests {
        Requests(Arc::new(Shelf { interrupts: std::sync::Arc::clone(interrupts), ..Shelf::default() }))
    }

    /// Makes those that wait look whether the program has interrupted them.
    pub(crate) fn nudge(&self) {
        let slept_in = lock(&self.0.slept_in).clone();
        for record in slept_in {
            drop(lock(&record.state)); // who has looked and does not sleep yet holds it
            record.changed.notify_all();
        }
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
        lock(&self.0.slept_in).push(Arc::clone(&request.record));
        let outcome = request.wait_for(limit, attention);
        let mut slept_in = lock(&self.0.slept_in);
        let place = slept_in.iter().position(|record| Arc::ptr_eq(record, &request.record));
        place.map(|place| slept_in.swap_remove(place));
        outcome
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

/// The caller's end is dropped.
fn let_go(record: &Arc<Record>) {
    let mut state = lock(&record.state);
    state.ends -= 1;
    leave(record, state);
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
    let mut waiting = 0;
    if state.missing == 0 {
        state.outcome = Some(state.error.take().map_or(Ok(state.received), Err));
        waiting = state.waiting;
    }
    leave(record, state);
    if waiting > 0 {
        record.changed.notify_all(); // outside the lock, which they want next
    }
}

/// The record goes home with its last end.
fn leave(record: &Arc<Record>, mut state: MutexGuard<'_, State>) {
    if state.ends > 0 {
        return;
    }
    let (home, shell) = (state.home.take(), state.shell.take());
    let over = std::mem::replace(&mut *state, State { shell, ..State::default() });
    drop(state);
    drop(over);
    if let Some(home) = home {
        home.take_back(record);
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
        self.wait_for(limit, &Attention::none()).unwrap_or_default()
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

    fn wait_for(&self, limit: Option<Duration>, attention: &Attention<'_>) -> Result<Option<Outcome>> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut state = lock(&self.record.state);
        loop {
            if let Some(outcome) = &state.outcome {
                return Ok(Some(outcome.clone()));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            if attention.is_due()? {
                drop(state);
                attention.ask()?;
                state = lock(&self.record.state);
                continue;
            }
            state.waiting += 1;
            state = wait(&self.record.changed, state, attention.left(left));
            state.waiting -= 1;
        }
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
mod tests {
    use super::*;
    use crate::types::DType;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_request_ends_once_and_says_so_again_and_again() {
        let (request, completer) = request();
        assert_eq!(request.test(), None);
        assert_eq!(request.wait(Some(Duration::ZERO)), None);
        let received = Received { source: 1, tag: 2, count: 3, dtype: DType::Int8 };
        completer.complete(Ok(Some(received)));
        for _ in 0..2 {
            assert_eq!(request.test(), Some(Ok(Some(received))));
            assert_eq!(request.wait(None), Some(Ok(Some(received))));
        }
    }

    #[test]
    fn a_test_gives_way_to_the_thread_that_does_the_work() {
        let (request, completer) = request();
        assert_eq!(request.test_by(&mut Tester::tired()), None, "it sleeps for a short time only");
        let working = std::thread::spawn(|| completer.complete(Ok(None)));
        // As often as it takes, for each of these tests sleeps: it is this thread that hears of the end.
        let ended = std::iter::repeat_with(|| request.test_by(&mut Tester::tired())).find(Option::is_some);
        assert_eq!(ended, Some(Some(Ok(None))));
        working.join().unwrap();
        assert_eq!(request.test_by(&mut Tester::new()), Some(Ok(None)));
    }

    #[test]
    fn an_operation_that_is_dropped_has_failed() {
        let (request, completer) = request();
        drop(completer);
        assert_eq!(
            request.wait(None).map(|outcome| outcome.map_err(|error| error.status())),
            Some(Err(Status::Internal))
        );
    }

    #[test]
    fn cancelling_is_told_once_and_not_too_late() {
        static TOLD: AtomicU32 = AtomicU32::new(0);
        let counter = std::sync::Arc::new(Told(|| _ = TOLD.fetch_add(1, Ordering::SeqCst)));
        let told = || TOLD.load(Ordering::SeqCst);
        let made = || {
            let (request, completer) = request();
            (request.cancelled_by(counter.clone(), Operation::Messages(3..5)), completer)
        };
        let (one, completer) = made();
        one.cancel();
        one.cancel();
        assert!(completer.is_cancelled());
        assert_eq!(told(), 1);
        let (done, completer) = made();
        completer.complete(Ok(None));
        done.cancel();
        assert_eq!(told(), 1, "it was too late");
    }

    #[test]
    fn two_halves_end_together_with_what_came_or_the_first_error_of_either() {
        let received = Received { source: 1, tag: 2, count: 3, dtype: DType::Int8 };
        let (both, completer) = request();
        let [one, other] = completer.halves();
        one.complete(Ok(Some(received)));
        assert_eq!(both.test(), None);
        other.complete(Ok(None));
        assert_eq!(both.test(), Some(Ok(Some(received))));
        let late = || Err(Error::new(Status::Timeout, "too late"));
        let (both, completer) = request();
        let [one, other] = completer.halves();
        one.complete(late());
        assert_eq!(both.test(), None);
        drop(other);
        assert_eq!(both.test(), Some(late()));
    }

    #[test]
    fn a_record_is_used_again_when_its_last_end_is_gone_and_remembers_nothing_but_its_shell() {
        let requests = Requests::default();
        let spare = || requests.spare();
        let (first, completer) = requests.make();
        first.cancel();
        let [one, other] = completer.halves();
        one.complete(Err(Error::new(Status::Timeout, "too late")));
        first.leave_shell(Box::new(5));
        assert_eq!(spare(), 0, "the other half goes on");
        other.complete(Ok(None));
        assert_eq!(spare(), 1);
        let (second, completer) = requests.make();
        assert_eq!((spare(), second.test(), completer.is_cancelled()), (0, None, false));
        let shell = second.take_shell().and_then(|shell| shell.downcast::<i32>().ok());
        assert_eq!((shell.as_deref(), second.take_shell().is_none()), (Some(&5), true));
        completer.complete(Ok(None));
        assert_eq!((second.test(), spare()), (Some(Ok(None)), 0));
        drop(second);
        assert_eq!(spare(), 1);
    }

    #[test]
    fn of_very_many_requests_some_records_are_kept_and_a_request_outlives_its_group() {
        let requests = Requests::default();
        let many: Vec<_> = (0..SPARE_MAX + 10).map(|_| requests.make()).collect();
        drop(many);
        assert_eq!(requests.spare(), SPARE_MAX);
        let (request, completer) = requests.make();
        drop(requests);
        completer.complete(Ok(None));
        assert_eq!(request.wait(None), Some(Ok(None)));
    }
}
