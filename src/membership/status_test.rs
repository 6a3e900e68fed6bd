use super::*;
use crate::error::Failure;
use crate::membership::testing::{host, named, rules, worker, Bench};
use crate::membership::{Closed, Identity, Input, Rules};
use crate::types::{Call, CallKind, JobInstance, Token, TokenHash};
use crate::wire::{
    Carrier, FreeGroup, GroupCarrier, GroupProgress, GroupWish, Heartbeat, InEpoch, Later, MakeGroup, MessageWait,
    Recover, Reentry, Register, Revoke, Straggler, StragglerState, FEATURES, FEATURE_CARRIERS,
    UNREGISTERED_PAYLOAD_MAX,
};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// The connection of somebody who asks.
const ASKER: u64 = 900;
const BARRIER: Call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
const ALLREDUCE: Call = Call { kind: CallKind::Allreduce, count: 4, ..BARRIER };

fn question() -> Message {
    Message::StatusQuery(StatusQuery { protocol_lowest: PROTOCOL_LOWEST, protocol_highest: PROTOCOL_HIGHEST })
}

/// Asks once on this connection.
fn part(bench: &mut Bench, conn: u64) -> StatusPart {
    bench.say(conn, question());
    match bench.told(conn).as_slice() {
        [Message::StatusPart(part)] => part.clone(),
        other => panic!("connection {conn} was told {other:?}"),
    }
}

/// The whole answer, where one part has room for it.
fn asked(bench: &mut Bench) -> (StatusJob, Vec<StatusNode>, Vec<StatusGroup>) {
    bench.closed.clear();
    bench.open(ASKER);
    let part = part(bench, ASKER);
    assert!(part.last);
    assert_eq!(bench.closed, [ConnId(ASKER)], "it is closed when all is told");
    (part.job.expect("the first part has the job"), part.nodes, part.groups)
}

fn states(nodes: &[StatusNode]) -> Vec<(Option<u32>, NodeStanding)> {
    nodes.iter().map(|node| (node.who.rank, node.state)).collect()
}

/// A heartbeat that tells of one group.
fn is_at(bench: &mut Bench, conn: u64, call: Call, entered: u64, finished: u64, age_ms: u64) {
    let progress = vec![GroupProgress { group: GroupId::WORLD, entered, finished, call: Some(call), age_ms }];
    bench.say(conn, Message::Heartbeat(Heartbeat { sequence: 1, echoed: 1, progress, ..Heartbeat::default() }));
}

fn idle(bench: &mut Bench, conn: u64) {
    bench.say(conn, Message::Heartbeat(Heartbeat { sequence: 1, echoed: 1, ..Heartbeat::default() }));
}

fn recovering(worker_num: u32) -> Bench {
    let mut bench = Bench::new(Rules { recovery: true, ..rules(worker_num, 0) });
    for rank in 0..worker_num {
        bench.join(u64::from(rank), returning(rank, worker_num));
    }
    bench.told(0);
    bench
}

fn returning(rank: u32, worker_num: u32) -> Register {
    let reentry = Some(Box::new(Reentry { tokens: Vec::new(), next: TokenHash::of(&Token([rank as u8 + 1; 32])) }));
    Register { recovery: true, reentry, ..named(rank, worker_num, &rank.to_string()) }
}

