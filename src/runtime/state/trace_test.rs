use super::*;
use crate::config::LogLevel;
use crate::runtime::base::log::logged_by;
use crate::types::{JobInstance, Role};
use serde_json::Value;

fn about() -> About {
    let (host, host_key) = ("a \"b\"".to_owned(), "key".to_owned());
    About {
        job: JobInstance([0xab; 16]),
        role: Role::Worker,
        rank: 3,
        restarts: 1,
        node_id: "3".to_owned(),
        host,
        host_key,
    }
}

fn entry(sequence: u64) -> Entry {
    let (op, root) = (Some(ReduceOp::User { number: 2, commutative: false }), Some(1));
    let call = Call { kind: CallKind::Reduce, dtype: Some(DType::Bfloat16), op, root, count: 5, layout: 0 };
    let at = |us: u64| Time(us * 1000 + sequence * 1_000_000);
    Entry { call, sequence, bytes: 10, called: at(1), begun: at(2), ended: at(5), is_ok: sequence.is_multiple_of(2) }
}

fn tracer(folder: &Path) -> Arc<Tracer> {
    let (clock, folder) = (Clock::start(), folder.to_owned());
    Arc::new(Tracer { clock, folder, recording: Mutex::default(), stirred: Arc::default() })
}

/// A folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("muster-trace-{}-{name}", std::process::id()));
    try_folder(&folder).expect("a folder for a test");
    folder
}

fn read(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("abababab.worker_3.1.json")).expect("the file");
    fs::remove_dir_all(folder).expect("the folder");
    serde_json::from_str(&text).expect("JSON")
}

fn of<'a>(events: &'a [Value], phase: &str, name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["ph"] == phase && event["name"] == name).collect()
}

#[test]
fn what_was_recorded_is_written_at_the_end() {
    let folder = folder("end");
    let tracer = tracer(&folder);
    let track = tracer.track(GroupId(4), Epoch(2), 7).expect("it is recorded");
    let logger = Logger::new(LogLevel::Off, "test");
    tracer.begin(&about(), &logger);
    (1..=1000).for_each(|sequence| track.record(&entry(sequence)));
    tracer.finish(Duration::MAX);
    tracer.finish(Duration::MAX);
    let events = read(&folder);
    let head = of(&events, "M", "muster_trace");
    assert_eq!(
        (&head[0]["args"]["job"], &head[0]["args"]["host"]),
        (&Value::from("ab".repeat(16)), &Value::from("a \"b\""))
    );
    assert_eq!(of(&events, "i", "epoch 2").len(), 1);
    let calls = of(&events, "X", "reduce");
    assert_eq!((calls.len(), &calls[0]["tid"], &calls[0]["pid"]), (1000, &Value::from(4), &Value::from(3)));
    let args = &calls[999]["args"];
    for (key, value) in [("sequence", 1000), ("rank", 7), ("bytes", 10), ("count", 5)] {
        assert_eq!(args[key], value, "{key}");
    }
    assert_eq!(
        (&args["op"], &args["dtype"]),
        (&Value::from("user's operation 2 in rank order"), &Value::from("bfloat16"))
    );
    assert_eq!((&args["ok"], &calls[998]["args"]["ok"]), (&Value::from(true), &Value::from(false)));
    assert_eq!(calls[1]["dur"], 3.0);
    let [first, second] = [0, 1].map(|nth| calls[nth]["ts"].as_f64().unwrap());
    assert!((second - first - 1000.0).abs() < 0.001, "microseconds, in fractions that are rounded: {first}, {second}");
    assert_eq!(of(&events, "M", "muster_trace_end").len(), 1);
}

#[test]
fn a_record_is_what_was_put_in() {
    for sequence in [0, 1, u64::MAX >> 40] {
        assert_eq!(unpacked(&packed(&entry(sequence))), entry(sequence));
    }
    let call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
    let bare = Entry { call, ..entry(2) };
    assert_eq!(unpacked(&packed(&bare)), bare);
}

#[test]
fn a_group_that_is_gone_is_written_once_more_and_forgotten() {
    let folder = folder("gone");
    let tracer = tracer(&folder);
    let track = tracer.track(GroupId(4), Epoch(1), 0).expect("it is recorded");
    track.record(&entry(1));
    drop(track);
    tracer.begin(&about(), &Logger::new(LogLevel::Off, "test"));
    tracer.finish(Duration::MAX);
    assert!(tracer.recording().tracks.is_empty());
    assert_eq!(of(&read(&folder), "X", "reduce").len(), 1);
}

#[test]
fn a_file_that_cannot_be_made_is_said_and_nothing_waits_for_it() {
    let folder = folder("none");
    let tracer = tracer(&folder.join("missing"));
    let track = tracer.track(GroupId::WORLD, Epoch(1), 0).expect("it is recorded");
    tracer.begin(&about(), &Logger::new(LogLevel::Warn, "test"));
    track.record(&entry(1));
    tracer.finish(Duration::MAX);
    fs::remove_dir_all(folder).expect("the folder");
}

#[test]
fn a_disk_that_is_full_ends_the_trace_and_nothing_waits_for_it() {
    let tracer = tracer(Path::new("/dev/full"));
    let track = tracer.track(GroupId::WORLD, Epoch(1), 0).expect("it is recorded");
    tracer.recording().phase = Phase::Writing;
    let own = Arc::clone(&tracer);
    let writing =
        std::thread::spawn(move || own.write(TraceFile::on_a_full_disk(), &Logger::new(LogLevel::Warn, "test")));
    (1..=1000).for_each(|sequence| track.record(&entry(sequence)));
    tracer.finish(Duration::MAX);
    assert!(tracer.recording().phase == Phase::Finished);
    writing.join().expect("it ends");
}

/// The one line that a test has logged.
fn line_of(test: &str) -> String {
    let logged = logged_by(&format!("runtime::state::trace::tests::{test}"), &["--nocapture"]);
    let lines: Vec<&str> = logged.lines().filter(|line| line.starts_with("muster ")).collect();
    assert_eq!(lines.len(), 1, "{logged}");
    lines[0].to_owned()
}

#[test]
fn the_log_has_a_line_for_a_file_that_cannot_be_made_or_written_with_its_path() {
    let line = line_of("a_file_that_cannot_be_made_is_said_and_nothing_waits_for_it");
    let path = "-none/missing/abababab.worker_3.1.json: No such file or directory";
    assert!(
        line.starts_with("muster warning [test] this node's collectives are not traced: /") && line.contains(path),
        "{line}"
    );
    let line = line_of("a_disk_that_is_full_ends_the_trace_and_nothing_waits_for_it");
    let said = "/dev/full: No space left on device (os error 28); this node's collectives are traced no more";
    assert_eq!(line, format!("muster warning [test] {said}"));
}

#[test]
fn what_is_more_than_a_file_may_hold_is_counted_at_its_end() {
    let folder = folder("full");
    let mut file = TraceFile::create(&folder, &about(), Time::default(), &Clock::start()).expect("a file");
    let site = CallSite { group: GroupId(4), epoch: Epoch(2), rank: 7 };
    file.collective(&site, &entry(1));
    file.skip_to_the_end();
    (2..=4).for_each(|sequence| file.collective(&site, &entry(sequence)));
    file.flush(true).expect("it is written");
    let events = read(&folder);
    assert_eq!(of(&events, "X", "reduce").len(), 1);
    assert_eq!(of(&events, "M", "muster_trace_end")[0]["args"]["left_out"], 3);
}
