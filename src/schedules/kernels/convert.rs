//! Converts elements from one type to another: an average of narrow types needs that, both ways.

use super::half::{Bfloat16, Float16};
use crate::schedules::conversion::Conversion;
use crate::types::DType;

// SAFETY: (contract) as for `convert`.
#[inline(always)]
pub(super) unsafe fn convert_any(how: Conversion, from: *const u8, to: *mut u8, count: usize) {
    // The loop is written out for each pair of types: with a closure it would be up to the compiler to inline that, and loops with
    // calls in them do not vectorize.
    macro_rules! each {
        ($from:ty, $to:ty, |$value:ident| $converted:expr) => {{
            let (from, to) = (from.cast::<$from>(), to.cast::<$to>());
            for at in 0..count {
                // SAFETY: `at` is below `count`, for which the caller promised both to be good, with the types that it named;
                // unaligned access is asked for.
                unsafe {
                    let $value = from.add(at).read_unaligned();
                    to.add(at).write_unaligned($converted);
                }
            }
        }};
    }
    macro_rules! integers {
        ($from:ty, $to:ty) => {
            each!($from, $to, |value| value as $to)
        };
    }
    let factor = power_of_two(how.exponent);
    match (how.from, how.to) {
        (DType::Int8, DType::Int16) => integers!(i8, i16),
        (DType::Int8, DType::Int32) => integers!(i8, i32),
        (DType::Int16, DType::Int32) => integers!(i16, i32),
        (DType::Int16, DType::Int64) => integers!(i16, i64),
        (DType::Int32, DType::Int64) => integers!(i32, i64),
        (DType::Uint8, DType::Uint16) => integers!(u8, u16),
        (DType::Uint8, DType::Uint32) => integers!(u8, u32),
        (DType::Uint16, DType::Uint32) => integers!(u16, u32),
        (DType::Uint16, DType::Uint64) => integers!(u16, u64),
        (DType::Uint32, DType::Uint64) => integers!(u32, u64),
        (DType::Int16, DType::Int8) => integers!(i16, i8),
        (DType::Int32, DType::Int8) => integers!(i32, i8),
        (DType::Int32, DType::Int16) => integers!(i32, i16),
        (DType::Int64, DType::Int16) => integers!(i64, i16),
        (DType::Int64, DType::Int32) => integers!(i64, i32),
        (DType::Uint16, DType::Uint8) => integers!(u16, u8),
        (DType::Uint32, DType::Uint8) => integers!(u32, u8),
        (DType::Uint32, DType::Uint16) => integers!(u32, u16),
        (DType::Uint64, DType::Uint16) => integers!(u64, u16),
        (DType::Uint64, DType::Uint32) => integers!(u64, u32),
        (DType::Float16, DType::Float32) => each!(Float16, f32, |value| value.to_f32() * factor),
        (DType::Bfloat16, DType::Float32) => each!(Bfloat16, f32, |value| value.to_f32() * factor),
        (DType::Float32, DType::Float16) => each!(f32, Float16, |value| Float16::from_f32(value * factor)),
        (DType::Float32, DType::Bfloat16) => each!(f32, Bfloat16, |value| Bfloat16::from_f32(value * factor)),
        (from, to) => unreachable!("{from} never becomes {to}"),
    }
}

/// 2^exponent, which a float32 has as a normal number.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}
