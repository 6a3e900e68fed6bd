//! The socket calls that neither std nor mio offers: through `socket2`, or, if it lacks the call, through one libc call each.
//!
//! Owns nothing. Tested through `tcp` and `listener`.

use super::call::check;
use super::fork::Guarded;
use libc::{c_int, socklen_t};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// The most pieces that one `sendmsg` takes (UIO_MAXIOV).
pub(super) const MAX_PIECES: usize = 1024;

/// A TCP socket of the address's family: close-on-exec and non-blocking.
pub(super) fn tcp_socket(address: &SocketAddr) -> io::Result<Guarded<OwnedFd>> {
    let kind = Type::STREAM.cloexec().nonblocking();
    Guarded::create(|| Socket::new_raw(Domain::for_address(*address), kind, None).map(OwnedFd::from))
}

/// Sets an option that is an integer.
pub(super) fn set_option(fd: &impl AsRawFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), size_of::<c_int>() as socklen_t)
    };
    check(result).map(drop)
}

/// Reads an option that is an integer.
pub(super) fn option(fd: RawFd, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: the pointer and the length are those of `value`, and the kernel writes no more than the length.
    let result = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut length) };
    check(result).map(|_| value)
}

/// Binds a socket to an address.
pub(super) fn bind(fd: &impl AsFd, address: &SocketAddr) -> io::Result<()> {
    SockRef::from(fd).bind(&(*address).into())
}

/// Begins to connect. `EINPROGRESS` and an interruption (after which the kernel goes on) count as begun.
pub(super) fn connect(fd: &impl AsFd, address: &SocketAddr) -> io::Result<()> {
    match SockRef::from(fd).connect(&(*address).into()) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => Ok(()),
        result => result,
    }
}

/// Makes a bound socket a listening one.
pub(super) fn listen(fd: &impl AsFd, backlog: c_int) -> io::Result<()> {
    SockRef::from(fd).listen(backlog)
}

/// Reads what is there into the pieces, in order. `recv` and `recvmsg` do less than `readv` on their way to the socket.
pub(super) fn receive(fd: &impl AsFd, pieces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let (socket, count) = (SockRef::from(fd), pieces.len().min(MAX_PIECES));
    match pieces {
        [one] => (&*socket).read(one),
        many => (&*socket).read_vectored(&mut many[..count]),
    }
}

/// Sends without SIGPIPE. `send` does less than `sendmsg` on its way to the socket.
pub(super) fn send(fd: &impl AsFd, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    let socket = SockRef::from(fd);
    match pieces {
        [one] => socket.send_with_flags(one, libc::MSG_NOSIGNAL),
        many => socket.send_vectored_with_flags(&many[..many.len().min(MAX_PIECES)], libc::MSG_NOSIGNAL),
    }
}

/// Bytes in the send queue that the peer has not acknowledged.
pub(super) fn unacknowledged(fd: &impl AsRawFd) -> io::Result<usize> {
    let mut bytes: c_int = 0;
    // SAFETY: SIOCOUTQ (by its older name TIOCOUTQ) writes one int to the pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    // A reset leaves the count as it was, although nothing is on its way any more.
    let waiting = if bytes > 0 && is_over(fd)? { 0 } else { bytes };
    Ok(usize::try_from(waiting).unwrap_or(0))
}

/// Whether this TCP connection is over for the kernel: reset, or closed on both sides.
fn is_over(fd: &impl AsRawFd) -> io::Result<bool> {
    const CLOSED: u8 = 7; // the kernel's TCP_CLOSE
    let mut state: u8 = 0; // the first field of TCP_INFO; the kernel writes as much as there is room for
    let mut length: socklen_t = 1;
    // SAFETY: the kernel writes at most `length` bytes to `state`; both outlive the call.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut state).cast(), &raw mut length)
    })?;
    Ok(state == CLOSED)
}

/// Makes an inherited descriptor like our own: close-on-exec and non-blocking.
pub(super) fn adopt_flags(fd: RawFd) -> io::Result<()> {
    // SAFETY: takes integers.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: takes integers.
    let flags = check(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    // SAFETY: takes integers.
    check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}
