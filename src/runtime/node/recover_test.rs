use super::*;
use crate::runtime::links::mesh::tests::formed;
use std::sync::Arc;

fn failure(status: Status, cause: &str) -> Failure {
    Failure { status, culprit: None, cause: cause.to_owned(), epoch: Epoch(1), group: None, sequence: 0 }
}

/// What rank 0 of two knows once its cluster was broken for this cause, and these nodes are lost.
fn broken(first: Failure, lost: Vec<u32>) -> NodeView {
    let addresses = [([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into()];
    let mut epoch = EpochView::of(Arc::new(formed(0, addresses)));
    epoch.causes.break_cluster(first.clone());
    (epoch.broken, epoch.lost) = (Some(first), lost);
    NodeView { epoch, ..NodeView::default() }
}

fn told(view: &mut NodeView) -> Error {
    outcome(view, Epoch(1), false).expect("it is known").expect_err("there is no next epoch")
}

#[test]
fn a_loss_that_followed_from_the_end_of_a_group_is_told_as_a_loss() {
    for status in [Status::Timeout, Status::Mismatch, Status::Link] {
        let first = failure(status, "it was not complete in time");
        let mut view = broken(first.clone(), vec![1]);
        for _ in 0..2 {
            let error = told(&mut view);
            assert_eq!(error.status(), Status::PeerLost, "{error}");
            let words = error.message();
            assert!(words.starts_with("rank 1 (node id \"1\", host host, pid 2) is lost"), "{words}");
            assert!(words.ends_with("the first cause was: it was not complete in time"), "{words}");
        }
        assert_eq!(view.epoch.causes.of_cluster(), Some(&first), "that is what the groups' calls tell");
    }
}

#[test]
fn one_that_is_not_in_the_table_is_told_by_its_number() {
    let mut view = broken(failure(Status::Timeout, "it was late"), vec![7]);
    assert!(told(&mut view).message().starts_with("node 7 is lost"), "{}", told(&mut view));
}

#[test]
fn a_node_that_is_itself_called_lost_is_told_that_it_was_given_up() {
    let mut view = broken(failure(Status::Timeout, "it was late"), vec![0]);
    assert_eq!(told(&mut view).status(), Status::Fenced);
}

#[test]
fn a_cause_that_ends_the_job_by_itself_is_told_as_it_is() {
    for status in [Status::PeerLost, Status::PeerLeft, Status::Fenced, Status::Aborted] {
        let error = told(&mut broken(failure(status, "the cause"), vec![1]));
        assert_eq!((error.status(), error.message()), (status, "the cause"));
    }
}

#[test]
fn with_recovery_a_lost_node_is_waited_for() {
    let mut view = broken(failure(Status::Timeout, "it was late"), vec![1]);
    assert!(outcome(&mut view, Epoch(1), true).is_none());
}
