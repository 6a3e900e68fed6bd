//! The encrypted link: TLS around another.
//!
//! Invariants: no byte goes out in clear. What was read came from a peer that has shown its certificate. The peer's end
//! is in order only if the peer has said so (close_notify); an end without it is an error. Nothing can be damaged on
//! the way unseen.
//!
//! The handshake goes on inside `read`, `write` and `flush`. What is written before it is over is held until then. Tested in
//! `link_test.rs`, over test links, too.

use super::inbox::Inbox;
use super::names;
use super::sentence::{is_damage, is_refusal, sentence, DAMAGED, NO_TLS_THERE};
use crate::net::{pass_over, refusal, unproved, Acknowledged, Registry, Signs, Token, Transport};
use rustls::Connection;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

/// How many accepted bytes are held inside before `write` says `WouldBlock`: a call into the kernel takes so much at
/// once. From 128 KiB on the C library gives the memory back to the kernel each time that it is free, and takes it
/// anew.
const HELD_MAX: usize = 96 << 10;

/// TLS around another transport.
pub struct TlsTransport<T> {
    inner: T,
    inbox: Inbox,
    /// The session, or why it is of no more use.
    session: Result<Connection, Useless>,
    /// How many bytes `write` has taken since everything that was held had gone out.
    held: usize,
    /// How writing has failed: nothing goes out any more. What came before the end can still be read.
    unwritable: Option<io::ErrorKind>,
    /// Bytes that are decrypted, and not read yet.
    readable: usize,
    has_said_end: bool,
    /// The session that has failed, while it still has its alert to say.
    failed_session: Option<Box<Connection>>,
}

/// Why a link is of no more use.
enum Useless {
    /// One side does not accept the other, for this reason.
    Refused(String),
    /// What came is damaged.
    Damaged,
    /// The other end has ended the link, and says why.
    Ended(String),
}

impl Useless {
    fn error(&self) -> io::Error {
        match self {
            Useless::Refused(why) => refusal(why),
            Useless::Damaged => io::Error::new(io::ErrorKind::InvalidData, DAMAGED),
            Useless::Ended(why) => io::Error::new(io::ErrorKind::ConnectionAborted, why.clone()),
        }
    }
}

fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

impl<T: Transport> TlsTransport<T> {
    /// Begins the handshake, on a connection that has not carried a byte yet. If there is no session, each use of the
    /// link fails with the reason for that.
    pub fn new(inner: T, session: Result<Connection, rustls::Error>) -> TlsTransport<T> {
        let mut session = session.map_err(|error| Useless::Refused(sentence(&error)));
        session.iter_mut().for_each(|tls| tls.set_buffer_limit(Some(HELD_MAX)));
        let (inbox, held, readable) = (Inbox::new(), 0, 0);
        TlsTransport {
            inner,
            inbox,
            session,
            held,
            unwritable: None,
            readable,
            has_said_end: false,
            failed_session: None,
        }
    }

    fn session(&mut self) -> io::Result<&mut Connection> {
        self.session.as_mut().map_err(|why| why.error())
    }

    /// Passes on what is held; `WouldBlock` while something is left. What is written before the handshake is over waits
    /// inside, so this goes on with the handshake, too.
    fn push(&mut self) -> io::Result<()> {
        loop {
            self.pass_on()?;
            if self.held == 0 || !self.session()?.is_handshaking() {
                self.held = 0;
                return Ok(());
            }
            if self.pull()? == 0 {
                return Err(self.ended());
            }
        }
    }

    /// Passes on what is encrypted.
    fn pass_on(&mut self) -> io::Result<()> {
        if let Some(kind) = self.unwritable {
            return Err(kind.into());
        }
        let sent = self.write_out();
        // A session that has failed may still have its last word to say.
        if let (Err(error), true) = (&sent, self.session.is_ok()) {
            if !would_block(error) {
                (self.held, self.unwritable) = (0, Some(error.kind()));
            }
        }
        sent
    }

    fn write_out(&mut self) -> io::Result<()> {
        let tls = self.session.as_mut().map_err(|why| why.error())?;
        while tls.wants_write() {
            let sent = tls.write_tls(&mut Sink(&mut self.inner))?;
            if !tls.is_handshaking() {
                self.held = self.held.saturating_sub(sent).max(usize::from(self.held > 0));
            }
        }
        self.inner.flush()
    }

    /// Takes in the next record, or says `WouldBlock`. Returns how many bytes that were; 0 at the end.
    fn pull(&mut self) -> io::Result<usize> {
        let tls = self.session.as_mut().map_err(|why| why.error())?;
        let count = self.inbox.pass(&mut self.inner, tls)?;
        let was_agreed = !tls.is_handshaking();
        match tls.process_new_packets() {
            Ok(state) => self.readable = state.plaintext_bytes_to_read(),
            Err(error) => return Err(self.fail(&error, was_agreed)),
        }
        Ok(count)
    }

