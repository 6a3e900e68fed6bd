use super::*;

pub(super) const SCHEDULER: usize = 0;

/// A scheduler and three workers on one host, and the time.
pub(super) struct TestJob {
    pub(super) supervisor: Supervisor,
    pub(super) now: Duration,
}

fn job() -> TestJob {
    TestJob { supervisor: Supervisor::new([true, false, false, false], true, 0), now: Duration::ZERO }
}

impl TestJob {
    pub(super) fn ends(&mut self, child: usize, ending: Ending) -> &mut TestJob {
        self.supervisor.ended(child, ending, self.now);
        self
    }

    fn all_end(&mut self, children: &[usize], ending: Ending) -> &mut TestJob {
        children.iter().for_each(|child| self.supervisor.ended(*child, ending, self.now));
        self
    }

    pub(super) fn signal(&mut self, signal: i32) -> &mut TestJob {
        self.supervisor.signalled(signal, self.now);
        self
    }

    /// Lets time pass and gives what is done in it.
    pub(super) fn after(&mut self, millis: u64) -> Vec<Action> {
        self.now += Duration::from_millis(millis);
        self.supervisor.tick(self.now);
        self.actions()
    }

    pub(super) fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.supervisor.next_action()).collect()
    }

    pub(super) fn blamed(&self, named: Option<usize>) -> usize {
        match self.supervisor.verdict(named) {
            Verdict::Failed { first, .. } => first,
            other => panic!("{other:?}"),
        }
    }
}

const ASK_WORKERS: [Action; 1] = [Action::Terminate(Whom::Workers)];
const ASK_SCHEDULER: [Action; 1] = [Action::Terminate(Whom::Scheduler)];
const KILL: [Action; 2] = [Action::Kill(Whom::Workers), Action::Kill(Whom::Scheduler)];

#[test]
fn a_good_end_needs_nobodys_hand() {
    let mut job = job();
    job.all_end(&[1, 2, 3, SCHEDULER], Ending::Exit(0));
    assert!(job.actions().is_empty());
    assert!(job.supervisor.finished());
    assert_eq!(job.supervisor.verdict(None), Verdict::Success);
    job.supervisor.orphans(2, vec![7]);
    assert!(job.supervisor.finished(), "what the workers left may stay");
}

#[test]
fn a_scheduler_that_nobody_needs_any_more_is_ended() {
    let mut job = job();
    job.all_end(&[1, 2, 3], Ending::Exit(0));
    assert!(!job.supervisor.finished());
    assert!(job.after(999).is_empty());
    assert_eq!(job.after(1), ASK_SCHEDULER);
    assert!(job.supervisor.is_closing());
    job.ends(SCHEDULER, Ending::Signal(libc::SIGTERM));
    assert_eq!(job.supervisor.verdict(None), Verdict::Success);
    assert!(job.supervisor.finished());
}

#[test]
fn a_run_that_is_stopped_is_no_good_end() {
    let mut run = job();
    run.all_end(&[1, 2], Ending::Exit(0));
    assert!(!run.supervisor.is_closing(), "one still runs");
    run.ends(3, Ending::Exit(1)).after(500);
    assert!(!run.supervisor.is_closing(), "it has failed");
    let mut run = job();
    run.all_end(&[1, 2, 3], Ending::Exit(0)).signal(libc::SIGINT);
    assert!(!run.supervisor.is_closing(), "the user ends it");
}

#[test]
fn with_workers_elsewhere_the_scheduler_ends_by_itself() {
    let mut job = TestJob { supervisor: Supervisor::new([true, false], false, 0), now: Duration::ZERO };
    job.ends(1, Ending::Exit(0));
    assert_eq!(job.supervisor.deadline(), None);
    job.ends(SCHEDULER, Ending::Exit(0));
    assert_eq!(job.supervisor.verdict(None), Verdict::Success);
}

#[test]
fn a_scheduler_that_reports_a_failure_in_the_end_is_believed() {
    let mut job = job();
    job.all_end(&[1, 2, 3], Ending::Exit(0)).ends(SCHEDULER, Ending::Exit(1));
    assert!(job.supervisor.finished());
    assert_eq!(job.blamed(None), SCHEDULER);
}

