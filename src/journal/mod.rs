//! What outlives a process: the scheduler's append-only journal and the node's identity file, in the recovery directory.
//!
//! | file | what it owns |
//! | --- | --- |
//! | [`disk`] | what this room needs of a directory, and the words for what a disk refuses |
//! | [`file_disk`] | that directory on a real disk |
//! | [`log`] | the journal: open and replay, append, sync, compact, archive, lock |
//! | [`record`] | how records lie in it, and how a torn tail is told from damage |
//! | [`identity`] | a node's tokens and job, under its node id |
//! | [`format`] | what both kinds of file begin with |
//!
//! Invariants:
//! - What a sync has returned for is read again, or opening fails and says where the file is damaged.
//! - What is read is what was written, in order.
//! - A file that is replaced is the old one or the new one after a crash at any point.
//! - After a failed write or sync a journal does nothing more, for a second sync would claim what the first has lost.
//!
//! Deliberately absent: what a record means, when to sync and who waits for it, threads, and randomness (the salt is an
//! argument). Errors carry `Status::Journal`, say what was tried on which path, and what would be right.
//!
//! Each file has its tests beside it, most of them over [`testdisk`], a disk that crashes, tears, forgets and fills up.

pub mod disk;
pub mod file_disk;
mod format;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub mod identity;
pub mod log;
mod record;
#[cfg(test)]
pub(crate) mod testdisk;

pub use disk::{Appender, Disk, Locked};
pub use file_disk::{FileDisk, Keep, Kept};
pub use identity::{Entry, Identity};
pub use log::{Journal, Opened, Records};
pub use record::RECORD_MAX;
