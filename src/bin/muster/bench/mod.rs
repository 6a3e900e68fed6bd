//! `muster bench`: how long collectives take, how long a cluster takes to start, and what a scheduler costs.
//!
//! Each rank is a process that makes the C ABI's calls, as a user's program does. With --worker_num this process starts
//! them, and runs the scheduler. Tested by `tests/python/test_bench.py`.

mod bootstrap;
mod calls;
mod forming;
mod measure;
mod nodes;
mod options;
mod ranks;
mod report;

use crate::code;
use calls::Rank;
use options::Options;
use std::ffi::OsString;
use std::io::Write;

/// Runs it with the words after `bench`.
pub fn command(words: Vec<OsString>) -> i32 {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if words.iter().any(|word| matches!(&word[..], "--help" | "-h")) || words.first().is_some_and(|word| word == "help")
    {
        print!("{}", options::help());
        return 0;
    }
    let outcome = match words.first().map(String::as_str) {
        Some("bootstrap") => bootstrap::command(&words[1..]),
        Some("forming") => forming::command(&words[1..]),
        _ => options::parse(&words).map_err(|why| (code::USAGE, why)).and_then(|options| run(&options, &words)),
    };
    let Err((code, why)) = outcome else { return 0 };
    eprintln!("muster bench: {why}");
    code
}

fn run(options: &Options, words: &[String]) -> Result<(), (i32, String)> {
    match options.worker_num {
        Some(worker_num) => ranks::start(worker_num, words),
        None => take_part(options).map_err(|why| (code::FAILED, why)),
    }
}

/// This process is one of the ranks.
fn take_part(options: &Options) -> Result<(), String> {
    let rank = Rank::join()?;
    let (is_first, size) = (rank.rank == 0, rank.size);
    let say = |text: &str| {
        if is_first {
            let mut out = std::io::stdout().lock();
            // A reader that has closed the output does not want to hear.
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
    };
    if size == 1 {
        let advice = "--worker_num N starts N ranks here, and under a launcher each process is one";
        eprintln!("muster bench: one rank: nothing is moved, and the times are those of a call alone; {advice}");
    }
    let (mut first, mut wrong) = (true, 0);
    say(&report::head(options, size));
    let measured = measure::measure(&rank, options, |row| {
        wrong += row.wrong.unwrap_or(0);
        say(&report::row(options, size, row, first));
        first = false;
    });
    // Also of fewer rows than were asked for JSON can be read.
    say(report::tail(options));
    measured?;
    rank.leave()?;
    match wrong {
        0 => Ok(()),
        wrong => Err(format!("{wrong} elements of the results are wrong")),
    }
}
