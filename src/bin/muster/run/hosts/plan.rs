//! What `-H` and `--hostfile` ask for: which workers run on which host, in which order of ranks, and what each host's
//! launcher is told.

use super::frames::LaunchSpec;
use crate::cli::words::Words;
use crate::run::hccl;
use crate::run::parse::{self, Placement, SchedulerAt};
use muster::config::{hosts_of_lines, hosts_of_words, whole, HostSlots, Key, NODES_LIMIT};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

/// The longest `--hostfile`, in bytes: room for the lines of as many hosts as a job can have nodes.
const HOST_FILE_MAX_BYTES: u64 = 64 * NODES_LIMIT;

/// Options that are about all hosts, and mean nothing to one host's launcher.
const OF_ALL: [&str; 10] =
    ["np", "host", "hostfile", "export", "ssh", "worker_num", "local_worker_num", "master_addr", "master_port", "join"];

/// Settings that differ from host to host, or from process to process: their values here mean nothing to other hosts.
const OF_ONE: [Key; 10] = [
    Key::Role,
    Key::NodeId,
    Key::RankId,
    Key::DeviceId,
    Key::DeviceIp,
    Key::WorkerIp,
    Key::HostId,
    Key::Advertise,
    Key::SchedFd,
    Key::LaunchId,
];

/// A host's part of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostShare {
    /// The host, as the user named it first.
    pub host: HostSlots,
    /// How many workers it starts.
    pub workers: u32,
    /// The rank of its first worker; the others follow.
    pub first_rank: u32,
}

impl HostShare {
    /// Whether this rank is one of its.
    pub fn has_rank(&self, rank: u32) -> bool {
        (self.first_rank..self.first_rank + self.workers).contains(&rank)
    }
}

/// A run on several hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its hosts, in the order of their ranks. The first has the scheduler.
    pub places: Vec<HostShare>,
    /// The command that reaches a host, if it was given.
    pub ssh: Option<Vec<OsString>>,
    /// Warnings that the user is told first.
    pub warnings: Vec<String>,
    /// The scheduler's port; 0 lets its host choose.
    pub port: u16,
    workers: u32,
    address: String,
    environment: Vec<(OsString, OsString)>,
    passed: Vec<OsString>,
    task: Vec<OsString>,
}

/// The plan that these words ask for; none if they name no host. `variables` are those of this process.
pub fn plan(words: &Words, variables: &[(OsString, OsString)]) -> Result<Option<Plan>, String> {
    let Some(mentions) = mentions(words)? else { return without_hosts(words) };
    if words.value("node_rank").is_some_and(|rank| rank != "-1") {
        return Err(
            "--node_rank is for one command on each host; with -H ranks follow the order of the hosts".to_owned()
        );
    }
    if words.value("join").is_some() && !words.truth("join")? {
        return Err("--join is \"False\", but with -H the hosts' processes end with this one".to_owned());
    }
    let places = places(mentions, words)?;
    let (exported, warnings) = exported(words, variables)?;
    let is_exported = |name: &OsString| exported.iter().any(|(other, _)| other == name);
    let of_here = variables.iter().filter(|(name, _)| is_passed(name) && !is_exported(name));
    let mut environment: Vec<(OsString, OsString)> = of_here.cloned().collect();
    environment.extend(exported);
    let passed = words.given().iter().filter(|given| !OF_ALL.contains(&given.option.name));
    let address = address(words, &places)?;
    let mut plan = Plan {
        workers: places.iter().map(|place| place.workers).sum(),
        ssh: words.value("ssh").map(|text| text.split_whitespace().map(OsString::from).collect()),
        warnings,
        port: 0,
        environment,
        passed: passed.map(|given| format!("--{}={}", given.option.name, given.value).into()).collect(),
        task: words.operands.clone(),
        places,
        address,
    };
    if plan.ssh.as_ref().is_some_and(Vec::is_empty) {
        return Err(
            "--ssh is \"\"; it must be a program that runs a command on a host: PROGRAM HOST COMMAND".to_owned()
        );
    }
    // Each host's launcher would find the same errors.
    let mut told = plan.words(0, 0);
    told.splice(0..0, words.value("master_port").map(|port| OsString::from(format!("--master_port={port}"))));
    told.retain(|word| word != "--master_port=0");
    let placement = Placement { first_rank: Some(0), scheduler: SchedulerAt::Here };
    if let crate::cli::words::Asked::With(options) = parse::parse(told, placement, hccl::has_rank_table())? {
        let given = words.value("master_port");
        plan.port = given.filter(|port| *port != "0").map_or(0, |_| options.master_port);
    }
    Ok(Some(plan))
}

