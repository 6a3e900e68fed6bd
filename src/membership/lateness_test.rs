//! What the scheduler does about a time in which it stood still itself: all deadlines move by as much, in every direction,
//! and their order stays the same.

use crate::error::{Failure, Status};
use crate::membership::connection_table::GREETING;
use crate::membership::testing::{host, named, rules, worker, Bench};
use crate::membership::{Closed, ConnId, Input, Rules};
use crate::types::{Epoch, GroupId, JobInstance, Process, Token, TokenHash};
use crate::wire::{
    Abandoned, ChildEnded, Heartbeat, HowEnded, InEpoch, Message, PeerReport, PeerState, Recover, Reentry, Register,
    Revoke, Suspect,
};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_secs(30);

/// The scheduler stands still, and wakes. What the nodes do meanwhile is fed after that.
fn stands_still(bench: &mut Bench, pause: Duration) {
    bench.now = bench.now + pause;
    bench.feed(Input::Timer);
}

/// Time passes, in which these connections are heard, every time that a timer is due.
fn pass(bench: &mut Bench, span: Duration, heard: &[u64]) {
    bench.pass_with(span, |bench| heard.iter().for_each(|conn| bench.feed(Input::Heard(ConnId(*conn)))));
}

fn suspect(bench: &mut Bench, conn: u64, peer: u32) {
    bench.say(conn, Message::Suspect(Suspect { peer, evidence: "its link ended".to_string() }));
}

fn culprit(bench: &mut Bench, conn: u64) -> Option<u32> {
    bench.verdict(conn).and_then(|failure| failure.culprit).and_then(|culprit| culprit.rank)
}

fn says_alive(bench: &mut Bench, conn: u64) -> bool {
    let alive = |message| matches!(message, Message::PeerReport(PeerReport { state: PeerState::Alive, .. }));
    bench.told(conn).into_iter().any(alive)
}

/// Rank 1's life, on another host, once more.
fn again(size: u32) -> Register {
    Register { instance: Some(JobInstance([9; 16])), host: host("there"), ..named(1, size, "1") }
}

#[test]
fn a_node_that_was_not_heard_is_not_said_to_live() {
    let mut bench = Bench::formed(&["here", "there"]);
    pass(&mut bench, MS * 900, &[0, 1]);
    suspect(&mut bench, 0, 1);
    stands_still(&mut bench, PAUSE);
    pass(&mut bench, MS * 500, &[0]);
    assert!(!says_alive(&mut bench, 0));
    bench.beat(1, 1);
    pass(&mut bench, MS * 200, &[0]);
    assert!(says_alive(&mut bench, 0));
}

#[test]
fn a_node_that_went_because_of_another_is_not_the_culprit() {
    let mut bench = Bench::formed(&["there", "there", "there"]);
    pass(&mut bench, MS * 900, &[0, 1, 2]);
    suspect(&mut bench, 0, 1);
    bench.close(0, Closed::Ended);
    stands_still(&mut bench, PAUSE);
    pass(&mut bench, MS * 500, &[2]);
    assert_eq!(culprit(&mut bench, 2), None, "not before rank 1 has been judged");
    bench.close(1, Closed::Ended);
    pass(&mut bench, MS * 200, &[2]);
    assert_eq!(culprit(&mut bench, 2), Some(1));
}

#[test]
fn a_node_that_went_before_a_group_was_revoked_did_not_go_because_of_that() {
    let mut bench = Bench::formed(&["here", "there", "there"]);
    bench.close(1, Closed::Broken);
    pass(&mut bench, MS * 900, &[0, 2]);
    let (status, group) = (Status::Timeout, Some(GroupId::WORLD));
    let cause = "waited for rank 1 in vain".to_string();
    let failure = Failure { status, culprit: None, cause, epoch: Epoch(1), group, sequence: 4 };
    bench.say(2, Message::Revoke(Revoke { failure }));
    stands_still(&mut bench, PAUSE);
    pass(&mut bench, MS * 6_000, &[0, 2]);
    assert_eq!(culprit(&mut bench, 0), Some(1));
}

#[test]
fn one_whose_connection_broke_has_the_rest_of_its_time_whatever_a_peer_says() {
    let mut bench = Bench::formed(&["here", "there"]);
    bench.close(1, Closed::Broken);
    pass(&mut bench, MS * 900, &[0]);
    stands_still(&mut bench, PAUSE);
    suspect(&mut bench, 0, 1);
    pass(&mut bench, MS * 3_900, &[0]);
    assert_eq!(bench.verdict(0), None);
    pass(&mut bench, MS * 300, &[0]);
    assert_eq!(culprit(&mut bench, 0), Some(1));
}

/// A heartbeat of a node that has heard nothing yet.
fn deaf_beat(bench: &mut Bench, conn: u64, sequence: u64) {
    bench.say(conn, Message::Heartbeat(Heartbeat { sequence, echoed: 0, ..Heartbeat::default() }));
}

