//! Threads of a library inside somebody else's program.
//!
//! The program's signals (an interrupt, a timer, a child's end) are meant for its own threads: a handler that runs on one
//! of ours would surprise both. So our threads have all signals blocked, but for those that an error of the thread
//! itself raises.

use crate::error::{Error, Result};
use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

/// The signals that a failing thread itself raises. Blocking them would turn a report into a silent end.
const OWN_FAULTS: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];

/// Starts a thread. The system shows the first 15 bytes of its name.
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    // A new thread inherits the mask. So, with the signals blocked here, it never runs with another mask.
    let before = exchange_mask(libc::SIG_SETMASK, &all_but_own_faults())
        .map_err(|error| Error::system("cannot block signals to start a thread", &error))?;
    let spawned = Builder::new().name(name.to_string()).spawn(body);
    // It fails only for an unknown first argument.
    let _ = exchange_mask(libc::SIG_SETMASK, &before);
    spawned.map_err(|error| Error::system(format_args!("cannot start the thread {name}"), &error))
}

/// Whether this is the thread with which the process began, or the one that a fork left in a child.
pub fn is_main() -> bool {
    // SAFETY: it only reads a number of this thread. (Older C libraries have no function for it.)
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    u32::try_from(thread) == Ok(std::process::id())
}

/// Keeps the shared library of this code mapped until the process ends. A thread of ours that was left behind, in a call that
/// does not return, needs that. If the code is linked into a program, nothing happens.
pub fn stay_mapped() {
    // SAFETY: an all-zero `Dl_info` is a valid one for the call to fill in.
    let mut object: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here = stay_mapped as *const () as *const libc::c_void;
    // SAFETY: `object` outlives the call; the address is only compared.
    let found = crate::net::call::check(unsafe { libc::dladdr(here, &raw mut object) });
    if matches!(found, Ok(found) if found != 0) && !object.dli_fname.is_null() {
        let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: the name belongs to the loaded object; NOLOAD loads nothing new, so that no foreign code runs.
        unsafe { libc::dlopen(object.dli_fname, flags) };
    }
}

fn all_but_own_faults() -> libc::sigset_t {
    let mut set = empty_set();
    // SAFETY: `set` outlives the call.
    unsafe { libc::sigfillset(&raw mut set) };
    for signal in OWN_FAULTS {
        // SAFETY: `set` outlives the call.
        unsafe { libc::sigdelset(&raw mut set, signal) };
    }
    set
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: a `sigset_t` is plain bits; all zero is the empty set.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn exchange_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = empty_set();
    // SAFETY: both sets outlive the call.
    match unsafe { libc::pthread_sigmask(how, set, &raw mut before) } {
        0 => Ok(before),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(signal: libc::c_int) -> bool {
        let mask = exchange_mask(libc::SIG_BLOCK, &empty_set()).unwrap();
        // SAFETY: `mask` outlives the call.
        unsafe { libc::sigismember(&raw const mask, signal) == 1 }
    }

    #[test]
    fn a_thread_leaves_signals_to_the_program_and_the_callers_mask_stays() {
        let before = is_blocked(libc::SIGINT);
        let thread = spawn("muster-test", || {
            let name = std::thread::current().name().map(str::to_string);
            (name, [libc::SIGINT, libc::SIGTERM, libc::SIGCHLD, libc::SIGSEGV].map(is_blocked))
        });
        let (name, blocked) = thread.unwrap().join().unwrap();
        assert_eq!(name.as_deref(), Some("muster-test"));
        assert_eq!(blocked, [true, true, true, false]);
        assert_eq!(is_blocked(libc::SIGINT), before);
    }
}
