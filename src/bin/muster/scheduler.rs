//! `muster scheduler`: the scheduler as a process of its own, with the settings of the environment.
//!
//! `muster run` starts it with a listener that is bound already: MUSTER_SCHED_FD is its descriptor. Its exit code
//! tells the launcher how the job ended: 0 well, 1 broken, 3 aborted, 4 the scheduler could not begin to serve, 5 its
//! journal failed while it served, 124 forming timed out. The last line on standard error says why, after
//! [`LAST_WORDS`]. Tested by `tests/python/test_run.py`.

use crate::cli::help;
use crate::cli::table::Command;
use crate::cli::words::{read, Asked};
use crate::code;
use crate::voice::{answer, Voice};
use muster::config::{Config, Key, Settings};
use muster::error::{Error, Result, Status};
use muster::runtime;
use std::ffi::OsString;

/// The beginning of the line in which a scheduler says why its job failed. The launcher looks for it in the log.
pub const LAST_WORDS: &str = "muster scheduler: ";

/// `muster scheduler`.
pub const COMMAND: Command = Command {
    name: "muster scheduler",
    summary: "be the scheduler that the environment describes",
    about: "Forms the cluster that the environment describes (MS_SCHED_HOST, MS_SCHED_PORT, MS_WORKER_NUM, ...) and serves \
            it until the job ends. With MUSTER_SCHED_FD it serves on that listening descriptor instead of binding the \
            address.",
    exit_codes: &[
        ("0", "the job ended well"),
        ("1", "it broke"),
        ("2", "usage"),
        ("3", "a node aborted it"),
        ("4", "the scheduler could not begin to serve it (its settings, its port, its recovery directory)"),
        (
            "5",
            "its journal could not be written any more (started again once the disk is mended it goes on with the job)",
        ),
        ("124", "forming timed out"),
    ],
    ..Command::BLANK
};

/// Runs it with the words after `scheduler`.
pub fn command(words: Vec<OsString>) -> i32 {
    match read(&COMMAND, words) {
        Ok(Asked::With(_)) => serve(),
        Ok(Asked::Help) => {
            let settings = muster::config::settings_help();
            let page = help::page(&COMMAND, COMMAND.name);
            answer(COMMAND.name, &format!("{page}\nSettings, for all processes of a cluster:\n{settings}"))
        }
        Err(why) => {
            Voice::error().say(format!("{LAST_WORDS}{why}: everything is in the environment\n"));
            code::USAGE
        }
    }
}

fn serve() -> i32 {
    let serving = match settings().and_then(|settings| runtime::serving(&settings)) {
        Ok(serving) => serving,
        Err(error) => return fail(&error, code::UNABLE),
    };
    let Err(error) = serving.run() else { return 0 };
    let code = match (error.status(), error.failure()) {
        (Status::Aborted, _) => code::ABORTED,
        // A scheduler waits within a time only for forming; a job that broke has a first cause.
        (Status::Timeout, None) => code::FORMING,
        (Status::Journal, None) => code::JOURNAL,
        (_, None) => code::UNABLE,
        (_, Some(_)) => code::FAILED,
    };
    fail(&error, code)
}

/// Says in one line why the job failed, as the launcher reads it.
fn fail(error: &Error, code: i32) -> i32 {
    Voice::error().say(format!("{LAST_WORDS}{}\n", error.to_string().replace('\n', " ")));
    code
}

fn settings() -> Result<Settings> {
    let mut config = Config::new();
    config.load_env(std::env::vars_os());
    config.set(Key::Role.setting().name, "MS_SCHED")?;
    config.settings()
}
