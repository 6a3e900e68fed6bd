//! How far a node is in a group's sequence of collectives, as its heartbeats tell it.
//!
//! Also remembers the calls before the newest. Ranks do not always wait for each other in a collective: if one rank
//! expects the wrong root in a broadcast, the others may finish several more calls while that rank still waits. The
//! scheduler compares what ranks called under the same number. So a rank that has gone on says, once it has to wait
//! itself, what it called before. If more than [`REMEMBERED`] calls lie between, the difference is not found, and the
//! time-out names the rank.

use crate::types::{Call, GroupId, Time};
use crate::wire::{GroupProgress, WAITS_AFTER};

/// How many calls are remembered.
const REMEMBERED: usize = 256;
/// How many calls before the newest a rank reports when it leaves.
const PARTING: usize = 64;

/// The call log of one group. The group's turns write it and lock it, and heartbeats read it.
#[derive(Default)]
pub(crate) struct CallLog {
    entered: u64,
    finished: u64,
    at: Time,
    /// Whether another rank called something else before. Then this rank tells at once what it called.
    doubted: bool,
    /// The call with number n lies at n modulo [`REMEMBERED`].
    calls: Vec<Call>,
}

impl CallLog {
    /// This rank enters the next collective, which has this number.
    pub(crate) fn enter(&mut self, sequence: u64, call: Call, at: Time) {
        (self.entered, self.at) = (sequence, at);
        if self.calls.is_empty() {
            self.calls = vec![call; REMEMBERED]; // all at once: later calls touch no new memory
        }
        self.calls[place(sequence)] = call;
    }

    /// This rank has finished the collective with this number.
    pub(crate) fn finish(&mut self, sequence: u64) {
        self.finished = sequence;
    }

    /// This rank's earlier calls are to be compared now.
    pub(crate) fn doubt(&mut self) {
        self.doubted = true;
    }

    /// This rank's call under this number, unless that is too long ago.
    pub(crate) fn called(&self, sequence: u64) -> Option<Call> {
        let is_known = sequence > 0 && sequence <= self.entered && self.entered - sequence < REMEMBERED as u64;
        self.calls.get(place(sequence)).copied().filter(|_| is_known)
    }

    /// What a heartbeat says of the newest call; nothing before the first call.
    pub(crate) fn newest(&self, group: GroupId, now: Time) -> Option<GroupProgress> {
        let CallLog { entered, finished, at, .. } = *self;
        let call = self.called(entered);
        let age_ms = now.since(at).as_millis() as u64;
        (entered > 0).then_some(GroupProgress { group, entered, finished, call, age_ms })
    }

    /// What this rank reports of its newest call, and of some before it, when it leaves. So ranks that called something
    /// else, and later need this rank, learn of the difference.
    pub(crate) fn parting(&self, group: GroupId, now: Time) -> Vec<GroupProgress> {
        self.newest(group, now).into_iter().chain(self.before(group).take(PARTING)).collect()
    }

    /// What a heartbeat says of earlier calls, once the newest has to wait, or is doubted: the newest of them first.
    pub(crate) fn earlier(&self, group: GroupId, now: Time) -> Vec<GroupProgress> {
        let waits = self.doubted || now.since(self.at) >= WAITS_AFTER;
        if self.entered == self.finished || !waits {
            return Vec::new();
        }
        self.before(group).collect()
    }

    /// The calls before the newest, as far as they are remembered: the newest of them first.
    fn before(&self, group: GroupId) -> impl Iterator<Item = GroupProgress> + '_ {
        let newest = self.entered.saturating_sub(1);
        let count = newest.min(REMEMBERED as u64 - 1);
        (newest - count + 1..=newest).rev().map(move |sequence| {
            let call = self.called(sequence);
            GroupProgress { group, entered: sequence, finished: sequence, call, age_ms: 0 }
        })
    }
}

fn place(sequence: u64) -> usize {
    (sequence % REMEMBERED as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::CallKind;

    fn call(count: u64) -> Call {
        Call { kind: CallKind::Broadcast, dtype: None, op: None, root: Some(0), count, layout: 0 }
    }

    fn after(calls: u64) -> CallLog {
        let mut progress = CallLog::default();
        for sequence in 1..=calls {
            progress.finish(sequence - 1);
            progress.enter(sequence, call(sequence), Time(0));
        }
        progress
    }

    #[test]
    fn it_tells_the_newest_and_those_before_it_once_it_waits() {
        let waiting = Time(0) + WAITS_AFTER;
        assert_eq!(CallLog::default().newest(GroupId::WORLD, waiting), None);
        assert!(CallLog::default().earlier(GroupId::WORLD, waiting).is_empty());
        for (calls, told) in [(1, 0), (2, 1), (255, 254), (256, 255), (257, 255), (1000, 255)] {
            let mut progress = after(calls);
            let newest = progress.newest(GroupId::WORLD, waiting).expect("one was entered");
            assert_eq!((newest.entered, newest.finished, newest.call), (calls, calls - 1, Some(call(calls))));
            assert!(progress.earlier(GroupId::WORLD, Time(0)).is_empty());
            let earlier = progress.earlier(GroupId::WORLD, waiting);
            progress.doubt();
            assert_eq!(progress.earlier(GroupId::WORLD, Time(0)), earlier, "at once");
            assert_eq!(earlier.len(), told);
            for (behind, one) in (1..).zip(&earlier) {
                assert_eq!((one.entered, one.finished), (calls - behind, calls - behind));
                assert_eq!(one.call, Some(call(calls - behind)));
            }
            for number in 0..=calls + 1 {
                let known = number > 0 && number <= calls && calls - number < 256;
                assert_eq!(progress.called(number), known.then(|| call(number)), "{number} of {calls}");
            }
            progress.finish(calls);
            assert!(progress.earlier(GroupId::WORLD, waiting).is_empty(), "a thread that is in no call does not wait");
        }
    }
}

#[cfg(test)]
#[path = "call_log_test.rs"]
mod on_frames;
