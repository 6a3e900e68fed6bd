//! What goes out of the scheduler's brain: messages, records, log lines, and when it wants to be woken.
//!
//! Invariant: what goes out keeps its order, except what waits to be durable (`promises.rs`). Tested through the whole
//! brain.

use super::contract::{ConnId, Output};
use super::promises::{Behind, Promises, Queued};
use super::timers::{Due, Timers};
use crate::strangers::{Kind, Nuisances};
use crate::types::Time;
use crate::wire::{Message, Record};
use std::collections::VecDeque;
use std::time::Duration;

/// Everything that waits to be taken, and the timers.
#[derive(Debug)]
pub(super) struct Outbox {
    queued: VecDeque<Queued>,
    pub(super) promises: Promises,
    timers: Timers,
    armed: Option<Time>,
    /// Whether what is promised is written down first.
    durable: bool,
    nuisances: Nuisances,
}

impl Outbox {
    pub(super) fn new(durable: bool) -> Outbox {
        let (queued, promises, timers) = (VecDeque::new(), Promises::default(), Timers::default());
        Outbox { queued, promises, timers, armed: None, durable, nuisances: Nuisances::default() }
    }

    pub(super) fn pop(&mut self) -> Option<Queued> {
        self.queued.pop_front()
    }

    /// Puts back the rest of the output that was just taken.
    pub(super) fn put_back(&mut self, queued: Queued) {
        self.queued.push_front(queued);
    }

    pub(super) fn output(&mut self, output: Output) {
        self.queued.push_back(Queued::Ready(output));
    }

    /// A line that people should see.
    pub(super) fn warn(&mut self, line: String) {
        self.output(Output::Log { quiet: false, line });
    }

    /// A line for people who look for it.
    pub(super) fn note(&mut self, line: String) {
        self.output(Output::Log { quiet: true, line });
    }

    /// A line of a kind that anybody who reaches the port can cause as often as he likes: some are logged, the others
    /// counted.
    pub(super) fn nuisance(&mut self, kind: Kind, from: &str, line: &str) {
        if let Some(line) = self.nuisances.mention(kind, from, line) {
            self.warn(line);
        }
    }

    /// Such a line, for people who look for it.
    pub(super) fn quiet_nuisance(&mut self, kind: Kind, from: &str, line: &str) {
        if let Some(line) = self.nuisances.mention(kind, from, line) {
            self.note(line);
        }
    }

    /// Logs how many lines were only counted, once in a while.
    pub(super) fn tell_counted(&mut self, now: Time) {
        self.nuisances.due(now).into_iter().for_each(|line| self.warn(line));
    }

    /// Logs for the last time how many lines were only counted.
    pub(super) fn tell_last_counted(&mut self) {
        self.nuisances.left_out().into_iter().for_each(|line| self.warn(line));
    }

    pub(super) fn send(&mut self, conn: ConnId, message: Message) {
        let behind = match message {
            // These messages promise nothing.
            Message::HeartbeatEcho(_) | Message::Report | Message::NotYet(_) | Message::Rejected(_) => Behind::Nothing,
            Message::StoreReply(_)
            | Message::GroupMade(_)
            | Message::MadeByMembers(_)
            | Message::GroupFreed(_)
            | Message::Bye => Behind::Everything,
            _ => Behind::Epoch,
        };
        self.send_behind(behind, conn, message);
    }

    pub(super) fn send_behind(&mut self, behind: Behind, conn: ConnId, message: Message) {
        self.put_out(behind, Queued::Ready(Output::Send(conn, message)));
    }

    pub(super) fn put_out(&mut self, behind: Behind, queued: Queued) {
        if let Some(queued) = self.promises.hold_behind(behind, queued) {
            self.queued.push_back(queued);
        }
    }

    /// Closes a connection once all that is still to be sent on it has been sent.
    pub(super) fn close(&mut self, conn: ConnId) {
        let waits = self.promises.holds_for(conn);
        self.put_out(if waits { Behind::Everything } else { Behind::Nothing }, Queued::Ready(Output::Close(conn)));
    }

    /// Writes this down. Nothing follows the end of the job.
    pub(super) fn promise(&mut self, record: Record) {
        if self.durable && !self.promises.is_done() {
            let number = self.promises.count(&record);
            self.output(Output::Persist(number, record));
        }
    }

    /// All records up to this one are durable: what waited for them goes out.
    pub(super) fn persisted(&mut self, number: u64) {
        self.promises.are_durable(number);
        while let Some(queued) = self.promises.release() {
            self.queued.push_back(queued);
        }
    }

    pub(super) fn at(&mut self, time: Time, due: Due) {
        self.timers.at(time, due);
    }

    /// The next thing that is due now.
    pub(super) fn take_due(&mut self, now: Time) -> Option<Due> {
        self.timers.take(now)
    }

    /// When the next thing is due.
    pub(super) fn first_due(&self) -> Option<Time> {
        self.timers.first()
    }

    /// The scheduler itself was late: every timer moves.
    pub(super) fn shift_timers(&mut self, late: Duration) {
        self.timers.shift(late);
    }

    /// The armed time is used up: the driver is told the next time, whatever it is.
    pub(super) fn is_woken(&mut self) {
        self.armed = None;
    }

    /// Tells the driver when to wake the brain, if that has changed; at this time at the latest.
    pub(super) fn arm(&mut self, latest: Option<Time>) {
        let first = self.timers.first().into_iter().chain(latest).min();
        if first != self.armed {
            self.armed = first;
            self.output(Output::Arm(first.unwrap_or(Time::NEVER)));
        }
    }

    /// What waits to be taken.
    #[cfg(test)]
    pub(super) fn queued(&self) -> &VecDeque<Queued> {
        &self.queued
    }
}
