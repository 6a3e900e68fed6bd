//! A transport on which both ends have to prove that they know the job's secret, around any other.
//!
//! Invariant: nothing of the other end is passed on before it has proved that (`session` names the exceptions). Afterwards each call
//! is the inner transport's, behind one look at an empty buffer.

use super::session::Session;
use crate::net::{Acknowledged, Registry, Signs, Token, Transport};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

/// How much is read at a time before the other end has proved itself.
const READ_BYTES: usize = 4096;

/// The transport.
pub struct ProvedTransport {
    inner: Box<dyn Transport>,
    /// Or why it is of no more use.
    session: Result<Session, String>,
}

fn unusable(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl ProvedTransport {
    /// Around a connection that has not carried a byte yet.
    pub fn new(inner: Box<dyn Transport>, session: Result<Session, String>) -> ProvedTransport {
        ProvedTransport { inner, session }
    }

    /// Passes on what goes out first; `WouldBlock` while something is left.
    fn pass_on(&mut self) -> io::Result<()> {
        let session = self.session.as_mut().map_err(|why| unusable(why))?;
        while !session.outgoing.is_empty() {
            let count = self.inner.write(&[IoSlice::new(&session.outgoing)])?;
            session.outgoing.drain(..count);
        }
        self.inner.flush()
    }

    /// Takes in what has come, once: whether that was not the end.
    fn pull(&mut self) -> io::Result<bool> {
        let mut through = [0; READ_BYTES];
        let count = self.inner.read(&mut [IoSliceMut::new(&mut through)])?;
        if count == 0 {
            return Ok(false);
        }
        let session = self.session.as_mut().map_err(|why| unusable(why))?;
        if let Err(why) = session.heard(&through[..count]) {
            let _ = self.pass_on(); // as far as the kernel takes the answer at once
            self.session = Err(why.clone());
            return Err(unusable(&why));
        }
        Ok(true)
    }

    fn ended(&self) -> io::Error {
        match self.session.as_ref().is_ok_and(Session::is_refused) {
            true => io::Error::new(io::ErrorKind::UnexpectedEof, "it has refused the connection"),
            false => unusable(
                "it ended the connection before it had proved that it knows the job secret: perhaps none is set there \
                 (job_secret)",
            ),
        }
    }
}

impl Transport for ProvedTransport {
    fn read(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no room to read into"));
        }
        loop {
            let session = self.session.as_mut().map_err(|why| unusable(why))?;
            if !session.readable.is_empty() {
                let mut taken = 0;
                for buffer in buffers.iter_mut() {
                    let count = buffer.len().min(session.readable.len() - taken);
                    buffer[..count].copy_from_slice(&session.readable[taken..taken + count]);
                    taken += count;
                }
                session.readable.drain(..taken);
                if session.readable.is_empty() {
                    session.readable = Vec::new();
                }
                return Ok(taken);
            }
            if session.reads_freely() {
                return self.inner.read(buffers);
            }
            if session.is_refused() {
                return Err(self.ended());
            }
            let came = self.pull();
            let passed = if came.is_ok() { self.pass_on() } else { Ok(()) };
            match came {
                Ok(true) => {}
                // The dialler went before it had said anything, as a port scan does.
                Ok(false) if self.inner_is_unasked() => return Ok(0),
                Ok(false) => return Err(self.ended()),
                Err(error) => return Err(error),
            }
            let _ = passed; // the one that writes finds out if it fails
        }
    }

    fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        for _ in 0..2 {
            let session = self.session.as_mut().map_err(|why| unusable(why))?;
            if session.writes_freely() {
                if !session.outgoing.is_empty() {
                    self.pass_on()?;
                }
                return self.inner.write(buffers);
            }
            let mut taken = 0;
            for buffer in buffers {
                let count = session.take(buffer);
                taken += count;
                if count < buffer.len() {
                    break;
                }
            }
            if taken > 0 || buffers.iter().all(|buffer| buffer.is_empty()) {
                return Ok(taken);
            }
            self.flush()?;
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        loop {
            self.pass_on()?;
            if self.session.as_ref().is_ok_and(|session| session.held() == 0 || session.is_refused()) {
                return Ok(());
            }
            if !self.pull()? {
                return Err(self.ended());
            }
        }
    }

    fn holds_readable(&self) -> bool {
        self.session.as_ref().is_ok_and(|session| !session.readable.is_empty()) || self.inner.holds_readable()
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        if self.session.as_ref().is_ok_and(|session| session.held() > 0 || !session.outgoing.is_empty()) {
            self.flush()?;
        }
        self.inner.shutdown_write()
    }

    fn unsent(&self) -> usize {
        let waits = self.session.as_ref().map_or(0, |session| session.held() + session.outgoing.len());
        waits + self.inner.unsent()
    }

    fn is_intact(&self) -> bool {
        self.inner.is_intact()
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let _ = self.pass_on(); // the dialler speaks first
        self.inner.register(registry, token)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.inner.deregister(registry)
    }

    fn descriptor(&self) -> RawFd {
        self.inner.descriptor()
    }

    fn local_address(&self) -> SocketAddr {
        self.inner.local_address()
    }

    fn peer_address(&self) -> SocketAddr {
        self.inner.peer_address()
    }
}

impl ProvedTransport {
    fn inner_is_unasked(&self) -> bool {
        self.session.as_ref().is_ok_and(Session::is_unasked)
    }
}

impl Signs for ProvedTransport {
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
