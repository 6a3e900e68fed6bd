//! Signs of life of a link's other end, apart from the bytes that come: whether the peer's kernel still answers.

use std::time::Duration;

/// What the peer's kernel has acknowledged of what was sent to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// How many bytes: it grows with each of them.
    pub bytes: u64,
    /// Whether the kernel owes an answer.
    pub owes: bool,
}

/// Signs of life, and what our kernel does so that they come in time. A link that knows none keeps the defaults: it is never silent.
pub trait Signs {
    /// Whether the peer's kernel acknowledges what is written. (No kernel acknowledges bytes in memory that two processes share.)
    fn is_acknowledged(&self) -> bool {
        true
    }

    /// How long nothing has come from the peer's kernel, if it owes an answer to what was sent, or asked. A kernel answers even
    /// for a process that is stopped, or does not read. Too slow for the hot path.
    fn silence(&self) -> Option<Duration> {
        None
    }

    /// What the peer's kernel has acknowledged. Too slow for the hot path.
    fn acknowledged(&self) -> Acknowledged {
        Acknowledged::default()
    }

    /// Has our kernel ask the peer's kernel now and then from here on, so that silence shows even if nothing is under way.
    /// The kernel does not end a connection that has been silent only for `within`.
    fn ask_for_signs(&mut self, _within: Duration) {}

    /// Has our kernel repeat a few unacknowledged packets at even intervals for a second or so, and only then at growing ones.
    fn send_again_evenly(&mut self) {}

    /// Has our kernel take no more once about so many bytes wait in it to be sent. So urgent bytes that are written
    /// later wait only behind those bytes, and behind what is under way.
    fn bound_unsent(&mut self, _bytes: u32) {}
}
