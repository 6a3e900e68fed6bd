//! Links of groups that come and go.

use super::*;

/// A group that is made of both, as the user makes them.
fn made(side: &Side, id: GroupId) -> Arc<Group> {
    let formed = side.mesh.formed.clone().expect("it is formed");
    Arc::new(Group::new(id, vec![0, 1], &side.shared, &formed, 60_000).unwrap())
}

#[test]
fn a_hello_for_a_group_that_is_not_known_yet_waits_without_limit() {
    let mut side = one(&plain(), nowhere());
    let group = made(&side, GroupId(7));
    let mut peer = Peer::dial(&side);
    peer.say(LinkKind::Hello, &LinkHello { group: GroupId(7), ..hello() });
    until(|| {
        side.turn();
        side.mesh.handshakes.values().any(|shake| matches!(shake.stage, Stage::Held(_))).then_some(())
    });
    side.mesh.expire(Time(0) + 100 * HELLO_WAIT);
    side.mesh.add(&made(&side, GroupId(8)), &side.poller);
    peer.read();
    assert!(peer.inbound.is_empty() && !peer.ended, "it is not the group that it waits for");
    side.mesh.add(&group, &side.poller);
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Accept as u8);
    assert!(matches!(group.take_mail()[..], [Mail::Up(1, ..)]) && side.is_idle());
}

#[test]
fn whoever_wants_a_link_to_a_freed_group_is_told() {
    let mut side = one(&plain(), nowhere());
    let hello = LinkHello { group: GroupId(7), ..hello() };
    // One came before the group was known, and nobody here has a use for it.
    let mut early = Peer::dial(&side);
    early.say(LinkKind::Hello, &hello);
    until(|| {
        side.turn();
        (!side.is_idle()).then_some(())
    });
    side.mesh.remove(GroupId(7), &side.poller);
    assert_eq!(early.hear(&mut side).header.kind, LinkKind::Reject as u8);
    early.hear_end(&mut side);
    assert_eq!(Peer::dial(&side).refused(&mut side, &hello), LinkRejectReason::NoGroup);
    assert!(side.mail.is_empty());
}

#[test]
fn a_link_that_comes_to_be_when_its_group_is_freed_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut side = one(&plain(), listener.local_addr().unwrap());
    let group = made(&side, GroupId(7));
    side.mesh.add(&group, &side.poller);
    side.open(LinkKey { group: GroupId(7), ..KEY[1] });
    let mut peer = Peer::accept(&listener, &mut side);
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Hello as u8);
    side.mesh.remove(GroupId(7), &side.poller);
    peer.say(LinkKind::Accept, &LinkAccept { proof: half(&SECRET, 1) });
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Leave as u8);
    peer.hear_end(&mut side);
    assert!(side.is_idle() && side.mesh.open.is_empty() && group.take_mail().is_empty());
}
