//! The arithmetic: combines two blocks of elements, divides one, and converts elements to another type. Sums any number
//! of blocks exactly.
//!
//! Results are the same bits on every processor and in every order of operands. Integers wrap. Halves are computed in
//! float32 and rounded once, to the nearest, ties to even. NaN propagates, through minimum and maximum too, and every
//! NaN that is computed is the one canonical quiet NaN. The minimum of the two zeros is -0, their maximum +0. A caller's own
//! floating-point environment changes nothing (`environment.rs`).
//!
//! The loops are plain Rust that the compiler vectorizes. They are compiled twice, for what every processor has and
//! for AVX2. What this processor has decides which is run.
//!
//! A user's function is called by `user.rs`. Not here: the check that pointers are good. Tested in `kernels_test.rs`.

mod convert;
mod element;
mod environment;
mod exact;
#[cfg(test)]
mod exact_test;
mod fixed_point;
mod half;
#[cfg(test)]
#[path = "kernels_test.rs"]
mod tests;
mod user;

pub use user::{Function, UserFunction};

use super::conversion::Conversion;
use crate::types::{DType, ReduceOp};
use convert::convert_any;
use element::{And, Element, ElementOperation, Max, Min, Or, Prod, Sum, Xor};
use environment::Usual;
use exact::sum_exact_as;
use half::{Bfloat16, Float16};

/// Computes `out[i] = op(lower[i], higher[i])` for `count` elements. An average is summed here; [`divide`] ends it.
///
/// # Safety
/// `lower` and `higher` must be readable and `out` writable for `count` elements of `dtype`; `out` must be exactly
/// `lower`, exactly `higher`, or overlap neither. Nothing need be aligned.
pub unsafe fn reduce(op: ReduceOp, dtype: DType, lower: *const u8, higher: *const u8, out: *mut u8, count: usize) {
    let _usual = Usual::enter();
    // Every operation gives the same bits either way round, so that a loop for `out` = `lower` does for both.
    let (lower, higher) = if higher == out.cast_const() { (higher, lower) } else { (lower, higher) };
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        if dtype == DType::Float16 && std::arch::is_x86_feature_detected!("f16c") {
            // SAFETY: the processor has AVX2 and F16C; the pointers are as the caller promised, and exchanging two
            // keeps that true.
            return unsafe { half::reduce_f16c(op, lower.cast(), higher.cast(), out.cast(), count) };
        }
        // SAFETY: the processor has AVX2; the pointers are as the caller promised, and exchanging two keeps that true.
        return unsafe { reduce_avx2(op, dtype, lower, higher, out, count) };
    }
    // SAFETY: the pointers are as the caller promised, and exchanging two keeps that true.
    unsafe { reduce_any(op, dtype, lower, higher, out, count) }
}

/// Divides `count` elements by `by`, which is not zero: integers toward zero.
///
/// # Safety
/// `data` must be readable and writable for `count` elements of `dtype`. It need not be aligned.
pub unsafe fn divide(dtype: DType, data: *mut u8, count: usize, by: u32) {
    let _usual = Usual::enter();
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2; the pointer is as the caller promised.
        return unsafe { divide_avx2(dtype, data, count, by) };
    }
    // SAFETY: the pointer is as the caller promised.
    unsafe { divide_any(dtype, data, count, by) }
}

/// Makes `count` elements of one type into those of another, and takes them times a power of two where the wider of the two is
/// a float. An integer that does not fit the other type loses its highest bits.
///
/// # Safety
/// `from` must be readable and `to` writable for `count` elements of their types, and the two must not overlap. Neither need be
/// aligned.
pub unsafe fn convert(how: Conversion, from: *const u8, to: *mut u8, count: usize) {
    let _usual = Usual::enter();
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2; the pointers are as the caller promised.
        return unsafe { convert_avx2(how, from, to, count) };
    }
    // SAFETY: the pointers are as the caller promised.
    unsafe { convert_any(how, from, to, count) }
}

/// Computes the exact sum of the elements at each of `count` places of so many vectors, rounded once. `vector` says where each
/// begins. What is summed need not lie together, and need not be memory of one kind. No vectors give zeros.
///
/// # Safety
/// `dtype` is a float. Each vector must be readable and `out` writable for `count` elements of it; `out` must be exactly one of
/// the vectors, or overlap none. Nothing need be aligned.
pub unsafe fn sum_exact(dtype: DType, vectors: usize, vector: &dyn Fn(usize) -> *const u8, out: *mut u8, count: usize) {
    let _usual = Usual::enter();
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2; the pointers are as the caller promised.
        return unsafe { sum_exact_avx2(dtype, vectors, vector, out, count) };
    }
    // SAFETY: the pointers are as the caller promised.
    unsafe { sum_exact_any(dtype, vectors, vector, out, count) }
}

