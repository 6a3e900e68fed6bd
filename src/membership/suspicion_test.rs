use crate::membership::testing::{host, named, Bench};
use crate::membership::{Closed, Input, Liveness};
use crate::types::JobInstance;
use crate::wire::{Heartbeat, Message, PeerReport, PeerState, Register, Suspect};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn suspect(bench: &mut Bench, conn: u64, peer: u32) {
    bench.say(conn, Message::Suspect(Suspect { peer, evidence: "link ended".to_string() }));
}

fn reports(bench: &mut Bench, conn: u64) -> Vec<(u32, PeerState)> {
    let report = |message| match message {
        Message::PeerReport(PeerReport { peer, state, .. }) => Some((peer, state)),
        _ => None,
    };
    bench.told(conn).into_iter().filter_map(report).collect()
}

/// The rank that the verdict names.
fn culprit(bench: &mut Bench, conn: u64) -> Option<u32> {
    bench.verdict(conn).and_then(|failure| failure.culprit).and_then(|culprit| culprit.rank)
}

#[test]
fn a_peer_that_has_left() {
    let mut bench = Bench::formed(&["here", "there"]);
    bench.say(1, Message::Leave);
    suspect(&mut bench, 0, 1);
    assert_eq!(reports(&mut bench, 0), [(1, PeerState::Left)]);
}

#[test]
fn what_a_peer_saw_is_forgotten_when_the_node_is_heard_again() {
    // What was said at once is evidence, for the node's connection may end for the same reason.
    let mut bench = Bench::formed(&["here", "there"]);
    suspect(&mut bench, 0, 1);
    bench.close(1, Closed::Ended);
    bench.pass(Duration::ZERO);
    assert_eq!(culprit(&mut bench, 0), Some(1));
    for attaches in [false, true] {
        let mut bench = Bench::formed(&["here", "there"]);
        suspect(&mut bench, 0, 1);
        let mut conn = 1;
        if attaches {
            conn = 11;
            bench.close(1, Closed::Broken);
            bench
                .join(conn, Register { instance: Some(JobInstance([9; 16])), host: host("there"), ..named(1, 2, "1") });
        } else {
            bench.now = bench.now + MS * 150;
            bench.beat(1, 1);
        }
        bench.close(conn, Closed::Ended);
        bench.pass(MS * 99);
        assert_eq!(culprit(&mut bench, 0), None, "it has the time to come back");
        bench.pass(MS);
        assert_eq!(culprit(&mut bench, 0), Some(1));
    }
}

#[test]
fn a_peer_that_lives_is_reported_after_a_moment() {
    let mut bench = Bench::formed(&["here", "there"]);
    suspect(&mut bench, 0, 1);
    bench.pass(MS * 10);
    bench.beat(1, 1); // it was asked for it
    bench.pass(MS * 139);
    assert_eq!(reports(&mut bench, 0), []);
    bench.pass(MS);
    assert_eq!(reports(&mut bench, 0), [(1, PeerState::Alive)]);
    bench.pass(MS * 500);
    assert_eq!(reports(&mut bench, 0), [], "once");
    // And if it leaves meanwhile:
    suspect(&mut bench, 0, 1);
    bench.say(1, Message::Leave);
    bench.pass(MS * 150);
    assert_eq!(reports(&mut bench, 0), [(1, PeerState::Left)]);
}

#[test]
fn a_peer_that_shows_no_life_is_not_called_alive() {
    let mut bench = Bench::formed(&["here", "there"]);
    suspect(&mut bench, 0, 1);
    bench.pass(MS * 300);
    assert_eq!(reports(&mut bench, 0), []);
    bench.beat(1, 1);
    bench.pass(MS * 60);
    assert_eq!(reports(&mut bench, 0), [(1, PeerState::Alive)]);
}

/// The suspect's host may be cut off from all in one direction. It is not called alive before that can be told from a fault
/// of the link.
#[test]
fn a_peer_that_hears_nothing_is_not_called_alive() {
    for hears in [false, true] {
        let mut bench = Bench::formed(&["here", "there"]);
        // It sends ten heartbeats, three an interval. The first three of the answers come.
        for sequence in 1..=10 {
            let echoed = if hears { sequence - 1 } else { (sequence - 1).min(3) };
            bench.say(1, Message::Heartbeat(Heartbeat { sequence, echoed, ..Heartbeat::default() }));
            bench.pass(MS * 300);
        }
        suspect(&mut bench, 0, 1);
        bench.pass(MS * 10);
        bench.say(
            1,
            Message::Heartbeat(Heartbeat { sequence: 11, echoed: if hears { 10 } else { 3 }, ..Heartbeat::default() }),
        );
        bench.pass(MS * 200);
        assert_eq!(reports(&mut bench, 0), if hears { vec![(1, PeerState::Alive)] } else { Vec::new() });
    }
}