#[test]
fn a_cluster_that_forms_tells_who_has_come_and_who_is_missing() {
    let mut bench = Bench::new(Rules { job_id: Some("train".to_owned()), ..rules(3, 0) });
    bench.join(1, Register { job_id: Some("train".to_owned()), ..named(1, 3, "2") });
    bench.pass(SECOND);
    bench.join(2, Register { job_id: Some("train".to_owned()), ..named(2, 3, "0") });
    bench.pass(MS * 500);
    bench.lines.clear();
    let (job, nodes, groups) = asked(&mut bench);
    assert_eq!((job.phase, job.epoch, job.generation), (JobPhase::Forming, Epoch(0), 1));
    assert_eq!((job.instance, job.job_id.as_deref()), (JobInstance([9; 16]), Some("train")));
    assert_eq!((job.worker_num, job.server_num, job.recovery, job.age_ms), (3, 0, false, 1500));
    let said = "since 1.5 s: 2 of 3 workers have come; missing: rank 1; those that came: 2 from host here";
    assert_eq!((&job.words[..], &job.failure), (said, &None));
    assert_eq!(states(&nodes), [(Some(2), NodeStanding::Member), (Some(0), NodeStanding::Member)]);
    assert_eq!((nodes[0].who.pid, nodes[0].heard_ms, nodes[1].heard_ms), (1001, Some(1500), Some(500)));
    assert_eq!(groups, []);
    assert_eq!(bench.lines, Vec::<String>::new(), "an asker is no stranger to be warned of");
}

#[test]
fn messages_that_are_waited_for_are_told_until_the_next_heartbeat_or_the_groups_end() {
    let mut bench = Bench::formed(&["here", "a"]);
    let wait = |group, age_ms| MessageWait { group, sends: false, peer: Some(0), tag: Some(7), age_ms };
    let waits = vec![wait(GroupId::WORLD, 5000), wait(GroupId(99), 4000)];
    let beat = |waits| Heartbeat { sequence: 1, echoed: 1, waits, ..Heartbeat::default() };
    bench.say(1, Message::Heartbeat(beat(waits.clone())));
    bench.pass(MS * 200);
    let told = |bench: &mut Bench| asked(bench).1[1].waits.clone();
    assert_eq!(told(&mut bench), [wait(GroupId::WORLD, 5200)], "of a group that is not known nothing is told");
    bench.say(1, Message::Heartbeat(beat(Vec::new())));
    assert_eq!(told(&mut bench), []);
    bench.say(1, Message::Heartbeat(beat(waits)));
    let (status, group, epoch) = (Status::Timeout, Some(GroupId::WORLD), Epoch(1));
    let failure = Failure { status, culprit: None, cause: "too late".to_owned(), epoch, group, sequence: 0 };
    bench.say(0, Message::Revoke(Revoke { failure }));
    assert_eq!(told(&mut bench), [], "nobody waits in a group that is over");
}

/// A heartbeat of a node that has rank 0 in this group.
fn carries(bench: &mut Bench, conn: u64, group: GroupId) {
    let told = |group| GroupCarrier { group, carrier: Carrier::Links, words: "shm is off".to_owned() };
    let carriers = Later(vec![told(group), told(GroupId(99))]);
    bench.say(conn, Message::Heartbeat(Heartbeat { sequence: 1, echoed: 1, carriers, ..Heartbeat::default() }));
}

/// The groups for which it is told what carries them.
fn carried(bench: &mut Bench) -> Vec<u32> {
    bench.open(ASKER);
    let part = part(bench, ASKER);
    assert!(part.carriers.0.iter().all(|told| (told.carrier, &told.words[..]) == (Carrier::Links, "shm is off")));
    part.carriers.0.iter().map(|told| told.group.0).collect()
}

#[test]
fn what_carries_a_group_is_told_until_the_group_ends() {
    let mut bench = Bench::formed(&["here", "a"]);
    make_groups(&mut bench, 2);
    assert_eq!(carried(&mut bench), [0; 0], "nobody has found out");
    carries(&mut bench, 1, GroupId(4));
    assert_eq!(carried(&mut bench), [4], "of a group that is not known nothing is told");
    carries(&mut bench, 0, GroupId::WORLD);
    assert_eq!(carried(&mut bench), [0, 4]);
    is_at(&mut bench, 0, ALLREDUCE, 5, 4, 300);
    assert_eq!(carried(&mut bench), [4], "what its newest heartbeat says counts");
    carries(&mut bench, 0, GroupId(3));
    for conn in [0, 1] {
        bench.say(conn, Message::FreeGroup(FreeGroup { group: GroupId(4) }));
    }
    assert_eq!(carried(&mut bench), [3]);
    let (group, cause, epoch) = (Some(GroupId(3)), "too late".to_owned(), Epoch(1));
    let failure = Failure { status: Status::Timeout, culprit: None, cause, epoch, group, sequence: 0 };
    bench.say(0, Message::Revoke(Revoke { failure }));
    assert_eq!(carried(&mut bench), [0; 0], "a group that is over has none");
}

