use super::super::contract::{ConnId, Input, Liveness};
use super::super::testing::{host, named, rules, Bench};
use super::super::{Closed, Rules};
use crate::error::{Failure, Status};
use crate::types::{ChecksumScope, Epoch, GroupId, JobInstance, Token, TokenHash};
use crate::wire::{
    Abort, Blob, GroupWish, Heartbeat, HeartbeatEcho, InEpoch, Known, MakeGroup, Message, Record, Recover, Reentry,
    Register, StoreBegin, StoreOperation, StorePiece,
};
use std::time::Duration;

fn durable(number: u32) -> Rules {
    Rules { recovery: true, durable: true, ..rules(number, 0) }
}

fn register(rank: u32, number: u32) -> Register {
    let reentry = Some(Box::new(Reentry { tokens: Vec::new(), next: TokenHash::of(&Token([rank as u8; 32])) }));
    Register { host: host("here"), recovery: true, reentry, ..named(rank, number, &rank.to_string()) }
}

fn attached(rank: u32, number: u32) -> Register {
    Register { instance: Some(JobInstance([9; 16])), ..register(rank, number) }
}

fn formed(number: u32) -> Bench {
    let mut bench = Bench::new(durable(number));
    (0..number).for_each(|rank| bench.join(u64::from(rank), register(rank, number)));
    bench.sent.clear();
    bench
}

/// A scheduler that is started again with what was written down; nobody is connected.
fn started_again(bench: Bench, number: u32) -> Bench {
    started_by(bench, durable(number))
}

fn started_by(bench: Bench, rules: Rules) -> Bench {
    let records = bench.written.into_iter().chain([Record::Generation(2)]).collect();
    Bench::resumed(rules, records)
}

fn set(bench: &mut Bench, conn: u64, request: u64, key: &str, value: &[u8]) {
    let begin = StoreBegin {
        request,
        answered_below: 0,
        operation: StoreOperation::Set,
        keys: vec![Blob::new(key.as_bytes())],
        delta: 0,
        expected_bytes: 0,
        value_bytes: value.len() as u64,
    };
    bench.say(conn, Message::StoreBegin(begin));
    bench.say(conn, Message::StorePiece(StorePiece { request, bytes: Blob::new(value) }));
}

fn add(bench: &mut Bench, conn: u64, request: u64, key: &str) -> Option<i64> {
    let begin = StoreBegin {
        request,
        answered_below: 0,
        operation: StoreOperation::Add,
        keys: vec![Blob::new(key.as_bytes())],
        delta: 1,
        expected_bytes: 0,
        value_bytes: 0,
    };
    bench.say(conn, Message::StoreBegin(begin));
    bench.told(conn).into_iter().find_map(|message| match message {
        Message::StoreReply(reply) => Some(reply.number),
        _ => None,
    })
}

/// Whether the key was set, and what it holds then, as far as that is told.
fn compare_set(
    bench: &mut Bench,
    conn: u64,
    request: u64,
    key: &str,
    (expected, desired): (&str, &str),
) -> (i64, String) {
    let begin = StoreBegin {
        request,
        answered_below: 0,
        operation: StoreOperation::CompareSet,
        keys: vec![Blob::new(key.as_bytes())],
        delta: 0,
        expected_bytes: expected.len() as u64,
        value_bytes: (expected.len() + desired.len()) as u64,
    };
    bench.say(conn, Message::StoreBegin(begin));
    let bytes = Blob::new([expected, desired].concat().into_bytes());
    bench.say(conn, Message::StorePiece(StorePiece { request, bytes }));
    match &bench.told(conn)[..] {
        [Message::StoreReply(reply)] => (reply.number, String::new()),
        [Message::StoreReply(reply), Message::StorePiece(piece)] => {
            (reply.number, String::from_utf8_lossy(piece.bytes.as_slice()).into_owned())
        }
        other => panic!("{other:?}"),
    }
}

/// What a heartbeat on a connection is answered with.
fn beats(bench: &mut Bench, conn: u64, sequence: u64) -> Vec<Message> {
    bench.say(conn, Message::Heartbeat(Heartbeat { sequence, echoed: 0, ..Heartbeat::default() }));
    bench.told(conn)
}

