//! The control plane's messages, between a node and its scheduler.

use super::codec::{code, record, take_name, Decoder, Encoder, Wire, WireError};
use super::store::{StoreBegin, StoreCancel, StorePiece, StoreReply};
use super::{ADDRESSES_MAX, PROGRESS_MAX};
use crate::error::{Culprit, Failure, Status};
use crate::types::{
    Call, CallKind, DType, Epoch, GroupId, HostName, Incarnation, JobInstance, Process, ReduceOp, Role,
};
use std::net::SocketAddr;
use std::sync::Arc;

impl Wire for HostName {
    fn put(&self, to: &mut Encoder) {
        self.name.put(to);
        self.key.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(HostName { name: take_name(from, "host name")?, key: take_name(from, "host key")? })
    }
}

impl Wire for Process {
    fn put(&self, to: &mut Encoder) {
        self.pid.put(to);
        self.start_ticks.put(to);
        self.pid_namespace.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(Process { pid: Wire::take(from)?, start_ticks: Wire::take(from)?, pid_namespace: Wire::take(from)? })
    }
}

impl Wire for Status {
    fn put(&self, to: &mut Encoder) {
        self.code().put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        let code = i32::take(from)?;
        Status::from_code(code).ok_or_else(|| WireError(format!("unknown status {code}")))
    }
}

impl Wire for Culprit {
    fn put(&self, to: &mut Encoder) {
        self.role.put(to);
        self.rank.put(to);
        self.node_id.put(to);
        self.host.put(to);
        self.pid.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(Culprit {
            role: Wire::take(from)?,
            rank: Wire::take(from)?,
            node_id: take_name(from, "node id")?,
            host: take_name(from, "host name")?,
            pid: Wire::take(from)?,
        })
    }
}

impl Wire for Failure {
    fn put(&self, to: &mut Encoder) {
        self.status.put(to);
        self.culprit.put(to);
        self.cause.put(to);
        self.epoch.put(to);
        self.group.put(to);
        self.sequence.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(Failure {
            status: Wire::take(from)?,
            culprit: Wire::take(from)?,
            cause: Wire::take(from)?,
            epoch: Wire::take(from)?,
            group: Wire::take(from)?,
            sequence: Wire::take(from)?,
        })
    }
}

impl Wire for Call {
    fn put(&self, to: &mut Encoder) {
        (self.kind as u8).put(to);
        self.dtype.map_or(u8::MAX, |dtype| dtype as u8).put(to);
        self.op.map_or(u8::MAX, |op| op as u8).put(to);
        self.root.put(to);
        self.count.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        fn known<T>(code: u8, what: &str, find: impl Fn(i32) -> Option<T>) -> Result<Option<T>, WireError> {
            if code == u8::MAX {
                return Ok(None);
            }
            find(i32::from(code)).map(Some).ok_or_else(|| WireError(format!("unknown {what} {code}")))
        }
        let kind = u8::take(from)?;
        Ok(Call {
            kind: CallKind::from_code(kind).ok_or_else(|| WireError(format!("unknown collective {kind}")))?,
            dtype: known(u8::take(from)?, "element type", DType::from_code)?,
            op: known(u8::take(from)?, "operation", ReduceOp::from_code)?,
            root: Wire::take(from)?,
            count: Wire::take(from)?,
        })
    }
}

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
            addresses: {
                let count = from.count(ADDRESSES_MAX, 7, "addresses")?;
                (0..count).map(|_| Wire::take(from)).collect::<Result<_, _>>()?
            },
            worker_num: Wire::take(from)?,
            server_num: Wire::take(from)?,
            recovery: Wire::take(from)?,
            instance: Wire::take(from)?,
        })
    }
}

impl Register {
    /// The protocol range of a registration of whatever version, so that a refusal can name it.
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
    /// A node as the others see it.
    pub struct Member {
        /// Its place among all nodes: workers by rank, then servers by rank.
        pub index: u32,
        /// Worker or server.
        pub role: Role,
        /// Its rank in its role's rank space.
        pub rank: u32,
        /// Its place among those of its role on its host.
        pub local_rank: u32,
        /// Its id.
        pub node_id: String,
        /// Its host.
        pub host: HostName,
        /// Its process.
        pub process: Process,
        /// Where it can be reached.
        pub addresses: Vec<SocketAddr>,
    }
}