#[test]
fn what_carries_many_groups_is_told_in_parts() {
    let mut bench = Bench::formed(&["here", "here"]);
    make_groups(&mut bench, 40);
    let told = |number| GroupCarrier { group: GroupId(number), carrier: Carrier::Memory, words: "x".repeat(4000) };
    let carriers = Later((3..43).map(told).collect());
    bench.say(0, Message::Heartbeat(Heartbeat { sequence: 1, echoed: 1, carriers, ..Heartbeat::default() }));
    let parts = parts(&mut bench);
    assert!(parts.len() > 2);
    let told: Vec<u32> = parts.iter().flat_map(|part| &part.carriers.0).map(|told| told.group.0).collect();
    assert_eq!(told, (3..43).collect::<Vec<_>>());
}

/// An older node is told no more than it knows.
#[test]
fn what_a_node_offers_is_taken_up() {
    for (offered, taken_up) in [(0, 0), (FEATURE_CARRIERS, FEATURE_CARRIERS), (u64::MAX, FEATURES)] {
        let mut bench = Bench::new(rules(1, 0));
        bench.join(0, Register { features: offered, ..worker(0, 1) });
        assert_eq!(bench.formed_message(0).features, Later(taken_up));
    }
}

#[test]
fn an_absent_rank_is_named_with_what_it_is_in() {
    let mut bench = Bench::formed(&["here", "a", "b", "c"]);
    is_at(&mut bench, 0, ALLREDUCE, 5, 4, 300);
    is_at(&mut bench, 2, ALLREDUCE, 5, 4, 500);
    bench.pass(MS * 600);
    is_at(&mut bench, 1, BARRIER, 4, 3, 12_000);
    is_at(&mut bench, 3, BARRIER, 4, 4, 13_000);
    bench.told(0);
    let (job, nodes, groups) = asked(&mut bench);
    assert_eq!((job.phase, &job.words[..], job.epoch), (JobPhase::Running, "4 workers", Epoch(1)));
    let calls =
        |rank: usize| nodes[rank].calls.iter().map(|it| (it.group, it.entered, it.call, it.age_ms)).collect::<Vec<_>>();
    assert_eq!(calls(0), [(GroupId::WORLD, 5, Some(ALLREDUCE), 900)]);
    assert_eq!(calls(1), [(GroupId::WORLD, 4, Some(BARRIER), 12_000)]);
    assert_eq!(calls(3), [], "it has finished its last");
    let [group] = &groups[..] else { panic!("{groups:?}") };
    assert_eq!((group.group, group.sequence, group.call), (GroupId::WORLD, 5, Some(ALLREDUCE)));
    assert_eq!((group.inside, group.age_ms, group.absent), (2, 1100, 2));
    let told = |it: &Straggler| (it.culprit.rank, it.state, it.sequence, it.call, it.age_ms);
    assert_eq!(
        group.members.iter().map(told).collect::<Vec<_>>(),
        [
            (Some(1), StragglerState::Inside, 4, Some(BARRIER), 12_000),
            (Some(3), StragglerState::Outside, 4, Some(BARRIER), 13_000),
        ]
    );
}

