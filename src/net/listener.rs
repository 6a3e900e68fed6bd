//! The listening sockets of one process: several addresses, one port.
//!
//! Invariants: SO_REUSEADDR and never SO_REUSEPORT, so that a port in use is an error at once. An IPv6 socket takes
//! IPv6 only, so that both families can be bound side by side.
//!
//! Deliberately not here: any limit on how many connections are open, and what becomes of them. Tested in
//! `listener_test.rs`; the lack of descriptors is tested in a child process.

use super::congestion::{self, Name};
use super::fork::Guarded;
use super::poller::{Registry, Token};
use super::socket;
use super::standard;
use super::tcp::TcpTransport;
use super::{holders, interface, resolve};
use crate::error::{Error, Result, Status};
use mio::net::TcpListener;
use mio::Interest;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// How many established connections the kernel keeps for us (it takes the smaller of this and net.core.somaxconn).
const BACKLOG: libc::c_int = 4096;
/// How often another port is tried when the system's choice for the first address is taken on another.
const PORT_ATTEMPTS: usize = 16;
/// How long to wait before `accept` is called again after it has failed.
pub const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Listening sockets. `accept` takes from all of them.
#[derive(Debug)]
pub struct Listener {
    sockets: Vec<Socket>,
    /// The socket to begin with at the next `accept`, so that none starves another.
    next: usize,
}

#[derive(Debug)]
struct Socket {
    listener: Guarded<TcpListener>,
    address: SocketAddr,
    /// The congestion control that the system would have chosen for its connections.
    usual: Option<Name>,
}

impl Listener {
    /// Listens on the addresses. Port 0 lets the system choose; further addresses with port 0 get the first one's port.
    pub fn bind(addresses: &[SocketAddr]) -> Result<Listener> {
        let wanted = wanted(addresses)?;
        let chooses = wanted.len() > 1 && wanted.iter().any(|address| address.port() == 0);
        let mut attempts = if chooses { PORT_ATTEMPTS } else { 1 };
        loop {
            attempts -= 1;
            match bind_all(&wanted) {
                Ok(sockets) => return Ok(Listener { sockets, next: 0 }),
                Err((_, error)) if attempts > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
                Err((address, error)) => return Err(bind_error(address, &error)),
            }
        }
    }

    /// Listens on the addresses, all at the first of these ports that is free at each.
    pub fn bind_within(addresses: &[SocketAddr], ports: RangeInclusive<u16>) -> Result<Listener> {
        let wanted = wanted(addresses)?;
        for port in ports.clone() {
            let at: Vec<SocketAddr> = wanted.iter().map(|address| resolve::with_port(*address, port)).collect();
            match bind_all(&at) {
                Ok(sockets) => return Ok(Listener { sockets, next: 0 }),
                Err((_, error)) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err((address, error)) => return Err(bind_error(address, &error)),
            }
        }
        let places: Vec<String> = wanted.iter().map(|address| address.ip().to_string()).collect();
        let text = format!("no port is free at {}: {}", places.join(" and "), holders::in_words(ports));
        Err(Error::new(Status::Bind, text))
    }

    /// Takes over a listening TCP socket that a parent process left open for us. No other code may own the number.
    pub fn adopt(fd: RawFd) -> Result<Listener> {
        let is = |level, name, value| match socket::option(fd, level, name) {
            Ok(found) => Ok(found == value),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTSOCK | libc::EOPNOTSUPP)) => Ok(false),
            Err(error) => Err(adopt_error(fd, &error.to_string())),
        };
        if !is(libc::SOL_SOCKET, libc::SO_TYPE, libc::SOCK_STREAM)?
            || !is(libc::SOL_SOCKET, libc::SO_PROTOCOL, libc::IPPROTO_TCP)?
        {
            return Err(adopt_error(fd, "it is not a TCP socket"));
        }
        if !is(libc::SOL_SOCKET, libc::SO_ACCEPTCONN, 1)? {
            return Err(adopt_error(fd, "it is a TCP socket, but it does not listen"));
        }
        let adopted = Guarded::create(|| {
            let fd = standard::moved(fd)?;
            socket::adopt_flags(fd)?;
            // SAFETY: it is an open listening socket, and the caller says that nobody else in this process owns it.
            Ok(into_mio(unsafe { OwnedFd::from_raw_fd(fd) }))
        });
        let socket = adopted.and_then(Socket::new).map_err(|error| adopt_error(fd, &error.to_string()))?;
        Ok(Listener { sockets: vec![socket], next: 0 })
    }

    /// Gives the sockets away, for instance to a child process that adopts them: they are no longer closed by a fork,
    /// but still on exec.
    pub fn release(self) -> Vec<OwnedFd> {
        let own = |socket: Socket| {
            let fd = socket.listener.release().into_raw_fd();
            // SAFETY: `into_raw_fd` has just given up this descriptor.
            unsafe { OwnedFd::from_raw_fd(fd) }
        };
        self.sockets.into_iter().map(own).collect()
    }

    /// Takes one established connection and says where it comes from. `WouldBlock`: there is none, wait for the poller. Any
    /// other error is one of this call alone, such as a lack of descriptors or memory. The connection then still waits
    /// in the kernel, and the poller does not report it again: call `accept` again after [`EXHAUSTED_PAUSE`], not at once.
    pub fn accept(&mut self) -> io::Result<(TcpTransport, SocketAddr)> {
        for _ in 0..self.sockets.len() {
            let socket = &self.sockets[self.next];
            match accept_from(&socket.listener, socket.usual.as_ref()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.next = (self.next + 1) % self.sockets.len();
                }
                result => return result,
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// The addresses on which it listens, with the real ports.
    pub fn local_addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(|socket| socket.address).collect()
    }

    /// Has the poller report new connections on any of the addresses under this one token.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.sockets
            .iter_mut()
            .try_for_each(|socket| registry.register(&mut *socket.listener, token, Interest::READABLE))
    }
}

