use super::*;
use crate::config::LogLevel;
use crate::net::memlink::MemoryLink;
use crate::net::testlink::{tcp_pair, TestLink};
use crate::net::{Poller, TcpTransport};
use crate::runtime::base::log::Logger;
use crate::runtime::links::link::say_at_once;
use crate::wire::LINK_FEATURE_MEMORY;
use std::time::Instant;

const LIMIT: Duration = Duration::from_secs(60);
/// More nodes than there is memory for.
const CROWD: u32 = 1000;

fn terms(local_size: u32, is_required: bool) -> Terms {
    let (peer, logger) = ("rank 1 of world".to_owned(), Logger::new(LogLevel::Off, "test"));
    Terms { common: LINK_FEATURE_MEMORY, local_size, is_required, is_trusted: true, peer, logger }
}

type Ends = [Box<dyn Transport>; 2];

fn plain() -> Ends {
    let (dialled, accepted) = tcp_pair();
    [Box::new(dialled), Box::new(accepted)]
}

/// Connections that use every freedom which the contract leaves.
fn hard(piece: usize) -> Ends {
    let (dialled, accepted) = tcp_pair();
    let hard = |end: TcpTransport, seed| -> Box<dyn Transport> { Box::new(TestLink::with_piece(end, seed, piece)) };
    [hard(dialled, 1), hard(accepted, 2)]
}

/// The dialler's end and the accepter's. Each believes that so many nodes share its host.
fn linked([dialled, accepted]: Ends, local_sizes: [u32; 2]) -> [SharedLink; 2] {
    let end = |connection, side, size| SharedLink::new(connection, side, terms(size, false)).unwrap();
    [end(dialled, Side::Client, local_sizes[0]), end(accepted, Side::Server, local_sizes[1])]
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
    }
}

fn take(end: &mut dyn Transport) -> io::Result<Vec<u8>> {
    let mut bytes = [0; 1000];
    end.read(&mut [IoSliceMut::new(&mut bytes)]).map(|count| bytes[..count].to_vec())
}

/// Sends bytes, and waits until they have come.
fn pass(from: &mut SharedLink, to: &mut SharedLink, bytes: &[u8]) {
    let (mut gone, mut come) = (0, Vec::new());
    until("the bytes come", || {
        if gone < bytes.len() {
            gone += from.write(&[IoSlice::new(&bytes[gone..])]).unwrap_or(0);
        }
        let _ = from.flush();
        let _ = take(from); // as a caller does that serves both directions
        come.extend(take(to).unwrap_or_default());
        (come.len() == bytes.len()).then_some(())
    });
    assert_eq!(come, bytes);
}

fn are_together(ends: &[SharedLink]) -> Vec<bool> {
    ends.iter().map(|end| matches!(end.stage, Stage::Together(_))).collect()
}

fn would_block<T>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn both_ends_come_to_share_memory_and_bytes_pass_through_it() {
    for ends in [plain(), hard(1), hard(50)] {
        let [mut one, mut other] = linked(ends, [2, 2]);
        assert!(!one.is_intact());
        pass(&mut one, &mut other, b"hello");
        pass(&mut other, &mut one, &[7; 3000]);
        assert_eq!(are_together(&[one, other]), [true, true]);
    }
}

/// A frame that begins before it is known what carries it may go through memory.
#[test]
fn a_link_is_as_intact_as_whatever_may_carry_it() {
    let of = |connection, is_trusted| {
        SharedLink::new(connection, Side::Client, Terms { is_trusted, ..terms(2, false) }).unwrap().is_intact()
    };
    let memory = || -> Box<dyn Transport> { Box::new(MemoryLink::pair().0) };
    let [plain, another] = plain();
    assert_eq!([of(memory(), true), of(memory(), false)], [true, false]);
    assert_eq!([of(plain, true), of(another, false)], [false, false]);
    let [mut one, mut other] = linked(self::plain(), [2, 2]);
    pass(&mut one, &mut other, b"hello");
    assert!(one.is_intact());
    one.terms.is_trusted = false;
    assert!(!one.is_intact());
}

/// One end cannot share memory if it believes that there are many nodes. Any other reason would do as well.
#[test]
fn where_one_end_cannot_both_go_on_over_the_connection() {
    for sizes in [[2, CROWD], [CROWD, 2], [CROWD, CROWD]] {
        for ends in [plain(), hard(1), hard(50)] {
            let [mut one, mut other] = linked(ends, sizes);
            pass(&mut one, &mut other, b"hello");
            pass(&mut other, &mut one, &[7; 3000]);
            assert_eq!(are_together(&[one, other]), [false, false], "{sizes:?}");
        }
    }
}

#[test]
fn where_memory_is_required_and_one_end_cannot_both_say_so() {
    for sizes in [[2, CROWD], [CROWD, 2]] {
        let [dialled, accepted] = plain();
        let end = |connection, side, size| SharedLink::new(connection, side, terms(size, true));
        let failed = |end: &mut SharedLink| take(end).err().filter(|error| error.kind() != ErrorKind::WouldBlock);
        let mut one = end(dialled, Side::Client, sizes[0]).unwrap();
        let errors = match end(accepted, Side::Server, sizes[1]) {
            Err(error) => [until("it fails", || failed(&mut one)), error],
            Ok(mut other) => {
                let error = until("it fails", || {
                    let _ = take(&mut one);
                    failed(&mut other)
                });
                [until("it fails", || failed(&mut one)), error]
            }
        };
        for (error, size) in errors.iter().zip(sizes) {
            let cannot = if size == CROWD { "this process can't" } else { "it can't" };
            let why = format!("memory can't be shared with rank 1 of world, which shm \"require\" asks for: {cannot}");
            assert!(error.kind() == ErrorKind::Unsupported && error.to_string().starts_with(&why), "{error}");
            assert!(error.to_string().ends_with("too little for rings between its 1000 nodes"), "{error}");
        }
    }
}

