//! Joining and leaving a cluster.

use super::constants::muster_status_t;
use super::convert::{handle, out, text};
use super::guard::guard;
use super::handles::muster_cluster_t;
use super::settings::muster_config_t;
use crate::config::{Config, Settings};
use crate::error::{Result, Status};
use crate::runtime::node::cluster::{join, Joined};
use std::ffi::c_char;

/// The settings of a configuration, or, for NULL, of the environment.
///
/// # Safety
/// `config` must be NULL or a live configuration.
pub(super) unsafe fn settings(
    config: *const muster_config_t,
    read: impl FnOnce(&Config) -> Result<Settings>,
) -> Result<Settings> {
    if config.is_null() {
        let mut config = Config::new();
        super::settings::load_env(&mut config);
        return read(&config);
    }
    // SAFETY: as promised by the caller.
    unsafe { handle(config, "config") }?.with(|config| read(config))
}

/// Joins the cluster that the settings describe; NULL for `config` means the settings of the environment. Blocks until
/// all nodes have joined, at most for the forming time-out (setting cluster_timeout, 600 s by default), then writes a
/// handle to `out`. The hook of `config` (muster_config_set_interrupt) may end the wait early; no signal does by
/// itself.
///
/// In a process whose role is scheduler the call serves until the job has ended, and then returns MUSTER_SCHEDULER_DONE
/// with `*out` set to NULL, or the job's error. With no settings at all the process is a cluster of one.
///
/// Errors: MUSTER_ERR_CONFIG, MUSTER_ERR_BIND, MUSTER_ERR_LIMIT (this process runs the scheduler, and may not open as many
/// descriptors as there are nodes), MUSTER_ERR_UNREACHABLE (no scheduler), MUSTER_ERR_REJECTED,
/// MUSTER_ERR_TIMEOUT (the sentence names who is missing), MUSTER_ERR_SECURITY (until the time was up, this node and
/// the scheduler did not accept each other's certificate or secret; the sentence says why), MUSTER_ERR_ABORTED (the
/// job was ended while it formed, or before this node came back), MUSTER_ERR_INTERRUPTED (the hook). With recovery
/// also: MUSTER_ERR_JOURNAL (what this process keeps in the recovery path cannot be read or written);
/// MUSTER_ERR_PEER_LEFT (this node comes back to a cluster that another node has left for good); MUSTER_ERR_FENCED
/// (another process has taken this node's place meanwhile). In a scheduler also the status of the job's first cause,
/// such as MUSTER_ERR_PEER_LOST.
///
/// # Safety
/// `config` must be NULL or a live configuration; `out` must be NULL or writable. Where `config` is NULL no other thread may change
/// the environment meanwhile.
#[no_mangle]
pub unsafe extern "C" fn muster_init(
    config: *const muster_config_t,
    out: *mut *mut muster_cluster_t,
) -> muster_status_t {
    guard(|| {
        let out = self::out(out, "out")?;
        // SAFETY: as promised by the caller.
        let settings = unsafe { settings(config, Config::settings) }?;
        let (handle, status) = match join(settings)? {
            Joined::Node(cluster) => (Box::into_raw(Box::new(muster_cluster_t::new(*cluster))), Status::Ok),
            Joined::SchedulerDone => (std::ptr::null_mut(), Status::SchedulerDone),
        };
        // SAFETY: not NULL, and writable as the caller promised.
        unsafe { out.write(handle) };
        Ok(status)
    })
}

