//! The engine alone, of rank 0 among three: its peers' links are scripts, on which a test says what comes when, and finds
//! what went out. So everything happens in the order that the test gives it, lies included.

use super::engine::{Engine, Trouble};
use super::operation::DEADLINES_KEPT;
use super::peer::Bytes;
use super::{Direction, Post};
use crate::config::LogLevel;
use crate::error::{Error, Failure, Status};
use crate::runtime::base::clock::Clock;
use crate::runtime::base::control::tests::Scripted;
use crate::runtime::base::log::Logger;
use crate::runtime::base::request::{request, Received, Request};
use crate::runtime::base::sync::Bell;
use crate::runtime::links::handshake::leave;
use crate::runtime::links::link::{Arrival, Link, LinkEnd, Moved};
use crate::runtime::links::mesh::tests::formed;
use crate::runtime::links::peers::Slot;
use crate::runtime::links::sink::Sink;
use crate::runtime::memory::buffer::CallBuffers;
use crate::runtime::state::node_state::NodeState;
use crate::runtime::state::roster::Roster;
use crate::runtime::state::silence::Finding;
use crate::schedules::{Buffer, Landing, Span};
use crate::types::{DType, Epoch, GroupId, Time};
use crate::wire::{
    encode_frame, FrameHeader, LinkKind, MessageHeader, MessagePart, MessageWait, PeerState, EAGER_COST, EAGER_CREDIT,
    EAGER_MAX, HEADER_BYTES, RTS_MAX,
};
use std::sync::Arc;
use std::time::Duration;

/// A length above that of an eager message, and above what a link reads ahead.
const LONG: usize = EAGER_MAX + 1000;
const UINT8: DType = DType::Uint8;

/// A frame that went out: its part, number and payload.
type Frame = (MessagePart, u64, Vec<u8>);

struct Bench {
    engine: Engine,
    scripts: [Scripted; 3],
}

impl Bench {
    /// Rank 0 with links to ranks 1 and 2, which take as much as one likes.
    fn new() -> Bench {
        let nowhere = ([127, 0, 0, 1], 1).into();
        let formed = Arc::new(formed(0, [nowhere, nowhere]));
        let roster = Roster { id: GroupId::WORLD, members: vec![0, 1, 2], rank: Some(0), formed };
        let mut engine = Engine::new(&Arc::new(roster));
        let scripts = [Scripted::default(), Scripted::default(), Scripted::default()];
        for rank in 1..3 {
            let script = &scripts[rank as usize];
            script.script().room = usize::MAX;
            engine.transfers.links.entry(rank).slot = Slot::Up(Box::new(Link::new(Box::new(script.clone()), &[])));
        }
        Bench { engine, scripts }
    }

    fn post(&mut self, direction: Direction, buffers: CallBuffers<'static>, length: usize) -> Request {
        let (request, completer) = request();
        let post = Post::new(direction, UINT8, length as u64, buffers);
        self.engine.check(&post, None).expect("nothing is wrong with it");
        self.engine.post(post, Time(0), 1000, Time::NEVER, completer);
        self.engine.flush();
        request
    }

    fn send(&mut self, to: u32, tag: i32, length: usize) -> Request {
        self.post(Direction::Send { to, tag }, CallBuffers::of(given_up(&content(length)), &mut []), length)
    }

    /// Posts a receive of any message with this tag, with its memory.
    fn receive(&mut self, from: Option<u32>, tag: i32, length: usize) -> (Request, CallBuffers<'static>) {
        let memory = CallBuffers::of(&[], given_up(&vec![0xee; length]));
        (self.post(Direction::Receive { from, tag: Some(tag) }, memory, length), memory)
    }

    /// These bytes come from this rank.
    fn comes(&mut self, rank: u32, bytes: &[u8]) {
        self.scripts[rank as usize].script().coming.extend(bytes);
        self.engine.pump(rank);
    }

