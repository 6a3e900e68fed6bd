//! The node's side of the store.

use super::bench::{formed, Bench};
use super::*;
use crate::error::Status;
use crate::wire::{Blob, StoreBegin, StoreOperation, StorePiece, StoreReply, STORE_PIECE_BYTES};

fn set(ask: Ask, value: &[u8]) -> Command {
    Command::Store {
        ask,
        operation: StoreOperation::Set,
        keys: vec![Blob::new(b"k".to_vec())],
        delta: 0,
        expected_bytes: 0,
        value: Blob::new(value.to_vec()),
    }
}

fn reply(request: u64, value_bytes: u64) -> Message {
    Message::StoreReply(StoreReply {
        request,
        status: 0,
        reason: String::new(),
        number: 4,
        change: request,
        value_bytes,
    })
}

fn piece(request: u64, bytes: &[u8]) -> Message {
    Message::StorePiece(StorePiece { request, bytes: Blob::new(bytes.to_vec()) })
}

fn begins(bench: &Bench) -> Vec<StoreBegin> {
    let begin = |message| if let Message::StoreBegin(begin) = message { Some(begin) } else { None };
    bench.sent().into_iter().filter_map(begin).collect()
}

#[test]
fn a_value_travels_in_pieces() {
    let mut bench = Bench::joined();
    let value: Vec<u8> = (0..STORE_PIECE_BYTES + 10).map(|i| i as u8).collect();
    bench.command(set(1, &value));
    let sent = bench.sent();
    assert_eq!(sent.len(), 3);
    assert!(matches!(&sent[0], Message::StoreBegin(begin) if begin.value_bytes == value.len() as u64));
    let mut carried = Vec::new();
    for message in &sent[1..] {
        let Message::StorePiece(piece) = message else { panic!("{message:?}") };
        carried.extend_from_slice(piece.bytes.as_slice());
    }
    assert_eq!(carried, value);
}

#[test]
fn replies_are_put_together_and_told_once() {
    let mut bench = Bench::joined();
    bench.command(set(1, b""));
    bench.command(set(2, b""));
    bench.receive(reply(2, 0));
    bench.receive(reply(1, 5));
    bench.receive(piece(1, b"abc"));
    assert_eq!(bench.told().len(), 1);
    bench.receive(piece(1, b"de"));
    bench.receive(reply(1, 0));
    let told = bench.told();
    assert!(matches!(&told[0], Event::Stored(2, Ok((4, value))) if value.is_empty()));
    assert!(matches!(&told[1], Event::Stored(1, Ok((4, value))) if value == b"abcde"));
    assert_eq!(told.len(), 2);
}

#[test]
fn errors_come_with_their_status() {
    let mut bench = Bench::joined();
    bench.command(set(1, b""));
    let refused =
        StoreReply { request: 1, status: -5, reason: "full".to_owned(), number: 0, change: 0, value_bytes: 0 };
    bench.receive(Message::StoreReply(refused));
    let told = bench.told();
    assert!(matches!(&told[0], Event::Stored(1, Err(error)) if error.status() == Status::Limit));
}

#[test]
fn an_unanswered_request_is_sent_again_whole_and_a_half_reply_is_forgotten() {
    let mut bench = Bench::joined();
    bench.command(set(1, b"value"));
    bench.receive(reply(1, 3));
    bench.receive(piece(1, b"a"));
    bench.reattach();
    assert_eq!(bench.sent().len(), 2);
    bench.receive(reply(1, 3));
    bench.receive(piece(1, b"abc"));
    assert!(matches!(bench.told().last(), Some(Event::Stored(1, Ok((_, value)))) if value == b"abc"));
    bench.reattach();
    assert!(bench.sent().is_empty());
}

#[test]
fn a_request_made_while_the_scheduler_is_away_waits_for_it() {
    let mut bench = Bench::joined();
    bench.feed(Input::Closed("reset".to_owned()));
    bench.command(set(1, b""));
    assert!(bench.sent().is_empty());
    bench.feed(Input::Connected(Vec::new()));
    bench.outputs.clear();
    bench.receive(Message::Formed(formed(1, 1)));
    assert_eq!(begins(&bench).len(), 1);
}

#[test]
fn answered_below_names_the_oldest_open_request() {
    let mut bench = Bench::joined();
    for ask in [3, 4, 5] {
        bench.command(set(ask, b""));
    }
    bench.receive(reply(3, 0));
    bench.receive(reply(5, 0));
    bench.command(set(6, b""));
    bench.receive(reply(4, 0));
    bench.command(set(7, b""));
    let below: Vec<_> = begins(&bench).iter().map(|begin| begin.answered_below).collect();
    assert_eq!(below, [3, 3, 3, 4, 6]);
}

#[test]
fn a_cancelled_request_is_not_answered_and_its_cancellation_is_said_again() {
    let mut bench = Bench::joined();
    bench.command(set(1, b""));
    bench.command(Command::StoreCancel(1));
    bench.command(Command::StoreCancel(9));
    let cancels = |bench: &Bench| bench.sent().iter().filter(|m| matches!(m, Message::StoreCancel(_))).count();
    assert_eq!(cancels(&bench), 1);
    bench.receive(reply(1, 4));
    bench.receive(piece(1, b"abcd"));
    assert!(bench.told().is_empty());
    bench.reattach();
    assert_eq!((cancels(&bench), begins(&bench).len()), (1, 0));
}

#[test]
fn limits_are_told_before_anything_is_sent() {
    let mut bench = Bench::joined();
    let request = |ask, keys: Vec<Blob>, value: usize| Command::Store {
        ask,
        operation: StoreOperation::Set,
        keys,
        delta: 0,
        expected_bytes: 0,
        value: Blob::new(vec![0; value]),
    };
    bench.command(request(1, vec![Blob::new(vec![0; 4097])], 0));
    bench.command(request(2, vec![Blob::new(vec![0; 1])], (16 << 20) + 1));
    bench.command(request(3, vec![Blob::new(vec![0; 4096]); 300], 0));
    let told = bench.told();
    for (event, limit) in told.iter().zip(["4096", "16777216", "1047552"]) {
        let Event::Stored(_, Err(error)) = event else { panic!("{event:?}") };
        assert_eq!(error.status(), Status::Limit);
        assert!(error.message().contains(limit), "{error}");
    }
    assert_eq!((told.len(), bench.sent().len()), (3, 0));
}

#[test]
fn a_reply_that_breaks_its_promise_ends_the_connection_and_the_request_lives() {
    for bad in [vec![reply(1, 1 << 40)], vec![piece(1, b"x")], vec![reply(1, 2), piece(1, b"abc")]] {
        let mut bench = Bench::joined();
        bench.command(set(1, b""));
        bad.into_iter().for_each(|message| bench.receive(message));
        assert!(bench.outputs.iter().any(|output| matches!(output, Output::Disconnect)));
        assert!(matches!(&bench.told()[..], [Event::SchedulerAway(Some(_))]));
    }
}

#[test]
fn a_new_epoch_repeats_no_request_on_the_same_connection() {
    let mut bench = Bench::joined();
    bench.command(set(1, b"v"));
    bench.outputs.clear();
    bench.receive(Message::Formed(formed(1, 2)));
    assert!(begins(&bench).is_empty(), "it would be carried out twice: {:?}", begins(&bench));
    bench.feed(Input::Closed("reset".to_owned()));
    bench.feed(Input::Connected(Vec::new()));
    bench.outputs.clear();
    bench.receive(Message::Formed(formed(1, 3)));
    assert_eq!(begins(&bench).len(), 1, "this scheduler may not have heard it");
}
