//! Writes the scheduler's journal on a thread of its own, off the loop that watches for life.
//!
//! Invariants: records are written in the order in which they were given; what was given together, or came while the disk
//! was busy, is synced together; a record is told of as durable only when a sync that covers it has returned. After a
//! failure nothing more is written, and the failure is told once. Tested in `writer_test.rs`, over a disk that does what it
//! is told.

use crate::config::{Key, Settings};
use crate::error::{Error, Result, Status};
use crate::journal::{Disk, Journal, Opened, RECORD_MAX};
use crate::net::{host, thread, Waker};
use crate::types::JobInstance;
use crate::wire::{JobRecord, Record};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

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
    let Opened { mut journal, records, note } = Journal::open(disk, salt)?;
    let mut notes: Vec<String> = note.into_iter().collect();
    let mut records = records.iter().map(|bytes| decode(&journal, bytes)).collect::<Result<Vec<Record>>>()?;
    if records.last() == Some(&Record::Done) {
        journal.archive()?;
        notes.push(format!("the job of the journal {} is done: a new one begins", journal.path().display()));
        records.clear();
    }
    let job = match records.first() {
        Some(Record::Job(job)) => {
            check_job(settings, &journal, job)?;
            job.clone()
        }
        Some(_) => {
            let path = journal.path();
            let message = format!("the journal {} does not begin with its job: move it away", path.display());
            return Err(Error::new(Status::Journal, message));
        }
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

fn decode(journal: &Journal, bytes: &[u8]) -> Result<Record> {
    Record::decode(bytes).map_err(|wrong| {
        let path = journal.path();
        let message = format!("the journal {} holds what this version cannot read: {}", path.display(), wrong.0);
        Error::new(Status::Journal, message)
    })
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
    pub(super) fn start(begun: Begun, waker: Waker) -> Result<Writer> {
        let shared = Arc::new(Shared::default());
        let (theirs, Begun { journal, job, .. }) = (Arc::clone(&shared), begun);
        let thread = thread::spawn("muster-journal", move || write(&theirs, journal, &job, &waker))?;
        Ok(Writer { shared, thread: Some(thread) })
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
            self.shared.changed.notify_one();
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
        self.shared.desk().ends = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic was printed
        }
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
