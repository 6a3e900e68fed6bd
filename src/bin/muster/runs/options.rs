//! The command lines of `muster ps` and `muster stop`.

use crate::cli::table::{option, Command, Takes};
use crate::cli::words::Words;
use std::path::PathBuf;
use std::time::Duration;

/// `muster ps`.
pub const PS: Command = Command {
    name: "muster ps",
    summary: "list the runs of this host that live, and their processes",
    about: "Lists the runs of `muster run` that have processes on this host, as far as you may see those: the folder of the logs, the \
            launcher, the scheduler's port, and for each log the processes that write it. \"others\" are processes that came of the \
            run and write elsewhere.",
    options: &[option("log_dir", Takes::Directory, "all of this host", "only the runs whose logs are in this folder")],
    exit_codes: &[
        ("0", "they are listed, or there are none"),
        ("1", "the folder, or the list of runs in it, cannot be read, or standard output cannot be written"),
        ("2", "usage"),
    ],
    ..Command::BLANK
};

/// `muster stop`.
pub const STOP: Command = Command {
    name: "muster stop",
    summary: "end the run whose logs are in a folder",
    about: "Ends the processes of the run whose logs are in a folder, as far as they are on this host, and all that came of them. Workers \
            are asked first (SIGTERM). What is left of them after the grace is killed. Then the scheduler is asked. It has the rest of the \
            grace, and 1 s at least, before it is killed. What is killed is named. A run with --join is ended by its launcher.",
    options: &[
        option("log_dir", Takes::Directory, ".", "the folder of the run's logs, as `muster run` was told"),
        option("grace", Takes::Value("SECONDS"), "5", "how long workers may take to end before they are killed; 0: none. A run with \
             --join has 5 s in any case"),
    ],
    exit_codes: &[
        ("0", "the run has ended"),
        ("1", "no run lives there on this host, or some of it could not be ended"),
        ("2", "usage"),
    ],
    ..Command::BLANK
};

/// The folder that is named, if one is.
pub fn folder(words: &Words) -> Option<PathBuf> {
    words.value("log_dir").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// The run to stop, and how.
#[derive(Debug, PartialEq, Eq)]
pub struct Stop {
    /// The folder of its logs.
    pub folder: PathBuf,
    /// How long its processes may take to end.
    pub grace: Duration,
}

/// The longest grace: a day.
const GRACE_MAX: f64 = 86_400.0;

impl Stop {
    /// Makes the options from the words of the command line.
    pub fn of(words: &Words) -> Result<Stop, String> {
        let grace = words.value("grace").unwrap_or("5");
        let seconds = grace.parse::<f64>().ok().filter(|seconds| (0.0..=GRACE_MAX).contains(seconds));
        let seconds =
            seconds.ok_or_else(|| format!("--grace is {grace:?}; it must be seconds from 0 to {GRACE_MAX}"))?;
        let folder = folder(words).unwrap_or_else(|| ".".into());
        Ok(Stop { folder, grace: Duration::from_secs_f64(seconds) })
    }
}
