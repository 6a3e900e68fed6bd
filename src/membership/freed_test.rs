//! What a scheduler that is started again knows of groups that were freed.

use super::super::contract::Input;
use super::super::testing::{host, named, rules, Bench};
use super::super::{Closed, Rules};
use crate::error::{Failure, Status};
use crate::types::{Epoch, GroupId, JobInstance, Token, TokenHash};
use crate::wire::{
    FreeGroup, GroupFreed, GroupWish, InEpoch, MakeGroup, Message, Record, Recover, Reentry, Register, Revoke,
};
use std::time::Duration;

const NODES: u32 = 3;
const MADE: GroupId = GroupId(3);

fn durable() -> Rules {
    Rules { recovery: true, durable: true, ..rules(NODES, 0) }
}

fn life(rank: u32, life: u8) -> Register {
    let token = |life: u8| Token([16 * life + rank as u8; 32]);
    let tokens = if life == 0 { Vec::new() } else { vec![token(life - 1)] };
    let reentry = Some(Box::new(Reentry { tokens, next: TokenHash::of(&token(life)) }));
    let serial = rank + 100 * u32::from(life);
    Register { host: host("there"), recovery: true, reentry, ..named(serial, NODES, &rank.to_string()) }
}

/// A cluster whose ranks 0 and 1 have made a group.
fn with_group() -> Bench {
    let mut bench = Bench::new(durable());
    (0..NODES).for_each(|rank| bench.join(rank.into(), life(rank, 0)));
    let wish = GroupWish::Ranks(vec![0, 1]);
    let wanted = MakeGroup { parent: GroupId::WORLD, nth: 1, sequence: 1, digest: 0, wish };
    (0..NODES.into()).for_each(|conn| bench.say(conn, Message::MakeGroup(wanted.clone())));
    assert_eq!(bench.scheduler.conductor.groups.table.members_of(MADE), Some(vec![0, 1]));
    bench
}

fn free(bench: &mut Bench, conn: u64) {
    bench.say(conn, Message::FreeGroup(FreeGroup { group: MADE }));
}

/// The same scheduler, started again with the records as they were written, or with those of a rewritten file.
fn started_again(bench: &Bench, rewritten: bool) -> Bench {
    let records = if rewritten { bench.scheduler.snapshot() } else { bench.written.clone() };
    let mut again = Bench::resumed(durable(), records);
    for rank in 0..NODES {
        again.join(rank.into(), Register { instance: Some(JobInstance([9; 16])), ..life(rank, 0) });
        again.say(rank.into(), Message::InEpoch(InEpoch { epoch: Epoch(1) }));
    }
    again
}

#[test]
fn a_member_that_has_freed_a_group_hears_of_its_end_no_more() {
    let mut bench = with_group();
    free(&mut bench, 0);
    let (cause, epoch, group) = ("its time is over".to_owned(), Epoch(1), Some(MADE));
    let failure = Failure { status: Status::Timeout, culprit: None, cause, epoch, group, sequence: 1 };
    bench.say(1, Message::Revoke(Revoke { failure: failure.clone() }));
    let hears = |bench: &mut Bench, conn| bench.told(conn).into_iter().any(|told| matches!(told, Message::Revoked(_)));
    assert!(hears(&mut bench, 1) && !hears(&mut bench, 0) && !hears(&mut bench, 2));
    bench.close(0, Closed::Broken);
    bench.join(0, Register { instance: Some(JobInstance([9; 16])), ..life(0, 0) });
    assert!(!hears(&mut bench, 0), "nor on the next connection");
}

/// A program frees its groups on its way out, once one of them is over.
#[test]
fn the_end_of_a_group_is_why_one_dies_that_has_freed_it_since() {
    let mut bench = with_group();
    let (cause, epoch, group) = ("its time is over".to_owned(), Epoch(1), Some(MADE));
    let failure = Failure { status: Status::Timeout, culprit: None, cause, epoch, group, sequence: 1 };
    bench.say(1, Message::Revoke(Revoke { failure: failure.clone() }));
    free(&mut bench, 0);
    bench.close(0, Closed::Ended);
    bench.pass(Duration::from_millis(200));
    assert_eq!(bench.verdict(2).expect("told").status, Status::Timeout);
    let is_warned = |line: &String| line.starts_with("in consequence: rank 0 (") && line.contains("is lost");
    assert!(bench.lines.iter().any(is_warned), "nothing else names it: {:?}", bench.lines);
}

