//! Each collective's arguments, and the work that they come to. What the arguments mean stands with the entries, in
//! `collectives.rs`.

use super::prepare::{check_apart, extent, of_all, own, own_at, parts, InPlace, Operator, Prepared};
use crate::error::{memory, Error, Result, Status};
use crate::runtime::collectives::queued_call::Work;
use crate::runtime::groups::group::Group;
use crate::schedules::{Layout, Parts, Shape};
use crate::types::CallKind;
use std::ffi::c_void;

const NO_INPUT: (*const c_void, usize) = (std::ptr::null(), 0);
const NO_OUTPUT: (*mut c_void, usize) = (std::ptr::null_mut(), 0);

/// A rank's counts and displacements for one buffer; the second may be NULL.
pub(super) type Lists = (*const usize, *const usize);

pub(super) fn barrier() -> Result<Work<'static>> {
    // SAFETY: a barrier has no buffers.
    unsafe { Prepared::of(CallKind::Barrier).buffers(NO_INPUT, NO_OUTPUT, InPlace::Never) }
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
pub(super) unsafe fn broadcast(
    group: &Group,
    buf: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
) -> Result<Work<'static>> {
    let mut call = Prepared::of(CallKind::Broadcast);
    call.elements(count, dtype)?.root(group, root)?;
    // SAFETY: as promised by the caller; a broadcast uses the output only.
    unsafe { call.buffers(NO_INPUT, (buf, count), InPlace::Never) }
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
pub(super) unsafe fn allreduce(
    group: &Group,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    (dtype, op): (i32, Operator),
) -> Result<Work<'static>> {
    let mut call = Prepared::of(CallKind::Allreduce);
    // SAFETY: as promised by the caller.
    unsafe { call.elements(count, dtype)?.op(group, op)? };
    // SAFETY: as promised by the caller.
    unsafe { call.buffers((input, count), (output, count), InPlace::InputAt(0)) }
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
pub(super) unsafe fn allreduce_addends(
    group: &Group,
    (input, addends): (*const c_void, usize),
    output: *mut c_void,
    count: usize,
    dtype: i32,
) -> Result<Work<'static>> {
    let mut call = Prepared::of(CallKind::Allreduce);
    // SAFETY: no function is given.
    unsafe { call.elements(count, dtype)?.op(group, Operator::Addends)? };
    let mut input_parts = Parts { counts: group.list(), displs: group.list() };
    memory::more(&mut input_parts.counts, group.size() as usize, "the ranks' numbers of addends")?;
    memory::more(&mut input_parts.displs, group.size() as usize, "the ranks' numbers of addends")?;
    let most = Shape::ADDENDS_MAX as usize;
    if addends > most {
        return Err(Error::new(Status::Limit, format!("addends is {addends}: expected {most} at most")));
    }
    let all = addends.checked_mul(count).ok_or_else(|| {
        Error::invalid(format!("addends is {addends} and count {count}: more elements than any memory holds"))
    })?;
    call.layout(Layout { own: addends as u64, input: input_parts, output: Parts::default() });
    // SAFETY: as promised by the caller.
    unsafe { call.buffers((input, all), (output, count), InPlace::InputAt(0)) }
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
pub(super) unsafe fn reduce(
    group: &Group,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    (dtype, op): (i32, Operator),
    root: i32,
) -> Result<Work<'static>> {
    let mut call = Prepared::of(CallKind::Reduce);
    // SAFETY: as promised by the caller.
    unsafe { call.elements(count, dtype)?.op(group, op)?.root(group, root)? };
    let output = if call.is_root(group) { (output, count) } else { NO_OUTPUT };
    // SAFETY: as promised by the caller.
    unsafe { call.buffers((input, count), output, InPlace::InputAt(0)) }
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
pub(super) unsafe fn allgather(
    group: &Group,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: i32,
) -> Result<Work<'static>> {
    let mut call = Prepared::of(CallKind::Allgather);
    call.elements(count, dtype)?;
    let place = InPlace::InputAt(own_at(group, count));
    // SAFETY: as promised by the caller.
    unsafe { call.buffers((input, count), (output, of_all(group, count)?), place) }
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
pub(super) unsafe fn allgatherv(
    group: &Group,
    (input, count): (*const c_void, usize),
    output: *mut c_void,
    (counts, displs): Lists,
    dtype: i32,
) -> Result<Work<'static>> {
    // SAFETY: as promised by the caller.
    let output_parts = unsafe { parts(group, (counts, "counts"), (displs, "displs")) }?;
    check_apart(&output_parts, "allgatherv: displs")?;
    let (own_count, own_displ) = own(&output_parts, group);
    check_own("allgatherv", count, own_count, group)?;
    let all = extent(&output_parts);
    let mut call = Prepared::of(CallKind::Allgatherv);
    call.elements(count, dtype)?;
    call.agreed(&output_parts.counts);
    call.layout(Layout { own: count as u64, input: Parts::default(), output: output_parts });
    // SAFETY: as promised by the caller.
    unsafe { call.buffers((input, count), (output, all), InPlace::InputAt(own_displ)) }
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
pub(super) unsafe fn gather(
    group: &Group,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
) -> Result<Work<'static>> {
    let mut call = Prepared::of(CallKind::Gather);
    call.elements(count, dtype)?.root(group, root)?;
    let output = if call.is_root(group) { (output, of_all(group, count)?) } else { NO_OUTPUT };
    // SAFETY: as promised by the caller.
    unsafe { call.buffers((input, count), output, InPlace::InputAt(own_at(group, count))) }
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
pub(super) unsafe fn gatherv(
    group: &Group,
    (input, count): (*const c_void, usize),
    output: *mut c_void,
    (counts, displs): Lists,
    dtype: i32,
    root: i32,
) -> Result<Work<'static>> {
    let mut call = Prepared::of(CallKind::Gatherv);
    call.elements(0, dtype)?.root(group, root)?;
    let mut layout = Layout { own: count as u64, ..Layout::default() };
    if !call.is_root(group) {
        call.layout(layout);
        // SAFETY: as promised by the caller.
        return unsafe { call.buffers((input, count), NO_OUTPUT, InPlace::Never) };
    }
    // SAFETY: as promised by the caller.
    layout.output = unsafe { parts(group, (counts, "counts"), (displs, "displs")) }?;
    check_apart(&layout.output, "gatherv: displs")?;
    let (own_count, own_displ) = own(&layout.output, group);
    check_own("gatherv", count, own_count, group)?;
    let all = extent(&layout.output);
    call.layout(layout);
    // SAFETY: as promised by the caller.
    unsafe { call.buffers((input, count), (output, all), InPlace::InputAt(own_displ)) }
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
pub(super) unsafe fn scatter(
    group: &Group,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
) -> Result<Work<'static>> {
    let mut call = Prepared::of(CallKind::Scatter);
    call.elements(count, dtype)?.root(group, root)?;
    let input = if call.is_root(group) { (input, of_all(group, count)?) } else { NO_INPUT };
    // SAFETY: as promised by the caller.
    unsafe { call.buffers(input, (output, count), InPlace::OutputAt(own_at(group, count))) }
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
pub(super) unsafe fn scatterv(
    group: &Group,
    input: *const c_void,
    (counts, displs): Lists,
    (output, count): (*mut c_void, usize),
    dtype: i32,
    root: i32,
) -> Result<Work<'static>> {
    let mut call = Prepared::of(CallKind::Scatterv);
    call.elements(0, dtype)?.root(group, root)?;
    let mut layout = Layout { own: count as u64, ..Layout::default() };
    if !call.is_root(group) {
        call.layout(layout);
        // SAFETY: as promised by the caller.
        return unsafe { call.buffers(NO_INPUT, (output, count), InPlace::Never) };
    }
    // SAFETY: as promised by the caller.
    layout.input = unsafe { parts(group, (counts, "counts"), (displs, "displs")) }?;
    let (own_count, own_displ) = own(&layout.input, group);
    check_own("scatterv", count, own_count, group)?;
    let all = extent(&layout.input);
    call.layout(layout);
    // SAFETY: as promised by the caller.
    unsafe { call.buffers((input, all), (output, count), InPlace::OutputAt(own_displ)) }
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
pub(super) unsafe fn reduce_scatter(
    group: &Group,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    (dtype, op): (i32, Operator),
) -> Result<Work<'static>> {
    let mut call = Prepared::of(CallKind::ReduceScatter);
    // SAFETY: as promised by the caller.
    unsafe { call.elements(count, dtype)?.op(group, op)? };
    let place = InPlace::OutputAt(own_at(group, count));
    // SAFETY: as promised by the caller.
    unsafe { call.buffers((input, of_all(group, count)?), (output, count), place) }
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
pub(super) unsafe fn reduce_scatterv(
    group: &Group,
    input: *const c_void,
    output: *mut c_void,
    counts: *const usize,
    (dtype, op): (i32, Operator),
) -> Result<Work<'static>> {
    // SAFETY: as promised by the caller.
    let input_parts = unsafe { parts(group, (counts, "counts"), (std::ptr::null(), "displs")) }?;
    let (own_count, own_displ) = own(&input_parts, group);
    let all = extent(&input_parts);
    let mut call = Prepared::of(CallKind::ReduceScatterv);
    // SAFETY: as promised by the caller.
    unsafe { call.elements(0, dtype)?.op(group, op)? };
    call.agreed(&input_parts.counts);
    call.layout(Layout { own: own_count as u64, input: input_parts, output: Parts::default() });
    // SAFETY: as promised by the caller.
    unsafe { call.buffers((input, all), (output, own_count), InPlace::OutputAt(own_displ)) }
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
pub(super) unsafe fn alltoall(
    group: &Group,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: i32,
) -> Result<Work<'static>> {
    let mut call = Prepared::of(CallKind::Alltoall);
    call.elements(count, dtype)?;
    let all = of_all(group, count)?;
    // SAFETY: as promised by the caller.
    unsafe { call.buffers((input, all), (output, all), InPlace::InputAt(0)) }
}

