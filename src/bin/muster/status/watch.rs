//! Asks once, or again and again, and puts each answer where it is wanted: on standard output, or into a file.

use super::ask::{self, NoAnswer};
use super::options::{Format, Options};
use super::told::Told;
use super::{json, prometheus, text};
use crate::code;
use crate::voice::{complain, put_out, unwritten};
use crate::whole;
use muster::wire::JobPhase;
use std::io::{self, IsTerminal};
use std::time::Instant;

/// Moves the cursor of a terminal to its corner, and wipes it.
const WIPE: &str = "\x1b[H\x1b[2J";
/// After so many questions in a row without an answer a job without recovery has ended.
const MISSES: u32 = 3;

/// Asks and shows as the options say. Returns the exit code.
pub fn run(options: &Options) -> i32 {
    let mut was = Was::Unheard;
    loop {
        let asked = Instant::now();
        let whom = &options.whom;
        let answer = ask::ask(&whom.host, whom.port, whom.timeout, |_| true);
        match shown(options.format, &answer).map_or(Ok(()), |shown| put(&shown, options, &was)) {
            Ok(()) => {}
            // The reader has closed the output: it does not want to hear.
            Err(None) => return if answer.is_ok() { 0 } else { code::UNABLE },
            Err(Some(why)) => {
                complain(format!("muster status: {why}\n"));
                return code::FAILED;
            }
        }
        let (next, said) = was.after(&answer);
        if let Some(words) = said {
            complain(format!("muster status: {words}\n"));
        }
        match (options.every, &next) {
            (None, Was::Heard { .. }) | (Some(_), Was::Ended) => return 0,
            (None, _) | (Some(_), Was::Unheard) => return code::UNABLE,
            (Some(every), _) => std::thread::sleep(every.saturating_sub(asked.elapsed())),
        }
        was = next;
    }
}

/// The scheduler's state when it was asked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Was {
    /// It has never answered.
    Unheard,
    /// It answered.
    Heard {
        /// Whether it may be started again when it is gone.
        comes_back: bool,
    },
    /// It did not answer, and may be started again.
    Away,
    /// It has not answered so often, and will not be started again. It may be slow, or have refused one reader more.
    Missed(u32),
    /// It does not answer any more, because its job has ended.
    Ended,
}

impl Was {
    /// The state after this answer, and what there is to say of it. A scheduler that is away is mentioned once.
    fn after(self, answer: &Result<Told, NoAnswer>) -> (Was, Option<String>) {
        let why = match answer {
            Ok(Told { job, .. }) => {
                return (Was::Heard { comes_back: job.recovery && job.phase != JobPhase::Ending }, None)
            }
            Err(why) => text::plain(&why.words),
        };
        match self {
            Was::Heard { comes_back: true } => (Was::Away, Some(why)),
            Was::Away => (Was::Away, None),
            Was::Unheard | Was::Ended => (self, Some(why)),
            Was::Heard { comes_back: false } | Was::Missed(_) => {
                let times = if let Was::Missed(times) = self { times + 1 } else { 1 };
                match times >= MISSES || answer.as_ref().is_err_and(|why| why.is_refused) {
                    true => (Was::Ended, Some(format!("the job has ended, or its scheduler: {why}"))),
                    false => (Was::Missed(times), (times == 1).then_some(why)),
                }
            }
        }
    }
}

/// The answer in this format. Where there is no answer, only Prometheus wants to hear that.
fn shown(format: Format, answer: &Result<Told, NoAnswer>) -> Option<String> {
    match (format, answer) {
        (Format::Text, Ok(told)) => Some(text::shown(told)),
        (Format::Json, Ok(told)) => Some(json::shown(told)),
        (Format::Prometheus, Ok(told)) => Some(prometheus::shown(told)),
        (Format::Prometheus, Err(_)) => Some(prometheus::silent()),
        (Format::Text | Format::Json, Err(_)) => None,
    }
}

/// Puts out the answer. An error without words means that the reader wants to hear no more.
fn put(shown: &str, options: &Options, was: &Was) -> Result<(), Option<String>> {
    if let Some(path) = &options.output {
        return whole::replace_text(path, shown).map_err(|error| Some(format!("--output {}: {error}", path.display())));
    }
    let before = match (options.every, options.format) {
        (Some(_), Format::Text) if io::stdout().is_terminal() => WIPE,
        (Some(_), Format::Text) if *was != Was::Unheard => "\n",
        _ => "",
    };
    put_out(&format!("{before}{shown}"))
        .map_err(|error| (error.kind() != io::ErrorKind::BrokenPipe).then(|| unwritten(&error)))
}

#[cfg(test)]
mod tests {
    use super::super::told::testing::told;
    use super::*;

    fn answered(recovery: bool, phase: JobPhase) -> Result<Told, NoAnswer> {
        let mut told = told();
        (told.job.recovery, told.job.phase) = (recovery, phase);
        Ok(told)
    }

    fn gone() -> Result<Told, NoAnswer> {
        Err(NoAnswer { words: "refused".to_owned(), is_refused: true })
    }

    fn silent() -> Result<Told, NoAnswer> {
        Err("no answer".to_owned().into())
    }

    #[test]
    fn a_scheduler_that_may_come_back_is_waited_for_and_told_of_once() {
        let (heard, said) = Was::Unheard.after(&answered(true, JobPhase::Running));
        assert_eq!((heard, said), (Was::Heard { comes_back: true }, None));
        let (away, said) = heard.after(&gone());
        assert_eq!((away, said.as_deref()), (Was::Away, Some("refused")));
        assert_eq!(away.after(&gone()), (Was::Away, None));
        assert_eq!(away.after(&answered(true, JobPhase::Running)).0, heard);
    }

    #[test]
    fn one_that_may_not_has_ended_with_its_job() {
        for (recovery, phase) in [(false, JobPhase::Running), (true, JobPhase::Ending)] {
            let (next, said) = Was::Unheard.after(&answered(recovery, phase)).0.after(&gone());
            assert_eq!((next, said.as_deref()), (Was::Ended, Some("the job has ended, or its scheduler: refused")));
        }
        assert_eq!(Was::Unheard.after(&gone()), (Was::Unheard, Some("refused".to_owned())));
    }

    #[test]
    fn one_that_may_not_come_back_may_be_slow() {
        let heard = Was::Unheard.after(&answered(false, JobPhase::Running)).0;
        let (once, said) = heard.after(&silent());
        assert_eq!((once, said.as_deref()), (Was::Missed(1), Some("no answer")));
        assert_eq!(once.after(&answered(false, JobPhase::Running)).0, heard);
        assert_eq!(once.after(&gone()).0, Was::Ended);
        let (twice, said) = once.after(&silent());
        assert_eq!((twice, said), (Was::Missed(2), None));
        assert_eq!(twice.after(&silent()).0, Was::Ended);
    }

    #[test]
    fn of_no_answer_only_prometheus_hears() {
        assert_eq!(shown(Format::Json, &gone()), None);
        assert!(shown(Format::Prometheus, &gone()).is_some_and(|page| page.ends_with("muster_scheduler_up 0\n")));
    }
}
