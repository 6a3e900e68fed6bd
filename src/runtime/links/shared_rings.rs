//! Two rings of bytes in memory that two processes share, one for each direction: what one end puts, the other takes, in order.
//!
//! Each end has a few words that it alone writes: how many bytes it has put and has taken in all, and whether it sleeps. An
//! end that publishes looks afterwards whether the other sleeps for that. An end that is about to sleep says so first, and
//! looks once more afterwards. Each of the two stores first and then loads what the other stores, so a fence stands between.
//! Each sleep has a number of its own: so an end that has woken the other once does not wake it again out of the same sleep.
//!
//! The other end's words are data, and are not trusted. A count carries a check of itself. At each look it is compared with
//! what is possible, and an impossible count is damage. So if a word was overwritten, old bytes in the ring are not taken
//! for new ones. `shared_rings_loom_test.rs` runs this code in every order.

use crate::net::shm::{page_bytes, Segment, LINE_BYTES};
use crate::runtime::base::shared_words::SharedWords;
use crate::runtime::base::sync::{fence, Ordering};
use std::io::{self, IoSlice, IoSliceMut};

/// An end's words: how much it has put; how much it has taken; the number of its present sleep until bytes come; and that of its
/// present sleep until there is room. 0: it does not sleep for that.
const PUT: usize = 0;
const TAKEN: usize = LINE_BYTES;
const SLEEPS_FOR_BYTES: usize = 2 * LINE_BYTES;
const SLEEPS_FOR_ROOM: usize = SLEEPS_FOR_BYTES + size_of::<u64>();
const END_BYTES: usize = 3 * LINE_BYTES;

/// How many low bits of a count its word has. The rest of the word is a check of them.
const COUNT_BITS: u32 = 48;

/// How much of a longer transfer is published at a time: the other end goes on with that while more is copied.
const PORTION_BYTES: usize = 16 << 10;

/// The memory in which the rings lie.
pub(super) trait Bytes: SharedWords {
    fn read(&self, at: usize, into: &mut [u8]);
    fn write(&self, at: usize, bytes: &[u8]);
}

impl Bytes for Segment {
    #[inline]
    fn read(&self, at: usize, into: &mut [u8]) {
        Segment::read(self, at, into);
    }

    #[inline]
    fn write(&self, at: usize, bytes: &[u8]) {
        Segment::write(self, at, bytes);
    }
}

/// What an end waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sleep {
    Awake,
    /// Until bytes come.
    ForBytes,
    /// Until bytes come or there is room for some.
    ForEither,
}

/// How much memory rings of this length take. The words come first, then the dialler's ring, then the accepter's.
pub(super) fn total_bytes(length: usize) -> usize {
    head_bytes() + 2 * length
}

/// Where the ring begins that this end writes. The words lie before the first ring.
pub(super) fn ring_at(end: usize, length: usize) -> usize {
    head_bytes() + end * length
}

fn head_bytes() -> usize {
    page_bytes() // many times what the words of two ends take
}

/// Both rings, as one end has them.
pub(super) struct Rings<M> {
    memory: M,
    /// Which end this is: 0 or 1.
    own: usize,
    /// How long each is: a power of two.
    length: usize,
    /// How much this end has put and taken, and how much the other had at this end's last look.
    put: u64,
    taken: u64,
    others_put: u64,
    others_taken: u64,
    sleep: Sleep,
    /// How often this end has slept.
    sleeps: u64,
    /// The numbers of the last sleeps, for bytes and for room, out of which this end has woken the other.
    woken: [u64; 2],
    /// Whether the last write found no room.
    is_full: bool,
}

/// How many bytes a transfer moved, and whether the other end is to be woken for it.
pub(super) type Transfer = (usize, bool);

impl<M: Bytes> Rings<M> {
    /// Empty rings.
    pub(super) fn new(memory: M, own: usize, length: usize) -> Rings<M> {
        assert!(own < 2 && length.is_power_of_two(), "end {own}, length {length}");
        Rings {
            memory,
            own,
            length,
            put: 0,
            taken: 0,
            others_put: 0,
            others_taken: 0,
            sleep: Sleep::Awake,
            sleeps: 0,
            woken: [0; 2],
            is_full: false,
        }
    }

