//! The way to one host: the process that leads there (ssh, or a part of our own on this host), and the threads that
//! read and write. They wait, so that nothing else of this launcher has to.

use super::frames::{greeting, text, Frame, Frames};
use crate::start::{start, Start};
use crate::sys::{self, Ending};
use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::sync::mpsc::{channel, Receiver, Sender, SyncSender};
use std::thread;
use std::time::Duration;

/// How much a login may say before a host's first word. More comes from something else, which may never end.
const GREETING_LIMIT: usize = 64 << 10;
/// How long after a process's end its words are waited for: another process may hold its standard error open.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// A small stack: reading and writing needs little.
const STACK_BYTES: usize = 128 << 10;

/// What comes from a host.
#[derive(Debug)]
pub enum Event {
    /// The host is there, and waits for its spec.
    Answered,
    /// What it says.
    Frame(Frame),
    /// What a login, or ssh itself, says.
    Said(Vec<u8>),
    /// Nothing more comes, for the reason in these words.
    Closed(String),
}

/// An event and the host that it comes from; or a signal of the user's.
#[derive(Debug)]
pub enum Come {
    /// An event from this host.
    Host(usize, Event),
    /// A signal.
    Signal(i32),
}

/// How many descriptors a line holds, and how many more while it opens.
pub const DESCRIPTORS: u64 = 3;
pub const WHILE_IT_OPENS: u64 = 3;

/// The process that leads to a host.
pub struct Line {
    pid: i32,
    to: Option<Sender<Frame>>,
}

impl Line {
    /// Starts the process with these words. The first is its program.
    pub fn open(words: &[OsString], host: usize, events: &SyncSender<Come>) -> io::Result<Line> {
        let [(input, to), (from, output), (said, error)] = [io::pipe()?, io::pipe()?, io::pipe()?];
        let program = words.first().ok_or_else(|| io::Error::other("there is no program"))?;
        let pid = start(&Start {
            program,
            words,
            environment: std::env::vars_os().collect(),
            input: Some(input.as_fd()),
            output: output.as_fd(),
            error: Some(error.as_fd()),
            keeps: None,
            dies_with_parent: true,
            cores: &[],
            memory_nodes: &[],
        })?;
        let ((sender, frames), (told, last)) = (channel(), channel());
        let (reads, hears) = (events.clone(), events.clone());
        let name = text(program.as_encoded_bytes());
        spawn("muster-to-host", move || write(to, frames))?;
        spawn("muster-words", move || {
            listen(said, host, &hears);
            let _ = told.send(()); // nobody may wait for it any more
        })?;
        spawn("muster-from-host", move || read(from, host, pid, &name, &last, &reads))?;
        Ok(Line { pid, to: Some(sender) })
    }

    /// Tells the host this, as soon as it listens.
    pub fn tell(&self, frame: Frame) {
        if let Some(to) = &self.to {
            let _ = to.send(frame); // if that fails the way has ended, and its reader tells that
        }
    }

    /// Tells the host nothing more: what runs there ends.
    pub fn close(&mut self) {
        self.to = None;
    }

    /// Kills what leads there. That ends what runs there, too.
    pub fn kill(&mut self) {
        self.close();
        sys::signal_group(self.pid, libc::SIGKILL);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        sys::reap(self.pid);
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(run).map(|_| ())
}

fn write(mut to: PipeWriter, frames: Receiver<Frame>) {
    for frame in frames {
        if frame.write(&mut to).is_err() {
            return; // the reader of the way tells that
        }
    }
}

fn listen(mut from: PipeReader, host: usize, events: &SyncSender<Come>) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if events.send(Come::Host(host, Event::Said(buffer[..length].to_vec()))).is_err() {
            return;
        }
    }
}

/// Passes on what comes, and in the end how the process ended.
fn read(from: PipeReader, host: usize, pid: i32, name: &str, last: &Receiver<()>, events: &SyncSender<Come>) {
    let tell = |event| events.send(Come::Host(host, event)).map_err(|_| io::Error::other("nobody leads any more"));
    let words = match follow(from, &tell) {
        Ok(()) => {
            let ending = sys::await_end_unreaped(pid);
            let _ = last.recv_timeout(LAST_WORDS); // what was said by then is told
            ended(name, ending)
        }
        Err(error) => error.to_string(),
    };
    let _ = tell(Event::Closed(words)); // nobody may listen any more
}

fn follow(mut from: PipeReader, tell: &dyn Fn(Event) -> io::Result<()>) -> io::Result<()> {
    let (mut buffer, mut before, mut frames) = (vec![0; 64 << 10], Some(Vec::new()), Frames::default());
    let mut told = 0; // bytes, before the greeting
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        match before.as_mut() {
            None => frames.push(&buffer[..length]),
            Some(words) => {
                words.extend_from_slice(&buffer[..length]);
                told += length;
                if let Some(rest) = greeted(words, tell)? {
                    frames.push(&rest);
                    before = None;
                } else if told > GREETING_LIMIT {
                    return Err(io::Error::other(format!("what it says is not muster's, after {told} bytes")));
                }
            }
        }
        while let Some(frame) = frames.next()? {
            tell(Event::Frame(frame))?;
        }
    }
}

