//! Groups from one epoch to the next, where the agent thread is quicker than the callers. There are no threads: the
//! test does itself what each of them does.

use super::*;
use crate::agent::Event;
use crate::config::LogLevel;
use crate::error::{Failure, Status};
use crate::runtime::base::clock::Clock;
use crate::runtime::base::log::Logger;
use crate::runtime::base::sync::Bell;
use crate::runtime::links::mesh::tests::formed;
use crate::runtime::state::node_state::{AgentCommand, NodeState};
use crate::types::Epoch;
use std::sync::atomic::Ordering;

const LIMIT_MS: i64 = 60_000;
const MADE: GroupId = GroupId(3);

fn registry() -> Arc<Registry> {
    let mut state = NodeState::new(Logger::new(LogLevel::Off, "test"), Clock::start(), Bell::new().unwrap());
    state.recovery = true;
    Registry::new(&Arc::new(state))
}

/// The first of two workers is told that this epoch has begun.
fn begin(registry: &Arc<Registry>, epoch: u64) {
    let nowhere = "127.0.0.1:1".parse().unwrap();
    let formed = Arc::new(Formed { epoch: Epoch(epoch), ..formed(0, [nowhere; 2]) });
    registry.form(&formed, LIMIT_MS).unwrap();
}

fn present(registry: &Registry, id: GroupId) -> Option<Arc<Group>> {
    registry.group(id)
}

fn failure(status: Status, group: Option<GroupId>) -> Failure {
    let cause = "the first cause".to_owned();
    Failure { status, culprit: None, cause, epoch: Epoch(1), group, sequence: 7 }
}

/// A caller asks for the first group of world, of both, and the scheduler answers.
fn make(registry: &Arc<Registry>) -> Option<Arc<Group>> {
    registry.state.view().creating.insert((Epoch(1), GroupId::WORLD, 1));
    let word = GroupMade { parent: GroupId::WORLD, nth: 1, group: Some(MADE), members: vec![0, 1] };
    registry.made(word, LIMIT_MS).expect("there is room for it")
}

#[test]
fn the_first_cause_outlives_its_epoch_for_those_who_have_not_heard_it() {
    let lost = failure(Status::PeerLost, None);
    let registry = registry();
    begin(&registry, 1);
    let [world, universe] = [GroupId::WORLD, GroupId::UNIVERSE].map(|id| present(&registry, id).unwrap());
    registry.file(Event::Broken(lost.clone()));
    begin(&registry, 2); // before anybody has woken up
    assert_eq!((world.context.broken(), universe.context.broken()), (Some(lost.clone()), Some(lost)));
    assert_eq!(present(&registry, GroupId::WORLD).unwrap().context.broken(), None, "the next epoch's group is as new");
    // What was revoked alone stays so alone.
    let revoked = Failure { epoch: Epoch(2), ..failure(Status::Timeout, Some(GroupId::WORLD)) };
    let [world, universe] = [GroupId::WORLD, GroupId::UNIVERSE].map(|id| present(&registry, id).unwrap());
    registry.file(Event::Revoked(revoked.clone()));
    begin(&registry, 3);
    assert_eq!((world.context.broken(), universe.context.broken()), (Some(revoked), None));
}

#[test]
fn a_creation_is_counted_when_it_is_filed_and_not_when_its_caller_wakes() {
    let registry = registry();
    begin(&registry, 1);
    let count = || present(&registry, GroupId::WORLD).unwrap().creations.load(Ordering::Relaxed);
    let unasked = GroupMade { parent: GroupId::WORLD, nth: 1, group: Some(MADE), members: vec![0, 1] };
    assert!(matches!(registry.made(unasked, LIMIT_MS), Ok(None)) && count() == 0, "nobody waits for it");
    assert!(make(&registry).is_some() && count() == 1);
    begin(&registry, 2);
    assert_eq!(count(), 1, "the caller asks for the second one there");
    assert!(present(&registry, MADE).is_some());
}

