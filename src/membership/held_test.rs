//! Answers that wait for the disk, and the limits of a record.

use super::super::contract::{ConnId, Input, Liveness};
use super::super::store::OPEN_MAX;
use super::super::testing::{host, named, rules, worker, Bench, HOSTING};
use super::super::{Closed, Rules};
use crate::error::Status;
use crate::types::{Epoch, GroupId, JobInstance, Token, TokenHash};
use crate::wire::{
    Abort, Blob, FreeGroup, GroupWish, InEpoch, MakeGroup, Message, Record, Recover, Reentry, Register, StoreBegin,
    StoreOperation, StoreReply, Suspect,
};
use std::time::Duration;

const NODES: u32 = 3;

fn token(rank: u32, life: u8) -> Token {
    Token([0x40 + life * 16 + rank as u8; 32])
}

/// A life of a worker; it shows the token of the one before.
fn life(rank: u32, life: u8) -> Register {
    let tokens = if life == 0 { vec![token(rank, 9)] } else { vec![token(rank, life - 1), token(rank, 9)] };
    let reentry = Some(Box::new(Reentry { tokens, next: TokenHash::of(&token(rank, life)) }));
    Register {
        host: host("here"),
        recovery: true,
        reentry,
        ..named(rank + 100 * u32::from(life), NODES, &rank.to_string())
    }
}

fn attached(rank: u32) -> Register {
    Register { instance: Some(JobInstance([9; 16])), ..life(rank, 0) }
}

fn formed() -> Bench {
    let mut bench = Bench::new(Rules { recovery: true, durable: true, ..rules(NODES, 0) });
    (0..NODES).for_each(|rank| bench.join(rank.into(), life(rank, 0)));
    bench.sent.clear();
    bench
}

fn ask(bench: &mut Bench, conn: u64, request: u64, operation: StoreOperation) {
    let keys = vec![Blob::new(&b"n"[..])];
    let begin = StoreBegin { request, answered_below: 0, operation, keys, delta: 1, expected_bytes: 0, value_bytes: 0 };
    bench.say(conn, Message::StoreBegin(begin));
}

fn replies(bench: &mut Bench, conn: u64) -> Vec<StoreReply> {
    let reply = |message| match message {
        Message::StoreReply(reply) => Some(reply),
        _ => None,
    };
    bench.told(conn).into_iter().filter_map(reply).collect()
}

fn recover(bench: &mut Bench, conn: u64, inside: bool) {
    bench.say(conn, Message::Recover(Recover { epoch: Epoch(1), inside }));
}

#[test]
fn answers_that_wait_for_the_disk_count_as_unanswered() {
    let mut bench = formed();
    bench.syncs = false;
    let before = bench.written.len() as u64;
    let most = OPEN_MAX as u64;
    // Half of the requests change something. What the others have read may not be durable yet.
    (0..most).for_each(|request| {
        ask(&mut bench, 0, request, [StoreOperation::Add, StoreOperation::TryGet][request as usize % 2]);
    });
    assert!(bench.sent.is_empty(), "{:?}", bench.sent);
    let written = bench.written.len();
    for request in most..most + 9 {
        ask(&mut bench, 0, request, StoreOperation::Add);
        let told = replies(&mut bench, 0);
        let [refusal] = &told[..] else { panic!("told at once, for that promises nothing: {told:?}") };
        assert_eq!((refusal.request, refusal.status), (request, Status::Limit.code()));
        assert!(refusal.reason.contains("1024 unanswered store requests"), "{}", refusal.reason);
    }
    assert_eq!(bench.written.len(), written, "nothing of it was carried out");
    ask(&mut bench, 1, 0, StoreOperation::Add);
    assert!(bench.sent.is_empty(), "another node has its own");
    // A request is answered once its change is durable, and makes room.
    bench.feed(Input::Persisted(before + most / 4));
    let told = replies(&mut bench, 0).len() as u64;
    assert!(told >= most / 2 && told < most, "{told}");
    for request in 0..told {
        ask(&mut bench, 0, 5_000 + request, StoreOperation::Add);
    }
    assert!(bench.sent.is_empty(), "{:?}", bench.sent);
    ask(&mut bench, 0, 9_999, StoreOperation::Add);
    assert_eq!(replies(&mut bench, 0).len(), 1, "and now it is full again");
    bench.feed(Input::Persisted(bench.written.len() as u64));
    let told = replies(&mut bench, 0);
    assert!(told.iter().all(|reply| reply.status == 0) && told.len() as u64 == most, "{}", told.len());
    assert_eq!(replies(&mut bench, 1).len(), 1);
    ask(&mut bench, 0, 10_000, StoreOperation::Add);
    assert!(bench.sent.is_empty(), "its answer is the only one that waits");
}

