//! What a node tells a scheduler that was started again, and what does not upset the node.

use super::bench::{failure, formed, profile, Bench};
use super::*;
use crate::error::{Culprit, Error, Status};
use crate::types::{Epoch, GroupId, JobInstance};
use crate::wire::{
    Blob, Formed, GroupMade, GroupWish, InEpoch, Known, LostNodes, MakeGroup, Revoked, StoreOperation, StoreReply,
    Told, Verdict,
};

const MADE: GroupId = GroupId(3);

/// A member, with recovery, of a scheduler that was started so often.
fn joined(generation: u64) -> Bench {
    let mut profile = profile();
    profile.register.recovery = true;
    let mut bench = Bench { agent: Agent::new(profile, Time(0)), ..Bench::new() };
    bench.drain();
    bench.feed(Input::Connected(Vec::new()));
    bench.receive(Message::Formed(Formed { generation, ..formed(1, 1) }));
    bench.outputs.clear();
    bench
}

/// Its connection ends, and it is told this over a new one.
fn attach(bench: &mut Bench, formed: Formed) {
    bench.feed(Input::Closed("reset".to_owned()));
    bench.pass(1_000, false);
    bench.feed(Input::Connected(Vec::new()));
    bench.outputs.clear();
    bench.receive(Message::Formed(formed));
}

#[test]
fn what_it_was_told_is_brought_to_a_scheduler_that_was_started_again_and_to_no_other() {
    let mut bench = joined(1);
    let (lost, revoked) = (vec![2, 5], failure(Status::Mismatch, Some(MADE), "another call"));
    bench.receive(Message::Revoked(Revoked { failure: revoked.clone() }));
    bench.receive(Message::LostNodes(LostNodes { epoch: Epoch(1), nodes: lost.clone() }));
    let first = failure(Status::PeerLost, None, "rank 2 is lost");
    bench.receive(Message::Verdict(Verdict { failure: first.clone() }));
    let in_epoch = Message::InEpoch(InEpoch { epoch: Epoch(1) });
    attach(&mut bench, formed(1, 1));
    assert_eq!(bench.sent(), std::slice::from_ref(&in_epoch), "the same has told it");
    attach(&mut bench, Formed { generation: 2, ..formed(1, 1) });
    let known = Known { epoch: Epoch(1), failure: Some(first), lost, revoked: vec![revoked] };
    assert_eq!(bench.sent(), [in_epoch, Message::Known(known)]);
}

#[test]
fn a_revoked_group_alone_is_brought_along_too() {
    let mut bench = joined(1);
    let failure = failure(Status::Timeout, Some(GroupId::WORLD), "too late");
    bench.receive(Message::Revoked(Revoked { failure: failure.clone() }));
    attach(&mut bench, Formed { generation: 3, ..formed(1, 1) });
    let known = Known { epoch: Epoch(1), failure: None, lost: Vec::new(), revoked: vec![failure] };
    assert_eq!(bench.sent()[1..], [Message::Known(known)]);
}

#[test]
fn one_of_a_lower_generation_or_another_job_is_refused() {
    for (strange, words) in [
        (Formed { generation: 2, ..formed(1, 1) }, "start 2, after start 3 was seen"),
        (formed(2, 1), "of another job"),
    ] {
        let mut bench = joined(3);
        attach(&mut bench, strange);
        assert!(bench.sent().is_empty() && bench.disconnects() == 1, "{:?}", bench.outputs);
        assert!(bench.warnings().iter().any(|line| line.contains(words)), "{:?}", bench.warnings());
        attach(&mut bench, Formed { generation: 3, ..formed(1, 1) });
        assert!(matches!(bench.sent()[..], [Message::InEpoch(_)]), "its own is still followed: {:?}", bench.outputs);
    }
}

#[test]
fn a_node_said_to_be_lost_in_another_epoch_is_not_lost_in_this_one() {
    let mut bench = joined(1);
    bench.receive(Message::Formed(formed(1, 2)));
    bench.outputs.clear();
    bench.receive(Message::LostNodes(LostNodes { epoch: Epoch(1), nodes: vec![2] }));
    assert!(bench.told().is_empty(), "{:?}", bench.told());
    bench.receive(Message::LostNodes(LostNodes { epoch: Epoch(2), nodes: vec![1] }));
    assert!(matches!(&bench.told()[..], [Event::Lost(nodes)] if *nodes == [1]));
}

#[test]
fn an_abort_that_nobody_has_answered_outlives_the_epoch_and_the_scheduler() {
    let mut bench = joined(1);
    bench.feed(Input::Closed("reset".to_owned()));
    bench.command(Command::Abort { code: 7, reason: "enough".to_owned() });
    attach(&mut bench, Formed { generation: 2, ..formed(1, 2) });
    let abort =
        |message: &Message| matches!(message, Message::Abort(abort) if abort.code == 7 && abort.reason == "enough");
    assert_eq!(bench.sent().iter().filter(|message| abort(message)).count(), 1, "{:?}", bench.sent());
}

