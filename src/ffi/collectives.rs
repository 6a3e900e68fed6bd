//! The collectives: barrier, broadcast, allreduce, allgather.

use super::constants::muster_status_t;
use super::convert::handle;
use super::group::muster_group_t;
use super::guard::guard;
use crate::error::{Error, Result, Status};
use crate::runtime::CallBuffers;
use crate::types::{Call, CallKind, DType, ReduceOp};
use std::ffi::c_void;

/// Returns when every member of the group has called it.
///
/// Blocking; at most for the group's time-out. An error revokes the group: all members' pending and later calls on it
/// return the same first cause. Only MUSTER_ERR_INVALID, _STATE and _FORKED, with which nothing has begun, do not.
///
/// # Safety
/// `group` must be NULL or a live group.
#[no_mangle]
pub unsafe extern "C" fn muster_barrier(group: *mut muster_group_t) -> muster_status_t {
    let call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
    let nothing = (std::ptr::null(), std::ptr::null_mut());
    // SAFETY: as promised by the caller; a barrier has no buffers.
    guard(|| unsafe { run(group, call, nothing, Parts::Whole, false) })
}

/// Copies `count` elements from the root's `buf` to everyone's. All ranks pass the same count, element type and root.
///
/// `buf` is the caller's again when this returns; on the root it is only read. May be NULL where `count` is 0. Blocking
/// and errors as muster_barrier.
///
/// # Safety
/// `group` must be NULL or a live group; `buf` must be NULL, or readable and (but for the root) writable for `count`
/// elements, and nobody else may write to it meanwhile.
#[no_mangle]
pub unsafe extern "C" fn muster_broadcast(
    group: *mut muster_group_t,
    buf: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
) -> muster_status_t {
    guard(|| {
        let root = Some(
            u32::try_from(root).map_err(|_| Error::invalid(format!("root is {root}: expected a rank, 0 or more")))?,
        );
        let call = Call {
            kind: CallKind::Broadcast,
            dtype: Some(self::dtype(dtype)?),
            op: None,
            root,
            count: count as u64,
            layout: 0,
        };
        check_null(buf, count, "buf")?;
        // SAFETY: as promised by the caller; a broadcast uses the output only.
        unsafe { run(group, call, (std::ptr::null(), buf), Parts::Whole, false) }
    })
}

/// Combines `count` elements of every rank, element by element, and gives everyone the result. All ranks pass the same
/// count, element type and operation.
///
/// In place where `in` equals `out`; otherwise they must not overlap, and `in` is only read. Both are the caller's again
/// when this returns, and may be NULL where `count` is 0. After an error the contents of `out` are undefined. Every rank
/// gets the same bits, and the same from run to run with the same ranks and count. Blocking and errors as muster_barrier.
///
/// # Safety
/// `group` must be NULL or a live group; `in` must be readable and `out` writable for `count` elements, or NULL; nobody
/// else may write to them, or read `out`, meanwhile.
#[no_mangle]
pub unsafe extern "C" fn muster_allreduce(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
) -> muster_status_t {
    guard(|| {
        let (dtype, op) = (self::dtype(dtype)?, self::op(op)?);
        let call = Call {
            kind: CallKind::Allreduce,
            dtype: Some(dtype),
            op: Some(op),
            root: None,
            count: count as u64,
            layout: 0,
        };
        check_null(r#in, count, "in")?;
        check_null(out, count, "out")?;
        // SAFETY: as promised by the caller.
        unsafe { run(group, call, (r#in, out), Parts::Whole, true) }
    })
}

/// Gives everyone every rank's `count` elements, in order of rank: `out` takes `count` elements of each of the group's
/// members. All ranks pass the same count and element type.
///
/// In place where `in` equals `out` plus this rank's `count` elements times its rank; otherwise they must not overlap.
/// Ownership, NULL, blocking and errors as muster_allreduce.
///
/// # Safety
/// `group` must be NULL or a live group; `in` must be readable for `count` elements and `out` writable for `count` elements
/// times the group's size, or NULL; nobody else may write to them, or read `out`, meanwhile.
#[no_mangle]
pub unsafe extern "C" fn muster_allgather(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
) -> muster_status_t {
    guard(|| {
        let call = Call {
            kind: CallKind::Allgather,
            dtype: Some(self::dtype(dtype)?),
            op: None,
            root: None,
            count: count as u64,
            layout: 0,
        };
        check_null(r#in, count, "in")?;
        check_null(out, count, "out")?;
        // SAFETY: as promised by the caller.
        unsafe { run(group, call, (r#in, out), Parts::PerRank, true) }
    })
}

fn dtype(code: i32) -> Result<DType> {
    let last = DType::ALL.len() - 1;
    DType::from_code(code).ok_or_else(|| {
        Error::invalid(format!("dtype is {code}: expected one of MUSTER_INT8 (0) to MUSTER_FLOAT64 ({last})"))
    })
}

fn op(code: i32) -> Result<ReduceOp> {
    let last = ReduceOp::ALL.len() - 1;
    ReduceOp::from_code(code)
        .ok_or_else(|| Error::invalid(format!("op is {code}: expected one of MUSTER_SUM (0) to MUSTER_XOR ({last})")))
}

fn check_null(pointer: *const c_void, count: usize, name: &str) -> Result<()> {
    if pointer.is_null() && count > 0 {
        return Err(Error::invalid(format!(
            "{name} is NULL, but count is {count}: expected NULL only where count is 0"
        )));
    }
    Ok(())
}

/// What the output holds.
#[derive(Clone, Copy, PartialEq)]
enum Parts {
    /// `count` elements. In place, the input is where it begins.
    Whole,
    /// `count` elements of each rank. In place, the input is this rank's part.
    PerRank,
}

/// Runs a call.
///
/// # Safety
/// As for the entries above.
unsafe fn run(
    group: *mut muster_group_t,
    call: Call,
    (input, output): (*const c_void, *mut c_void),
    parts: Parts,
    has_input: bool,
) -> Result<Status> {
    // SAFETY: as promised by the caller.
    let group = unsafe { handle(group, "group") }?;
    group.with(|group| {
        let size = group.size() as usize;
        let element = call.dtype.map_or(0, DType::size);
        let own = (call.count as usize).checked_mul(element);
        let whole = own.and_then(|own| own.checked_mul(if parts == Parts::PerRank { size } else { 1 }));
        let (Some(own), Some(whole)) = (own, whole.filter(|bytes| isize::try_from(*bytes).is_ok())) else {
            return Err(Error::invalid(format!("count is {}: that is more than any memory holds", call.count)));
        };
        let input_bytes = if has_input { own } else { 0 };
        let offset = if parts == Parts::PerRank { own * group.rank().unwrap_or(0) as usize } else { 0 };
        let in_place = input_bytes > 0 && input as usize == (output as usize).wrapping_add(offset);
        let apart = (input as usize).saturating_add(input_bytes) <= output as usize
            || (output as usize).saturating_add(whole) <= input as usize;
        if input_bytes > 0 && !in_place && !apart {
            return Err(Error::invalid(format!(
                "{}: in and out overlap: they must be apart, or in must be exactly where this rank's part of out is",
                call.kind
            )));
        }
        // SAFETY: as promised by the caller; that input and output are apart, or in place, was just checked.
        let buffers = unsafe { CallBuffers::new((input.cast(), input_bytes), (output.cast(), whole), in_place) };
        group.run(call, buffers).map(|()| Status::Ok)
    })
}
