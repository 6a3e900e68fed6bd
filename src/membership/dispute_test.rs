use super::super::revoking::tests::{enters, revoked, ALLREDUCE, BARRIER};
use super::super::testing::Bench;
use crate::error::{Failure, Status};
use crate::membership::Closed;
use crate::types::{Call, CallKind, Epoch, GroupId};
use crate::wire::{AskCall, Called, Message, Recover, Revoke};
use std::time::Duration;

const REDUCE: Call = Call { kind: CallKind::Reduce, root: Some(0), ..ALLREDUCE };
const HOSTS: [&str; 4] = ["here", "there", "there", "there"];

/// The question that this rank is asked, if it is asked one.
fn asked(bench: &mut Bench, conn: u64) -> Option<AskCall> {
    bench.told(conn).into_iter().find_map(|message| match message {
        Message::AskCall(asked) => Some(asked),
        _ => None,
    })
}

fn answers(bench: &mut Bench, conn: u64, sequence: u64, call: Option<Call>) {
    let asked = asked(bench, conn).unwrap_or_else(|| panic!("rank {conn} is not asked"));
    assert_eq!(asked, AskCall { group: GroupId::WORLD, sequence });
    bench.say(conn, Message::Called(Called { group: GroupId::WORLD, sequence, call }));
}

fn named(failure: &Failure) -> Option<u32> {
    failure.culprit.as_ref().and_then(|culprit| culprit.rank)
}

/// The first cause, which all ranks are told.
fn told_all(bench: &mut Bench, size: u64) -> Failure {
    let told: Vec<Vec<Failure>> = (0..size).map(|conn| revoked(bench, conn)).collect();
    assert!(told.iter().all(|one| one.len() == 1 && *one == told[0]), "{told:?}");
    told[0][0].clone()
}

fn in_words(rank: u32) -> String {
    let host = if rank == 0 { "here" } else { "there" };
    format!("rank {rank} (node id \"{rank}\", host {host}, pid {})", 1000 + rank)
}

#[test]
fn a_rank_that_made_another_call_than_most_is_named() {
    for odd in 0..4 {
        let mut bench = Bench::formed(&HOSTS);
        let of = |rank: u64| if rank == odd { BARRIER } else { ALLREDUCE };
        let (first, second) = ((odd + 1) % 4, odd);
        enters(&mut bench, first, GroupId::WORLD, 7, of(first));
        enters(&mut bench, second, GroupId::WORLD, 7, of(second));
        assert_eq!(revoked(&mut bench, 0).len() + revoked(&mut bench, 1).len(), 0, "the odd rank is not known yet");
        bench.sent.clear();
        // Those two have told their calls already: only the others are asked. Here they were asked before the queue was
        // looked at.
        for rank in (0..4).filter(|rank| ![first, second].contains(rank)) {
            bench.say(rank, Message::Called(Called { group: GroupId::WORLD, sequence: 7, call: Some(of(rank)) }));
        }
        let failure = told_all(&mut bench, 4);
        assert_eq!((failure.status, failure.sequence, failure.group), (Status::Mismatch, 7, Some(GroupId::WORLD)));
        assert_eq!(named(&failure), Some(odd as u32));
        let sentence = format!(
            "3 of 4 ranks called allreduce(count 4, float32, sum) as collective #7 on world, {} called barrier()",
            in_words(odd as u32)
        );
        assert_eq!((failure.to_string(), &failure.cause), (sentence.clone(), &sentence));
    }
}

#[test]
fn of_several_the_lowest_rank_is_named_and_the_sentence_names_all() {
    let mut bench = Bench::formed(&["here", "there", "there", "there", "there"]);
    enters(&mut bench, 4, GroupId::WORLD, 1, BARRIER);
    enters(&mut bench, 0, GroupId::WORLD, 1, ALLREDUCE);
    answers(&mut bench, 3, 1, Some(ALLREDUCE));
    answers(&mut bench, 2, 1, Some(ALLREDUCE));
    answers(&mut bench, 1, 1, Some(REDUCE));
    let failure = told_all(&mut bench, 5);
    assert_eq!(named(&failure), Some(1));
    let sentence = format!(
        "3 of 5 ranks called {ALLREDUCE} as collective #1 on world, {} called {REDUCE}, {} called {BARRIER}",
        in_words(1),
        in_words(4)
    );
    assert_eq!(failure.to_string(), sentence);
}

