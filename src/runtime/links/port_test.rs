//! A node's port among strangers, and links whose first attempt comes to nothing.

use super::*;
use crate::runtime::links::mesh_connections::UNPROVED_WHEN_SHORT;
use crate::runtime::links::redial::REDIALS_MAX;
use crate::secret::{around, JobSecret};
use crate::tls::testing::{wrapped, wrapped_by, Files};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;

/// How many handshakes there are.
fn count(side: &Side) -> usize {
    side.mesh.connections.handshakes.len()
}

/// Takes turns until there are so many handshakes.
fn until_there_are(side: &mut Side, number: usize) {
    until(|| {
        side.accept();
        side.turn();
        (count(side) == number).then_some(())
    });
}

#[test]
fn strangers_keep_no_peer_waiting_however_many_there_are() {
    let mut side = one(&plain(), nowhere());
    let _strangers: Vec<Peer> = (0..100).map(|_| Peer::dial(&side)).collect();
    until(|| {
        let is_all = side.accept() == Time::NEVER;
        side.turn(); // those that are there are looked at before others come
                     // Fewer may stay if other tests hold many descriptors.
        (is_all && count(&side) >= UNPROVED_WHEN_SHORT).then_some(())
    });
    let mut peer = Peer::dial(&side);
    peer.say(LinkKind::Hello, &hello());
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Accept as u8, "nobody has waited for the strangers' time");
    peer.confirm(&mut side);
    side.link();
    assert!(side.mesh.connections.unproved() <= 100, "the peer is none of them");
}

#[test]
fn the_oldest_that_is_silent_goes_and_not_a_hello_that_waits() {
    let mut side = Side::new(plain());
    let mut early = Peer::dial(&side);
    early.say(LinkKind::Hello, &hello());
    until(|| {
        side.turn();
        side.mesh.connections.handshakes.values().any(|shake| matches!(shake.stage, Stage::Held(_))).then_some(())
    });
    let mut silent: Vec<Peer> = (0..3).map(|_| Peer::dial(&side)).collect();
    until_there_are(&mut side, 4);
    // One is closed, as if there were too many.
    let went = side.mesh.connections.take_first_to_go().expect("there are some");
    assert_eq!(went.transport.peer_address(), silent[0].stream.local_addr().unwrap());
    drop(went);
    silent[0].hear_end(&mut side);
    side.form(&formed(0, [side.address(), nowhere()]));
    assert_eq!(early.hear(&mut side).header.kind, LinkKind::Accept as u8);
    assert_eq!(side.mesh.connections.unproved(), 2, "a peer that has proved itself is none of them");
}

#[test]
fn what_has_been_closed_is_held_no_longer() {
    for formed_before in [false, true] {
        let mut side = Side::new(plain());
        let mut claim = hello();
        if formed_before {
            side.form(&formed(0, [side.address(), nowhere()]));
            claim.epoch = Epoch(2); // which may come
        }
        let mut strangers: Vec<Peer> = (0..20).map(|_| Peer::dial(&side)).collect();
        strangers.iter_mut().for_each(|stranger| stranger.say(LinkKind::Hello, &claim));
        until_there_are(&mut side, 20);
        drop(strangers);
        until_there_are(&mut side, 0);
        assert_eq!(side.mesh.connections.unproved(), 0);
    }
}

#[test]
fn a_peer_that_goes_on_before_its_hello_is_answered_is_turned_away() {
    let mut side = Side::new(plain());
    let mut stranger = Peer::dial(&side);
    stranger.say(LinkKind::Hello, &hello());
    stranger.stream.write_all(b"and more").unwrap();
    until(|| {
        side.turn();
        stranger.read();
        stranger.ended.then_some(())
    });
    assert_eq!((count(&side), side.mesh.connections.unproved()), (0, 0));
}

#[test]
fn the_silent_are_closed_when_their_time_is_up() {
    let mut side = one(&plain(), nowhere());
    let mut stranger = Peer::dial(&side);
    until_there_are(&mut side, 1);
    side.mesh.expire_at(Time(0) + HELLO_WAIT);
    stranger.hear_end(&mut side);
    assert_eq!((count(&side), side.mesh.connections.unproved()), (0, 0));
}

