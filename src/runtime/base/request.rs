//! A request: an operation that goes on while its caller does something else.
//!
//! It has two ends. The caller's, [`Request`], asks, waits and cancels. The other, [`Completer`], belongs to the
//! thread that carries the operation out, and ends it once. Until then the operation's buffers are in use.
//!
//! Both ends share a record, which goes back to the group's [`Requests`] when the last end is dropped. So a request
//! takes no memory if others ended before it. Invariant: a record that is given out anew has no end left of its earlier
//! life. Tested below, and in every order of threads by `loom_test.rs`.

use super::interrupts::Attention;
use super::polling::{GiveWay, Tester};
use super::request_record::{end, let_go, Life, Notice, RequestRecord};
use super::sync::{lock, Arc, Bell};
use crate::error::{Error, Result, Status};
use crate::types::Call;
use std::any::Any;
use std::ops::Range;
use std::os::fd::RawFd;
use std::time::Duration;

pub use super::request_record::Outcome;
pub(crate) use super::request_record::{Notified, Requests};
pub use crate::types::Received;

/// The operation that a request stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestedOperation {
    /// This collective, and the number of its turn.
    Collective(Call, u64),
    /// These messages.
    Messages(Range<u64>),
}

/// An engine that finds an operation by its request: to end it, if it is not too late, or to go on with it.
pub(crate) trait RequestEngine: Send + Sync {
    fn cancel(&self, operation: RequestedOperation);

    /// Carries the operation out, with what comes before it, for a thread that waits for it, if nobody has begun. An
    /// interrupted thread leaves the rest to the engine's own thread, and hears why.
    fn carry_out(&self, operation: &RequestedOperation, attention: &Attention<'_>) -> Result<()> {
        let _ = (operation, attention);
        Ok(())
    }

    /// A caller waits for operations that it cannot carry out itself: the engine's own thread must not doze.
    fn hurry(&self) {}
}

/// The caller's end of a request.
pub struct Request {
    pub(super) record: Arc<RequestRecord>,
    by: Option<(std::sync::Arc<dyn RequestEngine>, RequestedOperation)>,
}

/// The end that carries the operation out, or one of its two parts. If it is dropped without a word, the operation has
/// failed.
pub struct Completer {
    /// None once this has told the outcome.
    record: Option<Arc<RequestRecord>>,
}

impl Requests {
    /// Both ends of a new request.
    pub(crate) fn make(&self) -> (Request, Completer) {
        let record = self.take();
        (Request { record: Arc::clone(&record), by: None }, Completer { record: Some(record) })
    }

    /// Waits like `Request::wait`, for a call with this attention.
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
}

/// An engine that does this when it is told to cancel.
#[cfg(test)]
pub(crate) struct Told<F>(pub F);

#[cfg(test)]
impl<F: Fn() + Send + Sync> RequestEngine for Told<F> {
    fn cancel(&self, _: RequestedOperation) {
        (self.0)();
    }
}

/// Both ends of a request that no group made.
#[cfg(test)]
pub(crate) fn request() -> (Request, Completer) {
    Requests::default().make()
}

impl Request {
    /// The same request, for this operation.
    pub(crate) fn of(self, by: std::sync::Arc<dyn RequestEngine>, operation: RequestedOperation) -> Request {
        let mut request = self;
        request.by = Some((by, operation));
        request
    }

    /// Carries the operation out, as a thread that waits for nothing but its end.
    pub(super) fn carry_out(&self, attention: &Attention<'_>) -> Result<()> {
        let Some((by, operation)) = &self.by else { return Ok(()) };
        by.carry_out(operation, attention)
    }

    /// Says that a thread waits for the end and does not carry the operation out.
    pub(super) fn hurry(&self) {
        self.by.iter().for_each(|(by, _)| by.hurry());
    }

    /// The operation that the request stands for, for the engine that carries it out.
    pub(crate) fn operation(&self) -> Option<&RequestedOperation> {
        self.by.as_ref().map(|(_, operation)| operation)
    }

