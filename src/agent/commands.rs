//! What the caller wants.

use super::contract::{Command, Event};
use super::store::Request;
use super::{Agent, Stage};
use crate::types::Time;
use crate::wire::{Message, StoreCancel};

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
                return self.store_begin(ask, Request { operation, keys, delta, expected_bytes, value });
            }
            Command::StoreCancel(ask) => match self.store.cancel(ask) {
                true => Message::StoreCancel(StoreCancel { request: ask }),
                false => return,
            },
            Command::WhereAre(ask, group, sequence) => self.asks.where_are(ask, group, sequence),
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
            Command::MakeGroup(wanted) => self.asks.make_group(wanted),
            Command::FreeGroup(group) => self.asks.free_group(group),
            // A broken cluster has answered these already; one that may be whole again can still be aborted.
            Command::Suspect { .. } | Command::Revoke(_) if self.broken.is_some() => return,
            Command::Abort { .. } if self.broken.is_some() && !self.can_recover() => return,
            Command::Suspect { peer, evidence } => self.asks.suspect(peer, evidence),
            Command::Revoke(failure) => match self.asks.known(failure.group) {
                Some(known) => return self.tell(known),
                None => self.asks.revoke(failure),
            },
            Command::Abort { code, reason } => self.asks.abort(code, reason),
            Command::GivenUp(failure) => return self.heard_of_verdict(now, failure),
            Command::Aborted(failure) => return self.heard_of_abort(now, failure),
        };
        self.send_if_attached(message);
    }

    fn store_begin(&mut self, ask: u64, request: Request) {
        let expelled = matches!(&self.stage, Stage::Member(member) if member.expelled);
        let begun = match (&self.broken, expelled) {
            (Some(failure), true) => Err(failure.clone().into()),
            _ => self.store.begin(ask, request),
        };
        match begun {
            Ok(()) if self.line.is_attached() => {
                self.store.messages(ask).into_iter().for_each(|message| self.send(message));
            }
            Ok(()) => {}
            Err(error) => self.tell(Event::Stored(ask, Err(error))),
        }
    }

    /// What waits for an answer is sent at the next attachment otherwise.
    fn send_if_attached(&mut self, message: Message) {
        if self.line.is_attached() {
            self.send(message);
        }
    }
}
