use crate::error::Status;
use crate::membership::liveness::REATTACH;
use crate::membership::testing::{host, named, rules, Bench};
use crate::membership::timers::HELD;
use crate::membership::{Closed, ConnId, Input, Liveness};
use crate::types::{JobInstance, LaunchId, Process};
use crate::wire::{ChildEnded, HowEnded, Message, Recover, Reentry, Register, Suspect};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const WORD: u64 = 100;
const SAID: &str = "it was killed by signal 9 (its launcher)";

/// The process of the rank-th of `Bench::formed`.
fn process(rank: u32) -> Process {
    Process { pid: 1000 + rank, start_ticks: 1, pid_namespace: 7 }
}

fn killed(rank: u32, on: &str) -> ChildEnded {
    ChildEnded { host: host(on), process: process(rank), how: HowEnded::Killed, number: 9, launch: None }
}

/// A launcher says this over a connection of its own, which is closed.
fn word(bench: &mut Bench, word: ChildEnded) {
    let conn = WORD + bench.closed.len() as u64;
    bench.open(conn);
    bench.say(conn, Message::ChildEnded(word));
    assert_eq!(bench.closed.last(), Some(&ConnId(conn)));
    assert_eq!(bench.told(conn), [], "it is not answered");
}

fn cause(bench: &mut Bench, conn: u64) -> Option<String> {
    bench.verdict(conn).map(|failure| failure.to_string())
}

#[test]
fn it_says_how_the_process_ended() {
    let killed = killed(1, "there");
    assert_eq!(killed.to_string(), "was killed by signal 9 (its launcher)");
    let exited = ChildEnded { how: HowEnded::Exited, number: 3, ..killed };
    assert_eq!(exited.to_string(), "exited with code 3 (its launcher)");
}

#[test]
fn a_node_on_another_host_is_lost_at_once() {
    // The word overtakes the end of the connection, or comes after it.
    for before in [true, false] {
        let mut bench = Bench::formed(&["here", "there"]);
        if before {
            word(&mut bench, killed(1, "there"));
            assert_eq!(bench.told(1), [Message::Report], "it is asked for a sign of life");
            bench.now = bench.now + MS * 20;
            bench.close(1, Closed::Ended);
        } else {
            bench.close(1, Closed::Ended);
            bench.now = bench.now + MS * 20;
            word(&mut bench, killed(1, "there"));
        }
        assert_eq!(bench.verdict(0), None, "not before everything has been read");
        bench.pass(Duration::ZERO);
        let sentence = cause(&mut bench, 0).expect("told at once");
        assert_eq!(
            sentence,
            format!(
                "rank 1 (node id \"1\", host there, pid 1001) is lost: its connection ended (end of stream), and {SAID}; last \
                 heard 20 ms ago"
            )
        );
        assert_eq!(bench.lines, [format!("the job is broken: {sentence}")], "and nobody is called a stranger");
    }
}

#[test]
fn however_its_connection_ended() {
    for how in [Closed::Broken, Closed::Garbage] {
        let mut bench = Bench::formed(&["here", "there"]);
        bench.close(1, how);
        bench.pass(MS * 500);
        assert_eq!(bench.verdict(0), None);
        word(&mut bench, killed(1, "there"));
        bench.pass(Duration::ZERO);
        assert!(cause(&mut bench, 0).expect("told at once").contains(SAID));
    }
    // A peer's evidence is not enough for that: the network may have broken for both.
    let mut bench = Bench::formed(&["here", "there"]);
    bench.close(1, Closed::Broken);
    bench.say(0, Message::Suspect(Suspect { peer: 1, evidence: "timed out".to_string() }));
    bench.pass(MS * 500);
    assert_eq!(bench.verdict(0), None);
}

#[test]
fn a_word_about_another_process_counts_for_nothing() {
    let process = process(1);
    for other in [
        ChildEnded { host: host("elsewhere"), ..killed(1, "there") },
        ChildEnded { process: Process { pid: 1002, ..process }, ..killed(1, "there") },
        ChildEnded { process: Process { start_ticks: 2, ..process }, ..killed(1, "there") },
        ChildEnded { process: Process { pid_namespace: 8, ..process }, ..killed(1, "there") },
    ] {
        let mut bench = Bench::formed(&["here", "there"]);
        word(&mut bench, other.clone());
        bench.close(1, Closed::Ended);
        word(&mut bench, other.clone());
        assert!(bench.sent.is_empty() && bench.lines.is_empty(), "{other:?}");
        let said = bench.notes.iter().filter(|line| line.starts_with("a launcher at 10.0.0.")).count();
        assert_eq!(said, 2, "{:?}", bench.notes);
        bench.pass(REATTACH - MS);
        assert_eq!(bench.verdict(0), None, "{other:?}");
        bench.pass(MS);
        assert!(cause(&mut bench, 0).expect("but the time does").contains("did not come back within 100 ms"));
    }
}

