//! Whole clusters in which somebody leaves in the middle of something, or calls what the others do not.

use super::cluster_test::{allreduce, barrier, broadcast, node, one_cause, plain, run, scheduler, scheduler_with};
use crate::error::{Result, Status};
use crate::runtime::groups::group::Group;
use crate::runtime::node::cluster::Cluster;
use crate::types::GroupId;
use std::time::{Duration, Instant};

/// Far less than the operations' own time-out, which is 60 s.
const SOON: Duration = Duration::from_secs(10);
/// How soon a disagreement is found; and what a busy machine may add.
const WITHIN_A_SECOND: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_secs(2);
/// How often what a starved scheduler may miss is tried.
const ATTEMPTS: usize = 10;

#[test]
fn a_peer_that_waits_on_a_link_which_nobody_took_in_is_told() {
    let scheduler = scheduler(2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| node(&scheduler, 2, 1, plain()));
        let own = node(&scheduler, 2, 0, plain());
        let other = other.join().expect("forming does not panic");
        let waits = scope.spawn(move || {
            let error = barrier(&other.group(GroupId::WORLD)).unwrap_err();
            other.finalize().unwrap();
            error
        });
        // Until the peer's link is open and lies in the mailbox of a group on which this node never calls.
        let world = own.group(GroupId::WORLD);
        let deadline = Instant::now() + SOON;
        while !world.collectives.has_mail() {
            assert!(Instant::now() < deadline, "the peer does not dial");
            std::thread::yield_now();
        }
        let before = Instant::now();
        own.finalize().unwrap();
        let error = waits.join().expect("the peer does not panic");
        assert!(before.elapsed() < SOON, "the peer waited for {:?}", before.elapsed());
        assert_eq!(error.status(), Status::PeerLeft, "{error}");
    });
}

#[test]
fn leaving_in_the_middle_of_a_call_of_another_thread_is_leaving_to_the_others() {
    let scheduler = scheduler(3);
    for_each_rank(&scheduler, |rank, cluster| {
        let world = cluster.group(GroupId::WORLD);
        // Long enough for frames to be under way whenever the leaving comes.
        let values = vec![1.0; 1 << 20];
        if let Err(error) = allreduce(&world, &[1.0]) {
            return error; // the one that leaves was quicker
        }
        std::thread::scope(|scope| {
            if rank == 1 {
                scope.spawn(|| cluster.finalize().unwrap());
            }
            loop {
                if let Err(error) = allreduce(&world, &values) {
                    return error;
                }
            }
        })
    });
}

