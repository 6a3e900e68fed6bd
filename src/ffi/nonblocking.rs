//! The collectives that go on while the caller does something else: each has the arguments of its blocking form, and a request.

use super::calls;
use super::constants::muster_status_t;
use super::convert::{handle, out as check_out};
use super::guard::guard;
use super::handles::muster_group_t;
use super::prepare::Operator;
use super::request::muster_request_t;
use crate::error::{Result, Status};
use crate::runtime::collectives::queued_call::Work;
use crate::runtime::groups::group::Group;
use std::ffi::c_void;

/// Starts a collective.
///
/// # Safety
/// `group` must be NULL or a live group; `request` must be NULL or writable.
pub(super) unsafe fn start(
    group: *mut muster_group_t,
    request: *mut *mut muster_request_t,
    work: impl FnOnce(&Group) -> Result<Work<'static>>,
) -> muster_status_t {
    guard(|| {
        let to = check_out(request, "request")?;
        // SAFETY: as promised by the caller.
        let group = unsafe { handle(group, "group") }?;
        let started = group.with_shared(|group| group.start(work(group)?))?;
        // SAFETY: not NULL, and writable as the caller promised.
        unsafe { to.write(muster_request_t::give(started)) };
        Ok(Status::Ok)
    })
}

/// muster_barrier without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
///
/// Collectives of a group, blocking or not, run one after another in the order of the calls. One rank may call the
/// blocking form of a collective, and another rank the other form. The buffers must stay as they are until the request
/// has ended; lists of counts and displacements are read before this returns. The group's time-out counts from this
/// call on. If an argument is wrong, this call returns the error and makes no request. Later errors come from the
/// request, and revoke the group as muster_barrier says. If the progress thread cannot be started, this call returns
/// that error and revokes the group. In a group of one, a collective whose buffers have at most 64 KiB has ended when
/// this returns, unless an earlier collective of the group is still going on.
///
/// # Safety
/// As for muster_barrier, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_ibarrier(
    group: *mut muster_group_t,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |_| calls::barrier()) }
}

/// muster_broadcast without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier.
///
/// # Safety
/// As for muster_broadcast, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_ibroadcast(
    group: *mut muster_group_t,
    buf: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| calls::broadcast(group, buf, count, dtype, root)) }
}

/// muster_allreduce without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier.
///
/// # Safety
/// As for muster_allreduce, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_iallreduce(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| calls::allreduce(group, r#in, out, count, (dtype, Operator::Numbered(op)))) }
}

/// muster_reduce without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier.
///
/// # Safety
/// As for muster_reduce, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_ireduce(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
    root: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe {
        start(group, request, |group| calls::reduce(group, r#in, out, count, (dtype, Operator::Numbered(op)), root))
    }
}

/// muster_allgather without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier.
///
/// # Safety
/// As for muster_allgather, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_iallgather(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| calls::allgather(group, r#in, out, count, dtype)) }
}

/// muster_allgatherv without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier.
///
/// # Safety
/// As for muster_allgatherv, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_iallgatherv(
    group: *mut muster_group_t,
    r#in: *const c_void,
    count: usize,
    out: *mut c_void,
    counts: *const usize,
    displs: *const usize,
    dtype: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| calls::allgatherv(group, (r#in, count), out, (counts, displs), dtype)) }
}

/// muster_gather without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier.
///
/// # Safety
/// As for muster_gather, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_igather(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| calls::gather(group, r#in, out, count, dtype, root)) }
}

/// muster_gatherv without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier.
///
/// # Safety
/// As for muster_gatherv, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_igatherv(
    group: *mut muster_group_t,
    r#in: *const c_void,
    count: usize,
    out: *mut c_void,
    counts: *const usize,
    displs: *const usize,
    dtype: i32,
    root: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| calls::gatherv(group, (r#in, count), out, (counts, displs), dtype, root)) }
}

/// muster_scatter without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier.
///
/// # Safety
/// As for muster_scatter, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_iscatter(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| calls::scatter(group, r#in, out, count, dtype, root)) }
}

/// muster_scatterv without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier.
///
/// # Safety
/// As for muster_scatterv, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_iscatterv(
    group: *mut muster_group_t,
    r#in: *const c_void,
    counts: *const usize,
    displs: *const usize,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| calls::scatterv(group, r#in, (counts, displs), (out, count), dtype, root)) }
}

/// muster_reduce_scatter without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier.
///
/// # Safety
/// As for muster_reduce_scatter, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_ireduce_scatter(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe {
        start(group, request, |group| calls::reduce_scatter(group, r#in, out, count, (dtype, Operator::Numbered(op))))
    }
}

/// muster_reduce_scatterv without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier.
///
/// # Safety
/// As for muster_reduce_scatterv, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_ireduce_scatterv(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    counts: *const usize,
    dtype: i32,
    op: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe {
        start(group, request, |group| calls::reduce_scatterv(group, r#in, out, counts, (dtype, Operator::Numbered(op))))
    }
}

/// muster_alltoall without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier.
///
/// # Safety
/// As for muster_alltoall, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_ialltoall(
    group: *mut muster_group_t,
    r#in: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| calls::alltoall(group, r#in, out, count, dtype)) }
}

/// muster_alltoallv without waiting: starts it and gives a request out, which says when it is done. See muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier.
///
/// # Safety
/// As for muster_alltoallv, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_ialltoallv(
    group: *mut muster_group_t,
    r#in: *const c_void,
    in_counts: *const usize,
    in_displs: *const usize,
    out: *mut c_void,
    out_counts: *const usize,
    out_displs: *const usize,
    dtype: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe {
        start(group, request, |group| {
            calls::alltoallv(group, r#in, (in_counts, in_displs), out, (out_counts, out_displs), dtype)
        })
    }
}
