use super::*;
use crate::error::Status;
use crate::net::testlink::{tcp_pair, TestLink};
use crate::runtime::base::control::tests::Scripted;
use crate::runtime::links::sink::scratch_bytes;
use crate::runtime::memory::buffer::{Arithmetic, CallBuffers};
use crate::schedules::{Buffer, Landing, Side};
use crate::types::{Call, CallKind, DType, Epoch, GroupId, ReduceOp};
use crate::wire::encode_frame;
use std::cell::RefCell;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);
/// How many bytes a test link passes at a time. `PLAIN`: it is no test link.
const PLAIN: usize = 0;
const PIECES: [usize; 4] = [1, 7, 1000, PLAIN];

fn wrapped(transport: crate::net::TcpTransport, piece: usize, seed: u64) -> Box<dyn Transport> {
    match piece {
        PLAIN => Box::new(transport),
        piece => Box::new(TestLink::with_piece(transport, seed, piece)),
    }
}

fn pair(piece: usize, checksums: bool) -> (Link, Link) {
    let (one, other) = tcp_pair();
    let link = |transport| Link::new(transport, &[]).with_checksums(checksums);
    (link(wrapped(one, piece, 5)), link(wrapped(other, piece, 6)))
}

/// A link whose peer sends nothing more than `bytes` and then ends.
fn after(bytes: &[u8], piece: usize) -> Link {
    let (mut one, other) = tcp_pair();
    let count = if bytes.is_empty() { 0 } else { one.write(&[IoSlice::new(bytes)]).unwrap() };
    assert_eq!(count, bytes.len(), "a fresh connection takes a few bytes at once");
    Link::new(wrapped(other, piece, 6), &[])
}

/// Repeats until there is something. This thread drives both ends, so it does not yield: each look would cost a turn of others.
fn until<T>(look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    let looks = std::iter::repeat_with(look).inspect(|_| assert!(Instant::now() < deadline, "nothing comes"));
    looks.flatten().next().expect("they do not end")
}

fn next(link: &mut Link) -> Result<Arrival, LinkEnd> {
    until(|| link.peek().transpose())
}

fn data(sequence: u64) -> DataHeader {
    let (kind, op) = (CallKind::Allreduce, Some(ReduceOp::Sum));
    let call = Call { kind, dtype: Some(DType::Float32), op, root: None, count: 5, layout: 0 };
    DataHeader { sequence, ..DataHeader::of_first(call) }
}

fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// A data frame, put together from the protocol's page.
fn data_frame(sequence: u64, payload: &[u8], checksums: bool) -> Vec<u8> {
    let flags = if checksums { 0 } else { FLAG_UNCHECKED };
    let header = FrameHeader { kind: LinkKind::Data as u8, flags, node: 0, length: payload.len() as u64 };
    let mut bytes = [&header.encode()[..], &data(sequence).encode()[..]].concat();
    for piece in payload.chunks(PIECE_BYTES) {
        bytes.extend_from_slice(piece);
        if checksums {
            bytes.extend_from_slice(&crc32fast::hash(piece).to_le_bytes());
        }
    }
    bytes
}

fn small_frame(kind: LinkKind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_frame(kind as u8, 0, payload, &mut bytes);
    bytes
}

fn failure() -> Failure {
    let (status, cause) = (Status::Timeout, "nobody came".to_owned());
    Failure { status, culprit: None, cause, epoch: Epoch(1), group: Some(GroupId::WORLD), sequence: 3 }
}

fn revoke() -> Vec<u8> {
    let mut payload = crate::wire::Encoder::default();
    LinkRevoke { failure: failure() }.put(&mut payload);
    small_frame(LinkKind::Revoke, &payload.bytes)
}

/// Where an arriving frame of so many bytes is laid down.
fn place(length: usize) -> Landing {
    Landing::Place(Span::new(Buffer::Output, 0, length))
}

/// Receives the payload that stands next into `output`.
fn land(link: &mut Link, output: &mut [u8]) -> Result<(), LinkEnd> {
    let landing = place(output.len());
    let mut scratch = [];
    let memory = CallBuffers::of(&[], output).with_scratch(&mut scratch);
    let sink = Sink { memory: &memory, landing, arithmetic: None };
    let mut piece = vec![0; scratch_bytes(PIECE_BYTES, 1)];
    until(|| match link.receive(&sink, &mut piece) {
        Ok(Moved::Done) => Some(Ok(())),
        Ok(_) => None,
        Err(end) => Some(Err(end)),
    })
}

