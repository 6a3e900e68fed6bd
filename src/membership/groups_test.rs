use crate::error::{Failure, Status};
use crate::membership::testing::{rules, worker, Bench};
use crate::membership::Closed;
use crate::types::{Call, CallKind, Epoch, GroupId};
use crate::wire::{
    Abort, FreeGroup, GroupFreed, GroupMade, GroupProgress, GroupWish, Heartbeat, MakeGroup, Message, Revoke, Revoked,
};
use std::time::Duration;

/// A cluster of so many workers, whose connections have the numbers of their ranks.
fn cluster(workers: u32) -> Bench {
    let mut bench = Bench::new(rules(workers, 0));
    for serial in 0..workers {
        bench.join(u64::from(serial), worker(serial, workers));
    }
    bench.sent.clear();
    bench
}

fn ask(bench: &mut Bench, rank: u32, creation: (GroupId, u64), wish: GroupWish) {
    ask_after(bench, rank, creation, 0, wish);
}

fn ask_after(bench: &mut Bench, rank: u32, (parent, nth): (GroupId, u64), digest: u32, wish: GroupWish) {
    bench.say(u64::from(rank), Message::MakeGroup(MakeGroup { parent, nth, sequence: nth, digest, wish }));
}

fn ranks(ranks: &[u32]) -> GroupWish {
    GroupWish::Ranks(ranks.to_vec())
}

/// What a rank has been told of groups.
fn made(bench: &mut Bench, rank: u32) -> Vec<(u64, Option<GroupId>, Vec<u32>)> {
    let told = |message| match message {
        Message::GroupMade(GroupMade { nth, group, members, .. }) => Some((nth, group, members)),
        _ => None,
    };
    bench.told(u64::from(rank)).into_iter().filter_map(told).collect()
}

fn revoked(bench: &mut Bench, rank: u32) -> Vec<(Status, String)> {
    let told = |message| match message {
        Message::Revoked(Revoked { failure }) => Some((failure.status, failure.to_string())),
        _ => None,
    };
    bench.told(u64::from(rank)).into_iter().filter_map(told).collect()
}

#[test]
fn all_get_the_same_group_when_the_last_has_asked() {
    let mut bench = cluster(3);
    for rank in [2, 0] {
        ask(&mut bench, rank, (GroupId::WORLD, 1), ranks(&[2, 1]));
    }
    assert!(bench.sent.is_empty(), "one is missing");
    ask(&mut bench, 1, (GroupId::WORLD, 1), ranks(&[2, 1]));
    assert_eq!(made(&mut bench, 0), [(1, None, vec![])]);
    for rank in [1, 2] {
        assert_eq!(made(&mut bench, rank), [(1, Some(GroupId(3)), vec![2, 1])]);
    }
    // A node that asks again, after a broken connection, gets the same answer; nobody else is told.
    ask(&mut bench, 2, (GroupId::WORLD, 1), ranks(&[2, 1]));
    assert_eq!(made(&mut bench, 2), [(1, Some(GroupId(3)), vec![2, 1])]);
    assert!(bench.sent.is_empty());
}

#[test]
fn a_group_can_be_split_and_made_of_a_made_one() {
    let mut bench = cluster(5);
    let wishes = [(Some(7), 1), (Some(0), 5), (Some(7), 0), (None, 0), (Some(7), 1)];
    for (rank, (colour, key)) in (0..).zip(wishes) {
        ask(&mut bench, rank, (GroupId::WORLD, 1), GroupWish::Colour { colour, key });
    }
    assert_eq!(made(&mut bench, 1), [(1, Some(GroupId(3)), vec![1])]);
    assert_eq!(made(&mut bench, 3), [(1, None, vec![])]);
    for rank in [0, 2, 4] {
        assert_eq!(made(&mut bench, rank), [(1, Some(GroupId(4)), vec![2, 0, 4])]);
    }
    for rank in [4, 2, 0] {
        ask(&mut bench, rank, (GroupId(4), 1), ranks(&[2, 0]));
    }
    assert_eq!(made(&mut bench, 4), [(1, Some(GroupId(5)), vec![4, 2])], "ranks are the parent's");
    assert_eq!(made(&mut bench, 0), [(1, None, vec![])]);
}