impl Plan {
    /// The words after `muster run` on a host.
    fn words(&self, place: usize, port: u16) -> Vec<OsString> {
        let own = [
            format!("--worker_num={}", self.workers),
            format!("--local_worker_num={}", self.places[place].workers),
            format!("--master_addr={}", self.address),
            format!("--master_port={port}"),
            "--join=True".to_owned(),
            "--".to_owned(),
        ];
        self.passed.iter().cloned().chain(own.map(OsString::from)).chain(self.task.iter().cloned()).collect()
    }

    /// What a host is to run in this folder. The first host gets the plan's port and secret. The others get those that
    /// the first host has told, if it has.
    pub fn launch_spec(
        &self,
        place: usize,
        folder: &Path,
        port: u16,
        secret: Option<&str>,
        is_coloured: bool,
    ) -> LaunchSpec {
        // If nothing listens, no port is needed; but 0 would ask each host to choose one.
        let port = if place > 0 && port == 0 { parse::MASTER_PORT } else { port };
        let mut environment = self.environment.clone();
        environment.extend(secret.map(|secret| ("MUSTER_JOB_SECRET".into(), secret.into())));
        LaunchSpec {
            folder: folder.into(),
            first_rank: self.places[place].first_rank,
            has_scheduler: place == 0,
            is_coloured,
            environment,
            words: self.words(place, port),
        }
    }
}

/// The hosts that the words name, as often as they name them; none if there is neither `-H` nor `--hostfile`. The lists
/// of several `-H` are one list.
fn mentions(words: &Words) -> Result<Option<Vec<HostSlots>>, String> {
    let values = |name: &str| -> Vec<&str> {
        words.given().iter().filter(|given| given.option.name == name).map(|given| given.value.as_str()).collect()
    };
    match (&values("host")[..], &values("hostfile")[..]) {
        ([], []) => Ok(None),
        ([], [path]) => of_file(Path::new(path)).map(Some),
        ([], [first, second, ..]) => {
            Err(format!("--hostfile is {first:?} and {second:?}; it must be one file: write all hosts into it"))
        }
        (lists, []) => {
            let lists = lists.iter().map(|list| hosts_of_words(list)).collect::<Result<Vec<_>, String>>()?;
            Ok(Some(lists.concat()))
        }
        _ => Err("-H and --hostfile both name the hosts: leave one of them out".to_owned()),
    }
}

/// The hosts of `--hostfile`. It may be a pipe, as a shell makes one of `<(...)`.
fn of_file(path: &Path) -> Result<Vec<HostSlots>, String> {
    let wrong = |why: String| format!("--hostfile is {path:?}: {why}");
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HOST_FILE_MAX_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 > HOST_FILE_MAX_BYTES {
        return Err(wrong(format!(
            "it is too long: expected a line for each host, {HOST_FILE_MAX_BYTES} bytes at most"
        )));
    }
    let text = String::from_utf8(bytes).map_err(|error| wrong(format!("it is no text: {error}")))?;
    let hosts =
        hosts_of_lines(&text).map_err(|(line, words)| format!("--hostfile is {path:?}: line {line}: {words}"))?;
    match hosts.is_empty() {
        true => Err(format!("--hostfile is {path:?}, which names no host: each line has one, as `host slots=8`")),
        false => Ok(hosts),
    }
}

/// Refuses options that are only for other hosts, if there are no other hosts.
fn without_hosts(words: &Words) -> Result<Option<Plan>, String> {
    match words.get("ssh") {
        Some(_) => Err("--ssh starts workers on other hosts: name them with -H or --hostfile".to_owned()),
        None => Ok(None),
    }
}

