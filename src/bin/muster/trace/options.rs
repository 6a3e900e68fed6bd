//! The command line of `muster trace merge`.

use crate::cli::table::{option, Command, Operands, Takes};
use crate::cli::words::Words;
use std::path::PathBuf;

/// `muster trace`.
pub const COMMAND: Command = Command {
    name: "muster trace",
    operands: Operands::One { called: "action", among: &["merge"] },
    summary: "what to do with the files of MUSTER_TRACE",
    about: "A run with MUSTER_TRACE=DIR leaves one file for each rank in DIR: when it called, began and ended each collective. \
            `muster trace merge DIR` makes one file of them, which https://ui.perfetto.dev and chrome://tracing open.",
    ..Command::BLANK
};

/// `muster trace merge`.
pub const MERGE: Command = Command {
    name: "muster trace merge",
    operands: Operands::One { called: "DIR", among: &[] },
    summary: "join the files of all ranks on one clock, and say which rank was late",
    about: "Joins the files that a run with MUSTER_TRACE=DIR has left, also those of ranks that were killed. All times are put \
            on one clock, and each collective tells for which rank it waited and how long. Prints how long each rank was in \
            collectives, how long it waited there, and for how long others waited for it.",
    options: &[
        option("job", Takes::Value("JOB"), "the only one", "which job, if the folder has several: the name's first digits"),
        option("output", Takes::Value("FILE"), "DIR/JOB.json", "where the joined trace goes"),
    ],
    exit_codes: &[
        ("0", "the file is written"),
        ("1", "a file, or standard output, cannot be read or written, or is no trace"),
        ("2", "usage"),
    ],
    ..Command::BLANK
};

/// What to join, and where to.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// Where the ranks' files are.
    pub folder: PathBuf,
    /// How the job's name begins.
    pub job: Option<String>,
    /// Where the joined trace goes; into the folder where it is not set.
    pub output: Option<PathBuf>,
}

impl Options {
    /// Makes the options from the words of the command line.
    pub fn of(words: &Words) -> Result<Options, String> {
        let folder = words.operands.first().filter(|folder| !folder.is_empty());
        let folder = folder.ok_or("which folder? expected the one that MUSTER_TRACE named")?.into();
        let job = words.value("job").map(str::to_owned);
        Ok(Options { folder, job, output: words.file("output")? })
    }
}