    /// What has gone out to this rank, and what is said behind the last message's frame, if anything.
    fn went(&mut self, rank: u32) -> (Vec<Frame>, Option<Arrival>) {
        let other = Scripted::default();
        other.script().coming = std::mem::take(&mut self.scripts[rank as usize].script().sent).into();
        let (mut link, mut frames) = (Link::new(Box::new(other), &[]), Vec::new());
        loop {
            match link.peek().expect("what goes out is whole") {
                Some(Arrival::Message(header, message)) => {
                    let mut payload = vec![0; header.length as usize];
                    let landing = Landing::Place(Span::new(Buffer::Output, 0, payload.len()));
                    let memory = CallBuffers::of(&[], &mut payload).memory();
                    let sink = Sink { memory: &memory, landing, arithmetic: None };
                    while link.receive(&sink, &mut []).expect("no payload is damaged") == Moved::Some {}
                    assert!(!link.is_waited_for(), "a frame goes out to its end");
                    frames.push((message.part, message.number, payload));
                }
                end => return (frames, end),
            }
        }
    }

    /// The frames that went out, without their payloads.
    fn parts(&mut self, rank: u32) -> impl Iterator<Item = (MessagePart, u64)> {
        self.went(rank).0.into_iter().map(|(part, number, _)| (part, number))
    }

    /// Ends the operation that was posted last: because its time is up, or because its caller wants that.
    fn give_up_newest(&mut self, late: bool) {
        let transfers = &mut self.engine.transfers;
        let op = transfers.upcoming() - 1;
        if late {
            transfers.give_up(op, Error::new(Status::Timeout, "its time is up"));
        } else {
            transfers.cancel(op);
        }
        self.engine.flush();
    }

    /// The damage that the engine has found.
    fn damage(&mut self) -> Option<String> {
        match self.engine.trouble.take() {
            Some(Trouble::Corrupt(1, what)) => Some(what),
            None => None,
            Some(_) => panic!("nobody said so"),
        }
    }

    fn leave(&mut self) {
        let (cause, group) = ("left".to_owned(), Some(GroupId::WORLD));
        let failure = Failure { status: Status::State, culprit: None, cause, epoch: Epoch(1), group, sequence: 0 };
        self.engine.fail(&failure, &leave());
    }
}

/// A copy that is never freed, for an operation may outlive the test; LeakSanitizer is told of this function by name.
#[inline(never)]
fn given_up(bytes: &[u8]) -> &'static mut [u8] {
    bytes.to_vec().leak()
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// A part of a message of this many bytes.
fn part(part: MessagePart, number: u64, tag: i32, length: usize) -> MessageHeader {
    let (epoch, group, count) = (Epoch(1), GroupId::WORLD, length as u64);
    MessageHeader { epoch, group, part, dtype: UINT8, tag, number, count }
}

/// The frame as it lies on the wire.
fn frame(message: MessageHeader, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader { kind: LinkKind::Message as u8, flags: 0, node: 0, length: payload.len() as u64 };
    let mut bytes = [&header.encode()[..], &message.encode(), payload].concat();
    if !payload.is_empty() {
        bytes.extend(crc32fast::hash(payload).to_le_bytes());
    }
    bytes
}

fn eager(number: u64, tag: i32, length: usize) -> Vec<u8> {
    frame(part(MessagePart::Eager, number, tag, length), &content(length))
}

fn rts(number: u64, tag: i32) -> Vec<u8> {
    frame(part(MessagePart::Rts, number, tag, LONG), &[])
}

fn status(request: &Request) -> Option<Status> {
    request.test().and_then(|outcome| outcome.err()).map(|error| error.status())
}

fn got(source: u32, tag: i32, length: usize) -> Option<crate::runtime::base::request::Outcome> {
    Some(Ok(Some(Received { source, tag, count: length as u64, dtype: UINT8 })))
}

#[test]
fn one_who_has_left_reads_nothing_more() {
    let mut bench = Bench::new();
    let (request, memory) = bench.receive(Some(1), 5, LONG);
    bench.comes(1, &rts(1, 5));
    let piece = frame(part(MessagePart::Piece, 1, 0, LONG), &content(LONG));
    bench.comes(1, &piece[..LONG / 2]);
    assert!(bench.engine.transfers.peer(1).reading.is_some(), "it is in the middle of a frame");
    bench.leave();
    assert_eq!(status(&request), Some(Status::State));
    let before = memory.memory().bytes(Span::new(Buffer::Output, 0, LONG)).to_vec();
    bench.comes(1, &piece[LONG / 2..]);
    bench.engine.look(None);
    assert_eq!(bench.damage(), None);
    assert_eq!(memory.memory().bytes(Span::new(Buffer::Output, 0, LONG)), before, "it is its owner's again");
}

