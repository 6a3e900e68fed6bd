use super::*;
use muster::types::LaunchId;

fn children() -> Vec<Child> {
    let worker = |index: u32| Child {
        part: Part::Worker { index, rank: Some(index) },
        pid: 100 + index as i32,
        pid_before: None,
        launch: LaunchId([0; 16]),
        restarts: index,
        unstarted: None,
        log: format!("/nonexistent/worker_{index}.log").into(),
    };
    let scheduler = Child {
        part: Part::Scheduler,
        pid: 99,
        pid_before: None,
        launch: LaunchId([0; 16]),
        restarts: 0,
        unstarted: None,
        log: "/nonexistent/scheduler.log".into(),
    };
    vec![scheduler, worker(0), worker(1), worker(12)]
}

fn outcome(verdict: Verdict, children: Vec<Child>, endings: &[Ending]) -> Outcome {
    let (scheduler, endings) = (scheduler_says(&children), endings.to_vec());
    Outcome {
        verdict,
        children,
        endings,
        scheduler,
        never_formed: false,
        never_joined: Vec::new(),
        had_left: false,
        left: 0,
    }
}

#[test]
fn the_first_failure_comes_first_and_gives_the_code() {
    let endings = [Ending::Exit(1), Ending::Exit(1), Ending::Signal(9), Ending::Exit(0)];
    let verdict = Verdict::Failed { first: 2, then: vec![1, 0] };
    let (text, code) = summary(&outcome(verdict, children(), &endings));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(code, 137);
    assert!(
        lines[0].contains("first failure: worker 1 (pid 101) was ended by signal 9 (SIGKILL) after 1 restart,"),
        "{text}"
    );
    let place = format!("log /nonexistent/worker_1.log, on host {}", host::name().unwrap());
    assert!(lines[0].ends_with(&place), "{text}");
    assert!(lines[1].contains("then worker 0 (pid 100) exited with code 1"), "{text}");
    assert!(lines[2].contains("then the scheduler (pid 99)"), "{text}");
    assert_eq!(lines[3..], ["muster: all logs are in /nonexistent"]);
}

#[test]
fn an_end_with_code_0_can_be_the_first_failure() {
    let endings = [Ending::Exit(1), Ending::Exit(0), Ending::Exit(5), Ending::Exit(0)];
    let verdict = Verdict::Failed { first: 1, then: vec![2, 0] };
    let mut outcome = outcome(verdict, children(), &endings);
    let (text, code) = summary(&outcome);
    assert_eq!(code, 1, "and not the next one's");
    assert!(text.starts_with("muster: first failure: worker 0 (pid 100) exited with code 0"), "{text}");
    assert!(text.contains("without leaving the cluster"), "{text}");
    for reason in [": bad data", ", without a reason"] {
        outcome.scheduler =
            Some(format!("rank 0 (node id \"0\", host a, pid 100) aborted the job with code 7{reason}"));
        let (text, code) = summary(&outcome);
        assert_eq!(code, 7, "that of its abort");
        assert!(text.contains("it aborted the job (muster_abort)") && !text.contains("without leaving"), "{text}");
    }
    let left = "rank 0 (node id \"0\", host a, pid 100) has left the cluster, and allreduce #2 on world needs it";
    outcome.scheduler = Some(left.to_owned());
    let (text, code) = summary(&outcome);
    assert!(code == 1 && text.contains("it left the cluster (muster_finalize) while others still needed it"), "{text}");
    outcome.never_joined.push(1);
    assert!(summary(&outcome).0.contains("without joining the cluster"));
}

#[test]
fn one_that_could_not_be_started_again_is_told_with_how_it_had_ended_and_why_it_did_not_come_back() {
    let endings = [Ending::Exit(0), Ending::Exit(3), Ending::Signal(9), Ending::Exit(0)];
    let mut children = children();
    children[1].unstarted = Some("Too many processes".to_owned());
    children[2].unstarted = Some("No such file".to_owned());
    let (text, code) = summary(&outcome(Verdict::Failed { first: 2, then: vec![1] }, children, &endings));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((code, lines[1]), (137, "    it could not be started again: No such file"));
    assert!(lines[0].contains("worker 1 (pid 101) was ended by signal 9 (SIGKILL)"), "{text}");
    let then = "muster: then worker 0 (pid 100) exited with code 3; it could not be started again: Too many processes";
    assert_eq!(lines[2], then);
}

