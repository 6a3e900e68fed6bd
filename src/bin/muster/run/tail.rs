//! `--tail_worker_log`: shows what workers write into their logs, as it comes.
//!
//! The workers write to files, never to the launcher. So nothing that the launcher does (or a terminal that is held)
//! can slow them down. A thread looks at the files, often while something comes and seldom while nothing does. Closing
//! the kernel's own watch (inotify) takes up to 20 ms, more than a small job takes from its start to its end.
//!
//! One worker's output is passed on byte for byte, for a prompt without a newline has to be seen. The output of several
//! is shown in whole lines, each with its worker before it.

use super::children::Child;
use super::folder;
use super::signals::Signals;
use crate::sys;
use crate::voice::{unshown, unwritten, Output, Row, PATIENCE};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A line that is longer is shown in pieces. A piece ends as far behind it as one read reaches, [`READ`] at most.
const LINE_LIMIT: usize = 64 * 1024;
/// How much is read of a log at once.
const READ: usize = 16 * 1024;
/// How much of one log is shown before the next has its turn.
const TURN_LIMIT: usize = 1024 * 1024;
/// How soon the files are looked at again: the first pause, and the longest. Each pause is twice as long as the one
/// before.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];

/// The thread that shows output.
pub struct Tail {
    thread: JoinHandle<Result<(), String>>,
    stop: Arc<OwnedFd>,
    done: Arc<OwnedFd>,
    /// How many bytes of the logs were shown.
    shown: Arc<AtomicU64>,
    logs: Vec<PathBuf>,
}

impl Tail {
    /// Begins to show the output of these children, as far as their logs are files. With `several` workers, here or in
    /// all, each line has its worker before it.
    ///
    /// Each worker has a colour if that is wanted. `row` is what else is shown on a terminal.
    pub fn start(shown: &[&Child], several: bool, is_coloured: bool, row: Arc<Row>) -> io::Result<Tail> {
        let (mut paths, mut logs) = (Vec::new(), Vec::new());
        for child in shown {
            let file = folder::open_to_look(&child.log)?;
            // What goes into a pipe is for the pipe's reader alone.
            if file.metadata()?.is_file() {
                paths.push(child.log.clone());
                logs.push(Log::new(file, Lines::new(several.then(|| prefix(child, is_coloured)))));
            }
        }
        let stop = Arc::new(sys::bell()?);
        let done = Arc::new(sys::bell()?);
        let shown = Arc::new(AtomicU64::new(0));
        let (stopped, finished, count) = (Arc::clone(&stop), Arc::clone(&done), Arc::clone(&shown));
        let thread = std::thread::Builder::new().name("muster-tail".to_owned()).spawn(move || {
            let followed = follow(logs, &stopped, &count, &mut Pane::new(Output::standard(), row));
            sys::ring(&finished);
            followed
        })?;
        Ok(Tail { thread, stop, done, shown, logs: paths })
    }

    /// Shows what is still to be shown, as long as somebody reads it without a pause of [`PATIENCE`], and no longer than
    /// `limit`. A signal cuts it short. Returns the words for the user, if not all of it was read.
    pub fn finish(self, signals: &Signals, limit: Option<Duration>) -> Option<String> {
        let written: u64 = self.logs.iter().filter_map(|log| std::fs::metadata(log).ok()).map(|log| log.len()).sum();
        sys::ring(&self.stop);
        let begun = Instant::now();
        let (mut since, mut shown) = (begun, self.shown.load(Ordering::Relaxed));
        loop {
            let left = PATIENCE.saturating_sub(since.elapsed());
            let left = limit.map_or(left, |limit| left.min(limit.saturating_sub(begun.elapsed())));
            match sys::poll([self.done.as_fd(), signals.descriptor()], Some(left)) {
                Ok([true, _]) => {
                    let why = self.thread.join().ok()?.err()?;
                    return Some(unshown(&why));
                }
                Ok([false, _]) if signals.ending().is_none() => {}
                _ => return self.untold(written),
            }
            let now = self.shown.load(Ordering::Relaxed);
            if now != shown {
                (since, shown) = (Instant::now(), now);
            }
            if since.elapsed() >= PATIENCE || limit.is_some_and(|limit| begun.elapsed() >= limit) {
                return self.untold(written);
            }
        }
    }

