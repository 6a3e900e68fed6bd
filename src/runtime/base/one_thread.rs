//! What one thread at a time does, and takes long. Further threads wait for their turn, and the program can interrupt that wait.

use super::interrupts::{nudge, wait_until, Attention};
use super::sync::{lock, Condvar, Mutex};
use crate::error::Result;
use std::time::Duration;

/// Whether a thread does it now.
#[derive(Default)]
pub(crate) struct OneThread {
    is_busy: Mutex<bool>,
    changed: Condvar,
}

/// The right of one thread to do it. It ends when this is dropped.
pub(crate) struct OnlyThread<'a>(&'a OneThread);

impl OneThread {
    /// Waits until no other thread does it, at most so long, unless the program interrupts the call. None if the time is up.
    pub(crate) fn begin(
        &self,
        limit: impl Fn() -> Option<Duration>,
        attention: &Attention<'_>,
    ) -> Result<Option<OnlyThread<'_>>> {
        let is_free = |is_busy: &mut bool| (!std::mem::replace(is_busy, true)).then_some(());
        Ok(wait_until((&self.is_busy, &self.changed), limit, attention, is_free)?.map(|()| OnlyThread(self)))
    }

    /// Makes those that wait look whether the program has interrupted them.
    pub(crate) fn nudge(&self) {
        nudge((&self.is_busy, &self.changed));
    }
}

impl Drop for OnlyThread<'_> {
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
        let (turns, none) = (OneThread::default(), Attention::none());
        let first = turns.begin(|| None, &none).unwrap().expect("nobody does");
        assert!(turns.begin(|| Some(Duration::ZERO), &none).unwrap().is_none());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| turns.begin(|| None, &Attention::none()).unwrap().is_some());
            drop(first);
            assert!(other.join().unwrap());
        });
        assert!(turns.begin(|| Some(Duration::ZERO), &none).unwrap().is_some());
    }
}