#[test]
fn one_who_leaves_ends_its_frame_from_a_copy_and_then_says_so() {
    let mut bench = Bench::new();
    let request = bench.send(1, 5, LONG);
    assert_eq!(bench.went(1).0, [(MessagePart::Rts, 1, Vec::new())]);
    bench.scripts[1].script().room = 5000;
    bench.comes(1, &frame(part(MessagePart::Cts, 1, 0, 0), &[]));
    bench.leave();
    assert_eq!(status(&request), Some(Status::State));
    let writing = bench.engine.transfers.peer(1).writing.as_ref().expect("it is in the middle of a frame");
    assert!(matches!(writing.bytes, Bytes::Own(_)), "the memory is its owner's again");
    while bench.engine.drain() {
        assert!(!bench.scripts[1].script().shut, "there is more to say");
        bench.scripts[1].script().room = 7;
        bench.engine.flush();
    }
    assert!(bench.scripts[1].script().shut);
    assert_eq!(bench.went(1), (vec![(MessagePart::Piece, 1, content(LONG))], Some(Arrival::Leave)));
    assert_eq!(bench.went(2), (vec![], Some(Arrival::Leave)));
}

#[test]
fn a_last_word_waits_for_a_transport_that_takes_nothing_just_now() {
    let mut bench = Bench::new();
    bench.scripts[1].script().room = 0;
    bench.send(1, 5, 10); // begun, and nothing of it has gone
    bench.leave();
    assert!(bench.engine.drain());
    bench.scripts[1].script().room = usize::MAX;
    bench.scripts[1].script().holds = true;
    assert!(bench.engine.drain() && !bench.scripts[1].script().shut, "the transport holds it");
    bench.scripts[1].script().holds = false;
    assert!(!bench.engine.drain() && bench.scripts[1].script().shut);
    assert_eq!(bench.went(1), (vec![], Some(Arrival::Leave)));
    let mut bench = Bench::new();
    bench.scripts[1].script().breaks = true;
    bench.leave();
    assert!(!bench.engine.drain(), "a link that is broken is not waited for");
}

#[test]
fn receives_whose_sender_leaves_wait_for_another_message() {
    let mut bench = Bench::new();
    let (first, _) = bench.receive(None, 5, LONG);
    let (second, _) = bench.receive(None, 5, LONG);
    let (third, _) = bench.receive(Some(1), 5, LONG);
    bench.comes(1, &[rts(1, 5), rts(2, 5), rts(3, 5), eager(4, 5, 10)].concat());
    assert_eq!(bench.went(1).0.len(), 3, "three are cleared");
    let mut bytes = Vec::new();
    encode_frame(LinkKind::Leave as u8, 0, &[], &mut bytes);
    bench.comes(1, &bytes);
    assert_eq!(first.test(), got(1, 5, 10), "what the sender had sent whole goes to whom it had promised another");
    assert_eq!((second.test(), status(&third)), (None, Some(Status::PeerLeft)));
    assert!(bench.engine.transfers.missed.contains(1));
    bench.comes(2, &eager(1, 5, 20));
    assert_eq!(second.test(), got(2, 5, 20));
}

#[test]
fn a_peer_that_has_left_is_missed_once_a_message_ends_because_of_it() {
    let missed = |bench: &Bench| [1, 2].map(|rank| bench.engine.transfers.missed.contains(rank));
    for waits in [true, false] {
        let mut bench = Bench::new();
        let early = waits.then(|| bench.receive(Some(1), 5, 10).0);
        let of_any = bench.receive(None, 5, 10).0;
        bench.comes(1, &leave());
        assert_eq!(missed(&bench), [waits, false], "nothing else needed it");
        let needs = early.unwrap_or_else(|| bench.send(1, 5, 10));
        assert_eq!((status(&needs), of_any.test()), (Some(Status::PeerLeft), None));
        assert_eq!(missed(&bench), [true, false]);
    }
}