/// Leaves the cluster in order; does not free the handle. If all is well this takes milliseconds, however many groups
/// there are. It ends within the setting finalize_timeout (30 s) in any case: also without a scheduler, when the
/// scheduler or a peer does not respond, and while another thread of this process is in a call, which then ends with
/// MUSTER_ERR_STATE. It returns MUSTER_OK then, too; a warning in the log says what was missing. It returns
/// MUSTER_ERR_INTERRUPTED if the program ended the wait (muster_interrupt). If a user's function (muster_op_create) has
/// not returned by then, muster_cluster_free waits for it. Peers that need this node afterwards get
/// MUSTER_ERR_PEER_LEFT. A process that hosts the scheduler waits here for the others to leave. If they have not left
/// when the time is up, their job goes on: the scheduler serves them until muster_cluster_free, and then ends as if its
/// process had died. Accepts NULL; a second call does nothing.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_finalize(cluster: *mut muster_cluster_t) -> muster_status_t {
    guard(|| {
        if cluster.is_null() {
            return Ok(Status::Ok);
        }
        // SAFETY: as promised by the caller.
        unsafe { handle(cluster, "cluster") }?.with(|cluster| cluster.finalize().map(|()| Status::Ok))
    })
}

/// Ends the job for every rank: their pending and later calls return MUSTER_ERR_ABORTED with this rank, code and
/// reason. The program decides what `code` and `reason` mean. `reason` is UTF-8, and is cut after 1,024 bytes. A
/// group that was over before keeps its own first cause. If recovery is on and a node was lost before, muster_failure
/// goes on reporting that loss, and muster_recover returns MUSTER_ERR_ABORTED.
///
/// Waits up to 250 ms for the scheduler's answer. If none comes, this rank tells every node itself, for 2 s at most.
/// It returns MUSTER_OK once all nodes have been told, except those known to be lost or to have left. Otherwise it
/// returns MUSTER_ERR_UNREACHABLE, and the sentence says how many nodes have not been told. With recovery, if the
/// scheduler is started again and hears of the abort from any node, it tells the nodes that do not know yet.
/// muster_finalize waits up to 1 s for the scheduler, so that it can hear of the abort. In a cluster of more than 1,024 nodes a rank can tell only the
/// nodes whose addresses it knows. Returns MUSTER_OK at once if the job is already over: without recovery any loss ends
/// it. With recovery it returns MUSTER_ERR_FENCED if the others have taken this node for lost (nobody is told then). It
/// returns MUSTER_ERR_STATE after muster_finalize, and MUSTER_ERR_INVALID if `reason` is NULL or not UTF-8.
///
/// # Safety
/// `cluster` must be NULL or a live cluster; `reason` must be NULL or a string.
#[no_mangle]
pub unsafe extern "C" fn muster_abort(
    cluster: *mut muster_cluster_t,
    code: i32,
    reason: *const c_char,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, reason) = unsafe { (handle(cluster, "cluster")?, text(reason, "reason")?) };
        cluster.with(|cluster| cluster.abort(code, reason).map(|()| Status::Ok))
    })
}

