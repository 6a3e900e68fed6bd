//! The key that tells a node's links apart.

use crate::types::GroupId;
use crate::wire::Channel;

/// The key of one link of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkKey {
    /// The group that it serves.
    pub group: GroupId,
    /// What the link carries.
    pub channel: Channel,
    /// The peer's rank in the group.
    pub rank: u32,
}

impl LinkKey {
    /// The link of a group to this rank.
    pub const fn new(group: GroupId, channel: Channel, rank: u32) -> LinkKey {
        LinkKey { group, channel, rank }
    }

    /// Whether this link belongs to a group's engine: there is one to each peer, and somebody waits for it.
    pub(crate) fn is_link(&self) -> bool {
        matches!(self.channel, Channel::Collectives | Channel::Messages)
    }
}
