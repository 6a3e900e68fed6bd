//! A collective that does not move on: whom it waits for, and whether the links to those are silent (`state/silence`).

use super::engine::Collectives;
use super::stop::{Awaited, Stop};
use crate::runtime::links::link::LinkEnd;
use crate::runtime::links::peers::Slot;
use crate::runtime::state::silence::{in_words, Bounds, Finding};
use crate::types::Time;
use std::time::Duration;

/// What counts when an operation's time is up anyway.
const FAULT: Duration = Duration::from_secs(1);

/// Since when a call has not moved on.
#[derive(Default)]
pub(crate) struct Standstill {
    since: Option<Time>,
    look_at: Time,
    /// Whether the scheduler was asked about whom it receives from, and whom it sends to.
    asked: [bool; 2],
}

impl Standstill {
    /// It has moved on.
    pub(crate) fn end(&mut self) {
        self.since = None;
    }

    /// It stands still. Returns when it next looks at its links.
    pub(crate) fn go_on(&mut self, bounds: &Bounds, now: Time) -> Time {
        if self.since.is_none() {
            (self.since, self.asked) = (Some(now), [false; 2]);
            self.look_at = now + bounds.every;
        }
        self.look_at
    }

    fn lasted(&self, now: Time) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.since(since))
    }
}

impl Collectives {
    /// Looks at the links to the peers that a call waits for, if it is time to.
    pub(crate) fn look_for_signs(
        &self,
        slots: &mut [Slot],
        peers: [Option<u32>; 2],
        still: &mut Standstill,
        now: Time,
    ) -> Result<(), Stop> {
        let bounds = &self.context.bounds;
        if now < still.go_on(bounds, now) {
            return Ok(());
        }
        let late = bounds.late(now, still.look_at);
        still.look_at = now + bounds.every;
        let lasted = still.lasted(now);
        for (peer, asked) in peers.into_iter().zip(&mut still.asked) {
            let Some(peer) = peer else { continue };
            let Slot::Up(link) = &mut slots[peer as usize] else { continue };
            // What the network did before the call began to wait is nothing to it.
            let silence = link.silence(now, late).min(lasted);
            *asked &= !silence.is_zero();
            match bounds.finding(silence, *asked, || self.context.answer_about(peer)) {
                Finding::Nothing => {}
                Finding::Ask => {
                    *asked = true;
                    self.context.ask_early(peer, &in_words(silence));
                }
                Finding::Unreached => {
                    let told = self.context.told().map(|failure| Stop::Told(Box::new(failure)));
                    return Err(told.unwrap_or_else(|| Stop::Unreached(peer, in_words(silence))));
                }
                Finding::Unknown => return Err(Stop::Ended(peer, LinkEnd::Silent(in_words(silence)))),
            }
        }
        Ok(())
    }

    /// Whom of these a call waits for, rather one whose link is at fault.
    pub(crate) fn awaited(
        &self,
        slots: &mut [Slot],
        peers: [Option<u32>; 2],
        still: &Standstill,
        now: Time,
    ) -> Option<Awaited> {
        let awaited = |peer: u32| {
            let fault = self.fault(&mut slots[peer as usize], peer, still.lasted(now), now);
            Awaited { peer, fault }
        };
        let mut found: Vec<Awaited> = peers.into_iter().flatten().map(awaited).collect();
        let at = found.iter().position(|awaited| awaited.fault.is_some()).unwrap_or(0);
        (at < found.len()).then(|| found.swap_remove(at))
    }

    fn fault(&self, slot: &mut Slot, peer: u32, waited: Duration, now: Time) -> Option<String> {
        let waited = Some(waited).filter(|waited| *waited >= FAULT)?;
        match slot {
            Slot::Asked => {
                // Where it is not known where the peer is, nobody has tried yet.
                let address = *self.context.roster.member(peer)?.addresses.first()?;
                let seconds = waited.as_secs_f64();
                Some(format!("their link has not come to stand for {seconds:.1} s, be it to {address} or from there"))
            }
            Slot::Up(link) => {
                let silence = link.silence(now, Duration::ZERO).min(waited);
                (silence >= FAULT).then(|| in_words(silence))
            }
            Slot::Unused | Slot::Left(_) | Slot::Ended(_) => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "standstill_test.rs"]
mod tests;
