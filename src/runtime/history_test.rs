//! What data frames say of the calls before theirs, and what becomes of ranks that have not called the same.

use super::cluster_test::{barrier, broadcast, node, one_cause, plain, scheduler_with};
use crate::error::{Error, Status};
use crate::runtime::collectives::failure::tests::Bench;
use crate::runtime::collectives::job::Work;
use crate::runtime::groups::group::Group;
use crate::runtime::memory::buffer::CallBuffers;
use crate::runtime::node::cluster::Cluster;
use crate::types::{hash, Call, CallDigest, CallKind, DType, Epoch, GroupId};
use crate::wire::{DataHeader, CHECKSUM_BYTES, DATA_HEADER_BYTES, HEADER_BYTES};
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_frame_tells_of_every_call_that_has_ended_before_it_and_of_no_other() {
    let mut bench = Bench::new();
    bench.stand(0);
    let (kind, dtype) = (CallKind::Broadcast, Some(DType::Uint8));
    let call = |count| Call { kind, dtype, op: None, root: Some(0), count, layout: 0 };
    let (mut link, mut history) = (bench.peers[0].try_clone().unwrap(), CallDigest::default());
    let mut sends = |count: u64, sequence: u64, history: &mut CallDigest| {
        let mut buffer = vec![0; count as usize];
        bench.group.run(Work::plain(call(count), CallBuffers::of(&[], &mut buffer))).expect("a root waits for nobody");
        let mut frame = vec![0; HEADER_BYTES + DATA_HEADER_BYTES + buffer.len() + CHECKSUM_BYTES];
        link.read_exact(&mut frame).unwrap();
        let header: &[u8; DATA_HEADER_BYTES] = frame[HEADER_BYTES..].first_chunk().unwrap();
        let expected = DataHeader { sequence, history: history.in_short(), ..DataHeader::of_first(call(count)) };
        assert_eq!(DataHeader::decode(header), Ok(expected));
        history.add(call(count).signature());
    };
    sends(1, 1, &mut history);
    sends(2, 2, &mut history);
    assert!(bench.registry.create(&bench.group, &[4]).is_err(), "it has four members");
    sends(3, 3, &mut history);
    bench.shared.learnt().made.insert((Epoch(1), GroupId::WORLD, 1), Ok(None));
    assert!(bench.registry.create(&bench.group, &[3, 1]).expect("it is made").is_none());
    let (kind, layout) = (CallKind::GroupCreate, hash([3, 1]));
    history.add(Call { kind, dtype: None, op: None, root: None, count: 2, layout }.signature());
    sends(4, 5, &mut history);
}

/// Three ranks that speak to the scheduler when they have a reason to: heartbeats are rare.
fn three(work: impl Fn(&Cluster, &Group, u32) -> Error + Sync) -> Vec<Option<Error>> {
    let scheduler = scheduler_with(3, |config| config.set("node_timeout", "60").unwrap());
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..3)
            .map(|rank| {
                let (scheduler, work) = (&scheduler, &work);
                scope.spawn(move || {
                    let cluster = node(scheduler, 3, rank, plain());
                    let error = work(&cluster, &cluster.group(GroupId::WORLD), rank);
                    // Nothing of it is left in the next epoch, though each rank has called something else in this one.
                    cluster.store_add(b"all", 1).unwrap();
                    while cluster.store_add(b"all", 0).unwrap() < 3 {
                        std::thread::yield_now();
                    }
                    cluster.recover(-1).unwrap();
                    barrier(&cluster.group(GroupId::WORLD)).unwrap();
                    cluster.finalize().unwrap();
                    Some(error)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    })
}

/// Rank 1 takes itself for the first root. It hears nothing of that in the broadcast behind it, in which rank 2 sends to the two
/// others and waits for nobody, but what that frame says of the calls before.
fn two_broadcasts(world: &Group, rank: u32) -> Result<(), Error> {
    broadcast(world, &mut vec![0.0; 4], u32::from(rank == 1)).expect("none waits for rank 1's part");
    broadcast(world, &mut vec![0.0; 4], 2)
}

/// It tells the scheduler at once, and waits for the other, which tells its own since it has to wait.
#[test]
fn ranks_that_called_something_else_before_hear_what_each_called() {
    let waits = AtomicBool::new(false);
    let errors = three(|cluster, world, rank| match rank {
        0 => {
            two_broadcasts(world, 0).expect("rank 2 called the same");
            waits.store(true, Ordering::Release);
            broadcast(world, &mut vec![0.0; 4], 2).expect_err("rank 2 does not come")
        }
        1 => {
            broadcast(world, &mut vec![0.0; 4], 1).expect("none waits for its part");
            while !waits.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let error = broadcast(world, &mut vec![0.0; 4], 2).expect_err("rank 2 called something else before");
            cluster.store_set(b"told", b"").unwrap();
            error
        }
        _ => {
            two_broadcasts(world, 2).expect("it waits for nobody");
            cluster.store_wait(&[b"told"], 20_000).unwrap();
            barrier(world).unwrap_err()
        }
    });
    let sentence = one_cause(errors, Status::Mismatch);
    let of_first = sentence.contains("root 0") && sentence.contains("root 1") && sentence.contains("#1 on world");
    assert!(of_first, "{sentence}");
}

/// Where the others call nothing meanwhile, what they called is not known.
#[test]
fn who_called_something_else_before_than_ranks_that_call_nothing_now_says_what_it_called_last() {
    let errors = three(|cluster, world, rank| {
        let outcome = two_broadcasts(world, rank);
        if rank == 1 {
            cluster.store_set(b"told", b"").unwrap();
            return outcome.expect_err("rank 2 called something else before");
        }
        outcome.expect("rank 2 called the same");
        cluster.store_wait(&[b"told"], 20_000).unwrap();
        barrier(world).unwrap_err()
    });
    let sentence = one_cause(errors, Status::Mismatch);
    let words = [
        "rank 1 (",
        " and rank 2 (",
        " called broadcast(count 4, float32, root 2) as collective #2 on world, but not the same before: rank 1 (",
    ];
    assert!(words.iter().all(|words| sentence.contains(words)), "{sentence}");
    assert!(sentence.ends_with(" called broadcast(count 4, float32, root 1) as #1"), "{sentence}");
}
