//! The brain without its scheduler: what was asked of the store, and one other node.

use super::bench::{formed, profile, Bench, MS};
use super::*;
use crate::error::{Error, Failure, Status};
use crate::types::{Epoch, GroupId};
use crate::wire::{self, Blob, GroupWish, LinkBeat, MakeGroup, StoreOperation};
use std::sync::Arc;

fn add(ask: Ask) -> Command {
    let (operation, keys) = (StoreOperation::Add, vec![Blob::new(*b"a")]);
    Command::Store { ask, operation, keys, delta: 1, expected_bytes: 0, value: Blob::new([]) }
}

fn stored(bench: &Bench) -> Vec<(Ask, Status, String)> {
    let answer = |event| match event {
        Event::Stored(ask, Err(error)) => Some((ask, Error::status(&error), Error::message(&error).to_owned())),
        _ => None,
    };
    bench.told().into_iter().filter_map(answer).collect()
}

#[test]
fn store_requests_end_a_heartbeat_timeout_after_the_scheduler_was_heard_last() {
    let mut bench = Bench::joined();
    bench.pass(400, true);
    bench.command(add(1));
    bench.feed(Input::Closed("reset".to_owned()));
    bench.command(add(2));
    bench.pass_unreachable(900);
    assert_eq!(stored(&bench), []);
    bench.pass_unreachable(200);
    let why =
        "the scheduler at 10.0.0.1:8118 has not been heard for 1.0 s (connection refused), and without recovery its \
               store does not come back";
    assert_eq!(stored(&bench), [(1, Status::Unreachable, why.to_owned()), (2, Status::Unreachable, why.to_owned())]);
    bench.outputs.clear();
    bench.command(add(3));
    assert_eq!(stored(&bench).len(), 1, "at once");
}

#[test]
fn what_else_listens_at_the_schedulers_port_does_not_keep_a_request_waiting() {
    let (refusal, not_ours) = ("another run".to_owned(), "it is not this job's scheduler: another run");
    for (answer, why) in [
        (Input::Received(Message::Rejected(wire::Rejected { status: Status::Rejected, reason: refusal })), not_ours),
        (Input::Received(Message::Formed(formed(2, 1))), "it is the scheduler of another job or of another epoch"),
        (Input::Strange("it begins with \"HTTP\"".to_owned()), "it begins with \"HTTP\""),
        (Input::Refused("it shows no certificate".to_owned()), "it shows no certificate"),
    ] {
        let mut bench = Bench::joined();
        bench.pass(400, true);
        bench.command(add(1));
        bench.feed(Input::Closed("reset".to_owned()));
        bench.feed(Input::Connected(Vec::new()));
        bench.feed(answer);
        bench.pass(900, false);
        assert_eq!(stored(&bench), [], "{why}");
        bench.pass(200, false);
        let end = format!(
            "the scheduler at 10.0.0.1:8118 has not been heard for 1.0 s ({why}), and without recovery its store does not \
             come back"
        );
        assert_eq!(stored(&bench), [(1, Status::Unreachable, end)]);
        bench.command(add(2));
        assert_eq!(stored(&bench).len(), 2, "at once");
    }
}

#[test]
fn the_warning_says_what_becomes_of_calls_that_need_the_scheduler() {
    for (mut bench, they) in [(Bench::joined(), "fail"), (Bench::joined_with_recovery(), "wait")] {
        bench.feed(Input::Closed("reset".to_owned()));
        bench.pass_unreachable(3_000);
        let (lines, end) = (bench.warnings(), format!("those of the store, {they}"));
        assert!(lines.len() == 1 && lines[0].contains("has been away") && lines[0].ends_with(&end), "{lines:?}");
    }
}

fn make(nth: u64) -> Command {
    let wish = GroupWish::Ranks(vec![0]);
    Command::MakeGroup(MakeGroup { parent: GroupId::WORLD, nth, sequence: nth, digest: 0, wish })
}

