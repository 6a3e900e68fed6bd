//! Memory that processes of one host share: a segment, made by one of them and handed to the others as a descriptor.
//!
//! Invariants
//! - The length is fixed and sealed before another process has the descriptor, and a process that maps a segment checks
//!   the seals. So no other process can make an access fail by cutting the memory off.
//! - No Rust reference points into it, but for the moment of one atomic access. What other processes write there is data:
//!   it is copied out, or read by raw pointers, and each word is read once for each use.
//! - A place is compared with the length at each access. So nothing that others write leads beyond the memory.
//! - A forked child has no such memory (`MADV_DONTFORK`). What the child inherits of this type does nothing when it is dropped.
//! - The memory has no name: it is gone when the last process that has it mapped is gone, however that ended.
//!
//! The kernel makes a page when it is first touched. If no memory is left then, it kills the process. So each writer first has
//! the kernel make the pages ([`Segment::populate`]): a refusal there is only an error. The caller must know
//! that there is room (`cgroup`): beyond a group's limit the kernel does not refuse, but sends a SIGKILL.
//!
//! The users of a segment decide what lies where, and what it means.

use super::call::{check, uninterrupted};
use super::fork::{generation, Guarded};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The seals: nobody can change the length any more, nor the seals themselves.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// How far apart words lie that different processes write: two lines of a cache, for processors fetch pairs of them.
pub const LINE_BYTES: usize = 128;

/// The size of the pages in which the kernel makes memory.
pub fn page_bytes() -> usize {
    // SAFETY: takes a number and gives one.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Memory that this process has mapped.
#[derive(Debug)]
pub struct Segment {
    start: *mut u8,
    length: usize,
    generation: u64,
}

// SAFETY: the mapping belongs to the process, not to a thread. It is reached only through the methods below, which touch it
// by raw pointers and by atomic accesses.
unsafe impl Send for Segment {}

impl Segment {
    /// Makes a segment of `length` bytes, all zero. Returns it, and the descriptor by which other processes map it.
    pub fn create(length: usize) -> io::Result<(Segment, Guarded<File>)> {
        fits_limit(length as u64)?;
        let file = Guarded::create(|| uninterrupted(anonymous_file))?;
        file.set_len(length as u64)?;
        // SAFETY: the descriptor is open, and the operation takes an integer.
        check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        Ok((Segment::map(&file, length)?, file))
    }

    /// Maps a segment that another process has made, if its length is this and can never change.
    pub fn open(file: &File, length: usize) -> io::Result<Segment> {
        // SAFETY: the descriptor is open, and the operation takes nothing.
        let seals = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
        if seals & SEALS != SEALS {
            return Err(io::Error::other(format!("its length can still be changed (seals {seals:#x})")));
        }
        let found = file.metadata()?.len();
        if found != length as u64 {
            return Err(io::Error::other(format!("it has {found} bytes where {length} were agreed on")));
        }
        Segment::map(file, length)
    }

    fn map(file: &File, length: usize) -> io::Result<Segment> {
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a new mapping, at a place that the kernel chooses. The file has this length, and keeps it.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let segment = Segment { start: start.cast(), length, generation: generation() };
        // SAFETY: the whole of the mapping that was just made.
        check(unsafe { libc::madvise(start, length, libc::MADV_DONTFORK) })?;
        Ok(segment)
    }

    /// How many bytes it has.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Has the kernel make the pages in which these bytes lie. `at` is where a page begins; `file` is the segment's descriptor.
    pub fn populate(&self, file: &File, at: usize, length: usize) -> io::Result<()> {
        let start = self.pointer(at, length).cast();
        // SAFETY: the bytes were just found to lie in the mapping. Nothing is changed that lies there.
        let made = || check(unsafe { libc::madvise(start, length, libc::MADV_POPULATE_WRITE) }).map(drop);
        match uninterrupted(made) {
            // Kernels before 5.14 do not know the advice.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => allocate(file, at, length),
            made => made,
        }
    }

    /// Where these bytes lie, for code that reads or writes them by raw pointers. Other processes may write there at any time.
    #[inline]
    pub fn pointer(&self, at: usize, length: usize) -> *mut u8 {
        let inside = at.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(inside, "{length} bytes at {at} of a segment of {}", self.length);
        self.start.wrapping_add(at)
    }

    #[inline]
    fn word(&self, at: usize) -> *mut u64 {
        let start = self.pointer(at, size_of::<u64>()).cast::<u64>();
        assert!(start.is_aligned(), "a word at {at}");
        start
    }

    /// Reads the word at this place. What its writer wrote before it stored the word can be read from now on.
    #[inline]
    pub fn load(&self, at: usize) -> u64 {
        // SAFETY: the word was found to lie in the mapping, and to be aligned; all accesses to such words are atomic.
        unsafe { AtomicU64::from_ptr(self.word(at)) }.load(Ordering::Acquire)
    }

    /// Stores a word at this place, and publishes with it what was written before.
    #[inline]
    pub fn store(&self, at: usize, value: u64) {
        // SAFETY: as for `load`.
        unsafe { AtomicU64::from_ptr(self.word(at)) }.store(value, Ordering::Release);
    }

    /// Writes bytes there.
    #[inline]
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.pointer(at, bytes.len());
        // SAFETY: both have this length. They do not overlap, for no reference points into a segment.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies bytes from there.
    #[inline]
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let from = self.pointer(at, into.len());
        // SAFETY: as for `write`. What another process writes meanwhile may be read in part; it is only data.
        unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), into.as_mut_ptr(), into.len()) };
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // In a forked child something else may lie there.
        if self.generation == generation() {
            // SAFETY: the whole mapping belongs to this segment, and nobody can reach it any more.
            unsafe { libc::munmap(self.start.cast(), self.length) };
        }
    }
}

/// Has the kernel make these pages of a segment's file. Every kernel with such files can do this, but the first access to a page
/// is then slower.
fn allocate(file: &File, at: usize, length: usize) -> io::Result<()> {
    let range = |bytes: usize| libc::off_t::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG));
    let (at, length) = (range(at)?, range(length)?);
    // SAFETY: the descriptor is open, and the operation takes integers.
    uninterrupted(|| check(unsafe { libc::fallocate(file.as_raw_fd(), 0, at, length) }).map(drop))
}

/// Returns an error if this process may make no file of this length (`ulimit -f`): the kernel would end it by SIGXFSZ.
fn fits_limit(length: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writing during the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) })?;
    match length > limit.rlim_cur {
        true => Err(io::Error::from_raw_os_error(libc::EFBIG)),
        false => Ok(()),
    }
}

fn anonymous_file() -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let make = |flags| {
        // SAFETY: the name is a C string that outlives the call.
        check(unsafe { libc::memfd_create(c"muster".as_ptr(), flags) })
    };
    // Kernels before 6.3 do not know the flag by which nobody can execute the file.
    let fd = match make(flags | libc::MFD_NOEXEC_SEAL) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => make(flags)?,
        made => made?,
    };
    // SAFETY: the descriptor was just made, and is nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
}

#[cfg(test)]
#[path = "shm_test.rs"]
mod tests;
