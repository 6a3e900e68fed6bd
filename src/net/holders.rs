//! Which processes have a port of this host, as far as the kernel tells: /proc/net/tcp says which sockets there are, and the
//! descriptors in /proc/PID/fd say which processes have them. Only the words of an error use this.
//!
//! The files are read only if no port is free, and at most for [`LOOK_MAX`]. Tested below.

use super::fork::beyond_standard;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

/// How many ports a sentence names.
const TOLD_MAX: usize = 8;
/// How long to look for the processes.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// The kernel's number of a socket that listens (TCP_LISTEN).
const LISTENS: u8 = 0x0a;

/// A TCP socket of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Socket {
    port: u16,
    state: u8,
    user: u32,
    inode: u64,
}

/// Which processes hold the ports: `7000 by process 12 (nginx), 7001 by a process of user 33`, and how many more ports there are.
pub(super) fn in_words(ports: RangeInclusive<u16>) -> String {
    let deadline = Instant::now() + LOOK_MAX;
    let sockets = beyond_standard(|| sockets(&ports, deadline)).unwrap_or_default();
    let told: Vec<u16> = ports.clone().take(TOLD_MAX).collect();
    let holders: Vec<Option<Socket>> = told.iter().map(|port| holder(*port, &sockets)).collect();
    let inodes: Vec<u64> = holders.iter().flatten().map(|socket| socket.inode).filter(|inode| *inode != 0).collect();
    let owners = beyond_standard(|| owners(&inodes, deadline)).unwrap_or_default();
    let words = told.iter().zip(&holders).map(|(port, socket)| format!("{port} is held by {}", who(*socket, &owners)));
    let mut words: Vec<String> = words.collect();
    let others = ports.count() - told.len();
    if others > 0 {
        words.push(format!("and so are {others} more"));
    }
    words.join(", ")
}

/// The socket that keeps others off a port: one that listens, or else any.
fn holder(port: u16, sockets: &[Socket]) -> Option<Socket> {
    let mut own = sockets.iter().filter(|socket| socket.port == port);
    own.clone().find(|socket| socket.state == LISTENS).or_else(|| own.next()).copied()
}

fn who(socket: Option<Socket>, owners: &HashMap<u64, String>) -> String {
    match socket {
        None => "a socket with an unknown owner".to_owned(),
        Some(Socket { inode: 0, .. }) => "a connection that is closing".to_owned(),
        Some(Socket { inode, user, .. }) => {
            let hidden = || format!("a process of user {user}, which this process may not inspect");
            owners.get(&inode).cloned().unwrap_or_else(hidden)
        }
    }
}

fn sockets(ports: &RangeInclusive<u16>, deadline: Instant) -> Vec<Socket> {
    let mut found = Vec::new();
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Ok(file) = fs::File::open(path) else { continue };
        let lines = BufReader::new(file).lines().map_while(Result::ok).take_while(|_| Instant::now() < deadline);
        found.extend(lines.filter_map(|line| parse(&line)).filter(|socket| ports.contains(&socket.port)));
    }
    found
}

/// Reads a line such as `0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 26361 ...`. The table's
/// heading gives none.
fn parse(line: &str) -> Option<Socket> {
    let mut fields = line.split_ascii_whitespace();
    let (_, port) = fields.nth(1)?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    let user = fields.nth(3)?;
    let inode = fields.nth(1)?;
    Some(Socket {
        port: u16::from_str_radix(port, 16).ok()?,
        state: u8::from_str_radix(state, 16).ok()?,
        user: user.parse().ok()?,
        inode: inode.parse().ok()?,
    })
}

/// The processes that have the sockets with these inodes, in words. A forked child has its parent's sockets, too. If this process
/// itself has a socket, it is the one that is named.
fn owners(inodes: &[u64], deadline: Instant) -> HashMap<u64, String> {
    let mut owners = HashMap::new();
    let others =
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    for pid in std::iter::once(std::process::id().to_string()).chain(others) {
        if Instant::now() >= deadline || owners.len() == inodes.len() {
            break;
        }
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let process = Path::new("/proc").join(&pid);
        let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        for inode in descriptors.filter_map(|fd| socket_inode(&fs::read_link(fd.path()).ok()?)) {
            if inodes.contains(&inode) {
                let program = fs::read_to_string(process.join("comm")).unwrap_or_default();
                let program = program.trim_end().escape_debug().to_string();
                owners.entry(inode).or_insert_with(|| format!("process {pid} ({program})"));
            }
        }
    }
    owners
}

/// The inode in a link such as `socket:[26361]`.
fn socket_inode(link: &Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_line_of_the_kernels_table_is_read() {
        let line =
            "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 26361 1 0 100";
        assert_eq!(parse(line), Some(Socket { port: 8080, state: LISTENS, user: 1000, inode: 26361 }));
        let six = "   1: 00000000000000000000000001000000:1F91 00000000000000000000000000000000:0000 06 00000000:00000000 03:00 0 0 0 0 3";
        assert_eq!(parse(six), Some(Socket { port: 8081, state: 6, user: 0, inode: 0 }));
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        assert_eq!((parse(head), parse("")), (None, None));
    }

    #[test]
    fn a_port_is_told_with_the_process_that_has_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let words = in_words(port..=port);
        assert!(words.starts_with(&format!("{port} is held by process {} (", std::process::id())), "{words}");
    }

    #[test]
    fn the_holder_of_a_port_is_named_as_far_as_it_can_be_known() {
        let socket = |state, inode| Socket { port: 7000, state, user: 33, inode };
        let owners = HashMap::from([(5, "process 12 (nginx)".to_owned())]);
        assert_eq!(holder(7000, &[socket(1, 4), socket(LISTENS, 5)]), Some(socket(LISTENS, 5)));
        assert_eq!(who(Some(socket(1, 5)), &owners), "process 12 (nginx)");
        assert_eq!(who(Some(socket(1, 6)), &owners), "a process of user 33, which this process may not inspect");
        assert_eq!(who(Some(socket(6, 0)), &owners), "a connection that is closing");
        assert_eq!(who(None, &owners), "a socket with an unknown owner");
        let many = in_words(1..=20);
        assert!(many.ends_with("and so are 12 more"), "{many}");
    }
}
