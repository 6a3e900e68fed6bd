//! A place that nobody is started in any more.

use crate::error::Status;
use crate::membership::suspicion::HELD;
use crate::membership::testing::{host, named, rules, Bench};
use crate::membership::{Closed, ConnId, Identity, Input, Liveness, Rules, Scheduler};
use crate::types::{Epoch, JobInstance, Process, Secret, TokenHash};
use crate::wire::{Abort, GivenUp, Known, Message, Record, Recover, Reentry, Register};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const WORD: u64 = 100;
const NODES: u32 = 4;

fn recovering() -> Rules {
    Rules { recovery: true, durable: true, ..rules(NODES, 0) }
}

/// A worker; all but the first are on another host.
fn register(serial: u32, id: u32) -> Register {
    let reentry = Some(Reentry { tokens: Vec::new(), next: TokenHash([serial as u8; 32]) });
    let on = if id == 0 { "here" } else { "there" };
    Register { recovery: true, reentry, host: host(on), ..named(serial, NODES, &id.to_string()) }
}

fn formed() -> Bench {
    let mut bench = Bench::new(recovering());
    (0..NODES).for_each(|id| bench.join(id.into(), register(id, id)));
    bench.sent.clear();
    bench.lines.clear();
    bench
}

/// The process of the life with this serial.
fn process(serial: u32) -> Process {
    Process { pid: 1000 + serial, start_ticks: 1, pid_namespace: 7 }
}

/// A launcher says so of these lives, over a connection of its own, which is closed.
fn gives_up(bench: &mut Bench, serials: &[u32], on: &str) {
    let conn = WORD + bench.closed.len() as u64;
    bench.open(conn);
    let processes = serials.iter().map(|serial| process(*serial)).collect();
    bench.say(conn, Message::GivenUp(GivenUp { host: host(on), processes }));
    assert_eq!(bench.closed.last(), Some(&ConnId(conn)));
    assert_eq!(bench.told(conn), [], "it is not answered");
}

/// Rank 1 is killed.
fn lose(bench: &mut Bench) {
    bench.close(1, Closed::Ended);
    bench.pass(MS * 100);
}

/// Lets time pass; whoever is looked at on this host is gone.
fn pass_dead(bench: &mut Bench, span: Duration) {
    bench.pass_with(span, |bench| {
        while let Some(process) = bench.probes.pop() {
            bench.feed(Input::Probed(process, Liveness::Gone));
        }
    });
}

fn recover(bench: &mut Bench, conn: u64) {
    bench.say(conn, Message::Recover(Recover { epoch: Epoch(1), inside: true }));
}

/// How muster_recover ends for this node, if it has.
fn end_of_recovery(bench: &mut Bench, conn: u64) -> Option<(Status, u32)> {
    bench.told(conn).into_iter().find_map(|message| match message {
        Message::NotRecovered(word) => Some((word.failure.status, word.failure.culprit?.rank?)),
        _ => None,
    })
}

const FIRST_CAUSE: Option<(Status, u32)> = Some((Status::PeerLost, 1));

#[test]
fn survivors_are_told_the_first_cause_at_once() {
    let mut bench = formed();
    lose(&mut bench);
    recover(&mut bench, 0);
    assert_eq!(end_of_recovery(&mut bench, 0), None, "it may come back");
    gives_up(&mut bench, &[1], "there");
    assert_eq!(end_of_recovery(&mut bench, 0), FIRST_CAUSE);
    assert_eq!(
        end_of_recovery(&mut bench, 2),
        FIRST_CAUSE,
        "also who does not wait yet: this scheduler may be gone then"
    );
    let line = bench.lines.pop().expect("a line");
    assert!(line.starts_with("rank 1 ") && line.contains("is not started again, its launcher says"), "{line}");
    bench.sent.clear();
    recover(&mut bench, 2);
    assert_eq!(end_of_recovery(&mut bench, 2), FIRST_CAUSE, "whoever asks later is told again");
    // One whose connection broke meanwhile is told, too.
    bench.close(3, Closed::Broken);
    bench.join(13, Register { instance: Some(JobInstance([9; 16])), ..register(3, 3) });
    assert_eq!(end_of_recovery(&mut bench, 13), FIRST_CAUSE);
    // Nobody is let in any more.
    bench.join(7, register(7, 1));
    let (status, reason) = bench.rejected(7);
    assert!(status == Status::PeerLost && reason.contains("comes back in vain"), "{reason}");
}

