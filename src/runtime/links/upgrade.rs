//! What a data link becomes once both ends have let each other in: another transport in place of the accepted one, such as
//! memory that two processes of a host share.
//!
//! The dialler's *Hello* says which feature bits it offers, and *Accept* says which of them the other end offers as well. Both
//! ends then do the same. Invariants: nothing is upgraded before *Accept*, nothing that one end did not offer, and no
//! connection but a group's link. An upgrade that fails ends the link: no end goes on with the transport from before, for the
//! other end does not. (`SharedLink` finds out by itself, together with its other end, whether memory can be had.)
//!
//! TLS is no upgrade. Settings demand it, it comes before the first byte (`net::Wrap`), and no bit can switch it off. One
//! bit is in use: memory, for the messages of two nodes of one host. Collectives go through the memory of their group
//! (`collectives/shared`). Tested in `upgrade_test.rs`, and with whole clusters in `memory_link_test.rs`.

use super::link_end::{ended, LinkEnd};
use super::rosters::Rosters;
use super::shared_link::SharedLink;
pub use super::terms::Terms;
use crate::net::{Side, Transport};
use crate::runtime::base::link_key::LinkKey;
use crate::types::SharedMemory;
use crate::wire::{Channel, Formed, WireError, LINK_FEATURE_MEMORY};
use std::io;
use std::sync::Arc;

/// Puts another transport in place of the accepted one. It does not wait: the new transport does what takes time when it is read
/// and written.
pub type Make = Arc<dyn Fn(Box<dyn Transport>, Side, Terms) -> io::Result<Box<dyn Transport>> + Send + Sync>;

/// What a node's data links can be upgraded to.
#[derive(Clone)]
pub struct Upgrade {
    offers: u64,
    /// Which links within a host are to be upgraded.
    wanted: fn(&Formed, Channel) -> bool,
    make: Make,
}

impl Upgrade {
    /// Links stay what they are.
    #[cfg(test)]
    pub fn none() -> Upgrade {
        Upgrade::new(0, Arc::new(|accepted, _, _| Ok(accepted)))
    }

    /// Links for messages between two nodes of one host go through memory that they share, where they can.
    pub fn to_memory() -> Upgrade {
        let make: Make = Arc::new(|accepted, side, terms| Ok(Box::new(SharedLink::new(accepted, side, terms)?)));
        let wanted =
            |formed: &Formed, channel| formed.agreed.shared_memory != SharedMemory::Off && channel == Channel::Messages;
        Upgrade { offers: LINK_FEATURE_MEMORY, wanted, make }
    }

    /// These feature bits, for all links within a host, and what makes the transport where the peer offers one of them, too.
    #[cfg(test)]
    pub fn new(offers: u64, make: Make) -> Upgrade {
        Upgrade { offers, wanted: |_, _| true, make }
    }

    /// The bits that this end offers for a connection.
    pub(crate) fn offers(&self, key: LinkKey, rosters: &Rosters) -> u64 {
        let is_wanted = rosters.formed().is_some_and(|formed| (self.wanted)(formed, key.channel));
        if key.is_link() && is_wanted && rosters.is_here(key) {
            self.offers
        } else {
            0
        }
    }

    /// Refuses a peer that accepts features which were not offered to it.
    pub(crate) fn check(&self, key: LinkKey, common: u64, rosters: &Rosters) -> Result<(), WireError> {
        match common & !self.offers(key, rosters) {
            0 => Ok(()),
            odd => Err(WireError(format!("it accepts features {odd:#x}, which were not offered"))),
        }
    }

    /// Upgrades an accepted transport, if both ends offer a feature. `ahead`: what has been read behind the handshake.
    pub(crate) fn apply(
        &self,
        accepted: Box<dyn Transport>,
        side: Side,
        terms: Terms,
        ahead: &[u8],
    ) -> Result<Box<dyn Transport>, LinkEnd> {
        let made = match (terms.common, ahead.len()) {
            (0, _) => return Ok(accepted),
            (_, 0) => (self.make)(accepted, side, terms),
            (_, count) => Err(io::Error::other(format!("{count} bytes came before it"))),
        };
        made.map_err(|error| ended(&error).after("its upgrade failed"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::net::memlink::MemoryLink;
    use std::collections::HashMap;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Mutex;

    /// A feature bit for tests.
    pub(crate) const MEMORY: u64 = 1 << 5;

    /// Upgrades links to memory as a real cluster does, but all links, whatever is wanted. Memory is required, and each
    /// end is counted.
    #[cfg(not(loom))]
    pub(crate) fn all_to_memory(ends: &Arc<AtomicUsize>) -> Upgrade {
        let ends = Arc::clone(ends);
        let make: Make = Arc::new(move |accepted, side, terms| {
            ends.fetch_add(1, Ordering::Relaxed);
            Ok(Box::new(SharedLink::new(accepted, side, Terms { is_required: true, ..terms })?))
        });
        Upgrade::new(LINK_FEATURE_MEMORY, make)
    }

    /// Upgrades to memory where all nodes are in this process: the first end of a link makes both, and leaves the other one its own.
    #[derive(Clone, Default)]
    pub(crate) struct InMemory {
        left: Arc<Mutex<HashMap<[SocketAddr; 2], MemoryLink>>>,
        made: Arc<AtomicUsize>,
    }

    impl InMemory {
        pub(crate) fn upgrade(&self) -> Upgrade {
            let own = self.clone();
            Upgrade::new(MEMORY, Arc::new(move |accepted, side, terms| own.make(&*accepted, side, &terms)))
        }

        /// How many ends have been upgraded.
        pub(crate) fn made(&self) -> usize {
            self.made.load(Ordering::Relaxed)
        }

        fn make(&self, accepted: &dyn Transport, side: Side, terms: &Terms) -> io::Result<Box<dyn Transport>> {
            assert_eq!(terms.common, MEMORY, "both offer it, and nothing else");
            let mut ends = [accepted.local_address(), accepted.peer_address()];
            if side == Side::Server {
                ends.reverse();
            }
            self.made.fetch_add(1, Ordering::Relaxed);
            let mut left = self.left.lock().unwrap();
            let own = left.remove(&ends).unwrap_or_else(|| {
                let (own, other) = MemoryLink::pair();
                left.insert(ends, other);
                own
            });
            Ok(Box::new(own))
        }
    }
}
