//! How the job is: the question, and the parts of the scheduler's answer.

use super::codec::{code, record, Later};
use super::control::Straggler;
use super::heartbeat::{GroupCarrier, GroupProgress, MessageWait};
use crate::error::{Culprit, Failure};
use crate::types::{Call, Device, Epoch, GroupId, JobInstance};
use std::net::SocketAddr;

record! {
    /// How is the job? Sent again, on the same connection, for each further part of the answer.
    pub struct StatusQuery {
        /// The lowest protocol that the asker speaks. This and the next stay the first two fields in every version.
        pub protocol_lowest: u16,
        /// The highest.
        pub protocol_highest: u16,
    }
}

record! {
    /// Tell me how the job goes, now and whenever that changes. The connection stays for that.
    pub struct Watch {
        /// The lowest protocol that the asker speaks. This and the next stay the first two fields in every version.
        pub protocol_lowest: u16,
        /// The highest.
        pub protocol_highest: u16,
    }
}

record! {
    /// How the job goes.
    pub struct JobNews {
        /// Which job this is.
        pub instance: JobInstance,
        /// How far it is.
        pub phase: JobPhase,
        /// Whether lost nodes may come back.
        pub recovery: bool,
        /// Why the job does not go on, or goes on only if lost nodes come back.
        pub why: Option<String>,
        /// Whether the scheduler ends, so that nothing follows. If there is no reason in `why`, all nodes have left in order.
        pub ended: bool,
    }
}

code! {
    /// How far a job is.
    pub enum JobPhase {
        /// Nodes are awaited.
        Forming = 1,
        /// The cluster is complete.
        Running = 2,
        /// A node is lost, or the job was aborted.
        Broken = 3,
        /// The next epoch is being made.
        Recovering = 4,
        /// Nodes have left in order.
        Ending = 5,
    }
}

code! {
    /// What a node is to its scheduler.
    pub enum NodeStanding {
        /// It takes part, and is connected.
        Member = 1,
        /// It takes part, but its connection is gone: it may come back.
        Away = 2,
        /// It waits in `muster_recover`.
        Recovering = 3,
        /// It has come back, and waits for the next epoch.
        Back = 4,
        /// It is lost.
        Lost = 5,
        /// It has left in order.
        Left = 6,
    }
}

record! {
    /// The job as a whole.
    pub struct StatusJob {
        /// Which job this is.
        pub instance: JobInstance,
        /// Its id, if it has one.
        pub job_id: Option<String>,
        /// The version of the scheduler's library.
        pub version: String,
        /// Whether lost nodes may come back.
        pub recovery: bool,
        /// How many workers there will be.
        pub worker_num: u32,
        /// How many servers.
        pub server_num: u32,
        /// How often the scheduler was started in this job.
        pub generation: u64,
        /// How long this scheduler has served since its start, in milliseconds.
        pub age_ms: u64,
        /// The newest complete epoch; 0: none yet.
        pub epoch: Epoch,
        /// How far the job is.
        pub phase: JobPhase,
        /// More about that, in words.
        pub words: String,
        /// The first cause, if the cluster is broken.
        pub failure: Option<Failure>,
    }
}

record! {
    /// Where a node of a cluster that has formed works.
    pub struct StatusPlace {
        /// What tells its host from every other.
        pub host_key: String,
        /// Its place among those of its role on its host.
        pub local_rank: u32,
        /// The first address at which it can be reached.
        pub address: Option<SocketAddr>,
        /// The device that it works with.
        pub device: Device,
    }
}

record! {
    /// One node.
    pub struct StatusNode {
        /// The node.
        pub who: Culprit,
        /// What the node is to its scheduler.
        pub state: NodeStanding,
        /// How long ago it was heard, in milliseconds. None if this scheduler has not heard it yet.
        pub heard_ms: Option<u64>,
        /// How often it has come back.
        pub restarts: u32,
        /// The first few groups in which it is in a call, as its last heartbeat told, each with the time since.
        pub calls: Vec<GroupProgress>,
        /// In how many more groups it is in a call.
        pub more: u32,
        /// The messages for which it waits longest, as its last heartbeat told, each with the time since.
        pub waits: Vec<MessageWait>,
        /// Where it works. None before it has a rank.
        pub place: Option<StatusPlace>,
    }
}

record! {
    /// A group that is revoked, or in which some members wait in a collective that others have not entered.
    pub struct StatusGroup {
        /// The group.
        pub group: GroupId,
        /// Why it is revoked, if it is.
        pub failure: Option<Failure>,
        /// The collective in which members wait; 0: none.
        pub sequence: u64,
        /// What it is.
        pub call: Option<Call>,
        /// How many are in it.
        pub inside: u32,
        /// For how long the first of them has been in it, in milliseconds.
        pub age_ms: u64,
        /// How many have not entered it.
        pub absent: u32,
        /// The first few of them.
        pub members: Vec<Straggler>,
    }
}

record! {
    /// A part of the answer.
    #[derive(Default)]
    pub struct StatusPart {
        /// The job: in the first part, and again in a later one when what was told before is no longer true.
        pub job: Option<StatusJob>,
        /// The next nodes: workers by rank, then servers by rank; while forming, in order of registration.
        pub nodes: Vec<StatusNode>,
        /// After all nodes: the next groups of which there is something to tell.
        pub groups: Vec<StatusGroup>,
        /// Whether nothing follows.
        pub last: bool,
        /// What carries groups' collectives: a list beside `groups`, also in order of the groups' numbers.
        pub carriers: Later<Vec<GroupCarrier>>,
    }
}