/// A hand between two nodes, which turns one bit of all that the first connection carries, and passes on the others as they are.
struct Hand {
    port: TcpListener,
    /// The dialler's end, the accepter's, and how many bytes each direction has carried.
    carried: Vec<([TcpStream; 2], [usize; 2])>,
    /// Which bit of the first connection it turns: the direction, and the bit's number in it.
    turns: Option<(usize, usize)>,
}

impl Hand {
    /// Takes what is there, and passes it on.
    fn carry(&mut self, to: SocketAddr) {
        if let Ok((from, _)) = self.port.accept() {
            let to = TcpStream::connect(to).unwrap();
            from.set_nonblocking(true).unwrap();
            to.set_nonblocking(true).unwrap();
            self.carried.push(([from, to], [0, 0]));
        }
        for (number, (ends, counts)) in self.carried.iter_mut().enumerate() {
            for way in [0, 1] {
                let mut bytes = [0; 4096];
                let Ok(count) = ends[way].read(&mut bytes) else { continue };
                let turned = self.turns.filter(|turns| (number, way) == (0, turns.0)).map(|turns| turns.1);
                if let Some(bit) = turned.filter(|bit| (counts[way]..counts[way] + count).contains(&(bit / 8))) {
                    bytes[bit / 8 - counts[way]] ^= 1 << (bit % 8);
                }
                counts[way] += count;
                // An end that has closed takes nothing more.
                let _ = match count {
                    0 => ends[1 - way].shutdown(Shutdown::Write),
                    _ => ends[1 - way].write_all(&bytes[..count]),
                };
            }
        }
    }
}

/// Opens a link through a hand. Returns how many bytes each direction of the first connection has carried.
fn opened(wrap: &Wrap, turns: Option<(usize, usize)>) -> [usize; 2] {
    let (mut lower, mut higher) = (Side::new(Arc::clone(wrap)), Side::new(Arc::clone(wrap)));
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    port.set_nonblocking(true).unwrap();
    let mut hand = Hand { port, carried: Vec::new(), turns };
    lower.form(&formed(0, [lower.address(), hand.port.local_addr().unwrap()]));
    higher.form(&formed(1, [lower.address(), higher.address()]));
    lower.open(KEY[1]);
    until(|| {
        hand.carry(higher.address());
        for side in [&mut lower, &mut higher] {
            side.now = side.now + Duration::from_millis(1);
            side.mesh.expire_at(side.now); // an end that waits for more than was sent says no hello
            side.turn();
        }
        (!lower.mail.is_empty() && !higher.mail.is_empty()).then_some(())
    });
    assert!(hand.carried.len() <= 3, "{turns:?}: {} attempts", hand.carried.len());
    let carried = hand.carried[0].1;
    // There is one link, and nothing comes on it but what its groups send.
    let ((mut low, _), (mut high, _)) = (lower.link(), higher.link());
    for (end, bytes) in [(&mut low, &b"low"[..]), (&mut high, b"high")] {
        end.write(&[IoSlice::new(bytes)]).unwrap();
        end.flush().unwrap();
    }
    for (end, expected) in [(&mut high, &b"low"[..]), (&mut low, b"high")] {
        let mut bytes = [0; 8];
        let count = until(|| {
            hand.carry(higher.address());
            end.read(&mut [IoSliceMut::new(&mut bytes)]).ok()
        });
        assert_eq!(&bytes[..count], expected, "{turns:?}");
    }
    carried
}

/// Under TLS there are too many bits to try each in a short time: of every `STRIDE` bytes one is damaged, in one bit.
const STRIDE: usize = 11;
/// How long the records with the confirmation and with the answer are under TLS, and how much less a signature may take. The dialler
/// uses the link from the confirmation on, so damage in it is like damage in its data. An answer that seems to be longer than it is
/// waits for the rest.
const LAST_BYTES: [usize; 2] = [46 + 4, 70 + 4];

fn damage_in_tls(version: &'static str) {
    let files = Arc::new(Files::new());
    let wrap: Wrap =
        Arc::new(move |inner, side| wrapped_by(&files.settings_with([("MUSTER_TLS_VERSION", version)]), inner, side));
    let carried = opened(&wrap, None);
    for direction in [0, 1] {
        for at in (0..carried[direction] - LAST_BYTES[direction]).step_by(STRIDE) {
            opened(&wrap, Some((direction, 8 * at + (at / STRIDE) % 8)));
        }
    }
    opened(&wrap, Some((1, 8 * (carried[1] - 20)))); // within the answer
}

