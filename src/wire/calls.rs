//! What the scheduler asks members of a collective that they have left behind them, to know who called what.

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
        /// What it is; nothing where the node has not entered it, or does not know any more.
        pub call: Option<Call>,
    }
}