/// Sends `input` from one end and lands it at the other, both driven in turns.
fn carry(ends: &mut (Link, Link), input: &[u8], output: &mut [u8], landing: Landing) {
    let (sender, receiver) = ends;
    let (mut no_scratch, mut no_output, mut other_scratch) = ([], [], []);
    let from = CallBuffers::of(input, &mut no_output).with_scratch(&mut no_scratch);
    let to = CallBuffers::of(&[], output).with_scratch(&mut other_scratch);
    let sink = Sink { memory: &to, landing, arithmetic: Some(Arithmetic::of(DType::Uint8, ReduceOp::Max)) };
    let mut piece = vec![0; scratch_bytes(PIECE_BYTES, 1)];
    sender.start_send(LinkKind::Data, &data(9).encode(), Span::new(Buffer::Input, 0, input.len()));
    let (mut sent, mut head) = (false, false);
    until(|| {
        sent = sent || sender.send(&from).unwrap() == Moved::Done;
        head = head || matches!(receiver.peek_for(&sink, &mut piece).unwrap(), Some(Arrival::Data(..)));
        let landed = head && receiver.receive(&sink, &mut piece).unwrap() == Moved::Done;
        landed.then_some(())
    });
    // The last byte may have arrived before its sender knows that it is out.
    until(|| (sent || sender.send(&from).unwrap() == Moved::Done).then_some(()));
    assert!(!sender.is_mid_frame() && !receiver.is_waited_for());
}

/// The lengths that matter, without those that take long on a link that passes so many bytes at a time.
fn lengths(piece: usize, checksums: bool) -> &'static [usize] {
    const ALL: [usize; 7] =
        [0, 1, PIECE_BYTES + 1, PIECE_BYTES - 1, PIECE_BYTES, 2 * PIECE_BYTES, 3 * PIECE_BYTES + 1001];
    match (piece, checksums) {
        (1, false) => &ALL[..2],
        (1, true) => &ALL[..3],
        (7, _) => &ALL[..5],
        _ => &ALL,
    }
}

#[test]
fn frames_of_every_length_arrive() {
    for piece in PIECES {
        for checksums in [true, false] {
            let mut ends = pair(piece, checksums);
            for &length in lengths(piece, checksums) {
                let input = payload(length);
                let mut output = vec![0xee; length];
                carry(&mut ends, &input, &mut output, place(length));
                assert!(input == output, "{length} bytes by {piece}, checksums {checksums}");
            }
        }
    }
}

#[test]
fn what_arrives_is_combined_piece_by_piece() {
    for piece in [7, 1000, PLAIN] {
        for checksums in [true, false] {
            let mut ends = pair(piece, checksums);
            for length in [0, 1, PIECE_BYTES - 1, PIECE_BYTES + 1] {
                let input = payload(length);
                // The receiver's own operand lies behind the result, in the same buffer.
                let mut output = [vec![0xee; length], vec![100; length]].concat();
                let [into, mine] = [0, length].map(|offset| Span::new(Buffer::Output, offset, length));
                let landing = Landing::Reduce { mine, into, arrives: Side::Lower };
                carry(&mut ends, &input, &mut output, landing);
                let right = output[..length].iter().eq(input.iter().map(|byte| byte.max(&100)));
                assert!(right && output[length..].iter().all(|byte| *byte == 100), "{length} bytes by {piece}");
            }
        }
    }
}

#[test]
fn the_bytes_are_those_of_the_protocol() {
    for (length, checksums) in [(0, true), (1, true), (PIECE_BYTES + 1, true), (PIECE_BYTES + 1, false)] {
        let (one, mut other) = tcp_pair();
        let mut link = Link::new(Box::new(one), &[]).with_checksums(checksums);
        let (input, mut output, mut scratch) = (payload(length), [], []);
        let memory = CallBuffers::of(&input, &mut output).with_scratch(&mut scratch);
        link.start_send(LinkKind::Data, &data(2).encode(), Span::new(Buffer::Input, 0, length));
        let mut bytes = Vec::new();
        until(|| {
            let sent = link.send(&memory).unwrap() == Moved::Done;
            read_all(&mut other, &mut bytes);
            sent.then_some(())
        });
        let expected = data_frame(2, &input, checksums);
        until(|| {
            read_all(&mut other, &mut bytes);
            (bytes.len() >= expected.len()).then_some(())
        });
        assert!(bytes == expected, "{length} bytes, checksums {checksums}");
    }
}

