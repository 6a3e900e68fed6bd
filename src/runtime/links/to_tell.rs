//! What is still to be told of groups that are over, and to whom.

use crate::runtime::base::link_key::LinkKey;
use crate::types::{GroupId, Time};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// One member's turn to be told: its first, or the last one.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub key: LinkKey,
    pub is_last: bool,
}

/// What is still to be told, and to whom.
#[derive(Default)]
pub(crate) struct RevokeBroadcast {
    pub(super) words: HashMap<GroupId, Vec<u8>>,
    pub(super) queue: VecDeque<Turn>,
    /// Until when each member that is being told may take.
    pub(super) under_way: HashMap<LinkKey, (Turn, Time)>,
    /// The nodes that have not been told that the job is over, where this node ended it.
    pub(super) untold: Option<BTreeSet<u32>>,
}
