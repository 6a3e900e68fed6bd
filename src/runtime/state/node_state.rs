//! What the caller's threads and the agent thread of one node share: commands go one way, what was learnt goes the
//! other.
//!
//! Invariants: the agent thread alone writes what was learnt; callers only take answers to what they asked. Every wait
//! has a deadline.

use super::aftermath::Aftermath;
use super::causes::Causes;
use super::participation::Participation;
use super::reduce_functions::ReduceFunctions;
use super::roster::calls_this_node_lost;
use super::trace::Tracer;
use super::trace_file::About;
use crate::agent::{Ask, Command, Event};
use crate::error::{Culprit, Error, Failure, Result, Status};
use crate::runtime::base::clock::Clock;
use crate::runtime::base::interrupts::{nudge, wait_until, Attention};
use crate::runtime::base::link_key::LinkKey;
use crate::runtime::base::log::Logger;
use crate::runtime::base::polling::Polling;
use crate::runtime::base::program::Program;
use crate::runtime::base::sync::{lock, Bell, Condvar, Mutex, MutexGuard};
use crate::types::{Epoch, GroupId, Time};
use crate::wire::{Absent, Formed, GroupProgress, Member, PeerState};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// A thing that the agent thread is asked to do.
#[derive(Debug)]
pub enum AgentCommand {
    /// A command for the brain.
    Brain(Command),
    /// A command for the brain that means this epoch. In another epoch it is dropped.
    Of(Epoch, Command),
    /// Open this link, and mail it to its group.
    Open(LinkKey),
    /// Tell the members of this failure's group why it is over: the scheduler does not. Without a group: tell all nodes
    /// that the job is over.
    Tell(Failure),
    /// A group that was made has been freed.
    Free(GroupId),
    /// End without leaving.
    Quit,
}

/// The groups that are to look up because of what was learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stirred {
    /// No group.
    Nobody,
    /// This group.
    One(GroupId),
    /// All groups.
    All,
}

/// A number that no epoch has.
const NO_EPOCH: u64 = u64::MAX;

/// A group to be made: in which epoch, of which parent, and its number among the groups of that parent.
pub type Creation = (Epoch, GroupId, u64);

/// The scheduler's answer to a store request: a number, and a value.
pub type StoreAnswer = Result<(i64, Vec<u8>)>;

/// What is known of the present epoch. All of it goes when the next one begins.
#[derive(Default)]
pub struct EpochView {
    /// The cluster, once it is complete.
    pub formed: Option<Arc<Formed>>,
    /// The failure by which the brain has said that the epoch is broken.
    pub broken: Option<Failure>,
    /// An abort of a cluster that was broken already. Without it a recovery could still have made the cluster whole.
    pub aborted: Option<Failure>,
    /// Which nodes are lost, by index.
    pub lost: Vec<u32>,
    /// The answers about suspects that are not lost.
    pub peers: HashMap<u32, (PeerState, Culprit)>,
    /// Why groups and the cluster are over: the first causes. Calls and `muster_failure` tell them.
    pub causes: Causes,
    /// The progress on groups that this process uses no longer: the next heartbeat tells it.
    pub parting: Vec<GroupProgress>,
}

impl EpochView {
    /// An epoch of which nothing is known but its beginning.
    pub fn of(formed: Arc<Formed>) -> EpochView {
        EpochView { formed: Some(formed), ..EpochView::default() }
    }

    /// The nodes that hear nothing any more, by index: as far as this node knows they are lost, or have left.
    pub fn gone(&self) -> HashSet<u32> {
        let left = self.peers.iter().filter(|(_, (state, _))| *state == PeerState::Left).map(|(index, _)| *index);
        left.chain(self.lost.iter().copied()).collect()
    }

    /// Whether the present epoch is this one.
    pub fn is_in(&self, epoch: Epoch) -> bool {
        self.formed.as_ref().is_some_and(|formed| formed.epoch == epoch)
    }

    /// The epoch's number, if no group of it is over.
    fn calm(&self) -> u64 {
        let formed = self.formed.as_ref().filter(|_| self.causes.is_empty());
        formed.map_or(NO_EPOCH, |formed| formed.epoch.0)
    }

