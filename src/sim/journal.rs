//! The scheduler's disk: the real journal over the simulated disk, written by the real `runtime/scheduler/job_journal.rs` in steps
//! that are those of `runtime/scheduler/writer.rs`. The scheduler dies between any two of them.

use super::plan::Moment;
use super::sabotage::{self, Sabotage};
use super::table::{Event as Met, Written};
use super::world::{Event, World};
use crate::error::Error;
use crate::membership;
use crate::runtime::scheduler::job_journal::{Begun, JobJournal, Read, WriteQueue, Writing};
use crate::types::JobInstance;
use crate::wire::{JobRecord, Record};
use std::time::Duration;

/// One thing that the writing thread does, and what comes of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Write,
    /// The sync returns that makes all up to this record durable.
    Sync(u64),
    /// The scheduler's loop is woken, and looks at what there is to tell.
    Look,
}

/// What is written down, and waits for it.
pub(super) struct Journal {
    journal: JobJournal,
    queue: WriteQueue,
    busy: bool,
    /// The records that are put out, and not told of as durable.
    written: Vec<(u64, Written)>,
}

impl Journal {
    pub(super) fn new(begun: Begun) -> Journal {
        Journal { journal: begun.into_journal(), queue: WriteQueue::default(), busy: false, written: Vec::new() }
    }

    fn up_to(&self, last: u64) -> Vec<Written> {
        self.written.iter().filter(|(number, _)| *number <= last).map(|(_, written)| *written).collect()
    }

    /// It says that the job is done.
    pub(super) fn ends(&mut self) {
        let done = vec![Writing::Append(u64::MAX, Record::Done)];
        let _ = self.journal.write(done).and_then(|_| self.journal.sync());
    }
}

impl World {
    /// Reads the journal, and writes down that the scheduler was started.
    pub(super) fn begin_journal(&mut self) -> Result<Option<Begun>, Error> {
        let mut read = Read::new(Box::new(self.host.disk.clone()), self.host.salt)?;
        if self.sabotage.is_none() {
            read.check()?;
        }
        if let Err(wrong) = self.is_not_done(read.is_done()) {
            self.wrong.get_or_insert(wrong);
        }
        if read.is_done() {
            // Another job begins, whether or not all of this now succeeds.
            self.host.archived = true;
            self.host.instance = None;
            (self.newest, self.told, self.ledger) = Default::default();
            self.abandoned.job_is_done();
        }
        sabotage::reread(self, &mut read.records);
        let mut instance = [0; 16];
        instance.fill_with(|| self.random.bits() as u8);
        let (worker_num, server_num) = (self.plan.workers, self.plan.servers);
        let new = JobRecord { instance: JobInstance(instance), job_id: None, worker_num, server_num };
        let is_first = read.is_done() || read.records.is_empty();
        let written = if is_first { Written::Job } else { Written::Generation };
        let mut begun = read.begin(new, "MS_RECOVERY_PATH")?;
        if self.dies_at(Moment::Unsynced(written)) {
            return Ok(None);
        }
        begun.sync()?;
        Ok((!self.dies_at(Moment::Durable(written))).then_some(begun))
    }

    pub(super) fn put_to_work(&mut self, work: Writing) {
        let at = self.now + self.random.span_us(5..60);
        let life = self.host.life;
        let Some(journal) = self.host.journal() else { return };
        if let Writing::Append(number, record) = &work {
            journal.written.push((*number, Written::of(record)));
        }
        if journal.queue.put(work) && !std::mem::replace(&mut journal.busy, true) {
            self.queue.put(at, Event::Writer(life, Step::Write));
        }
    }

    /// The writing thread goes on, or the scheduler's loop looks at what it has done.
    pub(super) fn writer(&mut self, life: u64, step: Step) -> Result<(), String> {
        if self.host.life != life {
            return Ok(());
        }
        let outcome = match step {
            Step::Write => self.write(),
            Step::Sync(last) => self.sync(last),
            Step::Look => {
                self.look_at_writer();
                Ok(())
            }
        };
        let Err(error) = outcome else { return Ok(()) };
        self.say(|| format!("scheduler's disk: {error}"));
        if !self.disk_has_failed(&error) {
            return Err(format!("the journal fails: {error}"));
        }
        if error.message().contains("has crashed") {
            let back = self.random.span_ms(20..1500);
            self.scheduler_dies(true, back);
        } else {
            self.settle(Err(error));
        }
        Ok(())
    }

