//! Virtual time: what happens when. Things at one time happen in the order in which they were put in.

use crate::types::Time;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Queue<T> {
    entries: BTreeMap<(Time, u64), T>,
    next: u64,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Queue<T> {
        Queue { entries: BTreeMap::new(), next: 0 }
    }

    pub(super) fn put(&mut self, at: Time, thing: T) {
        self.entries.insert((at, self.next), thing);
        self.next += 1;
    }

    pub(super) fn pop(&mut self) -> Option<(Time, T)> {
        self.entries.pop_first().map(|((at, _), thing)| (at, thing))
    }
}
