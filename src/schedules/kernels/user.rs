//! A user's reduction function, called on stretches of elements.

use super::environment::Usual;
use crate::types::DType;
use std::ffi::c_void;

/// The function as C has it: `inout[i] = in[i] op inout[i]` for `count` elements of type `dtype`; `ctx` is the user's
/// own.
pub type Function =
    unsafe extern "C" fn(r#in: *const c_void, inout: *mut c_void, count: usize, dtype: i32, ctx: *mut c_void);

/// A function with its context.
#[derive(Clone, Copy, Debug)]
pub struct UserFunction {
    function: Function,
    ctx: *mut c_void,
}

// SAFETY: the maker of a `User` promises (`new`) that the function may be called from any thread.
unsafe impl Send for UserFunction {}
// SAFETY: as above.
unsafe impl Sync for UserFunction {}

impl UserFunction {
    /// A function, and the context with which it is called.
    ///
    /// # Safety
    /// For as long as any copy of this is used, `function` may be called with `ctx` from any thread, by
    /// several at a time. It does what [`Function`] says and nothing else. It does not unwind.
    pub unsafe fn new(function: Function, ctx: *mut c_void) -> UserFunction {
        UserFunction { function, ctx }
    }

    /// Computes `out[i] = lower[i] op higher[i]` for `count` elements.
    ///
    /// # Safety
    /// `lower` and `higher` must be readable and `out` writable for `count` elements of `dtype`; `out` must be exactly
    /// `lower`, exactly `higher`, or overlap neither. If it is `lower`, `higher` must be writable, too: it is lost.
    pub unsafe fn reduce(&self, dtype: DType, lower: *const u8, higher: *mut u8, out: *mut u8, count: usize) {
        if count == 0 {
            return;
        }
        let bytes = count * dtype.size();
        // The function writes over its higher operand.
        let inout = if out.cast_const() == lower { higher } else { out };
        if inout != higher {
            // SAFETY: both are good for `count` elements and apart, as the caller promised.
            unsafe { std::ptr::copy_nonoverlapping(higher.cast_const(), inout, bytes) };
        }
        // Another thread, with another environment, may carry out the next stretch, or the same call on another rank.
        let usual = Usual::enter();
        // SAFETY: the operands are as the caller promised, and `new`'s caller vouches for the function.
        unsafe { (self.function)(lower.cast(), inout.cast(), count, dtype.code(), self.ctx) };
        drop(usual);
        if inout != out {
            // SAFETY: `out` is the lower operand, which is apart from the higher one, as the caller promised.
            unsafe { std::ptr::copy_nonoverlapping(inout.cast_const(), out, bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `inout = in - 2 inout`: neither commutative nor associative.
    // SAFETY: (contract) the test gives slices of `count` numbers, and a counter as the context.
    unsafe extern "C" fn odd(r#in: *const c_void, inout: *mut c_void, count: usize, dtype: i32, ctx: *mut c_void) {
        assert_eq!(dtype, DType::Int32.code());
        for at in 0..count {
            // SAFETY: the test gives slices of `count` numbers, and a counter as the context.
            unsafe {
                let (lower, higher) = (r#in.cast::<i32>().add(at), inout.cast::<i32>().add(at));
                *higher = (*lower).wrapping_sub((*higher).wrapping_mul(2));
                *ctx.cast::<usize>() += 1;
            }
        }
    }

    #[test]
    fn operands_keep_their_sides_wherever_the_result_goes() {
        let mut calls = 0usize;
        // SAFETY: `odd` may be called so; `calls` outlives it.
        let function = unsafe { UserFunction::new(odd, std::ptr::from_mut(&mut calls).cast()) };
        for count in [0usize, 1, 7, 50_000] {
            let lower: Vec<i32> = (0..count as i32).collect();
            let higher: Vec<i32> = (0..count as i32).map(|at| at * 7 - 3).collect();
            let expected: Vec<i32> = lower.iter().zip(&higher).map(|(a, b)| a - 2 * b).collect();
            let (mut over_lower, mut over_higher, mut apart) = (lower.clone(), higher.clone(), vec![0; count]);
            let mut lost = higher.clone();
            let at = |list: &mut [i32]| list.as_mut_ptr().cast::<u8>();
            let (mut kept, mut read) = (higher.clone(), lower.clone());
            // SAFETY: all lists have `count` numbers.
            unsafe {
                let out = at(&mut over_lower);
                function.reduce(DType::Int32, out, at(&mut lost), out, count);
                let out = at(&mut over_higher);
                function.reduce(DType::Int32, at(&mut read), out, out, count);
                function.reduce(DType::Int32, at(&mut read), at(&mut kept), at(&mut apart), count);
            }
            assert!(over_lower == expected && over_higher == expected && apart == expected, "{count}");
            assert!(
                kept == higher && read == lower,
                "{count}: operands stay as they are where the result goes elsewhere"
            );
        }
        assert_eq!(calls, 3 * (1 + 7 + 50_000));
    }
}