#[test]
fn the_first_failure_stops_the_rest_within_a_second() {
    let mut job = job();
    job.ends(2, Ending::Exit(3));
    assert!(job.after(249).is_empty(), "the survivors may speak");
    assert_eq!(job.after(1), ASK_WORKERS);
    assert_eq!(job.after(250), ASK_SCHEDULER);
    assert_eq!(job.after(250), KILL);
    assert_eq!(job.after(20), KILL, "until nothing is left");
    job.all_end(&[1, 3, SCHEDULER], Ending::Signal(libc::SIGKILL)).supervisor.orphans(1, vec![]);
    assert!(!job.supervisor.finished());
    job.supervisor.orphans(0, vec![]);
    assert!(job.supervisor.finished());
    assert_eq!(job.supervisor.verdict(None), Verdict::Failed { first: 2, then: vec![] });
}

/// A scheduler and two workers, with others on another host, whose launcher the scheduler tells how the job goes.
fn job_on_hosts() -> TestJob {
    let mut job = TestJob { supervisor: Supervisor::new([true, false, false], false, 0), now: Duration::ZERO };
    job.supervisor.formed();
    job
}

#[test]
fn a_job_that_is_over_stops_those_who_know_nothing_of_it_and_is_no_good_end() {
    let mut job = job_on_hosts();
    job.supervisor.job_is_lost(job.now);
    assert!(job.after(249).is_empty(), "they may say themselves what they lost");
    assert_eq!(job.after(1), ASK_WORKERS);
    job.all_end(&[1, 2], Ending::Exit(0));
    assert!(!job.supervisor.finished(), "the scheduler tells others");
    job.all_end(&[SCHEDULER], Ending::Exit(0));
    assert!(job.supervisor.finished());
    assert_eq!(job.supervisor.verdict(None), Verdict::JobOver);
}

#[test]
fn of_a_job_that_is_over_a_failure_here_is_still_the_first_here() {
    let mut job = job_on_hosts();
    job.supervisor.job_is_lost(job.now);
    job.ends(2, Ending::Exit(7)).after(250);
    job.all_end(&[1], Ending::Signal(libc::SIGTERM)).ends(SCHEDULER, Ending::Exit(1));
    assert_eq!(job.blamed(None), 2);
    let mut job = job_on_hosts();
    job.ends(2, Ending::Exit(7));
    job.supervisor.job_is_lost(job.now);
    assert_eq!(job.after(250), ASK_WORKERS, "nothing is prolonged");
}

#[test]
fn a_scheduler_that_others_ask_has_time_to_tell_them() {
    let mut job = job_on_hosts();
    job.ends(1, Ending::Exit(7));
    assert_eq!(job.after(250), ASK_WORKERS);
    assert_eq!(job.after(500), [Action::Kill(Whom::Workers)]);
    job.ends(2, Ending::Signal(libc::SIGKILL));
    assert!(!job.after(5249).contains(&ASK_SCHEDULER[0]));
    assert!(job.after(1).contains(&ASK_SCHEDULER[0]));
}

#[test]
fn later_failures_prolong_nothing() {
    let mut job = job();
    job.ends(2, Ending::Exit(3)).after(200);
    job.ends(1, Ending::Exit(1));
    assert_eq!(job.after(50), ASK_WORKERS);
    job.after(100);
    job.ends(SCHEDULER, Ending::Exit(1));
    assert_eq!(job.after(150), ASK_SCHEDULER);
    assert_eq!(job.after(250), KILL);
    assert_eq!(job.supervisor.verdict(None), Verdict::Failed { first: 2, then: vec![1, SCHEDULER] });
}

#[test]
fn a_killed_worker_is_the_first_even_if_others_are_seen_before_it() {
    let mut job = job();
    job.ends(1, Ending::Exit(1)).ends(SCHEDULER, Ending::Exit(1)).ends(3, Ending::Signal(libc::SIGKILL));
    assert_eq!(job.blamed(None), 3);
    assert_eq!(job.blamed(Some(1)), 1, "unless the scheduler knows better");
    assert_eq!(job.blamed(Some(2)), 3, "one that didn't fail is not blamed");
}

