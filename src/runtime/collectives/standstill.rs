//! A collective that does not move on: which peers it waits for, and whether the links to them are silent
//! (`state/silence`).

use super::peers::Peers;
use super::stop::{Awaited, Stop};
use crate::runtime::links::link::LinkEnd;
use crate::runtime::links::peers::{Links, Slot};
use crate::runtime::state::context::Context;
use crate::runtime::state::silence::{in_words, Finding, Silent};
use crate::types::Time;
use std::time::Duration;

/// How long a link must have been at fault to be blamed when an operation's time is up.
const FAULT: Duration = Duration::from_secs(1);

impl Peers {
    /// Looks at the links to the peers that a call waits for, if it is time to.
    pub(crate) fn look_for_signs(&mut self, context: &Context, peers: [Option<u32>; 2], now: Time) -> Result<(), Stop> {
        self.silence.wait(now);
        let silence = |peer: u32, late| self.links.silence(peer, now, late);
        let found = self.silence.look(now, peers.into_iter().flatten(), silence, |peer| context.answer_about(peer));
        for Silent { rank: peer, silence, finding } in found {
            match finding {
                Finding::Ask => context.ask_early(peer, &in_words(silence)),
                Finding::Unreached => {
                    let told = context.told().map(|failure| Stop::Told(Box::new(failure)));
                    return Err(told.unwrap_or_else(|| Stop::Unreached(peer, in_words(silence))));
                }
                Finding::Unknown => return Err(Stop::Ended(peer, LinkEnd::Silent(in_words(silence)))),
            }
        }
        Ok(())
    }

    /// One of the peers that a call waits for; preferably one whose link is at fault.
    pub(crate) fn awaited(&mut self, context: &Context, peers: [Option<u32>; 2], now: Time) -> Option<Awaited> {
        let waited = self.silence.waited(now);
        let awaited = |peer: u32| Awaited { peer, fault: fault(&mut self.links, context, peer, waited, now) };
        let mut found: Vec<Awaited> = peers.into_iter().flatten().map(awaited).collect();
        let at = found.iter().position(|awaited| awaited.fault.is_some()).unwrap_or(0);
        (at < found.len()).then(|| found.swap_remove(at))
    }
}

/// The fault of the link to a peer that has been waited for so long, if there is one.
fn fault(links: &mut Links<()>, context: &Context, peer: u32, waited: Duration, now: Time) -> Option<String> {
    if waited < FAULT {
        return None;
    }
    match links.slot(peer) {
        Slot::Asked => {
            // If the peer's addresses are not known, nobody has tried yet.
            let member = context.roster.member(peer)?;
            let addresses: Vec<String> = member.addresses.iter().map(ToString::to_string).collect();
            let (seconds, places) = (waited.as_secs_f64(), addresses.join(", "));
            let words = format!(
                "their link could not be opened for {seconds:.1} s, neither from here nor from there (its addresses: {places})"
            );
            (!addresses.is_empty()).then_some(words)
        }
        Slot::Up(_) | Slot::Unused | Slot::Left(_) | Slot::Ended(_) => {
            let silence = links.silence(peer, now, Duration::ZERO)?.min(waited);
            (silence >= FAULT).then(|| in_words(silence))
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "standstill_test.rs"]
mod tests;
