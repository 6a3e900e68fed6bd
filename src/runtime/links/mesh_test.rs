use super::*;
use crate::config::LogLevel;
use crate::net::testlink::TestLink;
use crate::net::{Listener, Transport};
use crate::runtime::base::{clock::Clock, control::tests::Scripted, sync::Bell};
use crate::runtime::cluster_test::plain;
use crate::runtime::links::handshake::{Handshake, HELLO_WAIT};
use crate::runtime::links::link::{Arrival, Link};
use crate::runtime::links::{dial::Dial, mesh_connections::EARLY_MAX};
use crate::runtime::state::node_state::NodeState;
use crate::runtime::state::silence::tests::agreed;
use crate::types::{Call, CallKind, Device, Epoch, HostName, JobInstance, Process, Role, Secret};
use crate::wire::{encode_frame, peek_frame, DataHeader, Decoder, Frame, FrameHeader, Later, Member, Members, Wire};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);
const LISTENER: Token = Token(2);
const SECRET: Secret = Secret(*b"the dialler's...the accepter's..");
const KEY: [LinkKey; 2] =
    [LinkKey::new(GroupId::WORLD, Channel::Collectives, 0), LinkKey::new(GroupId::WORLD, Channel::Collectives, 1)];

fn hard(piece: usize) -> Wrap {
    Arc::new(move |transport, _| {
        let seed = u64::from(transport.peer_address().port()) + 1;
        Box::new(TestLink::with_piece(transport, seed, piece))
    })
}

fn wraps() -> [Wrap; 3] {
    [plain(), hard(1), hard(50)]
}

/// One node of two: its mesh and what that needs, without a thread.
struct Side {
    mesh: Mesh,
    poller: Poller,
    listener: Listener,
    shared: Arc<NodeState>,
    now: Time,
    /// When it lets further connections in that the poller does not report.
    accept_again: Time,
    /// What its group was told.
    mail: Vec<Mail>,
    /// What other groups were told.
    other_mail: Vec<Mail>,
    /// The members that it wants to be told of.
    asked_for: Vec<u32>,
}

impl Side {
    fn new(wrap: Wrap) -> Side {
        Side::upgraded(wrap, Upgrade::none())
    }

    /// A side that offers this upgrade.
    fn upgraded(wrap: Wrap, upgrade: Upgrade) -> Side {
        Side::strict(wrap, upgrade, Identities::default())
    }

    /// A side that demands this of certificates.
    fn strict(wrap: Wrap, upgrade: Upgrade, identities: Identities) -> Side {
        let poller = Poller::new().unwrap();
        let mut listener = Listener::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        listener.register(poller.registry(), LISTENER).unwrap();
        let logger = Logger::new(LogLevel::Off, "test");
        let mesh = Mesh::new(Incarnation([1; 16]), Arc::clone(&logger), wrap, upgrade, identities);
        let shared = Arc::new(NodeState::new(logger, Clock::start(), Bell::new().unwrap()));
        Side {
            mesh,
            poller,
            listener,
            shared,
            now: Time(0),
            accept_again: Time::NEVER,
            mail: Vec::new(),
            other_mail: Vec::new(),
            asked_for: Vec::new(),
        }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addresses()[0]
    }

    fn form(&mut self, formed: &Formed) {
        let formed = Arc::new(formed.clone());
        let world = Roster::of(GroupId::WORLD, vec![0, 1], &formed);
        self.mesh.form(formed, [Arc::new(world)].into_iter(), &self.poller);
    }

    fn open(&mut self, key: LinkKey) {
        self.mesh.open(key, &self.poller);
    }

    fn accept(&mut self) -> Time {
        self.accept_again = self.mesh.accept(&mut self.listener, &self.poller, self.now);
        self.accept_again
    }

    /// Serves what is ready, once, as the agent thread does.
    fn turn(&mut self) {
        self.serve();
        self.drain();
    }