#[test]
fn of_two_looks_the_first_counts_whatever_ended_the_one_that_was_found_later() {
    let mut job = job();
    job.ends(2, Ending::Exit(3)).after(1);
    job.ends(1, Ending::Signal(libc::SIGSEGV));
    assert_eq!(job.supervisor.verdict(None), Verdict::Failed { first: 2, then: vec![1] });
    assert_eq!(job.blamed(Some(1)), 1, "unless the scheduler knows better");
}

#[test]
fn a_worker_that_ends_well_without_leaving_is_to_blame() {
    let mut job = job();
    job.ends(2, Ending::Exit(0)).ends(3, Ending::Exit(7)).ends(SCHEDULER, Ending::Exit(1));
    let expected = Verdict::Failed { first: 2, then: vec![3, SCHEDULER] };
    assert_eq!(job.supervisor.verdict(Some(2)), expected);
}

#[test]
fn a_program_that_aborts_because_of_another_is_not_the_first() {
    let mut job = job();
    job.ends(3, Ending::Exit(7)).ends(1, Ending::Signal(libc::SIGABRT));
    assert_eq!(job.blamed(None), 3);
}

#[test]
fn only_the_scheduler_knows_that_forming_timed_out() {
    let mut job = job();
    job.all_end(&[1, 2, 3], Ending::Exit(1)).ends(SCHEDULER, Ending::Exit(code::FORMING));
    assert_eq!(job.blamed(None), SCHEDULER);
    assert_eq!(job.supervisor.ending(SCHEDULER).unwrap().code(), 124);
}

#[test]
fn the_scheduler_alone_failing_stops_the_workers() {
    let mut job = job();
    job.ends(SCHEDULER, Ending::Signal(libc::SIGKILL));
    assert_eq!(job.after(250), ASK_WORKERS);
    assert_eq!(job.blamed(None), SCHEDULER);
}

#[test]
fn the_users_signal_goes_to_all_at_once_and_gives_the_code() {
    let mut job = job();
    assert_eq!(job.signal(libc::SIGINT).actions(), ASK_WORKERS);
    job.all_end(&[1, 2, 3], Ending::Signal(libc::SIGTERM));
    assert_eq!(job.actions(), ASK_SCHEDULER, "nobody is left who needs it");
    job.ends(SCHEDULER, Ending::Signal(libc::SIGTERM));
    assert!(job.supervisor.finished());
    assert_eq!(job.supervisor.verdict(None), Verdict::Interrupted(libc::SIGINT));
    assert_eq!(Ending::Signal(libc::SIGINT).code(), 130);
}

#[test]
fn a_worker_that_ignores_the_users_signal_is_killed() {
    let mut job = job();
    job.signal(libc::SIGTERM).actions();
    assert!(job.after(4999).is_empty());
    assert_eq!(job.after(1), [&ASK_SCHEDULER[..], &KILL[..]].concat());
}

#[test]
fn a_signal_after_a_failure_hastens_the_end_but_keeps_the_blame() {
    let mut job = job();
    job.ends(1, Ending::Exit(5)).after(10);
    assert_eq!(job.signal(libc::SIGINT).actions(), ASK_WORKERS);
    assert_eq!(job.blamed(None), 1);
}

#[test]
fn strays_are_asked_once_and_then_killed() {
    let mut job = job();
    job.supervisor.orphans(1, vec![77]);
    assert!(job.after(1).is_empty(), "while all is well they are nobody's business");
    let stray = Whom::Stray(77);
    assert_eq!(job.signal(libc::SIGTERM).actions(), [ASK_WORKERS[0], Action::Terminate(stray)]);
    job.supervisor.orphans(2, vec![77, 78]);
    assert_eq!(job.after(1), [Action::Terminate(Whom::Stray(78))]);
    assert!(job.after(1).is_empty());
    job.supervisor.orphans(1, vec![77]);
    assert_eq!(job.after(5000), [ASK_SCHEDULER[0], KILL[0], KILL[1], Action::Kill(stray)]);
}

// Restarts