#[test]
fn a_receive_that_was_cancelled_while_its_message_was_to_come_waits_for_no_other() {
    for withdrawn in [true, false] {
        let mut bench = Bench::new();
        let (request, _) = bench.receive(None, 5, LONG);
        bench.comes(1, &rts(1, 5));
        bench.give_up_newest(false);
        assert_eq!(request.test(), None, "it has met a message");
        bench.comes(1, &if withdrawn { frame(part(MessagePart::Withdraw, 1, 0, 0), &[]) } else { leave() });
        let error = request.test().expect("it ends").unwrap_err();
        assert!(error.status() == Status::Aborted && error.to_string().ends_with("was cancelled"), "{error}");
        bench.comes(2, &eager(1, 5, 20));
        assert_eq!(bench.receive(Some(2), 5, LONG).0.test(), got(2, 5, 20), "a later receive gets what comes then");
    }
}

#[test]
fn a_receive_that_has_a_part_of_its_message_ends_with_its_sender() {
    for behind_a_piece in [true, false] {
        let mut bench = Bench::new();
        let (request, _) = bench.receive(None, 5, LONG);
        bench.comes(1, &rts(1, 5));
        let message = part(MessagePart::Piece, 1, 0, LONG);
        match behind_a_piece {
            true => bench.comes(1, &[frame(message, &content(1000)), leave()].concat()),
            false => {
                bench.comes(1, &frame(message, &content(LONG))[..LONG / 2]);
                bench.engine.transfers.peer_left(1, None); // as the scheduler says when it is asked about a link that ended
            }
        }
        assert_eq!(status(&request), Some(Status::PeerLeft));
    }
}

#[test]
fn a_piece_of_another_message_than_was_announced_is_damage() {
    let honest = part(MessagePart::Piece, 1, 0, LONG);
    let wider = MessageHeader { dtype: DType::Uint64, ..honest };
    let longer = MessageHeader { count: honest.count + 1, ..honest };
    for lie in [wider, longer] {
        let mut bench = Bench::new();
        let (request, _) = bench.receive(Some(1), 5, LONG);
        bench.comes(1, &rts(1, 5));
        bench.comes(1, &frame(lie, &content(LONG))[..1000]);
        let what = bench.damage().expect("it is found before any of it is taken");
        assert!(what.contains("a piece of"), "{what}");
        assert_eq!(request.test(), None, "how it ends is what the revocation says");
    }
}

#[test]
fn a_withdrawal_of_a_message_that_was_never_announced_is_damage() {
    let mut bench = Bench::new();
    bench.comes(1, &frame(part(MessagePart::Withdraw, 7, 0, 0), &[]));
    assert_eq!(bench.damage(), None, "it may have been refused before");
    bench.comes(1, &[eager(1, 5, 10), frame(part(MessagePart::Withdraw, 1, 0, 0), &[])].concat());
    let what = bench.damage().unwrap();
    assert!(what.contains("message 1 is withdrawn, and was never announced"), "{what}");
}

#[test]
fn a_peer_that_recalls_message_after_message_and_reads_no_answer_does_damage() {
    let mut bench = Bench::new();
    bench.scripts[1].script().room = 0;
    let taken_back = |number| [rts(number, 5), frame(part(MessagePart::Recall, number, 0, 0), &[])].concat();
    let most = 8 * RTS_MAX as u64 + 2; // the first is on its way out
    (1..=most).for_each(|number| bench.comes(1, &taken_back(number)));
    assert_eq!(bench.damage(), None);
    bench.comes(1, &taken_back(most + 1));
    assert!(bench.damage().unwrap().contains("takes back message after message"));
}

