//! The one descriptor that a node keeps back, so that it can still tell a peer that it has no other.

use crate::net::{limit, Listener, TcpTransport, Waker};
use crate::types::Time;
use std::io;
use std::time::Duration;

/// For how long connections wait in the listener for a descriptor before their diallers are told that there is none.
const PATIENCE: Duration = Duration::from_secs(1);

/// The descriptor that is kept.
pub(crate) struct SpareDescriptor {
    /// Any descriptor will do.
    kept: Option<Waker>,
    /// Since when there has been no descriptor for a connection.
    want: Option<Time>,
}

impl SpareDescriptor {
    pub(crate) fn new() -> SpareDescriptor {
        SpareDescriptor { kept: Waker::new().ok(), want: None }
    }

    /// There is no shortage now.
    pub(crate) fn keep(&mut self) {
        self.want = None;
        self.refill();
    }

    fn refill(&mut self) {
        if self.kept.is_none() {
            self.kept = Waker::new().ok(); // tried again with the next connection
        }
    }

    /// A connection could not be let in because of this error. If it has waited long enough, it gets the descriptor that is kept.
    pub(crate) fn accept(
        &mut self,
        listener: &mut Listener,
        now: Time,
        error: &io::Error,
    ) -> Option<(TcpTransport, String)> {
        let whose = limit::shortage(error)?;
        self.refill();
        if now.since(*self.want.get_or_insert(now)) < PATIENCE {
            return None;
        }
        drop(self.kept.take()?);
        listener.accept().ok().map(|(transport, _)| (transport, whose))
    }
}