/// Two nodes, the second of which is a script's child: what it inherited, and the script's end.
fn with_script() -> (Bench, ChildEnded) {
    let mut bench = Bench::new(rules(2, 0));
    bench.join(0, Register { launch: Some(LaunchId([5; 16])), ..named(0, 2, "0") });
    bench.join(1, Register { host: host("there"), launch: Some(LaunchId([6; 16])), ..named(1, 2, "1") });
    (bench.sent, bench.lines) = Default::default();
    let script = Process { pid: 900, start_ticks: 1, pid_namespace: 7 };
    let (how, number) = (HowEnded::Exited, 137);
    let ended = ChildEnded { host: host("there"), process: script, how, number, launch: Some(LaunchId([6; 16])) };
    (bench, ended)
}

#[test]
fn a_scripts_child_is_known_by_what_it_inherited() {
    let (mut bench, ended) = with_script();
    bench.close(1, Closed::Ended);
    word(&mut bench, ended);
    bench.pass(Duration::ZERO);
    let sentence = cause(&mut bench, 0).expect("told at once");
    let said = "and it was run by a process that exited with code 137 (its launcher); last heard";
    assert!(sentence.contains(said), "{sentence}");
    // A word without any ground puts out no node that is connected.
    let (mut bench, ended) = with_script();
    for beat in 1..=20 {
        word(&mut bench, ended.clone());
        assert!(bench.told(1).contains(&Message::Report));
        (0..2).for_each(|conn| bench.beat(conn, beat));
        bench.pass(MS * 900);
    }
    assert_eq!((bench.verdict(0), bench.ended.clone()), (None, None));
}

#[test]
fn a_launcher_that_knows_only_the_rank_proves_nothing() {
    let (_, ended) = with_script();
    for other in [
        ChildEnded { launch: None, ..ended.clone() },
        ChildEnded { launch: Some(LaunchId([7; 16])), ..ended.clone() },
        ChildEnded { launch: Some(LaunchId([5; 16])), ..ended.clone() },
        ChildEnded { host: host("elsewhere"), ..ended },
    ] {
        let (mut bench, _) = with_script();
        bench.close(1, Closed::Ended);
        word(&mut bench, other.clone());
        bench.pass(REATTACH - MS);
        assert_eq!(bench.verdict(0), None, "{other:?}");
    }
    // A node that inherited no launch id is not meant either by a word that names none.
    let mut bench = Bench::formed(&["here", "there"]);
    bench.close(1, Closed::Ended);
    word(&mut bench, ChildEnded { process: Process { pid: 900, ..process(1) }, ..killed(1, "there") });
    bench.pass(REATTACH - MS);
    assert_eq!(bench.verdict(0), None);
}

#[test]
fn without_a_start_time_a_number_may_be_anybodys() {
    let unknown = Process { start_ticks: 0, ..process(1) };
    let mut bench = Bench::new(rules(2, 0));
    bench.join(0, named(0, 2, "0"));
    bench.join(1, Register { host: host("there"), process: unknown, ..named(1, 2, "1") });
    bench.close(1, Closed::Ended);
    word(&mut bench, ChildEnded { process: unknown, ..killed(1, "there") });
    bench.pass(REATTACH - MS);
    assert_eq!(bench.verdict(0), None);
}

#[test]
fn a_lie_does_not_put_out_a_node_that_is_connected() {
    let mut bench = Bench::formed(&["here", "there"]);
    let mut beats = 0;
    for _ in 0..20 {
        word(&mut bench, killed(1, "there"));
        assert!(bench.told(1).contains(&Message::Report));
        beats += 1;
        bench.beat(0, beats);
        bench.beat(1, beats);
        bench.pass(MS * 900);
    }
    assert_eq!((bench.verdict(0), bench.ended.clone()), (None, None));
    assert!(bench.lines.is_empty(), "{:?}", bench.lines);
    // The node was heard long after the last of these words: the end of its connection now counts as if nobody had said
    // anything.
    beats += 1;
    bench.beat(1, beats);
    bench.close(1, Closed::Ended);
    bench.pass(REATTACH - MS);
    assert_eq!(bench.verdict(0), None);
    bench.pass(MS);
    assert!(cause(&mut bench, 0).expect("told").contains("did not come back"));
}

