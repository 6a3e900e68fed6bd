//! Somebody asks how the job is (`muster status`), at any moment: while it forms, runs, recovers and ends, while the
//! disk is slow, and while the scheduler is away, when nobody answers. If he reaches the scheduler, he is answered at
//! once, by what is so. His question changes nothing.
//!
//! Invariant: with or without readers a seed gives the same story. Readers have a source of chance of their own, and
//! come over no connection of the network's.

use super::plan::Plan;
use super::random::Random;
use super::sabotage::Sabotage;
use super::table::Event as Met;
use super::world::{Event, World};
use crate::membership::{self, ConnId, Output};
use crate::types::Secret;
use crate::wire::{Message, StatusPart, StatusQuery, PROTOCOL_HIGHEST, PROTOCOL_LOWEST};

/// The numbers of their connections begin here.
const FIRST_CONN: u64 = 1 << 60;
/// How long it is until the next one comes, in milliseconds: often soon, for the states to be met are soon over; or
/// later.
const SOON: std::ops::Range<u64> = 1..60;
const LATER: std::ops::Range<u64> = 60..4000;

pub(super) struct Readers {
    random: Random,
    next_conn: u64,
    /// Nobody asks.
    stay_away: bool,
}

impl Readers {
    pub(super) fn of(seed: u64) -> Readers {
        Readers { random: Random::new(seed ^ 0x7265_6164), next_conn: FIRST_CONN, stay_away: false }
    }
}

impl World {
    /// The next one comes after a while.
    pub(super) fn await_reader(&mut self) {
        let soon = self.readers.random.once_in(3);
        let after = self.readers.random.span_ms(if soon { SOON } else { LATER });
        self.queue.put(self.now + after, Event::Asks);
    }

    /// One asks how the job is.
    pub(super) fn one_asks(&mut self) -> Result<(), String> {
        if self.host.ended.is_none() {
            self.await_reader();
        }
        if self.readers.stay_away {
            return Ok(());
        }
        let Some(running) = &self.host.running else {
            if self.host.ended.is_none() {
                self.met(Met::AskedWhileAway);
            }
            return Ok(());
        };
        if running.brain.has_ended() {
            return Ok(()); // the job has ended: that is only still being written down
        }
        let before = running.brain.all_but_connections();
        let conn = ConnId(self.readers.next_conn);
        self.readers.next_conn += 1;
        let query = StatusQuery { protocol_lowest: PROTOCOL_LOWEST, protocol_highest: PROTOCOL_HIGHEST };
        let mut answers = Vec::new();
        for input in [
            membership::Input::Opened(conn, "10.0.2.1:5000".to_owned()),
            membership::Input::Received(conn, Message::StatusQuery(query)),
            membership::Input::Closed(conn, membership::Closed::Ended, "end of stream".to_owned()),
        ] {
            answers.extend(self.feed_of_reader(conn, input)?);
        }
        self.met(Met::Asked);
        if self.sabotage == Some(Sabotage::AnswersNobody) {
            answers.clear();
        }
        let [answer] = &answers[..] else {
            return Err(format!("the reader of the job's status was answered {} times", answers.len()));
        };
        self.check_answer(answer)?;
        self.asking_disturbs();
        let after = self.host.running.as_ref().map(|running| running.brain.all_but_connections());
        match after == Some(before) {
            true => Ok(()),
            false => Err("to ask how the job is has changed something".to_owned()),
        }
    }

    /// Feeds the scheduler a reader's input. What it does because of that must concern nobody else.
    fn feed_of_reader(&mut self, conn: ConnId, input: membership::Input) -> Result<Vec<StatusPart>, String> {
        let (now, life, mut answers) = (self.now, self.host.life, Vec::new());
        let Some(running) = &mut self.host.running else { return Ok(answers) };
        running.brain.handle(now, input);
        while let Some(output) = self.host.running.as_mut().and_then(|running| running.brain.next_output()) {
            match output {
                Output::Send(to, Message::StatusPart(part)) if to == conn => answers.push(part),
                Output::Close(to) if to == conn => {}
                Output::Arm(at) => self.scheduler_arms(life, at),
                other => return Err(format!("somebody asked how the job is, and it came to {other:?}")),
            }
        }
        Ok(answers)
    }

    fn check_answer(&self, answer: &StatusPart) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("the reader of the job's status was told {what}: {answer:?}"));
        let Some(job) = answer.job.as_ref().filter(|_| answer.last) else { return wrong("half of it") };
        if Some(job.instance) != self.host.instance {
            return wrong("of another job");
        }
        if job.epoch < self.newest {
            return wrong("of an epoch that is over");
        }
        let Some(running) = &self.host.running else { return Ok(()) };
        let seats = running.brain.admitted().map(|seat| (&seat.register.node_id[..], seat.register.process.pid));
        let told = answer.nodes.iter().map(|node| (&node.who.node_id[..], node.who.pid));
        match seats.eq(told) {
            true => Ok(()),
            false => wrong("of other nodes"),
        }
    }

    fn asking_disturbs(&mut self) {
        let is_sabotaged = self.sabotage == Some(Sabotage::AskingDisturbs);
        if let Some(running) = self.host.running.as_mut().filter(|_| is_sabotaged) {
            running.brain.handle(self.now, membership::Input::Secret(Secret([self.steps as u8; 32])));
        }
        self.drain_scheduler();
    }
}

#[test]
fn without_readers_the_story_is_the_same() {
    let mut asked = 0;
    for seed in (0..100).filter(|seed| seed % 5 < 2) {
        let [with, without] = [false, true].map(|stay_away| {
            let mut world = World::new(Plan::of(seed), false);
            world.readers.stay_away = stay_away;
            world.play().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
            asked += world.readers.next_conn - FIRST_CONN;
            let ended = world.host.ended.as_ref().map(|(at, result)| (*at, result.is_ok()));
            (ended, world.faults, world.newest, world.processes.len(), world.host.life)
        });
        assert_eq!(with, without, "seed {seed}");
    }
    assert!(asked > 400, "{asked}");
}
