//! The store, by keys with a length: any bytes, zeros included.

use super::constants::{muster_status_t, MUSTER_STORE_C10D};
use super::convert::{fits, handle, null, out, slice};
use super::guard::guard;
use super::handles::muster_cluster_t;
use super::store::give_value;
use crate::error::{memory, Error, Result, Status};
use std::ffi::c_void;

/// Bytes with a length: a key of the store, or a value. The library only reads the bytes that the caller passes. `data`
/// may be NULL where `len` is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct muster_bytes_t {
    /// Where the bytes begin.
    pub data: *const c_void,
    /// How many bytes there are.
    pub len: usize,
}

/// # Safety
/// `data` must be readable for `len` bytes, or NULL.
unsafe fn bytes<'a>(data: *const c_void, len: usize, name: &str) -> Result<&'a [u8]> {
    // SAFETY: as promised by the caller.
    unsafe { slice(data.cast::<u8>(), len, name) }
}

/// A list of keys or values.
///
/// # Safety
/// `list` must be readable for `n` entries, and each of them for its length; both may be NULL.
unsafe fn all<'a>(list: *const muster_bytes_t, n: usize, name: &str) -> Result<Vec<&'a [u8]>> {
    // SAFETY: as promised by the caller.
    let list = unsafe { slice(list, n, name) }?;
    let mut all: Vec<&[u8]> = Vec::new();
    memory::more(&mut all, n, "the keys of a call to the store")?;
    for (at, entry) in list.iter().enumerate() {
        // SAFETY: as promised by the caller.
        all.push(unsafe { bytes(entry.data, entry.len, &format!("{name}[{at}].data")) }?);
    }
    Ok(all)
}

/// Each value in a block that is given away begins at a multiple of this.
const ALIGNMENT: usize = 16;

/// Gives a list away in one block: the entries, and behind them their bytes, each with a zero byte that does not count.
fn give_list(list: &[&[u8]]) -> Result<*mut muster_bytes_t> {
    let room = |bytes: &[u8]| (bytes.len() + 1).next_multiple_of(ALIGNMENT);
    let entries = std::mem::size_of::<muster_bytes_t>() * list.len();
    let size = entries + list.iter().map(|bytes| room(bytes)).sum::<usize>();
    // SAFETY: takes a number; the result is checked.
    let block = unsafe { libc::malloc(size.max(1)) }.cast::<u8>();
    if block.is_null() {
        return Err(Error::new(Status::Memory, format!("no memory for {} keys or values of {size} bytes", list.len())));
    }
    let mut at = entries;
    for (nth, bytes) in list.iter().enumerate() {
        // SAFETY: the block has room for all entries, and for each one's bytes at `at`, with a zero behind them. malloc's memory
        // is aligned for an entry.
        unsafe {
            let data = block.add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len());
            data.add(bytes.len()).write(0);
            let entry = muster_bytes_t { data: data.cast::<c_void>().cast_const(), len: bytes.len() };
            block.cast::<muster_bytes_t>().add(nth).write(entry);
        }
        at += room(bytes);
    }
    Ok(block.cast())
}

/// As muster_store_set, with a key of `key_len` bytes, zeros included.
///
/// # Safety
/// `cluster` must be NULL or a live cluster, `key` and `value` readable for their lengths or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_store_set_bytes(
    cluster: *mut muster_cluster_t,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    len: usize,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, key) = unsafe { (handle(cluster, "cluster")?, bytes(key, key_len, "key")?) };
        // SAFETY: as promised by the caller.
        let value = unsafe { bytes(value, len, "value") }?;
        cluster.with(|cluster| cluster.store().set(key, value).map(|()| Status::Ok))
    })
}