/// What every version's greeting begins with. The version follows, and the line's end.
const NAME: &[u8] = b"muster host-part ";

/// What follows the greeting, once that has come. What comes before it is a login's. All that is there is passed on at
/// once, so that a flood of lines leaves room for other words.
fn greeted(words: &mut Vec<u8>, tell: &dyn Fn(Event) -> io::Result<()>) -> io::Result<Option<Vec<u8>>> {
    let whole = words.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let greets_at = greeting_in(&words[..whole]);
    let mut login: Vec<u8> = words.drain(..greets_at.unwrap_or(whole)).collect();
    if !login.is_empty() {
        if !login.ends_with(b"\n") {
            login.push(b'\n'); // nothing of the login's follows in this line
        }
        tell(Event::Said(login))?;
    }
    if greets_at.is_none() {
        return Ok(None);
    }
    let line = words.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
    if line == greeting().as_bytes() {
        let rest = words[line.len()..].to_vec();
        tell(Event::Answered)?;
        return Ok(Some(rest));
    }
    let (version, own) = (text(&line[NAME.len()..]), env!("CARGO_PKG_VERSION"));
    Err(io::Error::other(format!("it has muster {}, and here is {own}: expected the same", version.trim())))
}

/// Where the greeting begins in these whole lines. A login may have begun its line, as with a terminal's title. If it
/// has, nothing but a version may follow: a login's own words may name the command.
fn greeting_in(lines: &[u8]) -> Option<usize> {
    let mut begin = 0;
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        if let Some(at) = line.windows(NAME.len()).position(|words| words == NAME) {
            let version = &line[at + NAME.len()..];
            if at == 0 || (version.first().is_some_and(u8::is_ascii_digit) && !version.contains(&b' ')) {
                return Some(begin + at);
            }
        }
        begin += line.len();
    }
    None
}

fn ended(name: &str, ending: Option<Ending>) -> String {
    match ending {
        // This is how a shell says that there is no such program.
        Some(Ending::Exit(127)) => {
            let own = std::env::current_exe().map_or_else(|_| "muster".into(), |path| path.display().to_string());
            format!("{name} exited with code 127: is there a {own}, as here?")
        }
        Some(Ending::Exit(code)) => format!("{name} exited with code {code}"),
        Some(Ending::Signal(signal)) => format!("{name} was ended by signal {signal}"),
        None => format!("{name} ended"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    /// The events of a shell script in ssh's place, up to its end.
    fn events(script: &str) -> Vec<Event> {
        let (sender, receiver) = sync_channel(100);
        let words = ["/bin/sh", "-c", script].map(OsString::from);
        let mut line = Line::open(&words, 3, &sender).unwrap();
        line.close();
        let mut events = Vec::new();
        loop {
            let Come::Host(3, event) = receiver.recv_timeout(Duration::from_secs(60)).unwrap() else {
                panic!("no host")
            };
            events.push(event);
            if matches!(events.last(), Some(Event::Closed(_))) {
                return events;
            }
        }
    }

    fn said(events: &[Event]) -> String {
        let said =
            events.iter().filter_map(|event| if let Event::Said(words) = event { Some(text(words)) } else { None });
        said.collect()
    }

    #[test]
    fn a_host_answers_after_whatever_a_login_says() {
        for (login, shown) in [
            ("echo Welcome", "Welcome\n"),
            ("printf Title", "Title\n"),
            ("echo this runs muster host-part for you", "this runs muster host-part for you\n"),
        ] {
            let script = format!(
                "{login}; printf '{}'; printf 'B\\000\\000\\000\\000'; exit 3",
                greeting().replace('\n', "\\n")
            );
            let events = events(&script);
            assert_eq!(said(&events), shown);
            assert!(matches!(events[1], Event::Answered), "{events:?}");
            assert!(matches!(&events[2], Event::Frame(frame) if frame.body.is_empty()), "{events:?}");
            assert!(
                matches!(&events[3], Event::Closed(words) if words.ends_with("/bin/sh exited with code 3")),
                "{events:?}"
            );
        }
    }

    #[test]
    fn what_does_not_answer_is_explained() {
        for (script, expected) in [
            ("echo 'Permission denied' >&2; exit 255", "exited with code 255"),
            ("exit 127", "exited with code 127: is there a "),
            ("kill -9 $$", "was ended by signal 9"),
            ("echo muster host-part 0.0.1; cat", "it has muster 0.0.1, and here is "),
            ("echo Title: muster host-part 0.0.1; cat", "it has muster 0.0.1, and here is "),
            ("head -c 70000 /dev/zero; cat", "what it says is not muster's"),
            ("exec yes", "what it says is not muster's"),
        ] {
            let events = events(script);
            let Some(Event::Closed(words)) = events.last() else { panic!("{script}: {events:?}") };
            assert!(words.contains(expected), "{script}: {words}");
            assert_eq!(said(&events).contains("denied"), script.contains("denied"), "{script}");
            assert!(events.len() < 100, "{script}: {} events, for 64 KiB of lines", events.len());
        }
    }
}
