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
    Reduce = 5,
    Gather = 6,
    Gatherv = 7,
    Scatter = 8,
    Scatterv = 9,
    ReduceScatter = 10,
    ReduceScatterv = 11,
    Allgatherv = 12,
    Alltoall = 13,
    Alltoallv = 14,
    /// Makes a group of listed ranks; carried out by the scheduler.
    GroupCreate = 15,
    /// Splits a group by colour and key; carried out by the scheduler.
    GroupSplit = 16,
}

impl CallKind {
    /// Every kind that this version has.
    pub const ALL: [CallKind; 16] = [
        CallKind::Barrier,
        CallKind::Broadcast,
        CallKind::Allreduce,
        CallKind::Allgather,
        CallKind::Reduce,
        CallKind::Gather,
        CallKind::Gatherv,
        CallKind::Scatter,
        CallKind::Scatterv,
        CallKind::ReduceScatter,
        CallKind::ReduceScatterv,
        CallKind::Allgatherv,
        CallKind::Alltoall,
        CallKind::Alltoallv,
        CallKind::GroupCreate,
        CallKind::GroupSplit,
    ];

    /// The kind with this number on the wire.
    pub fn from_code(code: u8) -> Option<CallKind> {
        CallKind::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    /// The name of its function, without the prefix that all functions have.
    pub fn name(self) -> &'static str {
        match self {
            CallKind::Barrier => "barrier",
            CallKind::Broadcast => "broadcast",
            CallKind::Allreduce => "allreduce",
            CallKind::Allgather => "allgather",
            CallKind::Reduce => "reduce",
            CallKind::Gather => "gather",
            CallKind::Gatherv => "gatherv",
            CallKind::Scatter => "scatter",
            CallKind::Scatterv => "scatterv",
            CallKind::ReduceScatter => "reduce_scatter",
            CallKind::ReduceScatterv => "reduce_scatterv",
            CallKind::Allgatherv => "allgatherv",
            CallKind::Alltoall => "alltoall",
            CallKind::Alltoallv => "alltoallv",
            CallKind::GroupCreate => "group_create",
            CallKind::GroupSplit => "group_split",
        }
    }
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The readable form of a collective's signature: what all ranks of a group must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Which collective.
    pub kind: CallKind,
    /// The element type; none where no elements move.
    pub dtype: Option<DType>,
    /// The operation, where one reduces.
    pub op: Option<ReduceOp>,
    /// The root's rank in the group, where there is one.
    pub root: Option<u32>,
    /// Elements: per rank where each rank has a part; of all ranks together where `layout` is set; 0 where ranks need not
    /// agree on counts (gatherv, scatterv, alltoallv).
    pub count: u64,
    /// [`hash`] of the counts, where each rank's part has a count of its own and all ranks know them (allgatherv,
    /// reduce_scatterv). [`hash`] of the ranks of a group that is made. Else 0.
    pub layout: u64,
}

impl Call {
    /// A 64-bit hash of the call; different calls nearly always give different hashes.
    pub fn signature(&self) -> u64 {
        let words = [
            self.kind as u64,
            self.dtype.map_or(NO_VALUE, |dtype| dtype.code() as u32).into(),
            self.op.map_or(NO_VALUE, ReduceOp::wire_code).into(),
            self.root.unwrap_or(NO_VALUE).into(),
            self.count,
            self.layout,
        ];
        hash(words)
    }
}

/// A 64-bit hash of all that a rank has called on a group. Ranks with different calls nearly always have different hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallDigest(u64);

impl CallDigest {
    /// 2^64 divided by the golden ratio, and odd: a difference never vanishes when it is multiplied by this, and
    /// spreads to the upper half.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    /// The next call had this signature.
    pub fn add(&mut self, signature: u64) {
        self.0 = (self.0 ^ signature).wrapping_mul(CallDigest::FACTOR);
    }

