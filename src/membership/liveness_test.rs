use super::REATTACH;
use crate::error::Status;
use crate::membership::testing::{host, named, rules, worker, Bench};
use crate::membership::{Closed, ConnId, Input, Liveness};
use crate::types::{Epoch, JobInstance};
use crate::wire::{Abort, Heartbeat, InEpoch, Message, Register, Suspect};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn probed(bench: &mut Bench, liveness: Liveness) {
    let process = bench.probes.pop().expect("a probe is open");
    bench.feed(Input::Probed(process, liveness));
}

#[test]
fn a_process_that_is_gone_is_lost_at_once() {
    let mut bench = Bench::formed(&["here", "here", "there"]);
    bench.now = bench.now + MS * 3;
    bench.close(1, Closed::Ended);
    assert_eq!(bench.probes.len(), 1);
    assert_eq!(bench.probes[0].pid, 1001);
    assert!(bench.sent.is_empty(), "no verdict before the look");
    probed(&mut bench, Liveness::Gone);
    let failure = bench.verdict(0).expect("told");
    assert_eq!(bench.verdict(2), Some(failure.clone()), "all are told the same");
    assert_eq!((failure.status, failure.epoch.0, failure.group), (Status::PeerLost, 1, None));
    assert_eq!(
        failure.to_string(),
        "rank 1 (node id \"1\", host here, pid 1001) is lost: its process has ended, and its connection has ended (end of \
         stream); last heard 3 ms ago"
    );
    assert_eq!(bench.lines, [format!("the job is broken: {failure}")]);
    // Later losses are its consequences: nobody is told of them.
    bench.close(0, Closed::Ended);
    bench.close(2, Closed::Broken);
    assert!(bench.sent.is_empty());
    bench.pass(REATTACH);
    let error = bench.ended.clone().expect("nobody is left").expect_err("broken");
    assert_eq!(error.failure(), Some(&failure));
    assert_eq!(bench.lines.len(), 1);
}

#[test]
fn a_process_that_is_about_to_be_gone_is_looked_at_again() {
    let mut bench = Bench::formed(&["here", "here"]);
    bench.close(1, Closed::Ended);
    let mut looks = 0;
    probed_if_open(&mut bench, &mut looks);
    for _ in 0..300 {
        bench.pass(MS);
        probed_if_open(&mut bench, &mut looks);
    }
    assert!((8..=14).contains(&looks), "1, 2, 4 .. 50, 50 ms: {looks}");
    assert!(bench.sent.is_empty());
    bench.pass(MS * 50);
    probed(&mut bench, Liveness::Gone);
    assert!(bench.verdict(0).is_some());
}

fn probed_if_open(bench: &mut Bench, looks: &mut u32) {
    while !bench.probes.is_empty() {
        *looks += 1;
        probed(bench, Liveness::Alive);
    }
}

#[test]
fn a_process_that_lives_on_has_the_time_out_to_come_back() {
    for returns in [true, false] {
        let mut bench = Bench::formed(&["here", "here"]);
        bench.close(1, Closed::Ended);
        let mut beats = 0;
        probed(&mut bench, Liveness::Alive);
        let mut passing = |bench: &mut Bench, span| {
            bench.pass_with(span, |bench| {
                while !bench.probes.is_empty() {
                    probed(bench, Liveness::Alive);
                }
                beats += 1;
                bench.beat(0, beats);
            });
        };
        passing(&mut bench, MS * 4_900);
        if returns {
            bench.join(7, Register { instance: Some(JobInstance([9; 16])), ..named(1, 2, "1") });
            assert_eq!(bench.formed_message(7).rank, 1);
        }
        passing(&mut bench, MS * 200);
        let verdict = bench.verdict(0);
        assert_eq!(verdict.is_none(), returns, "{verdict:?}");
        if let Some(failure) = verdict {
            assert!(failure.cause.contains("its connection ended (end of stream) and it did not come back within 5 s"));
        }
    }
}

