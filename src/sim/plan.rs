//! What a seed stands for: the cluster, how long its programs work, and what goes wrong when. Two stories in five have recovery
//! and a disk; the others are those of `once`.

use super::network::Side;
use super::once::{Errand, Once, Shape};
use super::random::Random;
use super::table::{Phase, Written};
use crate::membership::Closed;
use crate::types::Role;
use std::time::Duration;

/// The heartbeat time-out.
pub(super) const SILENCE: Duration = Duration::from_secs(1);
/// How long forming may take.
pub(super) const FORMING: Duration = Duration::from_secs(90);
/// How long forming may take for an impatient node.
pub(super) const IMPATIENT: Duration = Duration::from_millis(2500);
/// How long a node waits for the others if nobody is started any more in some place.
pub(super) const IN_VAIN: Duration = Duration::from_secs(20);
/// How long leaving may take.
pub(super) const FINALIZE: Duration = Duration::from_secs(8);
/// How long a collective may take.
pub(super) const OPERATION: Duration = Duration::from_secs(12);
/// The host on which the scheduler runs.
pub(super) const SCHEDULER_HOST: usize = 0;

/// Where in the work of the scheduler it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// A record of this kind is put out, and not synced yet.
    Unsynced(Written),
    /// It is durable, and nothing that depends on it is sent.
    Durable(Written),
    /// One message that depends on it is sent.
    HalfTold(Written),
    /// A message of this kind is about to be read.
    Before(u8),
    /// It was read, and what follows from it was put out.
    After(u8),
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// A process dies; it is started again after this while. Perhaps what it has kept is lost with it.
    Kill { slot: usize, back: Duration, forgets: bool },
    /// A process dies, and nobody is told: its host went with it.
    Vanish { slot: usize, back: Duration },
    /// Several processes die at once.
    KillSome { first: usize, count: usize, back: Duration },
    /// All processes but one die.
    AllButOne { slot: usize, back: Duration },
    /// A program aborts the job, in this phase.
    Abort { slot: usize, within: Phase },
    /// A process stands still for so long; another one is started in its place after `next`.
    Stop { slot: usize, span: Duration, next: Duration },
    /// A second process of a node that lives.
    Twin { slot: usize },
    /// A program frees its cluster without leaving it.
    Free { slot: usize },
    /// A launcher says of a process that lives that it has ended.
    Lie { slot: usize },
    /// The launcher of this slot's process has no restarts left.
    Abandon { slot: usize },
    /// Somebody says that a launcher has no restarts left, and it is not true.
    AbandonFalsely { slot: usize },
    /// A process dies, and its machine in the middle of the disk's operation after so many others.
    NodeDisk { slot: usize, after: u64, back: Duration },
    /// The scheduler's process dies, or its machine.
    Scheduler { machine: bool, back: Duration },
    /// The scheduler and one node die.
    Both { slot: usize, machine: bool, back: Duration },
    /// Everything dies.
    All { machine: bool, back: Duration },
    /// The scheduler's machine dies in the middle of the disk's operation after so many others.
    DiskOperation { after: u64, back: Duration },
    /// The scheduler's disk takes only so many bytes more.
    DiskFull { bytes: usize, back: Duration },
    /// The sync after so many others fails.
    SyncFails { after: u64, back: Duration },
    /// The disk is slow for a while.
    SlowDisk { span: Duration },
    /// A node's connection ends; `quiet`: the scheduler is not told.
    Reset { slot: usize, quiet: bool },
    /// Nothing that one end of a node's connection sends arrives.
    OneWay { slot: usize, to_scheduler: bool },
    /// So many nodes and the scheduler do not reach each other for a while; with `links` they do not reach the other nodes
    /// either.
    Partition { slot: usize, count: usize, span: Duration, links: bool },
    /// A node connects once more while its connection stands.
    Duplicate { slot: usize },
    /// The link between two nodes ends.
    Link { one: usize, other: usize },
    /// What one node sends another is lost for a while, and neither is told.
    LinkSilent { one: usize, other: usize, span: Duration },
    /// What one node sends another is held back for a while, and arrives afterwards.
    LinkSlow { one: usize, other: usize, span: Duration },
    /// A node's connection ends. One end learns of it (the scheduler in the way `how`), or none does. `told`: the other
    /// end is told when it sends.
    HalfOpen { slot: usize, hears: Option<Side>, told: bool, how: Closed },
    /// A node's connection carries nothing for a while, then everything.
    Stall { slot: usize, span: Duration },
    /// The scheduler's process stands still.
    PauseScheduler { span: Duration },
    /// Somebody else connects to the scheduler's port.
    Stranger,
}

