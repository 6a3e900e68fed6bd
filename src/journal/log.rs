//! The scheduler's journal: records that are appended, synced, read again at the next start, and compacted.
//!
//! Files: `scheduler.journal`; `scheduler.journal.new` while one is being made; `scheduler.journal.1`, `.2`, .. of jobs
//! that are done; `scheduler.lock`, held as long as the journal lives.
//!
//! Invariants
//! - A new file is whole and durable before it takes the journal's name, and the name is durable before anything is
//!   appended. So after a crash the journal is the old file or the new one.
//! - `synced`, which every record carries, never runs ahead of what a sync has returned for (`record.rs` builds on it).
//! - After the first error of the disk, every later call returns that error, and nothing is written or synced any more.
//!   The next start reads what became durable.
//!
//! Nothing is promised of a record before [`Journal::sync`] has returned. Tested in `log_test.rs`.

use super::disk::{path_of, tried, tried_directory, Appender, Disk, Lock, Locked};
use super::record::{head, scan, RecordEncoder, HEAD_BYTES, RECORD_HEAD_BYTES, RECORD_MAX};
use crate::error::{Error, Result, Status};
use std::ops::Range;
use std::path::PathBuf;

const JOURNAL: &str = "scheduler.journal";
const NEW: &str = "scheduler.journal.new";
const ARCHIVED: &str = "scheduler.journal.";
const LOCK: &str = "scheduler.lock";

/// How many journals of jobs that are done are kept.
const ARCHIVES_KEPT: usize = 3;
/// A smaller file is not worth compacting.
const COMPACT_LEAST: u64 = 1 << 20;
/// How many times its snapshot a file may be before it is worth compacting.
const COMPACT_FACTOR: u64 = 4;
/// A snapshot is written in parts of about this size.
const PART_BYTES: usize = 1 << 20;

/// The journal of one scheduler.
pub struct Journal {
    file: Box<dyn Appender>,
    encoder: RecordEncoder,
    /// The length of the file, and how much of it is synced.
    length: u64,
    synced: u64,
    /// How much of it the snapshot takes; 0: not known.
    snapshot: u64,
    /// Whether the last sync has found that the journal's name does not lead to this file any more.
    displaced: bool,
    /// The salt of the next file.
    next_salt: u64,
    broken: Option<Error>,
    disk: Box<dyn Disk>,
    /// The last field, so that the lock is given up last.
    lock: Box<dyn Lock>,
}

/// A journal that was opened.
pub struct Opened {
    /// The journal, to which more can be appended.
    pub journal: Journal,
    /// What it holds.
    pub records: Records,
    /// A line for the log, if a torn tail was cut off.
    pub note: Option<String>,
}

/// What a journal held when it was opened, in the order in which it was written.
#[derive(Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
    payloads: Vec<Range<usize>>,
}

impl Records {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.payloads.iter().map(|payload| &self.bytes[payload.clone()])
    }

    /// Where the record of this number begins in the file, which was written anew when it was opened.
    pub fn offset(&self, number: usize) -> u64 {
        let before = self.payloads.iter().take(number).map(|payload| RECORD_HEAD_BYTES + payload.len());
        (HEAD_BYTES + before.sum::<usize>()) as u64
    }

    /// Whether there are none, as at a job's first start.
    pub fn is_empty(&self) -> bool {
        self.payloads.is_empty()
    }
}

