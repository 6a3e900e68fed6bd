//! The joined trace as a file, and what there is to say of it in a table.

use super::clocks::Clocks;
use super::options::Options;
use super::read::{lines, recorded, Trace};
use super::waits::{Sum, Wait, Waits};
use crate::whole;
use serde_json::{json, Value};
use std::io::Write;
use std::path::{Path, PathBuf};

const HEAD: [&str; 6] = ["NODE", "COLLECTIVES", "IN THEM", "WAITED", "WAS LAST IN", "OTHERS WAITED"];

/// The path of the joined trace.
pub fn output(options: &Options, traces: &[Trace]) -> PathBuf {
    let own = || options.folder.join(format!("{}.json", traces[0].job_in_short()));
    options.output.clone().unwrap_or_else(own)
}

/// Writes all events of all traces on one clock, each collective with its wait. An older file is replaced once all is
/// written.
pub fn write(path: &Path, traces: &[Trace], waits: &Waits) -> Result<(), String> {
    let place = path.canonicalize().ok();
    if let Some(trace) = traces.iter().find(|trace| place.is_some() && trace.path.canonicalize().ok() == place) {
        return Err(format!(
            "--output is {:?}, the trace of {}: expected another file",
            path.display().to_string(),
            trace.name
        ));
    }
    let failed = |error| format!("{}: {error}", path.display());
    whole::replace(path, failed, |out| events(path, out, traces, waits))
}

fn events(path: &Path, out: &mut impl Write, traces: &[Trace], waits: &Waits) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    out.write_all(b"[\n").map_err(failed)?;
    for (trace, waits) in traces.iter().zip(&waits.of) {
        let (mut waits, mut unwritten) = (waits.iter(), None);
        let read = lines(&trace.path, trace.lines.max(2), |event, _| {
            let wait = recorded(&event).and_then(|_| waits.next().copied().flatten());
            let written = joined(event, trace, wait, traces).iter().try_for_each(|event| writeln!(out, "{event},"));
            written.map_err(|error| unwritten.insert(failed(error)).clone())
        });
        unwritten.map_or(read, Err)?;
    }
    // The format allows no comma behind the last event, and an event that says nothing.
    out.write_all(b"{\"ph\":\"M\",\"name\":\"muster_merged\",\"pid\":0,\"tid\":0}\n]\n").map_err(failed)
}

/// What becomes of an event: itself, on the common clock, and its wait within it.
fn joined(mut event: Value, trace: &Trace, wait: Option<Wait>, traces: &[Trace]) -> Vec<Value> {
    let Some(ts) = event["ts"].as_f64() else { return vec![event] };
    let at = round(ts + trace.shift);
    event["ts"] = at.into();
    if let Some(called) = event["args"]["called"].as_f64() {
        event["args"]["called"] = round(called + trace.shift).into();
    }
    let Some(Wait { us, late }) = wait else { return vec![event] };
    let (us, late) = (round(us), &traces[late].name);
    event["args"]["waited_us"] = us.into();
    event["args"]["waited_for"] = late.as_str().into();
    let name = format!("waits for {late}");
    let (pid, tid) = (event["pid"].clone(), event["tid"].clone());
    let within = json!({ "ph": "X", "cat": "wait", "name": name, "ts": at, "dur": us, "pid": pid, "tid": tid });
    vec![event, within]
}

/// Rounds microseconds to whole nanoseconds.
fn round(us: f64) -> f64 {
    (us * 1000.0).round() / 1000.0
}

