//! What a launcher says: a process that it had started has ended. Tested in `launcher_test.rs`.
//!
//! It is a witness of a node's end like a peer whose link ended, and one that knows the process itself: it counts however
//! the node's connection ended, and says how the process did.
//!
//! Decision: whoever reaches the port can say such a thing, so the word never puts out a node by itself.
//!
//! - It must name the process as that registered: host, number, start time and pid namespace. No stranger is told those,
//!   and the next process of the same number has another start time. Where the kernel does not tell the start time the
//!   word counts for nothing.
//! - A node whose connection stands is asked for a sign, or its process is looked at where it can be seen from here, as when
//!   a peer suspects it. So a lie costs a heartbeat. Elsewhere a connection that outlives its process (a child forked past
//!   the library's back holds it) lasts for the heartbeat time-out as before.
//! - A node whose connection has ended is lost at once, but on this host only once its process is seen to be gone. Whoever
//!   lies then takes from it the time that it has to come back: 100 ms, or the heartbeat time-out where the network broke
//!   or this scheduler was started again. To know what to say such a liar must look at the node's process on its own host.
//! - A node that attaches again, or is heard a while later, has disproved the word.

use super::contract::{Closed, ConnId};
use super::node::{Presence, Witness};
use super::suspicion::HELD;
use super::{Phase, Scheduler};
use crate::types::Time;
use crate::wire::{ChildEnded, Register};

impl Scheduler {
    pub(super) fn child_ended(&mut self, now: Time, conn: ConnId, word: &ChildEnded) {
        self.drop_connection(conn); // it was made for this
        let of_node = self.nodes.iter().find(|(_, node)| is_of(word, &node.register)).map(|(key, _)| *key);
        let Some(key) = of_node else { return };
        let Some(node) = self.nodes.get_mut(&key).filter(|node| node.presence == Presence::Member) else { return };
        if self.phase == Phase::Forming {
            // What ended otherwise than by a broken network has lost its place already.
            if node.conn.is_none() {
                self.free_place(key, &format!("it {word}"));
            }
            return;
        }
        node.witness = Some(Witness { by: None, at: now, evidence: word.to_string() });
        if self.verdict.is_none() || self.is_recoverable() {
            self.look_into(now, key);
        }
    }
}

/// Whether it is the process of this life.
fn is_of(word: &ChildEnded, register: &Register) -> bool {
    word.process == register.process && word.process.start_ticks != 0 && word.host.key == register.host.key
}

impl Witness {
    /// Whether this is enough for a node whose connection ended in this way, and that was heard then at last.
    pub(super) fn suffices(&self, how: Closed, heard: Time) -> bool {
        !self.is_disproved(heard) && (self.by.is_none() || how == Closed::Ended)
    }

    /// Whether a node that was heard then cannot have ended when this was said. What was on its way at that moment is no
    /// proof.
    pub(super) fn is_disproved(&self, heard: Time) -> bool {
        heard >= self.at + HELD
    }
}

#[cfg(test)]
#[path = "launcher_test.rs"]
mod tests;