impl Journal {
    /// Takes the lock, reads the journal in this directory, and begins one where there is none. Everything that is read
    /// is durable when this returns, for it is written anew.
    ///
    /// `salt` is a random number. By it this file's bytes are told from what an older file left on the disk.
    pub fn open(disk: Box<dyn Disk>, salt: u64) -> Result<Opened> {
        let lock = lock(&*disk)?;
        tried(&*disk, "remove", NEW, disk.remove(NEW))?;
        let Some(bytes) = tried(&*disk, "read", JOURNAL, disk.read(JOURNAL))? else {
            let begun = begin(&*disk, salt, std::iter::empty::<&[u8]>())?;
            let journal = Journal::new(disk, lock, begun, salt.wrapping_add(1));
            return Ok(Opened { journal, records: Records::default(), note: None });
        };
        let scan = scan(&bytes).map_err(|wrong| {
            let path = path_of(&*disk, JOURNAL).display().to_string();
            let message = format!(
                "the journal {path} {wrong}: restore it from a copy, or move it away to begin a new job without what \
                 it remembers"
            );
            Error::new(Status::Journal, message)
        })?;
        let torn = bytes.len() - scan.end;
        let note = (torn > 0).then(|| {
            let path = path_of(&*disk, JOURNAL);
            let (path, end) = (path.display(), scan.end);
            format!("{path}: {torn} bytes at offset {end} were being written when the scheduler ended, and are cut off")
        });
        // These bytes may only be in the system's memory: the last scheduler may have died before its sync, or the sync
        // failed. A later sync of that file would not report the failure again. So the records are written anew.
        let begun = begin(&*disk, salt, scan.payloads.iter().map(|payload| &bytes[payload.clone()]))?;
        // After several starts at the latest, what was appended cannot be told from the snapshot any more. The next rewrite shows
        // how much a snapshot takes.
        let begun = Begun { snapshot: 0, ..begun };
        let journal = Journal::new(disk, lock, begun, salt.wrapping_add(1));
        Ok(Opened { journal, records: Records { bytes, payloads: scan.payloads }, note })
    }

    fn new(disk: Box<dyn Disk>, lock: Box<dyn Lock>, begun: Begun, next_salt: u64) -> Journal {
        let Begun { file, encoder, length, snapshot } = begun;
        Journal {
            file,
            encoder,
            length,
            synced: length,
            snapshot,
            displaced: false,
            next_salt,
            broken: None,
            disk,
            lock,
        }
    }

    /// Where the journal is.
    pub fn path(&self) -> PathBuf {
        path_of(&*self.disk, JOURNAL)
    }

    /// Writes these records behind the others, in one write. A record beyond [`RECORD_MAX`] is refused with
    /// `Status::Limit`; then nothing is written, and the journal goes on.
    pub fn append(&mut self, records: &[impl AsRef<[u8]>]) -> Result<()> {
        records.iter().try_for_each(|record| check_length(record.as_ref()))?;
        self.attempt(|journal| {
            let mut bytes = Vec::new();
            for record in records {
                let offset = journal.length + bytes.len() as u64;
                journal.encoder.put(&mut bytes, offset, journal.synced, record.as_ref());
            }
            if !bytes.is_empty() {
                tried(&*journal.disk, "write to", JOURNAL, journal.file.append(&bytes))?;
            }
            journal.length += bytes.len() as u64;
            Ok(())
        })
    }

    /// Returns when everything that was appended is durable.
    pub fn sync(&mut self) -> Result<()> {
        self.attempt(Journal::flush)
    }

    fn flush(&mut self) -> Result<()> {
        if self.synced < self.length {
            tried(&*self.disk, "sync", JOURNAL, self.file.sync())?;
            self.synced = self.length;
            self.displaced = !tried(&*self.disk, "look at", JOURNAL, self.file.is_called(JOURNAL))?;
        }
        Ok(())
    }

    /// Whether somebody had removed the file, or put another in its place, at the last sync. The next start would not find
    /// what is appended then, until [`Journal::rewrite`] makes a new file.
    pub fn is_displaced(&self) -> bool {
        self.displaced
    }

    /// Whether the file has become so long that [`Journal::rewrite`] is worthwhile.
    pub fn should_compact(&self) -> bool {
        self.length > COMPACT_LEAST.max(self.snapshot.saturating_mul(COMPACT_FACTOR))
    }

    /// Puts these records in the place of all that were appended so far, durably.
    pub fn rewrite<R: AsRef<[u8]>>(&mut self, snapshot: impl IntoIterator<Item = R>) -> Result<()> {
        self.attempt(|journal| journal.replace(snapshot))
    }

    fn replace<R: AsRef<[u8]>>(&mut self, snapshot: impl IntoIterator<Item = R>) -> Result<()> {
        if self.displaced {
            self.lock_again()?;
        }
        let Begun { file, encoder, length, snapshot } = begin(&*self.disk, self.next_salt, snapshot)?;
        self.next_salt = self.next_salt.wrapping_add(1);
        (self.file, self.encoder, self.length, self.synced, self.snapshot) = (file, encoder, length, length, snapshot);
        self.displaced = false;
        Ok(())
    }

