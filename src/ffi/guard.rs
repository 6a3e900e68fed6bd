//! What every entry does around its work. It catches panics, turns a result into a status, and keeps the last error.
//! It refuses handles that are NULL, inherited through `fork`, or poisoned by an earlier panic.

use super::constants::muster_status_t;
use crate::error::{Error, Result, Status};
use crate::net::{fork, thread};
use crate::runtime::base::log;
use std::cell::Cell;
use std::ffi::{c_char, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// The last error's sentence, from `CString::into_raw`, or null. It has no destructor: when a process ends, the main
    /// thread's destructors run before the program's handlers, which may ask for it.
    static LAST_ERROR: Cell<*mut c_char> = const { Cell::new(std::ptr::null_mut()) };
    static AT_THREADS_END: FreesLastError = const { FreesLastError };
}

/// Frees the last error's sentence of a thread that ends before its process.
struct FreesLastError;

impl Drop for FreesLastError {
    fn drop(&mut self) {
        if !thread::is_main() {
            replace_last(std::ptr::null_mut());
        }
    }
}

/// The last error's sentence. It is valid until this thread has its next error.
pub(super) fn last_error() -> *const c_char {
    match LAST_ERROR.get() {
        last if last.is_null() => c"".as_ptr(),
        last => last,
    }
}

fn replace_last(next: *mut c_char) {
    let last = LAST_ERROR.replace(next);
    if !last.is_null() {
        // SAFETY: it came from `into_raw` in `keep`, and is in no cell any more.
        drop(unsafe { CString::from_raw(last) });
    }
}

fn keep(error: &Error) -> muster_status_t {
    log::flush(); // the program may end now, and its log must have the reason
    let text = error.message().replace('\0', " ");
    let text = CString::new(text).expect("its zero bytes were just replaced");
    replace_last(text.into_raw());
    let _ = AT_THREADS_END.try_with(|_| ()); // from now on it runs when the thread ends
    error.status().code()
}

/// Runs an entry that returns a status.
pub(super) fn guard(body: impl FnOnce() -> Result<Status>) -> muster_status_t {
    match caught(body) {
        Ok(status) => status.code(),
        Err(error) => keep(&error),
    }
}

/// Runs an entry that returns a number, or a status where that is negative.
pub(super) fn guard_number(body: impl FnOnce() -> Result<i64>) -> i64 {
    caught(body).unwrap_or_else(|error| i64::from(keep(&error)))
}

/// Runs an entry that returns something else, which is `otherwise` when it fails.
pub(super) fn guard_or<T>(otherwise: T, body: impl FnOnce() -> Result<T>) -> T {
    caught(body).unwrap_or_else(|error| {
        keep(&error);
        otherwise
    })
}

fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no reason given");
        Err(Error::new(Status::Internal, format!("a bug in this library: {text}; please report it")))
    })
}

/// What stands behind every opaque pointer: the thing itself, the process that made it, and whether a panic has spoilt
/// it.
pub(super) struct Handle<T> {
    inner: T,
    generation: u64,
    poisoned: AtomicBool,
}

impl<T> Handle<T> {
    pub(super) fn new(inner: T) -> Handle<T> {
        Handle { inner, generation: fork::generation(), poisoned: AtomicBool::new(false) }
    }

    /// Whether the object was made in a process from which this one was forked.
    pub(super) fn is_inherited(&self) -> bool {
        self.generation != fork::generation()
    }

    /// The object, unless it may not be used.
    pub(super) fn usable(&self, what: &str) -> Result<&T> {
        if self.is_inherited() {
            let why = format!("this {what} belongs to the parent process: after fork() a child cannot use it");
            return Err(Error::new(Status::Forked, why));
        }
        if self.poisoned.load(Ordering::Relaxed) {
            let why = format!("this {what} was spoilt by an earlier internal error; it can only be freed");
            return Err(Error::new(Status::Internal, why));
        }
        Ok(&self.inner)
    }

    /// Runs `body` with the object, unless it may not be used. After a panic it may not be used again.
    pub(super) fn with<R>(&self, what: &str, body: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        let inner = self.usable(what)?;
        catch_unwind(AssertUnwindSafe(|| body(inner))).unwrap_or_else(|panic| {
            self.poisoned.store(true, Ordering::Relaxed);
            std::panic::resume_unwind(panic)
        })
    }

    /// The object for its caller to end; none in a forked child, because the object is the parent's.
    pub(super) fn own(&self) -> Option<&T> {
        (!self.is_inherited()).then_some(&self.inner)
    }

    /// The object for its caller to end; an error with it in a forked child, which may not touch what is the parent's.
    pub(super) fn into_inner(self) -> std::result::Result<T, T> {
        if self.is_inherited() {
            Err(self.inner)
        } else {
            Ok(self.inner)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn said() -> String {
        // SAFETY: the last error's text ends with a zero byte and lives until this thread's next error.
        unsafe { CStr::from_ptr(last_error()) }.to_str().expect("sentences are UTF-8").to_owned()
    }

    #[test]
    fn a_panic_becomes_an_internal_error_and_spoils_the_handle_only() {
        let handle = Handle::new(5);
        assert_eq!(
            guard(|| handle.with("thing", |five| Ok(if *five == 5 { Status::Ok } else { Status::Internal }))),
            0
        );
        let status = guard(|| handle.with("thing", |_| -> Result<Status> { panic!("two and two are {}", 5) }));
        assert_eq!(status, Status::Internal.code());
        assert!(said().contains("a bug in this library: two and two are 5"), "{}", said());
        assert_eq!(guard(|| handle.with("thing", |_| Ok(Status::Ok))), Status::Internal.code());
        assert!(
            said().contains("this thing was spoilt by an earlier internal error; it can only be freed"),
            "{}",
            said()
        );
        assert_eq!(handle.into_inner(), Ok(5));
        assert_eq!(guard(|| Handle::new(6).with("thing", |_| Ok(Status::Ok))), 0);
    }

    #[test]
    fn the_last_error_is_the_threads_own_and_outlives_successes() {
        assert_eq!(guard(|| Err(Error::invalid("the first\0 of this thread"))), Status::Invalid.code());
        assert_eq!(guard(|| Ok(Status::Ok)), 0);
        assert_eq!(said(), "the first  of this thread");
        std::thread::spawn(|| assert_eq!(said(), "")).join().expect("it found nothing");
        assert_eq!(guard_number(|| Err(Error::config("another"))), i64::from(Status::Config.code()));
        assert_eq!(said(), "another");
        assert_eq!(guard_or(7, || Err(Error::config("a third"))), 7);
        assert_eq!(said(), "a third");
    }
}
