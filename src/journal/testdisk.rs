//! A disk for tests, in memory. By seed it does whatever a disk may do to what was not synced.
//!
//! There are two states of everything, the one that programs see and the durable one, and two ends of a life. When the
//! *process* dies ([`MemoryDisk::kill`]) what it has written stays. When the *machine* does ([`MemoryDisk::crash`])
//! names go back to the durable ones, except that any of the changes since may be kept. Each sector that was written
//! since is new, old, zero or garbage. The file's length is one between the old and the new. A handle of an earlier life
//! does nothing any more.
//!
//! Faults: a crash in the middle of any operation, a full disk, refusals, a sync that fails and loses what it was to
//! save. All but refusals end with the life that they were planned for. Invariant: a seed decides everything.

use super::disk::{Appender, Disk, Lock, Locked};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

/// A handle for one life of a process; clones are of the same life.
#[derive(Clone)]
pub(crate) struct MemoryDisk {
    state: Arc<Mutex<State>>,
    life: u64,
}

#[derive(Default)]
struct File {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// A sync has failed: what was not durable then never will be, and no sync says so again.
    lost: bool,
}

#[derive(Clone)]
enum Change {
    Set(String, usize),
    Unset(String),
    Move(String, String, usize),
}

impl Change {
    fn apply(self, names: &mut BTreeMap<String, usize>) {
        match self {
            Change::Set(name, file) => {
                names.insert(name, file);
            }
            Change::Unset(name) => {
                names.remove(&name);
            }
            Change::Move(from, to, file) => {
                names.remove(&from);
                names.insert(to, file);
            }
        }
    }
}

#[derive(Default)]
struct State {
    random: u64,
    life: u64,
    /// The files by number. A file without a name stays.
    files: Vec<File>,
    seen: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
    /// What happened to names since they were synced.
    changes: Vec<Change>,
    /// The locks that are held, by name: the number of the taking, and what the lock's file says.
    locks: BTreeMap<String, (u64, String)>,
    taken: u64,
    operations: u64,
    syncs: u64,
    crash_at: Option<u64>,
    fail_sync_at: Option<u64>,
    space: Option<usize>,
    refusal: Option<i32>,
    read_refusal: Option<i32>,
}

impl MemoryDisk {
    pub fn new(seed: u64) -> MemoryDisk {
        let state = State { random: seed, ..State::default() };
        MemoryDisk { state: Arc::new(Mutex::new(state)), life: 0 }
    }

    /// The machine dies. Returns the handle of the next life.
    pub fn crash(&self) -> MemoryDisk {
        let mut state = self.lock();
        state.forget();
        self.next_life(state)
    }

    /// The process dies. Returns the handle of the next life.
    pub fn kill(&self) -> MemoryDisk {
        self.next_life(self.lock())
    }

    fn next_life(&self, mut state: MutexGuard<'_, State>) -> MemoryDisk {
        state.life += 1;
        state.locks.clear();
        (state.crash_at, state.fail_sync_at, state.space) = (None, None, None);
        MemoryDisk { state: self.state.clone(), life: state.life }
    }

    /// How many operations have changed something, or tried to.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// How many operations were syncs of files.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// The process dies in the middle of the operation after so many others; [`MemoryDisk::crash`] says what is left.
    pub fn crash_after(&self, operations: u64) {
        let mut state = self.lock();
        state.crash_at = Some(state.operations + operations);
    }

    /// The sync of a file after so many others fails.
    pub fn fail_sync_after(&self, syncs: u64) {
        let mut state = self.lock();
        state.fail_sync_at = Some(state.syncs + syncs);
    }

    /// The disk takes only so many more bytes.
    pub fn fill_after(&self, bytes: usize) {
        self.lock().space = Some(bytes);
    }

    /// Every change is refused with this error of the system.
    pub fn refuse_changes(&self, code: i32) {
        self.lock().refusal = Some(code);
    }

    /// Every read is refused with this error of the system.
    pub fn refuse_reads(&self, code: i32) {
        self.lock().read_refusal = Some(code);
    }

    /// Puts a durable file on the disk.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.lock();
        state.files.push(File { seen: bytes.to_vec(), durable: bytes.to_vec(), lost: false });
        let file = state.files.len() - 1;
        state.seen.insert(name.to_owned(), file);
        state.durable.insert(name.to_owned(), file);
    }

    /// What a program sees of a file that is there.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.lock();
        state.files[state.seen[name]].seen.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test goes on after a panic in here")
    }

    fn look(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.lock();
        state.living(self.life)?;
        match state.read_refusal {
            Some(code) => Err(io::Error::from_raw_os_error(code)),
            None => Ok(state),
        }
    }

    /// Does an operation, or a part of it at the moment of a crash: `work` is told how many parts of 256 to do.
    fn change<T>(&self, work: impl FnOnce(&mut State, u64) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.lock();
        state.living(self.life)?;
        if let Some(code) = state.refusal {
            return Err(io::Error::from_raw_os_error(code));
        }
        if state.crash_at != Some(state.operations) {
            state.operations += 1;
            return work(&mut state, 256);
        }
        state.operations += 1;
        let parts = state.below(257);
        let done = work(&mut state, parts);
        state.life += 1;
        // A lock that the work took needs the state when it is dropped.
        drop(state);
        drop(done);
        Err(dead())
    }
}

