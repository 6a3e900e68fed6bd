//! What this node has met where it looks for its scheduler, and how it says so.

use super::complaints::AFTER;
use super::contract::Profile;
use super::course::Course;
use super::seconds::seconds;
use crate::types::Time;
use std::time::Duration;

/// The kind of listener that this node has met at the scheduler's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    /// Nobody accepts connections.
    Nobody,
    /// Somebody has accepted a connection, at this time for the first time, and has never answered.
    Somebody(Time),
    /// Somebody is there who does not speak this protocol.
    Stranger,
    /// One side does not accept the other, because of certificates or the job's secret.
    Untrusted,
    /// A scheduler: it has answered.
    Scheduler,
}

#[derive(Debug)]
pub(super) struct Search {
    course: Course,
    /// The settings that lead to the scheduler, in the user's words.
    settings: String,
    began: Time,
    attempts: u64,
    met: Met,
    /// Why the last attempt failed, or the last connection ended.
    last_reason: String,
    /// Why the last stranger was one, or why one side last refused the other.
    why_not: String,
    /// Whether the last connection ended because the scheduler wants to be asked again later.
    sent_away: bool,
}

impl Search {
    pub(super) fn new(profile: &Profile, now: Time) -> Search {
        Search {
            course: Course::new(profile.schedulers.clone()),
            settings: profile.scheduler_settings.clone(),
            began: now,
            attempts: 0,
            met: Met::Nobody,
            last_reason: "no answer yet".to_owned(),
            why_not: String::new(),
            sent_away: false,
        }
    }

    /// The name of the place where it looks now.
    pub(super) fn place(&self) -> &str {
        self.course.place()
    }

    /// The name of the place where the scheduler was found last.
    pub(super) fn home(&self) -> &str {
        self.course.home()
    }

    pub(super) fn has_several_places(&self) -> bool {
        self.course.has_several()
    }

    pub(super) fn has_met_nobody(&self) -> bool {
        self.met == Met::Nobody
    }

    pub(super) fn has_met_the_scheduler(&self) -> bool {
        self.met == Met::Scheduler
    }

    /// Whether the search ends because one side does not accept the other.
    pub(super) fn is_not_trusted(&self) -> bool {
        self.met == Met::Untrusted && !self.sent_away
    }

    pub(super) fn last_reason(&self) -> &str {
        &self.last_reason
    }

    /// An attempt is made: at which place, and how long it may take.
    pub(super) fn attempt(&mut self) -> (usize, Duration) {
        self.attempts += 1;
        (self.course.at(), self.course.attempt_max())
    }

    pub(super) fn connected(&mut self, now: Time) {
        if self.met == Met::Nobody {
            self.met = Met::Somebody(now);
            "it takes connections, but has said nothing yet".clone_into(&mut self.last_reason);
        }
        self.sent_away = false;
    }

    pub(super) fn connect_failed(&mut self, reason: String) {
        self.lost(reason);
        self.sent_away = false;
        if matches!(self.met, Met::Somebody(_)) {
            self.met = Met::Nobody;
        }
    }

    /// The connection is lost, for this reason. A scheduler's time for forming may end sooner than this node's: that it
    /// has gone by then is not the reason why the cluster did not form.
    pub(super) fn lost(&mut self, reason: String) {
        self.last_reason = match self.met {
            Met::Stranger | Met::Untrusted if reason != self.why_not => {
                format!("{}; the last attempt: {reason}", self.why_not)
            }
            _ => reason,
        };
    }

    pub(super) fn sent_away(&mut self, reason: String) {
        self.last_reason = reason;
        self.sent_away = true;
    }

    /// How long a listener has to answer a registration, where it may be another than the scheduler.
    pub(super) fn patience(&self, most: Duration) -> Option<Duration> {
        let may_be_another = self.course.has_several() && !self.has_met_the_scheduler();
        may_be_another.then(|| self.course.patience(most))
    }

    /// The scheduler is not where the last attempt was made: it is looked for at the next place. Returns whether that
    /// is tried at once.
    pub(super) fn goes_on(&mut self) -> bool {
        if self.course.has_several() {
            self.met = Met::Nobody;
        }
        self.course.go_on(&self.last_reason)
    }

    /// It has answered, with a whole message.
    pub(super) fn meets_the_scheduler(&mut self) {
        self.met = Met::Scheduler;
    }

    /// It takes this node for one of its own.
    pub(super) fn finds_the_scheduler(&mut self) {
        self.course.found();
    }

    /// What came in is of no version of this protocol, for this reason. A scheduler that has once answered is still a
    /// scheduler, with a fault.
    pub(super) fn meets_a_stranger(&mut self, reason: &str) {
        reason.clone_into(&mut self.why_not);
        if !self.has_met_the_scheduler() {
            self.met = Met::Stranger;
        }
    }

    /// One side does not accept the other, for this reason.
    pub(super) fn meets_one_not_trusted(&mut self, reason: &str) {
        reason.clone_into(&mut self.why_not);
        if !self.has_met_the_scheduler() {
            self.met = Met::Untrusted;
        }
    }

    /// Whether something is wrong that somebody who waits for the scheduler should know. A scheduler's first answer, to
    /// the first heartbeat, comes after an interval.
    pub(super) fn is_amiss(&self, now: Time, is_up: bool, interval: Duration) -> bool {
        match self.met {
            _ if self.sent_away => false,
            Met::Scheduler => !is_up,
            Met::Somebody(since) => !is_up || now.since(since) >= interval + AFTER,
            Met::Nobody | Met::Stranger | Met::Untrusted => true,
        }
    }

    /// What is wrong, as far as it does not change with every attempt.
    pub(super) fn wrong(&self) -> String {
        match self.is_searching() {
            true => self.course.in_words(),
            false => format!("{}: {}", self.what(), self.last_reason),
        }
    }

    /// Whether it has not found the scheduler at the first of its places, and looks at the others.
    fn is_searching(&self) -> bool {
        self.course.has_several() && !self.has_met_the_scheduler() && !self.sent_away
    }

    /// What is wrong, in words that name the address and, where that may be wrong, its settings.
    pub(super) fn complaint(&self, now: Time) -> String {
        let (attempts, waited, settings) = (self.attempts, seconds(now.since(self.began)), &self.settings);
        let times = if attempts == 1 { "attempt" } else { "attempts" };
        if self.is_searching() {
            let met = self.course.in_words();
            return format!(
                "this job's scheduler was not found at any of its ports ({attempts} {times} in {waited}): {met}; check that rank \
                 0 is started, and that {settings} lead to it"
            );
        }
        let what = self.what();
        let advice = match self.met {
            Met::Scheduler | Met::Untrusted => String::new(),
            Met::Nobody => format!("; check that the scheduler is started, and that {settings} lead to it"),
            Met::Somebody(_) | Met::Stranger => format!("; check that {settings} lead to the scheduler"),
        };
        format!("{what} ({attempts} {times} in {waited}): {}{advice}", self.last_reason)
    }

    fn what(&self) -> String {
        let scheduler = self.course.place();
        match self.met {
            _ if self.sent_away => format!("the scheduler at {scheduler} lets this node wait"),
            Met::Nobody => format!("the scheduler at {scheduler} could not be reached"),
            Met::Scheduler => format!("the scheduler at {scheduler} was lost"),
            Met::Stranger => format!("what listens at {scheduler} is not a muster scheduler"),
            Met::Untrusted => format!("what listens at {scheduler} and this node do not accept each other"),
            Met::Somebody(_) => {
                format!("what listens at {scheduler} does not answer as a muster scheduler of this version does")
            }
        }
    }
}
