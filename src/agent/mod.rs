//! The node's brain: register and register again, heartbeat, hear verdicts, ask, and leave.
//!
//! The drive contract, nowhere broken: **feed one input ([`Agent::handle`]), then drain its outputs
//! ([`Agent::next_output`]) until there are none.** Nothing else changes its state. It names no socket, thread, file or
//! clock: time, identity and randomness come in as arguments.
//!
//! Owns: one node's view of its scheduler, in parts that know nothing of each other's state. `line` keeps the
//! connection up, and `search` says where the scheduler is looked for and what was met there. `stage` is how far this
//! life has come: its enums say how the cluster stands and whether this node stays in it. `asks` and `store` remember
//! what is not answered yet. `watch` is what the nodes know of each other while there is no scheduler, and `watching`
//! what they do about it. `outputs` is what is to be done. The brain itself only leads from one to the other:
//! `received` and `commands` take in what the scheduler says and what the caller wants, `connection` what becomes of
//! the line, `ending` the first cause and the end. They call each other in this order only. Invariants:
//! - Every life registers with one incarnation.
//! - After [`Event::Formed`] only the same job instance and epoch is ever followed.
//! - What was asked is sent again on each new connection until it is answered.
//! - [`Event::Failed`] and [`Event::Left`] are the last events that a node gives; one of them always comes.
//!
//! Deliberately absent: judging peers while the scheduler can; links between nodes; waiting. A caller bounds the wait
//! for its own answer. Tested in `agent_test.rs` and the `agent_*_test.rs` beside it, and with the scheduler's brain
//! in `sim`.

mod asks;
mod backoff;
mod believing;
mod commands;
mod complaints;
mod connection;
mod contract;
mod course;
mod ending;
mod line;
mod outputs;
mod pulse;
mod received;
mod search;
mod seconds;
mod stage;
mod store;
mod watch;
mod watching;

pub use contract::{Ask, Command, Event, Input, Output, PeerProcess, PeerSign, PeerWord, Profile, Seen, ToPeer};

use crate::error::Failure;
use crate::types::Time;
use crate::wire::Message;
use line::{Line, Loss};
use outputs::Outputs;
use stage::{Forming, FormingClock, Stage};
use watch::Watch;
use watching::Around;

/// The node's brain.
#[derive(Debug)]
pub struct Agent {
    profile: Profile,
    line: Line,
    stage: Stage,
    asks: asks::Asks,
    store: store::StoreRequests,
    watch: Watch,
    out: Outputs,
}

impl Agent {
    /// A node that begins to look for its scheduler. Its first outputs wait to be drained.
    pub fn new(profile: Profile, now: Time) -> Agent {
        let deadline = profile.forming_timeout.map_or(Time::NEVER, |timeout| now + timeout);
        let mut agent = Agent {
            line: Line::new(&profile, now, deadline),
            stage: Stage::Forming(Forming::new(now, deadline)),
            asks: asks::Asks::default(),
            store: store::StoreRequests::default(),
            watch: Watch::new(&profile.register.host.key),
            out: Outputs::default(),
            profile,
        };
        agent.line.try_again(now, &mut agent.out);
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
            Input::ConnectFailed(reason) => self.line.connect_failed(now, reason, &mut self.out),
            Input::Received(message) => self.received(now, message),
            Input::Heard if self.line.is_up() => self.line.hears(now),
            Input::Closed(reason) if self.line.is_up() => self.lost(now, Loss::Ended, reason),
            Input::Strange(reason) if self.line.is_up() => {
                self.line.search.meets_a_stranger(&reason);
                self.lost(now, Loss::Strange, reason);
            }
            Input::Refused(reason) if self.line.is_up() => {
                self.line.search.meets_one_not_trusted(&reason);
                self.lost(now, Loss::Refused, reason);
            }
            Input::Heard | Input::Closed(_) | Input::Strange(_) | Input::Refused(_) => {}
            Input::Timer => self.timer(now),
            Input::Command(command) => self.command(now, command),
            Input::Peers(signs) => self.peer_signs(now, signs),
        }
        self.with_watch(now, Watch::turn);
        self.answer_timer(now);
        self.arm();
    }

    /// The next thing to do, if there is one.
    pub fn next_output(&mut self) -> Option<Output> {
        self.out.next()
    }

    /// Everything whose time has come.
    fn timer(&mut self, now: Time) {
        let late = self.out.timer(now);
        if self.line.is_late(now, late) {
            self.watch.paused(now, late);
        }
        self.forming_timer(now);
        self.leave_timer(now);
        if let Some(reason) = self.line.timer(now, &mut self.out) {
            self.lost(now, Loss::Silent, reason);
        }
        self.with_watch(now, Watch::timer);
    }

    /// The clock of forming: complaints, and its end.
    fn forming_timer(&mut self, now: Time) {
        let Stage::Forming(forming) = &mut self.stage else { return };
        forming.complain(now, &self.line).into_iter().for_each(|line| self.out.warn(line));
        match forming.clock(now, &self.line) {
            FormingClock::Runs => {}
            FormingClock::AsksWhy => self.out.send(Message::TimeUp),
            FormingClock::IsUp => self.end(Event::Failed(self.time_up(now))),
        }
    }

    /// Takes in signs of peers. What follows from a verdict counts for the signs after it.
    fn peer_signs(&mut self, now: Time, signs: Vec<(u32, PeerSign)>) {
        let mut is_news = false;
        for (index, sign) in signs {
            self.with_watch(now, |watch, around| {
                let (found, failure) = watch.sign(index, sign, around);
                is_news |= found;
                failure
            });
        }
        if is_news {
            self.with_watch(now, Watch::look);
        }
    }

    /// Lets the watch do something. What it finds out is a verdict.
    fn with_watch(&mut self, now: Time, act: impl FnOnce(&mut Watch, &mut Around) -> Option<Failure>) {
        let mut around = Around::new(now, &self.line, &self.stage, &mut self.asks, &mut self.out);
        if let Some(failure) = act(&mut self.watch, &mut around) {
            self.verdict(now, failure);
        }
    }

    /// Arms the earliest deadline, if that is not what is armed already.
    fn arm(&mut self) {
        let own = match &self.stage {
            Stage::Forming(forming) => forming.next_look(&self.line),
            Stage::Member(member) => {
                let begins = if self.watch.begins(member) { self.line.doubt_at() } else { Time::NEVER };
                self.leave_deadline().min(self.watch.deadline()).min(begins).min(self.answer_deadline())
            }
            Stage::Over => return,
        };
        self.out.arm(own.min(self.line.deadline()));
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
