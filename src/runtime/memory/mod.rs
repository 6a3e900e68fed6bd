//! The memory of a call: spans of the caller's buffers (the only `unsafe` of the runtime), and sums of pieces.

pub(crate) mod buffer;
pub(crate) mod buffer_shared;
pub(crate) mod checksums;
