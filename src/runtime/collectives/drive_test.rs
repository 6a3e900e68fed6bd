use super::*;
use crate::error::{Failure, Status};
use crate::runtime::base::control::tests::Scripted;
use crate::runtime::base::interrupts::Attention;
use crate::runtime::collectives::call_progress::PEER_OPENS;
use crate::runtime::collectives::failure::tests::{broadcast, cause, frame, revoke, Bench, PEERS, SOON};
use crate::runtime::collectives::queued_call::Work;
use crate::runtime::links::link::Link;
use crate::runtime::links::peers::Links;
use crate::runtime::memory::buffer::CallBuffers;
use crate::types::Call;
use crate::wire::DATA_HEADER_BYTES;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

#[test]
fn a_peer_is_waited_for_to_open_a_link_once_and_not_for_long() {
    let mut links = Links::with([Slot::Asked, Slot::Unused]);
    let (receive, head) = (Some((1, Landing::Place(Span::EMPTY))), [0; DATA_HEADER_BYTES]);
    let opening = Opening::Peer;
    let mut exchange = Exchange { head, send: None, receive, started: false, arithmetic: None, opening };
    let start = Time::default() + PEER_OPENS;
    assert!(exchange.leaves_opening_to(links.slot(1)));
    assert!(!exchange.leaves_opening_to(links.slot(0)), "asked for, then it is under way");
    for now in [start, start + PEER_OPENS / 2] {
        assert_eq!(exchange.opening_until(&links, now), start + PEER_OPENS);
    }
    assert!(exchange.leaves_opening_to(links.slot(1)));
    assert_eq!(exchange.opening_until(&links, start + PEER_OPENS), start + PEER_OPENS);
    assert!(!exchange.leaves_opening_to(links.slot(1)), "this rank opens it");
    assert_eq!(exchange.opening_until(&links, start + PEER_OPENS), Time::NEVER);
    exchange.opening = Opening::Peer;
    links.entry(1).slot = Slot::Left(None);
    assert_eq!(exchange.opening_until(&links, start), Time::NEVER);
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
    let links = Links::with([Slot::Asked, Slot::Up(Box::new(silent)), Slot::Up(Box::new(spoken))]);
    let polls = |send: Option<u32>, receive: Option<u32>| {
        let (send, receive) =
            (send.map(|peer| (peer, Span::EMPTY)), receive.map(|peer| (peer, Landing::Place(Span::EMPTY))));
        let opening = Opening::Peer;
        Exchange { head: data, send, receive, started: false, arithmetic: None, opening }.may_poll(&links)
    };
    assert!(!polls(Some(0), None) && !polls(None, Some(0)), "the link is being opened");
    assert!(!polls(None, Some(1)), "the peer may just be starting");
    assert!(polls(Some(1), None), "it takes what is sent as soon as there is room");
    assert!(polls(None, Some(2)) && polls(Some(1), Some(2)));
    assert!(!polls(Some(0), Some(2)) && !polls(Some(2), Some(1)));
}

/// A call that sends into a full link does not read what its peer sent before it gave up. The call sleeps while it
/// waits, for the peer has ended its side.
#[test]
fn a_call_that_waits_hears_a_peer_that_gives_up_behind_a_frame_that_is_not_read() {
    const COUNT: usize = 64 << 20;
    let mut bench = Bench::new();
    bench.stand(0);
    let call = Call { root: Some(0), ..broadcast(COUNT) };
    let earlier = frame(DataHeader::of_first(broadcast(1 << 10)));
    let gives_up = |rank: u32, mut peer: TcpStream| {
        peer.set_read_timeout(Some(SOON)).unwrap();
        // Something has come, so the call has begun. From now on nothing is read.
        if peer.peek(&mut [0]).is_ok_and(|taken| taken > 0) {
            // The others may find the link ended already.
            let _ = peer.write_all(&[&earlier[..], &revoke(cause(rank))].concat());
            let _ = peer.shutdown(Shutdown::Write);
        }
    };
    std::thread::scope(|scope| {
        for (rank, peer) in PEERS.into_iter().zip(&bench.peers) {
            let peer = peer.try_clone().unwrap();
            scope.spawn(move || gives_up(rank, peer));
        }
        let begun = Instant::now();
        let mut content = vec![0; COUNT];
        bench.group.run(Work::plain(call, CallBuffers::of(&[], &mut content))).expect_err("it is revoked");
        assert!(begun.elapsed() < SOON / 2, "it was heard after {:?}", begun.elapsed());
        let first = bench.group.context.broken().expect("it is revoked");
        assert!(PEERS.iter().any(|rank| first == cause(*rank)), "{first}");
    });
}

#[test]
fn a_call_of_many_exchanges_keeps_to_its_time_though_none_of_them_waits() {
    let bench = Bench::new();
    bench.group.set_timeout_ms(0).unwrap();
    let collectives = &bench.group.collectives;
    let (call, time) = (broadcast(1), bench.group.context.time_limit());
    let turn = collectives.turns.take(Some((call, time.since)));
    let mut ended = 0;
    let outcome = collectives.in_turn(&turn, (call, 0), (time, &Attention::none()), |exclusive, running| {
        let memory = CallBuffers::of(&[], &mut []).memory();
        for _ in 0..10 * CLOCK_TURNS {
            let (send, receive, head, opening) = (None, None, [0; DATA_HEADER_BYTES], Opening::Peer);
            let mut nothing = Exchange { head, send, receive, started: false, arithmetic: None, opening };
            collectives.exchange(&mut exclusive.driver, running, &mut nothing, &memory)?;
            ended += 1;
        }
        Ok(())
    });
    assert_eq!(outcome.unwrap_err().status(), Status::Timeout);
    assert_eq!(ended, CLOCK_TURNS - 1, "a time-out of 0 leaves time for what can be done at once");
}

/// Where ranks called different things later, this rank is to come to that call, for the ranks are counted.
#[test]
fn a_word_about_a_later_collective_ends_that_and_not_this_one() {
    for (revoker, piece) in [(3, 0), (3, 7), (1, 0), (1, 7)] {
        let later = Failure { status: Status::Mismatch, sequence: 2, ..cause(revoker) };
        let mut bench = Bench::new();
        bench.peers[2].write_all(&frame(DataHeader::of_first(broadcast(1)))).unwrap();
        bench.peers[revoker as usize - 1].write_all(&revoke(later.clone())).unwrap();
        bench.stand(piece);
        let mut output = [0];
        let work = Work::plain(broadcast(1), CallBuffers::of(&[], &mut output));
        bench.group.run(work).expect("all that belongs to it is there");
        assert_eq!(output, [7]);
        assert_eq!(bench.call(), later, "rank {revoker} has said so");
    }
}
