//! A place in which nobody is started any more.

use crate::error::Status;
use crate::membership::testing::{host, named, rules, Bench};
use crate::membership::timers::HELD;
use crate::membership::{Closed, ConnId, Input, Liveness, Rules};
use crate::types::{Epoch, GroupId, JobInstance, LaunchId, Process, TokenHash};
use crate::wire::{Abandoned, Abort, GroupWish, Known, MakeGroup, Message, Record, Recover, Reentry, Register};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const WORD: u64 = 100;
const NODES: u32 = 4;

fn recovering() -> Rules {
    Rules { recovery: true, durable: true, ..rules(NODES, 0) }
}

/// A worker; all but the first are on another host.
fn register(serial: u32, id: u32) -> Register {
    let reentry = Some(Box::new(Reentry { tokens: Vec::new(), next: TokenHash([serial as u8; 32]) }));
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

/// A launcher says of these lives that their places are abandoned, over a connection of its own, which is closed.
fn abandons(bench: &mut Bench, serials: &[u32], on: &str) {
    let conn = WORD + bench.closed.len() as u64;
    bench.open(conn);
    let processes = serials.iter().map(|serial| process(*serial)).collect();
    bench.say(conn, Message::Abandoned(Abandoned { host: host(on), processes, launches: Vec::new() }));
    assert_eq!(bench.closed.last(), Some(&ConnId(conn)));
    assert_eq!(bench.told(conn), [], "it is not answered");
}

/// Rank 1 is killed.
fn lose(bench: &mut Bench) {
    bench.close(1, Closed::Ended);
    bench.pass(MS * 100);
}

/// Lets time pass. A process of this host that is looked at is gone.
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
    abandons(&mut bench, &[1], "there");
    assert_eq!(end_of_recovery(&mut bench, 0), FIRST_CAUSE);
    assert_eq!(
        end_of_recovery(&mut bench, 2),
        FIRST_CAUSE,
        "a node that does not wait yet is told too: this scheduler may be gone when it does"
    );
    let line = bench.lines.pop().expect("a line");
    assert!(line.starts_with("rank 1 ") && line.contains("is not started again, its launcher says"), "{line}");
    bench.sent.clear();
    recover(&mut bench, 2);
    assert_eq!(end_of_recovery(&mut bench, 2), FIRST_CAUSE, "a node that asks later is told again");
    // A node whose connection broke meanwhile is told, too.
    bench.close(3, Closed::Broken);
    bench.join(13, Register { instance: Some(JobInstance([9; 16])), ..register(3, 3) });
    assert_eq!(end_of_recovery(&mut bench, 13), FIRST_CAUSE);
    // Nobody is let in any more.
    bench.join(7, register(7, 1));
    let (status, reason) = bench.rejected(7);
    assert!(status == Status::PeerLost && reason.contains("cannot come back"), "{reason}");
}

#[test]
fn the_job_ends_when_the_survivors_have_gone_and_can_go_on_when_all_are_started_again() {
    for gone in [true, false] {
        let mut bench = formed();
        lose(&mut bench);
        abandons(&mut bench, &[1], "there");
        if gone {
            [0, 2, 3].into_iter().for_each(|conn| bench.close(conn, Closed::Ended));
        }
        pass_dead(&mut bench, Duration::from_secs(6));
        let error = bench.ended.clone().expect("nothing is waited for").expect_err("it is broken");
        assert_eq!((error.status(), bench.now.since(crate::types::Time(0)) < MS * 6_200), (Status::PeerLost, true));
        assert!(!bench.written.contains(&Record::Done), "it is not done");
        let mut again = Bench::resumed(recovering(), bench.written);
        pass_dead(&mut again, Duration::from_secs(40)); // their silence is a loss, and after 30 s they need no token
        (0..NODES).for_each(|id| again.join(id.into(), register(10 + id, id)));
        assert!(again.lines.iter().any(|line| line.contains("epoch 2 has begun")), "{:?}", again.lines);
    }
}

