use super::super::part::Part;
use super::super::question::LOOKS;
use super::*;
use muster::error::{Failure, Status};
use muster::types::{Epoch, GroupId, JobInstance, LaunchId};
use muster::wire::{encode_frame, Message, StatusGroup, StatusJob, StatusPart};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Instant;

fn child(rank: u32, pid: i32) -> Child {
    let part = Part::Worker { index: rank, rank: Some(rank) };
    Child {
        part,
        pid,
        pid_before: None,
        launch: LaunchId([0; 16]),
        restarts: 0,
        unstarted: None,
        log: "/nonexistent".into(),
    }
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

/// Answers the next question with this part, or not at all.
fn answer_next(listener: &TcpListener, answer: Option<StatusPart>) {
    let mut stream = listener.accept().unwrap().0;
    if let Some(answer) = answer {
        stream.read_exact(&mut [0; 24 + 4 + 4]).unwrap();
        let (message, mut frame) = (Message::StatusPart(answer), Vec::new());
        encode_frame(message.kind(), 0, &message.encode(), &mut frame);
        stream.write_all(&frame).unwrap();
    }
}

/// Looks from this time on, until the question is over that is under way.
fn look_on(exits: &mut UncleanExits, mut now: Duration) -> Vec<(usize, Without)> {
    let (children, lives) = ([child(0, 70), child(1, 71)], [[life(70)], [life(71)]]);
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        now += LOOKS[1];
        let found = exits.look(&children, |child| &lives[child], now);
        if exits.asked.is_none() {
            return found;
        }
        assert!(Instant::now() < until, "it answers, or it does not");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What is found about a worker if its scheduler answers so, and whether nobody is asked any more. Each look is at a time
/// of its own.
fn found(answer: Option<StatusPart>, later: Later) -> (Vec<(usize, Without)>, bool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = ("127.0.0.1".to_owned(), listener.local_addr().unwrap().port());
    let mut exits = UncleanExits::new(address, later);
    assert_eq!(exits.deadline(), None);
    exits.doubt(1, Duration::ZERO);
    assert_eq!(exits.deadline(), Some(PAUSES[0]));
    assert!(exits.is_settled(Duration::ZERO), "the end of the run waits for nothing");
    let mut look = |now| exits.look(&[child(0, 70), child(1, 71)], |_| &[], now);
    assert!(look(PAUSES[0] - LOOKS[1]).is_empty() && look(PAUSES[0]).is_empty());
    answer_next(&listener, answer);
    let found = look_on(&mut exits, PAUSES[0]);
    (found, exits.deadline().is_none())
}

#[test]
fn the_scheduler_says_who_is_awaited() {
    let nodes = || vec![node(0, 70, NodeStanding::Recovering), node(1, 71, NodeStanding::Lost)];
    let left = (vec![(1, Without::Leaving)], true);
    assert_eq!(
        found(Some(part(JobPhase::Recovering, nodes())), Later::Returning),
        left,
        "a worker that was found is asked about no more"
    );
    for phase in [JobPhase::Forming, JobPhase::Running, JobPhase::Broken, JobPhase::Ending] {
        let nobody = (Vec::new(), false);
        assert_eq!(
            found(Some(part(phase, nodes())), Later::Returning),
            nobody,
            "{phase:?}: nobody waits, but somebody may"
        );
    }
    assert_eq!(found(None, Later::Returning), (Vec::new(), false), "it does not answer");
}

#[test]
fn while_the_cluster_forms_one_without_a_place_keeps_those_waiting_who_have_one() {
    let forming = |nodes| found(Some(part(JobPhase::Forming, nodes)), Later::Nothing);
    let waits = |rank, pid| node(rank, pid, NodeStanding::Member);
    assert_eq!(forming(vec![waits(0, 70)]), (vec![(1, Without::Joining(1))], true));
    assert_eq!(forming(vec![]), (Vec::new(), false), "nobody waits yet");
    assert_eq!(forming(vec![waits(0, 70), waits(1, 99)]), (Vec::new(), false), "a script's child has its place");
    let elsewhere = (vec![(1, Without::Joining(2))], true);
    assert_eq!(forming(vec![waits(0, 70), waits(2, 71)]), elsewhere, "a process of another host has the same number");
    let running = found(Some(part(JobPhase::Running, vec![waits(0, 70), waits(1, 71)])), Later::Nothing);
    assert_eq!(running, (Vec::new(), true), "it has formed: without restarts nobody will be awaited");
}

#[test]
fn it_is_asked_ever_more_seldom() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut exits = UncleanExits::new(("127.0.0.1".to_owned(), gone), Later::Returning);
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

// The last question

/// Both workers have ended with code 0, and the scheduler answers the last question so: what is found, and whether all is
/// settled by that.
fn found_last(last: Later, answer: Option<StatusPart>) -> (Vec<(usize, Without)>, bool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = ("127.0.0.1".to_owned(), listener.local_addr().unwrap().port());
    let mut exits = UncleanExits::new(address, last);
    let now = Duration::from_secs(9);
    (0..2).for_each(|child| exits.doubt(child, now));
    assert!(!exits.is_settled(now));
    assert_eq!(exits.deadline(), Some(now), "it is asked at once");
    assert!(exits.look(&[child(0, 70), child(1, 71)], |_| &[], now).is_empty());
    answer_next(&listener, answer);
    let found = look_on(&mut exits, now);
    let is_settled = exits.is_settled(now);
    assert_eq!(exits.deadline().is_none(), is_settled, "or it is asked again");
    assert!(exits.is_settled(now + PATIENCE), "that has an end");
    (found, is_settled)
}

/// A job that this rank has broken.
fn broken_by(rank: u32, nodes: Vec<StatusNode>) -> StatusPart {
    let mut part = part(JobPhase::Broken, nodes);
    let (culprit, cause) = (Some(node(rank, 70 + rank, NodeStanding::Lost).who), "is lost".to_owned());
    let failure = Failure { status: Status::PeerLost, culprit, cause, epoch: Epoch(1), group: None, sequence: 0 };
    part.job.as_mut().unwrap().failure = Some(failure);
    part
}

#[test]
fn where_all_have_ended_with_0_others_may_wait_for_them_to_join() {
    for last in [Later::Joining, Later::Leaving] {
        let forming = |nodes| found_last(last, Some(part(JobPhase::Forming, nodes)));
        let elsewhere = vec![node(2, 99, NodeStanding::Member)];
        let both = [0, 1].map(|child| (child, Without::Joining(1))).to_vec();
        assert_eq!(forming(elsewhere), (both, true));
        assert_eq!(forming(vec![]), (Vec::new(), true), "nobody waits for a plain program");
        let joined = [0, 1].map(|rank| node(rank, 99, NodeStanding::Member)).to_vec();
        assert_eq!(forming(joined), (Vec::new(), true), "what a script has started has joined in its place");
    }
}

#[test]
fn where_all_have_ended_with_0_one_may_have_broken_the_job() {
    let last = |phase, states: [NodeStanding; 2]| {
        let nodes = [(0, 70), (1, 71)].into_iter().zip(states).map(|((rank, pid), state)| node(rank, pid, state));
        found_last(Later::Leaving, Some(part(phase, nodes.collect())))
    };
    use NodeStanding::{Away, Left, Member};
    for phase in [JobPhase::Running, JobPhase::Ending] {
        assert_eq!(last(phase, [Left, Left]), (Vec::new(), true), "{phase:?}: they have left");
        for state in [Away, Member] {
            assert_eq!(last(phase, [Left, state]), (Vec::new(), false), "{phase:?}, {state:?}: it may be lost soon");
        }
    }
    let broken = |rank| found_last(Later::Leaving, Some(broken_by(rank, vec![])));
    assert_eq!(broken(1), (vec![(1, Without::Leaving)], true));
    assert_eq!(broken(2), (Vec::new(), true), "another has broken it");
    // The launcher that leads knows that by the scheduler's words.
    for answer in [broken_by(1, vec![]), part(JobPhase::Running, vec![node(1, 71, Away)])] {
        assert_eq!(found_last(Later::Joining, Some(answer)), (Vec::new(), true));
    }
}

#[test]
fn the_last_question_needs_an_answer_and_a_port_that_refuses_is_one() {
    assert_eq!(found_last(Later::Leaving, None), (Vec::new(), false), "it is about to end");
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut exits = UncleanExits::new(("127.0.0.1".to_owned(), gone), Later::Leaving);
    assert!(exits.is_settled(Duration::ZERO), "no worker has ended with code 0");
    exits.doubt(0, Duration::ZERO);
    assert!(!exits.is_settled(Duration::ZERO));
    assert!(exits.look(&[child(0, 70)], |_| &[], Duration::ZERO).is_empty());
    assert!(look_on(&mut exits, Duration::ZERO).is_empty());
    assert!(exits.is_settled(Duration::ZERO), "the job is over");
}

#[test]
fn a_worker_is_asked_about_again_if_what_it_left_behind_may_join_but_not_where_the_run_ends() {
    let mut exits = UncleanExits::new(("127.0.0.1".to_owned(), 1), Later::Leaving);
    exits.may_join_yet(0, Duration::ZERO);
    assert_eq!(exits.deadline(), Some(PAUSES[0]));
    assert!(!exits.is_settled(Duration::ZERO), "that is the last question");
    exits.doubtful.clear(); // the answer was that it has not joined
    exits.may_join_yet(0, Duration::ZERO);
    assert!(exits.is_settled(Duration::ZERO));
}

#[test]
fn a_cluster_that_forms_where_this_one_was_complete_is_another() {
    let mut exits = UncleanExits::new(("127.0.0.1".to_owned(), 1), Later::Leaving);
    let told = Told {
        phase: JobPhase::Forming,
        culprit: None,
        why: None,
        groups_are_whole: true,
        nodes: vec![node(2, 99, NodeStanding::Member)],
    };
    assert_eq!(exits.without(&told, &child(1, 71), &[life(71)]), Some(Without::Joining(1)));
    exits.formed();
    assert_eq!(exits.without(&told, &child(1, 71), &[life(71)]), None);
}

// The question about the first failure

#[test]
fn at_the_first_failure_the_job_was_broken_or_whole_or_the_worker_had_left_it() {
    use NodeStanding::{Left, Member};
    let at_first = |answer: StatusPart| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ("127.0.0.1".to_owned(), listener.local_addr().unwrap().port());
        let mut exits = UncleanExits::new(address, Later::Leaving);
        exits.failed(1, Duration::ZERO);
        assert!(exits.look(&[child(0, 70), child(1, 71)], |_| &[], Duration::ZERO).is_empty());
        answer_next(&listener, Some(answer));
        assert!(look_on(&mut exits, Duration::ZERO).is_empty());
        exits.at_first().clone()
    };
    let running = |states: [NodeStanding; 2]| {
        let nodes = [(0, 70), (1, 71)].into_iter().zip(states).map(|((rank, pid), state)| node(rank, pid, state));
        part(JobPhase::Running, nodes.collect())
    };
    assert_eq!(at_first(running([Member, Member])), AtFirst::Whole);
    assert_eq!(at_first(running([Left, Member])), AtFirst::Whole, "another had left");
    assert_eq!(at_first(running([Member, Left])), AtFirst::Left(1));
    let (group, failure) = (GroupId::WORLD, broken_by(0, vec![]).job.unwrap().failure);
    let (sequence, inside, age_ms, absent) = (0, 0, 0, 0);
    let revoked = StatusGroup { group, failure, sequence, call: None, inside, age_ms, absent, members: Vec::new() };
    let answer = StatusPart { groups: vec![revoked], ..running([Member, Left]) };
    assert_eq!(at_first(answer), AtFirst::Whole, "a group was over: that may be why it failed");
    let AtFirst::Broken(why) = at_first(broken_by(0, vec![node(1, 71, Left)])) else { panic!("it was broken") };
    assert!(why.contains("rank 0") && why.contains("is lost"), "{why}");
}
