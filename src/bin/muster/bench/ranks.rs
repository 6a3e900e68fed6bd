//! The ranks of a benchmark on this host: this process starts them and runs the scheduler, and each dies with it.

use super::super::sys;
use super::ended::Ended;
use super::job_settings;
use crate::cli::words::Words;
use crate::run::secret;
use muster::config::{Config, Key};
use muster::runtime;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long the other ranks may take to end when one has failed.
const GRACE: Duration = Duration::from_secs(10);
/// How often the ranks are looked at, at least.
const LOOK: Duration = Duration::from_millis(200);

/// The words for each of the ranks that are started here, with the benchmark's name before them if it has one.
pub fn of_a_rank(name: Option<&str>, words: &Words) -> Vec<OsString> {
    let options = words.given().iter().filter(|given| given.option.name != "worker_num");
    let options = options.map(|given| OsString::from(format!("--{}={}", given.option.name, given.value)));
    name.map(OsString::from).into_iter().chain(words.operands.iter().cloned()).chain(options).collect()
}

/// Starts so many ranks with these words behind `bench`, waits for all, and gives the first failure.
pub fn start(worker_num: u32, words: &[OsString]) -> Result<(), Ended> {
    let mut config = Config::new();
    config.load_env(job_settings::without(std::env::vars_os()));
    for (key, value) in
        [(Key::SchedHost, "127.0.0.1"), (Key::SchedPort, "0"), (Key::WorkerNum, &worker_num.to_string())]
    {
        config.set(key.setting().name, value).map_err(|error| Ended::failed(error.to_string()))?;
    }
    secret::check("muster bench").map_err(Ended::usage)?;
    // Before there are other threads: they do not take the signal.
    sys::hear_of_children();
    let ends = sys::signal_descriptor(&[libc::SIGCHLD]).map_err(|error| Ended::failed(error.to_string()))?;
    let settings = config.scheduler_settings().map_err(|error| Ended::usage(error.to_string()))?;
    let scheduler = runtime::start_scheduler(&settings).map_err(|error| Ended::failed(error.to_string()))?;
    let port = scheduler.addresses()[0].port();
    let mut children = Vec::new();
    for rank in 0..worker_num {
        match rank_of(rank, worker_num, port, words) {
            Ok(child) => children.push(child),
            Err(error) => {
                children.iter_mut().for_each(|child: &mut Child| drop(child.kill()));
                return Err(Ended::failed(format!("rank {rank} cannot be started: {error}")));
            }
        }
    }
    wait(children, &ends).map_or(Ok(()), |words| Err(Ended::failed(words)))
}

/// Waits until all have ended, and gives the first failure. The others have [`GRACE`] from then on: they may be waiting for the
/// one that failed, for as long as a cluster may form.
fn wait(children: Vec<Child>, ends: &OwnedFd) -> Option<String> {
    // A rank that was killed is the cause. A rank that failed because of that is not.
    let (mut killed, mut failure) = (None, None);
    let mut left: Vec<(usize, Child)> = children.into_iter().enumerate().collect();
    let mut deadline: Option<Instant> = None;
    loop {
        left.retain_mut(|(rank, child)| {
            let (words, first) = match child.try_wait() {
                Ok(None) => return true,
                Ok(Some(status)) if status.success() => return false,
                Ok(Some(status)) if status.signal().is_some() => {
                    (format!("rank {rank} ended with {status}"), &mut killed)
                }
                Ok(Some(status)) => (format!("rank {rank} ended with {status}"), &mut failure),
                Err(error) => (format!("rank {rank} cannot be waited for: {error}"), &mut failure),
            };
            first.get_or_insert(words);
            deadline.get_or_insert_with(|| Instant::now() + GRACE);
            false
        });
        if left.is_empty() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        let _ = sys::poll([ends.as_fd()], Some(LOOK));
        while sys::next_signal(ends).is_some() {}
    }
    for (_, child) in &mut left {
        let _ = child.kill().and_then(|()| child.wait().map(drop));
    }
    killed.or(failure)
}

fn rank_of(rank: u32, worker_num: u32, port: u16, words: &[OsString]) -> std::io::Result<Child> {
    let parent = std::process::id() as i32;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0("muster").arg("bench").args(words);
    job_settings::keep_from(&mut command);
    for (key, value) in [
        (Key::Role, "MS_WORKER".to_owned()),
        (Key::SchedHost, "127.0.0.1".to_owned()),
        (Key::SchedPort, port.to_string()),
        (Key::WorkerNum, worker_num.to_string()),
        (Key::NodeId, rank.to_string()),
    ] {
        command.env(format!("MUSTER_{}", key.setting().name.to_uppercase()), value);
    }
    // SAFETY: between fork and exec only calls that are safe there are made.
    unsafe { command.pre_exec(move || sys::prepare_child(Some(parent), None)) };
    command.spawn()
}
