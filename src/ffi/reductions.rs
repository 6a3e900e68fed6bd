//! The reductions whose function comes with the call, and the exact sum of addends, blocking and not.

use super::calls;
use super::collectives::run;
use super::constants::muster_status_t;
use super::handles::muster_group_t;
use super::nonblocking::start;
use super::operation::muster_reduce_fn;
use super::prepare::Operator;
use super::request::muster_request_t;
use std::ffi::c_void;

/// muster_allreduce by a function that comes with the call, in place of an operation that was made before.
///
/// `fn` and `ctx` are as for muster_op_create, and are used until this returns. `commutative` is 1 if operands may be
/// exchanged, 0 if not; then contributions are folded in order of rank. All ranks pass the same count, element type
/// and `commutative`, or the call ends with MUSTER_ERR_MISMATCH. Nobody can check that their functions do the same.
/// If one rank calls muster_allreduce instead, with any operation, the call ends with MUSTER_ERR_MISMATCH, too.
/// `dtype` may be an element of the caller's own (MUSTER_ELEMENT). MUSTER_ERR_INVALID if `fn` is NULL, or
/// `commutative` neither 0 nor 1.
///
/// # Safety
/// As for muster_allreduce; `fn` and `ctx` must be good until this returns.
#[no_mangle]
pub unsafe extern "C" fn muster_allreduce_with(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    r#fn: muster_reduce_fn,
    ctx: *mut c_void,
    commutative: i32,
) -> muster_status_t {
    let op = Operator::Given(r#fn, ctx, commutative);
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::allreduce(group, r#in, out, count, (dtype, op))) }
}

/// muster_reduce by a function that comes with the call, as muster_allreduce_with.
///
/// # Safety
/// As for muster_reduce; `fn` and `ctx` must be good until this returns.
#[no_mangle]
pub unsafe extern "C" fn muster_reduce_with(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    r#fn: muster_reduce_fn,
    ctx: *mut c_void,
    commutative: i32,
    root: i32,
) -> muster_status_t {
    let op = Operator::Given(r#fn, ctx, commutative);
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::reduce(group, r#in, out, count, (dtype, op), root)) }
}

/// muster_reduce_scatter by a function that comes with the call, as muster_allreduce_with.
///
/// # Safety
/// As for muster_reduce_scatter; `fn` and `ctx` must be good until this returns.
#[no_mangle]
pub unsafe extern "C" fn muster_reduce_scatter_with(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    r#fn: muster_reduce_fn,
    ctx: *mut c_void,
    commutative: i32,
) -> muster_status_t {
    let op = Operator::Given(r#fn, ctx, commutative);
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::reduce_scatter(group, r#in, out, count, (dtype, op))) }
}

/// muster_reduce_scatterv by a function that comes with the call, as muster_allreduce_with.
///
/// # Safety
/// As for muster_reduce_scatterv; `fn` and `ctx` must be good until this returns.
#[no_mangle]
pub unsafe extern "C" fn muster_reduce_scatterv_with(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    counts: *const usize,
    dtype: i32,
    r#fn: muster_reduce_fn,
    ctx: *mut c_void,
    commutative: i32,
) -> muster_status_t {
    let op = Operator::Given(r#fn, ctx, commutative);
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::reduce_scatterv(group, r#in, out, counts, (dtype, op))) }
}

/// muster_allreduce_with without waiting: starts it and gives a request out, which says when it is done. See
/// muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier. The function is called by a thread of the library, or by a
/// thread that waits for a request of the group (muster_request_wait, muster_request_wait_all).
///
/// # Safety
/// As for muster_allreduce_with, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_iallreduce_with(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    r#fn: muster_reduce_fn,
    ctx: *mut c_void,
    commutative: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    let op = Operator::Given(r#fn, ctx, commutative);
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| calls::allreduce(group, r#in, out, count, (dtype, op))) }
}

/// muster_reduce_with without waiting, as muster_iallreduce_with.
///
/// # Safety
/// As for muster_reduce_with, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_ireduce_with(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    r#fn: muster_reduce_fn,
    ctx: *mut c_void,
    commutative: i32,
    root: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    let op = Operator::Given(r#fn, ctx, commutative);
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| calls::reduce(group, r#in, out, count, (dtype, op), root)) }
}

/// muster_reduce_scatter_with without waiting, as muster_iallreduce_with.
///
/// # Safety
/// As for muster_reduce_scatter_with, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_ireduce_scatter_with(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    r#fn: muster_reduce_fn,
    ctx: *mut c_void,
    commutative: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    let op = Operator::Given(r#fn, ctx, commutative);
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| calls::reduce_scatter(group, r#in, out, count, (dtype, op))) }
}

/// muster_reduce_scatterv_with without waiting, as muster_iallreduce_with.
///
/// # Safety
/// As for muster_reduce_scatterv_with, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_ireduce_scatterv_with(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    counts: *const usize,
    dtype: i32,
    r#fn: muster_reduce_fn,
    ctx: *mut c_void,
    commutative: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    let op = Operator::Given(r#fn, ctx, commutative);
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| calls::reduce_scatterv(group, r#in, out, counts, (dtype, op))) }
}

/// Adds vectors of all ranks exactly, and gives everyone the sum: an all-reduce by MUSTER_SUM_EXACT to which each rank
/// brings as many vectors as it likes, or none.
///
/// `in` holds `addends` vectors of `count` elements, one after another; `out` takes `count` elements. All ranks pass
/// the same count and element type, a float; `addends` may differ. Each element of the result is the real sum of the
/// elements at that place in all vectors of all ranks, rounded once. So a fixed list of vectors has the same sum, bit
/// for bit, on any number of ranks. If nobody brings a vector the sum is +0.
///
/// `addends` is 65,536 at most. With more the call returns MUSTER_ERR_LIMIT, and nothing has begun. If all ranks
/// together bring more vectors than one call can add (thousands of vectors, and gigabytes), the call ends with
/// MUSTER_ERR_LIMIT for everyone. `in` may be NULL where `addends` or `count` is 0. In place where `out` equals `in`:
/// then the sum takes the place of the first vector. Ownership, overlap, blocking and errors otherwise as
/// muster_allreduce. If one rank calls muster_allreduce instead, the call ends with MUSTER_ERR_MISMATCH.
///
/// Long vectors, of some 16 KiB or more, cost about as much as an exact sum (MUSTER_SUM_EXACT) of as many bytes. Many
/// short vectors cost far more: if a rank brings hundreds of vectors, or shares no memory with the others, each vector
/// may be a message of its own. So bring fewer and longer vectors, or sum short ones up beforehand. See "What it costs"
/// in docs/exact-sums.md, also for the memory that many vectors take.
///
/// # Safety
/// `group` must be NULL or a live group; `in` must be readable for `addends` times `count` elements and `out` writable for
/// `count`, or NULL; nobody else may write to them, or read `out`, meanwhile.
#[no_mangle]
pub unsafe extern "C" fn muster_allreduce_addends(
    group: *mut muster_group_t,
    r#in: *const c_void,
    addends: usize,
    out: *mut c_void,
    count: usize,
    dtype: i32,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::allreduce_addends(group, (r#in, addends), out, count, dtype)) }
}

/// muster_allreduce_addends without waiting: starts it and gives a request out, which says when it is done. See
/// muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier.
///
/// # Safety
/// As for muster_allreduce_addends, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_iallreduce_addends(
    group: *mut muster_group_t,
    r#in: *const c_void,
    addends: usize,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| calls::allreduce_addends(group, (r#in, addends), out, count, dtype)) }
}
