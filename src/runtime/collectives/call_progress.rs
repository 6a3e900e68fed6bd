//! How far a call is each time its thread may sleep: what another thread needs to continue the call.

use crate::runtime::base::patience::WARN_AFTER;
use crate::runtime::links::peers::{Links, Slot};
use crate::runtime::memory::buffer::Arithmetic;
use crate::schedules::{Landing, Span};
use crate::types::Time;
use crate::wire::{DATA_HEADER_BYTES, WAITS_AFTER};
use std::time::Duration;

/// How long a rank waits for a peer to open their link, where that is the peer's part. If both open one at the same
/// time, one of the two is made for nothing.
pub(crate) const PEER_OPENS: Duration = Duration::from_millis(20);

/// When a call that waits says so: to the scheduler, and in the log.
pub(crate) struct Patience {
    pub report_at: Time,
    pub warn_at: Time,
}

impl Patience {
    /// The patience of a call that was made at this time.
    pub(crate) fn since(since: Time) -> Patience {
        Patience { report_at: since + WAITS_AFTER, warn_at: since + WARN_AFTER }
    }

    /// When the call says something next.
    pub(crate) fn next(&self) -> Time {
        self.report_at.min(self.warn_at)
    }
}

/// How far a call is.
#[derive(Default)]
pub(crate) enum CallProgress {
    #[default]
    Beginning,
    /// Over links: the call is in this exchange of its schedule.
    Exchange(u32, Box<Exchange>),
    /// In shared memory.
    Memory(Done),
    /// The call consists of steps: it is in this step, and so far within it.
    Step(usize, Box<CallProgress>),
    /// The call's chunks are woven: how far each of its two parts is.
    Woven(Box<Woven>),
}

/// The progress of a call whose chunks move within the host and between hosts at the same time.
#[derive(Default)]
pub(crate) struct Woven {
    /// How many steps are done through memory, and where the next is.
    pub memory: (u64, CallProgress),
    /// How many are done between hosts, and where the next is.
    pub links: (u64, CallProgress),
}

/// What one exchange still has to do.
pub(crate) struct Exchange {
    /// The data header of what is sent.
    pub head: [u8; DATA_HEADER_BYTES],
    pub send: Option<(u32, Span)>,
    pub receive: Option<(u32, Landing)>,
    pub started: bool,
    pub arithmetic: Option<Arithmetic>,
    pub opening: Opening,
}

/// Which side opens a link that the exchange needs: the sender, or, if two ranks send to each other, the lower rank.
/// This matters only where that side is the peer.
pub(crate) enum Opening {
    /// The peer.
    Peer,
    /// The peer, until this time.
    PeerUntil(Time),
    /// This rank: the peer may be slow to come, or unable to reach it.
    Own,
}

impl Exchange {
    /// Whether what is missing may come at once. A link that is being opened takes longer than a wake-up, and a peer that has
    /// sent nothing on it yet may just be starting: where all start at once, on few cores, each poll would delay them.
    pub fn may_poll(&self, links: &Links<()>) -> bool {
        let heard = |peer: u32| matches!(links.slot(peer), Slot::Up(link) if link.has_spoken());
        let open = |peer: u32| matches!(links.slot(peer), Slot::Up(_));
        self.receive.is_none_or(|(peer, _)| heard(peer)) && self.send.is_none_or(|(peer, _)| open(peer))
    }

    /// The ranks it waits for.
    pub fn peers(&self) -> [Option<u32>; 2] {
        [self.receive.map(|(peer, _)| peer), self.send.map(|(peer, _)| peer)]
    }

    /// Whether a link for which nobody has asked yet is left to the peer to open.
    pub fn leaves_opening(&self) -> bool {
        !matches!(self.opening, Opening::Own)
    }

    /// Whether this rank still waits for the peer with this slot to open the link.
    pub fn leaves_opening_to(&self, slot: &Slot) -> bool {
        matches!(slot, Slot::Unused) && self.leaves_opening()
    }

    /// Until when this rank waits for a peer to open a link; [`Time::NEVER`] if it waits for none. After that it opens
    /// the link.
    pub fn opening_until(&mut self, links: &Links<()>, now: Time) -> Time {
        let mut peers = self.peers().into_iter().flatten();
        if !peers.any(|peer| self.leaves_opening_to(links.slot(peer))) {
            return Time::NEVER;
        }
        let until = match self.opening {
            Opening::PeerUntil(until) => until,
            _ => now + PEER_OPENS,
        };
        self.opening = if until <= now { Opening::Own } else { Opening::PeerUntil(until) };
        until
    }
}

/// How much of one call is done.
#[derive(Default)]
pub(crate) struct Done {
    /// Whether this rank has come to the call.
    pub has_come: bool,
    /// How many stages of pieces are done, [`STAGES`] for each turn. A stage is done between two waits, or may be done
    /// again.
    pub stages: u64,
    /// How many of the other ranks' contributions to this stage are taken.
    pub taken: usize,
}

/// The stages: put a piece, fold or take the one before, take the shares of the one before that.
pub(crate) const STAGES: u64 = 3;
