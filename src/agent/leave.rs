//! Leaving: say so, wait for the scheduler's Bye, and never for long.
//!
//! With the scheduler in reach the wait is the finalize time-out; without it, it ends 5 s after the scheduler was last
//! there (but not sooner than 1 s after the wish to leave), for nobody but the scheduler misses the goodbye. A broken
//! cluster is left within 1 s, and at once where the scheduler is away, unless that does not know yet, and is to know, with
//! recovery, that the job was aborted: it would wait for nodes that nobody starts again.

use super::contract::Event;
use super::{Agent, Stage};
use crate::types::Time;
use crate::wire::Message;
use std::time::Duration;

/// How long the scheduler may be away before leaving does without it.
const AWAY_MAX: Duration = Duration::from_secs(5);
/// How long leaving may take at most where nobody waits for it, and at least looks for the scheduler.
const SHORT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Leaving {
    since: Time,
    until: Time,
}

impl Agent {
    pub(super) fn leave(&mut self, now: Time) {
        let timeout = match self.broken {
            Some(_) => self.profile.finalize_timeout.min(SHORT),
            None => self.profile.finalize_timeout,
        };
        match &mut self.stage {
            Stage::Member(member) if member.expelled => {
                self.end(Event::Left(Some("the scheduler had put this node out of the cluster".to_owned())));
            }
            Stage::Member(member) => {
                if member.leaving.is_none() {
                    member.leaving = Some(Leaving { since: now, until: now + timeout });
                    self.says_that_it_leaves();
                    if self.line.is_attached() {
                        self.send(Message::Leave);
                    }
                }
            }
            Stage::Forming(_) => {
                if self.line.is_up() {
                    self.send(Message::Leave);
                }
                self.end(Event::Left(None));
            }
            Stage::Over => {}
        }
    }

    pub(super) fn bye(&mut self, now: Time) {
        match &self.stage {
            Stage::Member(member) if member.leaving.is_some() => self.end(Event::Left(None)),
            _ => self.refuse_line(now, "it said goodbye to a node that is not leaving".to_owned()),
        }
    }

    /// The cluster broke while this node was leaving.
    pub(super) fn hasten_leave(&mut self, now: Time) {
        if let Stage::Member(member) = &mut self.stage {
            if let Some(leaving) = &mut member.leaving {
                leaving.until = leaving.until.min(now + SHORT);
            }
        }
    }

    pub(super) fn leave_deadline(&self) -> Time {
        let Stage::Member(member) = &self.stage else { return Time::NEVER };
        let Some(leaving) = &member.leaving else { return Time::NEVER };
        match self.line.away_since() {
            // Of a broken job the scheduler may well have gone for good.
            Some(_) if self.broken.is_some() && !(self.abort_is_news && self.profile.register.recovery) => {
                leaving.since
            }
            Some(away) => leaving.until.min((away + AWAY_MAX).max(leaving.since + SHORT)),
            None => leaving.until,
        }
    }

    pub(super) fn leave_timer(&mut self, now: Time) {
        if now < self.leave_deadline() {
            return;
        }
        let scheduler = self.scheduler();
        let warning = match self.line.is_attached() {
            true => format!("the scheduler at {scheduler} did not confirm in time that this node has left"),
            false => {
                format!("left without telling the scheduler at {scheduler}, which is away: {}", self.line.last_reason())
            }
        };
        self.end(Event::Left(Some(warning)));
    }
}