#[test]
fn what_needs_the_scheduler_waits_for_it_and_is_asked_on_each_connection_until_it_answers() {
    let mut bench = joined(1);
    bench.feed(Input::Closed("reset".to_owned()));
    let wish = GroupWish::Ranks(vec![0]);
    let group = MakeGroup { parent: GroupId::WORLD, nth: 1, sequence: 1, digest: 0, wish };
    bench.command(Command::MakeGroup(group.clone()));
    bench.command(Command::Locate(1, 2000));
    bench.command(Command::Recover(true));
    assert!(bench.sent().is_empty() && !bench.told().iter().any(|event| !matches!(event, Event::SchedulerAway(_))));
    for generation in 2..4 {
        attach(&mut bench, Formed { generation, ..formed(1, 1) });
        let sent = bench.sent();
        let is_asked = |wanted: fn(&Message) -> bool| sent.iter().filter(|message| wanted(message)).count() == 1;
        assert!(sent.contains(&Message::MakeGroup(group.clone())), "{sent:?}");
        assert!(is_asked(|message| matches!(message, Message::Locate(locate) if locate.index == 2000)), "{sent:?}");
        assert!(is_asked(|message| matches!(message, Message::Recover(wish) if wish.inside)), "{sent:?}");
    }
}

#[test]
fn what_it_was_told_is_brought_with_the_registration_the_newest_of_each_kind() {
    let mut bench = joined(1);
    let registers = |bench: &mut Bench| {
        bench.feed(Input::Closed("reset".to_owned()));
        bench.pass(1_000, false);
        bench.outputs.clear();
        bench.feed(Input::Connected(Vec::new()));
        let [Message::Register(register)] = &bench.sent()[..] else { panic!("{:?}", bench.sent()) };
        (register.instance, register.told.clone())
    };
    let instance = Some(JobInstance([1; 16]));
    assert_eq!(registers(&mut bench), (instance, Told { epoch: Epoch(1), change: 0, group: 0 }));
    bench.receive(Message::Formed(formed(1, 1)));
    for (change, group) in [(0, None), (5, Some(MADE)), (4, None), (0, Some(GroupId(2)))] {
        let (status, reason) = (0, String::new());
        bench.receive(Message::StoreReply(StoreReply {
            request: 9,
            status,
            reason,
            number: 0,
            change,
            value_bytes: 0,
        }));
        bench.receive(Message::GroupMade(GroupMade { parent: GroupId::WORLD, nth: 1, group, members: vec![0] }));
    }
    let told = Told { epoch: Epoch(1), change: 5, group: MADE.0 };
    assert_eq!(registers(&mut bench), (instance, told.clone()));
    bench.receive(Message::Formed(formed(1, 2)));
    assert_eq!(registers(&mut bench), (instance, Told { epoch: Epoch(2), ..told }), "it is the same life");
}

#[test]
fn the_store_of_one_that_is_put_out_answers_nobody_any_more_and_keeps_nobody_waiting() {
    let mut bench = joined(1);
    let get = |ask| Command::Store {
        ask,
        operation: StoreOperation::Get,
        keys: vec![Blob::new(&b"k"[..])],
        delta: 0,
        expected_bytes: 0,
        value: Blob::new(Vec::new()),
    };
    bench.command(get(1));
    bench.outputs.clear();
    bench.receive(Message::Verdict(Verdict { failure: failure(Status::Fenced, None, "was given up") }));
    let failed = |event: &Event, of| {
        let is_told = |error: &Error| error.status() == Status::Fenced && error.message().contains("given up");
        matches!(event, Event::Stored(ask, Err(error)) if *ask == of && is_told(error))
    };
    assert!(bench.told().iter().any(|event| failed(event, 1)), "{:?}", bench.told());
    bench.outputs.clear();
    bench.command(get(2));
    assert!(bench.told().iter().any(|event| failed(event, 2)) && bench.sent().is_empty(), "{:?}", bench.outputs);
}

/// What others say when this node is lost.
fn own_loss() -> Failure {
    let own = profile().register;
    let culprit = Culprit {
        role: own.role,
        rank: Some(0),
        node_id: own.node_id,
        host: own.host.name,
        pid: own.process.pid,
        last_call: None,
    };
    Failure { culprit: Some(culprit), ..failure(Status::PeerLost, None, "is lost: it was silent") }
}

#[test]
fn the_verdict_on_this_node_counts_whoever_brings_it_and_what_a_peer_believes_does_not() {
    let other = Culprit { node_id: "1".to_owned(), ..own_loss().culprit.unwrap() };
    for untold in [
        Failure { group: Some(GroupId::WORLD), ..own_loss() },
        Failure { epoch: Epoch(2), ..own_loss() },
        Failure { culprit: Some(other), ..own_loss() },
        Failure { status: Status::Timeout, ..own_loss() },
    ] {
        let mut bench = joined(1);
        bench.command(Command::CalledLost(untold.clone()));
        assert!(bench.outputs.is_empty(), "{untold}: {:?}", bench.outputs);
    }
    let is_fenced = |first: &Failure| *first == own_loss().to_the_lost() && first.status == Status::Fenced;
    let mut bench = Bench::joined();
    bench.command(Command::CalledLost(own_loss()));
    assert!(matches!(&bench.told()[..], [Event::Broken(first)] if is_fenced(first)), "{:?}", bench.told());

    let mut bench = joined(1);
    bench.command(Command::CalledLost(own_loss()));
    assert!(matches!(&bench.told()[..], [Event::Broken(first)] if is_fenced(first)), "{:?}", bench.told());
    assert_eq!(bench.disconnects(), 1, "it is put out");
    bench.outputs.clear();
    bench.command(Command::Recover(true));
    assert!(matches!(&bench.told()[..], [Event::NotRecovered(first)] if is_fenced(first)), "{:?}", bench.told());
    bench.pass(60_000, false);
    assert_eq!(bench.attempts(), 0);
}