const MANY: u32 = 100;
const PAUSE: Duration = Duration::from_millis(250);
pub(super) const KILLED: Ending = Ending::Signal(libc::SIGKILL);

/// The same job. Each of its processes may be started again, five seconds after its start.
pub(super) fn returning(max_restarts: u32) -> TestJob {
    let supervisor = Supervisor::new([true, false, false, false], true, max_restarts);
    TestJob { supervisor, now: Duration::from_secs(5) }
}

pub(super) fn begins(child: usize) -> [Action; 2] {
    [Action::Clear(child), Action::Start(child)]
}

#[test]
fn a_failed_worker_is_started_again_at_once_and_the_others_go_on() {
    for ending in [KILLED, Ending::Exit(1), Ending::Exit(124)] {
        let mut job = returning(1);
        assert_eq!(job.ends(2, ending).actions(), begins(2));
        assert!(job.supervisor.runs(2) && !job.supervisor.is_stopping());
        assert_eq!(job.supervisor.deadline(), None);
        assert_eq!((job.supervisor.restarts(2), job.supervisor.ending_of_last(2)), (1, ending));
        job.all_end(&[1, 2, 3, SCHEDULER], Ending::Exit(0));
        assert!(job.supervisor.finished());
        assert_eq!(job.supervisor.verdict(None), Verdict::Success);
    }
}

#[test]
fn a_worker_that_ended_well_is_not_started_again() {
    let mut job = returning(MANY);
    assert!(job.ends(1, Ending::Exit(0)).actions().is_empty());
    assert!(!job.supervisor.runs(1));
}

#[test]
fn a_worker_that_has_used_its_restarts_ends_the_run_as_ever() {
    let mut job = returning(1);
    assert_eq!(job.ends(1, KILLED).actions(), begins(1));
    job.now += Duration::from_secs(10);
    assert_eq!(job.ends(2, Ending::Exit(4)).actions(), begins(2), "each has its own");
    assert!(job.ends(1, Ending::Exit(3)).actions().is_empty());
    job.after(100);
    assert!(job.ends(3, KILLED).actions().is_empty(), "nobody comes back to a run that ends");
    assert_eq!(job.after(150), ASK_WORKERS);
    job.ends(2, Ending::Signal(libc::SIGTERM));
    assert_eq!(job.after(250), ASK_SCHEDULER);
    job.ends(SCHEDULER, Ending::Signal(libc::SIGTERM));
    assert!(job.supervisor.finished());
    // A life that was told to end is no failure, nor is the one before it.
    assert_eq!(job.supervisor.verdict(None), Verdict::Failed { first: 1, then: vec![3] });
    assert_eq!(job.supervisor.verdict(Some(3)), Verdict::Failed { first: 3, then: vec![1] });
}

#[test]
fn a_launcher_that_gives_up_leaves_the_scheduler_time_to_tell_workers_elsewhere() {
    let mut job = returning(0);
    assert!(!job.supervisor.gives_up());
    job.ends(1, KILLED);
    assert!(job.supervisor.gives_up());
    job.after(300);
    assert_eq!(job.after(250), ASK_SCHEDULER, "with all workers here nobody is to be told");
    let supervisor = Supervisor::new([true, false, false, false], false, 1);
    let mut job = TestJob { supervisor, now: Duration::from_secs(5) };
    assert_eq!(job.ends(1, KILLED).actions(), begins(1));
    assert!(!job.supervisor.gives_up(), "it is started again");
    job.now += Duration::from_secs(10);
    job.ends(1, KILLED);
    assert!(job.supervisor.gives_up());
    assert_eq!(job.after(300), ASK_WORKERS);
    assert_eq!(job.after(500), KILL[..1]);
    job.all_end(&[2, 3], KILLED);
    assert!(!job.after(5100).contains(&KILL[1]) && !job.supervisor.finished());
    assert!(job.after(100).contains(&ASK_SCHEDULER[0]));
    assert!(job.after(250).contains(&KILL[1]), "it has had its time");
    job.ends(SCHEDULER, KILLED);
    assert!(job.supervisor.finished() && job.blamed(None) == 1);
    // A process that is ended by the user may be started again.
    let mut job = returning(1);
    assert!(!job.signal(libc::SIGTERM).supervisor.gives_up());
    job.ends(1, KILLED);
    assert!(!job.supervisor.gives_up());
}

