//! The order of a run on several hosts: which host is told what, and when. It has no process, signal or clock in it.
//!
//! Contract: feed one input (a method that takes `&mut self`), then drain [`Conduct::next_action`] until there is none. Nothing else
//! changes its state. Time is what has passed since the launcher began.
//!
//! Nothing is started before every host has answered: a job that lacks a part would only wait for it. Then the first
//! host gets its spec. When its scheduler listens, the others get theirs. When something fails on one host for good, the
//! others have a moment to find out themselves what they lost. Then they are told to end, and told again. Tested in
//! `conduct_test.rs`.

use super::report::Summary;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a host may take to answer: as long as a login that looks up names in vain.
pub const ANSWER: Duration = Duration::from_secs(60);
/// How long the others may take once a host is known not to answer: hosts that fail in the same way are then named,
/// too.
const OTHERS_ANSWER: Duration = Duration::from_secs(3);
/// How long the other hosts are left alone after the first failure; and how long until they are told a second time.
const COLLECT: Duration = Duration::from_millis(250);
const INSIST: Duration = Duration::from_millis(750);
/// How long a host may take to end, from then on, before the way to it is closed, which ends what runs there; and how
/// long until nobody waits for it any more.
const CLOSE: Duration = Duration::from_secs(10);
const GIVE_UP: Duration = Duration::from_secs(20);
/// How long a host may say nothing, not even that it is there.
pub const SILENCE: Duration = Duration::from_secs(60);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Give this host its spec.
    Start(usize),
    /// Tell this host, which has the scheduler, that everything has ended well on all others. If its own workers have
    /// ended well, too, a program that never joined is no reason to wait for the end of the forming time.
    OthersDone(usize),
    /// Pass a signal on to this host's launcher.
    Signal(usize, i32),
    /// Close the way to this host, which ends what runs there.
    Close(usize),
    /// Kill the process that leads to this host.
    Kill(usize),
}

/// How a host's part of the run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It ended as its launcher told.
    Told {
        /// Its exit code.
        code: i32,
        /// What the launcher said of it; nothing if it could not begin.
        summary: Option<Summary>,
    },
    /// The way to it ended before that, as these words say.
    Cut(String),
    /// It never answered, as these words say.
    NoAnswer(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No word yet.
    Called,
    /// It has answered, and waits for its spec.
    Ready,
    /// It has its spec.
    Runs,
    Over,
}

struct Member {
    stage: Stage,
    end: Option<End>,
    heard: Duration,
    /// It was told to end.
    told: bool,
}

/// When the hosts that are still there are told to end.
struct Stop {
    /// What they are told.
    signal: i32,
    told_at: VecDeque<Duration>,
    close_at: Option<Duration>,
    give_up_at: Duration,
}

/// Decides which host is told what, and when.
pub struct Conduct {
    members: Vec<Member>,
    /// Hosts on which something failed, in the order in which that became known.
    failed: Vec<usize>,
    port_known: bool,
    signal: Option<i32>,
    stop: Option<Stop>,
    answer_by: Duration,
    actions: VecDeque<Action>,
}

impl Conduct {
    /// Begins with so many hosts, which are being called.
    pub fn new(hosts: usize) -> Conduct {
        let member = || Member { stage: Stage::Called, end: None, heard: Duration::ZERO, told: false };
        Conduct {
            members: (0..hosts).map(|_| member()).collect(),
            failed: Vec::new(),
            port_known: false,
            signal: None,
            stop: None,
            answer_by: ANSWER,
            actions: VecDeque::new(),
        }
    }

    /// Something came from this host.
    pub fn heard(&mut self, host: usize, now: Duration) {
        self.members[host].heard = now;
    }

