//! Sums that are exact: the real sum of any number of elements, rounded once, to the nearest, ties to even.
//!
//! A float64 holds most sums of narrower types exactly: those whose elements lie within some 2^25 of each other. So elements
//! are summed in float64, and the error of each addition is looked at, which is known exactly. Where there was none, the sum
//! is exact, and is rounded to its type. A sum of float64 has a second float64, for the errors, whose own errors are looked
//! at. Elements whose sum fails in this way, and those that are not finite, are summed again, in a fixed-point number.
//!
//! A bfloat16 has 8 bits, so that even a float32 holds the sums of most: of those whose elements lie within some 2^15 of each other. A
//! chunk is tried in float32 first, of which a processor adds twice as many at a time.
//!
//! | elements | sum |
//! | --- | --- |
//! | one is NaN, or there are infinities of both signs | the canonical NaN |
//! | some are infinities of one sign | that infinity |
//! | none, or their sum is zero | +0; -0 if there are some and all are -0 |

use super::fixed_point::{FixedPoint, Rounding};
use super::half::{Bfloat16, Float16};
use std::ops::{Add, Sub};

/// How many elements are summed at a time: their sums stay in the cache.
const CHUNK: usize = 256;

/// A type whose elements can be summed exactly.
pub(super) trait Addend: Copy {
    /// Whether sums have a second float64.
    const HAS_ERRORS: bool;
    /// How a sum is rounded for [`Addend::narrow`], if it does not fit a float64.
    const ROUNDING: Rounding;
    fn widen(self) -> f64;
    /// A sum, rounded to the type. Any NaN becomes the canonical one.
    fn narrow(sum: f64) -> Self;
    /// How a chunk is tried in float32 first, if it is.
    const SHORT: Option<Short<Self>> = None;
}

/// How an element becomes a float32, and how a sum becomes an element.
pub(super) struct Short<T> {
    widen: fn(T) -> f32,
    narrow: fn(f32) -> T,
}

impl Addend for f64 {
    const HAS_ERRORS: bool = true;
    const ROUNDING: Rounding = Rounding::Nearest;
    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }
    #[inline(always)]
    fn narrow(sum: f64) -> f64 {
        f64::from_bits(if sum.is_nan() { 0x7ff8_0000_0000_0000 } else { sum.to_bits() })
    }
}

impl Addend for f32 {
    const HAS_ERRORS: bool = false;
    const ROUNDING: Rounding = Rounding::Odd;
    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn narrow(sum: f64) -> f32 {
        f32::from_bits(if sum.is_nan() { 0x7fc0_0000 } else { (sum as f32).to_bits() })
    }
}

impl Addend for Bfloat16 {
    const HAS_ERRORS: bool = false;
    const ROUNDING: Rounding = Rounding::Odd;
    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self.to_f32())
    }
    #[inline(always)]
    fn narrow(sum: f64) -> Bfloat16 {
        Bfloat16::from_f32(to_odd_f32(sum))
    }
    const SHORT: Option<Short<Bfloat16>> = Some(Short { widen: Bfloat16::to_f32, narrow: Bfloat16::from_f32 });
}

impl Addend for Float16 {
    const HAS_ERRORS: bool = false;
    const ROUNDING: Rounding = Rounding::Odd;
    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self.to_f32())
    }
    #[inline(always)]
    fn narrow(sum: f64) -> Float16 {
        Float16::from_f32(to_odd_f32(sum))
    }
}

/// A sum of halves as a float32, which is rounded again: the 29 bits that do not fit make the lowest that does a 1. (Sums so
/// small that a float32 has fewer bits for them have no more than those: they are multiples of the smallest half.)
#[inline(always)]
fn to_odd_f32(sum: f64) -> f32 {
    let (bits, below) = (sum.to_bits(), (1u64 << 29) - 1);
    let odd = (bits & !below) | (((bits & below) + below) & (1 << 29));
    f64::from_bits(if sum.is_finite() { odd } else { bits }) as f32
}