/// Reads what is there. Returns whether the end was there, too.
fn read_all(transport: &mut dyn Transport, into: &mut Vec<u8>) -> bool {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match transport.read(&mut [IoSliceMut::new(&mut buffer)]) {
            Ok(0) => return true,
            Ok(count) => into.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn other_frames_are_seen_between_data_frames() {
    let leave = small_frame(LinkKind::Leave, &[]);
    let frames = [data_frame(1, &payload(300), true), revoke(), data_frame(2, &[], true), leave].concat();
    for piece in PIECES {
        let mut link = after(&frames, piece);
        let Arrival::Data(header, head) = next(&mut link).unwrap() else { panic!("data comes first") };
        assert_eq!((header.length, head), (300, data(1)));
        let mut output = vec![0; 300];
        land(&mut link, &mut output).unwrap();
        assert_eq!(output, payload(300));
        assert_eq!(next(&mut link), Ok(Arrival::Revoke(failure())));
        assert!(matches!(next(&mut link), Ok(Arrival::Data(_, head)) if head == data(2)));
        land(&mut link, &mut []).unwrap();
        assert_eq!(next(&mut link), Ok(Arrival::Leave));
        assert_eq!(next(&mut link), Err(LinkEnd::Ended("its end of the link was closed".to_owned())));
    }
}

#[test]
fn bytes_read_behind_the_handshake_come_first() {
    let frame = data_frame(1, &payload(3000), true);
    for cut in [0, 1, 24, 88, 89, 3000, frame.len() - 1, frame.len()] {
        let (mut one, other) = tcp_pair();
        let mut link = Link::new(Box::new(other), &frame[..cut]);
        if cut < frame.len() {
            assert_eq!(one.write(&[IoSlice::new(&frame[cut..])]).unwrap(), frame.len() - cut);
        }
        assert!(matches!(next(&mut link), Ok(Arrival::Data(_, head)) if head == data(1)), "cut at {cut}");
        let mut output = vec![0; 3000];
        land(&mut link, &mut output).unwrap();
        assert_eq!(output, payload(3000), "cut at {cut}");
    }
}

#[test]
fn a_head_stands_until_its_payload_is_received() {
    let mut link = after(&[data_frame(1, b"abc", true), data_frame(2, b"", true)].concat(), PLAIN);
    assert!(!link.is_waited_for());
    let first = next(&mut link);
    assert!(link.is_waited_for());
    assert_eq!((link.peek(), link.peek()), (first.clone().map(Some), first.map(Some)));
    land(&mut link, &mut [0; 3]).unwrap();
    assert!(!link.is_waited_for());
    assert!(matches!(next(&mut link), Ok(Arrival::Data(_, head)) if head == data(2)));
}

#[test]
fn what_is_not_what_was_expected_is_received_as_if_nothing_had_been() {
    // (how many bytes of payload come; how many were expected)
    for (comes, expected) in [(5, 4096), (4096, 5000), (100_000, 4096), (20_000, 300_000), (300_000, 20_000)] {
        for piece in PIECES {
            if piece == 1 && comes > 5000 {
                continue; // it would take long
            }
            let sent = payload(comes);
            let bytes = [data_frame(1, &sent, true), revoke()].concat();
            let mut link = after(&bytes, piece);
            let mut output = vec![0; expected];
            let mut scratch = [];
            let memory = CallBuffers::of(&[], &mut output).with_scratch(&mut scratch);
            let sink = Sink { memory: &memory, landing: place(expected), arithmetic: None };
            let mut scratch = vec![0; scratch_bytes(PIECE_BYTES, 1)];
            let arrival = until(|| link.peek_for(&sink, &mut scratch).transpose()).unwrap();
            assert!(matches!(arrival, Arrival::Data(header, _) if header.length == comes as u64), "{arrival:?}");
            let mut landed = vec![0; comes];
            land(&mut link, &mut landed).unwrap();
            assert!(landed == sent, "{comes} bytes for {expected}");
            assert_eq!(until(|| link.peek_for(&sink, &mut scratch).transpose()), Ok(Arrival::Revoke(failure())));
        }
    }
}

#[test]
fn a_last_word_is_heard_behind_what_nobody_has_asked_for() {
    for lengths in [&[0][..], &[3], &[100_000], &[3, 700_000, 0]] {
        for checksums in [true, false] {
            let frames: Vec<u8> =
                lengths.iter().flat_map(|length| data_frame(1, &payload(*length), checksums)).collect();
            let mut link = after(&[&frames[..], &revoke()].concat(), PLAIN);
            assert!(matches!(next(&mut link), Ok(Arrival::Data(..))));
            assert_eq!(link.peers_last_word(), None, "nobody says that the peer has ended");
            link.note_end(false);
            assert_eq!(link.peers_last_word(), None);
            let heard = until(|| {
                link.note_end(true);
                link.peers_last_word()
            });
            assert_eq!(heard, failure(), "{lengths:?}");
            assert_eq!(link.peers_last_word(), None, "it looks once");
            // What was read ahead is received as if it had not been.
            for length in lengths {
                assert!(matches!(next(&mut link), Ok(Arrival::Data(..))));
                let mut output = vec![0; *length];
                land(&mut link, &mut output).unwrap();
                assert!(output == payload(*length));
            }
            assert_eq!(next(&mut link), Ok(Arrival::Revoke(failure())));
        }
    }
    // Half a frame, or a leave, is no revocation.
    for behind in [&b"half"[..], &small_frame(LinkKind::Leave, b""), &revoke()[..30]] {
        let mut link = after(&[&data_frame(1, b"abc", true)[..], behind].concat(), PLAIN);
        assert!(matches!(next(&mut link), Ok(Arrival::Data(..))));
        link.note_end(true);
        assert_eq!(link.peers_last_word(), None);
    }
}

fn corrupt_words(got: Result<Arrival, LinkEnd>) -> String {
    match got {
        Err(LinkEnd::Corrupt(words)) => words,
        other => panic!("{other:?}"),
    }
}

#[test]
fn damage_to_a_head_is_found() {
    let frame = data_frame(1, b"some payload", true);
    for at in 0..HEAD_BYTES {
        let mut damaged = frame.clone();
        damaged[at] ^= 0x10;
        let (_one, other) = tcp_pair();
        let words = corrupt_words(Link::new(Box::new(other), &damaged).peek().map(|_| panic!("byte {at}")));
        let whose = if at < HEADER_BYTES { "frame" } else { "a data header with a wrong checksum" };
        assert!(words.contains(whose), "byte {at}: {words}");
    }
}

#[test]
fn damage_to_a_payload_or_its_checksum_is_found() {
    let frame = data_frame(1, b"some payload", true);
    for at in HEAD_BYTES..frame.len() {
        let mut damaged = frame.clone();
        damaged[at] ^= 0x10;
        let mut link = after(&damaged, 7);
        assert!(matches!(next(&mut link), Ok(Arrival::Data(..))));
        let expected = LinkEnd::Corrupt("a payload with a wrong checksum".to_owned());
        assert_eq!(land(&mut link, &mut [0; 12]), Err(expected), "byte {at}");
    }
}

#[test]
fn damaged_bytes_are_not_combined() {
    let mut damaged = data_frame(1, &[200; 12], true);
    damaged[HEAD_BYTES] ^= 0x10;
    let mut link = after(&damaged, PLAIN);
    next(&mut link).unwrap();
    let (mut output, mut scratch) = ([1; 12], []);
    let memory = CallBuffers::of(&[], &mut output).with_scratch(&mut scratch);
    let mine = Span::new(Buffer::Output, 0, 12);
    let landing = Landing::Reduce { mine, into: mine, arrives: Side::Higher };
    let sink = Sink { memory: &memory, landing, arithmetic: Some(Arithmetic::of(DType::Uint8, ReduceOp::Max)) };
    let mut piece = vec![0; scratch_bytes(PIECE_BYTES, 1)];
    let end = until(|| link.receive(&sink, &mut piece).err());
    assert!(matches!(end, LinkEnd::Corrupt(_)), "{end:?}");
    assert_eq!(output, [1; 12]);
}

#[test]
fn what_does_not_belong_on_a_link_is_refused() {
    let limit = SMALL_PAYLOAD_MAX as usize;
    let unknown = |length: usize| small_frame(LinkKind::Leave, &vec![0; length]);
    let mut no_kind = Vec::new();
    encode_frame(99, 0, &[], &mut no_kind);
    let mut long_revoke = revoke();
    let payload = long_revoke.split_off(HEADER_BYTES);
    let long_revoke = small_frame(LinkKind::Revoke, &[&payload[..payload.len() - CHECKSUM_BYTES], &[0]].concat());
    for (bytes, words) in [
        (b"GET / HTTP/1.1\r\nHost: example.org".to_vec(), "not a frame of this protocol"),
        (b"MUSE".to_vec(), "not a frame of this protocol"),
        (small_frame(LinkKind::Hello, &[]), "Hello in the middle of a link"),
        (small_frame(LinkKind::Accept, &[0; 16]), "Accept in the middle of a link"),
        (no_kind, "99"),
        (unknown(1), "1 bytes"),
        (unknown(limit), "16356 bytes"),
        (unknown(limit + 1), "the limit is 16356"),
        (long_revoke, "1 bytes"),
    ] {
        let said = corrupt_words(next(&mut after(&bytes, PLAIN)));
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn a_long_frame_of_another_kind_is_read_to_its_end_however_it_comes() {
    let frame = small_frame(LinkKind::Leave, &vec![0; SMALL_PAYLOAD_MAX as usize]);
    for cut in [0, FIRST_INBOUND_BYTES - 1, FIRST_INBOUND_BYTES, FIRST_INBOUND_BYTES + 1, 4096] {
        for piece in [1000, FIRST_INBOUND_BYTES, PLAIN] {
            let (mut one, other) = tcp_pair();
            let mut link = Link::new(wrapped(other, piece, 6), &frame[..cut]);
            assert_eq!(one.write(&[IoSlice::new(&frame[cut..])]).unwrap(), frame.len() - cut);
            // A rank that waits for a payload reads the frame's beginning to where the payload belongs.
            let mut output = vec![0; 5000];
            let mut scratch = [];
            let memory = CallBuffers::of(&[], &mut output).with_scratch(&mut scratch);
            let sink = Sink { memory: &memory, landing: place(5000), arithmetic: None };
            let said = corrupt_words(until(|| link.peek_for(&sink, &mut []).transpose()));
            assert!(said.contains("16356 bytes"), "cut at {cut}, {piece}: {said}");
        }
    }
}

#[test]
fn an_end_in_the_middle_is_an_end() {
    let frame = data_frame(1, b"some payload", true);
    for cut in [0, 3, HEADER_BYTES, HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + 3, HEAD_BYTES + 12, frame.len() - 1] {
        for piece in [1, PLAIN] {
            let mut link = after(&frame[..cut], piece);
            let end = match next(&mut link) {
                Ok(_) => land(&mut link, &mut [0; 12]).unwrap_err(),
                Err(end) => end,
            };
            assert_eq!(end, LinkEnd::Ended("its end of the link was closed".to_owned()), "cut at {cut} by {piece}");
        }
    }
    let mut link = after(&revoke()[..30], PLAIN);
    assert!(matches!(next(&mut link), Err(LinkEnd::Ended(_))));
}

#[test]
fn the_last_word_is_not_said_in_the_middle_of_a_frame() {
    let input = payload(100);
    let frame = data_frame(1, &input, true);
    for cut in [1, HEADER_BYTES, HEAD_BYTES, HEAD_BYTES + 50, HEAD_BYTES + 100, frame.len() - 1] {
        let transport = Scripted::default();
        let mut link = Link::new(Box::new(transport.clone()), &[]);
        let (mut output, mut scratch) = ([], []);
        let memory = CallBuffers::of(&input, &mut output).with_scratch(&mut scratch);
        link.start_send(LinkKind::Data, &data(1).encode(), Span::new(Buffer::Input, 0, input.len()));
        assert!(!link.is_mid_frame(), "nothing is out yet");
        transport.script().room = cut;
        while link.send(&memory).unwrap() != Moved::Nothing {}
        assert!(link.is_mid_frame());
        // There is room for more now.
        transport.script().room = usize::MAX;
        link.say_last(&small_frame(LinkKind::Leave, &[]));
        assert!(transport.script().sent == frame[..cut] && transport.script().shut, "cut at {cut}");
    }
}

#[test]
fn the_last_word_between_frames_is_heard_and_nothing_after_it() {
    let (mut one, mut other) = pair(PLAIN, true);
    // The link is not in the middle of a frame that waits, and of which nothing has gone out yet.
    one.start_send(LinkKind::Data, &data(1).encode(), Span::EMPTY);
    one.say_last(&small_frame(LinkKind::Leave, &[]));
    assert_eq!(next(&mut other), Ok(Arrival::Leave));
    assert!(matches!(next(&mut other), Err(LinkEnd::Ended(_))));
}

fn keep_alive() -> Vec<u8> {
    small_frame(LinkKind::KeepAlive, &[])
}

#[test]
fn what_only_asks_for_an_answer_is_passed_over_wherever_it_comes() {
    let three = keep_alive().repeat(3);
    for (piece, length) in PIECES.into_iter().flat_map(|piece| [(piece, 300), (piece, 4096)]) {
        let sent = payload(length);
        let frames = [&three[..], &data_frame(1, &sent, true), &keep_alive().repeat(2000), &revoke()].concat();
        let mut link = after(&frames, piece);
        let mut output = vec![0; length];
        let mut scratch = [];
        let memory = CallBuffers::of(&[], &mut output).with_scratch(&mut scratch);
        let sink = Sink { memory: &memory, landing: place(length), arithmetic: None };
        let mut scratch = vec![0; scratch_bytes(PIECE_BYTES, 1)];
        let arrival = until(|| link.peek_for(&sink, &mut scratch).transpose()).unwrap();
        assert!(matches!(arrival, Arrival::Data(_, head) if head == data(1)), "{arrival:?}");
        until(|| (link.receive(&sink, &mut scratch).unwrap() == Moved::Done).then_some(()));
        assert!(output == sent, "in pieces of {piece}");
        assert_eq!(next(&mut link), Ok(Arrival::Revoke(failure())));
    }
    // It does not hide a last word either, from a reader that has not come to it.
    let mut link = after(&[data_frame(1, b"abc", true), three, revoke()].concat(), PLAIN);
    assert!(matches!(next(&mut link), Ok(Arrival::Data(..))));
    let heard = until(|| {
        link.note_end(true);
        link.peers_last_word()
    });
    assert_eq!(heard, failure());
    // Such a frame must be empty.
    let odd = corrupt_words(next(&mut after(&small_frame(LinkKind::KeepAlive, b"x"), PLAIN)));
    assert_eq!(odd, "1 bytes too many");
}

#[test]
fn signs_of_life_without_end_are_damage() {
    let transport = Scripted::default();
    let mut link = Link::new(Box::new(transport.clone()), &[]);
    transport.script().coming = keep_alive().repeat(SIGNS_MAX as usize).into();
    assert!(link.peek().unwrap().is_none(), "they may have gathered");
    transport.script().coming = keep_alive().repeat(SIGNS_MAX as usize + 2).into();
    assert_eq!(corrupt_words(next(&mut link)), "signs of life without end");
}

#[test]
fn what_asks_for_an_answer_goes_out_whole_before_anything_else() {
    let (input, leave, now) = (payload(100), small_frame(LinkKind::Leave, &[]), Time(1));
    for cut in 0..=HEADER_BYTES {
        let transport = Scripted::default();
        let mut link = Link::new(Box::new(transport.clone()), &[]);
        let (mut output, mut scratch) = ([], []);
        let memory = CallBuffers::of(&input, &mut output).with_scratch(&mut scratch);
        transport.script().room = cut;
        assert_eq!(link.silence(now, Duration::ZERO), Duration::ZERO);
        assert_eq!(link.is_mid_frame(), cut > 0 && cut < HEADER_BYTES);
        link.start_send(LinkKind::Data, &data(1).encode(), Span::new(Buffer::Input, 0, input.len()));
        transport.script().room = if cut < HEADER_BYTES { HEADER_BYTES - 1 - cut } else { 0 };
        assert_eq!(link.send(&memory).unwrap(), Moved::Nothing);
        link.silence(now, Duration::ZERO); // a frame is going out: nothing is added to it
        transport.script().room = usize::MAX;
        until(|| (link.send(&memory).unwrap() == Moved::Done).then_some(()));
        assert!(transport.script().sent == [keep_alive(), data_frame(1, &input, true)].concat(), "cut at {cut}");
        // And a last word does not cut it off, whether it is said at once or bit by bit.
        for by_and_by in [false, true] {
            let transport = Scripted::default();
            let mut link = Link::new(Box::new(transport.clone()), &[]);
            transport.script().room = cut;
            link.silence(now, Duration::ZERO);
            transport.script().room = usize::MAX;
            let is_said = if by_and_by {
                link.say_on(&mut leave.clone()) == Ok(Moved::Done)
            } else {
                link.say_last(&leave);
                cut == 0 || cut == HEADER_BYTES
            };
            let first = &keep_alive()[..if by_and_by { HEADER_BYTES } else { cut }];
            let last = if is_said { &leave[..] } else { &[] };
            assert!(transport.script().sent == [first, last].concat(), "cut at {cut}");
        }
    }
}

/// So the next rank notices if a piece has changed here since it came.
#[test]
fn a_piece_that_is_passed_on_keeps_its_checksum_unless_it_is_written() {
    const LENGTH: usize = PIECE_BYTES + 20_000;
    for (at, written) in [0, PIECE_BYTES].into_iter().flat_map(|at| [(at, false), (at, true)]) {
        let ((mut source, arrives), (leaves, mut drain)) = (tcp_pair(), tcp_pair());
        let (mut from, mut to) = (Link::new(Box::new(arrives), &[]), Link::new(Box::new(leaves), &[]));
        let frame = data_frame(1, &payload(LENGTH), true);
        let (mut output, mut piece, known) =
            (vec![0; LENGTH], vec![0; scratch_bytes(PIECE_BYTES, 1)], RefCell::default());
        let memory = CallBuffers::of(&[], &mut output).with_scratch(&mut []).remembering(&known);
        let sink = Sink { memory: &memory, landing: place(LENGTH), arithmetic: None };
        let mut said = 0;
        until(|| {
            said += source.write(&[IoSlice::new(&frame[said..])]).unwrap_or(0);
            let head = from.peek_for(&sink, &mut piece).unwrap();
            (head.is_some() && from.receive(&sink, &mut piece).unwrap() == Moved::Done).then_some(())
        });
        let into = Landing::into(&sink.landing);
        memory.bytes_mut(into)[at] ^= 1;
        if written {
            memory.forget_checksums(Span::new(into.buffer, at, 1));
        }
        to.start_send(LinkKind::Data, &data(1).encode(), into);
        let (mut passed_on, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
        until(|| {
            to.send(&memory).unwrap();
            let count = drain.read(&mut [IoSliceMut::new(&mut chunk)]).unwrap_or(0);
            passed_on.extend_from_slice(&chunk[..count]);
            (passed_on.len() >= frame.len()).then_some(())
        });
        let mut expected = frame;
        if written {
            expected = data_frame(1, memory.bytes(into), true);
        } else {
            expected[HEAD_BYTES + at + at / PIECE_BYTES * CHECKSUM_BYTES] ^= 1;
        }
        assert!(passed_on == expected, "changed at {at}, {written}");
    }
}

/// A transport may hold what it took, as TLS does. The last word must be passed on before the connection goes.
#[test]
fn what_is_said_at_once_is_passed_on() {
    let mut transport = Scripted::default();
    transport.script().room = 100;
    say_at_once(&mut transport, b"the last word");
    assert!(transport.script().sent == b"the last word" && transport.script().flushed);
    transport.script().room = 3;
    say_at_once(&mut transport, b"another");
    assert!(transport.script().sent.ends_with(b"ano") && transport.script().flushed, "no more than it takes");
}
