use crate::error::Status;
use crate::membership::testing::{host, named, rules, worker, Bench};
use crate::membership::{Closed, ConnId, Rules};
use crate::types::{Incarnation, JobInstance, Role};
use crate::wire::{Heartbeat, Message, Register, Suspect};
use std::time::Duration;

/// The sentence with which the last of these is refused.
fn refusal(rules: Rules, registers: &[Register]) -> String {
    let mut bench = Bench::new(rules);
    for (conn, register) in (1u64..).zip(registers) {
        bench.now = bench.now + Duration::from_secs(1);
        bench.join(conn, register.clone());
    }
    let (status, reason) = bench.rejected(registers.len() as u64);
    assert_eq!(status, Status::Rejected, "{reason}");
    assert_eq!(bench.closed, [ConnId(registers.len() as u64)], "only that one is refused");
    reason
}

fn on_b(register: Register) -> Register {
    Register { host: host("b"), ..register }
}

#[test]
fn no_common_protocol() {
    let register = Register { protocol_lowest: 7, protocol_highest: 9, version: "2.0".to_string(), ..named(1, 4, "x") };
    assert_eq!(
        refusal(rules(4, 0), &[register]),
        format!(
            "node \"x\" on host here (pid 1001) (library 2.0) speaks protocol versions 7 to 9, this scheduler (library {}) \
             version 1: they have none in common",
            env!("CARGO_PKG_VERSION")
        )
    );
}

#[test]
fn a_node_id_that_nobody_sees_or_that_shows_as_another() {
    let refused = |id: &str| refusal(rules(4, 0), &[on_b(named(1, 4, id))]);
    assert_eq!(
        refused(""),
        "the worker on host \"b\" (pid 1001) registers with an empty node id: expected one of 1 to 255 bytes (MS_NODE_ID)"
    );
    for (hidden, code) in
        [("\u{200b}", "200b"), ("\u{202e}", "202e"), ("\u{2066}", "2066"), ("\u{1b}", "1b"), ("\u{a0}", "a0")]
    {
        let upper = format!("{:0>4}", code.to_uppercase());
        assert_eq!(
            refused(&format!("a{hidden}b")),
            format!(
                "the worker on host \"b\" (pid 1001) registers with node id \"a\\u{{{code}}}b\", which has the invisible \
                 character U+{upper} in it (MS_NODE_ID)"
            )
        );
    }
    let mut bench = Bench::new(rules(4, 0));
    bench.join(1, named(1, 4, "rank 1, späť"));
    assert!(bench.sent.is_empty(), "blanks and letters of any script are no offence");
}

#[test]
fn another_job() {
    let ours = || Rules { job_id: Some("a".to_string()), ..rules(4, 0) };
    let theirs = Register { job_id: Some("b".to_string()), ..on_b(named(1, 4, "x")) };
    assert_eq!(
        refusal(ours(), &[theirs]),
        "node \"x\" on host b (pid 1001) belongs to job \"b\", this scheduler to job \"a\": MUSTER_JOB_ID must be the \
         same everywhere"
    );
    let mut bench = Bench::new(ours());
    bench.join(2, Register { job_id: Some("a".to_string()), ..named(2, 4, "y") });
    assert!(bench.sent.is_empty(), "the same is no disagreement");
    assert_eq!(
        refusal(ours(), &[on_b(named(1, 4, "x"))]),
        "node \"x\" on host b (pid 1001) names no job, this scheduler is of job \"a\": MUSTER_JOB_ID must be the same everywhere"
    );
    assert_eq!(
        refusal(rules(4, 0), &[Register { job_id: Some("b".to_string()), ..on_b(named(1, 4, "x")) }]),
        "node \"x\" on host b (pid 1001) belongs to job \"b\", this scheduler names none: MUSTER_JOB_ID must be the same everywhere"
    );
}

/// A worker that a launcher started in this job.
fn launched(serial: u32, job: &str) -> Register {
    Register { derived_job: Some(job.to_string()), rank: Some(serial - 1), ..worker(serial, 2) }
}

fn of_launcher(job: Option<&str>) -> Rules {
    Rules { derived_job: job.map(str::to_string), ..rules(2, 0) }
}

/// The words with which the last message to this connection sends its node past this scheduler.
fn passed_by(bench: &mut Bench, conn: u64) -> String {
    assert!(bench.closed.contains(&ConnId(conn)), "connection {conn} is closed");
    match bench.told(conn).pop() {
        Some(Message::PassBy(word)) => word.reason,
        other => panic!("connection {conn} was told {other:?}, not to pass by"),
    }
}

