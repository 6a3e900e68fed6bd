//! The files of a process that goes on: read again once they have changed, so that a renewal needs no restart.
//!
//! Invariants: connections that stand keep what they began with; new ones have what was read last. What is wrong with
//! new files is said once, and the old ones go on serving. Such files are tried again each minute: by this host's clock
//! a list may begin later. There is no thread for this. The files are looked at when a connection begins, at most once
//! a second. Once a day all files are read anew, so that a daily warning tells of a certificate that ends soon. Files that
//! have just been written wait a little, because their writer may not be done. But once one of our certificates or a list
//! has ended, new files are tried at once: the old ones no longer work.

use super::credentials::{self, Credentials, Noted};
use crate::config::TlsSettings;
use crate::error::Result;
use rustls::{ClientConfig, ServerConfig};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How long after a look at the files there is no other.
const PAUSE: Duration = Duration::from_secs(1);
/// How old a changed file must be, unless two looks have found the same.
const SETTLED: Duration = Duration::from_secs(2);
/// How soon files that were wrong are tried again, though they have not changed.
const AGAIN: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What tells one state of a file from another; none if there is no such file.
#[derive(PartialEq)]
struct Stamp(Option<[i64; 7]>);

/// What each end of a node's connections uses.
pub type Ends = (Arc<ClientConfig>, Arc<ServerConfig>);
/// A function that reads the files: what is used, and what else is known of it.
type Reads<E> = fn(&TlsSettings) -> Result<(E, Noted)>;

/// The credentials that connections use now, and the remarks on them. They are those of both ends of a node's connections,
/// or of one end for a process that only connects.
pub struct Renewal<E> {
    settings: TlsSettings,
    reads: Reads<E>,
    state: Mutex<State<E>>,
}

struct State<E> {
    used: E,
    /// When the first of our certificates and of the lists ends, in seconds since 1970.
    until: u64,
    /// The files that were read last, as they were at that time.
    files: Vec<PathBuf>,
    stamps: Vec<Stamp>,
    /// What a look has found that was too new, and when it was first found.
    found: Option<(Vec<Stamp>, Instant)>,
    looked: Instant,
    /// When all was read last, and when it was tried last because something was wrong.
    read: Instant,
    tried: Instant,
    remarks: Vec<String>,
    /// What was wrong with the files that were read last.
    wrong: Option<String>,
}

/// What is to be told of the files while a process goes on. Empty without TLS.
#[derive(Clone, Default)]
pub struct Remarks(Option<Arc<Renewal<Ends>>>);

impl Remarks {
    /// The remarks on the files of this renewal.
    pub fn of(renewal: Arc<Renewal<Ends>>) -> Remarks {
        Remarks(Some(renewal))
    }

    /// What has come since the last time, one sentence each. Reads the files once a day.
    pub fn take(&self) -> Vec<String> {
        self.0.as_ref().map_or_else(Vec::new, |renewal| renewal.remarks(Instant::now()))
    }
}

impl Renewal<Ends> {
    /// Reads all that a node needs, for the first time. The warnings are one sentence each.
    pub fn open(settings: &TlsSettings) -> Result<(Renewal<Ends>, Vec<String>)> {
        Renewal::begin(settings, |settings| {
            credentials::read(settings).map(|Credentials { client, server, noted }| ((client, server), noted))
        })
    }
}

impl Renewal<Arc<ClientConfig>> {
    /// Reads all that a process needs which only connects, for the first time.
    pub fn open_client(settings: &TlsSettings) -> Result<Renewal<Arc<ClientConfig>>> {
        Renewal::begin(settings, credentials::client).map(|(renewal, _)| renewal)
    }
}

impl<E: Clone> Renewal<E> {
    fn begin(settings: &TlsSettings, reads: Reads<E>) -> Result<(Renewal<E>, Vec<String>)> {
        let files = credentials::files(settings);
        let stamps = stamps(&files);
        let (used, Noted { warnings, until }) = reads(settings)?;
        let now = Instant::now();
        let (remarks, wrong, found) = (Vec::new(), None, None);
        let state = State { used, until, files, stamps, found, looked: now, read: now, tried: now, remarks, wrong };
        Ok((Renewal { settings: settings.clone(), reads, state: Mutex::new(state) }, warnings))
    }