#[test]
fn on_another_host_an_ended_connection_has_a_moment() {
    let mut bench = Bench::formed(&["here", "there"]);
    bench.close(1, Closed::Ended);
    assert!(bench.probes.is_empty(), "its process can't be seen from here");
    bench.pass(MS * 99);
    assert!(bench.sent.is_empty());
    bench.pass(MS);
    let failure = bench.verdict(0).expect("told");
    assert!(failure.cause.contains("did not come back within 100 ms"), "{failure}");
}

#[test]
fn another_pid_namespace_is_another_host() {
    let mut bench = Bench::new(crate::membership::testing::rules(2, 0));
    bench.join(0, worker(1, 2));
    let mut other = worker(2, 2);
    other.process.pid_namespace = 8;
    bench.join(1, other);
    bench.close(1, Closed::Ended);
    assert!(bench.probes.is_empty());
}

#[test]
fn a_second_witness_makes_it_certain() {
    // Before the connection's end, and after it.
    for before in [true, false] {
        let mut bench = Bench::formed(&["here", "there", "elsewhere"]);
        let suspect = Message::Suspect(Suspect { peer: 1, evidence: "connection reset".to_string() });
        if before {
            bench.say(2, suspect.clone());
            assert_eq!(bench.told(1), [Message::Report], "it is asked for a sign of life");
            bench.now = bench.now + MS * 20;
            bench.close(1, Closed::Ended);
        } else {
            bench.close(1, Closed::Ended);
            bench.now = bench.now + MS * 20;
            bench.say(2, suspect);
        }
        assert_eq!(bench.verdict(2), None, "not before everything has been read");
        bench.pass(Duration::ZERO);
        let failure = bench.verdict(2).expect("told at once");
        assert_eq!(
            failure.to_string(),
            "rank 1 (node id \"1\", host there, pid 1001) is lost: its connection ended (end of stream), and rank 2 (node id \
             \"2\", host elsewhere, pid 1002) saw so too (connection reset); last heard 20 ms ago"
        );
    }
}

#[test]
fn a_broken_connection_has_the_time_out_to_come_back() {
    let mut bench = Bench::formed(&["here", "there"]);
    bench.close(1, Closed::Broken);
    let mut beats = 0;
    let mut beat = |bench: &mut Bench| {
        beats += 1;
        bench.beat(0, beats);
    };
    bench.pass_with(MS * 4_950, &mut beat);
    assert_eq!(bench.verdict(0), None);
    bench.pass_with(MS * 100, &mut beat);
    let failure = bench.verdict(0).expect("told");
    assert!(
        failure.cause.contains("its connection broke (end of stream) and it did not come back within 5 s"),
        "{failure}"
    );
}

#[test]
fn silence_is_death() {
    let mut bench = Bench::formed(&["here", "there"]);
    let mut beats = 0;
    bench.pass_with(MS * 4_500, |bench| {
        beats += 1;
        bench.beat(0, beats);
    });
    // Any bytes are a sign of life, whole messages or not.
    bench.feed(Input::Heard(ConnId(1)));
    bench.pass_with(MS * 4_000, |bench| {
        beats += 1;
        bench.beat(0, beats);
    });
    assert_eq!(bench.verdict(0), None);
    bench.pass_with(MS * 2_000, |bench| {
        beats += 1;
        bench.beat(0, beats);
    });
    let failure = bench.verdict(0).expect("told");
    assert!(failure.to_string().starts_with("rank 1 "), "{failure}");
    assert!(failure.cause.starts_with("is lost: nothing was heard from it for 5"), "{failure}");
}

