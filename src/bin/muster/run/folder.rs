//! The folder of a run's logs: a run that is alive keeps its own, and a second one that would write there is refused.
//!
//! A live run holds locks (flock) on its logs. With --join the launcher holds that of the first log, and no child
//! inherits it: the run is alive as long as the launcher. Without --join each child, with its own children, holds the
//! lock of its log by the descriptor that it writes to: the run is alive as long as anybody may still write. So a dead
//! run holds nothing, however it ended, and what it left behind is not looked at.
//!
//! Each run's logs are new files. A process of an older run that still writes goes on with the files that it has, which
//! have no name any more. Logs of an older run whose names this run does not use are left alone, and named.
//!
//! The file [`RUNS`] tells which run each log belongs to, a line for each launcher. It is read and written under a lock
//! of its own. Lines of dead runs go when the next run begins. Launchers of one run on different hosts may share a
//! folder: they have the same port of the scheduler and other logs. A launcher with another port belongs to another
//! run.
//!
//! If a file system has no locks a warning says so, and nobody is refused.

use super::family::RunId;
use super::log_names::{LogNames, SCHEDULER};
use super::parse::RunOptions;
use super::part::Part;
use crate::sys;
use crate::voice::Voice;
use muster::config::NODES_LIMIT;
use muster::net::host;
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that tells to which run the logs of its folder belong.
pub const RUNS: &str = ".muster_runs";

/// What others may do with logs at most: read them. The umask narrows it.
const MODE: u32 = 0o644;

/// How long another launcher may take to read and write that file.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many processes a refusal names.
const NAMED: usize = 4;

/// One launcher's part of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    pid: u32,
    join: bool,
    port: u16,
    /// It has the scheduler.
    scheduler: bool,
    /// The names of its workers' logs, the number in the name of the first, and how many follow.
    names: LogNames,
    workers: (u32, u32),
    run: RunId,
    host: String,
}

impl Tenant {
    /// The line of this launcher, which starts these parts.
    pub fn this(options: &RunOptions, parts: &[Part], port: u16, run: RunId, names: &LogNames) -> Tenant {
        let numbers: Vec<u32> = parts.iter().filter_map(|part| part.number()).collect();
        Tenant {
            pid: std::process::id(),
            join: options.join,
            port,
            scheduler: parts.contains(&Part::Scheduler),
            names: names.clone(),
            workers: (numbers.first().copied().unwrap_or(0), numbers.len() as u32),
            run,
            host: host::name().unwrap_or_else(|_| "?".to_owned()),
        }
    }

    fn line(&self) -> String {
        let Tenant { pid, join, port, scheduler, names, workers: (first, count), run, host } = self;
        let (join, scheduler, stem, run) = (u8::from(*join), u8::from(*scheduler), names.stem(), run.word());
        format!("{pid} {join} {port} {scheduler} {stem} {first} {count} {run} {host}\n")
    }

    /// Reads a line; none if another version wrote it.
    fn read(line: &str) -> Option<Tenant> {
        let words: Vec<&str> = line.split(' ').collect();
        let [pid, join, port, scheduler, stem, first, count, run, host] = words[..] else { return None };
        Some(Tenant {
            pid: pid.parse().ok()?,
            join: join == "1",
            port: port.parse().ok()?,
            scheduler: scheduler == "1",
            names: LogNames::new(Some(stem).filter(|stem| !stem.contains('/'))?),
            workers: (first.parse().ok()?, count.parse().ok().filter(|count| u64::from(*count) <= NODES_LIMIT)?),
            run: RunId::read(run)?,
            host: host.to_owned(),
        })
    }

    /// The launcher's process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the launcher waits for its children.
    pub fn joins(&self) -> bool {
        self.join
    }

