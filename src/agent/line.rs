//! The connection to the scheduler: it is made, kept up with heartbeats, and made again.
//!
//! The line looks for the scheduler by its `search`, waits between attempts as `backoff` says, and learns from its
//! `pulse` whether the scheduler still speaks. It knows of the cluster only whether this node is a member. For a member
//! it tells that the scheduler is away.

use super::backoff::Backoff;
use super::contract::{Event, Output, Profile};
use super::outputs::Outputs;
use super::pulse::Pulse;
use super::search::Search;
use super::seconds::seconds;
use crate::types::Time;
use std::time::Duration;

/// How long a member is without its scheduler before it says so in the log.
const WARN_AWAY: Duration = Duration::from_secs(1);
/// A connection that stood so long was a success, answered or not. A shorter one may lead to a port that closes every
/// connection. The attempt after the first short connection is made at once, too. After more of them in a row each attempt
/// waits longer.
const STOOD: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The next attempt is made then.
    Waiting(Time),
    /// An attempt is under way.
    Connecting,
    /// Connected and registered, but not told of the cluster yet.
    Registered,
    /// Connected, and the scheduler knows us as a member.
    Attached,
    /// Never again.
    Shut,
}

/// A span of time in which a member is without its scheduler.
#[derive(Debug)]
struct Away {
    since: Time,
    /// When the scheduler had been heard last.
    heard: Time,
    /// Why the connection was lost at the beginning of this time.
    loss: Loss,
    attempt: Attempt,
    is_told: bool,
    is_warned_of: bool,
}

/// What came of the last attempt in such a time.
/// How many reasons are told. A name may have several addresses, with another program at each.
const REFUSALS_TOLD: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Unknown,
    /// A connection stands, and has not been answered: a scheduler that is stopped, or very busy, may go on.
    Taken,
    /// Nobody accepts connections, or what accepts them has shown that it is not this job's scheduler.
    Failed,
}

/// How the scheduler of a member has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// Its end was seen, or it may go on. It has judged nobody unseen by this node.
    Seen,
    /// It fell silent, and accepts no connection now. In between it may have judged nodes, this one too.
    Unseen,
    /// It fell silent, and nothing is known yet of a new connection.
    Open,
}

/// How a connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// It has ended.
    Ended,
    /// It is given up, for nothing is heard on it.
    Silent,
    /// What came in is of no version of this protocol.
    Strange,
    /// The other side is not, or does not behave like, this job's scheduler.
    Refused,
    /// The scheduler of another job listens there.
    AnotherJob,
}

#[derive(Debug)]
pub(super) struct Line {
    state: State,
    /// Where it is looked for, and what was met there.
    pub(super) search: Search,
    backoff: Backoff,
    pulse: Pulse,
    /// When a node that is no member yet gives up.
    form_by: Time,
    /// When the newest connection was made.
    up_since: Time,
    /// How many connections in a row ended soon and without an answer.
    brief: u32,
    /// Why schedulers were refused since this node was attached last: each reason is told once, and so many of them.
    refused: Vec<String>,
    /// Whether a member's scheduler may be started again.
    recovery: bool,
    away: Option<Away>,
}

impl Line {
    pub(super) fn new(profile: &Profile, now: Time, form_by: Time) -> Line {
        Line {
            state: State::Shut,
            search: Search::new(profile, now),
            backoff: Backoff::new(profile.seed),
            pulse: Pulse::new(profile.heartbeat_timeout),
            form_by,
            up_since: Time::NEVER,
            brief: 0,
            refused: Vec::new(),
            recovery: profile.register.recovery,
            away: None,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Registered | State::Attached)
    }

    pub(super) fn is_attached(&self) -> bool {
        self.state == State::Attached
    }

    /// Whether the line is attached, and the scheduler answers.
    pub(super) fn answers(&self, now: Time) -> bool {
        self.is_attached() && now < self.pulse.doubt_at()
    }

    /// What sentences call the scheduler.
    pub(super) fn scheduler(&self) -> &str {
        match self.away {
            Some(_) => self.search.home(),
            None => self.search.place(),
        }
    }

    pub(super) fn away_since(&self) -> Option<Time> {
        self.away.as_ref().map(|away| away.since)
    }

    /// When the scheduler was heard last.
    pub(super) fn heard_at(&self) -> Time {
        self.away.as_ref().map_or(self.pulse.heard_at(), |away| away.heard)
    }

    /// When a member's scheduler counts as gone: it has been silent for a heartbeat time-out and accepts no connection.
    /// A scheduler that is only stopped accepts them.
    pub(super) fn gone_at(&self) -> Time {
        let away = self.away.as_ref().filter(|away| away.attempt != Attempt::Taken);
        away.map_or(Time::NEVER, |away| away.heard + self.pulse.timeout())
    }

    /// How the scheduler of a member that is without it has gone.
    pub(super) fn departure(&self) -> Departure {
        let Some(away) = &self.away else { return Departure::Open };
        match (away.loss, away.attempt) {
            (Loss::Silent, Attempt::Unknown) => Departure::Open,
            (Loss::Silent, Attempt::Failed) => Departure::Unseen,
            _ => Departure::Seen,
        }
    }

