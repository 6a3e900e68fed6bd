//! How long a call waits until it tells somebody, and how long it waits for an answer.

use std::time::Duration;

/// When a call that makes no progress says who is absent.
pub const WARN_AFTER: Duration = Duration::from_secs(10);

/// What people are told then, and what else is known.
pub fn in_words(title: &str, more: &str) -> String {
    format!("{title} has been waiting for {} s{more}", WARN_AFTER.as_secs())
}

/// How long a survivor waits for the scheduler's word before it speaks for itself.
pub const VERDICT_WAIT: Duration = Duration::from_millis(250);
