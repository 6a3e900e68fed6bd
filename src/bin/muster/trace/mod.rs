//! `muster trace`: what the setting `trace` has written, laid beside each other on one clock.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`options`] | the words become options |
//! | [`read`] | the files of one job, line by line |
//! | [`clocks`] | how the clocks of several hosts are brought together |
//! | [`waits`] | which rank a collective waited for, and how long |
//! | [`merged`] | the file for Perfetto, and the table of the ranks that were late |
//!
//! The library writes the files (`runtime/state/trace_file`). Tested beside each module, and with real processes by
//! `tests/python/test_trace.py`.

mod clocks;
mod merged;
pub mod options;
mod read;
mod waits;

use crate::cli::help;
use crate::cli::words::{self, Asked};
use crate::code;
use crate::voice::{answer, complain, print};
use options::{Options, COMMAND, MERGE};
use std::ffi::OsString;

/// Runs it with the words after `trace`. Returns the exit code.
pub fn command(mut words: Vec<OsString>) -> i32 {
    if words.is_empty() {
        complain(help::page(&COMMAND, COMMAND.name));
        return code::USAGE;
    }
    let action = words.remove(0);
    match action.to_str() {
        Some("merge") => {}
        Some("--help" | "-h" | "help") => {
            return answer(COMMAND.name, &help::page(&COMMAND, COMMAND.name));
        }
        _ => {
            complain(format!("muster trace: there is no action {action:?}: the only action is merge\n"));
            return code::USAGE;
        }
    }
    let options = words::read(&MERGE, words).and_then(|asked| asked.then(|words| Options::of(&words)));
    match options {
        Ok(Asked::Help) => answer(MERGE.name, &help::page(&MERGE, MERGE.name)),
        Ok(Asked::With(options)) => match merge(&options).and_then(|told| print(&told)) {
            Ok(()) => 0,
            Err(why) => {
                complain(format!("muster trace merge: {why}\n"));
                code::FAILED
            }
        },
        Err(why) => {
            complain(format!("muster trace merge: {why}\nmuster trace merge --help lists the options\n"));
            code::USAGE
        }
    }
}

fn merge(options: &Options) -> Result<String, String> {
    let read::Found { mut traces, headless } = read::folder(&options.folder, options.job.as_deref())?;
    let clocks = clocks::align(&mut traces);
    let waits = waits::of(&traces);
    let output = merged::output(options, &traces);
    merged::write(&output, &traces, &waits)?;
    Ok(merged::told(&traces, &headless, &waits, &clocks, &output))
}
