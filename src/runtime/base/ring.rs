//! A ring of records between one writer at a time and one reader: neither waits for the other, and nothing is locked.
//!
//! A writer that finds it full drops its record, and counts it. Writers must take turns by themselves, as a group's calls do.
//! Each word of a record is an atomic one, so that nothing here needs `unsafe`; on the usual processors that costs nothing.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many words a record has.
pub(crate) const WORDS: usize = 8;
/// How many records a ring has: they take 512 KiB.
const RECORDS: u64 = 8192;

/// One record.
pub(crate) type RingRecord = [u64; WORDS];

/// The ring.
pub(crate) struct Ring {
    words: Box<[AtomicU64]>,
    /// How many records were ever put in. The writer's.
    put: AtomicU64,
    /// How many records were ever taken out. The reader's.
    taken: AtomicU64,
    dropped: AtomicU64,
}

impl Ring {
    /// An empty ring.
    pub(crate) fn new() -> Ring {
        let words = (0..RECORDS * WORDS as u64).map(|_| AtomicU64::new(0)).collect();
        let [put, taken, dropped] = [0; 3].map(AtomicU64::new);
        Ring { words, put, taken, dropped }
    }

    /// Puts a record in, unless the ring is full. Returns whether the ring has just become half full: then the reader
    /// should come soon.
    pub(crate) fn put(&self, record: RingRecord) -> bool {
        let put = self.put.load(Ordering::Relaxed);
        let waiting = put - self.taken.load(Ordering::Acquire);
        if waiting == RECORDS {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.slots(put).iter().zip(record).for_each(|(slot, word)| slot.store(word, Ordering::Relaxed));
        self.put.store(put + 1, Ordering::Release);
        waiting + 1 == RECORDS / 2
    }

    /// Takes all records out that are in it now, in order.
    pub(crate) fn take(&self, mut each: impl FnMut(RingRecord)) {
        let (taken, put) = (self.taken.load(Ordering::Relaxed), self.put.load(Ordering::Acquire));
        for number in taken..put {
            let slots = self.slots(number);
            each(std::array::from_fn(|word| slots[word].load(Ordering::Relaxed)));
            self.taken.store(number + 1, Ordering::Release);
        }
    }

    /// How many records were dropped since this was asked last.
    pub(crate) fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    fn slots(&self, number: u64) -> &[AtomicU64] {
        let place = (number % RECORDS) as usize * WORDS;
        &self.words[place..place + WORDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(ring: &Ring) -> Vec<u64> {
        let mut numbers = Vec::new();
        ring.take(|record| {
            assert_eq!(record, [record[0]; WORDS]);
            numbers.push(record[0]);
        });
        numbers
    }

    #[test]
    fn what_is_put_in_comes_out_in_order_and_what_finds_no_room_is_counted() {
        let ring = Ring::new();
        let half: Vec<u64> = (0..RECORDS + 5).filter(|number| ring.put([*number; WORDS])).collect();
        assert_eq!(half, [RECORDS / 2 - 1]);
        assert_eq!((ring.take_dropped(), ring.take_dropped()), (5, 0));
        assert_eq!(taken(&ring), (0..RECORDS).collect::<Vec<_>>());
        assert!(!ring.put([7; WORDS]));
        assert_eq!(taken(&ring), [7]);
        assert!(taken(&ring).is_empty());
    }

    #[test]
    fn a_reader_beside_the_writer_gets_whole_records() {
        let (ring, records) = (Ring::new(), 5 * RECORDS);
        let mut read = Vec::new();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (0..records).for_each(|number| {
                    while {
                        ring.put([number; WORDS]);
                        ring.take_dropped() > 0
                    } {}
                })
            });
            while !writer.is_finished() {
                read.extend(taken(&ring));
            }
        });
        read.extend(taken(&ring));
        assert_eq!(read, (0..records).collect::<Vec<_>>());
    }
}
