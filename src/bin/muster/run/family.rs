//! All processes that came of a run. Anybody who may look at them can find them, without being their parent.
//!
//! Each child of a launcher finds a word in its environment (`MUSTER_LAUNCH_ID`). The first half of the word is the
//! run's. Its own children inherit the word, in whatever session or process group they are. A process that was started
//! without an environment is still in the process group of another.

use crate::sys;
use muster::config::Key;
use muster::net::host;
use muster::types::LaunchId;
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

/// The id by which the processes of one run are told from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunId(String);

/// How many digits one half of the word has.
const DIGITS: usize = 16;
/// Processes that are being killed may start others: in so many looks in a row nobody must be found.
const LOOKS: u32 = 2;

/// When to look again at processes whose end nobody tells, because they are no children: soon, and then ever more
/// seldom.
pub struct Pace(Duration);

impl Pace {
    /// The first pause, and the longest.
    const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(200)];

    /// A pace that begins now.
    pub fn new() -> Pace {
        Pace(Pace::PAUSES[0])
    }

    /// Waits until it is time for the next look.
    pub fn wait(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (self.0 * 3 / 2).min(Pace::PAUSES[1]);
    }
}

impl RunId {
    /// Draws an id that no other run has.
    pub fn draw() -> io::Result<RunId> {
        drawn().map(RunId)
    }

    /// Reads an id as it was written elsewhere.
    pub fn read(word: &str) -> Option<RunId> {
        let is_one = word.len() == DIGITS && word.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_one.then(|| RunId(word.to_owned()))
    }

    /// The id as it is written.
    pub fn word(&self) -> &str {
        &self.0
    }

    /// The word that one more child is told.
    pub fn of_child(&self) -> io::Result<String> {
        Ok(format!("{}{}", self.0, drawn()?))
    }

    /// The run that a process came of, as its environment tells; none if it came of none, or others may not look at it.
    pub fn of_process(pid: i32) -> Option<RunId> {
        RunId::read(word_in(&environment_of(pid)?)?.get(..DIGITS)?)
    }

    /// The processes that carry the id in their environment, and those of their process groups.
    pub fn members(&self) -> BTreeSet<i32> {
        let all = sys::processes();
        let this = std::process::id() as i32; // one of the run's processes may ask
        let is_one = |pid: &i32| *pid != this && RunId::of_process(*pid).as_ref() == Some(self);
        let marked: BTreeSet<i32> = all.iter().copied().filter(is_one).collect();
        with_groups(&all, &marked)
    }
}

/// Whether a process came of the child that leads this process group and was started with this id.
pub fn came_of(pid: i32, group: i32, launch: LaunchId) -> bool {
    let is_told = || environment_of(pid).as_deref().and_then(word_in).is_some_and(|word| LaunchId::of(word) == launch);
    sys::group_of(pid) == Some(group) || is_told()
}

/// Whether a process shows no environment. Then it may be about to execute its program, and may have come of any child.
pub fn shows_nothing(pid: i32) -> bool {
    environment_of(pid).is_some_and(|shown| shown.is_empty())
}

fn environment_of(pid: i32) -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{pid}/environ")).ok()
}

/// The word that a child was told, in this environment.
fn word_in(environment: &[u8]) -> Option<&str> {
    let mark = format!("{}=", Key::LaunchId.setting().variable()).into_bytes();
    let word = environment.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(&mark[..]))?;
    std::str::from_utf8(word).ok()
}

fn drawn() -> io::Result<String> {
    let drawn: [u8; DIGITS / 2] = host::random_bytes().map_err(|error| io::Error::other(error.to_string()))?;
    Ok(drawn.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// These processes, and those of `all` that are in the same process groups.
fn with_groups(all: &[i32], some: &BTreeSet<i32>) -> BTreeSet<i32> {
    let own = sys::group_of(0);
    let groups: BTreeSet<i32> =
        some.iter().filter_map(|pid| sys::group_of(*pid)).filter(|group| Some(*group) != own).collect();
    let is_in = |pid: &&i32| some.contains(pid) || sys::group_of(**pid).is_some_and(|group| groups.contains(&group));
    all.iter().filter(is_in).copied().collect()
}

/// Kills all that came of a run, and all of these process groups, until nobody is left or the time is up.
pub fn kill_all(run: &RunId, groups: &BTreeSet<i32>, time: Duration) {
    groups.iter().for_each(|group| sys::signal_group(*group, libc::SIGKILL));
    let deadline = Instant::now() + time;
    let (mut looks, mut pace) = (0, Pace::new());
    while looks < LOOKS && Instant::now() < deadline {
        let left = run.members();
        left.iter().for_each(|pid| sys::signal_process(*pid, libc::SIGKILL));
        looks = if left.is_empty() { looks + 1 } else { 0 };
        pace.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    #[test]
    fn all_that_came_of_a_run_are_found_and_nobody_else() {
        let (run, other) = (RunId::draw().unwrap(), RunId::draw().unwrap());
        assert_eq!(RunId::read(run.word()), Some(run.clone()));
        assert_eq!(RunId::read("0123"), None);
        let start = |run: &RunId| {
            let mut command = Command::new("setsid");
            command.args(["sh", "-c", "env -i sleep 600 & setsid sleep 600 & echo ready; exec sleep 600"]);
            command.env("MUSTER_LAUNCH_ID", run.of_child().unwrap()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut ready = [0; 6];
            io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
            child
        };
        let (mut ours, mut others) = (start(&run), start(&other));
        // A process that is about to execute its program shows no environment yet.
        let until = Instant::now() + Duration::from_secs(30);
        while run.members().len() < 3 {
            assert!(Instant::now() < until, "{:?}", run.members());
        }
        kill_all(&run, &BTreeSet::new(), Duration::from_secs(30));
        ours.wait().unwrap();
        assert!(run.members().is_empty());
        assert!(others.try_wait().unwrap().is_none(), "the other run goes on");
        kill_all(&other, &BTreeSet::new(), Duration::from_secs(30));
        others.wait().unwrap();
    }

    #[test]
    fn what_a_child_has_left_behind_came_of_this_child_alone() {
        let run = RunId::draw().unwrap();
        let [own, other] = [(); 2].map(|()| run.of_child().unwrap());
        // Each says a line when it has executed its program, and ends when its input does.
        let start = |name: &str, value: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo ready; read line"]).env_clear().env(name, value).process_group(0);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
            child
        };
        let (mut told, mut untold) = (start("MUSTER_LAUNCH_ID", &own), start("NAME", "value"));
        let [told_pid, untold_pid] = [&told, &untold].map(|child| child.id() as i32);
        assert!(came_of(told_pid, 1, LaunchId::of(&own)));
        assert!(!came_of(told_pid, 1, LaunchId::of(&other)), "another child of the run");
        assert!(came_of(told_pid, told_pid, LaunchId::of(&other)), "it is in that group");
        assert!(!came_of(untold_pid, 1, LaunchId::of(&own)) && came_of(untold_pid, untold_pid, LaunchId::of(&own)));
        assert!(!shows_nothing(told_pid) && !shows_nothing(untold_pid));
        for child in [&mut told, &mut untold] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }
}