#[test]
fn a_node_of_another_launchers_job_passes_by_and_leaves_no_trace() {
    let mut bench = Bench::new(of_launcher(Some("Open MPI 1")));
    bench.join(1, launched(1, "Open MPI 2"));
    assert_eq!(
        passed_by(&mut bench, 1),
        "node \"made-1\" on host here (pid 1001) belongs to another job than this scheduler, as their launchers tell: to \
         \"Open MPI 2\", not to \"Open MPI 1\""
    );
    assert!(bench.lines.is_empty(), "that is no complaint: {:?}", bench.lines);
    // Its place is free for the node that it belongs to.
    bench.join(2, launched(1, "Open MPI 1"));
    bench.join(3, launched(2, "Open MPI 1"));
    assert_eq!((bench.formed_message(2).rank, bench.formed_message(3).rank), (0, 1));
    // It is told the same once the cluster is complete, which has no place for it either.
    bench.join(4, Register { rank: Some(0), ..launched(3, "Open MPI 2") });
    assert!(passed_by(&mut bench, 4).contains("belongs to another job than this scheduler"));
}

#[test]
fn only_proof_of_two_jobs_is_refused() {
    for (ours, theirs) in [(None, Some("Open MPI 2")), (Some("Open MPI 1"), None)] {
        let mut bench = Bench::new(of_launcher(ours));
        for (conn, serial) in [(1, 1), (2, 2)] {
            let derived_job = theirs.map(str::to_string);
            bench.join(conn, Register { derived_job, ..launched(serial, "") });
        }
        assert_eq!((bench.formed_message(1).rank, bench.formed_message(2).rank), (0, 1), "{ours:?} and {theirs:?}");
    }
}

#[test]
fn a_node_that_may_have_its_own_scheduler_elsewhere_is_not_refused_for_good() {
    // Without a launcher's job this scheduler cannot know which job the node belongs to; but it has no place for it.
    let mut bench = Bench::new(of_launcher(None));
    bench.join(1, Register { worker_num: 7, ..launched(1, "Open MPI 2") });
    assert!(passed_by(&mut bench, 1).contains("expects 7 workers, this scheduler's job has 2"));
    // A node of its own job is told for good that something is wrong.
    let mut bench = Bench::new(of_launcher(Some("Open MPI 2")));
    bench.join(1, Register { worker_num: 7, ..launched(1, "Open MPI 2") });
    assert!(bench.rejected(1).1.contains("expects 7 workers, this scheduler's job has 2"));
}

#[test]
fn a_member_goes_on_though_the_scheduler_was_started_again_under_another_launcher() {
    let mut bench = Bench::new(of_launcher(Some("Open MPI 1")));
    bench.join(1, launched(1, "Open MPI 1"));
    bench.join(2, launched(2, "Open MPI 1"));
    let formed = bench.formed_message(2);
    bench.close(2, Closed::Ended);
    let told = crate::wire::Told { epoch: formed.epoch, ..crate::wire::Told::NOTHING };
    bench.join(3, Register { instance: Some(formed.instance), told, ..launched(2, "Open MPI 9") });
    assert_eq!(bench.formed_message(3).rank, 1, "its job instance says whose it is");
}

#[test]
fn other_sizes() {
    assert_eq!(
        refusal(rules(4, 0), &[on_b(named(1, 5, "3"))]),
        "node \"3\" on host b (pid 1001) expects 5 workers, this scheduler's job has 4: MS_WORKER_NUM must be the same \
         everywhere"
    );
    assert_eq!(
        refusal(rules(4, 0), &[Register { server_num: 1, ..named(1, 4, "3") }]),
        "node \"3\" on host here (pid 1001) expects 1 server, this scheduler's job has 0: MS_SERVER_NUM must be the same \
         everywhere"
    );
    assert_eq!(
        refusal(rules(4, 0), &[Register { recovery: true, ..named(1, 4, "3") }]),
        "node \"3\" on host here (pid 1001) has recovery on, this scheduler's job has it off: MS_ENABLE_RECOVERY must be \
         the same everywhere"
    );
}

#[test]
fn an_id_that_is_held() {
    assert_eq!(
        refusal(rules(4, 0), &[named(1, 4, "x"), on_b(named(2, 4, "x"))]),
        "node id \"x\" of the worker on host b (pid 1002) is already held by the worker on host here (pid 1001), \
         registered 1 s ago: MS_NODE_ID must be unique"
    );
}

