//! What the kernel says about this host and about processes on it, and random bytes.
//!
//! Two processes are on one host when host name and boot id agree; their process numbers mean the same when the
//! namespaces agree too. A process is known by its number and its start time, since numbers are used again.
//! Tested in `host_test.rs` on real children: stopped, killed, ending, and outliving their first thread.

use super::call::uninterrupted;
use super::fork::beyond_standard;
use crate::error::{Error, Result};
use std::fs;
use std::io::{self, Read};

/// More bytes than a line of /proc/PID/stat has: 52 fields, of which one is a name and each other a number.
const STAT_BYTES: usize = 2048;

/// This host's name.
pub fn name() -> Result<String> {
    let mut buffer = [0u8; 256];
    // SAFETY: the pointer and the length are those of `buffer`; the last byte is kept back and stays 0.
    let result = unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
    if result != 0 {
        return Err(Error::system("cannot read the host's name", &io::Error::last_os_error()));
    }
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    Ok(String::from_utf8_lossy(&buffer[..end]).into_owned())
}

/// The boot id, which the kernel drew when it started. Empty if it does not say.
pub fn boot_id() -> String {
    let mut buffer = [0; 64];
    let id = told("/proc/sys/kernel/random/boot_id", &mut buffer).unwrap_or_default();
    String::from_utf8_lossy(id).trim().to_string()
}

/// Returns the whole of a kernel's file with one read: the kernel gives all at once, if there is room. Each call makes every
/// start slower.
fn told<'a>(path: &str, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let read = |buffer: &mut [u8]| {
        let mut file = fs::File::open(path)?;
        uninterrupted(|| file.read(buffer))
    };
    let length = beyond_standard(|| read(buffer))??;
    Ok(&buffer[..length])
}

/// How many processors this process may run on. Asks the kernel once and reads no file: each call makes every start slower.
pub fn cores() -> u32 {
    // SAFETY: an all-zero set is a valid empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is writable and as long as is said.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    // SAFETY: the set is initialized.
    let count = unsafe { libc::CPU_COUNT(&set) };
    // The kernel refuses on a machine with more processors than fit into the set. No process need share one there.
    if result == 0 {
        count.max(1) as u32
    } else {
        u32::MAX
    }
}

/// The time of the host's monotonic clock, in nanoseconds: the same for all processes of one host and time namespace.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` outlives the call, which writes to it alone; this clock is there on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The user whose rights this process has.
pub fn user() -> u32 {
    // SAFETY: takes nothing, and cannot fail.
    unsafe { libc::geteuid() }
}

/// The user who has started this process. It differs from the above in a set-uid program.
pub fn real_user() -> u32 {
    // SAFETY: takes nothing, and cannot fail.
    unsafe { libc::getuid() }
}

/// The namespaces in which this process sees the numbers of processes, and their start times. 0 if the kernel does not say.
pub fn pid_namespace() -> u64 {
    namespace("pid") ^ namespace("time").rotate_left(32)
}

/// The namespace in which this process reads the host's clocks. 0 if the kernel does not say.
pub fn time_namespace() -> u64 {
    namespace("time")
}

fn namespace(name: &str) -> u64 {
    // The link reads `pid:[4026531836]`, with the namespace's inode. To follow it would take the kernel longer.
    let link = fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
    let inode = link.to_str().and_then(|link| link.strip_prefix(name)?.strip_prefix(":[")?.strip_suffix(']'));
    inode.and_then(|inode| inode.parse().ok()).unwrap_or(0)
}

/// When this process started, in clock ticks since the kernel did. 0 if the kernel does not say.
pub fn own_start_ticks() -> u64 {
    // Through the number, not through `self`: they differ where /proc belongs to another namespace.
    start_ticks(std::process::id())
}

/// When the process with this number started, which may have ended and not been reaped yet. In clock ticks; 0 if the kernel does
/// not say.
pub fn start_ticks(pid: u32) -> u64 {
    match process_state(pid) {
        Probe::Found(stat) => stat.start_ticks,
        Probe::Absent | Probe::Unreadable => 0,
    }
}

/// How many ancestors of a process are looked at.
const ANCESTORS_MAX: usize = 64;

/// The command lines of this process's ancestors, the nearest first, as far as the kernel tells. Each argument ends
/// with a zero byte. A command line that the kernel does not show is empty.
pub fn ancestors() -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut pid = std::os::unix::process::parent_id();
    while pid != 0 && lines.len() < ANCESTORS_MAX {
        let line = beyond_standard(|| fs::read(format!("/proc/{pid}/cmdline"))).and_then(|read| read);
        lines.push(line.unwrap_or_default());
        let Probe::Found(stat) = process_state(pid) else { break };
        pid = stat.parent;
    }
    lines
}

