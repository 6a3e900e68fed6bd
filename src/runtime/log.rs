//! The log sink: one line a message on standard error, or the program's callback. Never standard output.
//!
//! Owns the first of the two process-wide tables (the other is `net`'s table of descriptors). A callback runs under the
//! sink's read lock, so that taking it away waits for calls in flight.

use crate::config::LogLevel;
use std::sync::{Arc, PoisonError, RwLock};

/// A program's own sink: level, who speaks, the line.
pub type Callback = Arc<dyn Fn(LogLevel, &str, &str) + Send + Sync>;

static SINK: RwLock<Option<(LogLevel, Callback)>> = RwLock::new(None);

/// Sends every line up to `level` to `callback` instead of standard error; `None` goes back to standard error, and
/// returns only when no call to the old callback is running.
pub fn set_callback(sink: Option<(LogLevel, Callback)>) {
    *SINK.write().unwrap_or_else(PoisonError::into_inner) = sink;
}

/// Who speaks, and up to which level.
#[derive(Debug)]
pub struct Logger {
    level: LogLevel,
    speaker: RwLock<Arc<str>>,
}

impl Logger {
    /// A logger for a process that is described so, for instance `worker "3"`.
    pub fn new(level: LogLevel, speaker: &str) -> Arc<Logger> {
        Arc::new(Logger { level, speaker: RwLock::new(speaker.into()) })
    }

    /// Who speaks from now on: once there is a rank, it is named.
    pub fn set_speaker(&self, speaker: &str) {
        *self.speaker.write().unwrap_or_else(PoisonError::into_inner) = speaker.into();
    }

    /// Something failed.
    pub fn error(&self, line: &str) {
        self.line(LogLevel::Error, line);
    }

    /// Something is odd, or takes long.
    pub fn warn(&self, line: &str) {
        self.line(LogLevel::Warn, line);
    }

    /// Something of interest.
    pub fn info(&self, line: &str) {
        self.line(LogLevel::Info, line);
    }

    /// For those who look for a fault.
    pub fn debug(&self, line: &str) {
        self.line(LogLevel::Debug, line);
    }

    fn line(&self, level: LogLevel, line: &str) {
        let sink = SINK.read().unwrap_or_else(PoisonError::into_inner);
        let speaker = Arc::clone(&self.speaker.read().unwrap_or_else(PoisonError::into_inner));
        match sink.as_ref() {
            Some((up_to, callback)) if level <= *up_to => callback(level, &speaker, line),
            Some(_) => {}
            None if level <= self.level => {
                show(&format!("muster {} [{speaker}] {}\n", name_of(level), line.replace('\n', " ")));
            }
            None => {}
        }
    }
}

/// In one write, so that lines of several processes on one terminal stay whole. Nobody could be told of a failure.
#[cfg(not(test))]
fn show(text: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Of a unit test, with what else it writes: who runs many that pass is not shown the troubles that they make on purpose.
#[cfg(test)]
fn show(text: &str) {
    eprint!("{text}");
}

/// What a line calls its level.
fn name_of(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Off | LogLevel::Error => "error",
        LogLevel::Warn => "warning",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const LOGGED: &str = "trouble that a test makes on purpose";

    #[test]
    fn a_test_that_passes() {
        Logger::new(LogLevel::Warn, "test").warn(LOGGED);
        let elsewhere = crate::net::thread::spawn("muster-test", || Logger::new(LogLevel::Warn, "test").error(LOGGED));
        elsewhere.expect("it starts").join().expect("it ends");
    }

    #[test]
    fn what_a_test_that_passes_has_logged_is_not_shown() {
        let this = std::env::current_exe().expect("the tests have a file");
        let words = ["runtime::log::tests::a_test_that_passes", "--exact"];
        let run = |more: &[&str]| Command::new(&this).args(words).args(more).output().expect("it can be run");
        let (usual, uncaught) = (run(&[]), run(&["--nocapture"]));
        let shown = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).matches(LOGGED).count();
        assert!(usual.status.success() && uncaught.status.success(), "{usual:?} {uncaught:?}");
        assert_eq!((shown(&usual), shown(&uncaught)), (0, 2));
    }
}
