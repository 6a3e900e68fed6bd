//! `muster host-part`: the leading launcher has ssh start this on a host. It says that it is there, reads its spec, and
//! starts this host's launcher, which is `muster run` with a report added. What that launcher writes and reports goes
//! back in frames.
//!
//! The end of its standard input means that nobody leads any more, whatever the reason. Then it ends its launcher, and
//! everything that this has started: they are asked, asked again, and killed. Its own death kills the launcher.
//!
//! If the leading launcher's reader is slow, that launcher says that output is to wait. Then this reads no output, and
//! the launcher here leaves it in the logs. Everything else goes on, so that an end or a failure is told at once.

use super::frames::{greeting, Frame, Frames, Hold, Kind, LaunchSpec};
use super::report::Report;
use crate::code;
use crate::run::parse::{Placement, SchedulerAt};
use crate::run::signals::{Signals, OTHERS_DONE};
use crate::start::{start, Start};
use crate::sys;
use crate::voice::complain;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The word after `muster host-part` that makes it a host's launcher.
const LAUNCH: &str = "launch";
/// How often the leading launcher hears that this host is there.
const BEAT: Duration = Duration::from_secs(10);
/// If nobody leads any more: how long until the launcher is asked a second time to end, and until it is killed.
const INSIST: Duration = Duration::from_secs(1);
const KILL: Duration = Duration::from_secs(5);

/// Runs it, with the words after its name. Returns the exit code.
pub fn command(words: Vec<OsString>) -> i32 {
    match words.split_first() {
        Some((word, words)) if word == LAUNCH => launch(words),
        None => relay().map_or(code::FAILED, |()| 0), // an error means that nobody is there to be told
        Some(_) => {
            complain("muster host-part is what muster run -H starts on each host; it takes no words\n");
            code::USAGE
        }
    }
}

/// Runs as a host's launcher. The words are its report's descriptor, the first rank, whether it has the scheduler,
/// whether ranks are shown in colour, and the words after `muster run`.
fn launch(words: &[OsString]) -> i32 {
    let numbers = words.first_chunk::<4>().and_then(|words| {
        let [fd, first_rank, has_scheduler, is_coloured] =
            words.each_ref().map(|word| word.to_str()?.parse::<u32>().ok());
        Some((fd?, first_rank?, has_scheduler? == 1, is_coloured? == 1))
    });
    let report = numbers.and_then(|(fd, ..)| sys::taken_over(fd as i32).ok());
    let (Some((_, first_rank, has_scheduler, is_coloured)), Some(report)) = (numbers, report) else {
        complain(format!("muster host-part {LAUNCH} is started by muster host-part alone\n"));
        return code::USAGE;
    };
    let scheduler = if has_scheduler { SchedulerAt::Here } else { SchedulerAt::Remote };
    let placement = Placement { first_rank: Some(first_rank), scheduler };
    crate::run::run_led(words[4..].to_vec(), placement, &Report::to(File::from(report), is_coloured))
}

/// The process between the leading launcher and this host's.
struct Relay {
    input: OwnedFd,
    output: File,
    frames: Frames,
    /// The launcher: its process, and what it writes to standard output, standard error and its report.
    pid: i32,
    streams: [Option<OwnedFd>; 3],
    report: Frames,
    /// What becomes of its output, as the leading launcher has said.
    hold: Hold,
    /// When it became known that nobody leads any more, and how often the launcher was told.
    alone: Option<(Instant, usize)>,
}

fn relay() -> io::Result<()> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    output.write_all(greeting().as_bytes())?;
    let mut frames = Frames::default();
    let Some(frame) = next(&input, &mut frames)? else { return Ok(()) };
    let spec = LaunchSpec::decode(&frame.body).filter(|_| frame.kind == Kind::Launch);
    let spec = spec.ok_or_else(|| io::Error::other("what came first is no launch spec"))?;
    let signals = Signals::begin()?;
    match begin(&spec) {
        Ok((pid, streams)) => {
            let streams = streams.map(Some);
            let (report, hold, alone) = (Frames::default(), Hold::Comes, None);
            Relay { input, output, frames, pid, streams, report, hold, alone }.follow(&signals)
        }
        Err(error) => {
            Frame::new(Kind::Words, format!("muster: {error}\n")).write(&mut output)?;
            Frame::new(Kind::Ended, code::FAILED.to_string()).write(&mut output)
        }
    }
}

/// The next frame, however long it takes; none if there will be none.
fn next(input: &OwnedFd, frames: &mut Frames) -> io::Result<Option<Frame>> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        if let Some(frame) = frames.next()? {
            return Ok(Some(frame));
        }
        match sys::read(input, &mut buffer)? {
            0 => return Ok(None),
            length => frames.push(&buffer[..length]),
        }
    }
}

