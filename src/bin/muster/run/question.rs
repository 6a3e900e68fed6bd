//! A question to the scheduler that a thread asks meanwhile: about whom it is, and whether there is an answer yet.

use std::sync::mpsc::{channel, Receiver, TryRecvError};
use std::time::Duration;

/// How soon it is looked whether there is an answer, and then in twice the time, up to the second of these.
pub const LOOKS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// One that is under way.
pub struct Question<T> {
    /// About whom: those who end later may not have been known to have ended.
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

    /// Ends it, if there is an answer: about whom it is, and the answer, or nothing where nobody gives one.
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
