//! What goes wrong between nodes: a link that ends, that is silent in one direction, or slow; nodes that do not reach the
//! others. A link whose frames were lost brings no more of that direction: it is made anew in the next epoch.

use super::plan::Trouble;
use super::table::Event as Met;
use super::world::{Event, World};
use crate::types::Time;
use std::time::Duration;

/// Frames from some processes to others that do not arrive, or not yet.
#[derive(Debug)]
pub(super) struct Gap {
    ends: Ends,
    until: Time,
    /// They are lost; otherwise they arrive when the gap has closed.
    loses: bool,
}

#[derive(Debug)]
enum Ends {
    Between(usize, usize),
    /// Between these and all others, in both directions.
    Around(Vec<usize>),
}

impl Gap {
    fn is_between(&self, from: usize, to: usize) -> bool {
        match &self.ends {
            Ends::Between(one, other) => (*one, *other) == (from, to),
            Ends::Around(apart) => apart.contains(&from) != apart.contains(&to),
        }
    }
}

impl World {
    pub(super) fn trouble_on_link(&mut self, trouble: Trouble) {
        let (Trouble::Link { one, other }
        | Trouble::LinkSilent { one, other, .. }
        | Trouble::LinkSlow { one, other, .. }) = trouble
        else {
            return;
        };
        let (one, other) = (self.running(one), self.running(other));
        let (Some(one), Some(other)) = (self.current(one), self.current(other)) else { return };
        if one == other || self.processes[one].epoch != self.processes[other].epoch {
            return;
        }
        self.disturb(one, 1);
        self.disturb(other, 1);
        self.fault(Duration::ZERO);
        match trouble {
            Trouble::LinkSilent { span, .. } => {
                self.met(Met::LinkSilent);
                self.gap(Ends::Between(one, other), span, true);
            }
            Trouble::LinkSlow { span, .. } => {
                self.met(Met::LinkSlow);
                self.gap(Ends::Between(one, other), span, false);
            }
            _ => {
                self.met(Met::LinkCut);
                let soon = self.now + self.network.delay();
                self.queue.put(soon, Event::LinkEnded { at: one, peer: other });
                self.queue.put(soon, Event::LinkEnded { at: other, peer: one });
            }
        }
    }

    /// These do not reach the others for a while; what is sent meanwhile arrives afterwards.
    pub(super) fn part_links(&mut self, apart: Vec<usize>, span: Duration) {
        self.gap(Ends::Around(apart), span, false);
    }

    fn gap(&mut self, ends: Ends, span: Duration, loses: bool) {
        self.fault(span);
        let until = self.now + span;
        self.gaps.push(Gap { ends, until, loses });
    }

    /// When a frame arrives that is due at this time; none: never.
    pub(super) fn through_gaps(&mut self, from: usize, to: usize, at: Time) -> Option<Time> {
        let now = self.now;
        self.gaps.retain(|gap| gap.until > now);
        let mut arrives = at;
        for gap in self.gaps.iter().filter(|gap| gap.is_between(from, to)) {
            if gap.loses {
                self.processes[from].links.silent.insert(to);
            }
            arrives = arrives.max(gap.until);
        }
        (!self.processes[from].links.silent.contains(&to)).then_some(arrives)
    }
}