    /// Serves what is ready, once, but does not pass on yet what comes of it.
    fn serve(&mut self) {
        self.poller.poll(Some(Duration::ZERO)).unwrap();
        let ready: Vec<Token> = self.poller.ready().map(|ready| ready.token).collect();
        for token in ready {
            if token == LISTENER {
                self.accept();
            } else {
                self.mesh.ready(token, &self.poller);
            }
        }
        if self.accept_again <= self.now {
            self.accept();
        }
        self.mesh.look_again(&self.poller);
        self.mesh.dial_again(self.now, &self.poller);
    }

    fn is_idle(&self) -> bool {
        self.mesh.connections.handshakes.is_empty() && self.mesh.connections.dials.is_empty()
    }

    /// The one link that its group got, with the bytes behind the handshake. Nothing else came.
    fn link(&mut self) -> (Box<dyn Transport>, Vec<u8>) {
        assert_eq!(self.mail.len(), 1, "one link, and nothing else");
        match self.mail.pop() {
            Some(Mail::Up(_, transport, ahead)) => (transport, ahead),
            Some(Mail::Failed(peer, end)) => panic!("the link to {peer} failed: {end:?}"),
            Some(Mail::Freed(_)) | None => unreachable!(),
        }
    }

    /// Why the one link that it dialled failed, however often that is tried.
    fn failure(&mut self) -> String {
        until(|| {
            self.now = self.now + Duration::from_millis(100);
            self.turn();
            (!self.mail.is_empty()).then_some(())
        });
        assert!(self.is_idle() && self.mail.len() == 1);
        match self.mail.pop() {
            Some(Mail::Failed(1, end)) => end.in_words(),
            Some(Mail::Freed(1)) => "freed".to_owned(),
            _ => panic!("it did not fail"),
        }
    }
}

/// Repeats until there is something. This thread drives all nodes, so it yields to no other.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it does not come to that");
    }
}

/// What the node with this index is told, in a cluster of two.
pub(in crate::runtime) fn formed(index: u32, addresses: [SocketAddr; 2]) -> Formed {
    let member = |index: u32, address| Member {
        index,
        role: Role::Worker,
        rank: index,
        local_rank: index,
        node_id: index.to_string(),
        host: HostName { name: "host".to_owned(), key: "key".to_owned() },
        process: Process { pid: 1 + index, start_ticks: 1, pid_namespace: 1 },
        addresses: vec![address],
        device: Device::default(),
    };
    Formed {
        instance: JobInstance([7; 16]),
        generation: 1,
        epoch: Epoch(1),
        index,
        rank: index,
        local_rank: index,
        local_size: 2,
        worker_num: 2,
        server_num: 0,
        secret: SECRET,
        agreed: agreed(1000),
        restarts: 0,
        creations: Vec::new(),
        members: Members::new([member(0, addresses[0]), member(1, addresses[1])].map(Arc::new).to_vec()),
        features: Later(0),
    }
}

/// Two nodes that know each other: the lower index, and the higher.
fn two(wrap: &Wrap) -> (Side, Side) {
    let (mut lower, mut higher) = (Side::new(Arc::clone(wrap)), Side::new(Arc::clone(wrap)));
    let addresses = [lower.address(), higher.address()];
    lower.form(&formed(0, addresses));
    higher.form(&formed(1, addresses));
    (lower, higher)
}

/// The node with index 0. Its peer is whatever listens at this address.
fn one(wrap: &Wrap, peer: SocketAddr) -> Side {
    let mut side = Side::new(Arc::clone(wrap));
    side.form(&formed(0, [side.address(), peer]));
    side
}

