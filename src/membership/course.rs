//! How far one node is in its groups, by its own word: its calls, and the messages for which it waits. Tested in
//! `last_call_test.rs` and `stragglers_test.rs`.

use crate::error::LastCall;
use crate::types::{GroupId, Time};
use crate::wire::{GroupCarrier, GroupProgress, MessageWait};
use std::time::Duration;

/// What a node said with its newest heartbeat.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// How far it is in each group, and when it said so. There are few groups, so they are searched in order.
    pub(super) progress: Vec<(GroupProgress, Time)>,
    /// The messages for which it waits, and when it said so.
    pub(super) waits: Option<Box<(Vec<MessageWait>, Time)>>,
    /// What carries the collectives of each group, as far as it tells that.
    pub(super) carriers: Vec<GroupCarrier>,
}

impl Course {
    pub(super) fn progress_in(&self, group: GroupId) -> Option<&(GroupProgress, Time)> {
        self.progress.iter().find(|(progress, _)| progress.group == group)
    }

    /// The collective in which it was when it was heard last, as the end of a sentence; if it was in none, the one
    /// after which.
    pub(super) fn heard_in(&self, now: Time) -> String {
        let Some((progress, told)) = self.newest_call() else { return String::new() };
        let place = if is_inside(progress) { "in" } else { "after" };
        let kind = progress.call.map_or_else(|| "collective".to_owned(), |call| call.kind.to_string());
        let (number, group, ago) = (progress.entered, progress.group, now.since(*told).as_secs_f64());
        format!("; last heard {place} {kind} #{number} on {group}, {ago:.1} s before")
    }

    /// The collective in which, or after which, it was heard last.
    pub(super) fn last_call(&self) -> Option<LastCall> {
        self.newest_call().map(|(progress, _)| LastCall { group: progress.group, sequence: progress.entered })
    }

    /// The newest collective that it has entered; rather one that it was still in.
    pub(super) fn newest_call(&self) -> Option<&(GroupProgress, Time)> {
        let entered = |(progress, told): &(GroupProgress, Time)| *told - Duration::from_millis(progress.age_ms);
        let known = self.progress.iter().filter(|(progress, _)| progress.entered > 0);
        known.max_by_key(|known| (is_inside(&known.0), entered(known)))
    }
}

fn is_inside(progress: &GroupProgress) -> bool {
    progress.entered > progress.finished
}

#[cfg(test)]
#[path = "last_call_test.rs"]
mod tests;
