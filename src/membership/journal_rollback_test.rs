use super::super::contract::{Input, Liveness};
use super::super::testing::{host, named, rules, Bench};
use super::super::{Closed, Rules};
use crate::error::Status;
use crate::types::{Epoch, GroupId, JobInstance, Token, TokenHash};
use crate::wire::{
    Blob, GroupWish, MakeGroup, Message, Record, Reentry, Register, StoreBegin, StoreOperation, StorePiece, StoreReply,
    Told,
};
use std::time::Duration;

const INSTANCE: JobInstance = JobInstance([9; 16]);
const NODES: u32 = 2;

fn durable() -> Rules {
    Rules { recovery: true, durable: true, ..rules(NODES, 0) }
}

fn register(rank: u32) -> Register {
    let reentry = Some(Box::new(Reentry { tokens: Vec::new(), next: TokenHash::of(&Token([rank as u8; 32])) }));
    Register { host: host("here"), recovery: true, reentry, ..named(rank, NODES, &rank.to_string()) }
}

/// The same life registers once more. It was told so much.
fn again(rank: u32, epoch: u64, change: u64, group: u32) -> Register {
    let told = Told { epoch: Epoch(epoch), change, group };
    Register { instance: Some(INSTANCE), told, ..register(rank) }
}

fn formed() -> Bench {
    let mut bench = Bench::new(durable());
    (0..NODES).for_each(|rank| bench.join(u64::from(rank), register(rank)));
    bench.sent.clear();
    bench
}

/// A scheduler that is started with what a journal says.
fn started(mut records: Vec<Record>) -> Bench {
    let starts = |record: &&Record| matches!(record, Record::Generation(_));
    records.push(Record::Generation(records.iter().filter(starts).count() as u64 + 2));
    let mut bench = Bench::resumed(durable(), records.clone());
    bench.written.splice(..0, records);
    bench
}

fn begin(bench: &mut Bench, conn: u64, request: u64, value_bytes: u64, answered_below: u64) {
    let operation = if value_bytes == 0 { StoreOperation::Add } else { StoreOperation::Set };
    let keys = vec![Blob::new(format!("k{request}").into_bytes())];
    let begin = StoreBegin { request, answered_below, operation, keys, delta: 1, expected_bytes: 0, value_bytes };
    bench.say(conn, Message::StoreBegin(begin));
}

fn add(bench: &mut Bench, conn: u64, request: u64) -> StoreReply {
    begin(bench, conn, request, 0, 0);
    reply(bench, conn)
}

fn reply(bench: &mut Bench, conn: u64) -> StoreReply {
    let replies = bench.told(conn).into_iter().filter_map(|message| match message {
        Message::StoreReply(reply) => Some(reply),
        _ => None,
    });
    replies.last().expect("an answer")
}

/// The scheduler has ended over this registration, with these words.
fn ends_over(mut bench: Bench, register: Register, words: &str) {
    bench.join(50, register);
    let Some(Err(error)) = &bench.ended else { panic!("{:?} {:?}", bench.ended, bench.sent) };
    assert_eq!(error.status(), Status::Journal);
    assert!(
        error.message().starts_with("the journal is an older copy: rank ") && error.message().contains(words),
        "{error}"
    );
    assert!(!bench.written.contains(&Record::Done), "with the right journal the job goes on");
}

fn is_let_in(bench: &mut Bench, conn: u64, register: Register) {
    bench.join(conn, register);
    assert!(bench.ended.is_none(), "{:?}", bench.ended);
    assert!(matches!(bench.told(conn)[..], [Message::Formed(_)]));
}

#[test]
fn one_that_lacks_an_acknowledged_change_is_not_gone_on_with_from_whatever_start_it_is() {
    let mut bench = formed();
    assert_eq!(add(&mut bench, 1, 4).change, 1);
    let copy = bench.written.clone();
    assert_eq!(add(&mut bench, 1, 5).change, 2);
    let words = "was told that its change 2 of the store was made, and the last that this scheduler knows is 1";
    // The copy is found out within the present start, after one more, and after many starts with the copy itself.
    ends_over(started(copy.clone()), again(1, 1, 2, 0), words);
    let mut later = started(bench.written.clone());
    is_let_in(&mut later, 10, again(1, 1, 2, 0));
    assert_eq!(add(&mut later, 10, 6).change, 3);
    ends_over(
        started(bench.written),
        again(1, 1, 3, 0),
        "its change 3 of the store was made, and the last that this scheduler knows is 2",
    );
    let mut many = started(copy);
    for _ in 0..5 {
        // It does not help either that another node goes on with the copy.
        is_let_in(&mut many, 20, again(0, 1, 0, 0));
        (0..9).for_each(|request| drop(add(&mut many, 20, request)));
        many = started(many.written);
    }
    ends_over(many, again(1, 1, 2, 0), words);
}

#[test]
fn changes_count_in_the_order_of_the_journal_not_in_that_of_their_requests() {
    let mut bench = formed();
    begin(&mut bench, 1, 1, 3, 0);
    assert_eq!(add(&mut bench, 1, 2).change, 1);
    let copy = bench.written.clone();
    bench.say(1, Message::StorePiece(StorePiece { request: 1, bytes: Blob::new(b"abc".to_vec()) }));
    assert_eq!(reply(&mut bench, 1).change, 2);
    ends_over(started(copy), again(1, 1, 2, 0), "its change 2 of the store was made");
    // A request that is repeated is the same change. A request that changes nothing is no change.
    begin(&mut bench, 1, 2, 0, 0);
    assert_eq!(reply(&mut bench, 1).change, 1);
    let keys = vec![Blob::new(&b"k2"[..])];
    let read = StoreBegin {
        operation: StoreOperation::TryGet,
        request: 3,
        answered_below: 0,
        keys,
        delta: 0,
        expected_bytes: 0,
        value_bytes: 0,
    };
    bench.say(1, Message::StoreBegin(read));
    assert_eq!(reply(&mut bench, 1).change, 0);
}

