//! The connections of one port that have proved nothing yet, by the address from which they come.
//!
//! If there are too many, one has to go. It is a connection that has said nothing: the oldest from the address with most of them.
//! So a flood from one address only takes its own places, and a connection that speaks at once stays. (Every node's does.) If all
//! have spoken, one of them goes by the same rule.
//!
//! Invariant: to come, to speak, to go and to be chosen each cost no more than the logarithm of how many there are.
//! Deliberately absent: any limit (the owner knows how many are too many), deadlines, and the closing itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;

/// Connections `I` from addresses `A`.
#[derive(Debug)]
pub struct Crowd<I, A> {
    all: HashMap<I, One<A>>,
    /// Counts the connections that have come: one with a lower number is older.
    next: u64,
    silent: Hosts<I, A>,
    spoken: Hosts<I, A>,
}

#[derive(Debug)]
struct One<A> {
    from: A,
    number: u64,
    has_spoken: bool,
}

/// An empty crowd.
impl<I, A> Default for Crowd<I, A> {
    fn default() -> Crowd<I, A> {
        Crowd { all: HashMap::new(), next: 0, silent: Hosts::default(), spoken: Hosts::default() }
    }
}

impl<I: Copy + Eq + Hash + Debug, A: Clone + Ord + Debug> Crowd<I, A> {
    /// A connection comes. It has said nothing yet.
    pub fn enter(&mut self, id: I, from: A) {
        self.leave(id);
        let number = self.next;
        self.next += 1;
        self.silent.add(from.clone(), number, id);
        self.all.insert(id, One { from, number, has_spoken: false });
    }

    /// This connection has said something whole, which proves nothing yet.
    pub fn speaks(&mut self, id: I) {
        let Some(one) = self.all.get_mut(&id).filter(|one| !one.has_spoken) else { return };
        one.has_spoken = true;
        self.silent.take(&one.from, one.number);
        self.spoken.add(one.from.clone(), one.number, id);
    }

    /// This connection has proved itself, or has ended. Returns whether it was here.
    pub fn leave(&mut self, id: I) -> bool {
        let Some(one) = self.all.remove(&id) else { return false };
        if one.has_spoken { &mut self.spoken } else { &mut self.silent }.take(&one.from, one.number);
        true
    }

    /// Keeps only these connections.
    pub fn retain(&mut self, stays: impl Fn(&I) -> bool) {
        let gone: Vec<I> = self.all.keys().filter(|id| !stays(id)).copied().collect();
        gone.into_iter().for_each(|id| _ = self.leave(id));
    }

    /// Whether this one is here.
    pub fn has(&self, id: I) -> bool {
        self.all.contains_key(&id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Which one has to go, if one has to.
    pub fn first_to_go(&self) -> Option<I> {
        self.silent.oldest_of_most().or_else(|| self.spoken.oldest_of_most())
    }
}

/// Some of the connections, by address.
#[derive(Debug)]
struct Hosts<I, A> {
    of: BTreeMap<A, BTreeMap<u64, I>>,
    /// The addresses, ordered by how many connections each has. Of addresses with equally many, the one with the oldest
    /// comes last.
    ranked: BTreeSet<(usize, Reverse<u64>, A)>,
}

impl<I, A> Default for Hosts<I, A> {
    fn default() -> Hosts<I, A> {
        Hosts { of: BTreeMap::new(), ranked: BTreeSet::new() }
    }
}

impl<I: Copy, A: Clone + Ord> Hosts<I, A> {
    fn add(&mut self, from: A, number: u64, id: I) {
        self.change(from, |here| _ = here.insert(number, id));
    }

    fn take(&mut self, from: &A, number: u64) {
        self.change(from.clone(), |here| _ = here.remove(&number));
    }

    fn change(&mut self, from: A, act: impl FnOnce(&mut BTreeMap<u64, I>)) {
        let here = self.of.entry(from.clone()).or_default();
        if let Some((oldest, _)) = here.first_key_value() {
            self.ranked.remove(&(here.len(), Reverse(*oldest), from.clone()));
        }
        act(here);
        match here.first_key_value() {
            Some((oldest, _)) => drop(self.ranked.insert((here.len(), Reverse(*oldest), from))),
            None => drop(self.of.remove(&from)),
        }
    }

    fn oldest_of_most(&self) -> Option<I> {
        let (_, _, from) = self.ranked.last()?;
        self.of.get(from)?.values().next().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(those: &[(u32, &'static str)]) -> Crowd<u32, &'static str> {
        let mut crowd = Crowd::default();
        those.iter().for_each(|(id, from)| crowd.enter(*id, *from));
        crowd
    }

    /// All connections, in the order in which they have to go.
    fn order(mut crowd: Crowd<u32, &'static str>) -> Vec<u32> {
        std::iter::from_fn(|| crowd.first_to_go().filter(|id| crowd.leave(*id))).collect()
    }

    #[test]
    fn the_oldest_of_the_address_that_has_most_goes_first() {
        let here = crowd(&[(1, "one"), (2, "many"), (3, "many"), (4, "two"), (5, "many"), (6, "two")]);
        assert_eq!(order(here), [2, 3, 4, 1, 5, 6], "of several that have as many, the oldest");
    }

    #[test]
    fn one_that_has_spoken_goes_after_all_that_are_silent() {
        let mut here = crowd(&[(1, "a"), (2, "b"), (3, "a"), (4, "a")]);
        here.speaks(1);
        here.speaks(3);
        here.speaks(3);
        assert_eq!(here.len(), 4);
        let order = order(here);
        assert_eq!(order[2..], [1, 3], "{order:?}");
    }

    #[test]
    fn a_connection_that_has_gone_is_not_counted() {
        let mut here = crowd(&[(1, "a"), (2, "a"), (3, "b")]);
        assert!(here.leave(1) && !here.leave(1) && here.leave(2));
        here.speaks(2);
        assert_eq!((here.len(), here.first_to_go()), (1, Some(3)));
        here.enter(3, "c"); // the number is used again
        assert_eq!((here.len(), here.first_to_go()), (1, Some(3)));
        here.enter(4, "c");
        here.retain(|id| *id == 3);
        assert!(here.leave(3) && here.is_empty() && here.silent.of.is_empty() && here.silent.ranked.is_empty());
    }

    #[test]
    fn a_flood_takes_places_from_itself() {
        let mut here = Crowd::default();
        for id in 0..2000u32 {
            here.enter(id, if id % 20 == 7 { "honest" } else { "flood" });
            if here.len() > 500 {
                let goes = here.first_to_go().unwrap();
                assert!(goes % 20 != 7, "{goes} came from where few come from");
                here.leave(goes);
            }
        }
        assert_eq!(here.len(), 500);
    }
}
