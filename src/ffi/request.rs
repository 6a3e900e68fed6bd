//! Requests: what becomes of an operation that goes on while its caller does something else.

use super::constants::muster_status_t;
use super::convert::{fits, give_struct, handle, null, out, slice};
use super::guard::{guard, guard_number, Handle};
use crate::error::{memory, Error, Result, Status};
use crate::runtime::base::interrupts::in_call;
use crate::runtime::base::polling::Tester;
use crate::runtime::base::request::{Outcome, Received, Request};
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::time::Duration;

thread_local! {
    static TESTER: RefCell<Tester> = const { RefCell::new(Tester::new()) };
    static NOTIFIES: Cell<bool> = const { Cell::new(false) };
}

/// What a receive says about the message that it got, or about a message that did not fit. A probe says the same
/// about the message that it has found.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct muster_received_t {
    /// The sender's rank in the group.
    pub source: i32,
    /// The sender's tag.
    pub tag: i32,
    /// How many elements the message has. If a receive returned MUSTER_ERR_MISMATCH, this is the true length of the message that
    /// did not fit.
    pub count: u64,
    /// Their type, a MUSTER_ constant.
    pub dtype: i32,
}

/// An operation that was started and may still go on. Belongs to one thread at a time. Free it with
/// muster_request_free, also after the operation has ended, and also if its group or cluster has been freed before.
pub struct muster_request_t {
    /// None once the operation has been freed. The structure is then kept for the next one.
    live: Option<Live>,
}

struct Live {
    handle: Handle<Request>,
    report: Report,
}

/// The caller's memory for what a receive tells about its message.
#[derive(Clone, Copy)]
pub(super) struct Report {
    to: *mut muster_received_t,
    size: usize,
}

// SAFETY: it points to what the caller promised to keep writable; which thread writes there does not matter.
unsafe impl Send for Report {}

impl Report {
    pub(super) const NONE: Report = Report { to: std::ptr::null_mut(), size: 0 };

    /// The memory that the caller named, if it named one.
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

    /// Writes what is known of the message, and passes an error on. A message that did not fit is reported, too.
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

/// The bytes of a report for which there must be room.
const LEAST: usize = std::mem::size_of::<i32>();

impl muster_request_t {
    /// A pointer for the caller, to be freed.
    pub(super) fn give(request: Request) -> *mut muster_request_t {
        muster_request_t::give_reporting(request, Report::NONE)
    }

    /// As `give`; the end of the receive is reported, too.
    pub(super) fn give_reporting(request: Request, report: Report) -> *mut muster_request_t {
        let shell = request.take_shell().and_then(|shell| shell.downcast::<muster_request_t>().ok());
        let mut shell = shell.unwrap_or_else(|| Box::new(muster_request_t { live: None }));
        shell.live = Some(Live { handle: Handle::new(request), report });
        Box::into_raw(shell)
    }

    fn live(&self) -> Result<&Live> {
        self.live.as_ref().ok_or_else(|| Error::invalid("this request has been freed"))
    }

    /// Asks whether the operation has ended; see `ask`.
    fn wait(&self, limit: Option<Duration>) -> Result<Status> {
        self.ask(|request| request.wait_attentively(limit).map_err(|why| in_call("the wait for a request", &why)))
    }