impl Trouble {
    /// Whether nodes may be lost because of it, or the job ended.
    pub(super) fn takes_nodes(&self) -> bool {
        !matches!(
            self,
            Trouble::Scheduler { .. }
                | Trouble::DiskOperation { .. }
                | Trouble::DiskFull { .. }
                | Trouble::SyncFails { .. }
                | Trouble::SlowDisk { .. }
                | Trouble::Reset { .. }
                | Trouble::Duplicate { .. }
                | Trouble::Twin { .. }
        )
    }
}

/// How a story is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Everybody does everything: once a node leaves, none is lost any more.
    Well,
    /// Nodes are lost while others leave.
    WithLosses,
    /// Somebody aborts the job.
    Aborted,
}

impl Ending {
    /// The ending of a seed, and the seed's number among those with that ending.
    pub(super) fn of(seed: u64) -> (Ending, u64) {
        let (round, at) = (seed / 20, seed % 20);
        match at {
            0..6 => (Ending::Aborted, round * 6 + at),
            6..10 => (Ending::WithLosses, round * 4 + at - 6),
            _ => (Ending::Well, round * 10 + at - 10),
        }
    }
}

/// When something goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// So long after this phase began. Each beginning of the phase brings about one trouble.
    In(Phase, Duration),
    /// The scheduler dies at this moment, at the time of this number that the moment comes in this phase.
    At(Moment, Phase, u32),
    /// The node that sends or gets this message dies at that time: it is the message of this number of its kind in this
    /// phase.
    With {
        kind: u8,
        phase: Phase,
        nth: u32,
    },
    /// This message is lost with its connection: it is the one of this number of its kind in this phase.
    Lost {
        kind: u8,
        phase: Phase,
        nth: u32,
    },
    /// So long after the beginning, or after the cluster was complete.
    After(Duration),
    Formed(Duration),
}

#[derive(Clone, Debug)]
pub(super) struct NodePlan {
    pub(super) role: Role,
    pub(super) node_id: Option<String>,
    pub(super) rank: Option<u32>,
    pub(super) host: usize,
    pub(super) starts: Duration,
    pub(super) told_workers: u32,
    /// A node that the cluster has no place for, or that has no place in it.
    pub(super) extra: bool,
    pub(super) errands: Vec<(Duration, Errand)>,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// Its number among the seeds of its kind.
    pub(super) nth: u64,
    /// Set in a story without recovery and disk; none: with both.
    pub(super) once: Option<Once>,
    pub(super) ending: Ending,
    pub(super) workers: u32,
    pub(super) servers: u32,
    pub(super) delay_max_us: u64,
    pub(super) spikes: bool,
    pub(super) sync_max_us: u64,
    /// How many rounds all do together.
    pub(super) rounds: u64,
    /// How many groups are made.
    pub(super) groups: u64,
    /// A life that comes back for the first time does not wait long for the cluster to be whole again.
    pub(super) impatient: bool,
    /// Launchers tell of the processes that they have started.
    pub(super) launched: bool,
    /// Programs leave the run when they are told that a place was abandoned; otherwise they just end.
    pub(super) leaves_in_vain: bool,
    /// The scheduler's port stays open while the scheduler is away: a connection that comes then waits.
    pub(super) port_is_kept: bool,
    /// One of so many records is followed by a rewriting of the journal.
    pub(super) rewrite_once_in: u64,
    pub(super) nodes: Vec<NodePlan>,
    pub(super) troubles: Vec<(When, Trouble)>,
}

impl Plan {
    /// The plan that this seed stands for.
    pub(super) fn of(seed: u64) -> Plan {
        match seed % 5 {
            at @ 0..2 => Plan::recovering(seed, seed / 5 * 2 + at),
            at => Plan::once(seed, seed / 5 * 3 + at - 2),
        }
    }

    /// A plan with no nodes, in which nothing goes wrong.
    pub(super) fn empty(seed: u64, nth: u64, workers: u32, servers: u32) -> Plan {
        Plan {
            seed,
            nth,
            once: None,
            ending: Ending::of(nth).0,
            workers,
            servers,
            delay_max_us: 0,
            spikes: false,
            sync_max_us: 0,
            rounds: 0,
            groups: 0,
            impatient: false,
            launched: false,
            leaves_in_vain: false,
            port_is_kept: false,
            rewrite_once_in: 1,
            nodes: Vec::new(),
            troubles: Vec::new(),
        }
    }

