//! The process-wide table of our descriptors, which a forked child must close.
//!
//! A child that kept a copy of our sockets would keep the connections of its parent alive beyond the parent's death,
//! and so hide it. So every descriptor that `net` makes is held in a [`Guarded`], which enters it into the table. A
//! handler that `fork` runs in the child closes them all before `fork` returns there.
//!
//! Invariants
//! - A descriptor is created and entered, and is taken out and closed, under the table's lock; `fork` takes the same
//!   lock first. So a child never holds a descriptor of ours that is not in the table.
//! - In a child the descriptors of its parent's objects are gone, and their numbers may belong to others. So each
//!   object remembers the [`generation`] in which it was made, and dropping an inherited one closes nothing.
//! - The handlers use no allocation and no lock but the table's.
//! - No descriptor of ours has one of the numbers 0 to 2 ([`super::standard`]).
//!
//! The handlers are registered through the C library's static `pthread_atfork` (libc_nonshared.a). It passes the
//! `__dso_handle` of the object that it is linked into, so `dlclose` of the shared library takes them away again. The
//! shared library must therefore import `__register_atfork`, never a dynamic `pthread_atfork`.
//!
//! Not covered, because no handler runs there: `vfork`, `posix_spawn` (both exec at once, and all our descriptors are
//! close-on-exec) and a bare `clone`. `fork` from a signal handler that interrupted this module would wait for ever;
//! POSIX does not allow it since 2024.
//!
//! Tested in `fork_test.rs` with real forks, also while another thread opens and closes without pause.

use super::standard::Stopgaps;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

static TABLE: Mutex<Table> = Mutex::new(Table { words: Vec::new(), stopgaps: Stopgaps::NONE });
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// What `pthread_atfork` returned, once it was called.
static HANDLERS: OnceLock<i32> = OnceLock::new();

thread_local! {
    /// The table's lock between the handlers before and after a fork: all three run on the forking thread.
    /// `ManuallyDrop`, so that the thread-local has no destructor, which would keep a `dlopen`ed library mapped.
    static HELD: Cell<Option<ManuallyDrop<MutexGuard<'static, Table>>>> = const { Cell::new(None) };
}

/// How many forks lie between the first process and this one. An object that was made in another generation is
/// inherited: its descriptors are closed and it can do nothing any more.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// How many descriptors of ours are open in this process.
#[cfg(test)]
fn open_descriptors() -> usize {
    lock().words.iter().map(|word| word.count_ones() as usize).sum()
}

struct Table {
    /// One bit for each descriptor number.
    words: Vec<u64>,
    /// What occupies the numbers that no descriptor of ours may have.
    stopgaps: Stopgaps,
}

impl Table {
    fn place(fd: RawFd) -> (usize, u64) {
        let number = usize::try_from(fd).expect("an open descriptor is not negative");
        (number / 64, 1 << (number % 64))
    }

    fn insert(&mut self, fd: RawFd) {
        let (word, bit) = Table::place(fd);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
    }

    fn remove(&mut self, fd: RawFd) {
        let (word, bit) = Table::place(fd);
        if let Some(word) = self.words.get_mut(word) {
            *word &= !bit;
        }
    }

    fn close_all(&mut self) {
        for (index, word) in self.words.iter_mut().enumerate() {
            while *word != 0 {
                let fd = index * 64 + word.trailing_zeros() as usize;
                // SAFETY: closes a number that the parent's object owned; that object is inherited and never uses it.
                unsafe { libc::close(fd as RawFd) };
                *word &= *word - 1;
            }
        }
    }
}

fn lock() -> MutexGuard<'static, Table> {
    // A panic while it was held leaves a valid table: its operations are single assignments.
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn before_fork() {
    let guard = lock();
    HELD.with(|held| held.set(Some(ManuallyDrop::new(guard))));
}

extern "C" fn after_fork_in_parent() {
    if let Some(guard) = HELD.with(Cell::take) {
        drop(ManuallyDrop::into_inner(guard));
    }
}

