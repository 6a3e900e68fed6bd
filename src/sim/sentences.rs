//! What the failing calls of a program say, and what `muster_failure` and `muster_group_failure` would tell: by the real
//! `runtime/state/causes.rs`, fed with what the brain tells, whatever happens to the scheduler in that moment.
//!
//! The rules: what a call has said of a group is told of it from then on. The group of all, a group that ended with the
//! cluster, and the cluster are told of alike. A program whose call has said something knows a first cause of the
//! cluster.

use super::rounds::VERDICT_WAIT;
use super::sabotage::Sabotage;
use super::world::World;
use crate::agent::Event;
use crate::error::{Failure, Status};
use crate::runtime::state::causes::Causes;
use crate::types::{GroupId, Time};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Sentences {
    causes: Causes,
    /// The call that gives up a group for a reason of its own, and the time until which it waits for the scheduler's
    /// word.
    waits: Option<(GroupId, Failure, Time)>,
    said: BTreeMap<GroupId, Failure>,
}

impl Sentences {
    /// A call gives up.
    pub(super) fn abandons(&mut self, failure: &Failure, now: Time) {
        if let Some(group) = failure.group.filter(|_| self.waits.is_none()) {
            self.waits = Some((group, failure.clone(), now + VERDICT_WAIT));
        }
    }

    /// The program uses a group no longer.
    pub(super) fn frees(&mut self, group: GroupId) {
        self.causes.forget(group);
        self.said.remove(&group);
    }

    fn say(&mut self, group: GroupId, own: Failure) {
        let first = self.causes.settle(group, own);
        if first.status != Status::Revoked {
            self.said.entry(group).or_insert(first);
        }
    }

    /// The call that waits returns, if its time is up, or there is a word.
    fn returns(&mut self, now: Time) {
        let is_over =
            |(group, _, until): &(GroupId, Failure, Time)| now >= *until || self.causes.of_group(*group).is_some();
        if self.waits.as_ref().is_some_and(is_over) {
            self.waits.take().into_iter().for_each(|(group, own, _)| self.say(group, own));
        }
    }

    /// The brain tells something. `inside`: the group of the collective that the program is in.
    fn hear(&mut self, event: &Event, inside: Option<GroupId>, now: Time, sabotage: Option<Sabotage>) {
        match event {
            Event::Formed(_) => *self = Sentences::default(),
            Event::Broken(failure) => {
                if sabotage == Some(Sabotage::LastCause) {
                    self.causes = Causes::default();
                }
                self.causes.break_cluster(failure.clone());
            }
            Event::Revoked(failure) => {
                failure.group.into_iter().for_each(|group| self.causes.revoke(group, failure.clone()));
            }
            _ => return,
        }
        self.returns(now);
        let known = inside.and_then(|group| Some((group, self.causes.of_group(group)?.clone())));
        known.into_iter().for_each(|(group, first)| self.say(group, first));
    }

    fn check(&self) -> Result<(), String> {
        let of_cluster = self.causes.of_cluster();
        for (group, said) in &self.said {
            let is_kept = self.causes.of_group(*group) == Some(said);
            let is_all = *group == GroupId::UNIVERSE || said.group.is_none();
            if !is_kept || of_cluster.is_none() || (is_all && of_cluster != Some(said)) {
                let now = self.causes.of_group(*group);
                return Err(format!("a call on {group} said: {said}; the structs say: {now:?}, {of_cluster:?}"));
            }
        }
        Ok(())
    }
}

impl World {
    /// A process's brain tells its program something.
    pub(super) fn says_why(&mut self, node: usize, event: &Event) -> Result<(), String> {
        let (now, sabotage) = (self.now, self.sabotage);
        let program = &mut self.processes[node].program;
        let inside = program.collective.as_ref().map(|collective| collective.group);
        program.sentences.returns(now);
        let is_late = !program.sentences.said.is_empty() && matches!(event, Event::Broken(_));
        program.sentences.hear(event, inside, now, sabotage);
        self.late_verdicts += u64::from(is_late);
        let program = &self.processes[node].program;
        program.sentences.check().map_err(|wrong| format!("node {node} tells two first causes: {wrong}"))
    }
}

/// A verdict comes when a call has said something else already: for example, if the scheduler dies in that moment.
#[test]
fn the_stories_have_verdicts_that_come_after_a_call_has_returned() {
    let mut late = 0;
    for seed in (0..500).filter(|seed| seed % 5 < 2) {
        let mut world = World::new(super::plan::Plan::of(seed), false);
        world.play().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        late += world.late_verdicts;
    }
    assert!(late >= 5, "{late}");
}