    fn recovering(seed: u64, nth: u64) -> Plan {
        let mut random = Random::new(nth ^ 0x7265_636f_7665_7279);
        let workers = random.below(2..7) as u32;
        let servers = if random.once_in(4) { random.below(1..3) as u32 } else { 0 };
        let mut plan = Plan {
            delay_max_us: [300, 2_000, 8_000][random.index(3)],
            sync_max_us: [200, 2_000, 30_000][random.index(3)],
            rounds: random.below(8..24),
            groups: random.below(0..4),
            impatient: random.once_in(6),
            launched: random.once_in(2),
            leaves_in_vain: random.once_in(10),
            port_is_kept: random.once_in(2),
            rewrite_once_in: [5, 20, 1000][random.index(3)],
            ..Plan::empty(seed, nth, workers, servers)
        };
        plan.people(&mut random);
        plan.aims(&mut random);
        plan.troubles(&mut random);
        plan
    }

    pub(super) fn recovers(&self) -> bool {
        self.once.is_none()
    }

    /// Whether a process that dies is started again.
    pub(super) fn starts_again(&self) -> bool {
        self.once.as_ref().is_none_or(|once| once.shape == Shape::Replaced)
    }

    /// Whether this is what a story without recovery is about.
    pub(super) fn is_about(&self, shape: Shape) -> bool {
        self.once.as_ref().is_some_and(|once| once.shape == shape)
    }

    /// Whether the cluster can be whole at all.
    pub(super) fn can_form(&self) -> bool {
        let regular = self.nodes.iter().filter(|node| !node.extra).count() as u32;
        !self.is_about(Shape::NoScheduler) && regular == self.size()
    }

    /// How many nodes make the cluster whole.
    pub(super) fn size(&self) -> u32 {
        self.workers + self.servers
    }

    /// The role and rank of the node with this index.
    pub(super) fn place(&self, index: u32) -> (Role, u32) {
        match index.checked_sub(self.workers) {
            None => (Role::Worker, index),
            Some(rank) => (Role::Server, rank),
        }
    }

    fn people(&mut self, random: &mut Random) {
        let manner = random.below(0..3);
        let hosts = random.below(1..4) as usize;
        for at in 0..self.workers + self.servers {
            let (role, rank) = self.place(at);
            let named = if role == Role::Server { format!("server_{rank}") } else { format!("worker_{rank}") };
            let (node_id, rank) = match (manner, role) {
                (0, Role::Worker) => (Some(rank.to_string()), None),
                (1, _) => (None, Some(rank)),
                _ => (Some(named), None),
            };
            let (host, told_workers, errands) = (random.index(hosts + 1), self.workers, Vec::new());
            let starts = random.span_ms(0..2500);
            self.nodes.push(NodePlan { role, node_id, rank, host, starts, told_workers, extra: false, errands });
        }
    }

    /// How long until a process is started again: soon, or after its loss has been noticed, or late.
    fn back(random: &mut Random) -> Duration {
        match random.below(0..4) {
            0 => random.span_ms(5..100),
            1 | 2 => random.span_ms(100..1500),
            _ => random.span_ms(1500..6000),
        }
    }

    fn troubles(&mut self, random: &mut Random) {
        let gentle = random.once_in(12);
        let count = if gentle { random.below(0..3) } else { random.below(1..8) };
        for _ in 0..count {
            let trouble = self.trouble(random);
            let scheduler_dies = matches!(trouble, Trouble::Scheduler { .. } | Trouble::Both { .. });
            let when = match random.below(0..11) {
                0..=4 if matches!(trouble, Trouble::Reset { .. }) => {
                    let nth = random.below(1..6) as u32;
                    When::Lost { kind: Plan::kind(random), phase: Plan::any_phase(random), nth }
                }
                0..=4 if scheduler_dies => {
                    When::At(Plan::moment(random), Plan::any_phase(random), random.below(1..4) as u32)
                }
                0..=2 if matches!(trouble, Trouble::Kill { .. }) => {
                    let nth = random.below(1..12) as u32;
                    When::With { kind: Plan::kind(random), phase: Plan::any_phase(random), nth }
                }
                _ => self.phase(random),
            };
            self.troubles.push((when, trouble));
        }
    }

