//! The command line of `muster run`: words become raw options, raw options become [`RunOptions`]. After that nobody
//! checks an option again.
//!
//! Every complaint names the option, its value, and what would be right.

use super::bind_values::Binds;
use super::log_names;
use super::options::COMMAND;
use crate::cli::words::{read, Asked, Words};
use muster::config::{whole, Key, Value, NODES_LIMIT};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

/// The ranks whose output is shown while it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Every worker of this host.
    All,
    /// These ranks, as far as they run on this host.
    Ranks(Vec<u32>),
}

/// What is shown instead of being started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// Every process of this host.
    All,
    /// The worker of this rank.
    Rank(u32),
}

/// A table that gives the workers their ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankTable {
    /// There is none.
    Absent,
    /// The environment names it.
    OfEnvironment,
    /// The option names it.
    File(PathBuf),
}

/// Which launcher of a run starts its scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerAt {
    /// The launcher on the host that has the scheduler's address.
    Address,
    /// This launcher.
    Here,
    /// Another launcher.
    Remote,
}

/// The place of a launcher in a run, as its options say, or as another launcher has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The rank of its first worker, if other hosts take part and ranks follow the hosts.
    pub first_rank: Option<u32>,
    /// Which launcher has the scheduler.
    pub scheduler: SchedulerAt,
}

impl Default for Placement {
    fn default() -> Placement {
        Placement { first_rank: None, scheduler: SchedulerAt::Address }
    }
}

/// What to run, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// Workers in total.
    pub worker_num: u32,
    /// Workers to start here: 1 to `worker_num`.
    pub local_worker_num: u32,
    /// Where the scheduler is: an address without brackets, or a host name.
    pub master_addr: String,
    /// Its port; 0 lets the system choose.
    pub master_port: u16,
    /// Its place among the launchers of the run.
    pub placement: Placement,
    /// Where the logs go.
    pub log_dir: PathBuf,
    /// Wait for all.
    pub join: bool,
    /// How often each child may be started again.
    pub max_restarts: u32,
    /// Seconds for forming; negative: no limit.
    pub cluster_time_out: i64,
    /// What workers' logs are called: a template.
    pub worker_log_name: String,
    /// The ranks whose output is shown.
    pub tail: Tail,
    /// A table that gives the ranks.
    pub rank_table: RankTable,
    /// What is bound to cores and memory.
    pub binds: Binds,
    /// Show, and start nothing.
    pub dry_run: Option<DryRun>,
    /// The program and its arguments.
    pub task: Vec<OsString>,
}

impl RunOptions {
    /// Whether no other host takes part.
    pub fn all_here(&self) -> bool {
        self.local_worker_num == self.worker_num
    }

    /// The rank of the `index`-th worker here, if ranks are known before the cluster has formed.
    pub fn rank(&self, index: u32) -> Option<u32> {
        match self.all_here() {
            true => Some(index),
            false => self.placement.first_rank.map(|first| first + index),
        }
    }
}

/// The scheduler's port, if nobody says another.
pub const MASTER_PORT: u16 = 8118;

/// Reads the words after `muster run`, of a launcher in this place. `has_table`: its environment names a rank table.
pub fn parse(words: Vec<OsString>, placement: Placement, has_table: bool) -> Result<Asked<RunOptions>, String> {
    split(words)?.then(|words| validate(words, placement, has_table))
}

/// Reads the words after `muster run`, and gives each with its option.
pub fn split(words: Vec<OsString>) -> Result<Asked<Words>, String> {
    read(&COMMAND, words)
}

/// A variable of `-x`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// Its value, if it is not the launcher's own.
    pub value: Option<String>,
}

impl Export {
    /// A warning about a variable that nobody has set.
    pub fn unset(&self) -> String {
        format!("warning: -x {}: there is no such variable here, and so the workers get none", self.name)
    }
}

/// All variables of `-x`, in the order in which they were given.
pub fn exports(words: &Words) -> Result<Vec<Export>, String> {
    let given = words.given().iter().filter(|given| given.option.name == "export");
    let read = given.map(|given| {
        let (name, value) = match given.value.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (given.value.as_str(), None),
        };
        match name.is_empty() {
            true => Err(format!("{} is {:?}; it must be NAME or NAME=VALUE", given.written, given.value)),
            false => Ok(Export { name: name.to_owned(), value }),
        }
    });
    read.collect()
}

