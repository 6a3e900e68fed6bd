use super::super::part::Part;
use super::super::question::LOOKS;
use super::*;
use muster::types::{Epoch, JobInstance, LaunchId};
use muster::wire::{encode_frame, Message, StatusJob, StatusPart};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Instant;

fn child(rank: u32, pid: i32) -> Child {
    let part = Part::Worker { index: rank, rank: Some(rank) };
    Child { part, pid, pid_before: None, launch: LaunchId([0; 16]), restarts: 0, log: "/nonexistent".into() }
}

fn life(pid: u32) -> Process {
    Process { pid, start_ticks: 1, pid_namespace: 1 }
}

fn node(rank: u32, pid: u32, state: NodeStanding) -> StatusNode {
    let (role, node_id, host) = (Role::Worker, rank.to_string(), "h".to_owned());
    let who = Culprit { role, rank: Some(rank), node_id, host, pid, last_call: None };
    StatusNode { who, state, heard_ms: None, restarts: 0, calls: Vec::new(), more: 0, waits: Vec::new(), place: None }
}

fn part(phase: JobPhase, nodes: Vec<StatusNode>) -> StatusPart {
    let job = StatusJob {
        instance: JobInstance([1; 16]),
        job_id: None,
        version: String::new(),
        recovery: true,
        worker_num: 2,
        server_num: 0,
        generation: 1,
        age_ms: 1,
        epoch: Epoch(1),
        phase,
        words: String::new(),
        failure: None,
    };
    StatusPart { job: Some(job), nodes, last: true, ..StatusPart::default() }
}

#[test]
fn only_a_place_of_its_own_that_is_neither_left_nor_waits_is_awaited() {
    for (state, awaited) in [
        (NodeStanding::Member, true),
        (NodeStanding::Away, true),
        (NodeStanding::Lost, true),
        (NodeStanding::Left, false),
        (NodeStanding::Recovering, false),
        (NodeStanding::Back, false),
    ] {
        let of = |rank, pid, lives: &[Process]| is_awaited(&node(rank, pid, state), &child(1, 71), lives);
        assert_eq!(of(1, 71, &[life(71)]), awaited, "{state:?}");
        assert_eq!(of(1, 70, &[life(70), life(71)]), awaited, "{state:?}: it ended before it had joined again");
        let is_sure = state == NodeStanding::Lost;
        assert_eq!(of(1, 72, &[life(70), life(71)]), is_sure, "{state:?}: another process, or a script's child");
        assert!(!of(2, 71, &[life(71)]), "{state:?}: on another host, with the same number");
        let mut server = node(1, 71, state);
        server.who.role = Role::Server;
        assert!(!is_awaited(&server, &child(1, 71), &[life(71)]), "{state:?}: a server's rank is another one");
    }
}

#[test]
fn without_a_known_rank_the_place_is_that_of_a_process_of_this_host() {
    let unknown = Child { part: Part::Worker { index: 1, rank: None }, ..child(1, 71) };
    let mut lost = node(5, 71, NodeStanding::Lost);
    for (host, is_own) in [(host::name().unwrap(), true), ("another".to_owned(), false)] {
        lost.who.host = host;
        assert_eq!(is_awaited(&lost, &unknown, &[life(71)]), is_own);
        assert_eq!(has_no_place(&[lost.clone()], &unknown, &[life(71)]), !is_own);
        assert!(!is_awaited(&lost, &unknown, &[life(72)]));
    }
}

/// What is found about a worker if its scheduler answers so, and whether nobody is asked any more. Each look is at a time
/// of its own.
fn found(answer: Option<StatusPart>, can_return: bool) -> (Vec<(usize, Without)>, bool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut exits = UncleanExits::new(("127.0.0.1".to_owned(), listener.local_addr().unwrap().port()), can_return);
    let children = [child(0, 70), child(1, 71)];
    let lives = [[life(70)], [life(71)]];
    assert_eq!(exits.deadline(), None);
    exits.doubt(1, Duration::ZERO);
    assert_eq!(exits.deadline(), Some(PAUSES[0]));
    let mut look = |now| exits.look(&children, |child| &lives[child], now);
    assert!(look(PAUSES[0] - LOOKS[1]).is_empty() && look(PAUSES[0]).is_empty());
    let mut stream = listener.accept().unwrap().0;
    if let Some(answer) = answer {
        stream.read_exact(&mut [0; 24 + 4 + 4]).unwrap();
        let (message, mut frame) = (Message::StatusPart(answer), Vec::new());
        encode_frame(message.kind(), 0, &message.encode(), &mut frame);
        stream.write_all(&frame).unwrap();
    }
    drop(stream);
    let (mut now, until) = (PAUSES[0], Instant::now() + Duration::from_secs(60));
    loop {
        now += LOOKS[1];
        let found = exits.look(&children, |child| &lives[child], now);
        if exits.asked.is_none() {
            return (found, exits.deadline().is_none());
        }
        assert!(Instant::now() < until, "it answers, or it does not");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_scheduler_says_who_is_awaited() {
    let nodes = || vec![node(0, 70, NodeStanding::Recovering), node(1, 71, NodeStanding::Lost)];
    let left = (vec![(1, Without::Leaving)], true);
    assert_eq!(found(Some(part(JobPhase::Recovering, nodes())), true), left, "who was found is asked about no more");
    for phase in [JobPhase::Forming, JobPhase::Running, JobPhase::Broken, JobPhase::Ending] {
        let nobody = (Vec::new(), false);
        assert_eq!(found(Some(part(phase, nodes())), true), nobody, "{phase:?}: nobody waits, but somebody may");
    }
    assert_eq!(found(None, true), (Vec::new(), false), "it does not answer");
}

#[test]
fn while_the_cluster_forms_one_without_a_place_keeps_those_waiting_who_have_one() {
    let forming = |nodes| found(Some(part(JobPhase::Forming, nodes)), false);
    let waits = |rank, pid| node(rank, pid, NodeStanding::Member);
    assert_eq!(forming(vec![waits(0, 70)]), (vec![(1, Without::Joining(1))], true));
    assert_eq!(forming(vec![]), (Vec::new(), false), "nobody waits yet");
    assert_eq!(forming(vec![waits(0, 70), waits(1, 99)]), (Vec::new(), false), "a script's child has its place");
    let elsewhere = (vec![(1, Without::Joining(2))], true);
    assert_eq!(forming(vec![waits(0, 70), waits(2, 71)]), elsewhere, "a process of another host has the same number");
    let running = found(Some(part(JobPhase::Running, vec![waits(0, 70), waits(1, 71)])), false);
    assert_eq!(running, (Vec::new(), true), "it has formed: without restarts nobody will be awaited");
}

#[test]
fn it_is_asked_ever_more_seldom() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut exits = UncleanExits::new(("127.0.0.1".to_owned(), gone), true);
    exits.doubt(0, Duration::ZERO);
    let mut asked = Vec::new();
    for _ in 0..8 {
        let now = exits.deadline().unwrap();
        exits.ask(now);
        exits.asked = None;
        asked.push(now.as_millis());
    }
    assert_eq!(asked, [250, 500, 1000, 2000, 4000, 8000, 16_000, 26_000]);
    exits.doubt(1, Duration::from_secs(30));
    assert_eq!(exits.deadline(), Some(Duration::from_millis(30_250)), "another has ended");
}
