//! The numbers 0 to 2 are never those of our descriptors.
//!
//! A program may run without standard streams. The next descriptor that is opened then gets such a number. If it
//! were ours, what the program (or a log line of ours) writes to its standard error would go out on a connection. So
//! while something of ours is opened, a timer that never runs occupies each closed number. It can be neither written
//! nor read, as if the number were still closed.
//!
//! If another thread of the program opens something meanwhile, it may get another number than usual. A descriptor that the
//! program puts on such a number with `dup2` stays, unless that happens between our last look and our close.
//!
//! The state is part of the table in [`super::fork`], and changes under its lock. Tested in `standard_test.rs`, in children without
//! standard streams.

use super::call::check;
use std::io;
use std::os::fd::RawFd;

/// The first number that our descriptors may have.
const STANDARD: RawFd = 3;

/// What occupies the closed numbers among 0 to 2.
#[derive(Debug)]
pub(super) struct Stopgaps {
    /// How many openings are under way.
    openings: usize,
    /// For each number, whether a timer of ours occupies it.
    here: [bool; STANDARD as usize],
}

impl Stopgaps {
    pub(super) const NONE: Stopgaps = Stopgaps { openings: 0, here: [false; STANDARD as usize] };

    /// An opening begins: until it ends, nothing that is opened gets one of these numbers. `end` must follow, unless this
    /// fails.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.openings += 1;
        let filled = self.fill();
        if filled.is_err() {
            self.end();
        }
        filled
    }

    fn fill(&mut self) -> io::Result<()> {
        while any_closed() {
            let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
            // SAFETY: takes integers.
            let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
            match self.here.get_mut(fd as usize) {
                Some(here) => *here = true,
                None => close(fd), // the program has opened it meanwhile
            }
        }
        Ok(())
    }

    /// An opening has ended: with the last one the numbers are free again.
    pub(super) fn end(&mut self) {
        self.openings -= 1;
        if self.openings == 0 {
            self.close_all();
        }
    }

    /// For a forked child: no opening is under way in it, whatever its parent had begun.
    pub(super) fn begin_anew(&mut self) {
        self.openings = 0;
        self.close_all();
    }

    fn close_all(&mut self) {
        for fd in 0..STANDARD {
            if std::mem::take(&mut self.here[fd as usize]) && is_timer(fd) {
                close(fd);
            }
        }
    }
}

/// Moves a descriptor that was given to us with a number from 0 to 2 to a higher number, and closes the old one.
pub(super) fn moved(fd: RawFd) -> io::Result<RawFd> {
    if fd >= STANDARD {
        return Ok(fd);
    }
    // SAFETY: takes integers.
    let moved = check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, STANDARD) })?;
    close(fd);
    Ok(moved)
}

/// Whether any number from 0 to 2 is closed. It takes one call, for every descriptor that is made pays for it.
fn any_closed() -> bool {
    let mut polled = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: the pointer and the length are those of the array. With a time-out of zero it only looks.
    unsafe { libc::poll(polled.as_mut_ptr(), STANDARD as libc::nfds_t, 0) };
    polled.iter().any(|one| one.revents & libc::POLLNVAL != 0)
}

fn is_timer(fd: RawFd) -> bool {
    // SAFETY: it is made of integers, and all-zero is a valid one.
    let mut left: libc::itimerspec = unsafe { std::mem::zeroed() };
    // SAFETY: `left` is valid for writing during the call.
    unsafe { libc::timerfd_gettime(fd, &raw mut left) == 0 }
}

fn close(fd: RawFd) {
    // SAFETY: a descriptor that was made here, or given to us, and that nobody else uses.
    unsafe { libc::close(fd) };
}

#[cfg(test)]
#[path = "standard_test.rs"]
mod tests;
