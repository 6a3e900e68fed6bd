//! Every decoder that sees bytes from outside, as a function of bytes: for a fuzzer (`make fuzz`, `cfg(fuzzing)`), and for the replay
//! in `cargo test` of what it has found and of many small changes to right input.
//!
//! A target returns for any bytes. What it decodes it encodes again where that is possible: that must give the same. Deliberately absent:
//! TLS records, which are rustls's matter.

#[cfg(test)]
mod replay_test;

use crate::config::{self, TlsFile};
use crate::net::Side;
use crate::runtime::links::fuzz_rings;
use crate::secret::{session::Session, JobSecret};
use crate::wire::{
    encode_frame, peek_frame, DataHeader, Decoder, LinkAccept, LinkBeat, LinkHello, LinkReject, LinkRevoke,
    LinkSuspect, Message, MessageHeader, Record, Register, Wire, CONTROL_PAYLOAD_MAX, UNREGISTERED_PAYLOAD_MAX,
};
use std::path::Path;
use std::sync::Arc;

/// What is tried, by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 15] = [
    ("frames", frames),
    ("messages", messages),
    ("links", links),
    ("records", records),
    ("journal", journal),
    ("identity", identity),
    ("rank_table", rank_table),
    ("host_lists", config::fuzz_host_lists),
    ("host_slots", config::fuzz_host_slots),
    ("tls_file", tls_file),
    ("pem", pem),
    ("pkcs12", pkcs12),
    ("ciphers", ciphers),
    ("proof", proof),
    ("rings", fuzz_rings),
];

/// A stream of frames, as it is taken apart on a connection.
fn frames(bytes: &[u8]) {
    for limit in [UNREGISTERED_PAYLOAD_MAX, CONTROL_PAYLOAD_MAX] {
        let mut rest = bytes;
        while let Ok(Some((frame, length))) = peek_frame(rest, limit) {
            assert!(frame.payload.len() as u64 <= limit && length <= rest.len());
            if frame.header.flags == 0 {
                let mut again = Vec::new();
                encode_frame(frame.header.kind, frame.header.node, &frame.payload, &mut again);
                assert_eq!(again, rest[..length]);
            }
            rest = &rest[length..];
        }
    }
}

/// A message's payload, behind its kind.
fn messages(bytes: &[u8]) {
    let Some((kind, payload)) = bytes.split_first() else { return };
    let _ = Register::protocol_range(payload);
    if let Ok(message) = Message::decode(*kind, payload) {
        assert_eq!(Message::decode(message.kind(), &message.encode()), Ok(message));
    }
}

/// The payload of a link's frame, or one of the two headers that stand in the place of one.
fn links(bytes: &[u8]) {
    fn any<T: Wire>(payload: &[u8]) {
        let mut from = Decoder::new(payload);
        let _ = T::take(&mut from).and_then(|_| from.finish());
    }
    let Some((which, payload)) = bytes.split_first() else { return };
    match which % 8 {
        0 => any::<LinkHello>(payload),
        1 => any::<LinkAccept>(payload),
        2 => any::<LinkReject>(payload),
        3 => any::<LinkRevoke>(payload),
        4 => any::<LinkBeat>(payload),
        5 => any::<LinkSuspect>(payload),
        6 => {
            let Some(header) = payload.first_chunk() else { return };
            if let Ok(header) = DataHeader::decode(header) {
                assert_eq!(DataHeader::decode(&header.encode()), Ok(header));
            }
        }
        _ => {
            let Some(header) = payload.first_chunk() else { return };
            let _ = MessageHeader::decode(header);
        }
    }
}

/// What a record of the journal says.
fn records(bytes: &[u8]) {
    if let Ok(record) = Record::decode(bytes) {
        let _ = Record::decode(&record.encode()).expect("what was decoded can be encoded");
    }
}

fn journal(bytes: &[u8]) {
    crate::journal::fuzz::journal(bytes);
}

fn identity(bytes: &[u8]) {
    crate::journal::fuzz::identity(bytes);
}

fn rank_table(bytes: &[u8]) {
    config::fuzz_rank_table(bytes);
}

fn tls_file(bytes: &[u8]) {
    let _ = TlsFile::parse(bytes, Path::new("/folder"));
}

fn pem(bytes: &[u8]) {
    crate::tls::fuzz::pem(bytes);
}

fn pkcs12(bytes: &[u8]) {
    crate::tls::fuzz::pkcs12(bytes);
}

fn ciphers(bytes: &[u8]) {
    crate::tls::fuzz::ciphers(bytes);
}

/// What comes before the first message where a job has a secret, at either end, in two parts.
fn proof(bytes: &[u8]) {
    let Some((at, bytes)) = bytes.split_first() else { return };
    let (one, other) = bytes.split_at(bytes.len() * usize::from(*at) / 256);
    for side in [Side::Client, Side::Server] {
        let mut session = Session::new(Arc::new(JobSecret::new(b"secret")), side, [7; 32]);
        session.take(&[0; 100]);
        let _ = session.heard(one).and_then(|()| session.heard(other));
        assert!(!session.reads_freely() || !bytes.starts_with(b"MUST"), "nobody has proved anything");
    }
}
