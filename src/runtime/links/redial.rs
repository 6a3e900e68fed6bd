//! Links that are dialled again: the connection ended before the peer had answered on it.
//!
//! That is no evidence of the peer's end. A *Hello* may have been damaged on the way, or the peer had to make room among
//! strangers. A peer that has ended refuses the next connection, which costs nothing. If a peer has several addresses, an attempt
//! ends when all of them have failed. A peer's answer is never followed by another attempt: from then on it holds the link, too.
//! Tested below, in `port_test.rs` and in `mesh_addresses_test.rs`.

use crate::runtime::base::link_key::LinkKey;
use crate::types::{GroupId, Time};
use std::collections::HashMap;
use std::time::Duration;

/// How often a link is dialled again.
pub(crate) const REDIALS_MAX: u32 = 12;
/// How often a link is dialled again whose opening was refused. Under TLS a bit that is damaged there may look like any refusal, such as
/// that of an expired certificate. A refusal that was meant is repeated, and is told after a tenth of a second.
const DECLINED_MAX: u32 = 3;
/// The pause before the second redial. It doubles each time, up to [`PAUSE_MAX`]. There is none before the first.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The links that have been dialled in vain.
#[derive(Default)]
pub(crate) struct Redials(HashMap<LinkKey, Redial>);

struct Redial {
    number: u32,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The attempt has ended. The time of the next one is not set yet.
    Ended,
    Waits(Time),
    UnderWay,
}

impl Redials {
    /// An attempt has ended before it was answered, or by a refusal. Returns whether there will be another.
    pub fn again(&mut self, key: LinkKey, is_declined: bool) -> bool {
        let most = if is_declined { DECLINED_MAX } else { REDIALS_MAX };
        let redial = self.0.entry(key).or_insert(Redial { number: 0, stage: Stage::Ended });
        redial.number += 1;
        redial.stage = Stage::Ended;
        let goes_on = redial.number <= most;
        if !goes_on {
            self.0.remove(&key);
        }
        goes_on
    }

    /// The links that are to be dialled again now, and when to come again.
    pub fn due(&mut self, now: Time) -> (Vec<LinkKey>, Time) {
        let (mut due, mut next) = (Vec::new(), Time::NEVER);
        for (key, redial) in &mut self.0 {
            let at = match redial.stage {
                Stage::UnderWay => continue,
                Stage::Waits(at) => at,
                Stage::Ended => now + pause(redial.number),
            };
            redial.stage = Stage::Waits(at);
            if at <= now {
                redial.stage = Stage::UnderWay;
                due.push(*key);
            } else {
                next = next.min(at);
            }
        }
        due.sort_unstable_by_key(|key| (key.group, key.rank));
        (due, next)
    }

    /// Whether a link waits for its next attempt.
    pub fn waits(&self, key: LinkKey) -> bool {
        self.0.get(&key).is_some_and(|redial| redial.stage != Stage::UnderWay)
    }

    /// The peer's own attempt is let in: there is no other one meanwhile. What was in vain counts on, for this one may be in vain, too.
    pub fn is_under_way(&mut self, key: LinkKey) {
        if let Some(redial) = self.0.get_mut(&key) {
            redial.stage = Stage::UnderWay;
        }
    }

    /// A link is open, or will never be.
    pub fn forget(&mut self, key: LinkKey) {
        self.0.remove(&key);
    }

    /// A group has been freed.
    pub fn forget_group(&mut self, group: GroupId) {
        self.0.retain(|key, _| key.group != group);
    }
}

/// The pause before the redial with this number.
fn pause(number: u32) -> Duration {
    match number {
        0 | 1 => Duration::ZERO,
        _ => (PAUSE * (1 << (number - 2).min(8))).min(PAUSE_MAX),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::wire::Channel;

    const KEY: LinkKey = LinkKey::new(GroupId::WORLD, Channel::Collectives, 1);

    #[test]
    fn the_first_attempt_follows_at_once_and_the_pauses_grow_to_a_limit() {
        let (mut redials, mut now, mut pauses) = (Redials::default(), Time(7), Vec::new());
        while redials.again(KEY, false) {
            assert!(redials.waits(KEY));
            let (due, at) = redials.due(now);
            let pause = if due.is_empty() { at.since(now) } else { Duration::ZERO };
            pauses.push(pause.as_millis());
            now = now + pause;
            if due.is_empty() {
                assert_eq!(redials.due(now), (vec![KEY], Time::NEVER));
            }
            assert!(!redials.waits(KEY), "it is under way");
            assert_eq!(redials.due(now), (Vec::new(), Time::NEVER));
        }
        assert_eq!(pauses, [0, 20, 40, 80, 160, 320, 500, 500, 500, 500, 500, 500]);
        assert!(redials.0.is_empty(), "the next link begins anew");
    }

    /// Two nodes that each refuse what the other answers come to an end.
    #[test]
    fn the_peers_own_attempts_in_between_give_no_further_ones() {
        let mut redials = Redials::default();
        let mut attempts = 0;
        while redials.again(KEY, true) {
            attempts += 1;
            redials.is_under_way(KEY);
            assert!(!redials.waits(KEY));
            assert_eq!(redials.due(Time(0)), (Vec::new(), Time::NEVER));
        }
        assert_eq!(attempts, DECLINED_MAX);
    }

    #[test]
    fn a_link_that_stands_is_forgotten_and_a_freed_group_has_none() {
        let mut redials = Redials::default();
        let other = LinkKey { group: GroupId(9), ..KEY };
        assert!(redials.again(KEY, false) && redials.again(other, true));
        redials.forget(KEY);
        redials.forget_group(GroupId(9));
        assert_eq!(redials.due(Time(0)), (Vec::new(), Time::NEVER));
    }
}
