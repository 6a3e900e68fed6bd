//! The connection to the scheduler: made, kept, and made again.

use super::backoff::Backoff;
use super::complaints::{Complaints, AFTER};
use super::contract::{Event, Output, Profile};
use super::course::Course;
use super::{seconds, Agent, Stage, CONNECT_MAX};
use crate::types::Time;
use crate::wire::{Message, Told};
use std::net::SocketAddr;
use std::time::Duration;

/// After how long without its scheduler a member says so in the log.
const WARN_AWAY: Duration = Duration::from_secs(1);
/// A connection that stood so long was a success, answered or not. One that ends sooner may be a port that closes whatever
/// comes: the attempt after the first such is made at once, too, and those after more in a row wait longer each time.
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

/// Whom it has met at the scheduler's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    /// Nobody takes connections.
    Nobody,
    /// Somebody has taken one, then for the first time, and has never answered.
    Somebody(Time),
    /// Somebody who does not speak this protocol.
    Stranger,
    /// A scheduler: it has answered.
    Scheduler,
}

#[derive(Debug)]
pub(super) struct Line {
    state: State,
    course: Course,
    backoff: Backoff,
    attempts: u64,
    met: Met,
    /// When the newest connection was made.
    up_since: Time,
    /// How many connections in a row ended soon and without an answer.
    brief: u32,
    /// Why the last attempt failed, or the last connection ended.
    last_reason: String,
    /// Whether that was because the scheduler wants to be asked again later.
    sent_away: bool,
    /// Since when a member has been without its scheduler.
    away_since: Option<Time>,
    /// When a member that is without its scheduler had heard it last.
    heard_before: Option<Time>,
    /// The last attempt came to stand, and has not been answered: a scheduler that is stopped, or very busy, may go on.
    is_taken: bool,
    away_told: bool,
    away_warned: bool,
    /// Why a scheduler was refused last.
    refused: String,
}

impl Line {
    pub(super) fn new(seed: u64, places: usize) -> Line {
        Line {
            state: State::Shut,
            course: Course::new(places),
            backoff: Backoff::new(seed),
            attempts: 0,
            met: Met::Nobody,
            up_since: Time::NEVER,
            brief: 0,
            last_reason: "no answer yet".to_owned(),
            sent_away: false,
            away_since: None,
            heard_before: None,
            is_taken: false,
            away_told: false,
            away_warned: false,
            refused: String::new(),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Registered | State::Attached)
    }

    pub(super) fn is_attached(&self) -> bool {
        self.state == State::Attached
    }

    pub(super) fn has_met_nobody(&self) -> bool {
        self.met == Met::Nobody
    }

    pub(super) fn has_met_the_scheduler(&self) -> bool {
        self.met == Met::Scheduler
    }

    /// It has answered, with a whole message.
    pub(super) fn meets_the_scheduler(&mut self) {
        self.met = Met::Scheduler;
    }

    /// It takes this node for one of its own.
    pub(super) fn finds_the_scheduler(&mut self) {
        self.course.found();
    }

    /// The scheduler is not where the last attempt was made: it is looked for at the next place. Whether at once.
    fn goes_on(&mut self) -> bool {
        if self.course.has_several() {
            self.met = Met::Nobody;
        }
        self.course.go_on(&self.last_reason)
    }

    /// When whoever listens where there may be another than the scheduler has taken too long to answer a registration.
    fn unanswered_at(&self, most: Duration) -> Time {
        let waits = self.course.has_several() && self.state == State::Registered && !self.has_met_the_scheduler();
        if waits {
            self.up_since + self.course.patience(most)
        } else {
            Time::NEVER
        }
    }

    /// What came in is of no version of this protocol. A scheduler that has once answered stays one, with a fault.
    pub(super) fn meets_a_stranger(&mut self) {
        if !self.has_met_the_scheduler() {
            self.met = Met::Stranger;
        }
    }

