//! The few calls of the operating system that the standard library does not have, each a safe function around a single
//! libc call. Nothing here decides anything.

use crate::code;
use std::ffi::{c_ulong, CString};
use std::fs::TryLockError;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It ended with this exit code.
    Exit(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Ending {
    /// The exit code with which a shell reports it.
    pub fn code(self) -> i32 {
        match self {
            Ending::Exit(code) => code,
            Ending::Signal(signal) => code::SIGNAL + signal,
        }
    }
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Repeats a call that a signal handler interrupted.
fn uninterrupted(mut call: impl FnMut() -> libc::c_int) -> io::Result<libc::c_int> {
    loop {
        match checked(call()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    let fd = checked(fd)?;
    // SAFETY: the kernel has just made this descriptor for the caller, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether this process may execute that file.
pub fn executable(path: &Path) -> bool {
    access(path, libc::X_OK).is_ok()
}

/// Whether this process may make files in that folder. The error says why not.
pub fn may_make_files_in(folder: &Path) -> io::Result<()> {
    access(folder, libc::W_OK | libc::X_OK)
}

/// Whether the file system of this folder has no room for this process. Some is kept for the superuser.
pub fn is_full(folder: &Path) -> bool {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    let mut found = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `path` is a string that ends with NUL, and `found` has room for the answer; both outlive the call.
    let asked = uninterrupted(|| unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) });
    // SAFETY: all zeroes are a valid answer, and the kernel's is one.
    let found = unsafe { found.assume_init() };
    // SAFETY: only reads a number.
    let room = if unsafe { libc::geteuid() } == 0 { found.f_bfree } else { found.f_bavail };
    asked.is_ok() && found.f_blocks > 0 && room == 0
}

fn access(path: &Path, how: libc::c_int) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `path` is a string that ends with NUL and outlives the call.
    checked(unsafe { libc::access(path.as_ptr(), how) }).map(|_| ())
}

/// Sends a signal to a process. No caller minds if it is gone already.
pub fn signal_process(pid: i32, signal: i32) {
    // SAFETY: takes numbers only.
    unsafe { libc::kill(pid, signal) };
}

/// Sends a signal to all processes of the group that `pid` leads.
pub fn signal_group(pid: i32, signal: i32) {
    // SAFETY: takes numbers only.
    unsafe { libc::killpg(pid, signal) };
}

/// The process group that a process is in.
pub fn group_of(pid: i32) -> Option<i32> {
    // SAFETY: takes a number only.
    checked(unsafe { libc::getpgid(pid) }).ok()
}

/// How this child ended, if it has. It stays a zombie: its number cannot pass to another process while its group may
/// still be signalled.
pub fn ended(pid: i32) -> Option<Ending> {
    wait(pid, libc::WNOHANG | libc::WNOWAIT)
}

/// How this child ended, if it has. Then it is reaped, and gone for good.
pub fn reap(pid: i32) -> Option<Ending> {
    wait(pid, libc::WNOHANG)
}

/// Waits until this child has ended, and leaves it to be reaped, so that its number stays its own.
pub fn await_end_unreaped(pid: i32) -> Option<Ending> {
    wait(pid, libc::WNOWAIT)
}

/// Waits until this child has ended, and reaps it. None if it is no child.
pub fn await_end(pid: i32) -> Option<Ending> {
    wait(pid, 0)
}

fn wait(pid: i32, options: libc::c_int) -> Option<Ending> {
    // SAFETY: siginfo_t is plain data, for which all zeros is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | options;
    // SAFETY: `info` is valid for writing during the call.
    uninterrupted(|| unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, options) }).ok()?;
    // SAFETY: waitid has filled in the fields of a child's end, or left all of them zero.
    let (found, status) = unsafe { (info.si_pid(), info.si_status()) };
    match info.si_code {
        _ if found == 0 => None,
        libc::CLD_EXITED => Some(Ending::Exit(status)),
        _ => Some(Ending::Signal(status)),
    }
}

