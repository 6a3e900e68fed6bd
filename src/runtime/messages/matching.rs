//! Which message meets which receive: by source and tag, in the order in which receives were posted and messages came.
//! The rules are MPI's (MPI 4.1, section 3.5, "order"): messages of one sender do not overtake each other, and of several
//! receives that a message fits the one that was posted first gets it.
//!
//! A receive stands in one queue, that of what it asks for; an arrived message stands in the four that could ask for it.
//! So each meeting looks at four queues at most, however much waits. Tested below, against a list that is searched.

use std::collections::{BTreeMap, HashMap};

/// What a receive asks for; `None`: any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wanted {
    /// The sender's rank.
    pub source: Option<u32>,
    /// Its tag.
    pub tag: Option<i32>,
}

impl Wanted {
    /// Whether such a message is asked for.
    pub(super) fn accepts(self, source: u32, tag: i32) -> bool {
        askers(source, tag).contains(&self)
    }
}

/// A message: its sender, and the sender's number of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct MessageId {
    /// The sender's rank.
    pub source: u32,
    /// Its number.
    pub number: u64,
}

/// A number of ours for an operation; those posted later have higher ones.
pub(super) type OpId = u64;

/// What waits on either side.
#[derive(Default)]
pub(super) struct Matching {
    posted: Queues<()>,
    arrived: Queues<MessageId>,
    /// Where in the order of arrival a message stands, and its tag.
    places: HashMap<MessageId, (u64, i32)>,
    next_place: u64,
}

/// Queues by what is asked for, each in the order of its numbers; all in one tree, which takes little for short ones.
struct Queues<V>(BTreeMap<(Wanted, u64), V>);

impl<V> Default for Queues<V> {
    fn default() -> Self {
        Queues(BTreeMap::new())
    }
}

impl<V: Copy> Queues<V> {
    fn insert(&mut self, wanted: Wanted, number: u64, value: V) {
        self.0.insert((wanted, number), value);
    }

    fn remove(&mut self, wanted: Wanted, number: u64) -> bool {
        self.0.remove(&(wanted, number)).is_some()
    }

    fn first(&self, wanted: Wanted) -> Option<(u64, V)> {
        let first = self.0.range((wanted, 0)..=(wanted, u64::MAX)).next();
        first.map(|((_, number), value)| (*number, *value))
    }
}

/// Everything that could ask for such a message.
fn askers(source: u32, tag: i32) -> [Wanted; 4] {
    [(Some(source), Some(tag)), (Some(source), None), (None, Some(tag)), (None, None)]
        .map(|(source, tag)| Wanted { source, tag })
}

impl Matching {
    /// A receive is posted: the message that it gets, or it waits. (Also one that had met a message which did not come.)
    pub(super) fn post(&mut self, op: OpId, wanted: Wanted) -> Option<MessageId> {
        let Some(message) = self.first_arrived(wanted) else {
            self.posted.insert(wanted, op, ());
            return None;
        };
        self.take_arrived(message);
        Some(message)
    }

    /// A message has come: the receive that gets it, or it waits.
    pub(super) fn arrive(&mut self, message: MessageId, tag: i32) -> Option<OpId> {
        let first =
            askers(message.source, tag).into_iter().filter_map(|wanted| Some((self.posted.first(wanted)?.0, wanted)));
        if let Some((op, wanted)) = first.min_by_key(|(op, _)| *op) {
            self.posted.remove(wanted, op);
            return Some(op);
        }
        self.next_place += 1;
        self.places.insert(message, (self.next_place, tag));
        askers(message.source, tag)
            .into_iter()
            .for_each(|wanted| self.arrived.insert(wanted, self.next_place, message));
        None
    }

    /// A receive does not wait any more. Returns whether it did.
    pub(super) fn take_posted(&mut self, op: OpId, wanted: Wanted) -> bool {
        self.posted.remove(wanted, op)
    }

    /// The message that a receive would get.
    pub(super) fn first_arrived(&self, wanted: Wanted) -> Option<MessageId> {
        self.arrived.first(wanted).map(|(_, message)| message)
    }

    /// Whether a message waits for a receive.
    pub(super) fn waits(&self, message: MessageId) -> bool {
        self.places.contains_key(&message)
    }

    /// Whether a receive waits that such a message would meet.
    pub(super) fn would_meet(&self, source: u32, tag: i32) -> bool {
        askers(source, tag).into_iter().any(|wanted| self.posted.first(wanted).is_some())
    }