#[test]
fn a_node_that_leaves_an_abandoned_run_does_not_leave_the_job() {
    let mut bench = formed();
    let wish = GroupWish::Ranks(vec![0, 2]);
    for conn in 0..4 {
        let wish = wish.clone();
        bench.say(conn, Message::MakeGroup(MakeGroup { parent: GroupId::WORLD, nth: 1, sequence: 1, digest: 0, wish }));
    }
    lose(&mut bench);
    abandons(&mut bench, &[1], "there");
    let kept = bench.written.clone();
    for conn in [0, 2] {
        bench.sent.clear();
        bench.say(conn, Message::Leave);
        assert_eq!(bench.told(conn), [Message::Bye]);
    }
    bench.join(7, register(7, 2));
    let (status, reason) = bench.rejected(7);
    assert!(status == Status::PeerLost && reason.contains("cannot come back"), "{reason}");
    let snapshot = bench.scheduler.snapshot();
    assert!(!snapshot.iter().any(|record| matches!(record, Record::Left(_))), "{snapshot:?}");
    assert_eq!(bench.scheduler.groups_kept(), 1);
    bench.say(3, Message::Leave);
    let error = bench.ended.clone().expect("all have gone").expect_err("it is broken");
    assert_eq!((error.status(), bench.written.clone()), (Status::PeerLost, kept), "nothing is written of that");
    // Everything is started once more, with the records as they were written, or with those of a rewritten file.
    for records in [bench.written, bench.scheduler.snapshot()] {
        let mut again = Bench::resumed(recovering(), records);
        pass_dead(&mut again, Duration::from_secs(40));
        (0..NODES).for_each(|id| again.join(id.into(), register(10 + id, id)));
        assert!(again.lines.iter().any(|line| line.contains("epoch 2 has begun")), "{:?}", again.lines);
        assert_eq!(again.scheduler.groups_kept(), 1);
    }
}

#[test]
fn a_node_that_left_before_the_abandonment_has_left_the_job() {
    let mut bench = formed();
    lose(&mut bench);
    bench.say(0, Message::Leave);
    abandons(&mut bench, &[1], "there");
    assert_eq!(end_of_recovery(&mut bench, 2), Some((Status::PeerLeft, 0)));
    [2, 3].into_iter().for_each(|conn| bench.say(conn, Message::Leave));
    assert!(bench.ended.is_some() && bench.written.contains(&Record::Left(2)) && bench.written.contains(&Record::Done));
}

#[test]
fn where_nobody_is_left_the_job_ends_at_once() {
    let mut bench = formed();
    (1..NODES).for_each(|id| bench.close(id.into(), Closed::Ended));
    bench.say(0, Message::Gone);
    bench.pass(MS * 100);
    assert!(bench.ended.is_none(), "somebody may start them again");
    abandons(&mut bench, &[1], "there");
    let error = bench.ended.clone().expect("nobody is left").expect_err("it is broken");
    assert_eq!(error.status(), Status::PeerLost);
}

#[test]
fn a_word_that_comes_before_the_loss_counts_once_it_is_one() {
    let mut bench = formed();
    recover(&mut bench, 0);
    abandons(&mut bench, &[1], "there");
    assert_eq!(end_of_recovery(&mut bench, 0), None, "it takes nobody's place");
    lose(&mut bench);
    assert_eq!(end_of_recovery(&mut bench, 0), FIRST_CAUSE);
    // The same if another node was lost first.
    let mut bench = formed();
    bench.close(2, Closed::Ended);
    bench.pass(MS * 100);
    abandons(&mut bench, &[1], "there");
    assert_eq!(end_of_recovery(&mut bench, 0), None);
    lose(&mut bench);
    assert_eq!(end_of_recovery(&mut bench, 0), Some((Status::PeerLost, 2)), "the first cause");
}