    /// Writes everything that waits, and begins to sync it.
    fn write(&mut self) -> Result<(), Error> {
        let Some(journal) = self.host.journal() else { return Ok(()) };
        let work = journal.queue.take();
        let rewrites = work.iter().any(|work| matches!(work, Writing::Rewrite(_)));
        let last = journal.journal.write(work)?;
        let is_of = |kind| journal.written.iter().all(|(_, written)| *written == kind);
        let is_early = match self.sabotage {
            Some(Sabotage::AcknowledgeEarly) => is_of(Written::Store),
            Some(Sabotage::AbandonedEarly) => is_of(Written::Abandoned),
            _ => false,
        };
        if is_early {
            journal.queue.settle(Ok(last), false);
        }
        let (life, slow) = (self.host.life, self.disk_is_slow());
        if is_early {
            self.queue.put(self.now, Event::Writer(life, Step::Look));
        }
        if rewrites {
            self.met(Met::Rewritten);
        }
        let lasts = match slow {
            true => self.random.span_ms(100..900),
            false => self.random.span_us(self.plan.sync_max_us / 20..self.plan.sync_max_us),
        };
        self.queue.put(self.now + lasts, Event::Writer(life, Step::Sync(last)));
        Ok(())
    }

    fn sync(&mut self, last: u64) -> Result<(), Error> {
        let kinds = self.host.journal().map_or(Vec::new(), |journal| journal.up_to(last));
        for written in &kinds {
            if self.dies_at(Moment::Unsynced(*written)) {
                return Ok(());
            }
        }
        let Some(journal) = self.host.journal() else { return Ok(()) };
        journal.journal.sync()?;
        self.abandoned.settle(last, self.now);
        for written in &kinds {
            if self.dies_at(Moment::Durable(*written)) {
                return Ok(());
            }
        }
        self.settle(Ok(last));
        Ok(())
    }

    /// What was written is settled; on with what has come meanwhile.
    fn settle(&mut self, outcome: Result<u64, Error>) {
        let soon = self.now + self.random.span_us(2..40);
        let rewrites = outcome.is_ok() && self.random.once_in(self.plan.rewrite_once_in);
        let Some(journal) = self.host.journal() else { return };
        let is_long = journal.journal.asks_for_rewrite() || rewrites;
        journal.queue.settle(outcome, is_long);
        journal.busy = !journal.queue.is_empty();
        let is_busy = journal.busy;
        let life = self.host.life;
        self.queue.put(soon, Event::Writer(life, Step::Look));
        if is_busy {
            self.queue.put(soon, Event::Writer(life, Step::Write));
        }
    }

    /// Looks at what has become durable, or why nothing does any more, as `runtime/scheduler/serving.rs` does.
    fn look_at_writer(&mut self) {
        let Some(journal) = self.host.journal() else { return };
        let progress = journal.queue.progress();
        if progress.failed.is_some() {
            let (machine, back) = (self.random.once_in(2), self.random.span_ms(20..1500));
            return self.scheduler_dies(machine, back);
        }
        let first = journal.up_to(progress.durable).first().copied();
        journal.written.retain(|(number, _)| *number > progress.durable);
        if let Some(running) = &mut self.host.running {
            running.dies_when_told = first;
        }
        self.feed_scheduler(membership::Input::Persisted(progress.durable));
        let Some(running) = &mut self.host.running else { return };
        running.dies_when_told = None;
        if progress.is_long {
            let records = running.brain.snapshot();
            self.is_rewritten(&records);
            self.put_to_work(Writing::Rewrite(records));
        }
    }

    /// Whether the disk is at fault: its machine has died, it is full, or it has lost what it was to sync.
    pub(super) fn disk_has_failed(&mut self, error: &Error) -> bool {
        let failed = match error.message() {
            words if words.contains("has crashed") => Met::DiskOperation,
            words if words.starts_with("cannot write to") => Met::DiskFull,
            words if words.starts_with("cannot sync") => Met::SyncFailed,
            _ => return false,
        };
        self.met(failed);
        true
    }

    pub(super) fn disk_is_slow(&self) -> bool {
        self.host.slow_until > self.now
    }

    pub(super) fn slow_disk(&mut self, span: Duration) {
        self.met(Met::SlowDisk);
        self.fault(span);
        self.host.slow_until = self.now + span;
    }
}
