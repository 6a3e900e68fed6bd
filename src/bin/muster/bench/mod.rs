//! `muster bench`: how long collectives and calls on the store take, how long a cluster takes to start, and what a scheduler costs.
//!
//! Each rank is a process that makes the C ABI's calls, as a user's program does. With --worker_num this process starts
//! them, and runs the scheduler. Tested by `tests/python/test_bench.py`.

pub mod bootstrap;
mod calls;
mod ended;
pub mod forming;
pub mod iallreduce;
mod job_settings;
mod measure;
mod nodes;
pub mod options;
mod plot;
mod ranks;
mod report;
pub mod store;

use crate::cli::help;
use crate::cli::table::Command;
use crate::voice::{answer, complain, print, Voice};
use calls::Rank;
use ended::{read, Ended};
use options::{Format, Options};
use plot::Plot;
use std::ffi::OsString;

/// What `muster bench` is, and its kinds that are no collective.
const PAGES: [&Command; 5] =
    [&options::COMMAND, &bootstrap::COMMAND, &forming::COMMAND, &iallreduce::COMMAND, &store::COMMAND];

/// Runs it with the words after `bench`.
pub fn command(words: Vec<OsString>) -> i32 {
    let outcome = match words.first().and_then(|word| word.to_str()) {
        Some("bootstrap") => bootstrap::command(words[1..].to_vec()),
        Some("forming") => forming::command(words[1..].to_vec()),
        Some("iallreduce") => iallreduce::command(words[1..].to_vec()),
        Some("store") => store::command(words[1..].to_vec()),
        Some("help") => Err(Ended::Help),
        _ => collective(words),
    };
    match outcome {
        Ok(()) => 0,
        Err(Ended::Help) => answer("muster bench", &PAGES.map(|page| help::page(page, page.name)).join("\n")),
        Err(Ended::Failed(code, why)) => {
            Voice::error().say(format!("muster bench: {why}\n"));
            code
        }
    }
}

fn collective(words: Vec<OsString>) -> Result<(), Ended> {
    let words = read(&options::COMMAND, words)?;
    let options = options::parse(&words).map_err(Ended::usage)?;
    match options.worker_num {
        Some(worker_num) => {
            options.plot.as_ref().map_or(Ok(()), Plot::check).map_err(Ended::failed)?;
            ranks::start(worker_num, &ranks::of_a_rank(None, &words))
        }
        None => take_part(&options).map_err(Ended::failed),
    }
}

/// This process is one of the ranks.
fn take_part(options: &Options) -> Result<(), String> {
    let rank = Rank::join()?;
    let (is_first, size) = (rank.rank == 0, rank.size);
    if let (true, Some(plot)) = (is_first, &options.plot) {
        plot.check()?; // before anything is measured: the other ranks are told that this one has gone
    }
    let mut said = Ok(());
    let mut say = |text: &str| {
        if is_first && said.is_ok() {
            said = print(text);
        }
    };
    if size == 1 {
        let advice = "--worker_num N starts N ranks here, and under a launcher each process is one";
        complain(format!(
            "muster bench: one rank: nothing is moved, and the times are those of a call alone; {advice}\n"
        ));
    }
    let (mut first, mut wrong) = (true, 0);
    let as_csv = Options { format: Format::Csv, ..options.clone() };
    let mut table = report::head(&as_csv, size);
    say(&report::head(options, size));
    let measured = measure::measure(&rank, options, |row| {
        wrong += row.wrong.unwrap_or(0);
        say(&report::row(options, size, row, first));
        table += &report::row(&as_csv, size, row, first);
        first = false;
    });
    // JSON must be readable even if there are fewer rows than were asked for.
    say(report::tail(options));
    measured?;
    rank.leave()?;
    said?;
    if let (true, Some(plot)) = (is_first, &options.plot) {
        plot.draw(&table)?;
    }
    match wrong {
        0 => Ok(()),
        wrong => Err(format!("{wrong} elements of the results are wrong")),
    }
}
