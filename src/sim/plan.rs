//! What a seed stands for: the cluster, its nodes, what their programs do, and what goes wrong when.

use super::faults::Fault;
use super::groups;
use super::random::Random;
use crate::types::{Role, Time};
use std::time::Duration;

/// The heartbeat time-out of every simulated cluster.
pub(super) const SILENCE: Duration = Duration::from_secs(1);
/// How long forming may take in each.
pub(super) const FORMING: Duration = Duration::from_secs(10);
/// How long leaving may take in each.
pub(super) const FINALIZE: Duration = Duration::from_secs(8);
/// The host on which the scheduler runs.
pub(super) const SCHEDULER_HOST: usize = 0;

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// What kind of story it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Plain,
    DuplicateId,
    WrongWorkerNum,
    Surplus,
    OneTooFew,
    NoScheduler,
    Replaced,
    Killed,
    HostVanished,
    Troubled,
    Isolated,
    Abort,
    Mismatch,
    Revocation,
    SchedulerPaused,
}

const SHAPES: [Shape; 18] = [
    Shape::Plain,
    Shape::DuplicateId,
    Shape::WrongWorkerNum,
    Shape::Surplus,
    Shape::OneTooFew,
    Shape::NoScheduler,
    Shape::Replaced,
    Shape::Killed,
    Shape::HostVanished,
    Shape::Troubled,
    Shape::Isolated,
    Shape::Abort,
    Shape::Mismatch,
    Shape::Revocation,
    Shape::SchedulerPaused,
    Shape::Plain,
    Shape::Troubled,
    Shape::Killed,
];

/// What a node's program does, once the cluster is complete.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// Add 1 to the counter that all share.
    Add,
    /// Write this many bytes under its own key.
    Set(usize),
    /// Wait for the key that the node with this index writes.
    Get(usize),
    /// Read it if it is there.
    TryGet(usize),
    /// Be the first to claim what all claim.
    Claim,
    /// Wait for what nobody writes, and give up.
    GiveUp,
    WhereAre,
    Locate,
    SuspectSomebody,
    Revoke,
    Abort,
}

/// How a group is made of the universe.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    Create(Vec<u32>),
    /// Each node's colour and key, by its index.
    Split(Vec<(Option<u32>, i32)>),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Mishap {
    /// Both ends learn soon that the connection has ended.
    Reset(usize),
    /// The node learns it, the scheduler does not.
    LostAtNode(usize),
    /// The scheduler learns it, in order or as a broken network; the node is told when it sends, or is not.
    LostAtScheduler {
        node: usize,
        ended: bool,
        told: bool,
    },
    /// Nobody learns it.
    LostSilently(usize),
    Stall(usize, Duration),
    Isolate(usize, Duration),
    Kill(usize),
    Vanish(usize),
    PauseNode(usize, Duration),
    PauseScheduler(Duration),
    Stranger,
}

#[derive(Clone, Debug)]
pub(super) struct NodePlan {
    pub(super) role: Role,
    pub(super) node_id: String,
    pub(super) id_given: bool,
    pub(super) rank: Option<u32>,
    pub(super) host: usize,
    pub(super) told_workers: u32,
    pub(super) starts: Time,
    /// One that the cluster has no place for, or that has no place in it.
    pub(super) extra: bool,
    pub(super) program: Vec<(Duration, Action)>,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) shape: Shape,
    pub(super) workers: u32,
    pub(super) servers: u32,
    pub(super) delay_max_us: u64,
    pub(super) spikes: bool,
    /// None: never.
    pub(super) scheduler_starts: Option<Time>,
    pub(super) nodes: Vec<NodePlan>,
    /// At these times.
    pub(super) early: Vec<(Time, Mishap)>,
    /// So long after the cluster was complete.
    pub(super) late: Vec<(Duration, Mishap)>,
    /// One attempt in so many to connect before the cluster is complete gets no answer; 0: none.
    pub(super) connect_lost_once_in: u64,
    pub(super) faults: Vec<Fault>,
    /// The groups that are made, one after the other.
    pub(super) groups: Vec<Wish>,
}

impl Plan {
    /// The plan that this seed stands for.
    pub(super) fn of(seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let shape = SHAPES[(seed % SHAPES.len() as u64) as usize];
        let workers = match random.below(0..10) {
            0..=5 => random.below(2..7),
            6..=8 => random.below(7..20),
            _ => random.below(20..62),
        } as u32;
        let servers = if random.once_in(4) { random.below(1..4) as u32 } else { 0 };
        let mut plan = Plan {
            seed,
            shape,
            workers,
            servers,
            delay_max_us: [300, 2_000, 8_000][random.index(3)],
            spikes: random.once_in(4),
            scheduler_starts: Some(Time(0)),
            nodes: Vec::new(),
            early: Vec::new(),
            late: Vec::new(),
            connect_lost_once_in: if random.once_in(3) { 8 } else { 0 },
            faults: Vec::new(),
            groups: Vec::new(),
        };
        plan.people(&mut random);
        plan.shape_it(&mut random);
        plan.add_trouble(&mut random);
        if shape != Shape::Revocation && random.once_in(3) {
            plan.groups = groups::wishes(&mut random, workers + servers);
        }
        plan
    }