    /// The answer: it goes on, or how it ended.
    fn ask(&self, how: impl FnOnce(&Request) -> Result<Option<Outcome>>) -> Result<Status> {
        let Live { handle, report } = self.live()?;
        handle.with("request", |request| match how(request)? {
            None => Ok(Status::InProgress),
            Some(ended) => report.give_end(ended).map(|()| Status::Ok),
        })
    }
}

/// How long to wait. `None` waits for the end.
fn limit(timeout_ms: i64) -> Result<Option<Duration>> {
    match timeout_ms {
        -1 | i64::MAX => Ok(None),
        0.. => Ok(Some(Duration::from_millis(timeout_ms as u64))),
        _ => Err(Error::invalid(format!("timeout_ms is {timeout_ms}: expected -1 (until it has ended), 0 or more"))),
    }
}

/// A test by this thread.
fn test(request: &Request) -> Result<Option<Outcome>> {
    Ok(TESTER.with_borrow_mut(|tester| request.test_by(tester)))
}

/// Asks whether the operation has ended: MUSTER_IN_PROGRESS while it goes on, MUSTER_OK once it is done, or its error, with
/// its sentence in muster_last_error. A later test says the same again.
///
/// Operations go on by themselves; this call is not needed for that. Between pieces of other work it only looks. It
/// never waits for the end. But a thread that does nothing but test, one request or many, keeps the processor from
/// the thread that does the work. So after some tests that found nothing within microseconds, this call lets other
/// threads run (sched_yield). If processors are short it sleeps for 0.1 ms at most, or until the operation ends. A
/// caller that can wait does better with muster_request_wait.
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
/// With `timeout_ms` -1 or INT64_MAX the call waits for the operation's own end, which the group's time-out limits. 0
/// only asks. Blocking.
///
/// If a thread waits without a limit for a collective that no thread has begun, it carries the collective out itself,
/// and before that the group's earlier collectives. So starting and waiting cost little more than the blocking call.
/// muster_request_wait_all does the same for requests of one cluster. So a reduction function may run on this thread.
/// If the wait is interrupted while the collective sleeps, the thread leaves the collective, which goes on without
/// it.
///
/// # Safety
/// `request` must be NULL or a live request.
#[no_mangle]
pub unsafe extern "C" fn muster_request_wait(request: *mut muster_request_t, timeout_ms: i64) -> muster_status_t {
    guard(|| {
        let limit = limit(timeout_ms)?;
        // SAFETY: as promised by the caller.
        unsafe { handle(request, "request") }?.wait(limit)
    })
}

/// The requests among these that are not NULL, each with its place.
///
/// # Safety
/// `requests` must be readable for `n` pointers, each NULL or a live request, or be NULL.
unsafe fn several<'a>(requests: *const *mut muster_request_t, n: usize) -> Result<(Vec<usize>, Vec<&'a Live>)> {
    // SAFETY: as promised by the caller.
    let given = unsafe { slice(requests, n, "requests") }?;
    fits::<[u8; 64]>(n, "n")?; // so much is kept of each, at most
    memory::room(n * 64, "the requests that are waited for")?;
    let (mut places, mut all) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for (place, request) in given.iter().enumerate() {
        // SAFETY: NULL, or live as promised by the caller.
        if let Some(request) = unsafe { request.as_ref() } {
            let live =
                request.live().map_err(|error| Error::invalid(format!("requests[{place}]: {}", error.message())))?;
            live.handle.usable("request")?;
            places.push(place);
            all.push(live);
        }
    }
    Ok((places, all))
}

impl Live {
    fn request(&self) -> Result<&Request> {
        self.handle.usable("request")
    }

    fn report(&self, ended: Outcome) -> Result<Status> {
        self.report.give_end(ended).map(|()| Status::Ok)
    }
}

/// Waits until one of `n` requests has ended, and answers as muster_request_test of that one; its place in `requests`
/// goes to `index`, also if it has failed. If several have ended, it is the first in the list. MUSTER_IN_PROGRESS if
/// all go on after `timeout_ms`, which counts as for muster_request_wait.
///
/// An entry that is NULL is passed over, so that a caller can put NULL where it has freed one. MUSTER_ERR_NOT_FOUND if
/// all entries are NULL. If no request has ended, `index` is not written. So a caller that has put `n` there before can
/// tell an operation's error from an error of this call. The requests may be of different groups and clusters.
/// Blocking; ends early as muster_interrupt says.
///
/// # Safety
/// `requests` must be readable for `n` pointers, each NULL or a live request, or be NULL; `index` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_request_wait_any(
    requests: *const *mut muster_request_t,
    n: usize,
    timeout_ms: i64,
    index: *mut usize,
) -> muster_status_t {
    guard(|| {
        let (index, limit) = (out(index, "index")?, limit(timeout_ms)?);
        // SAFETY: as promised by the caller.
        let (places, all) = unsafe { several(requests, n) }?;
        let waited = all.iter().map(|live| live.request()).collect::<Result<Vec<&Request>>>()?;
        if waited.is_empty() {
            return Err(Error::new(Status::NotFound, format!("requests: none of the {n} is there")));
        }
        let found = Request::wait_any(&waited, limit).map_err(|why| in_call("the wait for any request", &why))?;
        let Some((at, ended)) = found else { return Ok(Status::InProgress) };
        // SAFETY: not NULL, and writable as the caller promised.
        unsafe { index.write(places[at]) };
        all[at].report(ended)
    })
}

/// Waits until all of `n` requests have ended: MUSTER_OK, or the error of the first in `requests` that has failed,
/// once all have ended. muster_request_test tells of each. MUSTER_IN_PROGRESS if one goes on after `timeout_ms`,
/// which counts as for muster_request_wait. Entries that are NULL are passed over. If all entries are NULL it returns
/// MUSTER_OK. The requests may be of different groups and clusters. Blocking; ends early as muster_interrupt says.
///
/// # Safety
/// `requests` must be readable for `n` pointers, each NULL or a live request, or be NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_request_wait_all(
    requests: *const *mut muster_request_t,
    n: usize,
    timeout_ms: i64,
) -> muster_status_t {
    guard(|| {
        let limit = limit(timeout_ms)?;
        // SAFETY: as promised by the caller.
        let (_, all) = unsafe { several(requests, n) }?;
        let waited = all.iter().map(|live| live.request()).collect::<Result<Vec<&Request>>>()?;
        if !Request::wait_all(&waited, limit).map_err(|why| in_call("the wait for all requests", &why))? {
            return Ok(Status::InProgress);
        }
        let reports = all.iter().zip(waited).filter_map(|(live, request)| Some(live.report(request.test()?)));
        let all_told: Vec<Result<Status>> = reports.collect();
        all_told.into_iter().find(Result::is_err).unwrap_or(Ok(Status::Ok))
    })
}