    /// How the operation ended, if it has.
    pub fn test(&self) -> Option<Outcome> {
        lock(&self.record.state).outcome.clone()
    }

    /// How the operation ended, if it has, for a caller that may wait by testing again and again. Such a caller gives
    /// way to the thread that does the work.
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

    /// Waits for the end like [`wait`](Request::wait), for a call of the program. If the call is interrupted, the
    /// operation goes on.
    pub(crate) fn wait_attentively(&self, limit: Option<Duration>) -> Result<Option<Outcome>> {
        let state = lock(&self.record.state);
        let (Some(requests), None) = (&state.home, &state.outcome) else { return Ok(state.outcome.clone()) };
        let requests = requests.clone();
        drop(state);
        let attention = requests.0.program.interrupts.attention();
        match limit {
            None => {
                if let Err(why) = self.carry_out(&attention) {
                    return self.test().map(Some).ok_or(why);
                }
            }
            Some(_) => self.hurry(),
        }
        requests.wait_in(self, limit, &attention)
    }

    /// Waits until the program's function has returned, if it is to be called.
    pub fn await_notice(&self) {
        let is_given = |life: &mut Life| (!matches!(life.notice, Notice::Pending(_) | Notice::OnItsWay)).then_some(());
        let _ = self.record.wait_until(None, &Attention::none(), is_given); // nothing interrupts it
    }

    /// Has this function called once the operation has ended, by a thread of the operation's node; or at once if it has
    /// ended.
    pub fn notify(&self, function: impl FnOnce(Status) + Send + 'static) -> Result<()> {
        let notices = {
            let life = lock(&self.record.state);
            if !matches!(life.notice, Notice::None) {
                return Err(Error::new(Status::State, "this request has a function already, which is called once"));
            }
            life.home.as_ref().map(|home| home.0.program.notices.clone()).unwrap_or_default()
        };
        notices.promise()?;
        self.tell_by(move |notified| {
            notices.take_on(Box::new(move || {
                function(notified.status);
                drop(notified); // it has arrived
            }));
        });
        Ok(())
    }

    /// Has `take_on` called with the word of the end: when the operation ends, with its engine's locks held, or at once
    /// if it has ended.
    pub(crate) fn tell_by(&self, take_on: impl FnOnce(Notified) + Send + 'static) {
        let mut life = lock(&self.record.state);
        if life.outcome.is_none() {
            life.notice = Notice::Pending(Box::new(take_on));
            return;
        }
        let notified = life.notified(&self.record);
        drop(life);
        take_on(notified);
    }

    /// A descriptor that can be read once the operation has ended, until the request is dropped.
    pub fn descriptor(&self) -> Result<RawFd> {
        if let Some(bell) = &lock(&self.record.state).bell {
            return Ok(bell.descriptor());
        }
        let bell = Bell::new()?;
        let descriptor = bell.descriptor();
        let mut life = lock(&self.record.state);
        if life.outcome.is_some() {
            bell.wake();
        }
        life.bell = Some(bell);
        Ok(descriptor)
    }

    /// Asks for the end. The operation may have ended before, or be too far on to be stopped: then it ends as it would
    /// have. Asking twice is asking once.
    pub fn cancel(&self) {
        let mut state = lock(&self.record.state);
        if state.outcome.is_some() || std::mem::replace(&mut state.cancelled, true) {
            return;
        }
        drop(state);
        if let Some((by, operation)) = &self.by {
            by.cancel(operation.clone());
        }
    }

    /// The memory in which the holder of this record kept an earlier request, if there is any. Nothing in it is of use.
    pub fn take_shell(&self) -> Option<Box<dyn Any + Send>> {
        lock(&self.record.state).shell.take()
    }

    /// Drops the request, and leaves the memory in which it was kept for the next one.
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

    /// The two ends of an operation of two parts. The operation ends with the later part, and with the first error of
    /// either.
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
