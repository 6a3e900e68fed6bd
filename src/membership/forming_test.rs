use crate::error::Status;
use crate::membership::ranks::schedule_peers;
use crate::membership::testing::{host, named, rules, worker, Bench};
use crate::membership::{Closed, ConnId, Input, Rules};
use crate::types::{Role, Secret, Time};
use crate::wire::{Message, Register, FULL_TABLE_NODES};
use std::collections::HashSet;
use std::time::Duration;

fn server(serial: u32, worker_num: u32, server_num: u32) -> Register {
    Register { role: Role::Server, server_num, ..worker(serial, worker_num) }
}

#[test]
fn a_cluster_of_workers_and_servers() {
    let mut bench = Bench::new(rules(2, 2));
    bench.join(1, server(1, 2, 2));
    bench.join(2, Register { server_num: 2, host: host("b"), ..named(2, 2, "worker_10") });
    bench.join(3, Register { server_num: 2, ..named(3, 2, "worker_2") });
    assert!(bench.sent.is_empty());
    bench.join(4, Register { host: host("b"), ..server(4, 2, 2) });
    let formed: Vec<_> = (1..=4).map(|conn| bench.formed_message(conn)).collect();
    assert_eq!(formed.iter().map(|formed| formed.index).collect::<Vec<_>>(), [2, 1, 0, 3]);
    assert_eq!(formed.iter().map(|formed| formed.rank).collect::<Vec<_>>(), [0, 1, 0, 1]);
    assert!(formed.iter().all(|formed| (formed.local_rank, formed.local_size) == (0, 1)));
    assert!(formed.iter().all(|formed| (formed.worker_num, formed.server_num, formed.epoch.0) == (2, 2, 1)));
    assert!(formed.iter().all(|other| other.members == formed[0].members && other.secret == Secret([3; 32])));
    let members: Vec<_> = formed[0].members.iter().map(|member| (member.index, member.node_id.as_str())).collect();
    assert_eq!(members, [(0, "worker_2"), (1, "worker_10"), (2, "made-1"), (3, "made-4")]);
}

#[test]
fn numeric_ids_are_ranks_in_any_order_of_arrival() {
    let mut bench = Bench::new(rules(3, 0));
    for (conn, id) in [(1, "2"), (2, "0"), (3, "1")] {
        bench.join(conn, named(conn as u32, 3, id));
    }
    assert_eq!([1, 2, 3].map(|conn| bench.formed_message(conn).rank), [2, 0, 1]);
}

#[test]
fn one_too_few_names_the_missing_rank() {
    let mut bench = Bench::new(rules(4, 0));
    bench.join(1, named(1, 4, "0"));
    bench.join(2, Register { host: host("b"), ..named(2, 4, "1") });
    bench.join(3, named(3, 4, "3"));
    bench.open(4); // a connection that has not registered is told too
    bench.pass(Duration::from_secs(3));
    assert_eq!(
        bench.lines,
        ["forming since 3 s: 3 of 4 workers have come; missing: rank 2; those that came: 2 from host here, 1 from host b"]
    );
    bench.pass(Duration::from_secs(597));
    let sentence =
        "the cluster did not form within 600 s (MS_CLUSTER_TIMEOUT is 600): 3 of 4 workers have come; missing: rank 2; those that came: 2 \
                    from host here, 1 from host b";
    for conn in 1..4 {
        assert_eq!(bench.rejected(conn), (Status::Timeout, sentence.to_string()));
    }
    let error = bench.ended.clone().expect("ended").expect_err("timed out");
    assert_eq!((error.status(), error.message()), (Status::Timeout, sentence));
    assert!(bench.lines.len() > 590, "a line a second");
}