    /// What a connection that begins now uses.
    pub fn ends(&self) -> E {
        self.ends_at(Instant::now(), SystemTime::now())
    }

    fn ends_at(&self, now: Instant, today: SystemTime) -> E {
        let mut state = self.locked();
        let today = today.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if now.saturating_duration_since(state.looked) >= PAUSE || today >= state.until {
            state.looked = now;
            self.look(&mut state, now, today);
        }
        state.used.clone()
    }

    /// What is to be told by now, one sentence each. Reads the files once a day.
    pub fn remarks(&self, now: Instant) -> Vec<String> {
        let mut state = self.locked();
        if now.saturating_duration_since(state.read) >= DAY {
            self.read(&mut state, now);
        }
        std::mem::take(&mut state.remarks)
    }

    fn locked(&self) -> MutexGuard<'_, State<E>> {
        // The state is whole after each assignment, so a thread that panicked has left nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, state: &mut State<E>, now: Instant, today: u64) {
        let stamps = stamps(&state.files);
        if stamps == state.stamps {
            state.found = None;
            if state.wrong.is_some() && now.saturating_duration_since(state.tried) >= AGAIN {
                self.read_again(state, now);
            }
            return;
        }
        let is_settled = stamps.iter().all(|stamp| stamp.written() + SETTLED.as_secs() as i64 <= today as i64);
        let rested = match &state.found {
            Some((found, since)) if *found == stamps => now.saturating_duration_since(*since),
            _ => {
                state.found = Some((stamps, now));
                Duration::ZERO
            }
        };
        if is_settled || rested >= PAUSE {
            self.read(state, now);
        } else if today >= state.until {
            self.read_early(state);
        }
    }

    /// Reads what is there although its writer may not be done. What is wrong with it may soon be right, so nothing is
    /// said.
    fn read_early(&self, state: &mut State<E>) {
        let files = credentials::files(&self.settings);
        let stamps = stamps(&files);
        if let Ok(read) = (self.reads)(&self.settings) {
            (state.files, state.stamps, state.found) = (files, stamps, None);
            state.take(read);
        }
    }

    /// Reads all files, and says what is wrong even if it was said before.
    fn read(&self, state: &mut State<E>, now: Instant) {
        (state.wrong, state.read) = (None, now);
        self.read_again(state, now);
    }

    /// Reads all files. If that fails, the old ones go on serving.
    fn read_again(&self, state: &mut State<E>, now: Instant) {
        // Their state is asked before they are read: a change meanwhile is found at the next look.
        state.files = credentials::files(&self.settings);
        (state.stamps, state.found, state.tried) = (stamps(&state.files), None, now);
        match (self.reads)(&self.settings) {
            Ok(read) => state.take(read),
            Err(error) => {
                let wrong = error.message().to_owned();
                if state.wrong.as_ref() != Some(&wrong) {
                    state.remarks.push(format!("{wrong}; what was read from the files before stays in use"));
                }
                state.wrong = Some(wrong);
            }
        }
    }
}

impl<E> State<E> {
    fn take(&mut self, (used, noted): (E, Noted)) {
        (self.used, self.until, self.wrong) = (used, noted.until, None);
        self.remarks.extend(noted.warnings);
    }
}

impl Stamp {
    /// When the file was written, or put in its place: in seconds, and 0 if it is not there.
    fn written(&self) -> i64 {
        self.0.map_or(0, |it| it[3].max(it[5]))
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |file: &PathBuf| {
        let it = std::fs::metadata(file).ok()?;
        let (mtime, ctime) = ([it.mtime(), it.mtime_nsec()], [it.ctime(), it.ctime_nsec()]);
        Some([it.dev() as i64, it.ino() as i64, it.size() as i64, mtime[0], mtime[1], ctime[0], ctime[1]])
    };
    files.iter().map(|file| Stamp(stamp(file))).collect()
}

#[cfg(test)]
#[path = "renewal_test.rs"]
mod tests;
