//! Whether the scheduler will be able to read the thresholds of the launcher's own environment, which it inherits. An
//! error is told before anything is started, and not in the scheduler's log.

use muster::config::{Config, Key};
use muster::error::Result;
use muster::runtime;
use std::ffi::OsString;

/// What is wrong with them.
pub fn check() -> Result<(), String> {
    check_with(std::env::vars_os()).map_err(|error| error.message().to_owned())
}

/// Looks only at this one setting: the programs that read the others judge those.
fn check_with(variables: impl Iterator<Item = (OsString, OsString)>) -> Result<()> {
    let own = Key::Thresholds.setting().variable();
    let mut config = Config::new();
    config.load_env(variables.filter(|(name, _)| name == own.as_str()));
    // The other settings that a scheduler needs.
    for (name, value) in
        [("role", "MS_SCHED"), ("sched_host", "127.0.0.1"), ("sched_port", "1024"), ("worker_num", "1")]
    {
        config.set(name, value)?;
    }
    runtime::check_thresholds(&config.settings()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(variables: &[(&str, &str)]) -> Result<(), String> {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        check_with(variables).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn a_threshold_that_is_none_is_refused_by_its_variable() {
        assert_eq!(checked(&[]), Ok(()));
        assert_eq!(checked(&[("MUSTER_THRESHOLDS", "barrier_tree_ranks=8"), ("MUSTER_TIMEOUT", "soon")]), Ok(()));
        for (wrong, said) in [
            ("allreduce_tree_bytes=64K", "MUSTER_THRESHOLDS has \"allreduce_tree_bytes=64K\" in it: \"64K\" is not"),
            (" ", "MUSTER_THRESHOLDS is \" \": expected 1 to 4096 bytes"),
        ] {
            let error = checked(&[("MUSTER_THRESHOLDS", wrong)]).unwrap_err();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
