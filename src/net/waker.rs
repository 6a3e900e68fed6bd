//! Waking a thread that sleeps in its poller, from any other thread.
//!
//! A waker is an eventfd: many wakes before the sleeper looks are one report. After a report call `drain`, and only then
//! look at what the wake was about, so that a wake in between is reported anew.

use super::call::check;
use super::fork::Guarded;
use super::poller::{Registry, Token};
use crate::error::{Error, Result};
use mio::unix::SourceFd;
use mio::Interest;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::Arc;

/// Wakes the poller with which it is registered. Clones are the same waker.
#[derive(Clone, Debug)]
pub struct Waker {
    eventfd: Arc<Guarded<File>>,
}

impl Waker {
    /// A waker that is registered nowhere yet.
    pub fn new() -> Result<Waker> {
        let eventfd = Guarded::create(|| {
            // SAFETY: takes two integers.
            let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
            // SAFETY: the kernel has just made this descriptor and nobody else knows it.
            Ok(unsafe { File::from_raw_fd(fd) })
        });
        let eventfd = eventfd.map_err(|error| Error::system("cannot make a waker", &error))?;
        Ok(Waker { eventfd: Arc::new(eventfd) })
    }

    /// Has the poller report wakes under the token, also one that came before.
    pub fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut SourceFd(&self.eventfd.as_raw_fd()), token, Interest::READABLE)
    }

    /// The descriptor that can be read once the waker was woken, for a `Watch`.
    pub fn descriptor(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }

    /// Wakes the sleeper, or keeps it from falling asleep. Does nothing in a forked child, where the descriptor's number
    /// may belong to somebody else.
    pub fn wake(&self) {
        if self.eventfd.is_inherited() {
            return;
        }
        // The one possible failure, a full counter, means that a wake is pending already.
        let _ = (&**self.eventfd).write(&1u64.to_ne_bytes());
    }

    /// Takes the pending wakes. Returns whether there was one.
    pub fn drain(&self) -> bool {
        if self.eventfd.is_inherited() {
            return false;
        }
        let mut count = [0; size_of::<u64>()];
        (&**self.eventfd).read(&mut count).is_ok_and(|bytes| bytes == size_of::<u64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Poller;
    use std::time::Duration;

    #[test]
    fn wakes_a_sleeper_from_another_thread() {
        let mut poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        waker.register(poller.registry(), Token(7)).unwrap();
        for _ in 0..100 {
            let other = waker.clone();
            let thread = std::thread::spawn(move || other.wake());
            poller.poll(Some(Duration::from_secs(20))).unwrap();
            let ready: Vec<_> = poller.ready().collect();
            assert_eq!(ready, [crate::net::Ready { token: Token(7), readable: true, writable: false, closed: false }]);
            assert!(waker.drain());
            assert!(!waker.drain());
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_wake_before_registration_is_reported_and_wakes_add_up_to_one() {
        let mut poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.wake();
        waker.register(poller.registry(), Token(1)).unwrap();
        poller.poll(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(poller.ready().count(), 1);
        assert!(waker.drain());
        poller.poll(Some(Duration::ZERO)).unwrap();
        assert_eq!(poller.ready().count(), 0);
    }
}
