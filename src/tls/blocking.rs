//! The same for one that asks a scheduler something, and can wait for the answer: the command.

use super::credentials;
use super::names;
use super::sentence::sentence;
use crate::config::TlsSettings;
use crate::error::Result;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

/// What is needed to ask.
#[derive(Clone, Debug, Default)]
pub struct Asker(Option<(Arc<ClientConfig>, TlsSettings)>);

/// A connection to a scheduler, encrypted or not.
pub enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// With TLS around it.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Asker {
    /// Reads what the settings name, as far as a client needs it. Without settings connections stay as they are.
    pub fn open(settings: Option<&TlsSettings>) -> Result<Asker> {
        let read = settings.map(|settings| credentials::client(settings).map(|config| (config, settings.clone())));
        read.transpose().map(Asker)
    }

    /// Over this connection to a scheduler at this host, which has not carried a byte yet. The handshake goes on with the first
    /// write.
    pub fn over(&self, connection: TcpStream, host: &str) -> io::Result<Stream> {
        let Some((config, settings)) = &self.0 else { return Ok(Stream::Plain(connection)) };
        let name = names::of_host(settings, host).map_err(|error| io::Error::other(error.message().to_owned()))?;
        let name = name.unwrap_or_else(names::nobody);
        let session = ClientConnection::new(Arc::clone(config), name);
        let session = session.map_err(|error| io::Error::other(sentence(&error)))?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(session, connection))))
    }
}

impl Stream {
    /// The connection, for its time limits.
    pub fn connection(&self) -> &TcpStream {
        match self {
            Stream::Plain(connection) => connection,
            Stream::Tls(stream) => &stream.sock,
        }
    }

    /// Says that nothing more follows. With TLS the other end says something of its own after the handshake: that is read until its
    /// end, for with unread bytes a connection ends by reset, and what was written could be lost. The time limits hold.
    pub fn end(&mut self) -> io::Result<()> {
        let Stream::Tls(stream) = self else { return Ok(()) };
        stream.conn.send_close_notify();
        stream.flush()?;
        stream.sock.shutdown(Shutdown::Write)?;
        let mut through = [0; 1024];
        while stream.sock.read(&mut through)? > 0 {}
        Ok(())
    }
}

/// What rustls found wrong, in our words.
fn told(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(inner) => io::Error::new(error.kind(), sentence(inner)),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "it closes the connection without saying so")
        }
        None => error,
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(connection) => connection.read(into),
            Stream::Tls(stream) => stream.read(into).map_err(told),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(connection) => connection.write(bytes),
            Stream::Tls(stream) => stream.write(bytes).map_err(told),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(connection) => connection.flush(),
            Stream::Tls(stream) => stream.flush().map_err(told),
        }
    }
}