#[test]
fn missing_nodes_are_counted_where_ranks_are_not_known() {
    let mut bench = Bench::new(Rules {
        forming_timeout: Some(Duration::from_millis(1_500)),
        forming_setting: "MS_TOPO_TIMEOUT is 1.5".to_owned(),
        ..rules(9, 1)
    });
    bench.join(1, Register { server_num: 1, ..worker(1, 9) });
    bench.pass(Duration::from_secs(2));
    assert_eq!(
        bench.rejected(1).1,
        "the cluster did not form within 1.5 s (MS_TOPO_TIMEOUT is 1.5): 1 of 9 workers and 0 of 1 server have come; missing: 8 workers and 1 \
         server; those that came: 1 from host here"
    );
    let mut bench = Bench::new(Rules { forming_timeout: Some(Duration::from_secs(1)), ..rules(9, 0) });
    for (conn, id) in [(1, "1"), (2, "7"), (3, "8")] {
        bench.join(conn, named(conn as u32, 9, id));
    }
    bench.pass(Duration::from_secs(1));
    assert!(bench.rejected(1).1.contains("missing: ranks 0, 2 to 6;"));
    let mut bench = Bench::new(Rules { forming_timeout: Some(Duration::from_secs(1)), ..rules(2, 0) });
    bench.pass(Duration::from_secs(1));
    let error = bench.ended.clone().expect("ended").expect_err("timed out");
    assert_eq!(
        error.message(),
        "the cluster did not form within 1 s (MS_CLUSTER_TIMEOUT is 600): 0 of 2 workers have come; missing: 2 workers"
    );
}

#[test]
fn a_worker_that_was_refused_is_told_of_in_the_sentence_of_all_that_wait() {
    let mut bench = Bench::new(Rules { forming_timeout: Some(Duration::from_secs(1)), ..rules(3, 0) });
    bench.join(1, named(1, 3, "0"));
    bench.join(2, named(2, 4, "1"));
    let why = bench.rejected(2).1;
    assert!(why.contains("expects 4 workers"), "{why}");
    bench.join(3, named(2, 4, "1")); // the same life asks again
    bench.pass(Duration::from_secs(1));
    let sentence = bench.rejected(1).1;
    assert!(sentence.ends_with(&format!("; those that came: 1 from host here; 1 was refused: {why}")), "{sentence}");

    let mut bench = Bench::new(Rules { forming_timeout: Some(Duration::from_secs(1)), ..rules(3, 0) });
    bench.join(1, named(1, 3, "0"));
    let refused: Vec<String> = (2..=4)
        .map(|conn| {
            bench.join(conn, named(conn as u32, 4, &conn.to_string()));
            bench.rejected(conn).1
        })
        .collect();
    bench.pass(Duration::from_secs(1));
    let sentence = bench.rejected(1).1;
    let told = format!("; 3 were refused, the first: {}; {}", refused[0], refused[1]);
    assert!(sentence.ends_with(&told), "{sentence}");
}

#[test]
fn a_connection_that_is_turned_away_is_told_of_in_the_sentence_of_all_that_wait() {
    let mut bench = Bench::new(rules(2, 0));
    bench.join(1, worker(1, 2));
    // What ends by itself, or breaks, says nothing of a node that is missing.
    let ends = [
        (2, Closed::Ended, "end of stream"),
        (3, Closed::Broken, "unreachable"),
        (4, Closed::Garbage, "it speaks HTTP"),
        (5, Closed::Refused, "it has another job secret"),
        (6, Closed::Refused, "it shows no certificate"),
    ];
    for (conn, how, words) in ends {
        bench.open(conn);
        bench.feed(Input::Closed(ConnId(conn), how, words.to_owned()));
    }
    // A member's connection is no stranger's.
    bench.close(1, Closed::Garbage);
    bench.join(7, worker(1, 2));
    bench.pass(Duration::from_secs(600));
    let (_, sentence) = bench.rejected(7);
    let told = "; 3 connections were turned away before they registered, one from 10.0.0.5: it has another job secret";
    assert!(sentence.ends_with(told), "{sentence}");
}

