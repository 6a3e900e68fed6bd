//! What is true of a group for everything that goes on in it: its members, its time-outs, why it is over, and the bells
//! of the threads that wait for something on it. Both engines and the facade use it; it knows none of them.

use super::group_end::GroupEnd;
use super::node_state::NodeState;
use super::roster::Roster;
use super::silence::Bounds;
use crate::error::{Culprit, Error, Result, Status};
use crate::runtime::base::mailbox::Signal;
use crate::runtime::base::polling::Polls;
use crate::runtime::base::request::Requests;
use crate::runtime::base::sync;
use crate::types::{Epoch, GroupId, Time};
use crate::wire::Formed;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The threads that look up when something has happened to the group.
pub(crate) struct Bells {
    /// The thread that drives a collective.
    pub collectives: sync::Arc<Signal>,
    /// The thread that sees to messages, once there is one.
    pub messages: OnceLock<sync::Arc<Signal>>,
}

/// When an operation was called, and how long it may take from then on, in milliseconds; `i64::MAX`: without limit. The
/// group's time-out of that moment counts, whenever the operation begins.
#[derive(Clone, Copy)]
pub(crate) struct TimeLimit {
    pub since: Time,
    pub limit_ms: i64,
}

impl TimeLimit {
    /// The time at which the operation has taken too long.
    pub(crate) fn deadline(self) -> Time {
        match u64::try_from(self.limit_ms) {
            Ok(limit) if self.limit_ms != i64::MAX => self.since + Duration::from_millis(limit),
            _ => Time::NEVER,
        }
    }
}

/// A group of one epoch, as one of its members (or a bystander) sees it.
pub(crate) struct Context {
    pub roster: Arc<Roster>,
    pub state: Arc<NodeState>,
    /// How long its calls poll before they sleep.
    pub polls: Polls,
    /// When something is done about silent links.
    pub bounds: Bounds,
    pub default_timeout_ms: i64,
    timeout_ms: AtomicI64,
    /// Why the group is over, as its calls tell it.
    pub(super) end: GroupEnd,
    /// What a peer is told if its link comes when this node does not use the group any more.
    pub last_word: OnceLock<Vec<u8>>,
    pub bells: Bells,
    pub requests: Requests,
}

impl Context {
    pub(crate) fn new(
        roster: Arc<Roster>,
        state: &Arc<NodeState>,
        timeout_ms: i64,
        bell: sync::Arc<Signal>,
    ) -> Context {
        let formed = &roster.formed;
        Context {
            state: Arc::clone(state),
            polls: Polls::new(formed.local_size, state.polling.cores, state.polling.set),
            bounds: Bounds::of(&formed.agreed),
            default_timeout_ms: timeout_ms,
            timeout_ms: AtomicI64::new(timeout_ms),
            end: GroupEnd::default(),
            last_word: OnceLock::new(),
            bells: Bells { collectives: bell, messages: OnceLock::new() },
            requests: Requests::new(&state.program),
            roster,
        }
    }

    /// The cluster that the group belongs to.
    pub(crate) fn formed(&self) -> &Arc<Formed> {
        &self.roster.formed
    }

    /// The group's id.
    pub(crate) fn id(&self) -> GroupId {
        self.roster.id
    }

    /// The epoch that the group belongs to.
    pub(crate) fn epoch(&self) -> Epoch {
        self.roster.formed.epoch
    }

    /// Whether the user made the group, so that a member can free it.
    pub(crate) fn is_made(&self) -> bool {
        self.roster.is_made()
    }

    /// This node's rank in the group; none if it is no member.
    pub(crate) fn rank(&self) -> Option<u32> {
        self.roster.rank
    }

    /// This node's rank, for the sentences of a call: only members call.
    pub(crate) fn own_rank(&self) -> u32 {
        self.rank().unwrap_or(0)
    }

    /// How many members the group has.
    pub(crate) fn size(&self) -> u32 {
        self.roster.size()
    }

    /// The member's index among all nodes.
    pub(crate) fn index_of(&self, rank: u32) -> Option<u32> {
        self.roster.index_of(rank)
    }

    /// The rank of the node with this index.
    pub(crate) fn rank_of(&self, index: u32) -> Option<u32> {
        self.roster.rank_of(index)
    }

    /// Sets how long an operation may take, in milliseconds; `i64::MAX`: without limit; -1: the default again.
    pub(crate) fn set_timeout_ms(&self, timeout_ms: i64) -> Result<()> {
        let limit = match timeout_ms {
            -1 => self.default_timeout_ms,
            0.. => timeout_ms,
            _ => {
                return Err(Error::invalid(format!("timeout_ms is {timeout_ms}: expected -1 (the default), 0 or more")))
            }
        };
        self.timeout_ms.store(limit, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn checked_index(&self, rank: i32) -> Result<u32> {
        let index = u32::try_from(rank).ok().and_then(|rank| self.index_of(rank));
        index.ok_or_else(|| match self.size() {
            0 => Error::invalid(format!("rank is {rank}: {} has no members", self.id())),
            size => Error::invalid(format!("rank is {rank}: expected 0 to {} on {}", size - 1, self.id())),
        })
    }

    pub(crate) fn timeout_ms(&self) -> i64 {
        self.timeout_ms.load(Ordering::Relaxed)
    }

    /// The time of an operation that is called now.
    pub(crate) fn time_limit(&self) -> TimeLimit {
        TimeLimit { since: self.state.clock.now(), limit_ms: self.timeout_ms() }
    }

    /// The error of a call that begins after this node has ended its use of the group.
    pub(crate) fn freed_error(&self) -> Error {
        Error::new(Status::State, format!("{} has been freed, or its cluster left", self.id()))
    }

    /// How a failure names the member with this rank.
    pub(crate) fn culprit(&self, rank: u32) -> Option<Culprit> {
        self.roster.culprit(rank)
    }

    /// How a sentence names the member with this rank.
    pub(crate) fn describe(&self, rank: u32) -> String {
        self.roster.describe(rank)
    }

    /// Makes everybody who waits for something on the group look up: there is mail, or the group or the cluster is over.
    pub(crate) fn interrupt(&self) {
        self.bells.collectives.raise();
        self.interrupt_messages();
    }

    pub(crate) fn interrupt_messages(&self) {
        self.bells.messages.get().into_iter().for_each(|bell| bell.raise());
    }
}
