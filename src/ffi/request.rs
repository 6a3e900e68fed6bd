//! Requests: what becomes of an operation that goes on while its caller does something else.

use super::constants::muster_status_t;
use super::convert::{give_struct, handle};
use super::guard::{guard, Handle};
use crate::error::{Error, Result, Status};
use crate::runtime::base::interrupts::in_call;
use crate::runtime::base::polling::Tester;
use crate::runtime::base::request::{Outcome, Received, Request};
use std::cell::RefCell;
use std::time::Duration;

thread_local! {
    static TESTER: RefCell<Tester> = const { RefCell::new(Tester::new()) };
}

/// What a receive tells of the message that it got, or that did not fit it; and a probe of the message that it found.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct muster_received_t {
    /// The sender's rank in the group.
    pub source: i32,
    /// The sender's tag.
    pub tag: i32,
    /// How many elements the message has. More than were asked for, or of another type: MUSTER_ERR_MISMATCH.
    pub count: u64,
    /// Their type, a MUSTER_ constant.
    pub dtype: i32,
}

/// An operation that was started and may still go on. Belongs to one thread at a time. To be freed with
/// muster_request_free, also after it has ended, and also where its group or cluster has been freed before.
pub struct muster_request_t {
    /// None once it has been freed: then this is kept for the next one.
    live: Option<Live>,
}

struct Live {
    handle: Handle<Request>,
    report: Report,
}

/// Where a receive tells of its message.
#[derive(Clone, Copy)]
pub(super) struct Report {
    to: *mut muster_received_t,
    size: usize,
}

// SAFETY: it points to what the caller promised to keep writable; which thread writes there does not matter.
unsafe impl Send for Report {}

impl Report {
    pub(super) const NONE: Report = Report { to: std::ptr::null_mut(), size: 0 };

    /// Where the caller wants it, if it does.
    ///
    /// `to` must be NULL, or writable for `size` bytes whenever `give` is called.
    pub(super) fn to(to: *mut muster_received_t, size: usize) -> Report {
        Report { to, size }
    }

    pub(super) fn check(&self) -> Result<()> {
        if !self.to.is_null() && self.size < LEAST {
            let sentence =
                format!("size is {}: at least {LEAST} is expected, best sizeof(muster_received_t)", self.size);
            return Err(Error::invalid(sentence));
        }
        Ok(())
    }

    /// Gives what is known of the message, and passes the error on: a message that did not fit is reported, too.
    pub(super) fn give_end(&self, ended: Outcome) -> Result<()> {
        match ended {
            Ok(received) => self.give(received),
            Err(error) => {
                self.give(error.message_that_did_not_fit())?;
                Err(error)
            }
        }
    }

    fn give(&self, received: Option<Received>) -> Result<()> {
        let Some(received) = received.filter(|_| !self.to.is_null()) else { return Ok(()) };
        let Received { source, tag, count, dtype } = received;
        let given = muster_received_t { source: source as i32, tag, count, dtype: dtype.code() };
        // SAFETY: not NULL, and writable for so many bytes as the caller of the receive promised.
        unsafe { give_struct(&given, self.to, self.size, LEAST) }.map(|_| ())
    }
}

/// How much of a report there must be room for.
const LEAST: usize = std::mem::size_of::<i32>();

impl muster_request_t {
    /// A pointer for the caller, to be freed.
    pub(super) fn give(request: Request) -> *mut muster_request_t {
        muster_request_t::give_reporting(request, Report::NONE)
    }

    /// As `give`; its end is reported, too.
    pub(super) fn give_reporting(request: Request, report: Report) -> *mut muster_request_t {
        let shell = request.take_shell().and_then(|shell| shell.downcast::<muster_request_t>().ok());
        let mut shell = shell.unwrap_or_else(|| Box::new(muster_request_t { live: None }));
        shell.live = Some(Live { handle: Handle::new(request), report });
        Box::into_raw(shell)
    }

    fn live(&self) -> Result<&Live> {
        self.live.as_ref().ok_or_else(|| Error::invalid("this request has been freed"))
    }

    /// Asks whether it has ended; see `ask`.
    fn wait(&self, limit: Option<Duration>) -> Result<Status> {
        self.ask(|request| request.wait_attentively(limit).map_err(|why| in_call("the wait for a request", &why)))
    }

