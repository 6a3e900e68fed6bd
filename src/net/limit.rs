//! How many descriptors this process may hold.
//!
//! The soft limit is a habit (1,024, for programs that use `select`); the hard one is the host's word. Tested in children,
//! since the limits are the whole process's.

use super::socket::check;
use std::io;

/// Raises the soft limit to `wanted` where it is lower, as far as the hard limit allows, and says what it is then.
pub fn descriptors(wanted: u64) -> io::Result<u64> {
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

    /// What a child gets that has these limits and wants so many: its exit code.
    fn child_gets(soft: u64, hard: u64, wanted: u64) -> i32 {
        ForkedChild::start(|| {
            let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
            // SAFETY: `limit` outlives the call.
            if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
                return 255;
            }
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
        .exit_code()
    }

    #[test]
    fn the_soft_limit_is_raised_as_far_as_wanted_and_allowed() {
        assert_eq!(child_gets(64, 128, 100), 100);
        assert_eq!(child_gets(64, 128, 200), 128, "not beyond the hard limit");
        assert_eq!(child_gets(64, 128, 32), 64, "never lowered");
        assert_eq!(child_gets(128, 128, 200), 128);
    }
}