    /// The 32 bits of it that data frames carry.
    pub fn in_short(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
/// The factor that stands for so many zero bytes.
const FNV_ZEROS: [u64; 9] = {
    let mut powers = [1u64; 9];
    let mut zeros = 1;
    while zeros < powers.len() {
        powers[zeros] = powers[zeros - 1].wrapping_mul(FNV_PRIME);
        zeros += 1;
    }
    powers
};

/// A 64-bit hash; different words nearly always give different hashes. It is FNV-1a over the words' bytes, the low ones
/// first, and does not resist an adversary. It is never 0. Most words are small, so their zero bytes are taken together.
pub fn hash(words: impl IntoIterator<Item = u64>) -> u64 {
    let mut hash = FNV_START;
    for mut word in words {
        let mut zeros = FNV_ZEROS.len() - 1;
        while word != 0 {
            hash = (hash ^ (word & 0xff)).wrapping_mul(FNV_PRIME);
            word >>= 8;
            zeros -= 1;
        }
        hash = hash.wrapping_mul(FNV_ZEROS[zeros]);
    }
    hash.max(1)
}

impl fmt::Display for Call {
    /// Reads like a call: `allreduce(count 1024, float32, sum)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.kind)?;
        let vector = matches!(self.kind, CallKind::Gatherv | CallKind::Scatterv | CallKind::Alltoallv);
        let mut between = "";
        let mut part = |f: &mut fmt::Formatter<'_>, words: fmt::Arguments<'_>| {
            let written = write!(f, "{between}{words}");
            between = ", ";
            written
        };
        match self.kind {
            CallKind::GroupCreate => part(f, format_args!("{} ranks, list {:08x}", self.count, self.layout as u32))?,
            _ if self.layout != 0 => part(f, format_args!("{} in all, counts {:08x}", self.count, self.layout as u32))?,
            _ if self.dtype.is_some() && !vector => part(f, format_args!("count {}", self.count))?,
            _ => {}
        }
        if let Some(dtype) = self.dtype {
            part(f, format_args!("{dtype}"))?;
        }
        if let Some(op) = self.op {
            part(f, format_args!("{op}"))?;
        }
        if let Some(root) = self.root {
            part(f, format_args!("root {root}"))?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_reads_like_one() {
        let call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
        assert_eq!(call.to_string(), "barrier()");
        let reduce = Call {
            kind: CallKind::Reduce,
            dtype: Some(DType::Int8),
            op: Some(ReduceOp::User { number: 3, commutative: false }),
            root: Some(2),
            count: 5,
            layout: 0,
        };
        assert_eq!(reduce.to_string(), "reduce(count 5, int8, user's operation 3 in rank order, root 2)");
        let op = Some(ReduceOp::Given { commutative: true });
        let given = Call { kind: CallKind::Allreduce, dtype: Some(DType::Element(16)), op, root: None, ..reduce };
        assert_eq!(given.to_string(), "allreduce(count 5, elements of 16 bytes, user's function)");
        let counts = hash([1, 2]);
        let gather = Call { kind: CallKind::Allgatherv, op: None, root: None, count: 3, layout: counts, ..reduce };
        assert_eq!(gather.to_string(), format!("allgatherv(3 in all, counts {:08x}, int8)", counts as u32));
        let scatter = Call { kind: CallKind::Scatterv, op: None, count: 0, ..reduce };
        assert_eq!(scatter.to_string(), "scatterv(int8, root 2)");
    }

    #[test]
    fn the_hash_is_fnv_1a_of_the_words_bytes() {
        let plain = |words: &[u64]| {
            let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
            words.iter().flat_map(|word| word.to_le_bytes()).fold(FNV_START, fold)
        };
        assert_eq!(FNV_ZEROS[1], FNV_PRIME);
        for shift in 0..64 {
            for word in [0, 1, 0xff, 0xff00ff, 0x1234_5678_9abc_def0, u64::MAX] {
                let words = [word << shift, word >> shift, word];
                assert_eq!(hash(words), plain(&words), "{words:x?}");
            }
        }
    }

    #[test]
    fn histories_differ_for_good_where_one_call_did() {
        let after = |calls: &[u64]| {
            let mut digest = CallDigest::default();
            calls.iter().for_each(|signature| digest.add(hash([*signature])));
            digest.in_short()
        };
        assert_eq!(after(&[]), 0);
        assert_ne!(after(&[1]), 0);
        assert_ne!(after(&[1, 2]), after(&[2, 1]));
        for bit in 0..64 {
            let (mut one, mut other) = (CallDigest::default(), CallDigest::default());
            one.add(hash([1]) ^ 1 << bit);
            other.add(hash([1]));
            for call in 0..1000 {
                assert_ne!(one.in_short(), other.in_short(), "bit {bit}, {call} calls later");
                one.add(hash([call]));
                other.add(hash([call]));
            }
        }
    }

    #[test]
    fn whatever_differs_changes_the_signature() {
        let call = Call {
            kind: CallKind::Reduce,
            dtype: Some(DType::Int8),
            op: Some(ReduceOp::Sum),
            root: Some(2),
            count: 5,
            layout: 0,
        };
        let others = [
            Call { kind: CallKind::Allreduce, ..call },
            Call { dtype: Some(DType::Uint8), ..call },
            Call { op: Some(ReduceOp::Xor), ..call },
            Call { op: Some(ReduceOp::User { number: 0, commutative: true }), ..call },
            Call { op: Some(ReduceOp::User { number: 0, commutative: false }), ..call },
            Call { root: None, ..call },
            Call { count: 6, ..call },
            Call { layout: hash([5]), ..call },
        ];
        let signatures: std::collections::HashSet<u64> =
            others.iter().chain([&call]).map(|call| call.signature()).collect();
        assert_eq!(signatures.len(), others.len() + 1);
    }
}
