//! What a rank does when a collective cannot go on: it finds out who is to blame, tells the group's other members, and
//! returns the one first cause that all of them return.
//!
//! A peer's closed link is evidence, not a verdict. So the scheduler is asked, and its word is waited for, but no longer
//! than [`VERDICT_WAIT`]; without it the error says "unconfirmed". Only then does the call return.

use super::drive::{Running, Stop};
use super::progress::WAITS_AFTER;
use crate::agent::Command;
use crate::error::{Culprit, Error, Failure, Status};
use crate::runtime::groups::group::{Driver, Group, Slot};
use crate::runtime::links::link::LinkEnd;
use crate::runtime::links::silence::Awaited;
use crate::runtime::state::node_state::{Learnt, Shared, ToNode, VERDICT_WAIT};
use crate::runtime::state::stragglers::{absent_in_words, place_in_words};
use crate::types::Call;
use crate::wire::{encode_frame, Absent, Encoder, LinkKind, LinkRevoke, PeerState, Wire};
use std::cmp::Ordering;
use std::time::Duration;

/// How long it waits for that where the scheduler is away. As long again is left then to tell the others, and to be told.
const ALONE_WAIT: Duration = Duration::from_millis(125);

/// How long the scheduler's word is waited for where ranks called different collectives before the one they are in: the
/// other says what it called once it has waited for [`WAITS_AFTER`].
const COMPARISON_WAIT: Duration = WAITS_AFTER.saturating_mul(2);

/// What is known of a peer whose link ended.
pub(crate) enum Word {
    /// The cluster or the group is broken: the first cause.
    Told(Failure),
    /// It has left.
    Left(Culprit),
    /// It lives.
    Alive,
    /// This node hears nobody.
    CutOff(Failure),
    /// Nobody said anything in time.
    Silent,
}

