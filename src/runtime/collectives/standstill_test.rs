use super::*;
use crate::agent::{Command, Event};
use crate::error::{Failure, Status};
use crate::net::{deafen, Acknowledged};
use crate::runtime::base::control::tests::Scripted;
use crate::runtime::collectives::engine::Exclusive;
use crate::runtime::collectives::failure::tests::Bench;
use crate::runtime::links::link::Link;
use crate::runtime::state::node_state::{AgentCommand, NodeState};
use crate::types::Epoch;
use crate::wire::{Absent, PeerState, HEADER_BYTES};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::MutexGuard;
use std::time::Instant;

const PEERS: [Option<u32>; 2] = [Some(2), Some(3)];
const SECOND: Duration = Duration::from_secs(1);

/// What drives a group of four; the links to ranks 2 and 3 stand. The cluster has agreed on a time-out of 1 s.
fn exclusive(bench: &Bench) -> (MutexGuard<'_, Exclusive>, [Scripted; 2]) {
    assert_eq!(bench.group.context.formed().agreed.heartbeat_timeout_ms, 1000);
    let scripts = [Scripted::default(), Scripted::default()];
    let up = |script: &Scripted| Slot::Up(Box::new(Link::new(Box::new(script.clone()), &[])));
    let mut exclusive = bench.group.collectives.exclusive();
    exclusive.driver.peers.links = Links::with([Slot::Unused, Slot::Asked, up(&scripts[0]), up(&scripts[1])]);
    (exclusive, scripts)
}

fn at(seconds: f64) -> Time {
    Time(1_000_000_000_000) + Duration::from_secs_f64(seconds)
}

#[test]
fn a_rank_that_waits_looks_twice_an_interval_and_not_before() {
    let bench = Bench::new();
    let (mut exclusive, scripts) = exclusive(&bench);
    let driver = &mut exclusive.driver;
    scripts.iter().for_each(|script| script.script().room = usize::MAX);
    let sent = || scripts.each_ref().map(|script| script.script().sent.len() / HEADER_BYTES);
    for seconds in [0.0, 0.09] {
        driver.peers.look_for_signs(&bench.group.context, PEERS, at(seconds)).unwrap();
        assert_eq!((driver.peers.silence.wait(at(seconds)), sent()), (at(0.1), [0, 0]), "as most calls end by then");
    }
    for (seconds, frames) in [(0.1, 1), (0.15, 1), (0.2, 2)] {
        driver.peers.look_for_signs(&bench.group.context, [PEERS[1], None], at(seconds)).unwrap();
        assert_eq!(sent(), [0, frames], "only who is waited for");
    }
    assert_eq!(driver.peers.silence.wait(at(0.2)), at(0.3));
    driver.peers.silence.end();
    assert_eq!(driver.peers.silence.wait(at(1.5)), at(1.6), "it has moved on meanwhile");
}

/// How a call ends if the peer's kernel owes an answer at these looks, and has acknowledged so many bytes.
/// `alive_from`: the time from which on the scheduler says that the peer lives.
fn stop(
    owes: impl Fn(f64) -> Option<u64>,
    alive_from: Option<f64>,
    looks: impl Iterator<Item = f64>,
) -> (f64, Option<Stop>) {
    let bench = Bench::new();
    let (mut exclusive, scripts) = exclusive(&bench);
    let driver = &mut exclusive.driver;
    driver.peers.silence.wait(at(0.0));
    let (mut asked, mut last) = (0, 0.0);
    for seconds in looks {
        last = seconds;
        scripts[1].script().acknowledged =
            Acknowledged { bytes: owes(seconds).unwrap_or(7), owes: owes(seconds).is_some() };
        if asked > 0 && alive_from.is_some_and(|from| seconds >= from) {
            bench.state.file(Event::Peer(3, PeerState::Alive, culprit()));
        }
        if let Err(stop) = driver.peers.look_for_signs(&bench.group.context, PEERS, at(seconds)) {
            assert!(asked > 0, "the scheduler is asked before");
            return (seconds, Some(stop));
        }
        while let Some(command) = bench.state.next_command() {
            asked += usize::from(matches!(command, AgentCommand::Of(Epoch(1), Command::Suspect { peer: 3, .. })));
        }
    }
    (last, None)
}

