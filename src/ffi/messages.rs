//! Point to point: sends and receives, blocking and not.

use super::constants::{muster_status_t, MUSTER_ANY_SOURCE, MUSTER_ANY_TAG};
use super::convert::{handle, out as check_out};
use super::guard::guard;
use super::handles::muster_group_t;
use super::prepare::{check_member, check_null_of, dtype_of, overlap};
use super::request::{muster_received_t, muster_request_t, Report};
use crate::error::{memory, Error, Result, Status};
use crate::runtime::base::polling::Tester;
use crate::runtime::groups::group::Group;
use crate::runtime::memory::buffer::{CallBuffers, Placement};
use crate::runtime::messages::{Direction, Post};
use crate::types::DType;
use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;

thread_local! {
    /// This thread's unsuccessful calls of muster_iprobe.
    static PROBER: RefCell<Tester> = const { RefCell::new(Tester::of_probes()) };
}

/// Elements, as a caller gives them.
struct Elements<T> {
    memory: T,
    count: usize,
    dtype: i32,
}

impl<T> Elements<T> {
    fn of(memory: T, count: usize, dtype: i32) -> Elements<T> {
        Elements { memory, count, dtype }
    }
}

fn member(group: &Group, rank: i32, name: &str) -> Result<u32> {
    let fits = u32::try_from(rank).ok().filter(|rank| *rank < group.size());
    fits.ok_or_else(|| {
        let any = if name == "from" { " or MUSTER_ANY_SOURCE" } else { "" };
        let last = i64::from(group.size()) - 1;
        Error::invalid(format!("{name} is {rank}: expected 0 to {last}{any} on {}", group.id()))
    })
}

/// The names of the arguments of one direction: the elements, their count and type, and the tag.
type Names = [&'static str; 4];
const SENT: Names = ["in", "count", "dtype", "tag"];
const RECEIVED: Names = ["out", "count", "dtype", "tag"];
const SENT_OF_BOTH: Names = ["in", "in_count", "in_dtype", "in_tag"];
const RECEIVED_OF_BOTH: Names = ["out", "out_count", "out_dtype", "out_tag"];

fn bytes(count: usize, dtype: DType, name: &str) -> Result<usize> {
    let bytes = dtype.bytes_of(count as u64);
    bytes.ok_or_else(|| Error::invalid(format!("by its count {name} has {count} elements: more than any memory holds")))
}

/// # Safety
/// Until the operation has ended the elements must be readable, and nobody may write to them.
unsafe fn to_send(group: &Group, from: Elements<*const c_void>, to: i32, tag: i32, names: &Names) -> Result<Post> {
    let [memory, count, dtype, tag_name] = *names;
    let to = member(group, to, "to")?;
    if tag < 0 {
        return Err(Error::invalid(format!("{tag_name} is {tag}: expected 0 or more")));
    }
    let dtype = dtype_of(from.dtype, dtype)?;
    let length = bytes(from.count, dtype, memory)?;
    check_null_of(from.memory, from.count, [memory, count])?;
    // SAFETY: as promised by the caller.
    let buffers =
        unsafe { CallBuffers::new((from.memory.cast(), length), (std::ptr::null_mut(), 0), Placement::Apart) };
    Ok(Post::new(Direction::Send { to, tag }, dtype, from.count as u64, buffers))
}

/// What a receive asks for.
fn wanted(group: &Group, from: i32, tag: i32, tag_name: &str) -> Result<(Option<u32>, Option<i32>)> {
    let from = if from == MUSTER_ANY_SOURCE { None } else { Some(member(group, from, "from")?) };
    match tag {
        MUSTER_ANY_TAG => Ok((from, None)),
        0.. => Ok((from, Some(tag))),
        _ => Err(Error::invalid(format!("{tag_name} is {tag}: expected 0 or more, or MUSTER_ANY_TAG"))),
    }
}

/// # Safety
/// Until the operation has ended the elements must be writable, and nobody may write to them or read them.
unsafe fn to_receive(group: &Group, into: Elements<*mut c_void>, from: i32, tag: i32, names: &Names) -> Result<Post> {
    let [memory, count, dtype, tag_name] = *names;
    let (from, tag) = wanted(group, from, tag, tag_name)?;
    let dtype = dtype_of(into.dtype, dtype)?;
    let length = bytes(into.count, dtype, memory)?;
    check_null_of(into.memory, into.count, [memory, count])?;
    // SAFETY: as promised by the caller.
    let buffers = unsafe { CallBuffers::new((std::ptr::null(), 0), (into.memory.cast(), length), Placement::Apart) };
    Ok(Post::new(Direction::Receive { from, tag }, dtype, into.count as u64, buffers))
}

/// The same send, from a copy that is made now, because a receive may overwrite the original.
///
/// # Safety
/// `from` must be readable for the elements of the send.
unsafe fn copied(send: Post, from: *const c_void) -> Result<Post> {
    let (mut copy, length) = (Vec::new(), send.bytes());
    memory::more(&mut copy, length, "a copy of what is sent")?;
    // SAFETY: as promised by the caller.
    copy.extend_from_slice(unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) });
    // SAFETY: the copy goes with the operation, and nobody changes it.
    let buffers = unsafe { CallBuffers::new((copy.as_ptr(), length), (std::ptr::null_mut(), 0), Placement::Apart) };
    Ok(send.of_copy(copy, buffers))
}

