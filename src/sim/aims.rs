//! Troubles that aim at the cells of the table, so that each is hit in few stories: each seed aims at a few of them.

use super::cells::{cells, BESIDE};
use super::plan::{Ending, Moment, Plan, Trouble, When};
use super::random::Random;
use super::table::{Event as Met, Phase, Written};
use std::time::Duration;

/// How many cells a seed aims at, before the end.
const AIMS: u64 = 40;
/// How many cells a seed aims at while nodes leave: of those that lose no node, and of the others.
const HARMLESS: u64 = 10;
const LOSSES: u64 = 14;
/// The message that ends a job, and the one by which a launcher abandons a place.
const ABORT: u8 = 19;
const ABANDONED: u8 = 37;
/// The message that tells a node that comes back to wait.
const NOT_YET: u8 = 27;
/// The message that says of a lost node: by the scheduler, and by its launcher.
const LOST: u8 = 28;
const CHILD_ENDED: u8 = 36;

/// Whether a job ends with it.
fn is_of_abort(event: Met) -> bool {
    let messages =
        [Met::SchedulerBefore(ABORT), Met::SchedulerAfter(ABORT), Met::NodeWith(ABORT), Met::MessageLost(ABORT)];
    event == Met::Aborted || messages.contains(&event)
}

/// Whether no node is lost by it.
fn is_harmless(event: Met) -> bool {
    match event {
        Met::SchedulerKilled | Met::BackBeforeVerdict | Met::Rewritten | Met::ConnectionReset => true,
        Met::DiskFull | Met::SyncFailed | Met::SlowDisk => true,
        Met::Unsynced(written) | Met::Durable(written) | Met::HalfTold(written) => written != Written::Done,
        Met::MessageLost(kind) => ![NOT_YET, LOST, CHILD_ENDED].contains(&kind),
        Met::SchedulerBefore(kind) | Met::SchedulerAfter(kind) => kind != CHILD_ENDED,
        _ => false,
    }
}

/// Whether this happens less often than it is aimed at.
fn is_rare(event: Met, phase: Phase) -> bool {
    match event {
        // While nodes leave.
        Met::MessageLost(5 | LOST) | Met::NodeWith(3 | 26 | NOT_YET) if phase == Phase::Finishing => true,
        Met::SchedulerBefore(kind) | Met::SchedulerAfter(kind) | Met::MessageLost(kind) => {
            [2, 6, 7, 11, 15, 16, 19, 20, 22, 25, 29, 34, ABANDONED].contains(&kind)
        }
        Met::NodeWith(kind) => [6, 7, 10, 11, 15, 16, ABORT, 22, 25].contains(&kind),
        Met::HalfTold(Written::Abandoned) => true,
        Met::Unsynced(_) | Met::Durable(_) | Met::HalfTold(_) => false,
        Met::DiskFull | Met::ConnectionReset => true,
        _ => matches!(phase, Phase::Forming | Phase::Finishing),
    }
}

/// So many of these cells, for the n-th story that aims at them. Each comes as often as the others, except rare ones;
/// and with other cells beside it each time.
fn share(mut cells: Vec<(Met, Phase)>, nth: u64, count: u64) -> Vec<(Met, Phase)> {
    let rare: Vec<_> = cells.iter().copied().filter(|(event, phase)| is_rare(*event, *phase)).collect();
    cells.extend(rare.iter().chain(&rare));
    let all = cells.len() as u64;
    let shuffled = |round: u64| {
        let mut shuffled = cells.clone();
        Random::new(round).shuffle(&mut shuffled);
        shuffled
    };
    let (first, end) = (nth * count, (nth + 1) * count);
    let rounds = first / all..end.div_ceil(all);
    let dealt: Vec<_> = rounds.clone().flat_map(shuffled).collect();
    (first..end).map(|at| dealt[(at - rounds.start * all) as usize]).collect()
}