#[test]
fn announced_messages_are_bounded_on_both_sides() {
    let mut bench = Bench::new();
    let most = RTS_MAX as u64 + EAGER_CREDIT / EAGER_COST;
    let mut frames: Vec<u8> = (1..=most).flat_map(|number| rts(number, 5)).collect();
    while !frames.is_empty() {
        let some = frames.split_off(frames.len().min(1 << 20));
        bench.comes(1, &std::mem::replace(&mut frames, some));
        while !bench.engine.more.is_empty() {
            bench.engine.pump(1);
        }
    }
    assert_eq!((bench.engine.transfers.peer(1).inbound.len() as u64, bench.damage()), (most, None));
    bench.comes(1, &rts(most + 1, 5));
    assert!(bench.damage().unwrap().contains("more than 65536 announced"));

    let mut bench = Bench::new();
    let buffers = CallBuffers::of(given_up(&content(LONG)), &mut []);
    for _ in 0..=RTS_MAX {
        bench.post(Direction::Send { to: 2, tag: 5 }, buffers, LONG);
    }
    let behind = bench.send(2, 6, 0);
    bench.engine.look(None);
    let (announced, _) = bench.went(2);
    assert!(announced.len() == RTS_MAX && announced.iter().all(|(part, ..)| *part == MessagePart::Rts));
    assert_eq!(behind.test(), None, "it does not overtake the one that is held back");
    bench.comes(2, &frame(part(MessagePart::Drop, 9, 0, 0), &[]));
    let parts: Vec<MessagePart> = bench.went(2).0.into_iter().map(|(part, ..)| part).collect();
    assert_eq!(parts, [MessagePart::Rts, MessagePart::Eager], "where one has ended the next may go");
    assert_eq!(behind.test(), Some(Ok(None)));
}

#[test]
fn a_short_message_to_oneself_that_does_not_fit_fails_only_the_receive() {
    for (length, expected) in [(EAGER_MAX, None), (EAGER_MAX + 1, Some(Status::Mismatch))] {
        let mut bench = Bench::new();
        let (receive, _) = bench.receive(Some(0), 5, 100);
        let send = bench.send(0, 5, length);
        assert!(send.test().is_some());
        assert_eq!((status(&send), status(&receive)), (expected, Some(Status::Mismatch)));
        assert_eq!(bench.engine.transfers.peer(0).kept, 0);
    }
}

#[test]
fn a_misfit_that_is_cancelled_or_late_while_it_is_refused_ends_on_both_sides() {
    // The receiver: it refuses, and then hears that the message is withdrawn or recalled.
    for word in [MessagePart::Withdraw, MessagePart::Recall] {
        let mut bench = Bench::new();
        let (request, _) = bench.receive(Some(1), 5, 10);
        bench.comes(1, &[rts(1, 5), frame(part(word, 1, 0, 0), &[])].concat());
        assert_eq!((status(&request), bench.damage()), (Some(Status::Mismatch), None));
        assert_eq!(bench.went(1).0, [(MessagePart::Refuse, 1, Vec::new())]);
    }
    // The sender: it withdraws or recalls it, and then hears that the message is refused.
    for (late, expected, word) in
        [(true, Status::Timeout, MessagePart::Withdraw), (false, Status::Mismatch, MessagePart::Recall)]
    {
        let mut bench = Bench::new();
        let send = bench.send(1, 5, LONG);
        bench.give_up_newest(late);
        bench.comes(1, &frame(part(MessagePart::Refuse, 1, 0, 10), &[]));
        assert_eq!((status(&send), bench.damage()), (Some(expected), None));
        assert!(bench.parts(1).eq([(MessagePart::Rts, 1), (word, 1)]));
    }
}

