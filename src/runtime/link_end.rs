//! Why a link can no longer be used.

use crate::error::Failure;
use crate::wire::WireError;
use std::io;

/// Why a link can no longer be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEnd {
    /// The peer's end is closed, or the network broke it.
    Ended(String),
    /// What came in is damaged, or is not this protocol.
    Corrupt(String),
    /// One side cannot have it, and gives the group up: the first cause.
    Over(Box<Failure>),
}

impl LinkEnd {
    /// The same, as evidence of what became of the peer.
    pub(super) fn in_words(&self) -> String {
        match self {
            LinkEnd::Ended(reason) | LinkEnd::Corrupt(reason) => reason.clone(),
            LinkEnd::Over(failure) => failure.to_string(),
        }
    }
}

pub(super) fn ended(error: &io::Error) -> LinkEnd {
    LinkEnd::Ended(error.to_string())
}

pub(super) fn corrupt(error: WireError) -> LinkEnd {
    LinkEnd::Corrupt(error.0)
}
