//! The proof of the job's secret for the command, which asks a scheduler something and can wait for the answer.

use super::kept;
use super::key::JobSecret;
use super::link::end_of;
use super::session::Session;
use crate::error::Result;
use crate::net::{host, refusal, Side};
use crate::tls::blocking::{self as tls, Stream as Inner};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// What is needed to ask a scheduler.
#[derive(Clone, Default)]
pub struct Asker {
    tls: tls::Asker,
    secret: Option<Arc<JobSecret>>,
    /// The secret in the recovery directory.
    of_recovery: Option<Arc<JobSecret>>,
}

/// A connection to a scheduler, encrypted or not, and with a proof of the job's secret or without.
pub struct Stream {
    inner: Inner,
    session: Option<Box<Session>>,
}

impl Asker {
    /// Reads what the settings name, as far as it is needed to ask. `recovery` is the recovery directory, if there is one: without a
    /// secret in the settings, and without a run of this user's at the port, the secret there counts.
    pub fn open(
        tls: Option<&crate::config::TlsSettings>,
        secret: &crate::config::Lock,
        recovery: Option<&Path>,
    ) -> Result<Asker> {
        let of_recovery = recovery.and_then(kept::of_recovery).as_ref().map(JobSecret::of);
        Ok(Asker { tls: tls::Asker::open(tls)?, secret: JobSecret::read(secret)?, of_recovery })
    }

    /// What its user should know by now, one sentence each.
    pub fn remarks(&self) -> Vec<String> {
        self.tls.remarks()
    }

    /// Makes a stream of this connection to a scheduler at this host. The connection has not carried a byte yet. What is to be
    /// proved is proved with the first message.
    pub fn over(&self, connection: TcpStream, host: &str) -> io::Result<Stream> {
        let inner = self.tls.over(connection, host)?;
        let of_run = || left_by_a_run(inner.connection());
        let Some(secret) = self.secret.clone().or_else(of_run).or_else(|| self.of_recovery.clone()) else {
            return Ok(Stream { inner, session: None });
        };
        let nonce = host::random_bytes().map_err(|error| io::Error::other(error.to_string()))?;
        let session = Session::new(secret, Side::Client, nonce);
        Ok(Stream { inner, session: Some(Box::new(session)) })
    }
}

/// The secret of this user's run, if this connection goes to the run's scheduler.
fn left_by_a_run(connection: &TcpStream) -> Option<Arc<JobSecret>> {
    let scheduler = connection.peer_addr().ok()?;
    kept::of_port(scheduler.port()).filter(|run| run.is_at(&scheduler)).map(|run| JobSecret::of(&run.secret))
}

impl Stream {
    /// The connection, for its options.
    pub fn connection(&self) -> &TcpStream {
        self.inner.connection()
    }

    /// All that is read and written from now on is over by then.
    pub fn until(&mut self, deadline: Instant) {
        self.inner.until(deadline);
    }

    /// Says that nothing more follows, once all has gone out: what was written waits until the other end has sent its challenge.
    pub fn end(&mut self) -> io::Result<()> {
        self.flush()?;
        self.inner.end()
    }

    /// Sends what must go out first. While our first message waits for the other end's challenge, reads that.
    fn settle(inner: &mut Inner, session: &mut Session) -> io::Result<()> {
        loop {
            inner.write_all(&std::mem::take(&mut session.outgoing))?;
            inner.flush()?;
            // The other end may have shown that it knows no secret. Then no proof is awaited: the reader sees its bytes.
            if session.held() == 0 || session.is_refused() || session.reads_freely() {
                return Ok(());
            }
            Stream::pull(inner, session)?;
        }
    }

    fn pull(inner: &mut Inner, session: &mut Session) -> io::Result<()> {
        let mut through = [0; 4096];
        match inner.read(&mut through)? {
            0 => Err(refusal(end_of(session))),
            count => session.heard(&through[..count]).map_err(|fault| refusal(fault.reason())),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(session) = self.session.as_deref_mut() else { return self.inner.read(into) };
        loop {
            if !session.readable.is_empty() {
                let count = into.len().min(session.readable.len());
                into[..count].copy_from_slice(&session.readable[..count]);
                session.readable.drain(..count);
                return Ok(count);
            }
            if session.reads_freely() {
                return self.inner.read(into);
            }
            if session.is_refused() {
                return Ok(0);
            }
            Stream::settle(&mut self.inner, session)?; // what was written may still wait
            if session.readable.is_empty() && !session.reads_freely() && !session.is_refused() {
                Stream::pull(&mut self.inner, session)?;
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = self.session.as_deref_mut() else { return self.inner.write(bytes) };
        if session.writes_freely() {
            self.flush()?;
            return self.inner.write(bytes);
        }
        match session.take(bytes) {
            0 if !bytes.is_empty() => Err(io::Error::new(io::ErrorKind::InvalidInput, "the first message is too long")),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.session.as_deref_mut() {
            Some(session) => Stream::settle(&mut self.inner, session),
            None => self.inner.flush(),
        }
    }
}
