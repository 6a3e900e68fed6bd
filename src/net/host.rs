//! What the kernel says about this host and about processes on it, and random bytes.
//!
//! Two processes are on one host when host name and boot id agree; their process numbers mean the same when the
//! namespaces agree too. A process is known by its number and its start time, since numbers are used again.

use super::socket::uninterrupted;
use crate::error::{Error, Result};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

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

/// What the kernel drew when it started; empty where it does not say.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_string()).unwrap_or_default()
}

/// Which process numbers this process sees; 0 where the kernel does not say.
pub fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map(|metadata| metadata.ino()).unwrap_or(0)
}

/// When this process started, in clock ticks since the kernel did; 0 where the kernel does not say.
pub fn own_start_ticks() -> u64 {
    // Through the number, not through `self`: they differ where /proc belongs to another namespace.
    match process_state(std::process::id()) {
        Probe::Found { start_ticks, .. } => start_ticks,
        Probe::Absent | Probe::Unreadable => 0,
    }
}

/// What is known about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It runs (or is stopped).
    Alive,
    /// It has ended: its number is free, is another process's, or waits to be reaped.
    Gone,
    /// The kernel does not say.
    Unknown,
}

/// Whether the process that had this number and start time still lives. Without a start time (0) another process of the
/// same number is taken for it.
pub fn alive(pid: u32, start_ticks: u64) -> Liveness {
    if pid == 0 {
        return Liveness::Unknown;
    }
    match process_state(pid) {
        Probe::Found { state: b'Z' | b'X' | b'x', .. } => Liveness::Gone,
        Probe::Found { start_ticks: found, .. } if start_ticks != 0 && found != start_ticks => Liveness::Gone,
        Probe::Found { .. } => Liveness::Alive,
        Probe::Absent => Liveness::Gone,
        Probe::Unreadable => Liveness::Unknown,
    }
}

enum Probe {
    Found { state: u8, start_ticks: u64 },
    Absent,
    Unreadable,
}

fn process_state(pid: u32) -> Probe {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(line) => match parse_stat(&line) {
            Some((state, start_ticks)) => Probe::Found { state, start_ticks },
            None => Probe::Unreadable,
        },
        // The file can vanish while it is open, when the process is reaped just then.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Probe::Absent,
        // /proc may be missing, or may hide the processes of others (hidepid): ask the other way.
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

/// State (field 3) and start time (field 22) of a line of /proc/PID/stat. Field 2, the program's name in parentheses, may
/// itself hold spaces and parentheses: the last closing one ends it.
fn parse_stat(line: &[u8]) -> Option<(u8, u64)> {
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&line[end + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let start_ticks = fields.nth(22 - 4)?.parse().ok()?;
    Some((state, start_ticks))
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
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn this_host_and_process_are_known() {
        assert!(!name().unwrap().is_empty());
        assert_eq!(boot_id().len(), 36);
        assert_ne!(pid_namespace(), 0);
        assert_ne!(own_start_ticks(), 0);
        assert_eq!(alive(std::process::id(), own_start_ticks()), Liveness::Alive);
        assert_eq!(alive(std::process::id(), 0), Liveness::Alive);
        assert_eq!(alive(std::process::id(), own_start_ticks() + 1), Liveness::Gone);
        assert_eq!(alive(0, 0), Liveness::Unknown);
        assert_eq!(alive(u32::MAX, 0), Liveness::Gone);
    }

    #[test]
    fn a_killed_child_is_gone_before_and_after_it_is_reaped() {
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        let start = match process_state(pid) {
            Probe::Found { start_ticks, .. } => start_ticks,
            _ => panic!("the child's state is not readable"),
        };
        assert_eq!(alive(pid, start), Liveness::Alive);
        child.kill().unwrap();
        // Waits until the child has ended, and leaves it unreaped.
        // SAFETY: an all-zero `siginfo_t` is a valid one for the kernel to fill in.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `info` outlives the call.
        let result = unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, libc::WEXITED | libc::WNOWAIT) };
        assert_eq!(result, 0);
        assert_eq!(alive(pid, start), Liveness::Gone);
        assert_eq!(alive(pid, 0), Liveness::Gone);
        child.wait().unwrap();
        assert_eq!(alive(pid, start), Liveness::Gone);
    }

    #[test]
    fn a_program_name_may_hold_parentheses_and_spaces() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(parse_stat(format!("12 (a) Z (b c)) {rest}").as_bytes()), Some((b'S', 4711)));
        assert_eq!(parse_stat(format!("12 (\u{fffd}) {rest}").as_bytes()), Some((b'S', 4711)));
        assert_eq!(parse_stat(b"12 (a) S 1 2"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn random_bytes_differ() {
        assert_ne!(random_bytes::<16>().unwrap(), random_bytes::<16>().unwrap());
        assert_ne!(random_bytes::<1024>().unwrap()[1000..], [0; 24]);
        assert_eq!(random_bytes::<0>().unwrap(), []);
    }
}