    /// Whether somebody who waits for the scheduler should know how it stands. A scheduler's first answer, to the first
    /// heartbeat, comes after an interval.
    pub(super) fn is_amiss(&self, now: Time, interval: Duration) -> bool {
        match self.met {
            _ if self.sent_away => false,
            Met::Scheduler => !self.is_up(),
            Met::Somebody(since) => !self.is_up() || now.since(since) >= interval + AFTER,
            Met::Nobody | Met::Stranger => true,
        }
    }

    pub(super) fn away_since(&self) -> Option<Time> {
        self.away_since
    }

    pub(super) fn heard_before(&self) -> Option<Time> {
        self.heard_before
    }

    pub(super) fn is_taken(&self) -> bool {
        self.is_taken
    }

    pub(super) fn last_reason(&self) -> &str {
        &self.last_reason
    }

    /// The scheduler answers: should this connection break, the next attempt is made at once.
    pub(super) fn answered(&mut self) {
        self.brief = 0;
        self.backoff.begin_at(0);
    }

    /// This connection has ended: what came before it no longer counts against the next attempt.
    fn ended(&mut self, now: Time) {
        if now.since(self.up_since) >= STOOD {
            self.brief = 0;
        }
        self.backoff.begin_at(self.brief);
        self.brief = self.brief.saturating_add(1);
    }

    pub(super) fn shut(&mut self) {
        self.state = State::Shut;
    }

    /// What is wrong, as far as it does not change with every attempt.
    pub(super) fn wrong(&self, profile: &Profile) -> String {
        match self.is_searching() {
            true => self.course.in_words(profile),
            false => format!("{}: {}", self.what(&profile.schedulers[self.course.at()]), self.last_reason),
        }
    }

    /// Whether it has not found the scheduler at the first of its places, and looks at the others.
    fn is_searching(&self) -> bool {
        self.course.has_several() && !self.has_met_the_scheduler() && !self.sent_away
    }

    /// What is wrong, in words that name the address and, where that may be wrong, its settings.
    pub(super) fn complaint(&self, profile: &Profile, waited: Duration) -> String {
        let (attempts, waited) = (self.attempts, seconds(waited));
        let (times, settings) = (if attempts == 1 { "attempt" } else { "attempts" }, &profile.scheduler_settings);
        if self.is_searching() {
            let met = self.course.in_words(profile);
            return format!(
                "this job's scheduler was not found at any of its ports ({attempts} {times} in {waited}): {met}; check that rank \
                 0 is started, and that {settings} lead to it"
            );
        }
        let what = self.what(&profile.schedulers[self.course.at()]);
        let advice = match self.met {
            Met::Scheduler => String::new(),
            Met::Nobody => format!("; check that the scheduler is started, and that {settings} lead to it"),
            Met::Somebody(_) | Met::Stranger => format!("; check that {settings} lead to the scheduler"),
        };
        format!("{what} ({attempts} {times} in {waited}): {}{advice}", self.last_reason)
    }

    fn what(&self, scheduler: &str) -> String {
        match self.met {
            _ if self.sent_away => format!("the scheduler at {scheduler} lets this node wait"),
            Met::Nobody => format!("the scheduler at {scheduler} could not be reached"),
            Met::Scheduler => format!("the scheduler at {scheduler} was lost"),
            Met::Stranger => format!("what listens at {scheduler} is not a muster scheduler"),
            Met::Somebody(_) => {
                format!("what listens at {scheduler} does not answer as a muster scheduler of this version does")
            }
        }
    }
}

impl Agent {
    /// What sentences call the scheduler.
    pub(super) fn scheduler(&self) -> &str {
        let course = &self.line.course;
        &self.profile.schedulers[if matches!(self.stage, Stage::Member(_)) { course.home() } else { course.at() }]
    }

    /// The scheduler is not where it was looked for: makes the next attempt at the next place, or plans it.
    fn try_elsewhere(&mut self, now: Time) {
        match self.line.goes_on() {
            true => self.try_after(now, Duration::ZERO),
            false => self.try_again(now),
        }
    }

