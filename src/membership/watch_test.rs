use super::*;
use crate::membership::connection_table::GREETING;
use crate::membership::testing::{named, rules, Bench};
use crate::membership::{Closed, Input, Rules};
use crate::types::JobInstance;
use crate::wire::{JobNews, Watch};
use std::time::Duration;

const WATCHER: u64 = 900;

fn watch() -> Message {
    Message::Watch(Watch { protocol_lowest: PROTOCOL_LOWEST, protocol_highest: PROTOCOL_HIGHEST })
}

fn watches(bench: &mut Bench, conn: u64) {
    bench.open(conn);
    bench.say(conn, watch());
}

/// The news that were told since the last look: the phase, why the job does not go on, and whether nothing follows.
fn news(bench: &mut Bench, conn: u64) -> Vec<(JobPhase, Option<String>, bool)> {
    let told = bench.told(conn).into_iter();
    told.map(|message| match message {
        Message::JobNews(JobNews { instance, phase, recovery: false, why, ended }) => {
            assert_eq!(instance, JobInstance([9; 16]));
            (phase, why, ended)
        }
        other => panic!("connection {conn} was told {other:?}"),
    })
    .collect()
}

#[test]
fn a_launcher_hears_that_the_cluster_has_formed_and_that_all_have_left() {
    let mut bench = Bench::new(rules(2, 0));
    watches(&mut bench, WATCHER);
    assert_eq!(news(&mut bench, WATCHER), [(JobPhase::Forming, None, false)], "at once");
    bench.join(1, named(1, 2, "a"));
    bench.pass(2 * GREETING);
    bench.lines.clear(); // of the cluster that forms
    assert_eq!(news(&mut bench, WATCHER), [], "it has not changed");
    assert!(!bench.closed.contains(&ConnId(WATCHER)), "it stays");
    bench.join(2, named(2, 2, "b"));
    assert_eq!(news(&mut bench, WATCHER), [(JobPhase::Running, None, false)]);
    for conn in [1, 2] {
        bench.say(conn, Message::Leave);
    }
    assert_eq!(news(&mut bench, WATCHER), [(JobPhase::Running, None, true)]);
    assert!(bench.closed.contains(&ConnId(WATCHER)));
    assert!(matches!(bench.ended, Some(Ok(()))), "{:?}", bench.ended);
    assert_eq!(bench.lines, Vec::<String>::new(), "it is no stranger to be warned of");
}

#[test]
fn it_hears_of_the_first_cause_once_and_of_an_abort_that_takes_its_place() {
    let mut bench = Bench::formed(&["here", "a", "b"]);
    watches(&mut bench, WATCHER);
    assert_eq!(news(&mut bench, WATCHER), [(JobPhase::Running, None, false)]);
    bench.say(1, Message::Gone);
    let told = news(&mut bench, WATCHER);
    let [(JobPhase::Broken, Some(why), false)] = &told[..] else { panic!("{told:?}") };
    assert!(why.contains("rank 1"), "{why}");
    bench.say(2, Message::Gone);
    assert_eq!(news(&mut bench, WATCHER), [], "the first cause is what it was");
    let mut late = Bench::formed(&["here", "a"]);
    late.say(1, Message::Gone);
    watches(&mut late, WATCHER);
    assert!(
        matches!(&news(&mut late, WATCHER)[..], [(JobPhase::Broken, Some(_), false)]),
        "it comes too late for nothing"
    );
}

#[test]
fn it_hears_why_a_cluster_did_not_form_and_that_the_scheduler_was_stopped() {
    let mut forming = Bench::new(Rules { forming_timeout: Some(Duration::from_secs(3)), ..rules(2, 0) });
    watches(&mut forming, WATCHER);
    forming.told(WATCHER);
    forming.pass(Duration::from_secs(4));
    let told = news(&mut forming, WATCHER);
    let [(JobPhase::Forming, Some(why), true)] = &told[..] else { panic!("{told:?}") };
    assert!(why.contains("missing"), "{why}");
    let mut stopped = Bench::formed(&["here", "a"]);
    watches(&mut stopped, WATCHER);
    stopped.told(WATCHER);
    stopped.feed(Input::Stop);
    let told = news(&mut stopped, WATCHER);
    let [(JobPhase::Broken, Some(why), true)] = &told[..] else { panic!("{told:?}") };
    assert!(why.contains("stopped by its program"), "{why}");
}

#[test]
fn a_job_with_recovery_says_so() {
    let mut bench = Bench::new(Rules { recovery: true, ..rules(1, 0) });
    watches(&mut bench, WATCHER);
    assert!(matches!(&bench.told(WATCHER)[..], [Message::JobNews(JobNews { recovery: true, .. })]));
}

#[test]
fn twice_as_many_watch_as_there_are_nodes_and_one_that_goes_makes_room() {
    let mut bench = Bench::formed(&["here"]);
    for conn in [WATCHER, WATCHER + 1] {
        watches(&mut bench, conn);
    }
    watches(&mut bench, WATCHER + 2);
    assert_eq!(bench.rejected(WATCHER + 2), (Status::Limit, "2 others watch this job".to_owned()));
    bench.close(WATCHER, Closed::Ended);
    watches(&mut bench, WATCHER + 3);
    assert_eq!(news(&mut bench, WATCHER + 3), [(JobPhase::Running, None, false)]);
    assert_eq!(bench.lines, Vec::<String>::new());
}

#[test]
fn where_no_descriptor_is_left_launchers_are_told_that_they_go() {
    let mut bench = Bench::formed(&["here", "a"]);
    watches(&mut bench, WATCHER);
    bench.feed(Input::ShortOfDescriptors(false));
    assert!(!bench.closed.contains(&ConnId(WATCHER)), "some are left");
    bench.told(WATCHER);
    bench.feed(Input::ShortOfDescriptors(true));
    assert_eq!(bench.rejected(WATCHER).0, Status::Limit);
    watches(&mut bench, WATCHER + 1);
    assert_eq!(news(&mut bench, WATCHER + 1), [(JobPhase::Running, None, false)], "it may come again");
}

#[test]
fn one_that_speaks_another_protocol_or_says_more_is_closed() {
    let mut bench = Bench::formed(&["here"]);
    bench.open(WATCHER);
    bench.say(WATCHER, Message::Watch(Watch { protocol_lowest: 7, protocol_highest: 9 }));
    let (status, reason) = bench.rejected(WATCHER);
    assert!(status == Status::Rejected && reason.contains("versions 7 to 9"), "{status:?} {reason}");
    watches(&mut bench, WATCHER + 1);
    bench.say(WATCHER + 1, watch());
    assert!(bench.closed.contains(&ConnId(WATCHER + 1)));
    assert!(bench.lines.iter().any(|line| line.contains("it watches the job, and sent kind 44")), "{:?}", bench.lines);
}