#[test]
fn a_link_outlives_a_damaged_bit_of_the_handshake_of_tls() {
    damage_in_tls("1.3");
    damage_in_tls("1.2");
}

/// What is meant, and not damaged, is said after a few attempts.
#[test]
fn a_peer_that_refuses_each_attempt_is_given_up_soon() {
    let (ours, theirs) = (Arc::new(Files::of("our CA")), Arc::new(Files::of("their CA")));
    let wrap = |files: &Arc<Files>| -> Wrap {
        let files = Arc::clone(files);
        Arc::new(move |inner, side| wrapped(&files, inner, side))
    };
    let (mut lower, mut higher) = (Side::new(wrap(&ours)), Side::new(wrap(&theirs)));
    let addresses = [lower.address(), higher.address()];
    lower.form(&formed(0, addresses));
    higher.form(&formed(1, addresses));
    lower.open(KEY[1]);
    let began = lower.now;
    let end = until(|| {
        for side in [&mut lower, &mut higher] {
            side.now = side.now + Duration::from_millis(1);
            side.turn();
        }
        lower.mail.pop()
    });
    let Mail::Failed(1, LinkEnd::Ended(reason)) = end else { panic!("it did not fail") };
    assert!(reason.contains("its certificate is not signed by the CA that is trusted here (ca_cert_path)"), "{reason}");
    assert!(lower.now.since(began) < Duration::from_secs(1), "{:?}", lower.now.since(began));
}

/// Each bit that either end says while a link is opened may be damaged on the way. That costs an attempt, and the link
/// still opens.
#[test]
fn a_link_outlives_each_damaged_bit_of_its_handshake() {
    let secret = Arc::new(JobSecret::new(b"the job's"));
    for wrap in [plain(), around(&plain(), &secret, None)] {
        let carried = opened(&wrap, None);
        for direction in [0, 1] {
            for bit in 0..8 * carried[direction] {
                opened(&wrap, Some((direction, bit)));
            }
        }
    }
}

#[test]
fn what_is_no_peer_is_told_where_a_secret_is_to_be_proved() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let secret = Arc::new(JobSecret::new(b"the job's"));
    let mut side = one(&around(&plain(), &secret, None), listener.local_addr().unwrap());
    side.open(KEY[1]);
    let mut peer = Peer::accept(&listener, &mut side);
    peer.stream.write_all(b"HTTP/1.1 400 Bad Request").unwrap();
    let reason = side.failure();
    assert!(reason.contains("what answers there is no peer: not a frame of this protocol"), "{reason}");
}

#[test]
fn an_answer_that_is_damaged_each_time_is_called_damage_and_not_a_stranger() {
    let mut answer = frame(LinkKind::Accept, &accept());
    let last = answer.len() - 8;
    answer[last] ^= 4;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut side = one(&plain(), listener.local_addr().unwrap());
    side.open(KEY[1]);
    let mut peers = Vec::new();
    let end = until(|| {
        side.now = side.now + Duration::from_millis(100);
        side.turn();
        if let Ok((mut peer, _)) = listener.accept() {
            peer.write_all(&answer).unwrap();
            peers.push(peer);
        }
        side.mail.pop()
    });
    let Mail::Failed(1, LinkEnd::Corrupt(reason)) = end else { panic!("it did not fail") };
    assert!(reason.starts_with("its answer for a new link was damaged on the way: "), "{reason}");
    assert_eq!(peers.len(), REDIALS_MAX as usize + 1);
}

/// The peer was let in, and never said that it knows: its process may have ended, so this end dials.
#[test]
fn a_link_that_is_not_confirmed_is_dialled_from_this_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut side = one(&plain(), listener.local_addr().unwrap());
    let mut gone = Peer::dial(&side);
    gone.say(LinkKind::Hello, &hello());
    assert_eq!(gone.hear(&mut side).header.kind, LinkKind::Accept as u8);
    side.open(KEY[1]);
    assert!(side.mesh.connections.dials.is_empty(), "it is as good as open");
    drop(gone);
    let mut peer = Peer::accept(&listener, &mut side);
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Hello as u8);
    peer.say(LinkKind::Accept, &accept());
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::KeepAlive as u8);
    side.link();
}

