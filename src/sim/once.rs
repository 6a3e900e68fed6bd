//! Stories without recovery and without a disk: up to 62 nodes, each of which lives once. What goes wrong while they form, and
//! while they work; the first loss ends the job for all.

use super::groups::Wish;
use super::network::Side;
use super::plan::{NodePlan, Plan, Trouble, When};
use super::random::Random;
use super::table::{Event as Met, Phase};
use crate::membership::Closed;
use crate::types::Role;
use std::time::Duration;

/// How long forming may take in such a story.
pub(super) const FORMING: Duration = Duration::from_secs(10);

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
pub(super) enum Errand {
    /// Add 1 to the counter that all share.
    Add,
    /// Write this many bytes under its own key.
    Set(usize),
    /// Wait for the key that the node with this index writes.
    Get(usize),
    /// Read that key if it is there.
    TryGet(usize),
    /// Be the first to claim what all claim.
    Claim,
    /// Wait for a key that nobody writes, and give up.
    GiveUp,
    WhereAre,
    Locate,
    SuspectSomebody,
    Revoke,
}

/// What only a story without recovery has.
#[derive(Clone, Debug)]
pub(super) struct Once {
    pub(super) shape: Shape,
    /// When the scheduler starts; none: never.
    pub(super) scheduler_starts: Option<Duration>,
    /// One attempt in so many to connect before the cluster is complete gets no answer; 0: none.
    pub(super) connect_lost_once_in: u64,
    /// What goes wrong by the plan itself.
    pub(super) planned: Vec<Met>,
    /// The groups that are made, one after the other.
    pub(super) wishes: Vec<Wish>,
}

fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

impl Plan {
    pub(super) fn once(seed: u64, nth: u64) -> Plan {
        let mut random = Random::new(nth);
        let shape = SHAPES[(nth % SHAPES.len() as u64) as usize];
        let workers = match random.below(0..10) {
            0..=5 => random.below(2..7),
            6..=8 => random.below(7..20),
            _ => random.below(20..62),
        } as u32;
        let servers = if random.once_in(4) { random.below(1..4) as u32 } else { 0 };
        let mut plan = Plan::empty(seed, nth, workers, servers);
        plan.delay_max_us = [300, 2_000, 8_000][random.index(3)];
        plan.spikes = random.once_in(4);
        let mut once = Once {
            shape,
            scheduler_starts: Some(Duration::ZERO),
            connect_lost_once_in: if random.once_in(3) { 8 } else { 0 },
            planned: Vec::new(),
            wishes: Vec::new(),
        };
        once.people(&mut plan, &mut random);
        once.shape_it(&mut plan, &mut random);
        once.add_trouble(&mut plan, &mut random);
        if shape != Shape::Revocation && random.once_in(3) {
            once.wishes = super::groups::wishes(&mut random, workers + servers, workers);
        }
        plan.once = Some(once);
        plan
    }
}

impl Once {
    fn people(&mut self, plan: &mut Plan, random: &mut Random) {
        let manner = random.below(0..5);
        let hosts = random.below(1..5) as usize;
        for at in 0..plan.workers + plan.servers {
            let (role, rank) = plan.place(at);
            let named = if role == Role::Server { format!("server_{rank}") } else { format!("worker_{rank}") };
            let manner = if manner == 4 { random.below(0..3) } else { manner };
            let (node_id, rank) = match (manner, role) {
                (0, Role::Worker) => (Some(rank.to_string()), None),
                (2, _) => (None, None),
                (3, _) => (None, Some(rank)),
                _ => (Some(named), None),
            };
            let starts = ms(random.below(0..300));
            let errands = errands((plan.workers + plan.servers) as usize, random);
            let (host, told_workers) = (random.index(hosts), plan.workers);
            plan.nodes.push(NodePlan { role, node_id, rank, host, starts, told_workers, extra: false, errands });
        }
        for node in &mut plan.nodes {
            if random.once_in(6) {
                node.starts = random.span_ms(0..4000);
                self.planned.push(Met::LateNode);
            }
        }
        if random.once_in(3) {
            self.scheduler_starts = Some(random.span_ms(1..4000));
            self.planned.push(Met::LateScheduler);
        }
    }