/// The number of all workers, as `-n` gives it.
pub fn np(words: &Words) -> Result<Option<u32>, String> {
    let right = format!("a whole number from 1 to {NODES_LIMIT}");
    let np = number(words, "np", &right, 1..=NODES_LIMIT as i64)?.map(|number| number as u32);
    match (np, words.value("worker_num")) {
        (Some(np), Some(total)) if total != np.to_string() => Err(format!(
            "-n is \"{np}\", but --worker_num is {total:?}; both are the number of all workers, so leave one of them out"
        )),
        _ => Ok(np),
    }
}

/// The value of this option: a whole number within these bounds.
fn number(words: &Words, name: &str, right: &str, range: std::ops::RangeInclusive<i64>) -> Result<Option<i64>, String> {
    let Some(text) = words.value(name) else { return Ok(None) };
    let read = match text.strip_prefix('-') {
        Some(digits) => whole(digits).and_then(|number| 0_i64.checked_sub_unsigned(number)),
        None => whole(text).and_then(|number| i64::try_from(number).ok()),
    };
    match read {
        Some(number) if range.contains(&number) => Ok(Some(number)),
        _ => Err(format!("--{name} is {text:?}; it must be {right}")),
    }
}

/// The value of this option, which the processes find in that setting.
fn of_kind(name: &str, key: Key, text: &str) -> Result<Value, String> {
    let kind = key.setting().kind;
    kind.parse(text).ok_or_else(|| format!("--{name} is {text:?}: expected {}", kind.expectation_for(text)))
}

/// What the options of one launcher mean. `has_table`: its environment names a rank table.
fn validate(words: Words, placement: Placement, has_table: bool) -> Result<RunOptions, String> {
    let right = format!("a whole number from 1 to {NODES_LIMIT}");
    let count = |name| number(&words, name, &right, 1..=NODES_LIMIT as i64);
    let np = np(&words)?;
    let worker_num = np.map_or_else(|| count("worker_num").map(|number| number.unwrap_or(8) as u32), Ok)?;
    let usual = np.unwrap_or(worker_num.min(8));
    let local_worker_num = count("local_worker_num")?.map_or(usual, |number| number as u32);
    if local_worker_num > worker_num {
        return Err(format!(
            "--local_worker_num is {local_worker_num}; it must be at most --worker_num, which is {worker_num}"
        ));
    }
    let port = number(&words, "master_port", "0 (the system chooses) or 1024 to 65535", 0..=65535)?
        .unwrap_or(i64::from(MASTER_PORT));
    if (1..1024).contains(&port) {
        return Err(format!("--master_port is \"{port}\"; it must be 0 (the system chooses) or 1024 to 65535"));
    }
    let node_rank = number(&words, "node_rank", "-1 or the index of this host, from 0", -1..=i64::from(i32::MAX))?;
    let node_rank = node_rank.and_then(|rank| u32::try_from(rank).ok());
    check_node_rank(node_rank, local_worker_num, worker_num)?;
    let first_rank = node_rank.map(|node_rank| node_rank.saturating_mul(local_worker_num));
    let join = words.truth("join")?;
    let max_restarts = max_restarts(&words, join)?;
    let seconds = "a whole number of seconds from 1 to 1000000000, or a negative one for no limit";
    let cluster_time_out = number(&words, "cluster_time_out", seconds, i64::MIN..=1_000_000_000)?.unwrap_or(600);
    if cluster_time_out == 0 {
        return Err(format!("--cluster_time_out is \"0\"; it must be {seconds}"));
    }
    if words.operands.first().is_none_or(|program| program.is_empty()) {
        return Err("there is no program to run; it comes after the options".to_owned());
    }
    let worker_log_name = words.value("worker_log_name").filter(|name| !name.is_empty()).unwrap_or(log_names::WORKER);
    log_names::check(worker_log_name)?;
    let rank_table = match words.value("rank_table_file").filter(|path| !path.is_empty()) {
        Some(path) => RankTable::File(path.into()),
        None if has_table => RankTable::OfEnvironment,
        None => RankTable::Absent,
    };
    let options = RunOptions {
        worker_num,
        local_worker_num,
        master_addr: address(words.value("master_addr").unwrap_or("127.0.0.1"))?,
        master_port: u16::try_from(port).expect("checked to be at most 65535"),
        placement: Placement { first_rank: placement.first_rank.or(first_rank), ..placement },
        log_dir: directory(words.value("log_dir")),
        join,
        max_restarts,
        cluster_time_out,
        worker_log_name: worker_log_name.to_owned(),
        tail: tail(words.value("tail_worker_log").unwrap_or("-1"))?,
        rank_table,
        binds: Binds::read(words.value("bind_core"), words.value("bind_numa"))?,
        dry_run: dry_run(&words, worker_num)?,
        task: words.operands,
    };
    check_tail(&options)?;
    check_dry_run(&options)?;
    Ok(options)
}