#[test]
fn short_lives_are_followed_by_pauses() {
    let mut job = returning(MANY);
    assert_eq!(job.ends(1, Ending::Exit(1)).actions(), begins(1));
    assert_eq!(job.ends(1, Ending::Exit(1)).actions(), [Action::Clear(1)]);
    assert_eq!(job.supervisor.deadline(), Some(job.now + Duration::from_millis(100)));
    assert!(!job.supervisor.runs(1) && !job.supervisor.finished());
    assert!(job.after(99).is_empty());
    assert_eq!(job.after(1), [Action::Start(1)]);
    assert_eq!(job.ends(1, Ending::Exit(1)).after(199), [Action::Clear(1)]);
    assert_eq!(job.after(1), [Action::Start(1)]);
}

#[test]
fn a_life_that_was_to_begin_can_be_put_off_and_given_up() {
    let mut job = returning(1);
    assert_eq!(job.ends(2, KILLED).actions(), begins(2));
    job.supervisor.put_off(2, job.now + Duration::from_millis(250));
    assert!(!job.supervisor.runs(2) && !job.supervisor.finished());
    assert!(job.after(249).is_empty());
    assert_eq!(job.after(1), [Action::Start(2)]);
    assert_eq!(job.supervisor.ending_of_last(2), KILLED);
    job.supervisor.put_off(2, job.now);
    job.supervisor.over(job.now);
    assert!(job.actions().is_empty());
    assert_eq!(job.after(250), ASK_WORKERS);
    assert_eq!(job.blamed(None), 2);
}

#[test]
fn when_the_job_is_over_those_who_waited_to_begin_have_failed_in_the_order_of_their_ends() {
    let aborted = |job: &mut TestJob| {
        assert_eq!(job.ends(3, Ending::Exit(5)).actions(), begins(3));
        job.now += Duration::from_millis(1);
        assert_eq!(job.ends(2, KILLED).actions(), begins(2));
        [3, 2].into_iter().for_each(|child| job.supervisor.put_off(child, job.now + PAUSE));
    };
    let mut job = returning(MANY);
    aborted(&mut job);
    let now = job.now;
    job.supervisor.over(now);
    job.ends(1, Ending::Exit(6));
    assert_eq!(job.after(249), []);
    assert_eq!(job.after(1), ASK_WORKERS);
    assert_eq!(job.supervisor.verdict(None), Verdict::Failed { first: 3, then: vec![2, 1] });
    // Its scheduler may end before anybody has asked it.
    let mut job = returning(MANY);
    aborted(&mut job);
    job.ends(SCHEDULER, Ending::Exit(code::ABORTED)).ends(1, Ending::Exit(6));
    assert_eq!(job.after(250), ASK_WORKERS);
    assert!(job.after(10_000).iter().all(|action| !matches!(action, Action::Start(_))));
    assert!(job.supervisor.finished());
    assert_eq!(job.supervisor.verdict(None), Verdict::Failed { first: 3, then: vec![2, 1, SCHEDULER] });
}

#[test]
fn one_that_has_begun_again_is_not_over_with_those_who_wait() {
    let mut job = returning(MANY);
    assert_eq!(job.all_end(&[1, 2], KILLED).actions(), [1, 2].map(begins).concat());
    job.supervisor.put_off(2, job.now + PAUSE);
    let now = job.now;
    job.supervisor.over(now);
    assert!(job.supervisor.runs(1) && !job.supervisor.runs(2));
    assert_eq!(job.supervisor.verdict(None), Verdict::Failed { first: 2, then: vec![] });
}

#[test]
fn nobody_is_put_off_in_a_run_that_ends() {
    let mut job = returning(1);
    job.ends(2, Ending::Exit(1)).actions();
    assert_eq!(job.ends(1, KILLED).ends(2, Ending::Exit(1)).actions(), begins(1));
    job.supervisor.put_off(1, job.now + PAUSE / 2);
    assert!(job.after(200).is_empty());
    assert!(job.after(10_000).iter().all(|action| !matches!(action, Action::Start(_))));
    job.all_end(&[3, SCHEDULER], KILLED);
    assert!(job.supervisor.finished());
    assert_eq!(job.supervisor.verdict(None), Verdict::Failed { first: 2, then: vec![1] });
}