    /// The lock's file may have been removed with the journal. Then another scheduler could lock a new one.
    fn lock_again(&mut self) -> Result<()> {
        if !tried(&*self.disk, "look at", LOCK, self.lock.is_called(LOCK))? {
            self.lock = lock(&*self.disk)?;
        }
        Ok(())
    }

    /// Puts the journal of a job that is done aside, under the next free number, and begins an empty one. The journals of
    /// the last three jobs are kept.
    pub fn archive(&mut self) -> Result<()> {
        self.attempt(|journal| {
            journal.flush()?;
            let mut numbers = journal.archived()?;
            let next = numbers.last().map_or(1, |last| last.saturating_add(1));
            numbers.push(next);
            let to = format!("{ARCHIVED}{next}");
            let disk = &*journal.disk;
            tried(disk, "archive", JOURNAL, disk.rename(JOURNAL, &to))?;
            // This comes before the name goes to another file.
            tried_directory(disk, "sync the directory", disk.sync())?;
            for old in &numbers[..numbers.len().saturating_sub(ARCHIVES_KEPT)] {
                let name = format!("{ARCHIVED}{old}");
                tried(disk, "remove", &name, disk.remove(&name))?;
            }
            journal.replace(std::iter::empty::<&[u8]>())
        })
    }

    /// The numbers of the archived journals, in order.
    fn archived(&self) -> Result<Vec<u64>> {
        let names = tried_directory(&*self.disk, "list the directory", self.disk.names())?;
        let number = |name: &String| {
            let number: u64 = name.strip_prefix(ARCHIVED)?.parse().ok()?;
            (*name == format!("{ARCHIVED}{number}")).then_some(number)
        };
        let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Does the work, unless something has failed before. An error is kept.
    fn attempt(&mut self, work: impl FnOnce(&mut Journal) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let done = work(self);
        self.broken = done.as_ref().err().cloned();
        done
    }
}

fn check_length(record: &[u8]) -> Result<()> {
    match record.len() {
        length if length > RECORD_MAX => Err(Error::new(
            Status::Limit,
            format!("a record of {length} bytes for the journal: it takes {RECORD_MAX} bytes at most"),
        )),
        _ => Ok(()),
    }
}

fn lock(disk: &dyn Disk) -> Result<Box<dyn Lock>> {
    let own = format!("{}\n", std::process::id());
    match tried(disk, "lock", LOCK, disk.lock(LOCK, &own))? {
        Locked::Held(lock) => Ok(lock),
        Locked::Taken(owner) => {
            let pid = owner.trim().parse::<u32>().map_or("unknown".to_owned(), |pid| pid.to_string());
            let path = path_of(disk, JOURNAL).display().to_string();
            let message = format!(
                "another scheduler (pid {pid}) uses this journal: {path}: expected that one to have ended, or another \
                 recovery path (MS_RECOVERY_PATH) for this one"
            );
            Err(Error::new(Status::Journal, message))
        }
    }
}

/// A file that has just become the journal, or is it already.
struct Begun {
    file: Box<dyn Appender>,
    encoder: RecordEncoder,
    length: u64,
    snapshot: u64,
}

/// Makes a file with these records, whole and durable, and gives it the journal's name.
fn begin<R: AsRef<[u8]>>(disk: &dyn Disk, salt: u64, records: impl IntoIterator<Item = R>) -> Result<Begun> {
    let encoder = RecordEncoder { salt };
    let mut file = tried(disk, "create", NEW, disk.create(NEW))?;
    let mut part = head(salt);
    let mut written = 0;
    for record in records {
        check_length(record.as_ref())?;
        let offset = written + part.len() as u64;
        encoder.put(&mut part, offset, HEAD_BYTES as u64, record.as_ref());
        if part.len() >= PART_BYTES {
            tried(disk, "write to", NEW, file.append(&part))?;
            written += part.len() as u64;
            part.clear();
        }
    }
    let offset = written + part.len() as u64;
    encoder.put_mark(&mut part, offset);
    tried(disk, "write to", NEW, file.append(&part))?;
    let length = written + part.len() as u64;
    tried(disk, "sync", NEW, file.sync())?;
    tried(disk, "rename", NEW, disk.rename(NEW, JOURNAL))?;
    tried_directory(disk, "sync the directory", disk.sync())?;
    Ok(Begun { file, encoder, length, snapshot: length })
}

#[cfg(test)]
#[path = "log_test.rs"]
mod tests;
