//! A group: an ordered set of nodes with its own links and its own sequence of collectives.
//!
//! Owns the links to the members (opened when first needed), the poller that the calling thread sleeps in, and what the
//! node reports about its progress. The agent thread mails links, interrupts, and, where it hears that the group is over while no
//! call has the driver, says so on the links: nothing else.
//! How a collective is carried out is in `drive`; what happens when one fails, in `failure`.

use crate::collective::{Layout, Thresholds};
use crate::error::{Culprit, Error, Failure, Result, Status};
use crate::net::{Transport, Watch};
use crate::runtime::base::mailbox::Mailbox;
use crate::runtime::base::polling::Polls;
use crate::runtime::base::request::Requests;
use crate::runtime::base::sync::Bell;
use crate::runtime::collectives::progress::Progress;
use crate::runtime::collectives::turns::Turns;
use crate::runtime::collectives::work::Jobs;
use crate::runtime::links::link::{Link, LinkEnd};
use crate::runtime::links::silence::Bounds;
use crate::runtime::memory::checksums::Checksums;
use crate::runtime::messages::Messages;
use crate::runtime::state::node_state::Shared;
use crate::runtime::state::roster::Roster;
use crate::types::{Call, Epoch, GroupId, History, Role, Time};
use crate::wire::{Channel, Formed, GroupProgress, Member, PeerState, DATA_HEADER_BYTES};
use std::io::IoSlice;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::Duration;

/// The group's waker's token while it sleeps; a link's is its peer's rank.
pub(crate) const WAKER: usize = usize::MAX - 1;

/// So many lists for the parts of calls are kept: those of an alltoallv, twice.
const SPARE_LISTS_MAX: usize = 8;

/// What the agent thread mails to a group.
pub enum Mail {
    /// A link to this rank, open, with what was read behind its handshake.
    Up(u32, Box<dyn Transport>, Vec<u8>),
    /// A link to this rank does not come to stand.
    Failed(u32, LinkEnd),
    /// This rank has freed the group.
    Freed(u32),
}

/// Where a link is.
pub(crate) enum Slot {
    /// Not needed yet.
    Unused,
    /// Asked for.
    Asked,
    /// Open.
    Up(Box<Link>),
    /// Its peer has left the cluster.
    Left,
    /// It ended, or never came to be.
    Ended(LinkEnd),
}

/// What only the thread that drives the group touches.
pub(crate) struct Driver {
    pub watch: Watch,
    pub slots: Vec<Slot>,
    /// A received piece, until it is combined; grows to the longest that was needed.
    pub piece: Vec<u8>,
    /// The schedules' scratch; grows to the largest that was needed.
    pub scratch: Vec<u8>,
    /// The checksums of a call's pieces; all are forgotten when the next begins.
    pub checksums: Checksums,
    /// Where data headers are encoded.
    pub head: Vec<u8>,
    /// All that have ended.
    pub history: History,
    /// From when on a call that begins looks for peers that have given up.
    pub overhears_from: Time,
}

/// How a member stands, as far as this node has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In the cluster.
    Present,
    /// Lost: the cluster is broken because of it.
    Lost,
    /// It has left, and a call that needed it found out.
    Left,
}

/// A group, as one of its members (or a bystander) sees it.
pub struct Group {
    pub(crate) roster: Arc<Roster>,
    pub(crate) shared: Weak<Shared>,
    pub(crate) formed: Arc<Formed>,
    pub(crate) thresholds: Thresholds,
    /// How long its calls poll before they sleep.
    pub(crate) polls: Polls,
    /// What is done about links that are silent.
    pub(crate) bounds: Bounds,
    driver: Mutex<Driver>,
    mailbox: Mailbox<Mail>,
    pub(crate) messages: Messages,
    /// What peers are told whose link comes when this node does not use the group any more.
    pub(crate) last_word: OnceLock<Vec<u8>>,
    default_timeout_ms: i64,
    timeout_ms: AtomicI64,
    pub(crate) broken: OnceLock<Failure>,
    /// Somebody wants the next epoch: this gives way to what was really wrong, if that becomes known.
    pub(crate) wanted_anew: OnceLock<Failure>,
    progress: Mutex<Progress>,
    /// How many groups have been made of this one, as far as this node's program is; with recovery in all epochs.
    pub(crate) makings: AtomicU64,
    pub(crate) turns: Turns,
    pub(crate) jobs: Jobs,
    pub(crate) requests: Requests,
    /// Of calls that have ended, for those to come.
    spare_lists: Mutex<Vec<Vec<u64>>>,
}