#[test]
fn another_list_or_a_rank_that_left_revokes_the_parent() {
    let mut bench = cluster(3);
    ask(&mut bench, 0, (GroupId::WORLD, 1), ranks(&[0, 1]));
    ask(&mut bench, 1, (GroupId::WORLD, 1), ranks(&[1, 0]));
    bench.pass(Duration::from_millis(100)); // in which rank 2 could say what it called
    for rank in 0..3 {
        let told = revoked(&mut bench, rank);
        assert!(
            matches!(&told[..], [(Status::Mismatch, words)] if words.contains("rank 0") && words.contains("rank 1"))
        );
    }
    bench.say(2, Message::Leave);
    assert!(revoked(&mut bench, 0).is_empty(), "the first cause stays");
    let mut bench = cluster(3);
    ask(&mut bench, 0, (GroupId::WORLD, 1), ranks(&[0, 1]));
    bench.say(2, Message::Leave);
    for rank in 0..2 {
        let told = revoked(&mut bench, rank);
        assert!(
            matches!(&told[..], [(Status::PeerLeft, words)] if words.contains("group_create #1 on world")),
            "{told:?}"
        );
    }
    let mut bench = cluster(3);
    bench.say(2, Message::Leave);
    ask(&mut bench, 0, (GroupId::WORLD, 1), ranks(&[0, 1]));
    assert!(matches!(&revoked(&mut bench, 1)[..], [(Status::PeerLeft, _)]), "it has left before");
}

#[test]
fn what_makes_no_sense_is_ignored() {
    let mut bench = cluster(2);
    for wish in [ranks(&[0, 0]), ranks(&[0, 2])] {
        ask(&mut bench, 0, (GroupId::WORLD, 1), wish);
    }
    ask(&mut bench, 0, (GroupId(9), 1), ranks(&[0]));
    ask(&mut bench, 0, (GroupId::SERVERS, 1), ranks(&[]));
    assert!(bench.sent.is_empty() && bench.closed.is_empty());
    for group in [GroupId(9), GroupId::WORLD] {
        bench.say(0, Message::FreeGroup(FreeGroup { group }));
        let answer = Message::GroupFreed(GroupFreed { group });
        assert_eq!(bench.told(0), [answer], "it may have been one that nobody uses any more");
    }
    assert_eq!(bench.scheduler.conductor.groups.table.members_of(GroupId::WORLD), Some(vec![0, 1]));
    assert_eq!(bench.scheduler.conductor.groups.table.entries(), 0);
}

#[test]
fn nothing_is_kept_of_groups_that_all_have_freed() {
    let mut bench = cluster(2);
    for nth in 1..=1000 {
        for rank in 0..2 {
            ask(&mut bench, rank, (GroupId::WORLD, nth), ranks(&[0, 1]));
        }
        let group = GroupId(2 + nth as u32);
        assert_eq!(made(&mut bench, 0), [(nth, Some(group), vec![0, 1])], "a number is never used again");
        ask(&mut bench, 0, (group, 1), ranks(&[0]));
        bench.say(0, Message::FreeGroup(FreeGroup { group }));
        assert!(bench.scheduler.conductor.groups.table.members_of(group).is_some(), "rank 1 has it still");
        bench.say(1, Message::FreeGroup(FreeGroup { group }));
        assert!(bench.scheduler.conductor.groups.table.members_of(group).is_none());
        assert!(bench.scheduler.conductor.groups.table.entries() <= 1, "but the answer to the newest");
        bench.sent.clear();
    }
    assert!(bench.scheduler.conductor.groups.calls.len() <= 1 && bench.scheduler.conductor.groups.revoked.is_empty());
}

