//! Links of groups and of epochs that come and go, and the word that a group is over.

use super::*;
use crate::agent::{Command, Event};
use crate::error::{Failure, Status};
use crate::runtime::state::node_state::AgentCommand;
use crate::wire::LinkRevoke;

impl Side {
    /// Takes out events as the agent thread does, and keeps the mail for world.
    pub(super) fn drain(&mut self) {
        while let Some(event) = self.mesh.next_event() {
            match event {
                MeshEvent::Mail(GroupId::WORLD, _, mail) => self.mail.push(mail),
                MeshEvent::Mail(_, _, mail) => self.other_mail.push(mail),
                MeshEvent::Revoked(failure) => _ = self.shared.file(Event::Revoked(failure)),
                MeshEvent::Locate(index) => self.asked_for.push(index),
                MeshEvent::Aborted(_, failure) => self.shared.ask(AgentCommand::Brain(Command::Aborted(failure))),
            }
        }
    }
}

/// A group that is made of both nodes, as the user makes groups.
fn made(side: &Side, id: GroupId) -> Arc<Roster> {
    Arc::new(Roster::of(id, vec![0, 1], side.mesh.rosters.formed().expect("it is formed")))
}

#[test]
fn a_hello_for_a_group_that_is_not_known_yet_waits_without_limit() {
    let mut side = one(&plain(), nowhere());
    let group = made(&side, GroupId(7));
    let mut peer = Peer::dial(&side);
    peer.say(LinkKind::Hello, &LinkHello { group: GroupId(7), ..hello() });
    until(|| {
        side.turn();
        side.mesh.connections.handshakes.values().any(|shake| matches!(shake.stage, Stage::Held(_))).then_some(())
    });
    side.mesh.expire_at(Time(0) + 100 * HELLO_WAIT);
    side.mesh.add(&made(&side, GroupId(8)), &side.poller);
    peer.read();
    assert!(peer.inbound.is_empty() && !peer.ended, "it is not the group that it waits for");
    side.mesh.add(&group, &side.poller);
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Accept as u8);
    peer.confirm(&mut side);
    assert!(matches!(side.other_mail[..], [Mail::Up(1, ..)]) && side.is_idle());
}

#[test]
fn a_peer_that_wants_a_link_to_a_freed_group_is_told() {
    let mut side = one(&plain(), nowhere());
    let hello = LinkHello { group: GroupId(7), ..hello() };
    // This hello came before the group was known, and this node has no use for the group.
    let mut early = Peer::dial(&side);
    early.say(LinkKind::Hello, &hello);
    until(|| {
        side.turn();
        (!side.is_idle()).then_some(())
    });
    side.mesh.remove(GroupId(7), &side.poller);
    assert_eq!(early.hear(&mut side).header.kind, LinkKind::Reject as u8);
    early.hear_end(&mut side);
    early.go(&mut side);
    assert_eq!(Peer::dial(&side).refused(&mut side, &hello), LinkRejectReason::NoGroup);
    assert!(side.mail.is_empty());
}

#[test]
fn nodes_watch_each_other_by_their_places_in_universe_alone() {
    let mut side = one(&plain(), nowhere());
    let group = made(&side, GroupId(7));
    side.mesh.add(&group, &side.poller);
    for group in [GroupId::WORLD, GroupId(7), GroupId(8)] {
        let watch = LinkHello { group, channel: Channel::Watch, ..hello() };
        assert_eq!(Peer::dial(&side).refused(&mut side, &watch), LinkRejectReason::NoGroup, "{group}");
    }
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
    peer.say(LinkKind::Accept, &accept());
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::KeepAlive as u8);
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Leave as u8);
    peer.hear_end(&mut side);
    assert!(side.is_idle() && side.other_mail.is_empty());
}

/// The next epoch, as the scheduler tells of it.
fn second_epoch(side: &Side) -> Formed {
    Formed { epoch: Epoch(2), secret: Secret([5; 32]), ..formed(0, [side.address(), nowhere()]) }
}

