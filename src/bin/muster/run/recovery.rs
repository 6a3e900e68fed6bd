//! Whether lost processes may return, as the launcher's own environment says it: what `--max_restarts` needs.

use super::hccl;
use super::parse::RunOptions;
use muster::config::{Config, Key, Settings};
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Checks the environment's recovery, and that there are no restarts without it.
pub fn check(options: &RunOptions) -> Result<(), String> {
    check_with(options, std::env::vars_os().collect(), hccl::has_rank_table())
}

fn check_with(options: &RunOptions, variables: Vec<(OsString, OsString)>, rank_table: bool) -> Result<(), String> {
    let on = is_on(variables)?;
    let restarts = options.max_restarts;
    if restarts == 0 {
        return Ok(());
    }
    if !on {
        return Err(format!(
            "--max_restarts is \"{restarts}\", but without recovery no process finds its place again: set \
             MS_ENABLE_RECOVERY=1, and MS_RECOVERY_PATH to a directory that outlives the processes, or leave the option out"
        ));
    }
    if options.rank(0).is_none() && !rank_table {
        return Err(format!(
            "--max_restarts is \"{restarts}\", but only a worker with a rank of its own finds its place again: with workers on \
             several hosts give --node_rank, too"
        ));
    }
    Ok(())
}

/// The recovery directory, if recovery is on.
pub fn directory() -> Option<PathBuf> {
    let mut config = Config::new();
    config.load_env(std::env::vars_os());
    config.recovery_directory().ok()?
}

/// The sentence about a recovery directory in which nothing can be kept.
pub fn unfit(directory: &Path, why: impl Display) -> String {
    let variable = Key::RecoveryPath.setting().usual_variable();
    format!("{variable} is {directory:?}, where nothing can be kept: {why}")
}

/// Whether recovery is on.
fn is_on(variables: Vec<(OsString, OsString)>) -> Result<bool, String> {
    settings(variables).map(|settings| settings.enable_recovery)
}

/// What the environment says of recovery. Only its own two settings are looked at: the programs that read the others
/// judge those.
fn settings(mut variables: Vec<(OsString, OsString)>) -> Result<Settings, String> {
    let keys = [Key::EnableRecovery, Key::RecoveryPath].map(Key::setting);
    variables.retain(|(name, _)| {
        keys.iter().any(|one| one.ms.iter().any(|other| name == other) || name == one.variable().as_str())
    });
    let mut config = Config::new();
    config.load_env(variables);
    // The other settings that a scheduler needs.
    for (name, value) in
        [("role", "MS_SCHED"), ("sched_host", "127.0.0.1"), ("sched_port", "1024"), ("worker_num", "1")]
    {
        config.set(name, value).map_err(|error| error.message().to_owned())?;
    }
    config.settings().map_err(|error| error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::parse::{parse, Placement};
    use super::*;
    use crate::cli::words::Asked;

    fn checked(words: &str, variables: &[(&str, &str)]) -> Result<(), String> {
        let words = words.split_whitespace().map(OsString::from).collect();
        let Ok(Asked::With(options)) = parse(words, Placement::default(), false) else {
            panic!("{words:?}", words = "a good command line")
        };
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        check_with(&options, variables, false)
    }

    const ON: [(&str, &str); 2] = [("MS_ENABLE_RECOVERY", "1"), ("MUSTER_RECOVERY_PATH", "/var/muster")];

    #[test]
    fn restarts_need_recovery_and_ranks() {
        assert_eq!(checked("--join --max_restarts=2 a", &ON), Ok(()));
        assert_eq!(checked("--join a", &[]), Ok(()));
        assert!(checked("--join --max_restarts=2 a", &[]).unwrap_err().contains("set MS_ENABLE_RECOVERY=1"));
        assert!(checked("--join --max_restarts=2 a", &ON[1..]).unwrap_err().contains("set MS_ENABLE_RECOVERY=1"));
        let hosts = "--join --max_restarts=2 --worker_num=4 --local_worker_num=2";
        assert!(checked(&format!("{hosts} a"), &ON).unwrap_err().contains("--node_rank"));
        assert_eq!(checked(&format!("{hosts} --node_rank=1 a"), &ON), Ok(()));
    }

    #[test]
    fn recovery_without_a_path_or_with_a_word_for_a_number_is_said_at_once() {
        for words in ["a", "--join --max_restarts=1 a"] {
            assert!(checked(words, &ON[..1]).unwrap_err().contains("MS_RECOVERY_PATH is not set"), "{words}");
            assert!(checked(words, &[("MS_ENABLE_RECOVERY", "yes"), ON[1]]).unwrap_err().contains("\"yes\""));
        }
        assert_eq!(checked("a", &[("MUSTER_TIMEOUT", "soon")]), Ok(()), "that is for others to judge");
    }
}