#[test]
fn without_a_strict_majority_nobody_is_named() {
    // Two of four called each; or two called one and one the other, while the last has called nothing yet, does not answer,
    // or is gone.
    for (third, fourth) in
        [(ALLREDUCE, Some(Some(BARRIER))), (ALLREDUCE, Some(None)), (ALLREDUCE, None), (REDUCE, None)]
    {
        let mut bench = Bench::formed(&HOSTS);
        enters(&mut bench, 1, GroupId::WORLD, 7, BARRIER);
        enters(&mut bench, 0, GroupId::WORLD, 7, ALLREDUCE);
        answers(&mut bench, 2, 7, Some(third));
        assert_eq!(revoked(&mut bench, 0), []);
        if let Some(call) = fourth {
            answers(&mut bench, 3, 7, call);
        }
        if fourth.flatten().is_none() {
            bench.pass(Duration::from_millis(99));
            assert_eq!(revoked(&mut bench, 0), [], "it may still call it");
            bench.pass(Duration::from_millis(1));
        }
        let failure = told_all(&mut bench, 4);
        assert_eq!(failure.culprit, None);
        let sentence =
            format!("{} called {ALLREDUCE}, {} called {BARRIER} as collective #7 on world", in_words(0), in_words(1));
        assert_eq!(failure.to_string(), sentence);
    }
    // Among two ranks neither is a majority.
    let mut bench = Bench::formed(&["here", "there"]);
    enters(&mut bench, 1, GroupId::WORLD, 7, BARRIER);
    enters(&mut bench, 0, GroupId::WORLD, 7, ALLREDUCE);
    assert_eq!(told_all(&mut bench, 2).culprit, None, "and nobody is waited for");
}

/// A member that has not called yet when it is asked is asked again.
#[test]
fn one_that_calls_a_moment_later_counts() {
    let mut bench = Bench::formed(&HOSTS);
    enters(&mut bench, 1, GroupId::WORLD, 7, BARRIER);
    enters(&mut bench, 0, GroupId::WORLD, 7, ALLREDUCE);
    answers(&mut bench, 2, 7, Some(ALLREDUCE));
    for _ in 0..3 {
        answers(&mut bench, 3, 7, None);
        assert_eq!(asked(&mut bench, 3), None, "not at once");
        bench.pass(Duration::from_millis(20));
    }
    answers(&mut bench, 3, 7, Some(ALLREDUCE));
    assert_eq!(named(&told_all(&mut bench, 4)), Some(1));
    // If most have said the same, nobody waits for a rank that has not.
    let mut bench = Bench::formed(&HOSTS);
    enters(&mut bench, 1, GroupId::WORLD, 7, BARRIER);
    enters(&mut bench, 0, GroupId::WORLD, 7, BARRIER);
    enters(&mut bench, 2, GroupId::WORLD, 7, ALLREDUCE);
    enters(&mut bench, 3, GroupId::WORLD, 7, BARRIER);
    assert_eq!(named(&told_all(&mut bench, 4)), Some(2));
}

fn gives_up(bench: &mut Bench, conn: u64, status: Status, sequence: u64) -> Failure {
    let cause = format!("rank {conn} gives up");
    let (epoch, group) = (Epoch(1), Some(GroupId::WORLD));
    let failure = Failure { status, culprit: None, cause, epoch, group, sequence };
    bench.say(conn, Message::Revoke(Revoke { failure: failure.clone() }));
    failure
}

/// The ranks that met on a link are not the ones who know which of them is wrong.
#[test]
fn a_rank_that_gives_up_over_a_frame_hears_which_rank_was_wrong() {
    let mut bench = Bench::formed(&HOSTS);
    gives_up(&mut bench, 1, Status::Mismatch, 3);
    gives_up(&mut bench, 0, Status::Mismatch, 3);
    gives_up(&mut bench, 2, Status::Timeout, 3);
    for (rank, call) in [(0, ALLREDUCE), (1, BARRIER), (2, ALLREDUCE)] {
        answers(&mut bench, rank, 3, Some(call));
    }
    assert_eq!(revoked(&mut bench, 0), []);
    answers(&mut bench, 3, 3, Some(ALLREDUCE));
    assert_eq!(named(&told_all(&mut bench, 4)), Some(1));
    // If all called the same, the reason was something else.
    let mut bench = Bench::formed(&HOSTS);
    let own = gives_up(&mut bench, 1, Status::Mismatch, 3);
    (0..3).for_each(|rank| answers(&mut bench, rank, 3, Some(ALLREDUCE)));
    bench.pass(Duration::from_millis(100));
    assert_eq!(told_all(&mut bench, 4), own);
}