/// Checks that every rank exists whose output is to be shown.
fn check_tail(options: &RunOptions) -> Result<(), String> {
    let Tail::Ranks(ranks) = &options.tail else { return Ok(()) };
    let are_known = options.all_here() || (options.rank(0).is_some() && options.rank_table == RankTable::Absent);
    let workers = if are_known { options.worker_num } else { options.local_worker_num };
    let Some(rank) = ranks.iter().find(|rank| **rank >= workers) else { return Ok(()) };
    Err(match are_known {
        true => format!("--tail_worker_log has rank {rank}; the ranks are 0 to {}", workers - 1),
        false => format!(
            "--tail_worker_log has {rank}; ranks are not known yet when workers start, so those of this host are counted: 0 to {}",
            workers - 1
        ),
    })
}

fn dry_run(words: &Words, worker_num: u32) -> Result<Option<DryRun>, String> {
    let level = number(words, "sim_level", "0 to 3, or -1 for no dry run", -1..=3)?;
    let right = format!("a rank, 0 to {}, or -1 for all of this host", worker_num - 1);
    let rank = number(words, "sim_rank_id", &right, -1..=i64::from(worker_num) - 1)?;
    let rank = rank.and_then(|rank| u32::try_from(rank).ok());
    match (level.is_some_and(|level| level >= 0), rank) {
        (false, None) => Ok(None),
        (false, Some(rank)) => Err(format!(
            "--sim_rank_id is \"{rank}\", but without --sim_level it has no effect: give --sim_level 0 to 3, too"
        )),
        (true, rank) => Ok(Some(rank.map_or(DryRun::All, DryRun::Rank))),
    }
}

fn check_dry_run(options: &RunOptions) -> Result<(), String> {
    let Some(DryRun::Rank(rank)) = options.dry_run else { return Ok(()) };
    let table = match options.rank_table {
        RankTable::Absent => None,
        RankTable::OfEnvironment => Some("RANK_TABLE_FILE"),
        RankTable::File(_) => Some("--rank_table_file"),
    };
    table.map_or(Ok(()), |table| {
        Err(format!(
            "--sim_rank_id is \"{rank}\", but with {table} each worker finds its rank when it starts: leave one out"
        ))
    })
}

/// Checks that every worker of this host has a rank below the number of workers.
fn check_node_rank(node_rank: Option<u32>, local: u32, total: u32) -> Result<(), String> {
    let Some(node_rank) = node_rank else { return Ok(()) };
    let hosts = total.div_ceil(local);
    if hosts > 1 && (u64::from(node_rank) + 1) * u64::from(local) > u64::from(total) {
        return Err(format!(
            "--node_rank is {node_rank}, but with {local} workers on each host the ranks of that host would not be \
             below --worker_num, which is {total}"
        ));
    }
    Ok(())
}

fn max_restarts(words: &Words, join: bool) -> Result<u32, String> {
    let right = format!("how often each process may be started again, 0 to {}", u32::MAX);
    let given = number(words, "max_restarts", &right, 0..=i64::from(u32::MAX))?;
    match given.and_then(|number| u32::try_from(number).ok()).unwrap_or(0) {
        restarts if restarts > 0 && !join => {
            Err(format!("--max_restarts is \"{restarts}\", but without --join nobody stays to start a process again"))
        }
        restarts => Ok(restarts),
    }
}

fn address(text: &str) -> Result<String, String> {
    let is_unspecified = |host: &str| host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
    match of_kind("master_addr", Key::SchedHost, text)? {
        Value::Text(host) if !is_unspecified(&host) => Ok(host),
        _ => Err(format!("--master_addr is {text:?}; it must be one that workers can connect to")),
    }
}

fn directory(text: Option<&str>) -> PathBuf {
    match text {
        None | Some("") => PathBuf::from("."),
        Some(text) => PathBuf::from(text),
    }
}

fn tail(text: &str) -> Result<Tail, String> {
    match text {
        "-1" => return Ok(Tail::All),
        "none" => return Ok(Tail::Ranks(Vec::new())),
        _ => {}
    }
    let rank = |text: &str| u32::try_from(whole(text.trim())?).ok();
    let ranks: Option<Vec<u32>> = text.split(',').map(rank).collect();
    ranks.map(Tail::Ranks).ok_or_else(|| {
        format!("--tail_worker_log is {text:?}; it must be ranks separated by commas, -1 for all, or none")
    })
}

#[cfg(test)]
#[path = "parse_test.rs"]
mod tests;