    fn phase(&self, random: &mut Random) -> When {
        match random.below(0..9) {
            0 => When::In(Phase::Forming, random.span_ms(0..300)),
            1..=3 => When::In(Phase::Running, random.span_ms(0..1500)),
            4..=6 => When::In(Phase::Recovering, random.span_ms(0..1500)),
            _ if self.ending == Ending::WithLosses => When::In(Phase::Finishing, random.span_ms(0..120)),
            _ => When::In(Phase::Running, random.span_ms(0..300)),
        }
    }

    fn any_phase(random: &mut Random) -> Phase {
        [Phase::Forming, Phase::Running, Phase::Recovering][random.index(3)]
    }

    fn kind(random: &mut Random) -> u8 {
        let kinds = [1, 3, 4, 8, 9, 12, 13, 14, 15, 16, 17, 18, 19, 21, 22, 23, 24, 26, 27, 28, 29, 32, 33, 35];
        kinds[random.index(kinds.len())]
    }

    fn moment(random: &mut Random) -> Moment {
        let written = Written::ALL[random.index(Written::ALL.len())];
        match random.below(0..6) {
            0 => Moment::Unsynced(written),
            1 | 2 => Moment::Durable(written),
            3 => Moment::HalfTold(written),
            4 => Moment::Before([1, 4, 8, 10, 13, 21, 24, 26, 29, 32][random.index(10)]),
            _ => Moment::After([1, 4, 8, 10, 13, 21, 24, 26, 29, 32][random.index(10)]),
        }
    }

    fn trouble(&self, random: &mut Random) -> Trouble {
        let nodes = self.nodes.len();
        let slot = random.index(nodes);
        let back = Plan::back(random);
        let machine = random.once_in(2);
        match random.below(0..32) {
            0..=3 => Trouble::Kill { slot, back, forgets: random.once_in(12) },
            4 | 5 => Trouble::Vanish { slot, back },
            6 => Trouble::KillSome { first: slot, count: 1 + random.index(nodes), back },
            7 | 8 => Trouble::Stop { slot, span: random.span_ms(300..9000), next: random.span_ms(1200..4000) },
            9 => Trouble::Twin { slot },
            10..=14 => Trouble::Scheduler { machine, back },
            15 => Trouble::Both { slot, machine, back },
            16 => Trouble::All { machine, back },
            17 => Trouble::DiskOperation { after: random.below(0..12), back },
            18 => match random.below(0..3) {
                0 => Trouble::DiskFull { bytes: random.index(3000), back },
                1 => Trouble::SyncFails { after: random.below(0..6), back },
                _ => Trouble::SlowDisk { span: random.span_ms(200..3000) },
            },
            19 | 20 => Trouble::Reset { slot, quiet: random.once_in(2) },
            21 => Trouble::OneWay { slot, to_scheduler: random.once_in(2) },
            22 => self.partition(random, slot, 4000),
            23 | 24 => Trouble::Duplicate { slot },
            25 => self.between_nodes(random, slot),
            26 if self.ending == Ending::Aborted => {
                let within = if random.once_in(2) { Phase::Running } else { Phase::Recovering };
                Trouble::Abort { slot, within }
            }
            27 => Trouble::AllButOne { slot, back },
            29 => Trouble::Free { slot },
            30 => Trouble::Lie { slot },
            31 => Trouble::NodeDisk { slot, after: random.below(0..10), back },
            _ => Trouble::Link { one: slot, other: (slot + 1) % nodes },
        }
    }

    pub(super) fn partition(&self, random: &mut Random, slot: usize, longest_ms: u64) -> Trouble {
        let count = if random.once_in(2) { 1 } else { 1 + random.index(self.nodes.len()) };
        Trouble::Partition { slot, count, span: random.span_ms(20..longest_ms), links: random.once_in(2) }
    }

    pub(super) fn between_nodes(&self, random: &mut Random, one: usize) -> Trouble {
        let nodes = self.nodes.len();
        let other = (one + 1 + random.index(nodes - 1)) % nodes;
        match random.once_in(2) {
            true => Trouble::LinkSilent { one, other, span: random.span_ms(50..3000) },
            false => Trouble::LinkSlow { one, other, span: random.span_ms(50..3000) },
        }
    }
}
