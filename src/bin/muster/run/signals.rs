//! The signals that a launcher receives, as something to be read.

use crate::sys;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The signals that end a run.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGHUP];

/// A signal of the same number that comes so soon after another is the same one: `timeout` sends it to the launcher and to its process
/// group, and where a terminal is closed both the shell and the kernel send it.
const SAME: Duration = Duration::from_millis(300);

/// The signal that tells a launcher that another one leads: on all other hosts everything has ended well.
pub const OTHERS_DONE: i32 = libc::SIGUSR1;

/// Lets that signal end nothing. For a launcher that only shows what it would start, and receives no signals.
pub fn never_end_by_others_done() -> io::Result<()> {
    sys::signal_descriptor(&[OTHERS_DONE]).map(drop)
}

/// The launcher's signals, as something to be read.
pub struct Signals {
    from: OwnedFd,
    others_done: Cell<bool>,
    /// The last signal that counted; nothing where each one counts.
    last: Option<Cell<(i32, Instant)>>,
}

impl Signals {
    /// From now on the signals wait to be read. To be called before the first child is started. A hangup is left alone
    /// if the launcher was told to ignore it (nohup).
    pub fn begin() -> io::Result<Signals> {
        let last = Some(Cell::new((0, Instant::now())));
        Ok(Signals { last, ..Signals::with(&[libc::SIGCHLD])? })
    }

    /// As [`begin`](Signals::begin), for a launcher that another one leads. That one has looked which signals are the same.
    pub fn begin_led() -> io::Result<Signals> {
        Signals::with(&[libc::SIGCHLD, OTHERS_DONE])
    }

    fn with(more: &[i32]) -> io::Result<Signals> {
        let mut signals = more.to_vec();
        signals.extend(ENDING.iter().filter(|signal| **signal != libc::SIGHUP || !sys::ignored(**signal)));
        Ok(Signals { from: sys::signal_descriptor(&signals)?, others_done: Cell::new(false), last: None })
    }

    /// The next signal that ends the run, if one waits.
    pub fn ending(&self) -> Option<i32> {
        let ends = |signal: &i32| match *signal {
            libc::SIGCHLD => false,
            OTHERS_DONE => {
                self.others_done.set(true);
                false
            }
            signal => self.last.as_ref().is_none_or(|last| counts(last, signal, Instant::now())),
        };
        std::iter::from_fn(|| sys::next_signal(&self.from)).find(ends)
    }

    /// Whether it is known that all other hosts are done.
    pub fn others_done(&self) -> bool {
        self.others_done.get()
    }

    /// The descriptor for a poll.
    pub fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        self.from.as_fd()
    }
}

/// Whether this signal is another than the last one that counted. It counts then.
fn counts(last: &Cell<(i32, Instant)>, signal: i32, now: Instant) -> bool {
    let (before, at) = last.get();
    let is_another = before != signal || now.saturating_duration_since(at) >= SAME;
    if is_another {
        last.set((signal, now));
    }
    is_another
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_comes_twice_at_once_is_one() {
        let begin = Instant::now();
        let last = Cell::new((0, begin));
        assert!(counts(&last, libc::SIGTERM, begin));
        assert!(!counts(&last, libc::SIGTERM, begin + SAME - Duration::from_millis(1)));
        assert!(counts(&last, libc::SIGTERM, begin + SAME), "the first of the two is what it follows");
        assert!(counts(&last, libc::SIGINT, begin + SAME));
    }
}