/// Starts this host's launcher. Returns its process, and the pipes with what it writes.
fn begin(spec: &LaunchSpec) -> io::Result<(i32, [OwnedFd; 3])> {
    std::env::set_current_dir(&spec.folder).map_err(|error| {
        io::Error::other(format!("can't run in {:?}, as the first launcher does: {error}", spec.folder))
    })?;
    let [(from, output), (said, error), (told, report)] = [io::pipe()?, io::pipe()?, io::pipe()?];
    let mut words: Vec<OsString> = ["muster", "host-part", LAUNCH].map(OsString::from).to_vec();
    let is = [spec.has_scheduler, spec.is_coloured].map(u32::from);
    let numbers = [report.as_raw_fd() as u32, spec.first_rank, is[0], is[1]];
    words.extend(numbers.map(|number| OsString::from(number.to_string())));
    words.extend(spec.words.iter().cloned());
    let inherited = std::env::vars_os().filter(|(name, _)| spec.environment.iter().all(|(other, _)| other != name));
    let null = File::open("/dev/null")?;
    let pid = start(&Start {
        program: std::env::current_exe()?.as_os_str(),
        words: &words,
        environment: inherited.chain(spec.environment.iter().cloned()).collect(),
        input: Some(null.as_fd()),
        output: output.as_fd(),
        error: Some(error.as_fd()),
        keeps: Some(report.as_fd()),
        dies_with_parent: true,
        cores: &[],
        memory_nodes: &[],
    })?;
    Ok((pid, [from.into(), said.into(), told.into()]))
}

impl Relay {
    fn follow(mut self, signals: &Signals) -> io::Result<()> {
        let never = sys::bell()?; // stands in the place of a pipe that has ended
        let mut beat = Instant::now() + BEAT;
        self.obey(); // what came together with the spec
        while self.streams.iter().any(Option::is_some) {
            // A launcher that has left its output open to others has ended all the same.
            let has_ended = sys::ended(self.pid).is_some();
            // What a launcher leaves in its pipe when it ends is little.
            let waits = |index: usize| index == 0 && self.hold == Hold::Waits && self.alone.is_none() && !has_ended;
            let stream = |index: usize| match &self.streams[index] {
                Some(stream) if !waits(index) => stream.as_fd(),
                _ => never.as_fd(),
            };
            let input = if self.alone.is_some() { never.as_fd() } else { self.input.as_fd() };
            let polled = [stream(0), stream(1), stream(2), input, signals.descriptor()];
            let patience = if has_ended { Duration::ZERO } else { self.patience(beat) };
            let ready = sys::poll(polled, Some(patience))?;
            if has_ended && !ready[..3].contains(&true) {
                break;
            }
            while let Some(signal) = signals.ending() {
                sys::signal_process(self.pid, signal);
            }
            (0..3).filter(|index| ready[*index]).for_each(|index| self.pass_on(index));
            if ready[3] && self.alone.is_none() {
                self.listen();
            }
            self.end_if_alone();
            if Instant::now() >= beat {
                beat = Instant::now() + BEAT;
                self.say(Frame::new(Kind::Beat, Vec::new()));
            }
        }
        let ended = sys::await_end(self.pid).map_or(code::FAILED, sys::Ending::code);
        self.say(Frame::new(Kind::Ended, ended.to_string()));
        Ok(())
    }

    fn patience(&self, beat: Instant) -> Duration {
        let due = match self.alone {
            Some((since, 1)) => since + INSIST,
            Some((since, 2)) => since + KILL,
            _ => beat,
        };
        due.min(beat).saturating_duration_since(Instant::now())
    }

    /// Passes on to the leading launcher what this host's launcher has written.
    fn pass_on(&mut self, index: usize) {
        let Some(stream) = &self.streams[index] else { return };
        let mut buffer = vec![0; 64 << 10];
        let length = sys::read(stream, &mut buffer).unwrap_or(0);
        if length == 0 {
            self.streams[index] = None;
            return;
        }
        buffer.truncate(length);
        if index == 0 && self.hold == Hold::OneRead {
            self.hold = Hold::Waits;
        }
        match index {
            0 => self.say(Frame::new(Kind::Output, buffer)),
            1 => self.say(Frame::new(Kind::Words, buffer)),
            _ => {
                self.report.push(&buffer);
                while let Ok(Some(frame)) = self.report.next() {
                    self.say(frame);
                }
            }
        }
    }