/// The rounded sum of two numbers, and what was rounded away, which is such a number itself; NaN if something is not finite.
#[inline(always)]
fn two_sum<F: Copy + Add<Output = F> + Sub<Output = F>>(one: F, other: F) -> (F, F) {
    let sum = one + other;
    let of_other = sum - one;
    let of_one = sum - of_other;
    (sum, (one - of_one) + (other - of_other))
}

/// The sums of a chunk.
struct Sums {
    sums: [f64; CHUNK],
    errors: [f64; CHUNK],
    /// The bits of all that was rounded away: for each sum if that is asked for, otherwise of all together in the first
    /// place.
    lost: [u64; CHUNK],
}

impl Sums {
    const ZERO: Sums = Sums { sums: [0.0; CHUNK], errors: [0.0; CHUNK], lost: [0; CHUNK] };

    /// Begins the sums with `count` elements.
    // SAFETY: (contract) as for `add`.
    #[inline(always)]
    unsafe fn begin<T: Addend, const EACH: bool>(&mut self, from: *const T, count: usize) {
        let mut all = 0;
        for at in 0..count {
            // SAFETY: as promised by the caller.
            let value = unsafe { from.add(at).read_unaligned() }.widen();
            (self.sums[at], self.errors[at]) = (value, 0.0);
            let lost = (value * 0.0).to_bits(); // NaN where it is not finite, else a zero
            if EACH {
                self.lost[at] = lost;
            } else {
                all |= lost;
            }
        }
        if !EACH {
            self.lost[0] = all;
        }
    }

    /// Adds `count` elements.
    // SAFETY: (contract) `from` is readable for `count` elements, which are CHUNK at most; it need not be aligned.
    #[inline(always)]
    unsafe fn add<T: Addend, const EACH: bool>(&mut self, from: *const T, count: usize) {
        let mut all = 0;
        for at in 0..count {
            // SAFETY: as promised by the caller.
            let value = unsafe { from.add(at).read_unaligned() }.widen();
            let (sum, mut error) = two_sum(self.sums[at], value);
            self.sums[at] = sum;
            if T::HAS_ERRORS {
                (self.errors[at], error) = two_sum(self.errors[at], error);
            }
            if EACH {
                self.lost[at] |= error.to_bits();
            } else {
                all |= error.to_bits();
            }
        }
        if !EACH {
            self.lost[0] |= all;
        }
    }

    /// Adds `count` elements of all vectors.
    // SAFETY: (contract) as for `add`, of each vector.
    #[inline(always)]
    unsafe fn add_all<T: Addend, const EACH: bool>(
        &mut self,
        vectors: usize,
        from: impl Fn(usize) -> *const T,
        count: usize,
    ) {
        // SAFETY: as promised by the caller.
        unsafe {
            match vectors {
                0 => *self = Sums::ZERO,
                _ => self.begin::<T, EACH>(from(0), count),
            }
            // A loop, and no closure, which might be compiled for another processor than its caller.
            for vector in 1..vectors {
                self.add::<T, EACH>(from(vector), count);
            }
        }
    }

    /// Writes the results of `count` sums, if they are exact.
    // SAFETY: (contract) `out` is writable for `count` elements, which are CHUNK at most; it need not be aligned.
    #[inline(always)]
    unsafe fn write<T: Addend>(&self, out: *mut T, count: usize) {
        for at in 0..count {
            let (sum, errors) = (self.sums[at], self.errors[at]);
            // A sum of -0 has no errors, and stays.
            let sum = if T::HAS_ERRORS && errors != 0.0 { sum + errors } else { sum };
            // SAFETY: as promised by the caller.
            unsafe { out.add(at).write_unaligned(T::narrow(sum)) };
        }
    }
}

