//! A question to the scheduler that a thread asks meanwhile: whom it is about, and whether there is an answer yet.

use std::sync::mpsc::{channel, Receiver, TryRecvError};
use std::time::Duration;

/// How soon one looks for an answer; then the time doubles, up to the second of these.
pub const LOOKS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// A question that is under way.
pub struct Question<T> {
    /// The children that it is about. A child that ends later may not have been known to have ended.
    about: Vec<usize>,
    answer: Receiver<T>,
    looks_at: Duration,
    pause: Duration,
}

impl<T: Send + 'static> Question<T> {
    /// Has a thread ask. Without a thread nobody answers.
    pub fn ask(about: Vec<usize>, now: Duration, asks: impl FnOnce() -> T + Send + 'static) -> Question<T> {
        let (answers, answer) = channel();
        let asked = move || {
            let _ = answers.send(asks());
        };
        let _ = std::thread::Builder::new().name("muster-asks".to_owned()).spawn(asked);
        Question { about, answer, looks_at: now + LOOKS[0], pause: LOOKS[0] }
    }

    /// When to look next.
    pub fn looks_at(&self) -> Duration {
        self.looks_at
    }

    /// Ends the question if there is an answer. Returns the children that it is about, and the answer, or nothing if
    /// nobody gives one.
    pub fn look(question: &mut Option<Question<T>>, now: Duration) -> Option<(Vec<usize>, Option<T>)> {
        let asked = question.as_mut()?;
        let answer = asked.answer.try_recv();
        if matches!(answer, Err(TryRecvError::Empty)) {
            asked.pause = (asked.pause * 2).min(LOOKS[1]);
            asked.looks_at = now + asked.pause;
            return None;
        }
        question.take().map(|asked| (asked.about, answer.ok()))
    }
}