    /// The link is of no more use. The peer is told why: at once, if the kernel accepts that, or otherwise before the
    /// end of this direction.
    fn fail(&mut self, error: &rustls::Error, was_agreed: bool) -> io::Error {
        let _ = self.pass_on();
        let why = match was_agreed && is_damage(error) {
            true => Useless::Damaged,
            false if was_agreed && !is_refusal(error) => Useless::Ended(sentence(error)),
            false => Useless::Refused(sentence(error)),
        };
        let error = why.error();
        self.failed_session = std::mem::replace(&mut self.session, Err(why)).ok().map(Box::new);
        self.readable = 0;
        error
    }

    /// Says the rest of the last word, and ends this direction.
    fn end_refused(&mut self) -> io::Result<()> {
        self.has_said_end = true;
        if let Some(tls) = self.failed_session.as_mut().filter(|_| self.unwritable.is_none()) {
            while tls.wants_write() {
                tls.write_tls(&mut Sink(&mut self.inner))?;
            }
            self.inner.flush()?;
        }
        self.inner.shutdown_write()
    }

    /// The peer has ended in a way that a stranger in the network could feign.
    fn ended(&self) -> io::Error {
        match self.session.as_ref().is_ok_and(|tls| tls.is_handshaking()) {
            true => unproved(NO_TLS_THERE),
            false => io::Error::new(io::ErrorKind::UnexpectedEof, "it ended without saying so"),
        }
    }

    /// Takes decrypted bytes. `None` if there are none yet.
    fn take(&mut self, buffers: &mut [IoSliceMut<'_>]) -> Option<io::Result<usize>> {
        let tls = match self.session() {
            Ok(tls) => tls,
            Err(error) => return Some(Err(error)),
        };
        let mut taken = 0;
        for buffer in buffers.iter_mut() {
            let mut at = 0;
            while at < buffer.len() {
                match tls.reader().read(&mut buffer[at..]) {
                    Ok(0) if taken == 0 => return Some(Ok(0)),
                    Err(error) if taken == 0 && would_block(&error) => return None,
                    Err(_) if taken == 0 => return Some(Err(self.ended())),
                    Ok(0) | Err(_) => break,
                    Ok(count) => (at, taken) = (at + count, taken + count),
                }
            }
            if at < buffer.len() {
                break;
            }
        }
        self.readable -= taken;
        Some(Ok(taken))
    }
}

impl<T: Transport> Transport for TlsTransport<T> {
    fn read(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no room to read into"));
        }
        if self.failed_session.is_some() && self.has_said_end {
            return pass_over(&mut self.inner);
        }
        loop {
            if let Some(taken) = self.take(buffers) {
                return taken;
            }
            let came = self.pull();
            let _ = self.pass_on(); // the handshake's answer; if it fails, the next write finds out
            came?;
        }
    }

    fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let over = self.unwritable.or(self.has_said_end.then_some(io::ErrorKind::BrokenPipe));
        for _ in 0..2 {
            let tls = self.session()?;
            if let Some(kind) = over {
                return Err(kind.into());
            }
            let taken = tls.writer().write_vectored(buffers)?;
            self.held += taken;
            if taken > 0 || buffers.iter().all(|buffer| buffer.is_empty()) {
                return Ok(taken);
            }
            self.push()?;
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }

    fn holds_readable(&self) -> bool {
        self.readable > 0 || self.inbox.has_whole() || self.inner.holds_readable()
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        if self.failed_session.is_some() {
            return self.end_refused();
        }
        if !std::mem::replace(&mut self.has_said_end, true) {
            self.session()?.send_close_notify();
        }
        self.push()?;
        self.inner.shutdown_write()
    }

    fn unsent(&self) -> usize {
        let wants_write = self.unwritable.is_none() && self.session.as_ref().is_ok_and(|tls| tls.wants_write());
        self.held.max(usize::from(wants_write)) + self.inner.unsent()
    }

    fn is_intact(&self) -> bool {
        true
    }

    fn peer_names(&self) -> Vec<String> {
        let shown = self.session.as_ref().ok().and_then(|tls| tls.peer_certificates());
        shown.and_then(<[_]>::first).map(names::uris).unwrap_or_default()
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let _ = self.pass_on(); // a client speaks first
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

impl<T: Transport> Signs for TlsTransport<T> {
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

/// The transport inside, as rustls writes to it.
struct Sink<'a, T>(&'a mut T);

impl<T: Transport> Write for Sink<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
#[path = "link_test.rs"]
mod tests;