#[test]
fn the_right_journal_knows_what_was_acknowledged_rewritten_or_not() {
    for is_rewritten in [false, true] {
        let mut bench = formed();
        for request in 0..20 {
            begin(&mut bench, 1, request, 0, request);
        }
        // All are answered, and need not be remembered one by one.
        let keys = vec![Blob::new(&b"none"[..])];
        let read = StoreBegin {
            operation: StoreOperation::TryGet,
            request: 77,
            answered_below: 77,
            keys,
            delta: 0,
            expected_bytes: 0,
            value_bytes: 0,
        };
        bench.say(1, Message::StoreBegin(read));
        let records = if is_rewritten { bench.scheduler.snapshot() } else { bench.written.clone() };
        let mut next = started(records);
        is_let_in(&mut next, 11, again(1, 1, 20, 0));
        assert_eq!(add(&mut next, 11, 78).change, 21);
    }
}

/// A node is lost, and its next life waits for the others. The life before has the place as long as that takes.
#[test]
fn a_rewritten_journal_knows_what_the_life_before_was_told() {
    let mut bench = formed();
    (0..5).for_each(|request| drop(add(&mut bench, 1, request)));
    bench.close(1, Closed::Ended);
    bench.feed(Input::Probed(register(1).process, Liveness::Gone));
    bench.pass(Duration::from_millis(200));
    let tokens = vec![Token([1; 32])];
    let reentry = Some(Box::new(Reentry { tokens, next: TokenHash::of(&Token([17; 32])) }));
    let serial = register(77);
    let next_life = Register { incarnation: serial.incarnation, process: serial.process, reentry, ..register(1) };
    bench.join(7, next_life);
    assert!(bench.lines.iter().any(|line| line.contains("is back")), "{:?}", bench.lines);
    for records in [bench.scheduler.snapshot(), bench.written.clone()] {
        let mut again_started = started(records);
        is_let_in(&mut again_started, 11, again(1, 1, 5, 0));
        assert_eq!(add(&mut again_started, 11, 78).change, 6);
    }
}

#[test]
fn one_that_lacks_a_group_or_an_epoch_is_not_gone_on_with_either() {
    let mut bench = formed();
    let copy = bench.written.clone();
    let wish = GroupWish::Ranks(vec![0, 1]);
    let wanted = MakeGroup { parent: GroupId::WORLD, nth: 1, sequence: 1, digest: 0, wish };
    (0..NODES.into()).for_each(|conn| bench.say(conn, Message::MakeGroup(wanted.clone())));
    is_let_in(&mut started(bench.written.clone()), 10, again(0, 1, 0, 3));
    is_let_in(&mut started(bench.scheduler.snapshot()), 10, again(0, 1, 0, 3));
    ends_over(
        started(copy.clone()),
        again(0, 1, 0, 3),
        "was told of group 3, and the last that this scheduler knows is 0",
    );
    ends_over(started(copy), again(0, 2, 0, 0), "was told of epoch 2, and the last that this scheduler knows is 1");
}

#[test]
fn a_stranger_or_a_node_without_the_token_ends_nothing() {
    let bench = formed();
    let mut next = started(bench.written.clone());
    let stranger = Register { incarnation: crate::types::Incarnation([77; 16]), ..again(0, 9, 9, 9) };
    next.join(10, stranger);
    let (status, reason) = next.rejected(10);
    assert_eq!(status, Status::Rejected, "a member takes that for another job's scheduler, and goes on");
    assert!(
        reason.ends_with(
            "was told of epoch 9, and the last that this scheduler knows is 1: its journal is an older copy"
        ),
        "{reason}"
    );
    let other = Some(Box::new(Reentry { tokens: Vec::new(), next: TokenHash::of(&Token([99; 32])) }));
    next.join(11, Register { reentry: other, ..again(0, 9, 9, 9) });
    assert_eq!(next.rejected(11).0, Status::Rejected);
    assert!(next.ended.is_none(), "{:?}", next.ended);
    is_let_in(&mut next, 12, again(0, 1, 0, 0));
}

#[test]
fn a_copy_from_before_the_first_epoch_puts_nobody_out() {
    let mut next = started(Vec::new());
    next.join(10, again(0, 1, 0, 0));
    let (status, reason) = next.rejected(10);
    assert_eq!(status, Status::Rejected);
    assert!(
        reason.ends_with(
            "was told of epoch 1, and the last that this scheduler knows is 0: its journal is an older copy"
        ),
        "{reason}"
    );
}

#[test]
fn one_that_had_left_and_did_not_hear_so_is_told_goodbye() {
    let mut bench = formed();
    add(&mut bench, 1, 4);
    bench.say(1, Message::Leave);
    let mut next = started(bench.written);
    next.join(11, again(1, 1, 1, 0));
    assert!(matches!(next.told(11)[..], [Message::Bye]) && next.ended.is_none());
}
