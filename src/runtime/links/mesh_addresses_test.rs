//! Links to a peer that has told several addresses, where something else listens at one of them, or nobody does.

use super::*;
use crate::runtime::links::redial::REDIALS_MAX;
use crate::runtime::state::silence::attempt;

const HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\r\n";
const NO_PEER: &str = "what answers there is no peer: not a frame of this protocol: ";

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The node with index 0. Its peer has told these addresses.
fn with_peer_at(wrap: &Wrap, addresses: [SocketAddr; 2]) -> Side {
    let mut side = Side::new(Arc::clone(wrap));
    let mut formed = formed(0, [side.address(), nowhere()]);
    let (own, other) = (formed.members.find(0).unwrap(), formed.members.find(1).unwrap());
    let addresses = addresses.to_vec();
    formed.members = Members::new([own, Member { addresses, ..other }].map(Arc::new).to_vec());
    side.form(&formed);
    side
}

/// Turns once, as the agent thread does.
fn turn(side: &mut Side) {
    side.now = side.now + Duration::from_millis(1);
    side.turn();
    side.mesh.dial_on(side.now, &side.poller);
    side.drain();
}

/// Waits until the side has dialled this listener.
fn comes_to(listener: &TcpListener, side: &mut Side) -> Peer {
    until(|| {
        turn(side);
        listener.accept().ok().map(|(stream, _)| Peer::over(stream))
    })
}

/// Lets the side in, and returns where its link leads.
fn let_in(mut peer: Peer, side: &mut Side) -> SocketAddr {
    assert_eq!(peer.hear(side).header.kind, LinkKind::Hello as u8);
    peer.say(LinkKind::Accept, &accept());
    assert_eq!(peer.hear(side).header.kind, LinkKind::KeepAlive as u8);
    until(|| {
        turn(side);
        (!side.mail.is_empty()).then_some(())
    });
    side.link().0.peer_address()
}

/// The time of an attempt passes, and nothing is heard.
fn time_passes(side: &mut Side) {
    stand(side, KEY[1]);
    side.mesh.expire_at(side.now);
    side.now = side.now + attempt(&agreed(1000));
    side.mesh.expire_at(side.now);
}

/// How the side's link has failed.
fn end(side: &mut Side) -> LinkEnd {
    let end = until(|| {
        turn(side);
        side.mail.pop()
    });
    assert!(side.is_idle());
    match end {
        Mail::Failed(1, end) => end,
        _ => panic!("it did not fail"),
    }
}

#[test]
fn what_listens_at_a_peer_s_first_address_does_not_cut_it_off() {
    let wrong = LinkAccept { proof: half(&SECRET, 0), ..accept() };
    let mut damaged = frame(LinkKind::Accept, &accept());
    let last = damaged.len() - 8;
    damaged[last] ^= 4;
    let stranger = frame(LinkKind::Reject, &LinkReject { reason: LinkRejectReason::Stranger });
    for wrap in wraps() {
        for says in [HTTP, &stranger, &frame(LinkKind::Accept, &wrong), &damaged, b"closes", b"silent"] {
            let ((foreign, first), (right, second)) = (listener(), listener());
            let mut side = with_peer_at(&wrap, [first, second]);
            side.open(KEY[1]);
            let mut met = comes_to(&foreign, &mut side);
            match says {
                b"closes" => drop(met),
                b"silent" => time_passes(&mut side),
                says => met.stream.write_all(says).unwrap(),
            }
            let peer = comes_to(&right, &mut side);
            assert_eq!(let_in(peer, &mut side), second);
            assert!(side.is_idle());
        }
    }
}

#[test]
fn an_address_at_which_no_peer_has_answered_is_the_last_from_then_on() {
    for is_silent in [false, true] {
        let ((foreign, first), (right, second)) = (listener(), listener());
        let mut side = with_peer_at(&plain(), [first, second]);
        side.open(KEY[1]);
        let mut met = comes_to(&foreign, &mut side);
        match is_silent {
            true => time_passes(&mut side),
            false => met.stream.write_all(HTTP).unwrap(),
        }
        let peer = comes_to(&right, &mut side);
        assert_eq!(let_in(peer, &mut side), second);
        side.open(LinkKey { channel: Channel::Messages, ..KEY[1] });
        let peer = comes_to(&right, &mut side);
        assert_eq!(let_in(peer, &mut side), second);
        assert!(foreign.accept().is_err(), "nobody has come there again");
    }
}

/// A word has a time limit of its own, which is shorter.
#[test]
fn a_word_that_was_not_told_in_time_begins_at_another_address() {
    let ((silent, first), (right, second)) = (listener(), listener());
    let mut side = with_peer_at(&plain(), [first, second]);
    let key = LinkKey { channel: Channel::Word, ..KEY[1] };
    side.open(key);
    let _silent = comes_to(&silent, &mut side);
    stand(&mut side, key);
    side.mesh.connections.drop_word(key);
    assert!(side.is_idle());
    side.open(key);
    assert_eq!(comes_to(&right, &mut side).hear(&mut side).header.kind, LinkKind::Hello as u8);
}