// SAFETY: (contract) as for the entry of this name, until the work is done.
pub(super) unsafe fn alltoallv(
    group: &Group,
    input: *const c_void,
    (in_counts, in_displs): Lists,
    output: *mut c_void,
    (out_counts, out_displs): Lists,
    dtype: i32,
) -> Result<Work<'static>> {
    // SAFETY: as promised by the caller.
    let input_parts = unsafe { parts(group, (in_counts, "in_counts"), (in_displs, "in_displs")) }?;
    // SAFETY: as promised by the caller.
    let output_parts = unsafe { parts(group, (out_counts, "out_counts"), (out_displs, "out_displs")) }?;
    check_apart(&output_parts, "alltoallv: out_displs")?;
    let (sent, kept) = (own(&input_parts, group).0, own(&output_parts, group).0);
    check_own("alltoallv", sent, kept, group)?;
    // In place, the part that goes to a rank lies where the part that comes from it will lie.
    let place = if input_parts == output_parts { InPlace::InputAt(0) } else { InPlace::Never };
    let (input, output) = ((input, extent(&input_parts)), (output, extent(&output_parts)));
    let mut call = Prepared::of(CallKind::Alltoallv);
    call.elements(0, dtype)?;
    call.layout(Layout { own: sent as u64, input: input_parts, output: output_parts });
    // SAFETY: as promised by the caller.
    unsafe { call.buffers(input, output, place) }
}

/// The part that this rank sends to itself must be as long as the part that it expects from itself.
pub(super) fn check_own(kind: &str, gives: usize, expects: usize, group: &Group) -> Result<()> {
    // The call itself tells a process that it is no member of the group.
    let Some(rank) = group.rank().filter(|_| gives != expects) else { return Ok(()) };
    Err(Error::invalid(format!(
        "{kind}: this rank, {rank}, gives {gives} elements to itself and its counts expect {expects}: they must be equal"
    )))
}