impl Socket {
    fn new(listener: Guarded<TcpListener>) -> io::Result<Socket> {
        // Accepted connections inherit this option on Linux, so it need not be set again for each.
        socket::set_option(&*listener, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        let address = listener.local_addr()?;
        // No connection from another host comes to a loopback address.
        let usual = if address.ip().is_loopback() { None } else { congestion::usual(&address) };
        if address.ip().is_loopback() || usual.is_some() {
            congestion::choose_unpaced(&*listener);
        }
        Ok(Socket { listener, address, usual })
    }
}

/// Each of the addresses once. An address that many hosts may have is an error: it can be bound, but nobody can connect there.
fn wanted(addresses: &[SocketAddr]) -> Result<Vec<SocketAddr>> {
    let mut wanted: Vec<SocketAddr> = Vec::new();
    for address in addresses {
        if interface::is_shared(*address) {
            let why =
                "it is a multicast or broadcast address, to which nobody can connect; give an address of this host";
            return Err(Error::new(Status::Bind, format!("cannot listen on {address}: {why}")));
        }
        if !wanted.contains(address) {
            wanted.push(*address);
        }
    }
    match wanted.is_empty() {
        true => Err(Error::invalid("no address to listen on: at least one is needed")),
        false => Ok(wanted),
    }
}

fn bind_all(addresses: &[SocketAddr]) -> std::result::Result<Vec<Socket>, (SocketAddr, io::Error)> {
    let mut sockets: Vec<Socket> = Vec::new();
    for address in addresses {
        let mut address = *address;
        if let (0, Some(first)) = (address.port(), sockets.first()) {
            address.set_port(first.address.port());
        }
        sockets.push(bind_one(&address).map_err(|error| (address, error))?);
    }
    Ok(sockets)
}

fn bind_one(address: &SocketAddr) -> io::Result<Socket> {
    let fd = socket::tcp_socket(address)?;
    let share = || socket::set_option(&*fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    // A port that is named may have old connections that are still ending. Where the system chooses, it looks among half of the
    // ports first if this is set (ip(7) does not say so; Linux's inet_csk_find_open_port does), and that half fills up where
    // jobs follow each other: with 9,000 such connections a bind took 1.5 ms, and 4 us if it is set afterwards.
    let chosen_by_system = address.port() == 0;
    if !chosen_by_system {
        share()?;
    }
    if address.is_ipv6() {
        socket::set_option(&*fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    socket::bind(&*fd, address)?;
    if chosen_by_system {
        share()?;
    }
    socket::listen(&*fd, BACKLOG)?;
    Socket::new(fd.map(into_mio))
}

fn into_mio(fd: OwnedFd) -> TcpListener {
    TcpListener::from_std(std::net::TcpListener::from(fd))
}

fn accept_from(listener: &TcpListener, usual: Option<&Name>) -> io::Result<(TcpTransport, SocketAddr)> {
    loop {
        let mut peer = None;
        let accepted = Guarded::create(|| {
            let (stream, address) = listener.accept()?;
            peer = Some(address);
            Ok(stream)
        });
        let result = match (accepted, peer) {
            (Ok(stream), Some(peer)) => {
                TcpTransport::from_accepted(stream, peer, usual).map(|transport| (transport, peer))
            }
            (Ok(_), None) => continue, // the closure sets the peer wherever it succeeds
            (Err(error), _) if is_transient(&error) => continue,
            (Err(error), _) => return Err(error),
        };
        match result {
            Ok(accepted) => return Ok(accepted),
            // The connection broke in the kernel's queue: it counts as never made.
            Err(_) => continue,
        }
    }
}

/// Whether an error concerns one connection that broke before it was accepted (accept(2) lists such errors), or is an
/// interruption. Each such connection leaves the queue, so that trying again comes to an end.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EINTR
                | libc::ECONNABORTED
                | libc::EPROTO
                | libc::EPERM
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
        )
    )
}

const NOT_OWN: &str = "this host has no such address; give one of its own";

fn bind_error(address: SocketAddr, error: &io::Error) -> Error {
    let reason = match error.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            let port = address.port();
            format!("the address is in use: {}; stop it or choose another port", holders::in_words(port..=port))
        }
        Some(libc::EADDRNOTAVAIL) => NOT_OWN.to_string(),
        // It is valid on one link only, and this host has it on none: so `interface::scoped` has found no link for it.
        Some(libc::EINVAL) if interface::is_link_local(address.ip()) => NOT_OWN.to_string(),
        Some(libc::EACCES) => "permission denied; ports below 1024 are for the superuser".to_string(),
        _ => error.to_string(),
    };
    Error::new(Status::Bind, format!("cannot listen on {address}: {reason}"))
}

fn adopt_error(fd: RawFd, reason: &str) -> Error {
    let text = format!("cannot take over descriptor {fd} as a listening socket: {reason}");
    Error::new(Status::Bind, text)
}

#[cfg(test)]
#[path = "listener_test.rs"]
mod tests;