fn not_made(bench: &Bench) -> Vec<(GroupId, u64, Status, String)> {
    let answer = |event| match event {
        Event::NotMade(parent, nth, error) => Some((parent, nth, Error::status(&error), error.message().to_owned())),
        _ => None,
    };
    bench.told().into_iter().filter_map(answer).collect()
}

#[test]
fn what_groups_were_to_be_made_end_a_heartbeat_timeout_after_the_scheduler_was_heard_last() {
    let mut bench = Bench::joined();
    bench.pass(400, true);
    bench.command(make(1));
    bench.feed(Input::Closed("reset".to_owned()));
    bench.pass_unreachable(900);
    assert_eq!(not_made(&bench), []);
    bench.pass_unreachable(200);
    let why =
        "the scheduler at 10.0.0.1:8118 has not been heard for 1.0 s (connection refused), and without recovery no \
               group can be made any more";
    let unreachable = |nth| (GroupId::WORLD, nth, Status::Unreachable, why.to_owned());
    assert_eq!(not_made(&bench), [unreachable(1)]);
    bench.outputs.clear();
    bench.command(make(2));
    assert_eq!(not_made(&bench).len(), 1, "at once");
    assert_eq!(bench.agent.asks.again(), [], "nothing of it is asked again");
}

#[test]
fn with_recovery_store_requests_and_groups_wait_for_the_scheduler() {
    let mut bench = Bench::joined_with_recovery();
    bench.command(add(1));
    bench.command(make(1));
    bench.feed(Input::Closed("reset".to_owned()));
    bench.pass_unreachable(20_000);
    assert_eq!((stored(&bench), not_made(&bench)), (Vec::new(), Vec::new()));
}

/// One of two nodes: the one with the index 1, whose peer 0 would keep the watch.
fn one_of_two(recovery: bool) -> Bench {
    let mut profile = profile();
    profile.register.recovery = recovery;
    profile.register.node_id = "1".to_owned();
    profile.register.worker_num = 2;
    let mut bench = Bench { agent: Agent::new(profile, Time(0)), ..Bench::new() };
    bench.outputs.clear();
    bench.drain();
    bench.feed(Input::Connected(Vec::new()));
    bench.receive(Message::Formed(formed_of_two(1)));
    bench.outputs.clear();
    bench
}

/// What it is told of an epoch.
fn formed_of_two(epoch: u64) -> wire::Formed {
    let member = |index: u32| {
        let member = wire::Member::clone(&formed(1, 1).members[0]);
        Arc::new(wire::Member { index, rank: index, node_id: index.to_string(), ..member })
    };
    let members = wire::Members::new(vec![member(0), member(1)]);
    wire::Formed { index: 1, rank: 1, worker_num: 2, members, ..formed(1, epoch) }
}

fn to_peer(bench: &Bench) -> Vec<String> {
    let what = |output: &Output| match output {
        Output::Peer(peer, what) => Some(format!("{peer}: {what:?}")),
        _ => None,
    };
    bench.outputs.iter().filter_map(what).collect()
}

#[test]
fn a_node_that_has_its_scheduler_watches_nobody() {
    let mut bench = one_of_two(false);
    bench.pass(5000, true);
    assert_eq!(to_peer(&bench), [""; 0]);
    bench.feed(Input::Closed("reset".to_owned()));
    assert_eq!(to_peer(&bench), ["0: Watch"]);
}