    /// The host that the launcher and its children run on.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The id by which its processes are known.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// The names of its logs: the scheduler's first, if it has that.
    pub fn logs(&self) -> impl Iterator<Item = String> + '_ {
        let (first, count) = self.workers;
        let workers = (0..count).map(move |index| self.names.of_worker(first.saturating_add(index)));
        self.scheduler.then(|| SCHEDULER.to_owned()).into_iter().chain(workers)
    }

    /// Whether one of its logs may have this name.
    fn has_such(&self, name: &str) -> bool {
        name == SCHEDULER || self.number_in(name).is_some()
    }

    /// Whether a launcher of its run may have a log of this name, in a run of so many workers on all hosts.
    fn run_has(&self, name: &str, worker_num: u32) -> bool {
        name == SCHEDULER || self.number_in(name).is_some_and(|number| number < worker_num)
    }

    /// The number in the name of a worker's log.
    fn number_in(&self, name: &str) -> Option<u32> {
        let rest = name.strip_prefix(self.names.stem())?.strip_prefix('_')?;
        rest.strip_suffix(".log")?.parse().ok()
    }

    fn shares_a_log_with(&self, other: &Tenant) -> bool {
        let [(first, count), (others_first, others_count)] = [self.workers, other.workers];
        let is_apart =
            first.saturating_add(count) <= others_first || others_first.saturating_add(others_count) <= first;
        (self.scheduler && other.scheduler) || (self.names == other.names && !is_apart)
    }

    /// Whether the two launchers cannot both write here.
    fn is_in_the_way_of(&self, other: &Tenant) -> bool {
        self.port != other.port || self.shares_a_log_with(other)
    }

    fn is_alive(&self, folder: &Path) -> bool {
        self.logs().any(|log| is_locked(&folder.join(log)))
    }

    /// Which run it is, as far as can be known here.
    pub fn named(&self, folder: &Path) -> String {
        let logs: Vec<String> = self.logs().collect();
        let logs = match &logs[..] {
            [only] => only.clone(),
            [first, .., last] => format!("{first} to {last}"),
            [] => "nothing".to_owned(),
        };
        let by = match self.join {
            true => String::new(),
            false => format!(", started without --join{}", self.writers(folder)),
        };
        format!("launcher {} on {}, scheduler's port {}, {logs}{by}", self.pid, self.host, self.port)
    }

    /// The processes of this host that write into its logs, in words.
    fn writers(&self, folder: &Path) -> String {
        let logs: Vec<(u64, u64)> = self.logs().filter_map(|log| identity(&folder.join(log))).collect();
        let mut pids = writers(&logs);
        pids.sort_unstable();
        let more = if pids.len() > NAMED { ", .." } else { "" };
        let named: Vec<String> = pids.iter().take(NAMED).map(u32::to_string).collect();
        match named.is_empty() {
            true => String::new(),
            false => format!(", alive in {}{more}", named.join(", ")),
        }
    }
}

/// The logs of this run.
pub struct Claim {
    /// The first of the logs, open and locked if the file system has locks.
    log: Option<File>,
    /// Other logs in the folder that no live run writes.
    older: Vec<String>,
}

impl Claim {
    /// Logs of older runs in the same folder, in words. `own` is a launcher of a run of so many workers. Its launchers on
    /// other hosts may share the folder, and make or replace their logs at any time: those count as this run's.
    pub fn older(&self, own: &Tenant, worker_num: u32) -> Option<String> {
        let older: Vec<&String> = self.older.iter().filter(|name| !own.run_has(name, worker_num)).collect();
        let (first, more) = older.split_first()?;
        let (and, are) = match more.len() {
            0 => (String::new(), "is"),
            more => (format!(" and {more} more"), "are"),
        };
        Some(format!("{first}{and} in the folder of the logs {are} of an older run"))
    }

    /// The descriptor by which the first child is to write, so that the child holds the lock, too.
    pub fn descriptor(&self) -> io::Result<Option<File>> {
        self.log.as_ref().map(File::try_clone).transpose()
    }
}

/// Takes the logs of this launcher. The error is a sentence.
pub fn claim(folder: &Path, own: &Tenant) -> Result<Claim, String> {
    match try_claim(folder, own) {
        Ok(claimed) => claimed,
        Err(error) => {
            let (folder, again) = (folder.display(), "another run that has the same --log_dir would not be noticed");
            Voice::error().say(format!("muster: warning: {folder}/{RUNS}: {error}: {again}\n"));
            Ok(Claim { log: None, older: Vec::new() })
        }
    }
}

