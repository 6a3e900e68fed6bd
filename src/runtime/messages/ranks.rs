//! A set of ranks of one group, as bits: after it has been made it allocates nothing. Tested below.

/// The set.
pub(super) struct Ranks {
    words: Vec<u64>,
    count: usize,
    /// No word before this place has a rank.
    from: usize,
}

impl Ranks {
    /// An empty set, for so many ranks.
    pub(super) fn none_of(size: usize) -> Ranks {
        Ranks { words: vec![0; size.div_ceil(64)], count: 0, from: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn contains(&self, rank: u32) -> bool {
        let (at, bit) = place(rank);
        self.words[at] & bit != 0
    }

    pub(super) fn insert(&mut self, rank: u32) {
        let (at, bit) = place(rank);
        self.count += usize::from(self.words[at] & bit == 0);
        self.words[at] |= bit;
        self.from = self.from.min(at);
    }

    pub(super) fn remove(&mut self, rank: u32) {
        let (at, bit) = place(rank);
        self.count -= usize::from(self.words[at] & bit != 0);
        self.words[at] &= !bit;
    }

    /// Takes the lowest rank out.
    pub(super) fn pop_first(&mut self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        while self.words[self.from] == 0 {
            self.from += 1; // there is one further on
        }
        let rank = self.from as u32 * 64 + self.words[self.from].trailing_zeros();
        self.remove(rank);
        Some(rank)
    }
}

fn place(rank: u32) -> (usize, u64) {
    (rank as usize / 64, 1 << (rank % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn it_holds_what_a_set_holds() {
        let (mut ranks, mut set) = (Ranks::none_of(200), BTreeSet::new());
        let mut state = 1u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let rank = (state >> 40) as u32 % 200;
            match state >> 62 {
                0 => assert_eq!(ranks.pop_first(), set.pop_first()),
                1 => {
                    ranks.remove(rank);
                    set.remove(&rank);
                }
                _ => {
                    ranks.insert(rank);
                    set.insert(rank);
                }
            }
            assert_eq!((ranks.is_empty(), ranks.contains(rank)), (set.is_empty(), set.contains(&rank)));
        }
        while let Some(rank) = set.pop_first() {
            assert_eq!(ranks.pop_first(), Some(rank));
        }
        assert_eq!((ranks.pop_first(), ranks.is_empty()), (None, true));
    }
}
