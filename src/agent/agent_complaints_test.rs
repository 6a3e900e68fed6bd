//! A node that finds no scheduler: what it says of that, how often, and in the end.

use super::bench::{profile, Bench, MS};
use super::*;
use crate::error::{Error, Status};
use crate::wire::HeartbeatEcho;
use std::time::Duration;

/// A node that has so long to join.
fn with(forming_timeout: Option<Duration>) -> Bench {
    let mut bench = Bench { agent: Agent::new(Profile { forming_timeout, ..profile() }, Time(0)), ..Bench::new() };
    bench.outputs.clear();
    bench.drain();
    bench
}

/// The seconds in which it says something while every attempt fails, and its words.
fn said_at(bench: &mut Bench, seconds: u64) -> Vec<(u64, String)> {
    let mut said = Vec::new();
    for _ in 0..seconds {
        let before = bench.warnings().len();
        bench.pass_unreachable(1_000);
        said.extend(bench.warnings().drain(before..).map(|line| (bench.now.0 / MS / 1_000, line)));
    }
    said
}

/// Lets time pass until it makes its next attempt.
fn await_attempt(bench: &mut Bench) {
    let attempts = bench.attempts();
    while bench.attempts() == attempts {
        bench.now = bench.armed;
        bench.feed(Input::Timer);
    }
}

