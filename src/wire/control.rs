//! What the control plane's messages carry, field by field, in the order of the wire.

use super::codec::{code, record, take_name, Decoder, Encoder, Later, Wire, WireError};
use super::heartbeat::MessageWait;
use super::members::{take_addresses, Member, Members};
use super::TOKENS_MAX;
use crate::error::{Culprit, Failure, Status};
use crate::types::{
    Call, ChecksumScope, Device, Epoch, GroupId, HostName, Incarnation, JobInstance, LaunchId, Process, Role, Secret,
    SharedMemory, Token, TokenHash,
};
use std::fmt;
use std::net::SocketAddr;

/// How much of an abort's reason is told at most, in bytes.
const REASON_MAX: usize = 1024;

/// A node asks to be let in; the first message on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// The lowest protocol that it speaks. This and the next stay the first two fields in every version.
    pub protocol_lowest: u16,
    /// The highest.
    pub protocol_highest: u16,
    /// What it can do beyond the protocol's base; none are defined yet.
    pub features: u64,
    /// The library's version, for the log.
    pub version: String,
    /// The job that it believes it belongs to, if it was told.
    pub job_id: Option<String>,
    /// Worker or server.
    pub role: Role,
    /// Its id: given by the user, or made by itself.
    pub node_id: String,
    /// Whether the user gave it.
    pub node_id_given: bool,
    /// The rank that a launcher gave it.
    pub rank: Option<u32>,
    /// Which life of it this is.
    pub incarnation: Incarnation,
    /// Where it runs.
    pub host: HostName,
    /// Its process.
    pub process: Process,
    /// Where its peers reach it; all of them have the same port.
    pub addresses: Vec<SocketAddr>,
    /// How many workers it was told to expect.
    pub worker_num: u32,
    /// How many servers.
    pub server_num: u32,
    /// Whether it was told that recovery is on.
    pub recovery: bool,
    /// The job instance that it belongs to, when it registers again after a broken connection.
    pub instance: Option<JobInstance>,
    /// What it was told in that job instance, which the scheduler must know.
    pub told: Told,
    /// The device that it works with.
    pub device: Device,
    /// What proves which node it is, if recovery is on.
    pub reentry: Option<Box<Reentry>>,
    /// The id by which its launcher knows it.
    pub launch: Option<LaunchId>,
    /// The mark by which its launcher tells jobs apart, where the user has named neither the job nor a port. Each start of
    /// the job makes a new mark: nothing that lasts is compared by it.
    pub derived_job: Option<String>,
}

record! {
    /// The newest fact of each kind that a member was told. Each was durable before. A scheduler that does not know it has an
    /// older copy of its journal.
    pub struct Told {
        /// The newest epoch; 0: none yet.
        pub epoch: Epoch,
        /// The last change of this life to the store that was acknowledged, as `StoreReply` counts changes; 0: none.
        pub change: u64,
        /// The highest number of a group that it has made; 0: none.
        pub group: u32,
    }
}

impl Told {
    /// What a node knows at its beginning.
    pub const NOTHING: Told = Told { epoch: Epoch(0), change: 0, group: 0 };
}

impl Register {
    /// Drops what was needed for the registration only: the tokens in clear, the library's version, and the
    /// launcher's mark of its job (the next launcher may be another).
    pub fn forget_what_was_checked(&mut self) {
        if let Some(reentry) = &mut self.reentry {
            reentry.tokens.clear();
        }
        (self.derived_job, self.version) = (None, String::new());
    }
}

/// The means by which a node proves that it is the same node as before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reentry {
    /// The tokens of its earlier lives: the valid one, and one that may have become valid. None in its first life.
    pub tokens: Vec<Token>,
    /// The hash of this life's token.
    pub next: TokenHash,
}

impl Wire for Reentry {
    fn put(&self, to: &mut Encoder) {
        self.tokens.put(to);
        self.next.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        let count = from.count(TOKENS_MAX, 32, "tokens")?;
        let tokens = (0..count).map(|_| Wire::take(from)).collect::<Result<_, _>>()?;
        Ok(Reentry { tokens, next: Wire::take(from)? })
    }
}

