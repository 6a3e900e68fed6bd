//! The simulated world: one scheduler, its nodes, their programs, and what happens next.
//!
//! A party that stands still (a stopped process) is fed nothing until it goes on: then everything that came meanwhile,
//! in order, and its timer last, as its driver would do it.

use super::checks;
use super::groups::{GroupStep, Register};
use super::network::{Network, Side};
use super::plan::{Mishap, NodePlan, Plan, Shape};
use super::program::{Book, Program};
use super::queue::Queue;
use super::random::Random;
use super::trace::{digest_of_bytes, digest_of_message, Trace};
use crate::agent::{self, Agent};
use crate::error::{Error, Failure};
use crate::membership::{self, Scheduler};
use crate::types::{GroupId, Time};
use crate::wire::Formed;
use std::collections::BTreeMap;
use std::time::Duration;

/// No story lasts longer than this; who has no answer by then never gets one.
pub(super) const LONGEST: Time = Time(120 * 1_000_000_000);
/// A story with more steps than this goes round in circles.
const STEPS_MAX: usize = 400_000;

#[derive(Debug)]
pub(super) enum Event {
    StartScheduler,
    StartNode(usize),
    /// Something reaches the scheduler, over this connection if it has one.
    ToScheduler(Option<usize>, membership::Input),
    /// Something reaches a node, over this connection if it has one.
    ToNode(usize, Option<usize>, agent::Input),
    /// What a node says to the one with this index reaches the network.
    ToPeer(usize, u32, agent::ToPeer),
    /// A node's attempt to connect, numbered, has failed.
    NotConnected(usize, u64, String),
    SchedulerTimer(Time),
    NodeTimer(usize, Time),
    /// A program's next action is due.
    Act(usize),
    Group(usize, GroupStep),
    /// A program has waited long enough for its answers.
    Enough(usize),
    /// A process ends because of another's end.
    Follow(usize),
    Mishap(Mishap),
    /// A stranger's connection ends.
    StrangerGoes(usize),
}

/// A node's connection, as its driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    None,
    /// An attempt, numbered.
    Attempt(u64),
    Up(usize),
}

#[derive(Debug)]
pub(super) struct NodeSide {
    pub(super) plan: NodePlan,
    pub(super) agent: Option<Agent>,
    /// Its process runs.
    pub(super) alive: bool,
    pub(super) line: Line,
    pub(super) attempts: u64,
    pub(super) armed: Time,
    pub(super) paused_until: Time,
    /// It can't be reached, and reaches nobody.
    pub(super) isolated_until: Time,
    pub(super) program: Program,
    pub(super) registered: u64,
    pub(super) formed: Option<(Time, Formed)>,
    pub(super) failed: Option<(Time, Error)>,
    pub(super) broken: Option<Failure>,
    pub(super) revoked: BTreeMap<GroupId, Failure>,
    pub(super) left: Option<(Time, Option<String>)>,
    pub(super) asked_to_leave: Option<Time>,
    /// It really failed, or its connection did, long enough to be taken for dead.
    pub(super) to_blame: bool,
    /// It was killed, or followed another.
    pub(super) dead: bool,
    /// Anything at all happened to its connection.
    pub(super) disturbed: bool,
    /// One of its attempts to connect got no answer.
    pub(super) connect_lost: bool,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) now: Time,
    pub(super) queue: Queue<Event>,
    pub(super) network: Network,
    pub(super) random: Random,
    pub(super) scheduler: Option<Scheduler>,
    pub(super) scheduler_armed: Time,
    pub(super) scheduler_paused_until: Time,
    pub(super) ended: Option<(Time, Result<(), Error>)>,
    /// How many were drawn for the scheduler.
    pub(super) secrets: u64,
    pub(super) nodes: Vec<NodeSide>,
    pub(super) book: Book,
    pub(super) groups: Register,
    pub(super) first_formed: Option<Time>,
    /// Something happened for which a node may be called lost.
    pub(super) unclean: bool,
    /// The scheduler may have let somebody in or out.
    pub(super) seats_changed: bool,
    pub(super) trace: Trace,
    /// Tell every step on standard error.
    pub(super) verbose: bool,
}

