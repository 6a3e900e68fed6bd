//! The store, by keys that are C strings. Keys with a length are in `store_bytes`, and so is all that takes only those.

use super::constants::muster_status_t;
use super::convert::{c_bytes, handle, null, out, slice};
use super::guard::guard;
use super::handles::muster_cluster_t;
use crate::error::{memory, Error, Result, Status};
use std::ffi::{c_char, c_void};

/// Gives bytes away: malloc'ed, with a zero byte behind them that does not count, so that text can be used as it is.
fn give_bytes(bytes: &[u8]) -> Result<*mut c_void> {
    // SAFETY: takes a number; the result is checked.
    let memory = unsafe { libc::malloc(bytes.len() + 1) };
    if memory.is_null() {
        return Err(Error::new(Status::Memory, format!("no memory for a value of {} bytes", bytes.len())));
    }
    // SAFETY: the memory was just allocated, one byte longer than the bytes are.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.cast::<u8>(), bytes.len());
        memory.cast::<u8>().add(bytes.len()).write(0);
    }
    Ok(memory)
}

/// Gives a value away, where the caller wants it.
///
/// # Safety
/// `value` and `len` must be writable or NULL.
pub(super) unsafe fn give_value(found: &[u8], value: *mut *mut c_void, len: *mut usize) -> Result<Status> {
    // SAFETY: what is not NULL is writable as the caller promised.
    unsafe {
        if !value.is_null() {
            value.write(give_bytes(found)?);
        }
        if !len.is_null() {
            len.write(found.len());
        }
    }
    Ok(Status::Ok)
}

/// Sets a key to `len` bytes. Returns when the scheduler has it; from then on every node's get finds it. Keys are
/// strings of 1 to 4,096 bytes, values arbitrary bytes of up to 16 MiB, all together up to 256 MiB. (The settings
/// store_key_limit, store_value_limit and store_total_limit change that; the scheduler's values apply.) Values of all nodes
/// that are on their way to the scheduler have the same limit in total, for themselves: beyond it a call may be repeated. More is
/// MUSTER_ERR_LIMIT. While 1,024 calls of this process wait for answers of the store, any other call on the store is
/// MUSTER_ERR_LIMIT, too. An empty key is MUSTER_ERR_INVALID. Every call on the store refuses a length, or a list, of
/// more than PTRDIFF_MAX bytes with MUSTER_ERR_INVALID. `value` may be NULL where `len` is 0.
///
/// A key that is a C string ends at its first zero byte. Calls whose name ends in _bytes take a key with a length
/// instead. Calls on the store that exist in one form only, such as muster_store_append, do so, too. Both kinds name
/// the same keys.
///
/// Every call on the store waits for the scheduler's answer. muster_store_get, muster_store_wait and
/// muster_store_multi_get wait for at most their `timeout_ms`. Every other call, and a call with `timeout_ms` 0, waits
/// for at most 300 s (no setting changes this). When the time is up, the call returns MUSTER_ERR_TIMEOUT, or
/// MUSTER_ERR_UNREACHABLE if the scheduler cannot be reached. Without recovery it returns MUSTER_ERR_UNREACHABLE as
/// soon as the scheduler has not been heard for the heartbeat time-out and takes no connection, because the keys that
/// the scheduler kept do not come back. In a broken cluster it returns the first cause, also after muster_finalize.
/// After muster_finalize of a whole cluster it returns MUSTER_ERR_STATE. No error of the store revokes anything. With
/// recovery, if a node is lost while a call waits only for the scheduler, the call still gets its answer.
///
/// # Safety
/// `cluster` must be NULL or a live cluster, `key` NULL or a string, `value` readable for `len` bytes or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_store_set(
    cluster: *mut muster_cluster_t,
    key: *const c_char,
    value: *const c_void,
    len: usize,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, key) = unsafe { (handle(cluster, "cluster")?, c_bytes(key, "key")?) };
        // SAFETY: as promised by the caller.
        let value = unsafe { slice(value.cast::<u8>(), len, "value") }?;
        cluster.with(|cluster| cluster.store().set(key, value).map(|()| Status::Ok))
    })
}

/// Waits until somebody has set a key, and gives its value: the scheduler pushes it, nobody polls. `timeout_ms`: -1
/// means the default (setting store_timeout, 300 s), INT64_MAX no limit, and 0 a single try: MUSTER_ERR_NOT_FOUND if
/// the key is not there. A single try, too, waits for the scheduler's answer. The value is the caller's, to be freed
/// with muster_free. A zero byte follows the value; `len` (may be NULL) does not count it.
///
/// # Safety
/// `cluster` must be NULL or a live cluster, `key` NULL or a string, `value` writable or NULL (which is refused), `len` writable
/// or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_store_get(
    cluster: *mut muster_cluster_t,
    key: *const c_char,
    timeout_ms: i64,
    value: *mut *mut c_void,
    len: *mut usize,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, key) = unsafe { (handle(cluster, "cluster")?, c_bytes(key, "key")?) };
        let value = out(value, "value")?;
        let found = cluster.with(|cluster| cluster.store().get(key, timeout_ms))?;
        // SAFETY: what is not NULL is writable as the caller promised.
        unsafe { give_value(&found, value, len) }
    })
}

