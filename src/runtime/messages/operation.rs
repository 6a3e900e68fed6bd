//! One send or receive, from its posting to its end.

use super::matching::{MessageId, Wanted};
use crate::runtime::base::request::Completer;
use crate::runtime::memory::buffer::CallBuffers;
use crate::runtime::state::roster::Roster;
use crate::types::{DType, GroupId, Time};
use crate::wire::MessageWait;
use std::time::Duration;

/// How many deadlines of operations that have ended may be kept.
pub(super) const DEADLINES_KEPT: usize = 1024;
/// How long before an operation's deadline the scheduler is asked where the peer is.
pub(super) const ASKED_BEFORE: Duration = Duration::from_millis(250);

/// The time at which the scheduler is asked where the peer of an operation is.
pub(super) fn asked_at(since: Time, deadline: Time) -> Time {
    deadline - ASKED_BEFORE.min(deadline.since(since) / 2)
}

/// What a caller posts.
pub struct Post {
    /// The direction of the message, and its peer.
    pub direction: Direction,
    /// The element type.
    pub dtype: DType,
    /// How many elements are sent, or may come at most.
    pub count: u64,
    /// The elements' memory: the input of a send, the output of a receive.
    pub buffers: CallBuffers<'static>,
    /// A send's input, if it is a copy of what the caller gave. It lives as long as the operation.
    _copy: Vec<u8>,
}

impl Post {
    /// A post with the caller's memory.
    pub fn new(direction: Direction, dtype: DType, count: u64, buffers: CallBuffers<'static>) -> Post {
        Post { direction, dtype, count, buffers, _copy: Vec::new() }
    }

    /// The same send with a copy of its input, in which `buffers` lie.
    pub fn of_copy(self, copy: Vec<u8>, buffers: CallBuffers<'static>) -> Post {
        Post { buffers, _copy: copy, ..self }
    }

    /// How many bytes its buffer has.
    pub fn bytes(&self) -> usize {
        self.count as usize * self.dtype.size()
    }

    /// What is posted, in words that go on with the peer.
    pub(super) fn words(&self) -> String {
        let (count, dtype) = (self.count, self.dtype);
        let of = |tag: Option<i32>| tag.map_or("any tag".to_owned(), |tag| format!("tag {tag}"));
        match self.direction {
            Direction::Send { tag, .. } => format!("send({count} {dtype}, tag {tag}) to"),
            Direction::Receive { tag, .. } => format!("recv({count} {dtype}, {}) from", of(tag)),
            Direction::Probe { tag, .. } => format!("probe({}) from", of(tag)),
        }
    }
}

/// The direction of a message, and its source or target and tag.
#[derive(Clone, Copy, Debug)]
pub enum Direction {
    /// A send to this rank.
    Send {
        /// The receiver's rank.
        to: u32,
        /// 0 or more.
        tag: i32,
    },
    /// A receive from this rank, or from any.
    Receive {
        /// The sender's rank.
        from: Option<u32>,
        /// The message's tag.
        tag: Option<i32>,
    },
    /// A probe of messages from this rank, or from any: the message is not taken.
    Probe {
        /// The sender's rank.
        from: Option<u32>,
        /// The message's tag.
        tag: Option<i32>,
    },
}

impl Direction {
    /// The name of the direction's function, without the prefix that all functions have.
    pub(super) fn name(self) -> &'static str {
        match self {
            Direction::Send { .. } => "send",
            Direction::Receive { .. } => "recv",
            Direction::Probe { .. } => "probe",
        }
    }

    /// The rank that it names, if it names one.
    pub(super) fn peer(self) -> Option<u32> {
        match self {
            Direction::Send { to, .. } => Some(to),
            Direction::Receive { from, .. } | Direction::Probe { from, .. } => from,
        }
    }

    /// What a receive or a probe asks for.
    pub(super) fn wanted(self) -> Option<Wanted> {
        match self {
            Direction::Receive { from, tag } | Direction::Probe { from, tag } => Some(Wanted { source: from, tag }),
            Direction::Send { .. } => None,
        }
    }
}