#[test]
fn hellos_of_the_next_epoch_wait_for_the_scheduler_s_word_but_not_any_number_of_them() {
    let mut side = one(&plain(), nowhere());
    let next = LinkHello { epoch: Epoch(2), proof: half(&Secret([5; 32]), 0), ..hello() };
    let (mut early, mut stranger) = (Peer::dial(&side), Peer::dial(&side));
    early.say(LinkKind::Hello, &next);
    stranger.say(LinkKind::Hello, &LinkHello { proof: half(&Secret([6; 32]), 0), ..next.clone() });
    let held = |side: &Side| {
        side.mesh.connections.handshakes.values().filter(|shake| matches!(shake.stage, Stage::Held(_))).count()
    };
    until(|| {
        side.turn();
        (held(&side) == 2).then_some(())
    });
    side.mesh.expire_at(Time(0) + HELLO_WAIT / 2);
    assert_eq!(held(&side), 2);
    side.form(&second_epoch(&side));
    assert_eq!(early.hear(&mut side).header.kind, LinkKind::Accept as u8);
    assert_eq!(stranger.hear(&mut side).header.kind, LinkKind::Reject as u8);
    early.confirm(&mut side);
    side.link();
    stranger.go(&mut side);
    assert_eq!(Peer::dial(&side).refused(&mut side, &hello()), LinkRejectReason::Stranger, "epoch 1 is over");
    // The scheduler may be away for long. If many peers claim an epoch that does not come, some wait no longer than strangers.
    let claim = LinkHello { epoch: Epoch(3), ..next };
    let mut patient: Vec<Peer> = (0..EARLY_MAX + 2).map(|_| Peer::dial(&side)).collect();
    for peer in &mut patient {
        peer.say(LinkKind::Hello, &claim);
    }
    until(|| {
        side.turn();
        (held(&side) == patient.len()).then_some(())
    });
    side.mesh.expire_at(side.now + 2 * HELLO_WAIT);
    assert_eq!(held(&side), EARLY_MAX);
}

#[test]
fn what_was_begun_in_the_epoch_before_comes_to_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut side = one(&plain(), listener.local_addr().unwrap());
    side.open(KEY[1]);
    let mut peer = Peer::accept(&listener, &mut side);
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Hello as u8);
    side.form(&Formed {
        secret: Secret([5; 32]),
        epoch: Epoch(2),
        ..formed(0, [side.address(), listener.local_addr().unwrap()])
    });
    peer.hear_end(&mut side);
    assert!(side.is_idle() && side.mail.is_empty());
    // If the same link is wanted again, it is a new one.
    side.open(KEY[1]);
    let mut peer = Peer::accept(&listener, &mut side);
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Hello as u8);
    peer.say(LinkKind::Accept, &LinkAccept { proof: half(&Secret([5; 32]), 1), ..accept() });
    until(|| {
        side.turn();
        (!side.mail.is_empty()).then_some(())
    });
    side.link();
}

fn over(group: GroupId, epoch: u64, cause: &str) -> Failure {
    let (status, cause, epoch) = (Status::Timeout, cause.to_owned(), Epoch(epoch));
    Failure { status, culprit: None, cause, epoch, group: Some(group), sequence: 3 }
}

fn told(side: &Side, group: GroupId) -> Option<Failure> {
    side.shared.view().epoch.causes.of_group(group).cloned()
}

fn tell(side: &mut Side, failure: &Failure) {
    side.mesh.tell(failure.clone(), &HashSet::new(), side.now, &side.poller);
}

