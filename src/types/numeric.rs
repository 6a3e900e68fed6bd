//! Element types and reduction operations. Their numbers are part of the C ABI and of the wire, and never reused.

use std::fmt;

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // the names say it
pub enum DType {
    Int8 = 0,
    Int16 = 1,
    Int32 = 2,
    Int64 = 3,
    Uint8 = 4,
    Uint16 = 5,
    Uint32 = 6,
    Uint64 = 7,
    Float16 = 8,
    Bfloat16 = 9,
    Float32 = 10,
    Float64 = 11,
}

impl DType {
    /// Every element type, in order of number.
    pub const ALL: [DType; 12] = [
        DType::Int8,
        DType::Int16,
        DType::Int32,
        DType::Int64,
        DType::Uint8,
        DType::Uint16,
        DType::Uint32,
        DType::Uint64,
        DType::Float16,
        DType::Bfloat16,
        DType::Float32,
        DType::Float64,
    ];

    /// The element type with this number.
    pub fn from_code(code: i32) -> Option<DType> {
        usize::try_from(code).ok().and_then(|at| DType::ALL.get(at).copied())
    }

    /// Whether it is one of the integers.
    pub fn is_integer(self) -> bool {
        !matches!(self, DType::Float16 | DType::Bfloat16 | DType::Float32 | DType::Float64)
    }

    /// Bytes per element.
    pub fn size(self) -> usize {
        match self {
            DType::Int8 | DType::Uint8 => 1,
            DType::Int16 | DType::Uint16 | DType::Float16 | DType::Bfloat16 => 2,
            DType::Int32 | DType::Uint32 | DType::Float32 => 4,
            DType::Int64 | DType::Uint64 | DType::Float64 => 8,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::Int8 => "int8",
            DType::Int16 => "int16",
            DType::Int32 => "int32",
            DType::Int64 => "int64",
            DType::Uint8 => "uint8",
            DType::Uint16 => "uint16",
            DType::Uint32 => "uint32",
            DType::Uint64 => "uint64",
            DType::Float16 => "float16",
            DType::Bfloat16 => "bfloat16",
            DType::Float32 => "float32",
            DType::Float64 => "float64",
        })
    }
}

/// How elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // the names say it
pub enum ReduceOp {
    Sum,
    Prod,
    Min,
    Max,
    Avg,
    /// Bitwise; integers only, as the next two.
    And,
    Or,
    Xor,
    /// A function of the user's.
    User {
        /// Its number among those made on the cluster, from 0.
        number: u32,
        /// Whether operands may be exchanged.
        commutative: bool,
    },
}

/// Set on the wire for a user's operation whose operands may not be exchanged.
const ORDERED: u32 = 1 << 31;

impl ReduceOp {
    /// Every operation of our own, in order of number.
    pub const ALL: [ReduceOp; 8] = [
        ReduceOp::Sum,
        ReduceOp::Prod,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Avg,
        ReduceOp::And,
        ReduceOp::Or,
        ReduceOp::Xor,
    ];

    /// The number of the first user's operation.
    pub const FIRST_USER: u32 = 256;

    /// Its number in the C ABI.
    pub fn code(self) -> u32 {
        match self {
            ReduceOp::User { number, .. } => ReduceOp::FIRST_USER + number,
            own => ReduceOp::ALL.iter().position(|op| *op == own).unwrap_or_default() as u32,
        }
    }

    /// The operation of our own with this number.
    pub fn from_code(code: i32) -> Option<ReduceOp> {
        usize::try_from(code).ok().and_then(|at| ReduceOp::ALL.get(at).copied())
    }

    /// Its number on the wire, which also tells whether operands may be exchanged.
    pub fn wire_code(self) -> u32 {
        if self.is_commutative() {
            self.code()
        } else {
            self.code() | ORDERED
        }
    }

    /// The operation with this number on the wire.
    pub fn from_wire_code(code: u32) -> Option<ReduceOp> {
        let commutative = code & ORDERED == 0;
        match (code & !ORDERED).checked_sub(ReduceOp::FIRST_USER) {
            Some(number) => Some(ReduceOp::User { number, commutative }),
            None => ReduceOp::from_code(i32::try_from(code).ok()?),
        }
    }

    /// Whether operands may be exchanged.
    pub fn is_commutative(self) -> bool {
        !matches!(self, ReduceOp::User { commutative: false, .. })
    }

    /// Whether it is for integers only.
    pub fn is_bitwise(self) -> bool {
        matches!(self, ReduceOp::And | ReduceOp::Or | ReduceOp::Xor)
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Avg => "avg",
            ReduceOp::And => "and",
            ReduceOp::Or => "or",
            ReduceOp::Xor => "xor",
            ReduceOp::User { number, .. } => return write!(f, "user's operation {number}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_survives_the_wire() {
        let users =
            [(0, true), (0, false), (7, false)].map(|(number, commutative)| ReduceOp::User { number, commutative });
        for op in ReduceOp::ALL.into_iter().chain(users) {
            assert_eq!(ReduceOp::from_wire_code(op.wire_code()), Some(op));
        }
        assert_eq!(ReduceOp::from_wire_code(8), None);
        assert_eq!(ReduceOp::from_wire_code(ORDERED), None, "an operation of our own is not ordered");
        assert_eq!(ReduceOp::User { number: 2, commutative: true }.code(), 258);
    }
}
