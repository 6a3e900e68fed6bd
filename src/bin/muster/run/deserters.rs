//! Who has ended with code 0 without leaving the cluster, while the others wait for it: a loss like any other, of which
//! only the scheduler knows.
//!
//! While the cluster recovers its scheduler says once a second, in its log, who is awaited. A worker that ended with code 0
//! before such a line was written, and stands in it, is a deserter. (Where nobody waits it is none: a program may well end
//! without `muster_finalize` when all is done.) Without that log, on a host without the scheduler or where MUSTER_LOG is
//! `error`, nobody is found.

use super::children::{Child, Part};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the log is looked at while there is somebody to be looked for.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How much of the log is read, from its end.
const SEARCHED: u64 = 64 * 1024;
/// What stands before the awaited.
const AWAITED: &str = "awaited: ";

/// Those who ended with code 0, and how long the scheduler's log was then.
pub struct Deserters {
    log: Option<PathBuf>,
    doubtful: Vec<(usize, u64)>,
    looks_at: Duration,
}

impl Deserters {
    /// Nobody yet, among these children.
    pub fn new(children: &[Child]) -> Deserters {
        let log = children.iter().find(|child| child.part == Part::Scheduler).map(|child| child.log.clone());
        Deserters { log, doubtful: Vec::new(), looks_at: Duration::ZERO }
    }

    /// This worker has ended with code 0.
    pub fn doubt(&mut self, child: usize, now: Duration) {
        let Some(log) = &self.log else { return };
        let length = std::fs::metadata(log).map_or(0, |about| about.len());
        self.doubtful.push((child, length));
        self.looks_at = now + LOOK_EVERY;
    }

    /// When to look, if there is a reason to.
    pub fn deadline(&self) -> Option<Duration> {
        (!self.doubtful.is_empty()).then_some(self.looks_at)
    }

    /// Those who are awaited, each once; nobody before the next look is due.
    pub fn look(&mut self, children: &[Child], now: Duration) -> Vec<usize> {
        let Some(log) = self.log.as_ref().filter(|_| self.deadline().is_some_and(|at| at <= now)) else {
            return Vec::new();
        };
        self.looks_at = now + LOOK_EVERY;
        let is_awaited = |(child, from): &(usize, u64)| awaited(&since(log, *from), children[*child].pid);
        let (found, rest) = self.doubtful.iter().copied().partition(is_awaited);
        self.doubtful = rest;
        let found: Vec<(usize, u64)> = found;
        found.into_iter().map(|(child, _)| child).collect()
    }
}

fn since(log: &Path, from: u64) -> String {
    let read = || {
        let mut file = File::open(log)?;
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(from.max(length.saturating_sub(SEARCHED))))?;
        let mut bytes = Vec::new();
        file.take(SEARCHED).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

fn awaited(text: &str, pid: i32) -> bool {
    let name = format!("pid {pid})");
    text.lines().filter_map(|line| line.split_once(AWAITED)).any(|(_, awaited)| awaited.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whom_a_line_awaits_is_one() {
        let text = "muster: warning: rank 1 (node id \"1\", host h, pid 70) is lost\n\
            recovering since 1 s: 1 of 3 nodes have called muster_recover; awaited: rank 2 (host h, pid 71), rank 0 (host h, pid 7)\n";
        assert!(awaited(text, 71) && awaited(text, 7));
        assert!(!awaited(text, 70) && !awaited(text, 1) && !awaited("", 7));
    }

    #[test]
    fn what_was_written_before_the_end_does_not_count() {
        let folder = std::env::temp_dir().join(format!("muster-deserters-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let log = folder.join("scheduler.log");
        let line = "recovering; awaited: rank 0 (host h, pid 7)\n";
        std::fs::write(&log, line).unwrap();
        let child = |part, pid| Child { part, pid, pid_before: None, restarts: 0, log: log.clone() };
        let children = [child(Part::Scheduler, 6), child(Part::Worker { index: 0, rank: Some(0) }, 7)];
        let mut deserters = Deserters::new(&children);
        assert_eq!(deserters.deadline(), None);
        deserters.doubt(1, Duration::ZERO);
        assert_eq!(deserters.deadline(), Some(LOOK_EVERY));
        assert!(deserters.look(&children, LOOK_EVERY).is_empty());
        std::fs::write(&log, [line, line].concat()).unwrap();
        assert!(deserters.look(&children, LOOK_EVERY).is_empty(), "not so soon again");
        assert_eq!(deserters.look(&children, 2 * LOOK_EVERY), [1]);
        assert_eq!(deserters.deadline(), None, "once is enough");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
