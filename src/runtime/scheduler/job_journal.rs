//! The journal of one job: which job it is, how often its scheduler was started, and which records are written at once.
//! `writer.rs` writes on a thread of its own, and `src/sim` in steps between which it dies. Nothing here waits, and
//! only the disk is touched.
//!
//! Invariants: records are written in the order in which they were given; what was given together, or came while the disk
//! was busy, is synced together; a record counts as durable only when a sync that covers it has returned. After a
//! failure nothing more is written, and the failure is kept. Tested in `writer_test.rs`, and by `src/sim`.

use crate::error::{Error, Result, Status};
use crate::journal::{Disk, Journal, Opened, Records};
use crate::membership::check_records;
use crate::types::JobInstance;
use crate::wire::{JobRecord, Record};
use std::collections::HashSet;
use std::path::PathBuf;

/// One piece of work; pieces are done in order.
pub(crate) enum Writing {
    /// Append a record.
    Append(u64, Record),
    /// Put these records in the place of all before.
    Rewrite(Vec<Record>),
}

/// What lies between the threads that give work and the one that does it.
#[derive(Default)]
pub(crate) struct WriteQueue {
    work: Vec<Writing>,
    /// All records up to this one are durable.
    durable: u64,
    /// Whether the file has grown long.
    is_long: bool,
    failed: Option<Error>,
}

/// The progress of the writing.
#[derive(Default)]
pub(crate) struct Written {
    /// All records up to this one are durable.
    pub(crate) durable: u64,
    /// Whether the journal should be rewritten.
    pub(crate) is_long: bool,
    /// The reason why nothing more is written.
    pub(crate) failed: Option<Error>,
}

impl WriteQueue {
    /// Takes a piece of work, unless there was a failure. Returns whether it was taken.
    pub(crate) fn put(&mut self, work: Writing) -> bool {
        let takes = self.failed.is_none();
        if takes {
            self.work.push(work);
        }
        takes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Takes all that waits, to be written and synced together.
    pub(crate) fn take(&mut self) -> Vec<Writing> {
        std::mem::take(&mut self.work)
    }

    /// Notes what came of the work: up to which record all are durable, and whether the file is to be rewritten.
    pub(crate) fn settle(&mut self, outcome: Result<u64>, is_long: bool) {
        match outcome {
            Ok(durable) => self.durable = self.durable.max(durable),
            Err(error) => {
                self.failed = Some(error);
                self.work.clear();
            }
        }
        self.is_long |= is_long;
    }

    /// What has come of all so far.
    pub(crate) fn progress(&mut self) -> Written {
        let is_long = std::mem::take(&mut self.is_long);
        Written { durable: self.durable, is_long, failed: self.failed.clone() }
    }
}

/// A journal that was read, before anything is made of it.
pub(crate) struct Read {
    journal: Journal,
    raw: Records,
    /// What is recorded.
    pub(crate) records: Vec<Record>,
    notes: Vec<String>,
}

/// A journal that is ready to be written.
pub(crate) struct Begun {
    journal: JobJournal,
    /// The job's instance.
    pub(crate) instance: JobInstance,
    /// The job before it in this journal, which was done.
    pub(crate) before: Option<JobInstance>,
    /// The job's records.
    pub(crate) records: Vec<Record>,
    /// Lines for the log.
    pub(crate) notes: Vec<String>,
}

/// The journal of one job, being written.
pub(crate) struct JobJournal {
    journal: Journal,
    job: JobRecord,
    /// Whether a rewrite of the file was asked for, and has not been done.
    asked: bool,
}

impl Read {
    /// Reads the journal on this disk.
    pub(crate) fn new(disk: Box<dyn Disk>, salt: u64) -> Result<Read> {
        let Opened { journal, records: raw, note } = Journal::open(disk, salt)?;
        let mut records = Vec::new();
        for (number, bytes) in raw.iter().enumerate() {
            let record = Record::decode(bytes).map_err(|wrong| senseless(&journal, raw.offset(number), &wrong.0))?;
            records.push(record);
        }
        Ok(Read { journal, raw, records, notes: note.into_iter().collect() })
    }

    /// Checks that the records of a job that goes on are possible.
    pub(crate) fn check(&self) -> Result<()> {
        match self.records.first() {
            Some(Record::Job(job)) if !self.is_done() => check_records(job.worker_num, job.server_num, &self.records)
                .map_err(|absurd| senseless(&self.journal, self.raw.offset(absurd.record), &absurd.words)),
            _ => Ok(()),
        }
    }

    /// Whether the journal's job is done: then another begins. It is so, too, if the scheduler was killed when the last
    /// node had left, and before it said so.
    pub(crate) fn is_done(&self) -> bool {
        let (mut members, mut left) = (0, HashSet::new());
        for record in &self.records {
            match record {
                Record::Epoch(epoch) => members = epoch.members.len(),
                Record::Left(key) => _ = left.insert(*key),
                _ => {}
            }
        }
        self.records.last() == Some(&Record::Done) || (members > 0 && left.len() == members)
    }

