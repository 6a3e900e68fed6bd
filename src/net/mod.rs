//! Where bytes meet the operating system: links, listeners, pollers, wakers, names, and what the kernel says about this
//! host.
//!
//! | file | what it owns |
//! | --- | --- |
//! | [`transport`] | the contract of a link between two processes, which TLS keeps too |
//! | [`tcp`] | the plain link |
//! | [`wrap`] | what becomes of a connection before its first byte |
//! | [`listener`] | the listening sockets of one process |
//! | [`poller`], [`watch`], [`waker`] | sleeping until something is ready, and being woken from another thread |
//! | [`signs`], `tcp_info` | whether the kernel at the other end still answers, and how TCP knows |
//! | `congestion` | how TCP decides how much it sends at a time, where both ends are on one host |
//! | [`resolve`] | from a host's name to its addresses |
//! | [`interface`] | which addresses are this host's, and on which interfaces |
//! | `holders` | which processes have a port |
//! | [`thread`] | threads that leave the program's signals alone |
//! | [`limit`] | how many descriptors this process may hold |
//! | [`shm`] | memory that processes of one host share |
//! | [`doorbell`] | how such processes wake each other, and hand each other a descriptor |
//! | [`cgroup`] | how much memory this process may still take, and how much it may compute |
//! | [`fork`] | the table of descriptors that a forked child must close |
//! | `standard` | what keeps our descriptors off the numbers 0 to 2 |
//! | [`file`] | a small file, read as a whole |
//! | [`inherited`] | a descriptor that the process was started with, read once |
//! | [`foreign`] | writing to the program's own descriptors |
//! | [`host`] | host name, boot, process identity, randomness |
//!
//! Invariants: every descriptor made here is 3 or more, close-on-exec, non-blocking and in the fork table while it is open; no call
//! raises SIGPIPE; an interrupted call is repeated here. A block of `unsafe` has one
//! call of libc at most; those of `shm`, `doorbell` and `interface` also read what the kernel or a peer has left in memory.
//!
//! Nothing here knows a rank, a message or a setting. The hot path returns `io::Error`, so that the caller sees
//! `WouldBlock`; what is done once returns [`crate::error::Error`] with a whole sentence.

mod call;
pub mod cgroup;
mod congestion;
pub mod doorbell;
pub mod file;
pub mod foreign;
pub mod fork;
mod holders;
pub mod host;
pub mod inherited;
pub mod interface;
pub mod limit;
pub mod listener;
#[cfg(test)]
pub mod memlink;
pub mod poller;
pub mod resolve;
pub mod shm;
pub mod signs;
mod socket;
mod standard;
pub mod tcp;
mod tcp_info;
#[cfg(test)]
pub mod testfork;
#[cfg(test)]
pub mod testlink;
pub mod thread;
pub mod timed;
pub mod transport;
pub mod waker;
pub mod watch;
pub mod wrap;

pub use listener::Listener;
pub use poller::{Poller, Ready, Registry, Token};
pub use signs::{Acknowledged, Signs};
pub use tcp::{Connect, TcpTransport};
#[cfg(test)]
pub(crate) use tcp_info::deafen;
pub use transport::{end_after_refusal, is_refusal, is_unproved, pass_over, refusal, unproved, Transport};
pub use waker::Waker;
pub use watch::{Watch, Woken};
pub use wrap::{unwrapped, Side, Wrap};
