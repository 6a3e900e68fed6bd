//! What goes into the node's brain and what comes out of it.

use crate::error::{Culprit, Error, Failure};
use crate::types::Time;
use crate::wire::{
    Absent, Blob, Formed, GroupMade, LinkBeat, MakeByMembers, MakeGroup, Member, Message, PeerState, Register,
    StoreOperation,
};
use std::net::SocketAddr;
use std::time::Duration;

/// A question of the caller's, answered by one `Event` with the same number.
pub type Ask = u64;

/// One thing that has happened.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // they live briefly, and rarely in numbers
pub enum Input {
    /// The connection that `Output::Connect` asked for is there; peers reach this node at these addresses.
    Connected(Vec<SocketAddr>),
    /// It could not be made; the reason in words, with the address.
    ConnectFailed(String),
    /// A whole message came in.
    Received(Message),
    /// Bytes came in: a sign of life. Told at most once per round of reading.
    Heard,
    /// The connection ended, for the reason in words.
    Closed(String),
    /// The connection was given up, because what came in is of no version of this protocol; in words.
    Strange(String),
    /// One side does not accept the other: its certificate, say. The connection has ended.
    Refused(String),
    /// The armed time has come. Fed only after everything readable has been fed.
    Timer,
    /// The caller wants something.
    Command(Command),
    /// What has been seen on the watches between this node and the nodes with these indexes, in order. All are taken in
    /// together: what follows from them is looked for once, which costs a look at every node.
    Peers(Vec<(u32, PeerSign)>),
}

impl Input {
    /// One sign of one node.
    #[cfg(test)]
    pub fn of_peer(index: u32, sign: PeerSign) -> Self {
        Self::Peers(vec![(index, sign)])
    }
}

/// What is seen of another node on a watch.
#[derive(Clone, Debug)]
pub enum PeerSign {
    /// A connection stands, whichever side dialled, and both have shown that they know the epoch's secret.
    Stands,
    /// It says something.
    Says(PeerWord),
    /// Nobody accepts the connection that was asked for: no process listens there any more; in words.
    Refused(String),
    /// Its host gave no answer, or there was no way to ask; another attempt may be made.
    Unanswered,
    /// The last connection to it has ended.
    Ended(String),
    /// This node itself has no descriptor for the connection: it knows nothing of the peer.
    Unable,
    /// The answer to [`ToPeer::Look`].
    Seen(Seen),
}

/// What a look at another node has shown.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// What is known of its process.
    pub process: PeerProcess,
    /// Whether its kernel answers.
    pub answers: bool,
}

/// What this host knows of another node's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerProcess {
    /// It has ended.
    Gone,
    /// It runs, or is stopped.
    Lives,
    /// This host cannot tell: it is on another host, or in another namespace of process ids, or the kernel does not say.
    Unknown,
}

/// What two nodes say to each other on a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerWord {
    /// A sign of life.
    Beat(LinkBeat),
    /// The node with this index may be lost; and what was seen of it.
    Suspect(u32, String),
    /// The first cause, for which the speaker has given up.
    GivesUp(Failure),
    /// The speaker leaves.
    Leaves,
}

/// What is to be done about another node on a watch.
#[derive(Clone, Debug)]
pub enum ToPeer {
    /// Connect to it; answered by `Stands`, `Refused` or `Unanswered`, or not at all.
    Watch,
    /// Say this, if a connection stands.
    Say(PeerWord),
    /// Look at its process and its kernel, at once.
    Look,
    /// Close the connection; a close has no answer.
    Close,
}

/// What a caller can want.
#[derive(Clone, Debug)]
pub enum Command {
    /// Leave the cluster: answered by `Event::Left`.
    Leave,
    /// A peer's link ended or can't be opened. Answered by `Event::Broken`, by `Event::Peer`, or not at all.
    Suspect {
        /// Its index.
        peer: u32,
        /// What was seen.
        evidence: String,
    },
    /// Tell the scheduler now, and not only with the next heartbeat, which collectives this node is in.
    Report,
    /// Give up on a group. Answered by `Event::Revoked` with the first cause that reached the scheduler.
    Revoke(Failure),
    /// Ask which members have not entered this collective, or where the node with this index is. Answered by `Event::Absent`.
    WhereAre(Ask, crate::types::GroupId, u64, Option<u32>),
    /// Make a group. Answered by `Event::GroupMade` or `Event::NotMade`, or not at all where the parent is revoked.
    MakeGroup(MakeGroup),
    /// Make a group with its other members alone, or do not wait for it any more. Answered by `Event::MadeByMembers`, or not at
    /// all where the epoch ends.
    MakeByMembers(MakeByMembers),
    /// Wait for the next epoch (or, with `false`, not any more). Answered by `Event::Formed`, `Event::NotRecovered` or
    /// `Event::Broken`.
    Recover(bool),
    /// This node no longer uses a group that was made.
    FreeGroup(crate::types::GroupId),
    /// Which node has this index? Answered by `Event::Located`.
    Locate(Ask, u32),
    /// A store request. Answered by `Event::Stored`, unless cancelled.
    Store {
        /// Its number: growing, and the request id on the wire.
        ask: Ask,
        /// What is asked.
        operation: StoreOperation,
        /// The keys that it is about.
        keys: Vec<Blob>,
        /// The number that `Add` adds.
        delta: i64,
        /// The length of the expected value of `CompareSet`.
        expected_bytes: u64,
        /// The value, or expected and desired value one after the other.
        value: Blob,
    },
    /// The caller no longer waits for this store request.
    StoreCancel(Ask),
    /// End the job for all. Answered by `Event::Broken`.
    Abort {
        /// The program's code.
        code: i32,
        /// The program's reason.
        reason: String,
    },
    /// A node has ended the job for all, and says so itself, for the scheduler does not answer it. Answered by
    /// `Event::Broken`.
    Aborted(Failure),
    /// A peer says that this node is lost. Answered by `Event::Broken` where that is the scheduler's verdict.
    CalledLost(Failure),
}

