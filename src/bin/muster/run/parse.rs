//! The command line of `muster run`: words become raw options, raw options become [`RunOptions`]. After that nobody
//! checks an option again.
//!
//! Every complaint names the option, its value, and what would be right.

use super::options::{Kind, Spec, NOT_YET, OPTIONS};
use muster::config::{closest, NODES_LIMIT};
use std::ffi::{OsStr, OsString};
use std::iter::Peekable;
use std::path::PathBuf;

/// Whose output is shown while it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Every worker of this host.
    All,
    /// These ranks, as far as they run on this host.
    Ranks(Vec<u32>),
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
    /// Index of this host, where it was given.
    pub node_rank: Option<u32>,
    /// Where the logs go.
    pub log_dir: PathBuf,
    /// Wait for all.
    pub join: bool,
    /// How often each child may be started again.
    pub max_restarts: u32,
    /// Seconds for forming; negative: no limit.
    pub cluster_time_out: i64,
    /// Whose output is shown.
    pub tail: Tail,
    /// The program and its arguments.
    pub task: Vec<OsString>,
}

impl RunOptions {
    /// Whether no other host takes part.
    pub fn all_here(&self) -> bool {
        self.local_worker_num == self.worker_num
    }

    /// The rank of the `index`-th worker here, where ranks are known before the cluster has formed.
    pub fn rank(&self, index: u32) -> Option<u32> {
        match self.node_rank {
            _ if self.all_here() => Some(index),
            Some(node_rank) => Some(node_rank * self.local_worker_num + index),
            None => None,
        }
    }
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The help text.
    Help,
    /// A run.
    Run(RunOptions),
}

/// Reads the words after `muster run`.
pub fn parse(words: Vec<OsString>) -> Result<Request, String> {
    let mut given: [Option<String>; OPTIONS.len()] = [const { None }; OPTIONS.len()];
    let mut words = words.into_iter().peekable();
    let mut task = Vec::new();
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        }
        if !word.as_encoded_bytes().starts_with(b"-") || word == "-" {
            task.push(word);
            break;
        }
        let text = word.to_str().ok_or_else(|| format!("option {word:?} is not valid UTF-8"))?;
        if text == "--help" || text == "-h" {
            return Ok(Request::Help);
        }
        let (name, inline) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let index = find(name)?;
        let spec = &OPTIONS[index];
        let value = match (inline, spec.kind) {
            (Some(value), _) => value,
            (None, Kind::Flag) => flag(spec, &mut words)?,
            (None, Kind::Value) => match words.next() {
                Some(word) => utf8(spec, &word)?,
                None => return Err(format!("--{} needs a value: --{}={}", spec.name, spec.name, spec.value)),
            },
        };
        given[index] = Some(value);
    }
    task.extend(words);
    validate(&given, task).map(Request::Run)
}

/// What stands behind a flag: its value, or what comes next, and then the flag is True.
fn flag(spec: &Spec, words: &mut Peekable<impl Iterator<Item = OsString>>) -> Result<String, String> {
    let name = spec.name;
    let meant = words.peek().and_then(|word| word.to_str()).filter(|word| like_boolean(word).is_some());
    if let Some((word, value)) = meant.and_then(|word| Some((word, like_boolean(word)?))) {
        return Err(format!(
            "--{name} {word}: {word:?} is no value here; write --{name}={value} for what it may mean, and where it is the program \
             --{name}=True ./{word} (or -- {word} for one in PATH)"
        ));
    }
    let value = words.next_if(|word| boolean_word(word).is_some());
    Ok(value.map_or_else(|| "True".to_owned(), |word| word.to_string_lossy().into_owned()))
}

fn utf8(spec: &Spec, word: &OsStr) -> Result<String, String> {
    word.to_str().map(str::to_owned).ok_or_else(|| format!("--{}: {word:?} is not valid UTF-8", spec.name))
}

/// The index of the option with this name, dashes and all.
fn find(name: &str) -> Result<usize, String> {
    let plain = name.strip_prefix("--").map(|name| name.replace('-', "_"));
    if let Some(index) = plain.as_ref().and_then(|plain| OPTIONS.iter().position(|spec| spec.name == plain)) {
        return Ok(index);
    }
    let canonical = plain.map_or_else(|| name.to_owned(), |plain| format!("--{plain}"));
    if NOT_YET.contains(&canonical.as_str()) {
        return Err(format!("this version does not have {canonical}"));
    }
    let near = closest(canonical.trim_start_matches('-'), OPTIONS.iter().map(|spec| spec.name));
    let hint = near.map_or_else(String::new, |near| format!("; did you mean --{near}?"));
    Err(format!("there is no option {name}{hint} (options of the program come after its name)"))
}

fn boolean_word(word: &OsStr) -> Option<bool> {
    let is = |name| word.eq_ignore_ascii_case(name);
    is("true").then_some(true).or(is("false").then_some(false))
}

