//! Users' reduction operations.

use super::constants::muster_status_t;
use super::convert::{handle, out as check_out};
use super::guard::guard;
use super::handles::muster_cluster_t;
use super::prepare::given;
use crate::error::Status;
use std::ffi::c_void;

/// A user's reduction: `inout[i] = in[i] op inout[i]` for `count` elements of the element type `dtype`, where `in` has the
/// operands of lower ranks. `ctx` is what muster_op_create, or the call, was given.
///
/// Any thread that carries out a collective may call the function, and several threads at a time if several groups
/// reduce at once. A call gets any stretch of whole elements. `in` and `inout` are aligned as the caller's buffers are,
/// or as malloc aligns. It finds the floating-point environment with which a process begins, whatever its caller has set
/// in its own thread. The function must write nothing but `inout`, must not throw, and must not call this library.
#[allow(non_camel_case_types)]
pub type muster_reduce_fn =
    Option<unsafe extern "C" fn(r#in: *const c_void, inout: *mut c_void, count: usize, dtype: i32, ctx: *mut c_void)>;

/// Makes a reduction operation of a function, and writes its number to `*op`: calls on any group of this cluster take it as their
/// `op`.
///
/// `commutative` is 1 if operands may be exchanged, 0 if not; then contributions are folded in order of rank. The same
/// conditions as for muster_allreduce give the same bits ("The same bits" in docs/c-api.md). If the result is to be the
/// same on 4 and on 5 ranks the function must be associative.
/// Operations are numbered in the order in which they are made. Ranks that reduce together must have made theirs in the
/// same order, because different numbers are a mismatch. A cluster has 65,536 numbers, and does not use a freed number
/// again. When all are used, the call returns MUSTER_ERR_LIMIT. MUSTER_ERR_INVALID if `fn` is NULL, or `commutative`
/// neither 0 nor 1. Thread-safe; does not block.
///
/// # Safety
/// `cluster` must be NULL or a live cluster, `op` NULL or writable; `fn` and `ctx` must be good until muster_op_free has
/// returned and every call that uses the operation has ended.
#[no_mangle]
pub unsafe extern "C" fn muster_op_create(
    cluster: *mut muster_cluster_t,
    r#fn: muster_reduce_fn,
    ctx: *mut c_void,
    commutative: i32,
    op: *mut i32,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let cluster = unsafe { handle(cluster, "cluster") }?;
        // SAFETY: as promised by the caller.
        let (op_given, function) = unsafe { given(r#fn, ctx, commutative) }?;
        let to = check_out(op, "op")?;
        cluster.with(|cluster| {
            let made = cluster.reduce_functions().make(function, op_given.is_commutative())?;
            // SAFETY: not NULL, and writable as the caller promised.
            unsafe { to.write(made.code() as i32) };
            Ok(Status::Ok)
        })
    })
}

/// Frees an operation. Its number is invalid from now on, and is not used again: a call with it, or a second free,
/// returns MUSTER_ERR_INVALID. Calls that have begun go on with the function. Thread-safe; does not block.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_op_free(cluster: *mut muster_cluster_t, op: i32) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let cluster = unsafe { handle(cluster, "cluster") }?;
        cluster.with(|cluster| cluster.reduce_functions().free(op).map(|()| Status::Ok))
    })
}
