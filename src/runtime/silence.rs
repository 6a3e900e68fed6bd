//! Peers that live, as far as anybody knows, and that this node's packets do not reach: a link that falls silent, or one that
//! does not come to stand.
//!
//! A network that loses packets ends no connection for a quarter of an hour. So who waits on a link looks at it now and then:
//! whether the peer's kernel still acknowledges what is sent. It does so for a process that is stopped, or does not read. Silence
//! is evidence like a link's end: the scheduler knows whether the peer lives. Nobody looks who does not wait, so that a trouble of
//! the network that has passed by then costs nothing, and nobody looks within a call's first second.
//!
//! Collectives look here and messages in `messages/signs`; a link that does not come to stand is the mesh's matter.

use super::drive::Stop;
use super::group::{Group, Slot};
use super::link::LinkEnd;
use crate::types::Time;
use crate::wire::Agreed;
use std::time::Duration;

/// How often who waits looks, and what counts when the time is up anyway.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// The shortest silence that is evidence: until then a first packet has been sent three times.
const LEAST: Duration = Duration::from_secs(4);

/// How long a peer may be silent: the heartbeat time-out and one interval, when the scheduler knows who is lost.
pub(super) fn patience(agreed: &Agreed) -> Duration {
    let silence = Duration::from_millis(agreed.heartbeat_timeout_ms);
    (silence + silence / 5).max(LEAST)
}

/// What a silent link is evidence of.
pub(super) fn in_words(silence: Duration) -> String {
    format!("nothing that was sent to it has been acknowledged for {:.1} s", silence.as_secs_f64())
}

/// Since when a call has not moved on.
#[derive(Default)]
pub(super) struct Standstill {
    since: Option<Time>,
    look_at: Time,
}

impl Standstill {
    /// It has moved on.
    pub(super) fn end(&mut self) {
        self.since = None;
    }

    /// It stands still. Returns when it next looks at its links.
    pub(super) fn go_on(&mut self, now: Time) -> Time {
        if self.since.is_none() {
            self.since = Some(now);
            self.look_at = now + LOOK;
        }
        self.look_at
    }

    fn lasted(&self, now: Time) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.since(since))
    }
}

/// Whom a call waited for when its time was up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Awaited {
    pub peer: u32,
    /// What is wrong with the link to it, if something is.
    pub fault: Option<String>,
}

impl Group {
    /// Looks at the links to the peers that a call waits for, if it is time to.
    pub(super) fn look_for_signs(
        &self,
        slots: &mut [Slot],
        peers: [Option<u32>; 2],
        still: &mut Standstill,
        now: Time,
    ) -> Result<(), Stop> {
        if now < still.go_on(now) {
            return Ok(());
        }
        still.look_at = now + LOOK;
        let patience = patience(&self.formed.agreed);
        for peer in peers.into_iter().flatten() {
            let Slot::Up(link) = &mut slots[peer as usize] else { continue };
            // What was sent before the call began to wait is under way as long at least.
            let silence = link.silence(patience).unwrap_or_default().min(still.lasted(now));
            if silence >= patience {
                return Err(Stop::Ended(peer, LinkEnd::Ended(in_words(silence))));
            }
        }
        Ok(())
    }

    /// Whom of these a call waits for, rather one whose link is at fault.
    pub(super) fn awaited(
        &self,
        slots: &mut [Slot],
        peers: [Option<u32>; 2],
        still: &Standstill,
        now: Time,
    ) -> Option<Awaited> {
        let awaited = |peer: u32| {
            let fault = self.fault(&mut slots[peer as usize], peer, still.lasted(now));
            Awaited { peer, fault }
        };
        let mut found: Vec<Awaited> = peers.into_iter().flatten().map(awaited).collect();
        let at = found.iter().position(|awaited| awaited.fault.is_some()).unwrap_or(0);
        (at < found.len()).then(|| found.swap_remove(at))
    }

    fn fault(&self, slot: &mut Slot, peer: u32, waited: Duration) -> Option<String> {
        let waited = Some(waited).filter(|waited| *waited >= LOOK)?;
        match slot {
            Slot::Asked => {
                // Where it is not known where the peer is, nobody has tried yet.
                let address = *self.roster.member(peer)?.addresses.first()?;
                let seconds = waited.as_secs_f64();
                Some(format!("their link has not come to stand for {seconds:.1} s, be it to {address} or from there"))
            }
            Slot::Up(link) => {
                let silence = link.silence(patience(&self.formed.agreed))?.min(waited);
                (silence >= LOOK).then(|| in_words(silence))
            }
            Slot::Unused | Slot::Left | Slot::Ended(_) => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "silence_test.rs"]
mod tests;