#[test]
fn a_group_that_all_have_freed_is_not_known_again() {
    for rewritten in [false, true] {
        let mut bench = with_group();
        let before = bench.written.len();
        (0..2).for_each(|conn| free(&mut bench, conn));
        assert_eq!((bench.scheduler.conductor.groups.table.members_of(MADE), bench.written.len()), (None, before + 2));
        let again = started_again(&bench, rewritten);
        assert_eq!((again.scheduler.conductor.groups.table.members_of(MADE), again.scheduler.groups_kept()), (None, 0));
    }
}

fn answers(bench: &mut Bench, conn: u64) -> usize {
    let word = Message::GroupFreed(GroupFreed { group: MADE });
    bench.told(conn).iter().filter(|message| **message == word).count()
}

#[test]
fn it_is_answered_when_it_is_durable() {
    let mut bench = with_group();
    bench.sent.clear();
    bench.syncs = false;
    free(&mut bench, 0);
    free(&mut bench, 0);
    assert_eq!(answers(&mut bench, 0), 0, "a scheduler that dies now has forgotten it");
    bench.feed(Input::Persisted(bench.written.len() as u64));
    assert_eq!(answers(&mut bench, 0), 2);
    // The scheduler dies before that, and so does its next life: the node says it again.
    let mut bench = with_group();
    bench.syncs = false;
    free(&mut bench, 0);
    free(&mut bench, 1);
    bench.written.truncate(bench.written.len() - 2);
    let mut again = started_again(&bench, false);
    again.syncs = false;
    (0..2).for_each(|conn| free(&mut again, conn));
    let mut once_more = started_again(&bench, false);
    assert_eq!(once_more.scheduler.conductor.groups.table.members_of(MADE), Some(vec![0, 1]));
    once_more.sent.clear();
    (0..2).for_each(|conn| free(&mut once_more, conn));
    assert_eq!(
        (once_more.scheduler.conductor.groups.table.members_of(MADE), once_more.scheduler.groups_kept()),
        (None, 0)
    );
    assert_eq!((answers(&mut once_more, 0), answers(&mut once_more, 1)), (1, 1));
    // A word about a group that nobody uses any more, or that never was, is answered all the same: nobody is to repeat it
    // for ever.
    free(&mut once_more, 0);
    free(&mut once_more, 2);
    assert_eq!((answers(&mut once_more, 0), answers(&mut once_more, 2)), (1, 1));
}

#[test]
fn without_a_journal_it_is_answered_at_once() {
    let mut bench = Bench::formed(&["here", "there"]);
    free(&mut bench, 1);
    assert_eq!(answers(&mut bench, 1), 1);
}

#[test]
fn a_free_before_a_restart_counts_after_it() {
    for rewritten in [false, true] {
        let mut bench = with_group();
        free(&mut bench, 0);
        free(&mut bench, 0);
        free(&mut bench, 2);
        let freed = |record: &&Record| matches!(record, Record::Freed(_));
        assert_eq!(bench.written.iter().filter(freed).count(), 1, "once, and by members only");
        let mut again = started_again(&bench, rewritten);
        assert_eq!(again.scheduler.conductor.groups.table.members_of(MADE), Some(vec![0, 1]));
        free(&mut again, 1);
        assert_eq!(again.scheduler.conductor.groups.table.members_of(MADE), None);
    }
}

#[test]
fn a_rank_that_left_before_a_restart_does_not_use_the_group_after_it() {
    for rewritten in [false, true] {
        let mut bench = with_group();
        free(&mut bench, 0);
        bench.say(1, Message::Leave);
        assert_eq!(bench.scheduler.conductor.groups.table.members_of(MADE), None);
        let again = started_again(&bench, rewritten);
        assert_eq!(again.scheduler.conductor.groups.table.members_of(MADE), None);
        // The same in the other order.
        let mut bench = with_group();
        bench.say(0, Message::Leave);
        let mut again = started_again(&bench, rewritten);
        free(&mut again, 1);
        assert_eq!(again.scheduler.conductor.groups.table.members_of(MADE), None);
    }
}

