//! Writes the scheduler's journal on a thread of its own, off the loop that watches for life.
//!
//! Invariants: records are written in the order in which they were given; what was given together, or came while the disk
//! was busy, is synced together; a record is told of as durable only when a sync that covers it has returned. After a
//! failure nothing more is written, and the failure is told once. A disk that does not return from a call is waited for
//! [`DISK_WAIT`] in the end; then the thread is left behind in that call, and says nothing to anybody any more. Tested in `writer_test.rs`, over a disk that does what it
//! is told.

use super::log::Logger;
use crate::config::{Key, Settings};
use crate::error::{Error, Result, Status};
use crate::journal::{Disk, Journal, Opened, RECORD_MAX};
use crate::membership::check_history;
use crate::net::{host, thread, Waker};
use crate::types::JobInstance;
use crate::wire::{JobRecord, Record};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a disk may take for what there is to be written in the end. Longer than a disk that is busy, or one over a network
/// that has broken off for a moment.
const DISK_WAIT: Duration = Duration::from_secs(30);

/// What is to be done, in order.
enum Work {
    Append(u64, Record),
    Rewrite(Vec<Record>),
}

#[derive(Default)]
struct Desk {
    work: Vec<Work>,
    /// Up to which record all are durable.
    durable: u64,
    /// The file has grown long.
    is_long: bool,
    failed: Option<Error>,
    ends: bool,
    has_ended: bool,
}

/// What the two threads share.
#[derive(Default)]
struct Shared {
    desk: Mutex<Desk>,
    changed: Condvar,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A journal that was read, and is ready to be written.
pub(super) struct Begun {
    journal: Journal,
    job: JobRecord,
    /// Which job this is.
    pub(super) instance: JobInstance,
    /// What is recorded of it.
    pub(super) records: Vec<Record>,
    /// Lines for the log.
    pub(super) notes: Vec<String>,
}

/// Reads the journal on the disk that this opens, begins a new job where there is none that goes on, and writes down that the
/// scheduler was started.
pub(super) fn begin(settings: &Settings, open: impl FnOnce() -> Result<Box<dyn Disk>>) -> Result<Begun> {
    check_limits(settings)?;
    let disk = open()?;
    let salt = u64::from_le_bytes(host::random_bytes()?);
    let Opened { mut journal, records: read, note } = Journal::open(disk, salt)?;
    let mut notes: Vec<String> = note.into_iter().collect();
    let mut records = Vec::new();
    for (number, bytes) in read.iter().enumerate() {
        let record = Record::decode(bytes).map_err(|wrong| senseless(&journal, read.offset(number), &wrong.0))?;
        records.push(record);
    }
    if records.last() == Some(&Record::Done) {
        journal.archive()?;
        notes.push(format!("the job of the journal {} is done: a new one begins", journal.path().display()));
        records.clear();
    }
    let job = match records.first() {
        Some(Record::Job(job)) => {
            check_job(settings, &journal, job)?;
            check_history(job.worker_num, job.server_num, &records)
                .map_err(|absurd| senseless(&journal, read.offset(absurd.record), &absurd.words))?;
            job.clone()
        }
        Some(_) => return Err(senseless(&journal, read.offset(0), "it does not begin with its job")),
        None => {
            let instance = JobInstance(host::random_bytes()?);
            let (worker_num, server_num) = (settings.worker_num, settings.server_num);
            let job = JobRecord { instance, job_id: settings.job_id.clone(), worker_num, server_num };
            journal.append(&[Record::Job(job.clone()).encode()])?;
            job
        }
    };
    let starts = records.iter().filter_map(|record| match record {
        Record::Generation(number) => Some(*number),
        _ => None,
    });
    let generation = Record::Generation(starts.max().unwrap_or(0) + 1);
    journal.append(&[generation.encode()])?;
    journal.sync()?;
    records.push(generation);
    Ok(Begun { journal, instance: job.instance, job, records, notes })
}

/// A record whose checksum is right says what this version cannot read, or what cannot have been.
fn senseless(journal: &Journal, offset: u64, words: &str) -> Error {
    let path = journal.path();
    let message = format!(
        "the journal {} makes no sense to this version at offset {offset}: {words}: restore it from a copy, or move it away to \
         begin a new job without what it remembers",
        path.display()
    );
    Error::new(Status::Journal, message)
}

/// What the store takes must fit into the journal.
fn check_limits(settings: &Settings) -> Result<()> {
    const BESIDE: usize = 1024;
    let (limits, most) = (settings.store_limits, RECORD_MAX - BESIDE);
    if limits.key.saturating_add(limits.value) <= most {
        return Ok(());
    }
    let (setting, value, most) = (settings.origin(Key::StoreValueLimit), limits.value, most - limits.key);
    let why = "with recovery a value is kept in the scheduler's journal";
    Err(Error::config(format!("{setting} is {value}: {why}, which takes {most} bytes at most")))
}

/// The journal of another job is left alone.
fn check_job(settings: &Settings, journal: &Journal, job: &JobRecord) -> Result<()> {
    let size = |workers: u32, servers: u32| format!("{workers} workers and {servers} servers");
    let name = |id: &Option<String>| id.as_ref().map_or("no job id".to_owned(), |id| format!("job id {id:?}"));
    let same_size = (job.worker_num, job.server_num) == (settings.worker_num, settings.server_num);
    if same_size && job.job_id == settings.job_id {
        return Ok(());
    }
    let theirs = format!("{}, {}", name(&job.job_id), size(job.worker_num, job.server_num));
    let ours = format!("{}, {}", name(&settings.job_id), size(settings.worker_num, settings.server_num));
    let (path, setting) = (journal.path(), settings.origin(Key::RecoveryPath));
    let message = format!(
        "the journal {} is that of another job that has not ended ({theirs}) than this scheduler's ({ours}): expected \
         another directory ({setting}), or the journal to be moved away if that job is over",
        path.display()
    );
    Err(Error::new(Status::Journal, message))
}

/// The writing thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
    logger: Arc<Logger>,
    /// How long the disk is waited for in the end, and whether it was.
    patience: Duration,
    has_waited: bool,
}

