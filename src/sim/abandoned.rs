//! A launcher that has no restarts left. It ends what runs in its places, starts nobody there any more, and tells the
//! scheduler so, once. Survivors are told the first cause, and the job ends unfinished. When all launchers have gone,
//! somebody starts everything once more, and the job goes on where it was. A *run* is the time between two such starts.
//!
//! The rules:
//! - What nodes were told follows from what is durable.
//! - That is not forgotten, in this life of the scheduler or in a later one.
//! - From then on no epoch is formed until everything is started once more.
//! - A node that waits for an epoch is soon told that there is none.
//! - The job is not called done, and a node that leaves then has not left the job.
//!
//! The rules hold for places in which really nobody lives any more. They do not hold for a place that was wrongly said
//! to be abandoned, and whose node disproves it.

use super::launcher::Word;
use super::network::Side;
use super::node::Line;
use super::sabotage::Sabotage;
use super::table::Event as Met;
use super::world::{Event, World};
use crate::error::{Error, Failure, Status};
use crate::types::{Epoch, Time};
use crate::wire::{Message, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How soon a node that waits for the next epoch is told that there is none, when nothing goes wrong any more.
const SOON: Duration = Duration::from_secs(10);

/// Which places launchers have abandoned in this run, and what the scheduler makes of it.
#[derive(Debug, Default)]
pub(super) struct AbandonedPlaces {
    /// The slots in which nobody lives any more, and nobody is started.
    pub(super) slots: BTreeSet<usize>,
    /// A launcher has abandoned some process's place, rightly or not.
    pub(super) was_said: bool,
    /// The newest epoch that is written.
    epoch: Epoch,
    /// The slots whose abandonment is written, and not durable: the record's number, the slot, and whether it was true.
    written: Vec<(u64, usize, bool)>,
    /// The slots whose abandonment is durable, and since when.
    durable: BTreeMap<usize, Time>,
    /// The slots whose abandonment was not true when it was written.
    false_ones: BTreeSet<usize>,
    /// The nodes that could be told when the first node was told that there is no next epoch.
    there: BTreeSet<usize>,
    /// The run has ended, and another follows.
    pub(super) begins_again: bool,
    /// The run before this one ended so: therefore the job is not done.
    was_unfinished: bool,
}

/// Whether this is the cause that broke the job. It is not where somebody waits no more or is put out, has left, or has
/// aborted the job.
pub(super) fn is_first_cause(failure: &Failure) -> bool {
    !matches!(failure.status, Status::Timeout | Status::Fenced | Status::PeerLeft | Status::Aborted)
}

impl AbandonedPlaces {
    /// The scheduler dies: what was put out and is not durable is not awaited any more.
    pub(super) fn scheduler_dies(&mut self) {
        self.written.clear();
        self.there.clear();
    }

    /// The job is done: what was written of it does not concern the next one.
    pub(super) fn job_is_done(&mut self) {
        self.durable.clear();
        self.false_ones.clear();
    }

    /// Records up to this one are durable.
    pub(super) fn settle(&mut self, last: u64, now: Time) {
        let (durable, waits): (Vec<_>, Vec<_>) = self.written.iter().partition(|(number, ..)| *number <= last);
        self.written = waits;
        for (_, slot, is_true) in durable {
            match is_true {
                true => drop(self.durable.insert(slot, now)),
                false => drop(self.false_ones.insert(slot)),
            }
        }
    }

    /// The journal is rewritten: untrue records may have been dropped.
    pub(super) fn rewritten(&mut self, is_kept: impl Fn(usize) -> bool) {
        self.false_ones.retain(|slot| is_kept(*slot));
    }
}

impl World {
    /// The launcher that has started this slot's process abandons its place: what runs beside it is ended, too.
    pub(super) fn launcher_abandons(&mut self, slot: usize) {
        if self.finishing.is_some() || self.abandoned.slots.contains(&slot) {
            return;
        }
        self.met(Met::GivesUp);
        self.fault(Duration::ZERO);
        self.abandoned.was_said = true;
        let host = self.plan.nodes[slot].host;
        for other in (0..self.slots.len()).filter(|other| self.plan.nodes[*other].host == host) {
            let after = if other == slot { Duration::ZERO } else { self.random.span_ms(0..500) };
            self.abandoned.slots.insert(other);
            self.slots[other].finished = true;
            self.queue.put(self.now + after, Event::Cleared(other));
        }
    }

    /// A launcher that abandons a place ends whatever runs in this slot, and says so.
    pub(super) fn cleared(&mut self, slot: usize) {
        if !self.abandoned.slots.contains(&slot) {
            return; // everything has been started once more
        }
        let there: Vec<usize> = (0..self.processes.len()).filter(|node| self.processes[*node].slot == slot).collect();
        there.into_iter().for_each(|node| self.is_ended(node));
        let late = self.random.once_in(4);
        let after = if late { self.random.span_ms(300..4000) } else { self.random.span_us(100..20_000) };
        self.queue.put(self.now + after, Event::Word(Word::Abandoned(slot, self.processes.len())));
    }

    /// Somebody ends this process for good, if it runs.
    fn is_ended(&mut self, node: usize) {
        if !self.processes[node].alive {
            return;
        }
        self.blame(node);
        self.let_die(node);
    }

    /// A launcher says of a process that lives that nobody is started in its place any more.
    pub(super) fn is_falsely_abandoned(&mut self, slot: usize) {
        let slot = self.running(slot);
        let Some(node) = self.current(slot).filter(|_| self.host.running.is_some()) else { return };
        self.fault(Duration::ZERO);
        self.abandoned.was_said = true;
        self.disturb(node, 1);
        self.word(Word::Abandoned(slot, self.processes.len()));
    }

    /// Something is put out to be written.
    pub(super) fn is_written(&mut self, number: u64, record: &Record) -> Result<(), String> {
        match record {
            Record::Abandoned(key) => {
                let seat = self.host.running.as_ref().and_then(|running| running.brain.admitted().nth(*key as usize));
                let pid = seat.ok_or("a place that does not exist is abandoned")?.register.process.pid;
                let slot = self.processes[pid as usize - 1000].slot;
                let lives = self.processes.iter().any(|process| process.slot == slot && process.alive);
                let is_true = self.abandoned.slots.contains(&slot) && !lives;
                self.abandoned.written.push((number, slot, is_true));
            }
            Record::Epoch(epoch) => {
                self.not_after_abandoning(epoch.epoch)?;
                let abandoned = &mut self.abandoned;
                abandoned.epoch = epoch.epoch;
                (abandoned.durable, abandoned.false_ones) = Default::default();
            }
            Record::Left(key) if !self.abandoned.there.is_empty() => {
                return Err(format!("{key} has left for good a job that ends unfinished"));
            }
            _ => {}
        }
        Ok(())
    }

    /// The journal is rewritten with these records.
    pub(super) fn is_rewritten(&mut self, records: &[Record]) {
        let Some(running) = &self.host.running else { return };
        let lives: Vec<usize> =
            running.brain.admitted().map(|seat| seat.register.process.pid as usize - 1000).collect();
        let slot = |key: u32| self.processes[lives[key as usize]].slot;
        let is_of = |record: &Record, wanted| matches!(record, Record::Abandoned(key) if slot(*key) == wanted);
        let kept: Vec<usize> =
            (0..self.slots.len()).filter(|slot| records.iter().any(|record| is_of(record, *slot))).collect();
        self.abandoned.rewritten(|slot| kept.contains(&slot));
    }

    /// No epoch is formed when it is durable that a place is abandoned.
    pub(super) fn not_after_abandoning(&self, epoch: Epoch) -> Result<(), String> {
        let known = |slot: &&usize| self.abandoned.durable.contains_key(slot);
        match self.abandoned.slots.iter().find(known).filter(|_| epoch > self.abandoned.epoch) {
            Some(slot) => Err(format!("epoch {} was formed, although slot {slot} was abandoned", epoch.0)),
            None => Ok(()),
        }
    }

    /// A scheduler is started again: it knows what was durable.
    pub(super) fn remembers_abandoned(&mut self, records: &[Record]) -> Result<(), String> {
        let newest = records.iter().rposition(|record| matches!(record, Record::Epoch(_)));
        let Some(Record::Epoch(epoch)) = newest.map(|at| &records[at]) else { return Ok(()) };
        self.not_after_abandoning(epoch.epoch)?;
        let slot = |key: u32| self.processes[epoch.members[key as usize].register.process.pid as usize - 1000].slot;
        let known: BTreeSet<usize> = records[newest.unwrap_or(0)..]
            .iter()
            .filter_map(|record| if let Record::Abandoned(key) = record { Some(slot(*key)) } else { None })
            .collect();
        let mut awaited = self.abandoned.slots.iter().filter(|slot| self.abandoned.durable.contains_key(slot));
        if let Some(slot) = awaited.find(|slot| !known.contains(slot)) {
            return Err(format!("the scheduler has forgotten that slot {slot} was abandoned"));
        }
        // This counts in the present run, too, for nodes of the run before that are still there.
        self.abandoned.was_said |= !known.is_empty();
        // What was not synced when its process was killed may have been written all the same.
        self.abandoned.false_ones =
            known.into_iter().filter(|slot| !self.abandoned.durable.contains_key(slot)).collect();
        self.abandoned.epoch = epoch.epoch;
        Ok(())
    }

    /// The scheduler says that there will be no next epoch.
    pub(super) fn end_is_said(&mut self, message: &Message) -> Result<(), String> {
        let Message::NotRecovered(word) = message else { return Ok(()) };
        if !is_first_cause(&word.failure) {
            return Ok(());
        }
        if self.abandoned.durable.is_empty() && self.abandoned.false_ones.is_empty() {
            let failure = &word.failure;
            return Err(format!("that there is no next epoch was said before it was durable why: {failure}"));
        }
        if self.abandoned.there.is_empty() {
            let is_there = |node: &usize| {
                let process = &self.processes[*node];
                let Line::Up(conn) = process.line else { return false };
                process.alive && process.epoch == self.newest && self.network.is_open(conn, Side::Scheduler)
            };
            self.abandoned.there = (0..self.processes.len()).filter(is_there).collect();
        }
        Ok(())
    }

    /// Whether somebody is awaited in vain. Then nobody is started again who could not join.
    pub(super) fn awaits_in_vain(&self) -> bool {
        !self.abandoned.slots.is_empty()
    }

    /// The scheduler ends by itself. If the job is not done because a place was abandoned, another run begins.
    pub(super) fn run_ends(&mut self, result: &Result<(), Error>) {
        let Some(running) = &mut self.host.running else { return };
        let Some(journal) = &mut running.journal else { return };
        if self.sabotage == Some(Sabotage::DoneAllTheSame) && self.abandoned.was_said {
            journal.ends();
        }
        let records = running.brain.snapshot();
        let is_done = records.contains(&Record::Done);
        // The word was said in the run before, and somebody of that run is still there to be told.
        let was_said = records.iter().any(|record| matches!(record, Record::Abandoned(_)));
        if result.is_err() && !is_done && (was_said || self.abandoned.was_said) {
            let after = self.random.span_ms(300..3000);
            self.fault(after);
            self.abandoned.begins_again = true;
            self.queue.put(self.now + after, Event::Run);
        }
    }

    /// Everything is started once more. What is left of the run before has been ended first, now and then not all of
    /// it.
    pub(super) fn runs_again(&mut self) -> Result<(), String> {
        self.met(Met::OnceMore);
        self.fault(Duration::from_millis(1500));
        self.nobody_still_waits()?;
        let slow = self.random.once_in(4);
        for node in (0..self.processes.len()).filter(|_| !slow) {
            self.is_ended(node);
        }
        let epoch = self.abandoned.epoch;
        self.abandoned = AbandonedPlaces { epoch, was_unfinished: true, ..AbandonedPlaces::default() };
        self.host.ended = None;
        self.host.words.clear();
        let first = self.random.span_ms(0..800);
        self.queue.put(self.now + first, Event::StartScheduler);
        for slot in 0..self.slots.len() {
            self.slots[slot].finished = false;
            let starts = self.random.span_ms(0..1500);
            self.queue.put(self.now + starts, Event::StartNode(slot));
        }
        Ok(())
    }

    /// A scheduler reads its journal: a job with an abandoned place is not done.
    pub(super) fn is_not_done(&mut self, is_done: bool) -> Result<(), String> {
        match std::mem::take(&mut self.abandoned.was_unfinished) && is_done {
            true => Err("a job that was abandoned unfinished is called done".to_owned()),
            false => Ok(()),
        }
    }

    /// The run is over: no node that could be told why there is no next epoch still waits for one.
    fn nobody_still_waits(&self) -> Result<(), String> {
        let waits = |node: &&usize| {
            let process = &self.processes[**node];
            let is_well = process.alive && process.to_blame.is_none() && process.disturbed == [false; 2];
            is_well && process.program.is_inside && process.paused_until <= self.now
        };
        match self.abandoned.there.iter().find(waits) {
            Some(node) => Err(format!("node {node} was there when the job was abandoned, and was not told")),
            None => Ok(()),
        }
    }

    /// No node waits long for the next epoch if there cannot be one.
    pub(super) fn nobody_waits_in_vain(&self) -> Result<(), String> {
        let mut known = self.abandoned.slots.iter().filter_map(|slot| self.abandoned.durable.get(slot));
        let Some(since) = known.next().filter(|_| self.host.running.is_some()) else { return Ok(()) };
        let quiet = (*since).max(self.last_fault).max(self.host.started);
        if self.now < quiet + SOON {
            return Ok(());
        }
        let waits = |node: &usize| {
            let process = &self.processes[*node];
            let since = process.program.recovering_since.unwrap_or(self.now);
            let is_member = process.alive && process.epoch == self.abandoned.epoch;
            is_member && process.program.is_inside && self.now >= since + SOON
        };
        match (0..self.processes.len()).find(waits) {
            Some(node) => Err(format!("node {node} waits for an epoch that cannot be, for a place was abandoned")),
            None => Ok(()),
        }
    }
}