/// Turns both until nothing is under way, and checks that each got one end of the same link. Returns whether the lower dialled.
fn lower_dialled(lower: &mut Side, higher: &mut Side) -> bool {
    until(|| {
        lower.turn();
        higher.turn();
        (lower.is_idle() && higher.is_idle() && !lower.mail.is_empty() && !higher.mail.is_empty()).then_some(())
    });
    let ((low, low_ahead), (high, high_ahead)) = (lower.link(), higher.link());
    assert!(low_ahead.is_empty() && high_ahead.is_empty());
    assert_eq!(low.local_address(), high.peer_address(), "it is the same connection");
    assert_eq!(low.peer_address(), high.local_address(), "it is the same connection");
    assert!(lower.mesh.open.contains(&KEY[1]) && higher.mesh.open.contains(&KEY[0]));
    low.peer_address() == higher.address()
}

/// Waits until the connection of a dial is established and its hello is out as far as it goes.
fn stand(side: &mut Side, key: LinkKey) {
    let poller = &side.poller;
    until(|| {
        side.mesh.look_at_dial(key, poller);
        side.mesh.connections.dialled(key).map(drop)
    });
}

#[test]
fn either_may_dial() {
    for wrap in wraps() {
        let (mut lower, mut higher) = two(&wrap);
        lower.open(KEY[1]);
        lower.open(KEY[1]); // under way already
        assert!(lower_dialled(&mut lower, &mut higher));
        let (mut lower, mut higher) = two(&wrap);
        higher.open(KEY[0]);
        assert!(!lower_dialled(&mut lower, &mut higher));
        lower.open(KEY[1]); // open already
        assert!(lower.is_idle());
    }
}

#[test]
fn of_crossing_attempts_that_of_the_lower_index_survives() {
    for wrap in wraps() {
        for lower_first in [true, false] {
            for head_start in [0, 1, 2] {
                let (mut lower, mut higher) = two(&wrap);
                lower.open(KEY[1]);
                higher.open(KEY[0]);
                stand(&mut lower, KEY[1]);
                stand(&mut higher, KEY[0]);
                for _ in 0..head_start {
                    if lower_first { &mut lower } else { &mut higher }.turn();
                }
                assert!(lower_dialled(&mut lower, &mut higher), "lower first: {lower_first}, by {head_start}");
            }
        }
    }
}

#[test]
fn crossing_attempts_leave_one_link_whatever_the_order_of_turns() {
    for wrap in wraps() {
        for order in 0..32u32 {
            let (mut lower, mut higher) = two(&wrap);
            let (mut lower_asked, mut higher_asked) = (false, false);
            for turn in 0..5 {
                let side = if order >> turn & 1 == 0 { &mut lower } else { &mut higher };
                let (key, asked) = match order >> turn & 1 {
                    0 => (KEY[1], &mut lower_asked),
                    _ => (KEY[0], &mut higher_asked),
                };
                if !std::mem::replace(asked, true) {
                    side.open(key);
                }
                side.turn();
            }
            lower_dialled(&mut lower, &mut higher);
        }
    }
}

#[test]
fn an_attempt_that_does_not_stand_gives_way() {
    for wrap in wraps() {
        let (mut lower, mut higher) = two(&wrap);
        // Another poller watches this dial: so nobody ever looks whether it is established.
        let elsewhere = Poller::new().unwrap();
        let dial = Dial::start(&[higher.address()], &elsewhere, || Token(1));
        lower.mesh.connections.dials.insert(KEY[1], dial);
        higher.open(KEY[0]);
        assert!(!lower_dialled(&mut lower, &mut higher), "the other attempt is the link");
    }
}

/// A peer of the test's own making, at the other end of a connection to a node.
struct Peer {
    stream: TcpStream,
    inbound: Vec<u8>,
    ended: bool,
}

impl Peer {
    fn dial(side: &Side) -> Peer {
        Peer::over(TcpStream::connect(side.address()).unwrap())
    }

    /// Takes the connection that the node is making.
    fn accept(listener: &TcpListener, side: &mut Side) -> Peer {
        listener.set_nonblocking(true).unwrap();
        until(|| {
            side.turn();
            listener.accept().ok().map(|(stream, _)| Peer::over(stream))
        })
    }

