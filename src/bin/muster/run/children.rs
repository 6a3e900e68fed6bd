//! Starting the children: what each finds in its environment, where its output goes, and how it hangs on the launcher.
//!
//! Every child leads a process group of its own, so that its own children can be stopped with it. With --join it is killed when
//! the launcher dies, and reads the launcher's standard input; without, it outlives the launcher on purpose.

use super::binding::{Binding, Bound};
use super::dry_run::Preview;
use super::family::RunId;
use super::folder::{self, Claim};
use super::keeper::Keeper;
use super::log_names::LogNames;
use super::parse::RunOptions;
use super::part::Part;
use super::program::Program;
use crate::start::{start, Start};
use crate::sys;
use muster::config::{Key, Setting};
use muster::types::LaunchId;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The settings that the launcher decides. The children do not inherit the variables of the launcher's own environment
/// that set one of these. So none contradicts what the launcher tells them.
const DECIDED: [Key; 11] = [
    Key::Role,
    Key::SchedHost,
    Key::SchedPort,
    Key::WorkerNum,
    Key::NodeId,
    Key::RankId,
    Key::DeviceId,
    Key::ClusterTimeout,
    Key::TopoTimeout,
    Key::SchedFd,
    Key::LaunchId,
];

/// The name that the scheduler is told to have, and its command.
const SCHEDULER: [&str; 2] = ["muster", "scheduler"];

/// The beginning of the line in a log after which the next life writes.
pub const NEXT_LIFE: &str = "--- muster: ";

/// Where the workers meet.
pub struct Meeting {
    /// The scheduler's port.
    pub port: u16,
    /// What the workers are told for HCCL's cluster manager, if they are to start by it.
    pub hccl: Vec<(&'static str, String)>,
    /// If a table gives the ranks: that of each worker by its index, as far as they are known here.
    pub ranks_by_table: Option<Vec<u32>>,
}

/// A child that was started.
#[derive(Clone, Debug)]
pub struct Child {
    /// What it is.
    pub part: Part,
    /// Its process, which leads a process group of the same number.
    pub pid: i32,
    /// The process that was it before, if it was started again.
    pub pid_before: Option<i32>,
    /// The id by which its process knows itself, and every other process that runs in its place.
    pub launch: LaunchId,
    /// How often it was started again.
    pub restarts: u32,
    /// Why it could not be started again, if the last attempt failed.
    pub unstarted: Option<String>,
    /// Where its output goes.
    pub log: PathBuf,
}

/// This program's file. An upgrade may have replaced it; this path still leads to the file that this process runs.
fn own_program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    Ok(if path.exists() { path } else { PathBuf::from("/proc/self/exe") })
}

/// How long a process may take to die of SIGKILL. One that takes longer cannot be killed by this process.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Kills these children and what belongs to them, and returns when they are gone, or cannot be killed.
pub fn stop_now(children: &[Child]) {
    for child in children {
        sys::signal_group(child.pid, libc::SIGKILL);
    }
    let until = Instant::now() + GONE_WITHIN;
    for child in children {
        while sys::reap(child.pid).is_none() && sys::group_of(child.pid).is_some() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1)); // waitid knows no time-out
        }
    }
}

/// What all children have in common.
pub struct Launch<'a> {
    options: &'a RunOptions,
    program: &'a Program,
    listener: Option<TcpListener>,
    meeting: Meeting,
    names: LogNames,
    binding: Binding,
    /// The part of the launcher's own environment that they get, too.
    inherited: Vec<(OsString, OsString)>,
    /// An input in which there is nothing.
    null: File,
    /// The lock of the run's logs; the launcher holds it as long as this lives.
    claim: Option<Claim>,
    run: RunId,
    keeper: Option<Keeper>,
    /// The processes that this process started before it became the launcher (it was a script then), and their
    /// descendants.
    earlier: Vec<i32>,
}