#[test]
fn a_node_silent_since_a_call_began_is_absent_only_when_its_word_is_due() {
    let mut bench = Bench::formed(&["here", "a", "b"]);
    is_at(&mut bench, 1, BARRIER, 4, 4, 0);
    bench.pass(MS * 100);
    // This is hundreds of calls later: what the others said last tells nothing.
    is_at(&mut bench, 0, BARRIER, 500, 499, 10);
    assert_eq!(asked(&mut bench).2, [], "a call that has just begun waits for nobody");
    bench.pass(SECOND);
    is_at(&mut bench, 0, BARRIER, 500, 499, 1010);
    assert_eq!(asked(&mut bench).2, [], "a heartbeat of the others is still to come");
    idle(&mut bench, 2);
    let groups = asked(&mut bench).2;
    assert_eq!((groups[0].absent, groups[0].members[0].state), (1, StragglerState::Never), "rank 2 has said that");
    bench.pass(SECOND);
    let groups = asked(&mut bench).2;
    let told: Vec<_> = groups[0].members.iter().map(|it| (it.culprit.rank, it.state)).collect();
    assert_eq!(told, [(Some(1), StragglerState::Silent), (Some(2), StragglerState::Never)]);
}

#[test]
fn a_job_that_is_broken_names_the_first_cause_and_no_calls() {
    let mut bench = Bench::formed(&["here", "here", "here"]);
    is_at(&mut bench, 0, BARRIER, 1, 0, 400);
    idle(&mut bench, 1);
    bench.say(2, Message::Gone);
    bench.told(0);
    let (job, nodes, groups) = asked(&mut bench);
    assert_eq!((job.phase, &job.words[..]), (JobPhase::Broken, "it will not be made whole again"));
    assert_eq!(job.failure.and_then(|first| first.culprit?.rank), Some(2));
    let expected = [(Some(0), NodeStanding::Member), (Some(1), NodeStanding::Member), (Some(2), NodeStanding::Lost)];
    assert_eq!(states(&nodes), expected);
    assert!(nodes.iter().all(|node| node.calls.is_empty()), "{nodes:?}");
    assert_eq!(groups, []);
}

#[test]
fn recovery_from_the_loss_to_the_next_epoch() {
    let mut bench = recovering(3);
    bench.say(2, Message::Gone);
    let (job, nodes, _) = asked(&mut bench);
    assert_eq!(job.phase, JobPhase::Broken);
    assert!(job.words.starts_with("nobody is in muster_recover; awaited: rank 0"), "{}", job.words);
    assert_eq!(states(&nodes)[2], (Some(2), NodeStanding::Lost));

    bench.say(0, Message::Recover(Recover { epoch: Epoch(1), inside: true }));
    bench.pass(SECOND);
    let (job, nodes, _) = asked(&mut bench);
    assert_eq!((job.phase, job.failure.is_some()), (JobPhase::Recovering, true));
    let said =
        "since 1 s: 1 of 3 nodes have called muster_recover; awaited: rank 1 (worker, node id \"1\", host here, pid \
                1001), rank 2";
    let said = said.replace("worker, ", "");
    assert!(job.words.starts_with(&said), "{}", job.words);
    let expected =
        [(Some(0), NodeStanding::Recovering), (Some(1), NodeStanding::Member), (Some(2), NodeStanding::Lost)];
    assert_eq!(states(&nodes), expected);

    let mut next = returning(2, 3);
    next.incarnation = worker(77, 3).incarnation;
    next.reentry = Some(Box::new(Reentry { tokens: vec![Token([3; 32])], next: TokenHash([8; 32]) }));
    bench.join(12, next);
    let (_, nodes, _) = asked(&mut bench);
    assert_eq!(states(&nodes)[2], (Some(2), NodeStanding::Back));

    bench.say(1, Message::Recover(Recover { epoch: Epoch(1), inside: true }));
    for conn in [0, 1] {
        bench.say(conn, Message::InEpoch(InEpoch { epoch: Epoch(2) }));
    }
    let (job, nodes, _) = asked(&mut bench);
    assert_eq!((job.phase, job.epoch, job.failure), (JobPhase::Running, Epoch(2), None));
    assert!(nodes.iter().all(|node| node.state == NodeStanding::Member));
    assert_eq!(nodes.iter().map(|node| node.restarts).collect::<Vec<_>>(), [0, 0, 1]);
}