/// A log of its own, with these words in it.
fn log(name: &str, words: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("muster-summary-{}-{name}.log", std::process::id()));
    std::fs::write(&path, words).unwrap();
    path
}

#[test]
fn all_of_it_fits_on_a_screen_however_much_the_logs_say() {
    let mut children: Vec<Child> = (0..40).map(|_| children().remove(1)).collect();
    let many = log("many", &"error: the same words, again and again, which fill a row and more of it\n".repeat(1000));
    let long = log("long", &format!("error: {}\n", "endless ".repeat(6000)));
    for (index, child) in children.iter_mut().enumerate() {
        child.log = if index % 2 == 0 { long.clone() } else { many.clone() };
    }
    for first in [0, 1] {
        let then = (2..40).collect();
        let verdict = Verdict::Failed { first, then };
        let (text, _) = summary(&outcome(verdict, children.clone(), &[Ending::Exit(3); 40]));
        assert!(rows(&text) <= ROWS, "{} rows: {text}", rows(&text));
        let lines = text.lines().filter(|line| line.starts_with("    error: ")).count();
        assert!(lines >= LINES_OF_FIRST[1] - usize::from(first == 0), "{text}");
        assert!(text.contains("muster: and 35 more\n"), "{text}");
    }
    [many, long].iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn a_cause_on_another_host_is_told_before_its_consequence_here() {
    let mut children = children();
    let words = "rank 7 (node id \"7\", host b, pid 55) is lost: it was killed by signal 9 (its launcher)";
    children[0].log = log("scheduler", &format!("muster scheduler: {words}\n"));
    let verdict = Verdict::Failed { first: 1, then: Vec::new() };
    let (text, _) = summary(&outcome(verdict, children.clone(), &[Ending::Exit(1); 4]));
    // On the scheduler's host that child may be the first to end.
    let verdict = Verdict::Failed { first: 0, then: Vec::new() };
    let (of_scheduler, _) = summary(&outcome(verdict, children.clone(), &[Ending::Exit(1); 4]));
    std::fs::remove_file(&children[0].log).unwrap();
    assert_eq!(of_scheduler.matches(words).count(), 1, "{of_scheduler}");
    assert!(of_scheduler.contains("\nmuster: first failure here: the scheduler (pid 99) exited"), "{of_scheduler}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], format!("muster: the first failure was on another host: {words}"));
    assert!(lines[1].starts_with("muster: first failure here: worker 0 (pid 100) exited with code 1, log "), "{text}");
    assert!(!text.contains("the scheduler says"), "{text}");
}

#[test]
fn a_child_that_the_scheduler_blames_comes_first_even_if_it_had_not_ended() {
    let mut children = children();
    let words = "rank 12 (node id \"12\", host h, pid 112) is lost: silent for 5 s, with its connection open";
    children[0].log = log("silent", &format!("muster scheduler: {words}\n"));
    let endings = [Ending::Exit(1), Ending::Exit(3), Ending::Exit(3), Ending::Signal(15)];
    let verdict = Verdict::Failed { first: 1, then: vec![2, 0] };
    let (text, code) = summary(&outcome(verdict, children.clone(), &endings));
    std::fs::remove_file(&children[0].log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let log = "/nonexistent/worker_12.log";
    assert_eq!(lines[0], format!("muster: the first failure was that of worker 12 (pid 112), log {log}: {words}"));
    assert!(lines[1].starts_with("muster: first to end: worker 0 (pid 100) exited with code 3, log "), "{text}");
    assert!(!text.contains("the scheduler says"), "{text}");
    assert_eq!(code, 3, "its own end was this launcher's doing, and gives no code");
}

/// Nothing here has ended by itself: the one that the scheduler blames is told of nevertheless.
#[test]
fn the_only_worker_of_a_host_that_aborted_and_was_told_to_end_is_named() {
    let mut outcome = outcome(Verdict::JobOver, children()[1..2].to_vec(), &[Ending::Signal(15)]);
    assert!(summary(&outcome).0.starts_with("muster: nothing failed here: all were stopped"));
    outcome.scheduler =
        Some("rank 0 (node id \"0\", host h, pid 100) aborted the job with code 7: bad data".to_owned());
    let (text, code) = summary(&outcome);
    assert!(code == 7 && text.starts_with("muster: the first failure was that of worker 0 (pid 100), log "), "{text}");
    outcome.scheduler = Some("rank 5 (node id \"5\", host h, pid 5) is lost".to_owned());
    assert!(summary(&outcome).0.starts_with("muster: nothing failed here: all were stopped"));
}

/// Python takes a while from an exception to the end of its process.
#[test]
fn a_child_that_aborted_and_was_told_to_end_gives_its_words_and_its_code() {
    let mut children = children();
    let words = "rank 0 (node id \"0\", host h, pid 100) aborted the job with code 7: ValueError: own fault";
    (children[0].log, children[1].log) =
        (log("aborts", &format!("muster scheduler: {words}\n")), log("fault", "Traceback\nValueError: own fault\n"));
    let verdict = Verdict::Failed { first: 0, then: Vec::new() };
    let endings = [Ending::Exit(3), Ending::Signal(15), Ending::Signal(15), Ending::Signal(15)];
    let outcome = outcome(verdict, children.clone(), &endings);
    let (text, code) = summary(&outcome);
    children[..2].iter().for_each(|child| std::fs::remove_file(&child.log).unwrap());
    assert_eq!(code, 7);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("muster: the first failure was that of worker 0 (pid 100), log "), "{text}");
    assert_eq!(lines[1..3], ["    Traceback", "    ValueError: own fault"]);
    assert!(lines[3].starts_with("muster: first to end: the scheduler (pid 99) exited with code 3, log "), "{text}");
}

#[test]
fn the_last_lines_are_shown_and_those_before_them_that_look_like_errors() {
    let log = "step 1\nTraceback (most recent call last):\n  File\nValueError: x\n\nbye\n";
    assert_eq!(telling_lines(log, 10), ["Traceback (most recent call last):", "  File", "ValueError: x", "bye"]);
    assert_eq!(telling_lines(log, 2), ["ValueError: x", "bye"]);
    assert_eq!(telling_lines(log, 1), ["ValueError: x"]);
    // A line that looks like an error may be none, long before the end.
    let log = "error=0.5\n1\n2\n3\n4\nno such file\n";
    assert_eq!(telling_lines(log, 10), ["error=0.5", "3", "4", "no such file"]);
    assert_eq!(telling_lines(log, 2), ["error=0.5", "no such file"]);
    assert_eq!(telling_lines("a\nb\nc\nd\n", 10), ["b", "c", "d"]);
    assert_eq!(telling_lines("a\nb\nc\nd\n", 1), ["d"]);
    assert_eq!(telling_lines("a\n--- muster: worker 1 was ended by signal 6 (SIGABRT)\nb\n", 10), ["a", "b"]);
    assert!(telling_lines("", 10).is_empty());
    let coloured = "\x1b[1;31mError\x1b[0m:\tx\x07\r\x1b[38;5;1m y\x1b[";
    assert_eq!(telling_lines(coloured, 1), ["Error:\tx y"], "what ends a colour may be cut off");
}

#[test]
fn the_schedulers_last_words_name_a_child() {
    let children = children();
    assert_eq!(last_words("x\nmuster scheduler: one\nmuster scheduler: two\ny"), Some("two"));
    assert_eq!(named_in("rank 0 (node id \"0\", host h, pid 101) was lost", &children), Some(1), "the rank counts");
    assert_eq!(named_in("rank 7 (node id \"7\", host h, pid 101) was lost", &children), None, "on another host");
    assert_eq!(named_in("rank 1 (node id \"1\", host h, pid 7) was lost", &children), Some(2));
    assert_eq!(named_in("rank 12 (node id \"12\", host h, pid 7) was lost", &children), Some(3));
    assert_eq!(named_in("2 of 4 came", &children), None);
    // Only the first process in the words is blamed: the others have seen something, or are quoted.
    let here = host::name().unwrap();
    let seen = |culprit: &str| {
        format!("{culprit} is lost: its connection ended, and rank 0 (node id \"0\", host {here}, pid 100) saw so too")
    };
    assert_eq!(named_in(&seen(&format!("rank 12 (node id \"12\", host {here}, pid 112)")), &children), Some(3));
    assert_eq!(named_in(&seen("rank 7 (node id \"7\", host h, pid 5)"), &children), None, "on another host");
    let odd = format!("3 of 4 ranks called barrier() as collective #1 on world, rank 1 (node id \"1\", host {here}, pid 101) called reduce()");
    assert_eq!(named_in(&odd, &children), Some(2));
    let two = format!("rank 0 (node id \"0\", host {here}, pid 100) called barrier(), rank 1 (node id \"1\", host {here}, pid 101) called reduce()");
    assert!(named_in(&two, &children).is_none() && first_rank(&two).is_none(), "neither of two is to blame");
}

#[test]
fn without_known_ranks_the_last_words_name_a_process_of_this_host() {
    let mut children = children();
    for (index, child) in children.iter_mut().enumerate().skip(1) {
        child.part = Part::Worker { index: index as u32 - 1, rank: None };
    }
    let (host, lost) =
        (host::name().unwrap(), |host: &str| format!("rank 0 (node id \"x\", host {host}, pid 101) is lost"));
    assert_eq!(named_in(&lost(&host), &children), Some(2));
    assert_eq!(named_in(&lost("another"), &children), None, "a process of another host has the same number");
    assert_eq!(cause(&lost("another"), 2, Ending::Exit(1), &children), Cause::Elsewhere);
    assert_eq!(cause(&lost(&host), 2, Ending::Exit(1), &children), Cause::First);
    // It is the scheduler if the others were busy. Where forming timed out it has failed itself.
    assert_eq!(cause(&lost(&host), 0, Ending::Exit(1), &children), Cause::Another(2));
    assert_eq!(cause(&lost(&host), 0, Ending::Exit(code::FORMING), &children), Cause::First);
    assert_eq!(
        cause(&lost(&host), 1, Ending::Exit(code::FORMING), &children),
        Cause::Another(2),
        "a worker's own code"
    );
    let no_rank = format!("worker (node id \"x\", host {host}, pid 112) is lost");
    assert_eq!(named_in(&no_rank, &children), Some(3));
    assert_eq!(named_in(&format!("node \"x\" on host {host} (pid 112) is lost"), &children), Some(3));
}

#[test]
fn a_scheduler_says_why_in_its_last_life_and_not_in_one_before() {
    let log = "muster scheduler: the disk is full\n--- muster: the scheduler ended with 5; restart 1 of 1\n";
    assert_eq!(last_words(log), None);
    assert_eq!(last_words(&format!("{log}a line\n{LAST_WORDS}rank 1 is lost\n")), Some("rank 1 is lost"));
}

#[test]
fn what_came_of_this_launchers_own_doing_is_no_cause() {
    let (children, killed) = (children(), "rank 0 (node id \"0\", host h, pid 100) is lost: its process has ended");
    let said = || Some(killed.to_owned());
    let nobody = |_| false;
    assert_eq!(why(&AtFirst::Unknown, said(), &children, |_| true), said());
    assert_eq!(why(&AtFirst::Whole, said(), &children, nobody), said(), "it ended by itself");
    assert_eq!(why(&AtFirst::Whole, said(), &children, |child| child == 1), None);
    assert_eq!(why(&AtFirst::Whole, None, &children, nobody), None);
    assert_eq!(why(&AtFirst::Left(1), said(), &children, nobody), None, "one that had left failed by itself");
    let before = AtFirst::Broken("rank 1 is lost".to_owned());
    assert_eq!(why(&before, said(), &children, nobody).as_deref(), Some("rank 1 is lost"), "what was first");
}
