//! Frames and messages: how they lie on the wire, and the limits that they keep.
//!
//! Owns: the bytes. `docs/protocol.md` describes them for a second implementation; `golden_test.rs` and `golden_headers_test.rs` hold both to it.
//! Invariants: little-endian; a length is checked against its limit before anything is allocated for it; decoding
//! takes every byte of a payload or fails; nothing here panics on any input.
//! Deliberately absent: sockets, time, and any decision about what a message means.

mod calls;
mod change;
mod codec;
mod control;
mod frame;
mod heartbeat;
mod launcher;
mod link;
mod members;
mod message;
mod nouns;
mod point;
mod proof;
mod record;
mod status;
mod store;

#[cfg(test)]
mod golden_headers_test;
#[cfg(test)]
mod golden_test;
/// Right bytes of each kind, for tests in other rooms.
#[cfg(test)]
pub(crate) mod golden {
    use super::{golden_headers_test, golden_test, record, LinkKind, Message};

    pub(crate) fn messages() -> Vec<Message> {
        golden_test::messages().into_iter().map(|(_, message, _)| message).collect()
    }

    /// The payloads of links' frames.
    pub(crate) fn links() -> Vec<(LinkKind, Vec<u8>)> {
        golden_test::link_frames().into_iter().map(|(_, kind, payload, _)| (kind, payload)).collect()
    }

    /// A data header, and a message's.
    pub(crate) fn headers() -> [Vec<u8>; 2] {
        [golden_headers_test::data_header().encode().to_vec(), golden_headers_test::message_header().encode().to_vec()]
    }

    pub(crate) fn records() -> Vec<Vec<u8>> {
        record::tests::samples().iter().map(super::Record::encode).collect()
    }
}
#[cfg(test)]
mod limits_test;
#[cfg(test)]
mod random_test;

pub use calls::{AskCall, Called};
pub use change::{FreeGroup, GroupFreed, GroupMade, GroupWish, InEpoch, MakeGroup, NotRecovered, NotYet, Recover};
pub use codec::{Decoder, Encoder, Wire, WireError};
pub use control::{
    Abort, Absence, AbsenceState, Absent, Agreed, Creations, Formed, Known, Locate, Located, LostNodes, PassBy,
    PeerReport, PeerState, Reentry, Register, Rejected, Revoke, Revoked, Suspect, Told, Verdict, WhereAre,
};
pub use frame::{
    body_bytes, encode_frame, peek_frame, Frame, FrameHeader, CHECKSUM_BYTES, FLAG_UNCHECKED, HEADER_BYTES, MAGIC,
    PIECE_BYTES,
};
pub use heartbeat::{GroupProgress, Heartbeat, HeartbeatEcho, MessageWait, COMPARED_WITHIN, WAITS_AFTER};
pub use launcher::{Abandoned, ChildEnded, HowEnded};
pub use link::{
    Channel, DataHeader, LinkAccept, LinkBeat, LinkHello, LinkKind, LinkReject, LinkRejectReason, LinkRevoke,
    LinkSuspect, DATA_HEADER_BYTES, PROOF_BYTES,
};
pub use members::{Member, Members};
pub use message::{Lane, Message};
pub use point::{
    MessageHeader, MessagePart, EAGER_COST, EAGER_CREDIT, EAGER_MAX, MESSAGE_HEADER_BYTES, MESSAGE_PIECE_BYTES, RTS_MAX,
};
pub use proof::{NONCE_BYTES, PROOF_ASK, PROOF_CHALLENGE, PROOF_MAC};
pub use record::{CreationRecord, EpochRecord, FreedRecord, GroupRecord, JobRecord, Record, SeatRecord, StoreRecord};
pub use status::{JobPhase, NodeState, StatusGroup, StatusJob, StatusNode, StatusPart, StatusQuery};
pub use store::{Blob, StoreBegin, StoreCancel, StoreOperation, StorePiece, StoreReply, STORE_PIECE_BYTES};

/// The lowest protocol that this library speaks.
pub const PROTOCOL_LOWEST: u16 = 1;
/// The highest protocol that this library speaks.
pub const PROTOCOL_HIGHEST: u16 = 1;
/// The longest frame payload before a node has registered.
pub const UNREGISTERED_PAYLOAD_MAX: u64 = 64 << 10;
/// The longest payload of a control message after registration.
pub const CONTROL_PAYLOAD_MAX: u64 = 1 << 20;
/// The longest node id, host name, host key, job id or version, in bytes.
pub const NAME_MAX: usize = 255;
/// The longest sentence that travels, in bytes; a longer one is cut at a character border.
pub const SENTENCE_MAX: usize = 4096;
/// How many groups with groups made of them `Formed` lists.
pub const CREATIONS_MAX: usize = 1024;
/// How many tokens a node may show.
pub const TOKENS_MAX: usize = 2;
/// How many processes one word of a launcher names at most: it keeps within [`UNREGISTERED_PAYLOAD_MAX`].
pub const GIVEN_UP_MAX: usize = 1024;
/// How many addresses a node may advertise. With [`FULL_TABLE_NODES`] and [`NAME_MAX`] it keeps `Formed` within
/// [`CONTROL_PAYLOAD_MAX`].
pub const ADDRESSES_MAX: usize = 8;
/// How many groups one heartbeat reports on.
pub const PROGRESS_MAX: usize = 1024;
/// And on at most so many messages that are waited for.
pub const WAITS_MAX: usize = 8;
/// How many groups one heartbeat names after whose end its node has gone on.
pub const GONE_ON_MAX: usize = 64;
/// Up to this many nodes `Formed` carries every member's address.
pub const FULL_TABLE_NODES: usize = 1024;