#[test]
fn a_node_that_waits_for_a_goodbye_held_by_the_disk_hears_that_the_scheduler_lives() {
    let mut bench = formed(2);
    bench.syncs = false;
    for (conn, sequence) in [(0, 1), (1, 2), (0, 3)] {
        if sequence < 3 {
            bench.say(conn, Message::Leave);
        }
        let echo = HeartbeatEcho { sequence };
        assert_eq!(beats(&mut bench, conn, sequence), [Message::HeartbeatEcho(echo)]);
    }
    bench.feed(Input::Persisted(99));
    assert!(matches!((&bench.told(0)[..], &bench.told(1)[..]), ([Message::Bye], [Message::Bye])));
    assert!(matches!(bench.ended, Some(Ok(()))) && beats(&mut bench, 0, 4).is_empty());
}

#[test]
fn nothing_is_promised_before_it_is_durable() {
    let mut bench = Bench::new(durable(2));
    bench.syncs = false;
    (0..2).for_each(|rank| bench.join(u64::from(rank), register(rank, 2)));
    assert!(matches!(bench.written[..], [Record::Epoch(_)]));
    assert!(bench.sent.is_empty(), "{:?}", bench.sent);
    bench.beat(0, 1);
    assert!(matches!(bench.told(0)[..], [Message::HeartbeatEcho(_)]), "a sign of life waits for no disk");
    bench.feed(Input::Persisted(1));
    assert!(matches!(bench.told(0)[..], [Message::Formed(_)]) && matches!(bench.told(1)[..], [Message::Formed(_)]));
    set(&mut bench, 0, 1, "a", b"x");
    set(&mut bench, 1, 1, "b", b"y");
    assert!(bench.sent.is_empty() && bench.written.len() == 3);
    bench.feed(Input::Persisted(2));
    assert!(matches!(bench.told(0)[..], [Message::StoreReply(_)]) && bench.told(1).is_empty());
    bench.feed(Input::Persisted(3));
    assert!(matches!(bench.told(1)[..], [Message::StoreReply(_)]));
    // A request that reads waits until the change that it has seen is durable.
    set(&mut bench, 0, 2, "a", b"z");
    let get = StoreBegin {
        request: 2,
        answered_below: 0,
        operation: StoreOperation::TryGet,
        keys: vec![Blob::new(&b"a"[..])],
        delta: 0,
        expected_bytes: 0,
        value_bytes: 0,
    };
    bench.say(1, Message::StoreBegin(get));
    assert!(bench.sent.is_empty());
    bench.feed(Input::Persisted(4));
    assert!(matches!(bench.told(1)[..], [Message::StoreReply(_), Message::StorePiece(_)]));
    assert!(matches!(bench.told(0)[..], [Message::StoreReply(_)]));
    bench.say(0, Message::Leave);
    assert!(bench.sent.is_empty() && bench.closed.is_empty(), "no Bye before: {:?} {:?}", bench.sent, bench.closed);
    bench.feed(Input::Persisted(5));
    assert!(matches!(bench.told(0)[..], [Message::Bye]) && bench.closed == [ConnId(0)]);
    bench.say(1, Message::Leave);
    assert!(matches!(bench.written[5..], [Record::Left(1), Record::Done]));
    bench.feed(Input::Persisted(6));
    assert!(bench.ended.is_none());
    bench.feed(Input::Persisted(7));
    assert!(matches!(bench.ended, Some(Ok(()))));
}

