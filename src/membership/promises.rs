//! What waits to be durable before it goes out. Tested in `promises_test.rs` and `held_test.rs`.
//!
//! | durable first | then sent |
//! | --- | --- |
//! | an epoch: nodes, ranks, lives, token hashes, secret, settings | any Formed of it |
//! | a group, or that a node uses it no more | its answer |
//! | a change of the store, with the node that asked, and the result | its acknowledgement |
//! | a node has left | Bye, and that there is no next epoch |
//! | nobody is started in a place any more | that there is no next epoch |
//! | the job is done | the scheduler's end |
//! | the job is aborted | the verdict on the abort, to the node that aborts and to the one that hosts the scheduler |
//!
//! [`Output::Persist`] carries a growing number. What depends on it is held back until [`Input::Persisted`] has told
//! that number or a greater one. Signs of life are never held back. Verdicts are held back only behind an epoch that is
//! not durable yet, for they would be taken for verdicts on the one before. A program that has been told of an abort may
//! end at once, and its scheduler with it: so two nodes are told later. Losses are not written: `restart.rs` says why.
//!
//! [`Input::Persisted`]: super::Input::Persisted

use super::contract::{ConnId, Output};
use crate::types::Epoch;
use crate::wire::{Blob, Message, Record};
use std::collections::{HashMap, VecDeque};

/// An output that is ready, or one that is made only when it is taken: the members that a node of a large cluster is
/// told of, or the pieces of a long value.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // most of them are the large one
pub(super) enum Queued {
    Ready(Output),
    /// A `Formed` of this epoch, to each of these connections, for the node with the index beside it.
    Formed(Epoch, VecDeque<(ConnId, u32)>),
    /// The rest of a value, from this byte on.
    Value(ConnId, u64, Blob, usize),
}

/// What must be durable before something goes out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Behind {
    Nothing,
    /// The newest epoch. Records after that don't count: what is sent at once would overtake it.
    Epoch,
    /// Everything that was promised so far.
    Everything,
}

/// What waits to be durable.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// The number of the newest record.
    newest: u64,
    /// The number up to which records are durable.
    durable: u64,
    /// The newest epoch's number.
    epoch: u64,
    /// Whether the job's end is among the records.
    done: bool,
    /// What is held back, in order of the records that it waits for.
    held: VecDeque<(u64, Queued)>,
    /// How many answers of the store are held back, for each connection.
    replies: HashMap<ConnId, usize>,
}

impl Promises {
    pub(super) fn holds_for(&self, conn: ConnId) -> bool {
        self.held.iter().any(|(_, queued)| queued.is_for(conn))
    }

    /// How many answers of the store are held back from this connection.
    pub(super) fn replies_to(&self, conn: ConnId) -> usize {
        self.replies.get(&conn).copied().unwrap_or(0)
    }

    /// Counts one more record.
    pub(super) fn count(&mut self, record: &Record) -> u64 {
        self.newest += 1;
        match record {
            Record::Epoch(_) => self.epoch = self.newest,
            Record::Done => self.done = true,
            _ => {}
        }
        self.newest
    }

    /// All records up to this one are durable.
    pub(super) fn are_durable(&mut self, number: u64) {
        self.durable = self.durable.max(number);
    }

    /// Holds back this output until its record is durable. If it may go out at once, returns it instead.
    pub(super) fn hold_behind(&mut self, behind: Behind, queued: Queued) -> Option<Queued> {
        if !self.holds_back(behind) {
            return Some(queued);
        }
        self.hold(self.number(behind), queued);
        None
    }

    /// Whether what waits for this would be held back now.
    pub(super) fn holds_back(&self, behind: Behind) -> bool {
        self.number(behind) > self.durable
    }

    fn number(&self, behind: Behind) -> u64 {
        match behind {
            Behind::Nothing => 0,
            Behind::Epoch => self.epoch,
            Behind::Everything => self.newest,
        }
    }

    /// Whether the job's end was promised.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// How much is held back.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    fn hold(&mut self, number: u64, queued: Queued) {
        if let Some(conn) = queued.is_reply_to() {
            *self.replies.entry(conn).or_default() += 1;
        }
        let at = self.held.partition_point(|(held, _)| *held <= number);
        self.held.insert(at, (number, queued));
    }

    /// The next output that nothing holds back any more.
    pub(super) fn release(&mut self) -> Option<Queued> {
        self.held.front().filter(|(number, _)| *number <= self.durable)?;
        let (_, queued) = self.held.pop_front()?;
        if let Some(conn) = queued.is_reply_to() {
            let left = self.replies_to(conn).saturating_sub(1);
            match left {
                0 => drop(self.replies.remove(&conn)),
                left => drop(self.replies.insert(conn, left)),
            }
        }
        Some(queued)
    }

    /// A connection has ended: nothing reaches it any more.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.replies.remove(&conn);
        self.held.retain(|(_, queued)| !queued.is_only_for(conn));
    }
}

impl Queued {
    fn is_for(&self, wanted: ConnId) -> bool {
        match self {
            Queued::Ready(Output::Send(conn, _) | Output::Close(conn)) | Queued::Value(conn, ..) => *conn == wanted,
            Queued::Formed(_, to) => to.iter().any(|(conn, _)| *conn == wanted),
            Queued::Ready(_) => false,
        }
    }

    fn is_only_for(&self, conn: ConnId) -> bool {
        !matches!(self, Queued::Formed(..)) && self.is_for(conn)
    }

    /// The connection that this answers, if it is an answer of the store.
    fn is_reply_to(&self) -> Option<ConnId> {
        match self {
            Queued::Ready(Output::Send(conn, Message::StoreReply(_))) => Some(*conn),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "held_test.rs"]
mod held_tests;
#[cfg(test)]
#[path = "promises_test.rs"]
mod tests;
