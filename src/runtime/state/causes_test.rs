use super::*;
use crate::types::Epoch;

const MADE: GroupId = GroupId(3);

fn failure(status: Status, group: Option<GroupId>, cause: &str) -> Failure {
    Failure { status, culprit: None, cause: cause.to_owned(), epoch: Epoch(1), group, sequence: 0 }
}

fn wish(group: GroupId) -> Failure {
    failure(Status::Revoked, Some(group), "called muster_recover")
}

/// The issue's own case: a made group is cancelled, others enter `muster_recover`, and this rank calls late.
#[test]
fn that_somebody_wants_the_next_epoch_is_never_the_first_cause() {
    let cancelled = failure(Status::Aborted, Some(MADE), "cancelled");
    let mut causes = Causes::default();
    causes.revoke(MADE, cancelled.clone());
    for group in [GroupId::WORLD, GroupId::UNIVERSE, GroupId(4)] {
        causes.revoke(group, wish(group));
    }
    assert_eq!(causes.of_group(MADE), Some(&cancelled));
    assert_eq!(causes.of_cluster(), Some(&cancelled));
    assert_eq!(causes.of_group(GroupId::WORLD), Some(&wish(GroupId::WORLD)), "there is nothing else to tell of it");
    // The same holds in the other order, and where nothing else was wrong at all.
    let mut causes = Causes::default();
    causes.revoke(GroupId::WORLD, wish(GroupId::WORLD));
    assert_eq!(causes.of_cluster(), Some(&wish(GroupId::WORLD)));
    causes.revoke(MADE, cancelled.clone());
    assert_eq!(causes.of_cluster(), Some(&cancelled));
}

#[test]
fn what_a_call_has_told_is_told_from_then_on() {
    let guess = failure(Status::PeerLost, Some(GroupId::WORLD), "rank 2 is probably lost, unconfirmed");
    let verdict = failure(Status::PeerLost, None, "rank 1 is lost");
    let mut causes = Causes::default();
    assert_eq!(causes.settle(GroupId::WORLD, guess.clone()), guess);
    causes.break_cluster(verdict.clone()); // the scheduler's last word was on its way
    assert_eq!(causes.settle(GroupId::WORLD, verdict.clone()), guess);
    assert_eq!((causes.of_group(GroupId::WORLD), causes.of_cluster()), (Some(&guess), Some(&guess)));
    for group in [GroupId::UNIVERSE, MADE] {
        assert_eq!(causes.of_group(group), Some(&guess), "nothing ended that alone: it is over with the cluster");
        assert_eq!(causes.settle(group, verdict.clone()), guess);
    }
    assert_eq!(causes.of_call(&verdict), guess, "a store call tells what `muster_failure` tells");
    for status in [Status::Aborted, Status::Fenced] {
        let end = failure(status, None, "given up");
        assert_eq!(causes.of_call(&end), end);
    }
    // If the verdict had come in time, the call would have told it.
    let mut causes = Causes::default();
    causes.break_cluster(verdict.clone());
    assert_eq!(causes.settle(GroupId::WORLD, guess.clone()), verdict);
    causes.revoke(GroupId::UNIVERSE, guess);
    assert_eq!((causes.of_group(GroupId::UNIVERSE), causes.of_cluster()), (Some(&verdict), Some(&verdict)));
}

#[test]
fn what_ends_the_cluster_goes_before_what_ended_a_made_group() {
    let timeout = failure(Status::Timeout, Some(MADE), "the time is up");
    let later = failure(Status::Mismatch, Some(GroupId(4)), "another call");
    let lost = failure(Status::PeerLost, None, "rank 1 is lost");
    let mut causes = Causes::default();
    causes.settle(MADE, timeout.clone());
    causes.revoke(GroupId(4), later.clone());
    assert_eq!(causes.of_cluster(), Some(&timeout), "the earliest");
    causes.forget(MADE);
    assert_eq!(causes.of_cluster(), Some(&later), "a group that has been freed does not count");
    causes.settle(MADE, timeout.clone());
    causes.break_cluster(lost.clone());
    assert_eq!(causes.of_cluster(), Some(&lost));
    assert_eq!(causes.of_group(MADE), Some(&timeout), "it was over before");
    causes.break_cluster(failure(Status::Aborted, None, "aborted"));
    assert_eq!(causes.of_cluster(), Some(&lost), "nothing that follows is the first cause");
}

#[test]
fn one_that_is_taken_for_lost_is_told_so_unless_a_call_has_told_something_else() {
    let lost = failure(Status::PeerLost, None, "rank 1 is lost");
    let fenced = failure(Status::Fenced, None, "was taken for lost by the others");
    let mut causes = Causes::default();
    causes.break_cluster(lost.clone());
    causes.break_cluster(fenced.clone());
    assert_eq!((causes.of_group(GroupId::WORLD), causes.of_cluster()), (Some(&fenced), Some(&fenced)));
    for group in [GroupId::WORLD, MADE] {
        let mut causes = Causes::default();
        causes.break_cluster(lost.clone());
        causes.settle(group, wish(group));
        causes.break_cluster(fenced.clone());
        assert_eq!((causes.of_group(group), causes.of_cluster()), (Some(&lost), Some(&lost)));
    }
}