#[test]
fn a_scheduler_that_is_started_again_knows_what_it_had_promised() {
    let wanted =
        |nth| MakeGroup { parent: GroupId::WORLD, nth, sequence: nth, digest: 0, wish: GroupWish::Ranks(vec![1, 0]) };
    for compacted in [false, true] {
        let mut bench = formed(2);
        set(&mut bench, 0, 1, "a", b"x");
        assert_eq!(add(&mut bench, 1, 5, "n"), Some(1));
        (0..2).for_each(|conn| bench.say(conn, Message::MakeGroup(wanted(1))));
        let secret = bench.scheduler.conductor.cluster.formed(0, Vec::new()).secret;
        if compacted {
            bench.written = bench.scheduler.snapshot();
        }
        let mut again = started_again(bench, 2);
        assert!(again.lines.iter().any(|line| line.contains("started again")), "{:?}", again.lines);
        (0..2).for_each(|rank| again.join(u64::from(rank), attached(rank, 2)));
        let told = again.told(0);
        let Message::Formed(formed) = &told[0] else { panic!("{told:?}") };
        assert_eq!((formed.epoch, formed.rank, formed.generation, formed.secret), (Epoch(1), 0, 2, secret));
        (0..2).for_each(|conn| again.say(conn, Message::InEpoch(InEpoch { epoch: Epoch(1) })));
        assert_eq!(add(&mut again, 1, 5, "n"), Some(1), "the same request again");
        assert_eq!(add(&mut again, 1, 6, "n"), Some(2));
        assert_eq!(again.scheduler.conductor.groups.table.members_of(GroupId(3)), Some(vec![1, 0]));
        (0..2).for_each(|conn| again.say(conn, Message::MakeGroup(wanted(2))));
        assert_eq!(
            again.scheduler.conductor.groups.table.members_of(GroupId(4)),
            Some(vec![1, 0]),
            "no number is used again"
        );
    }
}

#[test]
fn an_epochs_thresholds_are_told_by_a_scheduler_too_that_would_choose_others() {
    for (other, told) in [("here", vec![1]), ("there", Vec::new())] {
        let mut bench = Bench::new(durable(2));
        bench.join(0, register(0, 2));
        bench.join(1, Register { host: host(other), ..register(1, 2) });
        let mut elsewhere = durable(2);
        (elsewhere.one_host, elsewhere.agreed.thresholds) = (vec![2], vec![3]);
        let mut again = started_by(bench, elsewhere);
        again.join(0, attached(0, 2));
        assert_eq!(again.formed_message(0).agreed.thresholds, told, "the other is {other}");
        let Some(Record::Epoch(epoch)) = again.scheduler.snapshot().into_iter().nth(1) else { panic!("no epoch") };
        assert_eq!(epoch.agreed.thresholds, told);
    }
}

#[test]
fn what_was_set_on_a_condition_was_set_once_though_another_has_changed_it_since() {
    for compacted in [false, true] {
        let mut bench = formed(2);
        assert_eq!(compare_set(&mut bench, 0, 1, "lock", ("", "mine")), (1, "mine".to_owned()));
        assert_eq!(compare_set(&mut bench, 1, 1, "lock", ("mine", "yours")), (1, "yours".to_owned()));
        assert_eq!(compare_set(&mut bench, 1, 2, "lock", ("yours", "")), (1, String::new()), "given back");
        if compacted {
            bench.written = bench.scheduler.snapshot();
        }
        let mut again = started_again(bench, 2);
        for rank in 0..2 {
            again.join(u64::from(rank), attached(rank, 2));
            again.say(u64::from(rank), Message::InEpoch(InEpoch { epoch: Epoch(1) }));
        }
        again.sent.clear();
        // The first answer was lost with the scheduler. The request's condition holds once more, but it must not be carried
        // out again.
        assert_eq!(compare_set(&mut again, 0, 1, "lock", ("", "mine")), (1, "mine".to_owned()));
        assert_eq!(compare_set(&mut again, 1, 3, "lock", ("", "yours again")), (1, "yours again".to_owned()));
        assert_eq!(compare_set(&mut again, 0, 2, "lock", ("", "mine")), (0, "yours again".to_owned()));
    }
}

#[test]
fn a_scheduler_that_is_started_again_judges_nobody_before_the_heartbeat_time_out_unless_it_is_certain() {
    let mut again = started_again(formed(3), 3);
    let process = |rank| register(rank, 3).process;
    assert_eq!(again.probes.len(), 3, "all run on its host");
    again.feed(Input::Probed(process(0), Liveness::Alive));
    again.feed(Input::Probed(process(1), Liveness::Alive));
    assert!(!again.scheduler.conductor.cluster.job.is_broken());
    again.feed(Input::Probed(process(2), Liveness::Gone));
    let verdict = again.scheduler.conductor.cluster.job.verdict().cloned().expect("rank 2 is gone for certain");
    assert_eq!(verdict.culprit.and_then(|culprit| culprit.rank), Some(2));
    again.join(0, attached(0, 3));
    again.pass(Duration::from_secs(4));
    assert_eq!(again.scheduler.conductor.cluster.nodes.lost().len(), 1);
    for _ in 0..20 {
        again.feed(Input::Heard(ConnId(0)));
        again.pass(Duration::from_millis(200));
        again.feed(Input::Probed(process(1), Liveness::Alive));
    }
    assert_eq!(again.scheduler.conductor.cluster.nodes.lost().len(), 2, "rank 1 lives, and does not come");
}

