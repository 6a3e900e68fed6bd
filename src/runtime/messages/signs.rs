//! What is known of peers that operations need, and that may not be reached.

use crate::runtime::links::link::LinkEnd;
use crate::runtime::state::silence::{Bounds, Finding};
use crate::types::Time;
use std::collections::HashMap;

/// When the links of messages are looked at next, and since when each peer has been needed at every look.
pub(super) struct Signs {
    pub(super) bounds: Bounds,
    pub(super) look_at: Option<Time>,
    pub(super) needed: HashMap<u32, Needed>,
}

pub(super) struct Needed {
    pub(super) since: Time,
    pub(super) last: Time,
    /// Whether the scheduler was asked in this silence.
    pub(super) asked: bool,
}

impl Signs {
    pub(super) fn new(bounds: Bounds) -> Signs {
        Signs { bounds, look_at: None, needed: HashMap::new() }
    }
}

/// A peer that something may be wrong with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    pub rank: u32,
    pub end: LinkEnd,
    pub finding: Finding,
}
