//! How a run is brought to an end, in time: part of `supervise.rs`.

use std::time::Duration;

/// Until when who is left alone.
pub(super) struct Stop {
    /// A failure or the user is the reason; otherwise there is nothing left to do.
    pub(super) hard: bool,
    pub(super) workers_at: Option<Duration>,
    pub(super) scheduler_at: Option<Duration>,
    pub(super) kill_at: Duration,
    /// When the scheduler is killed, as the others at `kill_at`.
    pub(super) kill_scheduler_at: Duration,
    /// The workers have been asked to end.
    pub(super) asking: bool,
}

impl Stop {
    /// Everybody is killed then, and nobody asked before.
    pub(super) fn new(hard: bool, kill_at: Duration) -> Stop {
        Stop { hard, workers_at: None, scheduler_at: None, kill_at, kill_scheduler_at: kill_at, asking: false }
    }
}
