//! `--join`: waits for the children, starts them again if they may be, stops all when one fails or the user says so,
//! and leaves nothing behind.
//!
//! One loop: a descriptor of signals (among them "a child has ended") and the next deadline of the [`Supervisor`], which
//! decides everything. Children that have ended stay zombies until the end, or until the next life has begun, so that the
//! number of their group can't come to mean another.

use super::children::{self, Child, Launch};
use super::exit_report::ExitReport;
use super::family::{came_of, shows_nothing};
use super::hosts::report::Report;
use super::job_check::{Found, JobCheck};
use super::parse::RunOptions;
use super::part::Part;
use super::progress::Progress;
use super::recovery;
use super::restart_check::{Answer, RestartCheck, GONE_AFTER, LOOK_AGAIN};
use super::signals::Signals;
use super::summary::{self, Outcome};
use super::supervise::{Action, Supervisor, Verdict, Whom, KILL_AFTER_SIGNAL, OVER};
use super::unclean_exits::{AtFirst, Later, UncleanExits, Without};
use crate::status::ask::ask;
use crate::sys::{self, Ending};
use crate::voice::Voice;
use muster::config::{Config, Key};
use muster::wire::JobPhase;
use std::io;
use std::time::{Duration, Instant};

/// How long a scheduler that does not end may take to say how its job is.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many processes are named when they are killed.
const NAMED: usize = 4;

/// A run that is being waited for.
struct Run<'a, 'b> {
    launch: &'a mut Launch<'b>,
    report: &'a Report,
    voice: &'a Voice,
    children: Vec<Child>,
    supervisor: Supervisor,
    unclean_exits: UncleanExits,
    exit_report: ExitReport,
    restart_check: RestartCheck,
    job_check: JobCheck,
    progress: Progress,
    began: Instant,
    max_restarts: u32,
    never_formed: bool,
    never_joined: Vec<usize>,
    told_of_killing: bool,
}

/// Waits until the run is over. On an error the children have been stopped.
pub fn join(
    launch: &mut Launch<'_>,
    children: Vec<Child>,
    options: &RunOptions,
    report: &Report,
    signals: &Signals,
    voice: &Voice,
) -> io::Result<Outcome> {
    let schedulers: Vec<bool> = children.iter().map(|child| child.part == Part::Scheduler).collect();
    let max_restarts = options.max_restarts;
    let address = launch.scheduler();
    let is_here = schedulers.contains(&true);
    let supervisor = Supervisor::new(schedulers, options.all_here(), max_restarts);
    let exit_report = ExitReport::new(setting(Key::HostId), address.clone());
    // With recovery nothing says that the cluster was complete: the next job at the same port would be taken for this
    // one.
    let later = match is_here || options.all_here() || recovery::directory().is_some() {
        _ if max_restarts > 0 => Later::Returning,
        true => Later::Nothing,
        false if report.is_led() => Later::Joining,
        false => Later::Leaving,
    };
    let unclean_exits = UncleanExits::new(address.clone(), later);
    let restart_check = RestartCheck::new(address.clone(), !is_here);
    let (began, mut progress) = (Instant::now(), Progress::new(address.clone(), !is_here, report.is_led()));
    if report.is_led() && !is_here {
        progress.end(voice); // among the hosts of one command the scheduler's says it
    }
    // This launcher sees everything that fails, or has the scheduler's log; or a failure does not end the job.
    let needs_none = options.all_here() || (report.is_led() && is_here) || max_restarts > 0;
    let job_check = JobCheck::new((!needs_none).then_some(address), node_timeout())
        .inspect_err(|_| children::stop_now(&children))?;
    let mut run = Run {
        launch,
        report,
        voice,
        children,
        supervisor,
        unclean_exits,
        exit_report,
        restart_check,
        job_check,
        progress,
        began,
        max_restarts,
        never_formed: false,
        never_joined: Vec::new(),
        told_of_killing: false,
    };
    run.wait(signals).inspect_err(|_| children::stop_now(&run.children))?;
    let outcome = run.outcome();
    run.exit_report.finish();
    Ok(outcome)
}