    /// Why a group of this epoch cannot be used any more, if that has been told.
    pub fn first_cause(&self, group: GroupId, epoch: Epoch) -> Option<Failure> {
        if self.formed.as_ref().is_some_and(|formed| formed.epoch > epoch) {
            let cause = format!("epoch {} has ended: every node has called muster_recover", epoch.0);
            let group = Some(group);
            return Some(Failure { status: Status::Revoked, culprit: None, cause, epoch, group, sequence: 0 });
        }
        self.causes.of_group(group).cloned()
    }

    /// Whether somebody has ended the job for good.
    pub fn is_aborted(&self) -> bool {
        self.aborted.as_ref().or(self.broken.as_ref()).is_some_and(|failure| failure.status == Status::Aborted)
    }
}

/// What the agent thread has learnt.
#[derive(Default)]
pub struct NodeView {
    /// The present epoch.
    pub epoch: EpochView,
    /// Whether this process takes part in the cluster.
    pub participation: Participation,
    /// Where the scheduler runs: the address from which one has last said that it is the scheduler.
    pub scheduler: Option<SocketAddr>,
    /// Questions `WhereAre` for whose answers somebody waits, and the answers.
    pub absent: HashMap<Ask, Option<Absent>>,
    /// Groups that are to be made, and for which somebody waits.
    pub creating: HashSet<Creation>,
    /// The groups that have been made, by number; none where this node is not in the group.
    pub made: HashMap<Creation, Result<Option<GroupId>>>,
    /// Groups that their members make alone: those for which somebody waits, and what has become of them.
    pub by_members: HashMap<Ask, Option<Result<GroupId>>>,
    /// The same for `Locate`.
    pub located: HashMap<Ask, Option<Member>>,
    /// Store requests whose caller still waits, and those that have been answered.
    pub store: HashMap<Ask, Option<StoreAnswer>>,
    /// The nodes, by index, that have not heard yet that this one has ended the job without the scheduler; and whether
    /// they are still being told.
    pub untold: Option<(Vec<u32>, bool)>,
    /// While the scheduler cannot be reached: the reason.
    pub away: Option<String>,
    /// While this node hears neither its scheduler nor any other node: that failure. With recovery only.
    pub cut_off: Option<Failure>,
    /// The reason why there is no next epoch, for the call that asked for it.
    pub not_recovered: Option<Failure>,
}

/// One node's shared state.
pub struct NodeState {
    /// The node's log.
    pub logger: Arc<Logger>,
    /// The node's clock.
    pub clock: Clock,
    /// Interrupts the agent thread.
    pub waker: Bell,
    /// What the agent thread is still to do; none once the thread has ended.
    commands: Mutex<Option<VecDeque<AgentCommand>>>,
    view: Mutex<NodeView>,
    /// The number of the present epoch, while nothing is known that ends a group of it. So a call need not lock the
    /// view to look.
    calm: AtomicU64,
    changed: Condvar,
    /// Whether the cluster's handle is gone. Groups may outlive it, and say so.
    freed: AtomicBool,
    next_ask: AtomicU64,
    /// Users' reduction functions.
    pub reduce_functions: ReduceFunctions,
    /// What the program does after an error.
    pub(crate) aftermath: Aftermath,
    /// Whether lost nodes may come back.
    pub recovery: bool,
    /// How the node's threads wait.
    pub(crate) polling: Polling,
    /// The program.
    pub(crate) program: Arc<Program>,
    /// The tracer that records the node's collectives, if that is wanted.
    pub tracer: Option<Arc<Tracer>>,
}

impl NodeState {
    /// A node that has learnt nothing yet.
    pub fn new(logger: Arc<Logger>, clock: Clock, waker: Bell) -> NodeState {
        NodeState {
            logger,
            clock,
            waker,
            commands: Mutex::new(Some(VecDeque::new())),
            view: Mutex::default(),
            calm: AtomicU64::new(NO_EPOCH),
            changed: Condvar::new(),
            freed: AtomicBool::new(false),
            next_ask: AtomicU64::new(1),
            reduce_functions: ReduceFunctions::default(),
            aftermath: Aftermath::default(),
            recovery: false,
            polling: Polling::new(None),
            program: Arc::default(),
            tracer: None,
        }
    }