#[test]
fn a_send_is_taken_back_if_no_receive_has_met_it_and_else_goes_on() {
    // The receiver: it has matched another sender's message behind the first one, which must stay the first.
    let mut bench = Bench::new();
    let (first, _) = bench.receive(None, 5, LONG);
    let (second, _) = bench.receive(None, 5, LONG);
    bench.comes(1, &rts(1, 5));
    bench.comes(2, &eager(1, 5, 10));
    bench.comes(1, &frame(part(MessagePart::Recall, 1, 0, 0), &[]));
    bench.comes(2, &eager(2, 5, 20));
    assert_eq!((first.test(), second.test()), (None, got(2, 5, 10)));
    bench.comes(1, &frame(part(MessagePart::Piece, 1, 0, LONG), &content(LONG)));
    assert_eq!((first.test(), bench.damage()), (got(1, 5, LONG), None));
    assert_eq!(bench.went(1).0, [(MessagePart::Cts, 1, Vec::new())]);
    // A message that no receive has met is forgotten.
    bench.comes(1, &[rts(2, 6), frame(part(MessagePart::Recall, 2, 0, 0), &[]), eager(3, 6, 30)].concat());
    assert_eq!(bench.went(1).0, [(MessagePart::Drop, 2, Vec::new())]);
    assert_eq!((bench.receive(Some(1), 6, LONG).0.test(), bench.damage()), (got(1, 6, 30), None));
    bench.comes(1, &frame(part(MessagePart::Recall, 4, 0, 0), &[]));
    assert_eq!(bench.damage(), None, "it may have been refused before");
    bench.comes(1, &[eager(4, 7, 10), frame(part(MessagePart::Recall, 4, 0, 0), &[])].concat());
    assert!(bench.damage().unwrap().contains("message 4 is recalled, and was never announced"));

    // The sender: the receiver says which of the two it is.
    let mut bench = Bench::new();
    for (number, word) in [(1, MessagePart::Cts), (2, MessagePart::Drop)] {
        let send = bench.send(1, 5, LONG);
        bench.give_up_newest(false);
        assert_eq!(send.test(), None, "only the receiver knows");
        assert!(bench.parts(1).eq([(MessagePart::Rts, number), (MessagePart::Recall, number)]));
        bench.comes(1, &frame(part(word, number, 0, 0), &[]));
        let (went, outcome) = (bench.went(1).0, send.test().unwrap());
        if word == MessagePart::Cts {
            assert_eq!((went, outcome), (vec![(MessagePart::Piece, number, content(LONG))], Ok(None)));
        } else {
            let error = outcome.unwrap_err();
            assert!(error.status() == Status::Aborted && error.to_string().ends_with("was cancelled"), "{error}");
            assert_eq!(went, []);
        }
    }
    let late = bench.send(1, 5, LONG);
    bench.give_up_newest(false);
    bench.give_up_newest(true);
    assert_eq!(status(&late), Some(Status::Timeout), "no answer came in its time");
    assert!(bench.parts(1).eq([MessagePart::Rts, MessagePart::Recall, MessagePart::Withdraw].map(|part| (part, 3))));
    // An interrupted caller does not wait for a receiver that does not answer.
    let interrupted = bench.send(1, 5, LONG);
    let op = bench.engine.transfers.upcoming() - 1;
    bench.engine.transfers.give_up_recalled(op);
    assert_eq!(interrupted.test(), None, "it was not recalled");
    bench.give_up_newest(false);
    bench.engine.transfers.give_up_recalled(op);
    bench.engine.flush();
    assert_eq!(status(&interrupted), Some(Status::Aborted));
    assert!(bench.parts(1).eq([MessagePart::Rts, MessagePart::Recall, MessagePart::Withdraw].map(|part| (part, 4))));
}

/// The time so many tenths of a second later. The cluster has agreed on a time-out of 1 s.
fn at(tenths: u32) -> Time {
    Time(1) + Duration::from_millis(100) * tenths
}

#[test]
fn a_peer_that_is_needed_and_silent_for_as_long_is_suspected() {
    let lives_from = |tenths| move |now: u32| move |rank: u32| (rank == 1 && now >= tenths).then_some(PeerState::Alive);
    for (lives, ends_at, finding) in [
        (lives_from(0), 12, Finding::Unreached),
        (lives_from(14), 14, Finding::Unreached),
        (lives_from(99), 15, Finding::Unknown),
    ] {
        let mut bench = Bench::new();
        assert_eq!(bench.engine.look_for_signs(at(0), lives(0)), Time::NEVER, "nobody waits for anything");
        bench.scripts[2].script().acknowledged.owes = true;
        let (_any, _) = bench.receive(None, 7, 1);
        assert_eq!((bench.engine.silence.wait(at(0)), bench.engine.look_for_signs(at(0), lives(0))), (at(1), at(1)));
        let (_needs, _) = bench.receive(Some(1), 8, 1);
        let sent = |bench: &Bench, rank: usize| bench.scripts[rank].script().sent.len() / HEADER_BYTES;
        let mut found = Vec::new();
        for now in 0..20 {
            // It owes an answer from the fourth look on.
            bench.scripts[1].script().acknowledged.owes = now > 3;
            bench.engine.look_for_signs(at(now), lives(now));
            found.extend(bench.engine.transfers.suspects.drain(..).map(|suspect| (now, suspect.rank, suspect.finding)));
            assert_eq!(sent(&bench, 1), now.min(3) as usize, "what it is to answer, as long as it does");
        }
        assert_eq!(found, [(7, 1, Finding::Ask), (ends_at, 1, finding)]);
        assert!(matches!(bench.engine.transfers.links.slot(1), Slot::Ended(LinkEnd::Silent(words))
            if words.contains("acknowledged for 0.") || words.contains("acknowledged for 1.")));
        assert_eq!(sent(&bench, 2), 0, "rank 2 is needed by nobody");
        // A peer that was silent before it was needed has its whole time first.
        let (_late, _) = bench.receive(Some(2), 9, 1);
        for now in 20..=31 {
            bench.engine.look_for_signs(at(now), lives(now));
        }
        assert_eq!(
            bench.engine.transfers.suspects.iter().map(|suspect| suspect.finding).collect::<Vec<_>>(),
            [Finding::Ask]
        );
        bench.engine.look_for_signs(at(32), lives(32));
        assert_eq!(
            bench.engine.transfers.suspects.last().map(|suspect| (suspect.rank, suspect.finding)),
            Some((2, Finding::Unknown))
        );
    }
}