    /// This host answers, and waits for its spec.
    pub fn answered(&mut self, host: usize, now: Duration) {
        self.heard(host, now);
        if self.members[host].stage == Stage::Called {
            self.members[host].stage = Stage::Ready;
        }
        if self.members.iter().all(|one| one.stage == Stage::Ready) && self.stop.is_none() {
            self.start(0, now);
        }
        self.tick(now);
    }

    /// The scheduler of the first host listens.
    pub fn port_known(&mut self, now: Duration) {
        if !std::mem::replace(&mut self.port_known, true) && self.stop.is_none() {
            (1..self.members.len()).for_each(|host| self.start(host, now));
        }
    }

    fn start(&mut self, host: usize, now: Duration) {
        self.members[host].stage = Stage::Runs;
        self.heard(host, now);
        self.actions.push_back(Action::Start(host));
    }

    /// Something has failed on this host for good.
    pub fn failing(&mut self, host: usize, now: Duration) {
        if !self.failed.contains(&host) {
            self.failed.push(host);
        }
        if self.stop.is_none() {
            let told_at = VecDeque::from([now + COLLECT, now + INSIST]);
            self.stop_at(libc::SIGTERM, told_at, now);
        }
        self.tick(now);
    }

    fn stop_at(&mut self, signal: i32, told_at: VecDeque<Duration>, now: Duration) {
        self.stop = Some(Stop { signal, told_at, close_at: Some(now + CLOSE), give_up_at: now + GIVE_UP });
    }

    /// This host's part is over.
    pub fn ended(&mut self, host: usize, end: End, now: Duration) {
        let member = &mut self.members[host];
        if member.end.is_some() {
            return;
        }
        member.stage = Stage::Over;
        let has_failed = match &end {
            // A host that ends because it was told to has not failed, unless it had failed before.
            End::Told { summary: Some(summary), .. } if member.told => !summary.how.is_empty(),
            End::Told { code, .. } => *code != 0 && !member.told,
            End::Cut(_) | End::NoAnswer(_) => true,
        };
        let no_answer = matches!(end, End::NoAnswer(_));
        member.end = Some(end);
        if no_answer {
            self.answer_by = self.answer_by.min(now + OTHERS_ANSWER);
        } else if has_failed && self.signal.is_none() {
            return self.failing(host, now);
        }
        if host == 0 && !no_answer {
            // The first host only showed what it would start, or its workers needed no scheduler: there is nothing to
            // wait for.
            self.port_known(now);
        }
        let is_over = |one: &Member| one.stage == Stage::Over;
        if self.stop.is_none() && self.members[0].stage == Stage::Runs && self.members[1..].iter().all(is_over) {
            self.actions.push_back(Action::OthersDone(0));
        }
        self.tick(now);
    }

    /// The user wants the run to end. If he says so a second time, processes that linger are killed.
    pub fn signalled(&mut self, signal: i32, now: Duration) {
        if self.failed.is_empty() {
            self.signal.get_or_insert(signal);
        }
        match &mut self.stop {
            Some(stop) => {
                stop.signal = signal;
                stop.told_at.push_front(now);
            }
            None => self.stop_at(signal, VecDeque::from([now]), now),
        }
        self.tick(now);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration) {
        self.look_for_answers(now);
        let late = |one: &Member| one.stage == Stage::Runs && now.saturating_sub(one.heard) >= SILENCE;
        for host in (0..self.members.len()).filter(|host| late(&self.members[*host])).collect::<Vec<_>>() {
            self.actions.push_back(Action::Kill(host));
            self.ended(host, End::Cut(format!("nothing was heard of it for {} s", SILENCE.as_secs())), now);
        }
        let Some(stop) = &mut self.stop else { return };
        let due = stop.told_at.iter().take_while(|at| **at <= now).count();
        stop.told_at.drain(..due);
        let close = stop.close_at.take_if(|at| *at <= now).is_some();
        let (signal, gives_up) = (stop.signal, stop.give_up_at <= now);
        for (host, member) in self.members.iter_mut().enumerate() {
            match member.stage {
                Stage::Over => {}
                Stage::Called if due > 0 => {
                    member.stage = Stage::Over;
                    self.actions.push_back(Action::Kill(host));
                }
                _ if gives_up => {
                    member.stage = Stage::Over;
                    member.end = Some(End::Cut(format!("it did not end in {} s", GIVE_UP.as_secs())));
                    self.actions.push_back(Action::Kill(host));
                }
                // A host without a spec has nothing to end.
                Stage::Ready if due > 0 => self.actions.push_back(Action::Close(host)),
                Stage::Runs if close => self.actions.push_back(Action::Close(host)),
                Stage::Runs => {
                    member.told |= due > 0;
                    self.actions.extend((0..due).map(|_| Action::Signal(host, signal)));
                }
                Stage::Called | Stage::Ready => {}
            }
        }
    }

