//! `muster ps` and `muster stop`: they show the runs of this host that live, and end one. They are for runs without
//! --join, which no launcher watches. A run with --join is shown and stopped, too.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`options`] | words become validated options |
//! | [`find`] | which runs there are, and which processes each has |
//! | [`list`] | how they are shown |
//! | [`stop`] | how one is ended |
//!
//! The folder of its logs is the only memory of a run: a list of runs elsewhere would outlive them. Tested with real
//! processes by `tests/python/test_run_stop.py`.

mod find;
mod list;
pub mod options;
mod stop;

use crate::cli::help;
use crate::cli::table::Command;
use crate::cli::words::{read, Asked, Words};
use crate::code;
use crate::voice::{answer, Voice};
use std::ffi::OsString;

/// Runs `muster ps` with the words after that. Returns the exit code.
pub fn ps(words: Vec<OsString>) -> i32 {
    command(&options::PS, words, |words| Ok(options::folder(words)), |folder| list::run(folder.as_deref()))
}

/// Runs `muster stop` with the words after that. Returns the exit code.
pub fn stop(words: Vec<OsString>) -> i32 {
    command(&options::STOP, words, options::Stop::of, |options| stop::run(&options))
}

fn command<T>(
    command: &'static Command,
    words: Vec<OsString>,
    options: impl Fn(&Words) -> Result<T, String>,
    run: impl Fn(T) -> i32,
) -> i32 {
    match read(command, words).and_then(|asked| asked.then(|words| options(&words))) {
        Ok(Asked::With(options)) => run(options),
        Ok(Asked::Help) => answer(command.name, &help::page(command, command.name)),
        Err(why) => {
            Voice::error().say(format!("{}: {why}\n{} --help lists the options\n", command.name, command.name));
            code::USAGE
        }
    }
}