/// What the caller learns.
#[derive(Clone, Debug)]
pub enum Event {
    /// The cluster is complete, for the first time or in a new epoch.
    Formed(Box<Formed>),
    /// The next epoch is not complete, for this reason.
    NotRecovered(Failure),
    /// It will not be: this is the error of `muster_init`. Nothing follows.
    Failed(Error),
    /// The cluster is broken, for this first cause. Told once.
    Broken(Failure),
    /// A group is revoked.
    Revoked(Failure),
    /// Which nodes are lost in the present epoch, by index.
    Lost(Vec<u32>),
    /// What the scheduler knows of a suspect that is not lost.
    Peer(u32, PeerState, Culprit),
    /// The answer to `WhereAre`.
    Absent(Ask, Absent),
    /// The answer to `Locate`.
    Located(Ask, Member),
    /// The answer to `MakeGroup`.
    GroupMade(GroupMade),
    /// The answer to `MakeByMembers`: the group, or why there is none.
    MadeByMembers(MakeByMembers, Result<crate::types::GroupId, Error>),
    /// The n-th group of this one will not be made, and why: there is no scheduler any more.
    NotMade(crate::types::GroupId, u64, Error),
    /// The answer to a store request: number and value, or why not.
    Stored(Ask, Result<(i64, Vec<u8>), Error>),
    /// The scheduler cannot be reached (in words), although the cluster goes on; or (`None`) it can again.
    SchedulerAway(Option<String>),
    /// This node hears neither its scheduler nor any other node; or (`None`) it does again. Only with recovery: without, it is the
    /// first cause that breaks the cluster.
    CutOff(Option<Failure>),
    /// The scheduler has said Bye, or there is none to say it (`Some`: a warning in words). Nothing follows.
    Left(Option<String>),
}

/// One thing to do, in order.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // they live briefly, and rarely in numbers
pub enum Output {
    /// Connect to the scheduler, within this time; answered by `Connected` or `ConnectFailed`. What is left of an
    /// earlier connection is dropped, written or not.
    Connect {
        /// Which of the profile's places.
        place: usize,
        /// How long that may take.
        within: Duration,
    },
    /// Close the connection, once what was sent before is written (within a bound that the driver keeps), or give up the
    /// attempt to make one. Nothing more of it is fed: no `Received`, no `Closed`, no answer to `Connect`.
    Disconnect,
    /// Send a message.
    Send(Message),
    /// Send a `Heartbeat` with these numbers, and with the progress of the groups as it is now.
    SendHeartbeat {
        /// Its sequence number.
        sequence: u64,
        /// The newest echo heard.
        echoed: u64,
    },
    /// Send a `Called`: what this node called under this number, if it knows.
    SendCall {
        /// The group on which it was called.
        group: crate::types::GroupId,
        /// The collective's sequence number.
        sequence: u64,
    },
    /// Feed `Input::Timer` at this time; replaces what was armed before.
    Arm(Time),
    /// A line for the log, at warning level or, with `true`, at information level.
    Log {
        /// Whether it is only information.
        quiet: bool,
        /// The line.
        line: String,
    },
    /// Tell the caller.
    Tell(Event),
    /// Do something about the node with this index, which is watched.
    Peer(u32, ToPeer),
}

/// This node's identity, and what it was told.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Its registration, without addresses (they come with `Connected`).
    pub register: Register,
    /// Where the scheduler is, for sentences. It is at one of several places, and they are tried in this order.
    pub schedulers: Vec<String>,
    /// The settings that say so, by the names by which the user knows them: `MS_SCHED_HOST and MS_SCHED_PORT`.
    pub scheduler_settings: String,
    /// How long forming may take, counted from the start.
    pub forming_timeout: Option<Duration>,
    /// The setting that says so, in words.
    pub forming_setting: String,
    /// The heartbeat time-out before `Formed` says what is agreed.
    pub heartbeat_timeout: Duration,
    /// How long leaving may take.
    pub finalize_timeout: Duration,
    /// Seeds the jitter of the back-off.
    pub seed: u64,
}
