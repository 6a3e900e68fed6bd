use super::super::contract::{Input, Liveness};
use super::super::random_test::Random;
use super::super::testing::{host, named, rules, Bench};
use super::super::{Closed, Rules};
use super::*;
use crate::types::{JobInstance, Token, TokenHash};
use crate::wire::{
    Abandoned, Blob, FreeGroup, GroupWish, InEpoch, JobRecord, MakeByMembers, MakeGroup, Message, Recover, Reentry,
    Register, StoreBegin, StoreOperation,
};
use std::collections::BTreeMap;
use std::time::Duration;

const WORKERS: u32 = 3;
const SERVERS: u32 = 1;
const NODES: u32 = WORKERS + SERVERS;

fn with_recovery() -> Rules {
    Rules { recovery: true, durable: true, ..rules(WORKERS, SERVERS) }
}

fn register(index: u32, life: u32) -> Register {
    let role = if index < WORKERS { Role::Worker } else { Role::Server };
    let token = |life: u32| Token([(16 * life + index) as u8; 32]);
    let tokens = if life == 0 { Vec::new() } else { vec![token(life - 1)] };
    let reentry = Some(Box::new(Reentry { tokens, next: TokenHash::of(&token(life)) }));
    let id = format!("n{index}");
    Register {
        role,
        host: host("there"),
        recovery: true,
        reentry,
        server_num: SERVERS,
        ..named(index + 100 * life, WORKERS, &id)
    }
}

fn make(bench: &mut Bench, conns: &[u64], parent: GroupId, nth: u64, wish: &GroupWish) {
    let wanted = MakeGroup { parent, nth, sequence: nth, digest: 0, wish: wish.clone() };
    conns.iter().for_each(|conn| bench.say(*conn, Message::MakeGroup(wanted.clone())));
}

fn add(bench: &mut Bench, conn: u64, request: u64) {
    bench.say(
        conn,
        Message::StoreBegin(StoreBegin {
            request,
            answered_below: 0,
            operation: StoreOperation::Add,
            keys: vec![Blob::new(&b"count"[..])],
            delta: 1,
            expected_bytes: 0,
            value_bytes: 0,
        }),
    );
}

/// The records of a job in which nodes were lost and came back, and groups were made and freed.
fn story() -> Bench {
    let mut bench = Bench::new(with_recovery());
    (0..NODES).for_each(|index| bench.join(index.into(), register(index, 0)));
    let world: Vec<u64> = (0..WORKERS.into()).collect();
    make(&mut bench, &world, GroupId::WORLD, 1, &GroupWish::Ranks(vec![2, 0]));
    make(&mut bench, &world, GroupId::WORLD, 2, &GroupWish::Colour { colour: Some(1), key: 0 });
    make(&mut bench, &[2, 0], GroupId(3), 1, &GroupWish::Ranks(vec![1]));
    bench.say(0, Message::FreeGroup(FreeGroup { group: GroupId(3) }));
    bench.say(0, Message::FreeGroup(FreeGroup { group: GroupId(5) }));
    for conn in [2, 0] {
        let (tag, members) = ("x".to_owned(), vec![0, 2]);
        bench.say(conn, Message::MakeByMembers(MakeByMembers { ask: 1, wants: true, tag, nth: 1, members }));
    }
    make(&mut bench, &[2, 0], GroupId(6), 1, &GroupWish::Ranks(vec![1]));
    (0..3).for_each(|request| add(&mut bench, request % 2, request));
    bench.close(1, Closed::Ended);
    bench.pass(Duration::from_millis(100));
    bench.join(11, register(1, 1));
    for conn in [0, 2, 3] {
        bench.say(conn, Message::Recover(Recover { epoch: Epoch(1), inside: true }));
    }
    for conn in [0, 11, 2, 3] {
        bench.say(conn, Message::InEpoch(InEpoch { epoch: Epoch(2) }));
    }
    add(&mut bench, 11, 1);
    let process = register(3, 0).process;
    bench.open(50);
    bench
        .say(50, Message::Abandoned(Abandoned { host: host("there"), processes: vec![process], launches: Vec::new() }));
    bench
}

