//! Whether the peer's kernel answers on a link: sends it something to answer, and measures how long the answer takes.
//!
//! A kernel acknowledges what is sent to it, even if its process is stopped, or does not read. If nothing is under way, an empty
//! frame is sent, which the peer's library passes over: the kernel's own keepalive would ask once a second at most. Tested in
//! `link_test.rs`, and here.

use crate::net::{Acknowledged, Transport};
use crate::types::Time;
use crate::wire::{FrameHeader, LinkKind, HEADER_BYTES};
use std::io::{self, IoSlice};
use std::time::Duration;

/// What is owed on one link.
#[derive(Default)]
pub(crate) struct KeepAlive {
    /// How many bytes of an empty frame have still to go out.
    rest: usize,
    /// The time of the look that first found an answer owed, and how much had been acknowledged by then. Nothing has been since.
    owed: Option<(Time, u64)>,
    has_looked: bool,
}

impl KeepAlive {
    /// Returns for how long an answer has been owed. If this look is `late`, this host may not have run, and its kernel may
    /// not have read the answer: that time does not count. `is_idle`: no other frame is going out.
    pub(crate) fn look(&mut self, transport: &mut dyn Transport, now: Time, late: Duration, is_idle: bool) -> Duration {
        if !std::mem::replace(&mut self.has_looked, true) {
            transport.send_again_evenly();
        }
        let Acknowledged { bytes, owes } = transport.acknowledged();
        if !owes {
            self.owed = None;
            if is_idle && self.rest == 0 && transport.unsent() == 0 && transport.is_acknowledged() {
                (self.rest, self.owed) = (HEADER_BYTES, Some((now, bytes)));
            }
            // An error is ignored here: the next read of the link finds it.
            let _ = self.go_on(transport).and_then(|_| transport.flush());
            return Duration::ZERO;
        }
        let (since, _) = match &mut self.owed {
            Some(owed) if owed.1 == bytes => {
                owed.0.forgive(late, now);
                *owed
            }
            owed => *owed.insert((now, bytes)),
        };
        now.since(since)
    }

    /// Writes what is left of the frame, until the transport would block. Returns whether nothing is left.
    pub(crate) fn go_on(&mut self, transport: &mut dyn Transport) -> io::Result<bool> {
        while self.rest > 0 {
            let frame = FrameHeader { kind: LinkKind::KeepAlive as u8, flags: 0, node: 0, length: 0 }.encode();
            match transport.write(&[IoSlice::new(&frame[HEADER_BYTES - self.rest..])]) {
                Ok(count) => self.rest -= count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether a part of the frame has gone out, and the rest has not.
    pub(crate) fn is_mid_frame(&self) -> bool {
        (1..HEADER_BYTES).contains(&self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::base::control::tests::Scripted;

    #[test]
    fn the_first_look_has_the_kernel_send_again_evenly_and_asks_for_an_answer() {
        let mut transport = Scripted::default();
        transport.script().room = usize::MAX;
        assert!(!transport.script().sends_again_evenly);
        let owed = KeepAlive::default().look(&mut transport, Time(0), Duration::ZERO, true);
        assert_eq!(owed, Duration::ZERO);
        assert!(transport.script().sends_again_evenly);
        assert_eq!(transport.script().sent.len(), HEADER_BYTES);
    }
}
