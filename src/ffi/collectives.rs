//! The collectives, each of which returns when it is done. What their arguments come to is in `calls.rs`.

use super::calls;
use super::constants::muster_status_t;
use super::convert::handle;
use super::guard::guard;
use super::handles::muster_group_t;
use super::prepare::Operator;
use crate::error::{Result, Status};
use crate::runtime::collectives::queued_call::Work;
use crate::runtime::groups::group::Group;
use std::ffi::c_void;

/// Carries a collective out.
///
/// # Safety
/// `group` must be NULL or a live group.
pub(super) unsafe fn run(
    group: *mut muster_group_t,
    work: impl FnOnce(&Group) -> Result<Work<'static>>,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let group = unsafe { handle(group, "group") }?;
        group.with(|group| group.run(work(group)?).map(|()| Status::Ok))
    })
}

/// Returns when every member of the group has called it.
///
/// Blocking; at most for the group's time-out, and up to 500 ms more where the scheduler does not answer: 250 ms to
/// learn which ranks are missing, and 250 ms to agree on the first cause. An error revokes the group: all members'
/// pending and later calls on it return the same first cause. MUSTER_ERR_INVALID, _STATE and _FORKED do not revoke it:
/// then nothing has begun. The same holds for MUSTER_ERR_LIMIT if `addends` is too large (muster_allreduce_addends),
/// and for MUSTER_ERR_MEMORY if there is no memory for the lists of the arguments. (A call that is under way ends with
/// MUSTER_ERR_STATE, too, when another thread leaves the cluster or frees the group.) A process that is no member of
/// the group gets MUSTER_ERR_INVALID.
///
/// # Safety
/// `group` must be NULL or a live group.
#[no_mangle]
pub unsafe extern "C" fn muster_barrier(group: *mut muster_group_t) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { run(group, |_| calls::barrier()) }
}

/// Copies `count` elements from the root's `buf` to everyone's. All ranks pass the same count, element type and root.
///
/// `buf` is the caller's again when this returns; on the root it is only read. May be NULL where `count` is 0. Blocking
/// and errors as muster_barrier.
///
/// # Safety
/// `group` must be NULL or a live group; `buf` must be NULL, or readable and (except on the root) writable for `count`
/// elements. Nobody else may write to it meanwhile.
#[no_mangle]
pub unsafe extern "C" fn muster_broadcast(
    group: *mut muster_group_t,
    buf: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::broadcast(group, buf, count, dtype, root)) }
}

/// Combines `count` elements of every rank, element by element, and gives everyone the result. All ranks pass the same
/// count, element type and operation.
///
/// In place where `in` equals `out`. If they overlap otherwise, the library works on a copy of `in`, in memory that
/// the group keeps (MUSTER_ERR_MEMORY). This holds for all collectives. The copy costs time, so it is better if the
/// buffers are either separate or in place. `in` is only read. Both buffers are the caller's again when this returns,
/// and may be NULL where `count` is 0. After an error the contents of `out` are undefined. Every rank gets the same
/// bits. They are also the same from run to run, with the same count and ranks, under the conditions that "The same bits"
/// in docs/c-api.md names. Blocking and errors as muster_barrier.
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
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::allreduce(group, r#in, out, count, (dtype, Operator::Numbered(op)))) }
}