/// Makes the cluster whole again after a group was revoked: the next epoch begins once every node, workers and
/// servers, is in this call. Then every group, also one that the program made, is as new under the same handle. What
/// revoked the group is forgotten, its collectives count from 1, and its links and messages are new. Ranks, members,
/// time-outs, the store, operations and finished requests stay what they are.
///
/// Blocking, at most `timeout_ms` milliseconds, and 250 ms more where the scheduler does not say at once which nodes
/// are awaited. -1 means the forming time-out (600 s unless set), and INT64_MAX no limit. With 0 it succeeds only if
/// all other nodes wait for the next epoch already. The first node's call revokes all groups of more than one member
/// that are not revoked yet. It does so even if nothing was wrong with the cluster; then all nodes go on in the next
/// epoch. Pending and later calls on those groups return MUSTER_ERR_REVOKED with that node's name, so that nobody waits
/// for a node that is in this call. (Only the scheduler tells the other nodes. If it is away, the groups are revoked
/// when it is back. If a node has left for good, the groups are revoked, too, and the call fails.) Once a second a line
/// in the scheduler's log says which nodes are awaited. One thread of a process at a time may be in this call; other
/// calls may go on meanwhile.
///
/// A reduction function of the program that has not returned by then holds nobody up. It goes on with the memory of its own call, whose
/// request ends when it has returned; muster_cluster_free waits for it.
///
/// After an error the epoch is what it was, and the call may be repeated: MUSTER_ERR_TIMEOUT (the sentence names first
/// the nodes that have not called it, then those that have called it and gave up); MUSTER_ERR_PEER_LEFT (a node has
/// left for good); MUSTER_ERR_STATE (another thread is in this call, or this process has left); MUSTER_ERR_INVALID
/// (`timeout_ms`). If the job is aborted, the call returns MUSTER_ERR_ABORTED, each time. If a node is lost without
/// recovery, the call returns MUSTER_ERR_PEER_LOST with that node, each time, even if the first cause (muster_failure)
/// is another one. (If the first cause is that a node has left, the call returns MUSTER_ERR_PEER_LEFT.) If the
/// scheduler is away as well, that takes a second or two. With recovery, if the launcher of a lost node does not start
/// the node again, the call returns the first cause. Otherwise the call waits for a scheduler that is away, as it waits
/// for a node.
///
/// If the scheduler did not answer in time, or the call was interrupted, the other nodes may begin the next epoch with this node all the
/// same. This node goes on in its own: calls on its groups return MUSTER_ERR_REVOKED until the call is repeated. It then returns at
/// once, in the epoch of the others.
///
/// With recovery (MS_ENABLE_RECOVERY=1, MS_RECOVERY_PATH) this is also how survivors of a loss go on. Every lost node
/// must be started again, with the same node id or the same rank from its launcher, and call muster_init. Then the
/// epoch begins, and muster_init returns there. muster_recover returns in the newest epoch (muster_epoch), and may
/// have skipped some. The program must repeat the work that a loss interrupted. An allreduce with MUSTER_MIN over the
/// number of each rank's newest state gives the newest state that all ranks have. A node that others have replaced, or
/// taken for lost while it was silent, gets MUSTER_ERR_FENCED each time. Groups that were made go on under their
/// handles; a node that comes back makes them again, in the same order as the first time, and the others take no part.
/// If it calls muster_group_split where it first called muster_group_create, or the reverse, or passes another list of
/// ranks, the call returns MUSTER_ERR_MISMATCH. Like every mismatch, this revokes `parent` on all its members, because
/// their groups are no longer the same. (Colour and key are not compared: the node gets the place that it had.)
/// Operations (muster_op_create) belong to a process. So a process that was started again must create its operations
/// again.
///
/// # Safety
/// `cluster` must be NULL or a live cluster.
#[no_mangle]
pub unsafe extern "C" fn muster_recover(cluster: *mut muster_cluster_t, timeout_ms: i64) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        unsafe { handle(cluster, "cluster") }?.with(|cluster| cluster.recover(timeout_ms).map(|()| Status::Ok))
    })
}

/// Frees a cluster, and its built-in groups with it. Accepts NULL. Without muster_finalize before it, the others lose
/// this node. A scheduler that this process hosts ends with it. With recovery the job goes on when this node is
/// started again; without recovery it has ended for good. The program must still free the groups that it made.
/// Operations on these groups, and muster_group_member, return MUSTER_ERR_STATE. Their other queries (size, ranks,
/// failure) and muster_group_set_timeout still work. When the last handle has been freed no thread and no descriptor of
/// the library is left, except a thread that waits for a name server, a disk or an output of the log that does not
/// answer. Blocking, without a limit: it waits until each function of the program (of muster_op_create or
/// muster_request_notify) has returned, and until a scheduler that this process hosts has ended.
///
/// # Safety
/// `cluster` must be NULL or a live cluster that no other thread is using, and is not to be used any more.
#[no_mangle]
pub unsafe extern "C" fn muster_cluster_free(cluster: *mut muster_cluster_t) {
    guard(|| {
        if cluster.is_null() {
            return Ok(Status::Ok);
        }
        // SAFETY: made by Box::into_raw in muster_init, and the caller gives it up.
        let cluster = unsafe { Box::from_raw(cluster) };
        match cluster.handle.into_inner() {
            Ok(cluster) => drop(cluster),
            // Its threads run in the parent only, so there is nothing here to join or detach. Its connections
            // were closed at the fork.
            Err(inherited) => std::mem::forget(inherited),
        }
        Ok(Status::Ok)
    });
}