    fn over(stream: TcpStream) -> Peer {
        stream.set_nonblocking(true).unwrap();
        Peer { stream, inbound: Vec::new(), ended: false }
    }

    fn say(&mut self, kind: LinkKind, body: &impl Wire) {
        self.stream.write_all(&frame(kind, body)).unwrap();
    }

    fn read(&mut self) {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.ended = true,
            Ok(count) => self.inbound.extend_from_slice(&buffer[..count]),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }

    /// The next frame that the node sends.
    fn hear(&mut self, side: &mut Side) -> Frame<'static> {
        let (frame, taken) = until(|| {
            side.turn();
            self.read();
            let (frame, taken) = peek_frame(&self.inbound, 2048).unwrap()?;
            Some((Frame { header: frame.header, payload: frame.payload.into_owned().into() }, taken))
        });
        self.inbound.drain(..taken);
        frame
    }

    /// Waits until the node closes the connection. It must say nothing more.
    fn hear_end(&mut self, side: &mut Side) {
        until(|| {
            side.turn();
            self.read();
            self.ended.then_some(())
        });
        assert!(self.inbound.is_empty());
    }

    /// Ends the connection, and waits until the node has dropped it, too.
    fn go(&mut self, side: &mut Side) {
        self.stream.shutdown(Shutdown::Write).unwrap();
        until(|| (side.turn(), side.is_idle()).1.then_some(()));
    }

    /// Confirms that it was let in, and waits until the link is the group's.
    fn confirm(&mut self, side: &mut Side) {
        self.stream.write_all(&confirmation()).unwrap();
        until(|| {
            side.turn();
            (!side.mail.is_empty() || !side.other_mail.is_empty()).then_some(())
        });
    }

    /// Says hello, and returns why it is refused.
    fn refused(&mut self, side: &mut Side, hello: &LinkHello) -> LinkRejectReason {
        self.say(LinkKind::Hello, hello);
        let answer = self.hear(side);
        assert_eq!(answer.header.kind, LinkKind::Reject as u8);
        let reason = LinkReject::take(&mut Decoder::new(&answer.payload)).unwrap().reason;
        self.hear_end(side);
        self.go(side);
        reason
    }
}

/// How node 1 introduces itself to node 0.
fn hello() -> LinkHello {
    let incarnation = Incarnation([2; 16]);
    let (group, channel) = (GroupId::WORLD, Channel::Collectives);
    LinkHello { epoch: Epoch(1), group, channel, from: 1, to: 0, incarnation, proof: half(&SECRET, 0), features: 0 }
}

/// How node 1 lets node 0 in.
fn accept() -> LinkAccept {
    LinkAccept { proof: half(&SECRET, 1), features: 0 }
}

fn nowhere() -> SocketAddr {
    ([127, 0, 0, 1], 1).into()
}

#[test]
fn strangers_are_told_that_they_are() {
    for wrap in wraps() {
        let mut side = one(&wrap, nowhere());
        let group = GroupId::SERVERS;
        for (odd, expected) in [
            (LinkHello { epoch: Epoch(3), ..hello() }, LinkRejectReason::Stranger),
            (LinkHello { to: 1, ..hello() }, LinkRejectReason::Stranger),
            (LinkHello { from: 2, ..hello() }, LinkRejectReason::Stranger),
            (LinkHello { proof: half(&SECRET, 1), ..hello() }, LinkRejectReason::Stranger),
            (LinkHello { group, ..hello() }, LinkRejectReason::NoGroup),
            (LinkHello { group, epoch: Epoch(0), ..hello() }, LinkRejectReason::Stranger),
        ] {
            assert_eq!(Peer::dial(&side).refused(&mut side, &odd), expected, "{odd:?}");
        }
        assert!(side.mail.is_empty() && side.mesh.open.is_empty());
    }
}