impl<'a> Launch<'a> {
    /// A launch of children that were not started yet. If this host has the scheduler, it gets the listener.
    pub fn new(
        options: &'a RunOptions,
        program: &'a Program,
        listener: Option<TcpListener>,
        meeting: Meeting,
        names: LogNames,
        binding: Binding,
    ) -> io::Result<Launch<'a>> {
        let null = File::open("/dev/null")?;
        let (inherited, run) = (inherited(), RunId::draw()?);
        let (claim, keeper) = (None, None);
        let earlier = if options.join { sys::descendants() } else { Vec::new() };
        Ok(Launch { options, program, listener, meeting, names, binding, inherited, null, claim, run, keeper, earlier })
    }

    /// Lets nothing of the run outlive this process, even if that is killed. Called after the children's start, so that
    /// they need not wait for it.
    pub fn keep(&mut self, children: &[Child]) -> io::Result<()> {
        let keeper = self.keeper.insert(Keeper::start(&self.run)?);
        children.iter().for_each(|child| keeper.knows(child.pid));
        Ok(())
    }

    /// Whether this child of the launcher does not belong to the run: the launcher, or a child of it, started it before
    /// the run began.
    pub fn is_earlier(&self, pid: i32) -> bool {
        self.earlier.contains(&pid)
    }

    /// The keeper's process, which is a child of this one.
    pub fn keeper(&self) -> Option<i32> {
        self.keeper.as_ref().map(Keeper::pid)
    }

    /// The scheduler's port.
    pub fn port(&self) -> u16 {
        self.meeting.port
    }

    /// Where the scheduler is reached: its host and port.
    pub fn scheduler(&self) -> (String, u16) {
        (self.options.master_addr.clone(), self.meeting.port)
    }

    /// The scheduler, where this host has it, and then the workers, in the order of the numbers in their logs' names.
    pub fn parts(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        parts.extend(self.listener.as_ref().map(|_| Part::Scheduler));
        let rank = |index| match &self.meeting.ranks_by_table {
            Some(ranks) => ranks.get(index as usize).copied(),
            None => self.options.rank(index),
        };
        parts.extend((0..self.options.local_worker_num).map(|index| Part::Worker { index, rank: rank(index) }));
        parts.sort_by_key(|part| part.number());
        parts
    }

    /// Takes the logs, which must not belong to another run. Returns what is to be said of other logs. The error is a
    /// sentence.
    pub fn claim(&mut self) -> Result<Option<String>, String> {
        let own = self.tenant();
        Ok(self.claim.insert(folder::claim(&self.options.log_dir, &own)?).older(&own, self.options.worker_num))
    }

    /// Why this launcher could not take the logs now, in a sentence.
    pub fn is_in_the_way(&self) -> Option<String> {
        folder::would_refuse(&self.options.log_dir, &self.tenant())
    }

    fn tenant(&self) -> folder::Tenant {
        folder::Tenant::this(self.options, &self.parts(), self.port(), self.run.clone(), &self.names)
    }

    /// Starts all children. On an error those already started are stopped again. An error of the kind `NotFound` is the
    /// program's: it cannot be executed, and that only shows here.
    pub fn start_all(&mut self) -> io::Result<Vec<Child>> {
        let mut children = Vec::new();
        for (index, part) in self.parts().into_iter().enumerate() {
            let log = self.log(part);
            let output = self.fresh_log(&log, index == 0).map_err(|error| of_file(&log, &error));
            match output.and_then(|output| self.start(part, &output)) {
                Ok((pid, launch)) => {
                    let (pid_before, unstarted) = (None, None);
                    children.push(Child { part, pid, pid_before, launch, restarts: 0, unstarted, log });
                }
                Err(error) => {
                    stop_now(&children);
                    return Err(io::Error::new(error.kind(), format!("can't start {part}: {error}")));
                }
            }
        }
        Ok(children)
    }

    fn log(&self, part: Part) -> PathBuf {
        self.options.log_dir.join(self.names.of(part))
    }

    /// What this part is bound to.
    pub fn bound(&self, part: Part) -> &Bound {
        self.binding.of(part)
    }

    /// How this part would be started in an environment that has these variables. Secrets are left out, and the id of a start,
    /// which each start has anew.
    pub fn preview(&self, part: Part, present: &[(OsString, OsString)]) -> Preview {
        let words = match part {
            Part::Scheduler => vec![own_program().unwrap_or_else(|_| SCHEDULER[0].into()).into(), SCHEDULER[1].into()],
            Part::Worker { .. } => self.program.words.clone(),
        };
        let decided = told(part, self.options, &self.meeting, None);
        let is_decided = |name: &OsStr| decided.iter().any(|(other, _)| name == other.as_str());
        let is_inherited = |name: &OsStr| self.inherited.iter().any(|(other, _)| name == other);
        let is_secret = |name: &str| Setting::of_variable(name).is_some_and(|setting| setting.secret);
        let text = |text: &OsStr| text.to_string_lossy().into_owned();
        let added = self.inherited.iter().filter(|one| !present.contains(one) && !is_decided(&one.0));
        let added = added.map(|(name, value)| (text(name), text(value))).filter(|(name, _)| !is_secret(name));
        let removed = present.iter().filter(|(name, _)| !is_decided(name) && !is_inherited(name));
        Preview {
            part,
            words,
            removed: removed.map(|(name, _)| text(name)).collect(),
            told: added.chain(decided.iter().cloned()).collect(),
            bound: self.bound(part).clone(),
            log: self.log(part),
        }
    }

    /// Makes an empty log. Without --join the child has its lock from now on.
    fn fresh_log(&self, path: &Path, is_first: bool) -> io::Result<File> {
        match self.claim.as_ref().filter(|_| is_first).map(Claim::descriptor).transpose()?.flatten() {
            // The launcher alone has the lock: a child writes by a descriptor of its own.
            Some(_) if self.options.join => return folder::open_log(path),
            Some(claimed) => return Ok(claimed),
            None => {}
        }
        let log = folder::fresh_log(path)?.ok_or_else(|| io::Error::other(folder::held(path)))?;
        if !self.options.join {
            let _ = folder::lock(&log); // a file system without locks has been reported already
        }
        Ok(log)
    }

    /// Starts a child once more that has ended. Everything is the same but its process. Its log goes on, after these
    /// words.
    pub fn start_again(&mut self, child: &mut Child, words: &str) -> io::Result<()> {
        let output = next_page(&child.log, words).map_err(|error| of_file(&child.log, &error))?;
        let (pid, launch) = self.start(child.part, &output)?;
        // It is reaped only now: otherwise another process group could get its number in between.
        sys::reap(child.pid);
        if let Some(keeper) = &mut self.keeper {
            keeper.forgets(child.pid);
        }
        child.launch = launch;
        child.restarts += 1;
        child.unstarted = None;
        child.pid_before = Some(std::mem::replace(&mut child.pid, pid));
        Ok(())
    }

    /// Closes the launcher's copy of the scheduler's socket: when the scheduler dies its port is then closed.
    pub fn close_port(&mut self) {
        self.listener = None;
    }

    fn start(&mut self, part: Part, output: &File) -> io::Result<(i32, LaunchId)> {
        let scheduler = SCHEDULER.map(OsString::from);
        let (program, words, keeps) = match part {
            Part::Scheduler => (own_program()?, &scheduler[..], self.listener.as_ref()),
            Part::Worker { .. } => (self.program.path.clone(), &self.program.words[..], None),
        };
        let reads_input = self.options.join && part != Part::Scheduler;
        let launch = self.run.of_child()?;
        let pid = start(&Start {
            program: program.as_os_str(),
            words,
            environment: self.environment(part, keeps.map(AsRawFd::as_raw_fd), &launch),
            input: (!reads_input).then(|| self.null.as_fd()),
            output: output.as_fd(),
            error: None,
            keeps: keeps.map(AsFd::as_fd),
            cores: &self.bound(part).cores.bits(),
            memory_nodes: &self.bound(part).memory.bits(),
            dies_with_parent: self.options.join,
        })?;
        if let Some(keeper) = &mut self.keeper {
            keeper.knows(pid);
        }
        Ok((pid, LaunchId::of(&launch)))
    }

    fn environment(&self, part: Part, listener: Option<RawFd>, launch: &str) -> Vec<(OsString, OsString)> {
        let mut told = told(part, self.options, &self.meeting, listener);
        told.push((Key::LaunchId.setting().variable(), launch.to_owned()));
        let inherited = self.inherited.iter().filter(|(name, _)| told.iter().all(|(other, _)| name != other.as_str()));
        inherited.cloned().chain(told.iter().map(|(name, value)| (name.into(), value.into()))).collect()
    }
}

