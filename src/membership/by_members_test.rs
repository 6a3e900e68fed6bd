//! Groups that their members make alone: what each node is told, and what is known of the groups after a restart.

use super::super::testing::{host, named, rules, Bench};
use super::super::Rules;
use crate::error::Status;
use crate::types::{Epoch, GroupId, JobInstance, Token, TokenHash};
use crate::wire::{FreeGroup, InEpoch, MadeByMembers, MakeByMembers, Message, Record, Recover, Reentry, Register};

const NODES: u32 = 4;
const FIRST: GroupId = GroupId(3);

fn cluster() -> Bench {
    Bench::formed(&["a", "a", "b", "b"])
}

fn wish(bench: &mut Bench, rank: u32, members: &[u32], (tag, nth): (&str, u64), wants: bool) {
    let (ask, tag) = (100 * nth + u64::from(rank), tag.to_owned());
    bench.say(rank.into(), Message::MakeByMembers(MakeByMembers { ask, wants, tag, nth, members: members.to_vec() }));
}

fn ask(bench: &mut Bench, rank: u32, members: &[u32], tag: &str) {
    wish(bench, rank, members, (tag, 1), true);
}

/// The group, or why there is none.
type Answer = Result<GroupId, (Status, String)>;

/// What a rank has been told: the numbers of its questions, with the group or with the status and its sentence.
fn told(bench: &mut Bench, rank: u32) -> Vec<(u64, Answer)> {
    let answer = |message| match message {
        Message::MadeByMembers(MadeByMembers { ask, group: Some(group), failure: None }) => Some((ask, Ok(group))),
        Message::MadeByMembers(MadeByMembers { ask, group: None, failure: Some(failure) }) => {
            Some((ask, Err((failure.status, failure.to_string()))))
        }
        _ => None,
    };
    bench.told(rank.into()).into_iter().filter_map(answer).collect()
}

fn failed(bench: &mut Bench, rank: u32, status: Status, words: &[&str]) {
    let told = told(bench, rank);
    let [(_, Err((found, sentence)))] = &told[..] else { panic!("{told:?}") };
    assert_eq!(*found, status, "{sentence}");
    assert!(words.iter().all(|word| sentence.contains(word)), "{sentence}");
}

#[test]
fn the_members_get_it_when_the_last_has_asked_and_nobody_else_is_told() {
    let mut bench = cluster();
    ask(&mut bench, 2, &[2, 0], "x");
    ask(&mut bench, 1, &[1, 3], "x");
    assert!(bench.sent.is_empty());
    ask(&mut bench, 0, &[2, 0], "x");
    assert_eq!((told(&mut bench, 0), told(&mut bench, 2)), (vec![(100, Ok(FIRST))], vec![(102, Ok(FIRST))]));
    assert!(bench.sent.is_empty());
    assert_eq!(bench.scheduler.conductor.groups.table.members_of(FIRST), Some(vec![2, 0]));
    // They ask once more, after a broken connection; they also say again that nobody waits any more.
    ask(&mut bench, 0, &[2, 0], "x");
    wish(&mut bench, 0, &[2, 0], ("x", 1), false);
    assert_eq!(told(&mut bench, 0), [(100, Ok(FIRST)), (100, Ok(FIRST))]);
    // Another tag, another number, or another order is another group.
    for (number, members, name) in [(4, [2, 0], ("y", 1)), (5, [2, 0], ("x", 2)), (6, [0, 2], ("x", 1))] {
        wish(&mut bench, 0, &members, name, true);
        wish(&mut bench, 2, &members, name, true);
        assert_eq!(told(&mut bench, 2).pop().map(|(_, group)| group), Some(Ok(GroupId(number))));
    }
    ask(&mut bench, 3, &[3], "alone");
    assert_eq!(told(&mut bench, 3), [(103, Ok(GroupId(7)))]);
}

#[test]
fn a_rank_that_stops_waiting_hears_who_is_awaited_and_is_not_awaited_itself() {
    let mut bench = cluster();
    ask(&mut bench, 0, &[0, 1, 2, 3], "x");
    ask(&mut bench, 2, &[0, 1, 2, 3], "x");
    wish(&mut bench, 0, &[0, 1, 2, 3], ("x", 1), false);
    failed(
        &mut bench,
        0,
        Status::Timeout,
        &["rank 1 (", "has not asked for the group of ranks 0, 1, 2, 3", "nor has rank 3 ("],
    );
    for rank in [1, 3] {
        ask(&mut bench, rank, &[0, 1, 2, 3], "x");
    }
    assert!(bench.sent.is_empty(), "rank 0 is missing now");
    wish(&mut bench, 1, &[0, 1, 2, 3], ("x", 1), false);
    failed(&mut bench, 1, Status::Timeout, &["rank 0 ("]);
    for rank in [0, 1] {
        ask(&mut bench, rank, &[0, 1, 2, 3], "x");
    }
    assert!((0..NODES).all(|rank| matches!(told(&mut bench, rank)[..], [(_, Ok(FIRST))])));
}

#[test]
fn two_who_are_in_both_of_two_lists_and_ask_for_one_each_disagree() {
    for (one, other) in [(vec![0, 1, 2], vec![0, 2, 1]), (vec![0, 1, 2], vec![0, 1])] {
        let mut bench = cluster();
        ask(&mut bench, 0, &one, "x");
        ask(&mut bench, 1, &other, "y");
        assert!(bench.sent.is_empty(), "the tags differ");
        wish(&mut bench, 1, &other, ("x", 1), true);
        for rank in [0, 1] {
            failed(&mut bench, rank, Status::Mismatch, &["rank 0 (", "rank 1 (", "ranks 0, 1, 2 with"]);
        }
        assert_eq!(bench.scheduler.conductor.groups.table.entries(), 1, "the other tag's is open still");
    }
    // Members that make the same calls in another order do not disagree, as long as the groups can be made.
    let mut bench = cluster();
    ask(&mut bench, 0, &[0, 1], "x");
    ask(&mut bench, 1, &[1, 2], "x");
    ask(&mut bench, 2, &[1, 2], "x");
    ask(&mut bench, 1, &[0, 1], "x");
    assert_eq!((told(&mut bench, 0), told(&mut bench, 1).len()), (vec![(100, Ok(GroupId(4)))], 2));
}