    /// The scheduler of another job listens here.
    pub(super) fn pass_by(&mut self, now: Time, reason: String) {
        self.outputs.push_back(Output::Disconnect);
        self.forget_line(now, reason);
        if self.line.state != State::Shut {
            self.try_elsewhere(now);
        }
    }

    pub(super) fn has_several_places(&self) -> bool {
        self.line.course.has_several()
    }

    /// Makes the next attempt now, or plans it.
    pub(super) fn try_again(&mut self, now: Time) {
        let wait = self.line.backoff.next_wait();
        self.try_after(now, wait);
    }

    /// The scheduler wants to be asked again later.
    pub(super) fn wait_to_register(&mut self, now: Time, wait: Duration, reason: String) {
        self.line.last_reason = reason;
        self.line.sent_away = true;
        if let Stage::Forming(forming) = &mut self.stage {
            forming.complaints = Complaints::from(now + wait); // it is there
        }
        self.try_after(now, wait);
    }

    fn try_after(&mut self, now: Time, wait: Duration) {
        self.warn_of_absence(now);
        if wait > Duration::ZERO {
            self.line.state = State::Waiting(now + wait);
            return;
        }
        let left = match &self.stage {
            Stage::Forming(forming) => forming.deadline.since(now),
            _ => CONNECT_MAX,
        };
        self.line.state = State::Connecting;
        self.line.attempts += 1;
        let (place, most) = (self.line.course.at(), self.line.course.attempt_max());
        self.outputs.push_back(Output::Connect { place, within: left.clamp(Duration::from_millis(1), most) });
    }

    /// A job goes on while its nodes live, but not without a word. A connection that is soon there again needs none.
    fn warn_of_absence(&mut self, now: Time) {
        let Some(away) = self.line.away_since.map(|since| now.since(since)) else { return };
        if away < WARN_AWAY || self.line.away_warned || !self.line.away_told {
            return;
        }
        self.line.away_warned = true;
        let (scheduler, reason) = (self.scheduler(), &self.line.last_reason);
        let line = format!(
            "the scheduler at {scheduler} has been away for {:.1} s ({reason}): collectives go on, the store and what \
             else needs it waits",
            away.as_secs_f64()
        );
        self.outputs.push_back(Output::Log { quiet: false, line });
    }

    pub(super) fn connected(&mut self, now: Time, addresses: Vec<SocketAddr>) {
        if self.line.state != State::Connecting {
            return;
        }
        self.line.state = State::Registered;
        self.line.is_taken = true;
        if self.line.met == Met::Nobody {
            self.line.met = Met::Somebody(now);
            "it takes connections, but has said nothing yet".clone_into(&mut self.line.last_reason);
        }
        self.line.sent_away = false;
        self.line.up_since = now;
        self.pulse.begin(now);
        let mut register = self.profile.register.clone();
        register.addresses = addresses;
        if let Stage::Member(member) = &self.stage {
            register.instance = Some(member.instance);
            register.told = Told { epoch: member.epoch, change: self.store.change(), group: member.group };
        }
        self.send(Message::Register(register));
        if self.has_several_places() && matches!(self.stage, Stage::Forming(_)) {
            self.beat(now); // a scheduler answers at once, and by that it is known
        }
    }

    pub(super) fn connect_failed(&mut self, now: Time, reason: String) {
        if self.line.state != State::Connecting {
            return;
        }
        self.line.last_reason = reason;
        self.line.is_taken = false;
        self.line.sent_away = false;
        if !self.line.has_met_the_scheduler() {
            self.line.met = Met::Nobody;
        }
        self.try_elsewhere(now);
    }

    /// The connection ended, or was given up with a `Disconnect`.
    pub(super) fn line_lost(&mut self, now: Time, reason: String) {
        if self.line.is_up() {
            self.line.ended(now);
        }
        self.forget_line(now, reason);
        if self.line.state == State::Shut {
            return;
        }
        match self.line.has_met_the_scheduler() {
            true => self.try_again(now),
            false => self.try_elsewhere(now),
        }
    }

