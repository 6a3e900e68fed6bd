//! What a data link becomes once both ends have let each other in: another transport in place of the accepted one, such as
//! memory that two processes of a host share.
//!
//! The dialler's *Hello* says which feature bits it offers, and *Accept* says which of them the other end offers as well. Both
//! ends then do the same. Invariants: nothing is upgraded before *Accept*, nothing that one end did not offer, and no
//! connection but a group's link. An upgrade that fails ends the link: nobody goes on with the transport from before, for the
//! other end does not.
//!
//! TLS is no upgrade. Settings want it, it comes before the first byte (`net::Wrap`), and no bit can do without it. No bit is in
//! use in this version, so a node offers none. Tested in `upgrade_test.rs`, and with whole clusters in `memory_link_test.rs`.

use crate::net::{Side, Transport};
use crate::runtime::base::link_key::LinkKey;
use crate::wire::WireError;
use std::io;
use std::sync::Arc;

/// Puts another transport in place of the accepted one, as the bits say that both ends offer. It does not wait: what takes time
/// the new transport does when it is read and written.
pub type Make = Arc<dyn Fn(Box<dyn Transport>, Side, u64) -> io::Result<Box<dyn Transport>> + Send + Sync>;

/// What a node's data links can be upgraded to.
#[derive(Clone)]
pub struct Upgrade {
    offers: u64,
    make: Make,
}

impl Upgrade {
    /// Links stay what they are.
    pub fn none() -> Upgrade {
        Upgrade::new(0, Arc::new(|accepted, _, _| Ok(accepted)))
    }

    /// These feature bits, and what makes the transport where the peer offers one of them, too.
    pub fn new(offers: u64, make: Make) -> Upgrade {
        Upgrade { offers, make }
    }

    /// The bits that this end offers for a connection.
    pub(crate) fn offers(&self, key: LinkKey) -> u64 {
        if key.is_link() {
            self.offers
        } else {
            0
        }
    }

    /// Refuses what a peer accepts and was not offered.
    pub(crate) fn check(&self, key: LinkKey, common: u64) -> Result<(), WireError> {
        match common & !self.offers(key) {
            0 => Ok(()),
            odd => Err(WireError(format!("it accepts features {odd:#x}, which were not offered"))),
        }
    }

    /// What becomes of an accepted transport. `ahead`: what has been read behind the handshake.
    pub(crate) fn apply(
        &self,
        accepted: Box<dyn Transport>,
        side: Side,
        common: u64,
        ahead: &[u8],
    ) -> io::Result<Box<dyn Transport>> {
        match (common, ahead.len()) {
            (0, _) => Ok(accepted),
            (_, 0) => (self.make)(accepted, side, common),
            (_, count) => Err(io::Error::other(format!("{count} bytes came before it"))),
        }
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

    /// A feature of tests.
    pub(crate) const MEMORY: u64 = 1 << 5;

    /// Upgrades to memory where all nodes are in this process: the first end of a link makes both, and leaves the other one its own.
    #[derive(Clone, Default)]
    pub(crate) struct InMemory {
        left: Arc<Mutex<HashMap<[SocketAddr; 2], MemoryLink>>>,
        made: Arc<AtomicUsize>,
    }

    impl InMemory {
        pub(crate) fn upgrade(&self) -> Upgrade {
            let own = self.clone();
            Upgrade::new(MEMORY, Arc::new(move |accepted, side, common| own.make(&*accepted, side, common)))
        }

        /// How many ends have been upgraded.
        pub(crate) fn made(&self) -> usize {
            self.made.load(Ordering::Relaxed)
        }

        fn make(&self, accepted: &dyn Transport, side: Side, common: u64) -> io::Result<Box<dyn Transport>> {
            assert_eq!(common, MEMORY, "both offer it, and nothing else");
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