    fn shape_it(&mut self, plan: &mut Plan, random: &mut Random) {
        let victim = random.index(plan.nodes.len());
        let (slot, back) = (victim, Duration::ZERO);
        match self.shape {
            Shape::Plain | Shape::Troubled => {}
            Shape::DuplicateId => {
                // The node whose id it takes comes first, so that it is clear which of the two is refused.
                let starts = plan.nodes[victim].starts.max(self.scheduler_starts.unwrap_or_default()) + ms(3000);
                let twin = extra(plan, random, victim);
                let has_number = |id: &String| id.bytes().all(|byte| byte.is_ascii_digit());
                let node_id = match twin.node_id.clone() {
                    Some(id) if has_number(&id) && random.once_in(2) => Some(format!("0{id}")),
                    // Nodes that make their own ids never have the same one.
                    id => id.or(Some("twice".to_owned())),
                };
                plan.nodes[victim].node_id.get_or_insert_with(|| "twice".to_owned());
                plan.nodes.push(NodePlan { starts, node_id, ..twin });
                self.connect_lost_once_in = 0;
                self.planned.push(Met::DuplicateId);
            }
            Shape::WrongWorkerNum => {
                if random.once_in(2) {
                    let stray = extra(plan, random, victim);
                    let node_id = Some("stray".to_owned());
                    plan.nodes.push(NodePlan { told_workers: plan.workers + 1, node_id, ..stray });
                } else {
                    plan.nodes[victim].told_workers += 1;
                    plan.nodes[victim].extra = true;
                }
                self.planned.push(Met::WrongWorkerNum);
            }
            Shape::Surplus => {
                for at in 0..random.below(1..4) {
                    let more = extra(plan, random, victim);
                    let node_id = more.node_id.as_ref().map(|_| format!("more-{at}"));
                    plan.nodes.push(NodePlan { node_id, rank: None, ..more });
                    self.planned.push(Met::Surplus);
                }
            }
            Shape::OneTooFew => {
                plan.nodes.remove(victim);
                self.planned.push(Met::OneTooFew);
            }
            Shape::NoScheduler => {
                self.scheduler_starts = None;
                self.planned.push(Met::NoScheduler);
            }
            Shape::Replaced => self.replace(plan, random, victim),
            Shape::Killed => later(plan, random, 0..1500, Trouble::Kill { slot, back, forgets: false }),
            Shape::HostVanished => later(plan, random, 0..1500, Trouble::Vanish { slot, back }),
            Shape::Isolated => {
                let span = random.span_ms(100..4000);
                later(plan, random, 0..1000, Trouble::Partition { slot, count: 1, span, links: true });
            }
            Shape::Abort => later(plan, random, 0..1500, Trouble::Abort { slot, within: Phase::Once }),
            Shape::Mismatch => self.planned.push(Met::Mismatch),
            Shape::Revocation => {
                for _ in 0..random.below(1..4) {
                    let by = random.index(plan.nodes.len());
                    plan.nodes[by].errands.push((random.span_ms(200..400), Errand::Revoke));
                }
            }
            Shape::SchedulerPaused => {
                let span = random.span_ms(100..3500);
                later(plan, random, 0..1000, Trouble::PauseScheduler { span });
            }
        }
        for node in &mut plan.nodes {
            node.errands.sort_by_key(|(at, _)| *at);
        }
    }

    /// A node that dies while others are still awaited, and its next life.
    fn replace(&mut self, plan: &mut Plan, random: &mut Random, slot: usize) {
        let dies = plan.nodes[slot].starts.max(self.scheduler_starts.unwrap_or_default()) + random.span_ms(50..1500);
        let back = random.span_ms(1000..1500);
        let count = plan.nodes.len();
        let awaited = &mut plan.nodes[(slot + 1) % count];
        awaited.starts = awaited.starts.max(dies + back);
        plan.troubles.push((When::After(dies), Trouble::Kill { slot, back, forgets: false }));
        self.planned.push(Met::Replaced);
        self.connect_lost_once_in = 0;
    }

