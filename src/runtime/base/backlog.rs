//! The lines that wait for an outlet's writer: bounded, in order, and with the count of those that were dropped.
//!
//! Invariants: it never holds more than [`LINES_MAX`] lines or [`BYTES_MAX`] bytes; a line that does not fit is dropped, not an older
//! one; every dropped line is counted until the count has been told, in its place among the other lines.
//!
//! Pure: times are arguments. Tested here, and through `outlet`.

use crate::config::LogLevel;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// How many lines wait at most.
pub const LINES_MAX: usize = 1024;
/// How many bytes the waiting lines have at most.
pub const BYTES_MAX: usize = 256 * 1024;

/// A program's own sink: it gets the level, the speaker, and the line.
pub type Callback = Arc<dyn Fn(LogLevel, &str, &str) + Send + Sync>;

/// A line, and where it goes.
pub(crate) struct Line {
    pub(crate) level: LogLevel,
    pub(crate) speaker: Arc<str>,
    pub(crate) text: String,
    /// None: to the descriptor.
    pub(crate) to: Option<Callback>,
}

/// What is to be written next: first the number of dropped lines, then the line.
pub(crate) struct Next {
    pub(crate) dropped: u64,
    pub(crate) line: Option<Line>,
}

struct WaitingLine {
    line: Line,
    /// How many lines were dropped between the line before and this one.
    dropped: u64,
}

/// The lines that wait, and the counts.
pub(crate) struct Backlog {
    waiting: VecDeque<WaitingLine>,
    bytes: usize,
    /// How many lines were dropped after the last one that waits.
    dropped: u64,
    /// How many lines were dropped before the first one that waits, and have not been told of.
    untold: u64,
    /// How many lines have come to wait; and how many of them have been written or dropped.
    given: u64,
    done: u64,
    last_given: Option<Instant>,
}

impl Backlog {
    pub(crate) const fn new() -> Backlog {
        let waiting = VecDeque::new();
        Backlog { waiting, bytes: 0, dropped: 0, untold: 0, given: 0, done: 0, last_given: None }
    }

    /// Keeps a line, if there is room.
    pub(crate) fn give(&mut self, line: Line, now: Instant) {
        let bytes = self.bytes + line.text.len();
        if self.waiting.len() >= LINES_MAX || bytes > BYTES_MAX {
            self.dropped += 1;
            return;
        }
        self.bytes = bytes;
        self.given += 1;
        self.last_given = Some(now);
        self.waiting.push_back(WaitingLine { line, dropped: std::mem::take(&mut self.dropped) });
    }

    /// Takes what is to be written next. [`wrote`](Backlog::wrote) must follow.
    pub(crate) fn take(&mut self) -> Option<Next> {
        let Some(WaitingLine { line, dropped }) = self.waiting.pop_front() else {
            // This only tells of lines that were dropped just now. If a line could not be written before, its count
            // could not be told.
            let dropped = std::mem::take(&mut self.dropped);
            self.untold += dropped;
            return (dropped > 0).then_some(Next { dropped: self.untold, line: None });
        };
        self.bytes -= line.text.len();
        self.untold += dropped;
        Some(Next { dropped: self.untold, line: Some(line) })
    }

    /// Notes what came of the last [`take`](Backlog::take): how many dropped lines were told of, and, if there was a
    /// line, whether it was written.
    pub(crate) fn wrote(&mut self, told: u64, line: Option<bool>) {
        self.untold -= told;
        self.done += u64::from(line.is_some());
        self.untold += u64::from(line == Some(false));
    }

    /// Drops all lines that wait. `counted`: whether the log will tell of them.
    pub(crate) fn discard(&mut self, counted: bool) {
        let lines = self.waiting.len() as u64;
        self.done += lines;
        self.bytes = 0;
        let between: u64 = self.waiting.drain(..).map(|waiting| waiting.dropped).sum();
        self.dropped += between + if counted { lines } else { 0 };
    }

    /// Forgets everything, and frees nothing: it belonged to another process.
    pub(crate) fn forget(&mut self) {
        std::mem::forget(std::mem::replace(self, Backlog::new()));
    }

    /// How many lines have come to wait so far, and when the last one did.
    pub(crate) fn given(&self) -> (u64, Option<Instant>) {
        (self.given, self.last_given)
    }

    /// How many lines have been written or dropped after they waited.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        Line { level: LogLevel::Warn, speaker: "test".into(), text: text.to_owned(), to: None }
    }

    fn give(backlog: &mut Backlog, text: &str) {
        backlog.give(line(text), Instant::now());
    }

    fn next(backlog: &mut Backlog) -> Option<(u64, Option<String>)> {
        backlog.take().map(|next| (next.dropped, next.line.map(|line| line.text)))
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn lines_beyond_the_limits_are_dropped_and_told_of_in_their_place() {
        let mut backlog = Backlog::new();
        (0..LINES_MAX).for_each(|_| give(&mut backlog, "early"));
        give(&mut backlog, "dropped");
        give(&mut backlog, "dropped");
        assert_eq!(next(&mut backlog), Some((0, text("early"))));
        backlog.wrote(0, Some(true));
        give(&mut backlog, "late");
        give(&mut backlog, "dropped");
        for _ in 1..LINES_MAX {
            assert_eq!(next(&mut backlog), Some((0, text("early"))));
            backlog.wrote(0, Some(true));
        }
        assert_eq!(next(&mut backlog), Some((2, text("late"))));
        backlog.wrote(2, Some(true));
        assert_eq!(next(&mut backlog), Some((1, None)), "nothing else comes that could tell of it");
        backlog.wrote(1, None);
        assert_eq!(next(&mut backlog), None);
        assert_eq!((backlog.given().0, backlog.done()), (LINES_MAX as u64 + 1, LINES_MAX as u64 + 1));
    }

    #[test]
    fn bytes_are_bounded() {
        let mut backlog = Backlog::new();
        give(&mut backlog, &"x".repeat(BYTES_MAX + 1));
        give(&mut backlog, &"x".repeat(BYTES_MAX));
        give(&mut backlog, "x");
        assert_eq!(next(&mut backlog), Some((1, text(&"x".repeat(BYTES_MAX)))));
        backlog.wrote(1, Some(true));
        assert_eq!(next(&mut backlog), Some((1, None)));
    }

    #[test]
    fn a_line_that_could_not_be_written_is_counted_until_that_was_told() {
        let mut backlog = Backlog::new();
        for (dropped, told) in [(0, 0), (1, 0), (2, 2), (1, 1)] {
            give(&mut backlog, "line");
            assert_eq!(next(&mut backlog), Some((dropped, text("line"))));
            backlog.wrote(told, Some(false));
            assert_eq!(next(&mut backlog), None, "with the next line it is tried again, not before");
        }
    }

    #[test]
    fn what_is_discarded_is_counted_or_not() {
        let mut backlog = Backlog::new();
        (0..=LINES_MAX).for_each(|_| give(&mut backlog, "line"));
        backlog.discard(false);
        assert_eq!(next(&mut backlog), Some((1, None)), "that one had been dropped before");
        backlog.wrote(1, None);
        give(&mut backlog, "line");
        backlog.discard(true);
        assert_eq!((backlog.given().0, backlog.done()), (LINES_MAX as u64 + 1, LINES_MAX as u64 + 1));
        assert_eq!(next(&mut backlog), Some((1, None)));
    }
}
