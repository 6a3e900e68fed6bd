//! A scheduler that is at one of several places: the node passes by every listener that is not its own scheduler, and comes
//! back.

use super::bench::{formed, profile, Bench};
use super::{Agent, Event, Input, Output};
use crate::error::Status;
use crate::types::Time;
use crate::wire::{HeartbeatEcho, Message, PassBy, Rejected};
use std::time::Duration;

/// What listens at a place.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Nobody,
    OfAnotherJob,
    /// Accepts connections, and says nothing.
    Silent,
    Garbage,
    /// Ends each connection at once.
    Closes,
    Own,
    /// The scheduler of its own job, which refuses it.
    Refuses,
}

const THREE: [&str; 3] = ["10.0.0.1:20001", "10.0.0.1:20002", "10.0.0.1:20003"];

fn searching(limit: Duration) -> Bench {
    let mut profile = profile();
    profile.schedulers = THREE.map(str::to_owned).to_vec();
    profile.forming_timeout = Some(limit);
    profile.register.derived_job = Some("Open MPI 1".to_owned());
    let mut bench = Bench { agent: Agent::new(profile, Time(0)), ..Bench::new() };
    bench.outputs.clear();
    bench.drain();
    bench
}

/// Answers as the listeners do, for so long or until something was told. Returns the places that were tried, in order.
fn meet(bench: &mut Bench, ms: u64, who: impl Fn(usize, Time) -> Who) -> Vec<usize> {
    let until = Time(bench.now.0 + ms * 1_000_000);
    let (mut tried, mut seen) = (Vec::new(), 0);
    while bench.told().is_empty() {
        let answered = bench.outputs.len();
        let connect = |output: &Output| match output {
            Output::Connect { place, .. } => Some(*place),
            _ => None,
        };
        let attempt = bench.outputs[seen..].iter().filter_map(connect).next_back();
        seen = answered;
        let Some(place) = attempt else {
            if bench.armed > until {
                break;
            }
            bench.now = bench.now.max(bench.armed);
            bench.armed = Time::NEVER;
            bench.feed(Input::Timer);
            continue;
        };
        tried.push(place);
        let who = who(place, bench.now);
        if who == Who::Nobody {
            bench.feed(Input::ConnectFailed(format!("{}: connection refused", THREE[place])));
            continue;
        }
        let beats = bench.beats().len();
        bench.feed(Input::Connected(Vec::new()));
        assert!(bench.beats().len() > beats, "it asks for an answer at once");
        let reason = "not yours".to_owned();
        match who {
            Who::OfAnotherJob => bench.receive(Message::PassBy(PassBy { reason })),
            Who::Garbage => bench.feed(Input::Strange("it begins with \"HTTP\"".to_owned())),
            Who::Closes => bench.feed(Input::Closed("it closed the connection".to_owned())),
            Who::Refuses => bench.receive(Message::Rejected(Rejected { status: Status::Rejected, reason })),
            Who::Own => {
                bench.receive(Message::HeartbeatEcho(HeartbeatEcho { sequence: bench.beats().len() as u64 }));
                bench.receive(Message::Formed(formed(1, 1)));
            }
            Who::Silent | Who::Nobody => {}
        }
    }
    tried
}

fn has_formed(bench: &Bench) -> bool {
    matches!(bench.told()[..], [Event::Formed(_)])
}

#[test]
fn a_scheduler_of_another_job_is_passed_by() {
    for stranger in [Who::Nobody, Who::OfAnotherJob, Who::Silent, Who::Garbage, Who::Closes] {
        let mut bench = searching(Duration::from_secs(60));
        let own_at = |place, _| if place == 2 { Who::Own } else { stranger };
        assert_eq!(meet(&mut bench, 60_000, own_at), [0, 1, 2], "{stranger:?}");
        assert!(has_formed(&bench), "{stranger:?}: {:?}", bench.told());
        assert!(bench.warnings().is_empty(), "{stranger:?}: {:?}", bench.warnings());
        let most = if stranger == Who::Silent { 2_000_000_000 } else { 0 };
        assert_eq!(bench.now.0, most, "{stranger:?}: a second for each that is silent, and no pause within a round");
    }
}