impl World {
    pub(super) fn new(plan: Plan, verbose: bool) -> World {
        let mut random = Random::new(plan.seed ^ 0x6d75_7374_6572);
        let network = Network::new(Random::new(random.bits()), plan.delay_max_us, plan.spikes);
        let mut world = World {
            now: Time(0),
            queue: Queue::new(),
            network,
            random,
            scheduler: None,
            scheduler_armed: Time::NEVER,
            scheduler_paused_until: Time(0),
            ended: None,
            secrets: 0,
            nodes: plan.nodes.iter().map(NodeSide::new).collect(),
            book: Book::default(),
            groups: Register::default(),
            first_formed: None,
            unclean: false,
            seats_changed: false,
            trace: Trace::default(),
            verbose,
            plan,
        };
        if let Some(at) = world.plan.scheduler_starts {
            world.queue.put(at, Event::StartScheduler);
        }
        for node in 0..world.nodes.len() {
            world.queue.put(world.nodes[node].plan.starts, Event::StartNode(node));
        }
        for (at, mishap) in world.plan.early.clone() {
            world.queue.put(at, Event::Mishap(mishap));
        }
        world.plan.faults.clone().into_iter().for_each(|fault| world.network.tally.count(fault));
        world
    }

    /// Plays the story to its end; what is wrong with it, if anything is.
    pub(super) fn play(&mut self) -> Result<(), String> {
        while let Some((at, event)) = self.queue.pop() {
            if at > LONGEST || self.trace.steps.len() > STEPS_MAX {
                return Err(format!("no end in sight at {at:?} after {} steps", self.trace.steps.len()));
            }
            self.now = at;
            self.step(event)?;
            checks::after_step(self)?;
            if self.nodes.iter().all(NodeSide::is_over) && self.ended.is_some() {
                break;
            }
        }
        checks::at_end(self)
    }