#[test]
fn what_nodes_were_told_before_is_told_to_all() {
    let mut again = started_again(formed(3), 3);
    (0..2).for_each(|rank| again.join(u64::from(rank), attached(rank, 3)));
    again.sent.clear();
    let culprit = Some(again.scheduler.conductor.cluster.nodes[&2].culprit());
    let cause = "is lost: its process has ended".to_owned();
    let failure = Failure { status: Status::PeerLost, culprit, cause, epoch: Epoch(1), group: None, sequence: 0 };
    let known = Known { epoch: Epoch(1), failure: Some(failure.clone()), lost: vec![2], revoked: Vec::new() };
    again.say(0, Message::Known(known.clone()));
    assert_eq!(again.verdict(1), Some(failure));
    let old = Known { epoch: Epoch(7), lost: vec![0, 1], ..known };
    again.say(0, Message::Known(old));
    assert_eq!(again.scheduler.conductor.cluster.nodes.lost(), [2]);
}

#[test]
fn each_brings_what_it_was_told_and_all_of_it_counts() {
    let mut again = started_again(formed(4), 4);
    (0..2).for_each(|rank| again.join(u64::from(rank), attached(rank, 4)));
    let failure = |status, group| {
        let (culprit, cause) = (None, format!("{status:?}"));
        Failure { status, culprit, cause, epoch: Epoch(1), group, sequence: 1 }
    };
    let mismatch = failure(Status::Mismatch, Some(GroupId::WORLD));
    let revoked = Known { epoch: Epoch(1), failure: None, lost: Vec::new(), revoked: vec![mismatch.clone()] };
    again.sent.clear();
    again.say(0, Message::Known(revoked));
    let told = again.told(1);
    assert!(matches!(&told[..], [Message::Revoked(word)] if word.failure == mismatch), "{told:?}");
    // One node was told of one loss, the other of both.
    for (conn, lost) in [(0, vec![2]), (1, vec![2, 3])] {
        let failure = Some(failure(Status::PeerLost, None));
        again.say(conn, Message::Known(Known { epoch: Epoch(1), failure, lost, revoked: Vec::new() }));
    }
    assert_eq!(again.scheduler.conductor.cluster.nodes.lost(), [2, 3]);
    let last = again.told(0).into_iter().rev().find_map(|message| match message {
        Message::LostNodes(lost) => Some(lost.nodes),
        _ => None,
    });
    assert_eq!(last, Some(vec![2, 3]), "everybody learns of the other's");
}

#[test]
fn an_epochs_settings_lives_and_restarts_outlive_its_scheduler() {
    for compacted in [false, true] {
        let mut bench = formed(2);
        let first = Register { instance: None, ..register(1, 2) };
        gone(&mut bench, 1, &first);
        bench.join(11, second(1, 2));
        bench.say(0, Message::Recover(Recover { epoch: Epoch(1), inside: true }));
        assert_eq!(bench.formed_message(11).restarts, 1);
        if compacted {
            bench.written = bench.scheduler.snapshot();
        }
        let mut elsewhere = durable(2);
        elsewhere.agreed.heartbeat_timeout_ms = 7_000;
        elsewhere.agreed.checksums = ChecksumScope::Nothing;
        let mut again = started_by(bench, elsewhere);
        again.join(10, attached(0, 2));
        let formed = again.formed_message(10);
        assert_eq!(
            (formed.agreed.heartbeat_timeout_ms, formed.agreed.checksums),
            (5_000, ChecksumScope::Network),
            "as all were told"
        );
        // A life is fenced even if it has not heard of its job.
        again.join(12, first);
        assert_eq!(again.rejected(12).0, Status::Fenced);
        again.join(13, Register { instance: Some(JobInstance([9; 16])), ..second(1, 2) });
        assert_eq!(again.formed_message(13).restarts, 1);
    }
}