    /// A message does not wait any more. Returns whether it did.
    pub(super) fn take_arrived(&mut self, message: MessageId) -> bool {
        let Some((place, tag)) = self.places.remove(&message) else { return false };
        askers(message.source, tag).into_iter().for_each(|wanted| {
            self.arrived.remove(wanted, place);
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(source: Option<u32>, tag: Option<i32>) -> Wanted {
        Wanted { source, tag }
    }

    fn message(source: u32, number: u64) -> MessageId {
        MessageId { source, number }
    }

    #[test]
    fn the_receive_that_was_posted_first_gets_it_and_messages_do_not_overtake() {
        let mut matching = Matching::default();
        assert_eq!(matching.post(1, wanted(None, Some(5))), None);
        assert_eq!(matching.post(2, wanted(Some(3), None)), None);
        assert_eq!(matching.arrive(message(3, 1), 5), Some(1));
        assert_eq!(matching.arrive(message(3, 2), 5), Some(2));
        assert_eq!(matching.arrive(message(3, 3), 7), None);
        assert_eq!(matching.arrive(message(4, 1), 7), None);
        assert_eq!(matching.arrive(message(3, 4), 7), None);
        assert_eq!(matching.post(3, wanted(Some(3), Some(7))), Some(message(3, 3)));
        assert_eq!(matching.post(4, wanted(None, Some(7))), Some(message(4, 1)));
        assert!(matching.take_arrived(message(3, 4)) && !matching.take_arrived(message(3, 4)));
        assert_eq!(matching.post(5, wanted(None, None)), None);
        assert!(matching.take_posted(5, wanted(None, None)) && !matching.take_posted(5, wanted(None, None)));
        assert!(matching.posted.0.is_empty() && matching.arrived.0.is_empty() && matching.places.is_empty());
    }

    /// The same, by searching lists from the front.
    #[derive(Default)]
    struct Lists {
        posted: Vec<(OpId, Wanted)>,
        arrived: Vec<(MessageId, i32)>,
    }

    fn fits(wanted: Wanted, message: MessageId, tag: i32) -> bool {
        wanted.source.is_none_or(|source| source == message.source) && wanted.tag.is_none_or(|wanted| wanted == tag)
    }

    impl Lists {
        fn post(&mut self, op: OpId, wanted: Wanted) -> Option<MessageId> {
            let found = self.arrived.iter().position(|(message, tag)| fits(wanted, *message, *tag));
            if found.is_none() {
                self.posted.push((op, wanted));
                self.posted.sort_by_key(|(op, _)| *op);
            }
            found.map(|at| self.arrived.remove(at).0)
        }

        fn arrive(&mut self, message: MessageId, tag: i32) -> Option<OpId> {
            let found = self.posted.iter().position(|(_, wanted)| fits(*wanted, message, tag));
            if found.is_none() {
                self.arrived.push((message, tag));
            }
            found.map(|at| self.posted.remove(at).0)
        }
    }

    #[test]
    fn whatever_comes_it_meets_what_a_search_would_find() {
        for seed in 0..200u64 {
            let mut state = seed * 2 + 1;
            let mut draw = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let (mut matching, mut lists) = (Matching::default(), Lists::default());
            let mut numbers = [0u64; 3];
            for op in 1..400 {
                match draw(10) {
                    0..=3 => {
                        let source = (draw(3) > 0).then(|| draw(3) as u32);
                        let wanted = wanted(source, (draw(3) > 0).then(|| draw(3) as i32));
                        assert_eq!(matching.post(op, wanted), lists.post(op, wanted), "seed {seed}");
                    }
                    4..=7 => {
                        let (source, tag) = (draw(3) as u32, draw(3) as i32);
                        numbers[source as usize] += 1;
                        let message = message(source, numbers[source as usize]);
                        assert_eq!(matching.arrive(message, tag), lists.arrive(message, tag), "seed {seed}");
                    }
                    8 if !lists.posted.is_empty() => {
                        let (op, wanted) = lists.posted.remove(draw(lists.posted.len() as u64) as usize);
                        assert!(matching.take_posted(op, wanted), "seed {seed}");
                        // One that had met a message takes its old place again.
                        if draw(2) == 0 {
                            assert_eq!(matching.post(op, wanted), lists.post(op, wanted), "seed {seed}");
                        }
                    }
                    9 if !lists.arrived.is_empty() => {
                        let (message, _) = lists.arrived.remove(draw(lists.arrived.len() as u64) as usize);
                        assert!(matching.take_arrived(message), "seed {seed}");
                    }
                    _ => {}
                }
            }
            assert_eq!(matching.places.len(), lists.arrived.len());
        }
    }
}