impl Run<'_, '_> {
    fn wait(&mut self, signals: &Signals) -> io::Result<()> {
        loop {
            // Many children may end one by one: that is no reason to ask each time which processes are left. The answer
            // matters to a run that is being stopped. Otherwise it is for reaping children that have ended, which
            // nothing else explains.
            if !self.notice_ends() || self.supervisor.is_stopping() {
                self.look_for_orphans();
            }
            self.look_at_job();
            self.act();
            if self.supervisor.is_stopping() {
                self.progress.end(self.voice);
            }
            if self.supervisor.is_interrupted() {
                self.job_check.end();
            }
            if self.supervisor.finished() && self.is_settled() {
                return Ok(());
            }
            self.progress.look(self.began.elapsed(), self.voice, self.report);
            sys::poll([signals.descriptor(), self.job_check.descriptor()], self.patience())?;
            while let Some(signal) = signals.ending() {
                if self.supervisor.finished() {
                    return Ok(()); // all have ended: only a word of the scheduler's is waited for
                }
                self.tell_of_signal(signal);
                self.look_for_orphans();
                self.supervisor.signalled(signal, self.began.elapsed());
            }
            if signals.others_done() {
                self.supervisor.others_done();
            }
        }
    }

    /// Whether a run whose children have ended need not wait for a scheduler on another host. A run that would end well does
    /// wait, until it is known whether others wait for its workers.
    fn is_settled(&mut self) -> bool {
        let is_over = self.supervisor.verdict(None) != Verdict::Success;
        is_over || self.unclean_exits.is_settled(self.began.elapsed())
    }

    /// Looks whether the job is over, although no process here has failed. The launcher that leads ends its hosts'
    /// parts itself.
    fn look_at_job(&mut self) {
        let now = self.began.elapsed();
        let why = match self.job_check.look() {
            None => return,
            Some(Found::Formed) => {
                self.supervisor.formed();
                return self.unclean_exits.formed();
            }
            Some(Found::Over(why) | Found::Gone(why)) => why,
        };
        self.supervisor.told_why(summary::named_in(&why, &self.children), now);
        let goes_on = !self.supervisor.is_stopping() && !self.supervisor.finished();
        if goes_on && !self.report.is_led() {
            self.progress.end(self.voice);
            self.voice.say(format!("muster: the job is over: {why}; all processes here are asked to end\n"));
            self.supervisor.job_is_lost(now);
        }
    }

    fn look_for_orphans(&mut self) {
        let orphans = self.orphans();
        self.supervisor.orphans(orphans.len(), strays(orphans, &self.children));
    }

    /// Processes that descend from the children and whose own parents have ended. Those that have ended, too, are
    /// reaped.
    fn orphans(&self) -> Vec<i32> {
        let keeper = self.launch.keeper();
        sys::children()
            .into_iter()
            .filter(|pid| Some(*pid) != keeper && !self.launch.is_earlier(*pid))
            .filter(|pid| self.children.iter().all(|child| child.pid != *pid))
            .filter(|pid| sys::reap(*pid).is_none())
            .collect()
    }

    /// Whether some of the orphans came of this child, or may have.
    fn has_left_some_behind(&self, index: usize) -> bool {
        let child = &self.children[index];
        self.orphans().into_iter().any(|pid| shows_nothing(pid) || came_of(pid, child.pid, child.launch))
    }

    /// Says once what a signal of the user's means.
    fn tell_of_signal(&self, signal: i32) {
        if !self.supervisor.gives_up() && !self.supervisor.is_interrupted() {
            let (name, grace) = (summary::signal_name(signal), KILL_AFTER_SIGNAL.as_secs());
            self.voice.say(format!(
                "muster: {name}: all processes are asked to end, and killed after {grace} s; a second signal kills them \
                 at once\n"
            ));
        }
    }

    /// Says once which processes have not ended although the user wants it, and are killed for that.
    fn tell_of_killing(&mut self) {
        if !self.supervisor.is_interrupted() || self.told_of_killing {
            return;
        }
        let left = self.killed();
        if !left.is_empty() {
            self.told_of_killing = true;
            let more = left.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let named = left[..left.len().min(NAMED)].join(", ");
            self.voice.say(format!("muster: killed, for they had not ended: {named}{more}\n"));
        }
    }