/// Rank 0 aborts a job of three, of which rank 2 may be lost before; rank 0 was told that it is aborted.
fn aborted(is_one_lost: bool) -> (Bench, Known) {
    let mut bench = formed(3);
    if is_one_lost {
        gone(&mut bench, 2, &register(2, 3));
    }
    bench.say(0, Message::Abort(Abort { code: 7, reason: "enough".to_owned() }));
    let failure = bench.verdict(0).filter(|failure| failure.status == Status::Aborted);
    assert!(failure.is_some() && bench.ended.is_none());
    assert_eq!(bench.written.pop(), Some(Record::Done)); // the tests' disk loses that
    let lost = if is_one_lost { vec![2] } else { Vec::new() };
    (bench, Known { epoch: Epoch(1), failure, lost, revoked: Vec::new() })
}

#[test]
fn an_abort_is_known_again_after_a_restart_whatever_else_was_noticed_first() {
    for (was_lost, is_noticed_first) in [(false, false), (true, false), (true, true), (false, true)] {
        let (bench, known) = aborted(was_lost);
        let mut again = started_again(bench, 3);
        if is_noticed_first {
            again.feed(Input::Probed(register(2, 3).process, Liveness::Gone));
            assert_eq!(
                again.scheduler.conductor.cluster.job.verdict().map(|first| first.status),
                Some(Status::PeerLost)
            );
        }
        for rank in [1, 0] {
            again.join(u64::from(rank), attached(rank, 3));
            again.say(u64::from(rank), Message::InEpoch(InEpoch { epoch: Epoch(1) }));
        }
        again.say(1, Message::Recover(Recover { epoch: Epoch(1), inside: true })); // it had not heard of it
        again.join(12, second(2, 3));
        again.sent.clear();
        again.say(0, Message::Known(known.clone()));
        again.say(0, Message::Known(known.clone()));
        let told = again.told(1);
        let verdicts: Vec<_> = told
            .iter()
            .filter_map(|message| match message {
                Message::Verdict(verdict) => Some(verdict.failure.to_string()),
                _ => None,
            })
            .collect();
        assert_eq!(verdicts, [known.failure.as_ref().expect("it was told").to_string()], "once");
        let refused =
            |message: &Message| matches!(message, Message::NotRecovered(no) if no.failure.status == Status::Aborted);
        assert!(told.iter().any(refused), "a node that waits for an epoch waits in vain: {told:?}");
        // A node that has come back before hears of the abort, or one that comes back now.
        if !is_noticed_first {
            again.feed(Input::Probed(register(2, 3).process, Liveness::Gone));
            again.join(13, second(2, 3));
        }
        let told = again.told(if is_noticed_first { 12 } else { 13 });
        let is_refused = |message: &Message| match message {
            Message::Rejected(no) => no.status == Status::Aborted && no.reason.contains("enough"),
            _ => false,
        };
        assert!(told.iter().any(is_refused), "{told:?}");
        again.pass(Duration::from_secs(6));
        assert!(matches!(&again.ended, Some(Err(error)) if error.status() == Status::Aborted), "{:?}", again.ended);
        assert_eq!(again.written.last(), Some(&Record::Done), "the next start is a new job");
    }
}

#[test]
fn an_abort_of_which_nodes_were_told_before_is_not_forgotten_over_a_loss() {
    let mut again = started_again(formed(3), 3);
    again.feed(Input::Probed(register(2, 3).process, Liveness::Gone));
    assert_eq!(again.scheduler.conductor.cluster.job.verdict().map(|first| first.status), Some(Status::PeerLost));
    (0..2).for_each(|rank| again.join(u64::from(rank), attached(rank, 3)));
    again.say(1, Message::InEpoch(InEpoch { epoch: Epoch(1) }));
    again.say(1, Message::Recover(Recover { epoch: Epoch(1), inside: true }));
    again.sent.clear();
    let culprit = Some(again.scheduler.conductor.cluster.nodes[&0].culprit());
    let cause = "aborted the job with code 3: enough".to_owned();
    let failure = Failure { status: Status::Aborted, culprit, cause, epoch: Epoch(1), group: None, sequence: 0 };
    let known = Known { epoch: Epoch(1), failure: Some(failure.clone()), lost: Vec::new(), revoked: Vec::new() };
    again.say(0, Message::Known(known));
    let told = again.told(1);
    let is_verdict = |message: &Message| matches!(message, Message::Verdict(verdict) if verdict.failure == failure);
    assert!(told.iter().any(is_verdict), "{told:?}");
    let in_vain = |message: &Message| matches!(message, Message::NotRecovered(word) if word.failure == failure);
    assert!(told.iter().any(in_vain), "it waited for epoch 2: {told:?}");
}

