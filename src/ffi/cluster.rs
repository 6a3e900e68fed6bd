//! Queries on a cluster, and what broke it.

use super::constants::{muster_status_t, MUSTER_ADDRESS_BYTES};
use super::convert::{check_struct, fixed, give_struct, give_text, handle, out};
use super::failure::muster_failure_t;
use super::guard::{guard, guard_number, guard_or};
use super::handles::muster_cluster_t;
use crate::error::{Error, Failure, Result, Status};
use crate::runtime::node::cluster::Cluster;
use std::ffi::c_char;

/// A query that answers with a number.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
unsafe fn number(cluster: *const muster_cluster_t, read: impl FnOnce(&Cluster) -> i64) -> i64 {
    guard_number(|| {
        // SAFETY: as promised by the callers below.
        unsafe { handle(cluster, "cluster") }?.with(|cluster| Ok(read(cluster)))
    })
}

/// A query that answers with a 32-bit number.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
unsafe fn small(cluster: *const muster_cluster_t, read: impl FnOnce(&Cluster) -> u32) -> i32 {
    // SAFETY: as promised by the callers below.
    let number = unsafe { number(cluster, |cluster| i64::from(read(cluster))) };
    // Ranks, sizes and statuses are 32-bit numbers; no panic may leave an entry, so this does not rely on it.
    i32::try_from(number).unwrap_or(Status::Internal.code())
}

/// MUSTER_ROLE_WORKER or MUSTER_ROLE_SERVER. (The scheduler's process has no cluster handle.)
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_role(cluster: *const muster_cluster_t) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe { small(cluster, |cluster| cluster.role() as u32) }
}

/// This node's rank in its role's rank space, 0 or more.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_rank(cluster: *const muster_cluster_t) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe { small(cluster, |cluster| cluster.formed().rank) }
}

/// How many nodes of this node's role there are: workers, for a worker.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_size(cluster: *const muster_cluster_t) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe { small(cluster, Cluster::size) }
}

/// This node's place among the nodes of its role on its host, in order of rank.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_local_rank(cluster: *const muster_cluster_t) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe { small(cluster, |cluster| cluster.formed().local_rank) }
}

/// How many nodes of this node's role are on its host.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_local_size(cluster: *const muster_cluster_t) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe { small(cluster, |cluster| cluster.formed().local_size) }
}

/// How often this node was lost, started again, and took part again; 0 in its first process. It does not change during
/// a process.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_restarts(cluster: *const muster_cluster_t) -> i32 {
    // SAFETY: as promised by the caller.
    unsafe { small(cluster, |cluster| cluster.formed().restarts) }
}

/// The number of the present epoch, the time in which the same processes are the cluster. The first epoch is 1. A new, higher one
/// begins when muster_recover succeeds.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_epoch(cluster: *const muster_cluster_t) -> i64 {
    // SAFETY: as promised by the caller.
    unsafe { number(cluster, |cluster| cluster.epoch().0 as i64) }
}

/// This node's id: the one it was given, or one made of the rank from its launcher, such as "rank 3". Both are the same
/// when the node is started again. If the node has neither, this process made the id up. Borrowed from the cluster;
/// NULL only if `cluster` is not usable.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_node_id(cluster: *const muster_cluster_t) -> *const c_char {
    guard_or(std::ptr::null(), || {
        // SAFETY: as promised by the caller.
        let cluster = unsafe { handle(cluster, "cluster") }?;
        cluster.with(|_| Ok(cluster.node_id.as_ptr()))
    })
}