    /// The other side is not, or does not behave like, this job's scheduler: away, until it may have changed. One line for
    /// each reason.
    pub(super) fn refuse_line(&mut self, now: Time, reason: String) {
        self.outputs.push_back(Output::Disconnect);
        let line = format!("disconnected from {}: {reason}", self.profile.schedulers[self.line.course.at()]);
        if self.line.refused != reason {
            self.line.refused.clone_from(&reason);
            self.outputs.push_back(Output::Log { quiet: false, line });
            if self.line.away_told {
                self.tell(Event::SchedulerAway(Some(reason.clone()))); // that is why it goes on being away
            }
        }
        self.forget_line(now, reason);
        if self.line.state != State::Shut {
            let wait = if self.line.goes_on() { Duration::ZERO } else { self.line.backoff.long_wait() };
            self.try_after(now, wait);
        }
    }

    fn forget_line(&mut self, now: Time, reason: String) {
        self.store.disconnected();
        self.line.last_reason.clone_from(&reason);
        match &self.stage {
            Stage::Member(member) => {
                let quiet = member.leaving.is_some() || (self.broken.is_some() && !self.can_recover());
                self.line.away_since.get_or_insert(now);
                self.line.heard_before.get_or_insert(self.pulse.heard_at().min(now));
                if !self.line.away_told && !quiet {
                    self.line.away_told = true;
                    self.tell(Event::SchedulerAway(Some(reason)));
                }
            }
            Stage::Forming(forming) if forming.grace.is_some() => {
                self.line.shut();
                self.fail(self.time_up_sentence(now));
            }
            Stage::Forming(_) => {
                let scheduler = self.scheduler();
                let line =
                    format!("the connection to the scheduler at {scheduler} ended ({reason}): registering again");
                self.inform(line);
            }
            Stage::Over => {}
        }
    }

    /// The scheduler has confirmed this node's membership on this connection.
    pub(super) fn attached(&mut self) {
        self.line.state = State::Attached;
        self.line.answered();
        self.line.refused.clear();
        self.line.away_since = None;
        self.line.heard_before = None;
        self.line.is_taken = false;
        if std::mem::take(&mut self.line.away_warned) {
            let line = format!("the scheduler at {} is there again", self.scheduler());
            self.outputs.push_back(Output::Log { quiet: false, line });
        }
        if std::mem::take(&mut self.line.away_told) {
            self.tell(Event::SchedulerAway(None));
        }
    }

    pub(super) fn line_deadline(&self) -> Time {
        match self.line.state {
            State::Waiting(at) => at,
            State::Registered | State::Attached => {
                let doubt = if self.may_watch() { self.pulse.doubt_at() } else { Time::NEVER };
                self.pulse.beat_at().min(self.pulse.silent_at()).min(self.unanswered_at()).min(doubt)
            }
            State::Connecting | State::Shut => Time::NEVER,
        }
    }

    fn unanswered_at(&self) -> Time {
        match self.stage {
            Stage::Forming(_) => self.line.unanswered_at(self.pulse.patience()),
            _ => Time::NEVER, // a scheduler that was started again may have to read its journal
        }
    }

    pub(super) fn line_timer(&mut self, now: Time) {
        match self.line.state {
            State::Waiting(at) if now >= at => self.try_after(now, Duration::ZERO),
            State::Registered | State::Attached => {
                if now >= self.unanswered_at() {
                    self.outputs.push_back(Output::Disconnect);
                    self.line_lost(now, "it takes connections, but says nothing".to_owned());
                } else if now >= self.pulse.silent_at() {
                    let reason = format!("nothing heard from it for {}", seconds(self.pulse.patience()));
                    self.outputs.push_back(Output::Disconnect);
                    self.line_lost(now, reason);
                } else if now >= self.pulse.beat_at() {
                    self.beat(now);
                }
            }
            _ => {}
        }
    }

    /// A sign of life, now.
    pub(super) fn beat(&mut self, now: Time) {
        let (sequence, echoed) = self.pulse.beat(now);
        self.outputs.push_back(Output::SendHeartbeat { sequence, echoed });
    }
}