/// The peer did not understand that it was let in, and dials anew before this end knows that its first connection has ended.
#[test]
fn a_peer_that_dials_anew_before_it_has_confirmed_is_let_in() {
    let mut side = one(&plain(), nowhere());
    let (mut first, mut second) = (Peer::dial(&side), Peer::dial(&side));
    for peer in [&mut first, &mut second] {
        peer.say(LinkKind::Hello, &hello());
        assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Accept as u8);
    }
    first.hear_end(&mut side);
    second.confirm(&mut side);
    let (link, _) = side.link();
    assert_eq!(link.peer_address(), second.stream.local_addr().unwrap());
    assert!(side.is_idle());
}

/// A refused dialler may still have bytes on the way. They are read, so that the reason is not lost in a reset.
#[test]
fn a_refusal_arrives_though_the_dialler_says_more() {
    let mut side = one(&plain(), nowhere());
    let mut peer = Peer::dial(&side);
    let odd = LinkHello { epoch: Epoch(3), ..hello() };
    peer.stream.write_all(&[frame(LinkKind::Hello, &odd), vec![7; 2000]].concat()).unwrap();
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Reject as u8);
    peer.stream.write_all(&[7; 2000]).unwrap();
    peer.hear_end(&mut side);
    assert!(!side.is_idle(), "it waits for the dialler's end");
    peer.go(&mut side);
    // They are read for no longer than a stranger may take.
    let mut peer = Peer::dial(&side);
    peer.say(LinkKind::Hello, &odd);
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Reject as u8);
    side.mesh.expire_at(side.now + 2 * HELLO_WAIT);
    assert!(side.is_idle());
}

#[test]
fn a_peer_that_closes_each_attempt_is_given_up_after_so_many() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut side = one(&plain(), listener.local_addr().unwrap());
    side.open(KEY[1]);
    let mut attempts = 0;
    listener.set_nonblocking(true).unwrap();
    let reason = until(|| {
        side.now = side.now + Duration::from_millis(100);
        side.turn();
        while let Ok((stream, _)) = listener.accept() {
            attempts += 1;
            assert!(stream.as_raw_fd() > 2);
        }
        side.mail.pop()
    });
    let Mail::Failed(1, LinkEnd::Ended(reason)) = reason else { panic!("it did not fail") };
    assert!(reason.starts_with("its end of a new link was closed: "), "{reason}");
    assert_eq!(attempts, REDIALS_MAX + 1);
    assert!(side.is_idle());
}

/// A member knows the secret, and may say of each connection that it is for another group that this node does not know yet.
#[test]
fn a_member_that_opens_more_and_more_loses_its_own_oldest_connections() {
    let mut side = one(&plain(), nowhere());
    let mut group = 7;
    let mut open = |side: &mut Side| {
        let mut peer = Peer::dial(side);
        group += 1;
        peer.say(LinkKind::Hello, &LinkHello { group: GroupId(group), ..hello() });
        until(|| {
            side.accept();
            side.turn();
            side.mesh.connections.unproved().eq(&0).then_some(())
        });
        peer
    };
    let mut first = open(&mut side);
    let mut second = open(&mut side);
    for _ in 0..20 {
        drop(open(&mut side)); // what its peer has closed does not count
    }
    side.turn();
    // As if these were too many.
    assert!(side.mesh.connections.take_beyond(2).is_none() && !first.ended);
    let went = side.mesh.connections.take_beyond(1).expect("there are two");
    assert_eq!(went.transport.peer_address(), first.stream.local_addr().unwrap(), "the oldest of those goes");
    drop(went);
    first.hear_end(&mut side);
    assert!(side.mesh.connections.take_beyond(1).is_none());
    let mut third = Peer::dial(&side);
    third.say(LinkKind::Hello, &LinkHello { channel: Channel::Word, ..hello() });
    assert_eq!(third.hear(&mut side).header.kind, LinkKind::Accept as u8);
    assert!(side.mesh.connections.take_beyond(1).is_some(), "a word counts, too");
    second.hear_end(&mut side);
}
