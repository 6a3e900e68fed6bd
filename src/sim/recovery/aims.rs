//! Troubles that aim at the cells of the table, so that each is hit in few stories: each seed aims at a few of them.

use super::plan::{Moment, Plan, Trouble, When};
use super::table::{cells, Event as Met, Phase};
use crate::sim::random::Random;
use std::time::Duration;

/// How many cells a seed aims at.
const AIMS: u64 = 30;
/// A prime that no number of cells is a multiple of.
const STRIDE: u64 = 7919;
/// The message that ends a job.
const ABORT: u8 = 19;

/// Whether a job ends with it.
fn is_of_abort(event: Met) -> bool {
    let messages =
        [Met::SchedulerBefore(ABORT), Met::SchedulerAfter(ABORT), Met::NodeWith(ABORT), Met::MessageLost(ABORT)];
    event == Met::Aborted || messages.contains(&event)
}

/// What does not come about as often as it is aimed at.
fn is_rare(event: Met, phase: Phase) -> bool {
    match event {
        Met::SchedulerBefore(kind) | Met::SchedulerAfter(kind) | Met::MessageLost(kind) => {
            [2, 6, 7, 25].contains(&kind)
        }
        Met::NodeWith(_) | Met::Unsynced(_) | Met::Durable(_) | Met::HalfTold(_) => false,
        Met::DiskFull | Met::ConnectionReset => true,
        _ => matches!(phase, Phase::Forming | Phase::Finishing),
    }
}

impl Plan {
    /// The troubles that aim at this seed's cells, and what must come before.
    pub(super) fn aims(&mut self, random: &mut Random) {
        let cells = cells();
        let mut aims: Vec<(When, Trouble)> = Vec::new();
        let (ends, mut lasts): (Vec<_>, Vec<_>) = cells.into_iter().partition(|(event, _)| is_of_abort(*event));
        let rare: Vec<_> = lasts.iter().copied().filter(|(event, phase)| is_rare(*event, *phase)).collect();
        lasts.extend(rare.iter().chain(&rare));
        for aim in 0..AIMS {
            // Each as often as the others.
            let (event, phase) = lasts[((self.seed * AIMS + aim) * STRIDE % lasts.len() as u64) as usize];
            aims.extend(self.aim(random, event, phase));
        }
        if self.seed.is_multiple_of(4) {
            // Rarely met otherwise: whoever has a connection then is soon a member.
            aims.extend(self.aim(random, Met::ConnectionReset, Phase::Forming));
        }
        random.shuffle(&mut aims);
        if self.seed % 12 < 5 {
            // Not more often: little happens in a job that is aborted.
            let (event, phase) = ends[(self.seed / 12 * 5 + self.seed % 12) as usize % ends.len()];
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
        let back = random.span_ms(30..2500);
        let longest = match phase {
            Phase::Forming => 1000,
            Phase::Running => 600,
            Phase::Recovering | Phase::Finishing => 150,
        };
        let in_phase = When::In(phase, random.span_ms(0..longest));
        let machine = random.once_in(2);
        let dies = Trouble::Scheduler { machine, back };
        let killed = Trouble::Kill { slot, back, forgets: false };
        let moment = |moment| vec![(When::At(moment, phase, 1), dies)];
        match event {
            Met::Unsynced(written) => moment(Moment::Unsynced(written)),
            Met::Durable(written) => moment(Moment::Durable(written)),
            Met::HalfTold(written) => moment(Moment::HalfTold(written)),
            Met::SchedulerBefore(kind) => self.led_to(random, kind, moment(Moment::Before(kind))),
            Met::SchedulerAfter(kind) => self.led_to(random, kind, moment(Moment::After(kind))),
            Met::NodeWith(kind) => self.led_to(random, kind, vec![(When::With { kind, phase, nth: 1 }, killed)]),
            Met::MessageLost(kind) => {
                let once = kind == ABORT || random.once_in(2);
                let (quiet, nth) = (random.once_in(2), if once { 1 } else { 2 });
                self.led_to(random, kind, vec![(When::Lost { kind, phase, nth }, Trouble::Reset { slot, quiet })])
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
    fn led_to(&mut self, random: &mut Random, kind: u8, mut aim: Vec<(When, Trouble)>) -> Vec<(When, Trouble)> {
        let slot = random.index(self.nodes.len());
        let running = When::In(Phase::Running, random.span_ms(100..600));
        match kind {
            21 | 22 => self.groups = self.groups.max(2),
            // One that is not wanted: it is asked to wait for an answer, and refused.
            2 | 27 => {
                let phase = if random.once_in(2) { Phase::Running } else { Phase::Recovering };
                aim.push((When::In(phase, random.span_ms(0..300)), Trouble::Twin { slot }));
            }
            // One that is back waits for another, which is not.
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
            23 => self.groups = self.groups.max(1),
            // What two peers say of each other whose link ends.
            10 | 11 | 13 | 14 => aim.push((running, Trouble::Link { one: slot, other: (slot + 1) % self.nodes.len() })),
            // What they know when the scheduler is started again.
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

    fn plain(&self, random: &mut Random, event: Met, slot: usize, back: Duration, within: Phase) -> Trouble {
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