#[test]
fn a_member_that_gives_a_group_up_tells_the_others_and_two_may_tell_each_other() {
    let words = [over(GroupId::WORLD, 1, "too late"), over(GroupId::WORLD, 1, &"long ".repeat(819))];
    for wrap in wraps() {
        for both in [false, true] {
            let (mut lower, mut higher) = two(&wrap);
            tell(&mut lower, &words[0]);
            if both {
                tell(&mut higher, &words[1]);
            }
            until(|| {
                lower.turn();
                higher.turn();
                let heard =
                    told(&higher, GroupId::WORLD).is_some() && (!both || told(&lower, GroupId::WORLD).is_some());
                (heard && lower.is_idle() && higher.is_idle()).then_some(())
            });
            assert_eq!(told(&higher, GroupId::WORLD).as_ref(), Some(&words[0]));
            assert_eq!(told(&lower, GroupId::WORLD).as_ref(), both.then_some(&words[1]));
            assert_eq!(lower.mesh.tell_on_at(lower.now, &lower.poller), Time::NEVER);
            assert!(lower.mail.is_empty() && higher.mail.is_empty() && lower.mesh.open.is_empty());
            tell(&mut lower, &words[1]);
            assert!(lower.is_idle(), "a group is over once");
        }
    }
}

#[test]
fn a_word_about_another_group_or_epoch_is_not_acted_on() {
    for word in [over(GroupId(7), 1, "another group"), over(GroupId::WORLD, 2, "another epoch")] {
        let mut side = one(&plain(), nowhere());
        side.mesh.add(&made(&side, GroupId(7)), &side.poller);
        let mut peer = Peer::dial(&side);
        peer.say(LinkKind::Hello, &LinkHello { channel: Channel::Word, ..hello() });
        assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Accept as u8);
        peer.say(LinkKind::Revoke, &LinkRevoke { failure: word });
        peer.hear_end(&mut side);
        assert!(told(&side, GroupId::WORLD).is_none() && told(&side, GroupId(7)).is_none());
    }
}

#[test]
fn what_was_heard_in_the_epoch_before_is_not_passed_on_in_the_next() {
    for channel in [Channel::Word, Channel::Collectives] {
        let mut side = one(&plain(), nowhere());
        let mut peer = Peer::dial(&side);
        peer.say(LinkKind::Hello, &LinkHello { channel, ..hello() });
        assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Accept as u8);
        match channel {
            Channel::Word => peer.say(LinkKind::Revoke, &LinkRevoke { failure: over(GroupId::WORLD, 1, "too late") }),
            _ => peer.stream.write_all(&confirmation()).unwrap(),
        }
        until(|| {
            side.serve();
            (!side.mesh.events.is_empty()).then_some(())
        });
        // The scheduler's word of the next epoch is served in the same turn, after it.
        let formed = formed(0, [side.address(), nowhere()]);
        side.form(&Formed { secret: Secret([5; 32]), epoch: Epoch(2), ..formed });
        side.drain();
        assert!(told(&side, GroupId::WORLD).is_none() && side.mail.is_empty(), "{channel:?}");
    }
}

#[test]
fn those_who_say_nothing_make_room_for_those_behind_them() {
    const SILENT: u32 = 70;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut side = one(&plain(), silent.local_addr().unwrap());
    let formed = side.mesh.rosters.formed().cloned().expect("it is formed");
    let member = |index: u32| Member { index, rank: index, ..formed.members.find(index.min(1)).expect("one of two") };
    let members = Members::new((0..=SILENT).map(|index| Arc::new(member(index))).collect());
    let formed = Arc::new(Formed { members, ..Formed::clone(&formed) });
    let group = Arc::new(Roster::of(GroupId(7), (0..=SILENT).collect(), &formed));
    side.mesh.form(formed, [group].into_iter(), &side.poller);
    tell(&mut side, &over(GroupId(7), 1, "too late"));
    let last = LinkKey::new(GroupId(7), Channel::Word, SILENT);
    let is_tried = |side: &Side, key| {
        side.mesh.connections.dials.contains_key(&key) || side.mesh.connections.dialled(key).is_some()
    };
    let first = side.mesh.tell_on_at(side.now, &side.poller);
    assert!(first < side.now + HELLO_WAIT && !is_tried(&side, last), "they take all the places for a while");
    let again = side.mesh.tell_on_at(first, &side.poller);
    assert!(is_tried(&side, last) && again > first);
    let tried = (1..=SILENT).filter(|rank| is_tried(&side, LinkKey::new(GroupId(7), Channel::Word, *rank)));
    assert_eq!(tried.count(), 64, "and are tried once more behind them");
    let mut now = again;
    while !is_tried(&side, LinkKey::new(GroupId(7), Channel::Word, 1)) || now <= first + 4 * HELLO_WAIT {
        assert!(now <= first + 8 * HELLO_WAIT, "and again, as long as they are not told");
        now = side.mesh.tell_on_at(now, &side.poller);
    }
}