    /// The processes that are killed now, in words: workers, what they have left behind, and the scheduler.
    fn killed(&self) -> Vec<String> {
        let running = self.children.iter().enumerate().filter(|(index, _)| self.supervisor.runs(*index));
        let (last, workers): (Vec<&Child>, Vec<&Child>) =
            running.map(|(_, child)| child).partition(|child| child.part == Part::Scheduler);
        let named = |child: &Child| format!("{} (pid {})", child.part, child.pid);
        let behind = self.orphans().into_iter().map(|pid| {
            let parent = self.children.iter().find(|child| came_of(pid, child.pid, child.launch));
            let whose = parent.map(|child| format!(" of {}", child.part)).unwrap_or_default();
            format!("a process{whose} (pid {pid})")
        });
        workers.into_iter().map(named).chain(behind).chain(last.into_iter().map(named)).collect()
    }

    /// Says which processes are left of a run that was stopped, for this launcher cannot kill them. Returns how many.
    fn tell_of_left(&self) -> usize {
        let was_stopped = self.supervisor.gives_up() || self.supervisor.is_interrupted();
        let mut left = if was_stopped { self.orphans() } else { Vec::new() };
        left.extend(self.children.iter().map(|child| child.pid).filter(|pid| sys::ended(*pid).is_none()));
        if !left.is_empty() {
            let pids: Vec<String> = left.iter().take(NAMED).map(i32::to_string).collect();
            self.voice.say(format!("muster: {} could not be ended, and left: pid {}\n", left.len(), pids.join(", ")));
        }
        left.len()
    }

    /// Looks which children have ended, until no further one is found: what ended because another did may do so within
    /// a millisecond, and be found before it. All that are found have ended in one look.
    fn look_for_ends(&self) -> Vec<(usize, Ending)> {
        let mut running: Vec<usize> = (0..self.children.len()).filter(|index| self.supervisor.runs(*index)).collect();
        let mut found = Vec::new();
        loop {
            let before = running.len();
            running.retain(|index| {
                let ending = sys::ended(self.children[*index].pid);
                found.extend(ending.map(|ending| (*index, ending)));
                ending.is_none()
            });
            if running.len() == before {
                return found;
            }
        }
    }

    /// Notices children that have ended. Returns whether there are any.
    fn notice_ends(&mut self) -> bool {
        // All are looked at before the first is reported. A report may be the moment at which another process is to
        // begin its next life, and until that has begun its number is still that of the last life.
        let (ended, now) = (self.look_for_ends(), self.began.elapsed());
        let has_ended = !ended.is_empty();
        for (index, ending) in ended {
            if self.children[index].part != Part::Scheduler {
                self.exit_report.saw(index, self.children[index].pid, self.children[index].launch, ending);
            }
            let (gave_up, was_over) = (self.supervisor.gives_up(), self.supervisor.is_over());
            self.supervisor.ended(index, ending, now);
            let is_first = self.supervisor.gives_up() && !gave_up && !self.supervisor.is_interrupted();
            if self.supervisor.is_over() && !was_over {
                let (how, time) = (summary::how(&self.children[index], ending), OVER.as_secs());
                let words = format!("muster: {how}: the job is over, and the workers have {time} s to end\n");
                self.voice.say(words);
            }
            if ending == Ending::Exit(0) && self.children[index].part != Part::Scheduler {
                self.unclean_exits.doubt(index, now);
            } else if is_first && self.children[index].part != Part::Scheduler {
                self.unclean_exits.failed(index, now);
            }
        }
        self.notice_unclean_exits();
        if self.supervisor.gives_up() {
            self.report.failing();
        }
        // Without restarts, whatever started this launcher may start it again.
        if self.max_restarts > 0 && self.supervisor.gives_up() {
            let is_worker = |index: &usize| self.children[*index].part != Part::Scheduler;
            let ended = (0..self.children.len()).filter(is_worker).filter(|index| !self.supervisor.runs(*index));
            self.exit_report.abandons(ended);
        }
        has_ended
    }

