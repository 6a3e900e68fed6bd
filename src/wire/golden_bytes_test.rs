//! Right bytes of each kind, for tests in other rooms.

use super::golden_headers_test::{data_header, message_header};
use super::golden_test::{link_frames, messages as golden_messages};
use super::record::tests::samples;
use super::{LinkKind, Message, Record};

/// Each kind of message once.
pub(crate) fn messages() -> Vec<Message> {
    golden_messages().into_iter().map(|(_, message, _)| message).collect()
}

/// The payloads of links' frames.
pub(crate) fn links() -> Vec<(LinkKind, Vec<u8>)> {
    link_frames().into_iter().map(|(_, kind, payload, _)| (kind, payload)).collect()
}

/// A data header, and a message's.
pub(crate) fn headers() -> [Vec<u8>; 2] {
    [data_header().encode().to_vec(), message_header().encode().to_vec()]
}

/// Records of each kind.
pub(crate) fn records() -> Vec<Vec<u8>> {
    samples().iter().map(Record::encode).collect()
}
