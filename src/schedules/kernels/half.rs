//! The 16-bit floats: stored as they travel, computed as float32. Conversions choose between values instead of
//! branching.

use super::element::Element;
#[cfg(target_arch = "x86_64")]
use super::element::{ElementOperation, Max, Min, Prod, Sum};
#[cfg(target_arch = "x86_64")]
use crate::types::ReduceOp;

/// IEEE 754 binary16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Float16(pub u16);

/// The upper half of a float32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Bfloat16(pub u16);

impl Bfloat16 {
    #[inline(always)]
    pub(super) fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// Rounds to the nearest, ties to even; every NaN becomes the canonical one.
    #[inline(always)]
    pub(super) fn from_f32(value: f32) -> Bfloat16 {
        let bits = value.to_bits();
        // A carry out of the fraction rightly raises the exponent, up to infinity. It wraps for some NaNs, replaced
        // below.
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        Bfloat16(if value.is_nan() { 0x7fc0 } else { rounded } as u16)
    }
}

impl Float16 {
    #[inline(always)]
    pub(super) fn to_f32(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let magnitude = u32::from(self.0 & 0x7fff);
        let normal = (magnitude << 13) + (112 << 23);
        // A subnormal counts in units of 2^-24. (To scale it as a float32 would go through subnormals there, which
        // are slow.)
        let subnormal = (magnitude as i32 as f32 * (1.0 / 16_777_216.0)).to_bits();
        let finite = if magnitude < 0x400 { subnormal } else { normal };
        let special = magnitude << 13 | 0x7f80_0000;
        f32::from_bits(sign | if magnitude >= 0x7c00 { special } else { finite })
    }

    /// Rounds to the nearest, ties to even; every NaN becomes the canonical one.
    #[inline(always)]
    pub(super) fn from_f32(value: f32) -> Float16 {
        let sign = value.to_bits() >> 16 & 0x8000;
        let magnitude = value.to_bits() & 0x7fff_ffff;
        // Normal: the exponent falls by 112, the lowest 13 bits are rounded away. A carry rightly raises the exponent.
        let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
        // Subnormal: in a sum with one half the last bit is worth 2^-24, so that the processor rounds in the right
        // place.
        let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let finite = if magnitude < 113 << 23 { subnormal } else { normal };
        // From 65520 on, halfway between the largest and what would follow it, it is infinity.
        let rounded = if magnitude >= 0x477f_f000 { 0x7c00 } else { finite };
        Float16(if magnitude > 0x7f80_0000 { 0x7e00 } else { sign | rounded } as u16)
    }
}

macro_rules! through_f32 {
    ($type:ty) => {
        impl Element for $type {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                Self::from_f32(self.to_f32() + other.to_f32())
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                Self::from_f32(self.to_f32() * other.to_f32())
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                Self::from_f32(Element::min(self.to_f32(), other.to_f32()))
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Self::from_f32(Element::max(self.to_f32(), other.to_f32()))
            }
            #[inline(always)]
            fn divide(self, by: u32) -> Self {
                Self::from_f32(self.to_f32() / by as f32)
            }
        }
    };
}

through_f32!(Float16);
through_f32!(Bfloat16);

/// `combine` for float16 with the processor's own conversions, which give the same bits. A sum, product, minimum or
/// maximum of float32 that is NaN is the canonical one, and so becomes the canonical float16.
// SAFETY: (contract) as for `reduce_any`; and the processor has AVX2 and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn reduce_f16c(
    op: ReduceOp,
    lower: *const Float16,
    higher: *const Float16,
    out: *mut Float16,
    count: usize,
) {
    // SAFETY: the caller's promise is handed on unchanged.
    unsafe {
        match op {
            ReduceOp::Sum | ReduceOp::Avg => combine_f16c::<Sum>(lower, higher, out, count),
            ReduceOp::Prod => combine_f16c::<Prod>(lower, higher, out, count),
            ReduceOp::Min => combine_f16c::<Min>(lower, higher, out, count),
            ReduceOp::Max => combine_f16c::<Max>(lower, higher, out, count),
            _ => {
                unreachable!("{op} is for integers, or called elsewhere")
            }
        }
    }
}

/// How many elements are converted to float32 at a time: a loop that is long enough to be vectorized, and whose values
/// stay in the cache.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 64;

// SAFETY: (contract) as for `reduce_f16c`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn combine_f16c<O: ElementOperation<f32>>(
    lower: *const Float16,
    higher: *const Float16,
    out: *mut Float16,
    count: usize,
) {
    let whole = count - count % BLOCK;
    let mut at = 0;
    while at < whole {
        // SAFETY: a block from `at` on lies below `count`.
        unsafe { combine_block::<O>(lower.add(at), higher.add(at), out.add(at)) };
        at += BLOCK;
    }
    let (mut one, mut other, bytes) =
        ([Float16(0); BLOCK], [Float16(0); BLOCK], size_of::<Float16>() * (count - whole));
    // SAFETY: what is left lies below `count`, and is less than a block; the arrays are apart from all else. They are copied as
    // bytes, for nothing need be aligned.
    unsafe {
        lower.add(whole).cast::<u8>().copy_to_nonoverlapping(one.as_mut_ptr().cast(), bytes);
        higher.add(whole).cast::<u8>().copy_to_nonoverlapping(other.as_mut_ptr().cast(), bytes);
        let result = one.as_mut_ptr();
        combine_block::<O>(result, other.as_ptr(), result);
        result.cast::<u8>().copy_to_nonoverlapping(out.add(whole).cast(), bytes);
    }
}

// SAFETY: (contract) as for `reduce_f16c`, with BLOCK elements.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn combine_block<O: ElementOperation<f32>>(lower: *const Float16, higher: *const Float16, out: *mut Float16) {
    use std::arch::x86_64::{_mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_loadu_ps, _mm256_storeu_ps};
    use std::arch::x86_64::{_mm_loadu_si128, _mm_storeu_si128, _MM_FROUND_TO_NEAREST_INT};
    let (mut one, mut other) = ([0f32; BLOCK], [0f32; BLOCK]);
    let mut at = 0;
    while at < BLOCK {
        // SAFETY: eight elements from `at` on lie within the block; all are read before `out`, which may be one of them, is
        // written.
        unsafe {
            _mm256_storeu_ps(one.as_mut_ptr().add(at), _mm256_cvtph_ps(_mm_loadu_si128(lower.add(at).cast())));
            _mm256_storeu_ps(other.as_mut_ptr().add(at), _mm256_cvtph_ps(_mm_loadu_si128(higher.add(at).cast())));
        }
        at += 8;
    }
    for lane in 0..BLOCK {
        one[lane] = O::of(one[lane], other[lane]);
    }
    at = 0;
    while at < BLOCK {
        // SAFETY: as above.
        unsafe {
            let result = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(one.as_ptr().add(at)));
            _mm_storeu_si128(out.add(at).cast(), result);
        }
        at += 8;
    }
}
