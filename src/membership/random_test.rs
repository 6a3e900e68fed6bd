//! Anything in any order: random inputs by seed never break the brain's invariants.

use super::testing::{host, rules, worker, Bench};
use super::*;
use crate::error::{Failure, Status};
use crate::types::{Call, CallKind, DType, Epoch, GroupId, Role};
use crate::wire::{
    Abandoned, Abort, Blob, ChildEnded, GroupProgress, Heartbeat, HowEnded, Locate, Register, Revoke, StatusQuery,
    StoreBegin, StoreCancel, StoreOperation, Suspect, Verdict, WhereAre,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// xorshift64*: small, and the same everywhere.
pub(super) struct Random(u64);

impl Random {
    /// A source that gives the same numbers for the same seed.
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    pub(super) fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }
}

const WORKERS: u32 = 4;
const SERVERS: u32 = 1;

/// A registration of one of a few lives; most of them are let in.
fn registration(random: &mut Random) -> Register {
    let serial = random.below(u64::from(WORKERS + SERVERS) + 1) as u32;
    let mut register = Register { server_num: SERVERS, ..worker(serial, WORKERS) };
    register.role = if serial == 0 { Role::Server } else { Role::Worker };
    register.host = host(if serial == 0 { "here" } else { "there" });
    match random.below(12) {
        0 => register.worker_num += 1,
        1 => register.rank = Some(random.below(6) as u32),
        2 => (register.node_id, register.node_id_given) = (random.below(6).to_string(), true),
        3 => register.incarnation = Incarnation([random.below(256) as u8; 16]),
        4 => register.instance = Some(crate::types::JobInstance([9; 16])),
        _ => {}
    }
    register
}

fn store_request(random: &mut Random) -> Message {
    let operations = [
        StoreOperation::Set,
        StoreOperation::Get,
        StoreOperation::TryGet,
        StoreOperation::Add,
        StoreOperation::CompareSet,
        StoreOperation::Delete,
        StoreOperation::Wait,
        StoreOperation::Check,
        StoreOperation::Count,
        StoreOperation::List,
        StoreOperation::Append,
        StoreOperation::MultiSet,
        StoreOperation::MultiGet,
        StoreOperation::TryMultiGet,
    ];
    let request = random.below(8);
    let value_bytes = random.below(3) * 4;
    match random.below(5) {
        0 => Message::StoreCancel(StoreCancel { request }),
        1 | 2 => {
            // Zeros are values without bytes, if several are set.
            let bytes = Blob::new(vec![[b'7', 0][random.below(2) as usize]; random.below(3) as usize * 4]);
            Message::StorePiece(StorePiece { request, bytes })
        }
        _ => Message::StoreBegin(StoreBegin {
            request,
            answered_below: random.below(3),
            operation: operations[random.below(operations.len() as u64) as usize],
            keys: (0..[0, 1, 1, 2][random.below(4) as usize])
                .map(|_| Blob::new(vec![b'a' + random.below(3) as u8]))
                .collect(),
            delta: 1,
            expected_bytes: random.below(3),
            value_bytes,
        }),
    }
}

fn message(random: &mut Random) -> Message {
    let group = GroupId(random.below(4) as u32);
    let peer = random.below(7) as u32;
    match random.below(100) {
        0..=34 => Message::Register(registration(random)),
        35..=59 => store_request(random),
        60..=74 => {
            let entered = random.below(3);
            let call =
                Call { kind: CallKind::Broadcast, dtype: Some(DType::Int8), op: None, root: None, count: 1, layout: 0 };
            let progress = GroupProgress { group, entered, finished: entered / 2, call: Some(call), age_ms: 400 };
            let sequence = random.below(9);
            Message::Heartbeat(Heartbeat {
                sequence,
                echoed: random.below(9),
                progress: vec![progress],
                ..Heartbeat::default()
            })
        }
        75..=82 => Message::Suspect(Suspect { peer, evidence: "reset".to_string() }),
        83..=88 => Message::WhereAre(WhereAre { query: 1, group, sequence: random.below(4), about: None }),
        89..=92 => Message::Locate(Locate { index: peer }),
        93..=95 => Message::Leave,
        96 => Message::Abort(Abort { code: 1, reason: "x".to_string() }),
        97 => {
            let question = Message::StatusQuery(StatusQuery { protocol_lowest: 1, protocol_highest: 1 });
            [Message::Report, Message::Gone, question][random.below(3) as usize].clone()
        }
        98 => Message::Revoke(Revoke {
            failure: Failure {
                status: Status::Timeout,
                culprit: None,
                cause: "late".to_string(),
                epoch: Epoch(random.below(3)),
                group: Some(group),
                sequence: 1,
            },
        }),
        _ => Message::Bye,
    }
}

/// A word that one of the few lives has ended, which may live on.
fn child_ended(random: &mut Random) -> ChildEnded {
    let of = registration(random);
    let how = [HowEnded::Exited, HowEnded::Killed][random.below(2) as usize];
    ChildEnded { host: of.host, process: of.process, how, number: 9, launch: of.launch }
}

