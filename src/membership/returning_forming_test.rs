//! Another life of a node comes while the cluster forms.

use super::super::testing::{named, rules, Bench};
use super::super::{Closed, Rules};
use super::tests::{life, not_yet, pass, rejected, told_formed, with_recovery};
use crate::error::Status;
use crate::types::{Epoch, Role, Time};
use crate::wire::{Message, Register};
use std::time::Duration;

/// Three are to come; rank 1 of two has come in its first life, over connection 1, and rank 0 over connection 0.
fn forming(rules: Rules) -> Bench {
    let mut bench = Bench::new(rules);
    (0..2).for_each(|rank| bench.join(rank.into(), life(rank, 3, 0, "there")));
    bench
}

#[test]
fn while_forming_too_a_place_whose_holder_answers_is_refused_by_name() {
    let mut bench = forming(with_recovery(3));
    bench.join(10, life(1, 3, 1, "there"));
    let word = not_yet(&mut bench, 10).expect("its last life is asked first");
    assert!(!word.long && word.wait_ms <= 100, "{word:?}");
    assert!(matches!(bench.told(1)[..], [Message::Report]), "and at once");
    bench.pass(Duration::from_millis(20));
    bench.beat(1, 1);
    bench.pass(Duration::from_millis(30));
    bench.join(11, life(1, 3, 1, "there"));
    let (status, reason) = rejected(&bench, 11).expect("it is refused");
    assert_eq!(status, Status::Rejected);
    assert!(reason.contains("rank 1") && reason.contains("pid 1001") && reason.contains("lives"), "{reason}");
    bench.join(2, life(2, 3, 0, "there"));
    assert_eq!(told_formed(&mut bench).iter().map(|(conn, _)| *conn).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn while_forming_too_a_place_whose_holder_is_silent_is_free_after_the_heartbeat_time_out() {
    // The holder had come to its first heartbeat, or not; its connection stands, or broke.
    for (beats, breaks) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut bench = forming(with_recovery(3));
        if beats {
            bench.beat(1, 1);
        }
        if breaks {
            bench.close(1, Closed::Broken);
        }
        let (mut conn, mut beat, from) = (10, 0, bench.now);
        loop {
            bench.join(conn, life(1, 3, 1, "there"));
            assert_eq!(rejected(&bench, conn), None);
            if not_yet(&mut bench, conn).is_none() {
                break;
            }
            conn += 1;
            beat += 1;
            bench.beat(0, beat);
            pass(&mut bench, Duration::from_millis(500), &[0]);
        }
        let waited = bench.now.since(from);
        assert!(waited >= Duration::from_secs(5) && waited < Duration::from_secs(7), "{beats} {breaks}: {waited:?}");
        bench.join(2, life(2, 3, 0, "there"));
        let told = told_formed(&mut bench);
        assert_eq!(told.iter().map(|(conn, _)| *conn).collect::<Vec<_>>(), [0, conn, 2]);
        assert_eq!((told[1].1.rank, told[1].1.epoch, told[1].1.restarts), (1, Epoch(1), 0));
    }
}

/// All are here, but rank 1 is just being asked whether it lives.
fn forming_with_one_that_is_asked(rules: Rules) -> Bench {
    let mut bench = forming(rules);
    bench.join(10, life(1, 3, 1, "there"));
    assert!(not_yet(&mut bench, 10).is_some());
    bench.pass(Duration::from_millis(10));
    bench.join(2, life(2, 3, 0, "there"));
    assert_eq!(told_formed(&mut bench), [], "it may be dead");
    bench
}

#[test]
fn the_cluster_forms_when_the_last_that_was_asked_has_answered() {
    let mut bench = forming_with_one_that_is_asked(with_recovery(3));
    bench.beat(0, 1);
    assert_eq!(told_formed(&mut bench), [], "that is another's word");
    bench.beat(1, 1);
    assert_eq!(told_formed(&mut bench).iter().map(|(conn, _)| *conn).collect::<Vec<_>>(), [0, 1, 2]);
    bench.join(11, life(1, 3, 1, "there"));
    assert!(rejected(&bench, 11).is_some_and(|(_, reason)| reason.contains("which lives")));
    // It also answers by coming over a new connection.
    let mut bench = forming_with_one_that_is_asked(with_recovery(3));
    bench.close(1, Closed::Broken);
    bench.join(12, life(1, 3, 0, "there"));
    assert_eq!(told_formed(&mut bench).iter().map(|(conn, _)| *conn).collect::<Vec<_>>(), [0, 12, 2]);
}

#[test]
fn the_cluster_forms_with_the_next_life_of_one_that_was_asked_in_vain() {
    for ends in [false, true] {
        let mut bench = forming_with_one_that_is_asked(with_recovery(3));
        if ends {
            bench.close(1, Closed::Ended);
        }
        let (mut conn, mut beat) = (10, 0);
        while told_formed(&mut bench).is_empty() {
            assert!(bench.now.since(Time(0)) < Duration::from_secs(7), "its place is free by then");
            conn += 1;
            beat += 1;
            [0, 2].into_iter().for_each(|conn| bench.beat(conn, beat));
            pass(&mut bench, Duration::from_millis(500), &[0, 2]);
            bench.join(conn, life(1, 3, 1, "there"));
            assert_eq!(rejected(&bench, conn), None);
        }
        let pids = bench.scheduler.conductor.cluster.nodes.values().map(|node| node.register.process.pid);
        assert_eq!(pids.collect::<Vec<_>>(), [1000, 1101, 1002]);
        assert_eq!(bench.scheduler.conductor.cluster.epoch, Epoch(1), "nobody was lost");
    }
}

#[test]
fn the_time_for_forming_ends_the_wait_for_an_answer_too() {
    let rules = Rules { forming_timeout: Some(Duration::from_secs(3)), ..with_recovery(3) };
    let mut bench = forming_with_one_that_is_asked(rules);
    bench.pass(Duration::from_secs(4));
    let (status, reason) = rejected(&bench, 0).expect("its time is up");
    assert_eq!(status, Status::Timeout);
    assert!(reason.contains("nodes that must answer first, because others want their places: 1"), "{reason}");
}

#[test]
fn while_forming_only_another_life_of_the_same_node_is_let_wait() {
    let others = [
        Register { role: Role::Server, server_num: 1, ..life(1, 3, 1, "there") },
        Register { node_id: "01".to_owned(), server_num: 1, ..life(1, 3, 1, "there") },
        Register { node_id: "x".to_owned(), server_num: 1, rank: Some(1), ..life(1, 3, 1, "there") },
        Register { worker_num: 4, server_num: 1, ..life(1, 3, 1, "there") },
    ];
    let of_one_server = || Rules { server_num: 1, ..with_recovery(3) };
    for other in others {
        let mut bench = Bench::new(of_one_server());
        bench.join(1, Register { server_num: 1, ..life(1, 3, 0, "there") });
        bench.join(10, other.clone());
        assert_eq!(rejected(&bench, 10).map(|(status, _)| status), Some(Status::Rejected), "{other:?}");
        assert!(bench.told(1).is_empty(), "nobody is asked");
    }
    let mut bench = forming(rules(3, 0));
    bench.sent.clear();
    bench.closed.clear();
    (0..2).for_each(|rank| bench.join(20 + u64::from(rank), named(rank, 3, &rank.to_string())));
    bench.join(30, named(7, 3, "1"));
    let (_, reason) = rejected(&bench, 30).expect("without recovery there is no other life");
    assert!(reason.contains("is already held by"), "{reason}");
}
