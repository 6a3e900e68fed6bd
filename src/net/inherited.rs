//! A descriptor that this process was started with, for one short text: read once to its end, and closed.
//!
//! Invariants: no descriptor of other code is read or closed, as far as that can be told (our descriptors, and most of other
//! libraries, end with an exec, and so are not inherited); reading ends in time, whatever the writer does. Tested in
//! `inherited_test.rs`.

use super::call::{check, uninterrupted};
use super::file::{fitting, without_newline};
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::time::{Duration, Instant};

/// An inherited descriptor that can be read, and has not been read yet.
pub struct Inherited(File);

impl Inherited {
    /// Takes the descriptor with this number. An error's words follow the number in a sentence, and the descriptor stays
    /// as it was.
    pub fn take(number: RawFd) -> Result<Inherited, String> {
        // SAFETY: takes integers, and changes nothing.
        match check(unsafe { libc::fcntl(number, libc::F_GETFD) }) {
            Ok(flags) if flags & libc::FD_CLOEXEC == 0 => {}
            Ok(_) => return Err(format!("this process was not started with: {EXPECTED}")),
            Err(_) => return Err(format!("is not open: {EXPECTED}")),
        }
        // SAFETY: it is open, and was left to this process, whose settings name it for this purpose alone.
        let file = unsafe { File::from_raw_fd(number) };
        if file.is_terminal() {
            std::mem::forget(file); // it is the program's, and is not closed
            return Err(format!("is a terminal: {EXPECTED}"));
        }
        Ok(Inherited(file))
    }

    /// Reads the text, `most` bytes of it at the most, if the writer closes its end within this time. One newline at its end is not
    /// part of it.
    pub fn read(mut self, most: usize, within: Duration) -> Result<Vec<u8>, String> {
        let unreadable = |error: io::Error| format!("can't be read: {error}");
        let until = Instant::now() + within;
        let flags = self.flags().map_err(unreadable)?;
        // Other processes may read the same pipe: bytes that were there may be gone, and a read would wait.
        self.set_flags(flags | libc::O_NONBLOCK).map_err(unreadable)?;
        let read = self.read_until(until, most);
        let _ = self.set_flags(flags); // the process that made the pipe shares these flags
        let bytes = match read.map_err(unreadable)? {
            None => {
                return Err(format!(
                    "has not come to its end in {} s: expected its writer to close it",
                    within.as_secs()
                ))
            }
            Some(bytes) => bytes,
        };
        match bytes.is_empty() {
            true => Err("is empty: expected the text, and then its end".to_owned()),
            false => fitting(without_newline(bytes), most as u64),
        }
    }

    /// Reads the text and its newline, or one byte more than there may be. None if the time is over.
    fn read_until(&mut self, until: Instant, most: usize) -> io::Result<Option<Vec<u8>>> {
        let (mut bytes, mut length) = (vec![0; most + 2], 0);
        while length <= most || (length == most + 1 && bytes[most] == b'\n') {
            match self.0.read(&mut bytes[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.await_more(until)? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(length);
        Ok(Some(bytes))
    }

    /// Waits until something comes, or the end. Returns whether that was before the time was over.
    fn await_more(&self, until: Instant) -> io::Result<bool> {
        uninterrupted(|| {
            let left = until.saturating_duration_since(Instant::now()).as_millis() as libc::c_int;
            let mut asked = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: `asked` is one, and outlives the call.
            check(unsafe { libc::poll(&raw mut asked, 1, left) })
        })
        .map(|ready| ready > 0)
    }

    fn flags(&self) -> io::Result<libc::c_int> {
        // SAFETY: takes integers, of which the first is an open descriptor.
        check(unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETFL) })
    }

    fn set_flags(&self, flags: libc::c_int) -> io::Result<()> {
        // SAFETY: takes integers, of which the first is an open descriptor.
        check(unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_SETFL, flags) }).map(drop)
    }
}

const EXPECTED: &str = "expected a pipe or a file that it inherits";

#[cfg(test)]
#[path = "inherited_test.rs"]
mod tests;
