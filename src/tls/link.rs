//! The encrypted link: TLS around another.
//!
//! Invariants: no byte goes out in clear; what was read came from a peer that has shown its certificate; the peer's end is in order
//! only if it has said so (close_notify): an end without it is an error. Nothing can be damaged on the way unseen.
//!
//! The handshake goes on inside `read`, `write` and `flush`. What is written before it is over is held until then. Under TLS 1.2
//! there is another one each time that the keys are used up (`rekey`). Tested in `link_test.rs`, over test links, too.

use super::inbox::Inbox;
use super::names;
use super::rekey::{self, Counts, Stage, RECORDS_MAX};
use super::sentence::{is_damage, is_refusal, sentence, DAMAGED, NO_TLS_THERE};
use crate::net::{pass_over, refusal, unproved, Acknowledged, Registry, Signs, Token, Transport};
use rustls::Connection;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

/// How much of what was taken is held inside before `write` says `WouldBlock`: a call into the kernel takes so much at once. From 128 KiB on
/// the C library gives the memory back to the kernel each time that it is free, and takes it anew.
const HELD_MAX: usize = 96 << 10;

/// Begins a session, on a connection that carries none.
pub type Sessions = Box<dyn FnMut() -> Result<Connection, rustls::Error> + Send>;

/// TLS around another transport.
pub struct TlsTransport<T> {
    inner: T,
    inbox: Inbox,
    sessions: Sessions,
    /// Or why it is of no more use.
    session: Result<Connection, Useless>,
    stage: Stage,
    counts: Counts,
    records_max: u64,
    /// The peer has said the end of the session.
    is_ended: bool,
    /// What was decrypted in the last session, and is not read yet.
    kept: VecDeque<u8>,
    /// Bytes that `write` took since all that was held had gone out.
    held: usize,
    /// How writing has failed: nothing goes out any more. What came before the end can still be read.
    unwritable: Option<io::ErrorKind>,
    /// Bytes that are decrypted, and not read yet.
    readable: usize,
    has_said_end: bool,
    /// Of a session that has failed: it still has its alert to say.
    last_word: Option<Box<Connection>>,
}

/// Why a link is of no more use.
enum Useless {
    /// One side does not take the other; why.
    Refused(String),
    /// What came is damaged.
    Damaged,
    /// The other end has ended it, and says why.
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
    /// Begins the handshake, on a connection that has not carried a byte yet. Without a session each use of it fails, with why
    /// there is none.
    pub fn new(inner: T, mut sessions: Sessions) -> TlsTransport<T> {
        let session = begun(&mut sessions);
        TlsTransport {
            inner,
            inbox: Inbox::new(),
            sessions,
            session,
            stage: Stage::Serving,
            counts: Counts::default(),
            records_max: RECORDS_MAX,
            is_ended: false,
            kept: VecDeque::new(),
            held: 0,
            unwritable: None,
            readable: 0,
            has_said_end: false,
            last_word: None,
        }
    }

    fn session(&mut self) -> io::Result<&mut Connection> {
        self.session.as_mut().map_err(|why| why.error())
    }

    /// Passes on what is held; `WouldBlock` while something is left. What is written before the handshake is over waits inside, so
    /// this goes on with the handshake, too, and with new keys.
    fn push(&mut self) -> io::Result<()> {
        loop {
            self.end_if_used_up();
            self.pass_on()?;
            if self.stage.is_serving() && (self.held == 0 || !self.session()?.is_handshaking()) {
                self.held = 0;
                return Ok(());
            }
            self.keep(); // the one that reads may be slow, and the peer's end of the session is behind that
            if !self.pull()? {
                return Err(self.ended());
            }
        }
    }