/// Writes the ranks of the lost workers in ascending order, at most `cap` of them, to `ranks` (may be NULL if `cap` is 0). Writes
/// the number of all lost workers to `count`, which may exceed `cap`; that is no error. Lost servers are not among
/// them. Only workers whose loss the scheduler has confirmed count. While the cluster is whole there are none.
///
/// # Safety
/// `cluster` must be NULL or a live cluster; `ranks` must be writable for `cap` numbers or NULL; `count` writable or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_failed_ranks(
    cluster: *const muster_cluster_t,
    ranks: *mut i32,
    cap: usize,
    count: *mut usize,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let failed = unsafe { handle(cluster, "cluster") }?.with(|cluster| Ok(cluster.failed_ranks()))?;
        let count = out(count, "count")?;
        if ranks.is_null() && cap > 0 {
            return Err(super::convert::null("ranks"));
        }
        for (at, rank) in failed.iter().take(cap).enumerate() {
            // SAFETY: `ranks` is writable for `cap` numbers, and `at` is below that.
            unsafe { ranks.add(at).write(*rank as i32) };
        }
        // SAFETY: not NULL, and writable as the caller promised.
        unsafe { count.write(failed.len()) };
        Ok(Status::Ok)
    })
}

fn broken(cluster: &Cluster) -> Result<Failure> {
    cluster.failure().ok_or_else(|| Error::new(Status::NotFound, "nothing has failed: the cluster is whole"))
}

/// The first cause for which the cluster is broken, as this process knows it in the present epoch. Pass `sizeof *out` as
/// `size`. MUSTER_ERR_NOT_FOUND while nothing has failed. Thread-safe; does not block.
///
/// The first cause is what ended the cluster as a whole (a loss, an abort) or one of its own groups (world, servers,
/// universe), whichever this process heard of first. If nothing has ended these, it is what ended a group that the
/// program made and has not freed. If several such groups have ended, it is the one whose end this process heard of
/// first. What ends other groups later changes nothing. MUSTER_ERR_REVOKED (a rank called muster_recover) is reported
/// only if nothing else has ended a group. If nothing is broken, the call reports the newest message that timed out:
/// MUSTER_ERR_TIMEOUT, with the rank that the message was to or from (-1: any rank). It takes the first group that has
/// such a message, in this order: world, servers, universe, then the groups that the program made. The group still
/// holds then (muster_group_failure says so), and a later break takes the place of this report.
///
/// A failing call on a group (its status and muster_last_error) and muster_group_failure tell the first cause of that
/// group: what ended it alone, or otherwise the first cause of the cluster. Most programs use only one of the cluster's
/// own groups. Then the calls on that group, muster_failure, muster_group_failure and muster_cluster_error all tell the
/// same. If another error ends only a message or a store call, or if muster_recover fails, only that call tells why.
///
/// If a process ends soon after it was told that a group is over, its end counts as a consequence, not as a loss of its
/// own: then calls on the other groups tell why the first group ended. Its end counts as a loss if the process went on:
/// it lived longer than the heartbeat time-out after that, or called something on another group. muster_failed_ranks
/// lists the process in each case. (docs/recovery.md, "Which loss is the first cause")
///
/// # Safety
/// `cluster` must be NULL or a live cluster; `out` must be NULL or writable for `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn muster_failure(
    cluster: *const muster_cluster_t,
    out: *mut muster_failure_t,
    size: usize,
) -> muster_status_t {
    guard(|| {
        let least = std::mem::size_of::<muster_status_t>();
        let out = check_struct(out, size, least)?;
        // SAFETY: as promised by the caller.
        let failure = unsafe { handle(cluster, "cluster") }?.with(broken)?;
        // SAFETY: as promised by the caller.
        unsafe { give_struct(&muster_failure_t::from(&failure), out, size, least) }
    })
}

/// The first cause as a sentence. Any thread may ask. Copied to `buf`, its length with the zero byte to `needed` (may be
/// NULL). MUSTER_ERR_LIMIT if `cap` is too small, MUSTER_ERR_NOT_FOUND while nothing has failed, otherwise
/// MUSTER_ERR_INVALID if `buf` and `needed` are both NULL.
///
/// # Safety
/// `cluster` must be NULL or a live cluster, `buf` writable for `cap` bytes or NULL, `needed` writable or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_cluster_error(
    cluster: *const muster_cluster_t,
    buf: *mut c_char,
    cap: usize,
    needed: *mut usize,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let failure = unsafe { handle(cluster, "cluster") }?.with(broken)?;
        // SAFETY: as promised by the caller.
        unsafe { give_text(&failure.to_string(), buf, cap, needed, "the sentence") }
    })
}