/// Children of this process: those that it started, and orphans among their descendants that it has adopted. Empty if
/// the kernel does not tell.
pub fn children() -> Vec<i32> {
    let this = std::process::id();
    let text = std::fs::read_to_string(format!("/proc/self/task/{this}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// All processes that descend from this one, as far as the kernel tells.
pub fn descendants() -> Vec<i32> {
    let (mut found, mut looked) = (children(), 0);
    while let Some(pid) = found.get(looked) {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for text in threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok()) {
            found.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
        looked += 1;
    }
    found
}

/// All processes that this one can see.
pub fn processes() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// From now on that signal does nothing to this process.
pub fn ignore(signal: i32) {
    // SAFETY: takes numbers only.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// From now on orphans among this process's descendants become its children.
pub fn adopt_orphans() {
    // SAFETY: takes numbers only. An old kernel refuses, and orphans then go to init.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// What a new child does for itself between fork and exec. Makes only calls that are safe there.
///
/// It leads a process group of its own, and no terminal controls it. It blocks no signal, and ignores none because of us. With
/// `dies_with` it is killed when that parent dies. It keeps `listener` over exec.
pub fn prepare_child(dies_with: Option<i32>, listener: Option<RawFd>) -> io::Result<()> {
    // SAFETY: takes numbers only, and is safe after fork.
    checked(unsafe { libc::setpgid(0, 0) })?;
    leave_terminal();
    set_mask(libc::SIG_SETMASK, &[])?;
    // SAFETY: takes numbers only, and is safe after fork. Rust's own start has it ignored here.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    if let Some(parent) = dies_with {
        // SAFETY: takes numbers only, and is safe after fork.
        checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })?;
        // SAFETY: takes nothing, and is safe after fork.
        if unsafe { libc::getppid() } != parent {
            // The parent died before the line above could matter.
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
    }
    if let Some(fd) = listener {
        // SAFETY: takes numbers only, and is safe after fork.
        checked(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) })?;
    }
    Ok(())
}

/// From now on writing to this file waits until there is room, however the file was opened.
pub fn let_wait(file: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: takes numbers only.
    let flags = checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: as above.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) }).map(|_| ())
}

/// Takes a lock on a file, by `take`, that others hold for a moment only. False if it is still held after that time.
pub fn lock_within(patience: Duration, take: impl Fn() -> Result<(), TryLockError>) -> io::Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        match take() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return Ok(false),
            // A lock has no descriptor to wait on: it is looked at again until the deadline.
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

/// How soon a lock is looked at again that others hold.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The cores that this process may use, a bit each.
pub fn usable_cores() -> io::Result<Vec<c_ulong>> {
    let mut bits: Vec<c_ulong> = vec![0; 1];
    loop {
        let bytes = std::mem::size_of_val(&bits[..]);
        // SAFETY: the pointer and length are those of a buffer that is valid for writing.
        match checked(unsafe { libc::sched_getaffinity(0, bytes, bits.as_mut_ptr().cast()) }) {
            // The kernel has more bits than these.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && bytes < CORES_MAX_BYTES => {
                bits.resize(bits.len() * 2, 0);
            }
            result => return result.map(|_| bits),
        }
    }
}

/// More than any Linux needs for a bit for each core.
const CORES_MAX_BYTES: usize = 1 << 16;

/// From now on this process uses these cores only, a bit each; none: nothing changes. Safe after fork.
pub fn bind_cores(bits: &[c_ulong]) -> io::Result<()> {
    if bits.is_empty() {
        return Ok(());
    }
    // SAFETY: the pointer and length are those of a slice.
    checked(unsafe { libc::sched_setaffinity(0, std::mem::size_of_val(bits), bits.as_ptr().cast()) }).map(|_| ())
}

/// From now on this process gets memory of these NUMA nodes only, a bit each; none: nothing changes. Safe after fork.
pub fn bind_memory(nodes: &[c_ulong]) -> io::Result<()> {
    if nodes.is_empty() {
        return Ok(());
    }
    // The kernel takes one bit less than it is told.
    let bits = nodes.len() as c_ulong * c_ulong::from(c_ulong::BITS) + 1;
    // SAFETY: the pointer is that of as many bits.
    match unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_BIND, nodes.as_ptr(), bits) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// No terminal controls this process any more: it reads from one as from any file, and is not stopped or ended by it.
/// A session of its own would do the same. But Linux shares the processor among sessions first (autogroup, sched(7)),
/// and then ranks that wait for each other can't yield to each other.
fn leave_terminal() {
    // SAFETY: the path ends with NUL; open is safe after fork. It fails where there is no such terminal.
    let fd = unsafe { libc::open(c"/dev/tty".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK) };
    if fd >= 0 {
        // SAFETY: a descriptor that was just opened, used and closed here alone; both calls are safe after fork.
        unsafe { libc::ioctl(fd, libc::TIOCNOTTY) };
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
}

fn set_mask(how: libc::c_int, signals: &[i32]) -> io::Result<libc::sigset_t> {
    // SAFETY: sigset_t is plain data; sigemptyset below gives it its value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid for writing.
    unsafe { libc::sigemptyset(&mut set) };
    for signal in signals {
        // SAFETY: `set` is valid for writing.
        checked(unsafe { libc::sigaddset(&mut set, *signal) })?;
    }
    // SAFETY: `set` is valid for reading; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, &set, std::ptr::null_mut()) } {
        0 => Ok(set),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Blocks these signals and makes a descriptor from which they are read instead.
pub fn signal_descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = set_mask(libc::SIG_BLOCK, signals)?;
    // SAFETY: `set` is valid for reading.
    owned(unsafe { libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) })
}

