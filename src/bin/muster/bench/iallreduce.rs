//! `muster bench iallreduce`: what a call that does not wait costs, and how much of it goes on while the program computes.
//!
//! Overlap means the same as in the OSU micro-benchmarks (osu_iallreduce). The same call is timed with its wait alone,
//! and then with as much computing between call and wait. Each rank computes until that time is over, by the clock, and
//! looks at nothing meanwhile.

use super::calls::{Buffers, Rank};
use super::ended::{read, Ended};
use super::measure::{agreed, fill, wrong_elements, zeros, SPAN_S};
use super::options::{
    check_elements, count, dtype, format, sizes, Collective, Format, Options, Root, BEGIN, DTYPE, END, FACTOR, FORMAT,
    ITERS, SIZES, USAGE, WARMUP, WORKER_NUM,
};
use super::ranks;
use crate::cli::table::Command;
use crate::cli::words::Words;
use crate::voice::print;
use muster::types::ReduceOp;
use std::ffi::OsString;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// `muster bench iallreduce`.
pub const COMMAND: Command = Command {
    name: "muster bench iallreduce",
    summary: "time an allreduce that goes on while the program computes",
    about: "Times muster_iallreduce with its wait, size by size, then with computing between the two, and checks the result. Beside it \
            stands the call that waits, muster_allreduce.",
    options: &[WORKER_NUM, BEGIN, END, FACTOR, SIZES, ITERS, WARMUP, DTYPE, FORMAT],
    notes: "A size is what one rank contributes. Times are means of all calls and ranks, in microseconds, and a barrier stands before \
            each call, outside its time. wait is the call and its wait alone. compute is as long as that. overall is call, computing \
            and wait. overlap is 100 - 100 * (overall - compute) / wait, and at least 0: 100 means that the call costs a program \
            nothing that has so much to compute.",
    exit_codes: &[
        ("0", "all is measured, and no result is wrong"),
        ("1", "a rank failed, a result has wrong elements, or standard output cannot be written"),
        USAGE,
    ],
    ..Command::BLANK
};

/// Runs it with the words after `iallreduce`.
pub fn command(words: Vec<OsString>) -> Result<(), Ended> {
    let words = read(&COMMAND, words)?;
    let options = parse(&words).map_err(Ended::usage)?;
    match options.worker_num {
        None => take_part(&options).map_err(Ended::failed),
        Some(worker_num) => ranks::start(worker_num, &ranks::of_a_rank(Some("iallreduce"), &words)),
    }
}

fn parse(words: &Words) -> Result<Options, String> {
    let times = |name, otherwise| count(words, name, otherwise, 1_000_000).map(|times| times as u32);
    let options = Options {
        collective: Collective::Allreduce,
        name: "iallreduce",
        worker_num: words
            .get("worker_num")
            .map(|_| count(words, "worker_num", 1, 1024))
            .transpose()?
            .map(|it| it as u32),
        sizes: sizes(words, Collective::Allreduce)?,
        iterations: words.get("iters").map(|_| times("iters", 1)).transpose()?,
        warmup: times("warmup", 5)?,
        check: true,
        dtype: dtype(words)?,
        op: ReduceOp::Sum,
        root: Root::Fixed(0),
        in_place: true,
        barrier: false,
        format: format(words)?,
        plot: None,
    };
    check_elements(&options)?;
    Ok(options)
}

/// The figures of one size: microseconds per call, the means of all ranks.
struct Row {
    bytes: usize,
    iterations: usize,
    blocking: f64,
    wait: f64,
    compute: f64,
    overall: f64,
    wrong: u64,
}

impl Row {
    fn overlap(&self) -> f64 {
        (100.0 - 100.0 * (self.overall - self.compute) / self.wait).clamp(0.0, 100.0)
    }
}

/// This process is one of the ranks.
fn take_part(options: &Options) -> Result<(), String> {
    let rank = Rank::join()?;
    let largest = options.sizes.iter().max().copied().unwrap_or(0) as usize;
    let mut buffers = Buffers { input: zeros(largest)?, output: zeros(largest)? };
    let (mut first, mut wrong) = (true, 0);
    let mut said = Ok(());
    let mut say = |text: String| {
        if rank.rank == 0 && said.is_ok() {
            said = print(&text);
        }
    };
    say(head(options.format, rank.size));
    let mut measured = Ok(());
    for bytes in options.sizes.iter().map(|bytes| *bytes as usize) {
        match one_size(&rank, options, bytes, &mut buffers) {
            Ok(row) => {
                wrong += row.wrong;
                say(line(options, rank.size, &row, std::mem::replace(&mut first, false)));
            }
            Err(why) => {
                measured = Err(why);
                break;
            }
        }
    }
    // JSON must be readable even if there are fewer rows than were asked for.
    if options.format == Format::Json {
        say("]}\n".to_owned());
    }
    measured?;
    rank.leave()?;
    said?;
    match wrong {
        0 => Ok(()),
        wrong => Err(format!("{wrong} elements of the results are wrong")),
    }
}

