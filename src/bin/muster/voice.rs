//! What the command says where it must not wait: its lines for a terminal, a pipe or a file, any of which may accept
//! nothing. Each line goes out as a whole, in order. What is not accepted is dropped and counted. The end waits for
//! [`PATIENCE`] at most. A result goes out whole, and waits for its reader ([`put_out`]), or fails ([`print_soon`]). Tested
//! by `tests/python/test_stalled_output.py`.

use crate::code;
use crate::sys;
use muster::config::LogLevel;
use muster::net::foreign;
use muster::runtime::base::outlet::{Holder, Outlet};
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a reader may accept nothing, before the command goes on without it.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Moves to the beginning of a terminal's row, and wipes the row.
const ERASE: &str = "\r\x1b[K";

/// Says this on standard error, as it is.
pub fn complain(text: impl Into<String>) {
    Voice::error().say(text);
}

/// Prints what a command was asked for, such as its help, and returns the exit code.
pub fn answer(name: &str, text: &str) -> i32 {
    match print(text) {
        Ok(()) => 0,
        Err(why) => {
            complain(format!("{name}: {why}\n"));
            code::FAILED
        }
    }
}

/// Prints a result on standard output, all of it. It is no error if the reader has closed the output: it does not want
/// to hear.
pub fn print(text: &str) -> Result<(), String> {
    match put_out(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(unwritten(&error)),
        _ => Ok(()),
    }
}

/// Prints a result that must not hold up the command as long as its reader likes: where standard output takes nothing for
/// [`PATIENCE`], that is an error, too.
pub fn print_soon(text: &str) -> Result<(), String> {
    let mut soon = Output { descriptor: libc::STDOUT_FILENO, patience: Some(PATIENCE) };
    match soon.write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(unwritten(&error)),
        _ => Ok(()),
    }
}

/// Writes all of this to standard output.
pub fn put_out(text: &str) -> io::Result<()> {
    Output::standard().write_all(text.as_bytes())
}

/// An output that waits for its reader. If it takes nothing now, another program may have made it one that does not wait: its
/// flags stay.
pub struct Output {
    descriptor: RawFd,
    /// How long the reader may take nothing; none: as long as it likes.
    patience: Option<Duration>,
}

impl Output {
    /// Standard output, for a thread that may wait for its reader.
    pub fn standard() -> Output {
        Output { descriptor: libc::STDOUT_FILENO, patience: None }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let written = match self.patience {
                Some(_) => foreign::pour(self.descriptor, bytes),
                None => sys::write(self.descriptor, bytes),
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let takes = foreign::takes(self.descriptor, self.patience.unwrap_or(Duration::MAX));
                    if !takes && self.patience.is_some() {
                        return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody reads it"));
                    }
                }
                ended => return ended,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The words about workers' output that was not shown, for this reason.
pub fn unshown(why: &str) -> String {
    format!("muster: not all of the workers' output was shown: {why}; the logs have it\n")
}

/// Why something could not be written to standard output.
pub fn unwritten(error: &io::Error) -> String {
    format!("standard output cannot be written: {error}")
}

/// Standard error.
pub struct Voice {
    outlet: &'static Outlet,
    _holder: Holder,
    row: Arc<Row>,
}

impl Voice {
    /// A voice on standard error.
    pub fn error() -> Voice {
        let outlet: &'static Outlet =
            Box::leak(Box::new(Outlet::new(libc::STDERR_FILENO, |_, _, text| text.to_owned(), dropped)));
        Voice { outlet, _holder: outlet.hold(), row: Arc::default() }
    }

    /// Says this, as it is.
    pub fn say(&self, text: impl Into<String>) {
        let mut text: String = text.into();
        if !text.is_empty() {
            text.insert_str(0, self.row.before_words());
        }
        self.outlet.put(LogLevel::Info, "".into(), text);
    }

    /// Shows this in a terminal's last row, until something else is said or shown. Shows nothing if a worker's output
    /// has not ended that row.
    pub fn show(&self, words: &str) {
        let mut row = self.row.state();
        if !row.is_open {
            row.shows = true;
            self.outlet.put(LogLevel::Info, "".into(), format!("{ERASE}{words}"));
        }
    }

    /// Shows nothing in the last row any more.
    pub fn show_no_more(&self) {
        let mut row = self.row.state();
        if row.is_to_be_erased() {
            self.outlet.put(LogLevel::Info, "".into(), ERASE.to_owned());
        }
        row.shows = false;
    }

    /// The terminal's last row, for others that write to the same terminal.
    pub fn row(&self) -> Arc<Row> {
        Arc::clone(&self.row)
    }
}

/// The last row of a terminal, which may show how far the run is while output passes by.
#[derive(Default)]
pub struct Row(Mutex<RowState>);

#[derive(Default)]
struct RowState {
    /// Something is shown there from time to time.
    shows: bool,
    /// A worker's output has ended within it.
    is_open: bool,
}

impl RowState {
    fn is_to_be_erased(&self) -> bool {
        self.shows && !self.is_open
    }
}

impl Row {
    /// What is to be written before this output of a worker.
    pub fn before(&self, output: &[u8]) -> &'static [u8] {
        let mut row = self.state();
        let erase = row.is_to_be_erased();
        row.is_open = output.last().is_some_and(|byte| *byte != b'\n');
        if erase {
            ERASE.as_bytes()
        } else {
            &[]
        }
    }

    /// What is to be written before the command's own words. They begin a row of their own if a worker's output has not
    /// ended the last one.
    fn before_words(&self) -> &'static str {
        let mut row = self.state();
        match std::mem::take(&mut row.is_open) {
            true => "\n",
            false if row.shows => ERASE,
            false => "",
        }
    }