/// The table, and what else there is to say. `headless` names the files that tell nothing.
pub fn told(traces: &[Trace], headless: &[String], waits: &Waits, clocks: &Clocks, path: &Path) -> String {
    let rows: Vec<[String; 6]> = std::iter::once(HEAD.map(str::to_owned))
        .chain(traces.iter().zip(&waits.sums).map(|(trace, sum)| row(trace, sum)))
        .collect();
    let widths: [usize; 6] = std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text.push('\n');
    for trace in traces.iter().filter(|trace| !trace.is_whole || trace.missing > 0) {
        let end = if trace.is_whole {
            ""
        } else {
            " has not ended in order: it was killed, ended without muster_finalize, could not write its trace, or still runs;"
        };
        let missing = if trace.missing > 0 {
            format!(" {} of its collectives were not recorded;", trace.missing)
        } else {
            String::new()
        };
        let shown = format!("{}{end}{missing}", trace.name);
        text += shown.trim_end_matches(';');
        text.push('\n');
    }
    for name in headless {
        text += &format!("{name} has no whole first line, so its node is left out: it was killed, or has just begun\n");
    }
    text += &said_of(clocks);
    text += &format!("{}: open it with https://ui.perfetto.dev\n", path.display());
    text
}

fn row(trace: &Trace, sum: &Sum) -> [String; 6] {
    [
        trace.name.clone(),
        trace.calls.len().to_string(),
        seconds(sum.inside_us),
        seconds(sum.waited_us),
        sum.last.to_string(),
        seconds(sum.caused_us),
    ]
}

fn seconds(us: f64) -> String {
    format!("{:.3} s", us / 1e6)
}

fn said_of(clocks: &Clocks) -> String {
    match clocks {
        Clocks { count: 0 | 1, .. } => String::new(),
        Clocks { count, error_us: Some(error) } => format!("{count} hosts' clocks agree to {error:.0} us\n"),
        Clocks { count, error_us: None } => {
            format!("some of the {count} hosts' clocks were set only by the time of forming: no collective connects them with the first\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::testing::{call, trace};
    use super::super::waits;
    use super::*;
    use muster::types::CallKind::Barrier;

    fn traces() -> Vec<Trace> {
        let mut traces = vec![trace(0, "a", 0.0), trace(1, "a", 0.0)];
        traces[0].calls = vec![call(Barrier, 1, 0, 0.0, 1_500_000.0)];
        traces[1].calls = vec![call(Barrier, 1, 1, 1_000_000.0, 1_500_000.0)];
        (traces[0].is_whole, traces[1].missing) = (true, 3);
        traces
    }

    #[test]
    fn the_late_ranks_stand_in_a_table() {
        let (traces, clocks) = (traces(), Clocks { count: 2, error_us: Some(12.4) });
        let expected = "\
NODE      COLLECTIVES  IN THEM  WAITED   WAS LAST IN  OTHERS WAITED
worker 0  1            1.500 s  1.000 s  0            0.000 s
worker 1  1            0.500 s  0.000 s  1            1.000 s

worker 1 has not ended in order: it was killed, ended without muster_finalize, could not write its trace, or still runs; 3 of its collectives were not recorded
abababab.worker_2.0.json has no whole first line, so its node is left out: it was killed, or has just begun
2 hosts' clocks agree to 12 us
a.json: open it with https://ui.perfetto.dev
";
        let headless = ["abababab.worker_2.0.json".to_owned()];
        assert_eq!(told(&traces, &headless, &waits::of(&traces), &clocks, Path::new("a.json")), expected);
    }

    #[test]
    fn a_wait_lies_within_its_collective() {
        let mut traces = traces();
        traces[0].shift = 5.0;
        let event = json!({ "ph": "X", "ts": 1.0, "dur": 9.0, "pid": 0, "tid": 4, "args": { "called": 0.5 } });
        let both = joined(event, &traces[0], Some(Wait { us: 2.0, late: 1 }), &traces);
        assert_eq!((&both[0]["ts"], &both[0]["args"]["called"]), (&json!(6.0), &json!(5.5)));
        assert_eq!(both[0]["args"]["waited_for"], "worker 1");
        assert_eq!(
            (&both[1]["name"], &both[1]["ts"], &both[1]["dur"]),
            (&json!("waits for worker 1"), &json!(6.0), &json!(2.0))
        );
        assert_eq!(joined(json!({ "ph": "M" }), &traces[0], None, &traces).len(), 1);
    }
}
