//! The process that forms the cluster: its loop, its journal, the port that it listens at.

pub(crate) mod connections;
pub(crate) mod job_journal;
pub(crate) mod port;
pub(crate) mod rules;
pub(crate) mod serving;
pub(crate) mod thread;
pub(crate) mod writer;