#[test]
fn all_at_once_all_come_back() {
    let mut job = returning(1);
    job.all_end(&[SCHEDULER, 1, 2, 3], KILLED);
    assert_eq!(job.actions(), [0, 1, 2, 3].map(begins).concat());
    assert!(!job.supervisor.finished());
}

#[test]
fn a_scheduler_comes_back_that_something_has_ended() {
    for ending in [KILLED, Ending::Signal(libc::SIGSEGV), Ending::Exit(code::PANICKED)] {
        let mut job = returning(1);
        assert!(job.supervisor.needs_port());
        assert_eq!(job.ends(SCHEDULER, ending).actions(), begins(SCHEDULER));
        assert!(!job.supervisor.needs_port(), "it has it now, for good");
        assert!(job.ends(SCHEDULER, ending).actions().is_empty());
        assert_eq!(job.after(250), ASK_WORKERS);
        assert_eq!(job.blamed(None), SCHEDULER);
    }
}

#[test]
fn a_scheduler_whose_journal_failed_comes_back_and_one_that_could_not_begin_does_not() {
    let mut job = returning(MANY);
    assert_eq!(job.ends(SCHEDULER, Ending::Exit(code::JOURNAL)).actions(), begins(SCHEDULER));
    assert!(job.supervisor.needs_port());
    assert!(job.ends(SCHEDULER, Ending::Exit(code::UNABLE)).actions().is_empty());
    assert_eq!(job.after(250), ASK_WORKERS);
    assert_eq!(job.blamed(None), SCHEDULER);
    let mut job = returning(0);
    assert!(job.ends(SCHEDULER, Ending::Exit(code::JOURNAL)).actions().is_empty());
    assert_eq!(job.after(250), ASK_WORKERS);
}

#[test]
fn a_scheduler_that_says_why_it_ends_does_not_come_back() {
    for code in [code::USAGE, code::ABORTED, code::UNABLE, code::FORMING] {
        let mut job = returning(MANY);
        assert!(job.ends(SCHEDULER, Ending::Exit(code)).actions().is_empty());
        assert!(!job.supervisor.needs_port());
        assert!(job.ends(1, KILLED).actions().is_empty(), "the job is over");
        assert_eq!(job.after(250), ASK_WORKERS);
    }
    let mut job = returning(MANY);
    job.ends(SCHEDULER, Ending::Exit(0));
    assert!(job.after(60_000).is_empty(), "all have left, and may take their time");
    job.ends(1, Ending::Exit(5));
    assert!(job.actions().is_empty(), "it has left, and so can't come back");
    assert_eq!(job.blamed(None), 1);
}

#[test]
fn one_that_is_killed_when_all_have_left_may_still_say_that_all_is_well() {
    let mut job = returning(MANY);
    job.all_end(&[SCHEDULER, 1, 2], Ending::Exit(0));
    assert_eq!(job.ends(3, KILLED).actions(), begins(3));
    job.ends(3, Ending::Exit(0));
    assert!(job.supervisor.finished());
    assert_eq!(job.supervisor.verdict(None), Verdict::Success);
}

#[test]
fn one_that_was_lost_at_the_very_end_has_a_while_to_come_back_and_end_well() {
    let mut job = returning(MANY);
    job.all_end(&[1, 2], Ending::Exit(0)).ends(SCHEDULER, Ending::Exit(1));
    assert_eq!(job.ends(3, KILLED).actions(), begins(3));
    assert!(job.after(9999).is_empty());
    assert!(job.supervisor.is_over());
    job.ends(3, Ending::Exit(0)).supervisor.orphans(1, vec![]);
    assert!(job.supervisor.finished());
    assert_eq!(job.supervisor.verdict(Some(3)), Verdict::Success, "what the last lives say is the result");
}