#[test]
fn a_node_that_comes_back_can_ask_again() {
    let mut bench = cluster(2);
    ask(&mut bench, 0, (GroupId::WORLD, 1), ranks(&[0, 1]));
    bench.close(0, Closed::Broken);
    ask(&mut bench, 1, (GroupId::WORLD, 1), ranks(&[0, 1]));
    assert_eq!(made(&mut bench, 1).len(), 1);
    bench.join(7, worker(0, 2));
    bench.sent.clear();
    bench.say(
        7,
        Message::MakeGroup(MakeGroup { parent: GroupId::WORLD, nth: 1, sequence: 1, digest: 0, wish: ranks(&[0, 1]) }),
    );
    assert_eq!(made(&mut bench, 7).len(), 1);
}

#[test]
fn a_rank_that_leaves_after_the_job_broke_is_no_first_cause() {
    let mut bench = cluster(3);
    ask(&mut bench, 0, (GroupId::WORLD, 1), ranks(&[0, 1, 2]));
    bench.say(1, Message::Abort(Abort { code: 3, reason: "enough".to_owned() }));
    let cause = "took too long".to_owned();
    let (status, group) = (Status::Timeout, Some(GroupId::WORLD));
    let failure = Failure { status, culprit: None, cause, epoch: Epoch(1), group, sequence: 1 };
    bench.say(0, Message::Revoke(Revoke { failure }));
    assert_eq!(revoked(&mut bench, 0).first().map(|first| first.0), Some(Status::Aborted));
    bench.say(2, Message::Leave);
    assert_eq!(revoked(&mut bench, 0), [], "the creation that needs rank 2 has ended before");
}

/// Three ranks with a group that they have made, and why this one is over.
fn revoked_for_a_mismatch(group: GroupId) -> (Bench, Failure) {
    let mut bench = Bench::formed(&["here", "there", "there"]);
    (0..3).for_each(|rank| ask(&mut bench, rank, (GroupId::WORLD, 1), ranks(&[0, 1, 2])));
    let cause = "rank 0 called this, rank 2 called that".to_owned();
    let (status, culprit, epoch) = (Status::Mismatch, None, Epoch(1));
    let first = Failure { status, culprit, cause, epoch, group: Some(group), sequence: 0 };
    bench.say(0, Message::Revoke(Revoke { failure: first.clone() }));
    (bench, first)
}

/// Rank 1 dies. Returns whether that is told as a consequence, or as the loss that it is.
fn dies(mut bench: Bench, first: &Failure, is_why: bool) {
    bench.close(1, Closed::Ended);
    bench.pass(Duration::from_millis(100));
    let told = bench.verdict(2).expect("told");
    match is_why {
        true => assert_eq!(told, *first),
        false => assert_eq!((told.status, told.culprit.and_then(|it| it.rank)), (Status::PeerLost, Some(1))),
    }
}

/// A program that was told of a group it had made, and went on with others, ends later for a reason of its own.
#[test]
fn the_end_of_a_made_group_is_not_why_one_dies_long_after() {
    for (group, later, is_why) in
        [(GroupId(3), 5_000, true), (GroupId(3), 5_001, false), (GroupId::WORLD, 60_000, true)]
    {
        let (mut bench, first) = revoked_for_a_mismatch(group);
        let mut beats = 0;
        bench.pass_with(Duration::from_millis(later), |bench| {
            beats += 1;
            (0..3).for_each(|conn| bench.beat(conn, beats));
        });
        dies(bench, &first, is_why);
    }
}

