//! Bytes that have come in and are not decrypted yet.
//!
//! rustls reads 4 KiB at a time, which is five calls into the kernel for each record of 16 KiB. Here more is read ahead
//! while much comes, and rustls gets it record by record. Tested in `link_test.rs`.

use crate::net::Transport;
use rustls::Connection;
use std::io::{self, IoSliceMut};
use std::ops::RangeInclusive;

/// How much is held while much comes; and how much is read at a time while little comes.
const MUCH: usize = 128 << 10;
const LITTLE: usize = 4 << 10;
/// After so many reads in a row that bring little, no more than a little is held.
const CALM: u32 = 64;
/// A record's type, version and length.
const HEADER: usize = 5;
/// The kinds of records, and the first byte of their version: RFC 8446, section 5.1, and RFC 6520 for the last kind.
const KINDS: RangeInclusive<u8> = 20..=24;
const VERSION: u8 = 3;
/// The longest payload of a record that rustls accepts, as in RFC 5246, section 6.2.3.
const PAYLOAD_MAX: usize = (16 << 10) + 2048;

/// Bytes that have come in and are not decrypted yet.
pub struct Inbox {
    bytes: Vec<u8>,
    /// Where in `bytes` the content begins and ends.
    from: usize,
    until: usize,
    /// How many reads have brought little since much came.
    calm: u32,
}

impl Inbox {
    /// An inbox in which nothing has come yet.
    pub fn new() -> Inbox {
        Inbox { bytes: Vec::new(), from: 0, until: 0, calm: CALM }
    }

    /// Whether a whole record is here, or something that is no record: both can be passed on without a further read.
    pub fn has_whole(&self) -> bool {
        self.whole().is_some()
    }

    /// How much it holds at most, as it is.
    #[cfg(test)]
    pub fn room(&self) -> usize {
        self.bytes.capacity()
    }

    fn whole(&self) -> Option<usize> {
        let here = &self.bytes[self.from..self.until];
        let &[kind, version, _, high, low] = here.first_chunk::<HEADER>()?;
        let payload = usize::from(u16::from_be_bytes([high, low]));
        match KINDS.contains(&kind) && version == VERSION && payload <= PAYLOAD_MAX {
            true => Some(HEADER + payload).filter(|length| here.len() >= *length),
            false => Some(here.len().min(LITTLE)), // for rustls to refuse, at once
        }
    }

    /// Gives the session the next record. Returns how many bytes that were: 0 at the end.
    pub fn pass<T: Transport>(&mut self, from: &mut T, to: &mut Connection) -> io::Result<usize> {
        let length = loop {
            if let Some(length) = self.whole() {
                break length;
            }
            if self.read(from)? == 0 {
                break 0;
            }
        };
        let mut record = &self.bytes[self.from..self.from + length];
        loop {
            // At the end the session is told so, with no bytes. After the peer's last word it takes none.
            if to.read_tls(&mut record)? == 0 || record.is_empty() {
                break;
            }
        }
        let passed = length - record.len();
        self.from += passed;
        Ok(passed)
    }

    /// Reads once, behind what is here. Returns how many bytes, 0 for the end.
    fn read<T: Transport>(&mut self, from: &mut T) -> io::Result<usize> {
        self.bytes.copy_within(self.from..self.until, 0);
        (self.from, self.until) = (0, self.until - self.from);
        let room = if self.calm < CALM { MUCH } else { self.until + LITTLE };
        if self.bytes.len() < room || (self.bytes.len() == MUCH && self.calm == CALM) {
            let mut bytes = vec![0; room];
            bytes[..self.until].copy_from_slice(&self.bytes[..self.until]);
            self.bytes = bytes;
        }
        let count = from.read(&mut [IoSliceMut::new(&mut self.bytes[self.until..])])?;
        self.until += count;
        self.calm = match self.until == self.bytes.len() || count > LITTLE {
            true => 0,
            false => (self.calm + 1).min(CALM),
        };
        Ok(count)
    }
}