    /// The words for output that was not shown, of so many bytes; none if all of it was. The thread stays in its call until the process ends.
    fn untold(&self, written: u64) -> Option<String> {
        let left = written.saturating_sub(self.shown.load(Ordering::Relaxed));
        let logs = if self.logs.len() == 1 { "the log has" } else { "the logs have" };
        (left > 0).then(|| {
            format!("muster: {left} bytes of the workers' output were not shown, for nobody took them: {logs} them\n")
        })
    }
}

/// Whether what is shown on standard output has colours: on a terminal, unless the user wants none.
pub fn has_colours() -> bool {
    sys::is_terminal(libc::STDOUT_FILENO) && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The colours of the shown workers, in turn. None is red, in which programs show errors.
const COLOURS: [u8; 5] = [36, 33, 32, 35, 34];

fn prefix(child: &Child, is_coloured: bool) -> String {
    let number = child.part.number().unwrap_or_default();
    let name = match child.part.rank() {
        Some(rank) => format!("[rank {rank}]"),
        None => format!("[local {number}]"),
    };
    match is_coloured {
        true => format!("\x1b[{}m{name}\x1b[0m ", COLOURS[number as usize % COLOURS.len()]),
        false => format!("{name} "),
    }
}

/// The place where output is shown. What is to be written before the output is added if something else is shown there,
/// too.
pub struct Pane<W> {
    out: W,
    row: Option<Arc<Row>>,
}

impl<W> Pane<W> {
    /// A pane on standard output, as `out`. `row` is what else is shown if this and standard error are terminals.
    pub fn new(out: W, row: Arc<Row>) -> Pane<W> {
        let shares = [libc::STDOUT_FILENO, libc::STDERR_FILENO].into_iter().all(sys::is_terminal);
        Pane { out, row: Some(row).filter(|_| shares) }
    }
}

impl<W: Write> Write for Pane<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let before = self.row.as_ref().map_or(&[][..], |row| row.before(bytes));
        if !before.is_empty() {
            self.out.write_all(before)?;
        }
        self.out.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

struct Log {
    file: File,
    lines: Lines,
    /// How many bytes are still to be shown, once that is known.
    left: Option<u64>,
    /// Why it cannot be read. Nothing more of it is shown.
    failed: Option<io::Error>,
}

/// Shows the logs until it is told to stop, and then to the end that each log has by then. Returns why not all was shown. A
/// reader that has gone away wants no more, and is no such reason.
fn follow(mut logs: Vec<Log>, stop: &OwnedFd, count: &AtomicU64, out: &mut impl Write) -> Result<(), String> {
    match show_all(&mut logs, stop, count, out) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(unwritten(&error)),
        Ok(()) => match logs.into_iter().find_map(|log| log.failed) {
            Some(error) => Err(format!("a log cannot be read: {error}")),
            None => Ok(()),
        },
    }
}

fn show_all(logs: &mut [Log], stop: &OwnedFd, count: &AtomicU64, out: &mut impl Write) -> io::Result<()> {
    let mut pause = PAUSES[0];
    loop {
        // The bell is asked before the logs are read: what was written before the bell rang is then read.
        let [stopped] = sys::poll([stop.as_fd()], Some(Duration::ZERO))?;
        if stopped {
            logs.iter_mut().for_each(Log::ends_here);
        }
        let (mut more, mut came) = (false, false);
        for log in logs.iter_mut() {
            let shown = log.show(count, out)?;
            more |= shown >= TURN_LIMIT;
            came |= shown > 0;
        }
        match (more, stopped) {
            (true, _) => {}
            (false, true) => break,
            (false, false) => {
                pause = if came { PAUSES[0] } else { (2 * pause).min(PAUSES[1]) };
                sys::poll([stop.as_fd()], Some(pause))?;
            }
        }
    }
    for log in logs {
        let mut rest = Vec::new();
        log.lines.finish(&mut rest);
        out.write_all(&rest)?;
    }
    out.flush()
}

impl Log {
    fn new(file: File, lines: Lines) -> Log {
        Log { file, lines, left: None, failed: None }
    }

