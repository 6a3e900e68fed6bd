//! The plain link: TCP, as mio sees it.
//!
//! Invariants: TCP_NODELAY is set; it holds no bytes of its own, so `flush` is nothing and `holds_readable` is false.
//! A connection can be used once `finish_connect` has said [`Connect::Ready`].
//!
//! Deliberately not here: trying several addresses, retrying, time limits. The side that dials does these. There is no
//! keepalive unless a user asks for signs, because the control plane has heartbeats. Tested in `tcp_test.rs` over loopback.

use super::congestion::{self, Name};
use super::fork::Guarded;
use super::poller::{Registry, Token};
use super::signs::{Acknowledged, Signs};
use super::socket;
use super::tcp_info;
use super::transport::Transport;
use mio::net::TcpStream;
use mio::Interest;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connect {
    /// It is neither made nor refused: ask again when the poller reports the token.
    Pending,
    /// It is made.
    Ready,
}

/// A TCP connection.
#[derive(Debug)]
pub struct TcpTransport {
    stream: Guarded<TcpStream>,
    /// Our end's address. None if the connection was accepted over loopback: it is asked for when it is wanted, which is seldom.
    local: Option<SocketAddr>,
    peer: SocketAddr,
}

impl TcpTransport {
    /// Begins to connect, from the given address of this host if there is one. Register it, and call `finish_connect`
    /// at each report until it is ready or fails.
    pub fn start_connect(address: SocketAddr, bind_to: Option<IpAddr>) -> io::Result<TcpTransport> {
        TcpTransport::start_connect_from(address, bind_to.map(|ip| SocketAddr::new(ip, 0)))
    }

    fn start_connect_from(address: SocketAddr, from: Option<SocketAddr>) -> io::Result<TcpTransport> {
        let fd = socket::tcp_socket(&address)?;
        socket::set_option(&*fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        if let Some(from) = from {
            if from.port() == 0 {
                // The port is then chosen at `connect`, from the ports that are free towards this peer. An older kernel
                // refuses the option and takes a port that is free altogether.
                let _ = socket::set_option(&*fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
            }
            socket::bind(&*fd, &from)?;
        }
        if congestion::stays_here(address) {
            congestion::choose_unpaced(&*fd);
        }
        socket::connect(&*fd, &address)?;
        let unspecified = if address.is_ipv4() { [0u8; 4].into() } else { [0u8; 16].into() };
        let local = Some(SocketAddr::new(unspecified, 0));
        Ok(TcpTransport { stream: fd.map(into_mio), local, peer: address })
    }

    /// Whether the connection is established. After an error drop it: asked again, it would say `Pending` for ever.
    pub fn finish_connect(&mut self) -> io::Result<Connect> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(Connect::Pending),
            Err(error) => return Err(error),
        }
        let local = self.stream.local_addr()?;
        self.local = Some(local);
        if local == self.peer {
            // With no listener there the kernel may choose the destination's port as ours, and TCP joins the socket to
            // itself.
            let text = format!("nobody listens on {}: the kernel connected the socket to itself", self.peer);
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, text));
        }
        Ok(Connect::Ready)
    }

    /// Whether the connection is established, as `finish_connect` would find it.
    pub fn stands(&self) -> bool {
        self.stream.peer_addr().is_ok()
    }

    /// A connection that a listener accepted, and that has TCP_NODELAY from it. `usual` is the congestion control that the system
    /// chooses for a connection from another host, if known.
    pub(super) fn from_accepted(
        stream: Guarded<TcpStream>,
        peer: SocketAddr,
        usual: Option<&Name>,
    ) -> io::Result<TcpTransport> {
        let local = if peer.ip().is_loopback() { None } else { Some(stream.local_addr()?) };
        let comes_from_afar = local.is_some_and(|local| !congestion::joins_one_host(local, peer));
        if let (Some(usual), true) = (usual, comes_from_afar) {
            congestion::choose(&*stream, usual);
        }
        Ok(TcpTransport { stream, local, peer })
    }

    /// Has the poller report what is ready once more.
    #[cfg(test)]
    pub(super) fn rearm(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.reregister(&mut *self.stream, token, Interest::READABLE | Interest::WRITABLE)
    }
}

fn into_mio(fd: OwnedFd) -> TcpStream {
    TcpStream::from_std(std::net::TcpStream::from(fd))
}

impl Transport for TcpTransport {
    fn read(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no room to read into"));
        }
        super::call::uninterrupted(|| socket::receive(&*self.stream, buffers))
    }

    fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        super::call::uninterrupted(|| socket::send(&*self.stream, buffers))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn holds_readable(&self) -> bool {
        false
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    fn unsent(&self) -> usize {
        // It fails only for a descriptor that is no socket.
        socket::unacknowledged(&*self.stream).unwrap_or(0)
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut *self.stream, token, Interest::READABLE | Interest::WRITABLE)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(&mut *self.stream)
    }

    fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    fn local_address(&self) -> SocketAddr {
        // The kernel tells it for every open socket.
        self.local.or_else(|| self.stream.local_addr().ok()).unwrap_or(self.peer)
    }

    fn peer_address(&self) -> SocketAddr {
        self.peer
    }
}

impl Signs for TcpTransport {
    fn silence(&self) -> Option<Duration> {
        tcp_info::silence(&*self.stream)
    }

    fn acknowledged(&self) -> Acknowledged {
        tcp_info::acknowledged(&*self.stream)
    }

    fn ask_for_signs(&mut self, within: Duration) {
        let _ = tcp_info::ask_for_signs(&*self.stream, within); // it fails only for a descriptor that is no socket
    }

    fn send_again_evenly(&mut self) {
        let _ = tcp_info::send_again_evenly(&*self.stream); // it fails only for a descriptor that is no socket
    }

    fn bound_unsent(&mut self, bytes: u32) {
        let bytes = bytes.min(i32::MAX as u32) as i32;
        // It fails only for a descriptor that is no socket.
        let _ = socket::set_option(&*self.stream, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes);
    }
}

#[cfg(test)]
#[path = "tcp_test.rs"]
mod tests;
