//! A group, as its callers hold it: what is true of it (`state/context`), and the two engines that work on it.
//!
//! The agent thread mails links, and interrupts. If it hears that the group is over while no call has the driver, it
//! says so on the links. It does nothing else.

use crate::error::{Error, Failure, Result, Status};
use crate::runtime::base::mailbox::{Mailbox, Signal};
use crate::runtime::base::one_thread::OneThread;
use crate::runtime::base::request::{Outcome, Request};
use crate::runtime::base::sync::Bell;
use crate::runtime::collectives::call_log::CallLog;
use crate::runtime::collectives::engine::Collectives;
use crate::runtime::collectives::queued_call::Work;
use crate::runtime::links::peers::Mail;
use crate::runtime::messages::{Messages, Post};
use crate::runtime::state::context::Context;
use crate::runtime::state::node_state::NodeState;
use crate::runtime::state::roster::Roster;
use crate::schedules::kernels::UserFunction;
use crate::types::{Epoch, GroupId, ReduceOp};
use crate::wire::{Channel, Formed};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// A group of one epoch, as one of its members (or a bystander) sees it.
pub struct Group {
    pub(crate) context: Arc<Context>,
    pub(crate) collectives: Arc<Collectives>,
    pub(crate) messages: Arc<Messages>,
    /// How many groups this node's program has made of this one so far; with recovery, in all epochs.
    pub(crate) creations: AtomicU64,
    /// After a restart one thread at a time makes again what the other members have made of this group.
    pub(super) remaking: OneThread,
}

impl Group {
    /// A group of these nodes (indices in the cluster, in order of rank).
    pub fn new(
        id: GroupId,
        members: Vec<u32>,
        state: &Arc<NodeState>,
        formed: &Arc<Formed>,
        timeout_ms: i64,
    ) -> Result<Group> {
        let signal = Signal::new(Bell::new()?);
        let roster = Arc::new(Roster::of(id, members, formed));
        let context = Arc::new(Context::new(roster, state, timeout_ms, signal.clone()));
        Ok(Group {
            collectives: Arc::new(Collectives::new(&context, Mailbox::new(signal))),
            messages: Arc::new(Messages::new(&context)),
            context,
            creations: AtomicU64::new(0),
            remaking: OneThread::default(),
        })
    }

    /// The same group in the next epoch.
    pub(crate) fn renewed(&self, formed: &Arc<Formed>) -> Result<Group> {
        let own = &self.context;
        let next = Group::new(own.id(), own.roster.members.clone(), &own.state, formed, own.default_timeout_ms)?;
        if own.state.recovery {
            next.creations.store(self.creations.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(next)
    }

    /// The group's id.
    pub fn id(&self) -> GroupId {
        self.context.id()
    }

    /// The epoch that the group belongs to.
    pub(crate) fn epoch(&self) -> Epoch {
        self.context.epoch()
    }

    /// Whether the user made the group, so that a member can free it.
    pub fn is_made(&self) -> bool {
        self.context.is_made()
    }

    /// This node's rank in the group; none if it is no member.
    pub fn rank(&self) -> Option<u32> {
        self.context.rank()
    }

    /// How many members the group has.
    pub fn size(&self) -> u32 {
        self.context.size()
    }

    /// Sets how long an operation may take, in milliseconds; `i64::MAX`: without limit; -1: the default again.
    pub fn set_timeout_ms(&self, timeout_ms: i64) -> Result<()> {
        self.context.set_timeout_ms(timeout_ms)
    }

    /// Notes that so many groups have been made of this one.
    pub(crate) fn has_made(&self, nth: u64) {
        self.creations.store(nth, Ordering::Relaxed);
    }

    /// The rank in world of the member with this rank.
    pub fn to_world(&self, rank: i32) -> Result<u32> {
        let index = self.context.checked_index(rank)?;
        let worker = index < self.context.formed().worker_num;
        worker
            .then_some(index)
            .ok_or_else(|| Error::new(Status::NotFound, format!("rank {rank} of {} is no worker", self.id())))
    }

    /// The rank in this group of the worker with this rank.
    pub fn from_world(&self, world_rank: i32) -> Result<u32> {
        let workers = self.context.formed().worker_num;
        let index = u32::try_from(world_rank).ok().filter(|index| *index < workers).ok_or_else(|| {
            Error::invalid(format!("world_rank is {world_rank}: expected 0 to {}", i64::from(workers) - 1))
        })?;
        let found = self.context.rank_of(index);
        found.ok_or_else(|| Error::new(Status::NotFound, format!("worker {world_rank} is no member of {}", self.id())))
    }

    /// Why the group is over, unless that is only that this process has left its cluster, or freed the group.
    pub fn why_over(&self) -> Option<Failure> {
        self.context.why_over()
    }

    /// The operation with this number, if there is one on the group's cluster.
    pub fn user_operation(&self, number: u32) -> Option<(ReduceOp, UserFunction)> {
        self.context.state.reduce_functions.find(number)
    }

    /// An empty list for the parts of a call, for which no memory is allocated once the group has had such calls.
    pub fn list(&self) -> Vec<u64> {
        self.collectives.list()
    }

    /// Takes a list back that no call has taken along.
    pub fn take_back(&self, list: Vec<u64>) {
        self.collectives.take_back([list]);
    }

    /// Carries out one collective, and returns when it is done.
    pub fn run(&self, work: Work<'_>) -> Result<()> {
        self.collectives.run(work)
    }

    /// Starts one collective, which goes on while the caller does something else.
    pub fn start(&self, work: Work<'static>) -> Result<Request> {
        self.collectives.start(work)
    }

    /// Carries out a send, a receive, or both together, and returns when they have ended.
    pub fn run_messages(&self, first: Post, second: Option<Post>) -> Outcome {
        self.messages.run(first, second)
    }

    /// Starts a send, a receive, or both together, which go on while the caller does something else.
    pub fn start_messages(&self, first: Post, second: Option<Post>) -> Result<Request> {
        self.messages.start(first, second)
    }

    /// The program has interrupted its calls: the calls that wait in this group look up.
    pub(crate) fn nudge(&self) {
        self.context.bells.collectives.raise();
        self.collectives.turns.nudge();
        self.remaking.nudge();
        self.context.requests.nudge();
    }

    /// Passes the log of the group's calls to `read`, for heartbeats.
    pub(crate) fn log<R>(&self, read: impl FnOnce(&CallLog) -> R) -> R {
        self.collectives.turns.with_log(|log| read(log))
    }

    /// The message that a receive with this source and tag would get, if there is one now.
    pub fn look_for_message(&self, from: Option<u32>, tag: Option<i32>) -> Outcome {
        self.messages.look_for(from, tag)
    }

    /// Hands mail over. Links that are shut turn it away. (The agent thread's side.)
    pub(crate) fn deliver(&self, channel: Channel, mail: Mail) {
        match channel {
            Channel::Collectives => self.collectives.deliver(mail),
            Channel::Messages => self.messages.deliver(mail),
            Channel::Word | Channel::Watch => {} // the agent thread's own
        }
    }
}