fn job() -> Record {
    let instance = JobInstance([9; 16]);
    Record::Job(JobRecord { instance, job_id: None, worker_num: WORKERS, server_num: SERVERS })
}

/// The records as they were written, and as a file says them that was rewritten.
fn journals() -> [Vec<Record>; 2] {
    let mut bench = story();
    let beginning = || vec![job(), Record::Generation(1)];
    let rewritten: Vec<Record> = std::iter::once(job()).chain(bench.scheduler.snapshot()).collect();
    bench.say(2, Message::Leave);
    let left = [Record::Left(2)];
    [beginning().into_iter().chain(bench.written).collect(), rewritten.into_iter().chain(left).collect()]
}

fn check(records: &[Record]) -> Result<(), Absurd> {
    check_records(WORKERS, SERVERS, records)
}

#[test]
fn what_was_written_can_have_been() {
    for journal in journals() {
        assert_eq!(check(&journal), Ok(()));
        let kinds: BTreeSet<u8> = journal.iter().map(|record| record.encode()[0]).collect();
        assert_eq!(kinds, BTreeSet::from([1, 2, 3, 4, 5, 6, 8, 9, 10]), "all but the end are in it");
    }
}

/// Changes the first record that this function can change. Returns the reason why the whole makes no sense then.
fn changed(change: impl Fn(&mut Record) -> bool) -> String {
    let [mut journal, _] = journals();
    let at = journal.iter_mut().position(change).expect("there is such a record");
    let absurd = check(&journal).expect_err("it makes no sense");
    assert!(absurd.record >= at, "{absurd:?}");
    absurd.words
}

fn of_epoch(change: impl Fn(&mut EpochRecord)) -> String {
    changed(|record| match record {
        Record::Epoch(epoch) => (change(epoch), true).1,
        _ => false,
    })
}

fn of_creation(change: impl Fn(&mut CreationRecord)) -> String {
    changed(|record| match record {
        Record::Creation(creation) => (change(creation), true).1,
        _ => false,
    })
}

