//! How the journal lies in its file, and how a torn tail is told from damage. All numbers are little-endian.
//!
//! | part | bytes | what |
//! | --- | --- | --- |
//! | head | 16 | `format`'s: magic `mustrjnl`, version 5 |
//! | | 8 | salt: a number that differs from file to file |
//! | | 4 | crc32 of the 24 before |
//! | each record | 8 | the offset at which it begins |
//! | | 8 | the offset up to which the file had been synced when it was written |
//! | | 4 | the length of its payload; `0xffffffff` and no payload in the mark |
//! | | 4 | crc32 of the salt, the 20 before and the payload |
//! | | | the payload |
//!
//! A file takes its name when head, first records (a snapshot) and the *mark* behind them are durable. What follows is
//! appended in batches, and nothing is promised of a batch before it is synced.
//!
//! **Tail or middle.** After a crash of the machine what was synced is there. Of the rest any sector may be new, old,
//! zero or missing, whatever lies behind it. So the first record that is not whole is
//! - damage, if it lies before the mark, or if any whole record behind it says that the file was synced beyond it.
//!   Then it had been durable, and something promised is lost;
//! - else the tail of the last batch that was never synced: it is cut off, with whatever lies behind it.
//!
//! Whole records behind it are found at any offset, also where bytes were lost or added before them, so that neither a
//! damaged length nor a shift hides one. The salt goes into each checksum, so that what an older file left on the disk
//! is not taken for a record. A copy of this file's own bytes within a payload is not taken for a proof, either: these bytes
//! were written before, and say nothing of what lies behind them.
//!
//! What this can't see: damage to the very last batch after it was synced looks like a torn tail until another batch
//! stands behind it. Opening says what it cuts off. Tested in `record_test.rs`.

use super::format::{check_prefix, prefix, PREFIX_BYTES};
use std::ops::Range;

/// The longest record, in bytes.
pub const RECORD_MAX: usize = 64 << 20;

pub(super) const HEAD_BYTES: usize = PREFIX_BYTES + 12;
pub(super) const RECORD_HEAD_BYTES: usize = 24;
const MAGIC: &[u8; 8] = b"mustrjnl";
const VERSION: u32 = 5;
const MARK: u32 = u32::MAX;

/// The head of a file.
pub(super) fn head(salt: u64) -> Vec<u8> {
    let mut bytes = prefix(MAGIC, VERSION).to_vec();
    bytes.extend_from_slice(&salt.to_le_bytes());
    let check = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&check.to_le_bytes());
    bytes
}

/// Encodes the parts of a file with this salt.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordEncoder {
    pub salt: u64,
}

impl RecordEncoder {
    /// Puts a record that will begin at `offset` behind `to`. The payload keeps [`RECORD_MAX`].
    pub fn put(self, to: &mut Vec<u8>, offset: u64, synced: u64, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("RECORD_MAX fits in u32");
        self.put_parts(to, offset, synced, length, payload);
    }

    /// Puts the mark, which will begin at `offset`, behind `to`.
    pub fn put_mark(self, to: &mut Vec<u8>, offset: u64) {
        self.put_parts(to, offset, HEAD_BYTES as u64, MARK, &[]);
    }

    fn put_parts(self, to: &mut Vec<u8>, offset: u64, synced: u64, length: u32, payload: &[u8]) {
        let start = to.len();
        to.extend_from_slice(&offset.to_le_bytes());
        to.extend_from_slice(&synced.to_le_bytes());
        to.extend_from_slice(&length.to_le_bytes());
        let check = checksum(self.salt, &to[start..], payload);
        to.extend_from_slice(&check.to_le_bytes());
        to.extend_from_slice(payload);
    }
}

fn checksum(salt: u64, begin: &[u8], payload: &[u8]) -> u32 {
    let mut check = crc32fast::Hasher::new();
    check.update(&salt.to_le_bytes());
    check.update(begin);
    check.update(payload);
    check.finalize()
}

/// What a file holds.
#[derive(Debug)]
pub(super) struct Scan {
    /// Where the payloads of its records lie.
    pub payloads: Vec<Range<usize>>,
    /// Where the last whole record ends; what lies behind is a torn tail.
    pub end: usize,
}

