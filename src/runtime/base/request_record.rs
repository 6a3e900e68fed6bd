//! What both ends of a request share, and what is told of its end: the threads that wait for it, or for several; a
//! descriptor that can be read then; the program's function.
//!
//! A record goes home to its group's [`Requests`] with the last of its ends. Tested in `request_test.rs`, and in every order of threads
//! by `loom_test.rs`.

use super::interrupts::{nudge, wait_until, Attention};
use super::program::Program;
use super::sync::{lock, Arc, Bell, Condvar, Instant, Mutex, MutexGuard};
use crate::error::{Error, Result, Status};
use crate::types::Received;
use std::any::Any;
use std::time::Duration;

/// How many records are kept for requests to come; more than these go back to the system.
pub(super) const SPARE_MAX: usize = 1024;

/// How an operation ended, and what came, if it was a receive.
pub type Outcome = Result<Option<Received>>;

/// A group's requests. Keeps the records of those that have ended, for requests to come.
#[derive(Clone, Default)]
pub(crate) struct Requests(pub(super) Arc<Shelf>);

#[derive(Default)]
pub(super) struct Shelf {
    spare: Mutex<Vec<Arc<RequestRecord>>>,
    /// The records in whose waits the program's threads sleep: these are woken when the program interrupts them.
    pub(super) slept_in: Mutex<Vec<Arc<RequestRecord>>>,
    /// The program: it interrupts the waits, and is told of ends.
    pub(super) program: std::sync::Arc<Program>,
}

/// The state of a record in the life of one request.
#[derive(Default)]
pub(super) struct Life {
    pub outcome: Option<Outcome>,
    /// How many parts of the operation have not ended; and below, what came to the ended parts.
    pub missing: u32,
    received: Option<Received>,
    error: Option<Error>,
    pub cancelled: bool,
    /// How many threads wait.
    waiting: u32,
    /// What else is told of the end: a bell that can be read then, the waits for several requests, the program's
    /// function.
    pub bell: Option<Bell>,
    pub several: Vec<Arc<RequestRecord>>,
    pub notice: Notice,
    /// How many ends of the request have not been dropped, and where the record goes with the last of them.
    pub ends: u32,
    pub home: Option<Requests>,
    /// The memory of an earlier request, kept for the next one (`Request::take_shell`).
    pub shell: Option<Box<dyn Any + Send>>,
}

#[derive(Default)]
pub(super) struct RequestRecord {
    pub state: Mutex<Life>,
    pub changed: Condvar,
}

/// Passes the word of an end on to the program's function.
type TakeOn = Box<dyn FnOnce(Notified) + Send>;

/// The state of the function that the program wants to be called.
#[derive(Default)]
pub(super) enum Notice {
    /// There is none.
    #[default]
    None,
    /// The operation goes on. This passes the word of its end on.
    Pending(TakeOn),
    /// The operation has ended, and the function has not returned.
    OnItsWay,
    /// The function has returned.
    Given,
}

/// The word that an operation has ended, on its way to the program's function. When this is dropped, the word has
/// arrived.
pub(crate) struct Notified {
    record: Arc<RequestRecord>,
    /// How it ended.
    pub status: Status,
}

impl Drop for Notified {
    fn drop(&mut self) {
        let mut life = lock(&self.record.state);
        (life.notice, life.ends) = (Notice::Given, life.ends - 1);
        let waiting = life.waiting;
        leave(&self.record, life);
        if waiting > 0 {
            self.record.changed.notify_all();
        }
    }
}

/// The threads and functions that are told of an end. They are told after the record is unlocked, because they lock it
/// next.
#[derive(Default)]
struct Hearers {
    waiting: u32,
    several: Vec<Arc<RequestRecord>>,
    notice: Option<(TakeOn, Notified)>,
}

impl Life {
    fn tell(&mut self, record: &Arc<RequestRecord>) -> Hearers {
        self.bell.iter().for_each(Bell::wake);
        let (waiting, several) = (self.waiting, std::mem::take(&mut self.several));
        let notice = match std::mem::take(&mut self.notice) {
            Notice::Pending(take_on) => Some((take_on, self.notified(record))),
            other => {
                self.notice = other;
                None
            }
        };
        Hearers { waiting, several, notice }
    }