#[test]
fn a_member_that_closes_the_connection_before_it_is_told_is_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut side = one(&plain(), listener.local_addr().unwrap());
    tell(&mut side, &over(GroupId::WORLD, 1, "too late"));
    let mut busy = Peer::accept(&listener, &mut side);
    assert_eq!(busy.hear(&mut side).header.kind, LinkKind::Hello as u8);
    drop(busy);
    until(|| (side.turn(), side.is_idle()).1.then_some(()));
    let next = side.mesh.tell_on_at(side.now, &side.poller);
    assert!(side.is_idle() && next > side.now, "not at once");
    side.mesh.tell_on_at(next, &side.poller);
    let mut peer = Peer::accept(&listener, &mut side);
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Hello as u8);
    peer.say(LinkKind::Accept, &accept());
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Revoke as u8);
    peer.go(&mut side);
    assert_eq!(side.mesh.tell_on_at(next, &side.poller), Time::NEVER, "it has been told");
}

/// The dialler believes that a member is told once it has said so. It may be slow between the answer and the word.
#[test]
fn a_word_is_awaited_as_long_as_its_connection_stands() {
    let mut side = one(&plain(), nowhere());
    let mut peer = Peer::dial(&side);
    peer.say(LinkKind::Hello, &LinkHello { channel: Channel::Word, ..hello() });
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Accept as u8);
    let late = side.now + 100 * HELLO_WAIT;
    assert_eq!(side.mesh.expire_at(late), Time::NEVER);
    let word = over(GroupId::WORLD, 1, "too late");
    peer.say(LinkKind::Revoke, &LinkRevoke { failure: word.clone() });
    peer.hear_end(&mut side);
    assert_eq!(told(&side, GroupId::WORLD), Some(word));

    let mut peer = Peer::dial(&side);
    peer.say(LinkKind::Hello, &LinkHello { channel: Channel::Word, ..hello() });
    assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Accept as u8);
    drop(peer);
    until(|| (side.turn(), side.is_idle()).1.then_some(()));
}

#[test]
fn a_member_for_which_there_is_no_descriptor_is_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut side = one(&plain(), listener.local_addr().unwrap());
    tell(&mut side, &over(GroupId::WORLD, 1, "too late"));
    let key = LinkKey { channel: Channel::Word, ..KEY[1] };
    side.mesh.connections.drop_word(key);
    side.mesh.not_dialled(key, NotDialled::NoDescriptor("its process may hold 41".to_owned()));
    let next = side.mesh.tell_on_at(side.now, &side.poller);
    assert!(side.is_idle() && next > side.now, "not at once");
    side.mesh.tell_on_at(next, &side.poller);
    assert!(!side.is_idle() && side.mail.is_empty());
}

fn aborted(epoch: u64) -> Failure {
    Failure { status: Status::Aborted, group: None, ..over(GroupId::WORLD, epoch, "the disk is gone") }
}

/// What the agent of this node is to know of an abort.
fn heard_of_abort(side: &Side) -> Option<Failure> {
    match side.shared.next_command() {
        Some(AgentCommand::Brain(Command::Aborted(failure))) => Some(failure),
        other => {
            assert!(other.is_none(), "{other:?}");
            None
        }
    }
}

