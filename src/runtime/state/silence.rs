//! Peers that live, as far as anybody knows, but that this node's packets do not reach: a link falls silent, or cannot
//! be opened.
//!
//! A network that loses packets ends no connection for a quarter of an hour. So a thread that waits on a link checks
//! now and then whether the peer's kernel still acknowledges what is sent. A kernel does so even if its process is
//! stopped, or does not read. Like a link's end, silence is only evidence: the scheduler knows whether the peer lives.
//! The scheduler is asked early, while the call goes on, so that its answer is there when the time is up. If the
//! scheduler has no answer by then, it may still be finding out that the peer's host is silent for everybody. That
//! takes an interval at most. A thread looks only while it waits. So a network fault that is over before the wait
//! begins costs nothing.
//!
//! Both engines look by a [`SilenceWatch`]: a collective while it stands still, messages while operations are under way. The
//! mesh deals with links that cannot be opened. Pure: tested in `silence_test.rs`.

use crate::types::Time;
use crate::wire::{Agreed, PeerState};
use std::collections::HashMap;
use std::time::Duration;

/// The longest time between two looks.
const SELDOM: Duration = Duration::from_secs(1);
/// The shortest time between two looks.
const OFTEN: Duration = Duration::from_millis(1);
/// How long an attempt to open a link may go unanswered, at least: until then its first packet has been sent three
/// times.
const ATTEMPT: Duration = Duration::from_secs(4);

/// After which times of silence a waiting thread does something. All follow from the heartbeat time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// How often the thread looks. A silence may be this much longer than measured.
    every: Duration,
    /// After so long a silence the scheduler is asked.
    ask: Duration,
    /// After so long a silence the link has failed, if the scheduler says that the peer lives: the time-out has passed.
    patience: Duration,
    /// After so long a silence the link has failed, whatever the scheduler says.
    most: Duration,
}

/// What is to be done about a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The scheduler is to be asked about the peer.
    Ask,
    /// The peer lives, and cannot be reached.
    Unreached,
    /// Nobody here knows what became of the peer, or it has left.
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

    /// What is to be done about a silence. `has_asked`: whether the scheduler was asked in this silence; `answer`: what
    /// it has said.
    fn finding(
        &self,
        silence: Duration,
        has_asked: bool,
        answer: impl FnOnce() -> Option<PeerState>,
    ) -> Option<Finding> {
        let answer = if has_asked && !silence.is_zero() { answer() } else { None };
        match answer {
            Some(PeerState::Left) => Some(Finding::Unknown),
            Some(PeerState::Alive) if silence >= self.patience => Some(Finding::Unreached),
            _ if silence >= self.most => Some(Finding::Unknown),
            None if !has_asked && silence >= self.ask => Some(Finding::Ask),
            _ => None,
        }
    }

    /// The silence after which something is known at the latest: the heartbeat time-out and one interval.
    pub(crate) fn most(&self) -> Duration {
        self.most
    }

    /// How late a look is; a small delay counts as none.
    fn late(&self, now: Time, look_at: Time) -> Duration {
        Some(now.since(look_at)).filter(|late| *late >= self.every).unwrap_or_default()
    }
}

/// The peers for which somebody waits, and whether the links to them are silent.
pub(crate) struct SilenceWatch {
    bounds: Bounds,
    /// Since when somebody has waited, and the time of the next look; none if nobody waits.
    waiting: Option<(Time, Time)>,
    needed: HashMap<u32, Needed>,
}

/// A peer that was needed at every look since this time.
struct Needed {
    since: Time,
    last: Option<Time>,
    /// Whether the scheduler was asked in this silence.
    asked: bool,
}

/// A peer whose link is silent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Silent {
    pub rank: u32,
    pub silence: Duration,
    pub finding: Finding,
}

impl SilenceWatch {
    pub(crate) fn new(bounds: Bounds) -> SilenceWatch {
        SilenceWatch { bounds, waiting: None, needed: HashMap::new() }
    }

    /// Somebody waits. Returns the time of the next look, which does not change while somebody waits.
    pub(crate) fn wait(&mut self, now: Time) -> Time {
        match self.waiting {
            Some((_, look_at)) => look_at,
            None => {
                let look_at = now + self.bounds.every;
                self.waiting = Some((now, look_at));
                self.needed.clear();
                look_at
            }
        }
    }

    /// Nobody waits any more. (On the hot path.)
    pub(crate) fn end(&mut self) {
        self.waiting = None;
    }

    /// For how long somebody has waited.
    pub(crate) fn waited(&self, now: Time) -> Duration {
        self.waiting.map_or(Duration::ZERO, |(since, _)| now.since(since))
    }

    /// The time of the next look; [`Time::NEVER`] while nobody waits.
    pub(crate) fn look_at(&self) -> Time {
        self.waiting.map_or(Time::NEVER, |(_, look_at)| look_at)
    }

    /// Looks at the links to these peers, if it is time to. `silence`: for how long a link has been silent, if it
    /// stands, at a look that comes so late. `answer_about`: what the scheduler has said of a peer since it was asked.
    pub(crate) fn look(
        &mut self,
        now: Time,
        peers: impl Iterator<Item = u32>,
        mut silence: impl FnMut(u32, Duration) -> Option<Duration>,
        answer_about: impl Fn(u32) -> Option<PeerState>,
    ) -> Vec<Silent> {
        let mut found = Vec::new();
        let Some((_, look_at)) = self.waiting.as_mut().filter(|(_, look_at)| *look_at <= now) else { return found };
        let late = self.bounds.late(now, *look_at);
        *look_at = now + self.bounds.every;
        for rank in peers {
            let needed = self.needed.entry(rank).or_insert(Needed { since: now, last: None, asked: false });
            if needed.last.replace(now) == Some(now) {
                continue; // it was looked at for another operation
            }
            let Some(silence) = silence(rank, late) else { continue };
            // The network's earlier troubles do not count: only the time in which somebody waited does.
            let silence = silence.min(now.since(needed.since));
            needed.asked &= !silence.is_zero();
            let finding = self.bounds.finding(silence, needed.asked, || answer_about(rank));
            needed.asked |= finding == Some(Finding::Ask);
            found.extend(finding.map(|finding| Silent { rank, silence, finding }));
        }
        self.needed.retain(|_, needed| needed.last == Some(now));
        found
    }
}

/// How long an attempt to open a link may go unanswered: as long as a link may be silent, and long enough for a few
/// packets.
pub(crate) fn attempt(agreed: &Agreed) -> Duration {
    Bounds::of(agreed).most.max(ATTEMPT)
}

/// The evidence of a silent link, in words.
pub(crate) fn in_words(silence: Duration) -> String {
    format!("nothing that was sent to it has been acknowledged for {:.1} s", silence.as_secs_f64())
}

#[cfg(test)]
#[path = "silence_test.rs"]
pub(crate) mod tests;
