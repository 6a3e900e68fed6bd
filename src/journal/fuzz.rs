//! This room's decoders, as functions of bytes.

use super::{identity, record};

/// A whole journal, and one whose first record these bytes are.
pub fn journal(bytes: &[u8]) {
    if let Ok(scan) = record::scan(bytes) {
        scan.payloads.iter().for_each(|payload| drop(bytes[payload.clone()].to_vec()));
    }
    let mut right = record::head(7);
    right.extend_from_slice(bytes);
    let _ = record::scan(&right);
}

/// An identity file, and one whose checksum is made right.
pub fn identity(bytes: &[u8]) {
    let _ = identity::decode(bytes);
    if let Ok(found) = identity::decode(&identity::around(bytes)) {
        assert_eq!(identity::decode(&found.encode()), Ok(found));
    }
}
