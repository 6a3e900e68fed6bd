//! Records what the setting `trace` asks for: each collective of this node, and when it was called, begun and ended.
//!
//! The thread that carries a collective out puts one record into its group's ring, which locks nothing and asks the system for
//! nothing but the time. A thread of the tracer's own empties the rings into a file ([`trace_file`](super::trace_file)).
//! Without the setting there is no tracer, and a call pays for one comparison.
//!
//! If a process is killed, what it has not written yet is lost: at most what it did in the last [`FLUSH_EVERY`].

use super::trace_file::{About, CallSite, Entry, TraceFile};
use crate::config::{Key, Settings};
use crate::error::{Error, Result};
use crate::net::fork::beyond_standard;
use crate::net::{host, thread};
use crate::runtime::base::clock::Clock;
use crate::runtime::base::log::Logger;
use crate::runtime::base::ring::{Ring, RingRecord};
use crate::types::{Call, CallKind, DType, Epoch, GroupId, ReduceOp, Time, NO_VALUE};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a record waits to be written, at most.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

/// How long the end waits for what is still to be written.
const FINISH_WAIT: Duration = Duration::from_secs(2);

/// A node's tracer.
pub struct Tracer {
    clock: Clock,
    folder: PathBuf,
    recording: Mutex<Recording>,
    stirred: Arc<Condvar>,
}

#[derive(Default)]
struct Recording {
    tracks: Vec<Arc<Track>>,
    /// When each epoch began here.
    epochs: Vec<(Epoch, Time)>,
    phase: Phase,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing is written yet: the cluster is not complete.
    #[default]
    Waiting,
    Writing,
    /// What there is now is still to be written, and nothing more.
    Finishing,
    Finished,
}

/// The collectives of one group in one epoch.
pub(crate) struct Track {
    site: CallSite,
    ring: Ring,
    stirred: Arc<Condvar>,
}

impl Tracer {
    /// The tracer that the settings ask for, if they do. Makes the folder, and tries to write there.
    pub fn of(settings: &Settings, clock: Clock) -> Result<Option<Arc<Tracer>>> {
        let Some(given) = &settings.trace else { return Ok(None) };
        // A relative path is taken from the present folder for good: the program may go to another one.
        let folder = std::path::absolute(given).unwrap_or_else(|_| given.clone());
        try_folder(&folder).map_err(|error| {
            let (setting, shown) = (settings.origin(Key::Trace), given.display().to_string());
            Error::config(format!("{setting} is {shown:?}: expected a folder where files can be made: {error}"))
        })?;
        let (recording, stirred) = (Mutex::default(), Arc::new(Condvar::new()));
        Ok(Some(Arc::new(Tracer { clock, folder, recording, stirred })))
    }

    /// The track on which a group's collectives are recorded; none if nothing is recorded any more. The first group of an epoch tells
    /// when the epoch began.
    pub(crate) fn track(&self, group: GroupId, epoch: Epoch, rank: u32) -> Option<Arc<Track>> {
        let mut recording = self.recording();
        if recording.phase == Phase::Finished {
            return None; // nobody would empty it
        }
        let track = Arc::new(Track {
            site: CallSite { group, epoch, rank },
            ring: Ring::new(),
            stirred: Arc::clone(&self.stirred),
        });
        if recording.epochs.last().is_none_or(|(last, _)| *last < epoch) {
            let now = self.clock.now();
            recording.epochs.push((epoch, now));
        }
        recording.tracks.push(Arc::clone(&track));
        Some(track)
    }

    /// The cluster is complete: begins to write.
    pub(crate) fn begin(self: &Arc<Self>, about: &About, logger: &Arc<Logger>) {
        let mut recording = self.recording();
        let zero = recording.epochs.first().map_or(Time::default(), |(_, at)| *at);
        let (tracer, about, own) = (Arc::clone(self), about.clone(), Arc::clone(logger));
        // The file is made on the thread, too: a disk that stands still holds up no call.
        let started = thread::spawn("muster-trace", move || {
            match TraceFile::create(&tracer.folder, &about, zero, &tracer.clock) {
                Ok(file) => tracer.write(file, &own),
                Err(error) => {
                    own.warn(&format!("this node's collectives are not traced: {error}"));
                    tracer.end();
                }
            }
        });
        match started {
            Ok(thread) => (recording.phase, recording.thread) = (Phase::Writing, Some(thread)),
            Err(error) => {
                drop(recording);
                logger.warn(&format!("this node's collectives are not traced: {error}"));
                self.end();
            }
        }
    }

