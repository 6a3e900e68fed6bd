//! A link for tests that uses every freedom that the contract of [`Transport`] leaves, over a real TCP connection.
//!
//! - It takes and gives at most a few bytes (by default one) per call, so that every frame is cut at every place.
//! - About every other call says `WouldBlock` although it could go on. If only the poller could then tell its user to
//!   try again, it makes the poller report the token once more. So a user that keeps to the rules always goes on. But
//!   a user that sleeps without having seen `WouldBlock`, or that does not sleep but never looks again, hangs.
//! - It reads ahead into itself: `holds_readable` is true for bytes of which the poller knows nothing more.
//! - It holds written bytes until `flush`, or until it holds many.
//!
//! What it does is drawn from a seed: print the seed where a test fails.

use super::fork::Guarded;
use super::listener::Listener;
use super::poller::{Poller, Registry, Token};
use super::signs::{Acknowledged, Signs};
use super::tcp::{Connect, TcpTransport};
use super::transport::Transport;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::time::Duration;

/// How far it reads ahead.
const AHEAD_BYTES: usize = 1024;
/// How much it holds before it passes bytes on without being told to.
const HELD_BYTES: usize = 1024;

/// A connection over loopback: the dialled end and the accepted one.
pub fn tcp_pair() -> (TcpTransport, TcpTransport) {
    let mut listener = Listener::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let mut poller = Poller::new().unwrap();
    listener.register(poller.registry(), Token(0)).unwrap();
    let mut dialled = TcpTransport::start_connect(listener.local_addresses()[0], None).unwrap();
    dialled.register(poller.registry(), Token(1)).unwrap();
    let mut accepted = None;
    let mut ready = false;
    while !ready || accepted.is_none() {
        poller.poll(Some(Duration::from_secs(60))).unwrap();
        assert!(poller.ready().count() > 0, "no connection within the deadline");
        ready = ready || dialled.finish_connect().unwrap() == Connect::Ready;
        if accepted.is_none() {
            accepted = listener.accept().ok();
        }
    }
    dialled.deregister(poller.registry()).unwrap();
    let (accepted, from) = accepted.unwrap();
    assert_eq!(from, dialled.local_address());
    assert_eq!(accepted.local_address(), dialled.peer_address());
    (dialled, accepted)
}

/// A link that uses every freedom of the contract.
pub struct TestLink {
    inner: TcpTransport,
    /// Bytes per call, at most.
    piece: usize,
    random: u64,
    ahead: VecDeque<u8>,
    held: VecDeque<u8>,
    /// What the connection below said after the bytes in `ahead`: its end, or an error.
    after: Option<io::Result<()>>,
    /// Whether the reader has been told `after`.
    told: bool,
    registered: Option<(Guarded<Registry>, Token)>,
}

impl TestLink {
    /// Wraps a connection; one byte per call.
    pub fn new(inner: TcpTransport, seed: u64) -> TestLink {
        TestLink::with_piece(inner, seed, 1)
    }

    /// Wraps a connection; at most `piece` bytes per call.
    pub fn with_piece(inner: TcpTransport, seed: u64, piece: usize) -> TestLink {
        assert!(piece > 0, "a link that passes nothing never ends");
        // The seed is mixed, since seeds are often small and alike. The result is never 0.
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (ahead, held) = (VecDeque::new(), VecDeque::new());
        TestLink { inner, piece, random, ahead, held, after: None, told: false, registered: None }
    }

    /// Both ends of a connection over loopback, wrapped with this seed.
    pub fn pair(seed: u64) -> (TestLink, TestLink) {
        let (dialled, accepted) = tcp_pair();
        (TestLink::new(dialled, seed), TestLink::new(accepted, !seed))
    }

    fn coin(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 63 == 1
    }

    /// Says `WouldBlock`, and sees to it that the poller reports this link again if something is possible.
    fn hide(&mut self) -> io::Error {
        if let Some((registry, token)) = &self.registered {
            self.inner.rearm(registry, *token).expect("a registered connection can be registered again");
        }
        io::ErrorKind::WouldBlock.into()
    }

    /// Reads ahead, if nothing is held yet.
    fn read_ahead(&mut self) -> io::Result<()> {
        if !self.ahead.is_empty() || self.after.is_some() {
            return Ok(());
        }
        let mut buffer = [0; AHEAD_BYTES];
        match self.inner.read(&mut [IoSliceMut::new(&mut buffer)]) {
            Ok(0) => self.after = Some(Ok(())),
            Ok(count) => self.ahead.extend(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            Err(error) => self.after = Some(Err(error)),
        }
        Ok(())
    }

    fn pass_on(&mut self) -> io::Result<()> {
        while !self.held.is_empty() {
            let (first, second) = self.held.as_slices();
            let count = self.inner.write(&[IoSlice::new(first), IoSlice::new(second)])?;
            self.held.drain(..count);
        }
        Ok(())
    }
}

impl Transport for TestLink {
    fn read(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.coin() {
            return Err(self.hide());
        }
        let room: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        if room == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no room to read into"));
        }
        self.read_ahead()?;
        let mut count = 0;
        for byte in buffers.iter_mut().flat_map(|buffer| buffer.iter_mut()).take(self.piece) {
            let Some(next) = self.ahead.pop_front() else { break };
            *byte = next;
            count += 1;
        }
        self.told = count == 0;
        match &self.after {
            Some(Err(error)) if count == 0 => Err(io::Error::new(error.kind(), error.to_string())),
            _ => Ok(count),
        }
    }

    fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.held.len() >= HELD_BYTES {
            self.pass_on()?;
        }
        if self.coin() {
            return Err(self.hide());
        }
        let before = self.held.len();
        self.held.extend(buffers.iter().flat_map(|buffer| buffer.iter()).take(self.piece));
        Ok(self.held.len() - before)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return self.inner.flush();
        }
        if self.coin() {
            return Err(self.hide());
        }
        self.pass_on()
    }

    fn holds_readable(&self) -> bool {
        !self.ahead.is_empty() || (self.after.is_some() && !self.told)
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        if !self.held.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.inner.shutdown_write()
    }

    fn unsent(&self) -> usize {
        self.held.len() + self.inner.unsent()
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let registry_again = Guarded::create(|| registry.try_clone())?;
        self.inner.register(registry, token)?;
        self.registered = Some((registry_again, token));
        Ok(())
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.registered = None;
        self.inner.deregister(registry)
    }

    fn local_address(&self) -> SocketAddr {
        self.inner.local_address()
    }

    fn descriptor(&self) -> std::os::fd::RawFd {
        self.inner.descriptor()
    }

    fn peer_address(&self) -> SocketAddr {
        self.inner.peer_address()
    }
}

impl Signs for TestLink {
    fn silence(&self) -> Option<Duration> {
        self.inner.silence()
    }

    fn acknowledged(&self) -> Acknowledged {
        self.inner.acknowledged()
    }

    fn ask_for_signs(&mut self, within: Duration) {
        self.inner.ask_for_signs(within);
    }

    fn send_again_evenly(&mut self) {
        self.inner.send_again_evenly();
    }

    fn bound_unsent(&mut self, bytes: u32) {
        self.inner.bound_unsent(bytes);
    }
}

#[cfg(test)]
#[path = "testlink_test.rs"]
mod tests;