/// What there is to tell of it.
#[derive(Default)]
pub(super) struct Progress {
    /// Up to which record all are durable.
    pub(super) durable: u64,
    /// Whether the journal should be rewritten.
    pub(super) is_long: bool,
    /// Why nothing more is written.
    pub(super) failed: Option<Error>,
}

impl Writer {
    /// Goes on with this journal; `waker` is woken when there is something to tell.
    pub(super) fn start(begun: Begun, waker: Waker, logger: Arc<Logger>) -> Result<Writer> {
        let shared = Arc::new(Shared::default());
        let (theirs, Begun { journal, job, .. }) = (Arc::clone(&shared), begun);
        let path = journal.path();
        let thread = thread::spawn("muster-journal", move || {
            let _ends = Ends(&theirs);
            write(&theirs, journal, &job, &waker);
        })?;
        Ok(Writer { shared, thread: Some(thread), path, logger, patience: DISK_WAIT, has_waited: false })
    }

    /// How long the disk is waited for in the end.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Another time for that.
    #[cfg(test)]
    pub(super) fn be_patient_for(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// That the job's end is kept back by a disk that does not return, and was waited for so long.
    pub(super) fn stands_still(&mut self) -> Error {
        self.has_waited = true;
        let (path, time) = (self.path.display(), self.patience);
        let message = format!(
            "cannot write to {path}: the disk has not returned for {time:?}, and the job's end waits for it: expected a disk \
             that works, or another recovery path (MS_RECOVERY_PATH)"
        );
        Error::new(Status::Journal, message)
    }

    /// Ends the thread, once everything that was given is written: or a line for the log, where the disk does not return in time.
    fn finish(&mut self) -> Option<String> {
        let thread = self.thread.take()?;
        let mut desk = self.shared.desk();
        desk.ends = true;
        self.shared.changed.notify_all();
        let left = if self.has_waited { Duration::ZERO } else { self.patience };
        let waited = self.shared.changed.wait_timeout_while(desk, left, |desk| !desk.has_ended);
        let (desk, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if desk.has_ended {
            drop(desk);
            let _ = thread.join(); // it does nothing more; a panic was printed
            return None;
        }
        thread::stay_mapped();
        let (path, time) = (self.path.display(), self.patience);
        Some(format!(
            "{path}: the disk has not returned for {time:?}: what was written last may not be there, and the thread that waits \
             for it is left behind"
        ))
    }

    /// Appends a record.
    pub(super) fn append(&self, number: u64, record: Record) {
        self.put(Work::Append(number, record));
    }

    /// Puts these records in the place of all before.
    pub(super) fn rewrite(&self, records: Vec<Record>) {
        self.put(Work::Rewrite(records));
    }

    fn put(&self, work: Work) {
        let mut desk = self.shared.desk();
        if desk.failed.is_none() {
            desk.work.push(work);
            self.shared.changed.notify_all();
        }
    }

    /// What has come of it.
    pub(super) fn progress(&self) -> Progress {
        let mut desk = self.shared.desk();
        let is_long = std::mem::take(&mut desk.is_long);
        Progress { durable: desk.durable, is_long, failed: desk.failed.clone() }
    }
}

impl Drop for Writer {
    /// Everything that was given is written first.
    fn drop(&mut self) {
        if let Some(line) = self.finish() {
            self.logger.error(&line);
        }
    }
}

/// Says that the thread has ended, also by a panic.
struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.desk().has_ended = true;
        self.0.changed.notify_all();
    }
}

fn write(shared: &Shared, mut journal: Journal, job: &JobRecord, waker: &Waker) {
    // The file is asked to be rewritten once, until that has been done.
    let mut asked = false;
    loop {
        let work = {
            let mut desk = shared.desk();
            while desk.work.is_empty() && !desk.ends {
                desk = shared.changed.wait(desk).unwrap_or_else(PoisonError::into_inner);
            }
            if desk.work.is_empty() {
                return;
            }
            std::mem::take(&mut desk.work)
        };
        let outcome = carry_out(&mut journal, job, work, &mut asked);
        let mut desk = shared.desk();
        match outcome {
            Ok(durable) => desk.durable = desk.durable.max(durable),
            Err(error) => {
                desk.failed = Some(error);
                desk.work.clear();
            }
        }
        if journal.should_compact() && !asked {
            asked = true;
            desk.is_long = true;
        }
        drop(desk);
        waker.wake();
    }
}

/// The number of the last record that is durable then.
fn carry_out(journal: &mut Journal, job: &JobRecord, work: Vec<Work>, asked: &mut bool) -> Result<u64> {
    let mut last = 0;
    let mut batch = Vec::new();
    for work in work {
        match work {
            Work::Append(number, record) => {
                last = number;
                batch.push(record.encode());
            }
            Work::Rewrite(records) => {
                journal.append(&std::mem::take(&mut batch))?;
                let first = std::iter::once(Record::Job(job.clone()).encode());
                journal.rewrite(first.chain(records.iter().map(Record::encode)))?;
                *asked = false;
            }
        }
    }
    journal.append(&batch)?;
    journal.sync()?;
    Ok(last)
}

#[cfg(test)]
#[path = "writer_test.rs"]
mod tests;