#[test]
fn of_the_job_s_end_all_nodes_are_told_whatever_else_is_being_told() {
    for wrap in wraps() {
        for also in [None, Some(GroupId::UNIVERSE), Some(GroupId::WORLD)] {
            let (mut lower, mut higher) = two(&wrap);
            for side in [&mut lower, &mut higher] {
                side.mesh.add(&made(side, GroupId::UNIVERSE), &side.poller);
            }
            assert_eq!(lower.mesh.untold(), None);
            if let Some(group) = also {
                tell(&mut lower, &over(group, 1, "too late"));
            }
            tell(&mut lower, &aborted(1));
            assert_eq!(lower.mesh.untold(), Some((vec![1], true)));
            tell(&mut lower, &over(GroupId::WORLD, 1, "too late"));
            let mut heard = None;
            until(|| {
                lower.turn();
                higher.turn();
                heard = heard.take().or_else(|| heard_of_abort(&higher));
                (heard.is_some() && lower.is_idle() && higher.is_idle()).then_some(())
            });
            assert_eq!(heard, Some(aborted(1)));
            lower.mesh.tell_on_at(lower.now, &lower.poller);
            assert_eq!(lower.mesh.untold(), Some((vec![], false)));
            assert!(told(&higher, GroupId::WORLD).is_none(), "there is nothing more to tell");
            tell(&mut lower, &aborted(1));
            assert!(lower.is_idle(), "a job is over once");
        }
    }
}

#[test]
fn a_word_of_the_job_s_end_counts_in_its_epoch_and_among_all_nodes_only() {
    let (world, universe) = (GroupId::WORLD, GroupId::UNIVERSE);
    for (group, word) in [(world, aborted(1)), (universe, aborted(2))] {
        let mut side = one(&plain(), nowhere());
        side.mesh.add(&made(&side, GroupId::UNIVERSE), &side.poller);
        let mut peer = Peer::dial(&side);
        peer.say(LinkKind::Hello, &LinkHello { group, channel: Channel::Word, ..hello() });
        assert_eq!(peer.hear(&mut side).header.kind, LinkKind::Accept as u8);
        peer.say(LinkKind::Revoke, &LinkRevoke { failure: word });
        peer.hear_end(&mut side);
        assert_eq!(heard_of_abort(&side), None);
    }
}

#[test]
fn a_member_that_cannot_be_told_holds_nobody_up() {
    // The listener's queue takes the connection, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut side = one(&plain(), silent.local_addr().unwrap());
    let word = over(GroupId(7), 1, "too late");
    // The addresses of most members are not known.
    let formed = side.mesh.rosters.formed().cloned().expect("it is formed");
    let members: Vec<u32> = [0].into_iter().chain(2..300).chain([1]).collect();
    let group = Arc::new(Roster::of(GroupId(7), members, &formed));
    side.mesh.add(&group, &side.poller);
    tell(&mut side, &word);
    assert!(!side.is_idle(), "the others are passed over at once");
    let waits = side.mesh.tell_on_at(side.now, &side.poller);
    assert_eq!(waits, side.now + HELLO_WAIT);
    side.turn();
    assert_eq!(side.mesh.tell_on_at(waits, &side.poller), waits + HELLO_WAIT, "the one that is silent is tried again");
    let wanted = LinkKey::new(GroupId(7), Channel::Collectives, 1);
    assert_eq!(side.mesh.open(wanted, &side.poller), Some(2), "it is asked for when a link is wanted, and not before");

    let (mut lower, mut higher) = two(&plain());
    lower.mesh.add(&group, &lower.poller);
    higher.mesh.add(&made(&higher, GroupId(7)), &higher.poller);
    tell(&mut lower, &word);
    until(|| {
        lower.mesh.tell_on_at(lower.now, &lower.poller);
        lower.turn();
        higher.turn();
        told(&higher, GroupId(7))
    });
}
