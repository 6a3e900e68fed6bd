//! Which message meets which receive: by source and tag, in the order in which receives were posted and messages came.
//! The rules are MPI's (MPI 4.1, section 3.5, "order"): messages of one sender do not overtake each other. If a
//! message fits several receives, the one that was posted first gets it.
//!
//! A receive stands in one queue: that of its source and tag. An arrived message stands in the four queues in which a
//! receive could ask for it. So each match looks at four queues at most, however much waits. Tested below, against a
//! list that is searched.

use super::queues::{Map, Position, Queues};
use std::collections::TryReserveError;

/// What a receive asks for; `None` means any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wanted {
    /// The sender's rank.
    pub source: Option<u32>,
    /// The message's tag.
    pub tag: Option<i32>,
}

impl Wanted {
    /// Whether such a message is asked for.
    pub(super) fn accepts(self, source: u32, tag: i32) -> bool {
        askers(source, tag).contains(&self)
    }
}

/// A message: its sender, and the number that the sender has given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MessageId {
    /// The sender's rank.
    pub source: u32,
    /// The sender's number of the message.
    pub number: u64,
}

/// Our number for an operation. Operations that are posted later have higher numbers.
pub(super) type OpId = u64;

/// The receives and messages that wait.
#[derive(Default)]
pub(super) struct Matching {
    /// Receives, by their numbers.
    posted: Queues<Wanted, OpId>,
    posted_at: Map<OpId, Position>,
    /// Messages, in the order in which they came.
    arrived: Queues<Wanted, MessageId>,
    arrived_at: Map<MessageId, [Position; ASKERS]>,
    next_arrival: u64,
}

/// In how many queues each message stands.
const ASKERS: usize = 4;

/// Everything that could ask for such a message.
fn askers(source: u32, tag: i32) -> [Wanted; ASKERS] {
    [(Some(source), Some(tag)), (Some(source), None), (None, Some(tag)), (None, None)]
        .map(|(source, tag)| Wanted { source, tag })
}

impl Matching {
    /// Whether there may be no room for one more receive and one more message. A sendrecv needs no more: it adds one of
    /// each.
    pub(super) fn is_full(&self) -> bool {
        let (posted, arrived) = (&self.posted_at, &self.arrived_at);
        let maps = posted.capacity() == posted.len() || arrived.capacity() == arrived.len();
        maps || self.posted.is_full(1) || self.arrived.is_full(ASKERS)
    }

    /// Makes that room.
    pub(super) fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.posted_at.try_reserve(1)?;
        self.arrived_at.try_reserve(1)?;
        self.posted.reserve(1)?;
        self.arrived.reserve(ASKERS)
    }

    /// Posts a receive: returns the message that it gets, or lets it wait. (Also a receive that had met a message which
    /// did not come.)
    pub(super) fn post(&mut self, op: OpId, wanted: Wanted) -> Option<MessageId> {
        let Some(message) = self.first_arrived(wanted) else {
            self.posted_at.insert(op, self.posted.insert(wanted, op, op));
            return None;
        };
        self.take_arrived(message);
        Some(message)
    }

    /// A message has come: returns the receive that gets it, or lets it wait.
    pub(super) fn arrive(&mut self, message: MessageId, tag: i32) -> Option<OpId> {
        let askers = askers(message.source, tag);
        if let Some(op) = askers.into_iter().filter_map(|wanted| self.posted.first(wanted)).min() {
            self.take_posted(op);
            return Some(op);
        }
        self.next_arrival += 1;
        let number = self.next_arrival;
        self.arrived_at.insert(message, askers.map(|wanted| self.arrived.insert(wanted, number, message)));
        None
    }

    /// A receive does not wait any more. Returns whether it did.
    pub(super) fn take_posted(&mut self, op: OpId) -> bool {
        let place = self.posted_at.remove(&op);
        place.inspect(|place| self.posted.remove(*place)).is_some()
    }

    /// The message that such a receive would get.
    pub(super) fn first_arrived(&self, wanted: Wanted) -> Option<MessageId> {
        self.arrived.first(wanted)
    }

    /// Whether a message waits for a receive.
    pub(super) fn waits(&self, message: MessageId) -> bool {
        self.arrived_at.contains_key(&message)
    }

    /// Whether a receive waits that such a message would meet.
    pub(super) fn would_meet(&self, source: u32, tag: i32) -> bool {
        askers(source, tag).into_iter().any(|wanted| self.posted.first(wanted).is_some())
    }

    /// A message does not wait any more. Returns whether it did.
    pub(super) fn take_arrived(&mut self, message: MessageId) -> bool {
        let places = self.arrived_at.remove(&message);
        places.inspect(|places| places.iter().for_each(|place| self.arrived.remove(*place))).is_some()
    }

    /// Whether nothing waits.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        let empty = self.posted_at.is_empty() && self.arrived_at.is_empty();
        assert_eq!((self.posted.is_empty(), self.arrived.is_empty()), (empty, empty));
        empty
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
        assert!(matching.take_posted(5) && !matching.take_posted(5));
        assert!(matching.is_empty());
    }

    /// The same rules, by searching lists from the front.
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
                        assert!(matching.take_posted(op), "seed {seed}");
                        // A receive that had matched a message takes its old place again.
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
            assert_eq!(matching.arrived_at.len(), lists.arrived.len());
            lists.posted.iter().for_each(|(op, _)| assert!(matching.take_posted(*op), "seed {seed}"));
            lists.arrived.iter().for_each(|(message, _)| assert!(matching.take_arrived(*message), "seed {seed}"));
            assert!(matching.is_empty(), "seed {seed}");
        }
    }
}