fn settled() -> [SharedLink; 2] {
    let [mut one, mut other] = linked(plain(), [2, 2]);
    pass(&mut one, &mut other, b"hello");
    pass(&mut other, &mut one, b"hello");
    [one, other]
}

#[test]
fn one_that_sleeps_is_told_by_the_poller_and_one_that_looks_is_not() {
    let [mut one, mut other] = settled();
    let mut poller = Poller::new().unwrap();
    other.register(poller.registry(), Token(3)).unwrap();
    let mut is_told = |within| {
        poller.poll(Some(within)).unwrap();
        poller.ready().count() > 0
    };
    while is_told(Duration::ZERO) {}
    for _ in 0..3 * SLEEPS {
        assert!(would_block(take(&mut other)));
        one.write(&[IoSlice::new(b"unheard")]).unwrap();
        assert!(!is_told(Duration::ZERO), "it looks");
        assert_eq!(take(&mut other).unwrap(), b"unheard");
        until("what woke it before is taken", || {
            assert!(would_block(take(&mut other)));
            other.may_sleep().then_some(())
        });
        one.write(&[IoSlice::new(b"heard")]).unwrap();
        assert!(is_told(LIMIT));
        other.is_reported();
        assert_eq!(take(&mut other).unwrap(), b"heard");
        assert!(other.holds_readable() && !other.may_sleep(), "what has woken it lies there still");
    }
}

#[test]
fn what_came_before_the_end_is_read_first() {
    let [mut one, mut other] = settled();
    one.write(&[IoSlice::new(b"last")]).unwrap();
    one.flush().unwrap();
    one.shutdown_write().unwrap();
    other.is_reported();
    let mut got = Vec::new();
    until("its end", || match take(&mut other) {
        Ok(bytes) if bytes.is_empty() => Some(()),
        other => {
            got.extend(other.unwrap_or_default());
            None
        }
    });
    assert_eq!(got, b"last");
    assert!(take(&mut other).unwrap().is_empty() && !other.holds_readable() && other.may_sleep(), "again and again");
    // The other direction goes on.
    other.write(&[IoSlice::new(b"so long")]).unwrap();
    assert_eq!(take(&mut one).unwrap(), b"so long");
}

#[test]
fn an_end_while_they_agree_is_the_links_end() {
    let [mut one, other] = linked(plain(), [2, 2]);
    drop(other);
    until("its end", || match take(&mut one) {
        Ok(bytes) => bytes.is_empty().then_some(()),
        Err(error) => (error.kind() != ErrorKind::WouldBlock).then_some(()),
    });
}

/// An end that turns a new link away says why, whatever the two have agreed on by then.
#[test]
fn what_is_said_at_once_arrives_however_far_they_are() {
    for (turns, required) in (0..4).flat_map(|turns| [(turns, false), (turns, true)]) {
        for speaker in 0..2 {
            let [dialled, accepted] = plain();
            let end = |connection, side| SharedLink::new(connection, side, terms(2, required)).unwrap();
            let mut ends = [end(dialled, Side::Client), end(accepted, Side::Server)];
            for turn in 0..turns {
                let _ = take(&mut ends[(turn + 1) % 2]); // the accepter begins
            }
            say_at_once(&mut ends[speaker], b"farewell");
            let _ = ends[speaker].shutdown_write();
            let heard = until("it is heard", || take(&mut ends[1 - speaker]).ok());
            assert_eq!(heard, b"farewell", "after {turns} looks, end {speaker} says it");
        }
    }
}

#[test]
fn what_makes_no_sense_is_damage() {
    let question = |longest: u32| {
        let mut payload = longest.to_le_bytes().to_vec();
        payload.resize(QUESTION_BYTES, 7);
        [vec![1, QUESTION_BYTES as u8], payload].concat()
    };
    for (word, is_damage) in
        [(vec![2, 0], true), (vec![1, 3, 0, 0, 0], true), (question(1 << 20), false), (question(3), false)]
    {
        let [dialled, mut accepted] = plain();
        let mut one = SharedLink::new(dialled, Side::Client, terms(2, false)).unwrap();
        accepted.write(&[IoSlice::new(&word)]).unwrap();
        if is_damage {
            let error =
                until("it fails", || take(&mut one).err().filter(|error| error.kind() != ErrorKind::WouldBlock));
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{word:?}");
        } else {
            let said = until("it says so", || {
                let _ = take(&mut one);
                take(&mut *accepted).ok()
            });
            let why = String::from_utf8_lossy(&said[HEAD_BYTES..]);
            let expected =
                if word == question(3) { "rings cannot have 3 bytes" } else { "the other process cannot be reached" };
            assert!(said[0] == 0 && why.contains(expected), "{why}");
        }
    }
}

#[test]
fn many_nodes_have_short_rings_and_too_many_none() {
    let lengths = [1, 2, 8, 16, 32, 64].map(|nodes| longest_of(nodes, 1 << 30, 4096).unwrap() >> 10);
    assert_eq!(lengths, [512, 512, 512, 128, 32, 8]);
    assert_eq!(longest_of(8, 56 << 14, 4096), Ok(4096), "a quarter of what is left");
    for (nodes, free, page) in [(CROWD, 1 << 30, 4096), (8, 55 << 14, 4096), (32, 1 << 30, 1 << 16)] {
        let why =
            format!("{free} bytes of memory are left on this host: too little for rings between its {nodes} nodes");
        assert_eq!(longest_of(nodes, free, page), Err(why));
    }
}