#[test]
fn what_was_on_its_way_does_not_disprove_it() {
    let mut bench = Bench::formed(&["here", "there"]);
    word(&mut bench, killed(1, "there"));
    bench.now = bench.now + HELD - MS;
    bench.beat(1, 1);
    bench.close(1, Closed::Ended);
    bench.pass(Duration::ZERO);
    assert!(cause(&mut bench, 0).expect("told at once").contains(SAID));
}

#[test]
fn a_node_that_attaches_again_has_disproved_its_end() {
    let mut bench = Bench::formed(&["here", "there"]);
    word(&mut bench, killed(1, "there"));
    bench.close(1, Closed::Ended);
    bench.join(7, Register { instance: Some(JobInstance([9; 16])), host: host("there"), ..named(1, 2, "1") });
    bench.pass(Duration::ZERO);
    assert_eq!(bench.formed_message(7).rank, 1);
    bench.close(7, Closed::Ended);
    bench.pass(REATTACH - MS);
    assert_eq!(bench.verdict(0), None);
    bench.pass(MS);
    assert!(bench.verdict(0).is_some());
}

#[test]
fn on_this_host_the_process_is_looked_at() {
    for (liveness, open) in
        [(Liveness::Gone, true), (Liveness::Gone, false), (Liveness::Alive, true), (Liveness::Alive, false)]
    {
        let mut bench = Bench::formed(&["there", "here"]);
        if !open {
            bench.close(1, Closed::Ended);
            assert_eq!(bench.probes.pop(), Some(process(1)));
            bench.feed(Input::Probed(process(1), Liveness::Alive));
        }
        word(&mut bench, killed(1, "here"));
        assert_eq!(bench.probes.pop(), Some(process(1)));
        assert_eq!(bench.verdict(0), None, "a word is not enough");
        bench.feed(Input::Probed(process(1), liveness));
        bench.pass_with(MS * 200, |bench| {
            while let Some(process) = bench.probes.pop() {
                bench.feed(Input::Probed(process, liveness));
            }
        });
        let sentence = cause(&mut bench, 0);
        assert_eq!(sentence.is_some(), liveness == Liveness::Gone, "{sentence:?}");
        if let Some(sentence) = sentence {
            let end = if open { "although its connection is still open" } else { "and its connection has ended" };
            assert!(sentence.contains(&format!("its process has ended ({SAID}), {end}")), "{sentence}");
        }
    }
}

#[test]
fn a_peers_suspicion_does_not_take_its_place() {
    let mut bench = Bench::formed(&["here", "there"]);
    word(&mut bench, killed(1, "there"));
    bench.say(0, Message::Suspect(Suspect { peer: 1, evidence: "reset".to_string() }));
    bench.close(1, Closed::Ended);
    bench.pass(Duration::ZERO);
    assert!(cause(&mut bench, 0).expect("told at once").contains(SAID));
    // But a lie does not keep a peer's evidence from counting.
    let mut bench = Bench::formed(&["here", "there"]);
    word(&mut bench, killed(1, "there"));
    bench.now = bench.now + HELD;
    bench.beat(1, 1);
    bench.say(0, Message::Suspect(Suspect { peer: 1, evidence: "reset".to_string() }));
    bench.close(1, Closed::Ended);
    bench.pass(Duration::ZERO);
    assert!(cause(&mut bench, 0).expect("told at once").contains("saw so too (reset)"));
}

#[test]
fn after_a_pause_of_its_own_the_scheduler_gives_the_node_the_time_to_come_back() {
    let mut bench = Bench::formed(&["here", "there"]);
    bench.now = bench.now + Duration::from_secs(20);
    word(&mut bench, killed(1, "there"));
    bench.close(1, Closed::Broken);
    bench.pass(REATTACH - MS);
    assert_eq!(bench.verdict(0), None);
    bench.pass(MS);
    assert!(cause(&mut bench, 0).expect("told").contains(SAID));
}

