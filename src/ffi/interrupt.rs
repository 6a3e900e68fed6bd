//! Ending the waits of calls: by the program's hook, and from another thread.

use super::constants::muster_status_t;
use super::convert::handle;
use super::guard::guard;
use super::handles::muster_cluster_t;
use super::settings::muster_config_t;
use crate::error::Status;
use crate::types::Hook;
use std::ffi::c_void;

/// A function of the program that a waiting call asks. If it returns 0 the call goes on waiting. Any other value ends
/// the wait. `ctx` is what muster_config_set_interrupt was given.
///
/// The waiting thread calls it, and several threads at a time if several wait. The function may call muster_interrupt,
/// and any function that neither waits nor frees anything. It must not call a function that waits. It must not throw.
#[allow(non_camel_case_types)]
pub type muster_interrupt_fn = Option<unsafe extern "C" fn(ctx: *mut c_void) -> i32>;

/// The function and what it is given.
struct Asked {
    function: unsafe extern "C" fn(ctx: *mut c_void) -> i32,
    ctx: *mut c_void,
}

// SAFETY: whoever sets a hook promises that any thread may call it with its `ctx`.
unsafe impl Send for Asked {}
// SAFETY: the same, also for several at a time.
unsafe impl Sync for Asked {}

impl Asked {
    fn ask(&self) -> i32 {
        // SAFETY: `function` and `ctx` are good as long as the promise of muster_config_set_interrupt lasts.
        unsafe { (self.function)(self.ctx) }
    }
}

/// Sets a hook that every waiting call asks, on the waiting thread: 50 ms after the call has begun to sleep, and every
/// 50 ms from then on. A blocking collective also asks when a signal ends its sleep. A call that does not have to
/// sleep does not ask the hook. So a program ends its waits on Ctrl-C without a thread that watches for it: a signal's
/// handler sets a flag, and the hook returns it.
///
/// The hook counts for the cluster or the scheduler that is made of this configuration from now on, and for
/// muster_init itself. NULL for `hook` means no hook, as in a new configuration. Then waiting calls do not wake up
/// every 50 ms.
///
/// Where the hook returns something other than 0, the call returns MUSTER_ERR_INTERRUPTED. muster_interrupt lists the
/// calls that ask, and tells what becomes of each. The library does not remember what the hook has returned: a later
/// call asks again. If a call ends by itself at the moment when the hook returns, the call returns its own result.
///
/// # Safety
/// `config` must be NULL or a live configuration; `hook` and `ctx` must be good, on any thread, until each cluster and scheduler
/// that was made of it has been freed.
#[no_mangle]
pub unsafe extern "C" fn muster_config_set_interrupt(
    config: *mut muster_config_t,
    hook: muster_interrupt_fn,
    ctx: *mut c_void,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        unsafe { handle(config, "config") }?.with(|config| {
            let asked = hook.map(|function| Asked { function, ctx });
            config.set_interrupt(asked.map_or_else(Hook::default, |asked| Hook::new(move || asked.ask())));
            Ok(Status::Ok)
        })
    })
}

/// Ends the waits of this process's calls on this cluster. Every call that has begun, and sleeps now or goes to sleep
/// later, returns MUSTER_ERR_INTERRUPTED. A call that ends without sleeping is not disturbed, and neither is a call
/// that begins later. Any thread may call this, also from the hook, but not from a signal handler. Does not block.
///
/// These calls can be interrupted, here and by the hook. What becomes of what they did:
///
/// - A blocking collective, muster_group_create and muster_group_split: cancelled as by muster_request_cancel. That revokes
///   the group: calls on it return MUSTER_ERR_ABORTED on every rank, with this rank's name. May take up to 250 ms more,
///   for the scheduler's answer.
/// - muster_send, muster_recv, muster_sendrecv: the message is taken back if it has not met its other half, as by
///   muster_request_cancel. A message that has met its other half goes on. If it succeeds, the call returns
///   MUSTER_OK, otherwise MUSTER_ERR_INTERRUPTED. If that takes longer than 250 ms, the group is revoked, as above.
///   Only the receiver knows whether a send that waits has met its receive. If it does not say so within 250
///   ms, the send is taken back, and the group is not revoked. After a muster_sendrecv one of its two messages may
///   have been sent or received.
/// - muster_request_wait, muster_request_wait_any, muster_request_wait_all: only the wait ends. The operations go on. A wait for
///   requests of several clusters ends with the first that is interrupted.
/// - The store's calls: a call that waits ends. It does not say whether a change was made.
/// - muster_group_create_members: as after a time-out, and the program may call it again. May take up to 250 ms more.
/// - muster_recover: as after a time-out, and the program may call it again. If the next epoch begins at that moment it
///   returns MUSTER_OK. May take up to 250 ms more.
/// - muster_probe: only the wait ends.
/// - muster_finalize: the program may call it again, and it goes on where it stopped. Or the program may free the cluster without
///   that.
///
/// By the hook alone:
///
/// - muster_init: this process is no part of the cluster, as if it had been killed. Where it serves as the scheduler, it ends the
///   job for all nodes (MUSTER_ERR_ABORTED there).
/// - muster_scheduler_wait: only the wait ends.
///
/// No other call can be interrupted. muster_abort waits for 2.3 s at most; muster_request_free, muster_group_free,
/// muster_cluster_free and muster_scheduler_stop wait as long as their comments say.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_interrupt(cluster: *mut muster_cluster_t) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        unsafe { handle(cluster, "cluster") }?.with(|cluster| {
            cluster.interrupt();
            Ok(Status::Ok)
        })
    })
}
