//! `--rank_table_file`: it does the same as `RANK_TABLE_FILE` in the launcher's environment. A table that is not right
//! is refused before anything is started.

use super::parse::{RankTable, RunOptions};
use muster::config::{Config, Key};
use muster::runtime;
use std::path::Path;

/// Takes the option's table, if there is one, for all that is started here.
pub fn take(options: &RunOptions) -> Result<(), String> {
    let RankTable::File(path) = &options.rank_table else { return Ok(()) };
    check(path, options.worker_num)?;
    let setting = Key::RankTableFile.setting();
    std::env::remove_var(setting.variable());
    setting.others.iter().for_each(|name| std::env::set_var(name, path));
    Ok(())
}

/// Checks that this is a table of so many workers, as its readers see it.
fn check(path: &Path, worker_num: u32) -> Result<(), String> {
    let told = |error: muster::error::Error| format!("--{}", error.message());
    let (path, workers) = (path.to_string_lossy(), worker_num.to_string());
    let mut config = Config::new();
    // A scheduler only looks whether the table is right.
    for (name, value) in [("role", "MS_SCHED"), ("sched_host", "127.0.0.1"), ("sched_port", "1024")] {
        config.set(name, value).map_err(told)?;
    }
    config.set("worker_num", &workers).map_err(told)?;
    config.set("rank_table_file", &path).map_err(told)?;
    let mut settings = config.settings().map_err(told)?;
    runtime::take_rank(&mut settings).map_err(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tree_test::Tree;

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
            assert!(error.starts_with("--rank_table_file is ") && error.contains(said), "{error}");
        }
    }
}
