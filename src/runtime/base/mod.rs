//! The ground that every room of the runtime stands on: time, locks that loom can see, the log, wakers, requests, a
//! control connection, what a node keeps on disk.

pub(crate) mod backlog;
pub(crate) mod clock;
pub(crate) mod control;
pub(crate) mod disk;
pub(crate) mod identity;
pub(crate) mod identity_store;
pub(crate) mod interrupts;
pub(crate) mod link_key;
pub mod log;
#[cfg(all(test, loom))]
pub(crate) mod loom_stand_in_test;
pub(crate) mod mailbox;
pub(crate) mod notices;
pub(crate) mod one_thread;
pub mod outlet;
pub mod patience;
pub(crate) mod polling;
pub(crate) mod program;
pub(crate) mod queue;
pub(crate) mod request;
#[cfg(all(test, loom))]
mod request_loom_test;
pub(crate) mod request_record;
pub(crate) mod ring;
pub(crate) mod several;
pub(crate) mod shared_words;
pub(crate) mod sync;
