//! Other launchers: what their variables say, in terms of our settings.
//!
//! One mechanism: a launcher is a row of [`LAUNCHERS`], and what it says becomes values of our own settings. These
//! then take the same way as all others, and count less than `MUSTER_` and `MS_` variables. The innermost launcher
//! wins, in the order of the table; the others' variables are not looked at. Slurm and Kubernetes become further rows.
//! Tested in `launcher_test.rs`.

use std::collections::BTreeMap;

use super::derived::DerivedJob;
use super::environment::{Environment, Text};
use super::launchers::{Launcher, Mark, LAUNCHERS, MASTER_ADDR, MASTER_PORT, PMIX_RANK, SLURM_RANK, SLURM_SIZE};
use super::shown::show;
use super::table::Key;
use super::value::whole;
use crate::error::{Error, Result};

/// The scheduler's port where another launcher started us and nothing names one.
pub const DEFAULT_PORT: u16 = 8118;

/// torchrun itself listens on MASTER_PORT, and its workers on the one after it.
const MASTER_PORT_OFFSET: u64 = 2;

impl Launcher {
    fn counts(&self, environment: &Environment) -> bool {
        environment.get(self.rank).is_some() && environment.get(self.size).is_some()
    }
}

/// Whether this environment's launcher may be known by an ancestor of the process only.
pub fn asks_for_ancestors(environment: &Environment) -> bool {
    let innermost = LAUNCHERS.iter().find(|launcher| launcher.counts(environment));
    innermost.is_some_and(|launcher| launcher.marks.iter().any(|mark| matches!(mark, Mark::HydraProxy)))
}

/// A value that a launcher gives to one of our settings, and where it has it from.
pub struct Given {
    /// The value, or why there is none to be had.
    pub text: Result<Text>,
    /// Where it is from, in words.
    pub origin: String,
}

/// What a launcher said.
pub struct Placement {
    /// The launcher.
    pub launcher: &'static Launcher,
    /// What it gives to our settings.
    pub given: BTreeMap<Key, Given>,
    /// Which of its jobs the process is of.
    pub job: Option<DerivedJob>,
}

/// The innermost launcher that started this process, if any did, and what it says.
pub fn placement(environment: &Environment, ancestors: &[Vec<u8>]) -> Option<Placement> {
    let launcher = LAUNCHERS.iter().find(|launcher| launcher.counts(environment))?;
    let mut given = BTreeMap::new();
    let copies = [
        (Key::RankId, launcher.rank),
        (Key::WorkerNum, launcher.size),
        (Key::DeviceId, launcher.local_rank),
        (Key::SchedHost, MASTER_ADDR),
    ];
    for (key, variable) in copies {
        if let Some(text) = environment.get(variable) {
            given.insert(key, Given { text: Ok(text.clone()), origin: variable.to_string() });
        }
    }
    let all_local = launcher.all_local(environment);
    if all_local && !given.contains_key(&Key::SchedHost) {
        given.insert(Key::SchedHost, default_of(Key::SchedHost, "127.0.0.1"));
    }
    if let Some(port) = port(environment) {
        given.insert(Key::SchedPort, port);
    }
    let job = DerivedJob::of(launcher.name, launcher.marks, environment, ancestors);
    Some(Placement { launcher, given, job })
}

impl Placement {
    /// Somebody puts the job together himself, and knows better than the launcher.
    pub fn forget_job(&mut self) {
        self.job = None;
    }

    /// Where its ranks meet, if nothing names a port.
    pub fn ports_of_job(&self) -> Option<Vec<u16>> {
        let job = self.job.as_ref().filter(|_| !self.given.contains_key(&Key::SchedPort));
        job.map(DerivedJob::ports)
    }

    /// Where nothing names a port, and there is no job to have ports of its own, it is the default one.
    pub fn settle_port(&mut self) {
        if self.job.is_none() {
            self.given.entry(Key::SchedPort).or_insert_with(|| default_of(Key::SchedPort, &DEFAULT_PORT.to_string()));
        }
    }
}