#[test]
fn a_scheduler_that_was_started_again_says_whom_it_has_not_heard() {
    let records = recovering(2).scheduler.snapshot();
    let identity = Identity {
        instance: JobInstance([9; 16]),
        before: None,
        secret: crate::types::Secret([0; 32]),
        host: host("far"),
        process: crate::types::Process { pid: 1, start_ticks: 1, pid_namespace: 1 },
    };
    let records = [records, vec![crate::wire::Record::Generation(2)]].concat();
    let mut bench = Bench::new(rules(2, 0));
    let again = Rules { recovery: true, ..rules(2, 0) };
    bench.scheduler = Scheduler::resume(identity, again, bench.now, records);
    bench.pass(SECOND);
    let instance = Some(JobInstance([9; 16]));
    bench.join(1, Register { instance, ..returning(1, 2) });
    bench.told(1);
    let (job, nodes, _) = asked(&mut bench);
    assert_eq!((job.phase, job.generation, job.age_ms), (JobPhase::Running, 2, 1000));
    assert_eq!(job.words, "2 workers; 1 of 2 nodes are away");
    assert_eq!(states(&nodes), [(Some(0), NodeStanding::Away), (Some(1), NodeStanding::Member)]);
    assert_eq!((nodes[0].heard_ms, nodes[1].heard_ms), (None, Some(0)));
}

#[test]
fn nodes_that_leave() {
    let mut bench = Bench::formed(&["here", "here"]);
    bench.say(1, Message::Leave);
    let (job, nodes, _) = asked(&mut bench);
    assert_eq!((job.phase, &job.words[..]), (JobPhase::Ending, "1 of 2 nodes have left"));
    assert_eq!(states(&nodes), [(Some(0), NodeStanding::Member), (Some(1), NodeStanding::Left)]);
}

/// All parts, each as long as it may be.
fn parts(bench: &mut Bench) -> Vec<StatusPart> {
    bench.open(ASKER);
    let mut parts: Vec<StatusPart> = Vec::new();
    while parts.last().is_none_or(|part| !part.last) {
        let part = part(bench, ASKER);
        let bytes = Message::StatusPart(part.clone()).encode().len() as u64;
        assert!(bytes <= UNREGISTERED_PAYLOAD_MAX, "a part of {bytes} bytes");
        assert!(part.last || bytes > UNREGISTERED_PAYLOAD_MAX / 2, "a part of {bytes} bytes only");
        parts.push(part);
    }
    parts
}

#[test]
fn many_nodes_with_the_longest_names_are_told_in_parts() {
    const NODES: u32 = 18_000;
    let mut bench = Bench::new(rules(NODES + 1, 0));
    for serial in 0..NODES {
        let mut register = named(serial, NODES + 1, &format!("n{serial:0254}"));
        register.host.name = "h".repeat(255);
        bench.join(u64::from(serial) + 1000, register);
    }
    let parts = parts(&mut bench);
    assert!(parts.len() > 100, "{}", parts.len());
    assert!(parts[0].job.is_some() && parts[1..].iter().all(|part| part.job.is_none()));
    let ids: Vec<&str> = parts.iter().flat_map(|part| &part.nodes).map(|node| &node.who.node_id[..]).collect();
    let expected: Vec<String> = (0..NODES).map(|serial| format!("n{serial:0254}")).collect();
    assert_eq!(ids, expected);
}

#[test]
fn a_node_that_is_in_calls_of_many_groups_is_told_with_a_few() {
    let mut bench = Bench::formed(&["here", "here"]);
    let groups = CALLS_MAX as u64 + 5;
    make_groups(&mut bench, groups);
    let inside = |number| GroupProgress {
        group: GroupId(3 + number as u32),
        entered: 1,
        finished: 0,
        call: Some(BARRIER),
        age_ms: 400,
    };
    for conn in [0, 1] {
        let progress = if conn == 0 { (0..groups).map(inside).collect() } else { Vec::new() };
        bench.say(conn, Message::Heartbeat(Heartbeat { sequence: 1, echoed: 1, progress, ..Heartbeat::default() }));
    }
    let (_, nodes, told) = asked(&mut bench);
    assert_eq!((nodes[0].calls.len(), nodes[0].more), (8, 5));
    assert_eq!(told.len() as u64, groups, "rank 1 is absent in all of them");
}

