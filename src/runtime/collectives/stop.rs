//! One collective under way, and why it could not go on.

use super::turns::Turns;
use crate::error::{Error, Failure, Status};
use crate::runtime::base::interrupts::Attention;
use crate::runtime::links::link::LinkEnd;
use crate::runtime::state::context::Context;
use crate::types::{Call, Time};
use crate::wire::DataHeader;

/// The rank that a call waited for when its time was up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Awaited {
    pub peer: u32,
    /// The fault of the link to it, if there is one.
    pub fault: Option<String>,
}

/// Why a collective could not go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The cluster is broken, or the scheduler has revoked the group: the first cause, known to all.
    Told(Box<Failure>),
    /// A peer revoked the group.
    Heard(Box<Failure>),
    /// The link to this rank ended, or could not be opened.
    Ended(u32, LinkEnd),
    /// Data that this rank has laid down in shared memory does not have its checksum.
    Damaged(u32),
    /// The link to this rank has failed, and the scheduler says that the rank lives.
    Unreached(u32, String),
    /// This rank has left the cluster.
    Left(u32),
    /// This rank called something else, or is elsewhere in the sequence.
    Mismatch(u32, u64, Call),
    /// This rank made the same call, but called something else before.
    Earlier(u32),
    /// This rank sends so many elements where others are expected.
    Counts(u32, u64, u64),
    /// The time is up. The rank that the call waited for, if it had begun.
    Timeout(Option<Awaited>),
    /// There is no memory for a scratch of so many bytes.
    Memory(usize),
    /// The program has interrupted the call.
    Interrupted(Error),
    /// One part of a woven call cannot go on at once. A part in memory says for which rank of the host it waits.
    NotYet(Option<u32>),
    /// Something that this process needs cannot be had.
    Failed(Error),
    /// The call has panicked: a bug of this library.
    Bug,
}

impl Stop {
    /// Whether the call, or this part of it, goes on later from where it is.
    pub(crate) fn goes_on(&self) -> bool {
        matches!(self, Stop::Interrupted(_) | Stop::NotYet(_))
    }

    /// The reason why the caller does not wait for the call any more, if that is what has ended it.
    pub(crate) fn interrupted(&self) -> Option<&Error> {
        match self {
            Stop::Interrupted(why) => Some(why),
            _ => None,
        }
    }
}

/// One call under way.
pub(crate) struct Running<'a> {
    pub context: &'a Context,
    pub turns: &'a Turns,
    pub call: Call,
    pub sequence: u64,
    pub data: DataHeader,
    pub deadline: Time,
    pub limit_ms: i64,
    pub since: Time,
    /// The caller's attention, while the caller waits for the call.
    pub attention: &'a Attention<'a>,
    /// Whether this is one part of a woven call: it does not wait, but says that it cannot go on yet.
    pub is_woven: bool,
}

impl Running<'_> {
    /// `allreduce #1042 on world`
    pub(crate) fn title(&self) -> String {
        format!("{} #{} on {}", self.call.kind, self.sequence, self.data.group)
    }

    /// Whether a peer's last word ends this call. It does not if the peer says that ranks called different things in a later
    /// call: usually the peer has sent all that belongs to this call. This rank must reach the later call and say what it calls
    /// there, because the scheduler counts the ranks. See `Later`.
    pub(crate) fn ends_by(&self, failure: Failure) -> Result<(), Stop> {
        match failure.status == Status::Mismatch && failure.sequence > self.sequence {
            true => Ok(()),
            false => Err(Stop::Heard(Box::new(failure))),
        }
    }
}