/// The five values that HCCL needs to start through its cluster manager (CM_CHIEF_IP, CM_CHIEF_PORT, CM_CHIEF_DEVICE,
/// CM_WORKER_SIZE, CM_WORKER_IP).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct muster_hccl_cm_t {
    /// The scheduler's port plus one.
    pub chief_port: i32,
    /// The chief's device. With several workers it is 0. With one worker it is that worker's DEVICE_ID, or 0 if that is not set.
    pub chief_device: i32,
    /// How many workers.
    pub worker_size: i32,
    /// The scheduler's address, numeric.
    pub chief_ip: [c_char; MUSTER_ADDRESS_BYTES],
    /// This node's address, numeric.
    pub worker_ip: [c_char; MUSTER_ADDRESS_BYTES],
}

/// The values with which this node starts HCCL through its cluster manager (MS_HCCL_CM_INIT in MindSpore). Pass
/// `sizeof *out` as `size`. MUSTER_ERR_CONFIG if the scheduler's port is above 65,519: the chief's port is that port
/// plus one, and HCCL takes no port above 65,520. Thread-safe; does not block. (In a cluster of more than 1,024 nodes with one worker a
/// server may first ask the scheduler for that worker, as muster_group_member does.)
///
/// # Safety
/// `cluster` must be NULL or a live cluster; `out` must be NULL or writable for `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn muster_hccl_cm(
    cluster: *const muster_cluster_t,
    out: *mut muster_hccl_cm_t,
    size: usize,
) -> muster_status_t {
    guard(|| {
        let least = std::mem::size_of::<i32>();
        check_struct(out, size, least)?;
        // SAFETY: as promised by the caller.
        let cm = unsafe { handle(cluster, "cluster") }?.with(Cluster::hccl_cm)?;
        let given = muster_hccl_cm_t {
            chief_port: i32::from(cm.chief.port()),
            chief_device: cm.chief_device as i32,
            worker_size: cm.worker_size as i32,
            chief_ip: fixed(&cm.chief.ip().to_string()),
            worker_ip: fixed(&cm.worker.to_string()),
        };
        // SAFETY: as promised by the caller.
        unsafe { give_struct(&given, out, size, least) }
    })
}

/// The HCCL rank table, version 1.0, of the cluster's workers: JSON text, the same on every node. A later run may read
/// it through RANK_TABLE_FILE. `needed` gets the length of the text with the ending zero byte, which is how long `buf`
/// must be. With `buf` NULL and `cap` 0 the call gives only that length.
///
/// One server for each host, in order of its lowest rank: `server_id` is the host's address, or its name if another
/// host has the same address, and `host_nic_ip` is "reserve". There is one device for each worker. `device_id` is its
/// DEVICE_ID, or its local rank where that was not set. `device_ip` is its setting `device_ip`, or what
/// `/etc/hccn.conf` on its host says of that device. It is left out where neither is known. HCCL wants it on hosts
/// whose devices have network ports of their own. The fields are those of the rank table in Huawei's HCCL
/// documentation.
///
/// MUSTER_ERR_STATE if two workers of a host have the same device (the sentence names both); MUSTER_ERR_LIMIT if `cap`
/// is too small; MUSTER_ERR_INVALID if `buf` and `needed` are both NULL. Thread-safe. Does not block on a cluster of up
/// to 1,024 nodes. In a larger cluster it asks the scheduler for each worker that it does not know, and waits for each
/// answer for at most one heartbeat time-out. Without an answer it returns MUSTER_ERR_UNREACHABLE.
///
/// # Safety
/// `cluster` must be NULL or a live cluster; `buf` must be writable for `cap` bytes or NULL, `needed` writable or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_rank_table(
    cluster: *const muster_cluster_t,
    buf: *mut c_char,
    cap: usize,
    needed: *mut usize,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let table = unsafe { handle(cluster, "cluster") }?.with(Cluster::rank_table)?;
        // SAFETY: as promised by the caller.
        unsafe { give_text(&table, buf, cap, needed, "the rank table") }
    })
}
