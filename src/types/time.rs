//! Time as the brains see it: nanoseconds since a start that only their driver knows.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on a monotonic clock, real or simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Later than every time that is ever reached: "no deadline".
    pub const NEVER: Time = Time(u64::MAX);

    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Moves this point later by a time that does not count, but not beyond the present. A later point stays no earlier
    /// than others.
    pub fn forgive(&mut self, late: Duration, now: Time) {
        *self = (*self + late).min(now);
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    /// Saturates at [`Time::NEVER`], so that a limitless wait needs no special case.
    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    fn sub(self, span: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}
