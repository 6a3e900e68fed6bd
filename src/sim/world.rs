//! The simulated world: the scheduler's process and its disk, if it has one, the nodes' processes, and what happens next.
//!
//! A *slot* is a place in the cluster with all that outlives a process: its identity file, its checkpoint. A *process* is
//! one life of a slot's node; several may run at once. A process that stands still is fed nothing until it goes on.

use super::abandoned::AbandonedPlaces;
use super::abort::Aborting;
use super::between::Gap;
use super::checks::{self, Told};
use super::journal::Step;
use super::launcher::Word;
use super::ledger::Ledger;
use super::network::{Network, Side};
use super::node::Process;
use super::once::{Once, Shape};
use super::outcome;
use super::plan::{Ending, Plan, Trouble, When};
use super::program::Tick;
use super::queue::Queue;
use super::random::Random;
use super::readers::Readers;
use super::rounds::Frame;
use super::sabotage::Sabotage;
use super::scheduler::Host;
use super::table::{Event as Met, Phase, Table};
use crate::agent;
use crate::journal::testdisk::MemoryDisk;
use crate::membership;
use crate::types::{Epoch, Time};
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// How long after the last trouble everything must have come to its end.
const BOUND: Duration = Duration::from_secs(330);
/// The same bound, in stories where nobody comes back.
const BOUND_ONCE: Duration = Duration::from_secs(120);
/// A story with more steps goes round in circles.
const STEPS_MAX: u64 = 1_500_000;
/// How often something else goes wrong in a phase that lasts.
const MORE: std::ops::Range<u64> = 60..700;
/// How often while forming, which takes no longer than a few seconds.
const SOON: std::ops::Range<u64> = 30..250;

#[derive(Debug)]
pub(super) enum Event {
    StartScheduler,
    /// Something reaches the scheduler of this life, over this connection if it has one.
    SchedulerInput(u64, Option<usize>, membership::Input),
    SchedulerTimer(u64, Time),
    Writer(u64, Step),
    StartNode(usize),
    /// Something reaches a process, over this connection if it has one.
    NodeInput(usize, Option<usize>, agent::Input),
    NotConnected(usize, u64, String),
    NodeTimer(usize, Time),
    Frame(usize, Frame),
    /// A process hears that its link to another has ended.
    LinkEnded {
        at: usize,
        peer: usize,
    },
    Program(usize, u64, Tick),
    Trouble(Trouble),
    /// Perhaps something goes wrong in this phase, if it is still the one with this number.
    More(Phase, u64),
    /// An attempt to connect, numbered, has come through.
    Joins(usize, usize, u64),
    /// A launcher says something.
    Word(Word),
    /// A launcher that abandons its places ends what runs in this slot.
    Cleared(usize),
    /// Everything is started once more.
    Run,
    /// Somebody asks how the job is.
    Asks,
    /// What a node says to the one with this index reaches the network.
    ToPeer(usize, u32, agent::ToPeer),
    /// A process ends because of another's end.
    Follow(usize),
    /// A stranger's connection ends.
    StrangerGoes(usize),
}

