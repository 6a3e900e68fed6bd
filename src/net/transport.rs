//! The contract of a link: an ordered stream of bytes to one other process.
//!
//! A [`Transport`] never blocks and never raises SIGPIPE; interrupted calls are repeated inside. It may hold bytes in
//! both directions (TLS records, a test link). Its user must not need to know which kind it is. The rules:
//!
//! **Reading.** `read` until `WouldBlock`. Then, if `holds_readable()` is false, wait for the poller to report the
//! token: it reports edges, so a caller that stops before `WouldBlock` hears nothing more. If `holds_readable()` is
//! true there are bytes unknown to the poller. The caller may serve others first, but must call `read` again without
//! sleeping, even if the last `read` said `WouldBlock`. `Ok(0)` is the peer's orderly end; it is
//! returned again on each later call, and `holds_readable()` is false from then on.
//!
//! **Writing.** `write` takes a first part of the bytes, of any length, or says `WouldBlock`. What it took counts as
//! sent for the caller, but may be held inside until `flush`. So call `flush` after the last `write` of a burst. While
//! that says `WouldBlock`, call it again when the poller next reports the token. (Some transports must be able to read
//! before a write can go on. Treat any report of the token as a reason to try both.) `flush` on a transport that holds
//! nothing costs nothing. A `write` that says `WouldBlock` has itself tried to pass on what is held. So while there is
//! more to write, calling it again at the next report is enough. One `write` need not take a small frame as a whole.
//!
//! **Sleeping.** A caller may sleep in the poller, or leave a transport to a thread that does, only under these conditions. For each
//! transport that it wants to read, the last `read` said `WouldBlock`, and `holds_readable()` is false. For each that it
//! wants to write, the last `write` or `flush` said `WouldBlock`. For a group's link, which may be no socket, `may_sleep`
//! said yes after all that. The poller then reports what comes later, and need not report what came before. A `read` ends this
//! permission to sleep, and so does a `write` for which there was no room.
//!
//! **Ending.** `flush` to `Ok`, then `shutdown_write`, then read to `Ok(0)`, then drop. Any error other than
//! `WouldBlock` ends the transport: it is of no more use than to be dropped. Dropping without that order may lose bytes
//! that `unsent` still counts. Two kinds of errors are a transport's own: `InvalidData` says that what has come is damaged, and
//! [`refusal`] makes the error that says that one side refuses the other. After a refusal `shutdown_write` and `read` to the
//! end may follow, for a while: so the reason arrives at the other side. The caller gets no more bytes of what comes.
//!
//! A thread that sleeps in a `Watch` in place of a poller sees levels instead of edges; the rest holds as well.
//!
//! A report is used up by the `poll` that returns it. If a caller ignores one, for a transport that it does not care about just
//! now, it must `read` that transport before it sleeps on it later. A caller that heeds a report first calls `is_reported`.
//!
//! `TcpTransport` and the runtime's `SharedLink` keep this contract. In tests, so do `testlink::TestLink`, which uses
//! every freedom that these rules leave, and `memlink::MemoryLink`, which is no socket. What only some links know of the
//! other end is in [`Signs`].

use super::poller::{Registry, Token};
use super::signs::Signs;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::RawFd;

/// How many buffers of 4 KiB are passed over at once.
const READ_ON_ROUNDS: usize = 64;

/// The error by which a transport says that one side refuses the other.
pub fn refusal(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Whether an error is a [`refusal`]. The kernel uses the same kind for something else, but with an error number.
pub fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none()
}

/// The error by which a transport says that the other end has gone before it had proved itself. That may be a refusal, or
/// an accident.
pub fn unproved(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, why)
}

/// Whether an error is made by [`unproved`].
pub fn is_unproved(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionAborted && error.raw_os_error().is_none()
}

/// Reads and drops what still comes after a refusal, up to the end (`Ok(0)`) or `WouldBlock`. With unread bytes a
/// connection would end by a reset, and the last word could be lost.
pub fn pass_over(transport: &mut dyn Transport) -> io::Result<usize> {
    let mut through = [0; 4096];
    for _ in 0..READ_ON_ROUNDS {
        if transport.read(&mut [IoSliceMut::new(&mut through)])? == 0 {
            return Ok(0);
        }
    }
    Err(io::ErrorKind::TimedOut.into()) // the peer sends and sends
}

/// Ends a connection on which the dialling end refuses the other, so that its last word arrives. By now the other end has
/// sent all that it sends before an answer. Once that is read, no reset can destroy the last word.
pub fn end_after_refusal(transport: &mut dyn Transport) {
    let _ = transport.shutdown_write();
    let _ = pass_over(transport);
}

/// A non-blocking, ordered stream of bytes to one peer. The module's head states the rules of its use.
pub trait Transport: Signs + Send {
    /// Reads into the buffers, in order. Returns how many bytes, 0 for the peer's orderly end, or `WouldBlock`. Buffers
    /// without any room are `InvalidInput`, since 0 would say "end".
    fn read(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Takes a first part of the bytes. Returns how many, or `WouldBlock`.
    fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Passes on what `write` took and holds inside; `WouldBlock` while something is left.
    fn flush(&mut self) -> io::Result<()>;

    /// Whether there are readable bytes unknown to the poller: then the caller must not sleep.
    fn holds_readable(&self) -> bool;

    /// Whether the caller may sleep now, or leave the link to the poller. False if there is something to do already.
    fn may_sleep(&mut self) -> bool {
        !self.holds_readable()
    }

    /// The poller has reported this transport.
    fn is_reported(&mut self) {}

    /// The caller gives the transport up, and cannot wait until both ends have agreed on what carries the bytes. What is
    /// written from now on goes at once, if it can go at all.
    fn go_as_it_is(&mut self) {}

    /// Ends this direction in order. `WouldBlock` while bytes are held: flush first.
    fn shutdown_write(&mut self) -> io::Result<()>;

    /// Bytes that `write` took and that the peer's kernel has not acknowledged: held inside or in our kernel. (A TCP end
    /// that is not yet acknowledged counts as one.)
    fn unsent(&self) -> usize;

    /// Whether no byte can be damaged on the way without being noticed: then what goes over it needs no checksums.
    fn is_intact(&self) -> bool {
        false
    }

    /// The names (URIs) in the peer's certificate, once it has shown one. None where no certificates are shown.
    fn peer_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Has the poller report this transport's edges, of both directions, under the token. What is ready already is
    /// reported too. A transport is registered with one poller at a time.
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()>;

    /// Ends the reports, for instance to hand the transport to another thread's poller.
    fn deregister(&mut self, registry: &Registry) -> io::Result<()>;

    /// The descriptor that becomes readable or writable with the transport, for a caller that sleeps without a poller.
    /// -1: there is none.
    fn descriptor(&self) -> RawFd;

    /// Our end's address. It is unspecified as long as the connection is being made.
    fn local_address(&self) -> SocketAddr;

    /// The peer's address.
    fn peer_address(&self) -> SocketAddr;
}