record! {
    /// What all nodes of an epoch do alike, whatever each was told.
    pub struct Agreed {
        /// How long silence lasts before it means death, in milliseconds; heartbeats come five times as often.
        pub heartbeat_timeout_ms: u64,
        /// Whether data-plane frames carry payload checksums.
        pub checksums: bool,
        /// Where algorithms change, as `collective::Thresholds` lists them.
        pub thresholds: Vec<u64>,
        /// The longest key of the store, in bytes.
        pub store_key_max: u64,
        /// The longest value.
        pub store_value_max: u64,
    }
}

record! {
    /// The cluster is complete.
    pub struct Formed {
        /// Which job this is.
        pub instance: JobInstance,
        /// Which membership.
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
        pub secret: [u8; 32],
        /// What all do alike.
        pub agreed: Agreed,
        /// All nodes up to `FULL_TABLE_NODES`; beyond that, those that the schedules on world use.
        pub members: Arc<Vec<Member>>,
    }
}

record! {
    /// How far a node is in one group.
    pub struct GroupProgress {
        /// Which group.
        pub group: GroupId,
        /// The newest collective that it entered; 0: none yet.
        pub entered: u64,
        /// The newest that it finished.
        pub finished: u64,
        /// What the newest entered one is.
        pub call: Option<Call>,
        /// How long ago it entered it, in milliseconds.
        pub age_ms: u64,
    }
}

record! {
    /// A sign of life, echoed at once.
    pub struct Heartbeat {
        /// Grows by one.
        pub sequence: u64,
        /// The newest echo that the node has heard: a node that is not answered is unhearing.
        pub echoed: u64,
        /// How far the node is in each group that it has used.
        pub progress: Vec<GroupProgress>,
    }
}

record! {
    /// The answer to a heartbeat.
    pub struct HeartbeatEcho {
        /// Whose.
        pub sequence: u64,
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
        /// Who it is.
        pub culprit: Culprit,
    }
}

