//! Peers that live, as far as anybody knows, and that this node's packets do not reach: a link that falls silent, or one that
//! does not come to stand.
//!
//! A network that loses packets ends no connection for a quarter of an hour. So who waits on a link looks at it now and then:
//! whether the peer's kernel still acknowledges what is sent. It does so for a process that is stopped, or does not read. Silence
//! is evidence like a link's end: the scheduler knows whether the peer lives. It is asked early, while the call goes on, so that
//! its answer is there when the time is up; where it has none by then it may still be finding out that the peer's host is
//! silent for everybody, which takes it no longer than an interval. Nobody looks who does not wait, so that a trouble of the
//! network that has passed by then costs nothing.
//!
//! Collectives look in `collectives/standstill` and messages in `messages/signs`; a link that does not come to stand is the mesh's
//! matter. Pure: tested in `silence_test.rs`.

use crate::types::Time;
use crate::wire::{Agreed, PeerState};
use std::time::Duration;

/// The longest time between two looks.
const SELDOM: Duration = Duration::from_secs(1);
/// The shortest.
const OFTEN: Duration = Duration::from_millis(1);
/// How long nobody may answer an attempt to open a link: until then its first packet has been sent three times.
const ATTEMPT: Duration = Duration::from_secs(4);

/// When who waits does something about a silence; all by the heartbeat time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// How often it looks. By as much at most a silence has lasted longer than is known.
    pub every: Duration,
    /// From then on the scheduler is asked.
    ask: Duration,
    /// From then on the link has failed, if the scheduler says that the peer lives: the time-out has passed.
    patience: Duration,
    /// From then on at any rate.
    most: Duration,
}

/// What a silence calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    Nothing,
    /// The scheduler is to be asked about the peer.
    Ask,
    /// The peer lives, and is not reached.
    Unreached,
    /// What became of the peer is not known here, or it has left.
    Unknown,
}

impl Bounds {
    pub(crate) fn of(agreed: &Agreed) -> Bounds {
        let time_out = Duration::from_millis(agreed.heartbeat_timeout_ms);
        let interval = time_out / 5;
        let every = (interval / 2).clamp(OFTEN, SELDOM);
        let patience = time_out.saturating_sub(every);
        Bounds { every, ask: interval * 2, patience, most: time_out.saturating_add(interval) }
    }

    /// `has_asked`: the scheduler was asked in this silence; `answer`: what it has said.
    pub(crate) fn finding(
        &self,
        silence: Duration,
        has_asked: bool,
        answer: impl FnOnce() -> Option<PeerState>,
    ) -> Finding {
        let answer = if has_asked && !silence.is_zero() { answer() } else { None };
        match answer {
            Some(PeerState::Left) => Finding::Unknown,
            Some(PeerState::Alive) if silence >= self.patience => Finding::Unreached,
            _ if silence >= self.most => Finding::Unknown,
            None if !has_asked && silence >= self.ask => Finding::Ask,
            _ => Finding::Nothing,
        }
    }

    /// The longest silence after which something is known: the heartbeat time-out and one interval.
    pub(crate) fn most(&self) -> Duration {
        self.most
    }

    /// By how much a look comes late; a little is nothing.
    pub(crate) fn late(&self, now: Time, look_at: Time) -> Duration {
        Some(now.since(look_at)).filter(|late| *late >= self.every).unwrap_or_default()
    }
}

/// How long an attempt to open a link may go unanswered: as a link may be silent, and long enough for a few packets.
pub(crate) fn attempt(agreed: &Agreed) -> Duration {
    Bounds::of(agreed).most.max(ATTEMPT)
}

/// What a silent link is evidence of.
pub(crate) fn in_words(silence: Duration) -> String {
    format!("nothing that was sent to it has been acknowledged for {:.1} s", silence.as_secs_f64())
}

#[cfg(test)]
#[path = "silence_test.rs"]
mod tests;