extern "C" fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
    if let Some(guard) = HELD.with(Cell::take) {
        let mut table = ManuallyDrop::into_inner(guard);
        table.close_all();
        table.stopgaps.begin_anew();
    }
}

/// Has `fork` call these functions on the thread that forks: before, and afterwards in the parent and in the child. They must be
/// quick, and take no lock that is held while descriptors are made. Returns the number of an error, or 0.
pub fn have_called(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) -> i32 {
    // SAFETY: the three functions live as long as this object is loaded; unloading it unregisters them.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) }
}

fn install_handlers() -> io::Result<()> {
    let result = *HANDLERS.get_or_init(|| have_called(before_fork, after_fork_in_parent, after_fork_in_child));
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(result))
    }
}

/// Runs code that opens descriptors for itself, and may take long (a name's lookup, a file). None of them gets a number
/// from 0 to 2. They are not in the table.
pub fn beyond_standard<T>(open: impl FnOnce() -> T) -> io::Result<T> {
    install_handlers()?;
    lock().stopgaps.begin()?;
    let _ends = Opening { generation: generation() };
    Ok(open())
}

/// An opening that is under way while the lock is not held.
struct Opening {
    generation: u64,
}

impl Drop for Opening {
    fn drop(&mut self) {
        if self.generation == generation() {
            lock().stopgaps.end();
        }
    }
}

/// Owns something with a descriptor, which is in the table as long as this lives.
pub struct Guarded<T: AsRawFd> {
    /// `None` only after `release`, `map` and `drop` have taken it.
    inner: Option<T>,
    generation: u64,
}

impl<T: AsRawFd> Guarded<T> {
    /// Makes a descriptor with a number above 2, and enters it, so that no fork comes between the two. `make` must not block, and
    /// must not call this itself.
    pub fn create(make: impl FnOnce() -> io::Result<T>) -> io::Result<Guarded<T>> {
        install_handlers()?;
        let mut table = lock();
        table.stopgaps.begin()?;
        let made = make();
        table.stopgaps.end();
        let inner = made?;
        table.insert(inner.as_raw_fd());
        Ok(Guarded { inner: Some(inner), generation: generation() })
    }

    /// Wraps the owner of the descriptor in another type. The descriptor stays the same.
    pub fn map<U: AsRawFd>(mut self, wrap: impl FnOnce(T) -> U) -> Guarded<U> {
        let inner = self.inner.take().expect("only release, map and drop take it, and each ends the guard");
        let fd = inner.as_raw_fd();
        let inner = wrap(inner);
        debug_assert_eq!(fd, inner.as_raw_fd());
        Guarded { inner: Some(inner), generation: self.generation }
    }

    /// Takes the descriptor out of the table without closing it: from now on a forked child keeps it.
    pub fn release(mut self) -> T {
        let inner = self.inner.take().expect("only release, map and drop take it, and each ends the guard");
        if self.generation == generation() {
            lock().remove(inner.as_raw_fd());
        }
        inner
    }

    /// Whether this process was forked after the descriptor was made.
    pub fn is_inherited(&self) -> bool {
        self.generation != generation()
    }
}

impl<T: AsRawFd> Drop for Guarded<T> {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        if self.is_inherited() {
            // The number may belong to somebody else by now.
            std::mem::forget(inner);
            return;
        }
        let mut table = lock();
        table.remove(inner.as_raw_fd());
        drop(inner);
    }
}

impl<T: AsRawFd> Deref for Guarded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("only release, map and drop take it, and each ends the guard")
    }
}

impl<T: AsRawFd> DerefMut for Guarded<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("only release, map and drop take it, and each ends the guard")
    }
}

impl<T: AsRawFd> fmt::Debug for Guarded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            Some(inner) => write!(f, "descriptor {}", inner.as_raw_fd()),
            None => f.write_str("no descriptor"),
        }
    }
}

#[cfg(test)]
#[path = "fork_test.rs"]
mod tests;
