//! Where a node looks for its scheduler: at one place, or at several in turn.
//!
//! A node looks only for the scheduler of this job. If the scheduler is not at a place, the node tries the next place at once,
//! and pauses after the last one. When the connection to the scheduler has ended, the node first tries the place where the
//! scheduler was found.

use std::time::Duration;

/// How long one attempt to connect may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a listener at a place may take to say anything, in the first round. A scheduler answers at once.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Course {
    /// Their names, in the order in which they are tried.
    places: Vec<String>,
    /// What was met at each place the last time; empty: it was not tried yet.
    met: Vec<String>,
    at: usize,
    /// The place where the scheduler was found last.
    home: usize,
    /// How many places were tried in vain since the last pause.
    tried: usize,
    rounds: u32,
}

impl Course {
    pub(super) fn new(places: Vec<String>) -> Course {
        Course { met: vec![String::new(); places.len()], places, at: 0, home: 0, tried: 0, rounds: 0 }
    }

    /// The place to try now.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Its name.
    pub(super) fn place(&self) -> &str {
        &self.places[self.at]
    }

    /// The name of the place where it was found last.
    pub(super) fn home(&self) -> &str {
        &self.places[self.home]
    }

    pub(super) fn has_several(&self) -> bool {
        self.places.len() > 1
    }

    /// The scheduler is here.
    pub(super) fn found(&mut self) {
        self.home = self.at;
        self.tried = 0;
        self.rounds = 0;
    }

    /// The scheduler is not here, for this reason: goes on to the next place. Returns whether that may be tried at
    /// once.
    pub(super) fn go_on(&mut self, reason: &str) -> bool {
        if !self.has_several() {
            return false;
        }
        reason.clone_into(&mut self.met[self.at]);
        self.at = (self.at + 1) % self.met.len();
        self.tried += 1;
        let is_round_over = self.tried == self.met.len();
        if is_round_over {
            self.tried = 0;
            self.rounds = self.rounds.saturating_add(1);
        }
        !is_round_over
    }

    /// How long the listener here may take to be reached, and then to say anything, before the next place is tried. A
    /// scheduler may be slow because its host is busy: it is given longer in each round.
    pub(super) fn patience(&self, most: Duration) -> Duration {
        FIRST_PATIENCE.saturating_mul(1 << self.rounds.min(8)).min(most)
    }

    /// How long an attempt to connect may take.
    pub(super) fn attempt_max(&self) -> Duration {
        if self.has_several() {
            self.patience(CONNECT_MAX)
        } else {
            CONNECT_MAX
        }
    }

    /// What was met at each place.
    pub(super) fn in_words(&self) -> String {
        let met = self.places.iter().zip(&self.met).filter(|(_, met)| !met.is_empty());
        let words = met.map(|(place, met)| {
            let is_named = met.starts_with(place.as_str()); // as the network's errors do
            if is_named {
                met.clone()
            } else {
                format!("{place}: {met}")
            }
        });
        words.collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(places: usize) -> Course {
        Course::new(vec!["10.0.0.1:8118".to_owned(); places])
    }

    #[test]
    fn each_place_is_tried_once_before_a_pause() {
        let mut course = course(3);
        let mut tried = Vec::new();
        for _ in 0..2 {
            for last in [false, false, true] {
                tried.push(course.at());
                assert_eq!(course.go_on("refused"), !last);
            }
        }
        assert_eq!(tried, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn the_place_where_it_was_found_begins_the_next_round() {
        let mut course = course(3);
        assert!(course.go_on("refused"));
        course.found();
        assert_eq!(course.at(), 1);
        let order: Vec<usize> = (0..3).map(|_| (course.at(), course.go_on("refused")).0).collect();
        assert_eq!(order, [1, 2, 0]);
    }

    #[test]
    fn one_place_is_tried_as_ever() {
        let mut course = course(1);
        assert!(!course.go_on("refused"));
        assert_eq!((course.at(), course.attempt_max()), (0, CONNECT_MAX));
    }

    #[test]
    fn patience_grows_with_each_round_up_to_a_bound() {
        let mut course = course(2);
        let most = Duration::from_secs(5);
        let mut seen = vec![course.patience(most)];
        for _ in 0..4 {
            course.go_on("silent");
            course.go_on("silent");
            seen.push(course.patience(most));
        }
        assert_eq!(seen, [1, 2, 4, 5, 5].map(Duration::from_secs));
    }
}
