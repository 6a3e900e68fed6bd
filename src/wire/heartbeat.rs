//! Signs of life, and what they tell of a node's calls.

use super::codec::{code, record, Decoder, Encoder, Later, Wire, WireError};
use super::{CARRIERS_MAX, GONE_ON_MAX, PROGRESS_MAX, WAITS_MAX};
use crate::types::{Call, GroupId};
use std::fmt;
use std::time::Duration;

/// How long a call lasts before it counts as waiting. Its rank then says so in an extra heartbeat, with what it called before.
pub const WAITS_AFTER: Duration = Duration::from_millis(300);
/// How long ranks with different call digests have to say what they called before. Each does so once it has waited.
pub const COMPARED_WITHIN: Duration = WAITS_AFTER.saturating_mul(2);

record! {
    /// How far a node is in one group.
    pub struct GroupProgress {
        /// Which group.
        pub group: GroupId,
        /// The newest collective that it entered; 0: none yet.
        pub entered: u64,
        /// The newest collective that it finished.
        pub finished: u64,
        /// What the newest collective is that it entered.
        pub call: Option<Call>,
        /// How long ago it called that, in milliseconds.
        pub age_ms: u64,
    }
}

record! {
    /// A message for which a node waits.
    pub struct MessageWait {
        /// The message's group.
        pub group: GroupId,
        /// Whether the node sends the message. Else it receives it.
        pub sends: bool,
        /// The other end's rank in the group; none: any.
        pub peer: Option<u32>,
        /// Its tag; none: any.
        pub tag: Option<i32>,
        /// How long it has waited, in milliseconds.
        pub age_ms: u64,
    }
}

code! {
    /// What carries a group's collectives from rank to rank.
    pub enum Carrier {
        /// Links between the ranks.
        Links = 1,
        /// Memory that the ranks share.
        Memory = 2,
    }
}

impl Carrier {
    /// The name that people and programs are told.
    pub fn name(self) -> &'static str {
        match self {
            Carrier::Links => "links",
            Carrier::Memory => "memory",
        }
    }
}

record! {
    /// What carries a group's collectives. All members find that out alike, before the group's fourth collective.
    pub struct GroupCarrier {
        /// Which group.
        pub group: GroupId,
        /// What it is.
        pub carrier: Carrier,
        /// For memory, how many ranks share it, and where. For links, why the ranks share no memory.
        pub words: String,
    }
}

/// Shown as `world: memory (2 ranks on host a, 2.6 MiB)`.
impl fmt::Display for GroupCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.group, self.carrier.name(), self.words)
    }
}

/// The fewest bytes that a `MessageWait` takes: group, direction, no peer, no tag, age.
const WAIT_BYTES_LEAST: usize = 4 + 1 + 1 + 1 + 8;

/// A sign of life, echoed at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// The heartbeat's number, which grows by one.
    pub sequence: u64,
    /// The newest echo that the node has heard. If it stays the same, the node does not hear the scheduler.
    pub echoed: u64,
    /// How far the node is in each group that it has used; then, for groups in which it waits, what it called before. At
    /// most [`PROGRESS_MAX`] of both together.
    pub progress: Vec<GroupProgress>,
    /// Groups that its program had made and that are over: the program was told, and has gone on. The newest
    /// [`GONE_ON_MAX`] at most.
    pub gone_on: Vec<GroupId>,
    /// The messages for which it waits longest. At most [`WAITS_MAX`].
    pub waits: Vec<MessageWait>,
    /// What carries the groups in which this node has rank 0, as far as that is known. At most [`CARRIERS_MAX`]. Only where the
    /// scheduler takes up [`FEATURE_CARRIERS`](super::FEATURE_CARRIERS).
    pub carriers: Later<Vec<GroupCarrier>>,
}

/// The fewest bytes that a `GroupProgress` takes: group, two numbers, no call, age.
const PROGRESS_BYTES_LEAST: usize = 4 + 8 + 8 + 1 + 8;

impl Wire for Heartbeat {
    fn put(&self, to: &mut Encoder) {
        self.sequence.put(to);
        self.echoed.put(to);
        self.progress.put(to);
        self.gone_on.put(to);
        self.waits.put(to);
        self.carriers.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(Heartbeat {
            sequence: Wire::take(from)?,
            echoed: Wire::take(from)?,
            progress: {
                let count = from.count(PROGRESS_MAX, PROGRESS_BYTES_LEAST, "groups")?;
                (0..count).map(|_| Wire::take(from)).collect::<Result<_, _>>()?
            },
            gone_on: {
                let count =
                    from.count(GONE_ON_MAX, size_of::<GroupId>(), "groups after which the program has gone on")?;
                (0..count).map(|_| Wire::take(from)).collect::<Result<_, _>>()?
            },
            waits: {
                let count = from.count(WAITS_MAX, WAIT_BYTES_LEAST, "messages that are waited for")?;
                (0..count).map(|_| Wire::take(from)).collect::<Result<_, _>>()?
            },
            carriers: {
                let carriers: Later<Vec<GroupCarrier>> = Wire::take(from)?;
                match carriers.0.len() {
                    0..=CARRIERS_MAX => carriers,
                    many => return Err(WireError(format!("carriers of {many} groups: the limit is {CARRIERS_MAX}"))),
                }
            },
        })
    }
}

record! {
    /// The answer to a heartbeat.
    pub struct HeartbeatEcho {
        /// The number of the heartbeat that it answers.
        pub sequence: u64,
    }
}