/// What torch reads of a worker's place. Where the ranks are not known yet, those of another launcher's worker would be wrong.
const PLACE_FOR_TORCH: [&str; 4] = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"];

/// The launcher's own environment without the variables that it decides.
fn inherited() -> Vec<(OsString, OsString)> {
    let mut decided: Vec<String> = PLACE_FOR_TORCH.map(str::to_owned).to_vec();
    for setting in DECIDED.map(Key::setting) {
        decided.extend(setting.ms.iter().chain(setting.others).map(|name| (*name).to_owned()));
        decided.push(setting.variable());
    }
    let mut inherited: Vec<(OsString, OsString)> =
        std::env::vars_os().filter(|(name, _)| decided.iter().all(|other| name != other.as_str())).collect();
    if std::env::var_os("PYTHONUNBUFFERED").is_none() {
        inherited.push(("PYTHONUNBUFFERED".into(), "1".into()));
    }
    inherited
}

/// Opens the same file once more, after putting these words on a line of their own.
fn next_page(path: &Path, words: &str) -> io::Result<File> {
    let last = || -> io::Result<u8> {
        let (mut file, mut last) = (folder::open_to_look(path)?, [0]);
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last).map(|()| last[0])
    };
    let begin = if last().is_ok_and(|byte| byte != b'\n') { "\n" } else { "" };
    let mut log = folder::open_log(path)?;
    // On a full disk the log lacks these words. The next process can do without.
    let _ = log.write_all(format!("{begin}{NEXT_LIFE}{words}\n").as_bytes());
    Ok(log)
}

