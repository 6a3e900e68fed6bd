use super::super::control::tests::Scripted;
use super::super::giveup::tests::Bench;
use super::super::link::Link;
use super::super::shared::{Shared, ToNode};
use super::*;
use crate::agent::{Command, Event};
use crate::error::{Failure, Status};
use crate::net::deafen;
use crate::types::Epoch;
use crate::wire::{Absent, PeerState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const PEERS: [Option<u32>; 2] = [Some(2), Some(3)];
const SECOND: Duration = Duration::from_secs(1);

fn agreed(heartbeat_timeout_ms: u64) -> Agreed {
    let (thresholds, store_key_max, store_value_max) = (Vec::new(), 1, 1);
    Agreed { heartbeat_timeout_ms, checksums: true, thresholds, store_key_max, store_value_max }
}

#[test]
fn patience_is_the_heartbeat_time_out_and_one_interval_and_enough_for_a_few_packets() {
    for (timeout_ms, patience_ms) in [(500, 4000), (3333, 4000), (5000, 6000), (60_000, 72_000)] {
        assert_eq!(patience(&agreed(timeout_ms)), Duration::from_millis(patience_ms));
    }
    assert!(patience(&agreed(u64::MAX)) > Duration::from_millis(u64::MAX), "whatever comes over the wire");
}

/// Slots of a group of four; the links to ranks 2 and 3 stand.
fn slots() -> (Vec<Slot>, [Scripted; 2]) {
    let scripts = [Scripted::default(), Scripted::default()];
    let up = |script: &Scripted| Slot::Up(Box::new(Link::new(Box::new(script.clone()), &[])));
    (vec![Slot::Unused, Slot::Asked, up(&scripts[0]), up(&scripts[1])], scripts)
}

fn at(seconds: f64) -> Time {
    Time(1_000_000_000_000) + Duration::from_secs_f64(seconds)
}

#[test]
fn who_stands_still_looks_once_a_second_and_not_before() {
    let (bench, (mut slots, scripts)) = (Bench::new(), slots());
    let mut still = Standstill::default();
    let asked = || scripts.each_ref().map(|script| script.script().asked_for_signs);
    for seconds in [0.0, 0.9] {
        bench.group.look_for_signs(&mut slots, PEERS, &mut still, at(seconds)).unwrap();
        assert_eq!((still.go_on(at(seconds)), asked()), (at(1.0), [false, false]), "as most calls end by then");
    }
    bench.group.look_for_signs(&mut slots, [PEERS[1], None], &mut still, at(1.0)).unwrap();
    assert_eq!((still.go_on(at(1.0)), asked()), (at(2.0), [false, true]), "only who is waited for");
    still.end();
    assert_eq!(still.go_on(at(1.5)), at(2.5), "it has moved on meanwhile");
}

#[test]
fn a_link_that_has_been_silent_for_as_long_as_its_call_has_stood_still_has_ended() {
    let (bench, (mut slots, scripts)) = (Bench::new(), slots());
    let mut still = Standstill::default();
    still.go_on(at(0.0));
    let mut look = |seconds: f64, silence: Option<Duration>| {
        scripts[1].script().silence = silence;
        bench.group.look_for_signs(&mut slots, PEERS, &mut still, at(seconds))
    };
    // Before the call nothing had to come; and it is heard again after all.
    for (seconds, silence) in
        [(1.0, Some(100 * SECOND)), (3.9, Some(100 * SECOND)), (5.0, Some(3 * SECOND)), (9.0, None)]
    {
        look(seconds, silence).unwrap();
    }
    let Err(Stop::Ended(3, LinkEnd::Ended(evidence))) = look(11.0, Some(4 * SECOND)) else { panic!("it has not") };
    assert_eq!(evidence, "nothing that was sent to it has been acknowledged for 4.0 s");
}

#[test]
fn who_runs_out_of_time_knows_whom_it_waited_for_and_whose_link_is_at_fault() {
    let (bench, (mut slots, scripts)) = (Bench::new(), slots());
    let mut still = Standstill::default();
    still.go_on(at(0.0));
    let mut awaited = |seconds: f64, peers| bench.group.awaited(&mut slots, peers, &still, at(seconds));
    let waits_for = |peer| Some(Awaited { peer, fault: None });
    assert_eq!(awaited(2.0, PEERS), waits_for(2));
    assert_eq!(awaited(2.0, [None, Some(3)]), waits_for(3));
    assert_eq!(awaited(2.0, [None, None]), None);
    assert_eq!(awaited(2.0, [Some(0), None]), waits_for(0), "it is the peer's to open that one");
    assert_eq!(awaited(0.9, [Some(1), None]), waits_for(1), "it has not had the time");
    let fault = awaited(2.0, [Some(1), Some(2)]).unwrap().fault.unwrap();
    assert_eq!(fault, "their link has not come to stand for 2.0 s, be it to 127.0.0.1:2 or from there");
    scripts[1].script().silence = Some(9 * SECOND);
    assert_eq!(awaited(0.9, PEERS), waits_for(2));
    let fault = awaited(2.0, PEERS).map(|awaited| (awaited.peer, awaited.fault.unwrap()));
    assert_eq!(fault, Some((3, in_words(2 * SECOND))));
}

/// As the scheduler, to which all live, and all have entered; a little later it hears of another's cause, if there is one.
fn answer(shared: &Shared, first: Option<&Failure>, is_over: &AtomicBool) {
    let culprit = crate::error::Culprit {
        role: crate::types::Role::Worker,
        rank: Some(3),
        node_id: "3".to_owned(),
        host: "host".to_owned(),
        pid: 4,
    };
    let mut hears_at = None;
    while !is_over.load(Ordering::Relaxed) {
        if hears_at.is_some_and(|at| Instant::now() >= at) {
            first.into_iter().for_each(|first| shared.file(Event::Revoked(first.clone())));
        }
        match shared.next_command() {
            Some(ToNode::Of(Epoch(1), Command::Suspect { peer, .. })) => {
                shared.file(Event::Peer(peer, PeerState::Alive, culprit.clone()));
            }
            Some(ToNode::Of(Epoch(1), Command::WhereAre(ask, ..))) => {
                shared.file(Event::Absent(ask, Absent { query: 1, total: 0, members: Vec::new() }));
                hears_at = Some(Instant::now() + Duration::from_millis(20));
            }
            Some(ToNode::Of(Epoch(1), Command::Revoke(failure))) => shared.file(Event::Revoked(failure)),
            Some(_) => {}
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// How a broadcast from rank 3 ends, which does not send it, in a cluster that lives.
fn ends(bench: &Bench, first: Option<&Failure>) -> Failure {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| answer(&bench.shared, first, &is_over));
        let failure = bench.call();
        is_over.store(true, Ordering::Relaxed);
        failure
    })
}

const BOTH: [&str; 2] = ["rank 0 (", "rank 3 ("];

#[test]
fn two_live_ranks_whose_link_falls_silent_are_both_named() {
    // Before the operation's time is up, and at its end.
    for limit_ms in [60_000, 3500] {
        let mut bench = Bench::new();
        bench.stand(0);
        bench.group.set_timeout_ms(limit_ms).unwrap();
        deafen(&bench.peers[2]);
        let failure = ends(&bench, None);
        assert_eq!((failure.status, failure.culprit), (Status::Link, None), "{}", failure.cause);
        let words =
            ["cannot reach each other although both live: nothing that was sent to it has been acknowledged for "];
        assert!(BOTH.iter().chain(&words).all(|words| failure.cause.contains(words)), "{}", failure.cause);
    }
}

/// It says nothing for longer than a silence may last, but its kernel acknowledges.
#[test]
fn a_time_out_where_all_have_entered_names_whom_this_rank_waits_for() {
    let mut bench = Bench::new();
    bench.stand(0);
    bench.group.set_timeout_ms(6000).unwrap();
    let failure = ends(&bench, None);
    assert_eq!((failure.status, failure.culprit), (Status::Timeout, None), "{}", failure.cause);
    let words =
        "the 6 s that it may take are over; all ranks have entered it, but it did not end: a slow link, or a rank \
                 that is stopped; rank 0 (";
    assert!(failure.cause.contains(words) && failure.cause.contains(") waits for rank 3 ("), "{}", failure.cause);
}

#[test]
fn who_does_not_know_whose_link_is_at_fault_hears_it_from_who_does() {
    let mut bench = Bench::new();
    bench.stand(0);
    bench.group.set_timeout_ms(50).unwrap();
    let cause = "rank 1 and rank 2 cannot reach each other although both live".to_owned();
    let (culprit, epoch, group) = (None, Epoch(1), Some(bench.group.id()));
    let first = Failure { status: Status::Link, culprit, cause, epoch, group, sequence: 1 };
    assert_eq!(ends(&bench, Some(&first)), first);
}