#[test]
fn silence_on_this_host_is_looked_into() {
    for (liveness, words) in [
        (Liveness::Alive, "although its process still runs"),
        (Liveness::Gone, "its process has ended, although its connection is still open"),
    ] {
        let mut bench = Bench::formed(&["there", "here"]);
        let mut beats = 0;
        bench.pass_with(MS * 6_000, |bench| {
            beats += 1;
            bench.beat(0, beats);
        });
        probed(&mut bench, liveness);
        bench.pass(MS);
        let failure = bench.verdict(0).expect("told");
        assert!(failure.cause.contains(words), "{failure}");
    }
}

/// A killed process keeps its connection open as long as one of its threads waits for a disk.
#[test]
fn a_process_that_has_been_killed_is_lost_before_its_time_is_up() {
    let mut bench = Bench::formed(&["there", "here"]);
    let mut beats = 0;
    let mut beat = |bench: &mut Bench| {
        beats += 1;
        bench.beat(0, beats);
    };
    bench.pass_with(MS * 3_000, &mut beat);
    probed(&mut bench, Liveness::Alive); // it may be stopped, or slow
    assert_eq!(bench.verdict(0), None);
    bench.pass_with(MS * 1_000, &mut beat);
    probed(&mut bench, Liveness::Gone);
    bench.pass(MS);
    let failure = bench.verdict(0).expect("told");
    assert!(failure.cause.contains("its process has ended, although its connection is still open"), "{failure}");
    assert!(failure.cause.contains("last heard 4 s ago"), "{failure}");
}

#[test]
fn a_node_that_does_not_hear_is_lost_too() {
    let mut bench = Bench::formed(&["here", "there"]);
    let mut beats = 0;
    bench.pass_with(MS * 6_500, |bench| {
        beats += 1;
        bench.beat(0, beats);
        bench.say(1, Message::Heartbeat(Heartbeat { sequence: beats, echoed: 0, ..Heartbeat::default() }));
    });
    let failure = bench.verdict(0).expect("told");
    assert!(failure.to_string().starts_with("rank 1 "), "{failure}");
    assert!(failure.cause.starts_with("is lost: it has not heard the scheduler for 5"), "{failure}");
    assert!(failure.cause.ends_with("; last heard 0 ms ago"), "{failure}");
}

/// Its heartbeats are held up for most of the time-out, as behind a long value on a slow link, or on a machine that is too
/// busy. Then they come all at once. There was no echo in between that it could have heard.
#[test]
fn a_node_whose_heartbeats_are_held_up_is_not_called_deaf_for_that_time() {
    for hears in [true, false] {
        let mut bench = Bench::formed(&["here", "there"]);
        let (mut own, mut last) = (0, 0);
        let mut pass = |bench: &mut Bench, span, sequences: &[u64], echoed| {
            for sequence in sequences {
                bench.say(1, Message::Heartbeat(Heartbeat { sequence: *sequence, echoed, ..Heartbeat::default() }));
            }
            bench.pass_with(span, |bench| {
                own += 1;
                bench.beat(0, own);
                bench.feed(Input::Heard(ConnId(1))); // parts of that value
            });
        };
        while last < 3 {
            last += 1;
            pass(&mut bench, MS * 1_000, &[last], last - 1);
        }
        pass(&mut bench, MS * 3_200, &[], 0);
        pass(&mut bench, MS * 1_200, &[4, 5, 6, 7], 3);
        assert_eq!(bench.verdict(0), None, "the first echo after that has had 1.2 s");
        if hears {
            pass(&mut bench, MS * 6_000, &[8], 7);
            assert_eq!(bench.verdict(0), None);
        } else {
            pass(&mut bench, MS * 5_000, &[8], 3);
            let failure = bench.verdict(0).expect("told");
            assert!(failure.cause.starts_with("is lost: it has not heard the scheduler for 5"), "{failure}");
        }
    }
}

