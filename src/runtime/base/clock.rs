//! The monotonic clock, as the brains count it.

use super::sync::Instant;
use crate::types::Time;
use std::time::Duration;

/// A clock that counts from its own start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// Now.
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.start.elapsed().as_nanos()).expect("a process does not run for 500 years"))
    }

    /// How long it is until `deadline`: `None` if it never comes.
    pub fn until(&self, deadline: Time) -> Option<Duration> {
        (deadline != Time::NEVER).then(|| deadline.since(self.now()))
    }
}
