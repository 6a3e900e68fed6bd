//! The command `muster`.
//!
//! What it owns: the command line, and what `muster run` starts. [`run`] is the launcher, [`runs`] lists and stops what it
//! has started, [`scheduler`] is the scheduler as a process of its own, [`status`] and [`ranktable`] ask one, [`trace`] joins timelines, [`certs`] makes certificates.
//! Everything about clusters is the library's; nothing here knows a frame or a rank rule.
//! Called by the name `msrun` it is `muster run`.

#![warn(unsafe_op_in_unsafe_fn)]
// These macros panic if nobody reads what they print: see `voice`.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(all(target_env = "gnu", not(test)), no_main)]

mod bench;
mod certs;
mod cli;
mod code;
mod ranktable;
mod run;
mod runs;
mod scheduler;
mod start;
mod status;
mod sys;
mod trace;
mod voice;
mod whole;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use voice::complain;

// Loading libgcc_s takes longer than starting a C program that does nothing, and the command needs only its unwinder.
// The library keeps libgcc_s: an unwinder that belongs elsewhere may walk through the library's frames, and the two
// must agree.
#[cfg_attr(static_unwinder, link(name = "gcc_eh", kind = "static", modifiers = "-bundle"))]
extern "C" {}

/// All commands, in the order of the help.
const COMMANDS: [&cli::table::Command; 21] = [
    &run::options::COMMAND,
    &runs::options::PS,
    &runs::options::STOP,
    &bench::options::COMMAND,
    &bench::bootstrap::COMMAND,
    &bench::forming::COMMAND,
    &bench::iallreduce::COMMAND,
    &bench::store::COMMAND,
    &scheduler::COMMAND,
    &status::options::COMMAND,
    &ranktable::COMMAND,
    &trace::options::COMMAND,
    &trace::options::MERGE,
    &certs::options::COMMAND,
    &certs::options::NEW,
    &certs::options::NODE,
    &certs::options::REVOKE,
    &certs::options::SHOW,
    &certs::options::CHECK,
    &cli::MAN,
    &cli::COMPLETION,
];

/// The program's start, as C has it. Rust's own start would first read the process's whole memory map, to be able to
/// name a stack that overflows: that takes a tenth of a millisecond. (With other C libraries only Rust's own start
/// knows the arguments.)
#[cfg(all(target_env = "gnu", not(test)))]
#[no_mangle]
extern "C" fn main(_count: std::ffi::c_int, _words: *const *const std::ffi::c_char) -> std::ffi::c_int {
    std::process::exit(prepared())
}

#[cfg(all(not(target_env = "gnu"), not(test)))]
fn main() {
    std::process::exit(prepared());
}

/// Does the rest of what Rust's own start does, then what the command was called for.
#[cfg_attr(test, allow(dead_code))]
fn prepared() -> i32 {
    sys::open_standard_streams();
    sys::ignore_broken_pipes();
    sys::hear_of_children();
    std::panic::catch_unwind(command).unwrap_or(code::PANICKED)
}

fn command() -> i32 {
    let mut words = std::env::args_os();
    let called = words.next().unwrap_or_default();
    let words: Vec<OsString> = words.collect();
    dispatch(&called, words)
}

fn dispatch(called: &OsStr, mut words: Vec<OsString>) -> i32 {
    if Path::new(called).file_name() == Some(OsStr::new("msrun")) {
        return run::run("msrun", words);
    }
    if words.is_empty() {
        complain(cli::help::overview(&COMMANDS));
        return code::USAGE;
    }
    let command = words.remove(0);
    match command.to_str() {
        Some("run") => run::run("muster run", words),
        // A script of the wheel's calls it so, for it cannot call it by another name.
        Some("msrun") => run::run("msrun", words),
        Some("ps") => runs::ps(words),
        Some("stop") => runs::stop(words),
        Some("bench") => bench::command(words),
        Some("scheduler") => scheduler::command(words),
        Some("status") => status::command(words),
        Some("ranktable") => ranktable::command(words),
        Some("trace") => trace::command(words),
        Some("certs") => certs::command(words),
        Some("host-part") => run::hosts::part::command(words),
        Some(run::keeper::NAME) => run::keeper::command(&words),
        Some("man") => cli::print(&cli::MAN, words, &COMMANDS),
        Some("completion") => cli::print(&cli::COMPLETION, words, &COMMANDS),
        Some("help") if !words.is_empty() => {
            words.push("--help".into());
            dispatch(called, words)
        }
        Some("--help" | "-h" | "help") => voice::answer("muster", &cli::help::overview(&COMMANDS)),
        Some("--version" | "-V") => voice::answer("muster", concat!("muster ", env!("CARGO_PKG_VERSION"), "\n")),
        _ => {
            let command = command.to_string_lossy();
            complain(format!(
                "muster: there is no command {command:?}: the commands are run, ps, stop, bench, scheduler, status, ranktable, trace, \
                 certs, man, completion, --help and --version\n"
            ));
            code::USAGE
        }
    }
}
