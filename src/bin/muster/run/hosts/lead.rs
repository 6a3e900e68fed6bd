//! The leading launcher: calls the hosts, hands on what comes from them, and carries out what [`Conduct`] decides.

use super::blame;
use super::conduct::{Action, Conduct, End, ANSWER};
use super::frames::{text, texts, Frame, Hold, Kind};
use super::line::{self, Come, Event, Line};
use super::plan::{HostShare, Plan};
use super::report::Summary;
use super::show::Show;
use crate::run::progress::Shown;
use crate::run::signals::Signals;
use crate::run::tail::{has_colours, Lines, Pane};
use crate::sys;
use crate::voice::{Output, Voice};
use muster::config::HostSlots;
use muster::net::{host, interface, limit, resolve};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::time::{Duration, Instant};

/// How many frames wait to be handed on before a host has to wait.
const WAITING: usize = 256;
/// How often the loop looks at the time, at least. If it is late by [`STOOD_STILL`], this process itself was stopped,
/// and the hosts were not silent.
const LOOK: Duration = Duration::from_secs(5);
const STOOD_STILL: Duration = Duration::from_secs(10);
/// How long the names of all hosts are looked up, to see which is this host. Nothing else happens meanwhile.
const LOOK_UPS: Duration = Duration::from_secs(3);
/// How long it takes until the user is told which hosts have not answered, and how many are named.
const MISSES: Duration = Duration::from_secs(5);
const NAMED: usize = 4;
/// How often the reader is looked at while the hosts' output waits for it.
const LOOK_AT_READER: Duration = Duration::from_millis(20);
/// How long a held host waits before a little of its output comes.
const LITTLE: Duration = Duration::from_millis(500);

/// Runs the plan. Returns the exit code; the error is a sentence.
pub fn lead(plan: &Plan, voice: &Voice) -> Result<i32, String> {
    plan.warnings.iter().for_each(|warning| voice.say(format!("muster: {warning}\n")));
    let failed = |error: io::Error| format!("can't lead the hosts: {error}");
    let signals = Signals::begin().map_err(failed)?;
    let (sender, events) = sync_channel(WAITING);
    pass_on(signals, sender.clone()).map_err(failed)?;
    let gone = |error: io::Error| format!("can't lead the hosts: the working directory: {error}");
    let folder = std::env::current_dir().map_err(gone)?;
    let show = Show::start(Pane::new(Output::standard(), voice.row())).map_err(failed)?;
    let mut lead = Lead {
        plan,
        voice,
        show,
        held: None,
        forming: Shown::new(),
        conduct: Conduct::new(plan.places.len()),
        members: plan.places.iter().map(Member::new).collect(),
        began: Instant::now(),
        folder,
        port: plan.port,
        secret: None,
        told_of_missing: false,
    };
    lead.call(&sender).map_err(failed)?;
    lead.began = Instant::now(); // looking names up may have taken a while
    lead.follow(&events);
    Ok(lead.finish())
}

/// Passes the user's signals on as events, like everything else.
fn pass_on(signals: Signals, events: SyncSender<Come>) -> io::Result<()> {
    let wait = move || loop {
        let is_over = match signals.ending() {
            Some(signal) => events.send(Come::Signal(signal)).is_err(),
            None => sys::poll([signals.descriptor()], None).is_err(),
        };
        if is_over {
            return;
        }
    };
    std::thread::Builder::new().name("muster-signals".to_owned()).spawn(wait).map(|_| ())
}

/// A host, as it is seen from here.
struct Member {
    line: Option<Line>,
    output: Lines,
    words: Lines,
    summary: Option<Summary>,
    has_spec: bool,
}

impl Member {
    fn new(place: &HostShare) -> Member {
        let (output, words) = (Lines::made(), Lines::new(Some(format!("[{}] ", place.host.name))));
        Member { line: None, output, words, summary: None, has_spec: false }
    }
}

struct Lead<'a> {
    plan: &'a Plan,
    voice: &'a Voice,
    show: Show,
    /// Since when the hosts' output waits there, or how it was looked at last, and how much had been read by then.
    held: Option<(Duration, usize)>,
    forming: Shown,
    conduct: Conduct,
    members: Vec<Member>,
    began: Instant,
    folder: PathBuf,
    port: u16,
    secret: Option<String>,
    told_of_missing: bool,
}

