//! What the caller wants.

use super::contract::{Command, Event};
use super::store::StoreRequest;
use super::{seconds, Agent, Stage};
use crate::error::{Error, Status};
use crate::types::Time;
use crate::wire::{Message, StoreCancel};
use std::time::Duration;

impl Agent {
    pub(super) fn command(&mut self, now: Time, command: Command) {
        let message = match command {
            Command::Leave => return self.leave(now),
            Command::Report => {
                if self.line.is_attached() {
                    self.beat(now);
                }
                return;
            }
            Command::Store { ask, operation, keys, delta, expected_bytes, value } => {
                return self.store_begin(now, ask, StoreRequest { operation, keys, delta, expected_bytes, value });
            }
            Command::StoreCancel(ask) => match self.store.cancel(ask) {
                true => Message::StoreCancel(StoreCancel { request: ask }),
                false => return,
            },
            Command::WhereAre(ask, group, sequence, about) => self.asks.where_are(ask, group, sequence, about),
            Command::Locate(ask, index) => self.asks.locate(ask, index),
            Command::Recover(inside) => match &self.stage {
                Stage::Member(member) if member.expelled || self.is_aborted() => {
                    let failure = self.broken.clone();
                    return failure.into_iter().for_each(|failure| self.tell(Event::NotRecovered(failure)));
                }
                // Also to one who does not wait any more: else the scheduler's answer to that would hide it.
                Stage::Member(_) if self.asks.no_next_epoch().is_some() => {
                    let failure = self.asks.no_next_epoch();
                    return failure.into_iter().for_each(|failure| self.tell(Event::NotRecovered(failure)));
                }
                Stage::Member(member) if self.broken.is_none() || self.profile.register.recovery => {
                    self.asks.recover(member.epoch, inside)
                }
                _ => return,
            },
            Command::MakeGroup(wanted) => {
                let message = self.asks.make_group(wanted);
                self.answer_timer(now);
                message
            }
            Command::FreeGroup(group) => self.asks.free_group(group),
            // A broken cluster has answered these already; one that may be whole again can still be aborted.
            Command::Suspect { .. } | Command::Revoke(_) if self.broken.is_some() => return,
            Command::Abort { .. } if self.broken.is_some() && !self.can_recover() => return,
            Command::Suspect { peer, evidence } => self.asks.suspect(peer, evidence),
            Command::Revoke(failure) => match self.asks.known(failure.group) {
                Some(known) => return self.tell(known),
                None => {
                    self.gives_up(&failure);
                    self.asks.revoke(failure)
                }
            },
            Command::Abort { code, reason } => self.asks.abort(code, reason),
            Command::GivenUp(failure) => return self.heard_of_verdict(now, failure),
            Command::Aborted(failure) => return self.heard_of_abort(now, failure),
        };
        self.send_if_attached(message);
    }

    fn store_begin(&mut self, now: Time, ask: u64, request: StoreRequest) {
        let expelled = matches!(&self.stage, Stage::Member(member) if member.expelled);
        let begun = match (&self.broken, expelled) {
            (Some(failure), true) => Err(failure.clone().into()),
            _ => self.store.begin(ask, request),
        };
        match begun {
            Ok(()) if self.line.is_attached() => {
                self.store.messages(ask).into_iter().for_each(|message| self.send(message));
            }
            Ok(()) => self.answer_timer(now),
            Err(error) => self.tell(Event::Stored(ask, Err(error))),
        }
    }

    /// When what was asked of the store, and what groups were to be made, ends without an answer: the scheduler has been silent for
    /// a heartbeat time-out and takes no connection, and without recovery nobody can bring back what it kept. One that is only
    /// stopped is waited for.
    pub(super) fn answer_deadline(&self) -> Time {
        let is_over = !self.profile.register.recovery && !self.line.is_taken();
        let is_asked = self.store.is_asked() || self.asks.makes_groups();
        let heard = self.line.heard_before().filter(|_| is_over && is_asked);
        heard.map_or(Time::NEVER, |heard| heard + self.pulse.timeout())
    }

    pub(super) fn answer_timer(&mut self, now: Time) {
        if now < self.answer_deadline() || !matches!(self.stage, Stage::Member(_)) {
            return;
        }
        let silent = seconds(self.line.heard_before().map_or(Duration::ZERO, |heard| now.since(heard)));
        let (scheduler, reason) = (self.scheduler(), self.line.last_reason());
        let gone =
            format!("the scheduler at {scheduler} has not been heard for {silent} ({reason}), and without recovery");
        let error = |what: &str| Error::new(Status::Unreachable, format!("{gone} {what}"));
        let (store, groups) = (error("its store does not come back"), error("no group can be made any more"));
        let mut given_up = self.store.give_up_all(&store);
        given_up.extend(self.asks.make_no_groups(&groups));
        given_up.into_iter().for_each(|event| self.tell(event));
    }

    /// What waits for an answer is sent at the next attachment otherwise.
    fn send_if_attached(&mut self, message: Message) {
        if self.line.is_attached() {
            self.send(message);
        }
    }
}
