//! A job that a node has ended without the scheduler.

use super::bench::{failure, formed, Bench};
use super::*;
use crate::error::Status;
use crate::types::{Epoch, GroupId};
use crate::wire::{Known, Verdict};

fn aborted() -> Failure {
    failure(Status::Aborted, None, "aborted the job with code 7: the disk is gone")
}

/// A node of a job with recovery, which has heard of the abort.
fn told(is_attached: bool) -> Bench {
    let mut bench = Bench::joined_with_recovery();
    if !is_attached {
        bench.feed(Input::Closed("reset".to_owned()));
    }
    bench.outputs.clear();
    bench.command(Command::Aborted(aborted()));
    assert!(matches!(&bench.told()[..], [Event::Broken(first)] if *first == aborted()), "{:?}", bench.told());
    bench
}

fn news() -> Message {
    let (epoch, failure) = (Epoch(1), Some(aborted()));
    Message::Known(Known { epoch, failure, lost: Vec::new(), revoked: Vec::new() })
}

#[test]
fn the_scheduler_of_one_who_hears_of_it_is_told_at_once() {
    assert_eq!(told(true).sent(), [news()]);
}

#[test]
fn or_as_soon_as_there_is_one_again_even_the_same() {
    let mut bench = told(false);
    assert_eq!(bench.sent(), []);
    bench.feed(Input::Connected(Vec::new()));
    bench.outputs.clear();
    bench.receive(Message::Formed(formed(1, 1)));
    assert!(bench.sent().contains(&news()), "{:?}", bench.sent());
}

/// The scheduler had heard of no abort, and had all nodes that it waited for.
#[test]
fn or_in_the_next_epoch_if_that_begins_meanwhile() {
    let mut bench = told(false);
    bench.feed(Input::Connected(Vec::new()));
    bench.outputs.clear();
    bench.receive(Message::Formed(formed(1, 2)));
    let first = Failure { epoch: Epoch(2), ..aborted() };
    let failure = Some(first.clone());
    let news = Message::Known(Known { epoch: Epoch(2), failure, lost: Vec::new(), revoked: Vec::new() });
    assert!(bench.sent().contains(&news), "{:?}", bench.sent());
    let mut leaving = told(false);
    leaving.command(Command::Leave);
    leaving.feed(Input::Connected(Vec::new()));
    leaving.outputs.clear();
    leaving.receive(Message::Formed(formed(1, 2)));
    let sent = leaving.sent();
    let place = |one: &Message| sent.iter().position(|message| message == one);
    assert!(place(&news).is_some() && place(&news) < place(&Message::Leave), "{sent:?}");
    let is_told = bench.told().iter().any(|event| matches!(event, Event::Broken(broken) if *broken == first));
    assert!(is_told, "{:?}", bench.told());
}

#[test]
fn the_job_is_over_for_good() {
    let mut bench = told(false);
    bench.outputs.clear();
    bench.command(Command::Recover(true));
    assert!(matches!(&bench.told()[..], [Event::NotRecovered(first)] if *first == aborted()), "{:?}", bench.told());
    bench.outputs.clear();
    bench.command(Command::Aborted(failure(Status::Aborted, None, "another one")));
    assert!(bench.told().is_empty() && bench.sent().is_empty(), "the first cause is kept: {:?}", bench.outputs);
}

#[test]
fn only_an_abort_of_this_epoch_counts() {
    let mut bench = Bench::joined();
    bench.command(Command::Aborted(Failure { epoch: Epoch(2), ..aborted() }));
    bench.command(Command::Aborted(failure(Status::PeerLost, None, "is lost")));
    bench.command(Command::Aborted(failure(Status::Timeout, Some(GroupId::UNIVERSE), "too late")));
    assert!(bench.told().is_empty() && bench.sent().is_empty(), "{:?}", bench.outputs);
}

#[test]
fn a_node_that_leaves_gives_a_new_scheduler_a_moment_to_hear_of_it() {
    let mut bench = told(false);
    bench.outputs.clear();
    bench.command(Command::Leave);
    bench.pass_unreachable(900);
    assert!(bench.told().is_empty(), "not yet: {:?}", bench.told());
    bench.pass_unreachable(200);
    assert!(matches!(bench.last_event(), Event::Left(Some(_))), "and no longer: {:?}", bench.told());

    let mut bench = told(false);
    bench.command(Command::Leave);
    for _ in 0..2 {
        bench.feed(Input::Connected(Vec::new()));
        bench.outputs.clear();
        bench.receive(Message::Formed(formed(1, 1)));
        assert_eq!(bench.sent()[1..], [news(), Message::Leave], "in this order, until there is an answer");
        bench.outputs.clear();
        bench.feed(Input::Closed("reset".to_owned()));
        assert!(bench.told().is_empty(), "what was sent may be lost: {:?}", bench.told());
    }
    bench.feed(Input::Connected(Vec::new()));
    bench.receive(Message::Formed(formed(1, 1)));
    bench.receive(Message::Verdict(Verdict { failure: aborted() }));
    bench.outputs.clear();
    bench.feed(Input::Closed("reset".to_owned()));
    bench.pass_unreachable(10);
    assert!(matches!(bench.last_event(), Event::Left(Some(_))), "it knows: {:?}", bench.told());
}
