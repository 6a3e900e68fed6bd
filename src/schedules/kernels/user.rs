//! A user's reduction function, called on stretches of elements.

use crate::types::DType;
use std::ffi::c_void;

/// How much of a result is kept aside at most, where the function cannot write it in its place.
const ASIDE_BYTES: usize = 64 * 1024;

/// What C calls: `inout[i] = in[i] op inout[i]` for `count` elements of type `dtype`; `ctx` is the user's own.
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
    /// A function, and what it is called with.
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
    /// `lower`, exactly `higher`, or overlap neither.
    pub unsafe fn reduce(&self, dtype: DType, lower: *const u8, higher: *const u8, out: *mut u8, count: usize) {
        if count == 0 {
            return;
        }
        let size = dtype.size();
        if out.cast_const() != lower {
            if out.cast_const() != higher {
                // SAFETY: both are good for `count` elements and apart, as the caller promised.
                unsafe { std::ptr::copy_nonoverlapping(higher, out, count * size) };
            }
            // SAFETY: the operands are as the caller promised, and `new`'s caller vouches for the function.
            return unsafe { (self.function)(lower.cast(), out.cast(), count, dtype as i32, self.ctx) };
        }
        // The function writes over the higher operand, which is not ours to write: a copy of it is worked on.
        let most = ASIDE_BYTES / size;
        let mut aside = vec![0u64; (most.min(count) * size).div_ceil(8)]; // aligned for every element
        let aside: *mut u8 = aside.as_mut_ptr().cast();
        let mut done = 0;
        while done < count {
            let now = most.min(count - done);
            // SAFETY: `now` elements from `done` lie within all three, and `aside` holds as many; they are apart. The
            // function is called as its maker promised.
            unsafe {
                std::ptr::copy_nonoverlapping(higher.add(done * size), aside, now * size);
                (self.function)(lower.add(done * size).cast(), aside.cast(), now, dtype as i32, self.ctx);
                std::ptr::copy_nonoverlapping(aside, out.add(done * size), now * size);
            }
            done += now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `inout = in - 2 inout`: neither commutative nor associative.
    // SAFETY: (contract) the test gives slices of `count` numbers, and a counter as the context.
    unsafe extern "C" fn odd(r#in: *const c_void, inout: *mut c_void, count: usize, dtype: i32, ctx: *mut c_void) {
        assert_eq!(dtype, DType::Int32 as i32);
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
        for count in [0usize, 1, 7, 3 * ASIDE_BYTES / 4 + 5] {
            let lower: Vec<i32> = (0..count as i32).collect();
            let higher: Vec<i32> = (0..count as i32).map(|at| at * 7 - 3).collect();
            let expected: Vec<i32> = lower.iter().zip(&higher).map(|(a, b)| a - 2 * b).collect();
            let (mut over_lower, mut over_higher, mut apart) = (lower.clone(), higher.clone(), vec![0; count]);
            let at = |list: &[i32]| list.as_ptr().cast::<u8>();
            // SAFETY: all lists have `count` numbers.
            unsafe {
                let out = over_lower.as_mut_ptr().cast::<u8>();
                function.reduce(DType::Int32, out, at(&higher), out, count);
                let out = over_higher.as_mut_ptr().cast::<u8>();
                function.reduce(DType::Int32, at(&lower), out, out, count);
                function.reduce(DType::Int32, at(&lower), at(&higher), apart.as_mut_ptr().cast(), count);
            }
            assert!(over_lower == expected && over_higher == expected && apart == expected, "{count}");
        }
        assert_eq!(calls, 3 * (1 + 7 + 3 * ASIDE_BYTES / 4 + 5));
    }
}
