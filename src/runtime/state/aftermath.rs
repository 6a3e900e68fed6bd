//! Whether a program goes on after it was told that a group which it had made is over.
//!
//! If the process ends after that, its end counts as a consequence, and not as a loss, unless it has gone on. It has
//! gone on if the thread that was told calls on another group: heartbeats tell the scheduler from then on, the first of
//! them at once. What other threads do says little: they may not know yet.

use crate::runtime::base::sync::{lock, Mutex};
use crate::types::GroupId;
use crate::wire::GONE_ON_MAX;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

/// What one node's program does after such an error.
#[derive(Default)]
pub(crate) struct Aftermath {
    /// Whether some thread was told, and has not gone on. If not, calls look no further.
    concerns: AtomicBool,
    groups: Mutex<Groups>,
}

#[derive(Default)]
struct Groups {
    told: Vec<(ThreadId, GroupId)>,
    gone_on: Vec<GroupId>,
}

impl Aftermath {
    /// The calling thread is told by an error that this group is over.
    pub(crate) fn told(&self, group: GroupId) {
        let (mut groups, told) = (lock(&self.groups), (thread::current().id(), group));
        if !groups.gone_on.contains(&group) && !groups.told.contains(&told) {
            groups.told.push(told);
            self.concerns.store(true, Ordering::Relaxed);
        }
    }

    /// The calling thread begins a call on a group that is not over. Returns whether the scheduler is to hear that it
    /// has gone on.
    pub(crate) fn goes_on(&self) -> bool {
        self.concerns.load(Ordering::Relaxed) && self.look()
    }

    #[cold]
    fn look(&self) -> bool {
        let (mut guard, own) = (lock(&self.groups), thread::current().id());
        let Groups { told, gone_on } = &mut *guard;
        let before = gone_on.len();
        gone_on.extend(told.iter().filter(|(thread, _)| *thread == own).map(|(_, group)| *group));
        let is_news = gone_on.len() > before;
        // Once one thread has gone on after a group, that group concerns no other thread.
        told.retain(|(_, group)| !gone_on.contains(group));
        gone_on.drain(..gone_on.len().saturating_sub(GONE_ON_MAX));
        self.concerns.store(!told.is_empty(), Ordering::Relaxed);
        is_news
    }

    /// The groups after which the program has gone on: the newest, as many as a heartbeat tells.
    pub(crate) fn gone_on(&self) -> Vec<GroupId> {
        lock(&self.groups).gone_on.clone()
    }

    /// An epoch begins, in which no group is over.
    pub(crate) fn end(&self) {
        *lock(&self.groups) = Groups::default();
        self.concerns.store(false, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_that_was_told_goes_on_with_its_next_call() {
        let aftermath = Aftermath::default();
        assert!(!aftermath.goes_on());
        aftermath.told(GroupId(8));
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(!aftermath.goes_on(), "another thread, which was told of nothing");
                aftermath.told(GroupId(9));
            });
        });
        assert_eq!(aftermath.gone_on(), []);
        assert!(aftermath.goes_on());
        assert_eq!(aftermath.gone_on(), [GroupId(8)]);
        assert!(!aftermath.goes_on(), "it is said once");
        aftermath.told(GroupId(8));
        assert!(!aftermath.goes_on(), "it has gone on after that one");
        aftermath.told(GroupId(9));
        assert!(aftermath.goes_on());
        assert_eq!(aftermath.gone_on(), [GroupId(8), GroupId(9)]);
        assert!(!aftermath.concerns.load(Ordering::Relaxed), "calls look no further");
        aftermath.told(GroupId(10));
        aftermath.end();
        assert!(!aftermath.goes_on());
        assert_eq!(aftermath.gone_on(), []);
    }

    #[test]
    fn the_newest_are_told() {
        let aftermath = Aftermath::default();
        for number in 0..2 * GONE_ON_MAX as u32 {
            aftermath.told(GroupId(number));
            assert!(aftermath.goes_on());
        }
        let newest = GONE_ON_MAX as u32..2 * GONE_ON_MAX as u32;
        assert!(aftermath.gone_on().into_iter().eq(newest.map(GroupId)));
    }
}
