//! An agent thread's loop, turn by turn; the test plays its scheduler.

use super::*;
use crate::agent::Profile;
use crate::config::LogLevel;
use crate::net::Wrap;
use crate::runtime::base::clock::Clock;
use crate::runtime::base::control::tests::{framed, Scripted};
use crate::runtime::base::log::Logger;
use crate::runtime::base::sync::Bell;
use crate::runtime::by_hand_test::worker;
use crate::runtime::cluster_test::plain;
use crate::runtime::links::handshake::{frame, HELLO_WAIT};
use crate::runtime::links::mesh::tests::formed;
use crate::secret::Guard;
use crate::types::{Epoch, GroupId, Incarnation};
use crate::wire::{Channel, Heartbeat, LinkHello, LinkKind, Verdict};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

const LIMIT: Duration = Duration::from_secs(60);

fn node(scheduler: SocketAddr) -> Node {
    node_over(scheduler, plain())
}

/// A node that wraps each of its connections.
fn node_over(scheduler: SocketAddr, wrap: Wrap) -> Node {
    node_at(Places::Here(vec![scheduler]), scheduler.to_string(), wrap)
}

/// A node that looks for its scheduler there.
fn node_at(schedulers: Places, name: String, wrap: Wrap) -> Node {
    let profile = Profile {
        register: worker(0, 2),
        schedulers: vec![name],
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
        schedulers,
        own: OwnAddresses::default(),
        operation_timeout_ms: 60_000,
        guard: Guard::of(wrap),
        upgrade: Upgrade::none(),
    };
    let state = Arc::new(NodeState::new(logger, clock, Bell::new().unwrap()));
    let mut node = Node::new(Registry::new(&state), setup, Incarnation([1; 16])).unwrap();
    node.drain();
    node
}

/// Turns the loop until this holds.
fn turn_until(node: &mut Node, mut holds: impl FnMut(&Node) -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds(node) {
        assert!(Instant::now() < deadline, "it does not come to that");
        node.state.waker.wake();
        node.turn().unwrap();
    }
}

/// One of two nodes of a cluster that has formed, and its scheduler's end of the connection.
fn node_of_two() -> (Node, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut node = node(address);
    turn_until(&mut node, |node| node.connection.is_up());
    let mut stream = listener.accept().unwrap().0;
    stream.write_all(&framed(&Message::Formed(formed(0, [address, address])))).unwrap();
    turn_until(&mut node, |node| node.state.view().epoch.formed.is_some());
    (node, stream)
}

/// The name may stand for addresses of both families, and nobody listens at the other one.
#[test]
fn a_name_is_looked_up_while_the_loop_goes_on_and_each_of_its_addresses_is_tried() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let places = Places::Host { host: "localhost".to_owned(), ports: vec![address.port()], spans_hosts: false };
    let mut node = node_at(places, "localhost".to_owned(), plain());
    turn_until(&mut node, |node| node.connection.is_up());
    assert_eq!(node.connection.scheduler(), Some(address));
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
    turn_until(&mut node, |node| node.state.view().epoch.formed.is_some());
    node.send(Message::Heartbeat(Heartbeat { sequence: 1, ..Heartbeat::default() }));
    node.connection.write();
    let cause = "is lost: its process has ended".to_owned();
    let verdict = Failure { status: Status::PeerLost, culprit: None, cause, epoch: Epoch(1), group: None, sequence: 0 };
    stream.write_all(&framed(&Message::Verdict(Verdict { failure: verdict.clone() }))).unwrap();
    assert!(stream.peek(&mut [0]).unwrap() > 0); // a socket that is closed with something unread is reset
    drop(stream);
    node.send(Message::Report);
    node.connection.write();
    turn_until(&mut node, |node| node.state.view().epoch.broken.is_some() || !node.connection.is_up());
    assert_eq!(node.state.view().epoch.broken, Some(verdict));
}

/// A wish of a node that was taken for lost does not count.
#[test]
fn a_word_of_the_job_s_end_counts_unless_it_is_a_lost_node_s() {
    let (mut node, _stream) = node_of_two();
    let (status, cause) = (Status::Aborted, "the disk is gone".to_owned());
    let failure = Failure { status, culprit: None, cause, epoch: Epoch(1), group: None, sequence: 0 };
    for (lost, counts) in [(vec![1], false), (vec![], true)] {
        node.registry.file(Event::Lost(lost));
        node.pass(MeshEvent::Aborted(1, failure.clone()));
        node.state.waker.wake();
        node.turn().unwrap();
        assert_eq!(node.state.view().epoch.is_aborted(), counts);
    }
}

/// The thread was not scheduled for longer than a stranger may take to say its name. The name had come by then.
#[test]
fn a_hello_that_came_in_time_is_answered_however_late_the_thread_reads_it() {
    let (mut node, _stream) = node_of_two();
    let mut stranger = TcpStream::connect(node.listener.as_ref().unwrap().local_addresses()[0]).unwrap();
    stranger.set_read_timeout(Some(LIMIT)).unwrap();
    node.state.waker.wake();
    node.turn().unwrap(); // lets it in
    let (group, channel, incarnation) = (GroupId::WORLD, Channel::Collectives, Incarnation([2; 16]));
    let proof = [0; 16]; // a wrong one
    let hello = LinkHello { epoch: Epoch(1), group, channel, from: 1, to: 0, incarnation, proof, features: 0 };
    stranger.write_all(&frame(LinkKind::Hello, &hello)).unwrap();
    // Its time is up by then. The node's clock is the real one, and a longer sleep changes nothing.
    thread::sleep(HELLO_WAIT + Duration::from_millis(100));
    node.turn().unwrap();
    assert!(stranger.read(&mut [0; 64]).unwrap() > 0, "the refusal is said");
}

/// The wrap fails for a certificate that is not valid, say. Each attempt is wrapped, and no byte goes out in clear.
#[test]
fn a_wrap_that_fails_is_never_followed_by_a_plain_connection_to_the_scheduler() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let made = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&made);
    let refuses: Wrap = Arc::new(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        let transport = Scripted::default();
        transport.script().breaks = true;
        transport.script().fails = Some(libc::EPROTO);
        Box::new(transport)
    });
    let mut node = node_over(listener.local_addr().unwrap(), refuses);
    turn_until(&mut node, |_| made.load(Ordering::Relaxed) >= 3);
    drop(node);
    listener.set_nonblocking(true).unwrap();
    let mut attempts = 0;
    while let Ok((mut stream, _)) = listener.accept() {
        stream.set_nonblocking(false).unwrap();
        assert!(stream.read(&mut [0]).map_or(true, |count| count == 0), "nothing was said");
        attempts += 1;
    }
    assert!(attempts >= 3, "{attempts} attempts");
}
