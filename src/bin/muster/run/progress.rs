//! How far the cluster is while it forms: how many have come, who is missing, from which hosts those are that are here.
//!
//! The scheduler is asked, as by `muster status`, until the cluster has formed. On a terminal its words stand in the last row,
//! and change there. Elsewhere they are a line, soon and then ever more seldom, so that the log of a batch job is not filled.
//!
//! Contract: nothing here waits, a thread asks. Tested below, and with real processes by `tests/python/test_run_forming.py`.

use super::question::Question;
use crate::status::ask::ask;
use crate::status::text::plain;
use crate::sys;
use crate::voice::Voice;
use muster::wire::JobPhase;
use std::time::Duration;

/// How often the scheduler is asked.
const ASKS_EVERY: Duration = Duration::from_secs(1);
/// Where it is no terminal: when the first line is said, from which on each pause is twice as long, and the longest pause.
const LINES: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(80)];
/// How long the scheduler may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the last row of a terminal.
    Row,
    /// In lines.
    Lines {
        /// When the next one is due.
        at: Duration,
        /// How long the pause after that is.
        pause: Duration,
    },
}

/// What the scheduler says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Forming(String),
    /// It is complete, or was.
    Formed,
    /// There is no answer, for this reason.
    Nothing(String),
}

/// See the module.
pub struct Progress {
    scheduler: (String, u16),
    /// The scheduler runs on another host: that it can't be reached is what a user must know.
    is_elsewhere: bool,
    has_answered: bool,
    place: Place,
    asks_at: Duration,
    asked: Option<Question<Said>>,
    state: State,
}

/// What was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Quiet,
    Shown,
    Over,
}

impl Progress {
    /// Of the cluster whose scheduler has this address.
    pub fn new(scheduler: (String, u16), is_elsewhere: bool) -> Progress {
        // Workers' output that passes through another program may come to the same terminal, and would not wipe the row.
        let is_alone = sys::is_terminal(libc::STDERR_FILENO) && !sys::is_pipe(libc::STDOUT_FILENO);
        let (place, asks_at) = match is_alone {
            true => (Place::Row, ASKS_EVERY),
            false => (Place::Lines { at: LINES[0], pause: 2 * LINES[0] }, LINES[0]),
        };
        let (has_answered, asked, state) = (false, None, State::Quiet);
        Progress { scheduler, is_elsewhere, has_answered, place, asks_at, asked, state }
    }

    /// When to look next, if there is a reason to.
    pub fn deadline(&self) -> Option<Duration> {
        (self.state != State::Over).then(|| self.asked.as_ref().map_or(self.asks_at, Question::looks_at))
    }

    /// Shows what is known by now.
    pub fn look(&mut self, now: Duration, voice: &Voice) {
        if self.deadline().is_none_or(|at| at > now) {
            return;
        }
        if self.asked.is_none() {
            let (host, port) = self.scheduler.clone();
            self.asked = Some(Question::ask(Vec::new(), now, move || asked(&host, port)));
            return;
        }
        let Some((_, answer)) = Question::look(&mut self.asked, now) else { return };
        match answer {
            Some(Said::Forming(words)) => {
                self.has_answered = true;
                self.show(&format!("muster: forming {words}"), now, voice);
            }
            Some(Said::Formed) => self.formed(voice),
            // Its job was short.
            Some(Said::Nothing(_)) if self.has_answered => self.end(voice),
            Some(Said::Nothing(why)) if self.is_elsewhere && now >= LINES[0] => {
                self.show(&format!("muster: waiting for the scheduler: {why}"), now, voice);
            }
            Some(Said::Nothing(_)) | None => self.asks_at = now + ASKS_EVERY,
        }
    }

    fn show(&mut self, words: &str, now: Duration, voice: &Voice) {
        self.state = State::Shown;
        self.asks_at = now + ASKS_EVERY;
        match &mut self.place {
            // The row belongs to what runs in the foreground: the shell, with what is being typed there.
            Place::Row if sys::is_background(libc::STDERR_FILENO) => {}
            Place::Row => {
                let width = sys::terminal_width(libc::STDERR_FILENO).unwrap_or(80);
                voice.show(&fitting(words, width));
            }
            Place::Lines { at, pause } if *at <= now => {
                voice.say(format!("{words}\n"));
                (*at, *pause) = (now + *pause, (*pause * 2).min(LINES[1]));
            }
            Place::Lines { .. } => {}
        }
    }

    fn formed(&mut self, voice: &Voice) {
        let was_shown = self.state == State::Shown;
        self.end(voice);
        if was_shown {
            voice.say("muster: the cluster has formed\n");
        }
    }

    /// Nothing is shown any more: something else is to be said.
    pub fn end(&mut self, voice: &Voice) {
        if self.place == Place::Row && self.state == State::Shown {
            voice.show_no_more();
        }
        self.state = State::Over;
    }
}

fn asked(host: &str, port: u16) -> Said {
    match ask(host, port, PATIENCE, |_| false) {
        Ok(told) if told.job.phase == JobPhase::Forming => Said::Forming(plain(&told.job.words)),
        Ok(_) => Said::Formed,
        Err(why) => Said::Nothing(plain(&why.words)),
    }
}

/// As much of it as stands in a row of that width: a longer one would go on in the next row, which is not wiped.
fn fitting(words: &str, width: usize) -> String {
    if words.chars().count() < width {
        return words.to_owned();
    }
    let cut: String = words.chars().take(width.saturating_sub(3)).collect();
    format!("{cut}..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_never_longer_than_the_terminal_is_wide() {
        assert_eq!(fitting("muster: forming", 80), "muster: forming");
        assert_eq!(fitting("0123456789", 10), "0123456..");
        assert_eq!(fitting("0123456789", 11), "0123456789");
        assert_eq!(fitting("0123", 2), "..");
    }

    #[test]
    fn lines_become_ever_more_seldom() {
        let voice = Voice::error();
        let mut progress = Progress {
            scheduler: ("127.0.0.1".to_owned(), 1),
            is_elsewhere: false,
            has_answered: false,
            place: Place::Lines { at: LINES[0], pause: 2 * LINES[0] },
            asks_at: LINES[0],
            asked: None,
            state: State::Quiet,
        };
        let mut lines = vec![LINES[0]];
        while lines.len() < 6 {
            let now = progress.deadline().expect("it goes on");
            progress.show("", now, &voice);
            lines.extend(match progress.place {
                Place::Lines { at, .. } if lines.last() != Some(&at) => Some(at),
                _ => None,
            });
        }
        assert_eq!(lines.iter().map(Duration::as_secs).collect::<Vec<_>>(), [10, 30, 70, 150, 230, 310]);
        assert_eq!(progress.deadline(), Some(Duration::from_secs(231)), "it is asked more often than it is said");
        progress.end(&voice);
        assert_eq!(progress.deadline(), None);
    }
}
