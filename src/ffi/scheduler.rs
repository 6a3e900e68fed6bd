//! A scheduler inside a program.

use super::constants::muster_status_t;
use super::convert::{give_text, handle, out};
use super::guard::{guard, Handle};
use super::life::settings;
use super::settings::muster_config_t;
use crate::config::Config;
use crate::error::{Error, Status};
use crate::runtime::node::cluster::start_scheduler;
use crate::runtime::scheduler::thread::SchedulerThread;
use std::ffi::c_char;
use std::time::Duration;

/// A scheduler on a thread of its own. Its calls are thread-safe.
pub struct muster_scheduler_t {
    handle: Handle<SchedulerThread>,
}

/// Starts a scheduler on a thread of this process. The settings name the number of workers and, if wanted, host (default
/// 127.0.0.1) and port (default 0: the system chooses; muster_scheduler_address tells). The role is ignored, and so are
/// a launcher's variables that say where its own job's scheduler is, such as MASTER_ADDR. NULL for `config` means the
/// environment's settings. Returns when the port is bound. Among its errors are MUSTER_ERR_CONFIG, MUSTER_ERR_BIND,
/// MUSTER_ERR_LIMIT (too few descriptors), MUSTER_ERR_INTERRUPTED (by the hook, while a name is looked up) and, with
/// recovery, MUSTER_ERR_JOURNAL.
///
/// # Safety
/// `config` must be NULL or a live configuration; `out` must be NULL or writable. Where `config` is NULL no other thread may change
/// the environment meanwhile.
#[no_mangle]
pub unsafe extern "C" fn muster_scheduler_start(
    config: *const muster_config_t,
    out: *mut *mut muster_scheduler_t,
) -> muster_status_t {
    guard(|| {
        let out = self::out(out, "out")?;
        // SAFETY: as promised by the caller.
        let settings = unsafe { settings(config, Config::scheduler_settings) }?;
        let handle = Box::new(muster_scheduler_t { handle: Handle::new(start_scheduler(&settings)?) });
        // SAFETY: not NULL, and writable as the caller promised.
        unsafe { out.write(Box::into_raw(handle)) };
        Ok(Status::Ok)
    })
}

/// Where the scheduler listens, as "host:port" with a numeric host: "0.0.0.0:port" where it listens at every address
/// (`sched_bind`). Copied to `buf`, its length with the zero byte to `needed` (may be NULL). MUSTER_ERR_LIMIT if `cap`
/// is too small, MUSTER_ERR_INVALID if `buf` and `needed` are both NULL.
///
/// # Safety
/// `scheduler` must be NULL or a live scheduler, `buf` writable for `cap` bytes or NULL, `needed` writable or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_scheduler_address(
    scheduler: *const muster_scheduler_t,
    buf: *mut c_char,
    cap: usize,
    needed: *mut usize,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let scheduler = unsafe { handle(scheduler, "scheduler") }?;
        let address = scheduler.handle.with("scheduler", |scheduler| Ok(scheduler.addresses()[0].to_string()))?;
        // SAFETY: as promised by the caller.
        unsafe { give_text(&address, buf, cap, needed, "the address") }
    })
}

/// Waits until the job has ended: MUSTER_OK, or the job's error. MUSTER_IN_PROGRESS if the job has not ended after
/// `timeout_ms`: the program can wait again, and several threads may wait. After muster_scheduler_stop it returns
/// MUSTER_ERR_ABORTED, or the status with which the job had ended before.
///
/// `timeout_ms` is -1 or INT64_MAX to wait without limit, 0 to look only.
///
/// # Safety
/// `scheduler` must be NULL or a live scheduler.
#[no_mangle]
pub unsafe extern "C" fn muster_scheduler_wait(scheduler: *mut muster_scheduler_t, timeout_ms: i64) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let scheduler = unsafe { handle(scheduler, "scheduler") }?;
        let timeout = match timeout_ms {
            -1 | i64::MAX => None,
            0.. => Some(Duration::from_millis(timeout_ms as u64)),
            _ => {
                return Err(Error::invalid(format!("timeout_ms is {timeout_ms}: expected -1 (no limit), 0 or more")));
            }
        };
        match scheduler.handle.with("scheduler", |scheduler| scheduler.wait_attentively(timeout))? {
            Some(result) => result.map(|()| Status::Ok),
            None => Ok(Status::InProgress),
        }
    })
}

/// Ends the job for all nodes that are still in it (MUSTER_ERR_ABORTED there), and waits until the scheduler has
/// ended. It also returns MUSTER_OK if the job had ended before. With recovery it waits up to 30 s until the rest of
/// the journal is on disk.
///
/// # Safety
/// `scheduler` must be NULL or a live scheduler.
#[no_mangle]
pub unsafe extern "C" fn muster_scheduler_stop(scheduler: *mut muster_scheduler_t) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let scheduler = unsafe { handle(scheduler, "scheduler") }?;
        scheduler.handle.with("scheduler", |scheduler| {
            // How the job ended is for muster_scheduler_wait to tell.
            let _ = scheduler.stop();
            Ok(Status::Ok)
        })
    })
}

/// Frees a scheduler, and stops it first if it still runs. Accepts NULL.
///
/// # Safety
/// `scheduler` must be NULL or a live scheduler that no other thread is using, and is not to be used any more.
#[no_mangle]
pub unsafe extern "C" fn muster_scheduler_free(scheduler: *mut muster_scheduler_t) {
    guard(|| {
        if scheduler.is_null() {
            return Ok(Status::Ok);
        }
        // SAFETY: made by Box::into_raw in muster_scheduler_start, and the caller gives it up.
        let scheduler = unsafe { Box::from_raw(scheduler) };
        match scheduler.handle.into_inner() {
            Ok(scheduler) => drop(scheduler),
            Err(inherited) => std::mem::forget(inherited), // its thread is the parent's
        }
        Ok(Status::Ok)
    });
}
