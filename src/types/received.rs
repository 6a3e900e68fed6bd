//! What a receiver is told of a message that met a receive, or would meet it.

use super::DType;

/// A message, as its receiver is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender's rank in the group.
    pub source: u32,
    /// Its tag.
    pub tag: i32,
    /// How many elements it has.
    pub count: u64,
    /// The type of its elements.
    pub dtype: DType,
}
