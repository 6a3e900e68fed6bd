//! What a rank does when a collective cannot go on: it tells the group's other members, and returns the one first cause that all
//! of them return. `cause` has found that first cause before.

use super::engine::{Collectives, Driver};
use super::stop::{Running, Stop};
use crate::error::{Failure, Status};
use crate::runtime::base::interrupts::Attention;
use crate::types::Time;

impl Collectives {
    /// Ends the group for everyone, and says why: the first cause.
    pub(crate) fn give_up(&self, driver: &mut Driver, running: &Running<'_>, stop: Stop) -> Failure {
        let is_own = !matches!(stop, Stop::Heard(_));
        let (cause, known_to_all) = running.cause_of(stop);
        if known_to_all && cause.status == Status::State {
            return cause; // this process is leaving: `close` tells the peers so
        }
        driver.peers.pass_on(&self.context, &cause);
        let cause = if known_to_all { cause } else { self.context.agree_on_cause(cause, is_own) };
        self.context.break_with(cause)
    }

    /// Ends the group for everyone without the driver, which another call may have.
    pub(crate) fn give_up_for_all(&self, cause: Failure) -> Failure {
        if let Some(first) = self.context.told() {
            return self.context.break_with(first);
        }
        if let Some(mut exclusive) = self.exclusive_if_idle() {
            exclusive.driver.peers.pass_on(&self.context, &cause);
        }
        let cause = self.context.agree_on_cause(cause, true);
        let first = self.context.break_with(cause);
        self.context.interrupt(); // the thread that has the driver tells the peers on its links
        first
    }

    /// If no call is under way in the group, tells the peers that the scheduler has ended it: a peer that the scheduler
    /// does not reach may be waiting for this rank.
    pub(crate) fn pass_on_if_idle(&self) {
        let Some(cause) = self.context.told() else { return };
        let Some(mut exclusive) = self.exclusive_if_idle() else { return };
        let driver = &mut exclusive.driver;
        self.take_in(driver);
        driver.peers.pass_on(&self.context, &cause);
    }
}

/// Ends the group if a started call that waits behind others has timed out. Returns whether there was one.
pub(super) fn give_up_for_one_behind(group: &Collectives, now: Time) -> bool {
    let Some((number, call, time)) = group.behind.late(now) else { return false };
    let attention = Attention::none();
    group.give_up_for_all(group.running(call, number, time, &attention).never_began());
    true
}

/// Whether a call with this deadline, which does not sleep, is late. Looks at the time of calls behind it, too.
pub(super) fn is_late(group: &Collectives, deadline: Time) -> bool {
    let now = group.context.state.clock.now();
    if now >= group.behind.first() {
        give_up_for_one_behind(group, now); // the call learns of it as it learns of any end
    }
    now >= deadline
}

#[cfg(test)]
#[path = "failure_test.rs"]
pub(crate) mod tests;