/// As muster_store_get, with a key of `key_len` bytes, zeros included.
///
/// # Safety
/// `cluster` must be NULL or a live cluster, `key` readable for `key_len` bytes or NULL, `value` writable or NULL (which is
/// refused), `len` writable or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_store_get_bytes(
    cluster: *mut muster_cluster_t,
    key: *const c_void,
    key_len: usize,
    timeout_ms: i64,
    value: *mut *mut c_void,
    len: *mut usize,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, key) = unsafe { (handle(cluster, "cluster")?, bytes(key, key_len, "key")?) };
        let value = out(value, "value")?;
        let found = cluster.with(|cluster| cluster.store().get(key, timeout_ms))?;
        // SAFETY: what is not NULL is writable as the caller promised.
        unsafe { give_value(&found, value, len) }
    })
}

/// As muster_store_add, with a key of `key_len` bytes, zeros included.
///
/// # Safety
/// `cluster` must be NULL or a live cluster, `key` readable for `key_len` bytes or NULL, `out` writable or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_store_add_bytes(
    cluster: *mut muster_cluster_t,
    key: *const c_void,
    key_len: usize,
    delta: i64,
    out: *mut i64,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, key) = unsafe { (handle(cluster, "cluster")?, bytes(key, key_len, "key")?) };
        let sum = cluster.with(|cluster| cluster.store().add(key, delta))?;
        if !out.is_null() {
            // SAFETY: not NULL, and writable as the caller promised.
            unsafe { out.write(sum) };
        }
        Ok(Status::Ok)
    })
}

/// Appends `len` bytes to the value of a key, and writes the new length of the value to `total` (may be NULL). A key
/// that is not there counts as empty. Happens exactly once, whatever happens to the connection. If several nodes
/// append, each piece stays whole. The pieces are in the order in which the scheduler got them. Beyond the limits it is
/// MUSTER_ERR_LIMIT, and nothing has changed. With recovery the whole value is written to the journal each time.
///
/// # Safety
/// `cluster` must be NULL or a live cluster, `key` and `value` readable for their lengths or NULL, `total` writable or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_store_append(
    cluster: *mut muster_cluster_t,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    len: usize,
    total: *mut usize,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, key) = unsafe { (handle(cluster, "cluster")?, bytes(key, key_len, "key")?) };
        // SAFETY: as promised by the caller.
        let value = unsafe { bytes(value, len, "value") }?;
        let length = cluster.with(|cluster| cluster.store().append(key, value))?;
        if !total.is_null() {
            // SAFETY: not NULL, and writable as the caller promised.
            unsafe { total.write(length) };
        }
        Ok(Status::Ok)
    })
}

/// As muster_store_compare_set, with a key of `key_len` bytes, zeros included. `flags` is 0, or MUSTER_STORE_C10D. With
/// the flag, if the key does not exist and `expected` is not empty, `current` gets `expected`, as the compareSet of
/// PyTorch's c10d stores answers. Without the flag, `current` gets no bytes in that case. In both cases the key is not
/// set.
///
/// # Safety
/// `cluster` must be NULL or a live cluster, `key`, `expected` and `desired` readable for their lengths or NULL, `current` and
/// `clen` writable or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_store_compare_set_bytes(
    cluster: *mut muster_cluster_t,
    key: *const c_void,
    key_len: usize,
    expected: *const c_void,
    elen: usize,
    desired: *const c_void,
    dlen: usize,
    flags: i32,
    current: *mut *mut c_void,
    clen: *mut usize,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, key) = unsafe { (handle(cluster, "cluster")?, bytes(key, key_len, "key")?) };
        // SAFETY: as promised by the caller.
        let (expected, desired) = unsafe { (bytes(expected, elen, "expected")?, bytes(desired, dlen, "desired")?) };
        if ![0, MUSTER_STORE_C10D].contains(&flags) {
            return Err(Error::invalid(format!(
                "flags is {flags}: expected 0 or MUSTER_STORE_C10D ({MUSTER_STORE_C10D})"
            )));
        }
        if !current.is_null() && clen.is_null() {
            return Err(null("clen"));
        }
        let compared = cluster.with(|cluster| cluster.store().compare_set(key, expected, desired))?;
        let as_c10d = flags == MUSTER_STORE_C10D && compared.is_absent;
        let now = if as_c10d { expected } else { &compared.current };
        // SAFETY: what is not NULL is writable as the caller promised.
        unsafe { give_value(now, current, clen) }
    })
}