impl Lead<'_> {
    fn call(&mut self, events: &SyncSender<Come>) -> io::Result<()> {
        let descriptors = line::DESCRIPTORS * self.plan.places.len() as u64 + line::WHILE_IT_OPENS;
        limit::room_for(descriptors, 0).map_err(|error| io::Error::other(error.to_string()))?;
        let (own, until) = (std::env::current_exe()?, Instant::now() + LOOK_UPS);
        let part = OsString::from_vec([b"exec ", &quoted(own.as_os_str().as_bytes())[..], b" host-part"].concat());
        for (index, place) in self.plan.places.iter().enumerate() {
            let words: Vec<OsString> = match &self.plan.ssh {
                None if is_here(&place.host, until) => vec![own.clone().into(), "host-part".into()],
                ssh => {
                    let ssh = ssh.clone().unwrap_or_else(|| vec!["ssh".into()]);
                    ssh.into_iter().chain([place.host.name.clone().into(), part.clone()]).collect()
                }
            };
            match Line::open(&words, index, events) {
                Ok(line) => self.members[index].line = Some(line),
                Err(error) => {
                    let words = not_started(self.plan.ssh.as_deref(), &words[0].to_string_lossy(), &error);
                    self.conduct.closed(index, words, self.began.elapsed());
                }
            }
        }
        Ok(())
    }

    fn follow(&mut self, events: &Receiver<Come>) {
        loop {
            self.act();
            if self.conduct.finished() {
                return;
            }
            let now = self.began.elapsed();
            self.hold_output(now);
            self.tell_of_missing(now);
            let look = if self.held.is_some() { LOOK_AT_READER } else { LOOK };
            let left = self.conduct.deadline().map_or(look, |deadline| deadline.saturating_sub(now).min(look));
            let come = events.recv_timeout(left);
            let then = self.began.elapsed();
            if then >= now + left + STOOD_STILL {
                (0..self.members.len()).for_each(|host| self.conduct.heard(host, then));
            }
            match come {
                Ok(Come::Host(host, event)) => self.take(host, event),
                Ok(Come::Signal(signal)) => {
                    self.forming.end(self.voice);
                    self.conduct.signalled(signal, then);
                }
                Err(_) => {}
            }
            self.conduct.tick(then); // also where one event follows another without a pause
        }
    }

    /// Lets the hosts' output wait there while enough waits here for a reader. All else goes on. Now and then a little
    /// comes all the same if somebody reads: a host's launcher that has nothing else to do ends when nobody seems to.
    fn hold_output(&mut self, now: Duration) {
        let (read, is_full) = (self.show.read(), self.show.is_full(self.held.is_some()));
        let told = match self.held {
            None if is_full => Hold::Waits,
            Some(_) if !is_full => Hold::Comes,
            Some((since, before)) if now >= since + LITTLE && read != before && self.show.has_room() => Hold::OneRead,
            _ => return,
        };
        self.held = (told != Hold::Comes).then_some((now, read));
        let with_spec = self.members.iter().filter(|member| member.has_spec);
        with_spec.filter_map(|member| member.line.as_ref()).for_each(|line| line.tell(told.frame()));
    }

    /// Says once which hosts have not answered: a login may take long, or lead nowhere.
    fn tell_of_missing(&mut self, now: Duration) {
        let awaited = self.conduct.awaited();
        if now < MISSES || awaited.is_empty() || std::mem::replace(&mut self.told_of_missing, true) {
            return;
        }
        let names: Vec<&str> = awaited.iter().take(NAMED).map(|host| &self.plan.places[*host].host.name[..]).collect();
        let more = awaited.len() - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let (names, all) = (names.join(", "), self.plan.places.len());
        let (missing, limit) = (awaited.len(), ANSWER.as_secs());
        self.voice.say(format!(
            "muster: {missing} of {all} hosts have not answered yet: {names}{more}; each has {limit} s to answer, and nothing has \
             started\n"
        ));
    }

    fn act(&mut self) {
        while let Some(action) = self.conduct.next_action() {
            let (Action::Start(host)
            | Action::OthersDone(host)
            | Action::Signal(host, _)
            | Action::Close(host)
            | Action::Kill(host)) = action;
            let Some(line) = self.members[host].line.as_mut() else { continue };
            match action {
                Action::Start(_) => {
                    let spec =
                        self.plan.launch_spec(host, &self.folder, self.port, self.secret.as_deref(), has_colours());
                    line.tell(Frame::new(Kind::Launch, spec.encode()));
                    if self.held.is_some() {
                        line.tell(Hold::Waits.frame());
                    }
                    self.members[host].has_spec = true;
                }
                Action::OthersDone(_) => line.tell(Frame::new(Kind::OthersDone, Vec::new())),
                Action::Signal(_, signal) => line.tell(Frame::new(Kind::Signal, vec![signal as u8])),
                Action::Close(_) => line.close(),
                Action::Kill(_) => line.kill(),
            }
        }
    }

    fn take(&mut self, host: usize, event: Event) {
        let now = self.began.elapsed();
        self.conduct.heard(host, now);
        match event {
            Event::Answered => self.conduct.answered(host, now),
            Event::Frame(frame) => self.hear(host, frame, now),
            Event::Said(words) => self.say(host, &words),
            Event::Closed(words) => self.conduct.closed(host, words, now),
        }
    }

    fn hear(&mut self, host: usize, frame: Frame, now: Duration) {
        match frame.kind {
            Kind::Output => {
                let mut lines = Vec::new();
                self.members[host].output.push(&frame.body, &mut lines);
                self.show.put(lines);
            }
            Kind::Words => self.say(host, &frame.body),
            Kind::Port => {
                let mut texts = texts(&frame.body).into_iter();
                self.port = texts.next().and_then(|port| port.parse().ok()).unwrap_or(self.port);
                self.secret = texts.next().filter(|secret| !secret.is_empty());
                self.conduct.port_known(now);
            }
            Kind::Forming if frame.body.is_empty() => self.forming.formed(self.voice),
            Kind::Forming => self.forming.show(&text(&frame.body), now, self.voice),
            Kind::Failing => {
                self.forming.end(self.voice);
                self.conduct.failing(host, now);
            }
            Kind::Summary => self.members[host].summary = Summary::decode(&frame.body),
            Kind::Ended => {
                let code = text(&frame.body).parse().unwrap_or(crate::code::FAILED);
                let summary = self.members[host].summary.take();
                self.conduct.ended(host, End::Told { code, summary }, now);
            }
            Kind::Beat | Kind::Launch | Kind::Signal | Kind::OthersDone | Kind::Hold => {}
        }
    }

    /// Shows what is said on a host, in whole lines after its name.
    fn say(&mut self, host: usize, words: &[u8]) {
        let mut lines = Vec::new();
        self.members[host].words.push(words, &mut lines);
        self.voice.say(text(&lines));
    }

    fn finish(mut self) -> i32 {
        self.forming.end(self.voice);
        for member in &mut self.members {
            let (mut output, mut words) = (Vec::new(), Vec::new());
            member.output.finish(&mut output);
            member.words.finish(&mut words);
            self.show.put(output);
            self.voice.say(text(&words));
        }
        if let Some(words) = self.show.finish() {
            self.voice.say(words);
        }
        let (text, code) = blame::verdict(&self.conduct, &self.plan.places);
        self.voice.say(text);
        code
    }
}