    /// What is written from now on is not shown: a process that was left behind may write for ever.
    fn ends_here(&mut self) {
        if self.left.is_none() {
            match self.unshown() {
                Ok(unshown) => self.left = Some(unshown),
                Err(error) => self.fail(error),
            }
        }
    }

    /// How many bytes of it have not been read. If it was emptied meanwhile, it is read from its beginning.
    fn unshown(&mut self) -> io::Result<u64> {
        let (length, position) = (self.file.metadata()?.len(), self.file.stream_position()?);
        if length < position {
            self.file.rewind()?;
            return Ok(length);
        }
        Ok(length - position)
    }

    fn fail(&mut self, error: io::Error) {
        (self.left, self.failed) = (Some(0), Some(error));
    }

    /// Shows what has come, until it is more than a turn's limit. Returns how much that was. The error is one of writing.
    fn show(&mut self, count: &AtomicU64, out: &mut impl Write) -> io::Result<usize> {
        let mut buffer = [0; READ];
        let mut shown = 0;
        while shown < TURN_LIMIT {
            let most = self.left.map_or(buffer.len(), |left| buffer.len().min(left as usize));
            let length = match self.file.read(&mut buffer[..most]) {
                Ok(0) if self.left.is_some() => return Ok(shown),
                Ok(0) => match self.unshown() {
                    Ok(0) => return Ok(shown),
                    Ok(_) => continue,
                    Err(error) => {
                        self.fail(error);
                        return Ok(shown);
                    }
                },
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.fail(error);
                    return Ok(shown);
                }
            };
            shown += length;
            self.left = self.left.map(|left| left - length as u64);
            let mut text = Vec::with_capacity(length + length / 8);
            self.lines.push(&buffer[..length], &mut text);
            if !text.is_empty() {
                out.write_all(&text)?;
                out.flush()?;
            }
            count.fetch_add(length as u64, Ordering::Relaxed);
        }
        Ok(shown)
    }
}

/// Makes whole lines of one worker's output, each with a prefix. Without a prefix it passes everything on as it is.
pub struct Lines {
    prefix: Option<String>,
    limit: usize,
    pending: Vec<u8>,
}

impl Lines {
    /// Lines of which nothing has come yet.
    pub fn new(prefix: Option<String>) -> Lines {
        Lines { prefix, limit: LINE_LIMIT, pending: Vec::new() }
    }

    /// Lines that another host has made whole. Its pieces of long lines stay as they are.
    pub fn made() -> Lines {
        Lines { prefix: Some(String::new()), limit: 2 * LINE_LIMIT, pending: Vec::new() }
    }

    /// More has come: what can be shown now is put into `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(prefix) = &self.prefix else {
            out.extend_from_slice(bytes);
            return;
        };
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.pending.extend_from_slice(part);
            let whole = self.pending.ends_with(b"\n");
            if whole || self.pending.len() >= self.limit {
                out.extend_from_slice(prefix.as_bytes());
                out.extend(
                    self.pending.drain(..if whole { self.pending.len() } else { whole_characters(&self.pending) }),
                );
                if !whole {
                    out.push(b'\n');
                }
            }
        }
    }

    /// What came without a newline at its end.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.pending.is_empty() {
            self.push(b"\n", out);
        }
    }
}