/// The exact sums of slices' elements, for tests.
#[cfg(test)]
pub(super) fn sum_exact_slices(dtype: DType, vectors: &[&[u8]], out: &mut [u8]) {
    assert!(vectors.iter().all(|vector| vector.len() == out.len()), "vectors of {dtype} must be equally long");
    // SAFETY: all hold as many elements, and are apart.
    unsafe { sum_exact(dtype, vectors.len(), &|at| vectors[at].as_ptr(), out.as_mut_ptr(), out.len() / dtype.size()) };
}

/// Converts the elements of a slice, for tests.
#[cfg(test)]
pub(super) fn convert_slice(how: Conversion, from: &[u8], to: &mut [u8]) {
    let count = from.len() / how.from.size();
    assert!(from.len() == count * how.from.size() && to.len() == count * how.to.size(), "as many elements");
    // SAFETY: both slices hold that many elements, and are apart.
    unsafe { convert(how, from.as_ptr(), to.as_mut_ptr(), count) };
}

/// Combines `other` into `mine`, for tests that have no use for pointers.
#[cfg(test)]
pub(super) fn reduce_slices(op: ReduceOp, dtype: DType, mine: &mut [u8], other: &[u8], other_lower: bool) {
    assert!(
        mine.len() == other.len() && mine.len().is_multiple_of(dtype.size()),
        "operands of {dtype} must be equally long"
    );
    let (out, other, count) = (mine.as_mut_ptr(), other.as_ptr(), mine.len() / dtype.size());
    let (lower, higher) = if other_lower { (other, out.cast_const()) } else { (out.cast_const(), other) };
    // SAFETY: both slices hold `count` elements, and `out` is one of the operands.
    unsafe { reduce(op, dtype, lower, higher, out, count) };
}

/// Divides the elements of a slice, for tests.
#[cfg(test)]
pub(super) fn divide_slice(dtype: DType, data: &mut [u8], by: u32) {
    // SAFETY: the slice holds that many elements.
    unsafe { divide(dtype, data.as_mut_ptr(), data.len() / dtype.size(), by) };
}

/// Calls a function once for the Rust type that stands for an element type; after it may come other types that it is for.
macro_rules! for_dtype {
    ($dtype:expr, $function:ident[$($more:ty),*]($($argument:expr),*)) => {
        match $dtype {
            DType::Int8 => $function::<i8 $(, $more)*>($($argument),*),
            DType::Int16 => $function::<i16 $(, $more)*>($($argument),*),
            DType::Int32 => $function::<i32 $(, $more)*>($($argument),*),
            DType::Int64 => $function::<i64 $(, $more)*>($($argument),*),
            dtype => for_wrapping_dtype!(dtype, $function[$($more),*]($($argument),*)),
        }
    };
}

/// Does what `for_dtype` does, if a signed integer gives the same bits as an unsigned one: so there are fewer loops.
macro_rules! for_wrapping_dtype {
    ($dtype:expr, $function:ident[$($more:ty),*]($($argument:expr),*)) => {
        match $dtype {
            DType::Int8 | DType::Uint8 => $function::<u8 $(, $more)*>($($argument),*),
            DType::Int16 | DType::Uint16 => $function::<u16 $(, $more)*>($($argument),*),
            DType::Int32 | DType::Uint32 => $function::<u32 $(, $more)*>($($argument),*),
            DType::Int64 | DType::Uint64 => $function::<u64 $(, $more)*>($($argument),*),
            DType::Float16 => $function::<Float16 $(, $more)*>($($argument),*),
            DType::Bfloat16 => $function::<Bfloat16 $(, $more)*>($($argument),*),
            DType::Float32 => $function::<f32 $(, $more)*>($($argument),*),
            DType::Float64 => $function::<f64 $(, $more)*>($($argument),*),
            DType::Element(_) => unreachable!("only users' functions combine elements of the caller's own"),
        }
    };
}

// SAFETY: (contract) as for `reduce`, with `out` not `higher` unless it is `lower` too; and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn reduce_avx2(op: ReduceOp, dtype: DType, lower: *const u8, higher: *const u8, out: *mut u8, count: usize) {
    // SAFETY: the caller's promise is handed on unchanged.
    unsafe { reduce_any(op, dtype, lower, higher, out, count) }
}

// SAFETY: (contract) as for `divide`; and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn divide_avx2(dtype: DType, data: *mut u8, count: usize, by: u32) {
    // SAFETY: the caller's promise is handed on unchanged.
    unsafe { divide_any(dtype, data, count, by) }
}

