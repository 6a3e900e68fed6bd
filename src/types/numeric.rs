//! Element types and reduction operations. Their numbers are part of the C ABI and of the wire, and never reused.

use std::fmt;

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // the names say it
pub enum DType {
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float16,
    Bfloat16,
    Float32,
    Float64,
    /// An element of the caller's own, of so many bytes: 1 to [`DType::ELEMENT_BYTES_MAX`]. Only users' functions
    /// combine such elements.
    Element(u32),
}

impl DType {
    /// Every element type of our own, in order of number.
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

    /// The number of the caller's own elements, without their size.
    pub const ELEMENT: i32 = 1 << 20;

    /// The largest element that a caller can have. A piece of a schedule or of a frame holds at least one.
    pub const ELEMENT_BYTES_MAX: u32 = 64 << 10;

    /// How many bytes a process can address. A buffer is smaller.
    pub const ADDRESSABLE_BYTES: u64 = 1 << 47;

    /// How many bytes so many elements take, if a buffer can be as large.
    pub fn bytes_of(self, count: u64) -> Option<usize> {
        let bytes = count.checked_mul(self.size() as u64).filter(|bytes| *bytes < DType::ADDRESSABLE_BYTES)?;
        usize::try_from(bytes).ok()
    }

    /// Its number in the C ABI.
    pub fn code(self) -> i32 {
        match self {
            DType::Int8 => 0,
            DType::Int16 => 1,
            DType::Int32 => 2,
            DType::Int64 => 3,
            DType::Uint8 => 4,
            DType::Uint16 => 5,
            DType::Uint32 => 6,
            DType::Uint64 => 7,
            DType::Float16 => 8,
            DType::Bfloat16 => 9,
            DType::Float32 => 10,
            DType::Float64 => 11,
            DType::Element(bytes) => DType::ELEMENT + bytes as i32,
        }
    }

    /// The element type with this number.
    pub fn from_code(code: i32) -> Option<DType> {
        let at = u32::try_from(code).ok()?;
        match at.checked_sub(DType::ELEMENT as u32) {
            Some(bytes) => DType::of_bytes(bytes),
            None => DType::ALL.get(at as usize).copied(),
        }
    }

    /// The caller's own element of so many bytes, if there can be one.
    pub fn of_bytes(bytes: u32) -> Option<DType> {
        (1..=DType::ELEMENT_BYTES_MAX).contains(&bytes).then_some(DType::Element(bytes))
    }

    /// Whether it is one of the integers.
    pub fn is_integer(self) -> bool {
        use DType::{Bfloat16, Element, Float16, Float32, Float64};
        !matches!(self, Float16 | Bfloat16 | Float32 | Float64 | Element(_))
    }

    /// Whether it is one of the floats, of which sums can be exact.
    pub fn is_float(self) -> bool {
        !self.is_integer() && !self.is_opaque()
    }

    /// Whether our own operations do not know what its elements mean.
    pub fn is_opaque(self) -> bool {
        matches!(self, DType::Element(_))
    }

