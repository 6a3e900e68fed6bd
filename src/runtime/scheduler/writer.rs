//! Writes the scheduler's journal on a thread of its own, off the loop that watches for life. `job_journal` decides
//! what is written when, and what is told of it.
//!
//! At the end, a disk that does not return from a call is waited for [`DISK_WAIT`]; then the thread is left behind in
//! that call, and says nothing to anybody any more. Tested in `writer_test.rs`, over a disk that does what it is told.

use super::job_journal::{Begun, JobJournal, Read, WriteQueue, Writing, Written};
use crate::config::{Key, Settings};
use crate::error::{Error, Result, Status};
use crate::journal::{Disk, RECORD_MAX};
use crate::net::{host, thread, Waker};
use crate::runtime::base::log::Logger;
use crate::types::JobInstance;
use crate::wire::{JobRecord, Record};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a disk may take at the end for what is still to be written. It is longer than a busy disk needs, or a disk
/// over a network that has broken off for a moment.
const DISK_WAIT: Duration = Duration::from_secs(30);

/// The place where the scheduler's loop hands over what is to be written, and the writing thread takes it.
#[derive(Default)]
struct Handover {
    state: Mutex<HandoverState>,
    changed: Condvar,
}

/// The queue, and who still uses it.
#[derive(Default)]
struct HandoverState {
    queue: WriteQueue,
    stage: Stage,
}

/// How far the handover has come.
#[derive(Default, PartialEq, Eq)]
enum Stage {
    /// Work is given and taken.
    #[default]
    Open,
    /// Nothing more is given; what is there is still taken.
    Closed,
    /// The writing thread has ended.
    Ended,
}

impl Handover {
    fn lock(&self) -> MutexGuard<'_, HandoverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the journal on the disk that this opens. Begins a new job if none goes on, and writes down that the scheduler
/// was started.
pub(crate) fn begin(settings: &Settings, open: impl FnOnce() -> Result<Box<dyn Disk>>) -> Result<Begun> {
    check_limits(settings)?;
    let read = Read::new(open()?, u64::from_le_bytes(host::random_bytes()?))?;
    let new = JobRecord {
        instance: JobInstance(host::random_bytes()?),
        job_id: settings.job_id.clone(),
        worker_num: settings.worker_num,
        server_num: settings.server_num,
    };
    read.check()?;
    let mut begun = read.begin(new, &settings.origin(Key::RecoveryPath))?;
    begun.sync()?;
    Ok(begun)
}

/// Checks that what the store takes fits into the journal, in one record: also several values with their keys, which
/// come in one message.
fn check_limits(settings: &Settings) -> Result<()> {
    /// The bytes of a message's keys, and of what stands beside each in the record.
    const BESIDE: usize = 4 << 20;
    let (limits, most) = (settings.store_limits, RECORD_MAX - BESIDE);
    if limits.key.saturating_add(limits.value) <= most {
        return Ok(());
    }
    let (setting, value, most) = (settings.origin(Key::StoreValueLimit), limits.value, most - limits.key);
    let why = "with recovery a value is kept in the scheduler's journal";
    Err(Error::config(format!("{setting} is {value}: {why}, which takes {most} bytes at most")))
}

/// The writing thread.
pub(crate) struct Writer {
    handover: Arc<Handover>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
    logger: Arc<Logger>,
    /// How long the disk is waited for at the end, and whether it was waited for.
    patience: Duration,
    has_waited: bool,
}

impl Writer {
    /// Goes on with this journal; `waker` is woken when there is something to tell.
    pub(crate) fn start(begun: Begun, waker: Waker, logger: Arc<Logger>) -> Result<Writer> {
        let handover = Arc::new(Handover::default());
        let (of_thread, journal) = (Arc::clone(&handover), begun.into_journal());
        let path = journal.path();
        let log = Arc::clone(&logger);
        let thread = thread::spawn("muster-journal", move || {
            let _ends = Ends(&of_thread);
            write(&of_thread, journal, &waker, &log);
        })?;
        Ok(Writer { handover, thread: Some(thread), path, logger, patience: DISK_WAIT, has_waited: false })
    }

    /// How long the disk is waited for at the end.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Sets how long the disk is waited for at the end.
    #[cfg(test)]
    pub(crate) fn be_patient_for(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The error that says that the disk does not return, was waited for so long, and holds back the job's end.
    pub(crate) fn stands_still(&mut self) -> Error {
        self.has_waited = true;
        let (path, time) = (self.path.display(), self.patience);
        let message = format!(
            "cannot write to {path}: the disk has not returned for {time:?}, and the job's end waits for it: expected a disk \
             that works, or another recovery path (MS_RECOVERY_PATH)"
        );
        Error::new(Status::Journal, message)
    }

    /// Ends the thread once everything that was given is written. Returns a line for the log if the disk does not
    /// return in time.
    fn finish(&mut self) -> Option<String> {
        let thread = self.thread.take()?;
        let mut state = self.handover.lock();
        if state.stage == Stage::Open {
            state.stage = Stage::Closed;
        }
        self.handover.changed.notify_all();
        let left = if self.has_waited { Duration::ZERO } else { self.patience };
        let waited = self.handover.changed.wait_timeout_while(state, left, |state| state.stage != Stage::Ended);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.stage == Stage::Ended {
            drop(state);
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
    pub(crate) fn append(&self, number: u64, record: Record) {
        self.put(Writing::Append(number, record));
    }

    /// Puts these records in the place of all before.
    pub(crate) fn rewrite(&self, records: Vec<Record>) {
        self.put(Writing::Rewrite(records));
    }

    fn put(&self, work: Writing) {
        if self.handover.lock().queue.put(work) {
            self.handover.changed.notify_all();
        }
    }

    /// What has come of the work so far.
    pub(crate) fn progress(&self) -> Written {
        self.handover.lock().queue.progress()
    }
}

impl Drop for Writer {
    /// Writes everything that was given first.
    fn drop(&mut self) {
        if let Some(line) = self.finish() {
            self.logger.error(&line);
        }
    }
}

/// Says that the thread has ended, also by a panic.
struct Ends<'a>(&'a Handover);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.lock().stage = Stage::Ended;
        self.0.changed.notify_all();
    }
}

fn write(handover: &Handover, mut journal: JobJournal, waker: &Waker, logger: &Logger) {
    loop {
        let work = {
            let mut state = handover.lock();
            while state.queue.is_empty() && state.stage == Stage::Open {
                state = handover.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.queue.is_empty() {
                return;
            }
            state.queue.take()
        };
        let outcome = journal.write(work).and_then(|last| journal.sync().map(|()| last));
        let asks = journal.asks_for_rewrite();
        if let Some(line) = journal.displaced().filter(|_| asks) {
            logger.warn(&line);
        }
        handover.lock().queue.settle(outcome, asks);
        waker.wake();
    }
}

#[cfg(test)]
#[path = "writer_test.rs"]
mod tests;