#[test]
fn each_rule_is_held() {
    for epoch in [0, u64::MAX] {
        assert_eq!(of_epoch(|record| record.epoch = Epoch(epoch)), format!("epoch {epoch} after epoch 0"));
    }
    assert_eq!(of_epoch(|record| record.epoch = Epoch(2)), "epoch 2 after epoch 2");
    assert_eq!(of_epoch(|record| drop(record.members.pop())), "an epoch of 3 nodes in a job of 4");
    assert_eq!(of_epoch(|record| record.members[1].rank = WORKERS), "worker rank 3, of 3");
    assert_eq!(of_epoch(|record| record.members[1].rank = 0), "worker rank 0 twice in one epoch");
    assert_eq!(of_epoch(|record| record.members[1].register.role = Role::Scheduler), "scheduler rank 1, of 0");
    assert_eq!(
        of_epoch(|record| record.members[1].register.node_id = "n0".to_owned()),
        "node id \"n0\" twice in one epoch"
    );
    assert_eq!(
        of_epoch(|record| record.members[1].register.incarnation = record.members[0].register.incarnation),
        "one life in two places"
    );
    assert_eq!(of_epoch(|record| record.members[1].restarts = u32::MAX), "a node that has come back 4294967295 times");
    for silence in [0, u64::MAX] {
        let words = format!("a heartbeat time-out of {silence} ms");
        assert_eq!(of_epoch(|record| record.agreed.heartbeat_timeout_ms = silence), words);
    }
    assert_eq!(of_creation(|record| record.parent = GroupId(9)), "a group made of group 9, which never was");
    assert_eq!(of_creation(|record| record.by = 3), "a group of world wanted by node 3, which is not in it");
    for nth in [0, u64::MAX] {
        assert_eq!(of_creation(|record| record.nth = nth), format!("creation {nth} of world"));
    }
    assert_eq!(of_creation(|record| record.nth = 2), "creation 2 of world", "the second time");
    assert_eq!(of_creation(|record| record.call.kind = CallKind::Barrier), "a group made by barrier");
    for number in [0, 2, u32::MAX] {
        let words = format!("a made group with the number {number}");
        assert_eq!(of_creation(|record| record.groups[0].group = GroupId(number)), words);
    }
    assert_eq!(of_creation(|record| record.groups[0].group = GroupId(4)), "group 4 made twice");
    assert_eq!(of_creation(|record| record.groups[0].members.clear()), "group 3 without members");
    assert_eq!(of_creation(|record| record.groups[0].members = vec![0, 0]), "node 0 in group 3, made of world");
    assert_eq!(of_creation(|record| record.groups[0].members = vec![3]), "node 3 in group 3, made of world");
    assert_eq!(of_creation(|record| record.groups.push(record.groups[0].clone())), "2 groups made by one group_create");
    let freed = |change: fn(&mut FreedRecord)| {
        changed(|record| match record {
            Record::Freed(freed) => (change(freed), true).1,
            _ => false,
        })
    };
    assert_eq!(freed(|record| record.by = 1), "group 3 freed by node 1, which was not in it");
    assert_eq!(freed(|record| record.group = GroupId(7)), "group 7 freed by node 0, which was not in it");
    let store = |change: fn(&mut StoreRecord)| {
        changed(|record| match record {
            Record::Store(store) => (change(store), true).1,
            _ => false,
        })
    };
    assert_eq!(store(|record| record.by.as_mut().expect("somebody").0 = 4), "node 4 of 4 nodes");
    let nothing = |record: &mut StoreRecord| (record.entries.clear(), record.by = None).1;
    assert_eq!(store(nothing), "a change of the store that changes nothing");
    let other = |record: Record| {
        changed(|it| {
            let is_it = std::mem::discriminant(it) == std::mem::discriminant(&record);
            is_it && (*it = record.clone(), true).1
        })
    };
    assert_eq!(other(Record::Left(9)), "node 9 of 4 nodes");
    assert_eq!(other(Record::Abandoned(4)), "node 4 of 4 nodes");
    for (number, words) in [(0, "start 0 of the scheduler after start 0"), (u64::MAX, "start 18446744073709551615 of")]
    {
        let said = other(Record::Generation(number));
        assert!(said.starts_with(words), "{said}");
    }
}

#[test]
fn each_rule_of_groups_that_their_members_make_is_held() {
    let of_members = |change: fn(&mut ByMembersRecord)| {
        changed(|record| match record {
            Record::ByMembers(made) => (change(made), true).1,
            _ => false,
        })
    };
    assert_eq!(of_members(|record| record.nth = 0), "group 6 made twice by its members");
    assert_eq!(of_members(|record| record.group.group = GroupId(3)), "group 3 made twice");
    assert_eq!(of_members(|record| record.group.members = vec![0, 3]), "node 3 in group 6, made of workers");
    assert_eq!(of_members(|record| record.group.members.clear()), "group 6 without members");
    let [mut journal, _] = journals();
    let once = journal.iter().position(|record| matches!(record, Record::ByMembers(_))).expect("it is there");
    let twice = journal[once].clone();
    journal.insert(once + 1, twice);
    let absurd = check(&journal).expect_err("it has a name of its own");
    assert_eq!(absurd.words, "group 6 made twice by its members");
}

#[test]
fn each_order_is_held() {
    let [journal, _] = journals();
    let first = |wanted: fn(&Record) -> bool| journal.iter().position(wanted).expect("it is there");
    let mut early = journal.clone();
    let store = early.remove(first(|record| matches!(record, Record::Store(_))));
    early.insert(2, store);
    let absurd = check(&early).expect_err("before there was a node");
    assert_eq!((absurd.record, &absurd.words[..]), (2, "something happens before the first epoch"));
    for (again, words) in [(0, "the job begins once more"), (1, "start 1 of the scheduler after start 1")] {
        let twice: Vec<Record> = journal.iter().chain([&journal[again]]).cloned().collect();
        let absurd = check(&twice).expect_err("twice");
        assert_eq!((absurd.record, &absurd.words[..]), (journal.len(), words));
    }
    let done = |at: usize| {
        let mut journal = journal.clone();
        journal.insert(at, Record::Done);
        check(&journal).map_err(|absurd| absurd.words)
    };
    assert_eq!((done(journal.len()), done(4)), (Ok(()), Err("something follows the end of the job".to_owned())));
}

