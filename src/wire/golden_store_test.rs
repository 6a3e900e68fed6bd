//! The bytes of a request to the store for several keys, as `docs/protocol.md` shows them.

use super::golden_test::{hex, shows};
use super::{Blob, Message, Parts, StoreBegin, StoreOperation, StorePiece};

const BEGIN: &str =
    "090000000000000008000000000000000c02000000030000006b006c030000006b006d000000000000000000000000000000000900000000000000";
const PIECE: &str = "090000000000000009000000010000007600000000";

#[test]
fn several_keys_and_their_values_are_their_golden_bytes_both_ways() {
    let mut value = Parts::default();
    value.push(b"v");
    value.push(b"");
    let begin = StoreBegin {
        request: 9,
        answered_below: 8,
        operation: StoreOperation::MultiSet,
        keys: vec![Blob::new(&b"k\0l"[..]), Blob::new(&b"k\0m"[..])],
        delta: 0,
        expected_bytes: 0,
        value_bytes: value.bytes.len() as u64,
    };
    let piece = StorePiece { request: 9, bytes: Blob::new(&value.bytes[..]) };
    for (message, golden) in [(Message::StoreBegin(begin), BEGIN), (Message::StorePiece(piece), PIECE)] {
        let payload = message.encode();
        assert_eq!(hex(&payload), golden);
        assert_eq!(Message::decode(message.kind(), &payload), Ok(message));
    }
    shows(vec![("a request for several keys", BEGIN), ("its values", PIECE)]);
}

#[test]
fn what_is_cut_short_is_no_value_of_several_parts() {
    let mut value = Parts::default();
    [&b"first"[..], b"", b"last"].into_iter().for_each(|part| value.push(part));
    assert_eq!(Parts::of(&value.bytes), Ok(vec![&b"first"[..], b"", b"last"]));
    assert_eq!(value.bytes.len(), Parts::length(3, 9));
    assert_eq!(Parts::of(&[]), Ok(Vec::new()));
    for length in 1..value.bytes.len() {
        let whole = [9, 13].contains(&length); // at the end of a part
        assert_eq!(Parts::of(&value.bytes[..length]).is_ok(), whole, "{length} bytes");
    }
}