fn for_each_rank(
    scheduler: &crate::runtime::scheduler::thread::SchedulerThread,
    work: impl Fn(u32, &crate::runtime::node::cluster::Cluster) -> crate::error::Error + Sync,
) {
    let errors: Vec<_> = std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..3)
            .map(|rank| {
                let work = &work;
                scope.spawn(move || {
                    let cluster = node(scheduler, 3, rank, plain());
                    let error = work(rank, &cluster);
                    cluster.finalize().unwrap();
                    error
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    assert_eq!(errors[1].status(), Status::State, "{}", errors[1]);
    let others = [errors[0].clone(), errors[2].clone()].map(Some).to_vec();
    let sentence = one_cause(others, Status::PeerLeft);
    assert!(sentence.starts_with("rank 1 (node id \"1\""), "{sentence}");
}

#[test]
fn what_is_asked_after_leaving_is_refused_and_not_kept() {
    let scheduler = scheduler(1);
    let cluster = node(&scheduler, 1, 0, plain());
    cluster.finalize().unwrap();
    assert_eq!(cluster.store().set(b"k", b"v").unwrap_err().status(), Status::State);
    assert_eq!(cluster.abort(1, "late").unwrap_err().status(), Status::State);
    assert_eq!(barrier(&cluster.group(GroupId::WORLD)).unwrap_err().status(), Status::State);
    // The agent thread ends soon after; from then on a command has nowhere to wait.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !cluster.state.has_ended() {
        assert!(Instant::now() < deadline, "the agent thread has not ended");
        // Nothing tells of it, so the test looks again; its deadline does not depend on this sleep.
        std::thread::sleep(Duration::from_millis(1));
    }
    cluster.store().set(b"k", &vec![0; 1 << 20]).unwrap_err();
    assert!(cluster.state.next_command().is_none());
}

#[test]
fn a_disagreement_without_frames_is_found_although_heartbeats_are_rare() {
    let config = |config: &mut crate::config::Config| config.set("node_timeout", "60").unwrap();
    let scheduler = scheduler_with(2, config);
    let errors: Vec<_> = std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..2)
            .map(|rank| {
                let scheduler = &scheduler;
                scope.spawn(move || {
                    let cluster = node(scheduler, 2, rank, plain());
                    // Each believes that the other is the root: both wait, and no frame meets any.
                    let mut values = vec![0.0; 4];
                    let before = Instant::now();
                    let error = broadcast(&cluster.group(GroupId::WORLD), &mut values, 1 - rank);
                    assert!(before.elapsed() < WITHIN_A_SECOND + SLACK, "it took {:?}", before.elapsed());
                    cluster.finalize().unwrap();
                    Some(error.unwrap_err())
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    let sentence = one_cause(errors, Status::Mismatch);
    assert!(sentence.contains("root 0") && sentence.contains("root 1"), "{sentence}");
}

#[test]
fn a_disagreement_is_found_although_the_others_have_gone_on() {
    let errors = run(8, &plain(), |_, world| {
        barrier(world).unwrap();
        let odd = world.rank() == Some(5);
        // Rank 5 waits for rank 3, which sends it nothing any more; the others do without rank 5 until the allreduce, and
        // there, too, rank 3 has nothing for rank 5.
        let mut outcome = broadcast(world, &mut vec![0.0; 4], if odd { 3 } else { 0 });
        for _ in 0..20 {
            outcome = outcome.and_then(|()| broadcast(world, &mut vec![0.0; 4], 0));
        }
        Some(outcome.and_then(|()| allreduce(world, &[1.0])).unwrap_err())
    });
    let sentence = one_cause(errors, Status::Mismatch);
    assert!(sentence.contains("root 0") && sentence.contains("root 3"), "{sentence}");
}

/// Whichever way the barrier goes, or if the scheduler makes the group: a small broadcast from the wrong root need not hold up anyone.
#[test]
fn nobody_comes_through_a_barrier_or_makes_a_group_behind_a_disagreement() {
    for (size, odd) in (2..=6).flat_map(|size| (1..size).map(move |odd| (size, odd))) {
        behind_a_disagreement(size, odd, |_, world| barrier(world));
    }
    for (size, odd) in [(2, 1), (3, 2), (4, 1), (4, 3)] {
        behind_a_disagreement(size, odd, |cluster, world| cluster.registry.split(world, Some(0), 0).map(drop));
    }
}

/// The scheduler may not compare the calls within its 0.6 s on a starved machine. Then each rank says what it knows itself, which is
/// right, and it is tried again.
fn behind_a_disagreement(size: u32, odd: u32, call: fn(&Cluster, &Group) -> Result<()>) {
    let sentences = (0..ATTEMPTS).map(|_| sentence_behind_a_disagreement(size, odd, call));
    let sentence = sentences.into_iter().find(|sentence| !sentence.contains("but their earlier calls differ"));
    let sentence = sentence.expect("the scheduler compares the calls at last");
    let both = sentence.contains("root 0") && sentence.contains(&format!("root {odd}"));
    assert!(both, "rank {odd} of {size}: {sentence}");
}

fn sentence_behind_a_disagreement(size: u32, odd: u32, call: fn(&Cluster, &Group) -> Result<()>) -> String {
    let errors = run(size, &plain(), |cluster, world| {
        let first = barrier(world); // the others may be further, and have fallen out already
        let root = if world.rank() == Some(odd) { odd } else { 0 };
        let outcome = first.and_then(|()| broadcast(world, &mut vec![0.0; 4], root));
        let before = Instant::now();
        let error = outcome.and_then(|()| call(cluster, world)).unwrap_err();
        assert!(before.elapsed() < WITHIN_A_SECOND + SLACK, "it took {:?}", before.elapsed());
        Some(error)
    });
    one_cause(errors, Status::Mismatch)
}
