//! What a rank does when a collective cannot go on: it finds out who is to blame, tells the group's other members, and
//! returns the one first cause that all of them return.
//!
//! A peer's closed link is evidence, not a verdict. So the scheduler is asked, and its word is waited for, but no longer
//! than [`VERDICT_WAIT`]; without it the error says "unconfirmed". Only then does the call return.

use super::engine::{Collectives, Driver};
use super::stop::{Awaited, Running, Stop};
use crate::agent::Command;
use crate::error::{Culprit, Error, Failure, Status};
use crate::runtime::base::patience::{VERDICT_WAIT, WAITS_AFTER, WARN_AFTER};
use crate::runtime::links::link::LinkEnd;
use crate::runtime::links::peers::Slot;
use crate::runtime::state::node_state::{AgentCommand, NodeView};
use crate::runtime::state::stragglers::{absent_in_words, place_in_words};
use crate::runtime::state::verdict::Word;
use crate::types::Call;
use crate::wire::Absent;
use std::cmp::Ordering;
use std::time::Duration;

/// How long the scheduler's word is waited for where ranks called different collectives before the one they are in: the
/// other says what it called once it has waited for [`WAITS_AFTER`].
const COMPARISON_WAIT: Duration = WAITS_AFTER.saturating_mul(2);

impl Collectives {
    /// Ends the group for everyone, and says why: the first cause.
    pub(crate) fn give_up(&self, driver: &mut Driver, running: &Running<'_>, stop: Stop) -> Failure {
        let is_own = !matches!(stop, Stop::Heard(_));
        let cut_off = running.shared.learnt().cut_off.clone();
        let (cause, known_to_all) = match stop {
            // What a node that hears nobody would say of another is about itself.
            Stop::Ended(_, LinkEnd::Ended(_) | LinkEnd::Silent(_)) | Stop::Unreached(..) | Stop::Timeout(_)
                if cut_off.is_some() =>
            {
                (self.cut_off(running, cut_off.expect("it was looked at")), false)
            }
            Stop::Told(failure) => (*failure, true),
            Stop::Heard(failure) => (running.shared.heard(self.context.formed(), *failure), false),
            Stop::Ended(peer, end @ (LinkEnd::Ended(_) | LinkEnd::Silent(_))) => self.judge(running, peer, &end),
            Stop::Unreached(peer, evidence) => (self.unreached(running, peer, &evidence), false),
            Stop::Ended(_, LinkEnd::Over(failure)) => {
                (Failure { sequence: running.sequence, ..running.shared.heard(self.context.formed(), *failure) }, false)
            }
            Stop::Ended(peer, LinkEnd::Corrupt(what)) => {
                let cause = format!("{}: {}", running.title(), self.context.on_link(peer, &what));
                (self.failure(running, Status::Corrupt, None, cause), false)
            }
            Stop::Left(peer) => self.judge_left(running, peer),
            Stop::Mismatch(peer, sequence, call) => self.differs(running, peer, sequence, &call),
            Stop::Earlier(peer) => self.differs_before(running, peer),
            Stop::Counts(peer, sent, expected) => {
                let (own, other) =
                    (self.context.describe(self.context.rank().unwrap_or(0)), self.context.describe(peer));
                let cause = format!(
                    "{other} sends {own} {sent} elements in {} as collective #{} on {}, where {expected} are expected",
                    running.call,
                    running.sequence,
                    self.context.id()
                );
                (self.failure(running, Status::Mismatch, None, cause), false)
            }
            Stop::Timeout(awaited) => self.timed_out(running, awaited),
            Stop::Failed(error) => (self.failed(running, &error), false),
            Stop::Bug => {
                let bug = Error::new(Status::Internal, "a bug in this library, printed there; please report it");
                (self.failed(running, &bug), false)
            }
            Stop::Memory(bytes) => {
                let cause =
                    format!("has no memory for the {bytes} bytes beside its buffers that {} takes", running.title());
                (
                    self.failure(
                        running,
                        Status::Memory,
                        self.context.culprit(self.context.rank().unwrap_or(0)),
                        cause,
                    ),
                    false,
                )
            }
        };
        if known_to_all && cause.status == Status::State {
            return cause; // this process is leaving: `close` tells the peers so
        }
        self.pass_on(driver, &cause);
        let cause = if known_to_all { cause } else { self.context.agree_on_cause(cause, is_own) };
        self.context.break_with(cause)
    }