#[test]
fn the_program_has_the_groups_of_its_epoch_until_it_is_shown_the_newest() {
    let registry = registry();
    begin(&registry, 1);
    let handle = registry.handle(GroupId::WORLD).unwrap();
    let epochs =
        || (handle.present().epoch(), handle.newest().epoch(), registry.group(GroupId::WORLD).unwrap().epoch());
    assert_eq!(epochs(), (Epoch(1), Epoch(1), Epoch(1)));
    begin(&registry, 2);
    begin(&registry, 3);
    assert_eq!(epochs(), (Epoch(1), Epoch(3), Epoch(3)));
    registry.show();
    assert_eq!(epochs(), (Epoch(3), Epoch(3), Epoch(3)));
    let ended: Vec<Epoch> = registry.take_retired().iter().map(|group| group.epoch()).collect();
    assert!(ended.contains(&Epoch(1)) && ended.contains(&Epoch(2)) && !ended.contains(&Epoch(3)), "{ended:?}");
}

#[test]
fn a_group_that_is_freed_while_an_epoch_begins_is_gone_in_that_too() {
    let registry = registry();
    begin(&registry, 1);
    let old = make(&registry).unwrap();
    let handle = registry.kept().handles.last().cloned().unwrap();
    begin(&registry, 2);
    let newest = handle.newest();
    assert_eq!((handle.id(), newest.epoch(), old.epoch()), (MADE, Epoch(2), Epoch(1)));
    registry.free(&old); // its caller had taken it before
    assert!(present(&registry, MADE).is_none(), "nothing is kept of it");
    assert_eq!(newest.context.broken().map(|over| over.status), Some(Status::State), "a caller in it is told");
    let told = std::iter::from_fn(|| registry.state.next_command())
        .filter(|it| matches!(it, AgentCommand::Free(MADE)))
        .count();
    assert_eq!(told, 1, "the scheduler is told once");
    begin(&registry, 3);
    assert!(present(&registry, MADE).is_none());
}

/// In groups that nobody has called since, too.
#[test]
fn an_abort_does_not_replace_the_first_cause() {
    let (lost, abort) = (failure(Status::PeerLost, None), failure(Status::Aborted, None));
    let told = |registry: &Registry, id| present(registry, id).unwrap().context.told();
    let registry = registry();
    begin(&registry, 1);
    registry.file(Event::Broken(lost.clone()));
    assert!(!registry.state.view().epoch.is_aborted());
    registry.file(Event::Broken(abort.clone()));
    assert!(registry.state.view().epoch.is_aborted());
    assert_eq!(
        (told(&registry, GroupId::WORLD), registry.state.view().epoch.broken.clone()),
        (Some(lost.clone()), Some(lost.clone()))
    );
    begin(&registry, 2);
    assert!(!registry.state.view().epoch.is_aborted());

    // Nor where somebody was lost to one of the cluster's own groups, while the scheduler was away: it is told of the others, too.
    let lost = Failure { epoch: Epoch(2), group: Some(GroupId::WORLD), ..lost };
    registry.file(Event::Revoked(lost.clone()));
    registry.file(Event::Broken(abort));
    assert_eq!((told(&registry, GroupId::WORLD), told(&registry, GroupId::UNIVERSE)), (Some(lost.clone()), Some(lost)));
    // One who is fenced has nothing to do with the first cause any more.
    begin(&registry, 3);
    registry.file(Event::Broken(failure(Status::PeerLost, None)));
    registry.file(Event::Broken(failure(Status::Fenced, None)));
    assert_eq!(told(&registry, GroupId::WORLD).map(|told| told.status), Some(Status::Fenced));
}

/// With recovery a peer may be wrong, for the scheduler was away; its verdict is not.
#[test]
fn what_a_peer_believes_of_this_node_does_not_put_it_out() {
    let registry = registry();
    begin(&registry, 1);
    let formed = registry.state.view().epoch.formed.clone().expect("it is formed");
    let culprit = formed.members.find(formed.index).map(|own| own.culprit());
    let verdict = Failure { culprit, epoch: Epoch(1), ..failure(Status::PeerLost, None) };
    let belief = Failure { group: Some(GroupId::WORLD), ..verdict.clone() };
    assert_eq!(registry.state.heard(&formed, verdict.clone()), verdict.to_the_lost());
    assert_eq!(registry.state.heard(&formed, belief.clone()), belief);
    registry.file(Event::Revoked(belief.clone()));
    assert_eq!(present(&registry, GroupId::WORLD).unwrap().context.told(), Some(belief));
}