// SAFETY: (contract) as for `convert`; and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn convert_avx2(how: Conversion, from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: the caller's promise is handed on unchanged.
    unsafe { convert_any(how, from, to, count) }
}

// SAFETY: (contract) as for `sum_exact`; and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn sum_exact_avx2(
    dtype: DType,
    vectors: usize,
    vector: &dyn Fn(usize) -> *const u8,
    out: *mut u8,
    count: usize,
) {
    // SAFETY: the caller's promise is handed on unchanged.
    unsafe { sum_exact_any(dtype, vectors, vector, out, count) }
}

// SAFETY: (contract) as for `sum_exact`.
#[inline(always)]
unsafe fn sum_exact_any(dtype: DType, vectors: usize, vector: &dyn Fn(usize) -> *const u8, out: *mut u8, count: usize) {
    // SAFETY: the caller's promise is handed on unchanged.
    unsafe {
        match dtype {
            DType::Float16 => sum_exact_as::<Float16>(vectors, vector, out, count),
            DType::Bfloat16 => sum_exact_as::<Bfloat16>(vectors, vector, out, count),
            DType::Float32 => sum_exact_as::<f32>(vectors, vector, out, count),
            DType::Float64 => sum_exact_as::<f64>(vectors, vector, out, count),
            _ => unreachable!("{dtype} is no float: the caller has seen to that"),
        }
    }
}

// Inlined, as is all below it, so that each of its callers is compiled for its own instructions.
// SAFETY: (contract) as for `reduce`, with `out` not `higher` unless it is `lower` too.
#[inline(always)]
unsafe fn reduce_any(op: ReduceOp, dtype: DType, lower: *const u8, higher: *const u8, out: *mut u8, count: usize) {
    let bytes = count * dtype.size();
    // SAFETY: the caller's promise is handed on unchanged; so many bytes are as many elements.
    unsafe {
        match op {
            ReduceOp::Sum | ReduceOp::Avg => for_wrapping_dtype!(dtype, combine[Sum](lower, higher, out, count)),
            ReduceOp::Prod => for_wrapping_dtype!(dtype, combine[Prod](lower, higher, out, count)),
            ReduceOp::Min => for_dtype!(dtype, combine[Min](lower, higher, out, count)),
            ReduceOp::Max => for_dtype!(dtype, combine[Max](lower, higher, out, count)),
            // This is for integers only: the caller has seen to that. Bits know no type.
            ReduceOp::And => combine::<u8, And>(lower, higher, out, bytes),
            ReduceOp::Or => combine::<u8, Or>(lower, higher, out, bytes),
            ReduceOp::Xor => combine::<u8, Xor>(lower, higher, out, bytes),
            ReduceOp::SumExact | ReduceOp::SumOfAddends => unreachable!("{op} combines all operands at once"),
            ReduceOp::User { .. } | ReduceOp::Given { .. } => unreachable!("a user's function is called elsewhere"),
        }
    }
}

// The in-place case has a loop of its own: one loop for both would be compiled with a check that sends the first to
// slow code. SAFETY: (contract) as for `reduce_any`, with `count` elements T.
#[inline(always)]
unsafe fn combine<T: Copy, O: ElementOperation<T>>(lower: *const u8, higher: *const u8, out: *mut u8, count: usize) {
    let (lower, higher, out) = (lower.cast::<T>(), higher.cast::<T>(), out.cast::<T>());
    if out.cast_const() == lower {
        for at in 0..count {
            // SAFETY: `at` is below `count`, for which the caller promised both to be good; unaligned access is asked
            // for.
            unsafe {
                out.add(at).write_unaligned(O::of(out.add(at).read_unaligned(), higher.add(at).read_unaligned()))
            };
        }
        return;
    }
    for at in 0..count {
        // SAFETY: `at` is below `count`, for which the caller promised all three to be good; unaligned access is
        // asked for.
        unsafe { out.add(at).write_unaligned(O::of(lower.add(at).read_unaligned(), higher.add(at).read_unaligned())) };
    }
}

// SAFETY: (contract) as for `divide`.
#[inline(always)]
unsafe fn divide_any(dtype: DType, data: *mut u8, count: usize, by: u32) {
    // SAFETY: the caller's promise is handed on unchanged.
    unsafe { for_dtype!(dtype, divide_as[](data.cast(), count, by)) }
}

// SAFETY: (contract) as for `divide`, with T as `dtype`.
#[inline(always)]
unsafe fn divide_as<T: Element>(data: *mut T, count: usize, by: u32) {
    for at in 0..count {
        // SAFETY: `at` is below `count`, for which the caller promised `data` to be good; unaligned access is asked
        // for.
        unsafe { data.add(at).write_unaligned(data.add(at).read_unaligned().divide(by)) };
    }
}