#[test]
fn one_that_does_not_hear_has_the_rest_of_its_time() {
    for attaches in [false, true] {
        let mut bench = Bench::formed(&["here", "there"]);
        let (mut conn, mut beats) = (1, 0);
        let mut deaf = |bench: &mut Bench, conn, span| {
            bench.pass_with(span, |bench| {
                beats += 1;
                bench.feed(Input::Heard(ConnId(0)));
                deaf_beat(bench, conn, beats);
            });
        };
        deaf(&mut bench, conn, MS * 3_900);
        if attaches {
            // It says in the new connection that it hears: that counts from the connection's beginning.
            conn = 11;
            bench.close(1, Closed::Broken);
            bench.join(conn, again(2));
            stands_still(&mut bench, PAUSE);
            bench.say(conn, Message::InEpoch(InEpoch { epoch: Epoch(1) }));
        } else {
            stands_still(&mut bench, PAUSE);
        }
        let rest = if attaches { 4_500 } else { 800 };
        deaf(&mut bench, conn, MS * rest);
        assert_eq!(bench.verdict(0), None, "{attaches}");
        deaf(&mut bench, conn, MS * 2_000);
        let failure = bench.verdict(0).expect("told");
        assert!(failure.cause.contains("it has not heard the scheduler for"), "{failure}");
    }
}

#[test]
fn a_launchers_word_still_counts() {
    let mut bench = Bench::formed(&["here", "there"]);
    pass(&mut bench, MS * 900, &[0, 1]);
    let process = Process { pid: 1001, start_ticks: 1, pid_namespace: 7 };
    let word = ChildEnded { host: host("there"), process, how: HowEnded::Killed, number: 9, launch: None };
    bench.open(100);
    bench.say(100, Message::ChildEnded(word));
    stands_still(&mut bench, PAUSE);
    bench.close(1, Closed::Broken);
    pass(&mut bench, MS * 200, &[0]);
    let failure = bench.verdict(0).expect("not after the heartbeat time-out");
    assert!(failure.cause.contains("and it was killed by signal 9 (its launcher)"), "{failure}");
}

/// A worker of a job with recovery, in this life.
fn recoverable(rank: u32, life: u8) -> Register {
    let token = |life: u8| Token([life * 16 + rank as u8; 32]);
    let tokens = if life == 0 { Vec::new() } else { vec![token(life - 1)] };
    let reentry = Some(Box::new(Reentry { tokens, next: TokenHash::of(&token(life)) }));
    let serial = rank + 100 * u32::from(life);
    Register { host: host("there"), recovery: true, reentry, ..named(serial, 2, &rank.to_string()) }
}

/// Two such workers, of a scheduler with this heartbeat time-out.
fn recovering(heartbeat_timeout_ms: u64) -> Bench {
    let mut rules = Rules { recovery: true, ..rules(2, 0) };
    rules.agreed.heartbeat_timeout_ms = heartbeat_timeout_ms;
    let mut bench = Bench::new(rules);
    (0..2).for_each(|rank| bench.join(rank.into(), recoverable(rank, 0)));
    bench.sent.clear();
    bench
}

#[test]
fn that_nobody_is_started_any_more_still_counts() {
    let mut bench = recovering(5_000);
    pass(&mut bench, MS * 900, &[0, 1]);
    bench.open(100);
    let processes = vec![Process { pid: 1001, start_ticks: 1, pid_namespace: 7 }];
    bench.say(100, Message::Abandoned(Abandoned { host: host("there"), processes, launches: Vec::new() }));
    stands_still(&mut bench, PAUSE);
    bench.close(1, Closed::Ended);
    pass(&mut bench, MS * 200, &[0]);
    assert_eq!(culprit(&mut bench, 0), Some(1));
    bench.say(0, Message::Recover(Recover { epoch: Epoch(1), inside: true }));
    let told = bench.told(0);
    assert!(told.iter().any(|message| matches!(message, Message::NotRecovered(_))), "at once: {told:?}");
}

#[test]
fn a_life_that_did_not_answer_keeps_nobody_from_its_place() {
    let mut bench = recovering(500);
    pass(&mut bench, MS * 90, &[0, 1]);
    bench.join(11, recoverable(1, 1));
    assert!(matches!(bench.told(11)[..], [Message::NotYet(_)]), "its last life is asked");
    assert_eq!(bench.told(1), [Message::Report]);
    stands_still(&mut bench, MS * 300);
    bench.join(12, recoverable(1, 1));
    assert!(matches!(bench.told(12)[..], [Message::NotYet(_)]), "it has not answered yet");
    pass(&mut bench, MS * 600, &[0]);
    assert_eq!(culprit(&mut bench, 0), Some(1), "nor does it later");
    bench.join(13, recoverable(1, 1));
    assert!(!bench.closed.contains(&ConnId(13)), "then its next life has its place");
}

#[test]
fn a_connection_that_has_not_registered_yet_has_the_rest_of_its_time() {
    let mut bench = Bench::new(rules(2, 0));
    bench.open(1);
    pass(&mut bench, GREETING - MS * 300, &[]);
    bench.open(2);
    stands_still(&mut bench, PAUSE);
    pass(&mut bench, MS * 500, &[]);
    assert_eq!(bench.closed, [ConnId(1)]);
    pass(&mut bench, GREETING - MS * 1_000, &[]);
    bench.say(2, Message::Register(worker(2, 2)));
    assert_eq!(bench.closed, [ConnId(1)]);
}

#[test]
fn the_survivors_of_a_broken_job_have_the_rest_of_their_time() {
    let mut bench = Bench::formed(&["there", "there"]);
    bench.say(1, Message::Gone);
    assert_eq!(culprit(&mut bench, 0), Some(1));
    pass(&mut bench, MS * 900, &[0]);
    stands_still(&mut bench, PAUSE);
    pass(&mut bench, MS * 3_900, &[0]);
    assert!(bench.ended.is_none());
    pass(&mut bench, MS * 300, &[0]);
    assert!(bench.ended.is_some());
}
