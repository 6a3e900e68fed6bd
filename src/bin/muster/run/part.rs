//! What a child is in the job.

use std::fmt;

/// What a child is in the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The scheduler.
    Scheduler,
    /// A worker: its index on this host, and its rank if that is known.
    Worker {
        /// Its index on this host, from 0.
        index: u32,
        /// Its rank in the cluster.
        rank: Option<u32>,
    },
}

impl Part {
    /// The number in the name of its log: its rank, or, if that is not known, its index on this host.
    pub fn number(self) -> Option<u32> {
        match self {
            Part::Scheduler => None,
            Part::Worker { index, rank } => Some(rank.unwrap_or(index)),
        }
    }

    /// Its rank, if that is known.
    pub fn rank(self) -> Option<u32> {
        match self {
            Part::Scheduler => None,
            Part::Worker { rank, .. } => rank,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Scheduler => f.write_str("the scheduler"),
            Part::Worker { rank: Some(rank), .. } => write!(f, "worker {rank}"),
            Part::Worker { index, rank: None } => write!(f, "local worker {index}"),
        }
    }
}