    fn step(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::StartScheduler => self.start_scheduler(),
            Event::StartNode(node) => self.start_node(node)?,
            Event::ToScheduler(conn, input) => self.reach_scheduler(conn, input),
            Event::ToNode(node, conn, input) => self.reach_node(node, conn, input)?,
            Event::ToPeer(node, peer, what) => self.tell_peer(node, peer, what),
            Event::NotConnected(node, attempt, reason) => {
                if self.nodes[node].line == Line::Attempt(attempt) {
                    self.reach_node(node, None, agent::Input::ConnectFailed(reason))?;
                }
            }
            Event::SchedulerTimer(armed) => {
                if self.scheduler_paused_until > self.now {
                    let later = self.scheduler_paused_until + Duration::from_nanos(1);
                    self.queue.put(later, Event::SchedulerTimer(armed));
                } else if self.scheduler_armed == armed {
                    self.scheduler_armed = Time::NEVER;
                    self.trace.add(self.now, None, "timer", 0);
                    self.feed_scheduler(membership::Input::Timer);
                }
            }
            Event::NodeTimer(node, armed) => {
                let paused_until = self.nodes[node].paused_until;
                if paused_until > self.now {
                    self.queue.put(paused_until + Duration::from_nanos(1), Event::NodeTimer(node, armed));
                } else if self.nodes[node].alive && self.nodes[node].armed == armed {
                    self.nodes[node].armed = Time::NEVER;
                    self.trace.add(self.now, Some(node), "timer", 0);
                    self.feed_node(node, agent::Input::Timer)?;
                }
            }
            Event::Act(node) => self.act(node)?,
            Event::Group(node, step) => self.group_step(node, step),
            Event::Enough(node) => self.enough(node)?,
            Event::Follow(node) => self.follow(node),
            Event::Mishap(mishap) => self.mishap(mishap),
            Event::StrangerGoes(conn) => {
                if let Some(at) = self.network.finish(self.now, conn, Side::Node) {
                    self.closed_at_scheduler(at, conn, membership::Closed::Ended, "end of stream");
                }
            }
        }
        Ok(())
    }

    /// Something for the scheduler: kept while it stands still, dropped where its connection has gone.
    fn reach_scheduler(&mut self, conn: Option<usize>, input: membership::Input) {
        if self.scheduler_paused_until > self.now {
            self.queue.put(self.scheduler_paused_until, Event::ToScheduler(conn, input));
            return;
        }
        if let Some(conn) = conn {
            let data = matches!(input, membership::Input::Received(..));
            if !self.network.is_open(conn, Side::Scheduler) || (data && self.network.is_cut(conn)) {
                return;
            }
            if matches!(input, membership::Input::Closed(..)) {
                self.network.shut(conn, Side::Scheduler);
            }
        }
        let (what, digest) = match &input {
            membership::Input::Received(_, message) => ("received", digest_of_message(message)),
            membership::Input::Closed(_, _, words) => ("closed", digest_of_bytes(words.as_bytes())),
            membership::Input::Probed(process, _) => ("probed", u64::from(process.pid)),
            membership::Input::Opened(..) => ("opened", 0),
            _ => ("other", 0),
        };
        self.trace.add(self.now, None, what, digest ^ conn.unwrap_or(0) as u64);
        self.feed_scheduler(input);
    }

    /// Something for a node, likewise.
    fn reach_node(&mut self, node: usize, conn: Option<usize>, input: agent::Input) -> Result<(), String> {
        let side = &mut self.nodes[node];
        if !side.alive || side.agent.is_none() {
            return Ok(());
        }
        if side.paused_until > self.now {
            self.queue.put(side.paused_until, Event::ToNode(node, conn, input));
            return Ok(());
        }
        match (&input, conn) {
            (agent::Input::Connected(_), Some(conn)) => {
                // The attempt is that connection's: an attempt given up meanwhile has shut it.
                if !self.network.is_open(conn, Side::Node) {
                    return Ok(());
                }
                side.line = Line::Up(conn);
            }
            (agent::Input::ConnectFailed(_), _) => {}
            (_, Some(conn)) if side.line != Line::Up(conn) || !self.network.is_open(conn, Side::Node) => return Ok(()),
            (agent::Input::Received(_), Some(conn)) if self.network.is_cut(conn) => return Ok(()),
            (agent::Input::Closed(_), Some(conn)) => {
                self.network.shut(conn, Side::Node);
                side.line = Line::None;
            }
            _ => {}
        }
        let (what, digest) = match &input {
            agent::Input::Received(message) => ("received", digest_of_message(message)),
            agent::Input::Closed(words) => ("closed", digest_of_bytes(words.as_bytes())),
            agent::Input::ConnectFailed(words) => ("no connection", digest_of_bytes(words.as_bytes())),
            agent::Input::Connected(_) => ("connected", 0),
            agent::Input::Command(command) => ("command", digest_of_bytes(format!("{command:?}").as_bytes())),
            _ => ("other", 0),
        };
        self.trace.add(self.now, Some(node), what, digest);
        if matches!(input, agent::Input::Received(_)) && self.random.once_in(4) {
            self.feed_node(node, agent::Input::Heard)?;
        }
        self.feed_node(node, input)
    }

    pub(super) fn say(&self, party: Option<usize>, what: impl FnOnce() -> String) {
        if self.verbose {
            let mut line = what();
            if let Some((cut, _)) = line.char_indices().nth(300) {
                line.truncate(cut);
            }
            let party = party.map_or_else(|| "scheduler".to_owned(), |node| format!("node {node}"));
            eprintln!("{:>12.6} {party:>9} {line}", self.now.0 as f64 / 1e9);
        }
    }

    /// Whether the cluster should form, and the job end well.
    pub(super) fn is_clean(&self) -> bool {
        self.plan.can_form() && !self.unclean && self.plan.shape != Shape::Abort
    }
}

impl NodeSide {
    fn new(plan: &NodePlan) -> NodeSide {
        NodeSide {
            plan: plan.clone(),
            agent: None,
            alive: false,
            line: Line::None,
            attempts: 0,
            armed: Time::NEVER,
            paused_until: Time(0),
            isolated_until: Time(0),
            program: Program { to_do: plan.program.clone().into(), ..Program::default() },
            registered: 0,
            formed: None,
            failed: None,
            broken: None,
            revoked: BTreeMap::new(),
            left: None,
            asked_to_leave: None,
            to_blame: false,
            dead: false,
            disturbed: false,
            connect_lost: false,
        }
    }

    /// Whether nothing more will come of it.
    pub(super) fn is_over(&self) -> bool {
        self.dead || self.failed.is_some() || self.left.is_some()
    }
}
