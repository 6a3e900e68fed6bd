//! What a link may know of the other end's system beside the bytes that come: whether it still answers.

use std::time::Duration;

/// What the peer's kernel has acknowledged of what was sent to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// How many bytes: it grows with each of them.
    pub bytes: u64,
    /// Whether it owes an answer.
    pub owes: bool,
}

/// Signs of life. A link that knows of none keeps the defaults: it is never silent.
pub trait Signs {
    /// Whether the peer's kernel acknowledges what is written. (That of memory which two processes share does not.)
    fn is_acknowledged(&self) -> bool {
        true
    }

    /// How long nothing has come from the peer's kernel, if it owes an answer to what was sent, or asked. It answers for a
    /// process that is stopped, or does not read. Of no use on the hot path.
    fn silence(&self) -> Option<Duration> {
        None
    }

    /// What the peer's kernel has acknowledged. Of no use on the hot path.
    fn acknowledged(&self) -> Acknowledged {
        Acknowledged::default()
    }

    /// Has our kernel ask the peer's now and then from here on, so that its silence shows where nothing is under way, too. A
    /// connection that has been silent for `within` is not yet ended for that.
    fn ask_for_signs(&mut self, _within: Duration) {}

    /// Has our kernel send what few packets the peer's does not acknowledge again evenly, for a second or so, and not ever more
    /// seldom from the first.
    fn send_again_evenly(&mut self) {}

    /// Has our kernel take no more once about so many bytes wait in it to be sent. So urgent bytes that are written
    /// later wait only behind these and what is under way.
    fn bound_unsent(&mut self, _bytes: u32) {}
}
