//! What the library says of itself; the log; memory that it gave away.

use super::constants::{muster_status_t, MUSTER_ABI_VERSION, MUSTER_LOG_DEBUG, MUSTER_LOG_ERROR};
use super::guard::{guard, guard_or, last_error};
use crate::config::LogLevel;
use crate::error::{Error, Status};
use crate::runtime::base::log;
use std::ffi::{c_char, c_void, CString};
use std::sync::Arc;

/// The ABI number of the library that is loaded; compare it with MUSTER_ABI_VERSION, which is the header's.
#[no_mangle]
pub extern "C" fn muster_abi_version() -> u32 {
    MUSTER_ABI_VERSION
}

/// The library's version, as "1.0.0". Lives as long as the library is loaded.
#[no_mangle]
pub extern "C" fn muster_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Name and meaning of a status, as "ERR_TIMEOUT: the time is up". Never NULL; lives as long as the library is loaded.
#[no_mangle]
pub extern "C" fn muster_status_string(status: muster_status_t) -> *const c_char {
    Status::from_code(status).map_or(c"unknown status", Status::text).as_ptr()
}

/// A full sentence about this thread's last failing call; empty if none has failed. Never NULL. Valid until this thread's
/// next failing call, which frees the sentence. So copy what you keep, and do not call this in the argument list of
/// another call of this library.
#[no_mangle]
pub extern "C" fn muster_last_error() -> *const c_char {
    guard_or(c"".as_ptr(), || Ok(last_error()))
}

/// Frees a value that the store gave out. Accepts NULL.
///
/// # Safety
/// `value` must be NULL, or what a muster_store_ call gave out, and not be used any more.
#[no_mangle]
pub unsafe extern "C" fn muster_free(value: *mut c_void) {
    // SAFETY: the store's values are allocated with malloc; free accepts NULL.
    unsafe { libc::free(value) }
}

/// Receives log lines: their level (MUSTER_LOG_...), the speaker, and the line, which has no line end. The strings
/// live as long as the call. Called from a thread of the library, which blocks the program's signals, one line at a
/// time, in the order in which the lines were logged. The function may take as long as it likes, and may wait for a
/// lock of the program: no heartbeat waits for it, and a call that fails waits at most 100 ms. The function must not
/// call this library. A forked child calls it from a thread of its own.
pub type muster_log_fn =
    Option<unsafe extern "C" fn(level: i32, target: *const c_char, message: *const c_char, ctx: *mut c_void)>;

struct Context(*mut c_void);

// SAFETY: the pointer is only handed back to the program's own function, which the header says is called from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Sends the log of every cluster of this process, up to `level` (MUSTER_LOG_ERROR to MUSTER_LOG_DEBUG), to `fn`
/// instead of standard error. The variable MUSTER_LOG has no effect then. NULL for `fn` sends the log to standard error
/// again, whatever `level` is. Without a callback, warnings and errors go to standard error, one line each;
/// MUSTER_LOG=debug or another level changes that.
///
/// A thread that logs does not wait until the line is written. Lines wait for a thread of the library, 1,024 of them
/// or 256 KiB at most. A line that finds no room is dropped. A line that cannot be written is dropped, too: nobody
/// reads the pipe any more, or standard error is closed. Dropped lines are counted: a line in their place, or before
/// the next line that is written, says how many were dropped. No SIGPIPE is raised, and the flags of standard error
/// stay what they are. A call that returns an error first waits until the lines logged before have been written, but no
/// longer than 100 ms after the last of them. This holds for calls that otherwise do not block, too. Freeing the last
/// handle waits in the same way. If the thread that writes the log has not yet been given a processor, the call that
/// frees waits up to 2 s for that. Then that thread ends. If the thread does not return (from `fn`, from a terminal
/// that is stopped, from a disk that does not answer), it continues to exist, and the library stays in memory.
///
/// A call that replaces or removes a function drops the lines that wait for the old function, and does not count them.
/// It returns only when the old function is not running. So the caller must not hold a lock for which that function
/// waits. None of the parent's calls runs in a forked child, so the child does not wait for them; the function stays
/// set there. When a function is set, lines that wait for standard error have 100 ms more. Lines still unwritten after
/// that are dropped and counted, and the function is told how many.
///
/// # Safety
/// `fn` must be NULL or a function that may be called, with `ctx`, until another callback has been set.
#[no_mangle]
pub unsafe extern "C" fn muster_set_log_callback(level: i32, r#fn: muster_log_fn, ctx: *mut c_void) -> muster_status_t {
    guard(|| {
        let Some(function) = r#fn else {
            log::set_callback(None);
            return Ok(Status::Ok);
        };
        let known =
            (MUSTER_LOG_ERROR..=MUSTER_LOG_DEBUG).contains(&level).then(|| LogLevel::from_code(level)).flatten();
        let up_to = known.ok_or_else(|| {
            Error::invalid(format!("level is {level}: expected MUSTER_LOG_ERROR ({MUSTER_LOG_ERROR}) to MUSTER_LOG_DEBUG ({MUSTER_LOG_DEBUG})"))
        })?;
        let ctx = Context(ctx);
        let callback = move |level: LogLevel, target: &str, line: &str| {
            let ctx = &ctx;
            let text = |text: &str| CString::new(text.replace('\0', " ")).expect("its zero bytes were just replaced");
            let (target, line) = (text(target), text(line));
            // SAFETY: the program promised that its function may be called until another is set, which waits for this.
            unsafe { function(level as i32, target.as_ptr(), line.as_ptr(), ctx.0) }
        };
        log::set_callback(Some((up_to, Arc::new(callback))));
        Ok(Status::Ok)
    })
}
