//! `muster bench bootstrap`: from the start of `muster run` until N processes have joined, passed one barrier, left and
//! ended.

use super::calls::Rank;
use super::options::{format_named, number, plain, take, Format, Spec};
use crate::code;
use std::process::{Command, Stdio};
use std::time::Instant;

/// What each of the processes is told to do.
const PART: &str = "--part";

struct Options {
    worker_num: u32,
    iterations: u32,
    format: Format,
}

/// Runs it with the words after `bootstrap`.
pub fn command(words: &[String]) -> Result<(), (i32, String)> {
    let failed = |why: String| (code::FAILED, why);
    if words.first().is_some_and(|word| word == PART) {
        return take_part().map_err(failed);
    }
    let options = parse(words).map_err(|why| (code::USAGE, why))?;
    let logs = std::env::temp_dir().join(format!("muster-bench-{}", std::process::id()));
    let mut took = Vec::new();
    // The first makes the logs' files, which may take longer than all the rest, by the state of a disk's file system.
    once(options.worker_num, &logs).map_err(failed)?;
    for _ in 0..options.iterations {
        took.push(once(options.worker_num, &logs).map_err(failed)?);
    }
    let _ = std::fs::remove_dir_all(&logs); // logs that nobody needs; where they stay they do no harm
    took.sort_by(f64::total_cmp);
    let (least, most) = (took[0], took[took.len() - 1]);
    let median = (took[(took.len() - 1) / 2] + took[took.len() / 2]) / 2.0;
    let (ranks, times) = (options.worker_num, options.iterations);
    match options.format {
        Format::Csv => print!("ranks,iterations,median_ms,least_ms,most_ms\n{ranks},{times},{median:.1},{least:.1},{most:.1}\n"),
        Format::Json => println!(
            "{{\"ranks\":{ranks},\"iterations\":{times},\"median_ms\":{median:.1},\"least_ms\":{least:.1},\"most_ms\":{most:.1}}}"
        ),
        Format::Text => println!(
            "# muster run: {ranks} processes, each from its start through one barrier to its end\n{median:.1} ms \
             (median of {times}; {least:.1} to {most:.1})"
        ),
    }
    Ok(())
}

const SPECS: [Spec<Options>; 3] = [
    plain(&["--worker_num"], |options, option, value| {
        number(option, value, 1, 1024).map(|it| options.worker_num = it as u32)
    }),
    plain(&["-n", "--iters"], |options, option, value| {
        number(option, value, 1, 1000).map(|it| options.iterations = it as u32)
    }),
    plain(&["--format"], |options, option, value| format_named(option, value).map(|it| options.format = it)),
];

fn parse(words: &[String]) -> Result<Options, String> {
    let mut options = Options { worker_num: 8, iterations: 5, format: Format::Text };
    take(&SPECS, words, "bench bootstrap", &mut options)?;
    Ok(options)
}

/// Milliseconds of one job.
fn once(worker_num: u32, logs: &std::path::Path) -> Result<f64, String> {
    let muster = std::env::current_exe().map_err(|error| format!("where this program lies is not known: {error}"))?;
    let number = worker_num.to_string();
    let mut command = Command::new(&muster);
    command.args(["run", "--worker_num", &number, "--local_worker_num", &number, "--master_port", "0"]);
    command.args(["--join", "True", "--log_dir"]).arg(logs).arg(&muster).args(["bench", "bootstrap", PART]);
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
