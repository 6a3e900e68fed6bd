use crate::error::{Culprit, Failure, Status};
use crate::membership::testing::{rules, worker, Bench};
use crate::membership::Closed;
use crate::types::{Call, CallKind, DType, Epoch, GroupId, JobInstance, ReduceOp, Role};
use crate::wire::{GroupProgress, Heartbeat, Message, Register, Revoke, Revoked};
use std::slice;
use std::time::Duration;

fn failure(group: GroupId, cause: &str) -> Failure {
    Failure {
        status: Status::Timeout,
        culprit: None,
        cause: cause.to_string(),
        epoch: Epoch(1),
        group: Some(group),
        sequence: 4,
    }
}

fn revoke(bench: &mut Bench, conn: u64, failure: Failure) {
    bench.say(conn, Message::Revoke(Revoke { failure }));
}

pub(in super::super) fn revoked(bench: &mut Bench, conn: u64) -> Vec<Failure> {
    let told = |message| match message {
        Message::Revoked(Revoked { failure }) => Some(failure),
        _ => None,
    };
    bench.told(conn).into_iter().filter_map(told).collect()
}

/// Two workers (connections 0, 1) and a server (2).
fn with_server() -> Bench {
    let mut bench = Bench::new(rules(2, 1));
    for serial in 0..3 {
        let role = if serial == 2 { Role::Server } else { Role::Worker };
        bench.join(u64::from(serial), Register { role, server_num: 1, ..worker(serial, 2) });
    }
    bench.sent.clear();
    bench
}

#[test]
fn the_first_cause_is_told_to_every_member_and_kept() {
    let mut bench = with_server();
    let (first, second) = (failure(GroupId::WORLD, "first"), failure(GroupId::WORLD, "second"));
    revoke(&mut bench, 1, first.clone());
    assert_eq!(revoked(&mut bench, 0), slice::from_ref(&first));
    assert_eq!(revoked(&mut bench, 1), slice::from_ref(&first), "the sender too");
    assert_eq!(revoked(&mut bench, 2), [], "a server is not of world");
    revoke(&mut bench, 0, second.clone());
    assert_eq!(revoked(&mut bench, 0), slice::from_ref(&first));
    assert!(bench.sent.is_empty(), "only who asked");
    let all = failure(GroupId::UNIVERSE, "all");
    revoke(&mut bench, 2, all.clone());
    for conn in 0..3 {
        assert_eq!(revoked(&mut bench, conn), slice::from_ref(&all));
    }
    // A node that comes back is told again.
    bench.close(0, Closed::Broken);
    bench.join(9, Register { server_num: 1, instance: Some(JobInstance([9; 16])), ..worker(0, 2) });
    assert_eq!(revoked(&mut bench, 9), [first, all]);
}

#[test]
fn a_node_that_has_no_say_is_ignored() {
    let mut bench = with_server();
    revoke(&mut bench, 2, failure(GroupId::WORLD, "not a member"));
    revoke(&mut bench, 0, Failure { epoch: Epoch(0), ..failure(GroupId::WORLD, "old") });
    revoke(&mut bench, 0, Failure { group: None, ..failure(GroupId::WORLD, "no group") });
    revoke(&mut bench, 0, failure(GroupId(77), "unknown group"));
    assert!(bench.sent.is_empty() && bench.closed.is_empty());
}

#[test]
fn after_a_verdict_that_is_the_cause() {
    let mut bench = Bench::formed(&["here", "there", "there"]);
    bench.close(1, Closed::Ended);
    bench.pass(Duration::from_millis(100));
    let verdict = bench.verdict(0).expect("told");
    bench.sent.clear();
    revoke(&mut bench, 0, failure(GroupId::WORLD, "a link ended"));
    let told = revoked(&mut bench, 0);
    assert_eq!(
        (told[0].status, &told[0].culprit, told[0].group),
        (verdict.status, &verdict.culprit, Some(GroupId::WORLD))
    );
    assert!(bench.sent.is_empty());
}

pub(in super::super) const BARRIER: Call =
    Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
pub(in super::super) const ALLREDUCE: Call = Call {
    kind: CallKind::Allreduce,
    dtype: Some(DType::Float32),
    op: Some(ReduceOp::Sum),
    root: None,
    count: 4,
    layout: 0,
};

pub(in super::super) fn enters(bench: &mut Bench, conn: u64, group: GroupId, entered: u64, call: Call) {
    let progress = vec![GroupProgress { group, entered, finished: entered - 1, call: Some(call), age_ms: 0 }];
    bench.say(conn, Message::Heartbeat(Heartbeat { sequence: 1, echoed: 1, progress, ..Heartbeat::default() }));
}