/// The times of looks, every tenth of a second.
fn looks(from: u32, until: u32) -> impl Iterator<Item = f64> {
    (from..=until).map(|tenth| f64::from(tenth) / 10.0)
}

#[test]
fn a_link_that_is_silent_for_the_time_out_has_failed_where_the_peer_lives() {
    // The debt is known from the first look on; before it nothing had to come.
    let (after, Some(Stop::Unreached(3, evidence))) = stop(|_| Some(7), Some(0.0), looks(1, 30)) else {
        panic!("it has not")
    };
    assert_eq!((after, evidence), (1.0, "nothing that was sent to it has been acknowledged for 0.9 s".to_owned()));
    // A peer that is heard in between has the whole time again.
    let owes = |seconds: f64| Some(if seconds < 0.9 { 7 } else { 8 });
    assert!(matches!(stop(owes, Some(0.0), looks(1, 30)), (after, Some(Stop::Unreached(3, _))) if after == 1.8));
    let owes = |seconds: f64| (seconds != 0.9).then_some(7);
    assert!(matches!(stop(owes, Some(0.0), looks(1, 30)), (after, Some(Stop::Unreached(3, _))) if after == 1.8));
}

#[test]
fn where_the_scheduler_does_not_know_yet_it_has_an_interval_more() {
    assert!(
        matches!(stop(|_| Some(7), Some(1.15), looks(1, 30)), (after, Some(Stop::Unreached(3, _))) if after == 1.2)
    );
    let (after, Some(Stop::Ended(3, LinkEnd::Silent(_)))) = stop(|_| Some(7), None, looks(1, 30)) else {
        panic!("it lives")
    };
    assert_eq!(after, 1.3);
}

#[test]
fn a_late_look_is_no_sign_of_silence() {
    // A pause of 5 s is no silence of 5 s.
    let late = looks(1, 5).chain(looks(55, 80));
    assert!(matches!(stop(|_| Some(7), Some(0.0), late), (after, Some(Stop::Unreached(3, _))) if after == 5.9));
}

#[test]
fn a_rank_that_runs_out_of_time_names_the_awaited_peer_and_the_link_at_fault() {
    let bench = Bench::new();
    let (mut exclusive, scripts) = exclusive(&bench);
    let driver = &mut exclusive.driver;
    driver.peers.silence.wait(at(0.0));
    let mut awaited = |seconds: f64, peers| driver.peers.awaited(&bench.group.context, peers, at(seconds));
    let waits_for = |peer| Some(Awaited { peer, fault: None });
    assert_eq!(awaited(2.0, PEERS), waits_for(2));
    assert_eq!(awaited(2.0, [None, Some(3)]), waits_for(3));
    assert_eq!(awaited(2.0, [None, None]), None);
    assert_eq!(awaited(2.0, [Some(0), None]), waits_for(0), "it is the peer's to open that one");
    assert_eq!(awaited(0.9, [Some(1), None]), waits_for(1), "it has not had the time");
    let fault = awaited(2.0, [Some(1), Some(2)]).unwrap().fault.unwrap();
    let tried = "neither from here nor from there (its addresses: 127.0.0.1:2)";
    assert_eq!(fault, format!("their link could not be opened for 2.0 s, {tried}"));
    scripts[1].script().acknowledged.owes = true;
    assert_eq!(awaited(0.9, PEERS), waits_for(2));
    assert_eq!(awaited(2.0, PEERS), waits_for(2), "nobody has looked so far");
    let fault = awaited(3.0, PEERS).map(|awaited| (awaited.peer, awaited.fault.unwrap()));
    assert_eq!(fault, Some((3, in_words(SECOND))));
}