/// Tries to take the logs. The outer error is of the file system; the inner one means that another run is in the way.
fn try_claim(folder: &Path, own: &Tenant) -> io::Result<Result<Claim, String>> {
    let mut runs = open_runs(folder)?;
    let mut text = String::new();
    runs.read_to_string(&mut text)?;
    let tenants: Vec<Tenant> = alive(&text, folder).collect();
    if let Some(tenant) = tenants.iter().find(|tenant| tenant.is_in_the_way_of(own)) {
        return Ok(Err(refusal(folder, tenant, own)));
    }
    let older = older(folder, &tenants, own)?;
    let Some(first) = own.logs().next() else { return Ok(Ok(Claim { log: None, older })) };
    let Some(log) = fresh_log(&folder.join(&first))? else {
        return Ok(Err(format!("{}: {ADVICE}", held(&folder.join(first)))));
    };
    lock(&log)?;
    let lines: String = tenants.iter().chain([own]).map(Tenant::line).collect();
    runs.rewind()?;
    runs.set_len(0)?;
    runs.write_all(lines.as_bytes())?;
    Ok(Ok(Claim { log: Some(log), older }))
}

/// Makes the folder if it is missing. The error is a sentence.
pub fn make(folder: &Path) -> Result<(), String> {
    // The umask narrows the mode.
    let make = || DirBuilder::new().recursive(true).mode(0o755).create(folder);
    let made = dangling(folder).map_or_else(make, Err);
    made.map_err(|error| format!("--log_dir is {folder:?}, which can't be made: {error}"))
}

/// Why logs can't be made in this folder, as far as that can be told without writing anything: a sentence.
pub fn would_refuse(folder: &Path, own: &Tenant) -> Option<String> {
    if let Err(error) = takes_files(folder) {
        return Some(format!("--log_dir is {folder:?}, where no log can be made: {error}"));
    }
    // A folder that is not there, or has no list, is nobody's yet.
    let tenants = tenants(folder).unwrap_or_default();
    tenants.iter().find(|tenant| tenant.is_in_the_way_of(own)).map(|tenant| refusal(folder, tenant, own))
}

/// The error for a path of which some part is a link to something that is not there.
pub fn dangling(path: &Path) -> Option<io::Error> {
    let leads_nowhere = |part: &Path| part.metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let link = path.ancestors().find(|part| part.is_symlink() && leads_nowhere(part))?;
    let it = if link == path { "it".to_owned() } else { format!("{link:?}") };
    let target = std::fs::read_link(link).ok()?;
    Some(io::Error::new(io::ErrorKind::NotFound, format!("{it} is a symbolic link to {target:?}, which is not there")))
}