/// How much is hashed at most, as a multiple of the file's length, in the search for records that have shifted.
const SEARCH_TIMES: usize = 16;
/// No file is longer than this.
const FARTHEST: u64 = 1 << 48;

/// A whole record.
struct Found {
    /// The offset at which it says that it begins.
    offset: u64,
    synced: u64,
    is_mark: bool,
    payload: Range<usize>,
}

struct Reader<'a> {
    bytes: &'a [u8],
    salt: u64,
}

/// Reads a whole file. An error is the end of the sentence that begins with the file's path.
pub(super) fn scan(bytes: &[u8]) -> Result<Scan, String> {
    let reader = Reader { bytes, salt: read_head(bytes)? };
    let (mut payloads, mut is_marked, mut end) = (Vec::new(), false, HEAD_BYTES);
    while let Some(found) = reader.at(end) {
        end = found.payload.end;
        match found.is_mark {
            // A file has one mark.
            true if is_marked => return Err(format!("is damaged at offset {end}: a second mark")),
            true => is_marked = true,
            false => payloads.push(found.payload),
        }
    }
    if !is_marked {
        return Err(format!("is damaged at offset {end}, within what it began with, which had been synced"));
    }
    match reader.proof_behind(end) {
        Ok(None) => Ok(Scan { payloads, end }),
        Ok(Some(behind)) => {
            Err(format!("is damaged at offset {end}: it had been synced there, as the record at offset {behind} shows"))
        }
        Err(too_much) => Err(format!("is damaged at offset {end}, and behind it lies {too_much}")),
    }
}

fn read_head(bytes: &[u8]) -> Result<u64, String> {
    check_prefix(bytes, MAGIC, VERSION)?;
    let salt = bytes.get(PREFIX_BYTES..PREFIX_BYTES + 8).map(|salt| salt.try_into().expect("8 bytes"));
    let salt = salt.map(u64::from_le_bytes).filter(|salt| bytes.starts_with(&head(*salt)));
    salt.ok_or_else(|| format!("is damaged at offset {PREFIX_BYTES}, in its head"))
}

impl Reader<'_> {
    /// The record that begins at `offset`, if it is whole.
    fn at(&self, offset: usize) -> Option<Found> {
        let found = self.says(offset)?;
        (found.offset == offset as u64 && self.is_whole(&found)).then_some(found)
    }

    /// The record that would begin at `at`. Whether its checksum is right is not looked at yet.
    fn says(&self, at: usize) -> Option<Found> {
        let begin = self.bytes.get(at..)?.first_chunk::<RECORD_HEAD_BYTES>()?;
        let number = |from: usize| u64::from_le_bytes(begin[from..from + 8].try_into().expect("8 bytes"));
        let (offset, synced) = (number(0), number(8));
        let length = u32::from_le_bytes(begin[16..20].try_into().expect("4 bytes"));
        let is_mark = length == MARK;
        let length = if is_mark { 0 } else { length as usize };
        let start = at + RECORD_HEAD_BYTES;
        if length > RECORD_MAX || length > self.bytes.len() - start || synced > offset || offset > FARTHEST {
            return None;
        }
        Some(Found { offset, synced, is_mark, payload: start..start + length })
    }

    fn is_whole(&self, found: &Found) -> bool {
        let (begin, check) = self.bytes[..found.payload.start][found.payload.start - RECORD_HEAD_BYTES..].split_at(20);
        checksum(self.salt, begin, &self.bytes[found.payload.clone()]).to_le_bytes() == check
    }

    /// Finds a whole record behind `torn` that says that the file was synced beyond `torn`. An error: so many bytes there look
    /// like records that it would take for ever to look at all of them.
    fn proof_behind(&self, torn: usize) -> Result<Option<usize>, String> {
        let mut left = self.bytes.len().saturating_mul(SEARCH_TIMES);
        for at in torn + 1..self.bytes.len() {
            let Some(found) = self.says(at).filter(|found| found.synced > torn as u64) else { continue };
            if self.is_whole(&found) {
                return Ok(Some(at));
            }
            let hashed = RECORD_HEAD_BYTES + found.payload.len();
            left = left.checked_sub(hashed).ok_or("more that looks like records than can be looked at")?;
        }
        Ok(None)
    }
}

#[cfg(test)]
#[path = "record_test.rs"]
mod tests;