/// Bytes of a record become others, with the numbers that break things most often among them.
fn mutate(random: &mut Random, bytes: &mut [u8]) {
    for _ in 0..1 + random.index(3) {
        let width = [1, 1, 4, 8][random.index(4)].min(bytes.len());
        let at = random.index(bytes.len() - width + 1);
        let value = match random.index(6) {
            0 => 0,
            1 => u64::MAX,
            2 => u64::MAX >> 1,
            3 => random.index(8) as u64,
            4 => u64::from(bytes[at]).wrapping_add(1),
            _ => random.next(),
        };
        bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
}

/// A journal in which something was changed; none if a record cannot even be read.
fn spoilt(random: &mut Random, journal: &[Record]) -> Option<Vec<Record>> {
    let mut records = journal.to_vec();
    let at = 1 + random.index(records.len() - 1);
    match random.index(8) {
        0 => drop(records.remove(at)),
        1 => records.insert(at, journal[1 + random.index(journal.len() - 1)].clone()),
        2 => records.swap(at, 1 + random.index(journal.len() - 1)),
        _ => {
            let mut bytes = records[at].encode();
            mutate(random, &mut bytes);
            records[at] = Record::decode(&bytes).ok()?;
        }
    }
    Some(records)
}

/// A scheduler goes on with these records: all nodes come, the lost ones too, make groups, write, and leave.
fn go_on(records: Vec<Record>) {
    let mut bench = Bench::resumed(with_recovery(), records);
    let attached = |index, life| Register { instance: Some(JobInstance([9; 16])), ..register(index, life) };
    for index in 0..NODES {
        bench.join(index.into(), attached(index, u32::from(index == 1)));
    }
    let turn = |bench: &mut Bench, epoch| {
        for conn in 0..u64::from(NODES) {
            bench.say(conn, Message::InEpoch(InEpoch { epoch: Epoch(epoch) }));
            add(bench, conn, 40 + epoch);
        }
        for (parent, nth) in [(GroupId::WORLD, 3), (GroupId::WORLD, 4), (GroupId::UNIVERSE, 1), (GroupId(4), 1)] {
            make(bench, &[0, 1, 2, 3], parent, nth, &GroupWish::Colour { colour: Some(1), key: 0 });
        }
        for group in 3..9 {
            (0..NODES).for_each(|conn| bench.say(conn.into(), Message::FreeGroup(FreeGroup { group: GroupId(group) })));
        }
    };
    let answer_probes = |bench: &mut Bench| {
        while let Some(process) = bench.probes.pop() {
            bench.feed(Input::Probed(process, Liveness::Alive));
        }
    };
    for epoch in [2, 3] {
        turn(&mut bench, epoch);
        bench.pass_with(Duration::from_millis(400), answer_probes);
        for conn in 0..u64::from(NODES) {
            bench.say(conn, Message::Recover(Recover { epoch: Epoch(epoch), inside: true }));
        }
    }
    drop(bench.scheduler.snapshot());
    (0..NODES).for_each(|conn| bench.say(conn.into(), Message::Leave));
    bench.pass_with(Duration::from_secs(12), answer_probes);
}

#[test]
fn whatever_a_journal_says_it_is_refused_or_gone_on_with() {
    let journals = journals();
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..6_000 {
        let mut random = Random::new(seed);
        let Some(records) = spoilt(&mut random, &journals[seed as usize % 2]) else {
            *counts.entry("unreadable").or_default() += 1;
            continue;
        };
        let verdict = check(&records);
        *counts.entry(if verdict.is_ok() { "accepted" } else { "refused" }).or_default() += 1;
        if verdict.is_ok() {
            let gone = std::panic::catch_unwind(|| go_on(records));
            assert!(gone.is_ok(), "seed {seed}: it was accepted, and cannot be gone on with");
        }
    }
    assert!(["unreadable", "refused", "accepted"].iter().all(|met| counts.get(met) > Some(&300)), "{counts:?}");
}