/// Adds to the number in a key, and gives the sum to `out` (may be NULL). A key that is not there counts as 0. The
/// number is kept as decimal text; if the value is not a number, or the sum needs more than 64 bits, it returns
/// MUSTER_ERR_INVALID. The text keeps the limits of every value (muster_store_set). Happens exactly once, whatever
/// happens to the connection.
///
/// # Safety
/// `cluster` must be NULL or a live cluster, `key` NULL or a string, `out` writable or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_store_add(
    cluster: *mut muster_cluster_t,
    key: *const c_char,
    delta: i64,
    out: *mut i64,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, key) = unsafe { (handle(cluster, "cluster")?, c_bytes(key, "key")?) };
        let sum = cluster.with(|cluster| cluster.store().add(key, delta))?;
        if !out.is_null() {
            // SAFETY: not NULL, and writable as the caller promised.
            unsafe { out.write(sum) };
        }
        Ok(Status::Ok)
    })
}

/// Sets a key to `desired` if its value is `expected`; a key that is not there counts as empty. Gives its value afterwards to
/// `current` and `clen`: `desired`, or what was there instead. `current` belongs to the caller, who frees it with muster_free.
/// `current` may be NULL. `clen` may be NULL only if `current` is NULL; otherwise the call returns MUSTER_ERR_INVALID. Happens
/// exactly once.
///
/// # Safety
/// `cluster` must be NULL or a live cluster, `key` NULL or a string, `expected` and `desired` readable for their lengths or
/// NULL, `current` and `clen` writable or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_store_compare_set(
    cluster: *mut muster_cluster_t,
    key: *const c_char,
    expected: *const c_void,
    elen: usize,
    desired: *const c_void,
    dlen: usize,
    current: *mut *mut c_void,
    clen: *mut usize,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, key) = unsafe { (handle(cluster, "cluster")?, c_bytes(key, "key")?) };
        // SAFETY: as promised by the caller.
        let expected = unsafe { slice(expected.cast::<u8>(), elen, "expected") }?;
        // SAFETY: as promised by the caller.
        let desired = unsafe { slice(desired.cast::<u8>(), dlen, "desired") }?;
        if !current.is_null() && clen.is_null() {
            return Err(null("clen"));
        }
        let now = cluster.with(|cluster| cluster.store().compare_set(key, expected, desired))?.current;
        // SAFETY: what is not NULL is writable as the caller promised.
        unsafe { give_value(&now, current, clen) }
    })
}

/// Deletes a key; `existed` (may be NULL) becomes 1 if it was there, otherwise 0.
///
/// # Safety
/// `cluster` must be NULL or a live cluster, `key` NULL or a string, `existed` writable or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_store_delete(
    cluster: *mut muster_cluster_t,
    key: *const c_char,
    existed: *mut i32,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, key) = unsafe { (handle(cluster, "cluster")?, c_bytes(key, "key")?) };
        let was_there = cluster.with(|cluster| cluster.store().delete(key))?;
        if !existed.is_null() {
            // SAFETY: not NULL, and writable as the caller promised.
            unsafe { existed.write(i32::from(was_there)) };
        }
        Ok(Status::Ok)
    })
}

/// Waits until every one of `n` keys exists. `timeout_ms` as for muster_store_get. Of several keys the sentence of a
/// time-out names up to three that are missing. For that it waits up to 250 ms more for the scheduler's answer, and
/// says so if none comes. Without keys it returns MUSTER_OK at once, also if the cluster is broken or left. The keys of
/// one call are limited as those of muster_store_check: more is MUSTER_ERR_LIMIT.
///
/// # Safety
/// `cluster` must be NULL or a live cluster; `keys` must be readable for `n` pointers, each NULL or a string.
#[no_mangle]
pub unsafe extern "C" fn muster_store_wait(
    cluster: *mut muster_cluster_t,
    keys: *const *const c_char,
    n: usize,
    timeout_ms: i64,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, pointers) = unsafe { (handle(cluster, "cluster")?, slice(keys, n, "keys")?) };
        let mut keys: Vec<&[u8]> = Vec::new();
        memory::more(&mut keys, n, "the keys that are waited for")?;
        for (at, key) in pointers.iter().enumerate() {
            // SAFETY: as promised by the caller.
            keys.push(unsafe { c_bytes(*key, &format!("keys[{at}]")) }?);
        }
        cluster.with(|cluster| cluster.store().wait(&keys, timeout_ms).map(|()| Status::Ok))
    })
}