/// What is known about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It runs (or is stopped).
    Alive,
    /// It has ended or is ending for good: its number is free, belongs to another process, or waits to be reaped.
    Gone,
    /// The kernel does not say.
    Unknown,
}

/// Whether the process with this number and start time still lives. Without a start time (0) any process with this number
/// counts as the one that is meant.
///
/// A process closes its sockets shortly before the kernel calls it dead. A process whose threads are all on their way
/// out counts as gone. So a caller that has just seen its connection end is not told "alive".
pub fn alive(pid: u32, start_ticks: u64) -> Liveness {
    if pid == 0 {
        return Liveness::Unknown;
    }
    match process_state(pid) {
        Probe::Found(stat) if start_ticks != 0 && stat.start_ticks != start_ticks => Liveness::Gone,
        // The first thread may end and leave the process to the others.
        Probe::Found(stat) if stat.is_ending() && (stat.threads <= 1 || !has_running_thread(pid)) => Liveness::Gone,
        Probe::Found(_) => Liveness::Alive,
        Probe::Absent => Liveness::Gone,
        Probe::Unreadable => Liveness::Unknown,
    }
}

enum Probe {
    Found(Stat),
    Absent,
    Unreadable,
}

fn process_state(pid: u32) -> Probe {
    let mut buffer = [0; STAT_BYTES];
    match told(&format!("/proc/{pid}/stat"), &mut buffer) {
        Ok(line) => Stat::parse(line).map_or(Probe::Unreadable, Probe::Found),
        // The file can vanish while it is open, when the process is reaped just then.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Probe::Absent,
        // /proc may be missing, or may hide the processes of other users (hidepid): ask in the other way.
        Err(error) if error.kind() == io::ErrorKind::NotFound => absent_for_kill(pid),
        Err(_) => Probe::Unreadable,
    }
}

fn absent_for_kill(pid: u32) -> Probe {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return Probe::Absent };
    // SAFETY: takes two integers; signal 0 is only a question.
    let result = unsafe { libc::kill(pid, 0) };
    if result == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
        Probe::Absent
    } else {
        Probe::Unreadable
    }
}

fn has_running_thread(pid: u32) -> bool {
    let look = || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let stats = threads.filter_map(|thread| fs::read(thread.path().join("stat")).ok());
        stats.filter_map(|line| Stat::parse(&line)).any(|stat| !stat.is_ending())
    };
    beyond_standard(look).unwrap_or(false)
}

/// What /proc/PID/stat says, as far as we ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: u8,
    parent: u32,
    flags: u32,
    threads: u64,
    start_ticks: u64,
    /// The signals that wait for this thread alone, one bit for each.
    pending: u64,
}

/// The kernel's PF_EXITING: the thread is on its way out. It may still have its sockets, or not.
const EXITING: u32 = 0x4;
/// The bit of a signal that nothing can block, ignore or take back.
const KILLED: u64 = 1 << (libc::SIGKILL - 1);

impl Stat {
    /// Field 2, the program's name in parentheses, may itself have spaces and parentheses: the last closing one ends it.
    fn parse(line: &[u8]) -> Option<Stat> {
        let end = line.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(&line[end + 1..]).ok()?;
        let mut fields = rest.split_ascii_whitespace(); // from field 3 on
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let flags = fields.nth(9 - 5)?.parse().ok()?;
        let threads = fields.nth(20 - 10)?.parse().ok()?;
        let start_ticks = fields.nth(22 - 21)?.parse().ok()?;
        let pending = fields.nth(31 - 23)?.parse().ok()?;
        Some(Stat { state, parent, flags, threads, start_ticks, pending })
    }

    /// Whether the process ends. A killed process may first wait for a disk, for seconds, but its program does nothing any more.
    fn is_ending(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') || self.flags & EXITING != 0 || self.pending & KILLED != 0
    }
}

/// Random bytes from the kernel, fit for secrets.
pub fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0u8; N];
    let mut filled = 0;
    while filled < N {
        let got = uninterrupted(|| {
            let rest = &mut bytes[filled..];
            // SAFETY: the pointer and the length are those of `rest`.
            let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
            usize::try_from(got).map_err(|_| io::Error::last_os_error())
        });
        filled += got.map_err(|error| Error::system("cannot draw random bytes", &error))?;
    }
    Ok(bytes)
}

#[cfg(test)]
#[path = "host_test.rs"]
mod tests;
