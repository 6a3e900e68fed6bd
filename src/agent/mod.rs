//! The node's brain: register and register again, heartbeat, hear verdicts, ask, and leave.
//!
//! The drive contract, nowhere broken: **feed one input ([`Agent::handle`]), then drain its outputs
//! ([`Agent::next_output`]) until there are none.** Nothing else changes its state. It names no socket, thread, file or
//! clock: time, identity and randomness come in as arguments.
//!
//! Owns: one node's view of its scheduler. `line` keeps the connection up, `course` says where it is looked for, `complaints` says when it is not, `received` and
//! `commands` are the two sides that the brain listens to, `leave` is its end; `asks` and `store` remember what is not
//! answered yet; `watch` is what the nodes know of each other while there is no scheduler.
//! Invariants: every life registers with one incarnation; after [`Event::Formed`] only the same job instance and epoch is
//! ever followed; what was asked is sent again on each new connection until it is answered; [`Event::Failed`] and
//! [`Event::Left`] are the last that is ever heard of it, and one of them always comes.
//! Deliberately absent: judging peers while the scheduler can, links between nodes, and waiting: an answer that never comes
//! is bounded by whoever asked.
//! Tested in `agent_test.rs` and the `agent_*_test.rs` beside it, and with the scheduler's brain in `sim`.

mod asks;
mod backoff;
mod commands;
mod complaints;
mod contract;
mod course;
mod leave;
mod line;
mod pulse;
mod received;
mod store;
mod watch;
mod watching;

pub use contract::{Ask, Command, Event, Input, Output, PeerSign, PeerWord, Profile, ToPeer};

use crate::error::{Error, Failure, Status};
use crate::types::{Epoch, JobInstance, Time};
use crate::wire::Message;
use std::collections::VecDeque;
use std::time::Duration;

/// How long one attempt to connect may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long the scheduler has for its sentence once the time for forming is up.
const VERDICT_GRACE: Duration = Duration::from_secs(1);

/// The node's brain.
#[derive(Debug)]
pub struct Agent {
    profile: Profile,
    started: Time,
    line: line::Line,
    stage: Stage,
    pulse: pulse::Pulse,
    asks: asks::Asks,
    store: store::Requests,
    watch: watch::Watch,
    /// The first cause, once the cluster is broken.
    broken: Option<Failure>,
    /// It was aborted, and no scheduler has said so yet: it is told on each connection.
    abort_is_news: bool,
    outputs: VecDeque<Output>,
    armed: Option<Time>,
}

/// How far this life has come.
#[derive(Debug)]
enum Stage {
    /// The cluster is not complete yet.
    Forming(Forming),
    /// It is, or was.
    Member(Member),
    /// Everything has been said.
    Over,
}

#[derive(Debug)]
struct Forming {
    /// When the time for it is up.
    deadline: Time,
    /// Until when the scheduler may say why, once the time is up.
    grace: Option<Time>,
    /// When to say that the scheduler can't be reached.
    complaints: complaints::Complaints,
}

#[derive(Debug)]
struct Member {
    instance: JobInstance,
    generation: u64,
    epoch: Epoch,
    /// The highest number of a group that was made of one of its own, and it was told of; 0: none.
    group: u32,
    /// The nodes lost in it, by index.
    lost: Vec<u32>,
    leaving: Option<leave::Leaving>,
    /// The scheduler has put this node out: nothing will be answered any more.
    expelled: bool,
}

impl Agent {
    /// A node that begins to look for its scheduler. Its first outputs wait to be drained.
    pub fn new(profile: Profile, now: Time) -> Agent {
        let deadline = profile.forming_timeout.map_or(Time::NEVER, |timeout| now + timeout);
        let mut agent = Agent {
            started: now,
            line: line::Line::new(profile.seed, profile.schedulers.len()),
            stage: Stage::Forming(Forming { deadline, grace: None, complaints: complaints::Complaints::from(now) }),
            pulse: pulse::Pulse::new(profile.heartbeat_timeout),
            asks: asks::Asks::default(),
            store: store::Requests::default(),
            watch: watch::Watch::default(),
            broken: None,
            abort_is_news: false,
            outputs: VecDeque::new(),
            armed: None,
            profile,
        };
        agent.try_again(now);
        agent.arm();
        agent
    }

    /// Takes in one thing that has happened. Drain the outputs before the next.
    pub fn handle(&mut self, now: Time, input: Input) {
        if matches!(self.stage, Stage::Over) {
            return;
        }
        match input {
            Input::Connected(addresses) => self.connected(now, addresses),
            Input::ConnectFailed(reason) => self.connect_failed(now, reason),
            Input::Received(message) => self.received(now, message),
            Input::Heard => {
                if self.line.is_up() {
                    self.pulse.heard(now);
                }
            }
            Input::Closed(reason) => {
                if self.line.is_up() {
                    self.line_lost(now, reason);
                }
            }
            Input::Strange(reason) => {
                if self.line.is_up() {
                    self.line.meets_a_stranger();
                    self.line_lost(now, reason);
                }
            }
            Input::Timer => self.timer(now),
            Input::Command(command) => self.command(now, command),
            Input::Peers(signs) => self.peer_signs(now, signs),
        }
        self.watch_turn(now);
        self.arm();
    }

