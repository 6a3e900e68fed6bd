//! Groups: handles, ranks, members.

use super::constants::{
    muster_status_t, MUSTER_ADDRESS_BYTES, MUSTER_MEMBER_LEFT, MUSTER_MEMBER_LOST, MUSTER_MEMBER_PRESENT,
    MUSTER_NAME_BYTES,
};
use super::convert::{check_struct, fixed, give_struct, handle, out as check_out, slice, text};
use super::failure::muster_failure_t;
use super::guard::{guard, guard_number, guard_or};
use super::handles::{muster_cluster_t, muster_group_t};
use crate::error::{Error, Result, Status};
use crate::runtime::groups::group::Group;
use crate::runtime::groups::handle::GroupHandle;
use crate::runtime::groups::registry::{Registry, Standing};
use std::ffi::c_char;
use std::sync::Arc;

/// One of the groups that a cluster itself has; NULL when the cluster may not be used.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
unsafe fn borrowed(
    cluster: *mut muster_cluster_t,
    pick: impl FnOnce(&muster_cluster_t) -> &muster_group_t,
) -> *mut muster_group_t {
    guard_or(std::ptr::null_mut(), || {
        // SAFETY: as promised by the callers below.
        let cluster = unsafe { handle(cluster, "cluster") }?;
        Ok(std::ptr::from_ref(pick(cluster)).cast_mut())
    })
}

/// All workers. Borrowed from the cluster: not to be freed. NULL only if `cluster` is NULL.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_world(cluster: *mut muster_cluster_t) -> *mut muster_group_t {
    // SAFETY: as promised by the caller.
    unsafe { borrowed(cluster, |cluster| &cluster.world) }
}

/// All parameter servers; of size 0 if there are none. Borrowed from the cluster: not to be freed.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_servers(cluster: *mut muster_cluster_t) -> *mut muster_group_t {
    // SAFETY: as promised by the caller.
    unsafe { borrowed(cluster, |cluster| &cluster.servers) }
}

/// All workers, then all servers. Borrowed from the cluster: not to be freed.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_universe(cluster: *mut muster_cluster_t) -> *mut muster_group_t {
    // SAFETY: as promised by the caller.
    unsafe { borrowed(cluster, |cluster| &cluster.universe) }
}

/// A query that answers with a number.
///
/// # Safety
/// `group` must be NULL or a live group.
unsafe fn number(group: *const muster_group_t, read: impl FnOnce(&Group) -> Result<u32>) -> i32 {
    let number = guard_number(|| {
        // SAFETY: as promised by the callers below.
        unsafe { handle(group, "group") }?.with(|group| read(group).map(i64::from))
    });
    // Ranks and statuses are 32-bit numbers; no panic may leave an entry, so this does not rely on it.
    i32::try_from(number).unwrap_or(Status::Internal.code())
}

/// This process's rank in the group, 0 or more; MUSTER_ERR_NOT_FOUND if it is no member.
///
/// # Safety
/// `group` must be NULL or a live group.
#[no_mangle]
pub unsafe extern "C" fn muster_group_rank(group: *const muster_group_t) -> i32 {
    let read = |group: &Group| {
        group.rank().ok_or_else(|| Error::new(Status::NotFound, format!("this process is no member of {}", group.id())))
    };
    // SAFETY: as promised by the caller.
    unsafe { number(group, read) }
}

/// How many members the group has.
///
/// # Safety
/// `group` must be NULL or a live group.
#[no_mangle]
pub unsafe extern "C" fn muster_group_size(group: *const muster_group_t) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe { number(group, |group| Ok(group.size())) }
}

/// Translates the rank of a member of this group to that member's rank among all workers; MUSTER_ERR_NOT_FOUND for a
/// member that is no worker, MUSTER_ERR_INVALID for a rank that the group does not have.
///
/// # Safety
/// `group` must be NULL or a live group.
#[no_mangle]
pub unsafe extern "C" fn muster_group_to_world(group: *const muster_group_t, rank: i32) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe { number(group, |group| group.to_world(rank)) }
}