fn of_file(path: &Path, error: &io::Error) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}

/// The variables that PyTorch looks for, so that `init_process_group` finds rank, size and a port for torch's own
/// store. muster itself goes by MS_ROLE, and does not look at these.
fn for_torch(index: u32, rank: u32, options: &RunOptions, port: u16) -> [(&'static str, String); 6] {
    // The port is two away, as the scheduler's is from MASTER_PORT under torchrun. The one in between may be HCCL's.
    let store = port.checked_add(2).unwrap_or(port - 2);
    [
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", options.worker_num.to_string()),
        ("LOCAL_RANK", index.to_string()),
        ("LOCAL_WORLD_SIZE", options.local_worker_num.to_string()),
        ("MASTER_ADDR", options.master_addr.clone()),
        ("MASTER_PORT", store.to_string()),
    ]
}

/// The variables that a child is told.
fn told(part: Part, options: &RunOptions, meeting: &Meeting, listener: Option<RawFd>) -> Vec<(String, String)> {
    let mut told = Vec::new();
    let mut tell = |name: &str, value: String| told.push((name.to_owned(), value));
    tell("MS_SCHED_HOST", options.master_addr.clone());
    tell("MS_SCHED_PORT", meeting.port.to_string());
    tell("MS_WORKER_NUM", options.worker_num.to_string());
    tell("MS_CLUSTER_TIMEOUT", options.cluster_time_out.to_string());
    tell("RANK_SIZE", options.worker_num.to_string());
    match part {
        Part::Scheduler => {
            tell("MS_ROLE", "MS_SCHED".to_owned());
            if let Some(fd) = listener {
                tell(&Key::SchedFd.setting().variable(), fd.to_string());
            }
        }
        Part::Worker { index, rank } => {
            tell("MS_ROLE", "MS_WORKER".to_owned());
            tell("DEVICE_ID", index.to_string());
            meeting.hccl.iter().for_each(|(name, value)| tell(name, value.clone()));
            if let Some(rank) = rank {
                tell("MS_NODE_ID", rank.to_string());
                tell("RANK_ID", rank.to_string());
                for_torch(index, rank, options, meeting.port).into_iter().for_each(|(name, value)| tell(name, value));
            }
        }
    }
    told
}
