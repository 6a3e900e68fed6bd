//! How a run is brought to an end, in time: part of `supervise.rs`.

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
    /// The user has asked for it, by this signal. None: something had failed here before, and that counts.
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
mod tests {
    use super::super::supervise::{Action, Supervisor, Verdict, Whom};
    use super::*;
    use crate::code;
    use crate::sys::Ending;

    #[test]
    fn killing_is_repeated_for_a_while() {
        let (begin, mut now) = (Duration::from_secs(5), Duration::from_secs(5));
        let mut stop = Stop::new(Why::Failure, begin);
        while !stop.kills(now) {
            assert!(stop.kill_at > now && now < begin + KILL_PATIENCE);
            now = stop.kill_at;
        }
        assert!(stop.kill_at >= begin + KILL_PATIENCE);
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// The actions up to now.
    fn actions(supervisor: &mut Supervisor) -> Vec<Action> {
        std::iter::from_fn(|| supervisor.next_action()).collect()
    }

    #[test]
    fn a_child_that_cannot_be_killed_is_left_in_the_end() {
        let mut supervisor = Supervisor::new([true, false, false], true, 0);
        supervisor.signalled(libc::SIGINT, SECOND);
        supervisor.ended(0, Ending::Exit(code::ABORTED), SECOND);
        supervisor.ended(1, Ending::Exit(1), SECOND);
        let killed = SECOND + KILL_AFTER_SIGNAL;
        supervisor.tick(killed);
        let mut now = killed;
        while !supervisor.finished() {
            assert!(supervisor.runs(2) && now < killed + KILL_PATIENCE);
            now += KILL_AGAIN;
            supervisor.tick(now);
        }
        assert!(now >= killed + KILL_PATIENCE - KILL_AGAIN);
        assert_eq!(supervisor.ending(2), Some(Ending::Signal(libc::SIGKILL)));
        assert_eq!(supervisor.verdict(None), Verdict::Interrupted(libc::SIGINT));
    }

    /// Where the job is over the workers have a while to end, which the user need not wait for.
    #[test]
    fn a_second_signal_kills_at_once_also_where_the_job_is_over() {
        for is_over in [false, true] {
            let mut supervisor = Supervisor::new([true, false], true, 1);
            if is_over {
                supervisor.ended(0, Ending::Exit(1), SECOND);
            }
            supervisor.signalled(libc::SIGINT, 2 * SECOND);
            assert!(!actions(&mut supervisor).contains(&Action::Kill(Whom::Workers)));
            supervisor.signalled(libc::SIGINT, 3 * SECOND);
            assert!(actions(&mut supervisor).contains(&Action::Kill(Whom::Workers)));
        }
    }

    /// A host without the scheduler, which tells of the complete cluster. One worker has ended with code 0.
    fn elsewhere() -> Supervisor {
        let mut supervisor = Supervisor::new([false, false], false, 0);
        supervisor.formed();
        supervisor.ended(1, Ending::Exit(0), SECOND);
        supervisor
    }

    #[test]
    fn a_run_that_failed_waits_for_the_word_that_one_which_ended_well_is_to_blame() {
        let mut supervisor = elsewhere();
        supervisor.ended(0, Ending::Exit(8), 2 * SECOND);
        assert!(!supervisor.finished());
        supervisor.told_why(Some(1), 2 * SECOND);
        assert!(supervisor.finished());
        assert_eq!(supervisor.verdict(None), Verdict::Failed { first: 1, then: vec![0] });
        // None of them need have ended well: several that end at once are told apart by the word.
        let mut supervisor = Supervisor::new([false, false], false, 0);
        supervisor.formed();
        supervisor.ended(0, Ending::Exit(9), SECOND);
        supervisor.ended(1, Ending::Exit(5), SECOND);
        assert!(!supervisor.finished());
        supervisor.told_why(Some(1), SECOND);
        assert!(supervisor.finished());
        assert_eq!(supervisor.verdict(None), Verdict::Failed { first: 1, then: vec![0] });
        // The word may name nobody here, or not come.
        let mut supervisor = elsewhere();
        supervisor.ended(0, Ending::Exit(8), 2 * SECOND);
        supervisor.told_why(None, 2 * SECOND);
        assert!(supervisor.finished());
        let mut supervisor = elsewhere();
        supervisor.ended(0, Ending::Exit(8), 2 * SECOND);
        let killed = 2 * SECOND + KILL_AFTER_FAILURE;
        supervisor.tick(killed - Duration::from_millis(1));
        assert!(!supervisor.finished() && supervisor.deadline() == Some(killed));
        supervisor.tick(killed);
        assert!(supervisor.finished());
        assert_eq!(supervisor.verdict(None), Verdict::Failed { first: 0, then: vec![] });
    }

    #[test]
    fn the_word_that_one_which_ended_well_is_to_blame_is_a_failure() {
        let mut supervisor = elsewhere();
        supervisor.told_why(Some(1), 2 * SECOND);
        supervisor.tick(2 * SECOND + COLLECT);
        assert_eq!(actions(&mut supervisor), [Action::Terminate(Whom::Workers)]);
        supervisor.ended(0, Ending::Signal(libc::SIGTERM), 3 * SECOND);
        assert!(supervisor.finished());
        assert_eq!(supervisor.verdict(None), Verdict::Failed { first: 1, then: vec![] });
        // One that runs has not failed by that.
        let mut supervisor = elsewhere();
        supervisor.told_why(Some(0), 2 * SECOND);
        assert!(!supervisor.is_stopping());
    }

    /// A scheduler and two workers that may be started again.
    fn returning() -> Supervisor {
        Supervisor::new([true, false, false], true, 3)
    }

    #[test]
    fn one_that_is_killed_when_all_have_left_has_a_while_and_no_more() {
        let mut supervisor = returning();
        supervisor.ended(0, Ending::Exit(0), SECOND);
        supervisor.tick(60 * SECOND);
        assert!(actions(&mut supervisor).is_empty(), "all have left, and may take their time");
        supervisor.ended(1, Ending::Exit(0), 60 * SECOND);
        supervisor.ended(2, Ending::Signal(libc::SIGKILL), 60 * SECOND);
        assert_eq!(actions(&mut supervisor), [Action::Clear(2), Action::Start(2)]);
        assert!(supervisor.is_over() && supervisor.runs(2));
        supervisor.tick(60 * SECOND + OVER);
        assert_eq!(actions(&mut supervisor), [Action::Terminate(Whom::Workers)]);
        supervisor.ended(2, Ending::Signal(libc::SIGTERM), 60 * SECOND + OVER);
        assert!(supervisor.finished());
        assert_eq!(supervisor.verdict(None), Verdict::Failed { first: 2, then: vec![] });
        assert_eq!(supervisor.ending_before(2), Some(Ending::Signal(libc::SIGKILL)));
    }

    #[test]
    fn one_that_fails_just_before_all_have_left_is_not_started_again() {
        let mut supervisor = returning();
        supervisor.ended(1, Ending::Exit(0), SECOND);
        supervisor.ended(2, Ending::Exit(9), SECOND / 2); // a short life, so there is a pause
        supervisor.ended(0, Ending::Exit(0), SECOND / 2);
        supervisor.tick(2 * SECOND);
        assert!(!actions(&mut supervisor).contains(&Action::Start(2)));
        assert!(supervisor.finished());
        assert_eq!(supervisor.verdict(None), Verdict::Failed { first: 2, then: vec![] });
    }

    #[test]
    fn a_job_that_was_aborted_has_failed_however_its_workers_end() {
        let mut supervisor = returning();
        supervisor.ended(0, Ending::Exit(code::ABORTED), SECOND);
        supervisor.ended(1, Ending::Exit(0), SECOND);
        supervisor.ended(2, Ending::Exit(0), SECOND);
        assert_eq!(supervisor.verdict(Some(1)), Verdict::Failed { first: 1, then: vec![0] });
        assert_eq!(supervisor.verdict(None), Verdict::Failed { first: 0, then: vec![] });
        // One that the launcher has told to end has said nothing.
        let mut supervisor = returning();
        supervisor.ended(1, Ending::Exit(0), SECOND);
        supervisor.ended(2, Ending::Exit(0), SECOND);
        supervisor.tick(SECOND + CLOSING);
        supervisor.ended(0, Ending::Exit(code::ABORTED), SECOND + CLOSING);
        assert_eq!(supervisor.verdict(None), Verdict::Success);
    }
}
