//! A request: an operation that goes on while its caller does something else.
//!
//! It has two ends. The caller's, [`Request`], asks, waits and cancels; the other, [`Completer`], belongs to whoever
//! carries the operation out, and ends it once. Until then the operation's buffers are in use. Tested below, and in every
//! order of threads by `loom_test.rs`.

use super::sync::{lock, wait, Arc, Condvar, Instant, Mutex};
use crate::error::{Error, Result, Status};
use crate::types::DType;
use std::time::Duration;

/// What a finished receive tells of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender's rank in the group.
    pub source: u32,
    /// Its tag.
    pub tag: i32,
    /// How many elements came.
    pub count: u64,
    /// Of which type.
    pub dtype: DType,
}

/// How an operation ended; what came, if it was a receive.
pub type Outcome = Result<Option<Received>>;

/// What carries out a wish to cancel: finds the operation and ends it, if it is not too late.
type Cancel = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    outcome: Option<Outcome>,
    cancelled: bool,
    cancel: Option<Cancel>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The caller's end.
pub struct Request {
    shared: Arc<Shared>,
}

/// The end of whoever carries the operation out. Dropped without a word, the operation has failed.
pub struct Completer {
    shared: Arc<Shared>,
}

/// Both ends of a new request.
pub fn request() -> (Request, Completer) {
    let shared = Arc::new(Shared::default());
    (Request { shared: Arc::clone(&shared) }, Completer { shared })
}

impl Request {
    /// How the operation ended, if it has.
    pub fn test(&self) -> Option<Outcome> {
        lock(&self.shared.state).outcome.clone()
    }

    /// Waits for the end, at most so long (`None`: without limit).
    pub fn wait(&self, limit: Option<Duration>) -> Option<Outcome> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut state = lock(&self.shared.state);
        loop {
            if let Some(outcome) = &state.outcome {
                return Some(outcome.clone());
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return None;
            }
            state = wait(&self.shared.changed, state, left);
        }
    }

    /// Asks for the end. The operation may have ended before, or be too far on to be stopped: then it ends as it would
    /// have. Asking twice is asking once.
    pub fn cancel(&self) {
        let mut state = lock(&self.shared.state);
        if state.outcome.is_some() {
            return;
        }
        state.cancelled = true;
        let cancel = state.cancel.take();
        drop(state);
        if let Some(cancel) = cancel {
            cancel();
        }
    }
}

impl Completer {
    /// Says what is to be done when the caller cancels; done at once if that has happened already.
    pub fn on_cancel(&self, cancel: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.shared.state);
        if !state.cancelled {
            state.cancel = Some(Box::new(cancel));
            return;
        }
        drop(state);
        cancel();
    }

    /// Whether the caller has asked for the end.
    #[cfg(all(test, not(loom)))]
    pub fn is_cancelled(&self) -> bool {
        lock(&self.shared.state).cancelled
    }

    /// The operation has ended; its buffers are no longer touched.
    pub fn complete(self, outcome: Outcome) {
        self.end(outcome);
    }

    /// Keeps the first outcome.
    fn end(&self, outcome: Outcome) {
        let mut state = lock(&self.shared.state);
        if state.outcome.is_some() {
            return;
        }
        state.outcome = Some(outcome);
        let cancel = state.cancel.take();
        self.shared.changed.notify_all();
        drop(state);
        drop(cancel); // outside the lock: it may own a group
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.end(Err(Error::new(
            Status::Internal,
            "the operation was given up: a bug in this library; please report it",
        )));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
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
    fn an_operation_that_is_dropped_has_failed() {
        let (request, completer) = request();
        drop(completer);
        assert_eq!(
            request.wait(None).map(|outcome| outcome.map_err(|error| error.status())),
            Some(Err(Status::Internal))
        );
    }

    #[test]
    fn cancelling_is_told_once_whichever_comes_first() {
        static TOLD: AtomicU32 = AtomicU32::new(0);
        let tell = || {
            TOLD.fetch_add(1, Ordering::SeqCst);
        };
        let (one, completer) = request();
        completer.on_cancel(tell);
        one.cancel();
        one.cancel();
        assert!(completer.is_cancelled());
        assert_eq!(TOLD.load(Ordering::SeqCst), 1);
        let (other, later) = request();
        other.cancel();
        later.on_cancel(tell);
        assert_eq!(TOLD.load(Ordering::SeqCst), 2);
        let (done, completer) = request();
        completer.on_cancel(tell);
        completer.complete(Ok(None));
        done.cancel();
        assert_eq!(TOLD.load(Ordering::SeqCst), 2, "it was too late");
    }
}