#[test]
fn a_watch_is_closed_when_both_have_their_scheduler_again() {
    let says = |has_scheduler| {
        let beat = LinkBeat { has_scheduler, asks: 0, answers: 0 };
        Input::of_peer(0, PeerSign::Says(PeerWord::Beat(beat)))
    };
    let ended = || Input::of_peer(0, PeerSign::Ended("it closed the connection".to_owned()));
    for is_first in [false, true] {
        let mut bench = one_of_two(true);
        bench.feed(Input::Closed("reset".to_owned()));
        bench.feed(Input::of_peer(0, PeerSign::Stands));
        bench.feed(says(!is_first));
        bench.outputs.clear();
        bench.feed(Input::Connected(Vec::new()));
        bench.receive(Message::Formed(formed_of_two(1)));
        if is_first {
            assert!(!to_peer(&bench).contains(&"0: Close".to_owned()), "the other needs it yet");
            bench.feed(says(true));
        }
        assert_eq!(to_peer(&bench).last().map(String::as_str), Some("0: Close"));
        bench.outputs.clear();
        bench.pass(2000, true);
        assert_eq!(to_peer(&bench), [""; 0], "there is nobody to say anything to");
        bench.feed(ended());
        bench.feed(Input::Closed("reset".to_owned()));
        assert_eq!(to_peer(&bench), ["0: Watch"], "an end in peace is no sign of a death");
    }
}

#[test]
fn a_suspect_that_answers_lives() {
    let mut bench = one_of_two(false);
    bench.feed(Input::Closed("reset".to_owned()));
    bench.feed(Input::of_peer(0, PeerSign::Stands));
    bench.command(Command::Suspect { peer: 0, evidence: "its end was closed".to_owned() });
    let says = |answers| PeerSign::Says(PeerWord::Beat(LinkBeat { has_scheduler: false, asks: 0, answers }));
    // It was asked when its watch came to stand, and again when it became a suspect.
    for answers in [0, 1] {
        bench.feed(Input::of_peer(0, says(answers)));
        assert!(!bench.told().iter().any(|event| matches!(event, Event::Peer(..))), "it may have said so before");
    }
    bench.feed(Input::of_peer(0, says(2)));
    assert!(matches!(bench.last_event(), Event::Peer(0, wire::PeerState::Alive, _)));
    bench.outputs.clear();
    bench.command(Command::Suspect { peer: 0, evidence: "its end was closed".to_owned() });
    bench.feed(Input::of_peer(0, PeerSign::Says(PeerWord::Leaves)));
    assert!(matches!(bench.last_event(), Event::Peer(0, wire::PeerState::Left, _)));
    bench.feed(Input::of_peer(0, PeerSign::Ended("it closed the connection".to_owned())));
    bench.pass_unreachable(5000);
    assert!(!bench.told().iter().any(|event| matches!(event, Event::Broken(_))), "it has left");
}

/// With recovery nobody asks about a suspect: an answer to an earlier question may have been said before it died.
#[test]
fn with_recovery_a_suspects_earlier_answer_says_nothing() {
    let mut bench = one_of_two(true);
    bench.feed(Input::Closed("reset".to_owned()));
    bench.feed(Input::of_peer(0, PeerSign::Stands));
    bench.command(Command::Suspect { peer: 0, evidence: "its end was closed".to_owned() });
    let answer = LinkBeat { has_scheduler: false, asks: 0, answers: 1 };
    bench.feed(Input::of_peer(0, PeerSign::Says(PeerWord::Beat(answer))));
    assert!(!bench.told().iter().any(|event| matches!(event, Event::Peer(..))), "nobody knows whether it lives");
}

#[test]
fn one_that_hears_nobody_is_cut_off_itself() {
    for recovery in [false, true] {
        let mut bench = one_of_two(recovery);
        bench.pass(4 * 200, false);
        assert_eq!(bench.disconnects(), 1, "the scheduler is silent");
        let unseen = Input::of_peer(0, PeerSign::Seen(Seen { process: PeerProcess::Unknown, answers: false }));
        for _ in 0..20 {
            bench.feed(unseen.clone());
            let until = Time(bench.now.0 + 20 * MS);
            while bench.armed <= until {
                bench.now = bench.now.max(bench.armed);
                bench.armed = Time::NEVER;
                bench.feed(Input::Timer);
                bench.feed(unseen.clone());
            }
            bench.now = until;
        }
        let told = bench.told().into_iter().find_map(|event| match event {
            Event::Broken(failure) | Event::CutOff(Some(failure)) => Some(failure),
            _ => None,
        });
        let failure = told.expect("it says so");
        assert_eq!((failure.status, failure.culprit.clone().and_then(|it| it.rank)), (Status::Unreachable, Some(1)));
        let cause = "has heard neither the scheduler nor any other rank for 1.0 s: it seems to be cut off itself";
        assert_eq!(failure.cause, cause);
        if recovery {
            bench.feed(Input::of_peer(0, PeerSign::Stands));
            assert!(matches!(bench.last_event(), Event::CutOff(None)), "it hears somebody again");
        }
    }
}