#[test]
fn one_that_does_not_end_then_is_to_blame_by_its_life_before() {
    let mut job = returning(MANY);
    job.all_end(&[1, 2], Ending::Exit(0)).ends(3, KILLED).ends(SCHEDULER, Ending::Exit(1)).actions();
    assert_eq!(job.after(10_000), ASK_WORKERS);
    job.ends(3, Ending::Exit(0));
    assert!(job.supervisor.finished());
    assert_eq!(job.supervisor.ending_before(3), Some(KILLED));
    assert_eq!(job.supervisor.verdict(Some(3)), Verdict::Failed { first: 3, then: vec![SCHEDULER] });
    assert_eq!(job.blamed(None), SCHEDULER);
}

#[test]
fn of_a_job_that_is_over_nobody_is_started_again_who_has_given_up() {
    for how in [Ending::Exit(12), Ending::Signal(libc::SIGABRT)] {
        for before in [true, false] {
            let mut job = returning(MANY);
            job.now = Duration::from_secs(5);
            if before {
                job.supervisor.ended(1, how, job.now);
                assert_eq!(job.actions(), begins(1));
                job.supervisor.put_off(1, job.now + Duration::from_millis(50)); // the scheduler is asked
            }
            assert!(job.ends(SCHEDULER, Ending::Exit(1)).actions().is_empty());
            job.ends(1, how).ends(2, how);
            assert!(
                job.after(9000).is_empty(),
                "{how:?}, {before}: it would find nobody; and the others have their time"
            );
            assert!(!job.supervisor.finished() && !job.supervisor.gives_up());
            job.ends(3, Ending::Exit(0));
            assert!(job.supervisor.finished(), "nobody is waited for");
            assert_eq!(job.blamed(None), 1);
        }
    }
}

#[test]
fn a_scheduler_that_nobody_needs_does_not_come_back() {
    let mut job = returning(MANY);
    job.ends(SCHEDULER, KILLED).actions();
    job.ends(SCHEDULER, KILLED).all_end(&[1, 2, 3], Ending::Exit(0));
    assert!(job.supervisor.finished());
    assert_eq!(job.after(100), [Action::Clear(SCHEDULER)]);
    assert_eq!(job.supervisor.verdict(None), Verdict::Success);
    let mut elsewhere =
        TestJob { supervisor: Supervisor::new([true, false], false, MANY), now: Duration::from_secs(5) };
    elsewhere.ends(1, Ending::Exit(0)).ends(SCHEDULER, KILLED);
    assert_eq!(elsewhere.actions(), begins(SCHEDULER), "the workers elsewhere need it");
    elsewhere.ends(SCHEDULER, Ending::Exit(1));
    assert_eq!(elsewhere.blamed(None), SCHEDULER, "it alone knows of them");
}

#[test]
fn the_users_signal_ends_all_restarts() {
    let mut job = returning(MANY);
    job.all_end(&[1, 2], KILLED).actions();
    job.ends(1, KILLED);
    assert_eq!(job.signal(libc::SIGTERM).actions(), [Action::Clear(1), ASK_WORKERS[0]]);
    job.all_end(&[2, 3], KILLED);
    assert_eq!(job.actions(), ASK_SCHEDULER);
    job.ends(SCHEDULER, KILLED);
    assert!(job.supervisor.finished());
    assert_eq!(job.supervisor.verdict(Some(1)), Verdict::Interrupted(libc::SIGTERM));
}

#[test]
fn an_unclean_exit_is_a_loss() {
    let mut job = returning(1);
    assert!(job.ends(2, Ending::Exit(0)).actions().is_empty());
    job.supervisor.ended_uncleanly(2, job.now);
    assert_eq!(job.actions(), begins(2));
    job.supervisor.ended_uncleanly(2, job.now);
    assert!(job.actions().is_empty(), "it runs");
    let now = job.now;
    job.ends(2, Ending::Exit(0)).supervisor.ended_uncleanly(2, now);
    assert_eq!(job.after(500), [ASK_WORKERS, ASK_SCHEDULER].concat());
    job.all_end(&[1, 3, SCHEDULER], Ending::Signal(libc::SIGTERM));
    assert_eq!(job.supervisor.verdict(None), Verdict::Failed { first: 2, then: vec![] });
}
