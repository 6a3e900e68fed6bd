//! A node that has to wait before it is let in, and a scheduler, or an epoch, that lies in the past.

use super::bench::{failure, formed, profile, Bench};
use super::*;
use crate::error::Status;
use crate::types::Epoch;
use crate::wire::{Formed, NotRecovered, NotYet, Verdict};
use std::time::Duration;

const WHY: &str = "it does not have the token of rank 1, so it may join 30 s after that node's loss, which is in 26 s";

fn not_yet(wait_ms: u64, long: bool) -> Message {
    Message::NotYet(NotYet { wait_ms, reason: WHY.to_owned(), long })
}

/// A node that has registered; it has a minute to join.
fn registered() -> Bench {
    let patient = Profile { forming_timeout: Some(Duration::from_secs(60)), ..profile() };
    let mut bench = Bench { agent: Agent::new(patient, Time(0)), ..Bench::new() };
    bench.outputs.clear();
    bench.drain();
    bench.feed(Input::Connected(Vec::new()));
    bench
}

#[test]
fn one_that_has_to_wait_long_says_so_once_and_registers_again() {
    let mut bench = registered();
    let first = bench.sent();
    bench.outputs.clear();
    bench.receive(not_yet(26_000, true));
    assert_eq!(bench.disconnects(), 1, "nobody is kept busy by one who waits");
    bench.pass(25_900, false);
    assert_eq!(bench.warnings(), [format!("not yet: {WHY}")], "one line, and no complaint about the scheduler");
    assert_eq!(bench.attempts(), 0, "not before its time");
    bench.pass(200, false);
    assert_eq!(bench.attempts(), 1);
    bench.feed(Input::Connected(Vec::new()));
    assert_eq!(bench.sent(), first, "the same registration");
    assert!(bench.told().is_empty(), "that is no failure: {:?}", bench.told());
    bench.receive(Message::Formed(formed(1, 2)));
    assert!(matches!(bench.last_event(), Event::Formed(_)));
}

#[test]
fn one_that_has_to_wait_for_a_moment_says_nothing() {
    let mut bench = registered();
    let before = bench.attempts();
    for again in 1..=200 {
        bench.receive(not_yet(50, false));
        bench.pass(50, false);
        assert_eq!(bench.attempts(), before + again);
        bench.feed(Input::Connected(Vec::new()));
    }
    assert_eq!(bench.warnings(), [""; 0], "10 s of it");
    bench.feed(Input::Closed("reset".to_owned()));
    bench.pass_unreachable(4_000);
    let complaints = bench.warnings();
    assert!(matches!(&complaints[..], [first, ..] if first.contains("was lost")), "it is away: {complaints:?}");
}

#[test]
fn one_that_would_have_to_wait_too_long_says_for_what() {
    let mut bench = Bench::new(); // it has 10 s
    bench.feed(Input::Connected(Vec::new()));
    bench.receive(not_yet(26_000, true));
    bench.pass(9_900, false);
    assert!(bench.told().is_empty(), "{:?}", bench.told());
    bench.pass(200, false);
    let Event::Failed(error) = bench.last_event() else { panic!("{:?}", bench.told()) };
    assert_eq!(error.status(), Status::Timeout);
    assert!(error.message().contains("10 s") && error.message().contains(WHY), "{error}");
    assert!(!error.message().contains("was lost"), "the scheduler is there: {error}");
}

#[test]
fn whatever_it_is_told_a_wait_has_its_bounds() {
    for (told_ms, least_ms, most_ms) in [(0, 5, 10), (u64::MAX, 59_900, 60_000)] {
        let endless = Profile { forming_timeout: None, ..profile() };
        let mut bench = Bench { agent: Agent::new(endless, Time(0)), ..Bench::new() };
        bench.outputs.clear();
        bench.drain();
        bench.feed(Input::Connected(Vec::new()));
        bench.outputs.clear();
        bench.receive(not_yet(told_ms, true));
        bench.pass(least_ms, false);
        assert_eq!(bench.attempts(), 0, "{told_ms}");
        bench.pass(most_ms - least_ms, false);
        assert_eq!(bench.attempts(), 1, "{told_ms}");
    }
}

#[test]
fn no_member_is_sent_away() {
    let mut bench = Bench::joined();
    bench.receive(not_yet(50, false));
    assert!(bench.warnings()[0].contains("it asks a member to come back later"), "{:?}", bench.warnings());
    assert_eq!(bench.disconnects(), 1);
}

