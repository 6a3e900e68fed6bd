//! The conversion of elements that a schedule asks for, and the kernels carry out.

use crate::types::DType;

/// How elements of one type become those of another: each is taken times a power of two. Integers are not scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conversion {
    /// The type before.
    pub from: DType,
    /// The type afterwards.
    pub to: DType,
    /// The power's exponent.
    pub exponent: i32,
}