#[test]
fn where_no_peer_answers_each_address_is_told_with_how_it_failed() {
    let ((foreign, first), gone) = (listener(), listener().1);
    for addresses in [[first, gone], [gone, first]] {
        let mut side = with_peer_at(&plain(), addresses);
        side.open(KEY[1]);
        let mut met = comes_to(&foreign, &mut side);
        met.stream.write_all(HTTP).unwrap();
        let LinkEnd::Ended(reason) = end(&mut side) else { panic!("each host has answered") };
        let refused = format!("{gone}: Connection refused (os error 111)");
        let no_peer = format!("{first}: {NO_PEER}it begins with \"HTTP\"");
        let words = if addresses[0] == gone { [refused, no_peer] } else { [no_peer, refused] };
        assert_eq!(reason, format!("it cannot be reached at {}", words.join("; ")));
    }
}

/// Nothing that was sent there has been acknowledged.
#[test]
fn a_network_that_ends_behind_each_address_is_told() {
    let ((_one, first), (_two, second)) = (listener(), listener());
    let transport = Scripted::default();
    transport.script().room = usize::MAX;
    transport.script().silence = Some(attempt(&agreed(1000)));
    let only = transport.clone();
    let wrap: Wrap = Arc::new(move |_, _| Box::new(only.clone()));
    let mut side = with_peer_at(&wrap, [first, second]);
    side.open(KEY[1]);
    for _ in 0..2 {
        until(|| (turn(&mut side), side.mesh.connections.dialled(KEY[1])).1);
        time_passes(&mut side);
    }
    let LinkEnd::Silent(reason) = end(&mut side) else { panic!("nobody has answered") };
    let deaf = "127.0.0.1:2: no answer for 4.0 s"; // the address of what is scripted
    assert_eq!(reason, format!("it cannot be reached at {deaf}; {deaf}"));
}

/// The peer may not know the group yet, or had to make room among strangers.
#[test]
fn a_peer_that_was_slow_or_busy_is_dialled_again_behind_its_other_addresses() {
    for is_slow in [false, true] {
        let ((right, first), (foreign, second)) = (listener(), listener());
        let mut side = with_peer_at(&plain(), [first, second]);
        side.open(KEY[1]);
        let peer = comes_to(&right, &mut side);
        if is_slow {
            time_passes(&mut side);
        }
        drop(peer);
        let mut met = comes_to(&foreign, &mut side);
        met.stream.write_all(HTTP).unwrap();
        let peer = comes_to(&right, &mut side);
        assert_eq!(let_in(peer, &mut side), first);
    }
}

#[test]
fn a_peer_that_closes_each_attempt_at_each_address_is_given_up_after_so_many() {
    let ((one, first), (two, second)) = (listener(), listener());
    let mut side = with_peer_at(&plain(), [first, second]);
    side.open(KEY[1]);
    let mut attempts = [0, 0];
    let failed = until(|| {
        side.now = side.now + Duration::from_millis(100);
        turn(&mut side);
        for (count, listener) in attempts.iter_mut().zip([&one, &two]) {
            while listener.accept().is_ok() {
                *count += 1;
            }
        }
        side.mail.pop()
    });
    let Mail::Failed(1, LinkEnd::Ended(reason)) = failed else { panic!("it did not fail") };
    let closed = "its end of a new link was closed: ";
    assert!(reason.starts_with(&format!("it cannot be reached at {first}: {closed}")), "{reason}");
    assert!(reason.contains(&format!("; {second}: {closed}")), "{reason}");
    assert_eq!(attempts, [REDIALS_MAX + 1; 2]);
    assert!(side.is_idle());
}

#[test]
fn a_peer_that_has_answered_is_not_looked_for_elsewhere() {
    let reject = |reason| frame(LinkKind::Reject, &LinkReject { reason });
    let odd = LinkAccept { features: 32, ..accept() };
    for (answer, words) in [
        (
            frame(LinkKind::Accept, &odd),
            "what answers there is no peer: it accepts features 0x20, which were not offered",
        ),
        (reject(LinkRejectReason::NoGroup), "freed"),
        (reject(LinkRejectReason::Duplicate), ""),
        (reject(LinkRejectReason::Crossing), ""),
    ] {
        let ((right, first), (other, second)) = (listener(), listener());
        let mut side = with_peer_at(&plain(), [first, second]);
        side.open(KEY[1]);
        let mut peer = comes_to(&right, &mut side);
        peer.stream.write_all(&answer).unwrap();
        peer.read_until_its_end(&mut side);
        match words {
            "" => assert!(side.mail.is_empty()),
            words => assert_eq!(side.failure(), words),
        }
        turn(&mut side);
        assert!(side.is_idle() && other.accept().is_err());
    }
}

impl Peer {
    /// Waits until the node has closed the connection, whatever it says before.
    fn read_until_its_end(&mut self, side: &mut Side) {
        until(|| {
            turn(side);
            self.read();
            self.ended.then_some(())
        });
    }
}