#[test]
fn a_node_that_is_heard_later_or_attaches_again_has_disproved_it() {
    for attaches in [true, false] {
        let mut bench = formed();
        abandons(&mut bench, &[1], "there");
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
    abandons(&mut bench, &[1], "elsewhere");
    abandons(&mut bench, &[0, 2, 5], "there");
    abandons(&mut bench, &[], "there");
    assert_eq!(end_of_recovery(&mut bench, 0), None);
    let mut bench = Bench::new(recovering());
    let unknown = |serial| Process { start_ticks: 0, ..process(serial) };
    (0..NODES).for_each(|id| bench.join(id.into(), Register { process: unknown(id), ..register(id, id) }));
    lose(&mut bench);
    recover(&mut bench, 0);
    bench.open(50);
    bench.say(
        50,
        Message::Abandoned(Abandoned { host: host("there"), processes: vec![unknown(1)], launches: Vec::new() }),
    );
    assert_eq!(end_of_recovery(&mut bench, 0), None);
}

#[test]
fn a_scripts_child_is_known_by_what_it_inherited() {
    for (launch, on, meant) in [(6, "there", true), (6, "elsewhere", false), (7, "there", false)] {
        let mut bench = Bench::new(recovering());
        let launched = |id: u32| Register { launch: Some(LaunchId([5 + id as u8; 16])), ..register(id, id) };
        (0..NODES).for_each(|id| bench.join(id.into(), launched(id)));
        lose(&mut bench);
        recover(&mut bench, 0);
        bench.open(50);
        let script = Process { pid: 900, ..process(0) };
        let (processes, launches) = (vec![script], vec![LaunchId([99; 16]), LaunchId([launch; 16])]);
        bench.say(50, Message::Abandoned(Abandoned { host: host(on), processes, launches }));
        assert_eq!(end_of_recovery(&mut bench, 0), if meant { FIRST_CAUSE } else { None });
    }
}

#[test]
fn the_place_of_a_life_that_is_lost_once_more_is_known_by_any_of_its_lives() {
    let mut bench = formed();
    lose(&mut bench);
    recover(&mut bench, 0);
    bench.now = bench.now + Duration::from_secs(31);
    bench.join(7, register(7, 1));
    assert!(bench.lines.iter().any(|line| line.contains("is back")), "{:?}", bench.lines);
    abandons(&mut bench, &[1], "there");
    assert_eq!(end_of_recovery(&mut bench, 0), None, "another life has its place");
    bench.close(7, Closed::Ended);
    bench.pass(MS * 100);
    assert_eq!(end_of_recovery(&mut bench, 0), None);
    abandons(&mut bench, &[1, 7, 8], "there");
    assert_eq!(end_of_recovery(&mut bench, 0), FIRST_CAUSE);
}

#[test]
fn a_node_that_had_come_back_and_waits_is_sent_away() {
    let mut bench = formed();
    lose(&mut bench);
    bench.close(2, Closed::Ended);
    bench.pass(MS * 100);
    bench.now = bench.now + Duration::from_secs(31);
    bench.join(7, register(7, 1));
    abandons(&mut bench, &[2], "there");
    let told = bench.told(7);
    let in_vain = |message: &Message| matches!(message, Message::Rejected(word) if word.status == Status::PeerLost);
    assert!(told.iter().any(in_vain), "{told:?}");
}

#[test]
fn without_recovery_and_while_forming_it_changes_nothing() {
    let mut bench = Bench::formed(&["here", "there", "there"]);
    abandons(&mut bench, &[1], "there");
    bench.close(1, Closed::Ended);
    bench.pass(MS * 100);
    abandons(&mut bench, &[1], "there");
    assert!(!bench.told(0).iter().any(|message| matches!(message, Message::NotRecovered(_))));
    let mut bench = Bench::new(recovering());
    bench.join(1, register(1, 1));
    abandons(&mut bench, &[1], "there");
    assert!(bench.told(1).is_empty());
}

/// Such a word can end a job, so the log says where it came from.
#[test]
fn the_log_says_who_abandoned_places() {
    let mut bench = formed();
    abandons(&mut bench, &[1, 2], "there");
    let line = "a launcher at 10.0.0.100:5000 says that it will not restart these processes on \"there\": 1001, 1002";
    assert_eq!(bench.lines, [line]);
}

#[test]
fn an_abort_ends_the_job_for_good_all_the_same() {
    let mut bench = formed();
    lose(&mut bench);
    abandons(&mut bench, &[1], "there");
    bench.say(2, Message::Abort(Abort { code: 3, reason: "enough".to_owned() }));
    assert_eq!(bench.verdict(0).map(|failure| failure.status), Some(Status::Aborted));
    bench.pass(Duration::from_secs(6));
    assert!(bench.ended.is_some() && bench.written.contains(&Record::Done));
}

/// The same scheduler, started again with the records as they were written, or with those of a rewritten file.
fn started_again(bench: &Bench, rewritten: bool) -> Bench {
    let mut records = if rewritten { bench.scheduler.snapshot() } else { bench.written.clone() };
    records.push(Record::Generation(bench.scheduler.conductor.cluster.generation + 1));
    Bench::resumed(recovering(), records)
}

fn attach(bench: &mut Bench, rank: u32) {
    bench.join(rank.into(), Register { instance: Some(JobInstance([9; 16])), ..register(rank, rank) });
}

/// What survivors of rank 1's loss tell when they attach again.
fn known() -> Message {
    let mut lost = formed();
    lose(&mut lost);
    let failure = lost.verdict(0).expect("rank 1 is lost");
    Message::Known(Known { epoch: Epoch(1), failure: Some(failure), lost: vec![1], revoked: Vec::new() })
}

#[test]
fn a_scheduler_that_is_started_again_hears_it_before_it_knows_of_the_loss() {
    let mut again = started_again(&formed(), true);
    abandons(&mut again, &[1], "there");
    attach(&mut again, 0);
    again.say(0, known());
    assert_eq!(end_of_recovery(&mut again, 0), FIRST_CAUSE);
}

#[test]
fn one_that_this_scheduler_has_never_heard_is_not_said_to_have_been_heard() {
    let mut again = started_again(&formed(), true);
    (0..3).for_each(|rank| attach(&mut again, rank));
    again.pass_with(Duration::from_secs(6), |again| (0..3).for_each(|conn| again.feed(Input::Heard(ConnId(conn)))));
    let cause = again.verdict(0).expect("rank 3 is lost").cause;
    assert!(cause.ends_with("within 5 s; not heard since the scheduler was started again"), "{cause}");
}

#[test]
fn a_scheduler_that_is_started_again_has_not_forgotten_it() {
    for (rewritten, lost_before, brings) in
        [(false, true, true), (true, true, true), (false, false, true), (true, false, false), (false, true, false)]
    {
        let mut bench = formed();
        if lost_before {
            lose(&mut bench);
        }
        abandons(&mut bench, &[1], "there");
        // The scheduler dies twice.
        let again = started_again(&bench, rewritten);
        let mut again = started_again(&again, true);
        for rank in [0, 2] {
            attach(&mut again, rank);
            recover(&mut again, rank.into());
        }
        if brings {
            again.say(2, known());
        } else {
            // Nobody was told of the loss: silence tells it.
            assert_eq!(end_of_recovery(&mut again, 0), None, "it may have been untrue, and it may attach again");
            again.pass_with(Duration::from_secs(5), |again| {
                [0, 2].into_iter().for_each(|conn| recover(again, conn));
            });
        }
        for conn in [0, 2] {
            let told = end_of_recovery(&mut again, conn);
            assert_eq!(told.map(|(status, _)| status), Some(Status::PeerLost), "{rewritten} {lost_before} {brings}");
        }
        let line = again.lines.iter().any(|line| line.contains("is not started again, its launcher says"));
        assert!(line, "{:?}", again.lines);
    }
}

#[test]
fn a_node_that_left_that_run_is_not_the_cause_that_the_next_scheduler_finds() {
    for (rewritten, comes_again) in [(false, false), (true, false), (false, true)] {
        let mut bench = formed();
        bench.close(2, Closed::Ended);
        bench.pass(MS * 100);
        abandons(&mut bench, &[2], "there");
        bench.say(1, Message::Leave); // it was told, which is not written down: rank 3 was not
        abandons(&mut bench, &[1], "there");
        let mut again = started_again(&bench, rewritten);
        if comes_again {
            // Somebody is started in that place all the same, and has to wait.
            again.join(7, Register { host: host("elsewhere"), ..register(7, 2) });
        }
        attach(&mut again, 3);
        again.pass_with(Duration::from_secs(6), |again| again.feed(Input::Heard(ConnId(3))));
        let culprit = again.verdict(3).expect("three have not come back").culprit;
        assert_eq!(culprit.and_then(|culprit| culprit.rank), Some(2), "{rewritten} {comes_again}");
    }
}

#[test]
fn a_word_that_was_disproved_and_is_said_again_is_in_a_rewritten_journal() {
    let mut bench = formed();
    abandons(&mut bench, &[1], "there");
    bench.now = bench.now + HELD;
    bench.beat(1, 1);
    let rewritten = bench.scheduler.snapshot();
    lose(&mut bench);
    let before = bench.written.len();
    abandons(&mut bench, &[1], "there");
    recover(&mut bench, 0);
    assert_eq!(end_of_recovery(&mut bench, 0), FIRST_CAUSE);
    let later = &bench.written[before..];
    assert!(
        rewritten.iter().chain(later).any(|record| *record == Record::Abandoned(1)),
        "else the next one knows nothing"
    );
}

#[test]
fn one_that_was_in_the_epoch_and_had_not_heard_of_it_is_told_by_the_next_scheduler_too() {
    let mut bench = formed();
    abandons(&mut bench, &[1], "there");
    let mut again = started_again(&bench, false);
    again.join(0, register(0, 0)); // the scheduler had died before this one was told
    again.pass_with(Duration::from_secs(5), |again| recover(again, 0));
    assert_eq!(end_of_recovery(&mut again, 0).map(|(status, _)| status), Some(Status::PeerLost));
}

#[test]
fn nobody_is_told_before_it_is_durable() {
    let mut bench = formed();
    lose(&mut bench);
    recover(&mut bench, 0);
    bench.sent.clear();
    bench.syncs = false;
    abandons(&mut bench, &[1], "there");
    recover(&mut bench, 2);
    assert_eq!((end_of_recovery(&mut bench, 0), end_of_recovery(&mut bench, 2)), (None, None));
    bench.feed(Input::Persisted(bench.written.len() as u64));
    assert_eq!(end_of_recovery(&mut bench, 0), FIRST_CAUSE);
    assert_eq!(end_of_recovery(&mut bench, 2), FIRST_CAUSE);
}

#[test]
fn what_was_said_to_the_scheduler_before_does_not_keep_out_who_is_started_in_that_place_nor_its_node() {
    for comes in [true, false] {
        let mut bench = formed();
        abandons(&mut bench, &[1], "there");
        let mut again = started_again(&bench, false);
        match comes {
            true => again.join(7, register(7, 1)),
            false => attach(&mut again, 1),
        }
        attach(&mut again, 0);
        recover(&mut again, 0);
        if !comes {
            again.close(1, Closed::Ended);
        }
        again.say(0, known());
        again.pass(MS * 200);
        assert_eq!(end_of_recovery(&mut again, 0), None, "it is waited for");
        assert!(!started_again(&again, true).scheduler.snapshot().contains(&Record::Abandoned(1)));
    }
}

fn has_begun(bench: &Bench) -> bool {
    bench.lines.iter().any(|line| line.contains("epoch 2 has begun"))
}

#[test]
fn the_next_epoch_does_not_begin_with_one_whose_end_is_on_its_way() {
    let mut bench = formed();
    (0..3).for_each(|conn| recover(&mut bench, conn));
    bench.now = bench.now + MS * 300;
    abandons(&mut bench, &[1], "there");
    bench.now = bench.now + MS * 10;
    recover(&mut bench, 3);
    assert!(!has_begun(&bench), "rank 1 may be dead: {:?}", bench.lines);
    lose(&mut bench);
    assert_eq!(end_of_recovery(&mut bench, 3), FIRST_CAUSE);
}

#[test]
fn one_of_which_that_was_said_wrongly_delays_the_next_epoch_until_its_next_heartbeat() {
    let mut bench = formed();
    (0..3).for_each(|conn| recover(&mut bench, conn));
    abandons(&mut bench, &[1], "there");
    recover(&mut bench, 3);
    bench.now = bench.now + HELD - MS;
    bench.beat(1, 1);
    assert!(!has_begun(&bench), "that was on its way: {:?}", bench.lines);
    bench.now = bench.now + MS * 200;
    bench.beat(2, 1);
    assert!(!has_begun(&bench), "that is of another: {:?}", bench.lines);
    bench.beat(1, 2);
    assert!(has_begun(&bench), "{:?}", bench.lines);
}

#[test]
fn the_next_epoch_knows_nothing_of_it() {
    let mut bench = formed();
    abandons(&mut bench, &[1], "there"); // it lives
    bench.now = bench.now + HELD;
    bench.beat(1, 1);
    (0..u64::from(NODES)).for_each(|conn| recover(&mut bench, conn));
    assert!(has_begun(&bench), "{:?}", bench.lines);
    for rewritten in [true, false] {
        let mut again = started_again(&bench, rewritten);
        attach(&mut again, 0);
        assert!(!again.scheduler.snapshot().contains(&Record::Abandoned(1)));
    }
}

#[test]
fn a_launcher_that_abandons_a_place_again_and_again_fills_no_disk() {
    let mut bench = formed();
    let before = bench.written.len();
    for _ in 0..20 {
        abandons(&mut bench, &[1], "there");
        bench.now = bench.now + HELD;
        bench.beat(1, 1);
    }
    assert_eq!(bench.written.len(), before + 1);
    let mut again = started_again(&bench, false);
    let before = again.written.len();
    (0..20).for_each(|_| abandons(&mut again, &[1], "there"));
    assert_eq!(again.written.len(), before);
}