#[test]
fn a_second_link_is_a_duplicate() {
    for wrap in wraps() {
        let mut side = one(&wrap, nowhere());
        let mut peer = Peer::dial(&side);
        peer.say(LinkKind::Hello, &hello());
        let answer = peer.hear(&mut side);
        assert_eq!(answer.header.kind, LinkKind::Accept as u8);
        assert_eq!(LinkAccept::take(&mut Decoder::new(&answer.payload)).unwrap(), accept());
        peer.confirm(&mut side);
        let _link = side.link();
        assert_eq!(Peer::dial(&side).refused(&mut side, &hello()), LinkRejectReason::Duplicate);
        assert!(side.mail.is_empty());
    }
}

#[test]
fn a_hello_before_the_cluster_is_known_is_answered_after() {
    for wrap in wraps() {
        let mut side = Side::new(wrap);
        let (mut peer, mut stranger) = (Peer::dial(&side), Peer::dial(&side));
        peer.say(LinkKind::Hello, &hello());
        stranger.say(LinkKind::Hello, &LinkHello { epoch: Epoch(3), ..hello() });
        until(|| {
            side.turn();
            let held = |shake: &&Handshake| matches!(shake.stage, Stage::Held(_));
            (side.mesh.connections.handshakes.values().filter(held).count() == 2).then_some(())
        });
        // Forming may take longer than a stranger may.
        side.mesh.expire_at(Time(0) + 2 * HELLO_WAIT);
        peer.read();
        assert!(peer.inbound.is_empty() && !peer.ended);
        side.form(&formed(0, [side.address(), nowhere()]));
        assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Accept as u8);
        assert_eq!(stranger.hear(&mut side).header.kind, LinkKind::Reject as u8);
        stranger.hear_end(&mut side);
        peer.confirm(&mut side);
        side.link();
        stranger.go(&mut side);
    }
}

/// What becomes of a dial that gets this answer.
fn answered(wrap: &Wrap, answer: &[u8]) -> (Side, Peer) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut side = one(wrap, listener.local_addr().unwrap());
    side.open(KEY[1]);
    let mut peer = Peer::accept(&listener, &mut side);
    let said = peer.hear(&mut side);
    assert_eq!(said.header.kind, LinkKind::Hello as u8);
    let expected = LinkHello { from: 0, to: 1, incarnation: Incarnation([1; 16]), ..hello() };
    assert_eq!(LinkHello::take(&mut Decoder::new(&said.payload)).unwrap(), expected);
    peer.stream.write_all(answer).unwrap();
    (side, peer)
}

#[test]
fn a_dial_that_fails_says_why() {
    let wrong = LinkAccept { proof: half(&SECRET, 0), ..accept() };
    let reject = |reason| frame(LinkKind::Reject, &LinkReject { reason });
    let mut half_a_frame = Vec::new();
    encode_frame(LinkKind::Accept as u8, 0, &[0; 15], &mut half_a_frame);
    for wrap in wraps() {
        for (answer, words) in [
            (frame(LinkKind::Accept, &wrong), "what answers there is no peer: it does not know the epoch's secret"),
            (b"HTTP/1.1 400 Bad Request".to_vec(), "what answers there is no peer: not a frame of this protocol"),
            (frame(LinkKind::Hello, &hello()), "what answers there is no peer: Hello in the middle of a handshake"),
            (half_a_frame.clone(), "what answers there is no peer: 16 bytes expected, 15 left"),
            (reject(LinkRejectReason::Stranger), "it refused the link: Stranger"),
            (reject(LinkRejectReason::NoGroup), "freed"),
        ] {
            let (mut side, _peer) = answered(&wrap, &answer);
            let reason = side.failure();
            assert!(reason.contains(words), "{words}: {reason}");
        }
    }
    // A port on which nobody listens any more.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut side = one(&plain(), gone);
    side.open(KEY[1]);
    let reason = side.failure();
    assert!(reason.starts_with(&format!("it cannot be reached at {gone}: ")), "{reason}");
}

