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
    supervisor.ended(1, Ending::Exit(0), SECOND / 4);
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

#[test]
fn what_was_lost_and_forgiven_long_before_is_no_failure_at_the_end() {
    let killed = Ending::Signal(libc::SIGKILL);
    let mut supervisor = returning();
    supervisor.ended(1, killed, 2 * SECOND);
    assert_eq!(actions(&mut supervisor), [Action::Clear(1), Action::Start(1)]);
    supervisor.ended(0, Ending::Exit(0), 20 * SECOND); // worker 1 has come back, and has left; it works on
    supervisor.ended(2, killed, 21 * SECOND);
    assert_eq!(actions(&mut supervisor), [Action::Clear(2), Action::Start(2)]);
    supervisor.ended(2, Ending::Exit(0), 22 * SECOND);
    supervisor.tick(60 * SECOND);
    assert!(actions(&mut supervisor).is_empty() && !supervisor.is_stopping(), "again it may take its time");
    supervisor.ended(1, Ending::Exit(0), 61 * SECOND);
    assert_eq!(supervisor.verdict(None), Verdict::Success);
    // Where another fails, that one is to blame.
    let mut supervisor = returning();
    supervisor.ended(1, killed, 2 * SECOND);
    supervisor.ended(0, Ending::Exit(0), 20 * SECOND);
    supervisor.ended(2, Ending::Exit(9), 21 * SECOND);
    supervisor.tick(21 * SECOND + COLLECT);
    supervisor.ended(1, Ending::Signal(libc::SIGTERM), 22 * SECOND);
    assert_eq!(supervisor.verdict(None), Verdict::Failed { first: 2, then: vec![] });
    // So it is where it fails as it comes back.
    let mut supervisor = returning();
    supervisor.ended(0, Ending::Exit(0), 20 * SECOND);
    supervisor.ended(2, killed, 21 * SECOND);
    supervisor.ended(2, Ending::Exit(9), 22 * SECOND);
    supervisor.tick(23 * SECOND);
    assert!(actions(&mut supervisor).contains(&Action::Terminate(Whom::Workers)), "worker 1 is stopped");
    assert_eq!(supervisor.verdict(None), Verdict::Failed { first: 2, then: vec![] });
}
