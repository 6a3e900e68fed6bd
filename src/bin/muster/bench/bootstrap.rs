//! `muster bench bootstrap`: from the start of `muster run` until N processes have joined, passed one barrier, left and
//! ended.

use super::calls::Rank;
use super::ended::{read, Ended};
use super::job_settings;
use super::options::{count, format, Format, FORMAT};
use crate::cli::table::{option, Command as Described, Takes};
use crate::cli::words::Words;
use crate::voice::print;
use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The word before what each of the processes is told to do.
const PART: &str = "--part";

struct BootstrapOptions {
    worker_num: u32,
    iterations: u32,
    format: Format,
}

/// `muster bench bootstrap`.
pub const COMMAND: Described = Described {
    name: "muster bench bootstrap",
    summary: "time how long a cluster takes to start",
    about: "Times starting N processes with `muster run` until all have passed one barrier and ended. A start \
            before those that are timed makes the files of their logs. The logs are in the folder muster-bench-PID, \
            among the system's temporary files. It stays if a start fails, or if you interrupt the benchmark.",
    options: &[
        option("worker_num", Takes::Value("N"), "8", "how many processes to start"),
        option("iters", Takes::Value("N"), "5", "how often a start is timed").letter('n'),
        FORMAT,
    ],
    exit_codes: &[
        ("0", "all is measured"),
        ("1", "a start failed, or standard output cannot be written"),
        ("2", "usage"),
    ],
    ..Described::BLANK
};

/// Runs it with the words after `bootstrap`.
pub fn command(words: Vec<OsString>) -> Result<(), Ended> {
    if words.first().is_some_and(|word| word == PART) {
        return take_part().map_err(Ended::failed);
    }
    let options = parse(&read(&COMMAND, words)?).map_err(Ended::usage)?;
    let logs = std::env::temp_dir().join(format!("muster-bench-{}", std::process::id()));
    let mut took = Vec::new();
    // The first job makes the logs' files: that may take longer than all the rest, depending on the state of the disk's
    // file system.
    once(options.worker_num, &logs).map_err(Ended::failed)?;
    for _ in 0..options.iterations {
        took.push(once(options.worker_num, &logs).map_err(Ended::failed)?);
    }
    let _ = std::fs::remove_dir_all(&logs); // logs that nobody needs; where they stay they do no harm
    took.sort_by(f64::total_cmp);
    let (least, most) = (took[0], took[took.len() - 1]);
    let median = (took[(took.len() - 1) / 2] + took[took.len() / 2]) / 2.0;
    let (ranks, times) = (options.worker_num, options.iterations);
    let text = match options.format {
        Format::Csv => format!("ranks,iterations,median_ms,least_ms,most_ms\n{ranks},{times},{median:.1},{least:.1},{most:.1}\n"),
        Format::Json => format!(
            "{{\"ranks\":{ranks},\"iterations\":{times},\"median_ms\":{median:.1},\"least_ms\":{least:.1},\"most_ms\":{most:.1}}}\n"
        ),
        Format::Text => format!(
            "# muster run: {ranks} processes, each from its start through one barrier to its end\n{median:.1} ms \
             (median of {times}; {least:.1} to {most:.1})\n"
        ),
    };
    print(&text).map_err(Ended::failed)
}

fn parse(words: &Words) -> Result<BootstrapOptions, String> {
    Ok(BootstrapOptions {
        worker_num: count(words, "worker_num", 8, 1024)? as u32,
        iterations: count(words, "iters", 5, 1000)? as u32,
        format: format(words)?,
    })
}

/// Milliseconds of one job.
fn once(worker_num: u32, logs: &std::path::Path) -> Result<f64, String> {
    let muster = std::env::current_exe().map_err(|error| format!("where this program lies is not known: {error}"))?;
    let number = worker_num.to_string();
    let mut command = Command::new(&muster);
    command.args(["run", "--worker_num", &number, "--local_worker_num", &number, "--master_port", "0"]);
    command.args(["--join", "True", "--log_dir"]).arg(logs).arg(&muster).args(["bench", "bootstrap", PART]);
    job_settings::keep_from(&mut command);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let begun = Instant::now();
    let output = command.output().map_err(|error| format!("muster run cannot be started: {error}"))?;
    let took = begun.elapsed().as_secs_f64() * 1000.0;
    match output.status.success() {
        true => Ok(took),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("muster run failed (its logs are in {}): {said}", logs.display()))
        }
    }
}

fn take_part() -> Result<(), String> {
    let rank = Rank::join()?;
    rank.barrier()?;
    rank.leave()
}
