//! The log sink: one line a message on standard error, or the program's callback. Never standard output. A thread that
//! logs waits for neither: an [`Outlet`] takes the line.
//!
//! Owns one of the four process-wide tables, that of log sinks. Its thread exists while there are loggers. In a forked
//! child it begins anew, with the same callback.

pub use super::outlet::Callback;
use super::outlet::{Holder, Outlet, CALL_WAIT};
use crate::config::LogLevel;
use crate::net::fork;
use crate::types::shown;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError, RwLock};

/// The longest line, in bytes. The bytes beyond are counted.
const LINE_MAX: usize = 8 << 10;

static SINK: Outlet = Outlet::new(libc::STDERR_FILENO, dressed, notice);
/// What `fork::have_called` returned, once it was called.
static HANDLERS: OnceLock<i32> = OnceLock::new();

thread_local! {
    /// The sink's lock, held between the handlers before and after a fork. It has no destructor, like the lock in
    /// `fork`.
    static HELD: Cell<Option<ManuallyDrop<MutexGuard<'static, super::outlet::State>>>> = const { Cell::new(None) };
}

/// Sends every line up to `level` to `callback` instead of standard error; `None` goes back to standard error. Lines that wait
/// for the old callback are dropped, and this returns only when no call to it is running.
pub fn set_callback(sink: Option<(LogLevel, Callback)>) {
    sink_over_forks().set_callback(sink);
}

/// Gives what was logged so far a moment to be written, for a call that is about to fail.
pub fn flush() {
    SINK.flush(CALL_WAIT);
}

/// The sink. From its first use on it is whole in a forked child, too.
fn sink_over_forks() -> &'static Outlet {
    HANDLERS.get_or_init(|| fork::have_called(before_fork, after_fork_in_parent, after_fork_in_child));
    &SINK
}

extern "C" fn before_fork() {
    let guard = SINK.lock();
    HELD.with(|held| held.set(Some(ManuallyDrop::new(guard))));
}

extern "C" fn after_fork_in_parent() {
    if let Some(guard) = HELD.with(Cell::take) {
        drop(ManuallyDrop::into_inner(guard));
    }
}

extern "C" fn after_fork_in_child() {
    if let Some(guard) = HELD.with(Cell::take) {
        ManuallyDrop::into_inner(guard).begin_anew();
    }
}

/// A speaker, and the level up to which it speaks.
#[derive(Debug)]
pub struct Logger {
    level: LogLevel,
    speaker: RwLock<Arc<str>>,
    _holder: Holder,
}

impl Logger {
    /// A logger for a process that is described so, for instance `worker "3"`.
    pub fn new(level: LogLevel, speaker: &str) -> Arc<Logger> {
        Arc::new(Logger { level, speaker: RwLock::new(speaker.into()), _holder: sink_over_forks().hold() })
    }

    /// Sets the speaker from now on: once there is a rank, it is named.
    pub fn set_speaker(&self, speaker: &str) {
        *self.speaker.write().unwrap_or_else(PoisonError::into_inner) = speaker.into();
    }

    /// Logs that something failed.
    pub fn error(&self, line: &str) {
        self.line(LogLevel::Error, line);
    }

    /// Logs that something is odd, or takes long.
    pub fn warn(&self, line: &str) {
        self.line(LogLevel::Warn, line);
    }

    /// Logs something of interest.
    pub fn info(&self, line: &str) {
        self.line(LogLevel::Info, line);
    }

    /// Logs something for a search for faults.
    pub fn debug(&self, line: &str) {
        self.line(LogLevel::Debug, line);
    }

    fn line(&self, level: LogLevel, line: &str) {
        if !SINK.takes(level, self.level) {
            return;
        }
        let speaker = Arc::clone(&self.speaker.read().unwrap_or_else(PoisonError::into_inner));
        let line = as_shown(line);
        #[cfg(test)]
        if !SINK.has_callback() {
            return show(&dressed(level, &speaker, &line));
        }
        SINK.put(level, speaker, line);
    }
}

/// A line as people may see it, whatever of it came from outside: it is one line, of a bounded length, and hides
/// nothing.
fn as_shown(line: &str) -> String {
    let line_alone = cut(line).replace('\n', " ");
    let shown = shown(&line_alone); // that may make it longer
    let kept = cut(&shown);
    match line.len() - line_alone.len() + shown.len() - kept.len() {
        0 => kept.to_owned(),
        more => format!("{kept}... ({more} bytes more)"),
    }
}

/// The beginning of a text, as long as a line may be.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(LINE_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A line in the form for standard error.
fn dressed(level: LogLevel, speaker: &str, line: &str) -> String {
    format!("muster {} [{speaker}] {line}\n", name_of(level))
}

fn notice(dropped: u64) -> String {
    let lines = if dropped == 1 { "1 log line was".to_owned() } else { format!("{dropped} log lines were") };
    format!("{lines} dropped here: the output did not take them")
}

/// Shows a unit test's log lines where its other words go. So a run of many tests that pass does not show the troubles
/// that they make on purpose.
#[cfg(test)]
fn show(text: &str) {
    eprint!("{text}");
}

/// The name of a level in a line.
fn name_of(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Off | LogLevel::Error => "error",
        LogLevel::Warn => "warning",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    }
}

/// What one unit test, which must pass, has logged: it runs once more, alone and in a process of its own.
#[cfg(test)]
pub(crate) fn logged_by(test: &str, more: &[&str]) -> String {
    let this = std::env::current_exe().expect("the tests have a file");
    let run = std::process::Command::new(this).args([test, "--exact"]).args(more).output().expect("it can be run");
    assert!(run.status.success() && String::from_utf8_lossy(&run.stdout).contains("1 passed"), "{run:?}");
    String::from_utf8_lossy(&run.stderr).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGGED: &str = "trouble that a test makes on purpose";

    #[test]
    fn what_comes_from_outside_forges_no_line_and_hides_nothing() {
        assert_eq!(as_shown("two\nlines"), "two lines");
        let forged = "host \u{1b}[2K\rmuster error [scheduler] \u{202e}dedne sah boj eht";
        let shown = as_shown(forged);
        assert!(!shown.chars().any(crate::types::is_hidden), "{shown}");
        assert_eq!(shown, r"host \u{1b}[2K\u{d}muster error [scheduler] \u{202e}dedne sah boj eht");
        let long = "é".repeat(LINE_MAX);
        assert_eq!(as_shown(&long), format!("{}... ({LINE_MAX} bytes more)", "é".repeat(LINE_MAX / 2)));
        let escaped = as_shown(&"\u{1}".repeat(LINE_MAX));
        assert!(escaped.len() < LINE_MAX + 40 && escaped.ends_with(&format!("... ({} bytes more)", 4 * LINE_MAX)));
    }

    #[test]
    fn a_test_that_passes() {
        Logger::new(LogLevel::Warn, "test").warn(LOGGED);
        let elsewhere = crate::net::thread::spawn("muster-test", || Logger::new(LogLevel::Warn, "test").error(LOGGED));
        elsewhere.expect("it starts").join().expect("it ends");
    }

    #[test]
    fn what_a_test_that_passes_has_logged_is_not_shown() {
        let test = "runtime::base::log::tests::a_test_that_passes";
        let [usual, uncaught] = [&[][..], &["--nocapture"]].map(|more| logged_by(test, more).matches(LOGGED).count());
        assert_eq!((usual, uncaught), (0, 2));
    }
}