fn one_size(rank: &Rank, options: &Options, bytes: usize, buffers: &mut Buffers) -> Result<Row, String> {
    fill(rank, options, bytes, buffers);
    rank.iallreduce(options, bytes, buffers, || ())?;
    let wrong = wrong_elements(rank, options, bytes, buffers);
    let warm = mean(rank, options.warmup as usize, |_| rank.iallreduce(options, bytes, buffers, || ()))?;
    let guess = agreed(rank, SPAN_S / (warm / 1e6))?;
    let iterations = options.iterations.map_or(guess, |iterations| iterations as usize);
    let blocking = mean(rank, iterations, |nth| rank.call(options, bytes, nth, buffers))?;
    let wait = mean(rank, iterations, |_| rank.iallreduce(options, bytes, buffers, || ()))?;
    let (span, mut computed) = (Duration::from_secs_f64(wait / 1e6), Duration::ZERO);
    let overall = mean(rank, iterations, |_| {
        rank.iallreduce(options, bytes, buffers, || {
            let begun = Instant::now();
            compute(begun, span);
            computed += begun.elapsed();
        })
    })?;
    let own = computed.as_secs_f64() * 1e6 / iterations as f64;
    let all = rank.gather(&[own, wrong as f64])?;
    let sum = |which: usize| all.iter().skip(which).step_by(2).sum::<f64>();
    Ok(Row { bytes, iterations, blocking, wait, compute: sum(0) / rank.size as f64, overall, wrong: sum(1) as u64 })
}

/// Microseconds per call: the mean of so many calls, of all ranks.
fn mean(rank: &Rank, calls: usize, mut call: impl FnMut(usize) -> Result<(), String>) -> Result<f64, String> {
    let mut took = Duration::ZERO;
    for nth in 0..calls {
        rank.barrier()?;
        let begun = Instant::now();
        call(nth)?;
        took += begun.elapsed();
    }
    let all = rank.gather(&[took.as_secs_f64() * 1e6 / calls as f64])?;
    Ok(all.iter().sum::<f64>() / rank.size as f64)
}

/// Multiplies and adds until so much time has passed.
fn compute(begun: Instant, span: Duration) {
    let mut numbers = [1.0_f32; 64];
    while begun.elapsed() < span {
        numbers.iter_mut().for_each(|number| *number = number.mul_add(0.999, 0.001));
        black_box(&mut numbers);
    }
}

fn head(form: Format, ranks: usize) -> String {
    match form {
        Format::Csv => {
            "call,ranks,bytes,dtype,iterations,blocking_us,wait_us,compute_us,overall_us,overlap_percent,wrong\n"
                .to_owned()
        }
        Format::Json => format!("{{\"call\":\"iallreduce\",\"ranks\":{ranks},\"rows\":["),
        Format::Text => format!(
            "# muster iallreduce on {ranks} ranks; means of all calls and ranks, in us; overlap in percent\n\
             #{:>11} {:>8} {:>8} {:>10} {:>10} {:>10} {:>10} {:>8} {:>6}\n",
            "size (B)", "type", "iters", "blocking", "wait", "compute", "overall", "overlap", "#wrong"
        ),
    }
}

fn line(options: &Options, ranks: usize, row: &Row, first: bool) -> String {
    let Row { bytes, iterations, blocking, wait, compute, overall, wrong } = row;
    let (dtype, overlap) = (options.dtype, row.overlap());
    match options.format {
        Format::Csv => format!(
            "iallreduce,{ranks},{bytes},{dtype},{iterations},{blocking:.2},{wait:.2},{compute:.2},{overall:.2},{overlap:.1},{wrong}\n"
        ),
        Format::Json => format!(
            "{}{{\"bytes\":{bytes},\"dtype\":\"{dtype}\",\"iterations\":{iterations},\"blocking_us\":{blocking:.2},\"wait_us\":{wait:.2},\
             \"compute_us\":{compute:.2},\"overall_us\":{overall:.2},\"overlap_percent\":{overlap:.1},\"wrong\":{wrong}}}",
            if first { "" } else { "," }
        ),
        Format::Text => format!(
            " {bytes:>11} {:>8} {iterations:>8} {blocking:>10.2} {wait:>10.2} {compute:>10.2} {overall:>10.2} {overlap:>8.1} {wrong:>6}\n",
            dtype.to_string()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_as_the_osu_benchmarks_define_it() {
        let row =
            |overall| Row { bytes: 8, iterations: 1, blocking: 9.0, wait: 10.0, compute: 10.0, overall, wrong: 0 };
        let overlaps = [10.0, 15.0, 20.0, 30.0, 9.0].map(|overall| row(overall).overlap());
        assert_eq!(overlaps, [100.0, 50.0, 0.0, 0.0, 100.0]);
    }

    #[test]
    fn computing_takes_the_time_that_it_is_to_take() {
        let begun = Instant::now();
        compute(begun, Duration::from_millis(2));
        assert!(begun.elapsed() >= Duration::from_millis(2));
    }
}