fn dead() -> io::Error {
    io::Error::other("the machine of this disk has crashed")
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

impl State {
    fn living(&self, life: u64) -> io::Result<()> {
        if self.life == life {
            Ok(())
        } else {
            Err(dead())
        }
    }

    /// A random number below `end`, by SplitMix64.
    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % end
    }

    fn rename(&mut self, change: Change) {
        self.changes.push(change.clone());
        change.apply(&mut self.seen);
    }

    /// The disk does what it likes with what was not synced.
    fn forget(&mut self) {
        for number in 0..self.files.len() {
            let left = self.left_of(number);
            let file = &mut self.files[number];
            (file.seen, file.durable, file.lost) = (left.clone(), left, false);
        }
        let (kind, changes) = (self.below(4), std::mem::take(&mut self.changes));
        let first = self.below(changes.len() as u64 + 1) as usize;
        for (at, change) in changes.into_iter().enumerate() {
            let kept = match kind {
                0 => false,
                1 => true,
                2 => at < first,
                _ => self.below(2) == 0,
            };
            if kept {
                change.apply(&mut self.durable);
            }
        }
        self.seen = self.durable.clone();
    }

    /// A file's bytes after a crash.
    fn left_of(&mut self, number: usize) -> Vec<u8> {
        let (seen, durable) = (self.files[number].seen.clone(), self.files[number].durable.clone());
        let kind = if self.files[number].lost { 0 } else { self.below(8) };
        match kind {
            0 => return durable,
            1 => return seen,
            _ => {}
        }
        let same = seen.iter().zip(&durable).take_while(|(seen, durable)| seen == durable).count();
        let (least, most) = (seen.len().min(durable.len()), seen.len().max(durable.len()));
        let length = if kind < 5 { seen.len() } else { least + self.below((most - least) as u64 + 1) as usize };
        let sector = [1, 8, 64, 512][self.below(4) as usize];
        let mut left = durable[..same.min(length)].to_vec();
        while left.len() < length {
            let (from, to) = (left.len(), length.min((left.len() / sector + 1) * sector));
            let fate = self.below(4);
            for at in from..to {
                left.push(match fate {
                    0 => 0,
                    1 if at >= durable.len() => self.below(256) as u8,
                    1 | 2 => durable.get(at).copied().unwrap_or(0),
                    _ => seen.get(at).copied().unwrap_or(0),
                });
            }
        }
        left
    }
}

impl Disk for MemoryDisk {
    fn path(&self) -> &Path {
        Path::new("/memory")
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let state = self.look()?;
        Ok(state.seen.get(name).map(|file| state.files[*file].seen.clone()))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Appender>> {
        self.change(|state, parts| {
            state.files.push(File::default());
            let number = state.files.len() - 1;
            if parts > 128 {
                state.rename(Change::Set(name.to_owned(), number));
            }
            Ok(Box::new(MemoryFile { disk: self.clone(), number }) as Box<dyn Appender>)
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(|state, parts| {
            let file = *state.seen.get(from).ok_or_else(missing)?;
            if parts > 128 {
                state.rename(Change::Move(from.to_owned(), to.to_owned(), file));
            }
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(|state, parts| {
            if parts > 128 && state.seen.contains_key(name) {
                state.rename(Change::Unset(name.to_owned()));
            }
            Ok(())
        })
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.look()?.seen.keys().cloned().collect())
    }

    fn sync(&self) -> io::Result<()> {
        self.change(|state, parts| {
            if parts > 128 {
                state.changes.clear();
                state.durable = state.seen.clone();
            }
            Ok(())
        })
    }

    fn lock(&self, name: &str, owner: &str) -> io::Result<Locked> {
        self.change(|state, _| {
            if let Some((_, owner)) = state.locks.get(name) {
                return Ok(Locked::Taken(owner.clone()));
            }
            state.taken += 1;
            state.locks.insert(name.to_owned(), (state.taken, owner.to_owned()));
            let held = MemoryLock { state: self.state.clone(), name: name.to_owned(), taken: state.taken };
            Ok(Locked::Held(Box::new(held)))
        })
    }
}

struct MemoryLock {
    state: Arc<Mutex<State>>,
    name: String,
    taken: u64,
}

impl Lock for MemoryLock {
    fn is_called(&self, _: &str) -> io::Result<bool> {
        Ok(true) // nobody removes a lock's file in memory
    }
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        // The lock is poisoned if a test has failed: then nobody asks any more.
        let Ok(mut state) = self.state.lock() else { return };
        if state.locks.get(&self.name).is_some_and(|(taken, _)| *taken == self.taken) {
            state.locks.remove(&self.name);
        }
    }
}

struct MemoryFile {
    disk: MemoryDisk,
    number: usize,
}

impl Appender for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.change(|state, parts| {
            let part = (bytes.len() as u64 * parts / 256) as usize;
            let fits = state.space.map_or(part, |space| space.min(part));
            if let Some(space) = &mut state.space {
                *space -= fits;
            }
            state.files[self.number].seen.extend_from_slice(&bytes[..fits]);
            match fits < part {
                true => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                false => Ok(()),
            }
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.change(|state, parts| {
            state.syncs += 1;
            if state.fail_sync_at == Some(state.syncs - 1) {
                let left = state.left_of(self.number);
                let file = &mut state.files[self.number];
                (file.durable, file.lost) = (left, true);
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            let file = &mut state.files[self.number];
            if parts == 256 && !file.lost {
                file.durable = file.seen.clone();
            }
            Ok(())
        })
    }

    fn is_called(&self, name: &str) -> io::Result<bool> {
        Ok(self.disk.look()?.seen.get(name) == Some(&self.number))
    }
}
