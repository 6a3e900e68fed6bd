//! After a restart, a node makes again the groups that the others have already. One thread at a time does that, and
//! takes the next of these groups.

use crate::error::Result;
use crate::runtime::base::interrupts::{nudge, wait_until, Attention};
use crate::runtime::base::sync::{lock, Condvar, Mutex};
use std::time::Duration;

/// Whether a thread makes such a group now.
#[derive(Default)]
pub(crate) struct Remaking {
    is_busy: Mutex<bool>,
    changed: Condvar,
}

/// The right of one thread to make such a group. It ends when this is dropped.
pub(super) struct Remaker<'a>(&'a Remaking);

impl Remaking {
    /// Waits until no other thread makes such a group, at most so long, unless the program interrupts the call. None if
    /// the time is up.
    pub(super) fn begin(
        &self,
        limit: impl Fn() -> Option<Duration>,
        attention: &Attention<'_>,
    ) -> Result<Option<Remaker<'_>>> {
        let is_free = |is_busy: &mut bool| (!std::mem::replace(is_busy, true)).then_some(());
        Ok(wait_until((&self.is_busy, &self.changed), limit, attention, is_free)?.map(|()| Remaker(self)))
    }

    /// Makes those that wait look whether the program has interrupted them.
    pub(super) fn nudge(&self) {
        nudge((&self.is_busy, &self.changed));
    }
}

impl Drop for Remaker<'_> {
    fn drop(&mut self) {
        *lock(&self.0.is_busy) = false;
        self.0.changed.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_and_one_that_waits_in_vain_owes_nothing() {
        let (remaking, none) = (Remaking::default(), Attention::none());
        let first = remaking.begin(|| None, &none).unwrap().expect("nobody does");
        assert!(remaking.begin(|| Some(Duration::ZERO), &none).unwrap().is_none());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| remaking.begin(|| None, &Attention::none()).unwrap().is_some());
            drop(first);
            assert!(other.join().unwrap());
        });
        assert!(remaking.begin(|| Some(Duration::ZERO), &none).unwrap().is_some());
    }
}
