use super::*;
use crate::runtime::base::control::tests::Scripted;
use crate::runtime::links::link::Link;

#[test]
fn a_peer_is_waited_for_to_open_a_link_once_and_not_for_long() {
    let mut slots = [Slot::Asked, Slot::Unused];
    let (receive, head) = (Some((1, Landing::Place(Span::EMPTY))), [0; DATA_HEADER_BYTES]);
    let opening = Opening::Peer;
    let mut exchange = Exchange { head: &head, send: None, receive, started: false, arithmetic: None, opening };
    let start = Time::default() + PEER_OPENS;
    assert!(exchange.leaves_opening_to(&slots[1]));
    assert!(!exchange.leaves_opening_to(&slots[0]), "asked for, then it is under way");
    for now in [start, start + PEER_OPENS / 2] {
        assert_eq!(exchange.opening_until(&slots, now), start + PEER_OPENS);
    }
    assert!(exchange.leaves_opening_to(&slots[1]));
    assert_eq!(exchange.opening_until(&slots, start + PEER_OPENS), start + PEER_OPENS);
    assert!(!exchange.leaves_opening_to(&slots[1]), "this rank opens it");
    assert_eq!(exchange.opening_until(&slots, start + PEER_OPENS), Time::NEVER);
    exchange.opening = Opening::Peer;
    slots[1] = Slot::Left(None);
    assert_eq!(exchange.opening_until(&slots, start), Time::NEVER);
}

#[test]
fn the_scratch_grows_to_what_was_needed_and_more_than_there_is_ends_the_call_only() {
    let mut scratch = Vec::new();
    for (wanted, length) in [(10, 10), (5, 10), (0, 10), (4096, 4096)] {
        grow(&mut scratch, wanted).unwrap();
        assert_eq!(scratch.len(), length);
    }
    let all = isize::MAX as usize;
    assert!(matches!(grow(&mut scratch, all), Err(Stop::Memory(bytes)) if bytes == all));
    assert_eq!(scratch.len(), 4096);
}

#[test]
fn a_call_polls_only_for_what_may_come_at_once() {
    let call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
    let data = DataHeader::of_first(call).encode();
    let header = FrameHeader { kind: LinkKind::Data as u8, flags: 0, node: 0, length: 0 }.encode();
    let silent = Link::new(Box::new(Scripted::default()), &[]);
    let mut spoken = Link::new(Box::new(Scripted::default()), &[&header[..], &data].concat());
    assert!(!spoken.has_spoken(), "nobody has looked");
    assert!(matches!(spoken.peek(), Ok(Some(Arrival::Data(..)))));
    let slots = [Slot::Asked, Slot::Up(Box::new(silent)), Slot::Up(Box::new(spoken))];
    let polls = |send: Option<u32>, receive: Option<u32>| {
        let (send, receive) =
            (send.map(|peer| (peer, Span::EMPTY)), receive.map(|peer| (peer, Landing::Place(Span::EMPTY))));
        let opening = Opening::Peer;
        Exchange { head: &data, send, receive, started: false, arithmetic: None, opening }.may_poll(&slots)
    };
    assert!(!polls(Some(0), None) && !polls(None, Some(0)), "the link is being opened");
    assert!(!polls(None, Some(1)), "the peer may just be starting");
    assert!(polls(Some(1), None), "it takes what is sent as soon as there is room");
    assert!(polls(None, Some(2)) && polls(Some(1), Some(2)));
    assert!(!polls(Some(0), Some(2)) && !polls(Some(2), Some(1)));
}
