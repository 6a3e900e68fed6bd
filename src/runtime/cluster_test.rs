//! Whole clusters in this process: a scheduler and nodes on threads, over real sockets, and over the test link that
//! splits at every byte, hides readiness and holds bytes of which the poller does not know.

use crate::agent::Event;
use crate::config::Config;
use crate::error::{Error, Failure, Result, Status};
use crate::net::testlink::TestLink;
use crate::net::{unwrapped, Side, Wrap};
use crate::runtime::base::request::Request;
use crate::runtime::collectives::queued_call::Work;
use crate::runtime::groups::group::Group;
use crate::runtime::links::upgrade::Upgrade;
use crate::runtime::memory::buffer::CallBuffers;
use crate::runtime::node::cluster::{join_over, start_scheduler, Cluster, Joined};
use crate::runtime::scheduler::serving::Serving;
use crate::runtime::scheduler::thread::SchedulerThread;
use crate::runtime::state::node_state::NodeView;
use crate::secret::Guard;
use crate::types::{Call, CallKind, DType, GroupId, ReduceOp};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) fn plain() -> Wrap {
    unwrapped()
}

/// Test links that take at most so many bytes at a time.
pub(crate) fn hard(piece: usize) -> Wrap {
    static SEED: AtomicU64 = AtomicU64::new(1);
    Arc::new(move |transport, _| Box::new(TestLink::with_piece(transport, SEED.fetch_add(1, Ordering::Relaxed), piece)))
}

pub(crate) fn scheduler(workers: u32) -> SchedulerThread {
    scheduler_with(workers, |_| ())
}

pub(crate) fn scheduler_with(workers: u32, set: impl FnOnce(&mut Config)) -> SchedulerThread {
    let mut config = of_linked(workers);
    set(&mut config);
    start_scheduler(&config.scheduler_settings().unwrap()).unwrap()
}

/// A cluster whose ranks talk over links only: what links do is tested here.
fn of_linked(workers: u32) -> Config {
    let mut config = Config::new();
    for (key, value) in
        [("worker_num", workers.to_string()), ("cluster_timeout", "60".to_owned()), ("shm", "off".to_owned())]
    {
        config.set(key, &value).unwrap();
    }
    config
}

/// One each of whose connections is wrapped.
pub(crate) fn scheduler_over(workers: u32, wrap: Wrap) -> SchedulerThread {
    let config = of_linked(workers);
    let serving =
        Serving::over(&config.scheduler_settings().unwrap(), Guard::of(wrap), || unreachable!("there is no recovery"));
    SchedulerThread::of(serving.unwrap()).unwrap()
}

pub(crate) fn node(scheduler: &SchedulerThread, workers: u32, rank: u32, wrap: Wrap) -> Cluster {
    node_with(scheduler, workers, rank, wrap, Upgrade::none(), |_| ())
}

pub(crate) fn node_with(
    scheduler: &SchedulerThread,
    workers: u32,
    rank: u32,
    wrap: Wrap,
    upgrade: Upgrade,
    set: impl FnOnce(&mut Config),
) -> Cluster {
    let address = scheduler.addresses()[0];
    let mut config = Config::new();
    for (key, value) in [
        ("role", "MS_WORKER".to_owned()),
        ("sched_host", address.ip().to_string()),
        ("sched_port", address.port().to_string()),
        ("worker_num", workers.to_string()),
        ("node_id", rank.to_string()),
        ("timeout", "60".to_owned()),
    ] {
        config.set(key, &value).unwrap();
    }
    set(&mut config);
    match join_over(config.settings().unwrap(), Guard::of(wrap), upgrade).unwrap() {
        Joined::Node(cluster) => *cluster,
        Joined::SchedulerDone => panic!("a worker is no scheduler"),
    }
}

/// Runs `work` as every rank of a cluster; what each returned, in order of rank.
pub(crate) fn run<T: Send>(workers: u32, wrap: &Wrap, work: impl Fn(&Cluster, &Group) -> T + Sync) -> Vec<T> {
    run_upgraded(workers, wrap, |_| Upgrade::none(), work)
}

