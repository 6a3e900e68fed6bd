//! Sleeping until a transport, a listener or a waker is ready.
//!
//! Reports edges, under the token with which a thing was registered. A report is a hint, never a promise: a thing that
//! was closed or moved to another poller since may still be reported. So do not give a token to something new while
//! reports of the old may be under way, and ignore tokens that you do not know.
//!
//! Deliberately not here: timers (their owner computes the time-out) and any table of tokens. Tested in
//! `poller_test.rs`, under a bombardment with signals.

use super::fork::Guarded;
use crate::error::{Error, Result};
use std::io;
use std::time::{Duration, Instant};

pub use mio::{Registry, Token};

/// The most reports that one `poll` returns. Further ones come with the next.
const MAX_REPORTS: usize = 1024;

/// One report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token of what is ready.
    pub token: Token,
    /// Bytes, a connection, the peer's end or an error can be read.
    pub readable: bool,
    /// Something can be written, or writing would fail.
    pub writable: bool,
    /// The peer will send nothing more.
    pub closed: bool,
}

/// An epoll instance and the reports of its last `poll`.
pub struct Poller {
    poll: Guarded<mio::Poll>,
    events: mio::Events,
}

impl Poller {
    /// A poller that watches nothing yet.
    pub fn new() -> Result<Poller> {
        let poll = Guarded::create(mio::Poll::new).map_err(|error| Error::system("cannot make a poller", &error))?;
        Ok(Poller { poll, events: mio::Events::with_capacity(MAX_REPORTS) })
    }

    /// Where things register.
    pub fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Waits until something is ready or the time is up (`None`: no limit; zero: only looks). Sleeps again when a signal
    /// interrupts it, for the time that is left.
    pub fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        // No clock is read if there is nothing to measure: looking without sleeping is the hot path.
        let deadline = timeout.filter(|span| !span.is_zero()).and_then(|span| Instant::now().checked_add(span));
        let mut left = timeout;
        loop {
            match self.poll.poll(&mut self.events, left) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
            left = match deadline {
                Some(deadline) => Some(deadline.saturating_duration_since(Instant::now())),
                None => timeout,
            };
        }
    }

    /// What the last `poll` found.
    pub fn ready(&self) -> impl Iterator<Item = Ready> + '_ {
        self.events.iter().map(|event| Ready {
            token: event.token(),
            readable: event.is_readable() || event.is_read_closed() || event.is_error(),
            writable: event.is_writable() || event.is_write_closed() || event.is_error(),
            closed: event.is_read_closed() || event.is_error(),
        })
    }
}

#[cfg(test)]
#[path = "poller_test.rs"]
mod tests;
