//! Forked children for tests.
//!
//! A child of a test program has one thread and the locks of many. So its body may only call what is safe after a fork
//! from a program with threads (the C library's allocator is). It ends with an exit code, or with 99 if it panics.

use std::panic::{catch_unwind, AssertUnwindSafe};

/// How long a child lives at most.
const LIFE_SECONDS: libc::c_uint = 60;

/// A child that runs until its body returns. It is killed and reaped when this is dropped.
pub struct ForkedChild {
    pid: libc::pid_t,
    reaped: bool,
}

impl ForkedChild {
    /// Forks, and runs `body` in the child.
    pub fn start(body: impl FnOnce() -> i32) -> ForkedChild {
        // SAFETY: the child runs `body`, which keeps to the rules of the module's head, and `_exit`.
        let pid = unsafe { libc::fork() };
        assert_ne!(pid, -1);
        if pid == 0 {
            // SAFETY: takes an integer; the signal's default ends the child.
            unsafe { libc::alarm(LIFE_SECONDS) };
            let code = catch_unwind(AssertUnwindSafe(body)).unwrap_or(99);
            // SAFETY: ends the child without running anything of its parent's.
            unsafe { libc::_exit(code) };
        }
        ForkedChild { pid, reaped: false }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Kills it, and does not reap it.
    pub fn kill(&self) {
        // SAFETY: takes two integers; the child is not reaped, so that the number is its.
        assert_eq!(unsafe { libc::kill(self.pid, libc::SIGKILL) }, 0);
    }

    /// Waits for its end: the exit code.
    pub fn exit_code(mut self) -> i32 {
        let status = self.reap();
        assert!(libc::WIFEXITED(status), "the child ended by a signal: {status:#x}");
        libc::WEXITSTATUS(status)
    }

    fn reap(&mut self) -> libc::c_int {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        while unsafe { libc::waitpid(self.pid, &raw mut status, 0) } == -1 {}
        self.reaped = true;
        status
    }
}

impl Drop for ForkedChild {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            self.reap();
        }
    }
}