    /// Something that this process needs for a collective cannot be had.
    pub(crate) fn failed(&self, running: &Running<'_>, error: &Error) -> Failure {
        if error.status() == Status::Unreachable {
            let cause = format!("{}: {}", running.title(), error.message()); // the scheduler is gone: no rank is to blame
            return self.failure(running, error.status(), None, cause);
        }
        let cause = format!("cannot go on with {}: {}", running.title(), error.message());
        self.failure(running, error.status(), self.context.culprit(self.context.rank().unwrap_or(0)), cause)
    }

    /// Ends the group for everyone without having its driver: another call has it, or none.
    pub(crate) fn give_up_for_all(&self, cause: Failure) -> Failure {
        if let Some(first) = self.context.told() {
            return self.context.break_with(first);
        }
        if let Some(mut driver) = self.idle_driver() {
            self.pass_on(&mut driver, &cause);
        }
        let cause = self.context.agree_on_cause(cause, true);
        let first = self.context.break_with(cause);
        self.context.interrupt(); // who has the driver tells the peers on its links
        first
    }

    /// The time was up before this call's turn came.
    pub(crate) fn give_up_waiting(&self, running: &Running<'_>) -> Failure {
        let limit = running.limit_ms as f64 / 1000.0;
        let cause = format!(
            "{}: the {limit} s that it may take were over before it began, for this rank was still in a collective before it",
            running.title()
        );
        let own = self.context.culprit(self.context.rank().unwrap_or(0));
        self.give_up_for_all(self.failure(running, Status::Timeout, own, cause))
    }

    /// The caller of a collective wants its end.
    pub(crate) fn cancelled(&self, running: &Running<'_>) -> Failure {
        let cause = format!("cancelled {} before it had ended", running.title());
        self.failure(running, Status::Aborted, self.context.culprit(self.context.rank().unwrap_or(0)), cause)
    }

    fn failure(&self, running: &Running<'_>, status: Status, culprit: Option<Culprit>, cause: String) -> Failure {
        let epoch = self.context.formed().epoch;
        Failure { status, culprit, cause, epoch, group: Some(self.context.id()), sequence: running.sequence }
    }

    /// A link ended: asks the scheduler what became of the peer.
    fn judge(&self, running: &Running<'_>, peer: u32, end: &LinkEnd) -> (Failure, bool) {
        let evidence = end.in_words();
        match self.context.ask_about(peer, &evidence, matches!(end, LinkEnd::Silent(_))) {
            Word::Told(failure) => (failure, true),
            Word::Left(culprit) => (self.left(running, peer, Some(culprit)), false),
            Word::Alive => (self.unreached(running, peer, &evidence), false),
            Word::CutOff(failure) => (self.cut_off(running, failure), false),
            Word::Silent => {
                let cause = format!(
                    "is probably lost, unconfirmed: in {}, {evidence}, and the scheduler said nothing",
                    running.title()
                );
                (self.failure(running, Status::PeerLost, self.context.culprit(peer), cause), false)
            }
        }
    }

    /// A peer has left. Where the scheduler is away it may have followed a first cause, of which this node hears, too.
    fn judge_left(&self, running: &Running<'_>, peer: u32) -> (Failure, bool) {
        let (shared, id, epoch) = (running.shared, self.context.id(), self.context.formed().epoch);
        if shared.learnt().away.is_some() {
            let first = shared.wait(shared.clock.now() + VERDICT_WAIT, |learnt| learnt.epoch.first_cause(id, epoch));
            if let Some(first) = first {
                return (first, true);
            }
        }
        (self.left(running, peer, self.context.culprit(peer)), false)
    }