/// Peer 0 is suspected, and refuses; the scheduler has gone, or fell silent before that. Then `follows` happens. Returns
/// what this node says.
fn found_gone(is_silent: bool, follows: impl Fn(&mut Bench)) -> Option<(Status, Option<u32>, String)> {
    let mut bench = one_of_two(false);
    match is_silent {
        true => bench.pass(4 * 200, false),
        false => bench.feed(Input::Closed("reset".to_owned())),
    }
    bench.command(Command::Suspect { peer: 0, evidence: "its link ended".to_owned() });
    bench.feed(Input::of_peer(0, PeerSign::Refused("connection refused".to_owned())));
    follows(&mut bench);
    bench.told().into_iter().find_map(|event| match event {
        Event::Broken(failure) => Some((failure.status, failure.culprit?.rank, failure.cause)),
        _ => None,
    })
}

#[test]
fn one_that_missed_the_end_of_its_scheduler_cannot_tell_who_went_first() {
    let refuses = |bench: &mut Bench| {
        bench.feed(Input::ConnectFailed("connection refused".to_owned()));
        bench.pass_unreachable(200);
    };
    let (status, rank, cause) = found_gone(true, refuses).expect("it says so");
    assert_eq!((status, rank), (Status::Unreachable, Some(1)), "{cause}");
    let (of_itself, gone) = ("it seems to have been cut off itself", "and finds them gone");
    assert!(cause.contains(of_itself) && cause.contains(gone), "{cause}");
    let taken_by_another = |bench: &mut Bench| {
        bench.feed(Input::Connected(Vec::new()));
        let reason = "another run".to_owned();
        bench.receive(Message::Rejected(wire::Rejected { status: Status::Rejected, reason }));
        bench.pass(200, false);
    };
    let (status, rank, cause) = found_gone(true, taken_by_another).expect("it says so, too");
    assert_eq!((status, rank), (Status::Unreachable, Some(1)), "{cause}");
    assert_eq!(found_gone(true, |bench| bench.pass(200, false)), None, "the scheduler may be there");
    let is_lost = |found: Option<(Status, Option<u32>, String)>| {
        let (status, rank, cause) = found.expect("it says that the peer is lost");
        assert_eq!((status, rank), (Status::PeerLost, Some(0)), "{cause}");
    };
    is_lost(found_gone(false, refuses));
    is_lost(found_gone(true, |bench| {
        bench.feed(Input::Connected(Vec::new()));
        bench.pass(200, false);
    }));
}

#[test]
fn what_was_said_of_a_node_that_was_cut_off_does_not_outlive_the_epoch() {
    let mut bench = one_of_two(true);
    bench.feed(Input::Closed("reset".to_owned()));
    let unseen = Input::of_peer(0, PeerSign::Seen(Seen { process: PeerProcess::Unknown, answers: false }));
    for _ in 0..20 {
        bench.feed(unseen.clone());
        bench.pass_unreachable(100);
    }
    assert!(bench.told().iter().any(|event| matches!(event, Event::CutOff(Some(_)))));
    bench.outputs.clear();
    bench.feed(Input::Connected(Vec::new()));
    bench.receive(Message::Formed(formed_of_two(2)));
    assert!(bench.told().iter().any(|event| matches!(event, Event::CutOff(None))), "{:?}", bench.told());
}

