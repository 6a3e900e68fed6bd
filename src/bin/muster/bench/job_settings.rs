//! The settings that are the user's job's, and that a benchmark leaves out where it starts processes of its own.
//!
//! A shell from which a job is started has them in its environment. A benchmark is no part of that job: it must not go on with the
//! job's journal, wait for its servers, or take the place of one of its processes. All other settings count, such as those
//! for how data is moved, and for what protects it. Tested below, and with real processes by `tests/python/test_bench.py`.

use muster::config::{Key, Setting};
use std::ffi::{OsStr, OsString};
use std::process::Command;

const OF_THE_JOB: [Key; 12] = [
    Key::SchedBind,
    Key::SchedFd,
    Key::ServerNum,
    Key::RankId,
    Key::DeviceId,
    Key::DeviceIp,
    Key::RankTableFile,
    Key::Advertise,
    Key::HcclCmInit,
    Key::LaunchId,
    Key::EnableRecovery,
    Key::RecoveryPath,
];

fn is_one(variable: &OsStr) -> bool {
    let setting = variable.to_str().and_then(Setting::of_variable);
    setting.is_some_and(|setting| OF_THE_JOB.contains(&setting.key))
}

/// These variables without those of the job.
pub fn without(variables: impl Iterator<Item = (OsString, OsString)>) -> impl Iterator<Item = (OsString, OsString)> {
    variables.filter(|(name, _)| !is_one(name))
}

/// Keeps those of the job from a command that inherits this process's variables.
pub fn keep_from(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_one(name)) {
        command.env_remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_jobs_is_left_out_by_each_of_its_names() {
        let kept = ["MUSTER_SHM", "MS_NODE_TIMEOUT", "MUSTER_JOB_SECRET", "MUSTER_TRACE", "MUSTER_IFNAME", "PATH"];
        let left_out = ["MS_ENABLE_RECOVERY", "MUSTER_ENABLE_RECOVERY", "MS_RECOVERY_PATH", "RANK_TABLE_FILE"];
        let left_out = [&left_out[..], &["MS_SERVER_NUM", "MUSTER_SCHED_BIND", "RANK_ID", "DEVICE_ID"]].concat();
        let all = left_out.iter().chain(&kept).map(|name| (OsString::from(name), OsString::from("1")));
        assert_eq!(without(all).map(|(name, _)| name).collect::<Vec<_>>(), kept);
    }
}
