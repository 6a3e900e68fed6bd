//! Settings: `muster_config_t`.

use super::constants::{muster_status_t, MUSTER_ABI_VERSION, MUSTER_HEADER_VERSION};
use super::convert::{c_bytes, give_text, handle, out, text};
use super::guard::{guard, Handle};
use crate::config::Config;
use crate::error::{Error, Status};
use std::ffi::c_char;
use std::sync::Mutex;

/// Settings as key and value strings; docs/settings.md lists the keys. Belongs to one thread at a time.
pub struct muster_config_t {
    pub(super) handle: Handle<Mutex<Config>>,
}

impl muster_config_t {
    /// Runs `body` with the settings.
    pub(super) fn with<R>(&self, body: impl FnOnce(&mut Config) -> crate::error::Result<R>) -> crate::error::Result<R> {
        self.handle
            .with("configuration", |config| body(&mut config.lock().unwrap_or_else(std::sync::PoisonError::into_inner)))
    }
}

/// Makes empty settings. Free them with muster_config_free.
///
/// `abi_version` says for which library the program was built. Pass MUSTER_HEADER_VERSION to refuse a library that is
/// older than the program's header. Pass MUSTER_ABI_VERSION to accept any library of this ABI. MUSTER_ERR_INVALID for
/// another ABI, and for a greater minor number than the library's; the sentence has both versions.
///
/// # Safety
/// `out` must be NULL or writable.
#[no_mangle]
pub unsafe extern "C" fn muster_config_new(abi_version: u32, out: *mut *mut muster_config_t) -> muster_status_t {
    guard(|| {
        let out = self::out(out, "out")?;
        fits(abi_version)?;
        let config = muster_config_t { handle: Handle::new(Mutex::new(Config::new())) };
        // SAFETY: not NULL, and writable as the caller promised.
        unsafe { out.write(Box::into_raw(Box::new(config))) };
        Ok(Status::Ok)
    })
}

/// Whether a program may have been built for this version: our ABI, and a minor number (the upper 16 bits) up to ours.
fn fits(abi_version: u32) -> crate::error::Result<()> {
    let (abi, minor) = (abi_version & 0xffff, abi_version >> 16);
    if abi != MUSTER_ABI_VERSION {
        let why = format!(
            "abi_version is {abi}: this library speaks ABI {MUSTER_ABI_VERSION}; build against its own muster.h"
        );
        return Err(Error::invalid(why));
    }
    if minor > MUSTER_HEADER_VERSION >> 16 {
        let why = format!(
            "abi_version is that of muster {abi}.{minor}: this library is muster {}; install {abi}.{minor} or later, or build \
             against its own muster.h",
            env!("CARGO_PKG_VERSION")
        );
        return Err(Error::invalid(why));
    }
    Ok(())
}

/// Takes the settings that the process's launcher gave it.
pub(super) fn load_env(config: &mut Config) {
    config.load_env(std::env::vars_os());
    config.learn_ancestors(crate::net::host::ancestors);
    config.learn_host_file(crate::net::file::read);
}

/// Takes the settings that stand in the environment (MUSTER_..., MS_..., another launcher's); what was set by
/// muster_config_set stays. If a value is bad, muster_init returns an error, but only if no other source beats that
/// value.
///
/// # Safety
/// `config` must be NULL or a live configuration; no other thread may change the environment meanwhile.
#[no_mangle]
pub unsafe extern "C" fn muster_config_load_env(config: *mut muster_config_t) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        unsafe { handle(config, "config") }?.with(|config| {
            load_env(config);
            Ok(Status::Ok)
        })
    })
}

/// Sets one setting, which then beats every other source. Copies both strings. An unknown key, or a value that does not
/// fit, is MUSTER_ERR_CONFIG at once. A key that is not UTF-8 is MUSTER_ERR_INVALID. (muster_init checks the text of
/// `thresholds`, which only a scheduler uses, and whether the settings fit each other.)
///
/// # Safety
/// `config` must be NULL or a live configuration; `key` and `value` must be NULL or strings.
#[no_mangle]
pub unsafe extern "C" fn muster_config_set(
    config: *mut muster_config_t,
    key: *const c_char,
    value: *const c_char,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (config, key, value) = unsafe { (handle(config, "config")?, text(key, "key")?, c_bytes(value, "value")?) };
        config.with(|config| config.set_bytes(key, value).map(|()| Status::Ok))
    })
}

/// Gives the value that is in effect for a key, defaults included. Where two keys limit one time (`cluster_timeout` and
/// `topo_timeout`), each gives its own, and the smaller one counts. The value is copied to `buf`, and its length with the
/// zero byte to `needed` (may be NULL). MUSTER_ERR_LIMIT if `cap` is too small (`buf` NULL and `cap` 0 only ask for
/// the length), MUSTER_ERR_NOT_FOUND if the key has no value. An unknown key, or the key of a secret, gives
/// MUSTER_ERR_CONFIG. MUSTER_ERR_INVALID if the key is not UTF-8, or `buf` and `needed` are both NULL.
///
/// # Safety
/// `config` must be NULL or a live configuration, `key` NULL or a string, `buf` writable for `cap` bytes or NULL, `needed`
/// writable or NULL.
#[no_mangle]
pub unsafe extern "C" fn muster_config_get(
    config: *const muster_config_t,
    key: *const c_char,
    buf: *mut c_char,
    cap: usize,
    needed: *mut usize,
) -> muster_status_t {
    guard(|| {
        // SAFETY: as promised by the caller.
        let (config, key) = unsafe { (handle(config, "config")?, text(key, "key")?) };
        let value = config.with(|config| config.get(key))?;
        let value = value.ok_or_else(|| Error::new(Status::NotFound, format!("the setting {key:?} has no value")))?;
        // SAFETY: as promised by the caller.
        unsafe { give_text(&value, buf, cap, needed, key) }
    })
}

/// Frees settings. Accepts NULL. A cluster keeps what it needs, so this may be called right after muster_init.
///
/// # Safety
/// `config` must be NULL or a live configuration, and is not to be used any more.
#[no_mangle]
pub unsafe extern "C" fn muster_config_free(config: *mut muster_config_t) {
    guard(|| {
        if !config.is_null() {
            // SAFETY: made by Box::into_raw in muster_config_new, and the caller gives it up.
            drop(unsafe { Box::from_raw(config) });
        }
        Ok(Status::Ok)
    });
}
