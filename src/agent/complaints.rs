//! Decides when a node that finds no scheduler says so: from the third second on, at first every second, then ever more
//! seldom; and soon when something else is wrong.

use crate::types::Time;
use std::time::Duration;

/// How long after the beginning it first says so.
pub(super) const AFTER: Duration = Duration::from_secs(3);
/// The shortest time between two lines, and the time until a line is first repeated.
const LEAST: Duration = Duration::from_secs(1);
/// How long it is silent at most before it repeats a line: the pauses between the repetitions double up to this.
const MOST: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Complaints {
    /// When to look next whether anything is wrong.
    look_at: Time,
    /// What was said last, when it is said again, and how long the pause after that is.
    said: String,
    again_at: Time,
    pause: Duration,
}

impl Complaints {
    /// Nothing is wrong before this time.
    pub(super) fn from(begin: Time) -> Complaints {
        Complaints { look_at: begin + AFTER, said: String::new(), again_at: Time(0), pause: LEAST }
    }

    pub(super) fn look_at(&self) -> Time {
        self.look_at
    }

    /// The scheduler is there: whatever is wrong after this is news.
    pub(super) fn settle(&mut self) {
        self.said.clear();
    }

    /// Whether it is time to look.
    pub(super) fn looks(&mut self, now: Time) -> bool {
        let looks = now >= self.look_at;
        if looks {
            self.look_at = now + LEAST;
        }
        looks
    }

    /// Whether to say that this is wrong.
    pub(super) fn says(&mut self, now: Time, wrong: &str) -> bool {
        if self.said != wrong {
            wrong.clone_into(&mut self.said);
            self.pause = LEAST;
        } else if now < self.again_at {
            return false;
        }
        self.again_at = now + self.pause;
        self.pause = (self.pause * 2).min(MOST);
        true
    }
}