    /// Reads what the leading launcher says, or that it is gone.
    fn listen(&mut self) {
        let mut buffer = [0; 4096];
        match sys::read(&self.input, &mut buffer) {
            Ok(length @ 1..) => self.frames.push(&buffer[..length]),
            _ => self.is_alone(),
        }
        self.obey();
    }

    /// Does what the leading launcher has said.
    fn obey(&mut self) {
        while let Ok(Some(frame)) = self.frames.next() {
            match (frame.kind, frame.body.first()) {
                (Kind::Signal, Some(signal)) => sys::signal_process(self.pid, i32::from(*signal)),
                (Kind::OthersDone, _) => sys::signal_process(self.pid, OTHERS_DONE),
                (Kind::Hold, Some(byte)) => self.hold = Hold::of(*byte),
                _ => {}
            }
        }
    }

    fn is_alone(&mut self) {
        self.alone.get_or_insert((Instant::now(), 0));
    }

    fn end_if_alone(&mut self) {
        let Some((since, told)) = &mut self.alone else { return };
        let (due, signal) = match told {
            0 => (Duration::ZERO, libc::SIGTERM),
            1 => (INSIST, libc::SIGTERM),
            2 => (KILL, libc::SIGKILL),
            _ => return,
        };
        if since.elapsed() >= due {
            *told += 1;
            sys::signal_process(self.pid, signal);
        }
    }

    /// Sends a frame. An error means that nobody leads any more.
    fn say(&mut self, frame: Frame) {
        if self.alone.is_none() && frame.write(&mut self.output).is_err() {
            self.is_alone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_signal_that_comes_together_with_the_job_arrives() {
        let mut child = Command::new("sleep").arg("60").stdout(Stdio::piped()).spawn().unwrap();
        let (said, output) = io::pipe().unwrap();
        let (input, _leads) = io::pipe().unwrap(); // which stays open, and silent
        let mut frames = Frames::default();
        let mut told = Vec::new();
        Frame::new(Kind::Signal, vec![libc::SIGTERM as u8]).write(&mut told).unwrap();
        frames.push(&told);
        let stream: OwnedFd = child.stdout.take().unwrap().into();
        let relay = Relay {
            input: input.into(),
            output: File::from(OwnedFd::from(output)),
            frames,
            pid: child.id() as i32,
            streams: [Some(stream), None, None],
            report: Frames::default(),
            hold: Hold::Comes,
            alone: None,
        };
        let begin = Instant::now();
        relay.follow(&Signals::begin().unwrap()).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(50), "the child was not told");
        let mut heard = Frames::default();
        let mut bytes = vec![0; 4096];
        let length = sys::read(&said.into(), &mut bytes).unwrap();
        heard.push(&bytes[..length]);
        let last = std::iter::from_fn(|| heard.next().unwrap()).last().unwrap();
        assert_eq!((last.kind, last.body), (Kind::Ended, b"143".to_vec()));
        let _ = child.wait(); // it was waited for
    }

    #[test]
    fn output_that_is_held_waits_and_all_else_is_told() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo output; echo words >&2; exec sleep 60"]);
        let mut child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let ((said, output), (input, leads)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let mut leads = File::from(OwnedFd::from(leads));
        let mut tell = |kind, byte: u8| Frame::new(kind, vec![byte]).write(&mut leads).unwrap();
        let (mut frames, mut held) = (Frames::default(), Vec::new());
        Frame::new(Kind::Hold, vec![1]).write(&mut held).unwrap();
        frames.push(&held);
        let streams = [Some(child.stdout.take().unwrap().into()), Some(child.stderr.take().unwrap().into()), None];
        let (input, output) = (input.into(), File::from(OwnedFd::from(output)));
        let (pid, report) = (child.id() as i32, Frames::default());
        let relay = Relay { input, output, frames, pid, streams, report, hold: Hold::Comes, alone: None };
        let relays = std::thread::spawn(move || relay.follow(&Signals::begin().unwrap()));
        let (said, mut heard) = (OwnedFd::from(said), Frames::default());
        let mut hear = || next(&said, &mut heard).unwrap().unwrap();
        assert_eq!(hear(), Frame::new(Kind::Words, &b"words\n"[..]), "the output came first, and waits");
        tell(Kind::Hold, 0);
        assert_eq!(hear(), Frame::new(Kind::Output, &b"output\n"[..]));
        tell(Kind::Signal, libc::SIGTERM as u8);
        assert_eq!(hear(), Frame::new(Kind::Ended, &b"143"[..]));
        relays.join().unwrap().unwrap();
        let _ = child.wait(); // it was waited for
    }
}
