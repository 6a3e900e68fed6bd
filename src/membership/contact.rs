//! One node's signs of life: when it was heard, and what it has heard. Tested in `liveness_test.rs`.

use crate::types::Time;
use crate::wire::Heartbeat;
use std::time::Duration;

/// When a node was heard, and what it has heard.
#[derive(Debug)]
pub(super) struct Contact {
    /// Its last sign of life.
    pub(super) heard: Time,
    /// When the newest message was sent that the node has shown to have heard. It may be a later time, but not before the
    /// last interval before the node showed it.
    hearing: Time,
    /// Its newest heartbeat says that it has not heard what was sent before it.
    is_deaf: bool,
    /// When its present connection began.
    attached: Time,
    echoed: u64,
    /// When its last heartbeat came; none yet in this connection.
    pub(super) heartbeat: Option<Time>,
    /// When it was last asked for a heartbeat.
    pub(super) asked: Option<Time>,
}

impl Contact {
    pub(super) fn new(now: Time) -> Contact {
        Contact { heard: now, hearing: now, is_deaf: false, attached: now, echoed: 0, heartbeat: None, asked: None }
    }

    /// A new connection stands. The node counts as having heard what was sent at `hearing`, but not `now`. Otherwise a
    /// node that hears nothing could put its end off for ever by coming back.
    pub(super) fn attach(&mut self, now: Time, hearing: Time) {
        self.heard = now;
        self.hearing = self.hearing.max(hearing);
        self.attached = now;
        self.heartbeat = None;
        self.asked = None;
    }

    /// A heartbeat came.
    pub(super) fn heartbeat(&mut self, now: Time, interval: Duration, heartbeat: &Heartbeat) {
        // The node is not deaf if its newest echo is that of the heartbeat before this one, or newer than the one it
        // told before. Then it has heard what was sent when the heartbeat before came, and nothing says that it has
        // heard anything since. If that was long ago there was nothing to hear: its heartbeats were held up, behind a
        // long value or because its host is busy.
        self.is_deaf = heartbeat.echoed <= self.echoed && heartbeat.sequence > heartbeat.echoed.saturating_add(1);
        if let Some(before) = self.heartbeat.filter(|_| !self.is_deaf) {
            self.hearing = self.hearing.max(before).max(now - interval);
        }
        self.echoed = heartbeat.echoed;
        self.heartbeat = Some(now);
        self.asked = None;
    }

    /// The node has answered the first message on its present connection.
    pub(super) fn has_answered(&mut self) {
        self.hearing = self.hearing.max(self.attached);
        self.is_deaf = false;
    }

    /// How long it has not heard the scheduler, by what its heartbeats say.
    pub(super) fn unhearing(&self, now: Time) -> Duration {
        match self.is_deaf {
            true => now.since(self.hearing),
            false => Duration::ZERO,
        }
    }

    /// The times that move if the scheduler itself stood still.
    pub(super) fn times(&mut self) -> [&mut Time; 3] {
        [&mut self.heard, &mut self.hearing, &mut self.attached]
    }
}