/// Translates a rank among all workers to the rank that this worker has in the group; MUSTER_ERR_NOT_FOUND if the
/// worker is no member, MUSTER_ERR_INVALID for a rank that no worker has.
///
/// # Safety
/// `group` must be NULL or a live group.
#[no_mangle]
pub unsafe extern "C" fn muster_group_from_world(group: *const muster_group_t, world_rank: i32) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe { number(group, |group| group.from_world(world_rank)) }
}

/// A member of a group.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct muster_member_t {
    /// MUSTER_ROLE_WORKER or MUSTER_ROLE_SERVER.
    pub role: i32,
    /// Its rank in its role's rank space.
    pub rank: i32,
    /// Its place among the nodes of its role on its host.
    pub local_rank: i32,
    /// Its process.
    pub pid: i32,
    /// MUSTER_MEMBER_PRESENT, _LOST or _LEFT, as far as this process has heard.
    pub state: i32,
    /// Its node id.
    pub node_id: [c_char; MUSTER_NAME_BYTES],
    /// Its host's name.
    pub host: [c_char; MUSTER_NAME_BYTES],
    /// Where it can be reached, as "host:port" with a numeric host: the first of its addresses.
    pub address: [c_char; MUSTER_ADDRESS_BYTES],
}

/// Describes a member. Pass `sizeof *out` as `size`. In clusters of more than 1,024 nodes this may ask the scheduler,
/// and wait for its answer for one heartbeat time-out at most. Without an answer it returns MUSTER_ERR_UNREACHABLE.
/// MUSTER_ERR_INVALID for a rank that the group does not have.
///
/// # Safety
/// `group` must be NULL or a live group; `out` must be NULL or writable for `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn muster_group_member(
    group: *const muster_group_t,
    rank: i32,
    out: *mut muster_member_t,
    size: usize,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let group = unsafe { handle(group, "group") }?;
        let (member, standing) = group.with_registry(|registry, group| registry.find_member(group, rank))?;
        let address = member.addresses.first().map(ToString::to_string).unwrap_or_default();
        let given = muster_member_t {
            role: member.role as i32,
            rank: member.rank as i32,
            local_rank: member.local_rank as i32,
            pid: member.process.pid as i32,
            state: match standing {
                Standing::Present => MUSTER_MEMBER_PRESENT,
                Standing::Lost => MUSTER_MEMBER_LOST,
                Standing::Left => MUSTER_MEMBER_LEFT,
            },
            node_id: fixed(&member.node_id),
            host: fixed(&member.host.name),
            address: fixed(&address),
        };
        // SAFETY: as promised by the caller.
        unsafe { give_struct(&given, out, size, std::mem::size_of::<i32>()) }
    })
}

/// The first cause for which the group is over: what a failing call on it returns and says (muster_last_error). Pass
/// `sizeof *out` as `size`. MUSTER_ERR_NOT_FOUND while nothing has ended the group, and if muster_finalize or
/// muster_cluster_free has ended it. muster_failure says how this and the cluster's first cause relate. Thread-safe;
/// does not block.
///
/// Once this call has given a cause, the cause stays the same, with one exception. If it is MUSTER_ERR_REVOKED (a rank
/// called muster_recover) and the real cause becomes known later, the real cause takes its place. Calls on the group
/// then return the real cause, too.
///
/// # Safety
/// `group` must be NULL or a live group; `out` must be NULL or writable for `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn muster_group_failure(
    group: *const muster_group_t,
    out: *mut muster_failure_t,
    size: usize,
) -> muster_status_t {
    guard(|| {
        let least = std::mem::size_of::<muster_status_t>();
        let out = check_struct(out, size, least)?;
        let first_cause = |group: &Group| {
            let holds = || Error::new(Status::NotFound, format!("nothing has failed: {} is not broken", group.id()));
            group.why_over().ok_or_else(holds)
        };
        // SAFETY: as promised by the caller.
        let failure = unsafe { handle(group, "group") }?.with(first_cause)?;
        // SAFETY: as promised by the caller.
        unsafe { give_struct(&muster_failure_t::from(&failure), out, size, least) }
    })
}

