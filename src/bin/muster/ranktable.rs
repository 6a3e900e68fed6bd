//! `muster ranktable`: the HCCL rank table, version 1.0, of a cluster that has formed, from its live scheduler.
//!
//! The question is that of `muster status`. The text is made where `muster_rank_table` makes it, and is the same except
//! for the line's end.
//! Deliberately not here: waiting for a cluster to form. A script asks again.
//! Tested below, and with real processes by `tests/python/test_rank_table.py`.

use crate::cli::help;
use crate::cli::table::{option, Command, Takes};
use crate::cli::words::{read, Asked};
use crate::code;
use crate::status::ask::ask;
use crate::status::options::{Whom, SCHED_HOST, SCHED_PORT, TIMEOUT};
use crate::status::text::{name_of_phase, plain};
use crate::status::told::Told;
use crate::voice::{answer, complain, put_out, unwritten};
use crate::whole;
use muster::config::{rank_table_text, DeviceEntry};
use muster::types::Role;
use muster::wire::{JobPhase, StatusNode};
use std::ffi::OsString;
use std::path::PathBuf;

/// `muster ranktable`.
pub const COMMAND: Command = Command {
    name: "muster ranktable",
    summary: "write the HCCL rank table of a cluster that has formed",
    about: "Asks a live scheduler where its workers are, and writes the HCCL rank table, version 1.0, of its cluster: JSON, with a \
            server for each host and a device for each worker. It is the text that muster_rank_table gives in the cluster. A \
            device is the worker's DEVICE_ID, or its local rank. A later run takes the same ranks from the file by \
            RANK_TABLE_FILE. To ask costs the job nothing.",
    options: &[
        SCHED_HOST,
        SCHED_PORT,
        TIMEOUT,
        option("output", Takes::Value("FILE"), "standard output", "write the table to this file, whole and at once"),
    ],
    exit_codes: &[
        ("0", "the table is written"),
        (
            "1",
            "there is none to write: the cluster has not formed, is broken or leaves, or two workers of a host have one \
             device; or --output, or standard output, cannot be written",
        ),
        ("2", "usage"),
        ("4", "no scheduler has answered; muster status --help says why that may be"),
    ],
    ..Command::BLANK
};

/// Runs it with the words after `ranktable`. Returns the exit code.
pub fn command(words: Vec<OsString>) -> i32 {
    let asked = read(&COMMAND, words).and_then(|asked| {
        asked.then(|words| {
            let output = words.file("output")?;
            Ok((Whom::of(&words, std::env::vars_os())?, output))
        })
    });
    match asked {
        Ok(Asked::With((whom, output))) => written(&whom, output).unwrap_or_else(|(code, why)| {
            complain(format!("muster ranktable: {}\n", plain(&why)));
            code
        }),
        Ok(Asked::Help) => answer(COMMAND.name, &help::page(&COMMAND, COMMAND.name)),
        Err(why) => {
            complain(format!("muster ranktable: {why}\nmuster ranktable --help lists the options\n"));
            code::USAGE
        }
    }
}

/// Asks, and puts the table where it is wanted. An error is an exit code and the words for it.
fn written(whom: &Whom, output: Option<PathBuf>) -> Result<i32, (i32, String)> {
    let told = ask(&whom.host, whom.port, whom.timeout, |_| true).map_err(|why| (code::UNABLE, why.words))?;
    let text = table(&told).map_err(|why| (code::FAILED, format!("no rank table can be made: {why}")))?;
    match output {
        Some(path) => whole::replace_text(&path, &text).map_err(|error| {
            let why = format!("--output is {:?}, which cannot be written: {error}", path.display().to_string());
            (code::FAILED, why)
        })?,
        // Half a table is none: a reader that has closed the output is an error, too.
        None => put_out(&text).map_err(|error| (code::FAILED, unwritten(&error)))?,
    }
    Ok(0)
}

/// The table of the cluster that was told of, with a line's end.
fn table(told: &Told) -> Result<String, String> {
    let job = &told.job;
    if job.phase != JobPhase::Running {
        let (phase, words) = (name_of_phase(job.phase), &job.words);
        return Err(format!("the job at {} is {phase} ({words}): expected a cluster that is whole", told.address));
    }
    let workers = told.nodes.iter().filter(|node| node.who.role == Role::Worker);
    let mut entries: Vec<DeviceEntry> = workers.map(entry).collect::<Option<_>>().ok_or("a worker has no rank")?;
    entries.sort_by_key(|entry| entry.rank);
    Ok(rank_table_text(&entries)? + "\n")
}

/// A worker as the table has it; nothing if it has no rank.
fn entry(node: &StatusNode) -> Option<DeviceEntry> {
    let place = node.place.as_ref()?;
    Some(DeviceEntry {
        rank: node.who.rank?,
        node_id: node.who.node_id.clone(),
        host: node.who.host.clone(),
        host_key: place.host_key.clone(),
        address: place.address.map(|address| address.ip()),
        device: place.device.id.unwrap_or(place.local_rank),
        device_ip: place.device.ip,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::told::testing::told;

    #[test]
    fn a_worker_has_its_device_and_a_server_none() {
        let mut told = told();
        told.nodes[1].place.as_mut().expect("all have one").device.id = None;
        let mut server = told.nodes[0].clone();
        server.who.role = Role::Server;
        told.nodes.push(server);
        let table: serde_json::Value = serde_json::from_str(&table(&told).expect("it is whole")).expect("JSON");
        let devices = serde_json::json!([{"device_id": "7", "rank_id": "0"}, {"device_id": "1", "rank_id": "1"}]);
        assert_eq!(
            (&table["server_list"][0]["server_id"], &table["server_list"][0]["device"]),
            (&"10.0.0.1".into(), &devices)
        );
        assert_eq!(table["server_count"], "1");
    }

    #[test]
    fn what_is_not_whole_has_none() {
        let mut told = told();
        for phase in [JobPhase::Forming, JobPhase::Broken, JobPhase::Recovering, JobPhase::Ending] {
            told.job.phase = phase;
            let error = table(&told).unwrap_err();
            let expected =
                format!("the job at 127.0.0.1:8118 is {} (2 workers): expected a cluster", name_of_phase(phase));
            assert!(error.starts_with(&expected), "{error}");
        }
        told.job.phase = JobPhase::Running;
        told.nodes[1].place.as_mut().expect("all have one").device.id = Some(7);
        assert!(table(&told).unwrap_err().contains("both work with device 7"));
    }
}