#[test]
fn leading_zeros() {
    for (first, second) in [("0", "00"), ("00", "0"), ("07", "7")] {
        assert_eq!(
            refusal(rules(4, 0), &[named(1, 4, first), on_b(named(2, 4, second))]),
            format!(
                "node {second:?} on host b (pid 1002) and node {first:?} on host here (pid 1001), registered 1 s ago, differ \
                 only in the leading zeros of their node ids: MS_NODE_ID must differ in more"
            )
        );
    }
    // Such an id alone is a name, not a rank.
    let mut bench = Bench::new(rules(2, 0));
    bench.join(1, named(1, 2, "00"));
    bench.join(2, Register { rank: Some(0), ..worker(2, 2) });
    assert_eq!(bench.formed_message(1).rank, 1);
    assert_eq!(bench.formed_message(2).rank, 0);
}

#[test]
fn ranks_that_can_not_be() {
    let ranked = |serial, rank| Register { rank: Some(rank), ..named(serial, 4, &format!("w{serial}")) };
    assert_eq!(
        refusal(rules(4, 0), &[ranked(1, 2), on_b(ranked(2, 2))]),
        "rank 2 of worker node \"w2\" on host b (pid 1002) is already held by node \"w1\" on host here (pid 1001), \
         registered 1 s ago"
    );
    assert_eq!(
        refusal(rules(4, 0), &[named(1, 4, "2"), ranked(2, 2)]),
        "rank 2 of worker node \"w2\" on host here (pid 1002) is already held by node \"2\" on host here (pid 1001), \
         registered 1 s ago"
    );
    assert_eq!(
        refusal(rules(4, 0), &[ranked(1, 7)]),
        "node \"w1\" on host here (pid 1001) was given rank 7 by its launcher, this scheduler's job has 4 workers (ranks 0 \
         to 3)"
    );
    assert_eq!(
        refusal(rules(4, 0), &[Register { rank: Some(2), ..named(1, 4, "1") }]),
        "node \"1\" on host here (pid 1001) has rank 1 by its node id and rank 2 by its launcher: the two must agree"
    );
}

/// Nodes that were given no id are named after their launcher's rank. A sentence about what they must differ in says so.
#[test]
fn a_rank_that_two_launchers_give() {
    let launched = |serial, rank| Register {
        node_id: format!("rank {rank}"),
        node_id_given: false,
        rank: Some(rank),
        ..worker(serial, 4)
    };
    assert_eq!(
        refusal(rules(4, 0), &[launched(1, 2), on_b(launched(2, 2))]),
        "rank 2 of worker node \"rank 2\" on host b (pid 1002) is already held by node \"rank 2\" on host here (pid 1001), \
         registered 1 s ago"
    );
    // A node whose user gave it that name, or which has the name without the rank, is refused by name.
    for other in [named(2, 4, "rank 2"), Register { rank: None, ..launched(2, 2) }] {
        let reason = refusal(rules(4, 0), &[launched(1, 2), on_b(other)]);
        assert!(
            reason.starts_with("node id \"rank 2\" of the worker on host b (pid 1002) is already held by"),
            "{reason}"
        );
    }
}

#[test]
fn one_too_many() {
    // Workers are all here, the server is not: not formed yet.
    let expects = |register: Register| Register { server_num: 1, ..register };
    let two = [expects(worker(1, 2)), expects(worker(2, 2))];
    let third = expects(on_b(named(3, 2, "z")));
    assert_eq!(
        refusal(rules(2, 1), &[two[0].clone(), two[1].clone(), third]),
        "this scheduler's job already has all its 2 workers: worker node \"z\" on host b (pid 1003) is one too many"
    );
    assert_eq!(
        refusal(rules(2, 0), &[Register { role: Role::Server, ..named(1, 2, "s") }]),
        "this scheduler's job has no servers: server node \"s\" on host here (pid 1001) is one too many"
    );
    let mut bench = Bench::formed(&["here", "here"]);
    bench.now = bench.now + Duration::from_secs(12);
    bench.join(7, on_b(worker(7, 2)));
    assert_eq!(
        bench.rejected(7),
        (
            Status::Rejected,
            "the cluster has been complete for 12 s (2 workers): worker node \"made-7\" on host b (pid 1007) is one too \
             many"
                .to_string()
        )
    );
    assert!(bench.sent.is_empty(), "nobody else is told");
}

#[test]
fn a_scheduler_is_no_node() {
    assert_eq!(
        refusal(rules(1, 0), &[Register { role: Role::Scheduler, ..named(1, 1, "s") }]),
        "node \"s\" on host here (pid 1001) registers as a scheduler: only workers and servers can"
    );
}

