//! A node's port among strangers, and links whose first attempt comes to nothing.

use super::*;
use crate::runtime::links::connections::UNPROVED_WHEN_SHORT;
use crate::runtime::links::redial::REDIALS_MAX;
use std::os::fd::AsRawFd;

/// How many handshakes there are.
fn count(side: &Side) -> usize {
    side.mesh.connections.handshakes.len()
}

/// Takes turns until so many are there.
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
                     // Where other tests hold many descriptors fewer may stay.
        (is_all && count(&side) >= UNPROVED_WHEN_SHORT).then_some(())
    });
    let mut peer = Peer::dial(&side);
    peer.say(LinkKind::Hello, &hello());
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Accept as u8, "nobody has waited for the strangers' time");
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
    // As where there are too many.
    let went = side.mesh.connections.take_first_to_go().expect("there are some");
    assert_eq!(went.transport.peer_address(), silent[0].stream.local_addr().unwrap());
    drop(went);
    silent[0].hear_end(&mut side);
    side.form(&formed(0, [side.address(), nowhere()]));
    assert_eq!(early.hear(&mut side).header.kind, LinkKind::Accept as u8);
    assert_eq!(side.mesh.connections.unproved(), 2, "who has proved itself is none of them");
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
fn who_goes_on_before_its_hello_is_answered_is_turned_away() {
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
    side.mesh.expire(Time(0) + HELLO_WAIT);
    stranger.hear_end(&mut side);
    assert_eq!((count(&side), side.mesh.connections.unproved()), (0, 0));
}

/// A hello damaged on the way ends a connection, and not the link.
#[test]
fn a_link_whose_hello_is_damaged_is_dialled_again() {
    let (mut lower, mut higher) = two(&plain());
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = [lower.address(), between.local_addr().unwrap()];
    lower.form(&formed(0, addresses));
    for bit in [3, 60, 200, 300, 500] {
        lower.open(KEY[1]);
        // The first connection goes through a hand that turns a bit.
        let mut first = Peer::accept(&between, &mut lower);
        let mut bytes = until(|| {
            lower.turn();
            first.read();
            (first.inbound.len() >= 24 + 61 + 4).then(|| std::mem::take(&mut first.inbound))
        });
        bytes[bit / 8] ^= 1 << (bit % 8);
        let mut damaged = Peer::dial(&higher);
        damaged.stream.write_all(&bytes).unwrap();
        until(|| {
            higher.turn();
            damaged.read();
            damaged.ended.then_some(())
        });
        drop(first);
        // The second is whole.
        let mut second = Peer::accept(&between, &mut lower);
        let said = second.hear(&mut lower);
        let mut whole = Peer::dial(&higher);
        whole
            .stream
            .write_all(&frame(LinkKind::Hello, &LinkHello::take(&mut Decoder::new(&said.payload)).unwrap()))
            .unwrap();
        let answer = whole.hear(&mut higher);
        assert_eq!(answer.header.kind, LinkKind::Accept as u8, "bit {bit}");
        second.say(LinkKind::Accept, &LinkAccept::take(&mut Decoder::new(&answer.payload)).unwrap());
        until(|| {
            lower.turn();
            (!lower.mail.is_empty()).then_some(())
        });
        drop((lower.link(), higher.link()));
        lower.mesh.open.clear();
        higher.mesh.open.clear();
    }
}

#[test]
fn a_damaged_answer_is_called_damage_and_not_a_stranger() {
    let mut answer = frame(LinkKind::Accept, &accept());
    let last = answer.len() - 8;
    answer[last] ^= 4;
    let (mut side, _peer) = answered(&plain(), &answer);
    let reason = side.failure();
    assert!(reason.starts_with("its answer for a new link was damaged on the way: "), "{reason}");
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