/// Whether these bits are those of zeros, of either sign: nothing was lost.
#[inline(always)]
fn is_nothing(lost: u64) -> bool {
    lost << 1 == 0
}

/// Sums up to CHUNK elements in float32, and writes what they come to. Returns whether all are exact; nothing is written otherwise.
// SAFETY: (contract) each vector is readable and `out` writable for `count` elements, which are CHUNK at most.
#[inline(always)]
unsafe fn sum_short<T: Addend>(
    short: &Short<T>,
    vectors: usize,
    from: impl Fn(usize) -> *const T,
    out: *mut T,
    count: usize,
) -> bool {
    let (mut sums, mut lost) = ([0f32; CHUNK], 0);
    for vector in 0..vectors {
        let from = from(vector);
        for (at, sum) in sums[..count].iter_mut().enumerate() {
            // SAFETY: as promised by the caller.
            let value = (short.widen)(unsafe { from.add(at).read_unaligned() });
            // A zero before the first element would make +0 of -0.
            let (new, error) = if vector == 0 { (value, value * 0.0) } else { two_sum(*sum, value) };
            *sum = new;
            lost |= error.to_bits() << 1;
        }
    }
    if lost != 0 {
        return false;
    }
    for (at, sum) in sums[..count].iter().enumerate() {
        // SAFETY: as promised by the caller.
        unsafe { out.add(at).write_unaligned((short.narrow)(*sum)) };
    }
    true
}

// SAFETY: (contract) as for `sum_exact`, with elements T.
#[inline(always)]
pub(super) unsafe fn sum_exact_as<T: Addend>(
    vectors: usize,
    vector: &dyn Fn(usize) -> *const u8,
    out: *mut u8,
    count: usize,
) {
    let out = out.cast::<T>();
    let mut sums = Sums::ZERO;
    let mut done = 0;
    while done < count {
        let chunk = CHUNK.min(count - done);
        // SAFETY: the chunk from `done` on lies below `count`, for which the caller promised all vectors and `out` to be good.
        // All of a chunk is read before `out`, which may be one of the vectors, is written.
        unsafe {
            let from = |index: usize| vector(index).cast::<T>().add(done);
            // No closure, as in `add_all`.
            if let Some(short) = &T::SHORT {
                if sum_short(short, vectors, from, out.add(done), chunk) {
                    done += chunk;
                    continue;
                }
            }
            sums.add_all::<T, false>(vectors, from, chunk);
            if !is_nothing(sums.lost[0]) {
                sums.add_all::<T, true>(vectors, from, chunk);
                sums.settle(vectors, &|index, at| from(index).add(at).read_unaligned(), chunk);
            }
            sums.write(out.add(done), chunk);
        }
        done += chunk;
    }
}

impl Sums {
    /// Sums again the elements of each sum in which something was lost.
    #[inline(never)]
    fn settle<T: Addend>(&mut self, vectors: usize, element: &dyn Fn(usize, usize) -> T, count: usize) {
        for at in 0..count {
            // Narrower elements do not overflow: a sum of them that is not finite is what it should be.
            let is_right = is_nothing(self.lost[at]) || (!T::HAS_ERRORS && !self.sums[at].is_finite());
            if !is_right {
                let sum = slowly(vectors, &|index| element(index, at).widen(), T::ROUNDING);
                (self.sums[at], self.errors[at]) = (sum, 0.0);
            }
        }
    }
}

/// One sum of any elements.
fn slowly(count: usize, element: &impl Fn(usize) -> f64, rounding: Rounding) -> f64 {
    let mut sum = FixedPoint::new();
    let (mut infinities, mut is_finite) = (0.0, true);
    for value in (0..count).map(element) {
        if value.is_finite() {
            sum.add(value);
        } else {
            (infinities, is_finite) = (infinities + value, false); // NaN if one is, or if signs differ
        }
    }
    if is_finite {
        sum.rounded(rounding)
    } else {
        infinities
    }
}
