//! This room's decoders, as functions of bytes.

use super::{ciphers, pem, pkcs12};

/// A PKCS#12 file, and an encrypted key.
pub fn pkcs12(bytes: &[u8]) {
    let _ = pkcs12::open(bytes, "password");
    let _ = pkcs12::open_key(bytes, "password");
}

/// A file of certificates, revocation lists or keys. What is found as one kind is among the parts of the file.
pub fn pem(bytes: &[u8]) {
    let parts = pem::parts(bytes).map(|parts| parts.len());
    if let Ok(found) = pem::certificates(bytes) {
        assert!(parts.is_ok_and(|parts| found.len() <= parts));
    }
    if let Ok(found) = pem::lists(bytes) {
        assert!(!found.is_empty());
    }
    let _ = pem::encrypted_key(bytes);
}

/// A list of ciphers: if suites are chosen, there is at least one.
pub fn ciphers(bytes: &[u8]) {
    let Ok(list) = std::str::from_utf8(bytes) else { return };
    assert!(ciphers::choose(list).is_none_or(|chosen| !chosen.suites.is_empty()));
}
