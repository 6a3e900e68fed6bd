//! What broke a group or a cluster: the first cause, and who it was.

use super::Status;
use crate::types::{Epoch, GroupId, Role};
use std::fmt;

/// The node that a failure names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// What it was.
    pub role: Role,
    /// Its rank in its own rank space, if it had one yet.
    pub rank: Option<u32>,
    /// Its node id.
    pub node_id: String,
    /// Its host's name.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// For a lost node: the newest collective that it is known to have entered.
    pub last_call: Option<LastCall>,
}

/// A collective of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastCall {
    /// The group.
    pub group: GroupId,
    /// The collective's sequence number.
    pub sequence: u64,
}

impl Culprit {
    /// Whether the other is the same life of the same node.
    pub fn is(&self, other: &Culprit) -> bool {
        (self.role, self.rank, self.pid) == (other.role, other.rank, other.pid) && self.node_id == other.node_id
    }
}

impl fmt::Display for Culprit {
    /// `rank 3 (worker, node id "3", host h, pid 812)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank, self.role) {
            (Some(rank), Role::Server) => write!(f, "server rank {rank}")?,
            (Some(rank), _) => write!(f, "rank {rank}")?,
            (None, role) => write!(f, "{role}")?,
        }
        write!(f, " (node id {:?}, host {}, pid {})", self.node_id, self.host, self.pid)
    }
}

/// The first cause of a broken group or cluster. It is the same on every rank that learns of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure.
    pub status: Status,
    /// The one that caused it, where that is known.
    pub culprit: Option<Culprit>,
    /// What happened, in words. It is the end of the sentence that begins with the culprit, or the whole of it. For
    /// ranks that called different collectives (`Mismatch`) it is the whole, which tells what most of them called
    /// before it names the culprit.
    pub cause: String,
    /// The epoch in which it happened.
    pub epoch: Epoch,
    /// The group that it broke; none where it broke the whole cluster.
    pub group: Option<GroupId>,
    /// The sequence number of the group's collective in which it was noticed; 0 where there was none.
    pub sequence: u64,
}

/// The beginning of what a node is told that the others call lost.
const TAKEN_FOR_LOST: &str = "was taken for lost by the others: it ";

impl Failure {
    /// This loss of a node, as that node itself is told of it: to itself it is not lost.
    pub fn to_the_lost(mut self) -> Failure {
        self.status = Status::Fenced;
        self.cause.insert_str(0, TAKEN_FOR_LOST);
        self
    }

    /// This failure, as the other nodes know it. A node that the others call lost passes on their words, and not its
    /// own.
    pub fn to_others(mut self) -> Failure {
        if let Some(cause) = self.cause.strip_prefix(TAKEN_FOR_LOST).filter(|_| self.status == Status::Fenced) {
            (self.status, self.cause) = (Status::PeerLost, cause.to_owned());
        }
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.culprit.as_ref().filter(|_| self.status != Status::Mismatch) {
            Some(culprit) => write!(f, "{culprit} {}", self.cause),
            None => f.write_str(&self.cause),
        }
    }
}
