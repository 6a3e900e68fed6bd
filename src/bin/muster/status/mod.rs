//! `muster status`: how the job of a live scheduler is, as that scheduler tells it.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`options`] | words and environment become validated options |
//! | [`ask`] | the question, and the answer or why there is none |
//! | [`told`] | what an answer holds |
//! | [`text`], [`json`], [`prometheus`] | how it is shown |
//! | [`watch`] | once, or again and again; on standard output, or in a file |
//!
//! Tested beside each module, and with real processes by `tests/python/test_status.py`.

pub mod ask;
mod json;
pub mod options;
mod prometheus;
pub mod text;
pub mod told;
pub mod watch;

use crate::cli::help;
use crate::cli::words::Asked;
use crate::code;
use crate::voice::{answer, complain};
use std::ffi::OsString;

/// Runs it with the words after `status`. Returns the exit code.
pub fn command(words: Vec<OsString>) -> i32 {
    let options = match options::parse(words, std::env::vars_os()) {
        Ok(Asked::With(options)) => options,
        Ok(Asked::Help) => {
            return answer(options::COMMAND.name, &help::page(&options::COMMAND, options::COMMAND.name));
        }
        Err(why) => {
            complain(format!("muster status: {why}\nmuster status --help lists the options\n"));
            return code::USAGE;
        }
    };
    watch::run(&options)
}