#[test]
fn the_job_ends_when_the_survivors_have_gone_and_can_go_on_when_all_are_started_again() {
    for gone in [true, false] {
        let mut bench = formed();
        lose(&mut bench);
        gives_up(&mut bench, &[1], "there");
        if gone {
            [0, 2, 3].into_iter().for_each(|conn| bench.close(conn, Closed::Ended));
        }
        pass_dead(&mut bench, Duration::from_secs(6));
        let error = bench.ended.clone().expect("nothing is waited for").expect_err("it is broken");
        assert_eq!((error.status(), bench.now.since(crate::types::Time(0)) < MS * 6_200), (Status::PeerLost, true));
        assert!(!bench.written.contains(&Record::Done), "it is not done");
        let identity =
            Identity { instance: JobInstance([9; 16]), secret: Secret([3; 32]), host: host("here"), pid_namespace: 7 };
        let mut again = Bench::new(recovering());
        again.scheduler = Scheduler::resume(identity, recovering(), again.now, bench.written);
        again.feed(Input::Heard(ConnId(999)));
        pass_dead(&mut again, Duration::from_secs(40)); // their silence is a loss, and after 30 s they need no token
        (0..NODES).for_each(|id| again.join(id.into(), register(10 + id, id)));
        assert!(again.lines.iter().any(|line| line.contains("epoch 2 has begun")), "{:?}", again.lines);
    }
}

#[test]
fn where_nobody_is_left_the_job_ends_at_once() {
    let mut bench = formed();
    (1..NODES).for_each(|id| bench.close(id.into(), Closed::Ended));
    bench.say(0, Message::Gone);
    bench.pass(MS * 100);
    assert!(bench.ended.is_none(), "somebody may start them again");
    gives_up(&mut bench, &[1], "there");
    let error = bench.ended.clone().expect("nobody is left").expect_err("it is broken");
    assert_eq!(error.status(), Status::PeerLost);
}

#[test]
fn a_word_that_comes_before_the_loss_counts_once_it_is_one() {
    let mut bench = formed();
    recover(&mut bench, 0);
    gives_up(&mut bench, &[1], "there");
    assert_eq!(end_of_recovery(&mut bench, 0), None, "it takes nobody's place");
    lose(&mut bench);
    assert_eq!(end_of_recovery(&mut bench, 0), FIRST_CAUSE);
    // And where another was lost first.
    let mut bench = formed();
    bench.close(2, Closed::Ended);
    bench.pass(MS * 100);
    gives_up(&mut bench, &[1], "there");
    assert_eq!(end_of_recovery(&mut bench, 0), None);
    lose(&mut bench);
    assert_eq!(end_of_recovery(&mut bench, 0), Some((Status::PeerLost, 2)), "the first cause");
}

#[test]
fn a_node_that_is_heard_later_or_attaches_again_has_disproved_it() {
    for attaches in [true, false] {
        let mut bench = formed();
        gives_up(&mut bench, &[1], "there");
        let mut conn = 1;
        if attaches {
            bench.close(1, Closed::Broken);
            conn = 11;
            bench.join(conn, Register { instance: Some(JobInstance([9; 16])), ..register(1, 1) });
        } else {
            bench.now = bench.now + HELD;
            bench.beat(1, 1);
        }
        bench.close(conn, Closed::Ended);
        bench.pass(MS * 100);
        recover(&mut bench, 0);
        assert_eq!(end_of_recovery(&mut bench, 0), None, "it may come back");
    }
}

