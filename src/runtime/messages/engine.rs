//! The engine of a group's messages: its transfers, the frames that move them, and their times. All that can happen to it is a
//! method here or in a file that the table in `mod.rs` names.
//!
//! Invariant: on each link, eager messages and announcements go out in the order in which their sends were posted.

use super::deadlines::Deadlines;
use super::matching::Wanted;
use super::operation::Post;
use super::ranks::Ranks;
use super::transfers::Transfers;
use crate::error::{Failure, Result};
use crate::runtime::base::request::{Completer, Received};
use crate::runtime::state::roster::Roster;
use crate::runtime::state::silence::{Bounds, SilenceWatch};
use crate::types::Time;
use std::collections::TryReserveError;
use std::sync::Arc;

/// What has broken the messages of a group, and so the group.
pub(super) enum Trouble {
    /// A peer revoked it.
    Heard(Failure),
    /// Bytes that came from this rank are damaged.
    Corrupt(u32, String),
    /// There is no memory here for a message of so many bytes that came from this rank.
    Memory(u32, usize),
    /// The link to this rank cannot be what it has to be.
    Unsupported(u32, String),
}

/// The state of one group's messages.
pub(super) struct Engine {
    pub transfers: Transfers,
    pub deadlines: Deadlines,
    /// The peers that operations wait for, and whether their links are silent.
    pub silence: SilenceWatch,
    /// Peers from which more can be read without waiting.
    pub more: Ranks,
    /// How many callers look again and again for what comes. Meanwhile the poller need not tell of peers whose links
    /// have been looked at: the callers look at all of these, and tell the links when they stop.
    pub callers: u32,
    pub looked_at: Ranks,
    pub trouble: Option<Trouble>,
    /// The reason why nothing can be posted any more.
    pub failed: Option<Failure>,
    /// The failure of the newest operation whose time was up: nothing is over because of it.
    pub late: Option<Failure>,
    /// The time until which the progress thread sleeps at most.
    pub alarm: Time,
    /// How often a frame, or a part of one, has moved.
    pub moved: u64,
    /// Memory in which headers are encoded, and links collected: kept, so that in the long run nothing is allocated.
    pub head: Vec<u8>,
    pub open: Vec<u32>,
}

impl Engine {
    /// An engine in which nothing is posted, and nothing has come.
    pub(super) fn new(roster: &Arc<Roster>) -> Engine {
        Engine {
            transfers: Transfers::new(roster),
            deadlines: Deadlines::default(),
            silence: SilenceWatch::new(Bounds::of(&roster.formed.agreed)),
            more: Ranks::none_of(roster.members.len()),
            callers: 0,
            looked_at: Ranks::none_of(roster.members.len()),
            trouble: None,
            failed: None,
            late: None,
            alarm: Time::NEVER,
            moved: 0,
            head: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Whether there is something that only the progress thread can do.
    pub(super) fn needs_attention(&self) -> bool {
        !self.more.is_empty() || !self.transfers.suspects.is_empty() || self.trouble.is_some()
    }

    /// Whether these may be posted, one after the other. Once the first is posted, it is too late to refuse the second.
    pub(super) fn check(&self, first: &Post, second: Option<&Post>) -> Result<()> {
        match &self.failed {
            Some(failure) => Err(failure.clone().into()),
            None => self.transfers.check(first, second),
        }
    }

    /// The message that such a receive would get, if there is one now.
    pub(super) fn look_for(&mut self, wanted: Wanted) -> Result<Option<Received>> {
        match &self.failed {
            Some(failure) => Err(failure.clone().into()),
            None => self.transfers.look_for(wanted),
        }
    }

    /// Whether a post may need more memory than there is: for two operations and the queues in which they wait, and for
    /// a message to oneself of so many bytes.
    pub(super) fn is_full(&self, to: Option<u32>, own_bytes: usize) -> bool {
        self.deadlines.is_full() || self.transfers.is_full(to, own_bytes)
    }

    /// Makes room for such a post.
    pub(super) fn reserve(&mut self, to: Option<u32>, own_bytes: usize) -> Result<(), TryReserveError> {
        self.deadlines.reserve()?;
        self.transfers.reserve(to, own_bytes)
    }

    /// Posts an operation that has been checked; it may have ended when this returns.
    pub(super) fn post(&mut self, post: Post, since: Time, limit_ms: i64, deadline: Time, completer: Completer) {
        if deadline != Time::NEVER {
            self.deadlines.forget_ended(&self.transfers);
            self.deadlines.add(since, deadline, self.transfers.upcoming());
        }
        self.transfers.post(post, since, limit_ms, deadline, completer);
    }
}
