//! Shows runs: a line for each, and a row for each log.

use super::find::{in_folder, on_this_host, Found, Processes};
use crate::code;
use crate::status::text::plain;
use crate::voice::{print, Voice};
use muster::net::host;
use std::collections::BTreeSet;
use std::path::Path;

/// Shows the runs of this folder, or of this host.
pub fn run(folder: Option<&Path>) -> i32 {
    let found = match folder.map(in_folder) {
        None => on_this_host(),
        Some(Ok(found)) => found,
        Some(Err(why)) => {
            Voice::error().say(format!("muster ps: {why}\n"));
            return code::FAILED;
        }
    };
    let text = match &found[..] {
        [] => "no run lives here\n".to_owned(),
        found => found.iter().map(shown).collect::<Vec<_>>().join("\n"),
    };
    match print(&text) {
        Ok(()) => 0,
        Err(why) => {
            Voice::error().say(format!("muster ps: {why}\n"));
            code::FAILED
        }
    }
}

fn shown(run: &Found) -> String {
    let Found { folder, tenant } = run;
    let joins = if tenant.joins() { ", started with --join" } else { "" };
    let mut text = line(&format!("{}: {}{joins}", folder.display(), tenant.named(folder)));
    if !run.is_here() {
        return text + &line(&format!("  its processes are on host {}", tenant.host()));
    }
    let Processes { logs, others } = run.processes();
    text += &row(["LOG", "PROCESSES", "FOR"]);
    for (log, writers) in &logs {
        text += &match writers.iter().filter_map(|pid| age(*pid)).max() {
            Some(seconds) => row([log, &pids(writers), &format!("{seconds} s")]),
            None => row([log, "ended", ""]),
        };
    }
    if !others.is_empty() {
        text += &row(["others", &pids(&others), ""]);
    }
    text
}

fn pids(pids: &BTreeSet<i32>) -> String {
    pids.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")
}

fn row([log, processes, age]: [&str; 3]) -> String {
    line(format!("  {log:16}  {processes:16}  {age}").trim_end())
}

fn line(words: &str) -> String {
    plain(words) + "\n"
}

/// How many seconds ago a process was started.
fn age(pid: i32) -> Option<u64> {
    let ticks = u32::try_from(pid).ok().map(host::start_ticks).filter(|ticks| *ticks > 0)?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    Some((uptime - ticks as f64 / 100.0).max(0.0) as u64) // the kernel counts hundredths of a second for every program
}