    /// What it says: that it goes on, or how it ended.
    fn ask(&self, how: impl FnOnce(&Request) -> Result<Option<Outcome>>) -> Result<Status> {
        let Live { handle, report } = self.live()?;
        handle.with("request", |request| match how(request)? {
            None => Ok(Status::InProgress),
            Some(ended) => report.give_end(ended).map(|()| Status::Ok),
        })
    }
}

/// A test by this thread.
fn test(request: &Request) -> Result<Option<Outcome>> {
    Ok(TESTER.with_borrow_mut(|tester| request.test_by(tester)))
}

/// Asks whether the operation has ended: MUSTER_IN_PROGRESS while it goes on, MUSTER_OK once it is done, or its error, with
/// its sentence in muster_last_error. Says the same again however often it is asked.
///
/// Operations go on by themselves: nobody need ask for that. A test between pieces of other work only looks. Never
/// waits for the end. But a thread that does nothing but test, one request or many, keeps the processor from the
/// thread that does the work. So after some tests that found nothing within microseconds this lets others run
/// (sched_yield). Where processors are short it sleeps for 0.1 ms at most, or until the end. A caller that can wait
/// does better with muster_request_wait.
///
/// # Safety
/// `request` must be NULL or a live request.
#[no_mangle]
pub unsafe extern "C" fn muster_request_test(request: *mut muster_request_t) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        unsafe { handle(request, "request") }?.ask(test)
    })
}

/// Waits until the operation has ended, and answers as muster_request_test. MUSTER_IN_PROGRESS if it goes on after
/// `timeout_ms`: that ends the wait but not the operation, and the caller may wait again.
///
/// `timeout_ms` is -1 or INT64_MAX to wait for the operation's own end, which its group's time-out bounds, 0 to ask
/// only. Blocking.
///
/// # Safety
/// `request` must be NULL or a live request.
#[no_mangle]
pub unsafe extern "C" fn muster_request_wait(request: *mut muster_request_t, timeout_ms: i64) -> muster_status_t {
    guard(|| {
        let limit = match timeout_ms {
            -1 | i64::MAX => None,
            0.. => Some(Duration::from_millis(timeout_ms as u64)),
            _ => {
                let what = format!("timeout_ms is {timeout_ms}: expected -1 (until it has ended), 0 or more");
                return Err(Error::invalid(what));
            }
        };
        // SAFETY: as promised by the caller.
        unsafe { handle(request, "request") }?.wait(limit)
    })
}

/// Asks for the operation's end. It ends soon, with MUSTER_ERR_ABORTED, unless it has ended before, or is too far on to be
/// stopped; then it ends normally. The request tells which; it must still be freed, and its buffers are in use until it has
/// ended.
///
/// A message ends so as long as it has not met its other half; otherwise it ends as it would have.
///
/// One rank alone cannot take a collective back. Cancelling one that has not ended, begun or not, revokes its group:
/// every rank's calls on it return MUSTER_ERR_ABORTED with this rank's name. May wait up to 250 ms for the scheduler's
/// word. MUSTER_OK if the wish was taken note of.
///
/// # Safety
/// `request` must be NULL or a live request.
#[no_mangle]
pub unsafe extern "C" fn muster_request_cancel(request: *mut muster_request_t) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let request = unsafe { handle(request, "request") }?;
        request.live()?.handle.with("request", |request| {
            request.cancel();
            Ok(Status::Ok)
        })
    })
}

/// Frees a request. Does nothing for NULL. If the operation goes on it waits for its end (at most for its group's
/// time-out): when this returns, the buffers are no longer touched. A caller that does not want to wait cancels first.
///
/// # Safety
/// `request` must be NULL or a live request, which must not be used afterwards.
#[no_mangle]
pub unsafe extern "C" fn muster_request_free(request: *mut muster_request_t) {
    if request.is_null() {
        return;
    }
    // SAFETY: not NULL, and made by `give`; the caller does not use it again.
    let mut shell = unsafe { Box::from_raw(request) };
    guard(|| {
        let Some(live) = shell.live.take() else { return Ok(Status::Ok) };
        match live.handle.into_inner() {
            Ok(request) => {
                request.wait(None);
                request.leave_shell(shell);
            }
            // In a forked child nobody carries it out; what it owns is the parent's.
            Err(inherited) => std::mem::forget(inherited),
        }
        Ok(Status::Ok)
    });
}
