//! What golden payloads say when their end is missing.

use super::golden_test::{decode_link, link_frames, messages};
use super::*;

/// The messages that end with a field that was added later.
const LONGER_THAN_BEFORE: [&str; 3] = ["Formed", "Heartbeat", "StatusPart"];

/// Whether a part of a payload is refused, or is what would be sent without that field.
pub(super) fn is_refused_or_says_less(name: &str, kind: u8, cut: &[u8]) -> bool {
    let read = Message::decode(kind, cut);
    read.map_or(true, |read| LONGER_THAN_BEFORE.contains(&name) && read.encode() == cut)
}

#[test]
fn messages_are_understood_without_the_field_that_came_later_and_that_field_is_never_there_for_nothing() {
    let longer = messages().into_iter().filter(|(name, ..)| LONGER_THAN_BEFORE.contains(name));
    for (name, message, _) in longer {
        let payload = message.encode();
        let decodes = |cut: &usize| Message::decode(message.kind(), &payload[..*cut]).is_ok();
        let cuts: Vec<usize> = (0..payload.len()).filter(decodes).collect();
        assert_eq!(cuts.len(), 1, "{name}");
        for nothing in [vec![0; 4], vec![0; 8]] {
            let with_nothing = [&payload[..cuts[0]], &nothing].concat();
            assert!(Message::decode(message.kind(), &with_nothing).is_err(), "{name}");
        }
    }
}

#[test]
fn every_truncation_of_a_golden_payload_fails_or_waits() {
    for (name, message, _) in messages() {
        let payload = message.encode();
        for cut in 0..payload.len() {
            assert!(is_refused_or_says_less(name, message.kind(), &payload[..cut]), "{name} cut at {cut}");
        }
        let longer = [&payload[..], &[0]].concat();
        assert!(Message::decode(message.kind(), &longer).is_err(), "{name} with a byte too many");
        let frame = message.to_frame(1);
        for cut in 0..frame.len() {
            assert_eq!(peek_frame(&frame[..cut], CONTROL_PAYLOAD_MAX), Ok(None), "{name}'s frame cut at {cut}");
        }
    }
    for (name, kind, payload, _) in link_frames() {
        for cut in 0..payload.len() {
            assert!(decode_link(kind, &payload[..cut]).is_err(), "{name} cut at {cut}");
        }
    }
}
