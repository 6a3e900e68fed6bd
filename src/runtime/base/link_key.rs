//! Which link of a node.

use crate::types::GroupId;
use crate::wire::Channel;

/// Which link of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkKey {
    /// The group that it serves.
    pub group: GroupId,
    /// What it carries.
    pub channel: Channel,
    /// The peer's rank in the group.
    pub rank: u32,
}

impl LinkKey {
    /// The link of a group to this rank.
    pub const fn new(group: GroupId, channel: Channel, rank: u32) -> LinkKey {
        LinkKey { group, channel, rank }
    }

    /// Whether a group gets it: there is one to each peer, and somebody waits for it.
    pub(crate) fn is_link(&self) -> bool {
        matches!(self.channel, Channel::Collectives | Channel::Messages)
    }
}