    /// Passes on what is encrypted.
    fn pass_on(&mut self) -> io::Result<()> {
        if let Some(kind) = self.unwritable {
            return Err(kind.into());
        }
        self.write_out().inspect_err(|error| {
            if !would_block(error) {
                (self.held, self.unwritable) = (0, Some(error.kind()));
            }
        })
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

    /// Takes in the next record; or `WouldBlock`. Returns whether there was one: there is none at the end.
    fn pull(&mut self) -> io::Result<bool> {
        if self.is_ended && matches!(self.stage, Stage::Ending) {
            return self.begin_anew();
        }
        let tls = self.session.as_mut().map_err(|why| why.error())?;
        let passed = self.inbox.pass(&mut self.inner, tls)?;
        let was_agreed = !tls.is_handshaking();
        match tls.process_new_packets() {
            Ok(state) => (self.readable, self.is_ended) = (state.plaintext_bytes_to_read(), state.peer_has_closed()),
            Err(error) => return Err(self.fail(&error, was_agreed)),
        }
        if passed.is_data && was_agreed {
            self.counts.open();
            self.end_if_used_up();
            self.prove()?;
        }
        Ok(passed.bytes > 0)
    }

    /// If the keys are used up, the session ends, on both ends.
    fn end_if_used_up(&mut self) {
        let Ok(tls) = &mut self.session else { return };
        if self.stage.is_serving() && !self.has_said_end && self.counts.are_used_up(tls, self.records_max) {
            tls.send_close_notify();
            self.stage = Stage::Ending;
        }
    }

    /// Keeps what is decrypted, so that more can come, or another session.
    fn keep(&mut self) {
        let Ok(tls) = &mut self.session else { return };
        if self.stage.is_serving() {
            return;
        }
        let mut bytes = vec![0; self.readable];
        if tls.reader().read_exact(&mut bytes).is_ok() {
            self.kept.extend(bytes);
            self.readable = 0;
        }
    }

    /// Both ends have ended the session: begins the next one.
    fn begin_anew(&mut self) -> io::Result<bool> {
        self.pass_on()?;
        self.keep();
        let tokens = rekey::tokens(self.session()?).map_err(|error| Useless::Refused(sentence(&error)));
        match tokens.and_then(|tokens| Ok((tokens, begun(&mut self.sessions)?))) {
            Ok(((ours, expected), mut tls)) => {
                tls.writer().write_all(&ours[..])?;
                self.session = Ok(tls);
                self.stage = Stage::Proving { expected, came: 0 };
                (self.counts, self.is_ended, self.held) = (Counts::default(), false, 0);
                self.counts.seal(ours.len());
                self.pass_on().or_else(|error| if would_block(&error) { Ok(()) } else { Err(error) })?;
                Ok(true)
            }
            Err(why) => {
                let error = why.error();
                self.session = Err(why);
                Err(error)
            }
        }
    }

    /// Holds what the peer says first in a session that follows another against what it must be.
    fn prove(&mut self) -> io::Result<()> {
        let (Stage::Proving { expected, came }, Ok(tls)) = (&mut self.stage, &mut self.session) else { return Ok(()) };
        while *came < expected.len() && self.readable > 0 {
            let mut byte = [0];
            tls.reader().read_exact(&mut byte)?;
            self.readable -= 1;
            if byte[0] != expected[*came] {
                let why =
                    Useless::Refused("it is not the process that this link led to before its keys were used up".into());
                let error = why.error();
                self.session = Err(why);
                return Err(error);
            }
            *came += 1;
        }
        if *came == expected.len() {
            self.stage = Stage::Serving;
        }
        Ok(())
    }

    /// The link is of no more use. The peer is told why: at once, if the kernel takes that, or before the end of this direction.
    fn fail(&mut self, error: &rustls::Error, was_agreed: bool) -> io::Error {
        let _ = self.pass_on();
        let why = match was_agreed && is_damage(error) {
            true => Useless::Damaged,
            false if was_agreed && !is_refusal(error) => Useless::Ended(sentence(error)),
            false => Useless::Refused(sentence(error)),
        };
        let error = why.error();
        self.last_word = std::mem::replace(&mut self.session, Err(why)).ok().map(Box::new);
        self.readable = 0;
        error
    }

    /// Says the rest of the last word, and ends this direction.
    fn end_refused(&mut self) -> io::Result<()> {
        self.has_said_end = true;
        if let Some(tls) = self.last_word.as_mut().filter(|_| self.unwritable.is_none()) {
            while tls.wants_write() {
                tls.write_tls(&mut Sink(&mut self.inner))?;
            }
            self.inner.flush()?;
        }
        self.inner.shutdown_write()
    }

    /// The peer has ended in a way that a stranger in the network could feign.
    fn ended(&self) -> io::Error {
        match self.stage.is_serving() && self.session.as_ref().is_ok_and(|tls| tls.is_handshaking()) {
            true => unproved(NO_TLS_THERE),
            false => io::Error::new(io::ErrorKind::UnexpectedEof, "it ended without saying so"),
        }
    }

    /// Takes decrypted bytes. `None` if there are none yet.
    fn take(&mut self, buffers: &mut [IoSliceMut<'_>]) -> Option<io::Result<usize>> {
        if !self.kept.is_empty() {
            return Some(self.kept.read(buffers.iter_mut().find(|buffer| !buffer.is_empty()).expect("there is room")));
        }
        if !self.stage.is_serving() {
            self.keep();
            return if self.kept.is_empty() { None } else { self.take(buffers) };
        }
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
        if self.last_word.is_some() && self.has_said_end {
            return pass_over(&mut self.inner);
        }
        loop {
            if let Some(taken) = self.take(buffers) {
                return taken;
            }
            let came = self.pull();
            let _ = self.pass_on(); // the handshake's answer; the one that writes finds out if it fails
            if !came? && !self.stage.is_serving() {
                return Err(self.ended());
            }
        }
    }

    fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let over = self.unwritable.or(self.has_said_end.then_some(io::ErrorKind::BrokenPipe));
        for _ in 0..2 {
            let is_serving = self.stage.is_serving();
            let tls = self.session()?;
            if let Some(kind) = over {
                return Err(kind.into());
            }
            let taken = if is_serving { tls.writer().write_vectored(buffers)? } else { 0 };
            self.held += taken;
            self.counts.seal(taken);
            self.end_if_used_up(); // before more is taken
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
        self.readable > 0 || !self.kept.is_empty() || self.inbox.has_whole() || self.inner.holds_readable()
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        if self.last_word.is_some() {
            return self.end_refused();
        }
        self.end_if_used_up();
        if !self.stage.is_serving() {
            self.push()?;
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

/// A session that has not said anything yet.
fn begun(sessions: &mut Sessions) -> Result<Connection, Useless> {
    let mut tls = sessions().map_err(|error| Useless::Refused(sentence(&error)))?;
    tls.set_buffer_limit(Some(HELD_MAX));
    Ok(tls)
}

/// What is inside, as rustls writes to it.
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

#[cfg(test)]
#[path = "rekey_test.rs"]
mod rekey_tests;
