//! A group that is freed: said until the scheduler has answered.

use super::bench::{failure, formed, Bench};
use super::*;
use crate::error::Status;
use crate::types::GroupId;
use crate::wire::{FreeGroup, GroupFreed, Revoked};

fn free(bench: &mut Bench, group: u32) {
    bench.command(Command::FreeGroup(GroupId(group)));
}

fn says(bench: &Bench) -> Vec<u32> {
    let freed = |message| match message {
        Message::FreeGroup(FreeGroup { group }) => Some(group.0),
        _ => None,
    };
    bench.sent().into_iter().filter_map(freed).collect()
}

fn is_kept(bench: &mut Bench, group: u32) {
    bench.outputs.clear();
    bench.receive(Message::GroupFreed(GroupFreed { group: GroupId(group) }));
    assert!(bench.outputs.iter().all(|output| matches!(output, Output::Arm(_))), "{:?}", bench.outputs);
}

#[test]
fn it_is_said_on_each_connection_until_it_is_answered() {
    let mut bench = Bench::joined();
    free(&mut bench, 3);
    free(&mut bench, 4);
    assert_eq!(says(&bench), [3, 4]);
    is_kept(&mut bench, 4);
    for _ in 0..3 {
        bench.reattach();
        assert_eq!(says(&bench), [3], "the scheduler may have died over it, again and again");
    }
    is_kept(&mut bench, 3);
    is_kept(&mut bench, 3);
    is_kept(&mut bench, 77);
    bench.reattach();
    assert_eq!(says(&bench), [0; 0]);
}

#[test]
fn what_is_freed_while_it_is_away_is_said_too_and_in_the_next_epoch() {
    let mut bench = Bench::joined();
    bench.feed(Input::Closed("reset".to_owned()));
    bench.outputs.clear();
    free(&mut bench, 3);
    free(&mut bench, 3);
    assert_eq!(says(&bench), [0; 0], "to whom?");
    bench.feed(Input::Connected(Vec::new()));
    bench.receive(Message::Formed(formed(1, 1)));
    assert_eq!(says(&bench), [3], "once on each connection");
    bench.outputs.clear();
    bench.receive(Message::Formed(formed(1, 2)));
    assert_eq!(says(&bench), [3], "one that was taken for lost was not heard");
    is_kept(&mut bench, 3);
    bench.outputs.clear();
    bench.receive(Message::Formed(formed(1, 3)));
    assert_eq!(says(&bench), [0; 0]);
}

/// The scheduler tells every member that a group is revoked. It may do so before it hears that this one has freed it.
#[test]
fn the_end_of_a_group_that_this_node_has_freed_is_no_news() {
    let mut bench = Bench::joined();
    let ends = |bench: &mut Bench| {
        bench.outputs.clear();
        let failure = failure(Status::PeerLeft, Some(GroupId(3)), "has left");
        bench.receive(Message::Revoked(Revoked { failure }));
        bench.told().len()
    };
    free(&mut bench, 3);
    assert_eq!(ends(&mut bench), 0);
    let mut other = Bench::joined();
    free(&mut other, 4);
    assert_eq!(ends(&mut other), 1);
}

#[test]
fn a_node_that_leaves_says_nothing_more() {
    let mut bench = Bench::joined();
    free(&mut bench, 3);
    bench.command(Command::Leave);
    bench.reattach();
    assert_eq!(bench.sent(), [Message::Leave], "it uses nothing any more");
}