/// The same, with links that can be upgraded to this, by rank.
pub(crate) fn run_upgraded<T: Send>(
    workers: u32,
    wrap: &Wrap,
    upgrade: impl Fn(u32) -> Upgrade + Sync,
    work: impl Fn(&Cluster, &Group) -> T + Sync,
) -> Vec<T> {
    let scheduler = scheduler(workers);
    let results = std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..workers)
            .map(|rank| {
                let (scheduler, work, upgrade) = (&scheduler, &work, upgrade(rank));
                scope.spawn(move || {
                    let cluster = node_with(scheduler, workers, rank, Arc::clone(wrap), upgrade, |_| ());
                    let world = cluster.group(GroupId::WORLD);
                    let result = work(&cluster, &world);
                    cluster.finalize().unwrap();
                    result
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    assert!(scheduler.wait(Some(Duration::from_secs(20))).is_some(), "the scheduler ends when all have left");
    results
}

/// The same, and the scheduler's connections are wrapped, too. Each rank also asks the scheduler for something.
pub(crate) fn run_both_planes(workers: u32, wrap: &Wrap, work: impl Fn(&Cluster, &Group) + Sync) {
    let scheduler = scheduler_over(workers, Arc::clone(wrap));
    std::thread::scope(|scope| {
        for rank in 0..workers {
            let (scheduler, work) = (&scheduler, &work);
            scope.spawn(move || {
                let cluster = node(scheduler, workers, rank, Arc::clone(wrap));
                cluster.store().set(format!("key {rank}").as_bytes(), b"value").unwrap();
                work(&cluster, &cluster.group(GroupId::WORLD));
                cluster.finalize().unwrap();
            });
        }
    });
    assert_eq!(scheduler.wait(None), Some(Ok(())));
}

fn call(kind: CallKind, count: usize) -> Call {
    Call { kind, dtype: Some(DType::Float32), op: None, root: None, count: count as u64, layout: 0 }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap())).collect()
}

pub(crate) fn allreduce(group: &Group, values: &[f32]) -> Result<Vec<f32>> {
    let mut out = vec![0; values.len() * 4];
    let call = Call { op: Some(ReduceOp::Sum), ..call(CallKind::Allreduce, values.len()) };
    group.run(Work::plain(call, CallBuffers::of(&bytes(values), &mut out)))?;
    Ok(floats(&out))
}

fn allgather(group: &Group, values: &[f32]) -> Result<Vec<f32>> {
    let mut out = vec![0; values.len() * 4 * group.size() as usize];
    group.run(Work::plain(call(CallKind::Allgather, values.len()), CallBuffers::of(&bytes(values), &mut out)))?;
    Ok(floats(&out))
}

pub(crate) fn broadcast(group: &Group, values: &mut Vec<f32>, root: u32) -> Result<()> {
    let mut buffer = bytes(values);
    let call = Call { root: Some(root), ..call(CallKind::Broadcast, values.len()) };
    group.run(Work::plain(call, CallBuffers::of(&[], &mut buffer)))?;
    *values = floats(&buffer);
    Ok(())
}

pub(crate) fn barrier(group: &Group) -> Result<()> {
    let call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
    group.run(Work::plain(call, CallBuffers::of(&[], &mut [])))
}

/// Every kind, at these counts, against computed answers.
fn everything(group: &Group, counts: &[usize]) {
    let (rank, size) = (group.rank().unwrap(), group.size());
    for &count in counts {
        let mine: Vec<f32> = (0..count).map(|i| (i % 100) as f32 + rank as f32).collect();
        let sum = |i: usize| (0..size).map(|r| (i % 100) as f32 + r as f32).sum::<f32>();
        let reduced = allreduce(group, &mine).unwrap();
        assert!(reduced.iter().enumerate().all(|(i, value)| *value == sum(i)), "{count} floats, rank {rank} of {size}");
        let gathered = allgather(group, &mine).unwrap();
        let expected = (0..size).flat_map(|r| (0..count).map(move |i| (i % 100) as f32 + r as f32));
        assert!(gathered.iter().copied().eq(expected), "{count} floats, rank {rank} of {size}");
        let root = count as u32 % size;
        let mut spread = if rank == root { mine } else { vec![0.0; count] };
        broadcast(group, &mut spread, root).unwrap();
        assert!(spread.iter().enumerate().all(|(i, value)| *value == (i % 100) as f32 + root as f32));
        barrier(group).unwrap();
    }
}

#[test]
fn collectives_over_plain_links() {
    for workers in [1, 2, 3, 4, 5, 8] {
        run(workers, &plain(), |_, world| everything(world, &[0, 1, 2, 7, 1000, 100_003]));
    }
}

#[test]
fn collectives_over_links_that_split_at_every_byte() {
    for workers in [2, 3, 4] {
        run(workers, &hard(1), |_, world| everything(world, &[0, 1, 3, 50]));
    }
    run(3, &hard(1000), |_, world| everything(world, &[20_000, 70_000]));
}

#[test]
fn sixty_four_ranks() {
    run(64, &plain(), |_, world| everything(world, &[1, 100]));
}

/// What every rank says of the failure; all must say the same.
pub(crate) fn one_cause(outcomes: Vec<Option<Error>>, status: Status) -> String {
    let mut told: Vec<Error> = outcomes.into_iter().flatten().collect();
    let first = told.remove(0);
    assert_eq!(first.status(), status, "{first}");
    for other in told {
        assert_eq!(other, first);
    }
    first.message().to_owned()
}

/// The scheduler is told which end is its own, and so is a node: on both planes each connection has one of each.
#[test]
fn both_planes_are_wrapped_and_each_end_knows_its_side() {
    const RANKS: u32 = 3;
    let sides = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let counted = {
        let sides = Arc::clone(&sides);
        let hard = hard(7);
        let wrap: Wrap = Arc::new(move |transport, side| {
            sides[usize::from(side == Side::Server)].fetch_add(1, Ordering::Relaxed);
            hard(transport, side)
        });
        wrap
    };
    run_both_planes(RANKS, &counted, |_, world| assert_eq!(allreduce(world, &[1.0]).unwrap(), [3.0]));
    let [clients, servers] = [0, 1].map(|side: usize| sides[side].load(Ordering::Relaxed));
    // A connection more may be dialled than is accepted, where two cross.
    assert!(servers > u64::from(RANKS) && clients >= servers, "{clients} clients, {servers} servers");
}

#[test]
fn a_mismatch_is_told_to_everyone() {
    for wrap in [plain(), hard(1)] {
        let outcomes = run(4, &wrap, |_, world| {
            // A rank that is still in the first while others disagree about the second hears of that already.
            let first = allreduce(world, &[1.0]);
            if let Err(error) = first {
                return Some(error);
            }
            let outcome =
                if world.rank() == Some(3) { barrier(world) } else { allreduce(world, &[1.0, 2.0]).map(drop) };
            let error = outcome.expect_err("nobody can have succeeded");
            assert_eq!(allreduce(world, &[1.0]).unwrap_err(), error, "the first cause stays");
            Some(error)
        });
        let sentence = one_cause(outcomes, Status::Mismatch);
        assert!(sentence.contains("allreduce(count 2, float32, sum)") && sentence.contains("barrier()"), "{sentence}");
    }
}

#[test]
fn a_rank_that_never_came_is_named() {
    let outcomes = run(3, &plain(), |cluster, world| {
        barrier(world).unwrap();
        if world.rank() == Some(1) {
            // It stays away until the others have given up.
            let failed = cluster
                .state
                .wait(crate::types::Time::NEVER, |view| view.epoch.causes.of_group(GroupId::WORLD).cloned());
            return Some(failed.unwrap().into());
        }
        world.set_timeout_ms(300).unwrap();
        Some(barrier(world).unwrap_err())
    });
    let sentence = one_cause(outcomes, Status::Timeout);
    assert!(
        sentence.starts_with("rank 1 (node id \"1\"") && sentence.contains("never entered barrier #2 on world"),
        "{sentence}"
    );
}

#[test]
fn a_started_call_keeps_to_its_time_behind_one_that_has_more() {
    for first_is_started in [true, false] {
        let outcomes = run(2, &plain(), |cluster, world| {
            barrier(world).unwrap();
            let stays_away = || {
                let failed = |view: &mut NodeView| view.epoch.causes.of_group(GroupId::WORLD).cloned();
                cluster.state.wait(crate::types::Time::NEVER, failed).unwrap().into()
            };
            if world.rank() == Some(1) {
                return Some(stays_away());
            }
            let start = |limit_ms: i64| {
                world.set_timeout_ms(limit_ms).unwrap();
                let call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
                world.start(Work::plain(call, CallBuffers::of(&[], &mut []))).unwrap()
            };
            world.set_timeout_ms(i64::MAX).unwrap();
            std::thread::scope(|scope| {
                // The third is behind the second, for which nobody has begun to wait.
                let blocked = (!first_is_started).then(|| scope.spawn(|| barrier(world).unwrap_err()));
                let has_entered = || world.collectives.turns.with_log(|log| log.called(2).is_some());
                while blocked.is_some() && !has_entered() {
                    std::thread::yield_now();
                }
                let others: Vec<_> = [i64::MAX, i64::MAX, 300].map(start).into();
                let limit = Some(Duration::from_secs(60));
                let outcome = |request: &Request| request.wait(limit).expect("it keeps to its time");
                let errors: Vec<Error> = others.iter().map(|request| outcome(request).unwrap_err()).collect();
                assert!(errors.iter().chain(&blocked.map(|it| it.join().unwrap())).all(|error| *error == errors[0]));
                errors.into_iter().next()
            })
        });
        let sentence = one_cause(outcomes, Status::Timeout);
        assert!(sentence.contains(": its time-out of 0.3 s ended before it began"), "{sentence}");
    }
}

#[test]
fn one_who_has_left_is_named() {
    let outcomes = run(3, &plain(), |cluster, world| {
        if let Err(error) = barrier(world) {
            return Some(error); // the others were quicker
        }
        if world.rank() == Some(2) {
            cluster.finalize().unwrap();
            return None;
        }
        Some(allreduce(world, &[1.0]).unwrap_err())
    });
    let sentence = one_cause(outcomes, Status::PeerLeft);
    assert!(sentence.starts_with("rank 2 (") && sentence.contains("has left the cluster"), "{sentence}");
}

#[test]
fn one_who_goes_without_leaving_is_lost() {
    let scheduler = scheduler(3);
    let outcomes: Vec<Option<Error>> = std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..3)
            .map(|rank| {
                let scheduler = &scheduler;
                scope.spawn(move || {
                    let cluster = node(scheduler, 3, rank, plain());
                    let world = cluster.group(GroupId::WORLD);
                    let met = barrier(&world);
                    if rank == 0 {
                        return None; // dropped without finalizing
                    }
                    world.set_timeout_ms(20_000).unwrap();
                    let error = met.and_then(|()| allreduce(&world, &[1.0])).unwrap_err();
                    assert_eq!(cluster.failed_ranks(), [0]);
                    cluster.finalize().unwrap();
                    Some(error)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    let sentence = one_cause(outcomes, Status::PeerLost);
    assert!(sentence.starts_with("rank 0 (node id \"0\""), "{sentence}");
    let ended = scheduler.wait(Some(Duration::from_secs(20))).expect("a broken job ends");
    assert_eq!(ended.unwrap_err().status(), Status::PeerLost);
}

#[test]
fn an_abort_ends_every_call() {
    let outcomes = run(3, &plain(), |cluster, world| {
        if let Err(error) = barrier(world) {
            return Some(error); // the others were quicker
        }
        if world.rank() == Some(1) {
            cluster.abort(7, "the loss is not a number").unwrap();
        }
        Some(barrier(world).unwrap_err())
    });
    let sentence = one_cause(outcomes, Status::Aborted);
    assert!(sentence.contains("the loss is not a number") && sentence.contains('7'), "{sentence}");
}

/// Somebody was lost before: to one group only, while the scheduler was away, or to all.
#[test]
fn an_abort_after_a_loss_ends_what_waits_and_is_not_the_first_cause() {
    let folder = std::env::temp_dir().join(format!("muster-cluster-{}", std::process::id()));
    let recovers = |config: &mut Config| {
        config.set("enable_recovery", "1").unwrap();
        config.set("recovery_path", folder.to_str().unwrap()).unwrap();
    };
    let failure = |status, epoch, group| {
        let cause = "the cause".to_owned();
        Failure { status, culprit: None, cause, epoch, group, sequence: 0 }
    };
    for to_all in [false, true] {
        let scheduler = scheduler_with(1, recovers);
        let cluster = node_with(&scheduler, 1, 0, plain(), Upgrade::none(), recovers);
        scheduler.vanish();
        let (epoch, state) = (cluster.epoch(), &cluster.state);
        let abort = failure(Status::Aborted, epoch, None);
        let lost = failure(Status::PeerLost, epoch, Some(GroupId::WORLD).filter(|_| !to_all));
        std::thread::scope(|scope| {
            let writes = scope.spawn(|| cluster.store().set(b"key", b"value"));
            let await_that = |is_so: &dyn Fn() -> bool| {
                let until = Instant::now() + Duration::from_secs(20);
                while !is_so() && Instant::now() < until {
                    std::thread::yield_now();
                }
            };
            await_that(&|| !state.view().store.is_empty());
            state.file(if to_all { Event::Broken(lost.clone()) } else { Event::Revoked(lost.clone()) });
            state.file(Event::Broken(abort.clone()));
            await_that(&|| writes.is_finished());
            state.file(Event::Left(None)); // this ends it in any case
            let ended = writes.join().unwrap().unwrap_err();
            assert_eq!(ended.status(), Status::Aborted, "{to_all}: {ended}");
        });
        assert_eq!(cluster.failure(), Some(lost), "{to_all}");
        drop((cluster, scheduler));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

/// A call may hear it on its link, before the agent thread hears of it.
#[test]
fn an_abort_that_only_a_call_has_heard_of_is_the_answer_to_recover_at_once() {
    let scheduler = scheduler(1);
    let cluster = node(&scheduler, 1, 0, plain());
    let aborted = |group| {
        let (status, cause, epoch) = (Status::Aborted, "code 7: the disk is gone".to_owned(), cluster.epoch());
        Failure { status, culprit: None, cause, epoch, group, sequence: 0 }
    };
    let made = GroupId(7);
    cluster.state.settle(made, cluster.epoch(), aborted(Some(made))); // a call was cancelled: no more than that
    let recovered = cluster.recover(60_000);
    assert!(recovered.is_ok(), "only one group had ended: {recovered:?}");
    let world = cluster.group(GroupId::WORLD);
    world.context.break_with(aborted(None));
    let error = cluster.recover(0).unwrap_err();
    assert_eq!((error.status(), error.message()), (Status::Aborted, "code 7: the disk is gone"));
}

/// With many requests pending there may be no memory for an error each.
#[test]
fn all_calls_on_a_broken_group_share_one_error() {
    let scheduler = scheduler(1);
    let cluster = node(&scheduler, 1, 0, plain());
    let world = cluster.group(GroupId::WORLD);
    let (status, cause, epoch) = (Status::Memory, "no memory".to_owned(), cluster.epoch());
    world.context.break_with(Failure { status, culprit: None, cause, epoch, group: Some(GroupId::WORLD), sequence: 3 });
    let [first, second] = [(); 2].map(|()| barrier(&world).unwrap_err());
    assert_eq!(first.status(), Status::Memory);
    assert!(std::ptr::eq(first.message(), second.message()));
}

#[test]
fn the_store_serves_everyone() {
    run(3, &plain(), |cluster, world| {
        let rank = world.rank().unwrap();
        if rank == 0 {
            cluster.store().set(b"weights", &vec![7; 1 << 20]).unwrap();
        }
        assert_eq!(cluster.store().get(b"weights", 20_000).unwrap(), vec![7; 1 << 20]);
        assert_eq!(cluster.store().get(b"nothing", 0).unwrap_err().status(), Status::NotFound);
        assert_eq!(cluster.store().get(b"nothing", 20).unwrap_err().status(), Status::Timeout);
        cluster.store().add(b"count", i64::from(rank) + 1).unwrap();
        barrier(world).unwrap();
        assert_eq!(cluster.store().add(b"count", 0).unwrap(), 6);
        assert_eq!(cluster.store().compare_set(b"lock", b"", format!("{rank}").as_bytes()).unwrap().current.len(), 1);
        assert_eq!(cluster.store().get(b"count", 0).unwrap(), b"6");
        barrier(world).unwrap();
        assert!(cluster.store().delete(format!("mine {rank}").as_bytes()).is_ok_and(|existed| !existed));
        cluster.store().wait(&[b"count", b"lock"], 1000).unwrap();
    });
}

#[test]
fn hccl_is_told_of_the_scheduler_and_of_this_node() {
    let scheduler = scheduler(1);
    let address = scheduler.addresses()[0];
    let mut config = Config::new();
    for (key, value) in [
        ("role", "MS_WORKER".to_owned()),
        ("sched_host", address.ip().to_string()),
        ("sched_port", address.port().to_string()),
        ("worker_num", "1".to_owned()),
        ("worker_ip", "127.0.0.2,127.0.0.1".to_owned()),
        ("device_id", "3".to_owned()),
    ] {
        config.set(key, &value).unwrap();
    }
    let Joined::Node(cluster) = join_over(config.settings().unwrap(), Guard::of(plain()), Upgrade::none()).unwrap()
    else {
        panic!("a worker is no scheduler")
    };
    let cm = cluster.hccl_cm().unwrap();
    assert_eq!((cm.chief.ip(), cm.chief.port()), (address.ip(), address.port() + 1));
    assert_eq!((cm.chief_device, cm.worker_size, cm.worker.to_string()), (3, 1, "127.0.0.2".to_owned()));
    cluster.finalize().unwrap();
}

#[test]
fn a_node_that_has_a_launchers_rank_and_no_id_is_known_by_it_in_every_life() {
    let scheduler = scheduler_with(2, |config| config.set("server_num", "1").unwrap());
    let join = |role: &str, rank: u32, id: Option<&str>| {
        let address = scheduler.addresses()[0];
        let mut config = Config::new();
        config.set("role", role).unwrap();
        config.set("sched_host", &address.ip().to_string()).unwrap();
        config.set("sched_port", &address.port().to_string()).unwrap();
        config.set("worker_num", "2").unwrap();
        config.set("server_num", "1").unwrap();
        config.set("rank_id", &rank.to_string()).unwrap();
        id.map_or(Ok(()), |id| config.set("node_id", id)).unwrap();
        match join_over(config.settings().unwrap(), Guard::of(plain()), Upgrade::none()).unwrap() {
            Joined::Node(cluster) => (cluster.node_id().to_owned(), cluster.finalize()).0,
            Joined::SchedulerDone => panic!("a node is no scheduler"),
        }
    };
    let ids = std::thread::scope(|scope| {
        let places = [("MS_WORKER", 0, None), ("MS_WORKER", 1, Some("mine")), ("MS_PSERVER", 0, None)];
        let nodes = places.map(|(role, rank, id)| {
            let join = &join;
            scope.spawn(move || join(role, rank, id))
        });
        nodes.map(|node| node.join().unwrap())
    });
    assert_eq!(ids, ["rank 0", "mine", "server rank 0"]);
}