/// As muster_store_delete, with a key of `key_len` bytes, zeros included.
///
/// # Safety
/// `cluster` must be NULL or a live cluster, `key` readable for `key_len` bytes or NULL, `existed` writable or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_store_delete_bytes(
    cluster: *mut muster_cluster_t,
    key: *const c_void,
    key_len: usize,
    existed: *mut i32,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, key) = unsafe { (handle(cluster, "cluster")?, bytes(key, key_len, "key")?) };
        let was_there = cluster.with(|cluster| cluster.store().delete(key))?;
        if !existed.is_null() {
            // SAFETY: not NULL, and writable as the caller promised.
            unsafe { existed.write(i32::from(was_there)) };
        }
        Ok(Status::Ok)
    })
}

/// As muster_store_wait, with keys that have a length, zeros included.
///
/// # Safety
/// `cluster` must be NULL or a live cluster; `keys` must be readable for `n` entries, and each for its length.
#[no_mangle]
pub unsafe extern "C" fn muster_store_wait_bytes(
    cluster: *mut muster_cluster_t,
    keys: *const muster_bytes_t,
    n: usize,
    timeout_ms: i64,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, keys) = unsafe { (handle(cluster, "cluster")?, all(keys, n, "keys")?) };
        cluster.with(|cluster| cluster.store().wait(&keys, timeout_ms).map(|()| Status::Ok))
    })
}

/// Says which of `n` keys exist, all at one moment: `exists`, of `n` entries, gets 1 for each that does, 0 for each
/// that does not. Waits for the scheduler's answer only. The keys of one call may take at most 1 MiB minus 1 KiB
/// together, where each key counts 4 bytes more than its length. Beyond that it returns MUSTER_ERR_LIMIT. Without keys
/// it returns MUSTER_OK at once, also if the cluster is broken or left; `keys` and `exists` may be NULL then.
///
/// # Safety
/// `cluster` must be NULL or a live cluster; `keys` must be readable for `n` entries, and each for its length; `exists` must be
/// writable for `n` entries.
#[no_mangle]
pub unsafe extern "C" fn muster_store_check(
    cluster: *mut muster_cluster_t,
    keys: *const muster_bytes_t,
    n: usize,
    exists: *mut i32,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, keys) = unsafe { (handle(cluster, "cluster")?, all(keys, n, "keys")?) };
        fits::<i32>(n, "exists")?;
        if n > 0 {
            out(exists, "exists")?;
        }
        let there = cluster.with(|cluster| cluster.store().check(&keys))?;
        for (at, there) in there.into_iter().enumerate() {
            // SAFETY: not NULL where there is a key, and writable for as many entries as there are keys.
            unsafe { exists.add(at).write(i32::from(there)) };
        }
        Ok(Status::Ok)
    })
}

/// Writes to `count` how many keys there are.
///
/// # Safety
/// `cluster` must be NULL or a live cluster, `count` writable or NULL (which is refused).
#[no_mangle]
pub unsafe extern "C" fn muster_store_count(cluster: *mut muster_cluster_t, count: *mut u64) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let cluster = unsafe { handle(cluster, "cluster") }?;
        let count = out(count, "count")?;
        let found = cluster.with(|cluster| cluster.store().count())?;
        // SAFETY: not NULL, and writable as the caller promised.
        unsafe { count.write(found) };
        Ok(Status::Ok)
    })
}

