//! Attempts to open a link that nobody answers: they are given up, though the peer might still dial.

use super::handshake::Stage;
use super::link::LinkEnd;
use super::mesh::Mesh;
use crate::net::Token;
use crate::runtime::base::link_key::LinkKey;
use crate::runtime::state::silence::attempt;
use crate::types::Time;
use std::time::Duration;

/// How often an attempt that has had its time, and whose peer's kernel answers, is looked at.
const LOOK: Duration = Duration::from_secs(1);

impl Mesh {
    /// A peer's kernel answers at once, whatever its program does, and its agent thread once it knows of the group: only where no
    /// packet passes does a connection not come to stand, or what was said on it is not acknowledged. A connection that tells of a
    /// group's end has a time of its own.
    pub(crate) fn give_up_unanswered(&mut self, now: Time) -> Time {
        let Some(patience) = self.formed.as_ref().map(|formed| attempt(&formed.agreed)) else { return Time::NEVER };
        let dialled = self.handshakes.iter().filter_map(|(token, shake)| match shake.stage {
            Stage::Dialled(key) => Some((key, Some(*token))),
            _ => None,
        });
        let under_way = self.dials.keys().map(|key| (*key, None)).chain(dialled);
        let under_way: Vec<_> = under_way.filter(|(key, _)| key.is_link()).collect();
        let before = std::mem::take(&mut self.opening);
        let mut next = Time::NEVER;
        for (key, token) in under_way {
            let since = before.get(&key).copied().unwrap_or(now);
            if now < since + patience {
                next = next.min(since + patience);
            } else if let Some(address) = self.take_unanswered(key, token, patience) {
                let reason =
                    format!("it cannot be reached at {address}: no answer for {:.1} s", now.since(since).as_secs_f64());
                self.never_up(key, LinkEnd::Silent(reason));
                continue;
            } else {
                next = next.min(now + LOOK);
            }
            self.opening.insert(key, since);
        }
        next
    }

    /// Ends a dial whose time is up, or a handshake if it has been silent for as long. Returns whom it was to reach.
    fn take_unanswered(&mut self, key: LinkKey, token: Option<Token>, patience: Duration) -> Option<String> {
        let Some(token) = token else {
            let addresses = self.dials.get(&key)?.unanswered()?;
            self.dials.remove(&key);
            return Some(addresses);
        };
        let shake = self.handshakes.get_mut(&token)?;
        shake.transport.ask_for_signs(patience);
        shake.transport.silence().filter(|silence| *silence >= patience)?;
        self.handshakes.remove(&token).map(|shake| shake.transport.peer_address().to_string())
    }
}
