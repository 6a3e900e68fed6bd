//! The way out for lines: a descriptor that is the program's, or the program's callback. A thread that logs puts its
//! line into a bounded backlog and goes on. One thread writes.
//!
//! Invariants:
//! - `put` waits for nothing but a lock that nobody holds for long.
//! - The thread exists while somebody holds the outlet ([`Holder`]) and something was put into it.
//! - One line at a time is on its way, without the lock.
//! - A descriptor's flags stay what they are.
//!
//! A line that cannot be written is dropped and counted (`backlog`), and the count is told with the next line that goes
//! out. Only the thread waits for a pipe or socket that is full: in slices, so that it sees when it is to end. A thread
//! that does not come back (from a callback, a terminal that is held, a disk that does not answer) is left behind when
//! the last holder goes, and the library stays mapped.
//!
//! Tested in `outlet_test.rs`, through the C ABI by `ctests/log.c`, and with real processes by `tests/python/test_stalled_output.py`.

use super::backlog::{Backlog, Line, Next};
pub use super::backlog::{Callback, BYTES_MAX, LINES_MAX};
use crate::config::LogLevel;
use crate::net::{foreign, thread};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a call that has failed waits for the lines that were put in before it.
pub const CALL_WAIT: Duration = Duration::from_millis(100);
/// How long the last holder waits for those lines, unless one of them is on its way for [`CALL_WAIT`]: as long as a
/// thread may need to begin, on a machine with other things to do.
pub const END_WAIT: Duration = Duration::from_secs(2);
/// How long the thread waits for a full descriptor before it looks whether it is to end.
const SLICE: Duration = Duration::from_millis(25);
/// How long it waits at least.
const PAUSE: Duration = Duration::from_millis(1);
/// The level that says that no callback is set.
const NO_CALLBACK: i32 = -1;

/// A sink of lines. Lives as long as the process.
pub struct Outlet {
    descriptor: RawFd,
    /// Makes a line as the descriptor gets it: from the level, the speaker, and what was said.
    dress: fn(LogLevel, &str, &str) -> String,
    /// Says that so many lines were dropped.
    notice: fn(u64) -> String,
    /// The level up to which the callback takes lines.
    up_to: AtomicI32,
    /// Whether a line waits or is on its way.
    busy: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

/// What the outlet shares with its thread.
pub(crate) struct State {
    backlog: Backlog,
    sink: Option<(LogLevel, Callback)>,
    hand: Option<Hand>,
    writer: WriterThread,
    holders: usize,
    /// How often the process was forked since the outlet was made, as far as [`State::begin_anew`] was told.
    generation: u64,
}

/// The line that is on its way.
struct Hand {
    since: Instant,
    to: Option<Callback>,
    /// Whether the line is to be dropped if it cannot be written at once.
    hurries: bool,
}

/// What the thread has to do: first to tell of dropped lines, if there are any, then to write the line.
struct Task {
    next: Next,
    notice: Option<Line>,
}

/// The thread that writes.
enum WriterThread {
    Absent,
    Runs(JoinHandle<()>),
    /// Nobody waited for the thread, and it may not have ended.
    LeftBehind,
    /// The thread does nothing more.
    Over(JoinHandle<()>),
}

impl WriterThread {
    fn lives(&self) -> bool {
        matches!(self, WriterThread::Runs(_) | WriterThread::LeftBehind)
    }

