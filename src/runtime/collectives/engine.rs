//! The engine of a group's collectives: what it keeps, and what the agent thread and the facade want of it.
//!
//! How a collective is carried out is in `drive`, how calls follow each other in `work`; what happens when one fails, in `failure`.

use super::call_progress::{CallProgress, Patience};
use super::deadlines_behind::DeadlinesBehind;
use super::hosts::Hosts;
use super::peers::Peers;
use super::queued_call::CallQueue;
use super::shared::CarrierChoice;
use super::stop::{Running, Stop};
use super::turns::Turns;
use crate::net::Watch;
use crate::runtime::base::interrupts::Attention;
use crate::runtime::base::mailbox::Mailbox;
use crate::runtime::links::peers::{turn_away, Mail};
use crate::runtime::memory::buffer::PartList;
use crate::runtime::memory::checksums::Checksums;
use crate::runtime::state::context::{Context, TimeLimit};
use crate::runtime::state::trace::Track;
use crate::schedules::{Layout, Thresholds};
use crate::types::{Call, CallDigest, Time};
use crate::wire::{DataHeader, GroupCarrier, DATA_HEADER_BYTES};
use std::cell::RefCell;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// The token of the group's waker, while a call sleeps. A link's token is its peer's rank.
pub(crate) const WAKER: usize = usize::MAX - 1;
/// The token of the doorbell by which ranks that share memory wake each other.
pub(crate) const DOORBELL: usize = usize::MAX - 2;
/// How many descriptors a call watches beside those of its links.
const OTHERS_WATCHED: usize = 2;

/// How many lists for the parts of calls are kept: those of an alltoallv, twice.
const SPARE_LISTS_MAX: usize = 8;

/// What only the thread that drives the group touches. The driver is apart from the rest, because a call uses both at
/// the same time.
pub(crate) struct Exclusive {
    pub driver: Driver,
    /// How calls are carried out.
    pub(super) carrier: CarrierChoice,
    /// The schedules' scratch; grows to the largest that was needed.
    pub scratch: Vec<u8>,
    /// The checksums of a call's pieces; all are forgotten when the next begins.
    pub checksums: RefCell<Checksums>,
}

/// What moves a call's data over links, and how far the call is.
pub(crate) struct Driver {
    pub watch: Watch,
    pub peers: Peers,
    /// A received piece, until it is combined; grows to the longest that was needed.
    pub piece: Vec<u8>,
    /// Where data headers are encoded.
    pub head: Vec<u8>,
    /// The digest of all calls that have ended.
    pub digest: CallDigest,
    /// Where a call that has changed threads goes on.
    pub progress: CallProgress,
    /// When the present call says that it waits.
    pub patience: Patience,
    /// When the present call began.
    pub begun: Time,
    /// The time from which a new call checks again whether peers have revoked the group.
    pub next_check: Time,
    /// How often an exchange of the present call has gone on.
    pub turns: u32,
}

/// A group's collectives.
pub(crate) struct Collectives {
    pub context: Arc<Context>,
    pub thresholds: Thresholds,
    exclusive: Mutex<Exclusive>,
    mailbox: Mailbox<Mail>,
    /// The hosts of the members, if they are on several hosts, and the first call took one level.
    pub(super) apart: OnceLock<Hosts>,
    /// What carries the collectives, once that is found out.
    pub carrier: OnceLock<GroupCarrier>,
    pub turns: Turns,
    pub queue: CallQueue,
    pub behind: DeadlinesBehind,
    /// The record of the group's calls, if that is wanted. Only members call.
    pub track: Option<Arc<Track>>,
    /// Lists of calls that have ended, kept for calls to come.
    spare_lists: Mutex<Vec<Vec<u64>>>,
}

impl Driver {
    /// Takes the steps of a call, one after another, each of which may be left in its middle.
    pub(super) fn by_steps(
        &mut self,
        count: usize,
        mut take: impl FnMut(&mut Driver, usize) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let first = match std::mem::take(&mut self.progress) {
            CallProgress::Step(step, inside) => {
                self.progress = *inside;
                step
            }
            _ => 0,
        };
        for step in first..count {
            let outcome = take(self, step);
            if outcome.as_ref().is_err_and(Stop::goes_on) {
                self.progress = CallProgress::Step(step, Box::new(std::mem::take(&mut self.progress)));
            }
            outcome?;
        }
        Ok(())
    }
}