/// As muster_allreduce, but only the root gets the result. All ranks pass the same root. On other ranks `out` is not
/// used and may be NULL. In place at the root where `in` equals `out`.
///
/// # Safety
/// As for muster_allreduce; `out` matters at the root only.
#[no_mangle]
pub unsafe extern "C" fn muster_reduce(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
    root: i32,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::reduce(group, r#in, out, count, (dtype, Operator::Numbered(op)), root)) }
}

/// Gives everyone every rank's `count` elements, in order of rank: `out` takes `count` elements of each of the group's
/// members. All ranks pass the same count and element type.
///
/// In place where `in` equals `out` plus `count` times this rank's number, in elements. Ownership, overlap, NULL,
/// blocking and errors as muster_allreduce.
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
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::allgather(group, r#in, out, count, dtype)) }
}

/// As muster_allgather with parts of different sizes: `counts[r]` elements come from rank r and go to `out` at element
/// `displs[r]`; `count` is this rank's own, `counts[rank]`. All ranks pass the same `counts` and element type; `displs` may
/// differ between ranks, and NULL means that the parts follow each other. Parts must not overlap in `out`; what lies
/// between them is left as it is. Where an empty part would lie does not matter.
///
/// In place where `in` equals `out` plus `displs[rank]` elements. The lists are not needed after this returns.
///
/// # Safety
/// As for muster_allgather, but `out` must be writable up to the end of its last part: the largest `displs[r] + counts[r]`
/// elements. `counts` must be readable for one number per member of the group, `displs` likewise or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_allgatherv(
    group: *mut muster_group_t,
    r#in: *const c_void,
    count: usize,
    out: *mut c_void,
    counts: *const usize,
    displs: *const usize,
    dtype: i32,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::allgatherv(group, (r#in, count), out, (counts, displs), dtype)) }
}

/// Gives the root every rank's `count` elements, in order of rank, as muster_allgather gives them to everyone. All ranks pass
/// the same count, element type and root. On other ranks than the root `out` is not used and may be NULL. In place at
/// the root where `in` equals `out` plus `count` elements times its rank.
///
/// # Safety
/// As for muster_allgather; `out` matters at the root only.
#[no_mangle]
pub unsafe extern "C" fn muster_gather(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::gather(group, r#in, out, count, dtype, root)) }
}

/// As muster_gather with parts of different sizes. Each rank gives `count` elements of its own. The root says in `counts[r]` how
/// many it expects of rank r, and in `displs[r]` at which element of `out` they go. With NULL for `displs` the parts
/// follow each other. The parts must not overlap. `out`, `counts` and `displs` are used at the root only. A rank that
/// gives another number than the root expects ends the call with MUSTER_ERR_MISMATCH. That rank only sends, so its own
/// call may have returned MUSTER_OK by then. It gets the error in a later call on the group, at the latest in one that
/// waits for the root. If `count` at the root differs from the root's own entry of `counts`, the root gets
/// MUSTER_ERR_INVALID, and nothing has begun. In place at the root where `in` equals `out` plus its own `displs`
/// elements.
///
/// # Safety
/// As for muster_gather, but at the root `out` must be writable up to the end of its last part: the largest `displs[r] + counts[r]`
/// elements. There `counts` must be readable for one number per member of the group, `displs` likewise or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_gatherv(
    group: *mut muster_group_t,
    r#in: *const c_void,
    count: usize,
    out: *mut c_void,
    counts: *const usize,
    displs: *const usize,
    dtype: i32,
    root: i32,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::gatherv(group, (r#in, count), out, (counts, displs), dtype, root)) }
}

/// Gives each rank its `count` elements of the root's `in`, which has `count` for every member, in order of rank. All
/// ranks pass the same count, element type and root. On other ranks than the root `in` is not used and may be NULL. In
/// place at the root where `out` equals `in` plus `count` elements times its rank: then the root's part just stays
/// there.
///
/// Ownership, overlap, NULL, blocking and errors as muster_allreduce.
///
/// # Safety
/// `group` must be NULL or a live group; at the root `in` must be readable for `count` elements times the
/// group's size; `out` must be writable for `count` elements, or NULL. Nobody else may write to them, or read `out`,
/// meanwhile.
#[no_mangle]
pub unsafe extern "C" fn muster_scatter(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::scatter(group, r#in, out, count, dtype, root)) }
}

/// As muster_scatter with parts of different sizes. The root gives `counts[r]` elements to rank r, from element `displs[r]` of
/// `in` on (NULL: they follow each other). Each rank takes `count`. `in`, `counts` and `displs` are used at the root only. A rank
/// that expects another number than the root gives ends the call with MUSTER_ERR_MISMATCH. The root only sends, so its own call
/// may have returned MUSTER_OK by then. It gets the error in a later call on the group, at the latest in one that waits for that
/// rank. If `count` at the root differs from the root's own entry of `counts`, the root gets MUSTER_ERR_INVALID, and nothing has
/// begun. In place at the root where `out` equals `in` plus its own `displs` elements.
///
/// # Safety
/// As for muster_scatter, but at the root `in` must be readable up to the end of its last part: the largest `displs[r] + counts[r]`
/// elements. There `counts` must be readable for one number per member of the group, `displs` likewise or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_scatterv(
    group: *mut muster_group_t,
    r#in: *const c_void,
    counts: *const usize,
    displs: *const usize,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::scatterv(group, r#in, (counts, displs), (out, count), dtype, root)) }
}

/// Combines the ranks' inputs, of `count` elements for every member, element by element, and gives each rank its part of the
/// result: `count` elements, in order of rank. All ranks pass the same count, element type and operation.
///
/// In place where `out` equals `in` plus `count` elements times this rank: then the rest of `in` stays as it is.
/// Ownership, overlap, NULL, bits, blocking and errors as muster_allreduce.
///
/// # Safety
/// `group` must be NULL or a live group; `in` must be readable for `count` elements times the group's size and `out` writable
/// for `count` elements, or NULL; nobody else may write to them, or read `out`, meanwhile.
#[no_mangle]
pub unsafe extern "C" fn muster_reduce_scatter(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::reduce_scatter(group, r#in, out, count, (dtype, Operator::Numbered(op)))) }
}

/// As muster_reduce_scatter with parts of different sizes: rank r gets the `counts[r]` elements that follow those of the
/// ranks before it. All ranks pass the same `counts`, element type and operation. In place where `out` equals this rank's
/// part of `in`. The list is not needed after this returns.
///
/// # Safety
/// As for muster_reduce_scatter, with the sum of `counts` in place of `count` times the size; `counts` must be readable for
/// one number per member of the group.
#[no_mangle]
pub unsafe extern "C" fn muster_reduce_scatterv(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    counts: *const usize,
    dtype: i32,
    op: i32,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::reduce_scatterv(group, r#in, out, counts, (dtype, Operator::Numbered(op)))) }
}

/// Gives every rank a part of every other's input. `in` and `out` have `count` elements for every member. Part r of
/// `in` becomes this rank's part of rank r's `out`. All ranks pass the same count and element type.
///
/// In place where `in` equals `out`. Ownership, overlap, NULL, blocking and errors as muster_allreduce.
///
/// # Safety
/// `group` must be NULL or a live group; `in` must be readable and `out` writable for `count` elements times the group's size,
/// or NULL; nobody else may write to them, or read `out`, meanwhile.
#[no_mangle]
pub unsafe extern "C" fn muster_alltoall(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| calls::alltoall(group, r#in, out, count, dtype)) }
}

/// As muster_alltoall with parts of different sizes: `in_counts[r]` elements from element `in_displs[r]` of `in` on
/// go to rank r, and `out_counts[r]` come from it, to element `out_displs[r]` of `out`. If a list of displacements is
/// NULL, its parts follow each other. Parts of `out` must not overlap. Each rank must send as many elements as the
/// receiver expects, or the call ends with MUSTER_ERR_MISMATCH. Before the call begins, this rank checks what it sends
/// to itself. If the two counts differ, it returns MUSTER_ERR_INVALID, and nothing has begun.
///
/// In place where `in` equals `out`, and both counts and displacements are the same.
///
/// # Safety
/// As for muster_alltoall, but each buffer reaches to the end of its last part: the largest displacement with its count. The counts
/// must be readable for one number per member of the group, the displacements likewise or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_alltoallv(
    group: *mut muster_group_t,
    r#in: *const c_void,
    in_counts: *const usize,
    in_displs: *const usize,
    out: *mut c_void,
    out_counts: *const usize,
    out_displs: *const usize,
    dtype: i32,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe {
        run(group, |group| calls::alltoallv(group, r#in, (in_counts, in_displs), out, (out_counts, out_displs), dtype))
    }
}
