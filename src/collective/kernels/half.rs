//! The 16-bit floats: stored as they travel, computed as float32. Conversions choose between values instead of branching.

use super::element::Element;

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

    /// To the nearest, ties to even; every NaN becomes the canonical one.
    #[inline(always)]
    pub(super) fn from_f32(value: f32) -> Bfloat16 {
        let bits = value.to_bits();
        // A carry out of the fraction rightly raises the exponent, up to infinity. It wraps for some NaNs, replaced below.
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        Bfloat16(if value.is_nan() { 0x7fc0 } else { rounded } as u16)
    }
}

/// 2^112: what lies between the exponents of float16 and of float32.
const SCALE: f32 = (1u128 << 112) as f32;

impl Float16 {
    #[inline(always)]
    pub(super) fn to_f32(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let magnitude = u32::from(self.0 & 0x7fff);
        // Moved into place the exponent is 112 too low; the product mends that, for subnormals too, and is exact.
        let finite = (f32::from_bits(magnitude << 13) * SCALE).to_bits();
        let special = magnitude << 13 | 0x7f80_0000;
        f32::from_bits(sign | if magnitude >= 0x7c00 { special } else { finite })
    }

    /// To the nearest, ties to even; every NaN becomes the canonical one.
    #[inline(always)]
    pub(super) fn from_f32(value: f32) -> Float16 {
        let sign = value.to_bits() >> 16 & 0x8000;
        let magnitude = value.to_bits() & 0x7fff_ffff;
        // Normal: the exponent falls by 112, the lowest 13 bits are rounded away. A carry rightly raises the exponent.
        let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
        // Subnormal: in a sum with one half the last bit is worth 2^-24, so that the processor rounds in the right place.
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
