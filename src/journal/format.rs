//! What both kinds of file begin with, in every version: what kind it is, its format version, and a checksum of both.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | magic |
//! | 4 | format version |
//! | 4 | crc32 of the 12 before |
//!
//! All numbers are little-endian. Tested through `record_test.rs` and `identity_test.rs`.

/// How long this beginning is.
pub(super) const PREFIX_BYTES: usize = 16;

/// The beginning of a file.
pub(super) fn prefix(magic: &[u8; 8], version: u32) -> [u8; PREFIX_BYTES] {
    let mut bytes = [0; PREFIX_BYTES];
    bytes[..8].copy_from_slice(magic);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let check = crc32fast::hash(&bytes[..12]);
    bytes[12..].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// Says what is wrong with the beginning of a file, as the end of the sentence that begins with its path.
pub(super) fn check_prefix(bytes: &[u8], magic: &[u8; 8], version: u32) -> Result<(), String> {
    let Some(found) = bytes.first_chunk::<PREFIX_BYTES>() else {
        return Err(format!("is damaged: it has {} bytes, and begins with at least {PREFIX_BYTES}", bytes.len()));
    };
    if *found == prefix(magic, version) {
        return Ok(());
    }
    let other = u32::from_le_bytes(found[8..12].try_into().expect("4 bytes"));
    match *found == prefix(magic, other) {
        true => Err(format!("has format version {other}, and this library reads version {version}")),
        false => Err("is damaged at offset 0".to_owned()),
    }
}