    /// The next thing to do, if there is one.
    pub fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Everything whose time has come.
    fn timer(&mut self, now: Time) {
        if let Some(armed) = self.armed.take() {
            let late = now.since(armed);
            if late > self.pulse.interval() {
                self.pulse.paused(now, late);
                self.watch.paused(now, late);
            }
        }
        self.forming_timer(now);
        self.leave_timer(now);
        self.line_timer(now);
        self.watch_timer(now);
        self.answer_timer(now);
    }

    /// The clock of forming: complaints, and its end.
    fn forming_timer(&mut self, now: Time) {
        self.complain(now);
        let Stage::Forming(forming) = &mut self.stage else { return };
        match forming.grace {
            Some(grace) if now >= grace => self.fail(self.time_up_sentence(now)),
            Some(_) => {}
            None if now < forming.deadline => {}
            None if self.line.is_up() => {
                forming.grace = Some(now + VERDICT_GRACE);
                self.send(Message::TimeUp);
            }
            None => self.fail(self.time_up_sentence(now)),
        }
    }

    /// Says that there is no scheduler, if that is so, and it is time to say it.
    fn complain(&mut self, now: Time) {
        let Stage::Forming(forming) = &mut self.stage else { return };
        if !forming.complaints.looks(now) || !self.line.is_amiss(now, self.pulse.interval()) {
            return;
        }
        if forming.complaints.says(now, &self.line.wrong(&self.profile)) {
            let line = format!("still trying: {}", self.line.complaint(&self.profile, now.since(self.started)));
            self.outputs.push_back(Output::Log { quiet: false, line });
        }
    }

    /// This node's own words for a cluster that was not formed in time.
    fn time_up_sentence(&self, now: Time) -> Error {
        let complaint = self.line.complaint(&self.profile, now.since(self.started));
        let setting = &self.profile.forming_setting;
        if self.line.has_met_nobody() {
            return Error::new(Status::Unreachable, format!("forming timed out ({setting}): {complaint}"));
        }
        let why = match self.line.is_up() && self.line.has_met_the_scheduler() {
            true => format!("the scheduler at {} did not say who is missing", self.scheduler()),
            false => complaint,
        };
        let limit = self.profile.forming_timeout;
        let limit = limit.map_or_else(String::new, |it| format!(" within {} s ({setting})", it.as_secs_f64()));
        Error::new(Status::Timeout, format!("the cluster was not complete{limit}, and {why}"))
    }

    /// `muster_init` fails.
    fn fail(&mut self, error: Error) {
        self.end(Event::Failed(error));
    }

    /// The last event.
    fn end(&mut self, event: Event) {
        self.outputs.push_back(Output::Disconnect);
        self.outputs.push_back(Output::Tell(event));
        self.line.shut();
        self.stage = Stage::Over;
    }

    fn send(&mut self, message: Message) {
        self.outputs.push_back(Output::Send(message));
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Tell(event));
    }

    fn inform(&mut self, line: String) {
        self.outputs.push_back(Output::Log { quiet: true, line });
    }

    /// Arms the earliest deadline, if that is not what is armed already.
    fn arm(&mut self) {
        let own = match &self.stage {
            Stage::Forming(forming) => {
                let is_fine = self.line.is_up() && self.line.has_met_the_scheduler();
                let complaint = if is_fine { Time::NEVER } else { forming.complaints.look_at() };
                forming.grace.unwrap_or(forming.deadline).min(complaint)
            }
            Stage::Member(_) => self.leave_deadline().min(self.watch.deadline()).min(self.answer_deadline()),
            Stage::Over => return,
        };
        let next = own.min(self.line_deadline());
        if next != Time::NEVER && self.armed != Some(next) {
            self.armed = Some(next);
            self.outputs.push_back(Output::Arm(next));
        }
    }
}

/// `12 s`, or `0.3 s` for short spans.
fn seconds(span: Duration) -> String {
    match span.as_secs() {
        0..=9 => format!("{:.1} s", span.as_secs_f64()),
        whole => format!("{whole} s"),
    }
}

#[cfg(test)]
impl Agent {
    /// Whether it says no more that it has freed this group: the scheduler has answered, or it never did.
    pub(crate) fn is_done_with(&self, group: crate::types::GroupId) -> bool {
        self.asks.is_done_with(group)
    }
}

#[cfg(test)]
#[path = "agent_aborted_test.rs"]
mod agent_aborted_test;
#[cfg(test)]
#[path = "agent_complaints_test.rs"]
mod agent_complaints_test;
#[cfg(test)]
#[path = "agent_course_test.rs"]
mod agent_course_test;
#[cfg(test)]
#[path = "agent_freed_test.rs"]
mod agent_freed_test;
#[cfg(test)]
#[path = "agent_known_test.rs"]
mod agent_known_test;
#[cfg(test)]
#[path = "agent_store_test.rs"]
mod agent_store_test;
#[cfg(test)]
#[path = "agent_test.rs"]
mod agent_test;
#[cfg(test)]
#[path = "agent_waiting_test.rs"]
mod agent_waiting_test;
#[cfg(test)]
#[path = "agent_watch_test.rs"]
mod agent_watch_test;
#[cfg(test)]
#[path = "bench_test.rs"]
mod bench;
#[cfg(test)]
#[path = "watch_sim_test.rs"]
mod watch_sim_test;