record! {
    /// The cluster is broken: a node is lost, or a rank aborted. The first cause, once.
    pub struct Verdict {
        /// That cause.
        pub failure: Failure,
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
    /// A group is revoked: the first cause that reached the scheduler, told to every member.
    pub struct Revoked {
        /// That cause.
        pub failure: Failure,
    }
}

record! {
    /// Who has not entered this collective, and where are they?
    pub struct WhereAre {
        /// Chosen by the node; stands in the answer.
        pub query: u64,
        /// The group.
        pub group: GroupId,
        /// The collective's sequence number.
        pub sequence: u64,
    }
}

code! {
    /// Where a member is that has not entered a collective.
    pub enum AbsenceState {
        /// It has entered this one (`call`, `sequence`, `age_ms` tell) and is still inside.
        Inside = 1,
        /// It has finished this one and not entered another on the group; `age_ms` since it entered that one.
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
    pub struct Absence {
        /// Who.
        pub culprit: Culprit,
        /// Where it is.
        pub state: AbsenceState,
        /// The newest collective that it entered on the group.
        pub sequence: u64,
        /// What that is.
        pub call: Option<Call>,
        /// How long ago, in milliseconds.
        pub age_ms: u64,
    }
}

record! {
    /// Answers a `WhereAre`.
    pub struct Absent {
        /// Which.
        pub query: u64,
        /// How many have not entered.
        pub total: u32,
        /// The first few of them.
        pub members: Vec<Absence>,
    }
}

record! {
    /// Who is the node with this index? (Where `Formed` did not say.)
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
    /// A rank ends the job for all.
    pub struct Abort {
        /// The program's own code.
        pub code: i32,
        /// The program's own reason.
        pub reason: String,
    }
}

/// In which queue a message waits: between the pieces of a bulk transfer the urgent ones pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Everything but the store.
    Urgent,
    /// The store.
    Bulk,
}

/// Declares the messages, each with its number on the wire.
macro_rules! messages {
    ($($(#[$about:meta])* $name:ident = $number:literal $(($body:ty))?,)*) => {
        /// A message of the control plane.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant)] // they live briefly, and rarely in numbers
        pub enum Message {
            $($(#[$about])* $name $(($body))?,)*
        }

        impl Message {
            /// Its number on the wire.
            pub fn kind(&self) -> u8 {
                match self {
                    $(messages!(@pattern $name $(($body))?) => $number,)*
                }
            }

            /// Its payload.
            pub fn encode(&self) -> Vec<u8> {
                let mut to = Encoder::default();
                match self {
                    $(messages!(@bind body $name $(($body))?) => messages!(@put body to $(($body))?),)*
                }
                to.bytes
            }

            /// The message that a frame of this kind carries.
            pub fn decode(kind: u8, payload: &[u8]) -> Result<Message, WireError> {
                let mut from = Decoder::new(payload);
                let message = match kind {
                    $($number => messages!(@take from $name $(($body))?),)*
                    other => return Err(WireError(format!("unknown message {other}"))),
                };
                from.finish()?;
                Ok(message)
            }
        }
    };
    (@pattern $name:ident ($body:ty)) => { Message::$name(_) };
    (@pattern $name:ident) => { Message::$name };
    (@bind $bound:ident $name:ident ($body:ty)) => { Message::$name($bound) };
    (@bind $bound:ident $name:ident) => { Message::$name };
    (@put $bound:ident $to:ident ($body:ty)) => { $bound.put(&mut $to) };
    (@put $bound:ident $to:ident) => { {} };
    (@take $from:ident $name:ident ($body:ty)) => { Message::$name(<$body>::take(&mut $from)?) };
    (@take $from:ident $name:ident) => { Message::$name };
}

messages! {
    /// Node: let me in.
    Register = 1 (Register),
    /// Scheduler: no.
    Rejected = 2 (Rejected),
    /// Scheduler: all are here.
    Formed = 3 (Formed),
    /// Node: I live, and am here.
    Heartbeat = 4 (Heartbeat),
    /// Scheduler: heard.
    HeartbeatEcho = 5 (HeartbeatEcho),
    /// Scheduler: send a heartbeat now.
    Report = 6,
    /// Node: my time for forming is up.
    TimeUp = 7,
    /// Node: I leave.
    Leave = 8,
    /// Scheduler: then go.
    Bye = 9,
    /// Node: something is wrong with a peer.
    Suspect = 10 (Suspect),
    /// Scheduler: nothing is wrong with it, or it has left.
    PeerReport = 11 (PeerReport),
    /// Scheduler: the cluster is broken.
    Verdict = 12 (Verdict),
    /// Node: I give up on a group.
    Revoke = 13 (Revoke),
    /// Scheduler: the group is revoked.
    Revoked = 14 (Revoked),
    /// Node: who is absent?
    WhereAre = 15 (WhereAre),
    /// Scheduler: these.
    Absent = 16 (Absent),
    /// Node: who is this index?
    Locate = 17 (Locate),
    /// Scheduler: this.
    Located = 18 (Located),
    /// Node: end the job.
    Abort = 19 (Abort),
    /// Node: a store request begins.
    StoreBegin = 32 (StoreBegin),
    /// Either: a part of a value.
    StorePiece = 33 (StorePiece),
    /// Node: forget a store request.
    StoreCancel = 34 (StoreCancel),
    /// Scheduler: the answer to a store request.
    StoreReply = 35 (StoreReply),
}

impl Message {
    /// In which queue it waits.
    pub fn lane(&self) -> Lane {
        match self {
            Message::StoreBegin(_) | Message::StorePiece(_) | Message::StoreCancel(_) | Message::StoreReply(_) => {
                Lane::Bulk
            }
            _ => Lane::Urgent,
        }
    }

    /// The whole frame.
    pub fn to_frame(&self, node: u32) -> Vec<u8> {
        let payload = self.encode();
        let mut bytes = Vec::with_capacity(payload.len() + 64);
        super::encode_frame(self.kind(), node, &payload, &mut bytes);
        bytes
    }
}

impl Heartbeat {
    /// Whether it keeps its limit.
    pub fn within_limits(&self) -> bool {
        self.progress.len() <= PROGRESS_MAX
    }
}