/// Why no way leads to a host. `ssh` is what the user gave for it.
fn not_started(ssh: Option<&[OsString]>, program: &str, error: &io::Error) -> String {
    let Some(ssh) = ssh else { return format!("{program} can't be started: {error}") };
    let given = ssh.join(OsStr::new(" "));
    format!("--ssh is {given:?}, and its first word, {program:?}, can't be started: {error}; blanks part its words, also in quotes")
}

/// The word as a shell takes it for one word.
fn quoted(word: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = word.split(|byte| *byte == b'\'').collect();
    [b"'", &parts.join(&br"'\''"[..])[..], b"'"].concat()
}

/// Whether that host is this one, so that nothing need lead there. A name that is not found in time belongs to another
/// host.
fn is_here(host: &HostSlots, until: Instant) -> bool {
    let is_own = || {
        let found = resolve::resolve(host.address(), 0, until.saturating_duration_since(Instant::now()));
        found.is_ok_and(|addresses| {
            !addresses.is_empty() && addresses.iter().all(|address| interface::is_local(*address))
        })
    };
    host.name == host.address() && (host::name().is_ok_and(|name| name == host.name) || is_own())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_started_is_named_with_the_option_that_gave_it() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        assert!(not_started(None, "ssh", &error).starts_with("ssh can't be started: No such file"));
        let given = ["'my", "ssh'", "-q"].map(OsString::from);
        let said = not_started(Some(&given), "'my", &error);
        assert!(
            said.starts_with("--ssh is \"'my ssh' -q\", and its first word, \"'my\", can't be started: No such"),
            "{said}"
        );
    }
}