/// A receive, and a send beside it.
///
/// # Safety
/// As for both.
unsafe fn both(
    group: &Group,
    (input, to, in_tag): (Elements<*const c_void>, i32, i32),
    (output, from, out_tag): (Elements<*mut c_void>, i32, i32),
) -> Result<(Post, Option<Post>)> {
    let (sent, start, end) = (input.memory, input.memory as usize, output.memory as usize);
    // SAFETY: as promised by the caller.
    let send = unsafe { to_send(group, input, to, in_tag, &SENT_OF_BOTH) }?;
    // SAFETY: as promised by the caller.
    let receive = unsafe { to_receive(group, output, from, out_tag, &RECEIVED_OF_BOTH) }?;
    if !overlap((start, send.bytes()), (end, receive.bytes())) {
        return Ok((receive, Some(send)));
    }
    // SAFETY: as promised by the caller.
    Ok((receive, Some(unsafe { copied(send, sent) }?)))
}

type Posts = Result<(Post, Option<Post>)>;

/// Carries messages out, for the call of this name.
///
/// # Safety
/// `group` must be NULL or a live group.
unsafe fn run(
    (group, name): (*mut muster_group_t, &str),
    report: Report,
    posts: impl FnOnce(&Group) -> Posts,
) -> muster_status_t {
    guard(|| {
        report.check()?;
        // SAFETY: as promised by the caller.
        let group = unsafe { handle(group, "group") }?;
        let ended = group.with_shared(|group: &Arc<Group>| {
            check_member(group, name)?;
            let (first, second) = posts(group)?;
            group.run_messages(first, second)
        });
        report.give_end(ended).map(|()| Status::Ok)
    })
}

/// Starts messages, for the call of this name.
///
/// # Safety
/// `group` must be NULL or a live group, `request` NULL or writable.
unsafe fn start(
    (group, name): (*mut muster_group_t, &str),
    report: Report,
    request: *mut *mut muster_request_t,
    posts: impl FnOnce(&Group) -> Posts,
) -> muster_status_t {
    guard(|| {
        report.check()?;
        let to = check_out(request, "request")?;
        // SAFETY: as promised by the caller.
        let group = unsafe { handle(group, "group") }?;
        let started = group.with_shared(|group: &Arc<Group>| {
            check_member(group, name)?;
            let (first, second) = posts(group)?;
            group.start_messages(first, second)
        })?;
        // SAFETY: not NULL, and writable as the caller promised.
        unsafe { to.write(muster_request_t::give_reporting(started, report)) };
        Ok(Status::Ok)
    })
}

