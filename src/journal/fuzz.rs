//! This room's decoders, as functions of bytes.

use super::{identity, record};

/// Reads the bytes as a whole journal, and as what follows the right head of one.
pub fn journal(bytes: &[u8]) {
    if let Ok(scan) = record::scan(bytes) {
        scan.payloads.iter().for_each(|payload| drop(bytes[payload.clone()].to_vec()));
    }
    let mut right = record::head(7);
    right.extend_from_slice(bytes);
    let _ = record::scan(&right);
}

/// A journal with these records.
#[cfg(test)]
pub fn journal_of(records: &[Vec<u8>]) -> Vec<u8> {
    let (encoder, mut bytes) = (record::RecordEncoder { salt: 7 }, record::head(7));
    for record in records {
        let offset = bytes.len() as u64;
        encoder.put(&mut bytes, offset, offset, record);
    }
    let end = bytes.len() as u64;
    encoder.put_mark(&mut bytes, end);
    bytes
}

/// An identity file, with everything in it.
#[cfg(test)]
pub fn identity_file() -> Vec<u8> {
    let entry = |job: &str| identity::Entry { job_id: Some(job.into()), current: Some([1; 32]), next: Some([2; 32]) };
    let (node_id, aside) = ("worker 1".into(), vec![entry("older"), entry("oldest")]);
    identity::Identity { node_id, own: entry("job"), aside }.encode()
}

/// Reads the bytes as an identity file, and as the body of one whose checksum is right.
pub fn identity(bytes: &[u8]) {
    let _ = identity::decode(bytes);
    if let Ok(found) = identity::decode(&identity::around(bytes)) {
        assert_eq!(identity::decode(&found.encode()), Ok(found));
    }
}
