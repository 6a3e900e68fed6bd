//! What the caller wants.

use super::contract::{Command, Event};
use super::seconds::seconds;
use super::store::StoreRequest;
use super::watching::Around;
use super::Agent;
use crate::error::{Error, Status};
use crate::types::Time;
use crate::wire::{Message, StoreCancel};

impl Agent {
    pub(super) fn command(&mut self, now: Time, command: Command) {
        let is_over = self.stage.member().is_some_and(|member| member.end_cause().is_some());
        let is_broken = self.stage.member().is_some_and(|member| member.first_cause().is_some());
        let message = match command {
            Command::Leave => return self.leave(now),
            Command::Report => {
                if self.line.is_attached() {
                    self.line.beat(now, &mut self.out);
                }
                return;
            }
            Command::Store { ask, operation, keys, delta, expected_bytes, value } => {
                return self.store_begin(ask, StoreRequest { operation, keys, delta, expected_bytes, value });
            }
            Command::StoreCancel(ask) => match self.store.cancel(ask) {
                true => Message::StoreCancel(StoreCancel { request: ask }),
                false => return,
            },
            Command::WhereAre(ask, group, sequence, about) => self.asks.where_are(ask, group, sequence, about),
            Command::Locate(ask, index) => self.asks.locate(ask, index),
            Command::Recover(is_inside) => return self.recover(is_inside),
            Command::MakeGroup(wanted) => self.asks.make_group(wanted),
            Command::MakeByMembers(wanted) => {
                let Some(message) = self.asks.make_by_members(wanted) else { return };
                message
            }
            Command::FreeGroup(group) => self.asks.free_group(group),
            // A broken cluster has answered these already; one that may be whole again can still be aborted.
            Command::Suspect { .. } | Command::Revoke(_) if is_broken => return,
            Command::Abort { .. } if is_over => return,
            Command::Suspect { peer, evidence } => self.asks.suspect(peer, evidence),
            Command::Revoke(failure) => match self.asks.known(failure.group) {
                Some(known) => return self.out.tell(known),
                None => {
                    let mut around = Around::new(now, &self.line, &self.stage, &mut self.asks, &mut self.out);
                    self.watch.gives_up(&failure, &mut around);
                    self.asks.revoke(failure)
                }
            },
            Command::Abort { code, reason } => self.asks.abort(code, reason),
            Command::CalledLost(failure) => return self.heard_of_verdict(now, failure),
            Command::Aborted(failure) => return self.heard_of_abort(now, failure),
        };
        self.send_if_attached(message);
    }

    /// The caller waits for the next epoch, or not any more.
    fn recover(&mut self, is_inside: bool) {
        let Some(member) = self.stage.member() else { return };
        let is_in_vain = member.is_put_out() || member.is_aborted();
        // A caller that stops waiting is told, too: otherwise it would only learn the scheduler's answer to that.
        let why_not = if is_in_vain { member.first_cause().cloned() } else { self.asks.no_next_epoch() };
        if let Some(failure) = why_not {
            self.out.tell(Event::NotRecovered(failure));
        } else if !is_in_vain && (member.first_cause().is_none() || self.profile.register.recovery) {
            let message = self.asks.recover(member.epoch, is_inside);
            self.send_if_attached(message);
        }
    }

    fn store_begin(&mut self, ask: u64, request: StoreRequest) {
        let put_out = self.stage.member().filter(|member| member.is_put_out());
        let begun = match put_out.and_then(|member| member.first_cause()) {
            Some(failure) => Err(failure.clone().into()),
            None => self.store.begin(ask, request),
        };
        match begun {
            Ok(()) if self.line.is_attached() => {
                self.store.messages(ask).into_iter().for_each(|message| self.out.send(message));
            }
            Ok(()) => {}
            Err(error) => self.out.tell(Event::Stored(ask, Err(error))),
        }
    }

    /// When questions to the store, and groups to be made, end without an answer: the scheduler is gone, and without
    /// recovery nobody can bring back what it kept.
    pub(super) fn answer_deadline(&self) -> Time {
        let is_asked = self.store.is_asked() || self.asks.makes_groups();
        match is_asked && !self.profile.register.recovery {
            true => self.line.gone_at(),
            false => Time::NEVER,
        }
    }

    pub(super) fn answer_timer(&mut self, now: Time) {
        if now < self.answer_deadline() || self.stage.member().is_none() {
            return;
        }
        let silent = seconds(now.since(self.line.heard_at()));
        let (scheduler, reason) = (self.line.scheduler(), self.line.search.last_reason());
        let gone =
            format!("the scheduler at {scheduler} has not been heard for {silent} ({reason}), and without recovery");
        let error = |what: &str| Error::new(Status::Unreachable, format!("{gone} {what}"));
        let (store, groups) = (error("its store does not come back"), error("no group can be made any more"));
        let mut given_up = self.store.give_up_all(&store);
        given_up.extend(self.asks.make_no_groups(&groups));
        given_up.into_iter().for_each(|event| self.out.tell(event));
    }

    /// Sends a message if this node is attached. Otherwise what waits for an answer is sent at the next attachment.
    fn send_if_attached(&mut self, message: Message) {
        if self.line.is_attached() {
            self.out.send(message);
        }
    }
}