    /// Nothing is recorded any more.
    fn end(&self) {
        let mut recording = self.recording();
        recording.phase = Phase::Finished;
        (recording.tracks, recording.epochs) = Default::default();
        self.stirred.notify_all();
    }

    /// Writes what there is, and no more. Waits for that at most so long, and not for a disk that stands still.
    pub(crate) fn finish(&self, limit: Duration) {
        let deadline = Instant::now() + limit.min(FINISH_WAIT);
        let mut recording = self.recording();
        if recording.phase == Phase::Writing {
            recording.phase = Phase::Finishing;
            self.stirred.notify_all();
        }
        while recording.phase == Phase::Finishing {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return thread::stay_mapped(); // its code must be there when the disk answers
            }
            recording = self.stirred.wait_timeout(recording, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(thread) = recording.thread.take() {
            drop(recording);
            let _ = thread.join(); // it has said that it ends; a panic of it was printed
        }
    }

    fn recording(&self) -> MutexGuard<'_, Recording> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tracer's thread.
    fn write(&self, mut file: TraceFile, logger: &Logger) {
        loop {
            let (tracks, epochs, is_last) = self.next();
            epochs.into_iter().for_each(|(epoch, at)| file.epoch(epoch, at));
            for track in &tracks {
                track.ring.take(|record| file.collective(&track.site, &unpacked(&record)));
                file.dropped(&track.site, track.ring.take_dropped(), self.clock.now());
            }
            drop(tracks);
            if let Err(error) = file.flush(is_last) {
                logger.warn(&format!("{error}; this node's collectives are traced no more"));
            }
            if is_last {
                drop(file);
                return self.end();
            }
        }
    }

    /// Waits for a while. Returns what there is then: the tracks, the epochs that are new, and whether that is all.
    fn next(&self) -> (Vec<Arc<Track>>, Vec<(Epoch, Time)>, bool) {
        let mut recording = self.recording();
        if recording.phase == Phase::Writing {
            recording = self.stirred.wait_timeout(recording, FLUSH_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
        let tracks = recording.tracks.clone();
        // A group that is gone has put its last record in. Its track is written here for the last time.
        recording.tracks.retain(|track| Arc::strong_count(track) > 2);
        (tracks, std::mem::take(&mut recording.epochs), recording.phase == Phase::Finishing)
    }
}

impl Track {
    /// Records a collective that has ended.
    pub(crate) fn record(&self, entry: &Entry) {
        if self.ring.put(packed(entry)) {
            self.stirred.notify_one(); // where it does not wait just then it comes soon by itself
        }
    }
}

/// Makes the folder, and a file in it. Processes of other hosts may do the same there, with the same pid.
fn try_folder(folder: &Path) -> io::Result<()> {
    let number = u64::from_le_bytes(host::random_bytes().map_err(|error| io::Error::other(error.to_string()))?);
    let probe = folder.join(format!(".muster-{number:016x}"));
    // A new file follows no link, and waits for no pipe.
    let made =
        || fs::create_dir_all(folder).and_then(|()| OpenOptions::new().write(true).create_new(true).open(&probe));
    beyond_standard(|| made().map(drop))??;
    match fs::remove_file(&probe) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()), // somebody tidies up there
        removed => removed,
    }
}

fn packed(entry: &Entry) -> RingRecord {
    let Entry { call, sequence, bytes, called, begun, ended, is_ok } = *entry;
    let dtype = call.dtype.map_or(NO_VALUE, |dtype| dtype.code() as u32);
    let what = u64::from(call.kind as u8) | u64::from(is_ok) << 8 | u64::from(dtype) << 32;
    let (op, root) = (call.op.map_or(NO_VALUE, ReduceOp::wire_code), call.root.unwrap_or(NO_VALUE));
    [sequence, what, u64::from(op) | u64::from(root) << 32, call.count, bytes, called.0, begun.0, ended.0]
}

fn unpacked(record: &RingRecord) -> Entry {
    let [sequence, what, op_and_root, count, bytes, called, begun, ended] = *record;
    let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
    let known = |number: u32| Some(number).filter(|number| *number != NO_VALUE);
    let call = Call {
        kind: CallKind::from_code(what as u8).expect("a kind that was put in"),
        dtype: known(high(what)).and_then(|code| DType::from_code(code as i32)),
        op: known(low(op_and_root)).and_then(ReduceOp::from_wire_code),
        root: known(high(op_and_root)),
        count,
        layout: 0,
    };
    let (called, begun, ended) = (Time(called), Time(begun), Time(ended));
    Entry { call, sequence, bytes, called, begun, ended, is_ok: what >> 8 & 1 == 1 }
}

#[cfg(test)]
#[path = "trace_test.rs"]
mod tests;