    /// This rank itself hears nobody.
    fn cut_off(&self, running: &Running<'_>, failure: Failure) -> Failure {
        Failure { group: Some(self.context.id()), sequence: running.sequence, ..failure }
    }

    /// The peer lives, and so does this rank.
    fn unreached(&self, running: &Running<'_>, peer: u32, evidence: &str) -> Failure {
        let (own, other) = (self.context.describe(self.context.rank().unwrap_or(0)), self.context.describe(peer));
        let cause =
            format!("{}: {own} and {other} cannot reach each other although both live: {evidence}", running.title());
        self.failure(running, Status::Link, None, cause)
    }

    fn left(&self, running: &Running<'_>, peer: u32, culprit: Option<Culprit>) -> Failure {
        let who = if culprit.is_none() { format!("rank {peer} ") } else { String::new() };
        let what = if self.context.is_made() {
            format!("has freed {}, or left the cluster", self.context.id())
        } else {
            "has left the cluster".to_owned()
        };
        let cause = format!("{who}{what}, and {} needs it", running.title());
        // It may have called something else before it went: the scheduler compares.
        self.doubt();
        self.context.ask(Command::Report);
        self.failure(running, Status::PeerLeft, culprit, cause)
    }

    /// A peer called something else under a number of which only the scheduler can know what both called, if both tell it: that
    /// peer does once it has waited for this rank. The first cause, if that comes of it.
    fn compared(&self, running: &Running<'_>) -> Option<Failure> {
        let shared = running.shared;
        if shared.learnt().away.is_some() {
            return None;
        }
        self.doubt();
        shared.ask(AgentCommand::Brain(Command::Report));
        // Others' time is up soon after this call's: then they would say so first, and that it is this rank which is absent.
        let deadline = running.deadline.min(shared.clock.now() + COMPARISON_WAIT);
        shared.wait(deadline, |learnt| self.context.first_cause(learnt))
    }

    /// A peer called the same, and something else before.
    fn differs_before(&self, running: &Running<'_>, peer: u32) -> (Failure, bool) {
        if let Some(first) = self.compared(running) {
            return (first, true);
        }
        let id = self.context.id();
        let (own, other) = (self.context.describe(self.context.rank().unwrap_or(0)), self.context.describe(peer));
        let (number, both) = (running.sequence, &running.call);
        let last = self
            .called(number - 1)
            .map_or_else(String::new, |call| format!(": {own} called {call} as #{}", number - 1));
        let cause =
            format!("{own} and {other} called {both} as collective #{number} on {id}, but not the same before{last}");
        (self.failure(running, Status::Mismatch, None, cause), false)
    }

    /// A peer called this under this number.
    fn differs(&self, running: &Running<'_>, peer: u32, sequence: u64, call: &Call) -> (Failure, bool) {
        let is_further = sequence > running.sequence;
        if let Some(first) = is_further.then(|| self.compared(running)).flatten() {
            return (first, true);
        }
        let failure = self.failure(running, Status::Mismatch, None, self.mismatch(running, peer, sequence, call));
        // What all called under that number is compared, be it a collective before the one that this rank is in.
        (Failure { sequence: sequence.min(running.sequence), ..failure }, false)
    }

    fn mismatch(&self, running: &Running<'_>, peer: u32, sequence: u64, call: &Call) -> String {
        let (own, other, group) =
            (self.context.describe(self.context.rank().unwrap_or(0)), self.context.describe(peer), self.context.id());
        let (number, mine) = (running.sequence, &running.call);
        match (sequence.cmp(&number), self.called(sequence).filter(|called| called != call)) {
            (Ordering::Equal, _) => format!("{own} called {mine} as collective #{number} on {group}, but {other} called {call}"),
            // A frame that nobody here asked for: the disagreement is about a collective before.
            (Ordering::Less, Some(called)) => {
                format!("{own} called {called} as collective #{sequence} on {group}, but {other} called {call}")
            }
            (Ordering::Less, _) => {
                let what = format!("a part of {call} as #{sequence}, for which it did not ask");
                format!("{own} is in {mine} as collective #{number} on {group}, but {other} has sent it {what}")
            }
            (Ordering::Greater, _) => format!(
                "{own} called {mine} as collective #{number} on {group}, but {other} called something else then: it is in \
                 {call} as #{sequence} already"
            ),
        }
    }

