//! The scheduler asks members about an earlier collective, to know which rank called what.

use super::codec::record;
use crate::types::{Call, GroupId};

record! {
    /// What did you call under this number?
    pub struct AskCall {
        /// On which group.
        pub group: GroupId,
        /// The collective's sequence number.
        pub sequence: u64,
    }
}

record! {
    /// Answers an `AskCall`.
    pub struct Called {
        /// On which group.
        pub group: GroupId,
        /// The collective's sequence number.
        pub sequence: u64,
        /// What the call is. None if the node has not entered it, or does not know it any more.
        pub call: Option<Call>,
    }
}