    fn end(&mut self) {
        *self = match std::mem::replace(self, WriterThread::Absent) {
            WriterThread::Runs(thread) | WriterThread::Over(thread) => WriterThread::Over(thread),
            WriterThread::Absent | WriterThread::LeftBehind => WriterThread::Absent,
        };
    }
}

/// Keeps an outlet's thread. The thread ends with the last holder.
pub struct Holder {
    outlet: &'static Outlet,
    generation: u64,
}

impl Outlet {
    /// An outlet that writes to that descriptor until a callback is set.
    pub const fn new(
        descriptor: RawFd,
        dress: fn(LogLevel, &str, &str) -> String,
        notice: fn(u64) -> String,
    ) -> Outlet {
        let state = State {
            backlog: Backlog::new(),
            sink: None,
            hand: None,
            writer: WriterThread::Absent,
            holders: 0,
            generation: 0,
        };
        Outlet {
            descriptor,
            dress,
            notice,
            up_to: AtomicI32::new(NO_CALLBACK),
            busy: AtomicBool::new(false),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Says that somebody needs the outlet from now on.
    pub fn hold(&'static self) -> Holder {
        let mut state = self.lock();
        state.holders += 1;
        Holder { outlet: self, generation: state.generation }
    }

    /// Whether somebody takes a line of this level. `up_to` is the level up to which the descriptor gets lines.
    pub fn takes(&self, level: LogLevel, up_to: LogLevel) -> bool {
        match self.up_to.load(Ordering::Relaxed) {
            NO_CALLBACK => level <= up_to,
            up_to => level as i32 <= up_to,
        }
    }

    /// Whether lines go to a callback.
    pub fn has_callback(&self) -> bool {
        self.up_to.load(Ordering::Relaxed) != NO_CALLBACK
    }

    /// Has a line written, without waiting for that.
    pub fn put(&'static self, level: LogLevel, speaker: Arc<str>, text: String) {
        let mut state = self.lock();
        let to = match &state.sink {
            Some((up_to, _)) if level > *up_to => return,
            Some((_, callback)) => Some(Arc::clone(callback)),
            None => None,
        };
        self.busy.store(true, Ordering::Release);
        state.backlog.give(Line { level, speaker, text, to }, Instant::now());
        if !state.writer.lives() && !self.start(&mut state) {
            state.backlog.discard(true);
            self.busy.store(false, Ordering::Release);
        }
        self.changed.notify_all();
    }

    fn start(&'static self, state: &mut State) -> bool {
        if let WriterThread::Over(thread) = std::mem::replace(&mut state.writer, WriterThread::Absent) {
            let _ = thread.join(); // it said under the lock that it does nothing more
        }
        // Without a holder, nobody would wait for the thread's end.
        if state.holders == 0 {
            return false;
        }
        let started = thread::spawn("muster-log", move || self.write_all());
        started.is_ok_and(|thread| {
            state.writer = WriterThread::Runs(thread);
            true
        })
    }

    /// Waits until all lines that were put in are out, or so long has passed since the last of them.
    pub fn flush(&self, within: Duration) {
        if !self.busy.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.lock();
        let (given, Some(last)) = state.backlog.given() else { return };
        while state.backlog.done() < given {
            let left = within.saturating_sub(last.elapsed());
            if left.is_zero() {
                return;
            }
            state = self.wait(state, left);
        }
    }

    /// Sends lines up to that level to that callback from now on; `None`: to the descriptor. Lines that wait for a
    /// callback are dropped; lines that wait for the descriptor get [`CALL_WAIT`] before. Returns when no call to the
    /// old callback is running.
    pub fn set_callback(&self, sink: Option<(LogLevel, Callback)>) {
        if !self.has_callback() {
            self.flush(CALL_WAIT);
        }
        let mut state = self.lock();
        let up_to = sink.as_ref().map_or(NO_CALLBACK, |(level, _)| *level as i32);
        self.up_to.store(up_to, Ordering::Relaxed);
        let old = std::mem::replace(&mut state.sink, sink);
        if old.is_some() || state.sink.is_some() {
            state.backlog.discard(old.is_none());
            if let Some(hand) = &mut state.hand {
                hand.hurries = true;
            }
            self.changed.notify_all();
        }
        let Some((_, old)) = old else { return };
        let runs = |state: &State| {
            let to = state.hand.as_ref().and_then(|hand| hand.to.as_ref());
            to.is_some_and(|to| Arc::ptr_eq(to, &old))
        };
        while runs(&state) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state); // what the callback owns may be dropped with it
    }

    /// The lock, also for the handlers that hold it over a fork.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, within: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, within).unwrap_or_else(PoisonError::into_inner).0
    }

    /// The last holder has gone: the thread ends once everything is out, or it took too long.
    fn end(&self) {
        let mut state = self.lock();
        state.holders -= 1;
        self.changed.notify_all();
        let deadline = Instant::now() + END_WAIT;
        while state.holders == 0 && state.writer.lives() {
            let by = state.hand.as_ref().map_or(deadline, |hand| deadline.min(hand.since + CALL_WAIT));
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.leave(state);
            }
            state = self.wait(state, left);
        }
        self.join(state);
    }

