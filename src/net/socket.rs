//! The socket calls that neither std nor mio offers, one libc call each.
//!
//! Owns nothing. Tested through `tcp` and `listener`.

use super::call::check;
use super::fork::Guarded;
use libc::{c_int, sockaddr, socklen_t};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The most pieces that one `sendmsg` takes (UIO_MAXIOV).
pub(super) const MAX_PIECES: usize = 1024;

/// A TCP socket of the address's family: close-on-exec and non-blocking.
pub(super) fn tcp_socket(address: &SocketAddr) -> io::Result<Guarded<OwnedFd>> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    Guarded::create(|| {
        // SAFETY: takes three integers.
        let fd = check(unsafe { libc::socket(family, kind, 0) })?;
        // SAFETY: the kernel has just made this descriptor and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    })
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
pub(super) fn bind(fd: &impl AsRawFd, address: &SocketAddr) -> io::Result<()> {
    with_raw_address(address, |raw, length| {
        // SAFETY: `raw` points to `length` bytes that outlive the call.
        check(unsafe { libc::bind(fd.as_raw_fd(), raw, length) }).map(drop)
    })
}

/// Begins to connect; `EINPROGRESS` and an interruption (after which the kernel goes on) count as begun.
pub(super) fn connect(fd: &impl AsRawFd, address: &SocketAddr) -> io::Result<()> {
    let result = with_raw_address(address, |raw, length| {
        // SAFETY: `raw` points to `length` bytes that outlive the call.
        check(unsafe { libc::connect(fd.as_raw_fd(), raw, length) }).map(drop)
    });
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => Ok(()),
        result => result,
    }
}

/// Makes a bound socket a listening one.
pub(super) fn listen(fd: &impl AsRawFd, backlog: c_int) -> io::Result<()> {
    // SAFETY: takes two integers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) }).map(drop)
}

/// Reads what is there into the pieces, in order.
pub(super) fn receive(fd: &impl AsRawFd, pieces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let got = match pieces {
        // SAFETY: pointer and length are those of the piece. `recv` does less than `readv` on its way to the socket.
        [one] => unsafe { libc::recv(fd.as_raw_fd(), one.as_mut_ptr().cast(), one.len(), 0) },
        many => {
            // SAFETY: an all-zero `msghdr` is a valid empty one. `recvmsg` does less than `readv` on its way to the socket.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            // An `IoSliceMut` is an `iovec` by its documentation.
            message.msg_iov = many.as_mut_ptr().cast();
            message.msg_iovlen = many.len().min(MAX_PIECES) as _;
            // SAFETY: `message` points to pieces that are valid for writing and outlive the call, and has no other pointer set.
            unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, 0) }
        }
    };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Sends without SIGPIPE.
pub(super) fn send(fd: &impl AsRawFd, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    if let [one] = pieces {
        // SAFETY: pointer and length are those of the piece. `send` does less than `sendmsg` on its way to the socket.
        let sent = unsafe { libc::send(fd.as_raw_fd(), one.as_ptr().cast(), one.len(), libc::MSG_NOSIGNAL) };
        return usize::try_from(sent).map_err(|_| io::Error::last_os_error());
    }
    // SAFETY: an all-zero `msghdr` is a valid empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // An `IoSlice` is an `iovec` by its documentation; the kernel only reads through this pointer.
    message.msg_iov = pieces.as_ptr().cast_mut().cast();
    message.msg_iovlen = pieces.len().min(MAX_PIECES) as _;
    // SAFETY: `message` points to pieces that outlive the call, and has no other pointer set.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Bytes in the send queue that the peer has not acknowledged.
pub(super) fn unacknowledged(fd: &impl AsRawFd) -> io::Result<usize> {
    let mut bytes: c_int = 0;
    // SAFETY: SIOCOUTQ (by its older name TIOCOUTQ) writes one int to the pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    // A reset leaves the count as it was, but nothing is on its way any more.
    let waiting = if bytes > 0 && is_over(fd)? { 0 } else { bytes };
    Ok(usize::try_from(waiting).unwrap_or(0))
}

/// Whether the kernel has done with this TCP connection: reset, or closed on both sides.
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

/// Calls with the address in the kernel's form.
fn with_raw_address<T>(address: &SocketAddr, call: impl FnOnce(*const sockaddr, socklen_t) -> T) -> T {
    match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            call((&raw const raw).cast(), size_of::<libc::sockaddr_in>() as socklen_t)
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            call((&raw const raw).cast(), size_of::<libc::sockaddr_in6>() as socklen_t)
        }
    }
}
