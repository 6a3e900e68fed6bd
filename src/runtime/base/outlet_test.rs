use super::*;
use std::fs::File;
use std::io::{pipe, PipeReader, PipeWriter, Read};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{channel, Receiver, Sender};

/// How long a test waits for something, on a machine with other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

fn outlet(descriptor: RawFd) -> &'static Outlet {
    let dress = |_, _: &str, text: &str| format!("{text}\n");
    Box::leak(Box::new(Outlet::new(descriptor, dress, |dropped| format!("{dropped} dropped"))))
}

/// An outlet into a pipe.
fn piped() -> (&'static Outlet, PipeReader, PipeWriter) {
    let (reader, writer) = pipe().unwrap();
    (outlet(writer.as_raw_fd()), reader, writer)
}

fn say(outlet: &'static Outlet, text: &str) {
    outlet.put(LogLevel::Warn, "test".into(), text.to_owned());
}

/// Fills a pipe, as any other writer may.
fn fill(writer: &PipeWriter) -> usize {
    let mut all = 0;
    while let Ok(written) = foreign::pour(writer.as_raw_fd(), &[b'.'; 4096]) {
        all += written;
    }
    all
}

fn until(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !look() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn lines(mut reader: impl Read) -> Vec<String> {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn lives(outlet: &Outlet) -> bool {
    outlet.lock().writer.lives()
}

#[test]
fn all_is_out_when_the_last_holder_goes_and_the_thread_has_ended() {
    let (outlet, reader, writer) = piped();
    let (first, last) = (outlet.hold(), outlet.hold());
    assert!(!lives(outlet), "nothing was said");
    (0..100).for_each(|number| say(outlet, &number.to_string()));
    drop(first);
    assert!(lives(outlet));
    drop(last);
    assert!(!lives(outlet));
    let again = outlet.hold();
    say(outlet, "again");
    drop((again, writer));
    let expected: Vec<String> = (0..100).map(|number| number.to_string()).chain(["again".to_owned()]).collect();
    assert_eq!(lines(reader), expected);
}

#[test]
fn a_line_longer_than_a_pipe_comes_out_whole() {
    let (outlet, reader, writer) = piped();
    let long = "x".repeat(200_000);
    let holder = outlet.hold();
    say(outlet, &long);
    let thread = std::thread::spawn(|| lines(reader));
    until("it is written", || !outlet.busy.load(Ordering::Acquire));
    drop((holder, writer));
    assert_eq!(thread.join().unwrap(), [long]);
}

#[test]
fn a_full_pipe_delays_nobody_and_what_does_not_fit_is_counted() {
    let (outlet, mut reader, writer) = piped();
    let holder = outlet.hold();
    let filled = fill(&writer);
    let said = LINES_MAX + 10;
    (0..said).for_each(|number| say(outlet, &number.to_string()));
    outlet.flush(CALL_WAIT);
    assert!(outlet.busy.load(Ordering::Acquire), "nothing could be written");
    reader.read_exact(&mut vec![0; filled]).unwrap();
    until("all is written", || !outlet.busy.load(Ordering::Acquire));
    drop((holder, writer));
    let lines = lines(reader);
    // One line may have been on its way when the others came.
    let (told, written): (Vec<&String>, Vec<&String>) = lines.iter().partition(|line| line.ends_with("dropped"));
    assert_eq!(told, [&format!("{} dropped", said - written.len())]);
    assert_eq!(lines.last(), Some(told[0]));
    let numbers: Vec<String> = (0..written.len()).map(|number| number.to_string()).collect();
    assert_eq!(written, numbers.iter().collect::<Vec<_>>());
    assert!(written.len() >= LINES_MAX);
}

#[test]
fn the_last_holder_goes_though_the_pipe_is_full_and_leaves_no_thread() {
    let (outlet, mut reader, writer) = piped();
    let holder = outlet.hold();
    let filled = fill(&writer);
    say(outlet, "first");
    say(outlet, "second");
    drop(holder);
    assert!(!lives(outlet), "a full pipe is not worth a thread that is left behind");
    reader.read_exact(&mut vec![0; filled]).unwrap();
    let holder = outlet.hold();
    say(outlet, "later");
    drop((holder, writer));
    assert_eq!(lines(reader), ["2 dropped", "later"]);
}

#[test]
fn what_nobody_reads_is_dropped_and_told_of_once_somebody_does() {
    let (outlet, reader, writer) = piped();
    let holder = outlet.hold();
    drop(reader);
    say(outlet, "first");
    say(outlet, "second");
    until("they are dropped", || !outlet.busy.load(Ordering::Acquire));
    let reader = File::open(format!("/proc/self/fd/{}", writer.as_raw_fd())).unwrap(); // the same pipe's other end
    say(outlet, "third");
    drop((holder, writer));
    assert_eq!(lines(reader), ["2 dropped", "third"]);
}

#[test]
fn a_line_cut_short_does_not_spoil_the_next() {
    let (outlet, mut reader, writer) = piped();
    let holder = outlet.hold();
    say(outlet, &"x".repeat(200_000));
    until("the pipe is full", || !foreign::takes(writer.as_raw_fd(), Duration::ZERO));
    outlet.lock().hand.as_mut().expect("the line does not fit").hurries = true;
    until("it is given up", || !outlet.busy.load(Ordering::Acquire));
    let mut cut = vec![0; 8192];
    reader.read_exact(&mut cut).unwrap();
    say(outlet, "next");
    drop((holder, writer));
    let lines = lines(reader);
    assert!(lines[0].bytes().all(|byte| byte == b'x'), "{}", lines[0].len());
    assert_eq!(lines[1..], ["1 dropped", "next"]);
}

/// A callback that says when it is called, and returns when it is told to.
fn slow() -> (Callback, Receiver<String>, Sender<()>) {
    let ((called, calls), (go_on, gate)) = (channel(), channel::<()>());
    let gate = Mutex::new(gate);
    let callback: Callback = Arc::new(move |_, _, text| {
        called.send(text.to_owned()).unwrap();
        let _ = gate.lock().unwrap().recv();
    });
    (callback, calls, go_on)
}

#[test]
fn taking_a_callback_away_waits_for_its_call_and_drops_what_is_queued() {
    let (outlet, reader, writer) = piped();
    let holder = outlet.hold();
    let (callback, calls, go_on) = slow();
    outlet.set_callback(Some((LogLevel::Warn, callback)));
    ["first", "second", "third"].iter().for_each(|text| say(outlet, text));
    assert_eq!(calls.recv_timeout(PATIENCE).unwrap(), "first");
    let (taken, is_taken) = channel();
    let taking = std::thread::spawn(move || {
        outlet.set_callback(None);
        taken.send(()).unwrap();
    });
    until("it is being taken away", || !outlet.has_callback());
    say(outlet, "fourth");
    assert!(is_taken.recv_timeout(Duration::from_millis(50)).is_err(), "its call still runs");
    go_on.send(()).unwrap();
    taking.join().unwrap();
    drop((holder, writer));
    assert!(calls.try_recv().is_err());
    assert_eq!(lines(reader), ["fourth"]);
}

#[test]
fn a_callback_that_does_not_return_holds_nobody_and_its_thread_goes_on_with_the_next_holder() {
    let (outlet, _reader, _writer) = piped();
    let holder = outlet.hold();
    let (callback, calls, go_on) = slow();
    outlet.set_callback(Some((LogLevel::Info, callback)));
    say(outlet, "first");
    assert_eq!(calls.recv_timeout(PATIENCE).unwrap(), "first");
    (0..LINES_MAX + 1).for_each(|_| say(outlet, "more"));
    outlet.flush(CALL_WAIT);
    drop(holder);
    assert!(lives(outlet), "it was left behind");
    let _holder = outlet.hold();
    say(outlet, "later");
    (0..3).for_each(|_| go_on.send(()).unwrap());
    let told = format!("{} dropped", LINES_MAX + 1);
    assert_eq!([&calls, &calls].map(|calls| calls.recv_timeout(PATIENCE).unwrap()), [told, "later".to_owned()]);
    outlet.set_callback(None);
}

#[test]
fn what_waits_for_a_stalled_descriptor_is_told_to_the_callback_that_is_set_then() {
    let (outlet, _reader, writer) = piped();
    let _holder = outlet.hold();
    fill(&writer);
    ["first", "second"].iter().for_each(|text| say(outlet, text));
    let (heard, hears) = channel();
    let callback: Callback = Arc::new(move |level, _, text| heard.send((level, text.to_owned())).unwrap());
    outlet.set_callback(Some((LogLevel::Error, callback)));
    outlet.put(LogLevel::Warn, "test".into(), "not asked for".to_owned());
    outlet.put(LogLevel::Error, "test".into(), "third".to_owned());
    let mut dropped = 0;
    loop {
        let (level, text) = hears.recv_timeout(PATIENCE).unwrap();
        assert_eq!(level, LogLevel::Error);
        match text.strip_suffix(" dropped") {
            Some(number) => dropped += number.parse::<u32>().unwrap(),
            None => break assert_eq!(text, "third"),
        }
    }
    assert_eq!(dropped, 2, "told at once, or one after the other");
    outlet.set_callback(None);
}

#[test]
fn a_closed_descriptor_is_an_error_like_others() {
    let outlet = outlet(-1);
    let holder = outlet.hold();
    say(outlet, "dropped");
    drop(holder);
    assert!(!lives(outlet));
    let next = outlet.lock().backlog.take().map(|next| next.dropped);
    assert_eq!(next, None, "that is told with the next line");
}