    /// What goes wrong besides: at most one thing per node.
    fn add_trouble(&mut self, plan: &mut Plan, random: &mut Random) {
        let mut nodes: Vec<usize> = (0..plan.nodes.len()).collect();
        random.shuffle(&mut nodes);
        let victims = match self.shape {
            Shape::Troubled => random.below(1..4),
            Shape::Plain | Shape::SchedulerPaused | Shape::Revocation => random.below(0..3),
            Shape::OneTooFew | Shape::Surplus if random.once_in(3) => 1,
            _ => 0,
        };
        let harsh = self.shape == Shape::Troubled && random.once_in(2);
        for slot in nodes.into_iter().take(victims as usize) {
            let half_open = |hears, told, how| Trouble::HalfOpen { slot, hears, told, how };
            let trouble = match random.below(0..if harsh { 9 } else { 6 }) {
                1 => half_open(Some(Side::Node), random.once_in(2), Closed::Ended),
                2 => half_open(Some(Side::Scheduler), true, Closed::Broken),
                3 => Trouble::Stall { slot, span: random.span_ms(50..400) },
                4 => Trouble::Stop { slot, span: random.span_ms(50..400), next: Duration::MAX },
                6 => {
                    let how = if random.once_in(2) { Closed::Ended } else { Closed::Broken };
                    half_open(Some(Side::Scheduler), random.once_in(2), how)
                }
                7 => half_open(None, false, Closed::Ended),
                8 => Trouble::Stop { slot, span: random.span_ms(500..3000), next: Duration::MAX },
                _ => Trouble::Reset { slot, quiet: false },
            };
            let when = match random.once_in(3) {
                true => When::After(random.span_ms(0..4000)),
                false => When::Formed(random.span_ms(0..1500)),
            };
            plan.troubles.push((when, trouble));
        }
        if random.once_in(3) {
            plan.troubles.push((When::After(random.span_ms(0..4000)), Trouble::Stranger));
        }
        if plan.spikes {
            plan.delay_max_us = plan.delay_max_us.min(2_000);
        }
    }
}

/// What a node's program does: it writes its own key first, so that nodes that wait for the key get it.
fn errands(nodes: usize, random: &mut Random) -> Vec<(Duration, Errand)> {
    let bytes = if random.once_in(12) { random.index(200_000) } else { random.index(64) };
    let mut at = random.span_ms(0..200);
    let mut errands = vec![(at, Errand::Set(8 + bytes))];
    for _ in 0..random.below(0..if nodes > 20 { 3 } else { 8 }) {
        at += random.span_ms(0..400);
        let other = random.index(nodes);
        errands.push((
            at,
            match random.below(0..9) {
                0..=2 => Errand::Add,
                3 => Errand::Get(other),
                4 => Errand::TryGet(other),
                5 => Errand::Claim,
                6 => Errand::GiveUp,
                7 if random.once_in(2) => Errand::WhereAre,
                7 => Errand::Locate,
                _ if random.once_in(3) => Errand::SuspectSomebody,
                _ => Errand::Set(8 + random.index(100)),
            },
        ));
    }
    errands
}

/// Something goes wrong once the cluster is complete.
fn later(plan: &mut Plan, random: &mut Random, ms: std::ops::Range<u64>, trouble: Trouble) {
    plan.troubles.push((When::Formed(random.span_ms(ms)), trouble));
}

/// A node that the cluster has no place for, or that has no place in it.
fn extra(plan: &Plan, random: &mut Random, like: usize) -> NodePlan {
    let starts = random.span_ms(0..4000);
    // If it gets in before another node, that one waits for its key as everybody does.
    let errands = vec![(Duration::ZERO, Errand::Set(8))];
    NodePlan { starts, extra: true, errands, ..plan.nodes[like].clone() }
}