    /// The cluster's handle is gone.
    pub fn free(&self) {
        self.freed.store(true, Ordering::Relaxed);
    }

    /// The cluster is complete: what this node records of its collectives is written from now on, if that is wanted.
    pub(crate) fn begin_trace(&self, about: About) {
        if let Some(tracer) = &self.tracer {
            tracer.begin(&about, &self.logger);
        }
    }

    /// Writes the rest of the trace; waits at most so long.
    pub(crate) fn end_trace(&self, limit: Duration) {
        if let Some(tracer) = &self.tracer {
            tracer.finish(limit);
        }
    }

    /// Whether the cluster's handle is gone.
    pub fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Relaxed)
    }

    /// A number for a new question.
    pub fn next_ask(&self) -> Ask {
        self.next_ask.fetch_add(1, Ordering::Relaxed)
    }

    /// Asks the agent thread for something. Once the thread has ended, nothing is kept: nobody would take it.
    pub fn ask(&self, what: AgentCommand) {
        if let Some(commands) = &mut *lock(&self.commands) {
            commands.push_back(what);
            self.waker.wake();
        }
    }

    /// The agent thread ends: nothing more is taken, nothing more will be learnt. (The agent thread's side.)
    pub fn end(&self) {
        *lock(&self.commands) = None;
        self.learn(|view| view.participation.end());
    }

    /// Whether the agent thread has ended.
    #[cfg(test)]
    pub fn has_ended(&self) -> bool {
        lock(&self.commands).is_none()
    }

    /// The next thing asked for. (The agent thread's side.)
    pub fn next_command(&self) -> Option<AgentCommand> {
        lock(&self.commands).as_mut()?.pop_front()
    }

    /// What has been learnt so far.
    pub fn view(&self) -> MutexGuard<'_, NodeView> {
        lock(&self.view)
    }

    /// Changes what has been learnt, and wakes the threads that wait. (The agent thread's side.)
    pub fn learn(&self, change: impl FnOnce(&mut NodeView)) {
        let mut view = self.view();
        change(&mut view);
        self.calm.store(view.epoch.calm(), Ordering::Release);
        drop(view);
        self.changed.notify_all();
    }

    /// Makes all threads that wait look again, at something that is not the agent thread's to tell. A thread that holds
    /// the view must not call this.
    pub fn nudge(&self) {
        nudge((&self.view, &self.changed));
    }

    /// Why a group of this epoch cannot be used any more, if that has been told.
    pub fn first_cause(&self, group: GroupId, epoch: Epoch) -> Option<Failure> {
        if self.is_calm(epoch) {
            return None;
        }
        self.view().epoch.first_cause(group, epoch)
    }

    /// Whether nothing is known that ends a group of this epoch. A call asks this, and locks nothing.
    pub(crate) fn is_calm(&self, epoch: Epoch) -> bool {
        self.calm.load(Ordering::Acquire) == epoch.0
    }

    /// A call is about to tell this failure of a group of this epoch. Returns what it is to tell: this, or the cause
    /// that is known already. Every later call and `muster_failure` tell the same.
    pub(crate) fn settle(&self, group: GroupId, epoch: Epoch, failure: Failure) -> Failure {
        let mut view = self.view();
        if !view.epoch.is_in(epoch) || failure.status == Status::State {
            return failure;
        }
        let first = view.epoch.causes.settle(group, failure);
        self.calm.store(view.epoch.calm(), Ordering::Release);
        first
    }

    /// Waits until `check` finds what it looks for, or the deadline has passed. It looks at least once.
    pub fn wait<T>(&self, deadline: Time, check: impl FnMut(&mut NodeView) -> Option<T>) -> Option<T> {
        self.wait_attentively(deadline, &Attention::none(), check).unwrap_or_default()
    }

    /// Waits like [`wait`](NodeState::wait), unless the program interrupts the call that waits.
    pub(crate) fn wait_attentively<T>(
        &self,
        deadline: Time,
        attention: &Attention<'_>,
        check: impl FnMut(&mut NodeView) -> Option<T>,
    ) -> Result<Option<T>> {
        wait_until((&self.view, &self.changed), || self.clock.until(deadline), attention, check)
    }

    /// A node of the cluster. Asks the scheduler, if `Formed` did not tell of the node.
    pub fn member(&self, formed: &Formed, index: u32) -> Result<Member> {
        if let Some(member) = formed.members.find(index) {
            return Ok(member);
        }
        let ask = self.next_ask();
        self.view().located.insert(ask, None);
        self.ask(AgentCommand::Brain(Command::Locate(ask, index)));
        let deadline = self.clock.now() + Duration::from_millis(formed.agreed.heartbeat_timeout_ms);
        let found = self.wait(deadline, |view| view.located.get_mut(&ask)?.take());
        self.view().located.remove(&ask);
        found
            .ok_or_else(|| Error::new(Status::Unreachable, format!("the scheduler does not say where node {index} is")))
    }

    /// Whether this failure says that this very node is lost, and the node must accept that. If only a peer believes
    /// so, the failure names a group. With recovery the peer may be wrong: the scheduler, once it is back, may let the
    /// node go on.
    fn is_own_loss(&self, formed: &Formed, failure: &Failure) -> bool {
        calls_this_node_lost(formed, failure) && (failure.group.is_none() || !self.recovery)
    }

    /// The reason why a group is over, as a peer says it. If it is that this very node is lost, the node says instead
    /// that the others have given it up, and its brain hears of that, too.
    pub fn heard(&self, formed: &Formed, failure: Failure) -> Failure {
        if !self.is_own_loss(formed, &failure) {
            return failure;
        }
        self.ask(AgentCommand::Of(formed.epoch, Command::CalledLost(failure.clone())));
        failure.to_the_lost()
    }

    /// Keeps what the brain tells. Returns which groups are to look up. (The agent thread's side.)
    pub fn file(&self, event: Event) -> Stirred {
        let mut stirred = Stirred::Nobody;
        self.learn(|view| match event {
            Event::Formed(formed) => view.epoch.formed = Some(Arc::new(*formed)),
            Event::Failed(error) => view.participation.fail(error),
            Event::Broken(failure) => {
                view.epoch.causes.break_cluster(failure.clone());
                // This event comes once. It comes a second time if the cluster could have recovered, but will not. An
                // abort that comes second is not the first cause.
                match view.epoch.broken.is_some() && failure.status == Status::Aborted {
                    true => view.epoch.aborted = Some(failure),
                    false => view.epoch.broken = Some(failure),
                }
                stirred = Stirred::All;
            }
            Event::Revoked(failure) => {
                let Some(id) = failure.group else { return };
                let is_own_loss = view.epoch.formed.as_ref().is_some_and(|formed| self.is_own_loss(formed, &failure));
                let failure = if is_own_loss { failure.to_the_lost() } else { failure };
                view.epoch.causes.revoke(id, failure);
                stirred = Stirred::One(id);
            }
            Event::Peer(index, state, culprit) => {
                view.epoch.peers.insert(index, (state, culprit));
            }
            Event::Absent(ask, absent) => {
                if let Some(waits) = view.absent.get_mut(&ask) {
                    *waits = Some(absent);
                }
            }
            Event::GroupMade(_) | Event::MadeByMembers(..) => {} // the agent thread makes it, and says so itself
            Event::NotMade(parent, nth, error) => {
                let key = view.epoch.formed.as_ref().map(|formed| (formed.epoch, parent, nth));
                if let Some(key) = key.filter(|key| view.creating.contains(key)) {
                    view.made.insert(key, Err(error));
                }
            }
            Event::Lost(nodes) => view.epoch.lost = nodes,
            Event::NotRecovered(failure) => view.not_recovered = Some(failure),
            Event::Located(ask, member) => {
                if let Some(waits) = view.located.get_mut(&ask) {
                    *waits = Some(member);
                }
            }
            Event::Stored(ask, answer) => {
                if let Some(waits) = view.store.get_mut(&ask) {
                    *waits = Some(answer);
                }
            }
            Event::SchedulerAway(reason) => view.away = reason,
            Event::CutOff(failure) => view.cut_off = failure,
            Event::Left(warning) => view.participation.leave(warning),
        });
        stirred
    }
}