#[test]
fn a_launchers_word_about_a_node_that_left_or_is_lost_changes_nothing() {
    let mut bench = Bench::formed(&["here", "here", "there"]);
    bench.say(1, Message::Leave);
    word(&mut bench, killed(1, "here"));
    assert!(bench.probes.is_empty(), "nobody looks for it");
    bench.pass(MS * 200);
    assert_eq!(bench.verdict(0), None);
    bench.close(2, Closed::Ended);
    word(&mut bench, killed(2, "there"));
    bench.pass(Duration::ZERO);
    let first = bench.verdict(0).expect("rank 2 is lost");
    word(&mut bench, killed(2, "there"));
    // Nobody is told of a consequence in a job that is broken for good.
    bench.close(0, Closed::Broken);
    word(&mut bench, killed(0, "here"));
    bench.pass(Duration::from_secs(6));
    let error = bench.ended.clone().expect("nobody is left").expect_err("broken");
    assert_eq!(error.failure(), Some(&first));
}

#[test]
fn while_forming_it_frees_a_place_whose_connection_broke() {
    let mut bench = Bench::new(rules(3, 0));
    bench.join(1, Register { host: host("there"), ..named(1, 3, "1") });
    word(&mut bench, killed(1, "there"));
    bench.join(2, named(2, 3, "1"));
    let (status, reason) = bench.rejected(2);
    assert_eq!(status, Status::Rejected, "it is connected: {reason}");
    bench.close(1, Closed::Broken);
    bench.join(3, named(3, 3, "1"));
    assert!(bench.rejected(3).1.contains("already held"), "it may come back");
    word(&mut bench, killed(1, "there"));
    let line = bench.lines.pop().expect("a line");
    assert!(line.contains(&format!("is gone before the cluster was complete: {SAID}; its place is free")), "{line}");
    bench.join(4, named(4, 3, "1"));
    assert!(!bench.closed.contains(&ConnId(4)), "its next life has its place");
}

fn recovering() -> crate::membership::Rules {
    crate::membership::Rules { recovery: true, durable: true, ..rules(3, 0) }
}

/// A worker of a job with recovery, that comes without a token.
fn recoverable(serial: u32, id: u32) -> Register {
    let next = crate::types::TokenHash([serial as u8; 32]);
    let reentry = Some(Box::new(Reentry { tokens: Vec::new(), next }));
    let on = if id == 0 { "here" } else { "there" };
    Register { recovery: true, reentry, host: host(on), ..named(serial, 3, &id.to_string()) }
}

#[test]
fn while_recovering_a_second_loss_is_known_at_once() {
    let mut bench = Bench::new(recovering());
    for id in 0..3 {
        bench.join(id.into(), recoverable(id, id));
    }
    bench.close(1, Closed::Ended);
    word(&mut bench, killed(1, "there"));
    bench.pass(Duration::ZERO);
    assert!(cause(&mut bench, 0).expect("told").starts_with("rank 1 "));
    bench.say(2, Message::Recover(Recover { epoch: crate::types::Epoch(1), inside: true }));
    bench.close(2, Closed::Broken);
    bench.pass(MS * 500);
    assert!(!bench.lines.iter().any(|line| line.starts_with("also gone")), "it may come back");
    word(&mut bench, killed(2, "there"));
    bench.pass(Duration::ZERO);
    let lost = bench.told(0).into_iter().rev().find_map(|message| match message {
        Message::LostNodes(lost) => Some(lost.nodes),
        _ => None,
    });
    assert_eq!(lost, Some(vec![1, 2]));
    assert!(bench.lines.iter().any(|line| line.starts_with("also gone: rank 2 ") && line.contains(SAID)));
}

#[test]
fn a_scheduler_that_was_started_again_knows_the_dead_by_it() {
    let mut bench = Bench::new(recovering());
    for id in 0..3 {
        bench.join(id.into(), recoverable(id, id));
    }
    let records = bench.scheduler.snapshot();
    let mut again = Bench::resumed(recovering(), records);
    again.feed(Input::Timer);
    again.feed(Input::Probed(process(0), Liveness::Alive));
    word(&mut again, killed(1, "there"));
    again.pass(Duration::ZERO);
    assert!(again.lines.iter().any(|line| line.contains("the job is broken: rank 1 ") && line.contains(SAID)));
    assert!(!again.lines.iter().any(|line| line.contains("rank 2 ")), "nobody is judged but that one");
}