#[test]
fn a_refusal_because_there_is_another_link_is_no_failure() {
    for reason in [LinkRejectReason::Crossing, LinkRejectReason::Duplicate] {
        let (mut side, mut peer) = answered(&plain(), &frame(LinkKind::Reject, &LinkReject { reason }));
        peer.hear_end(&mut side);
        assert!(side.is_idle() && side.mail.is_empty());
    }
}

#[test]
fn bytes_behind_the_handshake_reach_the_link() {
    let call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
    let header = FrameHeader { kind: LinkKind::Data as u8, flags: 0, node: 0, length: 0 };
    let data = [&header.encode()[..], &DataHeader::of_first(call).encode()[..]].concat();
    for wrap in wraps() {
        let (mut side, _peer) = answered(&wrap, &[frame(LinkKind::Accept, &accept()), data.clone()].concat());
        until(|| {
            side.turn();
            (!side.mail.is_empty()).then_some(())
        });
        let (transport, ahead) = side.link();
        let mut link = Link::new(transport, &ahead);
        assert_eq!(until(|| link.peek().unwrap()), Arrival::Data(header, DataHeader::of_first(call)));
    }
}

#[test]
fn the_higher_index_gives_up_its_own_attempt() {
    for wrap in wraps() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut side = Side::new(wrap);
        side.form(&formed(1, [listener.local_addr().unwrap(), side.address()]));
        side.open(KEY[0]);
        let mut given_up = Peer::accept(&listener, &mut side);
        assert_eq!(given_up.hear(&mut side).header.kind, LinkKind::Hello as u8);
        let mut peer = Peer::dial(&side);
        peer.say(LinkKind::Hello, &LinkHello { from: 0, to: 1, ..hello() });
        assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Accept as u8);
        given_up.hear_end(&mut side);
        peer.confirm(&mut side);
        side.link();
        assert!(side.is_idle());
    }
}

#[test]
fn a_link_counts_from_when_its_peer_is_let_in() {
    let transport = Scripted::default();
    transport.script().coming.extend(frame(LinkKind::Hello, &hello()));
    let only = transport.clone();
    let mut side = one(&(Arc::new(move |_, _| Box::new(only.clone()) as Box<dyn Transport>) as Wrap), nowhere());
    let _peer = Peer::dial(&side);
    until(|| {
        side.turn();
        side.mesh.open.contains(&KEY[1]).then_some(())
    });
    // The answer is stuck. Meanwhile no other link is made, and the time for strangers does not count.
    side.open(KEY[1]);
    assert!(side.mesh.connections.dials.is_empty() && side.mail.is_empty());
    side.mesh.expire_at(Time(0) + 2 * HELLO_WAIT);
    assert_eq!(side.mesh.judge(&hello()), Judged::Member(KEY[1]), "the peer has not heard yet that it is let in");
    transport.script().room = usize::MAX;
    let token = *side.mesh.connections.handshakes.keys().next().expect("it is still there");
    side.mesh.ready(token, &side.poller);
    side.turn();
    assert!(side.mail.is_empty(), "it is not confirmed");
    assert_eq!(transport.script().sent, frame(LinkKind::Accept, &accept()));
    transport.script().coming.extend(confirmation());
    side.mesh.ready(token, &side.poller);
    side.turn();
    side.link();
    assert_eq!(side.mesh.judge(&hello()), Judged::Refused(LinkRejectReason::Duplicate));
}

#[path = "mesh_addresses_test.rs"]
mod addresses;
#[path = "mesh_groups_test.rs"]
mod groups;
#[path = "mesh_names_test.rs"]
mod names;
#[path = "port_test.rs"]
mod port;
#[path = "mesh_silence_test.rs"]
mod silence;
#[path = "upgrade_test.rs"]
mod upgrade;