/// How many of these bytes stand before a character of UTF-8 that has not come as a whole.
fn whole_characters(bytes: &[u8]) -> usize {
    let is_first = |byte: &u8| byte & 0xC0 != 0x80;
    let Some(back) = bytes.iter().rev().take(4).position(is_first) else { return bytes.len() };
    let first = bytes.len() - 1 - back;
    let length = match bytes[first] {
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF7 => 4,
        _ => 1,
    };
    if first + length > bytes.len() {
        first
    } else {
        bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(prefix: Option<&str>, pieces: &[&str]) -> String {
        let mut lines = Lines::new(prefix.map(str::to_owned));
        let mut out = Vec::new();
        for piece in pieces {
            lines.push(piece.as_bytes(), &mut out);
        }
        lines.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn one_is_passed_on_as_it_is() {
        assert_eq!(pushed(None, &["a\nb", "", "c\n(Pdb) "]), "a\nbc\n(Pdb) ");
    }

    #[test]
    fn several_are_shown_in_whole_lines() {
        assert_eq!(
            pushed(Some("[rank 1] "), &["a\nb", "c\n", "\nd"]),
            "[rank 1] a\n[rank 1] bc\n[rank 1] \n[rank 1] d\n"
        );
        assert_eq!(pushed(Some("[rank 1] "), &[""]), "");
    }

    /// Something was left behind that writes into the log whenever something is shown of it, and more than that.
    struct LeftBehind {
        log: File,
        shown: Vec<u8>,
    }

    impl Write for LeftBehind {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.shown.extend(bytes);
            if self.shown.len() < 1 << 20 {
                self.log.write_all(&b"left behind\n".repeat(bytes.len()))?;
            }
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_written_after_the_end_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("muster-tail-{}", std::process::id()));
        std::fs::write(&path, "said\n".repeat(100)).unwrap();
        let stop = sys::bell().unwrap();
        sys::ring(&stop);
        let (file, log) = (File::open(&path).unwrap(), File::options().append(true).open(&path).unwrap());
        let mut out = LeftBehind { log, shown: Vec::new() };
        let followed = follow(vec![Log::new(file, Lines::new(None))], &stop, &AtomicU64::new(0), &mut out);
        std::fs::remove_file(&path).unwrap();
        followed.unwrap();
        assert_eq!(out.shown.len(), 500);
    }

    #[test]
    fn an_endless_line_is_not_cut_within_a_character() {
        for one in ["\u{e9}", "\u{4e2d}", "\u{1f980}"] {
            let (line, mut lines, mut out) = (one.repeat(LINE_LIMIT), Lines::new(Some("> ".to_owned())), Vec::new());
            line.as_bytes().chunks(1009).for_each(|chunk| lines.push(chunk, &mut out));
            lines.finish(&mut out);
            let shown = String::from_utf8(out).expect("no character is cut");
            assert_eq!(shown.replace("> ", "").replace('\n', ""), line);
            assert!(shown.lines().count() > 1);
        }
    }

    #[test]
    fn pieces_of_another_host_stay_as_they_are() {
        let piece = format!("[rank 1] {}\n", "x".repeat(LINE_LIMIT + READ));
        let (mut lines, mut out) = (Lines::made(), Vec::new());
        piece.as_bytes().chunks(1009).for_each(|chunk| lines.push(chunk, &mut out));
        assert_eq!(out, piece.as_bytes());
    }

    /// Fails as a disk that is full.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn why_not_all_was_shown_is_told() {
        let folder = std::env::temp_dir().join(format!("muster-tails-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("log");
        std::fs::write(&path, "said\n").unwrap();
        let stop = sys::bell().unwrap();
        sys::ring(&stop);
        let logs = |paths: &[&PathBuf]| {
            paths.iter().map(|path| Log::new(File::open(path).unwrap(), Lines::new(None))).collect::<Vec<_>>()
        };
        let full = follow(logs(&[&path]), &stop, &AtomicU64::new(0), &mut Full).unwrap_err();
        assert!(full.starts_with("standard output cannot be written: "), "{full}");
        let mut shown = Vec::new();
        let unread = follow(logs(&[&folder, &path]), &stop, &AtomicU64::new(0), &mut shown).unwrap_err();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(unread.starts_with("a log cannot be read: "), "a folder is no log: {unread}");
        assert_eq!(shown, b"said\n", "the other one is shown all the same");
    }

    #[test]
    fn a_log_that_was_emptied_is_shown_from_its_beginning() {
        let path = std::env::temp_dir().join(format!("muster-emptied-{}", std::process::id()));
        std::fs::write(&path, "before\n").unwrap();
        let (mut log, count, mut out) =
            (Log::new(File::open(&path).unwrap(), Lines::new(None)), AtomicU64::new(0), Vec::new());
        log.show(&count, &mut out).unwrap();
        std::fs::write(&path, "after\n").unwrap();
        log.show(&count, &mut out).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(out, b"before\nafter\n");
    }

    #[test]
    fn an_endless_line_is_shown_in_pieces() {
        let text = pushed(Some("> "), &["x".repeat(1000).as_str(); 70]);
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().all(|line| line.starts_with("> x") && line.len() < LINE_LIMIT + 2000));
    }
}
