//! The keeper of a run with --join: a process beside the launcher. If the launcher is killed and cannot do it itself,
//! the keeper kills everything that came of the run.
//!
//! The kernel then kills the launcher's own children, but not theirs. The keeper holds one end of a pipe, and the
//! launcher the other: when the pipe ends, the launcher has ended. By the pipe it learns which process groups there
//! are, and by the one word of its command line which processes are the run's ([`family`](super::family)). It has no
//! environment, so that the keeper of a run inside another run is not taken for one of the other's processes. It ends
//! when its own launcher has ended, and its work is done.
//!
//! A launcher that ends in order kills its keeper first. Decision: `docs/decisions/113-a-keeper-beside-the-launcher.md`. Tested by
//! `tests/python/test_run_killed.py`.

use super::family::{kill_all, RunId};
use crate::code;
use crate::start::{start, Start};
use crate::sys;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, PipeWriter, Write};
use std::os::fd::AsFd;
use std::time::Duration;

/// The word behind `muster` that makes a process a keeper; for launchers only.
pub const NAME: &str = "--keeper";

/// How long it goes on killing.
const PATIENCE: Duration = Duration::from_secs(10);

/// The launcher's side.
pub struct Keeper {
    pid: i32,
    pipe: PipeWriter,
}

impl Keeper {
    /// Starts it.
    pub fn start(run: &RunId) -> io::Result<Keeper> {
        let (reader, pipe) = io::pipe()?;
        sys::never_wait_to_write(pipe.as_fd())?;
        let null = File::options().write(true).open("/dev/null")?;
        let pid = start(&Start {
            program: std::env::current_exe()?.as_os_str(),
            words: &["muster", NAME, run.word()].map(OsString::from),
            environment: Vec::new(),
            input: Some(reader.as_fd()),
            output: null.as_fd(),
            error: None,
            keeps: None,
            cores: &[],
            memory_nodes: &[],
            dies_with_parent: false,
        })?;
        Ok(Keeper { pid, pipe })
    }

    /// The keeper's process, which does not count as one of the run's.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Tells the keeper that a child leads this process group.
    pub fn knows(&mut self, group: i32) {
        self.tell(format!("{group}\n"));
    }

    /// Tells the keeper that nothing is left of this group, and that its number may come to mean another.
    pub fn forgets(&mut self, group: i32) {
        self.tell(format!("-{group}\n"));
    }

    /// Writes a line in one piece, or not at all: a keeper that was killed, or that stands still, is no reason to end a
    /// run or to hold it up.
    fn tell(&mut self, line: String) {
        let _ = self.pipe.write(line.as_bytes());
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // A launcher that panics leaves the rest to the keeper.
        if !std::thread::panicking() {
            sys::signal_process(self.pid, libc::SIGKILL);
            sys::await_end(self.pid);
        }
    }
}

/// Runs as the keeper, with the words after its name. Returns the exit code.
pub fn command(words: &[OsString]) -> i32 {
    let Some(run) = words.first().and_then(|word| word.to_str()).and_then(RunId::read) else { return code::USAGE };
    // The signals that end a launcher in order must not end this process before it.
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT].into_iter().for_each(sys::ignore);
    let mut groups = BTreeSet::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match line.strip_prefix('-') {
            Some(group) => group.parse().is_ok_and(|group: i32| groups.remove(&group)),
            None => line.parse().is_ok_and(|group: i32| group > 1 && groups.insert(group)),
        };
    }
    kill_all(&run, &groups, PATIENCE);
    0
}