    /// Bytes per element.
    pub fn size(self) -> usize {
        match self {
            DType::Int8 | DType::Uint8 => 1,
            DType::Int16 | DType::Uint16 | DType::Float16 | DType::Bfloat16 => 2,
            DType::Int32 | DType::Uint32 | DType::Float32 => 4,
            DType::Int64 | DType::Uint64 | DType::Float64 => 8,
            DType::Element(bytes) => bytes as usize,
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
            DType::Element(bytes) => return write!(f, "elements of {bytes} bytes"),
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
    /// Bitwise, like the next two; for integers only.
    And,
    Or,
    Xor,
    /// The exact sum of one vector of each rank, rounded once; floats only.
    SumExact,
    /// The exact sum of all vectors that the ranks bring; each may bring several. Only a call of its own has it: no
    /// caller can name it.
    SumOfAddends,
    /// A function of the user's.
    User {
        /// Its number among those made on the cluster, from 0.
        number: u32,
        /// Whether operands may be exchanged.
        commutative: bool,
    },
    /// A function that the call itself brings.
    Given {
        /// Whether operands may be exchanged.
        commutative: bool,
    },
}

/// Set on the wire for a user's operation whose operands may not be exchanged.
const ORDERED: u32 = 1 << 31;

impl ReduceOp {
    /// Every operation of our own, in order of number.
    pub const ALL: [ReduceOp; 9] = [
        ReduceOp::Sum,
        ReduceOp::Prod,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Avg,
        ReduceOp::And,
        ReduceOp::Or,
        ReduceOp::Xor,
        ReduceOp::SumExact,
    ];

    /// The number of the first user's operation.
    pub const FIRST_USER: u32 = 256;

    /// The number of a function that the call itself brings. The C ABI has none for it.
    const GIVEN: u32 = ReduceOp::FIRST_USER - 1;

    /// The number of the exact sum of as many vectors as each rank brings. The C ABI has none for it.
    const ADDENDS: u32 = ReduceOp::GIVEN - 1;

    /// Its number in the C ABI.
    pub fn code(self) -> u32 {
        match self {
            ReduceOp::SumOfAddends => ReduceOp::ADDENDS,
            ReduceOp::User { number, .. } => ReduceOp::FIRST_USER + number,
            ReduceOp::Given { .. } => ReduceOp::GIVEN,
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
        match code & !ORDERED {
            ReduceOp::GIVEN => Some(ReduceOp::Given { commutative }),
            ReduceOp::ADDENDS if commutative => Some(ReduceOp::SumOfAddends),
            user if user >= ReduceOp::FIRST_USER => {
                Some(ReduceOp::User { number: user - ReduceOp::FIRST_USER, commutative })
            }
            _ => ReduceOp::from_code(i32::try_from(code).ok()?),
        }
    }

    /// Whether operands may be exchanged.
    pub fn is_commutative(self) -> bool {
        !matches!(self, ReduceOp::User { commutative: false, .. } | ReduceOp::Given { commutative: false })
    }

    /// Whether a function of the caller's carries it out, and not this library.
    pub fn is_users(self) -> bool {
        matches!(self, ReduceOp::User { .. } | ReduceOp::Given { .. })
    }

    /// Whether it rounds once, however many elements there are, so that their order does not matter.
    pub fn is_exact(self) -> bool {
        matches!(self, ReduceOp::SumExact | ReduceOp::SumOfAddends)
    }

    /// Whether it can combine elements of this type.
    pub fn is_for(self, dtype: DType) -> bool {
        match self {
            ReduceOp::User { .. } | ReduceOp::Given { .. } => true,
            ReduceOp::SumExact | ReduceOp::SumOfAddends => dtype.is_float(),
            ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => dtype.is_integer(),
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Min | ReduceOp::Max | ReduceOp::Avg => !dtype.is_opaque(),
        }
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
            ReduceOp::SumExact => "sum_exact",
            ReduceOp::SumOfAddends => "sum_exact of addends",
            ReduceOp::User { number, commutative: true } => return write!(f, "user's operation {number}"),
            ReduceOp::User { number, .. } => return write!(f, "user's operation {number} in rank order"),
            ReduceOp::Given { commutative: true } => "user's function",
            ReduceOp::Given { .. } => "user's function in rank order",
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
        let given = [true, false].map(|commutative| ReduceOp::Given { commutative });
        for op in ReduceOp::ALL.into_iter().chain(users).chain(given).chain([ReduceOp::SumOfAddends]) {
            assert_eq!(ReduceOp::from_wire_code(op.wire_code()), Some(op));
        }
        assert_eq!(ReduceOp::from_code(ReduceOp::GIVEN as i32), None, "no number that a caller can pass");
        assert_eq!(ReduceOp::from_code(ReduceOp::ADDENDS as i32), None, "that is a call of its own");
        assert_eq!(ReduceOp::from_wire_code(9), None);
        assert_eq!(ReduceOp::from_wire_code(ReduceOp::ADDENDS | ORDERED), None);
        assert_eq!(ReduceOp::from_wire_code(ORDERED), None, "an operation of our own is not ordered");
        assert_eq!(ReduceOp::User { number: 2, commutative: true }.code(), 258);
    }

    #[test]
    fn every_element_type_has_a_number_and_no_other_number_is_one() {
        let own = [1, 16, 8094, DType::ELEMENT_BYTES_MAX].map(DType::Element);
        for dtype in DType::ALL.into_iter().chain(own) {
            assert_eq!(DType::from_code(dtype.code()), Some(dtype));
        }
        assert_eq!(DType::Float64.code(), 11);
        assert_eq!(DType::Element(16).code(), DType::ELEMENT + 16);
        let beyond = DType::ELEMENT + DType::ELEMENT_BYTES_MAX as i32 + 1;
        for code in [-1, 12, 254, DType::ELEMENT - 1, DType::ELEMENT, beyond, i32::MAX, i32::MIN] {
            assert_eq!(DType::from_code(code), None, "{code}");
        }
        assert!(!DType::Element(4).is_integer() && DType::Element(4).is_opaque());
    }
}