#[test]
fn answers_still_due_on_an_old_connection_do_not_refuse_a_node_on_its_new_one() {
    let mut bench = formed();
    bench.syncs = false;
    (0..OPEN_MAX as u64).for_each(|request| ask(&mut bench, 0, request, StoreOperation::Add));
    let written = bench.written.len();
    for conn in 10..13 {
        if conn == 12 {
            bench.close(conn - 1, Closed::Broken); // the others are replaced
        }
        bench.join(conn, attached(0));
        bench.say(conn, Message::InEpoch(InEpoch { epoch: Epoch(1) }));
        (0..OPEN_MAX as u64).for_each(|request| ask(&mut bench, conn, request, StoreOperation::Add));
        assert_eq!(replies(&mut bench, conn), [], "none is refused");
    }
    assert_eq!(bench.written.len(), written, "and none carried out twice");
    assert!(
        bench.scheduler.conductor.cluster.out.promises.held() < 2 * OPEN_MAX,
        "what nobody can be told any more is not kept"
    );
    bench.feed(Input::Persisted(written as u64));
    let numbers: Vec<i64> = replies(&mut bench, 12).iter().map(|reply| reply.number).collect();
    assert_eq!(numbers, Vec::from_iter(1..=OPEN_MAX as i64));
    assert!(bench.sent.iter().all(|(conn, _)| conn.0 != 0 && conn.0 != 10 && conn.0 != 11), "only the last");
}

/// The nodes that were told that the epoch has begun, in order.
fn told_epoch(bench: &mut Bench, epoch: u64) -> Vec<u64> {
    let is_it = |message: &Message| matches!(message, Message::Formed(formed) if formed.epoch == Epoch(epoch));
    let sent = std::mem::take(&mut bench.sent);
    sent.into_iter().filter(|(_, message)| is_it(message)).map(|(conn, _)| conn.0).collect()
}

#[test]
fn nobody_is_told_of_an_epoch_before_it_is_durable_however_it_comes() {
    let mut bench = formed();
    bench.close(2, Closed::Ended);
    bench.feed(Input::Probed(life(2, 0).process, Liveness::Gone));
    bench.join(12, life(2, 1));
    bench.syncs = false;
    let durable = bench.written.len() as u64;
    (0..2).for_each(|conn| recover(&mut bench, conn, true));
    assert!(matches!(bench.written.last(), Some(Record::Epoch(record)) if record.epoch == Epoch(2)));
    // One node attaches again meanwhile, another asks once more, and time passes.
    bench.close(0, Closed::Broken);
    bench.join(10, attached(0));
    recover(&mut bench, 10, true);
    recover(&mut bench, 1, true);
    bench.join(13, life(2, 1));
    for beat in 1..5 {
        [10, 1, 13].into_iter().for_each(|conn| bench.beat(conn, beat));
        bench.pass(Duration::from_secs(1));
    }
    bench.feed(Input::Persisted(durable));
    assert_eq!(told_epoch(&mut bench, 2), [0; 0], "it is not durable yet");
    bench.feed(Input::Persisted(durable + 1));
    let mut told = told_epoch(&mut bench, 2);
    told.sort_unstable();
    told.dedup();
    assert_eq!(told, [1, 10, 13]);
}

