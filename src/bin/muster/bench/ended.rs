//! What ends a benchmark before its time, and the first thing that can end it: its command line.

use crate::cli::table::Command;
use crate::cli::words::{self, Asked, Words};
use crate::code;
use std::ffi::OsString;

/// What ends a benchmark before its time.
pub enum Ended {
    /// Help was asked for.
    Help,
    /// It ends with this code and this sentence.
    Failed(i32, String),
}

impl Ended {
    /// The command line is wrong.
    pub fn usage(why: String) -> Ended {
        Ended::Failed(code::USAGE, why)
    }

    /// What was to be measured failed.
    pub fn failed(why: String) -> Ended {
        Ended::Failed(code::FAILED, why)
    }
}

/// The options and operands of one of the benchmarks.
pub fn read(command: &'static Command, words: Vec<OsString>) -> Result<Words, Ended> {
    match words::read(command, words).map_err(Ended::usage)? {
        Asked::With(words) => Ok(words),
        Asked::Help => Err(Ended::Help),
    }
}