impl Plan {
    /// The troubles that aim at this seed's cells, and what must come before.
    pub(super) fn aims(&mut self, random: &mut Random) {
        let (mut ends, others): (Vec<_>, Vec<_>) = cells().into_iter().partition(|(event, _)| is_of_abort(*event));
        let (last, before): (Vec<_>, Vec<_>) = others.into_iter().partition(|(_, phase)| *phase == Phase::Finishing);
        let (harmless, losses): (Vec<_>, Vec<_>) = last.into_iter().partition(|(event, _)| is_harmless(*event));
        let (ending, nth) = Ending::of(self.nth);
        let mut wanted = share(before, self.nth, AIMS);
        match ending {
            Ending::Well => wanted.extend(share(harmless, nth, HARMLESS)),
            Ending::WithLosses => wanted.extend(share(losses, nth, LOSSES)),
            Ending::Aborted => {}
        }
        let mut aims: Vec<(When, Trouble)> = Vec::new();
        for (event, phase) in wanted {
            aims.extend(self.aim(random, event, phase));
        }
        if self.nth.is_multiple_of(4) {
            // Otherwise this is rarely met: a node that has a connection then is soon a member.
            aims.extend(self.aim(random, Met::ConnectionReset, Phase::Forming));
        }
        let number = self.nth % 9;
        for (_, event, phase) in BESIDE.into_iter().filter(|beside| beside.0 == number) {
            aims.extend(self.aim(random, event, phase));
        }
        random.shuffle(&mut aims);
        if ending == Ending::Aborted {
            // The messages count three times.
            ends.extend(ends.clone().into_iter().filter(|(event, _)| *event == Met::Aborted));
            let (event, phase) = share(ends, nth, 1)[0];
            let soon = random.index(3);
            let aim = self.aim(random, event, phase);
            aims.splice(soon..soon, aim);
        }
        // Somebody must be lost before anything can happen meanwhile.
        for _ in 0..2 {
            let (slot, back) = (random.index(self.nodes.len()), random.span_ms(700..3000));
            let loss = (When::In(Phase::Running, random.span_ms(0..500)), Trouble::Kill { slot, back, forgets: false });
            let place = random.index(aims.len() + 1);
            aims.insert(place, loss);
        }
        self.troubles = aims;
    }

    fn aim(&mut self, random: &mut Random, event: Met, phase: Phase) -> Vec<(When, Trouble)> {
        let slot = random.index(self.nodes.len());
        // A node that leaves does not wait long for a scheduler.
        let back = random.span_ms(if phase == Phase::Finishing { 30..1200 } else { 30..2500 });
        let longest = match phase {
            Phase::Forming => 1000,
            Phase::Running => 600,
            Phase::Recovering | Phase::Finishing | Phase::Once => 150,
        };
        let in_phase = When::In(phase, random.span_ms(0..longest));
        let machine = random.once_in(2);
        let dies = Trouble::Scheduler { machine, back };
        let killed = Trouble::Kill { slot, back, forgets: false };
        let moment = |moment| vec![(When::At(moment, phase, 1), dies)];
        self.launched |= matches!(event, Met::LaunchersWord | Met::LateWord);
        match event {
            Met::Unsynced(written) => self.led_to_record(random, (written, phase), moment(Moment::Unsynced(written))),
            Met::Durable(written) => self.led_to_record(random, (written, phase), moment(Moment::Durable(written))),
            Met::HalfTold(written) => self.led_to_record(random, (written, phase), moment(Moment::HalfTold(written))),
            Met::SchedulerBefore(kind) => self.led_to(random, (kind, phase), moment(Moment::Before(kind))),
            Met::SchedulerAfter(kind) => self.led_to(random, (kind, phase), moment(Moment::After(kind))),
            Met::NodeWith(kind) => {
                self.led_to(random, (kind, phase), vec![(When::With { kind, phase, nth: 1 }, killed)])
            }
            Met::MessageLost(kind) => {
                let once = [ABORT, ABANDONED].contains(&kind) || random.once_in(2);
                let (quiet, nth) = (random.once_in(2), if once { 1 } else { 2 });
                self.led_to(
                    random,
                    (kind, phase),
                    vec![(When::Lost { kind, phase, nth }, Trouble::Reset { slot, quiet })],
                )
            }
            Met::NodeDisk => {
                let disk = Trouble::NodeDisk { slot, after: random.below(0..10), back };
                vec![(in_phase, disk), (When::In(phase, random.span_ms(0..1500)), disk)]
            }
            // While forming there may be no connection yet, or no scheduler.
            other if phase == Phase::Forming => {
                let early = self.plain(random, other, slot, back, phase);
                let later = [300..1800, 800..2400].map(|range| (When::In(phase, random.span_ms(range)), early));
                std::iter::once((in_phase, early)).chain(later).collect()
            }
            other => vec![(in_phase, self.plain(random, other, slot, back, phase))],
        }
    }