/// What outlives the processes of one node.
pub(super) struct Slot {
    pub(super) disk: MemoryDisk,
    /// The newest round of which it has a checkpoint.
    pub(super) done: u64,
    /// The process that counts.
    pub(super) current: Option<usize>,
    /// Nobody starts this node again.
    pub(super) finished: bool,
}

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) now: Time,
    pub(super) queue: Queue<Event>,
    pub(super) network: Network,
    pub(super) random: Random,
    pub(super) host: Host,
    pub(super) slots: Vec<Slot>,
    pub(super) processes: Vec<Process>,
    pub(super) ledger: Ledger,
    pub(super) told: Told,
    pub(super) aborting: Aborting,
    pub(super) abandoned: AbandonedPlaces,
    pub(super) readers: Readers,
    /// Where frames do not get through.
    pub(super) gaps: Vec<Gap>,
    /// What was found wrong in the middle of a step.
    pub(super) wrong: Option<String>,
    pub(super) table: Table,
    pub(super) phase: Phase,
    /// This phase's number.
    phases: u64,
    pub(super) troubles: Vec<(When, Trouble)>,
    /// How many things went wrong, and the last of them.
    pub(super) faults: u64,
    pub(super) last_fault: Time,
    /// Somebody has done all, and begins to leave.
    pub(super) finishing: Option<Time>,
    /// Something for which a job may end badly: somebody was missing when others began to leave.
    pub(super) may_fail: bool,
    /// How often a verdict came to a process in which a call had told a first cause already.
    pub(super) late_verdicts: u64,
    pub(super) newest: Epoch,
    pub(super) steps: u64,
    /// All that has happened, step by step, where that is compared: a digest of each event in words.
    pub(super) trace: Option<Vec<(Time, u64)>>,
    /// The scheduler may have let somebody in or out.
    pub(super) seats_changed: bool,
    pub(super) sabotage: Option<Sabotage>,
    pub(super) verbose: bool,
}

impl World {
    pub(super) fn new(plan: Plan, verbose: bool) -> World {
        let mut random = Random::new(plan.nth ^ 0x6c69_7665_7321);
        let network = Network::new(Random::new(random.bits()), plan.delay_max_us, plan.spikes);
        let slot = |random: &mut Random| Slot {
            disk: MemoryDisk::new(random.bits()),
            done: 0,
            current: None,
            finished: false,
        };
        let mut world = World {
            now: Time(0),
            queue: Queue::new(),
            network,
            host: Host::new(random.bits()),
            slots: plan.nodes.iter().map(|_| slot(&mut random)).collect(),
            random,
            processes: Vec::new(),
            ledger: Ledger::default(),
            told: Told::default(),
            aborting: Aborting::default(),
            abandoned: AbandonedPlaces::default(),
            readers: Readers::of(plan.nth),
            gaps: Vec::new(),
            wrong: None,
            table: Table::default(),
            phase: if plan.recovers() { Phase::Finishing } else { Phase::Once },
            phases: 0,
            troubles: plan.troubles.clone(),
            faults: 0,
            last_fault: Time(0),
            finishing: None,
            may_fail: false,
            late_verdicts: 0,
            newest: Epoch(0),
            steps: 0,
            trace: None,
            seats_changed: false,
            sabotage: None,
            verbose,
            plan,
        };
        match world.plan.once.clone() {
            Some(once) => world.begin_once(once),
            None => {
                world.await_reader();
                let first = world.random.span_ms(0..300);
                world.queue.put(Time(0) + first, Event::StartScheduler);
            }
        }
        for slot in 0..world.slots.len() {
            world.queue.put(Time(0) + world.plan.nodes[slot].starts, Event::StartNode(slot));
        }
        world
    }

    /// Begins a story without recovery: its troubles have their times.
    fn begin_once(&mut self, once: Once) {
        once.planned.into_iter().for_each(|planned| self.met(planned));
        if let Some(starts) = once.scheduler_starts {
            self.queue.put(Time(0) + starts, Event::StartScheduler);
        }
        for (when, trouble) in self.plan.troubles.clone() {
            if let When::After(span) = when {
                self.queue.put(Time(0) + span, Event::Trouble(trouble));
            }
        }
    }

    /// Plays the story to its end; what is wrong with it, if anything is.
    pub(super) fn play(&mut self) -> Result<(), String> {
        self.look_at_phase();
        while let Some((at, event)) = self.queue.pop() {
            self.now = at;
            self.steps += 1;
            let bound = if self.plan.recovers() { BOUND } else { BOUND_ONCE };
            if at > self.last_fault + bound || self.steps > STEPS_MAX {
                return Err(checks::unended(self));
            }
            self.note(&event);
            self.step(event)?;
            checks::after_step(self)?;
            self.look_at_phase();
            self.count_messages();
            if self.is_over() {
                break;
            }
        }
        match self.plan.recovers() {
            true => checks::at_end(self),
            false => outcome::at_end(self),
        }
    }