#[test]
fn a_node_that_does_not_hear_gains_no_time_by_registering_again() {
    let mut bench = Bench::formed(&["here", "there"]);
    let mut beats = 0;
    for conn in [1, 11, 12] {
        if conn != 1 {
            bench
                .join(conn, Register { instance: Some(JobInstance([9; 16])), host: host("there"), ..named(1, 2, "1") });
        }
        bench.pass_with(MS * 4_500, |bench| {
            beats += 1;
            bench.beat(0, beats);
            bench.say(conn, Message::Heartbeat(Heartbeat { sequence: beats, echoed: 0, ..Heartbeat::default() }));
        });
    }
    let failure = bench.verdict(0).expect("told");
    assert!(failure.to_string().starts_with("rank 1 "), "{failure}");
    assert!(failure.cause.starts_with("is lost: it has not heard the scheduler for "), "{failure}");
}

/// A node on a link that goes silent in either direction, or both, as its agent sees to it: it sends a heartbeat each
/// interval, and opens a new connection if nothing was heard for all but one interval of the time-out.
struct Cut {
    timeout: Duration,
    /// When the node beats, and when the link goes silent, in eighths of an interval.
    beats_at: u32,
    silent_at: u32,
    speaks: bool,
    hears: bool,
    /// Whether new connections work.
    heals: bool,
}

impl Cut {
    /// How long after the silence began the node was lost, if it was within three time-outs.
    fn lost_after(&self, place: &str) -> Option<Duration> {
        let mut agreed = rules(2, 0).agreed;
        agreed.heartbeat_timeout_ms = self.timeout.as_millis() as u64;
        let mut bench = Bench::new(crate::membership::Rules { agreed, ..rules(2, 0) });
        let register = || Register { host: host(place), ..named(1, 2, "1") };
        bench.join(0, named(0, 2, "0"));
        bench.join(1, register());
        bench.sent.clear();
        let step = self.timeout / 40;
        let (mut conn, mut sequence, mut echoed, mut heard_at) = (1, 0, 0, 0);
        for now in 1..120 + self.silent_at {
            bench.pass(step);
            let silent = now >= self.silent_at && !(self.heals && conn > 1);
            if now % 8 == 0 {
                bench.beat(0, u64::from(now / 8));
            }
            if now % 8 == self.beats_at {
                sequence += 1;
                if self.speaks || !silent {
                    bench.say(conn, Message::Heartbeat(Heartbeat { sequence, echoed, ..Heartbeat::default() }));
                }
            }
            for message in bench.told(conn).into_iter().filter(|_| self.hears || !silent) {
                heard_at = now;
                match message {
                    Message::HeartbeatEcho(echo) => echoed = echo.sequence,
                    Message::Formed(_) => bench.say(conn, Message::InEpoch(InEpoch { epoch: Epoch(1) })),
                    _ => {}
                }
            }
            if now - heard_at >= 32 && (self.speaks || self.heals) {
                bench.close(conn, Closed::Ended);
                (conn, heard_at) = (conn + 10, now);
                bench.join(conn, Register { instance: Some(JobInstance([9; 16])), ..register() });
            }
            while !bench.probes.is_empty() {
                probed(&mut bench, Liveness::Alive);
            }
            if let Some(failure) = bench.verdict(0) {
                assert!(failure.to_string().starts_with("rank 1 "), "{failure}");
                return Some(step * (now - self.silent_at));
            }
        }
        None
    }
}

#[test]
fn a_link_that_goes_silent_is_lost_within_the_time_out_and_one_interval() {
    for timeout in [500, 2000, 5000].map(|ms| MS * ms) {
        for (speaks, hears) in [(true, false), (false, true), (false, false)] {
            for (beats_at, silent_at) in (0..8).flat_map(|beats_at| (40..48).map(move |at| (beats_at, at))) {
                let cut = Cut { timeout, beats_at, silent_at, speaks, hears, heals: false };
                for place in ["here", "there"] {
                    let after = cut.lost_after(place).expect("lost");
                    let (soonest, latest) = (timeout - timeout / 5, timeout + timeout / 5);
                    let case = format!("on host {place}, speaks {speaks}, hears {hears}, {beats_at}, {silent_at}");
                    assert!(after >= soonest && after <= latest, "{after:?} of {timeout:?}: {case}");
                }
            }
        }
    }
}