fn make_groups(bench: &mut Bench, number: u64) {
    for nth in 1..=number {
        for conn in [0, 1] {
            let (parent, wish) = (GroupId::WORLD, GroupWish::Ranks(vec![0, 1]));
            bench.say(conn, Message::MakeGroup(MakeGroup { parent, nth, sequence: nth, digest: 0, wish }));
        }
    }
    bench.sent.clear();
}

#[test]
fn revoked_groups_are_told_with_their_causes_in_parts() {
    let mut bench = Bench::formed(&["here", "here"]);
    make_groups(&mut bench, 40);
    for number in 3..43 {
        let (group, cause, epoch) = (Some(GroupId(number)), "x".repeat(4000), Epoch(1));
        let failure = Failure { status: Status::Timeout, culprit: None, cause, epoch, group, sequence: 3 };
        bench.say(0, Message::Revoke(Revoke { failure }));
    }
    bench.sent.clear();
    let parts = parts(&mut bench);
    assert!(parts.len() > 2);
    let told: Vec<u32> = parts.iter().flat_map(|part| &part.groups).map(|group| group.group.0).collect();
    assert_eq!(told, (3..43).collect::<Vec<_>>());
    assert!(parts.iter().flat_map(|part| &part.groups).all(|group| group.failure.is_some()));
}

#[test]
fn a_cluster_that_forms_while_it_is_told_is_told_anew() {
    let workers = 600;
    let mut bench = Bench::new(rules(workers, 0));
    let join = |bench: &mut Bench, serial: u32| {
        let mut register = named(serial, workers, &(workers - 1 - serial).to_string());
        register.host.name = "h".repeat(255);
        bench.join(u64::from(serial) + 1000, register);
    };
    (1..workers).for_each(|serial| join(&mut bench, serial));
    bench.open(ASKER);
    let first = part(&mut bench, ASKER);
    assert_eq!((first.job.map(|job| job.phase), first.last), (Some(JobPhase::Forming), false));
    join(&mut bench, 0);
    bench.sent.clear();
    let again = part(&mut bench, ASKER);
    assert_eq!(again.job.map(|job| job.phase), Some(JobPhase::Running));
    assert_eq!(again.nodes.iter().map(|node| node.who.rank).collect::<Vec<_>>()[..3], [Some(0), Some(1), Some(2)]);
    assert!(part(&mut bench, ASKER).job.is_none());
}

/// A cluster that takes more than one part to tell.
fn large() -> Bench {
    let mut bench = Bench::new(rules(601, 0));
    for serial in 0..600 {
        let mut register = worker(serial, 601);
        register.host.name = "h".repeat(255);
        bench.join(u64::from(serial) + 1000, register);
    }
    bench
}

#[test]
fn so_many_are_told_at_a_time_and_no_more() {
    let mut bench = large();
    for conn in 0..READERS_MAX as u64 {
        bench.open(conn);
        assert!(!part(&mut bench, conn).last);
    }
    bench.open(ASKER);
    bench.say(ASKER, question());
    let reason = format!("{READERS_MAX} others are being told at this moment: ask again");
    assert_eq!(bench.rejected(ASKER), (Status::Limit, reason));
    assert!(!part(&mut bench, 0).last, "those who are being told go on");
    bench.close(3, Closed::Ended);
    bench.open(ASKER + 1);
    assert!(!part(&mut bench, ASKER + 1).last);
    assert_eq!(bench.lines.iter().filter(|line| line.contains("stranger")).count(), 0, "{:?}", bench.lines);
}

