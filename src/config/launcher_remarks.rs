//! Names what is odd about launchers' variables: no launcher tells the process its place, or one says that the process is alone
//! and another does not. The process then works alone, and without these remarks its user would not know why.
//! Tested in `launcher_test.rs`.

use super::environment::Environment;
use super::launcher::{is_in_step, number, spelled};
use super::launchers::{task_of, Condition, Launcher, LAUNCHERS, SLURM_STEP, STRANGERS};
use super::table::Setting;

const ALONE: &str = "this process is a cluster of one";
const TO_JOIN: &str =
    "To join the others, set RANK and WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or MS_ROLE and what belongs to it";

/// One sentence for each launcher whose variables are there, but not as they should be.
pub fn remarks(environment: &Environment) -> Vec<String> {
    let of_rows =
        LAUNCHERS.iter().filter_map(|launcher| half(launcher, environment).or_else(|| unfit(launcher, environment)));
    let mut remarks: Vec<String> = of_rows.collect();
    // A process that has been told why it is alone need not be told which other program started it.
    if remarks.is_empty() {
        remarks.extend(stranger(environment));
    }
    remarks
}

/// The launcher that counts says that this process is alone, and another has started it as one of several.
pub fn beside(counts: &Launcher, environment: &Environment) -> Option<String> {
    if number(environment, counts.size) != Some(1) {
        return None;
    }
    let (name, variable) = of_several(environment).or_else(|| of_a_later(counts, environment))?;
    let (rank, size) = (spelled(counts.rank, environment), spelled(counts.size, environment));
    let (other, told) = (spelled(variable, environment), number(environment, variable)?);
    Some(format!(
        "{size} is 1, so {ALONE}, but {other} is {told}: if {name} has started it to work with the others, unset {rank} and \
         {size}"
    ))
}

/// A launcher that has started this process as the first of several, and the variable that says how many.
fn of_several(environment: &Environment) -> Option<(&'static str, &'static str)> {
    let tells = |row: &&Launcher| match row.condition {
        Condition::OnePerNode(_) => row.has_place(environment),
        _ => row.counts(environment),
    };
    let of_rows = LAUNCHERS.iter().filter(tells).map(|row| (row.name, row.rank, row.size));
    let of_strangers = STRANGERS.iter().filter_map(|known| Some((known.name, known.mark, known.size?)));
    let is_first = |rank| number(environment, rank) == Some(0);
    let is_several = |size| number(environment, size).is_some_and(|several| several > 1);
    let mut all = of_rows.chain(of_strangers);
    all.find(|(_, rank, size)| is_first(rank) && is_several(size)).map(|(name, _, size)| (name, size))
}

/// A launcher that says that this process is not its first, but not how many there are; and the variable that says so.
fn of_a_later(counts: &Launcher, environment: &Environment) -> Option<(&'static str, &'static str)> {
    let of_rows = LAUNCHERS.iter().map(|row| (row.name, row.rank, Some(row.size)));
    let of_strangers = STRANGERS.iter().map(|known| (known.name, known.mark, known.size));
    let is_there = |size: &'static str| environment.get(&spelled(size, environment)).is_some();
    let is_later = |rank| number(environment, rank).is_some_and(|rank| rank > 0);
    let mut all = of_rows.chain(of_strangers).filter(|(_, rank, _)| *rank != counts.rank);
    all.find(|(_, rank, size)| is_later(rank) && !size.is_some_and(is_there)).map(|(name, rank, _)| (name, rank))
}

/// A launcher has set its rank without its number of processes, or the other way round: then it does not count.
fn half(launcher: &Launcher, environment: &Environment) -> Option<String> {
    let is_set = |name: &'static str| environment.get(&spelled(name, environment)).is_some();
    let (rank, size) = (is_set(launcher.rank), is_set(launcher.size));
    // One process alone is no surprise, and a missing setting of our own is reported elsewhere. A batch script's own
    // process has rank 0.
    let is_first = number(environment, launcher.rank) == Some(0);
    let is_expected = match rank {
        true => launcher.condition == Condition::SrunStep && !is_in_step(environment) && is_first,
        false => number(environment, launcher.size) == Some(1) || Setting::of_variable(launcher.size).is_some(),
    };
    if rank == size || is_expected {
        return without_both(launcher, environment).filter(|_| !rank && !size);
    }
    let (there, missing) = if rank { (launcher.rank, launcher.size) } else { (launcher.size, launcher.rank) };
    let (there, missing) = (spelled(there, environment), spelled(missing, environment));
    let which = which(&missing);
    Some(format!(
        "{there} is set, but {missing} is not{which}: this process is not taken for one that {} started",
        launcher.name
    ))
}

/// A launcher has set neither its rank nor its number of processes, but something else that says that there are others.
fn without_both(launcher: &Launcher, environment: &Environment) -> Option<String> {
    let is_above = |name: Option<&'static str>, least| {
        name.filter(|name| number(environment, name).is_some_and(|number| number > least))
    };
    let host =
        launcher.host.and_then(|host| environment.names().find(|name| *name == host || task_of(host, name).is_some()));
    let there = host.or(is_above(launcher.local_rank, 0)).or(is_above(launcher.local_size, 1))?;
    let Launcher { name, rank, size, .. } = launcher;
    let which = which(size);
    Some(format!(
        "{there} is set, but {rank} and {size} are not{which}: this process is not taken for one that {name} started"
    ))
}

/// What else may be the matter with this variable, if its name has the task's in it.
fn which(name: &str) -> &'static str {
    if name.contains('*') {
        ", or more than one is and HOSTNAME does not say which"
    } else {
        ""
    }
}

/// The launcher's variables give a rank, but not the rank of this process.
fn unfit(launcher: &Launcher, environment: &Environment) -> Option<String> {
    let Launcher { name, rank, size, condition, .. } = launcher;
    if !launcher.has_place(environment) {
        return None;
    }
    let why = match condition {
        Condition::SrunStep if !matches!(number(environment, size), Some(0 | 1)) => {
            format!("{SLURM_STEP} does not name a job step: {ALONE}. {TO_JOIN}")
        }
        Condition::OnePerNode(processes) => format!(
            "{processes} is not 1, or {size} is no number: {ALONE}. To start what {name} means, run the program by \
             `muster run` or torchrun"
        ),
        _ => return None,
    };
    Some(format!("{rank} and {size} are set, but {why}"))
}

/// A sign that some launcher started this process as one of several, where we cannot ask that launcher for more.
fn stranger(environment: &Environment) -> Option<String> {
    let found = STRANGERS.iter().find(|stranger| {
        let size = stranger.size.and_then(|size| number(environment, size));
        environment.get(stranger.mark).is_some() && size != Some(1)
    })?;
    Some(format!(
        "{} is set, but this version does not take a rank from {}: {ALONE}. {TO_JOIN}",
        found.mark, found.name
    ))
}
