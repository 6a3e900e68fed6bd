//! The contract of a link: an ordered stream of bytes to one other process.
//!
//! A [`Transport`] never blocks and never raises SIGPIPE; interrupted calls are repeated inside. It may hold bytes in
//! both directions (TLS records, a test link). Its user must not need to know which kind it is. The rules:
//!
//! **Reading.** `read` until `WouldBlock`. Then, if `holds_readable()` is false, wait for the poller to report the
//! token: it reports edges, so a caller that stops before `WouldBlock` hears nothing more. If `holds_readable()` is
//! true there are bytes of which the poller does not know. The caller may serve others first, but must call `read`
//! again without sleeping, also when the last `read` said `WouldBlock`. `Ok(0)` is the peer's orderly end; it is
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
//! transport that it wants to read, the last `read` said `WouldBlock`, and `holds_readable()` is false. For each that it wants
//! to write, the last `write` or `flush` said `WouldBlock`. For a group's link, which may be no socket, `may_sleep` said yes behind
//! all that: from then on the poller reports what comes, and need not report what comes before. A `read` takes that back, and so does a
//! `write` for which there was no room.
//!
//! **Ending.** `flush` to `Ok`, then `shutdown_write`, then read to `Ok(0)`, then drop. Any error other than
//! `WouldBlock` ends the transport: it is of no more use than to be dropped. Dropping without that order may lose bytes
//! that `unsent` still counts. Two kinds of errors are a transport's own: `InvalidData` says that what has come is damaged, and
//! [`refusal`] makes the one that says that one side does not take the other. After a refusal `shutdown_write` and `read` to the
//! end may follow, for a while: so the reason arrives at the other side. Nothing that comes is given out any more.
//!
//! A thread that sleeps in a `Watch` in place of a poller sees levels instead of edges; the rest holds as well.
//!
//! A report is used up by the `poll` that returns it. If a caller ignores one, for a transport that it does not care
//! about just now, it must `read` that transport before it sleeps on it later. One that heeds it says so first (`is_reported`).
//!
//! Kept by `TcpTransport` and, in tests, by `testlink::TestLink`, which exercises every freedom that these rules leave, and by
//! `memlink::MemoryLink`, which is no socket; and by the runtime's `SharedLink`. What only some links know of the other end is in [`Signs`].

use super::poller::{Registry, Token};
use super::signs::Signs;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::RawFd;

/// How many buffers of 4 KiB are passed over at once.
const READ_ON_ROUNDS: usize = 64;

/// What a transport says where one side does not take the other.
pub fn refusal(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Whether an error says that: the kernel knows the same word for something else.
pub fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none()
}

/// What a transport says where the other end has gone before it had proved itself. That may be a refusal, or an accident.
pub fn unproved(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, why)
}

/// Whether an error says that.
pub fn is_unproved(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionAborted && error.raw_os_error().is_none()
}

/// Passes over what still comes after a refusal: its end, or `WouldBlock`. With unread bytes a connection would end by reset, and the
/// last word could be lost.
pub fn pass_over(transport: &mut dyn Transport) -> io::Result<usize> {
    let mut through = [0; 4096];
    for _ in 0..READ_ON_ROUNDS {
        if transport.read(&mut [IoSliceMut::new(&mut through)])? == 0 {
            return Ok(0);
        }
    }
    Err(io::ErrorKind::TimedOut.into()) // it sends and sends
}

/// What the end that dialled does where it refuses: the other end has said all that it says before an answer, so that once this is
/// read, too, the last word arrives.
pub fn last_word(transport: &mut dyn Transport) {
    let _ = transport.shutdown_write();
    let _ = pass_over(transport);
}

/// A non-blocking, ordered stream of bytes to one peer. The module's head states the rules of its use.
pub trait Transport: Signs + Send {
    /// Reads into the buffers, in order: how many bytes, 0 for the peer's orderly end, or `WouldBlock`. Buffers without
    /// any room are `InvalidInput`, since 0 would say "end".
    fn read(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Takes a first part of the bytes: how many, or `WouldBlock`.
    fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Passes on what `write` took and holds inside; `WouldBlock` while something is left.
    fn flush(&mut self) -> io::Result<()>;

    /// Whether there are readable bytes of which the poller does not know: the caller must not sleep.
    fn holds_readable(&self) -> bool;

    /// Whether the caller may sleep now, or leave it to the poller: no, if there is something to do already.
    fn may_sleep(&mut self) -> bool {
        !self.holds_readable()
    }

    /// The poller has reported it.
    fn is_reported(&mut self) {}

    /// Nobody waits any more until it has come about what carries it: what is written from now on goes at once, if it can go at all.
    fn go_as_it_is(&mut self) {}

    /// Ends this direction in order. `WouldBlock` while bytes are held: flush first.
    fn shutdown_write(&mut self) -> io::Result<()>;

    /// Bytes that `write` took and that the peer's kernel has not acknowledged: held inside or in our kernel. (A TCP end
    /// that is not yet acknowledged counts as one.)
    fn unsent(&self) -> usize;

    /// Whether nothing can be damaged on the way unseen: then what goes over it needs no checksums.
    fn is_intact(&self) -> bool {
        false
    }

    /// The names (URIs) that the peer's certificate has, once it has shown one; none where no certificates are shown.
    fn peer_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Has the poller report this transport's edges, of both directions, under the token. What is ready already is
    /// reported too. A transport is registered with one poller at a time.
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()>;

    /// Ends that, for instance to hand the transport to another thread's poller.
    fn deregister(&mut self, registry: &Registry) -> io::Result<()>;

    /// What becomes readable or writable with it, for who sleeps without a poller; -1 if there is nothing of the kind.
    fn descriptor(&self) -> RawFd;

    /// Our end's address; unspecified as long as a connection is being made.
    fn local_address(&self) -> SocketAddr;

    /// The peer's address.
    fn peer_address(&self) -> SocketAddr;
}