/// Peer 0 gives a group up, is heard for so long after that, and is found dead: what this node is told.
fn found_dead_after(group: GroupId, ms: u64) -> Failure {
    let mut bench = one_of_two(false);
    bench.feed(Input::Closed("reset".to_owned()));
    bench.feed(Input::of_peer(0, PeerSign::Stands));
    let (status, epoch) = (Status::Aborted, Epoch(1));
    let cause = "cancelled barrier #1".to_owned();
    let failure = Failure { status, culprit: None, cause, epoch, group: Some(group), sequence: 1 };
    bench.feed(Input::of_peer(0, PeerSign::Says(PeerWord::GivesUp(failure))));
    let beat = PeerWord::Beat(LinkBeat { has_scheduler: false, asks: 0, answers: 0 });
    for _ in 0..ms / 100 {
        bench.pass_unreachable(100);
        bench.feed(Input::of_peer(0, PeerSign::Says(beat.clone())));
    }
    bench.command(Command::Suspect { peer: 0, evidence: "its end was closed".to_owned() });
    bench.feed(Input::of_peer(0, PeerSign::Ended("it closed the connection".to_owned())));
    bench.feed(Input::of_peer(0, PeerSign::Seen(Seen { process: PeerProcess::Gone, answers: true })));
    bench.pass_unreachable(500);
    let broken = |event| match event {
        Event::Broken(failure) => Some(failure),
        _ => None,
    };
    bench.told().into_iter().find_map(broken).expect("it is told")
}

#[test]
fn one_that_went_on_after_it_gave_a_made_group_up_is_found_dead() {
    let made = GroupId(9);
    assert_eq!(found_dead_after(made, 200).status, Status::Aborted, "it may have gone for that");
    assert_eq!(found_dead_after(made, 2000).status, Status::PeerLost, "it has gone on");
    assert_eq!(found_dead_after(GroupId::WORLD, 2000).status, Status::Aborted, "without world no program goes on");
}

#[test]
fn nobody_is_lost_because_this_node_has_no_descriptor() {
    let mut bench = one_of_two(false);
    bench.feed(Input::Closed("reset".to_owned()));
    for _ in 0..50 {
        bench.feed(Input::of_peer(0, PeerSign::Unable));
        bench.feed(Input::of_peer(0, PeerSign::Seen(Seen { process: PeerProcess::Lives, answers: true })));
        bench.pass_unreachable(100);
    }
    assert!(!bench.told().iter().any(|event| matches!(event, Event::Broken(_))), "{:?}", bench.told());
}

/// A node that was cut off opens a watch to nodes that have their scheduler: it hears what it has missed.
#[test]
fn one_that_looks_for_others_hears_that_the_job_has_ended_and_that_they_leave() {
    let mut bench = one_of_two(false);
    let cause = "is lost: nothing was heard from it for 1 s".to_owned();
    let (status, epoch) = (Status::PeerLost, Epoch(1));
    let failure = Failure { status, culprit: None, cause, epoch, group: None, sequence: 0 };
    bench.receive(Message::Verdict(wire::Verdict { failure: failure.clone() }));
    bench.feed(Input::of_peer(0, PeerSign::Stands));
    assert!(to_peer(&bench).contains(&format!("0: Say({:?})", PeerWord::GivesUp(failure))), "{:?}", to_peer(&bench));
    let leaves = "0: Say(Leaves)".to_owned();
    assert!(!to_peer(&bench).contains(&leaves));
    bench.feed(Input::of_peer(0, PeerSign::Ended("it closed the connection".to_owned())));
    bench.command(Command::Leave);
    assert!(!to_peer(&bench).contains(&leaves), "nobody is there to hear it");
    bench.feed(Input::of_peer(0, PeerSign::Stands));
    assert!(to_peer(&bench).contains(&leaves), "{:?}", to_peer(&bench));
}
