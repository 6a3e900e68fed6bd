//! `--rank_table_file`: it does the same as `RANK_TABLE_FILE` in the launcher's environment. A table that is not right
//! is refused before anything is started, whichever of them names it. Where all workers are here it tells the launcher their ranks: for the names of
//! their logs, and for the workers. Each worker finds its rank in the table, too, and refuses to begin if the two differ.

use super::parse::{RankTable, RunOptions};
use muster::config::{Assignment, Config, Key, Setting};
use muster::error::Error;
use muster::runtime;
use std::ffi::OsString;
use std::path::Path;

/// Takes the table, if there is one, for all that is started here.
pub fn take(options: &RunOptions) -> Result<(), String> {
    let path = match &options.rank_table {
        RankTable::Absent => return Ok(()),
        RankTable::OfEnvironment => return check_named_in(std::env::vars_os().collect(), options.worker_num),
        RankTable::File(path) => path,
    };
    check(path, options.worker_num).map_err(|error| format!("--{}", error.message()))?;
    let setting = Key::RankTableFile.setting();
    std::env::remove_var(setting.variable());
    setting.others.iter().for_each(|name| std::env::set_var(name, path));
    Ok(())
}

/// Checks that this is a table of so many workers, as its readers see it.
fn check(path: &Path, worker_num: u32) -> Result<(), Error> {
    let mut config = reader(worker_num)?;
    config.set("rank_table_file", &path.to_string_lossy())?;
    runtime::take_rank(&mut config.settings()?)
}

/// The same of the table that one of these variables names.
fn check_named_in(mut variables: Vec<(OsString, OsString)>, worker_num: u32) -> Result<(), String> {
    variables.retain(|(name, _)| key(name) == Some(Key::RankTableFile));
    let check = || {
        let mut config = reader(worker_num)?;
        config.load_env(variables);
        runtime::take_rank(&mut config.settings()?)
    };
    check().map_err(|error: Error| error.message().to_owned())
}

/// A process that only looks whether its table is right.
fn reader(worker_num: u32) -> Result<Config, Error> {
    process("MS_SCHED", worker_num)
}

/// The setting that this variable sets.
fn key(variable: &OsString) -> Option<Key> {
    Some(Setting::of_variable(variable.to_str()?)?.key)
}

/// The rank that the environment's table gives each worker of this host by its index. None are known where other hosts take part,
/// or where the table lacks one of these devices: its worker may tell its device itself.
pub fn ranks(options: &RunOptions) -> Vec<u32> {
    let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    options.all_here().then(|| ranks_with(options.worker_num, &variables)).flatten().unwrap_or_default()
}

fn ranks_with(workers: u32, variables: &[(OsString, OsString)]) -> Option<Vec<u32>> {
    let counts = |name| matches!(key(name), Some(Key::RankTableFile | Key::WorkerIp | Key::HostId));
    let rank = |index: u32| {
        let mut config = process("MS_WORKER", workers).ok()?;
        config.load_env(variables.iter().filter(|(name, _)| counts(name)).cloned());
        config.set("device_id", &index.to_string()).ok()?;
        let mut settings = config.settings().ok()?;
        runtime::take_rank(&mut settings).ok()?;
        match settings.assignment {
            Assignment::Node { rank, .. } => rank,
            Assignment::Alone { .. } | Assignment::Scheduler { .. } => None,
        }
    };
    (0..workers).map(rank).collect()
}

/// Other settings that a process of the run needs beside its table.
fn process(role: &str, worker_num: u32) -> Result<Config, Error> {
    let mut config = Config::new();
    for (name, value) in [("role", role), ("sched_host", "127.0.0.1"), ("sched_port", "1024")] {
        config.set(name, value)?;
    }
    config.set("worker_num", &worker_num.to_string())?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tree_test::Tree;

    #[test]
    fn the_ranks_of_workers_of_this_host_are_those_of_their_devices() {
        let table = |server: &str, devices: [u32; 2]| {
            let [a, b] = devices.map(|id| format!(r#"{{"device_id":"{id}","rank_id":"{}"}}"#, 1 - id % 2));
            let servers = format!(r#"[{{"server_id":"{server}","device":[{a},{b}]}}]"#);
            format!(r#"{{"version":"1.0","server_count":"1","server_list":{servers},"status":"completed"}}"#)
        };
        let (here, others) = (table("127.0.0.1", [0, 1]), table("127.0.0.1", [4, 5]));
        let (far, named) = (table("192.0.2.1", [0, 1]), table("mine", [0, 1]));
        let tree = Tree::new(&[("here", &here), ("others", &others), ("far", &far), ("named", &named)]);
        let ranks = |file: &str, more: &[(&str, &str)]| {
            let path = tree.path().join(file).into_os_string();
            let more = more.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
            ranks_with(2, &more.chain([("RANK_TABLE_FILE".into(), path)]).collect::<Vec<_>>())
        };
        assert_eq!(ranks("here", &[]), Some(vec![1, 0]));
        // The launcher's own place in another job counts for none of its workers.
        assert_eq!(
            ranks("here", &[("RANK_ID", "0"), ("MS_ROLE", "MS_SCHED"), ("MS_WORKER_NUM", "9")]),
            Some(vec![1, 0])
        );
        assert_eq!(ranks("named", &[("MUSTER_HOST_ID", "mine")]), Some(vec![1, 0]));
        for file in ["others", "far", "named", "none"] {
            assert_eq!(ranks(file, &[]), None, "{file}");
        }
    }

    #[test]
    fn a_table_is_right_or_said_to_be_wrong() {
        let device =
            |rank: u32| format!(r#"{{"device_id":"{rank}","device_ip":"192.1.27.{rank}","rank_id":"{rank}"}}"#);
        let server = format!(r#"[{{"server_id":"10.0.0.1","device":[{},{}]}}]"#, device(0), device(1));
        let table = format!(r#"{{"version":"1.0","server_count":"1","server_list":{server},"status":"completed"}}"#);
        let tree = Tree::new(&[("table.json", &table), ("bad.json", "{")]);
        let path = |name: &str| tree.path().join(name);
        assert_eq!(check(&path("table.json"), 2), Ok(()));
        for (name, workers, said) in [
            ("table.json", 4, "which has 2 ranks (devices of all servers), but worker_num is \"4\""),
            ("bad.json", 2, "which is not JSON as expected"),
            ("none.json", 2, "No such file"),
        ] {
            let error = check(&path(name), workers).unwrap_err();
            let error = error.message();
            assert!(error.starts_with("rank_table_file is ") && error.contains(said), "{error}");
            for variable in ["RANK_TABLE_FILE", "MUSTER_RANK_TABLE_FILE"] {
                let named = (OsString::from(variable), path(name).into_os_string());
                let others =
                    [("MS_WORKER_NUM", "9"), ("MS_ROLE", "MS_WORKER")].map(|(name, value)| (name.into(), value.into()));
                let error = check_named_in(others.into_iter().chain([named]).collect(), workers).unwrap_err();
                assert!(error.starts_with(&format!("{variable} is ")) && error.contains(said), "{error}");
            }
        }
        let named = vec![("RANK_TABLE_FILE".into(), path("table.json").into_os_string())];
        assert_eq!(check_named_in(named, 2), Ok(()));
    }
}