    pub fn notified(&mut self, record: &Arc<RequestRecord>) -> Notified {
        (self.notice, self.ends) = (Notice::OnItsWay, self.ends + 1);
        let status = match &self.outcome {
            Some(Err(error)) => error.status(),
            _ => Status::Ok,
        };
        Notified { record: Arc::clone(record), status }
    }
}

impl Hearers {
    fn tell(self, record: &RequestRecord) {
        if self.waiting > 0 {
            record.changed.notify_all();
        }
        self.several.iter().for_each(one_more);
        if let Some((take_on, notified)) = self.notice {
            take_on(notified);
        }
    }
}

impl Requests {
    /// The requests of a program that interrupts their waits, and is told of their ends.
    pub(crate) fn new(program: &std::sync::Arc<Program>) -> Requests {
        Requests(Arc::new(Shelf { program: std::sync::Arc::clone(program), ..Shelf::default() }))
    }

    /// Makes the threads that wait look whether the program has interrupted them.
    pub(crate) fn nudge(&self) {
        let slept_in = lock(&self.0.slept_in).clone();
        slept_in.iter().for_each(|record| nudge((&record.state, &record.changed)));
    }

    /// Whether the next request takes no memory.
    pub(crate) fn has_spare(&self) -> bool {
        !lock(&self.0.spare).is_empty()
    }

    /// From now on the program's thread sleeps in the record's waits: what interrupts this node's calls wakes it.
    pub(super) fn asleep<'a>(&'a self, record: &'a Arc<RequestRecord>) -> Asleep<'a> {
        lock(&self.0.slept_in).push(Arc::clone(record));
        Asleep { of: self, record }
    }

    fn take_back(&self, record: &Arc<RequestRecord>) {
        let mut spare = lock(&self.0.spare);
        if spare.len() < SPARE_MAX {
            spare.push(Arc::clone(record));
        }
    }

    /// A record for the next request, with its two ends.
    pub(super) fn take(&self) -> Arc<RequestRecord> {
        let spare = lock(&self.0.spare).pop();
        let record = spare.unwrap_or_default();
        let mut life = lock(&record.state);
        (life.missing, life.ends, life.home) = (1, 2, Some(self.clone()));
        drop(life);
        record
    }

    #[cfg(test)]
    pub(crate) fn spare(&self) -> usize {
        lock(&self.0.spare).len()
    }
}

/// A wait in which the program's thread sleeps.
pub(super) struct Asleep<'a> {
    of: &'a Requests,
    record: &'a Arc<RequestRecord>,
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        let mut slept_in = lock(&self.of.0.slept_in);
        let place = slept_in.iter().position(|other| Arc::ptr_eq(other, self.record));
        place.map(|place| slept_in.swap_remove(place));
    }
}

/// Drops the caller's end, and with it the descriptor that can be read.
pub(super) fn let_go(record: &Arc<RequestRecord>) {
    let mut state = lock(&record.state);
    let bell = state.bell.take();
    state.ends -= 1;
    leave(record, state);
    drop(bell);
}

/// A part of the operation has ended. With the last part the whole ends: with the first error of any part. The part's
/// end is gone when the caller hears of that, so that a record that the caller lets go at once can be used again at
/// once.
pub(super) fn end(record: &Arc<RequestRecord>, outcome: Outcome) {
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

/// Sends the record home when its last end is gone.
fn leave(record: &Arc<RequestRecord>, mut state: MutexGuard<'_, Life>) {
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

impl RequestRecord {
    /// Waits for something in the record's life, at most so long. A thread that ends the operation looks whether
    /// anybody waits.
    pub fn wait_until<T>(
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

    pub fn wait_for(&self, limit: Option<Duration>, attention: &Attention<'_>) -> Result<Option<Outcome>> {
        self.wait_until(limit, attention, |life| life.outcome.clone())
    }
}

/// One more request has ended.
pub(super) fn one_more(several: &Arc<RequestRecord>) {
    let mut life = lock(&several.state);
    life.missing = life.missing.saturating_sub(1);
    if life.missing > 0 || life.outcome.is_some() {
        return;
    }
    life.outcome = Some(Ok(None));
    drop(life);
    several.changed.notify_all();
}
