//! Collectives on lists of buffers, one for each rank, blocking and not.

use super::calls::check_own;
use super::collectives::run;
use super::constants::muster_status_t;
use super::convert::slice;
use super::handles::muster_group_t;
use super::nonblocking::start;
use super::prepare::{check_null, extent, of_all, overlap, own, parts, Operator, Prepared};
use super::request::muster_request_t;
use crate::error::{memory, Error, Result};
use crate::runtime::collectives::queued_call::Work;
use crate::runtime::groups::group::Group;
use crate::runtime::memory::buffer::{PartList, Placement};
use crate::schedules::{Buffer, Layout, Parts};
use crate::types::CallKind;
use std::ffi::c_void;

/// muster_allgatherv into a buffer of its own for each rank: the elements of rank r go to `outs[r]`.
///
/// `counts[r]` elements come from rank r, and `count` is this rank's own, `counts[rank]`. With NULL for `counts` every rank
/// gives `count`. All ranks pass the same counts and element type. A rank may call muster_allgatherv with the same counts
/// instead: it is the same collective. (muster_allgather is another.)
///
/// In place where `in` equals `outs[rank]`. If `in` overlaps the outputs otherwise, the library works on a copy of it.
/// The outputs must not overlap each other: MUSTER_ERR_INVALID. An output without elements may be NULL. Neither list is
/// needed after this returns. Ownership, NULL, blocking and errors as muster_allreduce.
///
/// # Safety
/// `group` must be NULL or a live group; `in` must be readable for `count` elements, or NULL. `outs` must be readable for
/// one pointer per member of the group, and each of these pointers writable for its elements. `counts` must be readable
/// for one number per member, or NULL. Nobody else may write to the buffers, or read the outputs, meanwhile.
#[no_mangle]
pub unsafe extern "C" fn muster_allgather_list(
    group: *mut muster_group_t,
    r#in: *const c_void,
    count: usize,
    outs: *const *mut c_void,
    counts: *const usize,
    dtype: i32,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| allgather_list(group, (r#in, count), (outs, counts), dtype)) }
}

/// muster_allgather_list without waiting: starts it and gives a request out, which says when it is done. See
/// muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier. Both lists are read before this returns.
///
/// # Safety
/// As for muster_allgather_list, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_iallgather_list(
    group: *mut muster_group_t,
    r#in: *const c_void,
    count: usize,
    outs: *const *mut c_void,
    counts: *const usize,
    dtype: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| allgather_list(group, (r#in, count), (outs, counts), dtype)) }
}

/// muster_reduce_scatterv of a buffer of its own for each rank: what this rank adds to rank r's part lies at `ins[r]`.
///
/// Rank r gets `counts[r]` elements, and `count` is this rank's own, `counts[rank]`. With NULL for `counts` every rank gets
/// `count`. All ranks pass the same counts, element type and operation. A rank may call muster_reduce_scatterv with the same
/// counts instead: it is the same collective. (muster_reduce_scatter is another.)
///
/// In place where `out` equals `ins[rank]`: then the other inputs stay as they are. If `out` overlaps the inputs otherwise,
/// the library works on a copy of them. The inputs may overlap each other. An input without elements may be NULL.
/// Neither list is needed after this returns. Ownership, NULL, bits, blocking and errors as muster_allreduce.
///
/// # Safety
/// `group` must be NULL or a live group; `out` must be writable for `count` elements, or NULL. `ins` must be readable for
/// one pointer per member of the group, and each of these pointers readable for its elements. `counts` must be readable
/// for one number per member, or NULL. Nobody else may write to the buffers, or read `out`, meanwhile.
#[no_mangle]
pub unsafe extern "C" fn muster_reduce_scatter_list(
    group: *mut muster_group_t,
    ins: *const *const c_void,
    counts: *const usize,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
) -> muster_status_t {
    let kind = (dtype, Operator::Numbered(op));
    // SAFETY: as promised by the caller.
    unsafe { run(group, |group| reduce_scatter_list(group, (ins, counts), (out, count), kind)) }
}

/// muster_reduce_scatter_list without waiting: starts it and gives a request out, which says when it is done. See
/// muster_request_test.
///
/// Buffers, order, time-out and errors as muster_ibarrier. Both lists are read before this returns.
///
/// # Safety
/// As for muster_reduce_scatter_list, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_ireduce_scatter_list(
    group: *mut muster_group_t,
    ins: *const *const c_void,
    counts: *const usize,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    let kind = (dtype, Operator::Numbered(op));
    // SAFETY: as promised by the caller.
    unsafe { start(group, request, |group| reduce_scatter_list(group, (ins, counts), (out, count), kind)) }
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
unsafe fn allgather_list(
    group: &Group,
    (input, count): (*const c_void, usize),
    (outs, counts): (*const *mut c_void, *const usize),
    dtype: i32,
) -> Result<Work<'static>> {
    let mut call = Prepared::of(CallKind::Allgatherv);
    call.elements(count, dtype)?;
    // SAFETY: as promised by the caller.
    let layout = unsafe { list_parts(group, counts, count) }?;
    check_own("allgather_list", count, own(&layout, group).0, group)?;
    // SAFETY: as promised by the caller.
    let list = unsafe { list(group, Buffer::Output, outs.cast(), &layout, "outs") }?;
    check_null(input, count, "in")?;
    let (in_bytes, all) = (call.bytes(count, "in")?, call.bytes(extent(&layout), "outs")?);
    let stretches = Stretches { list: &list, parts: &layout, element: call.element() };
    stretches.check_apart(group, "allgather_list: outs")?;
    let placement = stretches.placement(group, (input as usize, in_bytes));
    call.agreed(&layout.counts);
    call.layout(Layout { own: count as u64, input: Parts::default(), output: layout });
    // SAFETY: as promised by the caller; how the buffers lie was just found.
    Ok(unsafe { call.placed((input, in_bytes), (std::ptr::null_mut(), all), placement, Some(list)) })
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
unsafe fn reduce_scatter_list(
    group: &Group,
    (ins, counts): (*const *const c_void, *const usize),
    (output, count): (*mut c_void, usize),
    (dtype, op): (i32, Operator),
) -> Result<Work<'static>> {
    let mut call = Prepared::of(CallKind::ReduceScatterv);
    // SAFETY: as promised by the caller.
    unsafe { call.elements(count, dtype)?.op(group, op)? };
    // SAFETY: as promised by the caller.
    let layout = unsafe { list_parts(group, counts, count) }?;
    check_own("reduce_scatter_list", count, own(&layout, group).0, group)?;
    // SAFETY: as promised by the caller.
    let list = unsafe { list(group, Buffer::Input, ins.cast(), &layout, "ins") }?;
    check_null(output, count, "out")?;
    let (all, out_bytes) = (call.bytes(extent(&layout), "ins")?, call.bytes(count, "out")?);
    let stretches = Stretches { list: &list, parts: &layout, element: call.element() };
    let placement = stretches.placement(group, (output as usize, out_bytes));
    call.agreed(&layout.counts);
    call.layout(Layout { own: count as u64, input: layout, output: Parts::default() });
    // SAFETY: as promised by the caller; how the buffers lie was just found.
    Ok(unsafe { call.placed((std::ptr::null(), all), (output, out_bytes), placement, Some(list)) })
}

/// The parts of a list of buffers, counted as if they followed each other. If `counts` is NULL, all have the same length.
///
/// # Safety
/// `counts` must be NULL or readable for one number per rank of the group.
unsafe fn list_parts(group: &Group, counts: *const usize, count: usize) -> Result<Parts> {
    let displs = (std::ptr::null(), "displs");
    if !counts.is_null() {
        // SAFETY: as promised by the caller.
        return unsafe { parts(group, (counts, "counts"), displs) };
    }
    let all = of_all(group, count)?;
    let mut parts = Parts { counts: group.list(), displs: group.list() };
    let size = group.size() as usize;
    memory::more(&mut parts.counts, size, "the parts of a list")?;
    memory::more(&mut parts.displs, size, "the parts of a list")?;
    parts.counts.extend(std::iter::repeat_n(count as u64, size));
    parts.displs.extend((0..size).map(|rank| (all / size * rank) as u64));
    Ok(parts)
}

/// The addresses of a list's buffers. A buffer with elements must have one.
///
/// # Safety
/// `pointers` must be NULL or readable for one pointer per rank of the group.
unsafe fn list(
    group: &Group,
    buffer: Buffer,
    pointers: *const *const c_void,
    parts: &Parts,
    name: &str,
) -> Result<PartList> {
    // SAFETY: as promised by the caller.
    let pointers = unsafe { slice(pointers, group.size() as usize, name) }?;
    let mut starts = group.list();
    memory::more(&mut starts, pointers.len(), name)?;
    for (rank, (pointer, count)) in pointers.iter().zip(&parts.counts).enumerate() {
        if pointer.is_null() && *count > 0 {
            return Err(Error::invalid(format!(
                "{name}[{rank}] is NULL, but its count is {count}: expected NULL only where the count is 0"
            )));
        }
        starts.push(pointer.expose_provenance() as u64);
    }
    Ok(PartList { buffer, starts })
}

/// The memory in which a list's buffers lie.
struct Stretches<'a> {
    list: &'a PartList,
    parts: &'a Parts,
    element: usize,
}

impl Stretches<'_> {
    /// The address and the length of a rank's buffer.
    fn of(&self, rank: usize) -> (usize, usize) {
        (self.list.starts[rank] as usize, self.parts.counts[rank] as usize * self.element)
    }

    /// Refuses buffers that are written and overlap.
    fn check_apart(&self, group: &Group, name: &str) -> Result<()> {
        let mut order = group.list();
        memory::more(&mut order, self.list.starts.len(), name)?;
        order.extend((0..self.list.starts.len()).filter(|rank| self.of(*rank).1 > 0).map(|rank| rank as u64));
        order.sort_unstable_by_key(|rank| self.of(*rank as usize).0);
        let meet = |two: &&[u64]| overlap(self.of(two[0] as usize), self.of(two[1] as usize));
        let found = order.windows(2).find(meet).map(|two| (two[0].min(two[1]), two[0].max(two[1])));
        group.take_back(order);
        match found {
            None => Ok(()),
            Some((one, other)) => Err(Error::invalid(format!(
                "{name}: the buffers of ranks {one} and {other} overlap, but both are written: they must be apart"
            ))),
        }
    }

    /// How the list's buffers lie relative to the call's other buffer, given as address and length.
    fn placement(&self, group: &Group, other: (usize, usize)) -> Placement {
        let own = group.rank().unwrap_or(0) as usize;
        let meets = |rank: &usize| overlap(self.of(*rank), other);
        let mut met = (0..self.list.starts.len()).filter(meets);
        match (met.next(), met.next()) {
            (None, _) => Placement::Apart,
            (Some(rank), None) if rank == own && self.of(own).0 == other.0 => Placement::InPlace,
            _ => Placement::Overlapping,
        }
    }
}
