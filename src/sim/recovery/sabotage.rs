//! Rules broken on purpose: each must be noticed, by the check that is there for it.

use super::plan::Plan;
use super::world::World;
use crate::wire::Message;
use std::sync::Arc;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sabotage {
    /// A write is told of as durable before it is.
    AcknowledgeEarly,
    /// The newest epoch is forgotten when the scheduler is started again.
    ForgetEpoch,
    /// Frames are let in whatever epoch they are of.
    AnyEpoch,
    /// Bytes are changed on their way.
    WrongResult,
    /// One program never goes into `muster_recover`.
    NeverRecovers,
    /// A verdict names somebody else.
    WrongCulprit,
    /// Two nodes are told the same rank.
    SameRank,
    /// A life is told that it has a place that is another's.
    TwoLives,
}

/// What becomes of a message of the scheduler's.
pub(super) fn tampered(world: &World, message: Message) -> Message {
    match (world.sabotage, message) {
        (Some(Sabotage::WrongCulprit), Message::Verdict(mut verdict)) => {
            let innocent = world.processes.iter().position(|process| process.alive && process.to_blame.is_none());
            if let (Some(node), Some(culprit)) = (innocent, &mut verdict.failure.culprit) {
                culprit.pid = 1000 + node as u32;
            }
            Message::Verdict(verdict)
        }
        (Some(Sabotage::SameRank), Message::Formed(mut formed)) => {
            let rank = formed.members[0].rank;
            let second = &mut Arc::make_mut(&mut formed.members)[1];
            Arc::make_mut(second).rank = rank;
            Message::Formed(formed)
        }
        (Some(Sabotage::TwoLives), Message::Formed(mut formed)) if formed.epoch.0 > 1 => {
            formed.index = 0;
            Message::Formed(formed)
        }
        (_, message) => message,
    }
}

/// Plays stories until one is found wrong: how.
fn noticed(sabotage: Sabotage) -> String {
    for seed in 0..400 {
        let mut world = World::new(Plan::of(seed), false);
        world.sabotage = Some(sabotage);
        if let Err(wrong) = world.play() {
            return wrong;
        }
    }
    panic!("{sabotage:?} was not noticed");
}

#[test]
fn each_rule_that_is_broken_is_noticed_by_its_check() {
    for (sabotage, words) in [
        (
            Sabotage::AcknowledgeEarly,
            &["an acknowledged write is lost", "the epoch went back", "the journal forgot"][..],
        ),
        (Sabotage::ForgetEpoch, &["the epoch went back"]),
        (Sabotage::AnyEpoch, &["on a frame of epoch"]),
        (Sabotage::WrongResult, &["has a wrong result"]),
        (Sabotage::NeverRecovers, &["no end within the bound"]),
        (Sabotage::WrongCulprit, &["the culprit did not fail"]),
        (Sabotage::SameRank, &["two nodes have"]),
        (Sabotage::TwoLives, &["was given the place of another"]),
    ] {
        let wrong = noticed(sabotage);
        assert!(words.iter().any(|words| wrong.contains(words)), "{sabotage:?} was noticed as: {wrong}");
    }
}
