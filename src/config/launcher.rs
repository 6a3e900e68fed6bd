//! Other launchers: what their variables say, in terms of our settings.
//!
//! One mechanism: a launcher is a row of [`LAUNCHERS`], and what it says becomes values of our own settings. These then
//! take the same way as all others, and count less than `MUSTER_` and `MS_` variables. The innermost launcher wins, in
//! the order of the table. The variables of other launchers are not looked at, except for the scheduler's host: any
//! launcher may tell that. What is odd about such variables is said in `launcher_remarks.rs`. Tested in
//! `launcher_test.rs`, and under real launchers by `tests/python/test_mpi.py` and `test_slurm.py`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::derived::DerivedJob;
use super::environment::{Environment, Text};
use super::host_list;
use super::launchers::{
    task_of, Condition, Launcher, Mark, HOSTNAME, HOST_FILES, LAUNCHERS, MASTER_ADDR, MASTER_PORT, PMI_RANK,
    SLURM_JOB_NODES, SLURM_RANK, SLURM_STEP, SLURM_STEP_MAX, SLURM_STEP_NODES, VOLCANO_HOSTS, VOLCANO_INDEX,
    VOLCANO_SIZE,
};
use super::origin::Origin;
use super::shown::show;
use super::table::Key;
use super::value::whole;
use crate::error::{Error, Result};

/// The scheduler's port if another launcher started us and nothing names one.
pub const DEFAULT_PORT: u16 = 8118;

/// torchrun itself listens on MASTER_PORT, and its workers on the one after it.
const MASTER_PORT_OFFSET: u64 = 2;

/// What the system knows, for the cases in which the environment does not say it all.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// The command lines of the processes that this one descends from: its parent's first, then that one's parent's,
    /// and so on.
    pub ancestors: Vec<Vec<u8>>,
    /// The file that says where rank 0 is.
    pub host_file: Option<HostFile>,
}

/// A file with the hosts of a job, which a variable names.
#[derive(Clone)]
pub struct HostFile {
    /// The variable.
    pub variable: &'static str,
    /// The file.
    pub path: String,
    /// Its first host, or why there is none to be had; the words follow the file's name.
    pub first: std::result::Result<String, String>,
}

/// A value that a launcher gives to one of our settings, and where the launcher has it from.
pub struct Given {
    /// The value, or why there is none to be had.
    pub text: Result<Text>,
    /// Where it is from.
    pub origin: Origin,
}

impl Given {
    /// A value that this variable has, or that is made of it as these words say.
    fn new(text: Result<Text>, origin: impl Into<String>) -> Given {
        Given { text, origin: Origin::Launcher(origin.into()) }
    }
}

/// What a launcher said.
pub struct Placement {
    /// The launcher.
    pub launcher: &'static Launcher,
    /// What it gives to our settings.
    pub given: BTreeMap<Key, Given>,
    /// The launcher's job to which the process belongs.
    pub job: Option<DerivedJob>,
    /// Whether it says that there are ranks on other hosts, too.
    pub spans_hosts: bool,
    /// Why the scheduler's host is not known though a file should tell it, in words that follow another sentence.
    pub hint: Option<String>,
}

/// The innermost launcher that started this process, if any did, and what it says.
pub fn placement(environment: &Environment, surroundings: &Surroundings) -> Option<Placement> {
    let launcher = innermost(environment)?;
    let mut given = BTreeMap::new();
    let copies = [
        (Key::RankId, Some(launcher.rank)),
        (Key::WorkerNum, Some(launcher.size)),
        (Key::DeviceId, launcher.local_rank),
    ];
    for (key, name) in copies {
        let Some(variable) = name.map(|name| spelled(name, environment)) else { continue };
        if let Some(text) = environment.get(&variable) {
            given.insert(key, Given::new(Ok(text.clone()), variable));
        }
    }
    let (host, hint) = match launcher.tells_host(environment) {
        Some(host) => (Some(host), None),
        None => of_host_file(surroundings.host_file.as_ref()),
    };
    given.extend(host.map(|host| (Key::SchedHost, host)));
    given.extend(launcher.tells_port(environment).map(|port| (Key::SchedPort, port)));
    let job = DerivedJob::of(launcher.name, launcher.marks, environment, &surroundings.ancestors);
    let spans_hosts = launcher.spans_hosts(environment) == Some(true);
    Some(Placement { launcher, given, job, spans_hosts, hint })
}

impl Placement {
    /// Forgets the launcher's job: the user describes the job himself, and that counts more.
    pub fn forget_job(&mut self) {
        self.job = None;
    }

    /// Where its ranks meet, if nothing names a port.
    pub fn ports_of_job(&self) -> Option<Vec<u16>> {
        let job = self.job.as_ref().filter(|_| !self.given.contains_key(&Key::SchedPort));
        job.map(DerivedJob::ports)
    }