impl Wire for Register {
    fn put(&self, to: &mut Encoder) {
        self.protocol_lowest.put(to);
        self.protocol_highest.put(to);
        self.features.put(to);
        self.version.put(to);
        self.job_id.put(to);
        self.role.put(to);
        self.node_id.put(to);
        self.node_id_given.put(to);
        self.rank.put(to);
        self.incarnation.put(to);
        self.host.put(to);
        self.process.put(to);
        self.addresses.put(to);
        self.worker_num.put(to);
        self.server_num.put(to);
        self.recovery.put(to);
        self.instance.put(to);
        self.told.put(to);
        self.device.put(to);
        self.reentry.put(to);
        self.launch.put(to);
        self.derived_job.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(Register {
            protocol_lowest: Wire::take(from)?,
            protocol_highest: Wire::take(from)?,
            features: Wire::take(from)?,
            version: take_name(from, "version")?,
            job_id: bool::take(from)?.then(|| take_name(from, "job id")).transpose()?,
            role: Wire::take(from)?,
            node_id: take_name(from, "node id")?,
            node_id_given: Wire::take(from)?,
            rank: Wire::take(from)?,
            incarnation: Wire::take(from)?,
            host: Wire::take(from)?,
            process: Wire::take(from)?,
            addresses: take_addresses(from)?,
            worker_num: Wire::take(from)?,
            server_num: Wire::take(from)?,
            recovery: Wire::take(from)?,
            instance: Wire::take(from)?,
            told: Wire::take(from)?,
            device: Wire::take(from)?,
            reentry: Wire::take(from)?,
            launch: Wire::take(from)?,
            derived_job: bool::take(from)?.then(|| take_name(from, "job of the launcher")).transpose()?,
        })
    }
}

impl Register {
    /// The protocol range of a registration of any version, so that a refusal can name it.
    pub fn protocol_range(payload: &[u8]) -> Result<(u16, u16), WireError> {
        let mut from = Decoder::new(payload);
        Ok((Wire::take(&mut from)?, Wire::take(&mut from)?))
    }
}

record! {
    /// The scheduler refuses a node, or ends the forming of the cluster for all.
    pub struct Rejected {
        /// What the node's `muster_init` returns.
        pub status: Status,
        /// The whole sentence.
        pub reason: String,
    }
}

record! {
    /// This scheduler belongs to another job than the node's launcher says. The node's own scheduler listens at another port.
    pub struct PassBy {
        /// Both sides of the disagreement, in a whole sentence.
        pub reason: String,
    }
}

record! {
    /// What all nodes of an epoch do in the same way, whatever each was told.
    pub struct Agreed {
        /// How long silence lasts before it means death, in milliseconds; heartbeats come five times as often.
        pub heartbeat_timeout_ms: u64,
        /// Which data carries checksums.
        pub checksums: ChecksumScope,
        /// Where algorithms change, as `schedules::Thresholds` lists them.
        pub thresholds: Vec<u64>,
        /// The longest key of the store, in bytes.
        pub store_key_max: u64,
        /// The longest value of the store, in bytes.
        pub store_value_max: u64,
        /// Whether the ranks of a host share memory.
        pub shared_memory: SharedMemory,
    }
}

record! {
    /// How many groups have been made of one group.
    pub struct Creations {
        /// The group that they were made of.
        pub parent: GroupId,
        /// How many.
        pub count: u64,
    }
}

record! {
    /// The cluster is complete.
    pub struct Formed {
        /// Which job this is.
        pub instance: JobInstance,
        /// How often the scheduler was started in this job. Nodes no longer follow a scheduler of fewer starts.
        pub generation: u64,
        /// Which epoch this is.
        pub epoch: Epoch,
        /// The receiver's place in the table of all nodes.
        pub index: u32,
        /// Its rank in its role's rank space.
        pub rank: u32,
        /// Its place among those of its role on its host.
        pub local_rank: u32,
        /// How many of its role are on its host.
        pub local_size: u32,
        /// How many workers there are.
        pub worker_num: u32,
        /// How many servers.
        pub server_num: u32,
        /// What a link of this epoch must prove to know: the dialler shows the first half, the accepter the second.
        pub secret: Secret,
        /// What all nodes do in the same way.
        pub agreed: Agreed,
        /// How often this node has come back after it was lost.
        pub restarts: u32,
        /// The receiver's groups of which other groups have been made by now. A node that makes those again is told
        /// what they are. The other members take no part.
        pub creations: Vec<Creations>,
        /// All nodes, if there are at most `FULL_TABLE_NODES`; else those that the schedules on the receiver's groups use.
        pub members: Members,
        /// The features that the receiver offered in its `Register` and that the scheduler takes up.
        pub features: Later<u64>,
    }
}

