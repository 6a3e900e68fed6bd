//! `muster status`: how the job of a live scheduler is, as that scheduler tells it.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`options`] | words and environment become validated options |
//! | [`ask`] | the question, and the answer or why there is none |
//! | [`told`] | what an answer holds |
//! | [`text`], [`json`] | how it is shown |
//!
//! Tested beside each module, and with real processes by `tests/python/test_status.py`.

pub mod ask;
mod json;
pub mod options;
pub mod text;
pub mod told;

use crate::cli::help;
use crate::cli::words::Asked;
use crate::code;
use crate::voice::Voice;
use options::Format;
use std::ffi::OsString;
use std::io::Write;

/// Runs it with the words after `status`. Returns the exit code.
pub fn command(words: Vec<OsString>) -> i32 {
    let options = match options::parse(words, std::env::vars_os()) {
        Ok(Asked::With(options)) => options,
        Ok(Asked::Help) => {
            Voice::output().say(help::page(&options::COMMAND, options::COMMAND.name));
            return 0;
        }
        Err(why) => {
            eprintln!("muster status: {why}\nmuster status --help lists the options");
            return code::USAGE;
        }
    };
    match ask::ask(&options.host, options.port, options.timeout, |_| true) {
        Ok(told) => {
            let shown = match options.format {
                Format::Text => text::shown(&told),
                Format::Json => json::shown(&told),
            };
            let mut out = std::io::stdout().lock();
            // A reader that has closed the output does not want to hear.
            let _ = out.write_all(shown.as_bytes()).and_then(|()| out.flush());
            0
        }
        Err(why) => {
            eprintln!("muster status: {}", text::plain(&why.words));
            code::UNABLE
        }
    }
}