#[test]
fn an_abort_is_known_again_although_somebody_has_left_since() {
    let mut bench = formed(3);
    bench.say(1, Message::Leave);
    assert!(bench.written.contains(&Record::Left(1)));
    let mut again = started_again(bench, 3);
    again.feed(Input::Probed(register(2, 3).process, Liveness::Gone));
    again.join(0, attached(0, 3));
    let (culprit, cause) =
        (Some(again.scheduler.conductor.cluster.nodes[&1].culprit()), "aborted the job with code 3".to_owned());
    let failure = Failure { status: Status::Aborted, culprit, cause, epoch: Epoch(1), group: None, sequence: 0 };
    let known = Known { epoch: Epoch(1), failure: Some(failure.clone()), lost: Vec::new(), revoked: Vec::new() };
    again.say(0, Message::Known(known));
    assert_eq!(again.scheduler.conductor.cluster.job.verdict().cloned(), Some(failure));
}

#[test]
fn without_a_complete_epoch_the_cluster_forms_anew() {
    let mut bench = Bench::new(durable(2));
    bench.join(0, register(0, 2));
    let mut again = started_again(bench, 2);
    (0..2).for_each(|rank| again.join(u64::from(rank), register(rank, 2)));
    assert_eq!(again.formed_message(1).generation, 2);
}

/// The next life of a rank, which has the token of the first.
fn second(rank: u32, number: u32) -> Register {
    let reentry =
        Some(Box::new(Reentry { tokens: vec![Token([rank as u8; 32])], next: TokenHash::of(&Token([77; 32])) }));
    Register { reentry, node_id: rank.to_string(), ..register(rank + 50, number) }
}

fn gone(bench: &mut Bench, conn: u64, register: &Register) {
    bench.close(conn, Closed::Ended);
    bench.feed(Input::Probed(register.process, Liveness::Gone));
}

fn told_epochs(bench: &mut Bench, conn: u64) -> Vec<(u64, u32)> {
    let epoch = |message| match message {
        Message::Formed(formed) => Some((formed.epoch.0, formed.restarts)),
        _ => None,
    };
    bench.told(conn).into_iter().filter_map(epoch).collect()
}

#[test]
fn a_node_that_waits_for_the_next_epoch_is_written_down_in_none_before() {
    let mut bench = formed(2);
    gone(&mut bench, 1, &register(1, 2));
    bench.join(11, second(1, 2));
    bench.written = bench.scheduler.snapshot();
    let mut again = started_again(bench, 2);
    again.join(0, attached(0, 2));
    again.join(12, second(1, 2));
    assert_eq!(told_epochs(&mut again, 12), [], "the epoch that goes on is not its own");
    again.feed(Input::Probed(register(1, 2).process, Liveness::Gone));
    again.join(13, second(1, 2));
    again.say(0, Message::Recover(Recover { epoch: Epoch(1), inside: true }));
    assert_eq!(told_epochs(&mut again, 13), [(2, 1)]);
}

#[test]
fn a_verdict_never_overtakes_the_epoch_that_it_is_of() {
    // (which records are durable when the verdict falls)
    for (durable_at, then) in [(1, 2), (2, 2)] {
        let mut bench = Bench::new(durable(3));
        bench.syncs = false;
        (0..3).for_each(|rank| bench.join(u64::from(rank), register(rank, 3)));
        if durable_at == 2 {
            bench.feed(Input::Persisted(1));
        }
        set(&mut bench, 0, 1, "a", b"x");
        bench.join(11, register(1, 3)); // its connection broke, and what it was told with it
        if durable_at == 1 {
            bench.feed(Input::Persisted(1));
        }
        bench.feed(Input::Probed(register(2, 3).process, Liveness::Gone));
        gone(&mut bench, 2, &register(2, 3));
        let told = bench.told(11);
        let place = |wanted: fn(&Message) -> bool| told.iter().position(wanted);
        let formed = place(|message| matches!(message, Message::Formed(_)));
        let verdict = place(|message| matches!(message, Message::Verdict(_)));
        assert!(formed.is_some() && formed < verdict, "{told:?}");
        bench.feed(Input::Persisted(then));
        assert!(bench.told(0).iter().any(|message| matches!(message, Message::StoreReply(_))));
        assert!(bench.told(11).is_empty());
    }
}

