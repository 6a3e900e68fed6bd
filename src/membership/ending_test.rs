use crate::error::{Failure, Status};
use crate::membership::testing::{rules, worker, Bench};
use crate::membership::{Closed, Input, Liveness};
use crate::types::{Epoch, GroupId};
use crate::wire::{Abort, Known, Message, Suspect};
use std::time::Duration;

#[test]
fn the_job_is_done_when_the_last_has_left() {
    let mut bench = Bench::formed(&["here", "there"]);
    bench.say(0, Message::Leave);
    assert_eq!(bench.told(0), [Message::Bye]);
    bench.close(0, Closed::Ended);
    assert!(bench.ended.is_none());
    bench.say(1, Message::Leave);
    assert_eq!(bench.told(1), [Message::Bye]);
    assert_eq!(bench.ended, Some(Ok(())));
    assert!(bench.lines.is_empty(), "{:?}", bench.lines);
}

#[test]
fn leaving_while_forming_frees_the_place() {
    let mut bench = Bench::new(rules(2, 0));
    bench.join(1, worker(1, 2));
    bench.say(1, Message::Leave);
    assert_eq!(bench.told(1), [Message::Bye]);
    bench.join(2, worker(2, 2));
    bench.join(3, worker(3, 2));
    assert_eq!(bench.formed_message(2).rank, 0);
    assert_eq!(bench.formed_message(3).rank, 1);
}

#[test]
fn an_abort_names_rank_code_and_reason() {
    let mut bench = Bench::formed(&["here", "there", "there"]);
    bench.say(1, Message::Abort(Abort { code: 3, reason: "loss is NaN".to_string() }));
    for conn in [0, 2] {
        let failure = bench.verdict(conn).expect("told");
        assert_eq!(failure.status, Status::Aborted);
        assert_eq!(
            failure.to_string(),
            "rank 1 (node id \"1\", host there, pid 1001) aborted the job with code 3: loss is NaN"
        );
    }
    // A node that closes now is a consequence.
    bench.close(0, Closed::Ended);
    bench.close(1, Closed::Ended);
    assert!(bench.ended.is_none());
    bench.say(2, Message::Leave);
    bench.pass(Duration::from_millis(100));
    let error = bench.ended.clone().expect("ended").expect_err("with the abort");
    assert_eq!(error.status(), Status::Aborted);
    assert_eq!(bench.lines.len(), 1, "{:?}", bench.lines);
}

#[test]
fn an_abort_without_a_reason_says_so() {
    let mut bench = Bench::formed(&["here", "there"]);
    bench.say(1, Message::Abort(Abort { code: 3, reason: String::new() }));
    let failure = bench.verdict(0).expect("told").to_string();
    assert!(failure.ends_with("aborted the job with code 3, without a reason"), "{failure}");
}

#[test]
fn a_node_that_says_that_it_ends_without_leaving_is_lost() {
    let mut bench = Bench::formed(&["there", "there", "there"]);
    bench.say(1, Message::Gone);
    let failure = bench.verdict(0).expect("told at once");
    assert_eq!(
        failure.to_string(),
        "rank 1 (node id \"1\", host there, pid 1001) is lost: it freed its cluster without leaving it first \
         (muster_finalize)"
    );
    // A consequence waits for its cause here too.
    let mut bench = Bench::formed(&["there", "there", "there"]);
    bench.say(0, Message::Suspect(Suspect { peer: 1, evidence: "reset".to_string() }));
    bench.say(0, Message::Gone);
    assert_eq!(bench.verdict(2), None);
    bench.close(1, Closed::Ended);
    bench.pass(Duration::from_millis(60));
    assert_eq!(bench.verdict(2).and_then(|failure| failure.culprit).and_then(|culprit| culprit.rank), Some(1));
    // While forming it frees its place.
    let mut bench = Bench::new(rules(2, 0));
    bench.join(1, worker(1, 2));
    bench.say(1, Message::Gone);
    bench.join(2, worker(2, 2));
    bench.join(3, worker(3, 2));
    assert_eq!(bench.formed_message(3).rank, 1);
}

#[test]
fn an_abort_while_forming_ends_it_for_all() {
    let mut bench = Bench::new(rules(3, 0));
    bench.join(1, worker(1, 3));
    bench.join(2, worker(2, 3));
    bench.say(1, Message::Abort(Abort { code: -1, reason: "no".to_string() }));
    assert_eq!(bench.rejected(2).0, Status::Aborted);
    assert!(bench.ended.is_some());
}

#[test]
fn survivors_have_a_while_and_no_longer() {
    let mut bench = Bench::formed(&["here", "here"]);
    bench.close(0, Closed::Ended);
    let process = bench.probes[0];
    bench.feed(Input::Probed(process, Liveness::Gone));
    assert_eq!(bench.verdict(1).map(|failure| failure.status), Some(Status::PeerLost));
    bench.pass(Duration::from_millis(4_900));
    assert!(bench.ended.is_none());
    bench.pass(Duration::from_millis(200));
    assert_eq!(bench.ended.clone().expect("ended").expect_err("lost").status(), Status::PeerLost);
}

#[test]
fn stopped_by_its_program() {
    let mut bench = Bench::formed(&["here", "here"]);
    bench.feed(Input::Stop);
    let failure = bench.verdict(1).expect("told");
    assert_eq!(
        (failure.status, failure.to_string().as_str()),
        (Status::Aborted, "the scheduler was stopped by its program")
    );
    assert!(bench.ended.is_some());

    let mut bench = Bench::new(rules(2, 0));
    bench.join(1, worker(1, 2));
    bench.feed(Input::Stop);
    assert_eq!(bench.rejected(1), (Status::Aborted, "the scheduler was stopped by its program".to_string()));
    assert!(bench.ended.is_some());
}

#[test]
fn a_scheduler_that_was_not_started_again_hears_only_of_an_abort() {
    let mut bench = Bench::formed(&["here", "there", "there"]);
    let failure = |status| {
        let (culprit, cause) = (None, "it says so".to_owned());
        Failure { status, culprit, cause, epoch: Epoch(1), group: None, sequence: 0 }
    };
    let lost = Some(failure(Status::PeerLost));
    let known = |failure, revoked| Message::Known(Known { epoch: Epoch(1), failure, lost: vec![2], revoked });
    bench.say(0, known(lost, Vec::new()));
    assert!(bench.scheduler.conductor.cluster.nodes.lost().is_empty() && bench.verdict(1).is_none());
    // Of the group of servers a worker is no member.
    let revoked = vec![Failure { group: Some(GroupId::SERVERS), ..failure(Status::Mismatch) }];
    bench.say(0, known(None, revoked));
    assert!(!bench.scheduler.conductor.groups.is_revoked(GroupId::SERVERS));
    let aborted = Some(failure(Status::Aborted));
    bench.say(0, known(aborted.clone(), Vec::new()));
    assert_eq!(bench.verdict(1), aborted);
    assert!(bench.scheduler.conductor.cluster.nodes.lost().is_empty());
}
