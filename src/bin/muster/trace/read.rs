//! The files of one job, as the library writes them: one event a line. If a process was killed, its file may end in the
//! middle of a line.

use muster::types::CallKind;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The format that this command reads.
const VERSION: u64 = 1;
/// The longest line that is read, in bytes. The library writes far shorter ones.
const LINE_MAX_BYTES: u64 = 1 << 20;

/// What one rank has recorded. Times are in microseconds.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The rank's file, and how many of its lines were read.
    pub path: PathBuf,
    pub lines: usize,
    /// The job, and the node of the job.
    pub job: String,
    pub name: String,
    /// The clock that it has read. All traces with the same name have read one clock.
    pub clock: String,
    /// What that clock said when the trace's time was 0.
    pub clock_us: f64,
    /// When each epoch began, by number.
    pub epochs: Vec<(u64, f64)>,
    /// Its collectives.
    pub calls: Vec<Recorded>,
    /// How many more collectives there were, of which nothing is known.
    pub missing: u64,
    /// Whether the node has written all that it had.
    pub is_whole: bool,
    /// What is to be added to its times.
    pub shift: f64,
}

/// A collective of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    pub kind: CallKind,
    /// The collective, the same for all ranks: epoch, group and number.
    pub key: (u64, u64, u64),
    /// The rank in the group.
    pub rank: u64,
    pub root: Option<u64>,
    pub begun: f64,
    pub ended: f64,
    pub is_ok: bool,
}

impl Trace {
    /// The beginning of the job's name.
    pub fn job_in_short(&self) -> &str {
        self.job.get(..8).unwrap_or(&self.job)
    }
}

/// What a folder has of one job.
#[derive(Debug)]
pub struct Found {
    pub traces: Vec<Trace>,
    /// The names of the files that have no whole first line. Nothing is known of their nodes.
    pub headless: Vec<String>,
}

/// All ranks' files of a job in this folder. Files of other jobs than the one that is named are not opened.
pub fn folder(folder: &Path, job: Option<&str>) -> Result<Found, String> {
    let shown = folder.display();
    let entries = fs::read_dir(folder).map_err(|error| format!("{shown}: {error}"))?;
    let is_wanted = |path: &PathBuf| is_of_a_rank(path) && job.is_none_or(|job| may_be_of(path, job));
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_wanted).collect();
    paths.sort();
    let (mut traces, mut headless) = (Vec::new(), Vec::new());
    for path in &paths {
        match file(path)? {
            Some(trace) if trace.job.starts_with(job.unwrap_or_default()) => traces.push(trace),
            Some(_) => {}
            None => headless.push(file_name(path).to_owned()),
        }
    }
    let jobs: BTreeSet<&str> = traces.iter().map(Trace::job_in_short).collect();
    match jobs.len() {
        0 if headless.is_empty() => {
            Err(format!("{shown} has no trace{}: a run with MUSTER_TRACE={shown} writes them", of_job(job)))
        }
        0 => Err(format!(
            "{shown} has no trace{}, but files that have no whole first line: {}",
            of_job(job),
            headless.join(", ")
        )),
        1 => {
            // The name of a file begins as its job does.
            headless.retain(|name| name.starts_with(traces[0].job_in_short()));
            Ok(Found { traces: by_place(traces), headless })
        }
        _ => {
            let jobs: Vec<&str> = jobs.into_iter().collect();
            Err(format!("{shown} has traces of {} jobs: choose one with --job: {}", jobs.len(), jobs.join(", ")))
        }
    }
}

fn of_job(job: Option<&str>) -> String {
    job.map_or_else(String::new, |job| format!(" of a job {job}"))
}

