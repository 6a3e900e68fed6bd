//! TLS for a process that asks a scheduler something, and can wait for the answer: the command.

use super::names;
use super::renewal::Renewal;
use super::sentence::{sentence, NO_TLS_THERE};
use crate::config::TlsSettings;
use crate::error::Result;
use crate::net::{refusal, timed::Timed};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

/// What is needed to ask. A process that asks for a long time reads its files again, as a node does.
#[derive(Clone, Default)]
pub struct Asker(Option<Arc<Asking>>);

struct Asking {
    renewal: Renewal<Arc<ClientConfig>>,
    settings: TlsSettings,
}

/// A connection to a scheduler, encrypted or not.
pub enum Stream {
    /// The connection as it is, without TLS.
    Plain(Timed),
    /// With TLS around it.
    Tls(Box<Tls>),
}

impl Asker {
    /// Reads what the settings name, as far as a client needs it. Without settings connections stay as they are.
    pub fn open(settings: Option<&TlsSettings>) -> Result<Asker> {
        let read = |settings: &TlsSettings| {
            Renewal::open_client(settings).map(|renewal| Arc::new(Asking { renewal, settings: settings.clone() }))
        };
        settings.map(read).transpose().map(Asker)
    }

    /// What the user should know by now, one sentence each.
    pub fn remarks(&self) -> Vec<String> {
        self.0.as_ref().map_or_else(Vec::new, |asking| asking.renewal.remarks(Instant::now()))
    }

    /// Begins to ask over this connection to a scheduler at this host. It has not carried a byte yet. The handshake
    /// goes on with the first write.
    pub fn over(&self, connection: TcpStream, host: &str) -> io::Result<Stream> {
        let Some(asking) = &self.0 else { return Ok(Stream::Plain(Timed::new(connection))) };
        let name =
            names::of_host(&asking.settings, host).map_err(|error| io::Error::other(error.message().to_owned()))?;
        let name = name.unwrap_or_else(names::nobody);
        let session = ClientConnection::new(asking.renewal.ends(), name);
        let session = session.map_err(|error| io::Error::other(sentence(&error)))?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(session, Timed::new(connection)))))
    }
}

impl Stream {
    /// The connection, for its options.
    pub fn connection(&self) -> &TcpStream {
        match self {
            Stream::Plain(timed) => timed.connection(),
            Stream::Tls(stream) => stream.sock.connection(),
        }
    }

    /// All that is read and written from now on is over by then.
    pub fn until(&mut self, deadline: Instant) {
        match self {
            Stream::Plain(timed) => timed.until(deadline),
            Stream::Tls(stream) => stream.sock.until(deadline),
        }
    }

    /// Says that nothing more follows. With TLS the other end says something of its own after the handshake. That is
    /// read until its end: with unread bytes a connection ends by reset, and what was written could be lost. The
    /// deadline holds.
    pub fn end(&mut self) -> io::Result<()> {
        let Stream::Tls(stream) = self else { return Ok(()) };
        stream.conn.send_close_notify();
        stream.flush()?;
        stream.sock.shutdown_write()?;
        let mut through = [0; 1024];
        while stream.sock.read(&mut through)? > 0 {}
        Ok(())
    }
}

type Tls = StreamOwned<ClientConnection, Timed>;

/// Uses the connection. An error is told in our words.
fn by<T>(stream: &mut Tls, act: impl FnOnce(&mut Tls) -> io::Result<T>) -> io::Result<T> {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    act(stream).map_err(|error| match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(inner) => io::Error::new(error.kind(), sentence(inner)),
        None if !matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe) => error,
        None if stream.conn.is_handshaking() => refusal(NO_TLS_THERE),
        None if error.kind() == UnexpectedEof => {
            io::Error::new(error.kind(), "it closes the connection without saying so")
        }
        None => error,
    })
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(connection) => connection.read(into),
            Stream::Tls(stream) => by(stream, |tls| tls.read(into)),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(connection) => connection.write(bytes),
            Stream::Tls(stream) => by(stream, |tls| tls.write(bytes)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(connection) => connection.flush(),
            Stream::Tls(stream) => by(stream, Write::flush),
        }
    }
}
