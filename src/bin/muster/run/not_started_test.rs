use super::tests::{begins, returning, TestJob, KILLED, SCHEDULER};
use super::*;

fn not_started(job: &mut TestJob, child: usize) {
    job.supervisor.not_started(child, job.now);
}

#[test]
fn what_cannot_be_started_is_tried_again_as_long_as_restarts_are_left() {
    for (child, how) in [(1, KILLED), (1, Ending::Exit(3)), (SCHEDULER, KILLED), (SCHEDULER, Ending::Exit(101))] {
        let mut job = returning(3);
        assert_eq!(job.ends(child, how).actions(), begins(child));
        not_started(&mut job, child);
        assert!(!job.supervisor.is_stopping() && job.supervisor.needs_port());
        assert_eq!((job.after(99), job.after(1)), (vec![Action::Clear(child)], vec![Action::Start(child)]));
        assert_eq!((job.supervisor.restarts(child), job.supervisor.ending_of_last(child)), (2, how));
        not_started(&mut job, child);
        assert_eq!((job.after(199), job.after(1)), (vec![Action::Clear(child)], vec![Action::Start(child)]));
        assert!(job.supervisor.runs(child) && !job.supervisor.is_stopping(), "the third attempt went well");
    }
}

#[test]
fn what_cannot_be_started_has_failed_as_it_ended_and_at_that_time() {
    for (child, how) in [(1, KILLED), (1, Ending::Exit(3)), (SCHEDULER, KILLED)] {
        let mut job = returning(1);
        job.ends(child, how).after(10);
        job.ends(2, KILLED).actions();
        not_started(&mut job, child);
        assert!(job.supervisor.gives_up(), "no restart is left");
        assert_eq!((job.supervisor.ending(child), job.blamed(None)), (Some(how), child));
    }
}

#[test]
fn what_cannot_be_started_in_a_run_that_ends_was_cut_short() {
    let mut job = returning(1);
    job.ends(2, Ending::Exit(4)).actions();
    job.ends(1, KILLED).actions();
    let now = job.now;
    job.ends(2, Ending::Exit(4)).supervisor.job_is_lost(now);
    not_started(&mut job, 1);
    assert_eq!(job.supervisor.verdict(None), Verdict::Failed { first: 2, then: vec![1] });
    let mut job = returning(1);
    job.ends(1, KILLED).signal(libc::SIGTERM);
    not_started(&mut job, 1);
    assert_eq!((job.supervisor.restarts(1), job.supervisor.ending(1)), (1, Some(KILLED)));
    assert_eq!(job.supervisor.verdict(None), Verdict::Interrupted(libc::SIGTERM));
}
