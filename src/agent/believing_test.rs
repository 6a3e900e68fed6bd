use super::*;
use crate::agent::bench::{formed, profile, Bench};
use crate::agent::{Event, Input, Output};
use crate::error::Status;
use crate::types::GroupId;
use crate::wire::{Member, Members, Message};
use std::sync::Arc;

/// Turns something possible into something impossible.
type Change = Box<dyn Fn(&mut Formed)>;

/// What a node does if it is told this while it forms.
fn told(change: impl FnOnce(&mut Formed)) -> Bench {
    let mut bench = Bench::new();
    bench.feed(Input::Connected(Vec::new()));
    let mut formed = formed(1, 1);
    change(&mut formed);
    bench.outputs.clear();
    bench.receive(Message::Formed(formed));
    bench
}

/// Why it fails.
fn refused(change: impl FnOnce(&mut Formed)) -> String {
    let bench = told(change);
    let told = bench.told();
    let [Event::Failed(error)] = &told[..] else { panic!("it is believed: {told:?}") };
    assert_eq!(error.status(), Status::Rejected);
    assert!(error.message().starts_with("the scheduler at 10.0.0.1:8118 is not this job's: "), "{error}");
    assert!(bench.outputs.iter().any(|output| matches!(output, Output::Disconnect)));
    error.message().to_owned()
}

#[test]
fn a_cluster_of_another_size_is_not_believed() {
    for theirs in [0, 2, u32::MAX] {
        let reason = refused(|formed| formed.worker_num = theirs);
        let expected = format!("the number of workers is {theirs}, and this node was told 1 (MS_WORKER_NUM)");
        assert!(reason.ends_with(&expected), "{reason}");
        let reason = refused(|formed| formed.server_num = theirs.max(1));
        assert!(reason.ends_with("and this node was told 0 (MS_SERVER_NUM)"), "{reason}");
    }
}

/// A table of nodes with these indices.
fn table(indices: &[u32]) -> Members {
    let member = |index: &u32| Arc::new(Member { index: *index, ..Member::clone(&formed(1, 1).members[0]) });
    Members::new(indices.iter().map(member).collect())
}

#[test]
fn what_cannot_be_is_refused_before_anything_follows_from_it() {
    let changes: [(&str, Change); 10] = [
        ("a place that does not exist", Box::new(|formed| formed.rank = 1)),
        ("a place that does not exist", Box::new(|formed| formed.index = u32::MAX)),
        ("number 1 of 1 on its host", Box::new(|formed| formed.local_rank = 1)),
        ("number 0 of 2 on its host", Box::new(|formed| formed.local_size = 2)),
        ("names a node twice", Box::new(|formed| formed.members = table(&[0, 0]))),
        ("does not name this node", Box::new(|formed| formed.members = table(&[]))),
        ("or a node beyond the 1", Box::new(|formed| formed.members = table(&[1]))),
        ("heartbeat time-out is 0 ms", Box::new(|formed| formed.agreed.heartbeat_timeout_ms = 0)),
        ("heartbeat time-out is", Box::new(|formed| formed.agreed.heartbeat_timeout_ms = u64::MAX)),
        (
            "groups that other groups were made of",
            Box::new(|formed| {
                let one = crate::wire::Creations { parent: GroupId(0), count: 1 };
                formed.creations = vec![one; CREATIONS_MAX + 1];
            }),
        ),
    ];
    for (words, change) in changes {
        let reason = refused(change);
        assert!(reason.contains(words), "{words}: {reason}");
    }
}

#[test]
fn a_rank_that_its_launcher_gave_is_the_nodes_own() {
    let mut register = profile().register;
    (register.worker_num, register.rank) = (2, Some(1));
    let mut formed = Formed { worker_num: 2, ..formed(1, 1) };
    let reason = check_formed(&register, &formed).unwrap_err();
    assert_eq!(reason, "it gives this node rank 0, and this node's settings rank 1");
    register.rank = Some(0);
    assert_eq!(check_formed(&register, &formed), Ok(()));
    register.role = Role::Server;
    formed.server_num = 1;
    register.server_num = 1;
    assert!(check_formed(&register, &formed).is_err(), "index 0 is no server's");
}

#[test]
fn a_member_leaves_a_scheduler_that_says_what_cannot_be_and_stays_one() {
    let mut bench = Bench::joined();
    bench.receive(Message::Formed(Formed { worker_num: u32::MAX, ..formed(1, 2) }));
    let told = bench.told();
    assert!(matches!(&told[..], [Event::SchedulerAway(Some(_))]), "{told:?}");
    assert!(bench.outputs.iter().any(|output| matches!(output, Output::Disconnect)));
}

#[test]
fn a_group_of_nodes_that_there_are_not_is_refused() {
    let register = profile().register;
    let made =
        |members: &[u32]| GroupMade { parent: GroupId(0), nth: 1, group: Some(GroupId(3)), members: members.to_vec() };
    assert_eq!(check_made(&register, &made(&[0])), Ok(()));
    assert_eq!(check_made(&register, &made(&[])), Ok(()));
    for members in [&[0, 0][..], &[1], &[u32::MAX]] {
        assert!(check_made(&register, &made(members)).is_err(), "{members:?}");
    }
}