#[test]
fn a_connection_that_asks_and_does_not_take_the_answer_is_closed() {
    let mut bench = large();
    bench.open(ASKER);
    part(&mut bench, ASKER);
    bench.pass(MS * 4999);
    assert!(!bench.closed.contains(&ConnId(ASKER)));
    bench.pass(MS);
    assert!(bench.closed.contains(&ConnId(ASKER)));
    let said = "it asked how the job is, and did not take the answer within 5 s";
    assert!(bench.lines.iter().any(|line| line.contains(said)), "{:?}", bench.lines);
}

#[test]
fn a_connection_that_asks_never_registers() {
    let mut bench = large();
    bench.open(ASKER);
    part(&mut bench, ASKER);
    bench.say(ASKER, Message::Register(worker(600, 601)));
    assert_eq!((bench.told(ASKER), bench.closed.contains(&ConnId(ASKER))), (Vec::new(), true));
    assert!(bench.lines.iter().any(|line| line.contains("then sent kind 1")), "{:?}", bench.lines);
    assert_eq!(asked_whole(&mut bench), 600);
}

fn asked_whole(bench: &mut Bench) -> usize {
    parts(bench).iter().map(|part| part.nodes.len()).sum()
}

#[test]
fn a_node_that_asks_is_out_of_turn() {
    let mut bench = Bench::formed(&["here", "there"]);
    bench.say(1, question());
    assert_eq!((bench.told(1), bench.closed.contains(&ConnId(1))), (Vec::new(), true));
}

#[test]
fn another_protocol_is_refused_in_words_that_name_both() {
    let mut bench = Bench::formed(&["here"]);
    bench.open(ASKER);
    bench.say(ASKER, Message::StatusQuery(StatusQuery { protocol_lowest: 7, protocol_highest: 9 }));
    let (status, reason) = bench.rejected(ASKER);
    assert_eq!(status, Status::Rejected);
    let version = env!("CARGO_PKG_VERSION");
    let said = format!(
        "the process that connects speaks protocol versions 7 to 9, this scheduler (library {version}) version 1: they have"
    );
    assert!(reason.starts_with(&said), "{reason}");
}

#[test]
fn to_ask_changes_nothing_and_asks_nobody() {
    let mut bench = Bench::formed(&["here", "there", "there"]);
    is_at(&mut bench, 0, ALLREDUCE, 5, 4, 300);
    bench.pass(SECOND * 2);
    bench.sent.clear();
    bench.probes.clear();
    let before = bench.scheduler.all_but_connections();
    let (_, _, groups) = asked(&mut bench);
    assert_eq!(groups[0].absent, 2);
    assert_eq!(bench.scheduler.all_but_connections(), before);
    assert_eq!((bench.sent.len(), bench.probes.len()), (0, 0), "{:?}", bench.sent);
}

#[test]
fn it_waits_for_no_disk_and_tells_no_secret() {
    let mut bench = Bench::new(Rules { recovery: true, durable: true, ..rules(2, 0) });
    bench.syncs = false;
    let (secret, hash) = ([3; 32], TokenHash::of(&Token([1; 32])).0);
    for rank in 0..2 {
        let mut register = returning(rank, 2);
        register.reentry = Some(Box::new(Reentry { tokens: vec![Token([0x77; 32])], next: TokenHash(hash) }));
        register.incarnation.0 = [0x55 + rank as u8; 16];
        bench.join(u64::from(rank), register);
    }
    assert_eq!(bench.sent, [], "the epoch is not durable yet");
    bench.open(ASKER);
    let told = part(&mut bench, ASKER);
    assert!(told.last && bench.closed.contains(&ConnId(ASKER)));
    let bytes = Message::StatusPart(told).encode();
    for hidden in [&secret[..], &hash[..], &[0x77; 32][..], &[0x55; 16][..]] {
        assert!(!bytes.windows(hidden.len()).any(|window| window == hidden));
    }
    bench.feed(Input::Persisted(u64::MAX));
    assert_eq!(bench.sent.len(), 2, "then all are told of the epoch");
}