    /// Whether something is wrong that somebody who waits for the scheduler should know.
    pub(super) fn is_amiss(&self, now: Time) -> bool {
        self.search.is_amiss(now, self.is_up(), self.pulse.interval())
    }

    /// Makes the next attempt now, or plans it.
    pub(super) fn try_again(&mut self, now: Time, out: &mut Outputs) {
        let wait = self.backoff.next_wait();
        self.try_after(now, wait, out);
    }

    /// The scheduler is not where it was looked for: makes the next attempt at the next place, or plans it.
    fn try_elsewhere(&mut self, now: Time, out: &mut Outputs) {
        match self.search.goes_on() {
            true => self.try_after(now, Duration::ZERO, out),
            false => self.try_again(now, out),
        }
    }

    fn try_after(&mut self, now: Time, wait: Duration, out: &mut Outputs) {
        self.warn_of_absence(now, out);
        if wait > Duration::ZERO {
            self.state = State::Waiting(now + wait);
            return;
        }
        self.state = State::Connecting;
        let (place, most) = self.search.attempt();
        out.put(Output::Connect { place, within: self.form_by.since(now).clamp(Duration::from_millis(1), most) });
    }

    /// Says in the log that the scheduler is away: a job goes on without it, but its user should know. A connection that is
    /// soon there again needs no line.
    fn warn_of_absence(&mut self, now: Time, out: &mut Outputs) {
        let Some(away) = &mut self.away else { return };
        let span = now.since(away.since);
        if span < WARN_AWAY || away.is_warned_of || !away.is_told {
            return;
        }
        away.is_warned_of = true;
        let they = if self.recovery { "wait" } else { "fail" };
        out.warn(format!(
            "the scheduler at {} has been away for {:.1} s ({}): collectives go on; calls that need the scheduler, such as \
             those of the store, {they}",
            self.search.home(),
            span.as_secs_f64(),
            self.search.last_reason()
        ));
    }

    /// The attempt has succeeded. Returns whether there was one: then this node registers.
    pub(super) fn connected(&mut self, now: Time) -> bool {
        if self.state != State::Connecting {
            return false;
        }
        self.state = State::Registered;
        if let Some(away) = &mut self.away {
            away.attempt = Attempt::Taken;
        }
        self.search.connected(now);
        self.up_since = now;
        self.pulse.begin(now);
        true
    }

    pub(super) fn connect_failed(&mut self, now: Time, reason: String, out: &mut Outputs) {
        if self.state != State::Connecting {
            return;
        }
        if let Some(away) = &mut self.away {
            away.attempt = Attempt::Failed;
        }
        self.search.connect_failed(reason);
        self.try_elsewhere(now, out);
    }

    /// Bytes came in.
    pub(super) fn hears(&mut self, now: Time) {
        self.pulse.heard(now);
    }

    /// This heartbeat time-out holds for all nodes.
    pub(super) fn agree(&mut self, now: Time, timeout: Duration) {
        self.pulse.agree(now, timeout);
    }

    /// The scheduler answers this heartbeat.
    pub(super) fn echoed(&mut self, sequence: u64) {
        self.pulse.echo(sequence);
        self.answered();
    }

    /// The scheduler answers: if this connection breaks, the next attempt is made at once.
    fn answered(&mut self) {
        self.brief = 0;
        self.backoff.begin_at(0);
    }

    /// The scheduler has confirmed this node's membership on this connection.
    pub(super) fn attached(&mut self, out: &mut Outputs) {
        self.state = State::Attached;
        self.form_by = Time::NEVER;
        self.answered();
        self.refused.clear();
        let Some(away) = self.away.take() else { return };
        if away.is_warned_of {
            out.warn(format!("the scheduler at {} is there again", self.scheduler()));
        }
        if away.is_told {
            out.tell(Event::SchedulerAway(None));
        }
    }

    /// The connection is lost: the next attempt is made, or planned. If nobody awaits the scheduler, it is not told
    /// that it is away.
    pub(super) fn lost(&mut self, now: Time, loss: Loss, reason: String, is_awaited: bool, out: &mut Outputs) {
        if loss != Loss::Ended {
            out.put(Output::Disconnect);
        }
        match loss {
            Loss::Ended | Loss::Silent => self.ended(now),
            Loss::Strange => {
                self.ended(now);
                if !self.search.has_several_places() {
                    self.refuse(&reason, out); // among several ports others are to be expected
                }
            }
            Loss::Refused => self.refuse(&reason, out),
            Loss::AnotherJob => {}
        }
        let is_another = matches!(loss, Loss::Strange | Loss::Refused | Loss::AnotherJob);
        if let Some(away) = self.away.as_mut().filter(|_| is_another) {
            away.attempt = Attempt::Failed;
        }
        self.search.lost(reason.clone());
        self.miss(now, loss, reason, is_awaited, out);
        match loss {
            Loss::Refused => {
                let wait = if self.search.goes_on() { Duration::ZERO } else { self.backoff.long_wait() };
                self.try_after(now, wait, out);
            }
            Loss::AnotherJob => self.try_elsewhere(now, out),
            Loss::Ended | Loss::Silent | Loss::Strange => match self.search.has_met_the_scheduler() {
                true => self.try_again(now, out),
                false => self.try_elsewhere(now, out),
            },
        }
    }