    /// Drops what waits, and gives the thread a last moment.
    fn leave(&self, mut state: MutexGuard<'_, State>) {
        state.backlog.discard(true);
        if let Some(hand) = &mut state.hand {
            hand.hurries = true;
        }
        let deadline = Instant::now() + CALL_WAIT;
        while state.holders == 0 && state.writer.lives() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                thread::stay_mapped();
                state.writer = WriterThread::LeftBehind;
                return;
            }
            state = self.wait(state, left);
        }
        self.join(state);
    }

    fn join(&self, mut state: MutexGuard<'_, State>) {
        if !matches!(state.writer, WriterThread::Over(_)) {
            return;
        }
        if let WriterThread::Over(thread) = std::mem::replace(&mut state.writer, WriterThread::Absent) {
            drop(state);
            let _ = thread.join(); // a panic was printed
        }
    }

    /// Runs the thread: writes all that comes.
    fn write_all(&self) {
        let _tells = TellsOfPanic(self);
        let mut torn = false;
        while let Some(Task { next, notice }) = self.next() {
            let told = notice.is_some_and(|notice| self.carry_out(&notice, &mut torn));
            let line = next.line.as_ref().map(|line| self.carry_out(line, &mut torn));
            let mut state = self.lock();
            state.hand = None;
            state.backlog.wrote(if told { next.dropped } else { 0 }, line);
            self.changed.notify_all();
        }
    }

    /// Waits for what is to be written; none: the thread is to end.
    fn next(&self) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if let Some(next) = state.backlog.take() {
                let notice = self.notice_of(&next, &state);
                let to = next.line.as_ref().or(notice.as_ref()).and_then(|line| line.to.clone());
                // All lines had their time by then.
                let hurries = state.holders == 0 && next.line.is_none();
                state.hand = Some(Hand { since: Instant::now(), to, hurries });
                if state.holders == 0 {
                    self.changed.notify_all(); // a thread that waits for the end counts from now
                }
                return Some(Task { next, notice });
            }
            self.busy.store(false, Ordering::Release);
            if state.holders == 0 {
                state.writer.end();
                self.changed.notify_all();
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The notice that lines were dropped, for the reader of the next line.
    fn notice_of(&self, next: &Next, state: &State) -> Option<Line> {
        if next.dropped == 0 {
            return None;
        }
        let text = (self.notice)(next.dropped);
        let most = state.sink.as_ref().map_or(LogLevel::Warn, |(up_to, _)| *up_to);
        let level = most.min(LogLevel::Warn);
        Some(match &next.line {
            Some(line) => Line { level, speaker: Arc::clone(&line.speaker), text, to: line.to.clone() },
            None => {
                let to = state.sink.as_ref().map(|(_, callback)| Arc::clone(callback));
                Line { level, speaker: Arc::from("log"), text, to }
            }
        })
    }

    /// Writes a line. Returns whether all of it was written. `torn`: whether only a part of the line before was
    /// written.
    fn carry_out(&self, line: &Line, torn: &mut bool) -> bool {
        let Line { level, speaker, text, to } = line;
        if let Some(callback) = to {
            callback(*level, speaker, text);
            return true;
        }
        let dressed = format!("{}{}", if *torn { "\n" } else { "" }, (self.dress)(*level, speaker, text));
        let mut rest = dressed.as_bytes();
        while !rest.is_empty() {
            match foreign::pour(self.descriptor, rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && !self.hurries() => {
                    let began = Instant::now();
                    // Some time must pass, even if the descriptor is said to take something at once and then does not.
                    if foreign::takes(self.descriptor, SLICE) && began.elapsed() < PAUSE {
                        std::thread::sleep(PAUSE);
                    }
                }
                Err(_) => {
                    *torn |= rest.len() < dressed.len();
                    return false;
                }
            }
        }
        *torn = false;
        true
    }

    fn hurries(&self) -> bool {
        self.lock().hand.as_ref().is_none_or(|hand| hand.hurries)
    }
}

impl State {
    /// Begins anew in a forked child: the thread, the lines and the holders were the parent's.
    pub(crate) fn begin_anew(&mut self) {
        self.backlog.forget();
        std::mem::forget(self.hand.take());
        std::mem::forget(std::mem::replace(&mut self.writer, WriterThread::Absent));
        self.holders = 0;
        self.generation += 1;
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let state = self.outlet.lock();
        if state.generation != self.generation {
            return; // inherited
        }
        drop(state);
        self.outlet.end();
    }
}

impl std::fmt::Debug for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "holder of descriptor {}", self.outlet.descriptor)
    }
}

/// Says that the thread has ended by a panic.
struct TellsOfPanic<'a>(&'a Outlet);

impl Drop for TellsOfPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.lock();
            state.hand = None;
            state.writer.end();
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
#[path = "outlet_test.rs"]
mod tests;