impl Collectives {
    pub(crate) fn new(context: &Arc<Context>, mailbox: Mailbox<Mail>) -> Collectives {
        Collectives {
            context: Arc::clone(context),
            thresholds: Thresholds::from_slice(&context.formed().agreed.thresholds).unwrap_or_default(),
            exclusive: Mutex::new(Exclusive {
                driver: Driver {
                    watch: Watch::default(),
                    peers: Peers::new(context),
                    piece: Vec::new(),
                    head: Vec::with_capacity(DATA_HEADER_BYTES),
                    digest: CallDigest::default(),
                    progress: CallProgress::Beginning,
                    patience: Patience::since(Time::default()),
                    begun: Time::default(),
                    next_check: Time::default(),
                    turns: 0,
                },
                carrier: CarrierChoice::Untried,
                scratch: Vec::new(),
                checksums: RefCell::default(),
            }),
            mailbox,
            apart: OnceLock::new(),
            carrier: OnceLock::new(),
            turns: Turns::default(),
            queue: CallQueue::default(),
            behind: DeadlinesBehind::default(),
            track: track(context),
            spare_lists: Mutex::default(),
        }
    }

    /// Hands mail over; once the links are shut, it is turned away. (The agent thread's side.)
    pub(crate) fn deliver(&self, mail: Mail) {
        if let Err(mail) = self.mailbox.deliver(mail) {
            self.turn_away(mail);
        }
    }

    pub(crate) fn turn_away(&self, mail: Mail) {
        turn_away(mail, self.context.last_word.get());
    }

    /// The driver and the rest. Waits until no other thread has them.
    pub(crate) fn exclusive(&self) -> MutexGuard<'_, Exclusive> {
        self.exclusive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver and the rest, if no call has them.
    pub(crate) fn exclusive_if_idle(&self) -> Option<MutexGuard<'_, Exclusive>> {
        match self.exclusive.try_lock() {
            Ok(exclusive) => Some(exclusive),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// An empty list for the parts of a call, for which no memory is allocated once the group has had such calls.
    pub(crate) fn list(&self) -> Vec<u64> {
        self.spare_lists.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Takes the lists of a call that has ended back.
    pub(crate) fn take_lists(&self, layout: Option<Layout>, list: Option<PartList>) {
        let Some(Layout { input, output, .. }) = layout else { return };
        let starts = list.map_or_else(Vec::new, |list| list.starts);
        self.take_back([input.counts, input.displs, output.counts, output.displs, starts]);
    }

    /// Takes lists back for calls to come.
    pub(crate) fn take_back<const N: usize>(&self, lists: [Vec<u64>; N]) {
        let mut spare = self.spare_lists.lock().unwrap_or_else(PoisonError::into_inner);
        for mut list in lists {
            if list.capacity() > 0 && spare.len() < SPARE_LISTS_MAX {
                list.clear();
                spare.push(list);
            }
        }
    }

    pub(crate) fn take_signal(&self) -> bool {
        self.mailbox.take_signal()
    }

    /// What is known of a call that has this time.
    pub(crate) fn running<'a>(
        &'a self,
        call: Call,
        sequence: u64,
        time: TimeLimit,
        attention: &'a Attention<'a>,
    ) -> Running<'a> {
        let (epoch, deadline, TimeLimit { since, limit_ms }) = (self.context.epoch(), time.deadline(), time);
        let data =
            DataHeader { epoch, group: self.context.id(), sequence, signature: call.signature(), call, digest: 0 };
        Running {
            context: &self.context,
            turns: &self.turns,
            call,
            sequence,
            data,
            deadline,
            limit_ms,
            since,
            attention,
            is_woven: false,
        }
    }

    /// The group's bell, to be watched.
    pub(crate) fn bell(&self) -> RawFd {
        self.mailbox.descriptor()
    }

    /// Silences the bell. What it rang for shows in the signal.
    pub(crate) fn hush(&self) {
        self.mailbox.hush();
    }

    #[cfg(test)]
    pub(crate) fn has_mail(&self) -> bool {
        self.mailbox.has_mail()
    }

    /// Takes what the agent thread has for these links.
    pub(crate) fn take_in(&self, driver: &mut Driver) {
        for mail in self.mailbox.take() {
            let checksums = self.context.formed().agreed.checksums.has_network();
            driver.peers.links.take_in(mail, checksums);
            driver.watch.reserve(driver.peers.links.used().len() + OTHERS_WATCHED);
        }
    }

    /// Takes what the agent thread has for this group. An error says that the group is over.
    pub(crate) fn look_up(&self, driver: &mut Driver) -> Result<(), Stop> {
        self.take_in(driver);
        self.context.told().map_or(Ok(()), |failure| Err(Stop::Told(Box::new(failure))))
    }

    /// Drops every link, and turns away whatever still comes.
    pub(crate) fn shut(&self) {
        self.mailbox.shut().into_iter().for_each(|mail| self.turn_away(mail));
        let mut exclusive = self.exclusive();
        exclusive.driver.peers.links.shut();
        exclusive.carrier = CarrierChoice::Links;
    }
}

fn track(context: &Context) -> Option<Arc<Track>> {
    let (tracer, rank) = context.state.tracer.as_ref().zip(context.rank())?;
    tracer.track(context.id(), context.epoch(), rank)
}