    /// Some messages come of something else only.
    fn led_to(
        &mut self,
        random: &mut Random,
        (kind, phase): (u8, Phase),
        mut aim: Vec<(When, Trouble)>,
    ) -> Vec<(When, Trouble)> {
        let slot = random.index(self.nodes.len());
        let running = When::In(Phase::Running, random.span_ms(100..600));
        match kind {
            21 | 22 => self.groups = self.groups.max(2),
            // A node that is not wanted: it is asked to wait for an answer, and refused.
            2 | 27 => {
                let phase = if random.once_in(2) { Phase::Running } else { Phase::Recovering };
                aim.push((When::In(phase, random.span_ms(0..300)), Trouble::Twin { slot }));
            }
            // A node that is back waits for another, which is not back.
            7 => {
                self.impatient = true;
                let next = (slot + 1) % self.nodes.len();
                let back = random.span_ms(30..300);
                aim.push((running, Trouble::Kill { slot, back, forgets: false }));
                let late = When::In(Phase::Recovering, random.span_ms(0..100));
                aim.push((late, Trouble::Kill { slot: next, back: random.span_ms(6000..9000), forgets: false }));
            }
            ABORT => {
                let within = Phase::Recovering;
                aim.push((When::In(within, random.span_ms(0..100)), Trouble::Abort { slot, within }));
            }
            23 | 38 => self.groups = self.groups.max(2), // of which the first is freed early
            // What is asked when a collective takes long.
            15 | 16 if phase == Phase::Recovering => {
                aim.push((running, Trouble::Vanish { slot, back: random.span_ms(1500..3000) }));
            }
            15 | 16 => {
                let (other, span) = ((slot + 1) % self.nodes.len(), random.span_ms(800..4000));
                aim.push((running, Trouble::LinkSlow { one: slot, other, span }));
            }
            20 => aim.push((When::In(phase, random.span_ms(0..200)), Trouble::Free { slot })),
            LOST | CHILD_ENDED if phase == Phase::Finishing => {
                self.launched |= kind == CHILD_ENDED;
                let leaving = When::In(phase, random.span_ms(0..60));
                aim.push((leaving, Trouble::Kill { slot, back: random.span_ms(30..600), forgets: false }));
            }
            CHILD_ENDED if phase == Phase::Forming => {
                self.launched = true;
                let early = When::In(phase, random.span_ms(0..300));
                aim.push((early, Trouble::Kill { slot, back: random.span_ms(30..1500), forgets: false }));
            }
            CHILD_ENDED => {
                self.launched = true;
                aim.push((running, Trouble::Kill { slot, back: random.span_ms(30..1500), forgets: false }));
            }
            ABANDONED if phase == Phase::Recovering => aim.push((running, self.abandons(random, slot))),
            ABANDONED => {
                let falsely = Trouble::AbandonFalsely { slot };
                aim.extend((0..2).map(|_| (When::In(phase, random.span_ms(0..300)), falsely)));
            }
            // What two peers say of each other when the link between them ends.
            10 | 11 | 13 | 14 => aim.push((running, Trouble::Link { one: slot, other: (slot + 1) % self.nodes.len() })),
            // What nodes know when the scheduler is started again.
            29 => {
                let recovering = When::In(Phase::Recovering, random.span_ms(200..500));
                let back = random.span_ms(100..500);
                let lost = Trouble::Kill { slot, back: Duration::from_secs(3), forgets: false };
                for _ in 0..2 {
                    aim.push((running, lost));
                    aim.push((recovering, Trouble::Scheduler { machine: false, back }));
                }
            }
            _ => {}
        }
        aim
    }