#[test]
fn what_needs_one_who_has_left_or_an_epoch_that_ends_is_not_made() {
    let mut bench = cluster();
    ask(&mut bench, 0, &[0, 1], "x");
    ask(&mut bench, 2, &[2, 3], "x");
    bench.say(1, Message::Leave);
    failed(&mut bench, 0, Status::PeerLeft, &["rank 1 (", "has left", "the group of ranks 0, 1"]);
    assert!(told(&mut bench, 2).is_empty());
    ask(&mut bench, 0, &[1, 0], "x");
    failed(&mut bench, 0, Status::PeerLeft, &["rank 1 ("]);
    let mut bench = cluster();
    ask(&mut bench, 0, &[0, 1], "x");
    bench.say(3, Message::Recover(Recover { epoch: Epoch(1), inside: true }));
    failed(&mut bench, 0, Status::Revoked, &["rank 3 (", "called muster_recover"]);
    ask(&mut bench, 1, &[0, 1], "x");
    failed(&mut bench, 1, Status::Revoked, &["muster_recover"]);
}

#[test]
fn what_makes_no_sense_is_ignored_and_a_limit_holds() {
    let mut bench = cluster();
    for members in [&[][..], &[0, 0], &[0, 4], &[1, 2]] {
        ask(&mut bench, 0, members, "x");
    }
    assert!(bench.sent.is_empty() && bench.closed.is_empty());
    for number in 0..16 {
        ask(&mut bench, 0, &[0, 1], &format!("{number}"));
    }
    ask(&mut bench, 0, &[0, 1], "one more");
    failed(&mut bench, 0, Status::Limit, &["16"]);
    ask(&mut bench, 0, &[0, 1], "7"); // asked once more, over a new connection
    wish(&mut bench, 2, &[2], ("alone", 0), true);
    assert!(bench.sent.is_empty(), "{:?}", bench.sent);
    ask(&mut bench, 2, &[2, 1], "not that node's");
    assert!(bench.sent.is_empty());
}

#[test]
fn nothing_is_kept_of_it_once_all_have_freed_it() {
    let mut bench = cluster();
    for nth in 1..=100 {
        for rank in [0, 1] {
            wish(&mut bench, rank, &[0, 1], ("x", nth), true);
        }
        let group = GroupId(2 + nth as u32);
        for rank in [0, 1] {
            bench.say(rank, Message::FreeGroup(FreeGroup { group }));
        }
        assert_eq!(bench.scheduler.conductor.groups.table.entries(), 0);
    }
}

fn durable() -> Rules {
    Rules { recovery: true, durable: true, ..rules(NODES, 0) }
}

fn life(rank: u32) -> Register {
    let reentry = Some(Box::new(Reentry { tokens: Vec::new(), next: TokenHash::of(&Token([rank as u8; 32])) }));
    Register { host: host("there"), recovery: true, reentry, ..named(rank, NODES, &rank.to_string()) }
}

/// The same scheduler, started again with the records as they were written, or with those of a rewritten file.
fn started_again(bench: &Bench, rewritten: bool) -> Bench {
    let instance = JobInstance([9; 16]);
    let records = if rewritten { bench.scheduler.snapshot() } else { bench.written.clone() };
    let mut again = Bench::resumed(durable(), records);
    for rank in 0..NODES {
        again.join(rank.into(), Register { instance: Some(instance), ..life(rank) });
        again.say(rank.into(), Message::InEpoch(InEpoch { epoch: Epoch(1) }));
    }
    again
}

#[test]
fn a_scheduler_that_is_started_again_answers_whoever_asks_again() {
    for rewritten in [false, true] {
        let mut bench = Bench::new(durable());
        (0..NODES).for_each(|rank| bench.join(rank.into(), life(rank)));
        for rank in [1, 0] {
            ask(&mut bench, rank, &[0, 1], "x");
        }
        ask(&mut bench, 2, &[2, 3], "x");
        let written = bench.written.iter().filter(|record| matches!(record, Record::ByMembers(_))).count();
        assert_eq!(written, 1, "what is open is not written down");
        let mut again = started_again(&bench, rewritten);
        for rank in [0, 1] {
            ask(&mut again, rank, &[0, 1], "x");
            assert_eq!(told(&mut again, rank), [(100 + u64::from(rank), Ok(FIRST))]);
        }
        ask(&mut again, 3, &[2, 3], "x");
        assert!(told(&mut again, 3).is_empty(), "rank 2 has to ask again");
        ask(&mut again, 2, &[2, 3], "x");
        assert_eq!(told(&mut again, 3), [(103, Ok(GroupId(4)))]);
        // A group that all have freed is answered still: a node that comes back makes again what it had made.
        for rank in [0, 1] {
            again.say(rank, Message::FreeGroup(FreeGroup { group: FIRST }));
        }
        assert_eq!(again.scheduler.conductor.groups.table.members_of(FIRST), None);
        ask(&mut again, 0, &[0, 1], "x");
        assert_eq!(told(&mut again, 0).pop(), Some((100, Ok(FIRST))));
    }
}
