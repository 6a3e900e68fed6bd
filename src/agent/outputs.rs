//! What the brain puts out, in order, until its driver has drained it.

use super::contract::{Event, Output};
use crate::types::Time;
use crate::wire::Message;
use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Outputs {
    queue: VecDeque<Output>,
    /// The time for which the driver's timer is set.
    armed: Option<Time>,
}

impl Outputs {
    pub(super) fn put(&mut self, output: Output) {
        self.queue.push_back(output);
    }

    pub(super) fn next(&mut self) -> Option<Output> {
        self.queue.pop_front()
    }

    pub(super) fn send(&mut self, message: Message) {
        self.put(Output::Send(message));
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.put(Output::Tell(event));
    }

    pub(super) fn inform(&mut self, line: String) {
        self.put(Output::Log { quiet: true, line });
    }

    pub(super) fn warn(&mut self, line: String) {
        self.put(Output::Log { quiet: false, line });
    }

    /// Sets the timer, if it is not set for then already.
    pub(super) fn arm(&mut self, at: Time) {
        if at != Time::NEVER && self.armed != Some(at) {
            self.armed = Some(at);
            self.put(Output::Arm(at));
        }
    }

    /// The timer has run out. Returns how late that is.
    pub(super) fn timer(&mut self, now: Time) -> Duration {
        self.armed.take().map_or(Duration::ZERO, |armed| now.since(armed))
    }
}