    /// Whether the shape lets the cluster form at all.
    pub(super) fn can_form(&self) -> bool {
        let regular = self.nodes.iter().filter(|node| !node.extra).count() as u32;
        let replaced = u32::from(self.shape == Shape::Replaced);
        self.scheduler_starts.is_some() && regular == self.workers + self.servers + replaced
    }

    fn people(&mut self, random: &mut Random) {
        let manner = random.below(0..5);
        let hosts = random.below(1..5) as usize;
        for at in 0..self.workers + self.servers {
            let (role, rank) = match at.checked_sub(self.workers) {
                None => (Role::Worker, at),
                Some(rank) => (Role::Server, rank),
            };
            let named = match role {
                Role::Server => format!("server_{rank}"),
                _ => format!("worker_{rank}"),
            };
            let manner = if manner == 4 { random.below(0..3) } else { manner };
            let (node_id, id_given, rank) = match (manner, role) {
                (0, Role::Worker) => (rank.to_string(), true, None),
                (1, _) => (named, true, None),
                (2, _) => (format!("made-{at}"), false, None),
                (3, _) => (format!("made-{at}"), false, Some(rank)),
                _ => (named, true, None),
            };
            let starts = Time(random.below(0..300) * MS);
            let program = self.program(random);
            let host = random.index(hosts);
            let told_workers = self.workers;
            self.nodes.push(NodePlan {
                role,
                node_id,
                id_given,
                rank,
                host,
                told_workers,
                starts,
                extra: false,
                program,
            });
        }
        for node in &mut self.nodes {
            if random.once_in(6) {
                node.starts = Time(random.below(0..4 * S));
                self.faults.push(Fault::LateNode);
            }
        }
        if random.once_in(3) {
            self.scheduler_starts = Some(Time(random.below(MS..4 * S)));
            self.faults.push(Fault::LateScheduler);
        }
    }

    /// What a node's program does: its own key first, so that whoever waits for it is served.
    fn program(&self, random: &mut Random) -> Vec<(Duration, Action)> {
        let nodes = (self.workers + self.servers) as usize;
        let bytes = if random.once_in(12) { random.index(200_000) } else { random.index(64) };
        let mut at = random.span_ms(0..200);
        let mut program = vec![(at, Action::Set(8 + bytes))];
        for _ in 0..random.below(0..if nodes > 20 { 3 } else { 8 }) {
            at += random.span_ms(0..400);
            let other = random.index(nodes);
            program.push((
                at,
                match random.below(0..9) {
                    0..=2 => Action::Add,
                    3 => Action::Get(other),
                    4 => Action::TryGet(other),
                    5 => Action::Claim,
                    6 => Action::GiveUp,
                    7 if random.once_in(2) => Action::WhereAre,
                    7 => Action::Locate,
                    _ if random.once_in(3) => Action::SuspectSomebody,
                    _ => Action::Set(8 + random.index(100)),
                },
            ));
        }
        program
    }

    fn extra(&self, random: &mut Random, like: usize) -> NodePlan {
        let starts = Time(random.below(0..4 * S));
        // Should it get in before another, that one waits for its key like everybody.
        let program = vec![(Duration::ZERO, Action::Set(8))];
        NodePlan { starts, extra: true, program, ..self.nodes[like].clone() }
    }

