//! The store's messages. A request or a reply is a `Begin` or a `Reply` and, where a value goes with it, pieces of it in
//! order. All of them travel in the bulk lane, so that heartbeats and verdicts pass between them.

use super::codec::{code, record, Decoder, Encoder, Wire, WireError};
use std::sync::Arc;

/// The longest piece of a value.
pub const STORE_PIECE_BYTES: usize = 64 << 10;

/// Shared bytes, or a part of them; cloning copies nothing.
#[derive(Clone)]
pub struct Blob {
    bytes: Arc<[u8]>,
    start: usize,
    end: usize,
}

impl Blob {
    /// All of `bytes`.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Blob {
        let bytes = bytes.into();
        Blob { start: 0, end: bytes.len(), bytes }
    }

    /// The part from `start` to `end`, which must lie inside.
    pub fn slice(&self, start: usize, end: usize) -> Blob {
        assert!(start <= end && end <= self.len(), "a slice lies inside its blob");
        Blob { bytes: Arc::clone(&self.bytes), start: self.start + start, end: self.start + end }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces in which it travels; none for an empty one.
    pub fn pieces(&self) -> impl Iterator<Item = Blob> + '_ {
        (0..self.len()).step_by(STORE_PIECE_BYTES).map(|at| self.slice(at, (at + STORE_PIECE_BYTES).min(self.len())))
    }
}

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blob({} bytes)", self.len())
    }
}

impl PartialEq for Blob {
    fn eq(&self, other: &Blob) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Blob {}

impl Wire for Blob {
    fn put(&self, to: &mut Encoder) {
        u32::try_from(self.len()).expect("pieces and keys are far below 4 GiB").put(to);
        to.bytes.extend_from_slice(self.as_slice());
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        let length = u32::take(from)? as usize;
        if length > STORE_PIECE_BYTES {
            return Err(WireError(format!("a piece of {length} bytes: the limit is {STORE_PIECE_BYTES}")));
        }
        from.bytes(length).map(Blob::new)
    }
}

/// What stands before each part of a value of several parts: its length, in four bytes.
const PART_HEAD_BYTES: usize = 4;

/// Several byte strings in one value: each with its length before it.
#[derive(Debug, Default)]
pub struct Parts {
    /// What has been put together so far.
    pub bytes: Vec<u8>,
}

impl Parts {
    /// How many bytes `count` parts take whose lengths add up to `bytes`.
    pub fn length(count: usize, bytes: usize) -> usize {
        bytes.saturating_add(count.saturating_mul(PART_HEAD_BYTES))
    }

    /// Puts one more part behind the others.
    pub fn push(&mut self, part: &[u8]) {
        let length = u32::try_from(part.len()).expect("keys and values are far below 4 GiB");
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(part);
    }

    /// The parts of a value.
    pub fn of(value: &[u8]) -> Result<Vec<&[u8]>, WireError> {
        let mut from = Decoder::new(value);
        let mut parts = Vec::new();
        while from.left() > 0 {
            let length = u32::take(&mut from)? as usize;
            parts.push(from.bytes(length)?);
        }
        Ok(parts)
    }
}

code! {
    /// What is asked of the store.
    pub enum StoreOperation {
        /// Set `keys[0]` to the value.
        Set = 1,
        /// The value of `keys[0]`, waiting until there is one.
        Get = 2,
        /// The value of `keys[0]` if there is one now.
        TryGet = 3,
        /// Add `delta` to the number in `keys[0]` (decimal text; absent counts as 0); the reply's `number` is the sum.
        Add = 4,
        /// Set `keys[0]` to the second part of the value if it equals the first `expected_bytes` of it (absent equals
        /// empty); the reply carries what is there afterwards. Its `number` is 1 if it was set, -1 if the key was absent and is still.
        CompareSet = 5,
        /// Delete `keys[0]`; the reply's `number` is 1 if it existed.
        Delete = 6,
        /// Wait until every one of `keys` exists.
        Wait = 7,
        /// Which of `keys` exist; the reply's value has one byte for each, 1 or 0.
        Check = 8,
        /// How many keys there are: the reply's `number`. It takes no key.
        Count = 9,
        /// The first keys that begin with `keys[0]` and come after `keys[1]`, in the order of their bytes, as [`Parts`]. The reply's
        /// `number` is 1 where more follow.
        List = 10,
        /// Put the value behind what is in `keys[0]` (absent counts as empty); the reply's `number` is its length then.
        Append = 11,
        /// Set each of `keys` to its part of the value, all or none.
        MultiSet = 12,
        /// The values of `keys`, as [`Parts`], waiting until all are there.
        MultiGet = 13,
        /// The values of `keys`, as [`Parts`], if all are there now.
        TryMultiGet = 14,
    }
}

record! {
    /// Begins a request. `value_bytes` of value follow in pieces.
    pub struct StoreBegin {
        /// A number that the node chooses, and that grows. The same number again means the same request again.
        pub request: u64,
        /// Every request below this one has been answered and may be forgotten.
        pub answered_below: u64,
        /// What is asked.
        pub operation: StoreOperation,
        /// On which keys.
        pub keys: Vec<Blob>,
        /// How much `Add` adds.
        pub delta: i64,
        /// For `CompareSet`: how much of the value is what is expected.
        pub expected_bytes: u64,
        /// How long the value is.
        pub value_bytes: u64,
    }
}

record! {
    /// A part of a value, of a request or of a reply.
    pub struct StorePiece {
        /// The request that it belongs to.
        pub request: u64,
        /// The next bytes of it.
        pub bytes: Blob,
    }
}

record! {
    /// The node no longer waits for the answer; the scheduler forgets the request.
    pub struct StoreCancel {
        /// The request.
        pub request: u64,
    }
}

record! {
    /// Answers a request. `value_bytes` of value follow in pieces.
    pub struct StoreReply {
        /// The request.
        pub request: u64,
        /// A status code of the C ABI.
        pub status: i32,
        /// The reason, if the status is an error.
        pub reason: String,
        /// The number that the operation returns (see `StoreOperation`).
        pub number: i64,
        /// The number of this change among this life's changes to the store, in order; 0: the request has changed nothing.
        pub change: u64,
        /// How long the value is.
        pub value_bytes: u64,
    }
}
