//! The process that hosts the scheduler leaves before others. These do not leave in the test before its time is up.

use super::*;
use crate::config::Config;
use crate::runtime::base::disk::OwnDisk;
use crate::runtime::cluster_test::{barrier, node_with, plain, scheduler_with};
use crate::runtime::links::upgrade::Upgrade;
use crate::runtime::scheduler::writer;
use crate::types::{GroupId, Hook};
use std::thread::scope;

/// As long as it may take at most until the others notice.
const SOON: Duration = Duration::from_secs(20);

/// A cluster of so many workers, in order of rank. The process of rank 0 hosts the scheduler.
fn hosted(workers: u32, set: impl Fn(&mut Config) + Sync) -> Vec<Cluster> {
    let scheduler = scheduler_with(workers, &set);
    let quick = |config: &mut Config| {
        config.set("finalize_timeout", "0.5").unwrap();
        set(config);
    };
    let join = |rank| node_with(&scheduler, workers, rank, plain(), Upgrade::none(), quick);
    let mut nodes: Vec<Cluster> = scope(|scope| {
        let join = &join;
        let ranks: Vec<_> = (0..workers).map(|rank| scope.spawn(move || join(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    nodes[0].scheduler = Some(scheduler);
    nodes
}

#[test]
fn the_others_go_on_when_the_process_leaves_that_hosts_the_scheduler() {
    let mut nodes = hosted(3, |_| ());
    scope(|scope| {
        for node in &nodes {
            scope.spawn(|| {
                let made = node.registry().create(&node.group(GroupId::WORLD), &[1, 2]).unwrap();
                made.into_iter().for_each(|pair| barrier(&pair.present()).unwrap());
            });
        }
    });
    let host = nodes.remove(0);
    host.finalize().unwrap();
    assert!(nodes.iter().all(|node| node.state.view().away.is_none()), "until it is freed it serves them");
    drop(host);
    for node in &nodes {
        let until = node.state.clock.now() + SOON;
        let away = node.state.wait(until, |view| view.away.as_ref().map(|_| ()));
        assert!(away.is_some(), "the scheduler is gone");
        let broken = node.state.view().epoch.broken.clone();
        assert!(broken.is_none(), "an abort would have come before: {broken:?}");
    }
    scope(|scope| {
        for node in &nodes {
            scope.spawn(|| {
                let groups = node.registry().groups();
                let pair = groups.iter().find(|group| group.id() > GroupId::UNIVERSE).expect("it was made");
                barrier(pair).unwrap();
                node.finalize().unwrap();
            });
        }
    });
}

/// The program's hook may end the wait of its main thread, though another thread leaves meanwhile and is not to be interrupted.
#[test]
fn a_thread_that_waits_for_another_that_leaves_is_interrupted() {
    let main = std::thread::current().id();
    let hook = Hook::new(move || i32::from(std::thread::current().id() == main));
    let mut nodes = hosted(2, |config| {
        config.set("finalize_timeout", "60").unwrap();
        config.set_interrupt(hook.clone());
    });
    let other = nodes.pop().unwrap();
    scope(|scope| {
        let host = &nodes[0];
        let leaves = scope.spawn(move || host.finalize()); // it waits for the other node
        while host.leaving.try_lock().is_ok() {
            std::thread::yield_now();
        }
        let error = host.finalize().expect_err("the hook has ended it");
        assert_eq!(error.status(), Status::Interrupted, "{error}");
        assert!(!leaves.is_finished());
        scope.spawn(move || other.finalize().unwrap());
        leaves.join().unwrap().unwrap();
    });
}

/// A job that still has members may go on with a new scheduler, whether this process has left or is lost to the others. One that
/// was aborted may not.
#[test]
fn with_recovery_the_journal_of_such_a_job_is_done_only_after_an_abort() {
    for (aborts, leaves) in [(false, true), (true, true), (false, false), (true, false)] {
        let name = format!("muster-finalize-{}-{aborts}-{leaves}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let recovers = |config: &mut Config| {
            config.set("enable_recovery", "1").unwrap();
            config.set("recovery_path", folder.to_str().unwrap()).unwrap();
        };
        let mut nodes = hosted(2, recovers);
        let (host, instance) = (nodes.remove(0), nodes[0].formed().instance);
        if aborts {
            host.abort(7, "enough").unwrap();
        }
        if leaves {
            host.finalize().unwrap();
        }
        drop(host);
        let mut config = Config::new();
        config.set("worker_num", "2").unwrap();
        recovers(&mut config);
        let settings = config.scheduler_settings().unwrap();
        let begun = writer::begin(&settings, || Ok(Box::new(OwnDisk::of(&settings)?))).unwrap();
        assert_eq!(begun.instance == instance, !aborts, "{:?}", begun.notes);
        drop((begun, nodes));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