#[test]
fn nor_is_it_why_one_dies_that_has_gone_on_with_other_groups() {
    let made = GroupId(3);
    for (group, age_ms, is_why) in [
        (GroupId::WORLD, 0, false),
        (GroupId::WORLD, 900, true), // it had entered that before it was told
        (made, 0, true),
    ] {
        let (mut bench, first) = revoked_for_a_mismatch(made);
        bench.pass(Duration::from_secs(1));
        let call = Some(Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 });
        let progress = vec![GroupProgress { group, entered: 9, finished: 9, call, age_ms }];
        bench.say(1, Message::Heartbeat(Heartbeat { sequence: 1, echoed: 0, progress, ..Heartbeat::default() }));
        bench.pass(Duration::from_millis(500));
        dies(bench, &first, is_why);
    }
    // Or the node says itself, however soon, after the end of which groups it has gone on.
    for (gone_on, is_why) in [(vec![GroupId(8), made], false), (vec![GroupId(8)], true)] {
        let (mut bench, first) = revoked_for_a_mismatch(made);
        bench.say(1, Message::Heartbeat(Heartbeat { sequence: 1, echoed: 0, gone_on, ..Heartbeat::default() }));
        dies(bench, &first, is_why);
    }
}

#[test]
fn a_rank_that_made_another_call_before_makes_no_group_with_the_others() {
    let other_call = |rank: u32| {
        let root = Some(rank);
        let call = Call { kind: CallKind::Broadcast, dtype: None, op: None, root, count: 1, layout: 0 };
        GroupProgress { group: GroupId::WORLD, entered: 1, finished: 1, call: Some(call), age_ms: 0 }
    };
    for (odd, tells) in [(0, true), (1, true), (2, true), (0, false), (1, false), (2, false)] {
        let mut bench = cluster(3);
        for rank in 0..3 {
            ask_after(&mut bench, rank, (GroupId::WORLD, 2), u32::from(rank == odd), ranks(&[2, 1]));
        }
        assert!(bench.sent.is_empty(), "it is not made, and what was called is not known yet");
        if tells {
            for rank in [odd, (odd + 1) % 3] {
                let progress = vec![other_call(rank)];
                bench.say(
                    u64::from(rank),
                    Message::Heartbeat(Heartbeat { sequence: 1, echoed: 0, progress, ..Heartbeat::default() }),
                );
            }
            bench.pass(Duration::from_millis(100)); // in which the third could say what it called
        } else {
            bench.pass(Duration::from_millis(599));
            assert_eq!(revoked(&mut bench, 0), [], "they may still say it");
            bench.pass(Duration::from_millis(1));
        }
        for rank in 0..3 {
            let told = revoked(&mut bench, rank);
            let both = if tells { "root 0" } else { "called group_create(2 ranks" };
            let both = if tells && odd == 1 { "root 2" } else { both };
            let [(Status::Mismatch, words)] = &told[..] else { panic!("rank {rank}, odd {odd}: {told:?}") };
            assert!(words.contains(both) && words.contains(&format!("rank {odd}")), "odd {odd}: {words}");
            assert_eq!(words.contains("their earlier calls differ"), !tells, "{words}");
            assert_eq!(made(&mut bench, rank), []);
        }
    }
}

#[test]
fn a_member_that_begins_ever_more_groups_is_heard_up_to_a_limit() {
    let mut bench = cluster(3);
    for nth in 1..=40_000 {
        ask(&mut bench, 1, (GroupId::WORLD, nth), ranks(&[0, 1]));
    }
    let limit = crate::membership::group_table::OPEN_MAX;
    assert_eq!(bench.scheduler.conductor.groups.table.entries(), limit);
    let told: Vec<&String> = bench.lines.iter().filter(|line| line.contains("groups of world at a time")).collect();
    assert_eq!(told.len(), 1, "{:?}", bench.lines);
    // The groups that the others make with it are made, and leave room for what follows.
    for nth in 1..=3 * limit as u64 {
        let asks_again = nth > limit as u64; // it has asked for the first ones already
        for rank in [0, 2, 1].into_iter().take(if asks_again { 3 } else { 2 }) {
            ask(&mut bench, rank, (GroupId::WORLD, nth), ranks(&[0, 1]));
        }
        for rank in 0..3 {
            assert_eq!(made(&mut bench, rank).len(), 1, "creation {nth} for rank {rank}");
        }
    }
}