#[test]
fn a_node_that_comes_back_over_a_new_connection_is_not_lost() {
    for (beats_at, silent_at) in (0..8).flat_map(|beats_at| (40..48).map(move |at| (beats_at, at))) {
        for (speaks, hears) in [(true, false), (false, false)] {
            let cut = Cut { timeout: MS * 2000, beats_at, silent_at, speaks, hears, heals: true };
            assert_eq!(cut.lost_after("there"), None, "speaks {speaks}, {beats_at}, {silent_at}");
        }
    }
}

#[test]
fn one_whose_connection_broke_has_an_interval_to_show_that_it_hears() {
    for shows in [true, false] {
        let mut bench = Bench::formed(&["here", "there"]);
        // It is asked for a second heartbeat, and sends it before it has the first one's echo.
        for sequence in [1, 2] {
            bench.say(1, Message::Heartbeat(Heartbeat { sequence, echoed: 0, ..Heartbeat::default() }));
        }
        bench.close(1, Closed::Broken);
        let mut beats = 0;
        let mut pass = |bench: &mut Bench, ms| {
            bench.pass_with(MS * ms, |bench| {
                beats += 1;
                bench.beat(0, beats);
            });
        };
        pass(&mut bench, 4_900);
        bench.join(7, Register { instance: Some(JobInstance([9; 16])), host: host("there"), ..named(1, 2, "1") });
        pass(&mut bench, 900);
        assert_eq!(bench.verdict(0), None, "its interval is not over");
        if shows {
            bench.say(7, Message::InEpoch(InEpoch { epoch: Epoch(1) }));
        }
        pass(&mut bench, 1_300);
        assert_eq!(bench.verdict(0).is_none(), shows);
    }
}

#[test]
fn the_schedulers_own_lateness_is_nobodys_fault() {
    let mut bench = Bench::formed(&["here", "there"]);
    bench.pass(MS * 900);
    bench.now = bench.now + MS * 30_000; // stopped, and continued
    bench.feed(Input::Timer);
    assert!(bench.sent.is_empty(), "nobody was heard for 30 s, and nobody is blamed: {:?}", bench.sent);
    bench.pass(MS * 3_500);
    assert!(bench.sent.is_empty());
    bench.beat(0, 1);
    bench.pass(MS * 2_000);
    assert!(bench.verdict(0).is_some(), "but from then on time counts");
}

#[test]
fn lateness_moves_every_deadline() {
    let mut bench = Bench::formed(&["here", "there"]);
    bench.close(1, Closed::Broken);
    bench.pass(MS * 900);
    bench.now = bench.now + MS * 30_000;
    bench.feed(Input::Timer);
    bench.beat(0, 1);
    bench.pass(MS * 3_900);
    assert_eq!(bench.verdict(0), None, "its time is not over");
    bench.join(5, Register { instance: Some(JobInstance([9; 16])), host: host("there"), ..named(1, 2, "1") });
    assert_eq!(bench.formed_message(5).rank, 1);

    // Messages that come in with the late timer are fed before it.
    bench.close(5, Closed::Ended);
    bench.now = bench.now + MS * 3_000;
    bench.join(6, Register { instance: Some(JobInstance([9; 16])), host: host("there"), ..named(1, 2, "1") });
    bench.feed(Input::Timer);
    assert_eq!(bench.formed_message(6).rank, 1);
}