    /// Some records come of something else only.
    fn led_to_record(
        &mut self,
        random: &mut Random,
        (written, phase): (Written, Phase),
        mut aim: Vec<(When, Trouble)>,
    ) -> Vec<(When, Trouble)> {
        match written {
            Written::Abandoned => return self.led_to(random, (ABANDONED, phase), aim),
            Written::Freed => self.groups = self.groups.max(2), // the first is freed early
            // It must be killed before it is started again.
            Written::Generation => {
                let dies = Trouble::Scheduler { machine: false, back: random.span_ms(30..200) };
                aim.push((When::In(phase, random.span_ms(0..200)), dies));
            }
            _ => {}
        }
        aim
    }

    /// The launcher of this slot abandons it; as a rule it has started nobody else.
    fn abandons(&mut self, random: &mut Random, slot: usize) -> Trouble {
        if !random.once_in(3) {
            self.nodes[slot].host = 10 + slot;
        }
        self.launched = true;
        Trouble::Abandon { slot }
    }

    fn plain(&mut self, random: &mut Random, event: Met, slot: usize, back: Duration, within: Phase) -> Trouble {
        let machine = random.once_in(2);
        let next = (slot + 1) % self.nodes.len();
        match event {
            Met::NodeVanished => Trouble::Vanish { slot, back },
            Met::SeveralKilled => Trouble::KillSome { first: slot, count: 1 + random.index(self.nodes.len()), back },
            Met::NodeStopped => {
                Trouble::Stop { slot, span: random.span_ms(300..5000), next: random.span_ms(1200..3000) }
            }
            Met::OldLifeReturns => {
                Trouble::Stop { slot, span: random.span_ms(3500..6000), next: random.span_ms(1200..2000) }
            }
            Met::AllButOne => Trouble::AllButOne { slot, back },
            Met::Aborted => Trouble::Abort { slot, within },
            Met::Twin => Trouble::Twin { slot },
            Met::GivesUp | Met::OnceMore => self.abandons(random, slot),
            Met::FalselyAbandoned => Trouble::AbandonFalsely { slot },
            Met::Freed => Trouble::Free { slot },
            Met::FalseWord => Trouble::Lie { slot },
            Met::WithoutToken => Trouble::Kill { slot, back, forgets: true },
            Met::SchedulerKilled | Met::BackBeforeVerdict | Met::BackAfterVerdict => {
                Trouble::Scheduler { machine: false, back }
            }
            Met::SchedulerMachineDies => Trouble::Scheduler { machine: true, back },
            Met::SchedulerAndNode | Met::LostMeanwhile => Trouble::Both { slot, machine, back },
            Met::EverythingDies => Trouble::All { machine, back },
            Met::DiskOperation => Trouble::DiskOperation { after: random.below(0..3), back },
            Met::DiskFull => {
                let most = if random.once_in(2) { 1500 } else { 300 };
                Trouble::DiskFull { bytes: random.index(most), back }
            }
            Met::SyncFailed => Trouble::SyncFails { after: random.below(0..2), back },
            Met::SlowDisk => Trouble::SlowDisk { span: random.span_ms(200..2000) },
            Met::ConnectionReset => Trouble::Reset { slot, quiet: false },
            Met::ConnectionHalfOpen => Trouble::Reset { slot, quiet: true },
            Met::OneWaySilence => Trouble::OneWay { slot, to_scheduler: random.once_in(2) },
            Met::Partition => match self.partition(random, slot, 3000) {
                Trouble::Partition { slot, count, span, .. } => Trouble::Partition { slot, count, span, links: false },
                other => other,
            },
            Met::PartitionOfLinks => match self.partition(random, slot, 3000) {
                Trouble::Partition { slot, count, span, .. } => Trouble::Partition { slot, count, span, links: true },
                other => other,
            },
            Met::LinkSilent => Trouble::LinkSilent { one: slot, other: next, span: random.span_ms(50..3000) },
            Met::LinkSlow => Trouble::LinkSlow { one: slot, other: next, span: random.span_ms(50..3000) },
            Met::DuplicateConnection => Trouble::Duplicate { slot },
            Met::LinkCut => Trouble::Link { one: slot, other: next },
            _ => Trouble::Kill { slot, back, forgets: false },
        }
    }
}