#[test]
fn a_node_that_is_sent_on_is_told_of_in_the_sentence_of_all_that_wait() {
    let another = |serial, workers| Register { derived_job: Some("run b".to_owned()), ..worker(serial, workers) };
    for (ours, told) in [
        (
            Some("run a"),
            "belongs to another job than this scheduler, as their launchers tell: to \"run b\", not to \"run a\"",
        ),
        (None, "expects 3 workers, this scheduler's job has 2: MS_WORKER_NUM must be the same everywhere"),
    ] {
        let derived_job = ours.map(str::to_owned);
        let mut bench = Bench::new(Rules { derived_job: derived_job.clone(), ..rules(2, 0) });
        bench.join(1, Register { derived_job, ..worker(1, 2) });
        for (conn, serial) in [(2, 2), (3, 2), (4, 3)] {
            bench.join(conn, another(serial, 3));
        }
        bench.pass(Duration::from_secs(600));
        let (_, sentence) = bench.rejected(1);
        let told =
            format!("; 2 were sent on to another scheduler, the first: node \"made-2\" on host here (pid 1002) {told}");
        assert!(sentence.ends_with(&told), "{sentence}");
    }
}

#[test]
fn a_node_whose_own_time_is_up_ends_it_for_all() {
    let mut bench = Bench::new(Rules { forming_timeout: None, ..rules(3, 0) });
    bench.join(1, worker(1, 3));
    bench.join(2, worker(2, 3));
    bench.now = Time(20_000_000_000);
    bench.say(2, Message::TimeUp);
    let (first, second) = (bench.rejected(1), bench.rejected(2));
    assert_eq!(first, second);
    let said =
        "the cluster did not form within 20 s (worker (node id \"made-2\", host here, pid 1002) waits no longer; here \
                MS_CLUSTER_TIMEOUT is 600): 2 of 3 workers have come";
    assert!(first.1.starts_with(said), "{first:?}");
    assert!(bench.ended.is_some());
    // The scheduler's own time-out is named only where a small part of it is left.
    let cases =
        [(30, 29_500, "within 30 s (MS_"), (30, 28_500, "within 28 s (worker "), (3, 2_000, "within 2 s (worker ")];
    for (budget, waited, within) in cases {
        let forming_timeout = Some(Duration::from_secs(budget));
        let mut bench = Bench::new(Rules { forming_timeout, ..rules(3, 0) });
        bench.join(1, worker(1, 3));
        bench.now = Time(waited * 1_000_000);
        bench.say(1, Message::TimeUp);
        let (_, sentence) = bench.rejected(1);
        assert!(sentence.contains(within), "{sentence}");
    }
    // It comes too late, and is not acted on.
    let mut bench = Bench::formed(&["here"]);
    bench.say(0, Message::TimeUp);
    assert!(bench.ended.is_none() && bench.sent.is_empty());
}

#[test]
fn a_place_is_free_once_its_node_is_gone() {
    let mut bench = Bench::new(rules(2, 0));
    bench.join(1, named(1, 2, "0"));
    bench.close(1, Closed::Ended);
    assert_eq!(bench.lines.len(), 1);
    bench.join(2, named(2, 2, "0"));
    bench.close(2, Closed::Broken);
    bench.join(3, named(3, 2, "0"));
    assert!(bench.rejected(3).1.contains("is already held by"));
    bench.pass(Duration::from_millis(5_100));
    bench.join(4, named(4, 2, "0"));
    assert!(bench.sent.is_empty());
    bench.join(5, named(5, 2, "1"));
    assert_eq!([4, 5].map(|conn| bench.formed_message(conn).rank), [0, 1]);
}

#[test]
fn forming_waits_for_a_broken_connection_to_come_back() {
    let mut bench = Bench::new(rules(2, 0));
    bench.join(1, named(1, 2, "0"));
    bench.close(1, Closed::Broken);
    bench.join(2, named(2, 2, "1"));
    assert!(bench.sent.is_empty(), "not without a connection to everybody");
    bench.join(3, named(1, 2, "0"));
    assert_eq!([3, 2].map(|conn| bench.formed_message(conn).rank), [0, 1]);
}