    /// What happened to messages on the network; with recovery each loss is aimed at.
    fn count_messages(&mut self) {
        let met = std::mem::take(&mut self.network.met);
        met.into_iter().filter(|_| !self.plan.recovers()).for_each(|met| self.table.count(met, self.phase));
    }

    /// Whether nothing more will come of it.
    pub(super) fn is_over(&self) -> bool {
        (self.host.ended.is_some() || self.never_starts())
            && !self.abandoned.begins_again
            && self.slots.iter().all(|slot| slot.finished)
            && !self.processes.iter().any(|it| it.alive)
    }

    /// No scheduler is ever started.
    pub(super) fn never_starts(&self) -> bool {
        self.plan.is_about(Shape::NoScheduler)
    }

    fn step(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::StartScheduler => self.start_scheduler()?,
            Event::SchedulerInput(..) | Event::SchedulerTimer(..) if self.host.paused_until > self.now => {
                // A timer comes after all that is readable.
                let after = Duration::from_nanos(u64::from(matches!(event, Event::SchedulerTimer(..))));
                self.queue.put(self.host.paused_until + after, event);
            }
            Event::SchedulerInput(life, conn, input) => self.reach_scheduler(life, conn, input)?,
            Event::SchedulerTimer(life, armed) => {
                if self.host.life == life && self.host.armed == armed {
                    self.host.armed = Time::NEVER;
                    self.feed_scheduler(membership::Input::Timer);
                }
            }
            Event::Writer(life, step) => self.writer(life, step)?,
            Event::StartNode(slot) => self.start_node(slot)?,
            Event::NodeInput(..)
            | Event::NodeTimer(..)
            | Event::Frame(..)
            | Event::LinkEnded { .. }
            | Event::Program(..) => {
                self.step_of_node(event)?;
            }
            Event::NotConnected(node, attempt, reason) => self.not_connected(node, attempt, reason)?,
            Event::Trouble(trouble) => self.trouble(trouble)?,
            Event::More(phase, phases) => {
                if self.phase == phase && self.phases == phases {
                    self.more_trouble();
                }
            }
            Event::Joins(node, conn, attempt) => self.joins(node, conn, attempt),
            Event::Word(word) => self.word(word),
            Event::Cleared(slot) => self.cleared(slot),
            Event::Run => self.runs_again()?,
            Event::Asks => self.one_asks()?,
            Event::ToPeer(node, peer, what) => self.tell_peer(node, peer, what),
            Event::Follow(node) => self.follows(node),
            Event::StrangerGoes(conn) => self.stranger_goes(conn),
        }
        Ok(())
    }

    /// An event that concerns one process: it comes later if the process stands still, and never if it is no more.
    fn step_of_node(&mut self, event: Event) -> Result<(), String> {
        let (Event::NodeInput(node, ..)
        | Event::NodeTimer(node, _)
        | Event::Frame(node, _)
        | Event::LinkEnded { at: node, .. }
        | Event::Program(node, ..)) = event
        else {
            return Ok(());
        };
        let process = &self.processes[node];
        if !process.alive {
            return Ok(());
        }
        if process.paused_until > self.now {
            let wakes = process.paused_until;
            // A timer comes after all that is readable.
            let after = Duration::from_nanos(u64::from(matches!(event, Event::NodeTimer(..) | Event::Program(..))));
            self.queue.put(wakes + after, event);
            return Ok(());
        }
        match event {
            Event::NodeInput(node, conn, input) => self.reach_node(node, conn, input),
            Event::NodeTimer(node, armed) if self.processes[node].armed == armed => {
                self.processes[node].armed = Time::NEVER;
                self.feed_node(node, agent::Input::Timer)
            }
            Event::Frame(node, frame) => self.frame_arrives(node, frame),
            Event::LinkEnded { at, peer } => self.link_ended(at, peer),
            Event::Program(node, token, tick) if self.processes[node].program.token == token => self.tick(node, tick),
            _ => Ok(()),
        }
    }

    /// How far the story is, as everybody together shows.
    fn look_at_phase(&mut self) {
        if !self.plan.recovers() {
            return;
        }
        let works = |slot: &Slot| {
            slot.current.is_some_and(|at| {
                let process = &self.processes[at];
                process.alive && process.epoch == self.newest && process.program.is_working()
            })
        };
        let phase = match () {
            () if self.finishing.is_some() => Phase::Finishing,
            () if self.newest == Epoch(0) => Phase::Forming,
            () if self.slots.iter().all(works) => Phase::Running,
            () => Phase::Recovering,
        };
        if phase != self.phase {
            self.phase = phase;
            self.phases += 1;
            self.say(|| format!("--- {phase:?}"));
            self.more_trouble();
        }
    }

    /// The next thing goes wrong that is planned for this phase.
    fn more_trouble(&mut self) {
        let phase = self.phase;
        let is_due = |(when, _): &(When, Trouble)| matches!(when, When::In(planned, _) if *planned == phase);
        let Some(at) = self.troubles.iter().position(is_due) else { return };
        if let (When::In(_, delay), trouble) = self.troubles.remove(at) {
            self.queue.put(self.now + delay, Event::Trouble(trouble));
            let more = delay + self.random.span_ms(if phase == Phase::Forming { SOON } else { MORE });
            self.queue.put(self.now + more, Event::More(phase, self.phases));
        }
    }

    /// Counts something that happens now, which may be why somebody is lost.
    pub(super) fn met(&mut self, event: Met) {
        self.table.count(event, self.phase);
        self.say(|| format!("*** {event:?}"));
    }

    /// Whether nobody is lost any more: some have begun to leave, in a story that is to end well.
    pub(super) fn spares_nodes(&self) -> bool {
        self.finishing.is_some() && self.plan.ending == Ending::Well
    }

    /// Something went wrong now, and lasts so long.
    pub(super) fn fault(&mut self, lasts: Duration) {
        self.faults += 1;
        self.last_fault = self.last_fault.max(self.now + lasts);
    }

    /// Passes something to the scheduler. It is dropped if it was meant for an earlier life.
    fn reach_scheduler(&mut self, life: u64, conn: Option<usize>, input: membership::Input) -> Result<(), String> {
        if let Some(conn) = conn {
            let data = matches!(input, membership::Input::Received(..));
            if !self.network.is_open(conn, Side::Scheduler) || (data && self.network.is_cut(conn)) {
                return Ok(());
            }
            if matches!(input, membership::Input::Closed(..)) {
                self.network.shut(conn, Side::Scheduler);
            }
        } else if life != self.host.life {
            return Ok(());
        }
        if let membership::Input::Received(_, message) = &input {
            let kind = message.kind();
            if self.dies_before(kind) {
                return Ok(());
            }
            if let Some(conn) = conn {
                self.one_is_heard(conn, message);
            }
            self.feed_scheduler(input);
            self.dies_after(kind);
            return Ok(());
        }
        self.feed_scheduler(input);
        Ok(())
    }

    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            let mut line = what();
            if let Some((cut, _)) = line.char_indices().nth(400) {
                line.truncate(cut);
            }
            eprintln!("{:>12.6} {line}", self.now.0 as f64 / 1e9);
        }
    }

    /// Notes what happens, if stories are compared.
    fn note(&mut self, event: &Event) {
        if let Some(trace) = &mut self.trace {
            let mut digest = std::hash::DefaultHasher::new();
            format!("{event:?}").hash(&mut digest);
            trace.push((self.now, digest.finish()));
        }
    }
}