/// Orders the traces: workers by rank, then servers by rank, and the lives of one rank after each other.
fn by_place(mut traces: Vec<Trace>) -> Vec<Trace> {
    traces.sort_by_key(|trace| {
        let numbers: Vec<u64> = file_name(&trace.path).split(['.', '_']).filter_map(|word| word.parse().ok()).collect();
        (!trace.name.starts_with("worker"), numbers)
    });
    traces
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Whether this is the name of a rank's file: `abababab.worker_3.0.json`
fn is_of_a_rank(path: &Path) -> bool {
    let parts: Vec<&str> = file_name(path).split('.').collect();
    matches!(parts[..], [_, node, _, "json"] if node.starts_with("worker_") || node.starts_with("server_"))
}

/// Whether the file's name allows that it is of a job whose name begins so: it begins with the first digits of its own.
fn may_be_of(path: &Path, job: &str) -> bool {
    let digits = file_name(path).split('.').next().unwrap_or_default();
    digits.starts_with(job) || job.starts_with(digits)
}

/// Reads one file; nothing if its process was killed before its first line was whole.
fn file(path: &Path) -> Result<Option<Trace>, String> {
    let mut trace: Option<Trace> = None;
    lines(path, usize::MAX, |event, lines| match &mut trace {
        None => {
            trace = Some(head(path, &event)?);
            Ok(())
        }
        Some(trace) => {
            trace.lines = lines;
            take(trace, &event);
            Ok(())
        }
    })?;
    Ok(trace)
}

/// Passes each event of a file to `each`, with the number of its line; at most so many lines.
pub fn lines(path: &Path, most: usize, mut each: impl FnMut(Value, usize) -> Result<(), String>) -> Result<(), String> {
    let failed = |why: String| format!("{}: {why}", path.display());
    let mut reader = BufReader::new(open(path).map_err(failed)?);
    let mut unread: Option<String> = None;
    for number in 1..=most {
        let Some(line) = next_line(&mut reader, number).map_err(failed)? else { break };
        if let Some(why) = unread {
            return Err(failed(why)); // only the last line may be incomplete
        }
        let line = String::from_utf8_lossy(&line);
        let text = line.trim().trim_end_matches(',');
        if text.is_empty() || text == "[" || text == "]" {
            continue;
        }
        match serde_json::from_str(text) {
            Ok(event) => each(event, number).map_err(failed)?,
            Err(error) => unread = Some(format!("line {number} is no event: {error}")),
        }
    }
    Ok(())
}

/// Opens a trace. To open a pipe does not wait for a writer.
fn open(path: &Path) -> Result<File, String> {
    let unreadable = |error: io::Error| error.to_string();
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(unreadable)?;
    match file.metadata().map_err(unreadable)?.is_file() {
        true => Ok(file),
        false => Err("it is no regular file: expected a trace that a run has written".to_owned()),
    }
}

/// The line of this number, without its end; nothing behind the last one.
fn next_line(reader: &mut impl BufRead, number: usize) -> Result<Option<Vec<u8>>, String> {
    let mut line = Vec::new();
    let length = reader.take(LINE_MAX_BYTES + 1).read_until(b'\n', &mut line).map_err(|error| error.to_string())?;
    if length as u64 > LINE_MAX_BYTES {
        return Err(format!("line {number} is too long: expected an event, in at most {LINE_MAX_BYTES} bytes"));
    }
    Ok((length > 0).then_some(line))
}

fn head(path: &Path, event: &Value) -> Result<Trace, String> {
    let about = &event["args"];
    if event["name"] != "muster_trace" {
        return Err("it does not begin as a trace of muster".to_owned());
    }
    if about["version"] != VERSION {
        return Err(format!("it is of version {}: this command reads version {VERSION}", about["version"]));
    }
    let text = |key: &str| about[key].as_str().map(str::to_owned).ok_or_else(|| format!("its first line has no {key}"));
    let job = text("job").and_then(|job| if job.len() < 8 { Err(format!("its job is {job:?}")) } else { Ok(job) })?;
    Ok(Trace {
        path: path.to_owned(),
        lines: 0,
        job,
        name: match about["restarts"].as_u64() {
            None | Some(0) => format!("{} {}", text("role")?, about["rank"]),
            Some(restarts) => format!("{} {} (restart {restarts})", text("role")?, about["rank"]),
        },
        clock: text("clock")?,
        clock_us: about["clock_ns"].as_f64().ok_or("its first line has no clock_ns")? / 1000.0,
        epochs: Vec::new(),
        calls: Vec::new(),
        missing: 0,
        is_whole: false,
        shift: 0.0,
    })
}

/// Takes up what an event tells. An event that this version does not know tells nothing.
fn take(trace: &mut Trace, event: &Value) {
    let about = &event["args"];
    if let (Some(epoch), "i") = (about["epoch"].as_u64(), event["ph"].as_str().unwrap_or_default()) {
        trace.epochs.push((epoch, event["ts"].as_f64().unwrap_or_default()));
    }
    trace.missing += about["dropped"].as_u64().unwrap_or(0);
    if event["name"] == "muster_trace_end" {
        trace.missing += about["left_out"].as_u64().unwrap_or(0);
        trace.is_whole = true;
    }
    trace.calls.extend(recorded(event));
}

/// What an event says of a collective, if that is what it tells of.
pub fn recorded(event: &Value) -> Option<Recorded> {
    if event["cat"] != "collective" {
        return None;
    }
    let about = &event["args"];
    let begun = event["ts"].as_f64()?;
    Some(Recorded {
        kind: CallKind::ALL.into_iter().find(|kind| event["name"] == kind.name())?,
        key: (about["epoch"].as_u64()?, about["group"].as_u64()?, about["sequence"].as_u64()?),
        rank: about["rank"].as_u64()?,
        root: about["root"].as_u64(),
        begun,
        ended: begun + event["dur"].as_f64()?,
        is_ok: about["ok"].as_bool()?,
    })
}

/// Traces for the tests.
#[cfg(test)]
pub mod testing {
    use super::*;
    use serde_json::json;

    /// A rank of a clock, with nothing recorded.
    pub fn trace(rank: u64, clock: &str, clock_us: f64) -> Trace {
        let clock_ns = clock_us * 1000.0;
        let (job, role) = ("abababababab", "worker");
        let args =
            json!({ "version": 1, "job": job, "role": role, "rank": rank, "clock": clock, "clock_ns": clock_ns });
        let event = json!({ "name": "muster_trace", "args": args });
        head(Path::new(&format!("abababab.worker_{rank}.0.json")), &event).expect("a head")
    }

    /// A collective of world in epoch 1.
    pub fn call(kind: CallKind, sequence: u64, rank: u64, begun: f64, ended: f64) -> Recorded {
        let root = Some(0).filter(|_| !matches!(kind, CallKind::Barrier | CallKind::Allreduce));
        Recorded { kind, key: (1, 0, sequence), rank, root, begun, ended, is_ok: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("muster-read-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        for (name, text) in files {
            fs::write(folder.join(name), text).expect("a file");
        }
        folder
    }

    fn read(name: &str, files: &[(&str, &str)], job: Option<&str>) -> Result<Found, String> {
        let at = folder_with(name, files);
        let read = folder(&at, job).map_err(|why| why.replace(&at.display().to_string(), "DIR"));
        fs::remove_dir_all(at).expect("the folder");
        read
    }

    fn begin(job: &str, rank: u64) -> String {
        format!(
            "[\n{{\"name\":\"muster_trace\",\"args\":{{\"version\":1,\"job\":\"{job}\",\"role\":\"worker\",\"rank\":{rank},\"host\":\"h\",\
             \"clock\":\"c\",\"clock_ns\":5000}}}},\n"
        )
    }

    const CALL: &str =
        "{\"ph\":\"X\",\"cat\":\"collective\",\"name\":\"barrier\",\"ts\":2.5,\"dur\":1.5,\"args\":{\"epoch\":1,\
        \"group\":0,\"sequence\":3,\"rank\":1,\"root\":null,\"ok\":true}},";

    #[test]
    fn a_file_that_breaks_off_is_read_up_to_there() {
        let text = format!("{}{CALL}\n{}", begin("aaaaaaaa11", 10), &CALL[..40]);
        let whole =
            format!("{}{{\"name\":\"muster_trace_end\",\"args\":{{\"left_out\":4}}}}\n]\n", begin("aaaaaaaa11", 9));
        let files = [("a.worker_10.0.json", &*text), ("a.worker_9.0.json", &*whole), ("merged.json", "{}")];
        let Found { traces, headless } = read("part", &files, None).expect("two files");
        assert!(headless.is_empty(), "{headless:?}");
        assert_eq!(traces.iter().map(|trace| &*trace.name).collect::<Vec<_>>(), ["worker 9", "worker 10"]);
        assert_eq!((traces[0].is_whole, traces[0].missing, traces[1].is_whole), (true, 4, false));
        let barrier = Recorded {
            kind: CallKind::Barrier,
            key: (1, 0, 3),
            rank: 1,
            root: None,
            begun: 2.5,
            ended: 4.0,
            is_ok: true,
        };
        assert_eq!(traces[1].calls, [barrier]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let (one, two) = (begin("aaaaaaaa11", 0), begin("bbbbbbbb22", 0));
        let both = [("a.worker_0.0.json", &*one), ("b.worker_0.0.json", &*two)];
        let broken = format!("{one}no event\n{CALL}\n");
        let long = one.replace("worker", &"w".repeat(LINE_MAX_BYTES as usize));
        for (name, files, job, said) in [
            ("none", &[][..], None, "DIR has no trace: a run with MUSTER_TRACE=DIR writes them"),
            ("other", &both[..1], Some("bb"), "DIR has no trace of a job bb"),
            ("two", &both[..], None, "DIR has traces of 2 jobs: choose one with --job: aaaaaaaa, bbbbbbbb"),
            ("bad", &[("a.worker_0.0.json", &*broken)][..], None, "DIR/a.worker_0.0.json: line 3 is no event: "),
            ("long", &[("a.worker_0.0.json", &*long)][..], None, "DIR/a.worker_0.0.json: line 2 is too long: expected"),
            (
                "foreign",
                &[("a.worker_0.0.json", "[{}]\n")][..],
                None,
                "DIR/a.worker_0.0.json: it does not begin as a trace",
            ),
        ] {
            let why = read(name, files, job).expect_err(name);
            assert!(why.starts_with(said), "{why}");
        }
        assert_eq!(read("chosen", &both, Some("bbb")).expect("one job").traces.len(), 1);
    }

    #[test]
    fn a_file_without_a_whole_first_line_is_named_if_it_is_of_the_job() {
        let whole = begin("aaaaaaaa11", 0);
        let files = [
            ("aaaaaaaa.worker_0.0.json", &*whole),
            ("aaaaaaaa.worker_1.0.json", ""),
            ("aaaaaaaa.worker_2.0.json", &whole[..40]),
            ("bbbbbbbb.worker_0.0.json", "[\n"),
        ];
        let found = read("headless", &files, None).expect("one job");
        assert_eq!(found.traces.len(), 1);
        assert_eq!(found.headless, ["aaaaaaaa.worker_1.0.json", "aaaaaaaa.worker_2.0.json"]);
        let why = read("nothing", &files[1..3], None).expect_err("no trace");
        let names = "aaaaaaaa.worker_1.0.json, aaaaaaaa.worker_2.0.json";
        assert_eq!(why, format!("DIR has no trace, but files that have no whole first line: {names}"));
    }

    #[test]
    fn a_job_that_is_named_is_read_whatever_the_files_of_others_are() {
        let (own, old) = (begin("aaaaaaaa11", 0), begin("bbbbbbbb22", 0).replace("\"version\":1", "\"version\":0"));
        let files = [
            ("aaaaaaaa.worker_0.0.json", &*own),
            ("bbbbbbbb.worker_0.0.json", &*old),
            ("cccccccc.worker_0.0.json", "[\nno event\nand no event\n"),
            ("dddddddd.worker_0.0.json", "[\n"),
        ];
        for job in ["aaa", "aaaaaaaa", "aaaaaaaa11"] {
            let found = read("named", &files, Some(job)).expect(job);
            assert_eq!((found.traces.len(), found.headless.len()), (1, 0));
        }
        for (job, said) in [
            (Some("b"), "DIR/bbbbbbbb.worker_0.0.json: it is of version 0: this command reads version 1"),
            (Some("cccccccc33"), "DIR/cccccccc.worker_0.0.json: line 2 is no event: "),
            (
                Some("dd"),
                "DIR has no trace of a job dd, but files that have no whole first line: dddddddd.worker_0.0.json",
            ),
            (Some("aaaaaaaa2"), "DIR has no trace of a job aaaaaaaa2: "),
            (None, "DIR/bbbbbbbb.worker_0.0.json: it is of version 0"),
        ] {
            let why = read("named", &files, job).expect_err(said);
            assert!(why.starts_with(said), "{why}");
        }
    }
}