    /// Notices children that have ended with code 0, and that others wait for.
    fn notice_unclean_exits(&mut self) {
        let (lives, now) = (|index| self.exit_report.lives(index), self.began.elapsed());
        for (index, without) in self.unclean_exits.look(&self.children, lives, now) {
            if let Without::Joining(waiting) = without {
                let ending = self.supervisor.ending(index).unwrap_or(Ending::Exit(0));
                if ending == Ending::Exit(0) && self.has_left_some_behind(index) {
                    self.unclean_exits.may_join_yet(index, now);
                    continue;
                }
                self.never_joined.push(index);
                let how = summary::how(&self.children[index], ending);
                let wait = if waiting == 1 { "1 other waits" } else { &format!("{waiting} others wait") };
                self.voice.say(format!("muster: {how} without joining the cluster, for which {wait}\n"));
            }
            self.supervisor.ended_uncleanly(index, now);
        }
    }

    fn act(&mut self) {
        self.supervisor.tick(self.began.elapsed());
        let mut due = Vec::new();
        while let Some(action) = self.supervisor.next_action() {
            match action {
                Action::Clear(index) => sys::signal_group(self.children[index].pid, libc::SIGKILL),
                Action::Start(index) if self.children[index].part == Part::Scheduler => self.start_again(index),
                Action::Start(index) => due.push(index),
                Action::Terminate(whom) => {
                    if whom == Whom::Scheduler && self.supervisor.is_closing() {
                        self.never_formed = self.is_forming();
                    }
                    self.unclean_exits.others_are_told();
                    send(libc::SIGTERM, whom, &self.children);
                }
                Action::Kill(whom) => {
                    if whom == Whom::Workers {
                        self.tell_of_killing();
                    }
                    send(libc::SIGKILL, whom, &self.children);
                }
            }
        }
        if !due.is_empty() {
            self.start_if_it_goes_on(due);
            return self.act(); // now acts on what follows
        }
        if !self.supervisor.needs_port() {
            self.launch.close_port();
        }
    }

    /// Whether the scheduler, which has not ended with the workers, says that it still waits for them. Nobody else
    /// waits by now.
    fn is_forming(&self) -> bool {
        let (host, port) = self.launch.scheduler();
        ask(&host, port, PATIENCE, |_| false).is_ok_and(|told| told.job.phase == JobPhase::Forming)
    }

    /// Starts these workers again, unless the job is over. Some of them are started only later, when that is known.
    fn start_if_it_goes_on(&mut self, due: Vec<usize>) {
        let now = self.began.elapsed();
        let (about, answer) = self.restart_check.look(&due, now);
        let (told, not_yet): (Vec<usize>, Vec<usize>) = due.into_iter().partition(|index| about.contains(index));
        not_yet.into_iter().for_each(|index| self.supervisor.put_off(index, self.restart_check.looks_at()));
        let Some(first) = told.first().copied() else { return };
        let why = match answer {
            Answer::Aborted(why) => why,
            Answer::Gone => {
                format!("the scheduler's port has refused for {} s, so the job is over", GONE_AFTER.as_secs())
            }
            // A scheduler here has ended, which is not yet known, nor how. One elsewhere may come back.
            Answer::Refused if self.may_listen_again() => return self.put_off(told, now + LOOK_AGAIN),
            _ => return told.into_iter().for_each(|index| self.start_again(index)),
        };
        let how = summary::how(&self.children[first], self.supervisor.ending_of_last(first));
        self.voice.say(format!("muster: {how}; no restart: {why}\n"));
        self.put_off(told, now);
        self.supervisor.over(now);
    }

    fn put_off(&mut self, workers: Vec<usize>, until: Duration) {
        workers.into_iter().for_each(|index| self.supervisor.put_off(index, until));
    }

    /// Whether a scheduler whose port refuses may come back: one on another host, or one that still runs here.
    fn may_listen_again(&self) -> bool {
        let scheduler = self.children.iter().position(|child| child.part == Part::Scheduler);
        scheduler.is_none_or(|index| self.supervisor.runs(index))
    }

