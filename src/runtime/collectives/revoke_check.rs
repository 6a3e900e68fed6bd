//! What a rank hears of its peers beside the frames that it waits for: that a peer has given up, or is gone.
//!
//! A rank that gives up says why after all that it sent before, and then sends nothing more. A call whose own frames
//! are there already would not read that last word, and would succeed although its group is over. So each call first
//! looks for links that have ended, and for the last word on them. That is one system call, so it is done once in a
//! while ([`INTERVAL`]). A last word that was read together with a frame is looked at each time (in `drive`). If the
//! connection had no room for it behind a long frame, it comes by the scheduler, or by `links/revoke_broadcast`.

use super::engine::{Collectives, Driver};
use super::stop::{Running, Stop};
use crate::net::Token;
use std::time::Duration;

/// The least time between two looks, for each [`LINKS`] links. A look costs more if there are more links. So looks take
/// about a thousandth of the time.
const INTERVAL: Duration = Duration::from_millis(1);
const LINKS: usize = 8;

impl Collectives {
    /// Checks whether peers have revoked the group since the last check. A call that begins now must not succeed
    /// because of what they sent before. It may succeed if they sent all its data before the disagreement.
    pub(crate) fn check_revokes(&self, driver: &mut Driver, running: &Running<'_>) -> Result<(), Stop> {
        driver.peers.later.hear_again(running)?;
        if running.since < driver.next_check {
            return Ok(());
        }
        if self.take_signal() {
            self.look_up(driver)?;
        }
        let Driver { watch, peers, next_check, .. } = driver;
        watch.clear();
        for (peer, link) in peers.links.all_opened() {
            watch.add(Token(peer as usize), link.descriptor(), false, false);
        }
        *next_check = running.since + INTERVAL * (1 + watch.watched() / LINKS) as u32;
        watch.wait(Some(Duration::ZERO));
        for ready in watch.ready() {
            let peer = ready.token.0 as u32;
            if let Some(link) = peers.links.opened(peer) {
                link.note_end(ready.closed);
                if !link.is_waited_for() {
                    peers.serve(running, peer)?;
                }
            }
            if let Some(link) = peers.links.opened(peer) {
                link.peers_last_word().map_or(Ok(()), |failure| peers.later.hear(running, failure))?;
            }
        }
        Ok(())
    }
}