#[test]
fn heartbeats_are_echoed_at_once() {
    let mut bench = Bench::formed(&["here"]);
    bench.beat(0, 41);
    match &bench.told(0)[..] {
        [Message::HeartbeatEcho(echo)] => assert_eq!(echo.sequence, 41),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_suspect_whose_process_is_gone_is_lost_although_its_connection_is_open() {
    // A forked child may hold the connection open.
    let mut bench = Bench::formed(&["here", "here"]);
    bench.say(0, Message::Suspect(Suspect { peer: 1, evidence: "reset".to_string() }));
    probed(&mut bench, Liveness::Gone);
    assert_eq!(bench.verdict(0), None, "what it last said may still have to be read");
    bench.feed(Input::Timer);
    assert!(bench.verdict(0).is_some());

    let mut bench = Bench::formed(&["here", "here"]);
    bench.say(0, Message::Suspect(Suspect { peer: 1, evidence: "reset".to_string() }));
    probed(&mut bench, Liveness::Gone);
    bench.say(1, Message::Abort(Abort { code: 1, reason: "bad input".to_string() }));
    bench.close(1, Closed::Ended);
    bench.feed(Input::Timer);
    assert_eq!(bench.verdict(0).map(|failure| failure.status), Some(Status::Aborted));
}

#[test]
fn a_lost_node_that_comes_back_is_told() {
    let mut bench = Bench::formed(&["here", "there", "there"]);
    bench.close(1, Closed::Ended);
    bench.pass(MS * 100);
    bench.close(2, Closed::Ended);
    bench.join(8, Register { instance: Some(JobInstance([9; 16])), ..named(1, 3, "1") });
    let (status, reason) = bench.rejected(8);
    assert_eq!(status, Status::Fenced);
    assert!(reason.starts_with("this node was taken for lost: rank 1 (node id \"1\""), "{reason}");
    // A node whose connection closed after the verdict, perhaps without having heard it, hears it now.
    bench.join(9, Register { instance: Some(JobInstance([9; 16])), ..named(2, 3, "2") });
    assert!(matches!(&bench.told(9)[..], [Message::Formed(_), Message::LostNodes(_), Message::Verdict(_)]));
    bench.say(9, Message::Leave);
    assert!(bench.ended.is_none(), "rank 0 is still there");
    bench.say(0, Message::Leave);
    assert!(bench.ended.is_some());
}

#[test]
fn a_node_that_comes_back_in_the_same_breath_is_not_lost() {
    // After a pause of the scheduler's, the end of a connection, a witness, and the node's return are read together.
    let mut bench = Bench::formed(&["here", "there", "elsewhere"]);
    bench.say(2, Message::Suspect(Suspect { peer: 1, evidence: "connection reset".to_string() }));
    bench.close(1, Closed::Ended);
    let back = Register { host: host("there"), ..named(1, 3, "1") };
    bench.join(7, back);
    bench.pass(MS * 200);
    assert_eq!(bench.verdict(2), None);
}

#[test]
fn after_a_pause_of_its_own_the_scheduler_gives_nodes_the_time_to_come_back() {
    let mut bench = Bench::formed(&["here", "there", "elsewhere"]);
    bench.now = bench.now + Duration::from_secs(20);
    bench.say(2, Message::Suspect(Suspect { peer: 1, evidence: "connection reset".to_string() }));
    bench.close(1, Closed::Ended);
    bench.pass(REATTACH - MS);
    assert_eq!(bench.verdict(2), None, "a witness does not count yet");
    bench.pass(MS * 2);
    assert!(bench.verdict(2).is_some());
}

#[test]
fn a_verdict_that_was_lost_on_the_way_is_told_again() {
    let mut bench = Bench::formed(&["here", "there"]);
    bench.say(1, Message::Abort(crate::wire::Abort { code: 1, reason: "enough".to_string() }));
    bench.sent.clear();
    bench.close(0, Closed::Ended);
    bench.close(1, Closed::Ended);
    assert!(bench.ended.is_none(), "somebody may come back");
    bench.pass(MS * 50);
    bench.join(7, Register { host: host("here"), ..named(0, 2, "0") });
    assert!(bench.verdict(7).is_some());
    bench.pass(REATTACH);
    assert!(bench.ended.is_none(), "rank 0 is back");
    bench.say(7, Message::Leave);
    assert!(bench.ended.is_some());
}