#[test]
fn another_run_of_the_job() {
    let mut bench = Bench::formed(&["here"]);
    for (conn, instance) in [(5, [1; 16]), (6, [9; 16])] {
        bench.join(conn, Register { instance: Some(JobInstance(instance)), ..worker(5, 1) });
        let (status, reason) = bench.rejected(conn);
        assert_eq!(status, if conn == 5 { Status::Rejected } else { Status::Fenced });
        let words = if conn == 5 {
            "node \"made-5\" on host here (pid 1005) belongs to another run of the job (01010101) than this scheduler's \
             (09090909): its own scheduler has gone"
        } else {
            "node \"made-5\" on host here (pid 1005) registers again, but has no place in this scheduler's job"
        };
        assert_eq!(reason, words);
    }
}

#[test]
fn the_same_life_again_gets_the_same_answer() {
    let mut bench = Bench::new(rules(2, 0));
    bench.join(1, named(1, 2, "a"));
    bench.join(2, named(1, 2, "a"));
    assert_eq!(bench.closed, [ConnId(1)], "the new connection replaces the old one");
    assert!(bench.sent.is_empty());
    bench.close(1, Closed::Ended); // of the old one: nothing
    bench.join(3, named(3, 2, "b"));
    let first = bench.formed_message(2);
    assert_eq!(first.rank, 0);
    assert_eq!(bench.formed_message(3).rank, 1);
    // Over the same connection, and over a new one after a break.
    bench.say(2, Message::Register(named(1, 2, "a")));
    assert_eq!(bench.formed_message(2), first);
    bench.close(2, Closed::Broken);
    bench.join(4, Register { instance: Some(first.instance), ..named(1, 2, "a") });
    assert_eq!(bench.formed_message(4), first);
    assert!(bench.ended.is_none());
}

/// Peers are told incarnations; with certificates each is held against the node id of the same registration.
#[test]
fn no_other_node_takes_the_connection_of_a_life() {
    let mut bench = Bench::new(rules(2, 0));
    bench.join(1, named(1, 2, "a"));
    bench.join(2, named(2, 2, "b"));
    bench.sent.clear();
    let of_a = named(1, 2, "a").incarnation;
    for (conn, register) in [
        (3, Register { incarnation: of_a, ..named(2, 2, "b") }),
        (4, Register { role: Role::Server, ..named(1, 2, "a") }),
    ] {
        bench.join(conn, register);
        let (status, reason) = bench.rejected(conn);
        assert_eq!(status, Status::Rejected);
        assert!(reason.contains("registers as rank 0 (node id \"a\"") && reason.contains("under another"), "{reason}");
        assert!(!bench.closed.contains(&ConnId(1)), "the node keeps its connection");
    }
}

#[test]
fn a_node_that_left_is_told_so_again() {
    let mut bench = Bench::formed(&["here", "here"]);
    bench.say(0, Message::Leave);
    bench.sent.clear();
    bench.join(5, named(0, 2, "0"));
    assert_eq!(bench.told(5), [Message::Bye]);
    assert!(bench.closed.contains(&ConnId(5)));
}

#[test]
fn strangers_are_mentioned_once_of_each_kind_and_closed() {
    let mut bench = Bench::new(rules(1, 0));
    bench.open(1);
    bench.close(1, Closed::Garbage);
    assert_eq!(bench.lines.len(), 1, "{:?}", bench.lines);
    bench.open(1);
    bench.close(1, Closed::Garbage);
    bench.open(1);
    bench.say(1, Message::TimeUp);
    assert_eq!(bench.closed, [ConnId(1)]);
    assert_eq!(bench.lines.len(), 2, "it is another kind: {:?}", bench.lines);
    bench.open(2);
    bench.pass(Duration::from_millis(4_900));
    assert_eq!(bench.closed, [ConnId(1)]);
    bench.pass(Duration::from_millis(200));
    assert_eq!(bench.closed, [ConnId(1), ConnId(2)]);
    assert!(bench.lines.iter().any(|line| line.contains("10.0.0.2:5000: it did not register within 5 s")));
    bench.join(3, worker(1, 1));
    assert_eq!(bench.formed_message(3).rank, 0);
}

#[test]
fn a_port_scan_does_not_silence_why_somebody_was_refused() {
    let mut bench = Bench::new(rules(1, 0));
    for how in [Closed::Ended, Closed::Ended, Closed::Broken, Closed::Broken] {
        bench.open(1);
        bench.close(1, how);
    }
    assert_eq!(bench.lines.len(), 2, "one of each: {:?}", bench.lines);
}