impl Group {
    /// A group of these nodes (indices in the cluster, in order of rank).
    pub fn new(
        id: GroupId,
        members: Vec<u32>,
        shared: &Arc<Shared>,
        formed: &Arc<Formed>,
        timeout_ms: i64,
    ) -> Result<Group> {
        let waker = Bell::new()?;
        let rank = members.iter().position(|index| *index == formed.index).map(|rank| rank as u32);
        let slots = members.iter().map(|_| Slot::Unused).collect();
        let watch = Watch::with_capacity(members.len() + 1);
        let roster = Arc::new(Roster { id, members, rank, formed: Arc::clone(formed) });
        Ok(Group {
            roster,
            shared: Arc::downgrade(shared),
            formed: Arc::clone(formed),
            thresholds: Thresholds::from_slice(&formed.agreed.thresholds).unwrap_or_default(),
            polls: Polls::new(formed.local_size, shared.cores, shared.polling.set),
            bounds: Bounds::of(&formed.agreed),
            driver: Mutex::new(Driver {
                watch,
                slots,
                piece: Vec::new(),
                scratch: Vec::new(),
                checksums: Checksums::default(),
                head: Vec::with_capacity(DATA_HEADER_BYTES),
                history: History::default(),
                overhears_from: Time::default(),
            }),
            mailbox: Mailbox::new(waker),
            messages: Messages::default(),
            last_word: OnceLock::new(),
            default_timeout_ms: timeout_ms,
            timeout_ms: AtomicI64::new(timeout_ms),
            broken: OnceLock::new(),
            wanted_anew: OnceLock::new(),
            progress: Mutex::default(),
            makings: AtomicU64::new(0),
            turns: Turns::default(),
            jobs: Jobs::default(),
            requests: Requests::default(),
            spare_lists: Mutex::default(),
        })
    }