#[test]
fn a_node_that_falls_silent_while_forming_loses_its_place() {
    let mut bench = Bench::new(rules(3, 0));
    bench.join(1, worker(1, 3));
    bench.join(2, worker(2, 3));
    bench.beat(1, 1);
    bench.pass(Duration::from_secs(7));
    let gone: Vec<_> = bench.lines.iter().filter(|line| line.contains("its place is free")).collect();
    assert_eq!(gone.len(), 1, "the one that used to send heartbeats: {gone:?}");
    assert!(gone[0].contains("made-1"));
}

#[test]
fn where_all_are_on_one_host_its_thresholds_are_agreed() {
    for (other, agreed) in [("here", vec![1]), ("there", Vec::new())] {
        let mut bench = Bench::new(rules(3, 0));
        for serial in 0..3 {
            let host = host(if serial == 1 { other } else { "here" });
            bench.join(u64::from(serial), Register { host, ..worker(serial, 3) });
        }
        (0..3).for_each(|conn| assert_eq!(bench.formed_message(conn).agreed.thresholds, agreed));
    }
}

#[test]
fn a_large_cluster_tells_each_whom_it_needs_in_all_its_groups() {
    let (workers, servers) = (FULL_TABLE_NODES as u32, 3);
    let mut bench = Bench::new(rules(workers, servers));
    for serial in 0..workers {
        let register = Register { rank: Some(serial), server_num: servers, ..worker(serial, workers) };
        bench.join(u64::from(serial), register);
    }
    for serial in workers..workers + servers {
        bench.join(u64::from(serial), server(serial, workers, servers));
    }
    for (index, own_group) in [(0, 0..workers), (workers - 1, 0..workers), (workers + 1, workers..workers + servers)] {
        let formed = bench.formed_message(u64::from(index));
        let told: Vec<u32> = formed.members.iter().map(|member| member.index).collect();
        assert!(told.is_sorted() && told.len() < 50, "{told:?}");
        for group in [own_group, 0..workers + servers] {
            let (rank, size) = (index - group.start, group.end - group.start);
            let needs = schedule_peers(rank, size).into_iter().map(|peer| group.start + peer);
            assert!(
                needs.clone().all(|peer| told.contains(&peer)),
                "node {index} needs {:?}",
                needs.collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn a_large_cluster_tells_each_only_those_it_will_use() {
    let number = 18_000u32;
    let mut bench = Bench::new(rules(number, 0));
    for serial in 0..number {
        bench.join(u64::from(serial), Register { rank: Some(serial), ..worker(serial, number) });
    }
    assert_eq!(bench.sent.len(), number as usize);
    let mut indices = HashSet::new();
    for (conn, message) in bench.sent.drain(..) {
        let Message::Formed(formed) = message else { panic!("{message:?}") };
        assert_eq!(u64::from(formed.index), conn.0);
        assert!(formed.members.len() <= 31 && formed.members.iter().any(|member| member.index == formed.index));
        indices.insert(formed.index);
    }
    assert_eq!(indices.len(), number as usize, "unique and dense");
    assert!(number as usize > FULL_TABLE_NODES);
    bench.say(5, Message::Locate(crate::wire::Locate { index: 9_000 }));
    match &bench.told(5)[..] {
        [Message::Located(located)] => assert_eq!(located.member.node_id, "made-9000"),
        other => panic!("{other:?}"),
    }
    bench.say(5, Message::Locate(crate::wire::Locate { index: number }));
    assert!(bench.sent.is_empty() && bench.closed.is_empty());
}

/// Without a secret, a stranger who knows the numbers can do this as often as he likes.
#[test]
fn places_that_are_taken_and_freed_again_and_again_fill_no_log() {
    let mut bench = Bench::new(rules(2, 0));
    for conn in 1..=1000 {
        bench.join(conn, named(conn as u32, 2, "0"));
        bench.close(conn, Closed::Ended);
    }
    let told = bench.lines.iter().filter(|line| line.contains("its place is free")).count();
    assert_eq!(told, 64, "{:?}", bench.lines.last());
    bench.lines.clear();
    bench.pass(Duration::from_secs(120));
    let counted: Vec<_> = bench.lines.iter().filter(|line| line.contains("936 more nodes that were gone")).collect();
    assert_eq!(counted.len(), 1, "{:?}", bench.lines);
}