#[test]
fn of_many_strangers_one_is_told_and_the_others_are_counted() {
    let mut bench = Bench::new(rules(1, 0));
    for conn in 0..5000 {
        bench.open(conn);
        bench.say(conn, Message::TimeUp);
    }
    assert_eq!((bench.closed.len(), bench.lines.len()), (5000, 1), "{:?}", bench.lines);
    assert!(bench.lines[0].contains("10.0.0.0:5000"), "{:?}", bench.lines);
    bench.lines.clear();
    bench.pass(crate::strangers::WINDOW + Duration::from_secs(2));
    let counted: Vec<&String> = bench.lines.iter().filter(|line| line.contains(" more connections ")).collect();
    assert_eq!(counted.len(), 1, "{:?}", bench.lines);
    assert!(counted[0].starts_with("4999 more connections with a first message that no node sends, the last from "));
}

#[test]
fn where_descriptors_are_short_few_may_be_unregistered() {
    let mut bench = Bench::new(rules(2, 0));
    bench.join(0, worker(0, 2));
    for conn in 1..=100 {
        bench.open(conn);
    }
    assert!(bench.closed.is_empty());
    bench.feed(crate::membership::Input::ShortOfDescriptors(false));
    let kept = crate::membership::connection_table::UNREGISTERED_WHEN_SHORT as u64;
    assert_eq!(bench.closed, (1..=100 - kept).map(ConnId).collect::<Vec<_>>(), "the oldest, and no node");
    bench.join(100, worker(1, 2));
    assert_eq!(bench.formed_message(100).rank, 1, "the newest is still there");
    for left in [15, 7, 3, 1, 0] {
        bench.closed.clear();
        bench.feed(crate::membership::Input::ShortOfDescriptors(true));
        let first = 100 - if left == 15 { 31 } else { 2 * left + 1 };
        assert_eq!(bench.closed, (first..100 - left).map(ConnId).collect::<Vec<_>>(), "the older half");
    }
}

#[test]
fn unregistered_connections_have_a_limit() {
    let mut bench = Bench::new(rules(1, 0));
    let limit = 1 + crate::membership::connection_table::UNREGISTERED_SPARE as u64;
    for conn in 0..limit {
        bench.open(conn);
    }
    assert!(bench.closed.is_empty());
    bench.open(limit);
    assert_eq!(bench.closed, [ConnId(0)], "the oldest");
    bench.say(5, Message::Register(worker(1, 1)));
    bench.open(limit + 1);
    assert_eq!(bench.closed, [ConnId(0)], "a registered one does not count");
}

#[test]
fn out_of_turn_ends_the_connection() {
    let mut bench = Bench::new(rules(2, 0));
    bench.join(1, named(1, 2, "a"));
    bench.say(1, Message::Suspect(Suspect { peer: 0, evidence: String::new() }));
    assert_eq!(bench.closed, [ConnId(1)]);
    bench.join(2, named(1, 2, "a"));
    bench.say(2, Message::Register(Register { incarnation: Incarnation([8; 16]), ..named(1, 2, "c") }));
    assert_eq!(bench.closed, [ConnId(1), ConnId(2)], "one connection, one node");
    // Its place is free again, and heartbeats while forming are answered.
    bench.join(3, named(3, 2, "a"));
    bench.say(3, Message::Heartbeat(Heartbeat { sequence: 1, echoed: 0, ..Heartbeat::default() }));
    assert!(matches!(bench.told(3)[..], [Message::HeartbeatEcho(_)]));
}

#[test]
fn a_node_that_is_refused_again_and_again_is_mentioned_once() {
    let mut bench = Bench::new(rules(4, 0));
    let refusals = |lines: &[String]| lines.iter().filter(|line| line.starts_with("refused: ")).count();
    for (conn, serial, mentioned) in [(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 2, 2), (5, 1, 2)] {
        let address = format!("(it asks from 10.0.0.{conn}:5000)");
        bench.join(conn, named(serial, 5, "3"));
        let (_, reason) = bench.rejected(conn);
        assert!(reason.contains("expects 5 workers"), "each time it is told: {reason}");
        assert_eq!(refusals(&bench.lines), mentioned, "connection {conn}");
        assert!([2, 3, 5].contains(&conn) || bench.lines.last().is_some_and(|line| line.ends_with(&address)));
    }
    // A node that has countless lives does not take up endless memory.
    let limit = crate::membership::joining::REFUSED_MAX as u32;
    for serial in 3..limit + 3 {
        bench.join(u64::from(serial) + 5, named(serial, 5, "3"));
    }
    assert_eq!(bench.scheduler.refused.len(), 2);
    assert_eq!(refusals(&bench.lines), 8, "the others are counted");
}