record! {
    /// A peer's link ended, or could not be opened. Evidence, not a verdict.
    pub struct Suspect {
        /// The peer's index.
        pub peer: u32,
        /// What was seen.
        pub evidence: String,
    }
}

code! {
    /// What the scheduler knows of a suspect.
    pub enum PeerState {
        /// Its connection to the scheduler lives.
        Alive = 1,
        /// It has left in an orderly way.
        Left = 2,
    }
}

record! {
    /// Answers a `Suspect` whose peer is not lost. (A loss is told to everyone, as a `Verdict`.)
    pub struct PeerReport {
        /// The peer's index.
        pub peer: u32,
        /// What is known of it.
        pub state: PeerState,
        /// Its identity.
        pub culprit: Culprit,
    }
}

record! {
    /// The cluster is broken: a node is lost, or a rank aborted. Tells the first cause, once.
    pub struct Verdict {
        /// The first cause.
        pub failure: Failure,
    }
}

record! {
    /// Which nodes are lost in this epoch, by their indices. Sent with a `Verdict`, and again for each node that is lost later.
    pub struct LostNodes {
        /// The epoch.
        pub epoch: Epoch,
        /// All of them.
        pub nodes: Vec<u32>,
    }
}

record! {
    /// What a node was told of its epoch, for a scheduler that was started again and may not know it.
    pub struct Known {
        /// The epoch.
        pub epoch: Epoch,
        /// The first cause, if the cluster is broken.
        pub failure: Option<Failure>,
        /// Which nodes are lost.
        pub lost: Vec<u32>,
        /// The first causes of the groups that are revoked.
        pub revoked: Vec<Failure>,
    }
}

record! {
    /// A rank gives up on a group, and says why.
    pub struct Revoke {
        /// Its reason, with epoch, group and sequence.
        pub failure: Failure,
    }
}

record! {
    /// A group is revoked. Every member is told the first cause that reached the scheduler.
    pub struct Revoked {
        /// The first cause.
        pub failure: Failure,
    }
}

record! {
    /// Which members have not entered this collective, and where are they?
    pub struct WhereAre {
        /// A number that the node chooses. The answer has it, too.
        pub query: u64,
        /// The group.
        pub group: GroupId,
        /// The collective's sequence number.
        pub sequence: u64,
        /// If set, the question is only about the node with this index, whether that has entered the collective or not.
        pub about: Option<u32>,
    }
}

code! {
    /// Where a member is that has not entered a collective.
    pub enum StragglerState {
        /// It has entered the collective that `call`, `sequence` and `age_ms` tell, and is still inside.
        Inside = 1,
        /// It has finished that collective and not entered another on the group. `age_ms` counts from when it called it.
        Outside = 2,
        /// It has not used the group yet.
        Never = 3,
        /// It did not answer when asked; the rest is what it said last.
        Silent = 4,
        /// It has left the cluster.
        Left = 5,
    }
}

record! {
    /// One member that has not entered a collective.
    pub struct Straggler {
        /// The node.
        pub culprit: Culprit,
        /// Where it is.
        pub state: StragglerState,
        /// The newest collective that it entered on the group.
        pub sequence: u64,
        /// What that collective is.
        pub call: Option<Call>,
        /// How long ago it entered that, in milliseconds.
        pub age_ms: u64,
        /// The message for which it waits longest.
        pub wait: Option<MessageWait>,
    }
}

record! {
    /// Answers a `WhereAre`.
    pub struct Absent {
        /// The number of the `WhereAre`.
        pub query: u64,
        /// How many have not entered.
        pub total: u32,
        /// The first few of them.
        pub members: Vec<Straggler>,
    }
}

record! {
    /// Which node has this index? (Where `Formed` did not say.)
    pub struct Locate {
        /// Its index.
        pub index: u32,
    }
}

record! {
    /// Answers a `Locate`.
    pub struct Located {
        /// The node.
        pub member: Member,
    }
}

record! {
    /// A rank ends the job for all. Its text is the cause that all nodes are told.
    pub struct Abort {
        /// The program's own code.
        pub code: i32,
        /// The program's own reason. It is cut when it is told.
        pub reason: String,
    }
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = (0..=self.reason.len().min(REASON_MAX)).rev().find(|end| self.reason.is_char_boundary(*end));
        match &self.reason[..end.unwrap_or(0)] {
            "" => write!(f, "aborted the job with code {}, without a reason", self.code),
            reason => write!(f, "aborted the job with code {}: {reason}", self.code),
        }
    }
}
