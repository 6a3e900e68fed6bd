//! Checksums of the data in shared memory, where the user wants them (`MUSTER_CHECKSUMS=all`). Data is copied into this process's own
//! memory first, checked there, and used from there. So a call that ends well gives what the ranks brought to it, whatever
//! other processes write into that memory. Counters have no checksums: one that is damaged may end the call with another error,
//! or with a time-out, and lets a rank out of a barrier early.
//!
//! A contribution or a result has a checksum for each block. Each begins with the number of the call or piece, so that what lay
//! there before is not taken for what is to come. The rank that writes a place writes its checksums, too, before it publishes
//! either.

use crate::net::shm::Segment;
use crc32fast::Hasher;
use std::ops::Range;

/// How many bytes a checksum is for, at most.
pub(super) const BLOCK_BYTES: usize = 4096;
/// How long a checksum is.
pub(super) const CHECK_BYTES: usize = 4;

/// A place that one rank writes, and others read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub at: usize,
    /// How much of it is in use.
    pub bytes: usize,
    /// Where its checksums lie.
    pub checks_at: usize,
    /// The number of the call or piece that it is for.
    pub number: u64,
}

/// What a rank needs to write and to read with checksums.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// The bytes that are to be written.
    pub stage: Vec<u8>,
    /// The bytes that were read of each rank, and found to be right.
    pub copies: Vec<u8>,
    /// How far apart the ranks' copies lie.
    pub stride: usize,
}

impl Checks {
    /// Copies these bytes out of a rank's room, and the rest of the blocks that they share. Ranges come in order; a
    /// block of which one range has a part is not copied again for the next range. Returns whether the checksums are
    /// right.
    pub(super) fn fetch(
        &mut self,
        segment: &Segment,
        room: Room,
        rank: u32,
        mut ranges: impl Iterator<Item = Range<usize>>,
    ) -> bool {
        let copy = &mut self.copies[rank as usize * self.stride..][..room.bytes];
        let mut next = 0;
        ranges.all(|range| {
            let (first, end) = (next.max(range.start / BLOCK_BYTES), range.end.div_ceil(BLOCK_BYTES));
            next = next.max(end);
            (first..end).all(|block| {
                let from = block * BLOCK_BYTES;
                let bytes = &mut copy[from..room.bytes.min(from + BLOCK_BYTES)];
                segment.read(room.at + from, bytes);
                let mut told = [0; CHECK_BYTES];
                segment.read(room.checks_at + block * CHECK_BYTES, &mut told);
                told == checksum(room.number, bytes)
            })
        })
    }
}

/// Writes bytes, which fill the room, and their checksums.
pub(super) fn lay(segment: &Segment, room: Room, bytes: &[u8]) {
    segment.write(room.at, bytes);
    for (nth, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        segment.write(room.checks_at + nth * CHECK_BYTES, &checksum(room.number, block));
    }
}

fn checksum(number: u64, bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let mut hasher = Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize().to_le_bytes()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const BYTES: usize = 2 * BLOCK_BYTES + 100;

    fn laid(number: u64) -> (Segment, Room, Checks, Vec<u8>) {
        let (segment, _) = Segment::create(64 << 10).unwrap();
        let room = Room { at: 1024, bytes: BYTES, checks_at: 512, number };
        let bytes: Vec<u8> = (0..BYTES).map(|at| (at * 7 % 251) as u8).collect();
        lay(&segment, room, &bytes);
        let checks = Checks { stage: Vec::new(), copies: vec![0; 2 * BYTES], stride: BYTES };
        (segment, room, checks, bytes)
    }

    fn fetch(of: &mut (Segment, Room, Checks, Vec<u8>), rank: u32, ranges: &[(usize, usize)]) -> bool {
        of.2.fetch(&of.0, of.1, rank, ranges.iter().map(|(from, to)| *from..*to))
    }

    #[test]
    fn what_was_laid_down_is_found_again_block_by_block() {
        let mut one = laid(9);
        assert!(fetch(&mut one, 1, &[(BLOCK_BYTES + 5, BLOCK_BYTES + 6)]));
        let copied =
            |one: &(Segment, Room, Checks, Vec<u8>), range: Range<usize>| one.2.copies[BYTES..][range].to_vec();
        let second = BLOCK_BYTES..2 * BLOCK_BYTES;
        assert_eq!(copied(&one, second.clone()), one.3[second]);
        assert_eq!(copied(&one, 0..BLOCK_BYTES), [0; BLOCK_BYTES], "nobody asked for this block");
        assert!(fetch(&mut one, 1, &[(0, 5), (7, 9), (BLOCK_BYTES - 1, BYTES)]), "several ranges, some in one block");
        assert_eq!(copied(&one, 0..BYTES), one.3);
        assert!(fetch(&mut one, 0, &[(3, 3)]) && fetch(&mut one, 0, &[]), "of nothing all is right");
    }

    #[test]
    fn a_byte_that_differs_is_found_in_its_block_and_in_no_other() {
        for damaged in [0, BLOCK_BYTES - 1, BLOCK_BYTES, BYTES - 1] {
            let mut one = laid(9);
            one.0.write(one.1.at + damaged, &[!one.3[damaged]]);
            for block in 0..3 {
                let range = block * BLOCK_BYTES..BYTES.min((block + 1) * BLOCK_BYTES);
                let is_right = fetch(&mut one, 0, &[(range.start, range.end)]);
                assert_eq!(is_right, !range.contains(&damaged), "byte {damaged}, block {block}");
            }
        }
    }

    #[test]
    fn a_checksum_that_differs_is_found_and_so_is_what_lay_there_before() {
        let mut one = laid(9);
        one.1.number = 13;
        assert!(!fetch(&mut one, 0, &[(0, 1)]), "that is another piece's");
        one.1.number = 9;
        one.0.write(one.1.checks_at + CHECK_BYTES, &[0; CHECK_BYTES]);
        assert!(fetch(&mut one, 0, &[(0, BLOCK_BYTES)]));
        assert!(!fetch(&mut one, 0, &[(0, 1), (BLOCK_BYTES, BYTES)]));
    }
}