/// Lists the keys that begin with `prefix`, in the order of their bytes; all keys where `prefix_len` is 0 (`prefix` may be NULL
/// then). `keys` gets one block: `n` entries, and the bytes to which they point. The block is the caller's, also if `n`
/// is 0; one muster_free(keys) frees it. A zero byte follows each key; its `len` does not count it.
///
/// Long lists come in pieces of 64 KiB, so that no other call waits for long. So a key that is set or deleted
/// meanwhile may be in the list or not. All other keys that begin with `prefix` are in it. A prefix that is longer
/// than a key may be (4 KiB, setting store_key_limit) is MUSTER_ERR_LIMIT.
///
/// # Safety
/// `cluster` must be NULL or a live cluster, `prefix` readable for `prefix_len` bytes or NULL, `keys` and `n` writable or NULL
/// (which is refused).
#[no_mangle]
pub unsafe extern "C" fn muster_store_list(
    cluster: *mut muster_cluster_t,
    prefix: *const c_void,
    prefix_len: usize,
    keys: *mut *mut muster_bytes_t,
    n: *mut usize,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, prefix) = unsafe { (handle(cluster, "cluster")?, bytes(prefix, prefix_len, "prefix")?) };
        let (keys, n) = (out(keys, "keys")?, out(n, "n")?);
        let found = cluster.with(|cluster| cluster.store().list(prefix))?;
        let mut list: Vec<&[u8]> = Vec::new();
        memory::more(&mut list, found.len(), "a list of the store's keys")?;
        list.extend(found.iter().map(Vec::as_slice));
        // SAFETY: not NULL, and writable as the caller promised.
        unsafe {
            keys.write(give_list(&list)?);
            n.write(list.len());
        }
        Ok(Status::Ok)
    })
}

/// Sets `n` keys, the first to the first of `values` and so on, in one request: all of them at one moment, or none. If
/// a key is in the list twice, the later value counts. Happens exactly once. The keys may take at most 1 MiB minus 1
/// KiB together, where each key counts 4 bytes more than its length. The values together may take as much as one value
/// may (16 MiB, setting store_value_limit). More is MUSTER_ERR_LIMIT. Waits for the scheduler's answer as
/// muster_store_set. Without keys it returns MUSTER_OK at once.
///
/// # Safety
/// `cluster` must be NULL or a live cluster; `keys` and `values` must be readable for `n` entries, and each for its length.
#[no_mangle]
pub unsafe extern "C" fn muster_store_multi_set(
    cluster: *mut muster_cluster_t,
    keys: *const muster_bytes_t,
    values: *const muster_bytes_t,
    n: usize,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, keys) = unsafe { (handle(cluster, "cluster")?, all(keys, n, "keys")?) };
        // SAFETY: as promised by the caller.
        let values = unsafe { all(values, n, "values") }?;
        let mut pairs: Vec<(&[u8], &[u8])> = Vec::new();
        memory::more(&mut pairs, n, "the keys of a call to the store")?;
        pairs.extend(keys.into_iter().zip(values));
        cluster.with(|cluster| cluster.store().multi_set(&pairs).map(|()| Status::Ok))
    })
}

/// Waits until `n` keys are there, and gives the values that they have at one moment, in one request. `timeout_ms`
/// as for muster_store_get; with 0, it returns MUSTER_ERR_NOT_FOUND if one of the keys is not there. The error's
/// sentence names missing keys, as after muster_store_wait. `values` gets one block: `n` entries in the order of
/// `keys`, and the bytes to which they point. One muster_free(values) frees it. A zero byte follows each value; its
/// `len` does not count it. Limits as muster_store_multi_set: if the values are longer together, it returns
/// MUSTER_ERR_LIMIT. Without keys it returns MUSTER_OK at once, and `values` gets a block all the same.
///
/// # Safety
/// `cluster` must be NULL or a live cluster; `keys` must be readable for `n` entries, and each for its length; `values` must be
/// writable or NULL (which is refused).
#[no_mangle]
pub unsafe extern "C" fn muster_store_multi_get(
    cluster: *mut muster_cluster_t,
    keys: *const muster_bytes_t,
    n: usize,
    timeout_ms: i64,
    values: *mut *mut muster_bytes_t,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (cluster, keys) = unsafe { (handle(cluster, "cluster")?, all(keys, n, "keys")?) };
        let values = out(values, "values")?;
        let block = cluster.with(|cluster| cluster.store().multi_get(&keys, timeout_ms, give_list))?;
        // SAFETY: not NULL, and writable as the caller promised.
        unsafe { values.write(block) };
        Ok(Status::Ok)
    })
}