    fn state(&self) -> MutexGuard<'_, RowState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Voice {
    fn drop(&mut self) {
        self.outlet.flush(PATIENCE);
    }
}

fn dropped(texts: u64) -> String {
    let messages = if texts == 1 { "1 message was".to_owned() } else { format!("{texts} messages were") };
    format!("muster: {messages} dropped here: nobody read this output\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    fn all_goes_into_a_pipe_that_does_not_wait() {
        let (mut reader, writer) = io::pipe().unwrap();
        sys::never_wait_to_write(writer.as_fd()).unwrap();
        let text = [b'x'; 1 << 20];
        let full = sys::write(writer.as_raw_fd(), &text).unwrap();
        assert_eq!(sys::write(writer.as_raw_fd(), b"y").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let read = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map(|_| bytes)
        });
        Output { descriptor: writer.as_raw_fd(), patience: None }.write_all(&text).unwrap();
        drop(writer);
        assert_eq!(read.join().unwrap().unwrap().len(), full + text.len());
    }

    #[test]
    fn a_result_that_nobody_takes_in_time_is_an_error_and_so_is_a_full_disk() {
        let (mut reader, writer) = io::pipe().unwrap();
        sys::never_wait_to_write(writer.as_fd()).unwrap();
        let text = vec![b'x'; 1 << 20];
        let soon = |descriptor, patience| Output { descriptor, patience: Some(patience) };
        let error = soon(writer.as_raw_fd(), Duration::from_millis(1)).write_all(&text).unwrap_err();
        assert_eq!(error.to_string(), "nobody reads it");
        let read = std::thread::spawn(move || reader.read_exact(&mut vec![0; 1 << 20]).map(|()| reader));
        soon(writer.as_raw_fd(), Duration::from_secs(60)).write_all(&text).unwrap();
        drop(read.join().unwrap());
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = soon(full.as_raw_fd(), Duration::from_secs(60)).write_all(b"1\n").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn what_is_shown_in_the_row_is_wiped_before_output_and_output_that_has_not_ended_it_is_not() {
        let row = Row::default();
        assert_eq!(row.before(b"a\n"), b"", "nothing is ever shown there");
        assert_eq!(row.before_words(), "");
        assert_eq!(row.before(b"no newline"), b"");
        assert_eq!([row.before_words(), row.before_words()], ["\n", ""], "the second sentence follows the first");
        row.state().shows = true;
        assert_eq!(row.before(b"a\n"), ERASE.as_bytes());
        assert_eq!(row.before(b"prompt> "), ERASE.as_bytes());
        assert_eq!(row.before(b"and more\n"), b"", "it belongs to the prompt");
        assert_eq!(row.before(b"a\n"), ERASE.as_bytes());
        assert_eq!(row.before_words(), ERASE);
    }
}
