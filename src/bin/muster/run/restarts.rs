//! How often, and how soon, a child is started again: pure.
//!
//! The next life begins at once, so that the others wait no longer than they must. A life that was [`SHORT`] is
//! followed by a pause, and each further one in a row by a pause twice as long. A program that dies as it starts must
//! not keep the machine busy.

use crate::code;
use crate::sys::Ending;
use std::time::Duration;

/// A life that ends within this time is short.
pub const SHORT: Duration = Duration::from_secs(1);
/// The pause after the first short life in a row, and the longest.
pub const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// The restarts of one child.
#[derive(Clone, Debug)]
pub struct Restarts {
    /// How many restarts it may have in the run, and how many it has had.
    allowed: u32,
    used: u32,
    /// Short lives in a row.
    short: u32,
    began: Duration,
}

impl Restarts {
    /// The restarts of a child that has just been started, as the run begins.
    pub fn new(allowed: u32) -> Restarts {
        Restarts { allowed, used: 0, short: 0, began: Duration::ZERO }
    }

    /// A life has ended. Returns when the next one is to begin, if there is one.
    pub fn next(&mut self, now: Duration) -> Option<Duration> {
        if !self.any_left() {
            return None;
        }
        self.used += 1;
        let was_short = now.saturating_sub(self.began) < SHORT;
        self.short = if was_short { self.short + 1 } else { 0 };
        Some(now + pause(self.short))
    }

    /// The next life has begun.
    pub fn begins(&mut self, now: Duration) {
        self.began = now;
    }

    /// How many restarts were used.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Whether a restart is left.
    pub fn any_left(&self) -> bool {
        self.used < self.allowed
    }

    /// Whether restarts are allowed at all.
    pub fn can_return(&self) -> bool {
        self.allowed > 0
    }
}

fn pause(short: u32) -> Duration {
    let [first, longest] = PAUSES;
    match short.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => first.saturating_mul(2u32.saturating_pow(doublings)).min(longest),
    }
}

/// Whether a worker that ended so did so by itself. SIGABRT is how programs give up; other signals come from elsewhere.
pub fn gave_up(ending: Option<Ending>) -> bool {
    !matches!(ending, Some(Ending::Signal(signal)) if signal != libc::SIGABRT)
}

/// Whether a signal from elsewhere ended it. Programs raise SIGABRT and SIGPIPE to give up when they lost another.
pub fn is_from_elsewhere(ending: Ending) -> bool {
    matches!(ending, Ending::Signal(signal) if signal != libc::SIGABRT && signal != libc::SIGPIPE)
}

/// The codes of a scheduler that has said why it ends: another start would not find the job, or end in the same way.
pub const ENDS_BY_ITSELF: [i32; 6] = [0, code::FAILED, code::USAGE, code::ABORTED, code::UNABLE, code::FORMING];

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn none_are_had_that_are_not_allowed() {
        assert_eq!(Restarts::new(0).next(millis(5000)), None);
        let mut restarts = Restarts::new(2);
        assert_eq!(restarts.next(millis(5000)), Some(millis(5000)), "at once");
        restarts.begins(millis(5000));
        assert_eq!(restarts.next(millis(6000)), Some(millis(6000)));
        assert_eq!(restarts.used(), 2);
        assert_eq!(restarts.next(millis(9000)), None);
        assert_eq!(restarts.used(), 2);
    }

    #[test]
    fn short_lives_are_followed_by_ever_longer_pauses() {
        let mut restarts = Restarts::new(u32::MAX);
        let mut pauses = Vec::new();
        let mut now = Duration::ZERO;
        for _ in 0..40 {
            let next = restarts.next(now + millis(999)).unwrap();
            pauses.push((next - now - millis(999)).as_millis());
            now = next;
            restarts.begins(now);
        }
        assert_eq!(pauses[..8], [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(pauses[39], 5000);
        assert_eq!(restarts.next(now + SHORT), Some(now + SHORT), "a long one begins the row anew");
        restarts.begins(now + SHORT);
        assert_eq!(restarts.next(now + SHORT + millis(1)), Some(now + SHORT + millis(101)));
    }
}