fn culprit() -> crate::error::Culprit {
    let (role, rank) = (crate::types::Role::Worker, Some(3));
    crate::error::Culprit { role, rank, node_id: "3".to_owned(), host: "host".to_owned(), pid: 4, last_call: None }
}

/// Answers as the scheduler: all live, and all have entered. A little later it hears of another's cause, if there is
/// one.
fn answer(state: &NodeState, first: Option<&Failure>, is_over: &AtomicBool) {
    let mut hears_at = None;
    while !is_over.load(Ordering::Relaxed) {
        if hears_at.is_some_and(|at| Instant::now() >= at) {
            first.into_iter().for_each(|first| _ = state.file(Event::Revoked(first.clone())));
        }
        match state.next_command() {
            Some(AgentCommand::Of(Epoch(1), Command::Suspect { peer, .. })) => {
                state.file(Event::Peer(peer, PeerState::Alive, culprit()));
            }
            Some(AgentCommand::Of(Epoch(1), Command::WhereAre(ask, ..))) => {
                state.file(Event::Absent(ask, Absent { query: 1, total: 0, members: Vec::new() }));
                hears_at = Some(Instant::now() + Duration::from_millis(20));
            }
            Some(AgentCommand::Of(Epoch(1), Command::Revoke(failure))) => _ = state.file(Event::Revoked(failure)),
            Some(_) => {}
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// What comes of a call in a cluster that lives.
fn answered<T>(bench: &Bench, first: Option<&Failure>, call: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| answer(&bench.state, first, &is_over));
        let came_of_it = call();
        is_over.store(true, Ordering::Relaxed);
        came_of_it
    })
}

/// How a broadcast ends there that rank 3 does not send.
fn ends(bench: &Bench, first: Option<&Failure>) -> Failure {
    answered(bench, first, || bench.call())
}

const BOTH: [&str; 2] = ["rank 0 (", "rank 3 ("];

#[test]
fn two_live_ranks_whose_link_falls_silent_are_both_named() {
    // The call ends before the operation's time is up, or at its end.
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

/// The peer says nothing for longer than a silence may last, but its kernel acknowledges.
#[test]
fn a_time_out_where_all_have_entered_names_whom_this_rank_waits_for() {
    let mut bench = Bench::new();
    bench.stand(0);
    bench.group.set_timeout_ms(6000).unwrap();
    let failure = ends(&bench, None);
    assert_eq!((failure.status, failure.culprit), (Status::Timeout, None), "{}", failure.cause);
    let words =
        " on world timed out after 6 s; all ranks have entered it, but it did not end: a slow link, or a rank that is \
                 stopped; rank 0 (";
    assert!(failure.cause.contains(words) && failure.cause.contains(") waits for rank 3 ("), "{}", failure.cause);
}

/// The scheduler says who has come, but makes no group.
#[test]
fn a_group_that_was_not_made_in_time_is_no_fault_of_a_link() {
    for is_split in [false, true] {
        let mut bench = Bench::new();
        bench.stand(0);
        bench.group.set_timeout_ms(50).unwrap();
        let made = answered(&bench, None, || match is_split {
            true => bench.registry.split(&bench.group, Some(0), 0),
            false => bench.registry.create(&bench.group, &[0, 1]),
        });
        let error = made.err().expect("nobody makes it");
        assert_eq!(error.status(), Status::Timeout, "{error}");
        let words = "all ranks have entered it, but the scheduler had not made the group yet";
        assert!(error.message().contains(words), "{error}");
    }
}

#[test]
fn a_rank_hears_from_others_which_link_is_at_fault() {
    let mut bench = Bench::new();
    bench.stand(0);
    bench.group.set_timeout_ms(50).unwrap();
    let cause = "rank 1 and rank 2 cannot reach each other although both live".to_owned();
    let (culprit, epoch, group) = (None, Epoch(1), Some(bench.group.id()));
    let first = Failure { status: Status::Link, culprit, cause, epoch, group, sequence: 1 };
    assert_eq!(ends(&bench, Some(&first)), first);
}
