//! This room's decoders, as functions of bytes.

use super::{ciphers, pkcs12};

/// A PKCS#12 file, and an encrypted key.
pub fn pkcs12(bytes: &[u8]) {
    let _ = pkcs12::open(bytes, "password");
    let _ = pkcs12::open_key(bytes, "password");
}

/// A list of ciphers: if suites are chosen, there is at least one.
pub fn ciphers(bytes: &[u8]) {
    let Ok(list) = std::str::from_utf8(bytes) else { return };
    assert!(ciphers::choose(list).is_none_or(|chosen| !chosen.suites.is_empty()));
}