fn failed(bench: &Bench) -> Error {
    match bench.last_event() {
        Event::Failed(error) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_same_is_said_ever_more_seldom_and_what_is_new_soon() {
    let mut bench = with(None);
    let said = said_at(&mut bench, 125);
    assert_eq!(said.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [3, 4, 6, 10, 18, 34, 64, 94, 124]);
    await_attempt(&mut bench);
    bench.feed(Input::ConnectFailed("no route to host".to_owned()));
    let before = bench.warnings().len();
    bench.pass(1_000, false);
    let news = bench.warnings().split_off(before);
    assert!(matches!(&news[..], [line] if line.contains("no route to host")), "{news:?}");
}

#[test]
fn a_scheduler_that_was_there_meanwhile_is_news_when_it_is_lost_again() {
    let mut bench = with(None);
    for _ in 0..2 {
        bench.pass_unreachable(40_000);
        let lines = bench.warnings();
        await_attempt(&mut bench);
        bench.feed(Input::Connected(Vec::new()));
        bench.receive(Message::HeartbeatEcho(HeartbeatEcho { sequence: 0 }));
        bench.pass(2_500, true);
        assert_eq!(bench.warnings(), lines, "nothing is wrong now");
        bench.feed(Input::Closed("connection refused".to_owned()));
        bench.pass_unreachable(2_000);
        let news = bench.warnings().split_off(lines.len());
        assert!(matches!(&news[..], [line, ..] if line.contains("was lost")), "{news:?}");
    }
}

#[test]
fn where_nobody_listens_it_says_what_to_check() {
    let mut bench = with(Some(Duration::from_secs(4)));
    bench.pass_unreachable(4_000);
    let advice = "; check that the scheduler is started, and that MS_SCHED_HOST and sched_port lead to it";
    let (error, lines) = (failed(&bench), bench.warnings());
    assert_eq!(error.status(), Status::Unreachable);
    assert!(error.message().starts_with(
        "forming timed out (MS_CLUSTER_TIMEOUT is 10): the scheduler at 10.0.0.1:8118 could not be reached ("
    ));
    assert!(error.message().ends_with(&format!(" attempts in 4.0 s): connection refused{advice}")), "{error}");
    assert!(lines[0].starts_with("still trying: ") && lines[0].ends_with(advice), "{lines:?}");
}

#[test]
fn one_that_takes_connections_and_says_nothing_is_not_called_a_scheduler() {
    let silent =
        "what listens at 10.0.0.1:8118 does not answer as a muster scheduler of this version does (1 attempt in";
    let reason =
        "it takes connections, but has said nothing yet; check that MS_SCHED_HOST and sched_port lead to the scheduler";
    let mut bench = with(Some(Duration::from_millis(4_500)));
    bench.feed(Input::Connected(Vec::new()));
    bench.pass(3_900, false);
    assert_eq!(bench.warnings(), [""; 0], "a scheduler answers the first heartbeat, which goes out after 1 s");
    // This node's heartbeats are not answered; but some byte has come.
    bench.feed(Input::Heard);
    bench.pass(200, false);
    assert_eq!(bench.warnings(), [format!("still trying: {silent} 4.0 s): {reason}")]);
    bench.pass(1_500, false);
    let error = failed(&bench);
    let within = "the cluster was not complete within 4.5 s (MS_CLUSTER_TIMEOUT is 10), and";
    assert_eq!(
        (error.status(), error.message()),
        (Status::Timeout, &format!("{within} {silent} 5.5 s): {reason}")[..])
    );
}

#[test]
fn one_that_is_silent_until_it_is_disconnected_is_not_lost_either() {
    let mut bench = with(Some(Duration::from_secs(3)));
    bench.feed(Input::Connected(Vec::new()));
    bench.feed(Input::Closed("it closed the connection".to_owned()));
    bench.feed(Input::Connected(Vec::new()));
    bench.feed(Input::Closed("it closed the connection".to_owned()));
    bench.pass(3_000, false);
    let error = failed(&bench);
    let (within, who) = (
        "the cluster was not complete within 3 s (MS_CLUSTER_TIMEOUT is 10), and",
        "what listens at 10.0.0.1:8118 does not answer",
    );
    assert!(error.message().starts_with(&format!("{within} {who}")), "{error}");
    assert!(error.message().contains("): it closed the connection; check that "), "{error}");
}

#[test]
fn one_that_speaks_something_else_is_no_scheduler() {
    let reason = "not a frame of this protocol: it begins with \"HTTP\"";
    let mut bench = with(Some(Duration::from_secs(5)));
    while bench.told().is_empty() {
        // If no attempt is under way, this means nothing to it.
        bench.feed(Input::Connected(Vec::new()));
        bench.feed(Input::Strange(reason.to_owned()));
        bench.now = bench.now.max(bench.armed);
        bench.armed = Time::NEVER;
        bench.feed(Input::Timer);
    }
    let (error, lines) = (failed(&bench), bench.warnings());
    let who = "what listens at 10.0.0.1:8118 is not a muster scheduler (";
    let why = format!("): {reason}; check that MS_SCHED_HOST and sched_port lead to the scheduler");
    assert!(
        error
            .message()
            .starts_with(&format!("the cluster was not complete within 5 s (MS_CLUSTER_TIMEOUT is 10), and {who}")),
        "{error}"
    );
    assert!(error.message().ends_with(&why), "{error}");
    assert_eq!(lines[0], format!("disconnected from 10.0.0.1:8118: {reason}"), "at once");
    let later = &lines[1..];
    assert!(later.len() == 2 && later.iter().all(|line| line.contains(who) && line.ends_with(&why)), "{lines:?}");

    // One that has ended before this node's time is up was a stranger nevertheless.
    let mut bench = with(Some(Duration::from_secs(5)));
    bench.feed(Input::Connected(Vec::new()));
    bench.feed(Input::Strange(reason.to_owned()));
    bench.pass_unreachable(5_000);
    let error = failed(&bench);
    let last =
        format!("): {reason}; the last attempt: connection refused; check that MS_SCHED_HOST and sched_port lead to");
    assert!(error.message().contains(who) && error.message().contains(&last), "{error}");

    // A listener that has answered is a scheduler, which was lost.
    let mut bench = with(Some(Duration::from_secs(5)));
    bench.feed(Input::Connected(Vec::new()));
    bench.receive(Message::HeartbeatEcho(HeartbeatEcho { sequence: 0 }));
    bench.feed(Input::Strange(reason.to_owned()));
    bench.pass(5_000, false);
    // The next attempt is still under way.
    assert!(failed(&bench).message().contains("and the scheduler at 10.0.0.1:8118 was lost ("), "{}", failed(&bench));
}

#[test]
fn one_that_is_not_taken_is_told_with_a_status_of_its_own() {
    let reason = "its certificate is revoked";
    let mut bench = with(Some(Duration::from_secs(5)));
    bench.feed(Input::ConnectFailed("connection refused".to_owned()));
    while bench.told().is_empty() {
        bench.feed(Input::Connected(Vec::new()));
        bench.feed(Input::Refused(reason.to_owned()));
        bench.now = bench.now.max(bench.armed);
        bench.armed = Time::NEVER;
        bench.feed(Input::Timer);
    }
    let error = failed(&bench);
    let start =
        "the cluster was not complete within 5 s (MS_CLUSTER_TIMEOUT is 10), and what listens at 10.0.0.1:8118 and \
                 this node do not accept each other (";
    assert_eq!(error.status(), Status::Security);
    assert!(error.message().starts_with(start) && error.message().ends_with(&format!(" s): {reason}")), "{error}");

    // A scheduler whose own time is up has gone before.
    let mut bench = with(Some(Duration::from_secs(5)));
    bench.feed(Input::Connected(Vec::new()));
    bench.feed(Input::Refused(reason.to_owned()));
    bench.pass_unreachable(5_000);
    let error = failed(&bench);
    assert_eq!(error.status(), Status::Security);
    assert!(error.message().ends_with(&format!("{reason}; the last attempt: connection refused")), "{error}");

    // A listener that answers is a scheduler.
    let mut bench = with(Some(Duration::from_secs(5)));
    bench.feed(Input::Connected(Vec::new()));
    bench.feed(Input::Refused(reason.to_owned()));
    await_attempt(&mut bench);
    bench.feed(Input::Connected(Vec::new()));
    bench.receive(Message::HeartbeatEcho(HeartbeatEcho { sequence: 0 }));
    bench.feed(Input::Closed("it closed the connection".to_owned()));
    bench.pass_unreachable(5_000);
    assert_eq!(failed(&bench).status(), Status::Timeout);
}