/// Each host with its workers: as many as it has slots, host by host, until there are enough.
fn places(mentions: Vec<HostSlots>, words: &Words) -> Result<Vec<HostShare>, String> {
    let right =
        |name: &str, text: &str| format!("--{name} is {text:?}; it must be a whole number from 1 to {NODES_LIMIT}");
    let number = |name: &str| -> Result<Option<u32>, String> {
        let Some(text) = words.value(name) else { return Ok(None) };
        let number = whole(text).and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
        number.map(Some).ok_or_else(|| right(name, text))
    };
    let (asked, local) =
        (parse::np(words)?.map_or_else(|| number("worker_num"), |np| Ok(Some(np)))?, number("local_worker_num")?);
    let count = mentions.len() as u32;
    let is_unsaid = local.is_none() && mentions.iter().all(|mention| mention.slots.is_none());
    // If nobody says how many workers a host takes, they are divided evenly.
    let slots = |index: u32, mention: &HostSlots| match (is_unsaid, asked) {
        (true, Some(total)) => total / count + u32::from(index < total % count),
        _ => mention.slots.or(local).unwrap_or(1),
    };
    let hosts = gathered((0..).zip(mentions).map(|(index, mention)| (slots(index, &mention), mention)));
    let room: u64 = hosts.iter().map(|(slots, _)| u64::from(*slots)).sum();
    let wanted = asked.map_or(room, u64::from);
    if wanted > room {
        return Err(format!(
            "{wanted} workers are more than the {room} that the hosts take: {}; give the hosts more slots (HOST:N, `slots=N`)",
            hosts.iter().map(|(slots, host)| format!("{} {slots}", host.name)).collect::<Vec<_>>().join(", ")
        ));
    }
    let (mut places, mut first_rank) = (Vec::new(), 0);
    for (slots, host) in hosts {
        let workers = u64::from(slots).min(wanted - u64::from(first_rank)) as u32;
        if workers > 0 {
            places.push(HostShare { host, workers, first_rank });
            first_rank += workers;
        }
    }
    Ok(places)
}

/// Each host once, at its first place, with the sum of the slots that it takes at all its places.
fn gathered(mentions: impl Iterator<Item = (u32, HostSlots)>) -> Vec<(u32, HostSlots)> {
    let mut hosts: Vec<(u32, HostSlots)> = Vec::new();
    for (slots, mention) in mentions {
        match hosts.iter_mut().find(|(_, host)| host.name == mention.name) {
            Some((sum, _)) => *sum = sum.saturating_add(slots),
            None => hosts.push((slots, mention)),
        }
    }
    hosts
}

/// Where the scheduler is, for all hosts.
fn address(words: &Words, places: &[HostShare]) -> Result<String, String> {
    if let Some(given) = words.value("master_addr") {
        return Ok(given.to_owned());
    }
    let is_loopback = |place: &HostShare| {
        let address = place.host.address();
        address == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    let first = &places[0];
    match places.iter().find(|place| is_loopback(first) && !is_loopback(place)) {
        Some(other) => Err(format!(
            "the scheduler runs on the first host, which is {:?}: {:?} can't reach it by that name; give --master_addr",
            first.host.name, other.host.name
        )),
        None => {
            let (host, kind) = (first.host.address(), Key::SchedHost.setting().kind);
            let right = || kind.expectation_for(host);
            kind.parse(host).map(|_| host.to_owned()).ok_or_else(|| {
                format!(
                    "the scheduler runs on the first host, which is {host:?}: expected {}; or give --master_addr",
                    right()
                )
            })
        }
    }
}

/// Whether other hosts get this variable of our environment.
fn is_passed(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let is_ours = name.starts_with("MS_") || name.starts_with("MUSTER_") || name == "RANK_TABLE_FILE";
    let is_of_one = OF_ONE.map(Key::setting).iter().any(|one| one.ms.contains(&name) || one.variable() == name);
    is_ours && !is_of_one
}

/// The variables of `-x` with their values, each once with the last of them, and a warning for each that has none.
#[allow(clippy::type_complexity)]
fn exported(
    words: &Words,
    variables: &[(OsString, OsString)],
) -> Result<(Vec<(OsString, OsString)>, Vec<String>), String> {
    let (mut exported, mut warnings) = (Vec::new(), Vec::new());
    for export in parse::exports(words)? {
        let here = || variables.iter().find(|(name, _)| *name == *export.name).map(|(_, value)| value.clone());
        match export.value.clone().map(OsString::from).or_else(here) {
            Some(value) => {
                let name = OsString::from(export.name.clone());
                exported.retain(|(other, _)| *other != name);
                exported.push((name, value));
            }
            None => warnings.push(export.unset()),
        }
    }
    Ok((exported, warnings))
}

#[cfg(test)]
#[path = "plan_test.rs"]
mod tests;
