//! Links that do not open because nobody answers, or nobody answers any more.

use super::*;
use crate::net::deafen;
use crate::runtime::state::silence::attempt;
use crate::strangers::WINDOW;

impl Mesh {
    /// As where the sockets were looked at just now.
    pub(crate) fn expire_at(&mut self, now: Time) -> Time {
        self.expire(now, now)
    }

    /// As where the sockets were looked at just now.
    pub(crate) fn tell_on_at(&mut self, now: Time, poller: &Poller) -> Time {
        self.tell_on(now, now, poller)
    }
}

/// When attempts that began at 0 are given up.
fn end() -> Time {
    let nowhere = nowhere();
    Time(0) + attempt(&formed(0, [nowhere, nowhere]).agreed)
}

/// Why the link has failed, as the side's group was told.
fn failure(side: &mut Side) -> Option<String> {
    side.turn();
    side.mail.pop().map(|mail| match mail {
        Mail::Failed(1, LinkEnd::Silent(reason)) => reason,
        _ => panic!("it did not fail"),
    })
}

#[test]
fn a_dial_that_nobody_answers_is_given_up_once_its_time_is_up() {
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    deafen(&deaf);
    let address = deaf.local_addr().unwrap();
    let mut side = one(&plain(), address);
    side.open(KEY[1]);
    assert_eq!(side.mesh.expire_at(Time(0)), end());
    side.open(KEY[1]); // the attempt is no younger because it is asked for once more
    assert_eq!(side.mesh.expire_at(Time(end().0 - 1)), end());
    assert!(!side.is_idle() && failure(&mut side).is_none());
    assert_eq!(side.mesh.expire_at(end()), Time::NEVER);
    assert!(side.is_idle());
    assert_eq!(failure(&mut side), Some(format!("it cannot be reached at {address}: no answer for 4.0 s")));
    // The next attempt has its own time.
    side.open(KEY[1]);
    assert_eq!(side.mesh.expire_at(end()), end() + end().since(Time(0)));
}

/// The thread slept between its look at the sockets and the command to open the link.
#[test]
fn an_attempt_counts_from_its_own_beginning() {
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    deafen(&deaf);
    let mut side = one(&plain(), deaf.local_addr().unwrap());
    side.open(KEY[1]);
    assert_eq!(side.mesh.expire(Time(0), end()), end() + end().since(Time(0)));
}

#[test]
fn an_attempt_that_stands_is_not_given_up_because_nobody_has_looked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut side = one(&plain(), listener.local_addr().unwrap());
    let dial = Dial::start(&[listener.local_addr().unwrap()], &side.poller, || Token(FIRST_TOKEN));
    side.mesh.connections.dials.insert(KEY[1], dial);
    side.mesh.expire_at(Time(0));
    let _peer = listener.accept().unwrap();
    until(|| side.mesh.connections.dials[&KEY[1]].unanswered().is_none().then_some(()));
    side.mesh.expire_at(end() + HELLO_WAIT);
    stand(&mut side, KEY[1]);
}

#[test]
fn of_several_addresses_one_that_answers_is_enough() {
    let (deaf, hears) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    deafen(&deaf);
    let mut side = Side::new(plain());
    let mut formed = formed(0, [side.address(), nowhere()]);
    let other = formed.members.find(1).unwrap();
    let addresses = vec![deaf.local_addr().unwrap(), hears.local_addr().unwrap()];
    let own = formed.members.find(0).unwrap();
    formed.members = Members::new([own, Member { addresses, ..other }].map(Arc::new).to_vec());
    side.form(&formed);
    side.open(KEY[1]);
    side.mesh.expire_at(Time(0));
    let next = side.mesh.dial_on(Time(0), &side.poller);
    while side.mesh.dial_on(next, &side.poller) != Time::NEVER {} // until both are tried
    stand(&mut side, KEY[1]);
    side.mesh.expire_at(end());
    assert!(!side.is_idle() && failure(&mut side).is_none());
}

/// The peer's agent thread may not know the group yet. And if its process is stopped, the scheduler finds that out.
#[test]
fn a_peer_whose_kernel_answers_may_take_as_long_as_it_likes_and_no_other() {
    for is_deaf in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let transport = Scripted::default();
        transport.script().room = usize::MAX;
        let only = transport.clone();
        let wrap: Wrap = Arc::new(move |_, _| Box::new(only.clone()));
        let mut side = one(&wrap, listener.local_addr().unwrap());
        side.open(KEY[1]);
        stand(&mut side, KEY[1]);
        assert_eq!(side.mesh.expire_at(Time(0)), end());
        transport.script().silence = is_deaf.then_some(end().since(Time(1)));
        assert!(side.mesh.expire_at(end()) > end() && transport.script().asked_for_signs);
        assert!(!side.is_idle() && failure(&mut side).is_none(), "not silent for long enough");
        transport.script().silence = is_deaf.then_some(end().since(Time(0)));
        side.mesh.expire_at(end());
        let reason = "it cannot be reached at 127.0.0.1:2: no answer for 4.0 s".to_owned();
        assert_eq!((side.is_idle(), failure(&mut side)), (is_deaf, is_deaf.then_some(reason)));
    }
}

#[test]
fn a_word_that_a_group_is_over_keeps_its_own_time() {
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    deafen(&deaf);
    let mut side = one(&plain(), deaf.local_addr().unwrap());
    side.open(LinkKey { channel: Channel::Word, ..KEY[1] });
    assert_eq!(side.mesh.expire_at(Time(0)), Time::NEVER);
    side.mesh.expire_at(end());
    assert!(!side.is_idle());
}

#[test]
fn a_silent_connection_is_closed_when_its_time_is_up() {
    for wrap in wraps() {
        let mut side = one(&wrap, nowhere());
        let (mut silent, mut half_way) = (Peer::dial(&side), Peer::dial(&side));
        half_way.stream.write_all(&frame(LinkKind::Hello, &hello())[..30]).unwrap();
        side.now = Time(1000);
        until(|| {
            side.turn();
            (side.mesh.connections.handshakes.len() == 2).then_some(())
        });
        let deadline = side.now + HELLO_WAIT;
        assert_eq!(side.mesh.expire_at(Time(deadline.0 - 1)), deadline);
        assert_eq!(side.mesh.connections.handshakes.len(), 2);
        assert_eq!(side.mesh.expire_at(deadline), deadline + WINDOW, "then it says how many there were");
        assert!(side.is_idle());
        silent.hear_end(&mut side);
        // The peer's bytes may lie unread in the transport. Then the connection is reset.
        until(|| match half_way.stream.read(&mut [0]) {
            Ok(count) => (count == 0).then_some(()),
            Err(error) => (error.kind() != io::ErrorKind::WouldBlock).then_some(()),
        });
    }
}

#[test]
fn a_link_that_breaks_while_its_peer_is_let_in_is_told() {
    let broken: Wrap = Arc::new(|_, _| {
        let transport = Scripted::default();
        transport.script().coming.extend(frame(LinkKind::Hello, &hello()));
        transport.script().breaks = true;
        Box::new(transport)
    });
    let mut side = one(&broken, nowhere());
    let _peer = Peer::dial(&side);
    let reason = side.failure();
    assert!(reason.starts_with("it cannot be reached at "), "it was dialled, and is gone: {reason}");
}