/// A word that is no value of a flag here, but often is one elsewhere, and what it would be here.
fn like_boolean(word: &str) -> Option<&'static str> {
    let is = |names: [&str; 3]| names.iter().any(|name| word.eq_ignore_ascii_case(name));
    is(["yes", "on", "1"]).then_some("True").or(is(["no", "off", "0"]).then_some("False"))
}

/// The raw values by name; each getter gives the default where nothing was given.
struct Raw<'a>(&'a [Option<String>; OPTIONS.len()]);

impl Raw<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        let index = OPTIONS.iter().position(|spec| spec.name == name);
        self.0[index.expect("only names of the table are asked for")].as_deref()
    }

    /// A whole number within these bounds.
    fn number(&self, name: &str, right: &str, range: std::ops::RangeInclusive<i64>) -> Result<Option<i64>, String> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse::<i64>() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(format!("--{name} is {text:?}; it must be {right}")),
        }
    }
}

fn validate(given: &[Option<String>; OPTIONS.len()], task: Vec<OsString>) -> Result<RunOptions, String> {
    let raw = Raw(given);
    let right = format!("a whole number from 1 to {NODES_LIMIT}");
    let count = |name| raw.number(name, &right, 1..=NODES_LIMIT as i64);
    let worker_num = count("worker_num")?.unwrap_or(8) as u32;
    let local_worker_num = count("local_worker_num")?.map_or(worker_num.min(8), |number| number as u32);
    if local_worker_num > worker_num {
        return Err(format!(
            "--local_worker_num is {local_worker_num}; it must be at most --worker_num, which is {worker_num}"
        ));
    }
    let port = raw.number("master_port", "0 (the system chooses) or 1024 to 65535", 0..=65535)?.unwrap_or(8118);
    if (1..1024).contains(&port) {
        return Err(format!("--master_port is \"{port}\"; it must be 0 (the system chooses) or 1024 to 65535"));
    }
    let node_rank = raw.number("node_rank", "-1 or the index of this host, from 0", -1..=i64::from(i32::MAX))?;
    let node_rank = node_rank.and_then(|rank| u32::try_from(rank).ok());
    check_node_rank(node_rank, local_worker_num, worker_num)?;
    let join = boolean(&raw, "join")?;
    let max_restarts = max_restarts(&raw, join)?;
    let cluster_time_out = raw.number("cluster_time_out", "a whole number of seconds", i64::MIN..=i64::MAX)?;
    if cluster_time_out == Some(0) {
        return Err("--cluster_time_out is \"0\"; it must be above 0, or negative for no limit".to_owned());
    }
    if task.first().is_none_or(|program| program.is_empty()) {
        return Err("there is no program to run; it comes after the options".to_owned());
    }
    Ok(RunOptions {
        worker_num,
        local_worker_num,
        master_addr: address(raw.text("master_addr").unwrap_or("127.0.0.1"))?,
        master_port: u16::try_from(port).expect("checked to be at most 65535"),
        node_rank,
        log_dir: directory(raw.text("log_dir")),
        join,
        max_restarts,
        cluster_time_out: cluster_time_out.unwrap_or(600),
        tail: tail(raw.text("tail_worker_log").unwrap_or("-1"))?,
        task,
    })
}

/// Every worker of this host must have a rank below the number of workers.
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

fn max_restarts(raw: &Raw<'_>, join: bool) -> Result<u32, String> {
    let given =
        raw.number("max_restarts", "how often each process may be started again, 0 or more", 0..=i64::from(u32::MAX))?;
    match given.and_then(|number| u32::try_from(number).ok()).unwrap_or(0) {
        restarts if restarts > 0 && !join => {
            Err(format!("--max_restarts is \"{restarts}\", but without --join nobody stays to start a process again"))
        }
        restarts => Ok(restarts),
    }
}

fn boolean(raw: &Raw<'_>, name: &str) -> Result<bool, String> {
    match raw.text(name) {
        None => Ok(false),
        Some(text) => boolean_word(OsStr::new(text))
            .ok_or_else(|| format!("--{name} is {text:?}; it must be True or False, or stand alone")),
    }
}

fn address(text: &str) -> Result<String, String> {
    let plain = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let unspecified = plain.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_unspecified());
    if plain.is_empty() || unspecified {
        return Err(format!(
            "--master_addr is {text:?}; it must be an address or a host name that workers can connect to"
        ));
    }
    Ok(plain.to_owned())
}

fn directory(text: Option<&str>) -> PathBuf {
    match text {
        None | Some("") => PathBuf::from("."),
        Some(text) => PathBuf::from(text),
    }
}

fn tail(text: &str) -> Result<Tail, String> {
    if text == "-1" {
        return Ok(Tail::All);
    }
    let ranks: Result<Vec<u32>, _> = text.split(',').map(|rank| rank.trim().parse::<u32>()).collect();
    ranks
        .map(Tail::Ranks)
        .map_err(|_| format!("--tail_worker_log is {text:?}; it must be ranks separated by commas, or -1 for all"))
}

#[cfg(test)]
#[path = "parse_test.rs"]
mod tests;
