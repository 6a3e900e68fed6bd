//! Other launchers: what their variables say, in terms of our settings.
//!
//! One mechanism: a launcher is a row of [`LAUNCHERS`], and what it says becomes values of our own settings, which then
//! take the same way as all others (they count less than `MUSTER_` and `MS_` variables). The innermost launcher wins,
//! in the order of the table; the others' variables are not looked at. Slurm and Kubernetes become further rows.
//! Tested in `launcher_test.rs`.

use std::collections::BTreeMap;

use super::environment::{Environment, Text};
use super::show;
use super::table::Key;
use super::value::whole;
use crate::error::{Error, Result};

/// The scheduler's port where another launcher started us and nothing names one.
pub const DEFAULT_PORT: u16 = 8118;

/// torchrun itself listens on MASTER_PORT, and its workers on the one after it.
const MASTER_PORT_OFFSET: u64 = 2;

/// The variables by which a launcher tells a process its place.
#[derive(Debug)]
pub struct Launcher {
    /// What people call it.
    pub name: &'static str,
    /// This process's rank. The launcher counts when this and `size` are set.
    pub rank: &'static str,
    /// How many processes there are.
    pub size: &'static str,
    /// This process's index on its host.
    pub local_rank: &'static str,
    /// How many processes its host has.
    pub local_size: &'static str,
}

/// The launchers that we know, the innermost first.
pub static LAUNCHERS: [Launcher; 3] = [
    Launcher {
        name: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: "LOCAL_WORLD_SIZE",
    },
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    Launcher {
        name: "MPICH or Intel MPI",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_size: "MPI_LOCALNRANKS",
    },
];

/// Where the first rank can be reached, as torchrun and many scripts have it; they count under every launcher.
pub const MASTER_ADDR: &str = "MASTER_ADDR";
/// The port beside [`MASTER_ADDR`].
pub const MASTER_PORT: &str = "MASTER_PORT";

impl Launcher {
    fn variables(&self) -> [&'static str; 4] {
        [self.rank, self.size, self.local_rank, self.local_size]
    }

    fn counts(&self, environment: &Environment) -> bool {
        environment.get(self.rank).is_some() && environment.get(self.size).is_some()
    }
}

/// Whether a launcher's row mentions this variable.
pub fn reads(variable: &str) -> bool {
    let shared = [MASTER_ADDR, MASTER_PORT].contains(&variable);
    shared || LAUNCHERS.iter().any(|launcher| launcher.variables().contains(&variable))
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
}

/// The innermost launcher that started this process, if any did, and what it says.
pub fn placement(environment: &Environment) -> Option<Placement> {
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
        given.insert(Key::SchedHost, derived("127.0.0.1", "the scheduler's host for ranks that share one"));
    }
    given.insert(Key::SchedPort, port(environment));
    Some(Placement { launcher, given })
}

/// The scheduler's port: beside torchrun's own, or the default.
fn port(environment: &Environment) -> Given {
    let Some(text) = environment.get(MASTER_PORT) else {
        return derived(&DEFAULT_PORT.to_string(), "the scheduler's default port");
    };
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
    Given { text, origin: format!("{MASTER_PORT} + {MASTER_PORT_OFFSET}") }
}

fn derived(value: &str, origin: &str) -> Given {
    Given { text: Ok(Text::Valid(value.to_string())), origin: origin.to_string() }
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

#[cfg(test)]
#[path = "launcher_test.rs"]
mod tests;