    /// The same group in the next epoch.
    pub(crate) fn renewed(&self, shared: &Arc<Shared>, formed: &Arc<Formed>) -> Result<Group> {
        let next = Group::new(self.id(), self.roster.members.clone(), shared, formed, self.default_timeout_ms)?;
        next.timeout_ms.store(self.timeout_ms(), Ordering::Relaxed);
        if shared.recovery {
            next.makings.store(self.makings.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(next)
    }

    /// Which group.
    pub fn id(&self) -> GroupId {
        self.roster.id
    }

    /// The epoch that it belongs to.
    pub(crate) fn epoch(&self) -> Epoch {
        self.formed.epoch
    }

    /// Whether the user made it, so that a member can free it.
    pub fn is_made(&self) -> bool {
        self.roster.is_made()
    }

    /// This node's rank in it; none if it is no member.
    pub fn rank(&self) -> Option<u32> {
        self.roster.rank
    }

    /// How many members.
    pub fn size(&self) -> u32 {
        self.roster.members.len() as u32
    }

    /// The member's index among all nodes.
    pub fn index_of(&self, rank: u32) -> Option<u32> {
        self.roster.members.get(rank as usize).copied()
    }

    /// The rank of the node with this index.
    pub fn rank_of(&self, index: u32) -> Option<u32> {
        self.roster.members.iter().position(|member| *member == index).map(|rank| rank as u32)
    }

    /// How long an operation may take, in milliseconds; `i64::MAX`: without limit; -1: the default again.
    pub fn set_timeout_ms(&self, timeout_ms: i64) -> Result<()> {
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

    /// The rank among all workers of the member with this rank.
    pub fn to_world(&self, rank: i32) -> Result<u32> {
        let index = self.checked_index(rank)?;
        let worker = index < self.formed.worker_num;
        worker
            .then_some(index)
            .ok_or_else(|| Error::new(Status::NotFound, format!("rank {rank} of {} is no worker", self.id())))
    }

    /// The rank here of the worker with this rank.
    pub fn from_world(&self, world_rank: i32) -> Result<u32> {
        let workers = self.formed.worker_num;
        let index = u32::try_from(world_rank).ok().filter(|index| *index < workers).ok_or_else(|| {
            Error::invalid(format!("world_rank is {world_rank}: expected 0 to {}", i64::from(workers) - 1))
        })?;
        let found = self.rank_of(index);
        found.ok_or_else(|| Error::new(Status::NotFound, format!("worker {world_rank} is no member of {}", self.id())))
    }

    /// The member with this rank, and how it stands; asks the scheduler where `Formed` did not tell.
    pub fn find_member(&self, rank: i32) -> Result<(Member, Standing)> {
        let index = self.checked_index(rank)?;
        let shared = self.shared()?;
        let member = shared.member(&self.formed, index)?;
        let (groups, broken, reported, is_lost) = {
            let learnt = shared.learnt();
            let left = matches!(learnt.peers.get(&index), Some((PeerState::Left, _)));
            (learnt.groups(), learnt.broken.clone(), left, learnt.lost.contains(&index))
        };
        let blames = |failure: &Failure, status| {
            failure.status == status
                && failure.culprit.as_ref().is_some_and(|culprit| culprit.node_id == member.node_id)
        };
        // A call learns of a leave over its link, mostly: then the group's first cause tells. Of a group that was made it may
        // mean the group only.
        let left = |group: &Arc<Group>| {
            !group.is_made() && group.told(&shared).is_some_and(|failure| blames(&failure, Status::PeerLeft))
        };
        let is_first = |failure: &Failure| blames(failure, Status::PeerLost);
        let standing = match () {
            () if is_lost || broken.as_ref().is_some_and(is_first) => Standing::Lost,
            () if reported || groups.iter().any(left) => Standing::Left,
            () => Standing::Present,
        };
        Ok((member, standing))
    }

    fn checked_index(&self, rank: i32) -> Result<u32> {
        let index = usize::try_from(rank).ok().and_then(|rank| self.roster.members.get(rank)).copied();
        index.ok_or_else(|| match self.roster.members.len() {
            0 => Error::invalid(format!("rank is {rank}: {} has no members", self.id())),
            size => Error::invalid(format!("rank is {rank}: expected 0 to {} on {}", size - 1, self.id())),
        })
    }

    pub(crate) fn timeout_ms(&self) -> i64 {
        self.timeout_ms.load(Ordering::Relaxed)
    }

    /// When an operation that begins now has taken too long.
    pub(crate) fn deadline(&self, since: Time) -> Time {
        let limit_ms = self.timeout_ms();
        match u64::try_from(limit_ms) {
            Ok(limit) if limit_ms != i64::MAX => since + Duration::from_millis(limit),
            _ => Time::NEVER,
        }
    }

    pub(crate) fn shared(&self) -> Result<Arc<Shared>> {
        self.shared
            .upgrade()
            .ok_or_else(|| Error::new(Status::State, format!("{}: its cluster has been freed", self.id())))
    }

    pub(crate) fn driver(&self) -> MutexGuard<'_, Driver> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, where no call has it.
    pub(crate) fn idle_driver(&self) -> Option<MutexGuard<'_, Driver>> {
        match self.driver.try_lock() {
            Ok(driver) => Some(driver),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// An empty list for the parts of a call, for which no memory is allocated once the group has had such calls.
    pub fn list(&self) -> Vec<u64> {
        self.spare_lists.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Takes the lists of a call that has ended back.
    pub(crate) fn take_lists(&self, layout: Option<Layout>) {
        let Some(Layout { input, output, .. }) = layout else { return };
        let mut spare = self.spare_lists.lock().unwrap_or_else(PoisonError::into_inner);
        for mut list in [input.counts, input.displs, output.counts, output.displs] {
            if list.capacity() > 0 && spare.len() < SPARE_LISTS_MAX {
                list.clear();
                spare.push(list);
            }
        }
    }

    /// Hands something over; a group that is shut drops it. (The agent thread's side.)
    pub fn deliver(self: &Arc<Self>, channel: Channel, mail: Mail) {
        let delivered = match channel {
            Channel::Collectives => self.mailbox.deliver(mail),
            Channel::Messages => self.deliver_to_messages(mail),
            Channel::Word | Channel::Watch => return, // the agent thread's own
        };
        if let Err(mail) = delivered {
            self.drop_mail(mail);
        }
    }

    pub(crate) fn drop_mail(&self, mail: Mail) {
        if let (Mail::Up(_, mut transport, _), Some(word)) = (mail, self.last_word.get()) {
            // A new connection takes these few bytes; if not, its end is all that the peer hears.
            let _ = transport.write(&[IoSlice::new(word)]);
        }
    }

    /// Makes who drives its links look up: there is mail, or the group or the cluster is broken.
    pub fn interrupt(&self) {
        self.mailbox.interrupt();
        self.messages.interrupt();
    }

    pub(crate) fn take_signal(&self) -> bool {
        self.mailbox.take_signal()
    }

    /// The group's bell, to be watched.
    pub(crate) fn bell(&self) -> RawFd {
        self.mailbox.descriptor()
    }

    /// It rings: what it rang for shows in the signal.
    pub(crate) fn hush(&self) {
        self.mailbox.hush();
    }

    /// All that was delivered; from now on nothing is taken in.
    pub(crate) fn shut_mailbox(&self) -> Vec<Mail> {
        self.mailbox.shut()
    }

    pub(crate) fn take_mail(&self) -> Vec<Mail> {
        self.mailbox.take()
    }

    #[cfg(test)]
    pub(crate) fn has_mail(&self) -> bool {
        self.mailbox.has_mail()
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, sequence: u64, call: Call, at: Time) {
        self.progress().enter(sequence, call, at);
    }

    pub(crate) fn finish(&self, sequence: u64) {
        self.progress().finish(sequence);
    }

    /// Another rank called something else before, and the scheduler is to find out what.
    pub(crate) fn doubt(&self) {
        self.progress().doubt();
    }

    /// What this rank called under this number, for the sentence that tells two ranks apart.
    pub(crate) fn called(&self, sequence: u64) -> Option<Call> {
        self.progress().called(sequence)
    }

    /// What a heartbeat says of this group's newest collective; nothing before its first use.
    pub fn newest_call(&self, now: Time) -> Option<GroupProgress> {
        self.progress().newest(self.id(), now)
    }

    /// What it says of those before, where the newest has to wait.
    pub fn earlier_calls(&self, now: Time) -> Vec<GroupProgress> {
        self.progress().earlier(self.id(), now)
    }

    /// What is said of the newest calls when this rank goes.
    pub(crate) fn last_calls(&self, now: Time) -> Vec<GroupProgress> {
        self.progress().parting(self.id(), now)
    }

    /// How a failure names the member with this rank.
    pub(crate) fn culprit(&self, rank: u32) -> Option<Culprit> {
        self.roster.culprit(rank)
    }

    /// How a sentence names the member with this rank.
    pub(crate) fn describe(&self, rank: u32) -> String {
        self.roster.describe(rank)
    }
}

/// The node indices of the built-in groups.
pub fn built_in(id: GroupId, formed: &Formed) -> Vec<u32> {
    let all = formed.worker_num + formed.server_num;
    match id {
        GroupId::WORLD => (0..formed.worker_num).collect(),
        GroupId::SERVERS => (formed.worker_num..all).collect(),
        _ => (0..all).collect(),
    }
}

/// The node's own role, as its index tells.
pub fn own_role(formed: &Formed) -> Role {
    if formed.index < formed.worker_num {
        Role::Worker
    } else {
        Role::Server
    }
}
