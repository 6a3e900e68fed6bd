//! The headers of data and message frames, and what they say of calls, as exact bytes.

use super::golden_test::{call, hex, shows};
use super::*;
use crate::types::{Call, CallDigest, CallKind, DType, Epoch, GroupId};

fn two_calls() -> [Call; 2] {
    let barrier = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
    let (kind, dtype) = (CallKind::Broadcast, Some(DType::Uint8));
    [barrier, Call { kind, dtype, op: None, root: Some(0), count: 128, layout: 0 }]
}

/// After none, one and both of these.
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

const DATA_HEADER: &str =
    "01000000000000000000000003000000000000007484ada62ac3e9a8030a0000000000000400000000000000000000000000000000000000f3ce5a41f542241a";

pub(super) fn message_header() -> MessageHeader {
    let (epoch, group, part) = (Epoch(1), GroupId::WORLD, MessagePart::Rts);
    MessageHeader { epoch, group, part, dtype: DType::Float32, tag: -2, number: 5, count: 1 << 24 }
}

const MESSAGE_HEADER: &str =
    "010000000000000000000000020afeffffff0500000000000000000000010000000000000000000000000000000000000000000000000000000000009c86985f";
/// The signatures of a barrier; a broadcast of 128 uint8 from root 0; and the allreduce of the data header above.
const SIGNATURES: [&str; 3] = ["0151dba3e74b54f8", "a8d9d13c8a0bc6ff", "a8e9c32aa6ad8474"];
/// What a data header says of the calls before, after that barrier; and after the broadcast behind it.
const DIGESTS: [&str; 2] = ["a11b42a0", "415acef3"];

#[test]
fn data_headers_and_signatures_are_their_golden_bytes() {
    assert_eq!(hex(&data_header().encode()), DATA_HEADER);
    assert_eq!(DataHeader::decode(&data_header().encode()), Ok(data_header()));
    let [barrier, id] = two_calls();
    assert_eq!([barrier, id, call()].map(|call| format!("{:016x}", call.signature())), SIGNATURES);
    let [before, after @ ..] = digests();
    assert_eq!(before.in_short(), 0);
    assert_eq!(after.map(|digest| format!("{:08x}", digest.in_short())), DIGESTS);
}

#[test]
fn message_headers_are_their_golden_bytes() {
    assert_eq!(hex(&message_header().encode()), MESSAGE_HEADER);
    assert_eq!(MessageHeader::decode(&message_header().encode()), Ok(message_header()));
}

#[test]
fn the_document_shows_the_same_bytes() {
    let mut wanted = vec![("the data header", DATA_HEADER), ("the message header", MESSAGE_HEADER)];
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