/// Sends `count` elements to the member with rank `to`, under a tag of 0 or more. The message meets a receive of that
/// member on the same group which asks for this rank (or any) and this tag (or any). Messages from one rank to another
/// do not overtake each other: if two of them fit a receive, the one that was sent first is received first. (There is
/// one exception. A receive may have just met a message when the sender leaves, the send's time is up, or the sender's
/// call is interrupted. Then that receive waits again. It may get a message that was sent after a message that a later
/// receive has got.)
///
/// A message of up to 64 KiB is eager: this returns when the system has taken it, and the receiver keeps it until it
/// is received. A receiver keeps up to 16 MiB of eager messages of one sender (in this version each counts 512 bytes
/// more than it has). A further eager message waits for its receive, as a longer message does. If a rank sends to
/// itself and has posted no receive, an eager message is kept (MUSTER_ERR_LIMIT beyond the 16 MiB), and a longer one is
/// MUSTER_ERR_STATE.
///
/// Messages have no place in the order of collectives, and go on at the same time as these. `in` may be NULL where
/// `count` is 0, and is the caller's again when this returns. Blocking, at most for the group's time-out:
/// MUSTER_ERR_TIMEOUT (the message may still arrive if a part of it had been sent), which ends this call alone. These
/// errors end this call alone, too: MUSTER_ERR_MISMATCH if a message that waited for its receive met one of another
/// element type, or for fewer elements; MUSTER_ERR_ABORTED if that receive was given up in the middle;
/// MUSTER_ERR_PEER_LEFT if the receiver has left. A lost peer, damaged data or a broken link revokes the group, and a
/// revoked group or a broken cluster ends this call with its first cause, as muster_barrier. A process that is no
/// member of the group gets MUSTER_ERR_INVALID. Thread-safe.
///
/// # Safety
/// `group` must be NULL or a live group; `in` must be readable for `count` elements, or NULL, and nobody may write to it
/// meanwhile.
#[no_mangle]
pub unsafe extern "C" fn muster_send(
    group: *mut muster_group_t,
    r#in: *const c_void,
    count: usize,
    dtype: i32,
    to: i32,
    tag: i32,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    let post = |group: &Group| unsafe { to_send(group, Elements::of(r#in, count, dtype), to, tag, &SENT) };
    // SAFETY: as promised by the caller.
    unsafe { run((group, "send"), Report::NONE, |group| Ok((post(group)?, None))) }
}

/// Receives a message of at most `count` elements from the member with rank `from`, or from any (MUSTER_ANY_SOURCE), under
/// this tag, or any (MUSTER_ANY_TAG). Of several receives that a message fits, the one that was called first gets it.
///
/// If `received` is not NULL, the call writes to it the sender's rank, the tag, and how many elements came; `size` is
/// sizeof *received. A message of another element type, or longer than `count`, is dropped: MUSTER_ERR_MISMATCH,
/// which ends this call alone. `received` is written then, too, although the call fails: it has the message's true
/// length and type. A caller that does not know how long a message is asks muster_probe. `out` may be NULL where
/// `count` is 0; what lies beyond the elements that came is not touched. After an error its contents are undefined.
///
/// Blocking, time-out and errors as muster_send. MUSTER_ERR_PEER_LEFT if the sender has left and none of its messages
/// waits. A receive from any source returns this error when this rank has learnt that all other members have left. In a
/// group of two the rank always learns this. In a larger group it learns this only of ranks with which it has exchanged
/// messages, or has tried to: a receive from any source opens no links of its own. MUSTER_ERR_ABORTED if the sender
/// gave up in the middle. Thread-safe.
///
/// # Safety
/// `group` must be NULL or a live group; `out` must be writable for `count` elements, or NULL, and nobody else may use it
/// meanwhile; `received` must be NULL or writable for `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn muster_recv(
    group: *mut muster_group_t,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    from: i32,
    tag: i32,
    received: *mut muster_received_t,
    size: usize,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    let post = |group: &Group| unsafe { to_receive(group, Elements::of(out, count, dtype), from, tag, &RECEIVED) };
    // SAFETY: as promised by the caller.
    unsafe { run((group, "recv"), Report::to(received, size), |group| Ok((post(group)?, None))) }
}

/// Sends and receives at once, so that ranks in a ring need not agree on who begins: as muster_irecv and muster_isend together, and
/// a wait for both. Returns when both have ended, with the first error of either. The two may have different partners, tags, counts
/// and element types. If `in` and `out` overlap, the library sends a copy of `in`, made at once (MUSTER_ERR_MEMORY).
/// Blocking as muster_send and muster_recv. `in`, `in_count`, `in_dtype`, `to` and `in_tag` describe the send; `out`,
/// `out_count`, `out_dtype`, `from` and `out_tag` the receive. `received` is as for muster_recv. If the message did not
/// fit, it is written only if the call returns that MUSTER_ERR_MISMATCH.
///
/// # Safety
/// As for muster_send and muster_recv.
#[no_mangle]
pub unsafe extern "C" fn muster_sendrecv(
    group: *mut muster_group_t,
    r#in: *const c_void,
    in_count: usize,
    in_dtype: i32,
    to: i32,
    in_tag: i32,
    out: *mut c_void,
    out_count: usize,
    out_dtype: i32,
    from: i32,
    out_tag: i32,
    received: *mut muster_received_t,
    size: usize,
) -> muster_status_t {
    let send = (Elements::of(r#in, in_count, in_dtype), to, in_tag);
    let receive = (Elements::of(out, out_count, out_dtype), from, out_tag);
    // SAFETY: as promised by the caller.
    unsafe { run((group, "sendrecv"), Report::to(received, size), |group| both(group, send, receive)) }
}

/// Starts a muster_send, which goes on while the caller does something else; `in` is in use until the send has ended,
/// as the request tells. Sends start in the order in which they are called; a send that waits for its receive does not
/// hold up later sends, as long as at most 65,536 sends to one member wait for their receives. Does not wait. A send
/// that has met its receive can no longer be cancelled. Both forms send the same messages: a send that waits may meet a
/// receive that does not wait, and the other way round.
///
/// # Safety
/// As for muster_send, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_isend(
    group: *mut muster_group_t,
    r#in: *const c_void,
    count: usize,
    dtype: i32,
    to: i32,
    tag: i32,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    let post = |group: &Group| unsafe { to_send(group, Elements::of(r#in, count, dtype), to, tag, &SENT) };
    // SAFETY: as promised by the caller.
    unsafe { start((group, "isend"), Report::NONE, request, |group| Ok((post(group)?, None))) }
}

/// Starts a muster_recv, which goes on while the caller does something else; `out` is in use until the receive has
/// ended, as the request tells. muster_request_test, muster_request_wait, muster_request_wait_any and
/// muster_request_wait_all write `received` each time they return MUSTER_OK, or the MUSTER_ERR_MISMATCH of a message
/// that did not fit. `received` must stay writable for as long as any of these is called on the request. Does not wait.
/// A receive that has met its message can no longer be cancelled. But if that message does not come after all, the
/// receive ends with MUSTER_ERR_ABORTED.
///
/// # Safety
/// As for muster_recv, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_irecv(
    group: *mut muster_group_t,
    out: *mut c_void,
    count: usize,
    dtype: i32,
    from: i32,
    tag: i32,
    received: *mut muster_received_t,
    size: usize,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    // SAFETY: as promised by the caller.
    let post = |group: &Group| unsafe { to_receive(group, Elements::of(out, count, dtype), from, tag, &RECEIVED) };
    // SAFETY: as promised by the caller.
    unsafe { start((group, "irecv"), Report::to(received, size), request, |group| Ok((post(group)?, None))) }
}

/// Starts a muster_sendrecv: one request that has ended when both have. `received` as for muster_irecv. Cancelling the
/// request ends each of the two messages that has neither ended nor met its other half.
///
/// # Safety
/// As for muster_sendrecv, until the request has ended; `request` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_isendrecv(
    group: *mut muster_group_t,
    r#in: *const c_void,
    in_count: usize,
    in_dtype: i32,
    to: i32,
    in_tag: i32,
    out: *mut c_void,
    out_count: usize,
    out_dtype: i32,
    from: i32,
    out_tag: i32,
    received: *mut muster_received_t,
    size: usize,
    request: *mut *mut muster_request_t,
) -> muster_status_t {
    let send = (Elements::of(r#in, in_count, in_dtype), to, in_tag);
    let receive = (Elements::of(out, out_count, out_dtype), from, out_tag);
    // SAFETY: as promised by the caller.
    unsafe { start((group, "isendrecv"), Report::to(received, size), request, |group| both(group, send, receive)) }
}

/// Waits for the next message that a receive from `from` (a rank, or MUSTER_ANY_SOURCE) under `tag` (or MUSTER_ANY_TAG) would get,
/// and tells of it without taking it: `out` gets its source, tag, length and element type; `size` is sizeof *out. So a caller
/// can make room for a message whose length it does not know, and then receive it from that source under that tag.
///
/// The message may not be all here yet. Another thread's receive may get it first, and its sender may give it up: then a receive
/// waits for another one. A probe does not find a message that a posted receive has already met. Blocking, time-out and
/// errors as muster_recv. Thread-safe.
///
/// # Safety
/// `group` must be NULL or a live group; `out` must be writable for `size` bytes, or NULL (which is refused).
#[no_mangle]
pub unsafe extern "C" fn muster_probe(
    group: *mut muster_group_t,
    from: i32,
    tag: i32,
    out: *mut muster_received_t,
    size: usize,
) -> muster_status_t {
    let post = |group: &Group| {
        check_out(out, "out")?;
        wanted(group, from, tag, "tag").map(|(from, tag)| (Post::probe(from, tag), None))
    };
    // SAFETY: as promised by the caller.
    unsafe { run((group, "probe"), Report::to(out, size), post) }
}

/// As muster_probe, but does not wait: MUSTER_IN_PROGRESS where there is no such message yet, and `out` is not
/// written. Before it looks, it reads what has arrived on the links, so that a program that asks again and again
/// finds each message. A thread that asks in a loop and finds nothing lets others run now and then, as
/// muster_request_test does. Thread-safe.
///
/// # Safety
/// `group` must be NULL or a live group; `out` must be writable for `size` bytes, or NULL (which is refused).
#[no_mangle]
pub unsafe extern "C" fn muster_iprobe(
    group: *mut muster_group_t,
    from: i32,
    tag: i32,
    out: *mut muster_received_t,
    size: usize,
) -> muster_status_t {
    guard(|| {
        let report = Report::to(check_out(out, "out")?, size);
        report.check()?;
        // SAFETY: as promised by the caller.
        let group = unsafe { handle(group, "group") }?;
        let found = group.with_shared(|group: &Arc<Group>| {
            check_member(group, "iprobe")?;
            let (from, tag) = wanted(group, from, tag, "tag")?;
            group.look_for_message(from, tag)
        })?;
        PROBER.with_borrow_mut(|prober| prober.looked(found.is_some()));
        match found {
            None => Ok(Status::InProgress),
            found => report.give_end(Ok(found)).map(|()| Status::Ok),
        }
    })
}