/// One run; returns how many of each kind of message the scheduler sent.
fn run(seed: u64, sent: &mut BTreeMap<u8, usize>) {
    let mut random = Random::new(seed);
    let mut bench = Bench::new(rules(WORKERS, SERVERS));
    let mut open: Vec<u64> = Vec::new();
    let (mut next, mut verdict, mut ranks) = (0, None, BTreeSet::new());
    if random.below(4) > 0 {
        // Most runs begin with a complete cluster, or one that lacks a node.
        next = u64::from(WORKERS + SERVERS) - random.below(4) / 3;
        open.extend(0..next);
        for serial in 0..next {
            let (role, host) = if serial == 0 { (Role::Server, host("here")) } else { (Role::Worker, host("there")) };
            bench.join(serial, Register { role, host, server_num: SERVERS, ..worker(serial as u32, WORKERS) });
        }
    }
    for _ in 0..600 {
        match random.below(100) {
            0..=14 => {
                open.push(next);
                bench.open(next);
                next += 1;
            }
            15..=74 if !open.is_empty() => {
                let conn = open[random.below(open.len() as u64) as usize];
                bench.say(conn, message(&mut random));
            }
            75..=79 if !open.is_empty() => {
                let conn = open.swap_remove(random.below(open.len() as u64) as usize);
                let how = [Closed::Ended, Closed::Broken, Closed::Garbage][random.below(3) as usize];
                bench.close(conn, how);
            }
            80..=88 => {
                if let Some(process) = bench.probes.pop() {
                    let liveness = if random.below(4) == 0 { Liveness::Gone } else { Liveness::Alive };
                    bench.feed(Input::Probed(process, liveness));
                }
            }
            89 if random.below(2) == 0 => {
                bench.open(next);
                let word = child_ended(&mut random);
                let (host, processes, launches) = (word.host.clone(), vec![word.process], Vec::new());
                let abandoned = Abandoned { host, processes, launches };
                bench.say(
                    next,
                    [Message::ChildEnded(word), Message::Abandoned(abandoned)][random.below(2) as usize].clone(),
                );
                assert!(bench.closed.contains(&ConnId(next)) || bench.ended.is_some(), "seed {seed}");
                next += 1;
            }
            90 => bench.now = bench.now + Duration::from_millis(random.below(3_000)),
            91 if random.below(200) == 0 => bench.feed(Input::Stop),
            _ => bench.pass(Duration::from_millis(random.below(60))),
        }
        for (conn, message) in bench.sent.drain(..) {
            *sent.entry(message.kind()).or_default() += 1;
            assert!(conn.0 < next, "seed {seed}: to a connection that never was");
            match message {
                Message::Verdict(Verdict { failure }) => {
                    assert_eq!(
                        verdict.get_or_insert_with(|| failure.clone()),
                        &failure,
                        "seed {seed}: the first cause"
                    );
                }
                Message::Formed(formed) => {
                    ranks.insert(formed.index);
                    assert!(formed.index < WORKERS + SERVERS, "seed {seed}");
                    assert_eq!(formed.members.len(), (WORKERS + SERVERS) as usize, "seed {seed}");
                }
                _ => {}
            }
        }
        bench.closed.iter().for_each(|closed| open.retain(|conn| *conn != closed.0));
        bench.closed.clear();
        check(seed, &bench);
    }
    assert!(ranks.is_empty() || ranks.len() == (WORKERS + SERVERS) as usize, "seed {seed}: all or none: {ranks:?}");
}

fn check(seed: u64, bench: &Bench) {
    let brain = &bench.scheduler.conductor.cluster;
    if brain.job.has_ended() {
        assert!(bench.ended.is_some());
        return;
    }
    let members = brain.nodes.values().filter(|node| node.is_member()).count();
    assert_eq!(members, brain.nodes.present(), "seed {seed}");
    assert!(bench.armed.is_some_and(|armed| armed < Time::NEVER), "seed {seed}: it always wants to be woken");
    for (key, node) in brain.nodes.iter() {
        assert!(node.conn().is_none_or(|conn| brain.connections.node(conn) == Some(*key)), "seed {seed}: node {key}");
        assert_eq!(brain.nodes.of_life(node.register.incarnation), Some(*key), "seed {seed}");
    }
    assert_eq!(brain.nodes.lives(), brain.nodes.len(), "seed {seed}");
    assert_eq!(brain.connections.readers(), 0, "seed {seed}: one part tells all of a small cluster");
    bench.scheduler.conductor.store.check_sums(seed);
}

#[test]
fn random_inputs_break_nothing() {
    let mut sent = BTreeMap::new();
    for seed in 1..=1000 {
        run(seed, &mut sent);
    }
    // Rejected, Formed, HeartbeatEcho, Report, Bye, PeerReport, Verdict, Revoked, Absent, Located, StatusPart, StoreReply,
    // StorePiece
    for kind in [2, 3, 5, 6, 9, 11, 12, 14, 16, 18, 31, 33, 35] {
        assert!(sent.get(&kind).is_some_and(|count| *count > 0), "message {kind} was sent at least once: {sent:?}");
    }
}
