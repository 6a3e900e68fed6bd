//! What becomes of the line to the scheduler, for the rest of the brain: this node registers on the line, and loses it.

use super::contract::Event;
use super::line::Loss;
use super::{Agent, Stage};
use crate::error::{Error, Status};
use crate::types::Time;
use crate::wire::Message;
use std::net::SocketAddr;

impl Agent {
    pub(super) fn connected(&mut self, now: Time, addresses: Vec<SocketAddr>) {
        if !self.line.connected(now) {
            return;
        }
        let mut register = self.profile.register.clone();
        register.addresses = addresses;
        if let Stage::Member(member) = &self.stage {
            register.instance = Some(member.instance);
            register.told = member.told(self.store.change());
        }
        self.out.send(Message::Register(register));
        if self.line.search.has_several_places() && matches!(self.stage, Stage::Forming(_)) {
            self.line.beat(now, &mut self.out); // a scheduler answers at once: by this answer it is known
        }
    }

    /// The connection is lost, for this reason.
    pub(super) fn lost(&mut self, now: Time, loss: Loss, reason: String) {
        self.store.disconnected();
        if matches!(&self.stage, Stage::Forming(forming) if forming.is_in_grace()) {
            self.line.lost_for_good(reason);
            return self.end(Event::Failed(self.time_up(now)));
        }
        let is_awaited = self.stage.member().is_some_and(|member| member.cares());
        self.line.lost(now, loss, reason, is_awaited, &mut self.out);
    }

    /// The other side is not this job's scheduler, or does not behave like it.
    pub(super) fn refuse(&mut self, now: Time, reason: String) {
        self.lost(now, Loss::Refused, reason);
    }

    /// This node's own words for a cluster that was not formed in time.
    pub(super) fn time_up(&self, now: Time) -> Error {
        let search = &self.line.search;
        let complaint = search.complaint(now);
        let setting = &self.profile.forming_setting;
        if search.has_met_nobody() {
            return Error::new(Status::Unreachable, format!("forming timed out ({setting}): {complaint}"));
        }
        let why = match self.line.is_up() && search.has_met_the_scheduler() {
            true => format!("the scheduler at {} did not say who is missing", self.line.scheduler()),
            false => complaint,
        };
        let limit = self.profile.forming_timeout;
        let limit = limit.map_or_else(String::new, |it| format!(" within {} s ({setting})", it.as_secs_f64()));
        let status = if search.is_not_trusted() { Status::Security } else { Status::Timeout };
        Error::new(status, format!("the cluster was not complete{limit}, and {why}"))
    }
}