#[test]
fn no_record_holds_a_token() {
    let mut bench = formed();
    bench.close(2, Closed::Ended);
    bench.feed(Input::Probed(life(2, 0).process, Liveness::Gone));
    bench.join(12, life(2, 1));
    (0..2).for_each(|conn| recover(&mut bench, conn, true));
    bench.join(10, attached(0));
    let (hash, shown) =
        (TokenHash::of(&token(2, 1)), [token(2, 0), token(2, 1), token(2, 9), token(0, 0), token(0, 9)]);
    for records in [&bench.written, &bench.scheduler.snapshot()] {
        let bytes: Vec<u8> = records.iter().flat_map(Record::encode).collect();
        let holds = |part: &[u8; 32]| bytes.windows(32).any(|window| window == part);
        assert!(holds(&hash.0), "what the next life is known by");
        assert!(!shown.iter().any(|token| holds(&token.0)));
    }
}

#[test]
fn a_secret_that_could_not_be_drawn_is_asked_for_again() {
    let mut bench = formed();
    bench.secrets = false;
    (0..NODES.into()).for_each(|conn| recover(&mut bench, conn, true));
    bench.pass(Duration::from_millis(900));
    assert_eq!(told_epoch(&mut bench, 2), [0; 0], "there is no secret for it");
    bench.secrets = true;
    bench.pass(Duration::from_millis(200));
    assert_eq!(told_epoch(&mut bench, 2), [0, 1, 2]);
}

#[test]
fn one_line_a_second_says_who_is_awaited_however_often_recovery_begins() {
    let mut bench = formed();
    bench.lines.clear();
    let mut beats = 0;
    for second in 0..5 {
        for _ in 0..10 {
            beats += 1;
            (0..NODES).for_each(|conn| bench.beat(conn.into(), beats));
            recover(&mut bench, 0, false); // and anew
            recover(&mut bench, 0, true);
            bench.pass(Duration::from_millis(100));
        }
        let said = bench.lines.iter().filter(|line| line.starts_with("recovering since")).count();
        assert!(said <= second + 1, "{:?}", bench.lines);
    }
    bench.lines.clear();
    recover(&mut bench, 1, true);
    for second in 1..=5 {
        beats += 1;
        (0..NODES).for_each(|conn| bench.beat(conn.into(), beats));
        bench.pass(Duration::from_secs(1));
        let said: Vec<&String> = bench.lines.iter().filter(|line| line.starts_with("recovering since")).collect();
        assert_eq!(said.len(), second, "{said:?}");
        assert!(said[second - 1].contains("2 of 3 nodes have called muster_recover; awaited: rank 2 "), "{said:?}");
    }
}

#[test]
fn a_scheduler_that_is_started_again_has_what_was_durable_and_no_more() {
    let mut bench = formed();
    bench.syncs = false;
    (0..4).for_each(|request| ask(&mut bench, 0, request, StoreOperation::Add));
    bench.feed(Input::Persisted(3)); // the epoch, and two of them
    let told = replies(&mut bench, 0).len();
    let rules = Rules { recovery: true, durable: true, ..rules(NODES, 0) };
    let mut again = Bench::resumed(rules, bench.written[..3].to_vec());
    again.join(0, attached(0));
    again.say(0, Message::InEpoch(InEpoch { epoch: Epoch(1) }));
    (0..4).for_each(|request| ask(&mut again, 0, request, StoreOperation::Add));
    let numbers: Vec<i64> = replies(&mut again, 0).iter().map(|reply| reply.number).collect();
    assert_eq!((told, &numbers[..]), (2, &[1, 2, 3, 4][..]));
}

#[test]
fn a_group_is_told_of_when_it_is_durable_and_a_verdict_at_once() {
    let mut bench = formed();
    bench.syncs = false;
    let wish = GroupWish::Ranks(vec![0, 1]);
    let wanted = MakeGroup { parent: GroupId::WORLD, nth: 1, sequence: 1, digest: 0, wish };
    (0..NODES.into()).for_each(|conn| bench.say(conn, Message::MakeGroup(wanted.clone())));
    assert!(matches!(bench.written.last(), Some(Record::Creation(_))), "{:?}", bench.written);
    assert!(bench.sent.is_empty(), "{:?}", bench.sent);
    bench.feed(Input::Persisted(2));
    for conn in 0..NODES.into() {
        assert!(matches!(bench.told(conn)[..], [Message::GroupMade(_)]));
    }
    ask(&mut bench, 0, 1, StoreOperation::Add); // the disk has something to do
    bench.say(1, Message::FreeGroup(FreeGroup { group: GroupId(3) }));
    assert!(bench.sent.is_empty());
    bench.close(2, Closed::Ended);
    bench.feed(Input::Probed(life(2, 0).process, Liveness::Gone));
    for conn in 0..2 {
        let told = bench.told(conn);
        assert!(matches!(told[..], [Message::LostNodes(_), Message::Verdict(_)]), "losses wait for no disk: {told:?}");
    }
    bench.say(0, Message::Abort(Abort { code: 7, reason: "enough".to_owned() }));
    let told = bench.told(1);
    assert!(matches!(told[..], [Message::LostNodes(_), Message::Verdict(_)]), "nor does an abort: {told:?}");
}