    /// The time is up: names who is absent; where nobody is, the two whose link is at fault, or whom this rank waits for.
    fn timed_out(&self, running: &Running<'_>, awaited: Option<Awaited>) -> (Failure, bool) {
        let limit = running.limit_ms as f64 / 1000.0;
        let (title, absent) = (running.title(), self.ask_absent(running));
        let (peer, fault) = awaited.map_or((None, None), |awaited| (Some(awaited.peer), awaited.fault));
        let own = self.context.describe(self.context.rank().unwrap_or(0));
        let waits = peer.map_or_else(String::new, |peer| format!("; {own} waits for {}", self.context.describe(peer)));
        let (who, cause) = match absent.as_ref().map(|absent| (absent, absent.members.first())) {
            Some((absent, Some(first))) => {
                let place = place_in_words(first, self.context.id());
                let others = absent_in_words(&absent.members, absent.total, 1, self.context.id());
                let cause = format!("never entered {title} within the {limit} s that it may take; {place}{others}");
                (Some(first.culprit.clone()), cause)
            }
            Some((_, None)) => {
                if let (Some(peer), Some(fault)) = (peer, &fault) {
                    return (self.unreached(running, peer, fault), false);
                }
                // The time is up for others, too, and one of them may know which link is at fault.
                let now = running.shared.clock.now();
                if let Some(first) = running.shared.wait(now + VERDICT_WAIT, |learnt| self.context.first_cause(learnt))
                {
                    return (first, true);
                }
                let why = "all ranks have entered it, but it did not end: a slow link, or a rank that is stopped";
                (None, format!("{title}: the {limit} s that it may take are over; {why}{waits}"))
            }
            None => {
                let why = "who is absent is not known, for the scheduler does not answer";
                let fault = fault.map_or_else(String::new, |fault| format!(": {fault}"));
                (None, format!("{title}: the {limit} s that it may take are over; {why}{waits}{fault}"))
            }
        };
        (self.failure(running, Status::Timeout, who, cause), false)
    }

    /// Says, in the log, who keeps a call waiting.
    pub(crate) fn warn_of_absent(&self, running: &Running<'_>) {
        let waited = WARN_AFTER.as_secs();
        let absent = self
            .ask_absent(running)
            .map(|absent| absent_in_words(&absent.members, absent.total, 0, self.context.id()))
            .unwrap_or_default();
        running.shared.logger.warn(&format!("{} has been waiting for {waited} s{absent}", running.title()));
    }

    fn ask_absent(&self, running: &Running<'_>) -> Option<Absent> {
        let ask = running.shared.next_ask();
        self.context.ask(Command::WhereAre(ask, self.context.id(), running.sequence, None));
        let deadline = running.shared.clock.now() + VERDICT_WAIT;
        let answer = |learnt: &mut NodeView| match learnt.absent.remove(&ask) {
            None => self.context.broken().map(|_| None),
            answer => Some(answer),
        };
        running.shared.wait(deadline, answer).flatten()
    }

    /// The scheduler has said that the group is over, and no call is in it that would pass that on: a peer that the scheduler does
    /// not reach may be waiting for this rank.
    pub(crate) fn pass_on_if_idle(&self) {
        let Some(cause) = self.context.told() else { return };
        let Some(mut driver) = self.idle_driver() else { return };
        self.take_in(&mut driver);
        self.pass_on(&mut driver, &cause);
    }

    /// Tells the peers, over every link that is open and not in the middle of a frame; the others learn it from the
    /// scheduler, or by the link's end.
    fn pass_on(&self, driver: &mut Driver, cause: &Failure) {
        let frame = self.context.last_word_of(cause);
        for slot in &mut driver.slots {
            if let Slot::Up(link) = slot {
                link.say_last(&frame);
            }
        }
    }
}

#[cfg(test)]
#[path = "failure_test.rs"]
pub(crate) mod tests;