/// What a call that waits is called: `recv with rank 1 (...) on world`. A receive with a send beside it:
/// `sendrecv to rank 1 (...) and from any rank on world`.
pub(super) fn call_title((first, send): (Direction, Option<Direction>), roster: &Roster) -> String {
    let name = |peer: Option<u32>| peer.map_or("any rank".to_owned(), |rank| roster.describe(rank));
    let from = first.peer();
    let words = match send.map(Direction::peer) {
        None => format!("{} with {}", first.name(), name(from)),
        Some(to) if to == from => format!("sendrecv with {}", name(to)),
        Some(to) => format!("sendrecv to {} and from {}", name(to), name(from)),
    };
    format!("{words} on {}", roster.id)
}

impl Post {
    /// A question for the next message that a receive would get.
    pub fn probe(from: Option<u32>, tag: Option<i32>) -> Post {
        let buffers = CallBuffers::of(&[], &mut []);
        Post::new(Direction::Probe { from, tag }, DType::Uint8, 0, buffers)
    }
}

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A send that has not begun.
    Waiting,
    /// A send whose one frame is going out.
    Leaving,
    /// A send that is announced under this number.
    Requested(u64),
    /// An announced send that its caller has cancelled: the receiver has been asked for it, and says whether a receive
    /// has matched it.
    Recalled(u64),
    /// A send that goes out in pieces: its number, and how many bytes have gone.
    Cleared(u64, usize),
    /// A receive that waits for a message, or a probe.
    Posted,
    /// A receive whose message is coming in as one frame.
    Met(MessageId),
    /// A receive whose message comes in pieces: so many bytes are here.
    Coming(MessageId, usize),
}

/// One operation.
pub(super) struct Operation {
    pub post: Post,
    pub stage: Stage,
    /// Whether its caller has cancelled it although it was already matched. If the message of such a receive does not
    /// come, the receive ends.
    pub is_cancelled: bool,
    pub since: Time,
    pub limit_ms: i64,
    pub deadline: Time,
    /// The request that hears of its end; it may stand for two operations.
    pub completer: Completer,
}

impl Operation {
    /// How many bytes its buffer has.
    pub(super) fn bytes(&self) -> usize {
        self.post.bytes()
    }

    /// What is told of a waiting operation.
    pub(super) fn wait(&self, group: GroupId, now: Time) -> MessageWait {
        let (sends, tag) = match self.post.direction {
            Direction::Send { tag, .. } => (true, Some(tag)),
            Direction::Receive { tag, .. } | Direction::Probe { tag, .. } => (false, tag),
        };
        MessageWait { group, sends, peer: self.peer(), tag, age_ms: now.since(self.since).as_millis() as u64 }
    }

    /// The operation's peer, if it names one.
    pub(super) fn peer(&self) -> Option<u32> {
        match self.stage {
            Stage::Met(message) | Stage::Coming(message, _) => Some(message.source),
            _ => self.post.direction.peer(),
        }
    }
}

/// The words about a message that does not fit the receive that it met.
pub(super) fn misfit(sent: (u64, DType), room: (u64, DType), from: &str, to: &str) -> String {
    format!("{from} sent {} {} where {to} receives at most {} {}", sent.0, sent.1, room.0, room.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::links::mesh::tests::formed;
    use std::sync::Arc;

    #[test]
    fn a_call_that_waits_names_all_that_it_waits_for() {
        let nowhere = ([127, 0, 0, 1], 1).into();
        let roster = Roster::of(GroupId::WORLD, vec![0, 1], &Arc::new(formed(0, [nowhere; 2])));
        let [own, other] = [0, 1].map(|rank| roster.describe(rank));
        let receive = |from| Direction::Receive { from, tag: None };
        let probe = |from| Direction::Probe { from, tag: None };
        let send = |to| Direction::Send { to, tag: 5 };
        for (asked, words) in [
            ((receive(Some(1)), None), format!("recv with {other}")),
            ((receive(None), None), "recv with any rank".to_owned()),
            ((probe(Some(1)), None), format!("probe with {other}")),
            ((send(1), None), format!("send with {other}")),
            ((receive(Some(1)), Some(send(1))), format!("sendrecv with {other}")),
            ((receive(Some(0)), Some(send(1))), format!("sendrecv to {other} and from {own}")),
            ((receive(None), Some(send(1))), format!("sendrecv to {other} and from any rank")),
        ] {
            assert_eq!(call_title(asked, &roster), format!("{words} on world"));
        }
    }
}