/// A function of the program that the library calls once an operation has ended: with MUSTER_OK or the operation's
/// error, and the `ctx` that muster_request_notify was given.
///
/// A thread of the library calls it, one function at a time for each cluster. A function that takes long delays the
/// functions of other requests, but no operation. The function may call this library: muster_request_test, after
/// which muster_last_error gives the error's sentence and `received` of a receive is written; and muster_request_free,
/// for this or another request. The function must not free the request's cluster, and must not throw.
#[allow(non_camel_case_types)]
pub type muster_notify_fn = Option<unsafe extern "C" fn(status: muster_status_t, ctx: *mut c_void)>;

/// What a program wants to be called.
struct Notified {
    function: unsafe extern "C" fn(status: muster_status_t, ctx: *mut c_void),
    ctx: *mut c_void,
}

// SAFETY: whoever gives a function promises that a thread of the library may call it with its `ctx`.
unsafe impl Send for Notified {}

impl Notified {
    fn call(self, status: Status) {
        NOTIFIES.set(true);
        // SAFETY: `function` and `ctx` are good until it has returned, as the caller of muster_request_notify promised.
        unsafe { (self.function)(status.code(), self.ctx) };
        NOTIFIES.set(false);
    }
}

/// Has `fn` called, exactly once, when the operation has ended. If it has ended already, `fn` is called at once. A
/// thread of the library calls it, never this call itself. For programs with an event loop: nobody waits. If the
/// request is freed meanwhile, `fn` is still called: muster_request_free and muster_cluster_free wait for it.
///
/// A request takes one function. A second one is MUSTER_ERR_STATE, as is a call after the cluster was freed. The first
/// call on a cluster starts the thread; MUSTER_ERR_SYSTEM if it cannot be started. Does not block.
///
/// # Safety
/// `request` must be NULL or a live request; `fn` and `ctx` must be good until `fn` has returned.
#[no_mangle]
pub unsafe extern "C" fn muster_request_notify(
    request: *mut muster_request_t,
    r#fn: muster_notify_fn,
    ctx: *mut c_void,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let request = unsafe { handle(request, "request") }?;
        let notified = Notified { function: r#fn.ok_or_else(|| null("fn"))?, ctx };
        request.live()?.handle.with("request", |request| {
            request.notify(move |status| notified.call(status))?;
            Ok(Status::Ok)
        })
    })
}

/// A descriptor that becomes readable (poll, epoll, select) when the operation has ended, and not before. If the
/// operation has ended already, it is readable at once. For programs with an event loop. Each call gives the same
/// descriptor.
///
/// It is an eventfd that belongs to the library: watch it, and do nothing else with it. muster_request_free closes it, so
/// take it out of an epoll set before. A negative value is a status: MUSTER_ERR_SYSTEM if the process can have no more
/// descriptors. Does not block.
///
/// # Safety
/// `request` must be NULL or a live request.
#[no_mangle]
pub unsafe extern "C" fn muster_request_descriptor(request: *mut muster_request_t) -> i32 {
    let number = guard_number(|| {
        // SAFETY: as promised by the caller.
        let request = unsafe { handle(request, "request") }?;
        request.live()?.handle.with("request", |request| request.descriptor().map(i64::from))
    });
    i32::try_from(number).unwrap_or(Status::Internal.code())
}

/// Cancels the operation: it ends soon, with MUSTER_ERR_ABORTED. If it is too far on to be stopped, it ends normally; if
/// it has ended already, nothing changes. The request tells which. It must still be freed, and its buffers are in use until it has
/// ended.
///
/// A send or a receive can be cancelled if it has not met its receive or its send yet. If they have met, it ends as it
/// would have without this call. But if the message of a receive does not come after all, the receive also ends with
/// MUSTER_ERR_ABORTED. For a send that is under way and waits for its receive, only the receiver knows whether the two
/// have met, so the library asks it. The send ends when that process has answered or is lost, or when the send's time
/// is up.
///
/// One rank alone cannot take a collective back. Cancelling a collective that has not ended, begun or not, revokes its
/// group: every rank's calls on it return MUSTER_ERR_ABORTED with this rank's name. May wait up to 250 ms for the
/// scheduler's answer. MUSTER_OK means that the library has accepted the wish to cancel.
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

/// Frees a request. Does nothing for NULL. If the operation goes on, this call waits for its end, as long as the
/// blocking form may take. When this returns, the library no longer touches the buffers. A caller that does not want to
/// wait cancels first. The call also waits until the function of muster_request_notify has returned, unless such a
/// function makes the call. The descriptor of muster_request_descriptor is closed. Nothing interrupts this wait
/// (muster_interrupt).
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
                if !NOTIFIES.get() {
                    request.await_notice();
                }
                request.leave_shell(shell);
            }
            // In a forked child nobody carries it out; what it owns is the parent's.
            Err(inherited) => std::mem::forget(inherited),
        }
        Ok(Status::Ok)
    });
}
