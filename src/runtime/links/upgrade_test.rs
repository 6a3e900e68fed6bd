//! What a link is upgraded to. And no link falls back to less than was wanted.

use super::*;
use crate::runtime::links::upgrade::tests::{InMemory, MEMORY};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Two nodes with these upgrades: the lower index, and the higher, which dials or is dialled.
fn pair(wrap: &Wrap, upgrades: [Upgrade; 2]) -> (Side, Side) {
    let [mut lower, mut higher] = upgrades.map(|upgrade| Side::upgraded(Arc::clone(wrap), upgrade));
    let addresses = [lower.address(), higher.address()];
    lower.form(&formed(0, addresses));
    higher.form(&formed(1, addresses));
    (lower, higher)
}

#[test]
fn a_link_is_upgraded_where_both_ends_offer_it_whoever_dials() {
    for wrap in wraps() {
        for offer in [[true, true], [true, false], [false, true]] {
            for lower_dials in [true, false] {
                let memory = InMemory::default();
                let upgrades = offer.map(|offers| if offers { memory.upgrade() } else { Upgrade::none() });
                let (mut lower, mut higher) = pair(&wrap, upgrades);
                match lower_dials {
                    true => lower.open(KEY[1]),
                    false => higher.open(KEY[0]),
                }
                until(|| {
                    lower.turn();
                    higher.turn();
                    (!lower.mail.is_empty() && !higher.mail.is_empty()).then_some(())
                });
                let ((low, _), (high, _)) = (lower.link(), higher.link());
                let both = offer == [true, true];
                assert_eq!((low.is_intact(), high.is_intact()), (both, both), "memory, or what it was");
                assert_eq!(memory.made(), if both { 2 } else { 0 });
            }
        }
    }
}

#[test]
fn an_answer_has_the_bits_that_both_offer_and_a_word_has_none() {
    for (channel, common) in [(Channel::Collectives, MEMORY), (Channel::Messages, MEMORY), (Channel::Word, 0)] {
        let mut side = Side::upgraded(plain(), InMemory::default().upgrade());
        side.form(&formed(0, [side.address(), nowhere()]));
        let mut peer = Peer::dial(&side);
        peer.say(LinkKind::Hello, &LinkHello { channel, features: MEMORY | 1, ..hello() });
        let answer = peer.hear(&mut side);
        let features = LinkAccept::take(&mut Decoder::new(&answer.payload)).unwrap().features;
        assert_eq!((answer.header.kind, features), (LinkKind::Accept as u8, common));
    }
}

#[test]
fn what_was_not_offered_is_not_accepted() {
    for wrap in wraps() {
        let (mut side, mut peer) =
            answered(&wrap, &frame(LinkKind::Accept, &LinkAccept { features: MEMORY, ..accept() }));
        let reason = side.failure();
        assert_eq!(reason, "what answers there is no peer: it accepts features 0x20, which were not offered");
        peer.hear_end(&mut side);
    }
}

#[test]
fn an_upgrade_that_fails_ends_the_link() {
    let broken = Upgrade::new(MEMORY, Arc::new(|_, _, _| Err(io::Error::other("no memory"))));
    let (mut lower, mut higher) = pair(&plain(), [broken, InMemory::default().upgrade()]);
    lower.open(KEY[1]);
    until(|| {
        lower.turn();
        higher.turn();
        (!lower.mail.is_empty() && !higher.mail.is_empty()).then_some(())
    });
    assert_eq!(lower.failure(), "its upgrade failed: no memory");
    assert!(higher.link().0.is_intact(), "it does not go on with what was before, either");
}

#[test]
fn what_comes_between_an_answer_and_its_upgrade_ends_the_link() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut side = Side::upgraded(plain(), InMemory::default().upgrade());
    side.form(&formed(0, [side.address(), listener.local_addr().unwrap()]));
    side.open(KEY[1]);
    let mut peer = Peer::accept(&listener, &mut side);
    let offered = LinkHello::take(&mut Decoder::new(&peer.hear(&mut side).payload)).unwrap().features;
    assert_eq!(offered, MEMORY);
    let answer = frame(LinkKind::Accept, &LinkAccept { features: MEMORY, ..accept() });
    peer.stream.write_all(&[answer, leave()].concat()).unwrap();
    assert!(side.failure().starts_with("its upgrade failed: "));
}

/// A wrap may fail, for instance at an invalid certificate. Then no byte goes out in clear, and no other connection is tried.
#[test]
fn a_wrap_that_fails_is_never_followed_by_a_plain_connection() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let refuses: Wrap = Arc::new(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        let transport = Scripted::default();
        transport.script().breaks = true;
        transport.script().fails = Some(libc::EPROTO);
        Box::new(transport)
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut side = Side::upgraded(refuses, InMemory::default().upgrade());
    side.form(&formed(0, [side.address(), listener.local_addr().unwrap()]));
    side.open(KEY[1]);
    assert_eq!(side.failure(), "its end of a new link was closed: broken pipe");
    listener.set_nonblocking(true).unwrap();
    let tried: Vec<usize> = std::iter::from_fn(|| listener.accept().ok())
        .map(|(mut dialled, _)| dialled.read(&mut [0; 64]).unwrap())
        .collect();
    assert!(tried.iter().all(|said| *said == 0), "nothing was said");
    assert_eq!(made.load(Ordering::Relaxed), tried.len(), "each was wrapped");
    // The same happens to a peer that dials this node.
    let mut peer = Peer::dial(&side);
    peer.say(LinkKind::Hello, &hello());
    until(|| {
        side.turn();
        (made.load(Ordering::Relaxed) == tried.len() + 1 && side.is_idle()).then_some(())
    });
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "nothing else was tried");
    assert!(side.mail.is_empty() && side.mesh.open.is_empty());
    let heard = until(|| match peer.stream.read(&mut [0; 64]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        ended => Some(ended.unwrap_or(0)),
    });
    assert_eq!(heard, 0, "nothing was said");
}