#[test]
fn different_calls_are_told_apart() {
    let mut bench = Bench::formed(&["here", "there", "there", "there"]);
    enters(&mut bench, 3, GroupId::WORLD, 7, BARRIER);
    enters(&mut bench, 0, GroupId::WORLD, 8, ALLREDUCE);
    enters(&mut bench, 0, GroupId::WORLD, 8, ALLREDUCE);
    enters(&mut bench, 2, GroupId::UNIVERSE, 7, ALLREDUCE);
    assert_eq!(revoked(&mut bench, 0), []);
    enters(&mut bench, 1, GroupId::WORLD, 7, ALLREDUCE);
    bench.pass(Duration::from_millis(100)); // in which the others could say what they called
    let told = revoked(&mut bench, 0);
    assert_eq!((told[0].status, told[0].group, told[0].sequence), (Status::Mismatch, Some(GroupId::WORLD), 7));
    assert_eq!(
        told[0].to_string(),
        "rank 1 (node id \"1\", host there, pid 1001) called allreduce(count 4, float32, sum), rank 3 (node id \"3\", host \
         there, pid 1003) called barrier() as collective #7 on world"
    );
    for conn in 1..4 {
        assert_eq!(revoked(&mut bench, conn), told);
    }
    enters(&mut bench, 2, GroupId::WORLD, 7, BARRIER);
    assert_eq!(revoked(&mut bench, 2), [], "once");
}

#[test]
fn a_node_that_goes_after_a_revocation_is_its_consequence() {
    let mut bench = Bench::formed(&["here", "there", "there"]);
    let first = failure(GroupId::WORLD, "allreduce #4 on world timed out");
    revoke(&mut bench, 2, first.clone());
    bench.pass(Duration::from_millis(10));
    bench.close(1, Closed::Ended);
    bench.pass(Duration::from_millis(100));
    assert_eq!(bench.verdict(0), Some(first.clone()));
    bench.close(0, Closed::Ended);
    bench.close(2, Closed::Ended);
    bench.pass(Duration::from_millis(100));
    assert_eq!(bench.ended.clone().expect("ended").expect_err("broken").failure(), Some(&first));

    // If the group was revoked because somebody was missed, it matters which node that was.
    let named = |rank: u32| Culprit {
        role: Role::Worker,
        rank: Some(rank),
        node_id: rank.to_string(),
        host: "there".to_string(),
        pid: 1000 + rank,
        last_call: None,
    };
    for (missed, is_the_cause) in [(Some(1), false), (Some(0), true), (None, false)] {
        let mut bench = Bench::formed(&["here", "there", "there"]);
        let unconfirmed = Failure { status: Status::PeerLost, culprit: missed.map(named), ..first.clone() };
        revoke(&mut bench, 2, unconfirmed.clone());
        bench.close(1, Closed::Ended);
        bench.pass(Duration::from_millis(100));
        let failure = bench.verdict(0).expect("told");
        if is_the_cause {
            let out_of_reach = Failure { status: Status::Link, ..unconfirmed };
            assert_eq!(failure, out_of_reach, "rank 0 lives: the cause is what was said of it, but for its loss");
        } else {
            assert_eq!(failure.culprit.and_then(|culprit| culprit.rank), Some(1));
            assert!(failure.cause.starts_with("is lost: its connection ended"), "{}", failure.cause);
        }
    }
}

#[test]
fn a_link_that_was_lost_stays_the_cause_though_the_ranks_at_both_its_ends_end_by_it() {
    for (ends, lives_on, is_the_cause) in [([1, 2], true, true), ([2, 1], true, true), ([1, 2], false, false)] {
        let mut bench = Bench::formed(&["here", "there", "there", "there"]);
        bench.pass(Duration::from_millis(10));
        if !lives_on {
            bench.close(1, Closed::Ended); // before anybody misses it
        }
        let cause = "rank 2 and rank 1 cannot reach each other although both live".to_owned();
        let culprit = Culprit {
            role: Role::Worker,
            rank: Some(1),
            node_id: "1".to_string(),
            host: "there".to_string(),
            pid: 1001,
            last_call: None,
        };
        let (status, group) = (Status::Link, Some(GroupId::WORLD));
        let link = Failure { status, culprit: Some(culprit), cause, epoch: Epoch(1), group, sequence: 1 };
        revoke(&mut bench, 2, link.clone());
        bench.pass(Duration::from_millis(10));
        ends.into_iter().filter(|conn| lives_on || *conn != 1).for_each(|conn| bench.close(conn, Closed::Ended));
        bench.pass(Duration::from_millis(200));
        let failure = bench.verdict(0).expect("told");
        assert_eq!(failure == link, is_the_cause, "{failure}");
    }
}

#[test]
fn in_the_universe_a_server_is_called_one() {
    let mut bench = with_server();
    enters(&mut bench, 2, GroupId::UNIVERSE, 1, BARRIER);
    enters(&mut bench, 2, GroupId::WORLD, 1, BARRIER);
    enters(&mut bench, 0, GroupId::UNIVERSE, 1, ALLREDUCE);
    bench.pass(Duration::from_millis(100)); // in which rank 1 could say what it called
    let told = revoked(&mut bench, 2);
    let end = "server rank 0 (node id \"made-2\", host here, pid 1002) called barrier() as collective #1 on universe";
    assert!(told[0].cause.ends_with(end), "{}", told[0]);
    enters(&mut bench, 1, GroupId::WORLD, 1, ALLREDUCE);
    assert_eq!(revoked(&mut bench, 1).len(), 1, "of the universe only: a server has no say in world");
}