#[test]
fn what_lies_in_the_past_is_refused_with_the_words() {
    let of = |generation, epoch| Message::Formed(Formed { generation, ..formed(1, epoch) });
    let earlier_start = "it is an older scheduler of this job: start 1, after start 2 was seen";
    let refused = [(1, 2, earlier_start), (1, 3, earlier_start), (2, 1, "of another job or of another epoch")];
    for (generation, epoch, words) in refused.into_iter().chain([(3, 1, "of another job or of another epoch")]) {
        let mut bench = Bench::new();
        bench.feed(Input::Connected(Vec::new()));
        bench.receive(of(2, 2));
        bench.feed(Input::Closed("reset".to_owned()));
        bench.feed(Input::Connected(Vec::new()));
        bench.outputs.clear();
        bench.receive(of(generation, epoch));
        let lines = bench.warnings();
        assert!(lines.len() == 1 && lines[0].contains(words) && lines[0].contains("10.0.0.1:8118"), "{lines:?}");
        let told = bench.told();
        assert!(
            matches!(&told[..], [Event::SchedulerAway(Some(why))] if why.contains(words)),
            "why it is away: {told:?}"
        );
        assert!(bench.sent().is_empty(), "nothing of it counts: {:?}", bench.outputs);
        assert_eq!(bench.disconnects(), 1);
        bench.pass(600, false);
        bench.feed(Input::Connected(Vec::new()));
        bench.receive(of(3, 2));
        assert!(
            matches!(bench.told().last(), Some(Event::SchedulerAway(None))),
            "the newest is its own: {:?}",
            bench.told()
        );
        // From now on the second start is an earlier one.
        bench.feed(Input::Closed("reset".to_owned()));
        bench.feed(Input::Connected(Vec::new()));
        bench.outputs.clear();
        bench.receive(of(2, 2));
        assert!(bench.warnings()[0].contains("start 2, after start 3 was seen"), "{:?}", bench.warnings());
    }
}

#[test]
fn that_there_is_no_next_epoch_is_known_also_when_its_scheduler_is_gone() {
    let said = |status, epoch| Failure { epoch: Epoch(epoch), ..failure(status, None, "is lost") };
    let word = |status, epoch| Message::NotRecovered(NotRecovered { failure: said(status, epoch) });
    let wishes = |bench: &mut Bench, inside| {
        bench.outputs.clear();
        bench.feed(Input::Command(Command::Recover(inside)));
        let first = |event: &Event| matches!(event, Event::NotRecovered(it) if *it == said(Status::PeerLost, 1));
        (bench.told().iter().any(first), bench.sent())
    };
    let recovers = |bench: &mut Bench| wishes(bench, true);
    let register = crate::wire::Register { recovery: true, ..profile().register };
    let mut bench = Bench { agent: Agent::new(Profile { register, ..profile() }, Time(0)), ..Bench::new() };
    bench.drain();
    bench.feed(Input::Connected(Vec::new()));
    let again = |generation| Message::Formed(Formed { generation, ..formed(1, 1) });
    bench.receive(again(1));
    bench.receive(Message::Verdict(Verdict { failure: said(Status::PeerLost, 1) }));
    bench.receive(word(Status::Timeout, 1));
    bench.receive(word(Status::PeerLost, 2));
    let (told, sent) = recovers(&mut bench);
    assert!(!told && sent.len() == 1, "what is of another epoch, or of a wish that has ended, says nothing: {sent:?}");
    bench.feed(Input::Command(Command::Recover(false)));
    bench.receive(word(Status::PeerLost, 1));
    bench.feed(Input::Closed("reset".to_owned()));
    assert_eq!(recovers(&mut bench), (true, Vec::new()), "it need not ask");
    bench.pass(600, false);
    bench.feed(Input::Connected(Vec::new()));
    bench.receive(again(1));
    assert_eq!(recovers(&mut bench), (true, Vec::new()), "the same scheduler, the same answer");
    assert_eq!(wishes(&mut bench, false), (true, Vec::new()), "that somebody's time is up would hide it");
    // A scheduler that was started again is asked.
    bench.feed(Input::Closed("reset".to_owned()));
    bench.pass(600, false);
    bench.feed(Input::Connected(Vec::new()));
    bench.receive(again(2));
    let (told, sent) = recovers(&mut bench);
    assert!(!told && matches!(&sent[..], [Message::Recover(wish)] if wish.inside), "{sent:?}");
}