/// The scheduler's port beside torchrun's own.
fn port(environment: &Environment) -> Option<Given> {
    let text = environment.get(MASTER_PORT)?;
    let lowest = super::value::PORT_MIN;
    let highest = u64::from(u16::MAX) - MASTER_PORT_OFFSET;
    let (Text::Valid(shown) | Text::Garbled(shown)) = text;
    let master = whole(shown).filter(|port| (lowest..=highest).contains(port));
    let text = master.map(|port| Text::Valid((port + MASTER_PORT_OFFSET).to_string())).ok_or_else(|| {
        Error::config(format!(
            "{MASTER_PORT} is {}: expected a whole number from {lowest} to {highest}, for the scheduler takes the \
             port {MASTER_PORT_OFFSET} above it; or set MUSTER_SCHED_PORT",
            show(shown)
        ))
    });
    Some(Given { text, origin: format!("{MASTER_PORT} + {MASTER_PORT_OFFSET}") })
}

fn default_of(key: Key, value: &str) -> Given {
    Given { text: Ok(Text::Valid(value.to_string())), origin: format!("the default of {}", key.setting().variable()) }
}

impl Launcher {
    /// This variable's number, if it is set to one; who needs it as a setting complains if it is none.
    fn number(environment: &Environment, variable: &str) -> Option<u64> {
        match environment.get(variable)? {
            Text::Valid(text) => whole(text),
            Text::Garbled(_) => None,
        }
    }

    /// Whether the launcher says that all ranks share this host.
    fn all_local(&self, environment: &Environment) -> bool {
        let size = Launcher::number(environment, self.size);
        size.is_some() && (size == Some(1) || Launcher::number(environment, self.local_size) == size)
    }

    /// What the launcher's own variables say against each other: the first two that cannot both be true.
    pub fn contradiction(&self, environment: &Environment) -> Result<()> {
        let below = [(self.rank, self.size), (self.local_rank, self.size), (self.local_rank, self.local_size)];
        for (index, count) in below {
            let (of_index, of_count) = (Launcher::number(environment, index), Launcher::number(environment, count));
            if let (Some(of_index), Some(of_count)) = (of_index, of_count) {
                if of_index >= of_count {
                    return Err(Error::config(format!(
                        "{index} is \"{of_index}\" and {count} is \"{of_count}\": expected {index} to be less than \
                         {count}"
                    )));
                }
            }
        }
        let (local, all) = (Launcher::number(environment, self.local_size), Launcher::number(environment, self.size));
        match (local, all) {
            (Some(local), Some(all)) if local > all => Err(Error::config(format!(
                "{} is \"{local}\" and {} is \"{all}\": expected no more processes on this host than in all",
                self.local_size, self.size
            ))),
            _ => Ok(()),
        }
    }
}

/// A launcher's rank without its number of processes, or the other way round, in words: it does not count, which may
/// surprise.
pub fn halves(environment: &Environment) -> Vec<String> {
    let is_set = |variable: &str| environment.get(variable).is_some();
    let half = |launcher: &&Launcher| is_set(launcher.rank) != is_set(launcher.size) && !launcher.counts(environment);
    LAUNCHERS
        .iter()
        .filter(half)
        .map(|Launcher { name, rank, size, .. }| {
            let (there, missing) = if is_set(rank) { (rank, size) } else { (size, rank) };
            format!("{there} is set, but {missing} is not: this process is not taken for one that {name} started")
        })
        .collect()
}

/// What says that some launcher started this process as one of several, though it is none that is known by now. Nothing
/// comes of it, which may surprise.
pub fn strangers(environment: &Environment) -> Option<String> {
    let tasks = Launcher::number(environment, SLURM_SIZE);
    let names = match tasks {
        Some(0 | 1) => return None,
        Some(_) if environment.get(SLURM_RANK).is_some() => format!("{SLURM_RANK} and {SLURM_SIZE} are"),
        _ if environment.get(PMIX_RANK).is_some() => format!("{PMIX_RANK} is"),
        _ => return None,
    };
    Some(format!(
        "{names} set, but this version does not take its rank from there: this process is a cluster of one. To join the \
         others, set RANK and WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or MS_ROLE and what belongs to it"
    ))
}

#[cfg(test)]
#[path = "launcher_test.rs"]
mod tests;