/// The next signal that waits on that descriptor.
pub fn next_signal(fd: &OwnedFd) -> Option<i32> {
    let mut buffer = [0; std::mem::size_of::<libc::signalfd_siginfo>()];
    let length = read(fd, &mut buffer).ok()?;
    // ssi_signo is the first field.
    let number = buffer.first_chunk::<4>().filter(|_| length == buffer.len())?;
    i32::try_from(u32::from_ne_bytes(*number)).ok()
}

/// From now on it is an error to write where nobody reads any more, and it does not end this process.
pub fn ignore_broken_pipes() {
    ignore(libc::SIGPIPE);
}

/// From now on the kernel tells of the ends of children, even if the process that started this one wanted to hear of
/// none.
pub fn hear_of_children() {
    // SAFETY: no handler is set.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Opens the standard streams that this process was started without, so that no other file takes their place.
pub fn open_standard_streams() {
    for fd in 0..3 {
        // SAFETY: takes numbers only.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            // SAFETY: the path ends with NUL. The descriptor is the lowest that is free, which is `fd`; it stays open.
            unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
        }
    }
}

/// Whether this process was started with that signal ignored.
pub fn ignored(signal: i32) -> bool {
    // SAFETY: sigaction is plain data, for which all zeros is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks only; `action` is valid for writing.
    unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN }
}

/// A copy of a descriptor that this process was started with. No child inherits it, nor the descriptor itself.
pub fn taken_over(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let own = owned(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) })?;
    // SAFETY: takes numbers only.
    checked(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    Ok(own)
}

/// Reads what is there.
pub fn read(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length are those of a buffer that is valid for writing.
    let length = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// Writes what the descriptor takes of this.
pub fn write(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length are those of the bytes.
    let length = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// From now on a write to this end of a pipe is an error if it would wait. The end must be this process's own.
pub fn never_wait_to_write(pipe: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes numbers only.
    checked(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }).map(|_| ())
}

/// Waits until one of these can be read, or the time is up. Says of each whether it can.
pub fn poll<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: Option<Duration>) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    // Rounded up: a wait that ends a little early would be begun again at once.
    let millis = timeout.map_or(-1, |time| time.as_micros().div_ceil(1000).min(i32::MAX as u128) as libc::c_int);
    // SAFETY: the pointer and length are those of an array that is valid for reading and writing.
    match checked(unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, millis) }) {
        Ok(_) => Ok(polled.map(|one| one.revents != 0)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok([false; N]),
        Err(error) => Err(error),
    }
}

/// A descriptor by which one thread tells another something: readable once [`ring`] was called.
pub fn bell() -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Makes a bell readable.
pub fn ring(bell: &OwnedFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: the pointer and length are those of an array that is valid for reading. A full counter is readable too.
    unsafe { libc::write(bell.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Makes a bell unreadable again.
pub fn hush(bell: &OwnedFd) {
    let mut count = [0u8; 8];
    // SAFETY: the pointer and length are those of an array that is valid for writing. An empty counter gives an error.
    unsafe { libc::read(bell.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}

/// Lets as many connections wait on a listener as the kernel allows: a cluster's nodes all come at once.
pub fn widen_backlog(listener: &std::net::TcpListener) -> io::Result<()> {
    // SAFETY: takes numbers only.
    checked(unsafe { libc::listen(listener.as_raw_fd(), 65535) }).map(|_| ())
}

/// Whether a descriptor is of a terminal that takes commands for its cursor and colours.
pub fn is_terminal(fd: RawFd) -> bool {
    // SAFETY: takes a number only.
    let is_one = unsafe { libc::isatty(fd) == 1 };
    is_one && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether a shell lets another job have that terminal, and this process runs in the background.
pub fn is_background(fd: RawFd) -> bool {
    // SAFETY: takes a number only. It fails where the terminal does not control this process.
    let foreground = unsafe { libc::tcgetpgrp(fd) };
    foreground > 0 && group_of(0).is_some_and(|own| own != foreground)
}

/// Whether what this process writes there goes to another process.
pub fn is_pipe(fd: RawFd) -> bool {
    let about = std::fs::metadata(format!("/proc/self/fd/{fd}"));
    about.is_ok_and(|about| about.file_type().is_fifo() || about.file_type().is_socket())
}

/// How many characters a row of that terminal has.
pub fn terminal_width(fd: RawFd) -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `size` is valid for writing during the call.
    checked(unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &mut size) }).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// Nanoseconds of the clock that all processes of this host share.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC).expect("every Linux has this clock")
}

/// Nanoseconds that a process has computed, in all its threads together.
pub fn computed_ns(pid: i32) -> io::Result<u64> {
    let mut clock = 0;
    // SAFETY: `clock` is valid for writing during the call.
    match unsafe { libc::clock_getcpuclockid(pid, &mut clock) } {
        0 => clock_ns(clock),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn clock_ns(clock: libc::clockid_t) -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing during the call.
    checked(unsafe { libc::clock_gettime(clock, &mut time) })?;
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