#[test]
fn a_job_that_is_done_is_so_in_the_snapshot_too() {
    let mut bench = formed(2);
    (0..2).for_each(|conn| bench.say(conn, Message::Leave));
    assert!(matches!(bench.ended, Some(Ok(()))));
    assert_eq!(bench.scheduler.snapshot().last(), Some(&Record::Done));
}

#[test]
fn a_node_that_first_hears_of_its_epoch_after_a_restart_is_listened_to() {
    let mut bench = Bench::new(durable(2));
    bench.syncs = false;
    (0..2).for_each(|rank| bench.join(u64::from(rank), register(rank, 2)));
    assert!(bench.sent.is_empty(), "nobody has been told: {:?}", bench.sent);
    let mut again = started_again(bench, 2);
    (0..2).for_each(|rank| again.join(u64::from(rank), register(rank, 2)));
    assert_eq!(again.formed_message(1).epoch, Epoch(1));
    let wanted =
        MakeGroup { parent: GroupId::WORLD, nth: 1, sequence: 1, digest: 0, wish: GroupWish::Ranks(vec![1, 0]) };
    (0..2).for_each(|conn| again.say(conn, Message::MakeGroup(wanted.clone())));
    assert!(matches!(again.told(1)[..], [Message::GroupMade(_)]));
}

#[test]
fn a_snapshot_of_an_epoch_holds_its_own_lives_not_those_that_wait_for_the_next() {
    let mut bench = formed(2);
    let old = register(1, 2);
    bench.feed(Input::Closed(ConnId(1), crate::membership::Closed::Ended, "reset by peer".into()));
    bench.feed(Input::Probed(old.process, Liveness::Gone));
    let tokens = vec![Token([1; 32])];
    let reentry = Some(Box::new(Reentry { tokens, next: TokenHash::of(&Token([77; 32])) }));
    bench.join(11, Register { reentry, ..named_again(1) });
    assert!(bench.scheduler.conductor.cluster.nodes[&1].is_back());
    let epochs = bench.scheduler.snapshot().into_iter().filter_map(|record| match record {
        Record::Epoch(epoch) => Some(epoch),
        _ => None,
    });
    let epochs: Vec<_> = epochs.collect();
    assert_eq!(epochs[0].members[1].register.incarnation, old.incarnation);
}

/// Another life of a rank.
fn named_again(rank: u32) -> Register {
    Register { host: host("here"), recovery: true, ..named(100 + rank, 2, &rank.to_string()) }
}

#[test]
fn a_snapshot_of_a_job_that_is_done_says_so() {
    let mut bench = formed(2);
    (0..2).for_each(|conn| bench.say(conn, Message::Leave));
    let records = bench.scheduler.snapshot();
    assert!(records.iter().any(|record| matches!(record, Record::Epoch(_))) && records.last() == Some(&Record::Done));
}

#[test]
fn a_connection_that_its_node_has_replaced_is_closed_whatever_waits_to_be_durable() {
    let mut bench = formed(2);
    bench.syncs = false;
    set(&mut bench, 0, 1, "a", b"x");
    assert!(bench.sent.is_empty());
    bench.join(5, attached(0, 2));
    assert_eq!(bench.closed, [ConnId(0)]);
}

#[test]
fn nodes_attach_to_a_scheduler_that_is_started_again_with_their_tokens() {
    let mut again = started_again(formed(2), 2);
    again.join(10, Register { reentry: register(0, 2).reentry, ..attached(1, 2) });
    let (status, reason) = again.rejected(10);
    assert!(status == Status::Rejected && reason.contains("without the token"), "{reason}");
    again.join(11, attached(1, 2));
    assert_eq!(again.formed_message(11).rank, 1);
}
