//! Attempts to open a link that nobody answers: they are given up, even though the peer might still dial.
//!
//! A peer's kernel answers at once, whatever its program does. Its agent thread answers once it knows the group. So a connection
//! that is not established, or on which nothing is acknowledged, means that no packet passes. A connection that tells of a
//! group's end has a time limit of its own. Tested in `mesh_silence_test.rs`.
//!
//! If the peer has several addresses, another program may listen at the one that was dialled, and say nothing. So after the same time
//! the next one is dialled. Tested in `mesh_addresses_test.rs`.

use super::mesh_connections::MeshConnections;
use crate::runtime::base::link_key::LinkKey;
use crate::types::Time;
use std::collections::HashMap;
use std::time::Duration;

/// How often an attempt is looked at whose time is up, but whose peer's kernel still answers.
const LOOK: Duration = Duration::from_secs(1);

/// Links, each with what is said of its attempt.
type Told = Vec<(LinkKey, String)>;

/// The links that this node is opening, and since when it opens each.
#[derive(Default)]
pub(crate) struct Unanswered(HashMap<LinkKey, Time>);

impl Unanswered {
    /// Gives up links that nobody had answered for `patience` when the sockets were last looked at. Returns them, each with
    /// the reason; those for which further addresses are tried, each with what is said of the last one; and when to come again.
    pub fn give_up(
        &mut self,
        connections: &mut MeshConnections,
        patience: Duration,
        (looked_at, now): (Time, Time),
    ) -> (Told, Told, Time) {
        let before = std::mem::take(&mut self.0);
        let (mut given_up, mut elsewhere, mut next) = (Vec::new(), Vec::new(), Time::NEVER);
        for (key, token) in connections.opening().into_iter().filter(|(key, _)| key.is_link()) {
            let mut since = before.get(&key).copied().unwrap_or(now);
            if looked_at < since + patience {
                next = next.min(since + patience);
            } else if let Some(words) = token.and_then(|token| connections.look_elsewhere(key, token, patience)) {
                elsewhere.push((key, words));
                since = now;
                next = next.min(since + patience);
            } else if let Some(address) = connections.take_unanswered(key, token, patience) {
                let seconds = looked_at.since(since).as_secs_f64();
                given_up.push((key, format!("it cannot be reached at {address}: no answer for {seconds:.1} s")));
                continue;
            } else {
                next = next.min(now + LOOK);
            }
            self.0.insert(key, since);
        }
        (given_up, elsewhere, next)
    }

    /// An attempt at this link has ended: the next one has its own time.
    pub fn forget(&mut self, key: LinkKey) {
        self.0.remove(&key);
    }
}