impl Group {
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
            Stop::Heard(failure) => (running.shared.heard(&self.formed, *failure), false),
            Stop::Ended(peer, end @ (LinkEnd::Ended(_) | LinkEnd::Silent(_))) => self.judge(running, peer, &end),
            Stop::Unreached(peer, evidence) => (self.unreached(running, peer, &evidence), false),
            Stop::Ended(_, LinkEnd::Over(failure)) => {
                (Failure { sequence: running.sequence, ..running.shared.heard(&self.formed, *failure) }, false)
            }
            Stop::Ended(peer, LinkEnd::Corrupt(what)) => {
                let cause = format!("{}: {}", running.title(), self.on_link(peer, &what));
                (self.failure(running, Status::Corrupt, None, cause), false)
            }
            Stop::Left(peer) => self.judge_left(running, peer),
            Stop::Mismatch(peer, sequence, call) => self.differs(running, peer, sequence, &call),
            Stop::Earlier(peer) => self.differs_before(running, peer),
            Stop::Counts(peer, sent, expected) => {
                let (own, other) = (self.describe(self.rank().unwrap_or(0)), self.describe(peer));
                let cause = format!(
                    "{other} sends {own} {sent} elements in {} as collective #{} on {}, where {expected} are expected",
                    running.call,
                    running.sequence,
                    self.id()
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
                (self.failure(running, Status::Memory, self.culprit(self.rank().unwrap_or(0)), cause), false)
            }
        };
        if known_to_all && cause.status == Status::State {
            return cause; // this process is leaving: `close` tells the peers so
        }
        self.pass_on(driver, &cause);
        let cause = if known_to_all { cause } else { self.agree_on_cause(running.shared, cause, is_own) };
        self.break_with(cause)
    }

    /// Something that this process needs for a collective cannot be had.
    pub(crate) fn failed(&self, running: &Running<'_>, error: &Error) -> Failure {
        if error.status() == Status::Unreachable {
            let cause = format!("{}: {}", running.title(), error.message()); // the scheduler is gone: no rank is to blame
            return self.failure(running, error.status(), None, cause);
        }
        let cause = format!("cannot go on with {}: {}", running.title(), error.message());
        self.failure(running, error.status(), self.culprit(self.rank().unwrap_or(0)), cause)
    }

    /// Ends the group for everyone without having its driver: another call has it, or none.
    pub(crate) fn give_up_for_all(&self, running: &Running<'_>, cause: Failure) -> Failure {
        if let Some(first) = self.told(running.shared) {
            return self.break_with(first);
        }
        if let Some(mut driver) = self.idle_driver() {
            self.pass_on(&mut driver, &cause);
        }
        let cause = self.agree_on_cause(running.shared, cause, true);
        let first = self.break_with(cause);
        self.interrupt(); // who has the driver tells the peers on its links
        first
    }

    /// The time was up before this call's turn came.
    pub(crate) fn give_up_waiting(&self, running: &Running<'_>) -> Failure {
        let limit = running.limit_ms as f64 / 1000.0;
        let cause = format!(
            "{}: the {limit} s that it may take were over before it began, for this rank was still in a collective before it",
            running.title()
        );
        let own = self.culprit(self.rank().unwrap_or(0));
        self.give_up_for_all(running, self.failure(running, Status::Timeout, own, cause))
    }

    /// The caller of a collective wants its end.
    pub(crate) fn cancelled(&self, running: &Running<'_>) -> Failure {
        let cause = format!("cancelled {} before it had ended", running.title());
        self.failure(running, Status::Aborted, self.culprit(self.rank().unwrap_or(0)), cause)
    }

    fn failure(&self, running: &Running<'_>, status: Status, culprit: Option<Culprit>, cause: String) -> Failure {
        let epoch = self.formed.epoch;
        Failure { status, culprit, cause, epoch, group: Some(self.id()), sequence: running.sequence }
    }

    /// A link ended: asks the scheduler what became of the peer.
    fn judge(&self, running: &Running<'_>, peer: u32, end: &LinkEnd) -> (Failure, bool) {
        let evidence = end.in_words();
        match self.ask_about(running.shared, peer, end) {
            Word::Told(failure) => (failure, true),
            Word::Left(culprit) => (self.left(running, peer, Some(culprit)), false),
            Word::Alive => (self.unreached(running, peer, &evidence), false),
            Word::CutOff(failure) => (self.cut_off(running, failure), false),
            Word::Silent => {
                let cause = format!(
                    "is probably lost, unconfirmed: in {}, {evidence}, and the scheduler said nothing",
                    running.title()
                );
                (self.failure(running, Status::PeerLost, self.culprit(peer), cause), false)
            }
        }
    }

    /// A peer has left. Where the scheduler is away it may have followed a first cause, of which this node hears, too.
    fn judge_left(&self, running: &Running<'_>, peer: u32) -> (Failure, bool) {
        let (shared, id, epoch) = (running.shared, self.id(), self.formed.epoch);
        if shared.learnt().away.is_some() {
            let first = shared.wait(shared.clock.now() + VERDICT_WAIT, |learnt| learnt.first_cause(id, epoch));
            if let Some(first) = first {
                return (first, true);
            }
        }
        (self.left(running, peer, self.culprit(peer)), false)
    }

    /// This rank itself hears nobody.
    fn cut_off(&self, running: &Running<'_>, failure: Failure) -> Failure {
        Failure { group: Some(self.id()), sequence: running.sequence, ..failure }
    }

    /// The peer lives, and so does this rank.
    fn unreached(&self, running: &Running<'_>, peer: u32, evidence: &str) -> Failure {
        let (own, other) = (self.describe(self.rank().unwrap_or(0)), self.describe(peer));
        let cause =
            format!("{}: {own} and {other} cannot reach each other although both live: {evidence}", running.title());
        self.failure(running, Status::Link, None, cause)
    }

    /// A link to a peer ended: asks the scheduler what became of that peer.
    pub(crate) fn ask_about(&self, shared: &Shared, peer: u32, end: &LinkEnd) -> Word {
        let index = self.index_of(peer).expect("a link's peer is a member");
        self.ask_early(shared, peer, &end.in_words());
        let since = shared.clock.now();
        let word = |learnt: &mut Learnt| {
            if let Some(failure) = self.first_cause(learnt) {
                return Some(Word::Told(failure));
            }
            if let Some(failure) = learnt.cut_off.clone() {
                return Some(Word::CutOff(failure));
            }
            learnt.peers.get(&index).cloned().map(|(state, culprit)| match state {
                PeerState::Left => Word::Left(culprit),
                PeerState::Alive => Word::Alive,
            })
        };
        let mut heard = shared.wait(since + ALONE_WAIT, word);
        if heard.is_none() && shared.learnt().away.is_none() {
            heard = shared.wait(since + VERDICT_WAIT, word);
        }
        // The nodes find out among themselves: at once where the process has gone, else within the heartbeat time-out. With recovery
        // each finds out whether it is itself cut off, which only silence can mean.
        let finds_out = matches!(end, LinkEnd::Silent(_)) || (shared.learnt().away.is_some() && !shared.recovery);
        if heard.is_none() && finds_out {
            heard = shared.wait(since + self.bounds.most() + VERDICT_WAIT, word);
        }
        heard.unwrap_or(Word::Silent)
    }

    /// What is wrong on a link, of which both ends are named: all members are told so.
    pub(crate) fn on_link(&self, peer: u32, what: &str) -> String {
        let own = self.describe(self.rank().unwrap_or(0));
        format!("on the link to {}, as {own} found: {what}", self.describe(peer))
    }

    fn left(&self, running: &Running<'_>, peer: u32, culprit: Option<Culprit>) -> Failure {
        let who = if culprit.is_none() { format!("rank {peer} ") } else { String::new() };
        let what = if self.is_made() {
            format!("has freed {}, or left the cluster", self.id())
        } else {
            "has left the cluster".to_owned()
        };
        let cause = format!("{who}{what}, and {} needs it", running.title());
        // It may have called something else before it went: the scheduler compares.
        self.doubt();
        self.ask(running.shared, Command::Report);
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
        shared.ask(ToNode::Brain(Command::Report));
        // Others' time is up soon after this call's: then they would say so first, and that it is this rank which is absent.
        let deadline = running.deadline.min(shared.clock.now() + COMPARISON_WAIT);
        shared.wait(deadline, |learnt| self.first_cause(learnt))
    }

    /// A peer called the same, and something else before.
    fn differs_before(&self, running: &Running<'_>, peer: u32) -> (Failure, bool) {
        if let Some(first) = self.compared(running) {
            return (first, true);
        }
        let id = self.id();
        let (own, other) = (self.describe(self.rank().unwrap_or(0)), self.describe(peer));
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
        let (own, other, group) = (self.describe(self.rank().unwrap_or(0)), self.describe(peer), self.id());
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
        let own = self.describe(self.rank().unwrap_or(0));
        let waits = peer.map_or_else(String::new, |peer| format!("; {own} waits for {}", self.describe(peer)));
        let (who, cause) = match absent.as_ref().map(|absent| (absent, absent.members.first())) {
            Some((absent, Some(first))) => {
                let place = place_in_words(first, self.id());
                let others = absent_in_words(&absent.members, absent.total, 1, self.id());
                let cause = format!("never entered {title} within the {limit} s that it may take; {place}{others}");
                (Some(first.culprit.clone()), cause)
            }
            Some((_, None)) => {
                if let (Some(peer), Some(fault)) = (peer, &fault) {
                    return (self.unreached(running, peer, fault), false);
                }
                // The time is up for others, too, and one of them may know which link is at fault.
                let now = running.shared.clock.now();
                if let Some(first) = running.shared.wait(now + VERDICT_WAIT, |learnt| self.first_cause(learnt)) {
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
        let waited = super::drive::WARN_AFTER.as_secs();
        let absent = self
            .ask_absent(running)
            .map(|absent| absent_in_words(&absent.members, absent.total, 0, self.id()))
            .unwrap_or_default();
        running.shared.logger.warn(&format!("{} has been waiting for {waited} s{absent}", running.title()));
    }

    fn ask_absent(&self, running: &Running<'_>) -> Option<Absent> {
        let ask = running.shared.next_ask();
        self.ask(running.shared, Command::WhereAre(ask, self.id(), running.sequence, None));
        let deadline = running.shared.clock.now() + VERDICT_WAIT;
        let answer = |learnt: &mut Learnt| match learnt.absent.remove(&ask) {
            None => self.broken().map(|_| None),
            answer => Some(answer),
        };
        running.shared.wait(deadline, answer).flatten()
    }

    /// The scheduler has said that the group is over, and no call is in it that would pass that on: a peer that the scheduler does
    /// not reach may be waiting for this rank.
    pub(crate) fn pass_on_if_idle(&self, shared: &Shared) {
        let Some(cause) = self.told(shared) else { return };
        let Some(mut driver) = self.idle_driver() else { return };
        for mail in self.take_mail() {
            self.take_in(&mut driver, mail);
        }
        self.pass_on(&mut driver, &cause);
    }

    /// Tells the peers, over every link that is open and not in the middle of a frame; the others learn it from the
    /// scheduler, or by the link's end.
    fn pass_on(&self, driver: &mut Driver, cause: &Failure) {
        let frame = self.last_word_of(cause);
        for slot in &mut driver.slots {
            if let Slot::Up(link) = slot {
                link.say_last(&frame);
            }
        }
    }

    /// What is said last on a link of a group that is over: why; that this process has left, or nothing if it just goes.
    pub(crate) fn last_word_of(&self, cause: &Failure) -> Vec<u8> {
        if cause.status == Status::State {
            return self.last_word.get().cloned().unwrap_or_default();
        }
        let mut payload = Encoder::default();
        LinkRevoke { failure: cause.clone().to_others() }.put(&mut payload);
        let mut frame = Vec::new();
        encode_frame(LinkKind::Revoke as u8, 0, &payload.bytes, &mut frame);
        frame
    }

    /// Several ranks may give up at once, each for its own reason: what reached the scheduler first is what all return. Where
    /// the scheduler does not answer, the members are told by the rank whose own cause it is.
    pub(crate) fn agree_on_cause(&self, shared: &Shared, cause: Failure, is_own: bool) -> Failure {
        self.ask(shared, Command::Revoke(cause.clone().to_others()));
        let tell = || {
            if is_own {
                shared.ask(ToNode::Tell(cause.clone()));
            }
        };
        let is_away = shared.learnt().away.is_some();
        if is_away {
            tell();
        }
        // What became of a lost peer was waited for already, here or by who says so.
        let patience = if is_away && cause.status == Status::PeerLost { ALONE_WAIT } else { VERDICT_WAIT };
        let deadline = shared.clock.now() + patience;
        let first = shared.wait(deadline, |learnt| self.first_cause(learnt));
        if first.is_none() && !is_away {
            tell();
        }
        first.unwrap_or(cause)
    }

    /// Asks the scheduler for something that means this group, and therefore its epoch only.
    pub(crate) fn ask(&self, shared: &Shared, command: Command) {
        shared.ask(ToNode::Of(self.formed.epoch, command));
    }
}

impl Running<'_> {
    /// `allreduce #1042 on world`
    fn title(&self) -> String {
        format!("{} #{} on {}", self.call.kind, self.sequence, self.data.group)
    }
}

#[cfg(test)]
#[path = "failure_test.rs"]
pub(crate) mod tests;
