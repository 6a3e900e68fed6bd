//! How a rank waits for what another publishes in the memory that they share.
//!
//! It looks again and again for a short while, as everywhere (`base/polling`), and then sleeps as it does over links.
//! The other rank's doorbell, the group's bell, and all links of the group end that sleep. So whatever ends a call over
//! TCP ends one here: a verdict, a peer's last word, the end of a peer's link. A rank that is about to sleep for a peer
//! to which it has no link yet has one opened, so that it hears of that peer's end.

use super::drive::CLOCK_TURNS;
use super::engine::{Collectives, Driver, DOORBELL};
use super::failure::is_late;
use super::shared::HostMemory;
use super::stop::{Awaited, Running, Stop};
use crate::net::Token;
use crate::runtime::base::polling::Idle;
use std::hint::spin_loop;
use std::time::Duration;

/// How many looks a rank takes before it gives way to others, if each rank has a processor of its own, as far as is
/// known. They take some microseconds.
const LOOKS: u32 = 400;
/// How long a rank sleeps at most before it looks again: the system may have refused the ring that was to end the sleep.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What a waiting call needs.
pub(super) struct SharedWait<'a> {
    pub group: &'a Collectives,
    pub running: &'a Running<'a>,
}

impl SharedWait<'_> {
    /// Waits until `has_come` says that what is expected of this peer is there.
    #[inline]
    pub(super) fn wait_for(
        &mut self,
        driver: &mut Driver,
        shared: &HostMemory,
        peer: u32,
        has_come: impl Fn(&HostMemory) -> bool,
    ) -> Result<(), Stop> {
        if has_come(shared) {
            return Ok(());
        }
        if self.running.is_woven {
            return Err(Stop::NotYet(Some(peer)));
        }
        self.wait_longer(driver, shared, peer, &has_come)
    }

    fn wait_longer(
        &mut self,
        driver: &mut Driver,
        shared: &HostMemory,
        peer: u32,
        has_come: &dyn Fn(&HostMemory) -> bool,
    ) -> Result<(), Stop> {
        let context = &*self.group.context;
        let state = &context.state;
        if context.formed().local_size <= state.polling.cores && state.polling.has_trust(&state.clock) {
            for _ in 0..LOOKS {
                spin_loop();
                if has_come(shared) {
                    return Ok(());
                }
            }
        }
        let mut idle = Idle::default();
        loop {
            if has_come(shared) {
                return Ok(());
            }
            if self.group.take_signal() {
                self.group.look_up(driver)?;
                continue;
            }
            if !state.polling.poll(&mut idle, &context.polls, &state.clock) {
                shared.fall_asleep(peer);
                let slept = match has_come(shared) {
                    true => Ok(()),
                    false => self.sleep_for(driver, shared, peer, has_come),
                };
                shared.wake_up();
                slept?;
                idle.end();
            }
        }
    }

    /// Sleeps until something happens.
    fn sleep_for(
        &mut self,
        driver: &mut Driver,
        shared: &HostMemory,
        peer: u32,
        has_come: &dyn Fn(&HostMemory) -> bool,
    ) -> Result<(), Stop> {
        let (now, peer) = (self.group.context.state.clock.now(), shared.members[peer as usize]);
        if now >= self.running.deadline {
            return Err(Stop::Timeout(Some(Awaited { peer, fault: None })));
        }
        if self.group.tell_of_waiting(driver, self.running, now)? {
            return Ok(());
        }
        // What a peer published before it left counts. So this looks for it once more when the peer's end is known.
        if let (Err(stop), false) = (driver.peers.link(&self.group.context, peer, true).map(drop), has_come(shared)) {
            return Err(stop);
        }
        if self.group.watch_links(driver, self.running, None, None)? {
            return Ok(());
        }
        driver.watch.add(Token(DOORBELL), shared.own.descriptor(), true, false);
        let until = self.running.deadline.min(driver.patience.next()).min(now + LOOK_AGAIN);
        self.group.wait_and_serve(driver, self.running, until, None)
    }

    /// Looks, in a call that goes on without ever waiting, whether it is over nevertheless. The clock is looked at seldom: a
    /// time-out of 0 leaves time for what can be done at once.
    pub(super) fn keep_to_time(&self, driver: &mut Driver, turn: u64) -> Result<(), Stop> {
        if self.group.take_signal() {
            self.group.look_up(driver)?;
        }
        // A part of a woven call that only looks does not look at the time: the weaver does, and it knows what else is
        // waited for.
        let looks = !self.running.is_woven && (turn + 1).is_multiple_of(CLOCK_TURNS.into());
        match looks && is_late(self.group, self.running.deadline) {
            true => Err(Stop::Timeout(None)),
            false => Ok(()),
        }
    }
}
