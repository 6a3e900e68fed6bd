//! The checksums of pieces of a call's memory, kept as long as nothing writes there. A piece that is passed on
//! unchanged, or sent to several peers, keeps the checksum that it came with or got first. So damage within this
//! process shows at the next rank.
//!
//! Invariant: code calls `forget` before it writes; `drive` does so for each action.

/// A shorter piece is hashed as quickly as its checksum is found here.
const SHORTEST: usize = 16 << 10;
/// How many checksums are remembered: enough for all pieces of 64 MiB.
const REMEMBERED: usize = 512;

struct Known {
    start: usize,
    end: usize,
    checksum: u32,
}

/// The checksums of one call.
#[derive(Default)]
pub struct Checksums {
    known: Vec<Known>,
    /// The place of the checksum that the next one replaces, when there are enough.
    oldest: usize,
}

impl Checksums {
    /// Forgets all: another call begins.
    pub fn clear(&mut self) {
        self.known.clear();
    }

    /// Forgets the checksums of bytes that are about to be written.
    pub fn forget(&mut self, bytes: *const u8, length: usize) {
        let (start, end) = (bytes.addr(), bytes.addr() + length);
        self.known.retain(|known| known.end <= start || end <= known.start);
    }

    /// Notes the checksum of these bytes, which have just been received.
    pub fn note(&mut self, bytes: &[u8], checksum: u32) {
        if bytes.len() < SHORTEST {
            return;
        }
        let start = bytes.as_ptr().addr();
        let known = Known { start, end: start + bytes.len(), checksum };
        if self.known.len() < REMEMBERED {
            self.known.push(known);
        } else {
            self.oldest = (self.oldest + 1) % REMEMBERED;
            self.known[self.oldest] = known;
        }
    }

    /// The checksum of these bytes. It is computed now if it is not known.
    pub fn of(&mut self, bytes: &[u8]) -> u32 {
        let start = bytes.as_ptr().addr();
        let is_it = |known: &&Known| (known.start, known.end) == (start, start + bytes.len());
        match self.known.iter().find(is_it) {
            Some(known) => known.checksum,
            None => {
                let checksum = crc32fast::hash(bytes);
                self.note(bytes, checksum);
                checksum
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_known_until_something_of_it_is_written() {
        let bytes: Vec<u8> = (0..4 * SHORTEST).map(|at| at as u8).collect();
        let (first, second) = (&bytes[..SHORTEST], &bytes[SHORTEST..][..SHORTEST]);
        let mut checksums = Checksums::default();
        checksums.note(first, 1);
        checksums.note(second, 2);
        checksums.note(&bytes[2 * SHORTEST..][..SHORTEST - 1], 3);
        assert_eq!((checksums.of(first), checksums.of(second)), (1, 2));
        for other in
            [&first[1..], &first[..SHORTEST - 1], &bytes[2 * SHORTEST..][..SHORTEST - 1], &bytes[..2 * SHORTEST]]
        {
            assert_eq!(checksums.of(other), crc32fast::hash(other), "another piece, or too short a one");
        }
        checksums.forget(second.as_ptr(), 0);
        checksums.forget(bytes[2 * SHORTEST..].as_ptr(), SHORTEST);
        assert_eq!((checksums.of(first), checksums.of(second)), (1, 2));
        checksums.forget(bytes[SHORTEST - 1..].as_ptr(), 1);
        assert_eq!((checksums.of(first), checksums.of(second)), (crc32fast::hash(first), 2));
        checksums.forget(bytes.as_ptr(), bytes.len());
        assert_eq!(checksums.of(second), crc32fast::hash(second));
        checksums.clear();
        assert!(checksums.known.is_empty());
    }

    #[test]
    fn as_many_as_are_remembered_and_no_more() {
        let bytes = vec![0u8; SHORTEST + 3 * REMEMBERED];
        let mut checksums = Checksums::default();
        for at in 0..3 * REMEMBERED {
            checksums.note(&bytes[at..][..SHORTEST], at as u32);
        }
        assert_eq!(checksums.known.len(), REMEMBERED);
        for at in 2 * REMEMBERED..3 * REMEMBERED {
            assert_eq!(checksums.of(&bytes[at..][..SHORTEST]), at as u32);
        }
    }
}
