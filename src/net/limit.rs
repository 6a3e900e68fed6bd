//! How many descriptors this process may hold.
//!
//! The soft limit is a habit (1,024, for programs that use `select`). The hard limit is what the host allows. Tested in child
//! processes, since the limits hold for a whole process.

use super::call::check;
use super::fork::Guarded;
use super::waker::Waker;
use crate::error::{Error, Result, Status};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// How many descriptors a process holds besides its connections ...
const OTHERS: u64 = 32;
/// ... and how many are good to have beyond that: strangers connect, and a node that comes back may come before its old
/// connection has gone.
const SPARE: u64 = 512;

/// The last part of the descriptors that this process may hold is left to the program: one in so many, ...
const KEPT_PART: u64 = 8;
/// ... and so many at most.
const KEPT_MAX: u64 = 256;

/// Whether so few descriptors are left that strangers get none. The kernel gives the lowest free number, so the number of a new
/// descriptor says how many are in use at least.
pub fn is_short(newest: RawFd) -> bool {
    // If the limit cannot be read, the answer is no.
    descriptors(0).is_ok_and(|most| newest as u64 + (most / KEPT_PART).min(KEPT_MAX) >= most)
}

/// Makes room for so many connections, or returns an error. If possible, it makes room for `more` connections besides.
pub fn room_for(connections: u64, more: u64) -> Result<()> {
    let needed = connections + OTHERS;
    let limit = descriptors(needed + more + SPARE)
        .map_err(|error| Error::system("the limit of descriptors cannot be raised", &error))?;
    if limit >= needed {
        lengthen_table(needed - 1);
        return Ok(());
    }
    let why = format!(
        "{connections} connections need {needed} descriptors, and a process may hold {limit} here: raise the hard limit \
         (ulimit -Hn)"
    );
    Err(Error::new(Status::Limit, why))
}

/// Has the kernel make its table of descriptors so long that this number has a place. If threads share the table,
/// the kernel waits for all processors each time it grows (synchronize_rcu in fs/file.c), and no connection is accepted
/// meanwhile. If thousands connect at once, the backlog overflows, and the connections that it drops come again a second later.
fn lengthen_table(number: u64) {
    let Ok(any) = Waker::new() else { return };
    // A failure costs time later, and nothing else.
    let _ = Guarded::create(|| {
        // SAFETY: takes integers, of which the first is an open descriptor.
        let fd = check(unsafe { libc::fcntl(any.descriptor(), libc::F_DUPFD_CLOEXEC, number as libc::c_int) })?;
        // SAFETY: the kernel has just made this descriptor and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    });
}

/// Says whose limit of descriptors has caused this error, and what would be right. None if it has another cause.
pub fn shortage(error: &io::Error) -> Option<String> {
    match error.raw_os_error()? {
        libc::EMFILE => {
            let most = descriptors(0).map_or_else(|_| "as many as are open".to_owned(), |most| most.to_string());
            Some(format!("its process may hold {most}: raise that limit (ulimit -n), or have the program close some"))
        }
        libc::ENFILE => Some("its host has none for any process: raise fs.file-max there".to_owned()),
        _ => None,
    }
}

/// Raises the soft limit to `wanted` if it is lower, as far as the hard limit allows. Returns what it is then.
fn descriptors(wanted: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writing during the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    let most = wanted.min(limit.rlim_max);
    if limit.rlim_cur >= most {
        return Ok(limit.rlim_cur);
    }
    limit.rlim_cur = most;
    // SAFETY: `limit` is valid for reading during the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::testfork::ForkedChild;

    /// The exit code of a child that does this with these limits.
    fn child_with(soft: u64, hard: u64, act: impl FnOnce() -> i32) -> i32 {
        ForkedChild::start(|| {
            let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
            // SAFETY: `limit` outlives the call.
            if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
                return 255;
            }
            act()
        })
        .exit_code()
    }

    /// What a child with these limits gets if it wants so many descriptors.
    fn child_gets(soft: u64, hard: u64, wanted: u64) -> i32 {
        child_with(soft, hard, || {
            let told = descriptors(wanted).map_or(254, |got| got as i32);
            let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: `now` outlives the call.
            unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut now) };
            if now.rlim_cur == told as u64 && now.rlim_max == hard {
                told
            } else {
                253
            }
        })
    }

    #[test]
    fn the_soft_limit_is_raised_as_far_as_wanted_and_allowed() {
        assert_eq!(child_gets(64, 128, 100), 100);
        assert_eq!(child_gets(64, 128, 200), 128, "not beyond the hard limit");
        assert_eq!(child_gets(64, 128, 32), 64, "never lowered");
        assert_eq!(child_gets(128, 128, 200), 128);
    }

    #[test]
    fn the_end_of_the_limit_is_left_to_the_program() {
        let short_from =
            |soft: u64| child_with(soft, 4096, || (0..).take_while(|fd| !is_short(*fd)).count() as i32 / 16);
        assert_eq!([64, 1024, 4096].map(short_from), [56 / 16, 896 / 16, 3840 / 16]);
    }

    #[test]
    fn the_table_of_descriptors_is_long_enough_from_the_start() {
        let table = || {
            let status = std::fs::read_to_string("/proc/self/status").ok()?;
            status.lines().find_map(|line| line.strip_prefix("FDSize:")?.trim().parse::<u64>().ok())
        };
        let code = child_with(2000, 2000, || {
            let before = table().unwrap_or(u64::MAX);
            let is_long = room_for(1200, 0).is_ok() && table().is_some_and(|long| long >= 1200 + OTHERS);
            i32::from(before < 1200) + 2 * i32::from(is_long)
        });
        assert_eq!(code, 3, "1: it was shorter before; 2: it is long enough after");
    }

    #[test]
    fn a_shortage_tells_the_limit_and_whose_it_is() {
        let code = child_with(41, 100, || {
            let words = |number| shortage(&io::Error::from_raw_os_error(number));
            let own = words(libc::EMFILE).is_some_and(|words| words.starts_with("its process may hold 41: raise"));
            let host = words(libc::ENFILE).is_some_and(|words| words.contains("fs.file-max"));
            i32::from(own && host && words(libc::ENOBUFS).is_none())
        });
        assert_eq!(code, 1);
    }

    #[test]
    fn connections_that_can_never_be_held_are_an_error_at_once() {
        let code = child_with(40, 100, || match room_for(100 - OTHERS, 50) {
            Ok(()) => 0,
            Err(_) => 1,
        });
        assert_eq!(code, 0, "the spare ones are not insisted on");
        let code = child_with(40, 100, || {
            let error = room_for(101 - OTHERS, 0).unwrap_err();
            let told =
                error.message().starts_with("69 connections need 101 descriptors, and a process may hold 100 here");
            i32::from(error.status() == Status::Limit && told)
        });
        assert_eq!(code, 1);
    }
}