#[test]
fn the_next_life_of_a_node_uses_again_what_its_last_life_had_freed() {
    for (rewritten, frees) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut bench = with_group();
        free(&mut bench, 1);
        bench.close(1, Closed::Ended);
        bench.pass(Duration::from_millis(100));
        bench.join(11, life(1, 1));
        if frees {
            free(&mut bench, 0); // after that life was back, and before its epoch
        }
        for conn in [0, 2] {
            bench.say(conn, Message::Recover(Recover { epoch: Epoch(1), inside: true }));
        }
        assert_eq!(
            (bench.scheduler.conductor.cluster.epoch, bench.scheduler.conductor.groups.table.members_of(MADE)),
            (Epoch(2), Some(vec![0, 1]))
        );
        let mut again = started_again(&bench, rewritten);
        assert_eq!(again.scheduler.conductor.groups.table.members_of(MADE), Some(vec![0, 1]));
        let next = Register { instance: Some(JobInstance([9; 16])), ..life(1, 1) };
        again.join(21, next);
        for conn in [0, 2, 21] {
            again.say(conn, Message::InEpoch(InEpoch { epoch: Epoch(2) }));
        }
        free(&mut again, 21);
        assert_eq!(again.scheduler.conductor.groups.table.members_of(MADE).is_none(), frees);
        if !frees {
            free(&mut again, 0);
            assert_eq!(again.scheduler.conductor.groups.table.members_of(MADE), None);
        }
    }
}

#[test]
fn a_rank_that_comes_back_gets_the_group_that_was_made_unless_it_makes_another() {
    for (started_anew, rewritten, ranks) in
        [(false, false, vec![0, 1]), (true, false, vec![0, 1]), (true, true, vec![0, 1]), (false, false, vec![1, 0])]
    {
        let mut bench = with_group();
        bench.close(1, Closed::Ended);
        bench.pass(Duration::from_millis(100));
        bench.join(11, life(1, 1));
        (0..NODES.into()).filter(|conn| *conn != 1).for_each(|conn| {
            bench.say(conn, Message::Recover(Recover { epoch: Epoch(1), inside: true }));
        });
        let mut bench = if started_anew { started_again(&bench, rewritten) } else { bench };
        let conn = if started_anew { 21 } else { 11 };
        if started_anew {
            bench.join(conn, Register { instance: Some(JobInstance([9; 16])), ..life(1, 1) });
        }
        for member in [0, 2, conn] {
            bench.say(member, Message::InEpoch(InEpoch { epoch: Epoch(2) }));
        }
        bench.sent.clear();
        let wish = GroupWish::Ranks(ranks.clone());
        bench.say(conn, Message::MakeGroup(MakeGroup { parent: GroupId::WORLD, nth: 1, sequence: 0, digest: 0, wish }));
        let told = bench.told(conn);
        match ranks[0] {
            0 => {
                let [Message::GroupMade(made)] = &told[..] else { panic!("{told:?}") };
                assert_eq!((made.group, &made.members[..]), (Some(MADE), &[0, 1][..]));
                assert!(bench.sent.is_empty(), "the others hear nothing of it: {:?}", bench.sent);
            }
            _ => {
                let [Message::Revoked(word)] = &told[..] else { panic!("{told:?}") };
                assert_eq!((word.failure.status, word.failure.group), (Status::Mismatch, Some(GroupId::WORLD)));
                assert_eq!(word.failure.culprit.as_ref().and_then(|culprit| culprit.rank), Some(1));
                assert_eq!(
                    word.failure.to_string(),
                    "rank 1 (node id \"1\", host there, pid 1101) came back and called group_create(2 ranks, list 4dea4c24) as \
                     creation #1 of world, which was made by group_create(2 ranks, list 56101a44) in an earlier epoch: a node that \
                     comes back makes its groups again in the order in which it first did"
                );
                let others = [0, 2].map(|conn| bench.told(conn));
                assert!(others.iter().all(|other| *other == told), "all members of the parent hear of it: {others:?}");
            }
        }
    }
}
