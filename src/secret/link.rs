//! A transport, around any other, on which both ends have to prove that they know the job's secret.
//!
//! Invariant: no byte of the other end is passed on before that has proved itself (`session` names the exceptions).
//! Afterwards each call goes to the inner transport, after one look at an empty buffer.

use super::session::{Fault, Session};
use crate::net::{is_refusal, pass_over, refusal, unproved, Acknowledged, Registry, Signs, Token, Transport};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

/// How much is read at a time before the other end has proved itself.
const READ_BYTES: usize = 4096;

/// Why a connection may have ended before the other end's proof. An end that has asked for this end's proof has a secret
/// itself. One that says nothing may be a scheduler that has just been killed, as often as one without a secret.
pub(super) fn end_of(session: &Session) -> &'static str {
    match session.is_asked() {
        true => "it ended the connection before it answered",
        false => {
            "it ended the connection before it had proved that it knows the job secret: either it has just ended, or no \
             secret is set there (job_secret)"
        }
    }
}

/// The transport with the proof.
pub struct ProvedTransport {
    inner: Box<dyn Transport>,
    state: State,
}

enum State {
    /// The proof is being made, or has been.
    Going(Box<Session>),
    /// One side refuses the other.
    Refused {
        why: String,
        /// The part of the answer that has not gone yet.
        answer: Vec<u8>,
    },
    /// What came was damaged on the way.
    Damaged(String),
}

impl State {
    fn session(&mut self) -> io::Result<&mut Session> {
        match self {
            State::Going(session) => Ok(session),
            State::Refused { why, .. } => Err(refusal(why)),
            State::Damaged(why) => Err(damaged(why)),
        }
    }

    fn going(&self) -> Option<&Session> {
        match self {
            State::Going(session) => Some(session),
            State::Refused { .. } | State::Damaged(_) => None,
        }
    }
}

impl ProvedTransport {
    /// A transport around a connection that has not carried a byte yet. Without a session each use fails, and says why
    /// there is none.
    pub fn new(inner: Box<dyn Transport>, session: Result<Session, String>) -> ProvedTransport {
        let state = session
            .map_or_else(|why| State::Refused { why, answer: Vec::new() }, |session| State::Going(Box::new(session)));
        ProvedTransport { inner, state }
    }

    /// Passes on what goes out first; `WouldBlock` while something is left.
    fn pass_on(&mut self) -> io::Result<()> {
        let session = self.state.session()?;
        let passed = send_all(&mut *self.inner, &mut session.outgoing);
        self.told(passed)
    }

    /// Reads once, and takes in what has come. Returns false if that was the end.
    fn pull(&mut self) -> io::Result<bool> {
        let mut through = [0; READ_BYTES];
        let read = self.inner.read(&mut [IoSliceMut::new(&mut through)]);
        let count = self.told(read)?;
        if count == 0 {
            return Ok(false);
        }
        let session = self.state.session()?;
        match session.heard(&through[..count]) {
            Ok(()) => return Ok(true),
            Err(Fault::Damaged(why)) => self.state = State::Damaged(why),
            Err(Fault::Refused(why)) => {
                let mut answer = std::mem::take(&mut session.outgoing);
                let _ = send_all(&mut *self.inner, &mut answer); // as far as the kernel takes it at once
                self.state = State::Refused { why, answer };
            }
        }
        self.state.session().map(|_| true)
    }

    /// Notes whether the inner transport has refused the other end: then no proof follows.
    fn told<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            if is_refusal(error) {
                self.state = State::Refused { why: error.to_string(), answer: Vec::new() };
            }
        })
    }

    fn ended(&self) -> io::Error {
        match self.state.going() {
            Some(session) if !session.is_refused() => unproved(end_of(session)),
            _ => io::Error::new(io::ErrorKind::UnexpectedEof, "it has refused the connection"),
        }
    }
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Sends what is there, and forgets what has gone.
fn send_all(to: &mut dyn Transport, bytes: &mut Vec<u8>) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = to.write(&[IoSlice::new(bytes)])?;
        bytes.drain(..count);
    }
    to.flush()
}

impl Transport for ProvedTransport {
    fn read(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no room to read into"));
        }
        loop {
            let session = match &mut self.state {
                State::Going(session) => session,
                State::Refused { .. } => return pass_over(&mut *self.inner),
                State::Damaged(why) => return Err(damaged(why)),
            };
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
                Ok(false) if self.state.going().is_some_and(Session::is_unasked) => return Ok(0),
                Ok(false) => return Err(self.ended()),
                Err(error) => return Err(error),
            }
            let _ = passed; // if it failed, the next write finds that
        }
    }

    fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        for _ in 0..2 {
            let session = self.state.session()?;
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
            // No proof is awaited if the other end's bytes are passed on by now, or if nothing counts any more.
            let is_over = |session: &Session| session.is_refused() || session.reads_freely();
            if self.state.going().is_some_and(|session| session.held() == 0 || is_over(session)) {
                return Ok(());
            }
            if !self.pull()? {
                return Err(self.ended());
            }
        }
    }

    fn holds_readable(&self) -> bool {
        self.state.going().is_some_and(|session| !session.readable.is_empty()) || self.inner.holds_readable()
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        match &mut self.state {
            State::Going(session) if session.held() > 0 || !session.outgoing.is_empty() => self.flush()?,
            State::Refused { answer, .. } if !answer.is_empty() => send_all(&mut *self.inner, answer)?,
            _ => {}
        }
        self.inner.shutdown_write()
    }

    fn unsent(&self) -> usize {
        let waits = match &self.state {
            State::Going(session) => session.held() + session.outgoing.len(),
            State::Refused { answer, .. } => answer.len(),
            State::Damaged(_) => 0,
        };
        waits + self.inner.unsent()
    }

    fn is_intact(&self) -> bool {
        self.inner.is_intact()
    }

    fn peer_names(&self) -> Vec<String> {
        self.inner.peer_names()
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