#[test]
fn an_operation_keeps_its_time_whatever_has_ended_before_it() {
    let mut bench = Bench::new();
    let state = NodeState::new(Logger::new(LogLevel::Off, "test"), Clock::start(), Bell::new().unwrap());
    let mut post = |direction| {
        let (request, completer) = request();
        let post = Post::new(direction, UINT8, 0, CallBuffers::of(&[], &mut []));
        bench.engine.post(post, Time(0), 1000, Time(1), completer);
        bench.engine.flush();
        request
    };
    for _ in 0..DEADLINES_KEPT {
        assert!(post(Direction::Send { to: 1, tag: 7 }).test().is_some(), "it has ended at once");
    }
    let request = post(Direction::Receive { from: Some(1), tag: Some(7) });
    bench.engine.expire(&state);
    assert_eq!(status(&request), Some(Status::Timeout));
}

#[test]
fn many_short_operations_share_a_look() {
    let mut bench = Bench::new();
    for milliseconds in [0, 1, 99] {
        let request = bench.send(1, 7, 1);
        assert!(request.test().is_some(), "it has ended at once");
        let now = at(0) + Duration::from_millis(milliseconds);
        assert_eq!(bench.engine.silence.wait(now), at(1));
        assert_eq!(bench.engine.look_for_signs(now, |_| None), at(1));
    }
    assert_eq!(bench.engine.look_for_signs(at(1), |_| None), Time::NEVER, "nobody waits");
    assert_eq!(bench.engine.silence.wait(at(50)), at(51));
}

#[test]
fn the_operations_that_have_waited_longest_are_told_of() {
    let mut bench = Bench::new();
    let at = |ms| Time(0) + Duration::from_millis(ms);
    let requests: Vec<_> = (0..10).map(|tag| bench.receive(Some(1), tag, 1).0).collect();
    let wait = |peer, tag, age_ms| MessageWait { group: GroupId::WORLD, sends: false, peer, tag, age_ms };
    let eight: Vec<MessageWait> = (0..8).map(|tag| wait(Some(1), Some(tag), 300)).collect();
    let mut told = bench.engine.transfers.waits(at(0), at(300));
    told.sort_by_key(|wait| wait.tag);
    assert_eq!(told.len(), 8);
    assert!(told.iter().all(|wait| eight[0].peer == wait.peer && wait.age_ms == 300));
    (1..=10).for_each(|op| bench.engine.transfers.cancel(op));
    assert_eq!(bench.engine.transfers.waits(at(0), at(300)), [], "what has ended waits no more");
    drop(requests);
    let direction = Direction::Receive { from: None, tag: None };
    let post = Post::new(direction, DType::Uint8, 0, CallBuffers::of(&[], &mut []));
    let (_any, completer) = request();
    bench.engine.post(post, at(200), 1000, Time::NEVER, completer);
    let _sent = bench.send(2, 5, LONG);
    let sent = MessageWait { sends: true, ..wait(Some(2), Some(5), 700) };
    assert_eq!(
        bench.engine.transfers.waits(at(400), at(700)),
        [sent.clone(), wait(None, None, 500)],
        "the oldest first"
    );
    assert_eq!(bench.engine.transfers.waits(at(100), at(700)), [sent]);
}
