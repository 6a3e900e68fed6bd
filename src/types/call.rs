//! One collective call: all that the ranks of a group must agree on.

use super::{DType, ReduceOp};
use std::fmt;

/// Stands where a call has no element type, operation or root.
pub const NO_VALUE: u32 = u32::MAX;

/// Which collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // the names say it
pub enum CallKind {
    Barrier = 1,
    Broadcast = 2,
    Allreduce = 3,
    Allgather = 4,
}

impl CallKind {
    /// Every kind that this version has.
    pub const ALL: [CallKind; 4] = [CallKind::Barrier, CallKind::Broadcast, CallKind::Allreduce, CallKind::Allgather];

    /// The kind with this number on the wire.
    pub fn from_code(code: u8) -> Option<CallKind> {
        CallKind::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CallKind::Barrier => "barrier",
            CallKind::Broadcast => "broadcast",
            CallKind::Allreduce => "allreduce",
            CallKind::Allgather => "allgather",
        })
    }
}

/// The readable form of a collective's signature. `count` is in elements: per rank where each rank has a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Which collective.
    pub kind: CallKind,
    /// The element type; none for a barrier.
    pub dtype: Option<DType>,
    /// The operation, where one reduces.
    pub op: Option<ReduceOp>,
    /// The root's rank in the group, where there is one.
    pub root: Option<u32>,
    /// Elements.
    pub count: u64,
}

impl Call {
    /// 64 bits that differ, but for chance, where calls differ (FNV-1a over the fields; not against an adversary).
    pub fn signature(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut mix = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        };
        mix(&[self.kind as u8]);
        mix(&self.dtype.map_or(NO_VALUE, |dtype| dtype as u32).to_le_bytes());
        mix(&self.op.map_or(NO_VALUE, |op| op as u32).to_le_bytes());
        mix(&self.root.unwrap_or(NO_VALUE).to_le_bytes());
        mix(&self.count.to_le_bytes());
        hash
    }
}

impl fmt::Display for Call {
    /// Reads like a call: `allreduce(count 1024, float32, sum)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(dtype) = self.dtype else { return write!(f, "{}()", self.kind) };
        write!(f, "{}(count {}, {}", self.kind, self.count, dtype)?;
        if let Some(op) = self.op {
            write!(f, ", {op}")?;
        }
        if let Some(root) = self.root {
            write!(f, ", root {root}")?;
        }
        f.write_str(")")
    }
}
