//! Messages about what changes in a cluster that has formed: groups that are made and freed, and epochs that begin.

use super::codec::{record, Decoder, Encoder, Wire, WireError};
use crate::error::Failure;
use crate::types::{Epoch, GroupId};

/// What one member of a group wants to be made of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupWish {
    /// One group, of these ranks of the parent, in this order.
    Ranks(Vec<u32>),
    /// One group for each colour, ordered by key and then by rank; no colour: this member is in none.
    Colour {
        /// The member's colour.
        colour: Option<u32>,
        /// The member's key.
        key: i32,
    },
}

impl Wire for GroupWish {
    fn put(&self, to: &mut Encoder) {
        match self {
            GroupWish::Ranks(ranks) => {
                1u8.put(to);
                ranks.put(to);
            }
            GroupWish::Colour { colour, key } => {
                2u8.put(to);
                colour.put(to);
                key.put(to);
            }
        }
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        match u8::take(from)? {
            1 => Ok(GroupWish::Ranks(Wire::take(from)?)),
            2 => Ok(GroupWish::Colour { colour: Wire::take(from)?, key: Wire::take(from)? }),
            other => Err(WireError(format!("unknown way to make a group {other}"))),
        }
    }
}

record! {
    /// A member of a group asks for another group that is made of it. Answered when all members have asked.
    pub struct MakeGroup {
        /// The group that it is made of.
        pub parent: GroupId,
        /// Its number among the groups that are made of it, from 1.
        pub nth: u64,
        /// The sequence number that the creation takes on the parent.
        pub sequence: u64,
        /// What its maker called on the parent before: `CallDigest::in_short`.
        pub digest: u32,
        /// What is to be made.
        pub wish: GroupWish,
    }
}

record! {
    /// Answers a `MakeGroup`.
    pub struct GroupMade {
        /// The group that it is made of.
        pub parent: GroupId,
        /// Its number among the groups that are made of that one.
        pub nth: u64,
        /// The new group; none if the receiver is not in one.
        pub group: Option<GroupId>,
        /// The new group's members, by index, in order of rank.
        pub members: Vec<u32>,
    }
}

record! {
    /// A node asks for a group that its members make by themselves, or no longer waits for it. Answered by `MadeByMembers`.
    pub struct MakeByMembers {
        /// The number of the question; the node's own.
        pub ask: u64,
        /// Whether the node waits for the group.
        pub wants: bool,
        /// The tag by which the members tell their groups apart.
        pub tag: String,
        /// The number of the group among those of the same members and tag, from 1.
        pub nth: u64,
        /// The members' indices, in order of rank.
        pub members: Vec<u32>,
    }
}

record! {
    /// Answers a `MakeByMembers`: the group, or why there is none.
    pub struct MadeByMembers {
        /// The number of the question.
        pub ask: u64,
        /// The group.
        pub group: Option<GroupId>,
        /// Why there is no group.
        pub failure: Option<Failure>,
    }
}

record! {
    /// A node is inside `muster_recover`, or not any more. Answered by `Formed` of the next epoch, or by `NotRecovered`.
    pub struct Recover {
        /// The epoch that it wants to leave behind.
        pub epoch: Epoch,
        /// Whether the node is inside, and waits.
        pub inside: bool,
    }
}

record! {
    /// The next epoch is not complete: the node does not wait any more, or one that is needed has left.
    pub struct NotRecovered {
        /// Why.
        pub failure: Failure,
    }
}

record! {
    /// A node may come back, but not yet: it registers again later.
    pub struct NotYet {
        /// How much later, in milliseconds.
        pub wait_ms: u64,
        /// Why.
        pub reason: String,
        /// Whether the user should see the reason: the wait is long.
        pub long: bool,
    }
}

record! {
    /// What this node says from now on belongs to this epoch.
    pub struct InEpoch {
        /// The epoch.
        pub epoch: Epoch,
    }
}

record! {
    /// A member no longer uses a group that was made; when none does, it is forgotten. Answered by `GroupFreed`, and said
    /// again on each new connection until then.
    pub struct FreeGroup {
        /// The group.
        pub group: GroupId,
    }
}

record! {
    /// Answers a `FreeGroup`, even one that had been taken in before: the node need not say it again.
    pub struct GroupFreed {
        /// The group.
        pub group: GroupId,
    }
}