    /// Sets the default port if nothing names a port, and there is no job with ports of its own.
    pub fn settle_port(&mut self) {
        if self.job.is_none() {
            self.given.entry(Key::SchedPort).or_insert_with(|| default_of(Key::SchedPort, &DEFAULT_PORT.to_string()));
        }
    }
}

/// Whether this environment's launcher may be known by an ancestor of the process only.
pub fn asks_for_ancestors(environment: &Environment) -> bool {
    innermost(environment).is_some_and(|launcher| launcher.marks.iter().any(|mark| matches!(mark, Mark::HydraProxy)))
}

/// The file that must be read to know where the scheduler is, and the variable that names it.
pub fn asks_for_host_file(environment: &Environment) -> Option<(&'static str, String)> {
    let launcher = innermost(environment)?;
    if launcher.tells_host(environment).is_some() {
        return None;
    }
    HOST_FILES.into_iter().find_map(|variable| match environment.get(variable)? {
        Text::Valid(path) => Some((variable, path.clone())),
        Text::Garbled(_) => None,
    })
}

fn innermost(environment: &Environment) -> Option<&'static Launcher> {
    LAUNCHERS.iter().find(|launcher| launcher.counts(environment))
}

/// A variable's name in this environment: the process's task replaces the `*`.
pub fn spelled(name: &'static str, environment: &Environment) -> Cow<'static, str> {
    match name.contains('*').then(|| task(environment)).flatten() {
        Some(task) => name.replace('*', &task).into(),
        None => name.into(),
    }
}

/// The task of a Volcano job to which this process belongs: the only one, or the one that has this host at its place.
fn task(environment: &Environment) -> Option<String> {
    let mut tasks: Vec<&str> = environment.names().filter_map(|name| task_of(VOLCANO_SIZE, name)).collect();
    if tasks.len() > 1 {
        let index = usize::try_from(number(environment, VOLCANO_INDEX)?).ok()?;
        let Text::Valid(own) = environment.get(HOSTNAME)? else { return None };
        tasks.retain(|task| match environment.get(&VOLCANO_HOSTS.replace('*', task)) {
            Some(Text::Valid(hosts)) => {
                hosts.split(',').nth(index).is_some_and(|host| host.split('.').next() == own.split('.').next())
            }
            _ => false,
        });
    }
    match tasks[..] {
        [one] => Some(one.to_owned()),
        _ => None,
    }
}

/// This variable's number, if it is set to one. If it is no number, the code that needs it as a setting complains.
pub fn number(environment: &Environment, name: &'static str) -> Option<u64> {
    match environment.get(&spelled(name, environment))? {
        Text::Valid(text) => whole(text),
        Text::Garbled(_) => None,
    }
}

/// Whether the process belongs to a step that somebody has started by srun.
pub fn is_in_step(environment: &Environment) -> bool {
    number(environment, SLURM_STEP).is_some_and(|step| step <= SLURM_STEP_MAX)
}

fn default_of(key: Key, value: &str) -> Given {
    Given::new(Ok(Text::Valid(value.to_string())), format!("the default of {}", key.setting().variable()))
}

/// The first of the hosts in this variable.
fn first_of(variable: &str, environment: &Environment) -> Option<Given> {
    let text = match environment.get(variable)? {
        Text::Valid(list) => Text::Valid(host_list::of_list(list).map_or_else(|| list.clone(), |hosts| hosts.first)),
        garbled => garbled.clone(),
    };
    Some(Given { text: Ok(text), origin: Origin::FirstOf(variable.to_owned()) })
}

/// The first host of a file; or the words that follow the sentence that no host is known.
fn of_host_file(file: Option<&HostFile>) -> (Option<Given>, Option<String>) {
    let Some(HostFile { variable, path, first }) = file else { return (None, None) };
    match first {
        Ok(host) => {
            let origin = Origin::FirstOf(format!("{} ({variable})", show(path)));
            (Some(Given { text: Ok(Text::Valid(host.clone())), origin }), None)
        }
        Err(why) => (None, Some(format!("{variable} names {}, but that {why}", show(path)))),
    }
}

/// What a launcher's row says of this environment.
impl Launcher {
    /// Whether it tells this process its place.
    pub fn counts(&self, environment: &Environment) -> bool {
        self.has_place(environment) && self.holds(environment)
    }

    /// Whether rank and size are set.
    pub fn has_place(&self, environment: &Environment) -> bool {
        [self.rank, self.size].iter().all(|name| environment.get(&spelled(name, environment)).is_some())
    }

    /// Whether rank and size really say a process's place.
    fn holds(&self, environment: &Environment) -> bool {
        match self.condition {
            Condition::Always => true,
            Condition::NotSrun => {
                let of = |name| number(environment, name);
                self.local_rank.and_then(of).is_some() || !is_in_step(environment) || of(SLURM_RANK) != of(PMI_RANK)
            }
            Condition::SrunStep => is_in_step(environment) && !matches!(number(environment, self.size), Some(0 | 1)),
            Condition::OnePerNode(variable) => {
                let is_one = environment.get(variable).is_none() || number(environment, variable) == Some(1);
                is_one && number(environment, self.size).is_some()
            }
        }
    }

    /// Where the scheduler is, as far as the environment says it.
    fn tells_host(&self, environment: &Environment) -> Option<Given> {
        let copied = |variable: &str| {
            let text = environment.get(variable)?.clone();
            Some(Given::new(Ok(text), variable))
        };
        let own = || match spelled(self.host?, environment) {
            Cow::Borrowed(variable) => copied(variable),
            Cow::Owned(of_task) => first_of(&of_task, environment),
        };
        let local = || (self.spans_hosts(environment) == Some(false)).then(|| default_of(Key::SchedHost, "127.0.0.1"));
        let nodes = || self.slurm_nodes().iter().find_map(|variable| first_of(variable, environment));
        copied(MASTER_ADDR).or_else(own).or_else(local).or_else(nodes)
    }

    /// The variables with Slurm's lists of nodes, of which the first node has rank 0. Under a launcher that runs inside Slurm
    /// the step's list does not count, because that launcher made the step for itself.
    fn slurm_nodes(&self) -> &'static [&'static str] {
        match self.condition {
            Condition::SrunStep => &[SLURM_STEP_NODES, SLURM_JOB_NODES],
            _ => &[SLURM_JOB_NODES],
        }
    }

    /// The scheduler's port beside torchrun's own.
    fn tells_port(&self, environment: &Environment) -> Option<Given> {
        let names = [Some(MASTER_PORT), self.port].into_iter().flatten();
        let (name, text) = names.filter_map(|name| Some((name, environment.get(name)?))).next()?;
        let lowest = super::value::PORT_MIN;
        let highest = u64::from(u16::MAX) - MASTER_PORT_OFFSET;
        let (Text::Valid(shown) | Text::Garbled(shown)) = text;
        let master = whole(shown).filter(|port| (lowest..=highest).contains(port));
        let text = master.map(|port| Text::Valid((port + MASTER_PORT_OFFSET).to_string())).ok_or_else(|| {
            Error::config(format!(
                "{name} is {}: expected a whole number from {lowest} to {highest}, because the scheduler takes the port \
                 {MASTER_PORT_OFFSET} above it; or set MUSTER_SCHED_PORT",
                show(shown)
            ))
        });
        Some(Given::new(text, format!("{name} + {MASTER_PORT_OFFSET}")))
    }

    /// Whether there are ranks on other hosts, too; nothing if the launcher does not say.
    fn spans_hosts(&self, environment: &Environment) -> Option<bool> {
        if self.condition == Condition::SrunStep {
            let Some(Text::Valid(nodes)) = environment.get(SLURM_STEP_NODES) else { return None };
            return host_list::of_list(nodes).map(|nodes| !nodes.is_only);
        }
        let size = number(environment, self.size)?;
        let local = self.local_size.and_then(|local| number(environment, local));
        if size == 1 {
            return Some(false);
        }
        local.map(|local| local != size)
    }

    /// Reports a contradiction between the launcher's own variables: the first two that cannot both be true. No setting has
    /// the number of processes on this host, so what is no such number is reported here, too.
    pub fn contradiction(&self, environment: &Environment) -> Result<()> {
        let (rank, size) = (Some(self.rank), Some(self.size));
        for (index, count) in [(rank, size), (self.local_rank, size), (self.local_rank, self.local_size)] {
            let (Some(index), Some(count)) = (index, count) else { continue };
            if let (Some(of_index), Some(of_count)) = (number(environment, index), number(environment, count)) {
                if of_index >= of_count {
                    let (index, count) = (spelled(index, environment), spelled(count, environment));
                    return Err(Error::config(format!(
                        "{index} is \"{of_index}\" and {count} is \"{of_count}\": expected {index} to be less than \
                         {count}"
                    )));
                }
            }
        }
        let Some((local_size, set)) = self.local_size.and_then(|name| Some((name, environment.get(name)?))) else {
            return Ok(());
        };
        match (number(environment, local_size), number(environment, self.size)) {
            (None | Some(0), _) => {
                let (Text::Valid(shown) | Text::Garbled(shown)) = set;
                Err(Error::config(format!("{local_size} is {}: expected a whole number, 1 or more", show(shown))))
            }
            (Some(local), Some(all)) if local > all => Err(Error::config(format!(
                "{local_size} is \"{local}\" and {} is \"{all}\": expected no more processes on this host than in all",
                self.size
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "launcher_test.rs"]
mod tests;
