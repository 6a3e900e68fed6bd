//! A link for tests that is no socket: two ends in one process that share their bytes. It knows no signs of life.

use super::poller::{Registry, Token};
use super::signs::Signs;
use super::transport::Transport;
use super::waker::Waker;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard};

/// The bytes that go one way.
#[derive(Default)]
struct Stream {
    bytes: VecDeque<u8>,
    ended: bool,
}

/// One end of such a link. Its waker rings when the other end has written, or ended.
pub struct MemoryLink {
    inbound: Arc<Mutex<Stream>>,
    outbound: Arc<Mutex<Stream>>,
    own: Waker,
    theirs: Waker,
}

fn locked(stream: &Mutex<Stream>) -> MutexGuard<'_, Stream> {
    stream.lock().expect("nobody panics with it")
}

impl MemoryLink {
    /// Both ends.
    pub fn pair() -> (MemoryLink, MemoryLink) {
        let streams = [(); 2].map(|()| Arc::new(Mutex::new(Stream::default())));
        let wakers = [(); 2].map(|()| Waker::new().expect("a descriptor"));
        let end = |own: usize| MemoryLink {
            inbound: Arc::clone(&streams[own]),
            outbound: Arc::clone(&streams[1 - own]),
            own: wakers[own].clone(),
            theirs: wakers[1 - own].clone(),
        };
        (end(0), end(1))
    }
}

impl Transport for MemoryLink {
    fn read(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no room to read into"));
        }
        self.own.drain();
        let mut stream = locked(&self.inbound);
        match (stream.bytes.is_empty(), stream.ended) {
            (true, true) => Ok(0),
            (true, false) => Err(io::ErrorKind::WouldBlock.into()),
            (false, _) => io::Read::read_vectored(&mut stream.bytes, buffers),
        }
    }

    fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut stream = locked(&self.outbound);
        let before = stream.bytes.len();
        buffers.iter().for_each(|buffer| stream.bytes.extend(buffer.iter()));
        let count = stream.bytes.len() - before;
        drop(stream);
        self.theirs.wake();
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn holds_readable(&self) -> bool {
        !locked(&self.inbound).bytes.is_empty()
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        locked(&self.outbound).ended = true;
        self.theirs.wake();
        Ok(())
    }

    fn unsent(&self) -> usize {
        0 // what was written is with the peer already
    }

    fn is_intact(&self) -> bool {
        true
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.own.register(registry, token)
    }

    fn deregister(&mut self, _: &Registry) -> io::Result<()> {
        Ok(())
    }

    fn descriptor(&self) -> RawFd {
        self.own.descriptor()
    }

    fn local_address(&self) -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
    }

    fn peer_address(&self) -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
    }
}

impl Signs for MemoryLink {}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        locked(&self.outbound).ended = true;
        self.theirs.wake();
    }
}
