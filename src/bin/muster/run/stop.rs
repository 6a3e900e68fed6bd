//! When each process of a run that is being stopped is asked to end, and when it is killed: part of `supervise.rs`.

use std::time::Duration;

/// How long after the first failure the others are left alone.
pub const COLLECT: Duration = Duration::from_millis(250);
/// How long after the first failure the scheduler is left alone.
pub const SCHEDULER_AFTER_FAILURE: Duration = Duration::from_millis(500);
/// How long the scheduler is left alone if workers run elsewhere. It tells those, their next lives or their launchers
/// that the job is over. It ends by itself when they have gone.
pub const SCHEDULER_AFTER_GIVING_UP: Duration = Duration::from_secs(6);
/// How long after that the scheduler is killed.
const SCHEDULER_KILL: Duration = Duration::from_millis(250);
/// How long after the first failure whatever is left is killed.
pub const KILL_AFTER_FAILURE: Duration = Duration::from_millis(750);
/// How long children have after the user's signal. A second one cuts it short.
pub const KILL_AFTER_SIGNAL: Duration = Duration::from_secs(5);
/// How long the scheduler may take to end once all workers of the job have ended well: it then knows that they have left,
/// or that they never came.
pub const CLOSING: Duration = Duration::from_secs(1);
/// With restarts: how long workers may go on when the scheduler has said that the job is broken for good. A worker that
/// was lost when others had left may come back, find all work done, and end well.
pub const OVER: Duration = Duration::from_secs(10);
/// How long killing is repeated. What is left then cannot be killed: it is another user's, or waits in the kernel.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// How often killing is repeated: processes that a dying process leaves behind come into sight only then.
const KILL_AGAIN: Duration = Duration::from_millis(20);

/// Why a run is brought to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// All workers have ended well, and nothing is left to do.
    Done,
    /// The scheduler here has ended by itself: the job is broken for good, or all have left, and one of them was killed after that.
    /// The workers have time to say how, and one that was killed may be started again.
    SchedulerEnded,
    /// Something failed here.
    Failure,
    /// The scheduler has said that the job is over, before anything failed here.
    JobOver,
    /// The user has asked for it, by this signal; none if something had failed here before, because that counts.
    User(Option<i32>),
}

/// How long each of the processes is left alone.
pub(super) struct Stop {
    pub(super) why: Why,
    pub(super) workers_at: Option<Duration>,
    pub(super) scheduler_at: Option<Duration>,
    pub(super) kill_at: Duration,
    /// When the scheduler is killed; the others are killed at `kill_at`.
    pub(super) kill_scheduler_at: Duration,
    /// The workers have been asked to end.
    pub(super) asking: bool,
    /// When everybody was killed first.
    pub(super) killed_at: Option<Duration>,
}

impl Stop {
    /// Everybody is killed at this time, and nobody is asked before.
    pub(super) fn new(why: Why, kill_at: Duration) -> Stop {
        Stop {
            why,
            workers_at: None,
            scheduler_at: None,
            kill_at,
            kill_scheduler_at: kill_at,
            asking: false,
            killed_at: None,
        }
    }

    /// Something failed, here or elsewhere: the workers are asked after a moment, and the scheduler after this time.
    pub(super) fn after_failure(why: Why, now: Duration, scheduler_after: Duration) -> Stop {
        let (workers_at, scheduler_at) = (Some(now + COLLECT), Some(now + scheduler_after));
        let kill_scheduler_at = now + scheduler_after + SCHEDULER_KILL;
        Stop { workers_at, scheduler_at, kill_scheduler_at, ..Stop::new(why, now + KILL_AFTER_FAILURE) }
    }

    /// The scheduler has ended by itself: the workers are asked after [`OVER`].
    pub(super) fn after_the_scheduler(now: Duration) -> Stop {
        let (workers_at, kill_at) = (Some(now + OVER), now + OVER + KILL_AFTER_FAILURE - COLLECT);
        Stop { workers_at, ..Stop::new(Why::SchedulerEnded, kill_at) }
    }

    /// Whether a failure or the user is the reason: then nobody is started again.
    pub(super) fn is_hard(&self) -> bool {
        matches!(self.why, Why::Failure | Why::JobOver | Why::User(_))
    }

    /// The user's signal that is the reason.
    pub(super) fn signal(&self) -> Option<i32> {
        match self.why {
            Why::User(signal) => signal,
            Why::Done | Why::SchedulerEnded | Why::Failure | Why::JobOver => None,
        }
    }

    /// Whether the job is over, and its workers have not been asked to end yet.
    pub(super) fn leaves_time(&self) -> bool {
        self.why == Why::SchedulerEnded && !self.asking
    }

    /// Everybody is killed now, and again soon. Returns whether that has gone on for long enough.
    pub(super) fn kills(&mut self, now: Duration) -> bool {
        self.kill_at = now + KILL_AGAIN;
        self.kill_at >= *self.killed_at.get_or_insert(now) + KILL_PATIENCE
    }
}

#[cfg(test)]
#[path = "stop_test.rs"]
mod tests;
