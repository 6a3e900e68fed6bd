//! Queues by key, each in the order of its numbers, and the map that the queues and the engine use. All queues are
//! lists through one row of places. A thing that is taken out leaves its place to the next one, so memory is allocated
//! only when more things wait than ever before. Tested below, and together with their use in `matching`.

use std::collections::{HashMap, TryReserveError};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// How many places are kept when all are empty.
const KEPT: usize = 16 << 10;

/// A map whose keys are numbers of our own, and tags of members. No outsider chooses the keys, so a fast hash that
/// would not withstand an adversary is enough.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;

/// Mixes numbers so that every bit of them changes every bit of the result (the end of MurmurHash3).
#[derive(Default)]
pub(super) struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_i32(&mut self, word: i32) {
        self.write_u64(u64::from(word as u32));
    }

    fn write_u64(&mut self, word: u64) {
        let mut mixed = self.0.rotate_left(23) ^ word;
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        self.0 = mixed ^ (mixed >> 33);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64); // which variant an enum is
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The place where something stands, until it is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position(u32);

/// No place.
const NONE: Position = Position(u32::MAX);

struct Entry<K, V> {
    key: K,
    number: u64,
    value: V,
    before: Position,
    /// In an empty place, this is the next empty place.
    after: Position,
}

/// The queues.
pub(super) struct Queues<K, V> {
    entries: Vec<Entry<K, V>>,
    empty: Position,
    count: usize,
    /// The first and the last of each queue.
    ends: Map<K, (Position, Position)>,
}

impl<K, V> Default for Queues<K, V> {
    fn default() -> Self {
        Queues { entries: Vec::new(), empty: NONE, count: 0, ends: Map::default() }
    }
}

impl<K: Copy + Eq + Hash, V: Copy> Queues<K, V> {
    /// Puts something into a queue. Mostly it goes behind all others, because numbers grow; then this is done at once.
    pub(super) fn insert(&mut self, key: K, number: u64, value: V) -> Position {
        let (first, last) = self.ends.get(&key).copied().unwrap_or((NONE, NONE));
        let (mut before, mut after) = (last, NONE);
        if self.number(last).is_some_and(|last| last > number) {
            (before, after) = (NONE, first);
            while self.number(after).is_some_and(|other| other < number) {
                (before, after) = (after, self.at(after).after);
            }
        }
        let place = self.occupy(Entry { key, number, value, before, after });
        self.link(key, before, place);
        self.link(key, place, after);
        place
    }

    /// Takes out what stands there.
    pub(super) fn remove(&mut self, place: Position) {
        let Entry { key, before, after, .. } = *self.at(place);
        if before == NONE && after == NONE {
            self.ends.remove(&key);
        } else {
            self.link(key, before, after);
        }
        self.count -= 1;
        self.at_mut(place).after = std::mem::replace(&mut self.empty, place);
        if self.count == 0 && self.entries.len() > KEPT {
            *self = Queues::default();
        }
    }

    /// Whether there may be no room for so many more.
    pub(super) fn is_full(&self, more: usize) -> bool {
        self.entries.capacity() - self.count < more || self.ends.capacity() - self.ends.len() < more
    }

    /// Makes room for so many more.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), TryReserveError> {
        self.entries.try_reserve(more)?;
        self.ends.try_reserve(more)
    }

    /// The thing that stands first in a queue.
    pub(super) fn first(&self, key: K) -> Option<V> {
        let (first, _) = self.ends.get(&key)?;
        Some(self.at(*first).value)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        assert_eq!(self.count == 0, self.ends.is_empty());
        self.count == 0
    }

    fn occupy(&mut self, entry: Entry<K, V>) -> Position {
        self.count += 1;
        if self.empty == NONE {
            let place = u32::try_from(self.entries.len()).expect("so much does not fit into any memory");
            self.entries.push(entry);
            return Position(place);
        }
        let place = self.empty;
        self.empty = self.at(place).after;
        *self.at_mut(place) = entry;
        place
    }

    /// Makes these two neighbours. If there is only one of them, it becomes an end of its queue.
    fn link(&mut self, key: K, before: Position, after: Position) {
        if before != NONE {
            self.at_mut(before).after = after;
        }
        if after != NONE {
            self.at_mut(after).before = before;
        }
        if before == NONE || after == NONE {
            let (first, last) = self.ends.entry(key).or_insert((NONE, NONE));
            if before == NONE {
                *first = after;
            }
            if after == NONE {
                *last = before;
            }
        }
    }

    fn number(&self, place: Position) -> Option<u64> {
        self.entries.get(place.0 as usize).map(|entry| entry.number)
    }

    fn at(&self, place: Position) -> &Entry<K, V> {
        &self.entries[place.0 as usize]
    }

    fn at_mut(&mut self, place: Position) -> &mut Entry<K, V> {
        &mut self.entries[place.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    #[test]
    fn what_leaves_makes_room_for_what_comes() {
        let mut queues = Queues::default();
        let places: Vec<Position> = (0..30).map(|number| queues.insert(number % 3, number, number)).collect();
        let grown = queues.entries.len();
        for place in &places[3..] {
            queues.remove(*place);
        }
        assert_eq!([0, 1, 2].map(|key| queues.first(key)), [Some(0), Some(1), Some(2)]);
        for number in 30..57 {
            queues.insert(7, number, number);
        }
        assert_eq!((queues.entries.len(), queues.first(7)), (grown, Some(30)));
    }

    #[test]
    fn an_entry_that_is_put_back_takes_its_old_place() {
        let mut queues = Queues::default();
        for number in [2, 4, 6, 5, 1, 3] {
            queues.insert((), number, number);
        }
        for number in 1..=6 {
            assert_eq!(queues.first(()), Some(number));
            let (first, _) = queues.ends[&()];
            queues.remove(first);
        }
        assert!(queues.is_empty() && queues.first(()).is_none());
    }

    #[test]
    fn of_very_many_places_few_are_kept_once_they_are_empty() {
        let mut queues = Queues::default();
        let places: Vec<Position> = (0..KEPT as u64 + 1).map(|number| queues.insert((), number, ())).collect();
        places.into_iter().for_each(|place| queues.remove(place));
        assert_eq!((queues.entries.capacity(), queues.is_empty()), (0, true));
    }

    #[test]
    fn numbers_that_differ_in_their_high_bits_only_are_told_apart_by_their_low_ones() {
        let mixer = BuildHasherDefault::<Mixer>::default();
        let mut low: Vec<u64> = (0..256u64).map(|number| mixer.hash_one(number << 40) & 0xffff).collect();
        low.sort_unstable();
        low.dedup();
        assert!(low.len() > 240, "{} of 256", low.len());
    }
}
