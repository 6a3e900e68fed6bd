//! Heartbeats of one connection: when the next is due, and since when the scheduler has been silent.

use crate::types::Time;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Pulse {
    timeout: Duration,
    sequence: u64,
    echoed: u64,
    beat_at: Time,
    heard_at: Time,
}

impl Pulse {
    pub(super) fn new(timeout: Duration) -> Pulse {
        let mut pulse =
            Pulse { timeout: Duration::ZERO, sequence: 0, echoed: 0, beat_at: Time::NEVER, heard_at: Time(0) };
        pulse.agree(Time(0), timeout);
        pulse
    }

    /// How long silence lasts before it means that the connection is broken. It is an interval less than the scheduler
    /// takes to give this node up: the scheduler may be speaking to nobody over this connection.
    pub(super) fn patience(&self) -> Duration {
        self.timeout - self.interval()
    }

    /// This time-out holds for all nodes. It is five milliseconds at least, so that the interval is never zero. If a shorter
    /// interval makes the next heartbeat due sooner, it is sent sooner: it shows the scheduler that this node hears.
    pub(super) fn agree(&mut self, now: Time, timeout: Duration) {
        self.timeout = timeout.max(Duration::from_millis(5));
        self.beat_at = self.beat_at.min(now + self.interval());
        self.heard_at = self.heard_at.max(now);
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn interval(&self) -> Duration {
        self.timeout / 5
    }

    /// A connection begins. Sequence numbers go on from the one before.
    pub(super) fn begin(&mut self, now: Time) {
        self.heard_at = now;
        self.beat_at = now + self.interval();
    }

    pub(super) fn heard(&mut self, now: Time) {
        self.heard_at = self.heard_at.max(now);
    }

    pub(super) fn echo(&mut self, sequence: u64) {
        if sequence <= self.sequence {
            self.echoed = self.echoed.max(sequence);
        }
    }

    /// This process stood still for `pause`: it could not have heard anything in that time.
    pub(super) fn paused(&mut self, now: Time, pause: Duration) {
        self.heard_at = (self.heard_at + pause).min(now.max(self.heard_at));
    }

    /// The numbers of the next heartbeat.
    pub(super) fn beat(&mut self, now: Time) -> (u64, u64) {
        self.sequence += 1;
        self.beat_at = now + self.interval();
        (self.sequence, self.echoed)
    }

    pub(super) fn beat_at(&self) -> Time {
        self.beat_at
    }

    /// When the scheduler was heard last on this connection, or when that began.
    pub(super) fn heard_at(&self) -> Time {
        self.heard_at
    }

    /// When the silence is too long for a single late echo: two echoes were missed then.
    pub(super) fn doubt_at(&self) -> Time {
        self.heard_at + self.interval() * 5 / 2
    }

    pub(super) fn silent_at(&self) -> Time {
        self.heard_at + self.patience()
    }
}
