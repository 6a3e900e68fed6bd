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
//! Collectives look here and messages in `messages/signs`; a link that does not come to stand is the mesh's matter.

use super::link::LinkEnd;
use crate::agent::Command;
use crate::runtime::collectives::drive::Stop;
use crate::runtime::groups::group::{Group, Slot};
use crate::runtime::state::node_state::Shared;
use crate::types::Time;
use crate::wire::{Agreed, PeerState};
use std::time::Duration;

/// The longest time between two looks.
const SELDOM: Duration = Duration::from_secs(1);
/// The shortest.
const OFTEN: Duration = Duration::from_millis(1);
/// What counts when an operation's time is up anyway.
const FAULT: Duration = Duration::from_secs(1);
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

/// Since when a call has not moved on.
#[derive(Default)]
pub(crate) struct Standstill {
    since: Option<Time>,
    look_at: Time,
    /// Whether the scheduler was asked about whom it receives from, and whom it sends to.
    asked: [bool; 2],
}

impl Standstill {
    /// It has moved on.
    pub(crate) fn end(&mut self) {
        self.since = None;
    }

    /// It stands still. Returns when it next looks at its links.
    pub(crate) fn go_on(&mut self, bounds: &Bounds, now: Time) -> Time {
        if self.since.is_none() {
            (self.since, self.asked) = (Some(now), [false; 2]);
            self.look_at = now + bounds.every;
        }
        self.look_at
    }

    fn lasted(&self, now: Time) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.since(since))
    }
}

/// Whom a call waited for when its time was up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Awaited {
    pub peer: u32,
    /// What is wrong with the link to it, if something is.
    pub fault: Option<String>,
}

impl Group {
    /// Looks at the links to the peers that a call waits for, if it is time to.
    pub(crate) fn look_for_signs(
        &self,
        shared: &Shared,
        slots: &mut [Slot],
        peers: [Option<u32>; 2],
        still: &mut Standstill,
        now: Time,
    ) -> Result<(), Stop> {
        let bounds = &self.bounds;
        if now < still.go_on(bounds, now) {
            return Ok(());
        }
        let late = bounds.late(now, still.look_at);
        still.look_at = now + bounds.every;
        let lasted = still.lasted(now);
        for (peer, asked) in peers.into_iter().zip(&mut still.asked) {
            let Some(peer) = peer else { continue };
            let Slot::Up(link) = &mut slots[peer as usize] else { continue };
            // What the network did before the call began to wait is nothing to it.
            let silence = link.silence(now, late).min(lasted);
            *asked &= !silence.is_zero();
            match bounds.finding(silence, *asked, || self.answer_about(shared, peer)) {
                Finding::Nothing => {}
                Finding::Ask => {
                    *asked = true;
                    self.ask_early(shared, peer, &in_words(silence));
                }
                Finding::Unreached => {
                    let told = self.told(shared).map(|failure| Stop::Told(Box::new(failure)));
                    return Err(told.unwrap_or_else(|| Stop::Unreached(peer, in_words(silence))));
                }
                Finding::Unknown => return Err(Stop::Ended(peer, LinkEnd::Silent(in_words(silence)))),
            }
        }
        Ok(())
    }

    /// Asks the scheduler about a peer; `answer_about` has what it says.
    pub(crate) fn ask_early(&self, shared: &Shared, peer: u32, evidence: &str) {
        let index = self.index_of(peer).expect("a link's peer is a member");
        // That it has left stays so.
        shared.learnt().peers.retain(|known, (state, _)| *known != index || *state == PeerState::Left);
        self.ask(shared, Command::Suspect { peer: index, evidence: evidence.to_owned() });
    }

    /// What the scheduler has said of a peer since it was asked.
    pub(crate) fn answer_about(&self, shared: &Shared, peer: u32) -> Option<PeerState> {
        let index = self.index_of(peer).expect("a link's peer is a member");
        shared.learnt().peers.get(&index).map(|(state, _)| *state)
    }

    /// Whom of these a call waits for, rather one whose link is at fault.
    pub(crate) fn awaited(
        &self,
        slots: &mut [Slot],
        peers: [Option<u32>; 2],
        still: &Standstill,
        now: Time,
    ) -> Option<Awaited> {
        let awaited = |peer: u32| {
            let fault = self.fault(&mut slots[peer as usize], peer, still.lasted(now), now);
            Awaited { peer, fault }
        };
        let mut found: Vec<Awaited> = peers.into_iter().flatten().map(awaited).collect();
        let at = found.iter().position(|awaited| awaited.fault.is_some()).unwrap_or(0);
        (at < found.len()).then(|| found.swap_remove(at))
    }

    fn fault(&self, slot: &mut Slot, peer: u32, waited: Duration, now: Time) -> Option<String> {
        let waited = Some(waited).filter(|waited| *waited >= FAULT)?;
        match slot {
            Slot::Asked => {
                // Where it is not known where the peer is, nobody has tried yet.
                let address = *self.roster.member(peer)?.addresses.first()?;
                let seconds = waited.as_secs_f64();
                Some(format!("their link has not come to stand for {seconds:.1} s, be it to {address} or from there"))
            }
            Slot::Up(link) => {
                let silence = link.silence(now, Duration::ZERO).min(waited);
                (silence >= FAULT).then(|| in_words(silence))
            }
            Slot::Unused | Slot::Left | Slot::Ended(_) => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "silence_test.rs"]
mod tests;
