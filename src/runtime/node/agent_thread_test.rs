//! An agent thread's loop, turn by turn, whose scheduler the test plays.

use super::*;
use crate::agent::Profile;
use crate::config::LogLevel;
use crate::runtime::base::clock::Clock;
use crate::runtime::base::control::tests::framed;
use crate::runtime::base::log::Logger;
use crate::runtime::base::sync::Bell;
use crate::runtime::by_hand_test::worker;
use crate::runtime::cluster_test::plain;
use crate::runtime::links::mesh::tests::formed;
use crate::types::{Epoch, Incarnation};
use crate::wire::{Heartbeat, Verdict};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Instant;

const LIMIT: Duration = Duration::from_secs(60);

fn node(scheduler: SocketAddr) -> Node {
    let profile = Profile {
        register: worker(0, 2),
        schedulers: vec![scheduler.to_string()],
        scheduler_settings: "sched_host and sched_port".to_owned(),
        forming_timeout: Some(LIMIT),
        forming_setting: "cluster_timeout is 60".to_owned(),
        heartbeat_timeout: LIMIT,
        finalize_timeout: LIMIT,
        seed: 1,
    };
    let (clock, logger) = (Clock::start(), Logger::new(LogLevel::Off, "test"));
    let setup = Setup {
        agent: Agent::new(profile, clock.now()),
        schedulers: vec![vec![scheduler]],
        own: Vec::new(),
        own_setting: "worker_ip".to_owned(),
        operation_timeout_ms: 60_000,
        wrap: plain(),
        upgrade: Upgrade::none(),
    };
    let shared = Arc::new(NodeState::new(logger, clock, Bell::new().unwrap()));
    let mut node = Node::new(Registry::new(&shared), setup, Incarnation([1; 16])).unwrap();
    node.drain();
    node
}

/// Turns the loop until this holds.
fn turn_until(node: &mut Node, mut holds: impl FnMut(&Node) -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds(node) {
        assert!(Instant::now() < deadline, "it does not come to that");
        node.shared.waker.wake();
        node.turn().unwrap();
    }
}

/// The loop stood still when the verdict came, and the scheduler has ended since.
#[test]
fn a_verdict_is_heard_though_nothing_can_be_written_to_the_scheduler_any_more() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut node = node(address);
    turn_until(&mut node, |node| node.connection.is_up());
    let mut stream = listener.accept().unwrap().0;
    turn_until(&mut node, |_| stream.peek(&mut [0]).unwrap() > 0);
    let _ = stream.read(&mut vec![0; 1 << 16]).unwrap();
    stream.write_all(&framed(&Message::Formed(formed(0, [address, address])))).unwrap();
    turn_until(&mut node, |node| node.shared.learnt().epoch.formed.is_some());
    node.send(Message::Heartbeat(Heartbeat { sequence: 1, ..Heartbeat::default() }));
    node.connection.write();
    let cause = "is lost: its process has ended".to_owned();
    let verdict = Failure { status: Status::PeerLost, culprit: None, cause, epoch: Epoch(1), group: None, sequence: 0 };
    stream.write_all(&framed(&Message::Verdict(Verdict { failure: verdict.clone() }))).unwrap();
    assert!(stream.peek(&mut [0]).unwrap() > 0); // a socket that is closed with something unread is reset
    drop(stream);
    node.send(Message::Report);
    node.connection.write();
    turn_until(&mut node, |node| node.shared.learnt().epoch.broken.is_some() || !node.connection.is_up());
    assert_eq!(node.shared.learnt().epoch.broken, Some(verdict));
}

/// What one that was given up still wants does not count.
#[test]
fn a_word_of_the_job_s_end_counts_unless_it_is_a_lost_node_s() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut node = node(address);
    turn_until(&mut node, |node| node.connection.is_up());
    let mut stream = listener.accept().unwrap().0;
    stream.write_all(&framed(&Message::Formed(formed(0, [address, address])))).unwrap();
    turn_until(&mut node, |node| node.shared.learnt().epoch.formed.is_some());
    let (status, cause) = (Status::Aborted, "the disk is gone".to_owned());
    let failure = Failure { status, culprit: None, cause, epoch: Epoch(1), group: None, sequence: 0 };
    for (lost, counts) in [(vec![1], false), (vec![], true)] {
        node.registry.file(Event::Lost(lost));
        node.pass(MeshEvent::Aborted(1, failure.clone()));
        node.shared.waker.wake();
        node.turn().unwrap();
        assert_eq!(node.shared.learnt().epoch.is_aborted(), counts);
    }
}
