//! The command line's one table: what each command takes, and all that is made of it.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`table`] | how a command and its options are described |
//! | [`words`] | the parser: words become options, values and operands |
//! | [`help`] | what `--help` prints |
//! | [`man`] | the manual page |
//! | [`completion`] | what a shell completes |
//!
//! Each command describes itself beside its code (`run::options`, `bench::options`, `status::options`, ...), and checks
//! what its values mean. A new option is one line there.
//! Tested beside each module; `tests/python/test_command_line.py` renders the page and completes words in a real shell.

pub mod completion;
pub mod help;
pub mod man;
pub mod table;
pub mod words;

use crate::code;
use crate::voice::{self, Voice};
use std::ffi::OsString;
use table::{Command, Operands};
use words::{read, Asked};

/// `muster man`.
pub const MAN: Command = Command {
    name: "muster man",
    summary: "print the manual page",
    about: "Prints the manual page muster(1) in roff: `muster man | man -l -` shows it. `make install` installs it.",
    ..Command::BLANK
};

/// `muster completion`.
pub const COMPLETION: Command = Command {
    name: "muster completion",
    operands: Operands::One { called: "shell", among: completion::SHELLS },
    summary: "print what makes a shell complete this command's words",
    about:
        "Prints a script that makes the shell complete commands, options and their values: `source <(muster completion \
            bash)`, the same with zsh, or `muster completion fish | source`. `make install` installs all three.",
    ..Command::BLANK
};

/// Runs `muster man` or `muster completion` with the words after that: about these commands. Returns the exit code.
pub fn print(command: &'static Command, words: Vec<OsString>, commands: &[&'static Command]) -> i32 {
    if words.first().is_some_and(|word| word == completion::ANSWER) {
        return voice::answer(command.name, &completion::answer(commands));
    }
    let text = match read(command, words) {
        Ok(Asked::Help) => Ok(help::page(command, command.name)),
        Ok(Asked::With(words)) => match (command.operands, words.operands.first()) {
            (Operands::One { .. }, Some(shell)) => completion::script(shell)
                .ok_or_else(|| format!("there is no script for {shell:?}: expected bash, zsh or fish")),
            (Operands::One { .. }, None) => Err("for which shell? expected bash, zsh or fish".to_owned()),
            _ => Ok(man::page(commands)),
        },
        Err(why) => Err(why),
    };
    match text {
        Ok(text) => voice::answer(command.name, &text),
        Err(why) => {
            Voice::error().say(format!("{}: {why}\n", command.name));
            code::USAGE
        }
    }
}