    /// A connection has ended: what came before it no longer counts against the next attempt.
    fn ended(&mut self, now: Time) {
        if now.since(self.up_since) >= STOOD {
            self.brief = 0;
        }
        self.backoff.begin_at(self.brief);
        self.brief = self.brief.saturating_add(1);
    }

    /// Keeps away from a scheduler that refuses, until that may have changed. Logs one line for each reason.
    fn refuse(&mut self, reason: &str, out: &mut Outputs) {
        if self.refused.len() == REFUSALS_TOLD || self.refused.iter().any(|told| told == reason) {
            return;
        }
        self.refused.push(reason.to_owned());
        out.warn(format!("disconnected from {}: {reason}", self.search.place()));
        if self.away.as_ref().is_some_and(|away| away.is_told) {
            out.tell(Event::SchedulerAway(Some(reason.to_owned()))); // this is why the scheduler goes on being away
        }
    }

    /// This node is without its scheduler from now on, if it was not already.
    fn miss(&mut self, now: Time, loss: Loss, reason: String, is_awaited: bool, out: &mut Outputs) {
        let is_member = self.is_attached() || self.away.is_some();
        if !is_member {
            let scheduler = self.scheduler();
            return out
                .inform(format!("the connection to the scheduler at {scheduler} ended ({reason}): registering again"));
        }
        let heard = self.pulse.heard_at().min(now);
        let attempt = Attempt::Unknown;
        let away = Away { since: now, heard, loss, attempt, is_told: false, is_warned_of: false };
        let away = self.away.get_or_insert(away);
        if !away.is_told && is_awaited {
            away.is_told = true;
            out.tell(Event::SchedulerAway(Some(reason)));
        }
    }

    /// The scheduler wants to be asked again after this time.
    pub(super) fn wait_to_register(&mut self, now: Time, wait: Duration, reason: String, out: &mut Outputs) {
        out.put(Output::Disconnect);
        self.search.sent_away(reason);
        self.try_after(now, wait, out);
    }

    /// No connection is made any more.
    pub(super) fn shut(&mut self) {
        self.state = State::Shut;
    }

    /// The connection is lost, for this reason, and no other is made.
    pub(super) fn lost_for_good(&mut self, reason: String) {
        self.search.lost(reason);
        self.shut();
    }

    pub(super) fn deadline(&self) -> Time {
        match self.state {
            State::Waiting(at) => at,
            State::Registered | State::Attached => {
                self.pulse.beat_at().min(self.pulse.silent_at()).min(self.unanswered_at())
            }
            State::Connecting | State::Shut => Time::NEVER,
        }
    }

    /// When the scheduler has been silent for too long for a single late echo.
    pub(super) fn doubt_at(&self) -> Time {
        match self.is_up() {
            true => self.pulse.doubt_at(),
            false => Time::NEVER,
        }
    }

    /// When a listener that may not be the scheduler has taken too long to answer a registration. A member's scheduler
    /// that was started again may have to read its journal.
    fn unanswered_at(&self) -> Time {
        let is_first = self.state == State::Registered && self.away.is_none();
        match self.search.patience(self.pulse.patience()).filter(|_| is_first) {
            Some(patience) => self.up_since + patience,
            None => Time::NEVER,
        }
    }

    /// A timer comes so late that this process may have stood still for so long. Returns whether it did.
    pub(super) fn is_late(&mut self, now: Time, late: Duration) -> bool {
        let stood_still = late > self.pulse.interval();
        if stood_still {
            self.pulse.paused(now, late);
        }
        stood_still
    }

    /// Does what is due. Returns why the connection is lost, if it is.
    pub(super) fn timer(&mut self, now: Time, out: &mut Outputs) -> Option<String> {
        match self.state {
            State::Waiting(at) if now >= at => self.try_after(now, Duration::ZERO, out),
            State::Registered | State::Attached if now >= self.unanswered_at() => {
                return Some("it takes connections, but says nothing".to_owned());
            }
            State::Registered | State::Attached if now >= self.pulse.silent_at() => {
                return Some(format!("its connection was dropped after {} of silence", seconds(self.pulse.patience())));
            }
            State::Registered | State::Attached if now >= self.pulse.beat_at() => self.beat(now, out),
            _ => {}
        }
        None
    }

    /// Sends a sign of life now.
    pub(super) fn beat(&mut self, now: Time, out: &mut Outputs) {
        let (sequence, echoed) = self.pulse.beat(now);
        out.put(Output::SendHeartbeat { sequence, echoed });
    }
}