    /// Looks whether hosts do not answer. If one does not, nothing is started.
    fn look_for_answers(&mut self, now: Duration) {
        let is_waiting = self.members.iter().any(|one| one.stage == Stage::Called);
        let misses = self.members.iter().any(|one| matches!(one.end, Some(End::NoAnswer(_))));
        let decides = if is_waiting { now >= self.answer_by } else { misses };
        if self.stop.is_some() || !decides {
            return;
        }
        for (host, member) in self.members.iter_mut().enumerate().filter(|(_, one)| one.stage == Stage::Called) {
            member.stage = Stage::Over;
            member.end = Some(End::NoAnswer(format!("it did not answer in {} s", now.as_secs())));
            self.actions.push_back(Action::Kill(host));
        }
        self.stop_at(libc::SIGTERM, VecDeque::from([now]), now);
    }

    /// The hosts that have not answered yet, while their answers are waited for.
    pub fn awaited(&self) -> Vec<usize> {
        let is_called = |host: &usize| self.stop.is_none() && self.members[*host].stage == Stage::Called;
        (0..self.members.len()).filter(is_called).collect()
    }

    /// The next thing to be done.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`tick`](Conduct::tick) at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        if self.finished() {
            return None;
        }
        let is_waiting = self.members.iter().any(|one| one.stage == Stage::Called);
        let answers = Some(self.answer_by).filter(|_| is_waiting && self.stop.is_none());
        let silence = self.members.iter().filter(|one| one.stage == Stage::Runs).map(|one| one.heard + SILENCE);
        let stop = self.stop.iter().flat_map(|stop| {
            [stop.told_at.front().copied(), stop.close_at, Some(stop.give_up_at)].into_iter().flatten()
        });
        answers.into_iter().chain(silence).chain(stop).min()
    }

    /// Whether every host's part is over.
    pub fn finished(&self) -> bool {
        self.members.iter().all(|one| one.stage == Stage::Over)
    }

    /// The user's signal, if that is the reason why the run ended.
    pub fn interrupted(&self) -> Option<i32> {
        self.signal
    }

    /// The hosts on which something failed, in the order in which that became known.
    pub fn failed(&self) -> &[usize] {
        &self.failed
    }

    /// How each host's part ended, as far as it has. A host that was told to leave before it had a spec has no end.
    pub fn ends(&self) -> Vec<Option<&End>> {
        self.members.iter().map(|one| one.end.as_ref()).collect()
    }

    /// The way to this host has ended, as these words say.
    pub fn closed(&mut self, host: usize, words: String, now: Duration) {
        let is_told_to_go = self.stop.is_some();
        match self.members[host].stage {
            Stage::Over => {}
            Stage::Called | Stage::Ready if is_told_to_go => self.members[host].stage = Stage::Over,
            Stage::Called => self.ended(host, End::NoAnswer(words), now),
            Stage::Ready | Stage::Runs => self.ended(host, End::Cut(format!("the connection ended: {words}")), now),
        }
    }
}

#[cfg(test)]
#[path = "conduct_test.rs"]
mod tests;