    fn shape_it(&mut self, random: &mut Random) {
        let victim = random.index(self.nodes.len());
        match self.shape {
            Shape::Plain | Shape::Troubled => {}
            Shape::DuplicateId => {
                // Its namesake comes first, so that it is clear who is refused.
                let twin = self.extra(random, victim);
                let starts = Time(self.nodes[victim].starts.0.max(self.scheduler_starts.unwrap_or_default().0) + 3 * S);
                let node_id = match twin.node_id.as_str() {
                    id if id.bytes().all(|byte| byte.is_ascii_digit()) && random.once_in(2) => format!("0{id}"),
                    id => id.to_owned(),
                };
                self.nodes.push(NodePlan { starts, node_id, ..twin });
                self.connect_lost_once_in = 0;
                self.faults.push(Fault::DuplicateId);
            }
            Shape::WrongWorkerNum => {
                if random.once_in(2) {
                    let stray = self.extra(random, victim);
                    self.nodes.push(NodePlan { told_workers: self.workers + 1, node_id: "stray".to_owned(), ..stray });
                } else {
                    self.nodes[victim].told_workers += 1;
                    self.nodes[victim].extra = true;
                }
                self.faults.push(Fault::WrongWorkerNum);
            }
            Shape::Surplus => {
                for at in 0..random.below(1..4) {
                    let more = self.extra(random, victim);
                    self.nodes.push(NodePlan { node_id: format!("more-{at}"), rank: None, ..more });
                    self.faults.push(Fault::Surplus);
                }
            }
            Shape::OneTooFew => {
                self.nodes.remove(victim);
                self.faults.push(Fault::OneTooFew);
            }
            Shape::NoScheduler => {
                self.scheduler_starts = None;
                self.faults.push(Fault::NoScheduler);
            }
            Shape::Replaced => self.replace(random, victim),
            Shape::Killed => self.late.push((random.span_ms(0..1500), Mishap::Kill(victim))),
            Shape::HostVanished => self.late.push((random.span_ms(0..1500), Mishap::Vanish(victim))),
            Shape::Isolated => {
                let span = random.span_ms(100..4000);
                self.late.push((random.span_ms(0..1000), Mishap::Isolate(victim, span)));
            }
            Shape::Abort => self.nodes[victim].program.push((random.span_ms(0..1500), Action::Abort)),
            Shape::Mismatch => self.faults.push(Fault::Mismatch),
            Shape::Revocation => {
                for _ in 0..random.below(1..4) {
                    let by = random.index(self.nodes.len());
                    self.nodes[by].program.push((random.span_ms(200..400), Action::Revoke));
                }
            }
            Shape::SchedulerPaused => {
                let span = random.span_ms(100..3500);
                self.late.push((random.span_ms(0..1000), Mishap::PauseScheduler(span)));
            }
        }
        for node in &mut self.nodes {
            node.program.sort_by_key(|(at, _)| *at);
        }
    }

    /// One that dies while others are still awaited, and its next life.
    fn replace(&mut self, random: &mut Random, victim: usize) {
        let scheduler = self.scheduler_starts.unwrap_or_default();
        let begun = Time(self.nodes[victim].starts.0.max(scheduler.0));
        let dies = begun + random.span_ms(50..1500);
        let next = NodePlan { starts: dies + random.span_ms(1000..1500), ..self.nodes[victim].clone() };
        if self.nodes.len() > 1 {
            let awaited = (victim + 1) % self.nodes.len();
            self.nodes[awaited].starts = self.nodes[awaited].starts.max(next.starts);
        }
        self.nodes.push(next);
        self.early.push((dies, Mishap::Kill(victim)));
        self.faults.push(Fault::Replaced);
        self.connect_lost_once_in = 0;
    }

    /// What goes wrong besides: at most one thing per node.
    fn add_trouble(&mut self, random: &mut Random) {
        let mut nodes: Vec<usize> = (0..self.nodes.len()).collect();
        random.shuffle(&mut nodes);
        let victims = match self.shape {
            Shape::Troubled => random.below(1..4),
            Shape::Plain | Shape::SchedulerPaused | Shape::Revocation => random.below(0..3),
            Shape::OneTooFew | Shape::Surplus if random.once_in(3) => 1,
            _ => 0,
        };
        let harsh = self.shape == Shape::Troubled && random.once_in(2);
        for node in nodes.into_iter().take(victims as usize) {
            let mishap = match random.below(0..if harsh { 9 } else { 6 }) {
                0 => Mishap::Reset(node),
                1 => Mishap::LostAtNode(node),
                2 => Mishap::LostAtScheduler { node, ended: false, told: true },
                3 => Mishap::Stall(node, random.span_ms(50..400)),
                4 => Mishap::PauseNode(node, random.span_ms(50..400)),
                5 => Mishap::Reset(node),
                6 => Mishap::LostAtScheduler { node, ended: random.once_in(2), told: random.once_in(2) },
                7 => Mishap::LostSilently(node),
                _ => Mishap::PauseNode(node, random.span_ms(500..3000)),
            };
            if random.once_in(3) {
                self.early.push((Time(random.below(0..4 * S)), mishap));
            } else {
                self.late.push((random.span_ms(0..1500), mishap));
            }
        }
        if random.once_in(3) {
            self.early.push((Time(random.below(0..4 * S)), Mishap::Stranger));
        }
        if self.spikes {
            self.delay_max_us = self.delay_max_us.min(2_000);
        }
    }
}
