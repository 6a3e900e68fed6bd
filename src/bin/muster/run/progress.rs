//! How far the cluster is while it forms: how many nodes have come, which are missing, and from which hosts the present
//! ones are.
//!
//! The scheduler is asked, as by `muster status`, until the cluster has formed. On a terminal its words stand in the last row,
//! and change there. Elsewhere they are a line, soon and then ever more seldom, so that the log of a batch job is not filled.
//! If one command has several hosts, the launcher beside the scheduler asks, and the one that leads shows it
//! ([`Shown`]).
//!
//! Contract: nothing here waits, a thread asks. Tested below, and with real processes by `tests/python/test_run_forming.py`.

use super::hosts::report::Report;
use super::question::Question;
use crate::status::ask::ask;
use crate::status::text::plain;
use crate::sys;
use crate::voice::Voice;
use muster::wire::JobPhase;
use std::time::Duration;

/// How often the scheduler is asked.
const ASKS_EVERY: Duration = Duration::from_secs(1);
/// Where it is no terminal: when the first line is said, and the longest pause. The pauses between the lines double.
const LINES: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(80)];
/// How long the scheduler may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The place where it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Display {
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
    /// The cluster is complete, or was.
    Formed,
    /// There is no answer, for this reason.
    Nothing(String),
}

/// Shows how far the cluster is while it forms.
pub struct Progress {
    scheduler: (String, u16),
    /// The scheduler runs on another host: the user must then know that it cannot be reached.
    is_remote: bool,
    has_answered: bool,
    asks_at: Duration,
    asked: Option<Question<Said>>,
    shown: Shown,
}

/// What the user has seen of it.
pub struct Shown {
    display: Display,
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
    /// The progress of the cluster whose scheduler has this address.
    ///
    /// If another launcher leads (`is_led`), it is told each time, and decides itself what to show.
    pub fn new(scheduler: (String, u16), is_remote: bool, is_led: bool) -> Progress {
        let shown = Shown::new();
        let asks_at = if is_led || shown.display == Display::Row { ASKS_EVERY } else { LINES[0] };
        Progress { scheduler, is_remote, has_answered: false, asks_at, asked: None, shown }
    }

    /// When to look next, if there is a reason to.
    pub fn deadline(&self) -> Option<Duration> {
        let is_over = self.shown.state == State::Over;
        (!is_over).then(|| self.asked.as_ref().map_or(self.asks_at, Question::looks_at))
    }

    /// Shows what is known by now, or has it shown.
    pub fn look(&mut self, now: Duration, voice: &Voice, report: &Report) {
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
                self.asks_at = now + ASKS_EVERY;
                let words = format!("muster: forming {words}");
                match report.is_led() {
                    true => report.forming(&words),
                    false => self.shown.show(&words, now, voice),
                }
            }
            Some(Said::Formed) if report.is_led() => {
                report.forming(""); // the cluster has formed
                self.end(voice);
            }
            Some(Said::Formed) => self.shown.formed(voice),
            // The scheduler's job was short.
            Some(Said::Nothing(_)) if self.has_answered => self.end(voice),
            Some(Said::Nothing(why)) if self.is_remote && now >= LINES[0] => {
                self.asks_at = now + ASKS_EVERY;
                self.shown.show(&format!("muster: waiting for the scheduler: {why}"), now, voice);
            }
            Some(Said::Nothing(_)) | None => self.asks_at = now + ASKS_EVERY,
        }
    }

    /// Nothing is shown any more: something else is to be said.
    pub fn end(&mut self, voice: &Voice) {
        self.shown.end(voice);
    }
}

impl Shown {
    /// Nothing is shown yet. It will be in the last row of a terminal, or in lines.
    pub fn new() -> Shown {
        // Workers' output that passes through another program may come to the same terminal, and would not wipe the row.
        let is_alone = sys::is_terminal(libc::STDERR_FILENO) && !sys::is_pipe(libc::STDOUT_FILENO);
        let display = if is_alone { Display::Row } else { Display::Lines { at: LINES[0], pause: 2 * LINES[0] } };
        Shown { display, state: State::Quiet }
    }

    /// Shows these words, if it is their time, and the showing is not over.
    pub fn show(&mut self, words: &str, now: Duration, voice: &Voice) {
        if self.state == State::Over {
            return;
        }
        let is_due = !matches!(self.display, Display::Lines { at, .. } if at > now);
        if is_due {
            self.state = State::Shown;
        }
        match &mut self.display {
            // The row belongs to the program in the foreground: the shell, with what is being typed there.
            Display::Row if sys::is_background(libc::STDERR_FILENO) => {}
            Display::Row => {
                let width = sys::terminal_width(libc::STDERR_FILENO).unwrap_or(80);
                voice.show(&fitting(words, width));
            }
            Display::Lines { at, pause } if is_due => {
                voice.say(format!("{words}\n"));
                (*at, *pause) = (now + *pause, (*pause * 2).min(LINES[1]));
            }
            Display::Lines { .. } => {}
        }
    }

    /// The cluster has formed: that is said if something was shown before.
    pub fn formed(&mut self, voice: &Voice) {
        let was_shown = self.state == State::Shown;
        self.end(voice);
        if was_shown {
            voice.say("muster: the cluster has formed\n");
        }
    }

    /// Nothing is shown any more: something else is to be said.
    pub fn end(&mut self, voice: &Voice) {
        if self.display == Display::Row && self.state == State::Shown {
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

/// Words of the scheduler's sentence about forming, and shorter ones for a narrow row.
const SHORTER: [(&str, &str); 4] = [
    ("muster: forming since ", "forming, "),
    (" have come; missing: ", ", missing "),
    ("; those that came: ", "; here "),
    (" have come", ""),
];

/// The part of the words that fits into a row of that width: longer words would go on in the next row, which is not
/// wiped.
fn fitting(words: &str, width: usize) -> String {
    let mut words = words.to_owned();
    for (long, short) in SHORTER {
        if words.chars().count() < width {
            return words;
        }
        words = words.replacen(long, short, 1);
    }
    if words.chars().count() < width {
        return words;
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
    fn a_narrow_row_says_it_in_fewer_words() {
        let words = "muster: forming since 12 s: 2 of 4 workers have come; missing: ranks 1 and 2; those that came: host-a (1), host-b (1)";
        assert_eq!(fitting(words, 120), words);
        let short = "forming, 12 s: 2 of 4 workers, missing ranks 1 and 2; here host-a (1), host-b (1)";
        assert_eq!(fitting(words, 82), short);
    }

    #[test]
    fn lines_become_ever_more_seldom() {
        let voice = Voice::error();
        let mut shown = Shown { display: Display::Lines { at: LINES[0], pause: 2 * LINES[0] }, state: State::Quiet };
        let mut lines = vec![LINES[0]];
        for now in (1..=230).map(Duration::from_secs) {
            shown.show("", now, &voice);
            assert_eq!(shown.state == State::Shown, now >= LINES[0], "{now:?}");
            lines.extend(match shown.display {
                Display::Lines { at, .. } if lines.last() != Some(&at) => Some(at),
                _ => None,
            });
        }
        assert_eq!(lines.iter().map(Duration::as_secs).collect::<Vec<_>>(), [10, 30, 70, 150, 230, 310]);
        shown.end(&voice);
        shown.show("", Duration::from_secs(400), &voice);
        assert_eq!(shown.state, State::Over, "what comes late is not shown");
    }
}