/// How long an operation on the group may take, in milliseconds: -1 means the default (setting timeout, 1,800 s),
/// INT64_MAX no limit, and 0 only what can be done at once. It counts for later calls of this process. When the time is
/// up, a collective revokes the group, and a message ends alone.
///
/// # Safety
/// `group` must be NULL or a live group.
#[no_mangle]
pub unsafe extern "C" fn muster_group_set_timeout(group: *mut muster_group_t, timeout_ms: i64) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        unsafe { handle(group, "group") }?.with_handle(|group| group.set_timeout_ms(timeout_ms).map(|()| Status::Ok))
    })
}

/// Makes a group of `world_ranks`, which are `n` ranks of workers, each at most once; their order is the order of
/// rank in the new group. Only those ranks call it, each with the same list and the same `tag`; nobody else takes part.
/// The call has no place in the order of any group's collectives. The group that it writes to `out` has the default
/// time-out. Free it with muster_group_free.
///
/// `tag` tells groups of the same ranks apart: a string of at most 255 bytes of UTF-8, "" if one group is enough. The
/// members' n-th call with the same list and tag makes their n-th such group. Threads that make groups at the same time
/// must give them different tags; a second call with the same list and tag meanwhile is MUSTER_ERR_STATE.
///
/// Blocks until all members have asked and the scheduler has made the group: at most for `timeout_ms`, and 250 ms more
/// if the scheduler does not answer. -1 means the setting timeout (1,800 s), and INT64_MAX no limit. With 0 it succeeds
/// only if all other members have asked already. muster_interrupt says how it may end early. After an early end, and
/// after a time-out, nothing has changed for the other members, and this process may call it again. If the group is
/// made at the moment of that end, the call returns MUSTER_OK.
///
/// Errors, which end nothing but this call: MUSTER_ERR_TIMEOUT (the sentence names the members that have not asked);
/// MUSTER_ERR_MISMATCH (two members call it with the same tag and different lists, and each of them is in both lists;
/// the sentence names both members; members that already wait for either list get the error, too, and a member that
/// asks later waits until its time is up); MUSTER_ERR_PEER_LEFT (a member has left); MUSTER_ERR_REVOKED (a node has
/// called muster_recover); MUSTER_ERR_LIMIT (this process is already making 16 groups); MUSTER_ERR_UNREACHABLE
/// (as in muster_group_create); MUSTER_ERR_INVALID, also if this process is not among the ranks; and in a broken
/// cluster its first cause.
///
/// With recovery the scheduler writes the group to its journal, like other groups. A node that comes back after its
/// loss makes this call again for each group that it had, and the others need not take part. The order of different
/// lists and tags does not matter. Thread-safe.
///
/// # Safety
/// `cluster` must be NULL or a live cluster; `world_ranks` readable for `n` numbers or NULL; `tag` NULL or a string; `out` NULL
/// or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_group_create_members(
    cluster: *mut muster_cluster_t,
    world_ranks: *const i32,
    n: usize,
    tag: *const c_char,
    timeout_ms: i64,
    out: *mut *mut muster_group_t,
) -> muster_status_t {
    guard(|| {
        let to = check_out(out, "out")?;
        // SAFETY: as promised by the caller.
        let (cluster, ranks, tag) =
            unsafe { (handle(cluster, "cluster")?, slice(world_ranks, n, "world_ranks")?, text(tag, "tag")?) };
        let made = cluster.with(|cluster| {
            let default = cluster.settings().operation_timeout;
            let made = cluster.registry().create_by_members(ranks, tag, timeout_ms, default)?;
            Ok(give(cluster.registry(), Some(made)))
        })?;
        // SAFETY: not NULL, and writable as the caller promised.
        unsafe { to.write(made) };
        Ok(Status::Ok)
    })
}