#[test]
fn a_scheduler_that_is_not_there_yet_is_found_in_a_later_round() {
    for stranger in [Who::Nobody, Who::OfAnotherJob, Who::Silent, Who::Garbage, Who::Closes] {
        let mut bench = searching(Duration::from_secs(120));
        let later = |place, now: Time| match place {
            1 if now.0 > 20_000_000_000 => Who::Own,
            1 => Who::Nobody,
            _ => stranger,
        };
        let tried = meet(&mut bench, 100_000, later);
        assert!(has_formed(&bench), "{stranger:?}: {:?}", bench.told());
        let rounds: Vec<usize> = (0..tried.len()).map(|at| at % 3).collect();
        assert_eq!(tried, rounds, "{stranger:?}: one after the other, round and round");
        assert!(tried.len() < 300, "{stranger:?}: it pauses after each round, {} attempts", tried.len());
    }
}

#[test]
fn its_own_scheduler_may_be_slow_to_answer() {
    let mut bench = searching(Duration::from_secs(120));
    // The scheduler is given a second, then two, then four, which is how long silence may last. It answers only then.
    let tried = meet(&mut bench, 10_900, |place, _| if place == 0 { Who::Silent } else { Who::Nobody });
    assert_eq!(tried, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0], "from 0, 1, 3 and 7 s on");
    bench.receive(Message::Formed(formed(1, 1)));
    assert!(has_formed(&bench));
}

#[test]
fn its_own_scheduler_refuses_it_for_good() {
    let mut bench = searching(Duration::from_secs(60));
    meet(&mut bench, 60_000, |place, _| if place == 1 { Who::Refuses } else { Who::Nobody });
    let told = bench.told();
    assert!(matches!(&told[..], [Event::Failed(error)] if error.status() == Status::Rejected), "{told:?}");
}

#[test]
fn in_the_end_it_says_whom_it_met_where() {
    let mut bench = searching(Duration::from_secs(4));
    meet(&mut bench, 10_000, |place, _| [Who::OfAnotherJob, Who::Garbage, Who::Nobody][place]);
    let told = bench.told();
    let [Event::Failed(error)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(error.status(), Status::Unreachable);
    let says = "this job's scheduler was not found at any of its ports (";
    let met = "10.0.0.1:20001: not yours; 10.0.0.1:20002: it begins with \"HTTP\"; 10.0.0.1:20003: connection refused; check \
               that rank 0 is started, and that MS_SCHED_HOST and sched_port lead to it";
    assert!(error.message().starts_with(&format!("forming timed out (MS_CLUSTER_TIMEOUT is 10): {says}")), "{error}");
    assert!(error.message().ends_with(met), "{error}");
    assert!(bench.warnings()[0].starts_with(&format!("still trying: {says}")), "{:?}", bench.warnings());
}

#[test]
fn a_member_comes_back_to_the_port_that_it_knows_and_then_looks_at_the_others() {
    let mut bench = searching(Duration::from_secs(60));
    meet(&mut bench, 60_000, |place, _| if place == 1 { Who::Own } else { Who::Nobody });
    bench.outputs.clear();
    bench.feed(Input::Closed("reset".to_owned()));
    // Its scheduler was started again, and got the third port: the first one's scheduler is another job's.
    for (place, input) in
        [(1, Input::ConnectFailed(format!("{}: connection refused", THREE[1]))), (2, Input::Connected(Vec::new()))]
    {
        let at = bench.outputs.iter().rev().find_map(|output| match output {
            Output::Connect { place, .. } => Some(*place),
            _ => None,
        });
        assert_eq!(at, Some(place), "{:?}", bench.outputs);
        bench.feed(input);
    }
    bench.receive(Message::Formed(formed(1, 1)));
    assert!(bench.sent().iter().any(|message| matches!(message, Message::InEpoch(_))), "{:?}", bench.outputs);
}

#[test]
fn a_node_that_was_told_one_port_fails_at_another_jobs_scheduler() {
    let mut bench = Bench::new();
    bench.feed(Input::Connected(Vec::new()));
    assert!(bench.beats().is_empty(), "it waits, as ever");
    bench.receive(Message::PassBy(PassBy { reason: "not yours".to_owned() }));
    let told = bench.told();
    let [Event::Failed(error)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((error.status(), error.message()), (Status::Rejected, "not yours"));
}