/// The issue's own case: a reduce had returned before another rank's barrier, and its rank has left.
#[test]
fn one_that_has_left_is_not_only_said_to_have_left_where_it_called_something_else() {
    for tells_in_time in [true, false] {
        let mut bench = Bench::formed(&HOSTS);
        let farewell = |bench: &mut Bench| {
            enters(bench, 1, GroupId::WORLD, 1, REDUCE);
            bench.say(1, Message::Leave);
            bench.told(1);
        };
        if tells_in_time {
            farewell(&mut bench);
        }
        gives_up(&mut bench, 2, Status::PeerLeft, 1);
        for rank in [0, 2, 3] {
            answers(&mut bench, rank, 1, Some(BARRIER));
        }
        if !tells_in_time {
            assert_eq!(revoked(&mut bench, 0), [], "that it leaves was heard on a link first");
            farewell(&mut bench);
        }
        let told: Vec<Failure> = revoked(&mut bench, 0);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].status, named(&told[0])), (Status::Mismatch, Some(1)), "{}", told[0]);
        let sentence =
            format!("3 of 4 ranks called {BARRIER} as collective #1 on world, {} called {REDUCE}", in_words(1));
        assert_eq!(told[0].to_string(), sentence);
        assert_eq!([2, 3].map(|conn| revoked(&mut bench, conn)), [told.clone(), told]);
    }
    // If it called the same, or nothing, the only thing to say is that it has left.
    let mut bench = Bench::formed(&HOSTS);
    bench.say(1, Message::Leave);
    let own = gives_up(&mut bench, 2, Status::PeerLeft, 1);
    for rank in [0, 2, 3] {
        answers(&mut bench, rank, 1, Some(BARRIER));
    }
    assert_eq!(revoked(&mut bench, 0), [own]);
}

/// The collective in which they differed is found by what the rank called before that needs the one that left.
#[test]
fn the_difference_may_lie_before_the_collective_that_needs_one_who_left() {
    let mut bench = Bench::formed(&HOSTS);
    gives_up(&mut bench, 2, Status::PeerLeft, 2);
    enters(&mut bench, 1, GroupId::WORLD, 1, REDUCE);
    enters(&mut bench, 2, GroupId::WORLD, 1, BARRIER); // of the last two that it tells of
    answers(&mut bench, 2, 2, Some(BARRIER));
    for rank in [0, 3] {
        let asked = asked(&mut bench, rank).expect("it is asked of #2 first");
        assert_eq!(asked.sequence, 2);
        bench.say(rank, Message::Called(Called { group: GroupId::WORLD, sequence: 2, call: None }));
        bench.say(rank, Message::Called(Called { group: GroupId::WORLD, sequence: 1, call: Some(BARRIER) }));
    }
    let told = revoked(&mut bench, 0);
    assert_eq!((told[0].status, named(&told[0]), told[0].sequence), (Status::Mismatch, Some(1), 1));
}

#[test]
fn what_ends_the_cluster_meanwhile_comes_after_it() {
    // What ends the groups: a loss, an abort, and the wish for the next epoch.
    for what in 0..3 {
        let mut bench = Bench::formed(&HOSTS);
        enters(&mut bench, 1, GroupId::WORLD, 7, BARRIER);
        enters(&mut bench, 0, GroupId::WORLD, 7, ALLREDUCE);
        bench.sent.clear();
        match what {
            0 => bench.say(3, Message::Gone),
            1 => bench.say(3, Message::Abort(crate::wire::Abort { code: 1, reason: "over".to_owned() })),
            _ => bench.say(3, Message::Recover(Recover { epoch: Epoch(1), inside: true })),
        }
        let told = bench.told(0);
        let first = told.iter().find_map(|message| match message {
            Message::Revoked(revoked) => Some(revoked.failure.status),
            Message::Verdict(_) => Some(Status::Ok),
            _ => None,
        });
        assert_eq!(first, Some(Status::Mismatch), "{what}: {told:?}");
        let of_world = |message: &&Message| matches!(message, Message::Revoked(revoked) if revoked.failure.group == Some(GroupId::WORLD));
        assert_eq!(told.iter().filter(of_world).count(), 1, "{what}: {told:?}");
        bench.pass(Duration::from_millis(200));
        assert_eq!(revoked(&mut bench, 0), [], "once");
    }
}

#[test]
fn a_member_that_ends_is_not_waited_for() {
    let mut bench = Bench::formed(&HOSTS);
    enters(&mut bench, 1, GroupId::WORLD, 7, BARRIER);
    enters(&mut bench, 0, GroupId::WORLD, 7, ALLREDUCE);
    answers(&mut bench, 2, 7, Some(ALLREDUCE));
    bench.close(3, Closed::Broken);
    let told = revoked(&mut bench, 0);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].culprit, None, "two of four are not most");
}