#[test]
fn it_counts_for_no_other_process_and_for_none_that_cannot_be_told_from_another() {
    let mut bench = formed();
    lose(&mut bench);
    recover(&mut bench, 0);
    gives_up(&mut bench, &[1], "elsewhere");
    gives_up(&mut bench, &[0, 2, 5], "there");
    gives_up(&mut bench, &[], "there");
    assert_eq!(end_of_recovery(&mut bench, 0), None);
    let mut bench = Bench::new(recovering());
    let unknown = |serial| Process { start_ticks: 0, ..process(serial) };
    (0..NODES).for_each(|id| bench.join(id.into(), Register { process: unknown(id), ..register(id, id) }));
    lose(&mut bench);
    recover(&mut bench, 0);
    bench.open(50);
    bench.say(50, Message::GivenUp(GivenUp { host: host("there"), processes: vec![unknown(1)] }));
    assert_eq!(end_of_recovery(&mut bench, 0), None);
}

#[test]
fn the_place_of_a_life_that_is_lost_once_more_is_known_by_any_of_its_lives() {
    let mut bench = formed();
    lose(&mut bench);
    recover(&mut bench, 0);
    bench.now = bench.now + Duration::from_secs(31);
    bench.join(7, register(7, 1));
    assert!(bench.lines.iter().any(|line| line.contains("is back")), "{:?}", bench.lines);
    gives_up(&mut bench, &[1], "there");
    assert_eq!(end_of_recovery(&mut bench, 0), None, "another life has its place");
    bench.close(7, Closed::Ended);
    bench.pass(MS * 100);
    assert_eq!(end_of_recovery(&mut bench, 0), None);
    gives_up(&mut bench, &[1, 7, 8], "there");
    assert_eq!(end_of_recovery(&mut bench, 0), FIRST_CAUSE);
}

#[test]
fn who_had_come_back_and_waits_is_sent_away() {
    let mut bench = formed();
    lose(&mut bench);
    bench.close(2, Closed::Ended);
    bench.pass(MS * 100);
    bench.now = bench.now + Duration::from_secs(31);
    bench.join(7, register(7, 1));
    gives_up(&mut bench, &[2], "there");
    let told = bench.told(7);
    let in_vain = |message: &Message| matches!(message, Message::Rejected(word) if word.status == Status::PeerLost);
    assert!(told.iter().any(in_vain), "{told:?}");
}

#[test]
fn without_recovery_and_while_forming_it_changes_nothing() {
    let mut bench = Bench::formed(&["here", "there", "there"]);
    gives_up(&mut bench, &[1], "there");
    bench.close(1, Closed::Ended);
    bench.pass(MS * 100);
    gives_up(&mut bench, &[1], "there");
    assert!(!bench.told(0).iter().any(|message| matches!(message, Message::NotRecovered(_))));
    let mut bench = Bench::new(recovering());
    bench.join(1, register(1, 1));
    gives_up(&mut bench, &[1], "there");
    assert!(bench.told(1).is_empty() && bench.lines.is_empty());
}

#[test]
fn an_abort_ends_the_job_for_good_all_the_same() {
    let mut bench = formed();
    lose(&mut bench);
    gives_up(&mut bench, &[1], "there");
    bench.say(2, Message::Abort(Abort { code: 3, reason: "enough".to_owned() }));
    assert_eq!(bench.verdict(0).map(|failure| failure.status), Some(Status::Aborted));
    bench.pass(Duration::from_secs(6));
    assert!(bench.ended.is_some() && bench.written.contains(&Record::Done));
}

#[test]
fn a_scheduler_that_is_started_again_hears_it_before_it_knows_of_the_loss() {
    let bench = formed();
    let records = bench.scheduler.snapshot();
    let mut again = Bench::new(recovering());
    let identity =
        Identity { instance: JobInstance([9; 16]), secret: Secret([3; 32]), host: host("here"), pid_namespace: 7 };
    again.scheduler = Scheduler::resume(identity, recovering(), again.now, records);
    again.feed(Input::Heard(ConnId(999)));
    gives_up(&mut again, &[1], "there");
    again.join(0, Register { instance: Some(JobInstance([9; 16])), ..register(0, 0) });
    let failure = {
        let mut lost = formed();
        lose(&mut lost);
        lost.verdict(0).expect("rank 1 is lost")
    };
    let known = Known { epoch: Epoch(1), failure: Some(failure), lost: vec![1], revoked: Vec::new() };
    again.say(0, Message::Known(known));
    assert_eq!(end_of_recovery(&mut again, 0), FIRST_CAUSE);
}