#[test]
fn what_a_node_that_was_taken_for_lost_still_wants_does_not_count() {
    let mut bench = formed();
    bench.pass_with(Duration::from_secs(8), |bench| {
        (0..2).for_each(|conn| bench.feed(Input::Heard(ConnId(conn))));
    });
    bench.feed(Input::Probed(life(2, 0).process, Liveness::Alive)); // it is stopped
    assert_eq!(bench.scheduler.conductor.cluster.nodes.lost(), [2]);
    ask(&mut bench, 2, 1, StoreOperation::Add);
    let wish = GroupWish::Ranks(vec![0]);
    bench.say(2, Message::MakeGroup(MakeGroup { parent: GroupId::WORLD, nth: 1, sequence: 1, digest: 0, wish }));
    bench.say(2, Message::Abort(Abort { code: 7, reason: "enough".to_owned() }));
    bench.sent.clear();
    recover(&mut bench, 2, true);
    let told = bench.told(2);
    let [Message::NotRecovered(word)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(word.failure.status, Status::Fenced);
    assert_eq!(bench.scheduler.conductor.cluster.job.verdict().map(|first| first.status), Some(Status::PeerLost));
    ask(&mut bench, 0, 1, StoreOperation::TryGet);
    assert_eq!(replies(&mut bench, 0)[0].status, Status::NotFound.code());
}

/// The scheduler of a job whose nodes all run on another host, started for the fourth time.
fn started_again_elsewhere() -> Bench {
    let rules = Rules { recovery: true, durable: true, ..rules(NODES, 0) };
    let mut bench = Bench::new(rules.clone());
    (0..NODES).for_each(|rank| bench.join(rank.into(), Register { host: host("there"), ..life(rank, 0) }));
    let records = bench.written.into_iter().chain((2..5).map(Record::Generation)).collect();
    Bench::resumed(rules, records)
}

#[test]
fn nobody_on_another_host_is_judged_before_the_heartbeat_time_out_either_whatever_a_peer_has_seen() {
    let mut again = started_again_elsewhere();
    again.join(0, Register { host: host("there"), ..attached(0) });
    again.say(0, Message::InEpoch(InEpoch { epoch: Epoch(1) }));
    again.say(0, Message::Suspect(Suspect { peer: 1, evidence: "its link ended".to_owned() }));
    let heard = |bench: &mut Bench| bench.feed(Input::Heard(ConnId(0)));
    again.pass_with(Duration::from_millis(4_900), heard);
    assert!(
        again.scheduler.conductor.cluster.nodes.lost().is_empty() && !again.scheduler.conductor.cluster.job.is_broken()
    );
    again.pass_with(Duration::from_millis(1_200), heard);
    assert_eq!(again.scheduler.conductor.cluster.nodes.lost(), [1, 2]);
}

#[test]
fn a_connection_that_ends_before_its_node_has_taken_up_its_epoch_proves_nothing() {
    for has_taken_it_up in [false, true] {
        let mut again = started_again_elsewhere();
        again.join(0, Register { host: host("there"), ..attached(0) });
        if has_taken_it_up {
            again.say(0, Message::InEpoch(InEpoch { epoch: Epoch(1) }));
        }
        again.close(0, Closed::Ended);
        again.pass(Duration::from_millis(200));
        let lost = again.scheduler.conductor.cluster.nodes.lost();
        assert_eq!(lost, if has_taken_it_up { vec![0] } else { vec![] }, "taken up: {has_taken_it_up}");
    }
}

#[test]
fn a_journal_that_is_rewritten_still_says_how_often_the_scheduler_was_started() {
    let again = started_again_elsewhere();
    assert_eq!(again.scheduler.snapshot().first(), Some(&Record::Generation(4)));
}

#[test]
fn a_journal_that_is_rewritten_still_says_who_has_left() {
    let mut bench = formed();
    bench.say(1, Message::Leave);
    let rules = Rules { recovery: true, durable: true, ..rules(NODES, 0) };
    let mut again = Bench::resumed(rules, bench.scheduler.snapshot());
    again.join(1, attached(1));
    assert_eq!(again.told(1), [Message::Bye]);
}

#[test]
fn one_that_has_come_back_hears_that_a_member_has_left_only_when_that_is_durable() {
    let mut bench = formed();
    bench.close(2, Closed::Ended);
    bench.feed(Input::Probed(life(2, 0).process, Liveness::Gone));
    bench.join(12, life(2, 1));
    bench.sent.clear();
    bench.syncs = false;
    bench.say(0, Message::Leave);
    bench.join(22, life(2, 1)); // it registers once more
    let refused = |bench: &Bench, conn: u64| {
        bench.sent.iter().any(|(to, message)| to.0 == conn && matches!(message, Message::Rejected(_)))
    };
    assert!(!refused(&bench, 12) && !refused(&bench, 22), "{:?}", bench.sent);
    assert!(bench.sent.iter().any(|(to, message)| to.0 == 22 && matches!(message, Message::NotYet(_))));
    bench.feed(Input::Persisted(bench.written.len() as u64));
    assert!(refused(&bench, 12), "{:?}", bench.sent);
    bench.join(32, life(2, 1));
    assert!(refused(&bench, 32), "{:?}", bench.sent);
}

#[test]
fn an_abort_is_durable_before_those_hear_of_it_with_whom_the_scheduler_may_end() {
    let mut bench = Bench::new(Rules { recovery: true, durable: true, ..rules(NODES, 0) });
    let hosts = Register { process: worker(HOSTING, NODES).process, ..life(0, 0) };
    [hosts, life(1, 0), life(2, 0)].into_iter().zip(0..).for_each(|(register, conn)| bench.join(conn, register));
    (bench.syncs, bench.sent) = (false, Vec::new());
    bench.say(1, Message::Abort(Abort { code: 7, reason: "enough".to_owned() }));
    assert_eq!(bench.written.last(), Some(&Record::Done));
    assert!(bench.verdict(2).is_some_and(|failure| failure.status == Status::Aborted), "it is told at once");
    assert_eq!((bench.verdict(0), bench.verdict(1)), (None, None), "rank 0 hosts the scheduler, and rank 1 aborts");
    ask(&mut bench, 2, 1, StoreOperation::Add);
    bench.say(2, Message::Leave);
    assert_eq!(bench.written.last(), Some(&Record::Done), "nothing follows the end of the job");
    bench.feed(Input::Persisted(bench.written.len() as u64));
    for conn in [0, 1] {
        assert!(bench.verdict(conn).is_some_and(|failure| failure.status == Status::Aborted), "connection {conn}");
    }
}

#[test]
fn however_short_the_heartbeat_time_out_nodes_have_the_time_to_find_a_scheduler_that_is_started_again() {
    let mut short = Rules { recovery: true, durable: true, ..rules(NODES, 0) };
    short.agreed.heartbeat_timeout_ms = 500;
    let mut bench = Bench::new(short.clone());
    (0..NODES).for_each(|rank| bench.join(rank.into(), Register { host: host("there"), ..life(rank, 0) }));
    let mut again = Bench::resumed(short, bench.written);
    again.pass(Duration::from_millis(1_400));
    assert!(again.scheduler.conductor.cluster.nodes.lost().is_empty());
    (0..2).for_each(|rank| again.join(rank.into(), Register { host: host("there"), ..attached(rank) }));
    again.pass_with(Duration::from_millis(200), |bench| (0..2).for_each(|conn| bench.feed(Input::Heard(ConnId(conn)))));
    assert_eq!(again.scheduler.conductor.cluster.nodes.lost(), [2]);
    let failure = again.verdict(0).expect("rank 2 has not come back").to_string();
    assert!(failure.contains("it did not come back within 1.5 s"), "{failure}");
}