    fn start_again(&mut self, index: usize) {
        self.never_joined.retain(|other| *other != index);
        let restart = format!("restart {} of {}", self.supervisor.restarts(index), self.max_restarts);
        let child = &mut self.children[index];
        let how = summary::how(child, self.supervisor.ending_of_last(index));
        match self.launch.start_again(child, &format!("{how}; {restart}")) {
            Ok(()) => self.voice.say(format!("muster: {how}; {restart} has pid {}\n", child.pid)),
            Err(error) => {
                self.voice.say(format!("muster: {how}; {restart} failed: {error}\n"));
                child.unstarted = Some(error.to_string());
                self.supervisor.not_started(index, self.began.elapsed());
            }
        }
    }

    fn patience(&self) -> Option<Duration> {
        let questions = [self.unclean_exits.deadline(), self.progress.deadline()];
        let deadline = questions.into_iter().chain([self.supervisor.deadline()]).flatten().min();
        deadline.map(|deadline| deadline.saturating_sub(self.began.elapsed()))
    }

    fn outcome(&self) -> Outcome {
        let left = self.tell_of_left();
        let mut counted = self.children.clone();
        let mut endings = Vec::new();
        for (index, child) in counted.iter_mut().enumerate() {
            let before = self.supervisor.ending_before(index);
            if let Some(pid) = before.and(child.pid_before) {
                (child.pid, child.restarts) = (pid, child.restarts - 1);
            }
            endings.extend(before.or(self.supervisor.ending(index)));
        }
        let (at_first, was_told) = (self.unclean_exits.at_first(), |index| self.supervisor.was_told(index));
        let said = summary::scheduler_says(&counted).or_else(|| self.job_check.said().map(str::to_owned));
        let scheduler = summary::why(at_first, said, &counted, was_told);
        let named = scheduler.as_deref().and_then(|words| summary::named_in(words, &counted));
        let verdict = self.supervisor.verdict(named);
        for child in &self.children {
            if verdict != Verdict::Success {
                // Some kernels do not report orphans: the group of each child at least is known.
                sys::signal_group(child.pid, libc::SIGKILL);
            }
            sys::reap(child.pid);
        }
        let never_formed = self.never_formed && verdict == Verdict::Success;
        let never_joined = self.never_joined.clone();
        let had_left = match (at_first, &verdict) {
            (AtFirst::Left(child), Verdict::Failed { first, .. }) => child == first,
            _ => false,
        };
        Outcome { verdict, children: counted, endings, scheduler, never_formed, never_joined, had_left, left }
    }
}

/// A setting, as the workers find it in their environment.
fn setting(key: Key) -> Option<String> {
    let mut config = Config::new();
    config.load_env(std::env::vars_os());
    config.get(key.setting().name).ok().flatten()
}

/// How long a node may be silent, as far as this process knows; a day at most. The children complain of a setting that
/// is none.
fn node_timeout() -> Duration {
    let seconds = setting(Key::NodeTimeout).and_then(|text| text.parse::<f64>().ok());
    Duration::try_from_secs_f64(seconds.unwrap_or_default().min(86_400.0)).unwrap_or_default()
}

/// The orphans that are in no child's group.
fn strays(mut orphans: Vec<i32>, children: &[Child]) -> Vec<i32> {
    orphans.retain(|pid| {
        let group = sys::group_of(*pid);
        children.iter().all(|child| Some(child.pid) != group)
    });
    orphans
}

/// Sends a signal. A process that is stopped hears a request only when it goes on.
fn send(signal: i32, whom: Whom, children: &[Child]) {
    send_to(signal, whom, children);
    if signal == libc::SIGTERM {
        send_to(libc::SIGCONT, whom, children);
    }
}

fn send_to(signal: i32, whom: Whom, children: &[Child]) {
    match whom {
        Whom::Stray(pid) => sys::signal_process(pid, signal),
        Whom::Workers | Whom::Scheduler => children
            .iter()
            .filter(|child| (child.part == Part::Scheduler) == (whom == Whom::Scheduler))
            .for_each(|child| sys::signal_group(child.pid, signal)),
    }
}