    /// Takes what is there, as far as the buffers go.
    pub(super) fn read(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Transfer> {
        self.wake_up();
        let wanted = buffers.iter().fold(0, |sum: usize, buffer| sum.saturating_add(buffer.len()));
        if self.others_put - self.taken < wanted as u64 {
            self.look_for_bytes()?;
        }
        let mut left = (self.others_put - self.taken) as usize;
        let before = self.taken;
        let ring = ring_at(1 - self.own, self.length);
        for buffer in buffers {
            let count = buffer.len().min(left);
            for portion in buffer[..count].chunks_mut(PORTION_BYTES) {
                let (at, first) = self.place(self.taken, portion.len());
                let (head, tail) = portion.split_at_mut(first);
                self.memory.read(ring + at, head);
                self.memory.read(ring, tail);
                self.taken += portion.len() as u64;
                self.memory.store(self.own * END_BYTES + TAKEN, word_of(self.taken));
            }
            left -= count;
        }
        if self.taken == before {
            return Ok((0, false));
        }
        // An end that sleeps until there is room is woken when there is much, so that it need not sleep again at once.
        let is_roomy = left <= self.length / 2;
        Ok(((self.taken - before) as usize, is_roomy && self.is_to_be_woken(1)))
    }

    /// Puts as many of the bytes, from the first on, as there is room for.
    pub(super) fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<Transfer> {
        let wanted = buffers.iter().fold(0, |sum: usize, buffer| sum.saturating_add(buffer.len()));
        if self.room() < wanted {
            self.look_for_room()?;
        }
        let (before, mut left) = (self.put, self.room());
        let ring = ring_at(self.own, self.length);
        for buffer in buffers {
            let count = buffer.len().min(left);
            for portion in buffer[..count].chunks(PORTION_BYTES) {
                let (at, first) = self.place(self.put, portion.len());
                let (head, tail) = portion.split_at(first);
                self.memory.write(ring + at, head);
                self.memory.write(ring, tail);
                self.put += portion.len() as u64;
                if wanted > PORTION_BYTES {
                    self.memory.store(self.own * END_BYTES + PUT, word_of(self.put));
                }
            }
            left -= count;
        }
        self.is_full = self.put == before && wanted > 0;
        if self.put == before {
            self.wake_up(); // this end may have been woken for room that is full by now: its next sleep is a new one
            return Ok((0, false));
        }
        self.memory.store(self.own * END_BYTES + PUT, word_of(self.put));
        Ok(((self.put - before) as usize, self.is_to_be_woken(0)))
    }

    /// Where in a ring the byte with this number lies, and how many of the `count` bytes from there lie before the ring's end.
    fn place(&self, number: u64, count: usize) -> (usize, usize) {
        let at = number as usize & (self.length - 1);
        (at, count.min(self.length - at))
    }

    fn room(&self) -> usize {
        self.length - (self.put - self.others_taken) as usize
    }

    /// Whether there are bytes to take.
    pub(super) fn has_bytes(&self) -> bool {
        self.others_put != self.taken || self.memory.load(self.others(PUT)) != word_of(self.taken)
    }

    fn others(&self, word: usize) -> usize {
        (1 - self.own) * END_BYTES + word
    }

    fn look_for_bytes(&mut self) -> io::Result<()> {
        let word = self.memory.load(self.others(PUT));
        let ahead = ahead_of(self.taken, word).filter(|ahead| *ahead <= self.length as u64);
        self.others_put = self.taken + ahead.ok_or_else(|| damaged("put", word, self.taken, self.length))?;
        Ok(())
    }

    fn look_for_room(&mut self) -> io::Result<()> {
        let word = self.memory.load(self.others(TAKEN));
        let ahead = ahead_of(self.others_taken, word).filter(|ahead| *ahead <= self.put - self.others_taken);
        self.others_taken += ahead.ok_or_else(|| damaged("taken", word, self.put, self.length))?;
        Ok(())
    }

    /// Whether the other end sleeps for what this one has just published, and has not been woken for it.
    fn is_to_be_woken(&mut self, which: usize) -> bool {
        fence(Ordering::SeqCst);
        let sleep = self.memory.load(self.others([SLEEPS_FOR_BYTES, SLEEPS_FOR_ROOM][which]));
        let is_new = sleep != 0 && sleep != self.woken[which];
        self.woken[which] = if is_new { sleep } else { self.woken[which] };
        is_new
    }

    /// Says that this end sleeps, after its last read found nothing. It is woken for bytes that come from now on, and for
    /// room, if its last write found none. Returns false if there are bytes or room already: then it must not sleep.
    pub(super) fn may_sleep(&mut self) -> bool {
        let sleep = if self.is_full { Sleep::ForEither } else { Sleep::ForBytes };
        if self.sleep >= sleep {
            return true; // it has said so already, and would have been woken
        }
        self.sleeps += 1;
        self.sleep = sleep;
        self.memory.store(self.own * END_BYTES + SLEEPS_FOR_BYTES, self.sleeps);
        if self.is_full {
            self.memory.store(self.own * END_BYTES + SLEEPS_FOR_ROOM, self.sleeps);
        }
        fence(Ordering::SeqCst);
        let has_room = self.is_full && self.memory.load(self.others(TAKEN)) != word_of(self.others_taken);
        if has_room || self.has_bytes() {
            self.wake_up();
            return false;
        }
        true
    }

    /// Says that it does not sleep.
    fn wake_up(&mut self) {
        if self.sleep == Sleep::Awake {
            return;
        }
        self.memory.store(self.own * END_BYTES + SLEEPS_FOR_BYTES, 0);
        if self.sleep == Sleep::ForEither {
            self.memory.store(self.own * END_BYTES + SLEEPS_FOR_ROOM, 0);
        }
        self.sleep = Sleep::Awake;
    }
}

/// The word for a count: the count's low bits, and above them a check.
fn word_of(count: u64) -> u64 {
    let low = count & ((1 << COUNT_BITS) - 1);
    low | low.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> COUNT_BITS << COUNT_BITS
}

/// How far the count in a word is ahead of `count`. None if its check is wrong: then no end has written it.
fn ahead_of(count: u64, word: u64) -> Option<u64> {
    let low = word & ((1 << COUNT_BITS) - 1);
    (word_of(low) == word).then(|| low.wrapping_sub(count) & ((1 << COUNT_BITS) - 1))
}

#[cold]
fn damaged(what: &str, word: u64, own: u64, length: usize) -> io::Error {
    let text = format!("in shared memory the word {word:#x} cannot tell how much it has {what}: this end is at {own}, with rings of {length}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Rings in plain memory, whose other end is anybody: the bytes say what this end does, and what is written into its words meanwhile.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    use std::cell::RefCell;
    const LENGTH: usize = 64;

    struct Plain(RefCell<Vec<u8>>);
    impl SharedWords for Plain {
        fn load(&self, at: usize) -> u64 {
            u64::from_le_bytes(self.0.borrow()[at..at + 8].try_into().expect("eight bytes"))
        }
        fn store(&self, at: usize, value: u64) {
            self.write(at, &value.to_le_bytes());
        }
    }
    impl Bytes for Plain {
        fn read(&self, at: usize, into: &mut [u8]) {
            into.copy_from_slice(&self.0.borrow()[at..at + into.len()]);
        }
        fn write(&self, at: usize, bytes: &[u8]) {
            self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    let mut end = Rings::new(Plain(RefCell::new(vec![0; total_bytes(LENGTH)])), 0, LENGTH);
    for step in bytes.chunks_exact(9) {
        let (value, count) = (u64::from_le_bytes(step[1..].try_into().expect("eight bytes")), usize::from(step[1]));
        let moved = match step[0] % 8 {
            0 => end.read(&mut [IoSliceMut::new(&mut vec![0; count])]),
            1 => end.write(&[IoSlice::new(&vec![7; count])]),
            2 => {
                let _ = end.may_sleep();
                Ok((0, false))
            }
            which => {
                let word = end.others([PUT, TAKEN, SLEEPS_FOR_BYTES, SLEEPS_FOR_ROOM][usize::from(which % 4)]);
                end.memory.store(word, if step[0] < 128 { word_of(value) } else { value });
                Ok((0, false))
            }
        };
        match moved {
            Ok((moved, _)) => assert!(moved <= count.min(LENGTH) && end.room() <= LENGTH),
            Err(error) => return assert_eq!(error.kind(), io::ErrorKind::InvalidData),
        }
    }
}

#[cfg(all(test, loom))]
#[path = "shared_rings_loom_test.rs"]
mod loom_test;
#[cfg(all(test, not(loom)))]
#[path = "shared_rings_test.rs"]
mod tests;
