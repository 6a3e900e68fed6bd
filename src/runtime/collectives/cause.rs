//! The reason why a collective could not go on, as its ranks are told it. The scheduler helps to find out who is to blame.
//!
//! A peer's closed link is evidence, not a verdict. So the rank asks the scheduler, and waits for its answer, but no
//! longer than [`VERDICT_WAIT`]. Without an answer the error says "unconfirmed". Tested in `failure_test.rs`.

use super::call_log::CallLog;
use super::stop::{Awaited, Running, Stop};
use crate::agent::Command;
use crate::error::{Culprit, Error, Failure, Status};
use crate::runtime::base::patience::{self, VERDICT_WAIT};
use crate::runtime::links::link::LinkEnd;
use crate::runtime::state::node_state::{AgentCommand, NodeView};
use crate::runtime::state::stragglers::{absent_in_words, place_in_words};
use crate::runtime::state::verdict::{note_that_it_left, Concern, PeerQuery, Unsaid, Word};
use crate::types::{Call, CallKind, Time};
use crate::wire::{Absent, COMPARED_WITHIN};
use std::cmp::Ordering;

impl Running<'_> {
    /// The first cause, as far as this rank can know, and whether all know it already.
    pub(crate) fn cause_of(&self, stop: Stop) -> (Failure, bool) {
        let cut_off = self.context.state.view().cut_off.clone();
        match stop {
            // A node that hears nobody cannot blame another node: the fault is then probably its own.
            Stop::Ended(_, LinkEnd::Ended(_) | LinkEnd::Silent(_)) | Stop::Unreached(..) | Stop::Timeout(_)
                if cut_off.is_some() =>
            {
                (self.context.cut_off(cut_off.expect("it was looked at"), self.sequence), false)
            }
            Stop::Told(failure) => (*failure, true),
            Stop::Heard(failure) => (self.context.state.heard(self.context.formed(), *failure), false),
            Stop::Ended(peer, end @ (LinkEnd::Ended(_) | LinkEnd::Silent(_))) => self.judge(peer, &end),
            Stop::Unreached(peer, evidence) => (self.failure_of(Unsaid::Alive, peer, &evidence), false),
            Stop::Ended(_, LinkEnd::Over(failure)) => {
                // The failure of a link may name no call: then it gets this call's number.
                let sequence = if failure.sequence == 0 { self.sequence } else { failure.sequence };
                (Failure { sequence, ..self.context.state.heard(self.context.formed(), *failure) }, false)
            }
            Stop::Ended(peer, LinkEnd::Corrupt(what)) => (self.on_link(Status::Corrupt, peer, &what), false),
            Stop::Ended(peer, LinkEnd::Unsupported(what)) => (self.on_link(Status::Unsupported, peer, &what), false),
            Stop::Damaged(rank) => {
                let (title, rank) = (self.title(), self.context.describe(rank));
                let cause = format!("{title}: data that {rank} wrote to shared memory was damaged");
                (self.failure(Status::Corrupt, None, cause), false)
            }
            Stop::Left(peer) => self.judge_left(peer),
            Stop::Mismatch(peer, sequence, call) => self.differs(peer, sequence, &call),
            Stop::Earlier(peer) => self.differs_before(peer),
            Stop::Counts(peer, sent, expected) => {
                let (own, other) = (self.context.describe(self.context.own_rank()), self.context.describe(peer));
                let cause = format!(
                    "{other} sends {own} {sent} elements in {} as collective #{} on {}, where {expected} are expected",
                    self.call,
                    self.sequence,
                    self.context.id()
                );
                (self.failure(Status::Mismatch, None, cause), false)
            }
            Stop::Timeout(awaited) => self.timed_out(awaited),
            Stop::Interrupted(_) => (self.interrupted(), false),
            Stop::Failed(error) => (self.failed(&error), false),
            Stop::NotYet(_) | Stop::Bug => {
                let bug = Error::new(Status::Internal, "a bug in this library, printed there; please report it");
                (self.failed(&bug), false)
            }
            Stop::Memory(bytes) => {
                let cause =
                    format!("has no memory for the {bytes} bytes beside its buffers that {} takes", self.title());
                (self.failure(Status::Memory, self.own_culprit(), cause), false)
            }
        }
    }

    /// The failure of a collective for which this process lacks something.
    pub(crate) fn failed(&self, error: &Error) -> Failure {
        if error.status() == Status::Unreachable {
            let cause = format!("{}: {}", self.title(), error.message()); // the scheduler is gone: no rank is to blame
            return self.failure(error.status(), None, cause);
        }
        let cause = format!("cannot go on with {}: {}", self.title(), error.message());
        self.failure(error.status(), self.own_culprit(), cause)
    }

    /// The failure of a collective whose caller has cancelled it.
    pub(crate) fn cancelled(&self) -> Failure {
        let cause = format!("cancelled {} before it had ended", self.title());
        self.failure(Status::Aborted, self.own_culprit(), cause)
    }

    /// The failure of a collective whose caller the program has interrupted: other ranks may be in it.
    pub(crate) fn interrupted(&self) -> Failure {
        let cause = format!("was interrupted in {}", self.title());
        self.failure(Status::Aborted, self.own_culprit(), cause)
    }

    /// The failure of a collective whose time was up before its turn came.
    pub(crate) fn never_began(&self) -> Failure {
        let limit = self.limit_ms as f64 / 1000.0;
        let cause = format!(
            "{}: its time-out of {limit} s ended before it began, because this rank was still in an earlier collective",
            self.title()
        );
        self.failure(Status::Timeout, self.own_culprit(), cause)
    }

    fn failure(&self, status: Status, culprit: Option<Culprit>, cause: String) -> Failure {
        self.context.failure(status, culprit, cause, self.sequence)
    }

    /// The failure where the scheduler has not told what became of the peer: it says what is known of the peer.
    fn failure_of(&self, what: Unsaid, peer: u32, evidence: &str) -> Failure {
        self.context.failure_of(what, &Concern { title: &self.title(), sequence: self.sequence, peer, evidence })
    }

    fn own_culprit(&self) -> Option<Culprit> {
        self.context.culprit(self.context.own_rank())
    }

    /// The failure where the link to the peer is itself at fault.
    fn on_link(&self, status: Status, peer: u32, evidence: &str) -> Failure {
        let concern = Concern { title: &self.title(), sequence: self.sequence, peer, evidence };
        self.context.failure_on_link(status, &concern)
    }

    /// A link ended: asks the scheduler what became of the peer.
    fn judge(&self, peer: u32, end: &LinkEnd) -> (Failure, bool) {
        let evidence = end.in_words();
        let query = PeerQuery::about(self.context, peer, &evidence, matches!(end, LinkEnd::Silent(_)));
        match query.wait(self.context) {
            Word::Told(failure) => (failure, true),
            Word::Left(culprit) => (self.left(peer, Some(culprit)), false),
            Word::Unsaid(what) => (self.failure_of(what, peer, &evidence), false),
        }
    }

    /// A peer has left. While the scheduler is away, it may have left because the group was over for another reason. This
    /// node hears of that soon, too. So this waits a moment, and returns that first cause if it comes.
    fn judge_left(&self, peer: u32) -> (Failure, bool) {
        let (state, id, epoch) = (&self.context.state, self.context.id(), self.context.formed().epoch);
        if state.view().away.is_some() {
            let first = state.wait(state.clock.now() + VERDICT_WAIT, |view| view.epoch.first_cause(id, epoch));
            if let Some(first) = first {
                return (first, true);
            }
        }
        (self.left(peer, self.context.culprit(peer)), false)
    }

    fn left(&self, peer: u32, culprit: Option<Culprit>) -> Failure {
        let who = if culprit.is_none() { format!("rank {peer} ") } else { String::new() };
        let cause = format!("{who}{}, and {} needs it", self.context.roster.parted(), self.title());
        note_that_it_left(self.context, peer, culprit.as_ref());
        // The peer may have called something else before it left: the scheduler compares.
        self.turns.with_log(CallLog::doubt);
        self.context.ask(Command::Report);
        self.failure(Status::PeerLeft, culprit, cause)
    }

    /// Has the scheduler compare the earlier calls of this rank and of a peer, where this rank cannot know how they
    /// differ. Both tell the scheduler their calls, but the peer only once it has waited for a while. So this waits for
    /// the answer, and returns the first cause, if the scheduler finds one.
    fn compared(&self) -> Option<Failure> {
        let state = &self.context.state;
        if state.view().away.is_some() {
            return None;
        }
        self.turns.with_log(CallLog::doubt);
        state.ask(AgentCommand::Brain(Command::Report));
        // The other ranks time out soon after this call. They would then fail first, and blame this rank as absent.
        let deadline = self.deadline.min(state.clock.now() + COMPARED_WITHIN);
        state.wait(deadline, |view| self.context.first_cause(view))
    }

    /// The failure where a peer made the same call, but called something else before.
    fn differs_before(&self, peer: u32) -> (Failure, bool) {
        if let Some(first) = self.compared() {
            return (first, true);
        }
        let id = self.context.id();
        let (own, other) = (self.context.describe(self.context.own_rank()), self.context.describe(peer));
        let (number, both) = (self.sequence, &self.call);
        let last = self
            .called(number - 1)
            .map_or_else(String::new, |call| format!(": {own} called {call} as #{}", number - 1));
        let cause = format!(
            "{own} and {other} called {both} as collective #{number} on {id}, but their earlier calls differ{last}"
        );
        (self.failure(Status::Mismatch, None, cause), false)
    }

    /// The failure where a peer made this call under this number.
    fn differs(&self, peer: u32, sequence: u64, call: &Call) -> (Failure, bool) {
        let is_further = sequence > self.sequence;
        if let Some(first) = is_further.then(|| self.compared()).flatten() {
            return (first, true);
        }
        let failure = self.failure(Status::Mismatch, None, self.mismatch(peer, sequence, call));
        // The calls of all ranks under that number are compared, even if it is a collective before the one that this
        // rank is in.
        (Failure { sequence: sequence.min(self.sequence), ..failure }, false)
    }

    /// This rank's call under this number, as far as that is remembered.
    fn called(&self, sequence: u64) -> Option<Call> {
        self.turns.with_log(|log| log.called(sequence))
    }

    fn mismatch(&self, peer: u32, sequence: u64, call: &Call) -> String {
        let (own, other, group) =
            (self.context.describe(self.context.own_rank()), self.context.describe(peer), self.context.id());
        let (number, mine) = (self.sequence, &self.call);
        match (sequence.cmp(&number), self.called(sequence).filter(|called| called != call)) {
            (Ordering::Equal, _) => format!("{own} called {mine} as collective #{number} on {group}, but {other} called {call}"),
            // Nobody here asked for this frame: the disagreement is about an earlier collective.
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

    /// The time is up. Names the absent ranks; if none is absent, the two ranks whose link is at fault, or the awaited
    /// rank.
    fn timed_out(&self, awaited: Option<Awaited>) -> (Failure, bool) {
        let limit = self.limit_ms as f64 / 1000.0;
        // The wait for the scheduler here takes so long at most, and as long again in `agree_on_cause`.
        let until = self.context.state.clock.now() + VERDICT_WAIT;
        let (title, absent) = (self.title(), self.ask_absent(until));
        let (peer, fault) = awaited.map_or((None, None), |awaited| (Some(awaited.peer), awaited.fault));
        let own = self.context.describe(self.context.own_rank());
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
                    return (self.failure_of(Unsaid::Alive, peer, fault), false);
                }
                // The time is up for others, too, and one of them may know which link is at fault.
                if let Some(first) = self.context.state.wait(until, |view| self.context.first_cause(view)) {
                    return (first, true);
                }
                let why = match self.call.kind {
                    CallKind::GroupCreate | CallKind::GroupSplit => "the scheduler had not made the group yet",
                    _ => "it did not end: a slow link, or a rank that is stopped",
                };
                let all = "all ranks have entered it, but";
                (None, format!("{title} timed out after {limit} s; {all} {why}{waits}"))
            }
            None => {
                let why = "the scheduler does not answer, so the missing ranks are unknown";
                let fault = fault.map_or_else(String::new, |fault| format!(": {fault}"));
                (None, format!("{title} timed out after {limit} s; {why}{waits}{fault}"))
            }
        };
        (self.failure(Status::Timeout, who, cause), false)
    }

    /// Says in the log which ranks keep a call waiting.
    pub(crate) fn warn_of_absent(&self) {
        let until = self.deadline.min(self.context.state.clock.now() + VERDICT_WAIT);
        let absent = self
            .ask_absent(until)
            .map(|absent| absent_in_words(&absent.members, absent.total, 0, self.context.id()))
            .unwrap_or_default();
        self.context.state.logger.warn(&patience::in_words(&self.title(), &absent));
    }

    /// Which ranks have not entered the call, if the scheduler says so by then.
    fn ask_absent(&self, until: Time) -> Option<Absent> {
        let ask = self.context.state.next_ask();
        self.context.state.view().absent.insert(ask, None);
        self.context.ask(Command::WhereAre(ask, self.context.id(), self.sequence, None));
        let answer = |view: &mut NodeView| match view.absent.get_mut(&ask).and_then(Option::take) {
            None => self.context.broken().map(|_| None),
            answer => Some(answer),
        };
        let absent = self.context.state.wait(until, answer).flatten();
        self.context.state.view().absent.remove(&ask); // an answer that comes now is of no use
        absent
    }
}
