//! The connections that wait for their turn: in the order in which they came, each once.
//!
//! To read what an unproved connection sends costs time, and with TLS much time. So it waits here, and a loop serves a few of
//! them after all others. Deliberately absent: how many are few.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

/// Connections `I` that wait.
#[derive(Debug)]
pub struct Line<I> {
    order: VecDeque<I>,
    waits: HashSet<I>,
}

/// An empty line.
impl<I> Default for Line<I> {
    fn default() -> Line<I> {
        Line { order: VecDeque::new(), waits: HashSet::new() }
    }
}

impl<I: Copy + Eq + Hash> Line<I> {
    /// One joins at the end, unless it waits already.
    pub fn join(&mut self, id: I) {
        if self.waits.insert(id) {
            self.order.push_back(id);
        }
    }

    /// Takes out the connection that has its turn now.
    pub fn take(&mut self) -> Option<I> {
        let first = self.order.pop_front()?;
        self.waits.remove(&first);
        Some(first)
    }

    /// Whether this one waits.
    pub fn has(&self, id: I) -> bool {
        self.waits.contains(&id)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether no connection waits.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_turn_once_in_the_order_of_coming() {
        let mut line = Line::default();
        for id in [7, 3, 7, 5] {
            line.join(id);
        }
        assert_eq!((line.len(), line.take()), (3, Some(7)));
        line.join(3);
        line.join(7); // it has had its turn, and comes again
        assert_eq!([line.take(), line.take(), line.take(), line.take()], [Some(3), Some(5), Some(7), None]);
        assert!(line.is_empty());
    }
}