/// Whether files can be made in this folder, if need be after it has been made, as far as modes and file systems tell.
pub fn takes_files(folder: &Path) -> io::Result<()> {
    dangling(folder).map_or(Ok(()), Err)?;
    for path in folder.ancestors() {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(about) if !about.is_dir() => return Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
            Ok(about) if is_kernels(&about) => return Err(io::Error::from_raw_os_error(libc::EPERM)),
            Ok(_) => return sys::may_make_files_in(path),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Whether this is in /proc or /sys, where nobody can make a file, whatever the modes say to the superuser.
fn is_kernels(about: &Metadata) -> bool {
    let is_of = |path: &str| Path::new(path).metadata().is_ok_and(|its| its.dev() == about.dev());
    is_of("/proc/self") || is_of("/sys/kernel")
}

/// The listed runs that are alive.
fn alive<'a>(runs: &'a str, folder: &'a Path) -> impl Iterator<Item = Tenant> + 'a {
    runs.lines().filter_map(Tenant::read).filter(|tenant| tenant.is_alive(folder))
}

/// The launchers whose runs live in this folder; none where no run ever was.
pub fn tenants(folder: &Path) -> io::Result<Vec<Tenant>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut runs = match options.open(folder.join(RUNS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && folder.is_dir() => return Ok(Vec::new()),
        opened => opened?,
    };
    patiently(|| runs.try_lock_shared())?;
    let mut text = String::new();
    runs.read_to_string(&mut text)?;
    Ok(alive(&text, folder).collect())
}

/// The names of logs in the folder that belong to none of these.
fn older(folder: &Path, tenants: &[Tenant], own: &Tenant) -> io::Result<Vec<String>> {
    let present: BTreeSet<String> = tenants.iter().chain([own]).flat_map(Tenant::logs).collect();
    let names = std::fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut older: Vec<String> = names.filter(|name| own.has_such(name) && !present.contains(name)).collect();
    older.sort_by_key(|name| (name.len(), name.clone()));
    Ok(older)
}

const ADVICE: &str =
    "each run needs a folder of its own for its logs, so give this one another --log_dir, or end the other \
                      run first";

fn refusal(folder: &Path, tenant: &Tenant, own: &Tenant) -> String {
    let parts = match tenant.port == own.port && tenant.host != own.host {
        true => {
            "; launchers of one run that share a folder need --node_rank, so that their workers' logs differ, or, if a \
             rank table gives the ranks, --worker_log_name worker_{hostname}"
        }
        false => "",
    };
    format!("--log_dir is {folder:?}, where another run is alive ({}): {ADVICE}{parts}", tenant.named(folder))
}

/// Says that another run, of which nothing is known, has that log.
pub fn held(log: &Path) -> String {
    format!("{} is another run's, which is alive", log.display())
}

/// Opens the file with its lock, which ends when the file is closed.
fn open_runs(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(MODE);
    let runs = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(folder.join(RUNS))?;
    check_name(&runs)?;
    patiently(|| runs.try_lock())?;
    Ok(runs)
}

/// Takes the lock of [`RUNS`], which others hold for a moment only.
fn patiently(take: impl Fn() -> Result<(), TryLockError>) -> io::Result<()> {
    match sys::lock_within(PATIENCE, take)? {
        true => Ok(()),
        false => Err(io::Error::other("another launcher has held its lock for 5 s")),
    }
}

/// Makes a log that is a new file, even if somebody still writes to one that had its name; none if that is the log of a
/// live run. What is no file (a pipe, /dev/null) stays what it is.
pub fn fresh_log(path: &Path) -> io::Result<Option<File>> {
    let make = || OpenOptions::new().append(true).create_new(true).mode(MODE).open(path);
    match make() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map(Some),
    }
    let old = open_log(path)?;
    if !old.metadata()?.is_file() {
        return Ok(Some(old));
    }
    // A file system without locks has been reported already.
    if lock(&old).is_ok_and(|locked| !locked) {
        return Ok(None);
    }
    std::fs::remove_file(path)?;
    make().map(Some)
}

/// Opens a log to look at what it has. A pipe shows nothing, and to open it does not wait for a writer.
pub fn open_to_look(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Opens a log to which several processes can append without overwriting each other. If somebody has planted a link
/// there, nothing is written to what it leads to.
pub fn open_log(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // To open a pipe that nobody reads would wait for a reader.
    options.append(true).create(true).mode(MODE).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let log = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => io::Error::other("it is a symbolic link, and logs follow none: remove it"),
        Some(libc::ENXIO) => io::Error::other("it is a pipe that nobody reads: remove it, or read it"),
        _ => error,
    })?;
    check_name(&log)?;
    sys::let_wait(&log)?;
    Ok(log)
}

/// Refuses a file that has another name as well: it may be somebody's who did not mean it for this.
fn check_name(file: &File) -> io::Result<()> {
    let about = file.metadata()?;
    match about.is_file() && about.nlink() > 1 {
        true => Err(io::Error::other("it is a hard link, the same file as one of another name: remove it")),
        false => Ok(()),
    }
}

/// Takes a log's lock, for this descriptor and its copies; false if another process has it. What is no file (a pipe,
/// /dev/null) has no lock.
pub fn lock(log: &File) -> io::Result<bool> {
    if !log.metadata()?.is_file() {
        return Ok(true);
    }
    match log.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn is_locked(path: &Path) -> bool {
    open_to_look(path).is_ok_and(|log| matches!(log.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// What tells a file from every other.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    let about = path.metadata().ok()?;
    Some((about.dev(), about.ino()))
}

/// The processes whose standard output or error is one of these files, as far as this process may know.
fn writers(logs: &[(u64, u64)]) -> Vec<u32> {
    let pids = sys::processes().into_iter();
    pids.filter(|pid| outputs(*pid).any(|open| logs.contains(&open))).filter_map(|pid| pid.try_into().ok()).collect()
}

/// The files that a process has as its standard output and error.
pub fn outputs(pid: i32) -> impl Iterator<Item = (u64, u64)> {
    [1, 2].into_iter().filter_map(move |number| identity(&PathBuf::from(format!("/proc/{pid}/fd/{number}"))))
}

#[cfg(test)]
#[path = "folder_test.rs"]
mod tests;
