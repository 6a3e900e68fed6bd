//! The headers of data and message frames, and what they say of calls, as exact bytes.

use super::golden_test::{call, hex, shows};
use super::*;
use crate::types::{Call, CallDigest, CallKind, DType, Epoch, GroupId, ReduceOp};

fn two_calls() -> [Call; 2] {
    let barrier = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
    let (kind, dtype) = (CallKind::Broadcast, Some(DType::Uint8));
    [barrier, Call { kind, dtype, op: None, root: Some(0), count: 128, layout: 0 }]
}

/// The digests after none, one and both of these calls.
fn digests() -> [CallDigest; 3] {
    let mut digests = [CallDigest::default(); 3];
    for (at, call) in two_calls().iter().enumerate() {
        digests[at + 1..].iter_mut().for_each(|digest| digest.add(call.signature()));
    }
    digests
}

pub(super) fn data_header() -> DataHeader {
    let (signature, digest) = (call().signature(), digests()[2].in_short());
    DataHeader { epoch: Epoch(1), group: GroupId::WORLD, sequence: 3, signature, call: call(), digest }
}

/// The header of the same call with 1,024 elements of 16 bytes, and a function that the call brings, which does not commute.
fn own_data_header() -> DataHeader {
    let op = Some(ReduceOp::Given { commutative: false });
    let call = Call { dtype: Some(DType::Element(16)), op, ..call() };
    DataHeader { signature: call.signature(), call, ..data_header() }
}

const DATA_HEADER: &str =
    "01000000000000000000000003000000000000007484ada62ac3e9a8030a0000000000000400000000000000000000000000000000000000f3ce5a41f542241a";

pub(super) fn message_header() -> MessageHeader {
    let (epoch, group, part) = (Epoch(1), GroupId::WORLD, MessagePart::Rts);
    MessageHeader { epoch, group, part, dtype: DType::Float32, tag: -2, number: 5, count: 1 << 24 }
}

const MESSAGE_HEADER: &str =
    "010000000000000000000000020afeffffff0500000000000000000000010000000000000000000000000000000000000000000000000000000000009c86985f";
const OWN_DATA_HEADER: &str =
    "0100000000000000000000000300000000000000e9629015a0c2eb9d030cff000080000004000000000f0000000000000000000000000000f3ce5a41a442cd7f";
/// The header of the message above with 1,000 elements of 8,094 bytes.
const OWN_MESSAGE_HEADER: &str =
    "010000000000000000000000020cfeffffff0500000000000000e803000000009d1f0000000000000000000000000000000000000000000000000000ad7656f7";
/// The signatures of a barrier; of a broadcast of 128 uint8 from root 0; of the allreduce of the data header above; and of the
/// same allreduce of addends.
const SIGNATURES: [&str; 4] = ["0151dba3e74b54f8", "a8d9d13c8a0bc6ff", "a8e9c32aa6ad8474", "6354ad9502f5c99a"];
/// What a data header says of the calls before: after that barrier, and after that barrier and that broadcast.
const DIGESTS: [&str; 2] = ["a11b42a0", "415acef3"];

#[test]
fn data_headers_and_signatures_are_their_golden_bytes() {
    assert_eq!(hex(&data_header().encode()), DATA_HEADER);
    assert_eq!(DataHeader::decode(&data_header().encode()), Ok(data_header()));
    assert_eq!(hex(&own_data_header().encode()), OWN_DATA_HEADER);
    assert_eq!(DataHeader::decode(&own_data_header().encode()), Ok(own_data_header()));
    let [barrier, id] = two_calls();
    let addends = Call { op: Some(ReduceOp::SumOfAddends), ..call() };
    assert_eq!([barrier, id, call(), addends].map(|call| format!("{:016x}", call.signature())), SIGNATURES);
    let [before, after @ ..] = digests();
    assert_eq!(before.in_short(), 0);
    assert_eq!(after.map(|digest| format!("{:08x}", digest.in_short())), DIGESTS);
}

#[test]
fn message_headers_are_their_golden_bytes() {
    assert_eq!(hex(&message_header().encode()), MESSAGE_HEADER);
    assert_eq!(MessageHeader::decode(&message_header().encode()), Ok(message_header()));
    let own = MessageHeader { dtype: DType::Element(8094), count: 1000, ..message_header() };
    assert_eq!(hex(&own.encode()), OWN_MESSAGE_HEADER);
    assert_eq!(MessageHeader::decode(&own.encode()), Ok(own));
}

#[test]
fn types_that_there_are_not_are_refused() {
    let wrong = |at: usize, byte: u8| {
        let mut header = message_header().encode();
        header[at] = byte;
        let sum = crc32fast::hash(&header[..60]).to_le_bytes();
        header[60..].copy_from_slice(&sum);
        MessageHeader::decode(&header).map_err(|error| error.to_string())
    };
    assert_eq!(wrong(13, 13), Err("unknown element type 13".to_owned()));
    assert_eq!(wrong(13, 255), Err("a message without an element type".to_owned()));
    let smallest = wrong(13, 12).unwrap();
    assert_eq!((smallest.dtype, smallest.count), (DType::Element(1), 1 << 24));
}

#[test]
fn the_document_shows_the_same_bytes() {
    let mut wanted = vec![("the data header", DATA_HEADER), ("the message header", MESSAGE_HEADER)];
    wanted.extend([OWN_DATA_HEADER, OWN_MESSAGE_HEADER].map(|golden| ("a header of own elements", golden)));
    wanted.extend(SIGNATURES.map(|golden| ("a signature", golden)));
    wanted.extend(DIGESTS.map(|golden| ("a digest", golden)));
    shows(wanted);
}

#[test]
fn damage_of_a_data_header_is_noticed() {
    let header = data_header().encode();
    for at in 0..header.len() {
        for bit in 0..8 {
            let mut damaged = header;
            damaged[at] ^= 1 << bit;
            assert!(DataHeader::decode(&damaged).is_err(), "data header, byte {at}, bit {bit}");
        }
    }
}