#[test]
fn once_there_is_a_verdict_it_is_the_answer() {
    let mut bench = Bench::formed(&["here", "there", "there"]);
    bench.close(1, Closed::Ended);
    bench.pass(MS * 100);
    assert_eq!(culprit(&mut bench, 0), Some(1));
    suspect(&mut bench, 0, 2);
    assert_eq!(culprit(&mut bench, 0), Some(1));
}

#[test]
fn a_consequence_is_not_the_culprit() {
    // Rank 0 gives up because of rank 1 and its process ends first, on the scheduler's own host; rank 1's end, far away,
    // becomes certain later.
    let mut bench = Bench::formed(&["here", "there", "there"]);
    suspect(&mut bench, 0, 1);
    bench.probes.clear();
    bench.close(0, Closed::Ended);
    let process = bench.probes[0];
    bench.feed(Input::Probed(process, Liveness::Gone));
    assert_eq!(culprit(&mut bench, 2), None, "not before rank 1 has been judged");
    bench.pass(MS * 70);
    bench.close(1, Closed::Ended);
    bench.pass(Duration::ZERO);
    assert_eq!(culprit(&mut bench, 2), Some(1));
    assert_eq!(bench.lines.len(), 1, "{:?}", bench.lines);
}

#[test]
fn a_chain_of_consequences_leads_to_its_end() {
    let mut bench = Bench::formed(&["there", "there", "there", "there"]);
    suspect(&mut bench, 0, 1);
    suspect(&mut bench, 1, 2);
    bench.close(0, Closed::Ended);
    bench.close(1, Closed::Ended);
    bench.pass(MS * 120);
    assert_eq!(culprit(&mut bench, 3), None);
    bench.close(2, Closed::Ended);
    bench.pass(MS * 120);
    assert_eq!(culprit(&mut bench, 3), Some(2));
}

#[test]
fn a_node_that_blames_one_who_lives_is_a_culprit_of_its_own() {
    let mut bench = Bench::formed(&["there", "there", "there"]);
    suspect(&mut bench, 0, 1);
    bench.close(0, Closed::Ended);
    bench.pass(MS * 40);
    bench.beat(1, 1);
    bench.pass(MS * 109);
    assert_eq!(culprit(&mut bench, 2), None);
    bench.pass(MS * 60);
    assert_eq!(culprit(&mut bench, 2), Some(0));
}

#[test]
fn two_that_blame_each_other() {
    let mut bench = Bench::formed(&["there", "there", "there"]);
    suspect(&mut bench, 0, 1);
    suspect(&mut bench, 1, 0);
    bench.close(1, Closed::Broken);
    bench.pass(MS);
    bench.close(0, Closed::Broken);
    let mut beats = 0;
    bench.pass_with(MS * 5_100, |bench| {
        beats += 1;
        bench.beat(2, beats);
    });
    assert_eq!(culprit(&mut bench, 2), Some(1), "the one that went first");
}

#[test]
fn two_that_blame_each_other_because_of_a_third() {
    let mut bench = Bench::formed(&["there", "there", "there", "there"]);
    suspect(&mut bench, 0, 1);
    suspect(&mut bench, 1, 0);
    suspect(&mut bench, 1, 2);
    bench.close(0, Closed::Ended);
    bench.close(1, Closed::Ended);
    bench.pass(MS * 200);
    assert_eq!(culprit(&mut bench, 3), None, "not before rank 2 has been judged");
    bench.close(2, Closed::Ended);
    bench.pass(MS * 60);
    assert_eq!(culprit(&mut bench, 3), Some(2));
}

#[test]
fn a_node_that_blames_another_is_excused_for_a_while_only() {
    // Rank 1 is neither heard nor lost: it registers again and again, and falls silent each time.
    let mut bench = Bench::formed(&["there", "there", "there"]);
    suspect(&mut bench, 0, 1);
    bench.close(0, Closed::Ended);
    let mut beats = 0;
    for round in 0..12 {
        bench.pass_with(MS * 1_000, |bench| {
            beats += 1;
            bench.beat(2, beats);
        });
        bench.close(1 + 10 * round, Closed::Broken);
        bench.join(1 + 10 * (round + 1), named(1, 3, "1"));
        bench.close(1 + 10 * (round + 1), Closed::Broken);
        bench.join(1 + 10 * (round + 1), named(1, 3, "1"));
    }
    assert!(bench.verdict(2).is_some());
}

#[test]
fn an_old_suspicion_excuses_nothing() {
    let mut bench = Bench::formed(&["there", "there", "there"]);
    suspect(&mut bench, 0, 1);
    let mut beats = 0;
    bench.pass_with(MS * 5_500, |bench| {
        beats += 1;
        for conn in [0, 1, 2] {
            bench.beat(conn, beats);
        }
    });
    bench.close(0, Closed::Ended);
    bench.pass(MS * 100);
    assert_eq!(culprit(&mut bench, 2), Some(0));
}

#[test]
fn nonsense_is_ignored() {
    let mut bench = Bench::formed(&["here", "there"]);
    suspect(&mut bench, 0, 0);
    suspect(&mut bench, 0, 77);
    assert!(bench.sent.is_empty() && bench.closed.is_empty());
}