/// Makes a group of `ranks`, which are `n` ranks of `parent`, each at most once; their order is the order of rank in the new
/// group. All of parent's members call it, with the same list. Those in the list get the group, the others NULL. Free
/// the group with muster_group_free. `ranks` may be NULL where `n` is 0: then nobody gets a group. MUSTER_ERR_INVALID
/// for a rank that `parent` does not have, and for a rank that is in the list twice: then nothing has begun.
///
/// Blocks until all members have asked and the scheduler has made the group: at most for parent's time-out, and up to
/// 500 ms more, as muster_barrier. With a time-out of 0 the call fails and revokes `parent`, because the scheduler's
/// answer takes time. Without recovery it waits for a scheduler that is away only until two things hold: the scheduler
/// has not been heard for the heartbeat time-out, and it accepts no connection. Then the call returns
/// MUSTER_ERR_UNREACHABLE without a culprit, and `parent` is revoked. The call takes its place among the collectives of
/// parent, and has the errors of muster_barrier: if a member passes another list, or calls another collective, that is
/// a mismatch. A node that comes back after its loss makes its groups once more, each with the same list: see
/// muster_recover. Thread-safe. The new group has the default time-out.
///
/// # Safety
/// `parent` must be NULL or a live group; `ranks` readable for `n` numbers or NULL; `out` NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_group_create(
    parent: *mut muster_group_t,
    ranks: *const i32,
    n: usize,
    out: *mut *mut muster_group_t,
) -> muster_status_t {
    guard(|| {
        let to = check_out(out, "out")?;
        // SAFETY: as promised by the caller.
        let parent = unsafe { handle(parent, "parent") }?;
        let made = parent.with_registry(|registry, parent| {
            if n > parent.size() as usize {
                return Err(Error::invalid(format!(
                    "n is {n}: expected at most {}, the size of parent",
                    parent.size()
                )));
            }
            // SAFETY: as promised by the caller.
            let made = registry.create(parent, unsafe { slice(ranks, n, "ranks") }?)?;
            Ok(give(registry, made))
        })?;
        // SAFETY: not NULL, and writable as the caller promised.
        unsafe { to.write(made) };
        Ok(Status::Ok)
    })
}

/// Splits a group: all members that pass the same colour get one new group together, ordered by `key` and, if keys are
/// equal, by rank in `parent`. All of parent's members call it. A member that passes a negative colour is in no new group, and
/// gets NULL.
///
/// Otherwise as muster_group_create.
///
/// # Safety
/// `parent` must be NULL or a live group; `out` NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_group_split(
    parent: *mut muster_group_t,
    colour: i32,
    key: i32,
    out: *mut *mut muster_group_t,
) -> muster_status_t {
    guard(|| {
        let to = check_out(out, "out")?;
        // SAFETY: as promised by the caller.
        let parent = unsafe { handle(parent, "parent") }?;
        let made = parent.with_registry(|registry, parent| {
            let made = registry.split(parent, u32::try_from(colour).ok(), key)?;
            Ok(give(registry, made))
        })?;
        // SAFETY: not NULL, and writable as the caller promised.
        unsafe { to.write(made) };
        Ok(Status::Ok)
    })
}

fn give(registry: &Arc<Registry>, made: Option<Arc<GroupHandle>>) -> *mut muster_group_t {
    made.map_or(std::ptr::null_mut(), |own| Box::into_raw(Box::new(muster_group_t::new(own, registry, false))))
}

/// Frees a group that was made. Does nothing for NULL and for a built-in group. This is no collective: each member may
/// free its own handle at any time. Members that still call collectives which need this member get
/// MUSTER_ERR_PEER_LEFT. This process's calls and requests on the group that are still going on end with
/// MUSTER_ERR_STATE. It may also be called after the cluster has been freed. May wait up to 1 s until what was sent
/// last has reached its peers, and without a limit until a reduction function of the caller's own has returned.
///
/// # Safety
/// `group` must be NULL, a live group, which must not be used afterwards, or a built-in group of a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_group_free(group: *mut muster_group_t) {
    // SAFETY: as promised by the caller.
    if unsafe { group.as_ref() }.is_none_or(|group| group.borrowed) {
        return;
    }
    // SAFETY: not NULL, not a cluster's own, so made by `give`; the caller does not use it again.
    let group = unsafe { Box::from_raw(group) };
    guard(|| {
        match group.handle.own() {
            Some((own, registry)) => registry.free(&own.newest()),
            None => std::mem::forget(group), // its links are the parent's
        }
        Ok(Status::Ok)
    });
}
