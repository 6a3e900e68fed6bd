//! Why a link can no longer be used.

use crate::error::Failure;
use crate::wire::WireError;
use std::io::{self, ErrorKind};

/// Why a link can no longer be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEnd {
    /// The peer's end is closed: its system says so.
    Ended(String),
    /// Nothing comes back: the peer may be gone, or the network lets nothing pass, be it to the peer or to this node.
    Silent(String),
    /// What came in is damaged, or is not this protocol.
    Corrupt(String),
    /// The link was to be something that this node cannot provide, such as one through memory.
    Unsupported(String),
    /// One side cannot have the link, and gives the group up. This is the first cause.
    Over(Box<Failure>),
}

impl LinkEnd {
    /// This end in words, as evidence of what became of the peer.
    pub(crate) fn in_words(&self) -> String {
        match self {
            LinkEnd::Ended(reason) | LinkEnd::Silent(reason) => reason.clone(),
            LinkEnd::Corrupt(reason) | LinkEnd::Unsupported(reason) => reason.clone(),
            LinkEnd::Over(failure) => failure.to_string(),
        }
    }

    /// The same end, with these words before its reason.
    pub(crate) fn after(self, what: &str) -> LinkEnd {
        let words = |reason| format!("{what}: {reason}");
        match self {
            LinkEnd::Ended(reason) => LinkEnd::Ended(words(reason)),
            LinkEnd::Silent(reason) => LinkEnd::Silent(words(reason)),
            LinkEnd::Corrupt(reason) => LinkEnd::Corrupt(words(reason)),
            LinkEnd::Unsupported(reason) => LinkEnd::Unsupported(words(reason)),
            LinkEnd::Over(failure) => LinkEnd::Over(failure),
        }
    }
}

pub(crate) fn ended(error: &io::Error) -> LinkEnd {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
            LinkEnd::Silent(error.to_string())
        }
        ErrorKind::InvalidData => LinkEnd::Corrupt(error.to_string()),
        ErrorKind::Unsupported => LinkEnd::Unsupported(error.to_string()),
        _ => LinkEnd::Ended(error.to_string()),
    }
}

pub(crate) fn corrupt(error: WireError) -> LinkEnd {
    LinkEnd::Corrupt(error.0)
}

/// Whether the peer will send nothing more, as far as the poller has said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerEnd {
    /// It may send more.
    Open,
    /// It will send nothing more, and nobody has looked yet at what it sent last.
    Unseen,
    /// It will send nothing more, and that was looked at.
    Seen,
}

impl PeerEnd {
    /// The poller says whether the peer will send nothing more.
    pub(super) fn note(&mut self, closed: bool) {
        if closed && *self == PeerEnd::Open {
            *self = PeerEnd::Unseen;
        }
    }

    /// Looks at what the peer sent last. Returns whether there is something to look at: once.
    pub(super) fn look(&mut self) -> bool {
        let is_unseen = *self == PeerEnd::Unseen;
        if is_unseen {
            *self = PeerEnd::Seen;
        }
        is_unseen
    }
}