    /// Goes on with the journal's job, which must be like this one, or begins this one; and writes down that the
    /// scheduler was started. That must be synced before anything is said. `setting`: the setting that names the
    /// directory.
    pub(crate) fn begin(self, new: JobRecord, setting: &str) -> Result<Begun> {
        let is_done = self.is_done();
        let Read { mut journal, raw, mut records, mut notes } = self;
        let mut before = None;
        if is_done {
            before = match records.first() {
                Some(Record::Job(job)) => Some(job.instance),
                _ => None,
            };
            journal.archive()?;
            notes.push(format!("the job of the journal {} is done: a new one begins", journal.path().display()));
            records.clear();
        }
        let job = match records.first() {
            Some(Record::Job(job)) => {
                check_job(&journal, job, &new, setting)?;
                job.clone()
            }
            Some(_) => return Err(senseless(&journal, raw.offset(0), "its first record does not name its job")),
            None => {
                journal.append(&[Record::Job(new.clone()).encode()])?;
                new
            }
        };
        let starts = records.iter().filter_map(|record| match record {
            Record::Generation(number) => Some(*number),
            _ => None,
        });
        let generation = Record::Generation(starts.max().unwrap_or(0) + 1);
        journal.append(&[generation.encode()])?;
        records.push(generation);
        let instance = job.instance;
        Ok(Begun { instance, before, journal: JobJournal { journal, job, asked: false }, records, notes })
    }
}

impl Begun {
    /// Makes durable that the scheduler was started.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.journal.sync()
    }

    /// The journal, ready for further records.
    pub(crate) fn into_journal(self) -> JobJournal {
        self.journal
    }
}

impl JobJournal {
    /// The path of the journal's file.
    pub(crate) fn path(&self) -> PathBuf {
        self.journal.path()
    }

    /// Writes this work. Returns the number of the last record, which is not durable yet.
    pub(crate) fn write(&mut self, work: Vec<Writing>) -> Result<u64> {
        let mut last = 0;
        let mut batch = Vec::new();
        for work in work {
            match work {
                Writing::Append(number, record) => {
                    last = number;
                    batch.push(record.encode());
                }
                Writing::Rewrite(records) => {
                    self.journal.append(&std::mem::take(&mut batch))?;
                    let first = std::iter::once(Record::Job(self.job.clone()).encode());
                    self.journal.rewrite(first.chain(records.iter().map(Record::encode)))?;
                    self.asked = false;
                }
            }
        }
        self.journal.append(&batch)?;
        Ok(last)
    }

    /// Makes everything durable that was written.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.journal.sync()
    }

    /// Whether the file is to be rewritten, because it has become long, or is not in its place any more. This is said
    /// once, until it has been done.
    pub(crate) fn asks_for_rewrite(&mut self) -> bool {
        let asks = self.journal.should_compact() || self.journal.is_displaced();
        asks && !std::mem::replace(&mut self.asked, asks)
    }

    /// A line for the log, if the file is not in its place any more.
    pub(crate) fn displaced(&self) -> Option<String> {
        self.journal.is_displaced().then(|| {
            let path = self.journal.path();
            format!("{}: it was removed, or another file was put in its place: it is written anew", path.display())
        })
    }
}

/// The error for a record whose checksum is right, but which this version cannot read, or which is impossible.
fn senseless(journal: &Journal, offset: u64, words: &str) -> Error {
    let path = journal.path();
    let message = format!(
        "the journal {} makes no sense to this version at offset {offset}: {words}: restore it from a copy, or move it away to \
         begin a new job without what it remembers",
        path.display()
    );
    Error::new(Status::Journal, message)
}

/// Refuses the journal of another job, which is left alone.
fn check_job(journal: &Journal, job: &JobRecord, own: &JobRecord, setting: &str) -> Result<()> {
    let words = |job: &JobRecord| {
        let id = job.job_id.as_ref().map_or("no job id".to_owned(), |id| format!("job id {id:?}"));
        format!("{id}, {} workers and {} servers", job.worker_num, job.server_num)
    };
    if (&job.job_id, job.worker_num, job.server_num) == (&own.job_id, own.worker_num, own.server_num) {
        return Ok(());
    }
    let (path, theirs, ours) = (journal.path(), words(job), words(own));
    let message = format!(
        "the journal {} belongs to another job that has not ended ({theirs}), and not to this scheduler's ({ours}): expected \
         another directory ({setting}), or the journal to be moved away if that job is over",
        path.display()
    );
    Err(Error::new(Status::Journal, message))
}
