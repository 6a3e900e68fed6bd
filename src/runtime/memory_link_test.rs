//! Members of a group whose links are no sockets, but memory in one process: both engines do what they do over TCP.

use super::cluster_test::{allreduce, barrier, hard, plain, run_both_planes, run_upgraded};
use super::groups::group::Group;
use super::messages::messages_test::all_to_all;
use super::messages::{Direction, Post};
use crate::config::LogLevel;
use crate::error::{Failure, Status};
use crate::net::memlink::MemoryLink;
use crate::net::{Side, Transport, Wrap};
use crate::runtime::base::sync::{lock, Bell};
use crate::runtime::base::{clock::Clock, log::Logger};
use crate::runtime::links::link::{Link, LinkEnd, Moved};
use crate::runtime::links::mesh::tests::formed;
use crate::runtime::links::peers::Mail;
use crate::runtime::links::upgrade::tests::{all_to_memory, InMemory};
use crate::runtime::links::upgrade::Upgrade;
use crate::runtime::memory::buffer::CallBuffers;
use crate::runtime::state::node_state::NodeState;
use crate::schedules::{Buffer, Span};
use crate::types::{DType, Epoch, GroupId};
use crate::wire::{Channel, LinkKind, DATA_HEADER_BYTES, HEADER_BYTES};
use std::collections::HashMap;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longer than what is sent at once.
const LONG: usize = 1 << 18;

fn member(rank: u32) -> Arc<Group> {
    let state = Arc::new(NodeState::new(Logger::new(LogLevel::Off, "test"), Clock::start(), Bell::new().unwrap()));
    let nowhere = "127.0.0.1:1".parse().unwrap();
    let formed = Arc::new(formed(rank, [nowhere; 2]));
    Arc::new(Group::new(GroupId::WORLD, vec![0, 1], &state, &formed, 60_000).unwrap())
}

fn over() -> Failure {
    let cause = "the test is over".to_owned();
    Failure { status: Status::State, culprit: None, cause, epoch: Epoch(1), group: None, sequence: 0 }
}

/// Ranks 0 and 1 offer it, and rank 2 does not: what two nodes go over is theirs alone.
#[test]
fn collectives_and_messages_go_over_links_that_were_upgraded_to_memory() {
    for wrap in [plain(), hard(50)] {
        let memory = InMemory::default();
        let upgrade = |rank| if rank < 2 { memory.upgrade() } else { Upgrade::none() };
        run_upgraded(3, &wrap, upgrade, |cluster, world| {
            for size in [1, 1000, LONG] {
                let sum = allreduce(world, &vec![world.rank().unwrap() as f32 + 1.0; size]).unwrap();
                assert!(sum.iter().all(|value| *value == 6.0));
                barrier(world).unwrap();
            }
            all_to_all(&cluster.group(GroupId::WORLD), &[0, 1, 500, 65_536, 65_537, LONG]);
        });
        assert_eq!(memory.made(), 4, "both ends of two links: the others are what they were");
    }
}

/// The two ends of each connection become the two ends of a memory link: also those to the scheduler.
fn wrapped_in_memory(made: &Arc<AtomicU64>) -> Wrap {
    let (made, waiting) = (Arc::clone(made), Mutex::new(HashMap::new()));
    Arc::new(move |transport, side| {
        let (own, peers) = (transport.local_address(), transport.peer_address());
        let connection = if side == Side::Client { (own, peers) } else { (peers, own) };
        let mut waiting = lock(&waiting);
        let end = waiting.remove(&connection).unwrap_or_else(|| {
            made.fetch_add(1, Ordering::Relaxed);
            let (own, peers) = MemoryLink::pair();
            waiting.insert(connection, peers);
            own
        });
        Box::new(end)
    })
}

/// Both planes: a scheduler asks for no socket, either.
#[test]
fn a_cluster_forms_and_works_where_no_connection_is_a_socket() {
    const RANKS: u32 = 3;
    let made = Arc::default();
    run_both_planes(RANKS, &wrapped_in_memory(&made), |cluster, world| {
        for size in [1, 1000, LONG] {
            let sum = allreduce(world, &vec![1.0; size]).unwrap();
            assert!(sum.iter().all(|value| *value == 3.0));
        }
        all_to_all(&cluster.group(GroupId::WORLD), &[0, 1, 500, 65_537]);
    });
    let made = made.load(Ordering::Relaxed);
    assert!(made >= u64::from(RANKS) + 3, "{made} links: those to the scheduler, and between each two ranks");
}

/// What a real cluster has for its messages keeps to what a link is, so that collectives can use it, too: in one direction or both,
/// over whatever wakes the other end.
#[test]
fn collectives_and_messages_go_through_rings_that_two_nodes_share() {
    for wrap in [plain(), hard(1), hard(50)] {
        let ends = Arc::default();
        let upgrade = |rank| if rank < 3 { all_to_memory(&ends) } else { Upgrade::none() };
        run_upgraded(4, &wrap, upgrade, |cluster, world| {
            for size in [1, 1000, LONG] {
                let sum = allreduce(world, &vec![world.rank().unwrap() as f32 + 1.0; size]).unwrap();
                assert!(sum.iter().all(|value| *value == 10.0));
                barrier(world).unwrap();
            }
            all_to_all(&cluster.group(GroupId::WORLD), &[0, 1, 500, 65_536, 65_537, 2 * LONG]);
        });
        let ends = ends.load(Ordering::Relaxed);
        assert!(ends > 6, "{ends} ends: those of three links for messages, and others for collectives");
    }
}

/// Nothing is damaged there, so nothing is checked: that is the link's own matter, whatever the cluster agreed on.
#[test]
fn a_link_over_memory_sends_no_checksums() {
    for wanted in [true, false] {
        let (end, mut other) = MemoryLink::pair();
        let mut link = Link::new(Box::new(end), &[]).with_checksums(wanted);
        let (input, mut output, mut scratch) = ([7; 10], [], []);
        let memory = CallBuffers::of(&input, &mut output).with_scratch(&mut scratch);
        let span = Span::new(Buffer::Input, 0, input.len());
        link.start_send(LinkKind::Data, &[0; DATA_HEADER_BYTES], span);
        assert_eq!(link.send(&memory).unwrap(), Moved::Done);
        let mut bytes = [0; 1024];
        let count = other.read(&mut [IoSliceMut::new(&mut bytes)]).unwrap();
        assert_eq!(count, HEADER_BYTES + DATA_HEADER_BYTES + input.len());
        assert_eq!(bytes[count - input.len()..count], input);
    }
}

/// A link that does not come to stand ends what waits for it, and is not waited for.
#[test]
fn a_message_whose_link_does_not_come_to_stand_ends() {
    let group = member(0);
    let direction = Direction::Receive { from: Some(1), tag: Some(5) };
    let buffers = CallBuffers::of(&[], vec![0; 10].leak());
    let request = group.start_messages(Post::new(direction, DType::Uint8, 10, buffers), None).unwrap();
    let failure = Failure { status: Status::System, group: Some(GroupId::WORLD), ..over() };
    group.deliver(Channel::Messages, Mail::Failed(1, LinkEnd::Over(Box::new(failure))));
    let outcome = request.wait(Some(Duration::from_secs(60))).expect("it does not wait for the time-out");
    assert_eq!(outcome.unwrap_err().status(), Status::System);
    group.end_progress(over());
}
