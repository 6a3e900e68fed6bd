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
mod limits;
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
#[path = "golden_bytes_test.rs"]
pub(crate) mod golden;
#[cfg(test)]
mod golden_cuts_test;
#[cfg(test)]
mod golden_headers_test;
#[cfg(test)]
mod golden_store_test;
#[cfg(test)]
mod golden_test;
#[cfg(test)]
mod limits_test;
#[cfg(test)]
mod random_test;

pub use calls::{AskCall, Called};
pub use change::{
    FreeGroup, GroupFreed, GroupMade, GroupWish, InEpoch, MadeByMembers, MakeByMembers, MakeGroup, NotRecovered,
    NotYet, Recover,
};
pub use codec::{Decoder, Encoder, Later, Wire, WireError};
pub use control::{
    Abort, Absent, Agreed, Creations, Formed, Known, Locate, Located, LostNodes, PassBy, PeerReport, PeerState,
    Reentry, Register, Rejected, Revoke, Revoked, Straggler, StragglerState, Suspect, Told, Verdict, WhereAre,
};
pub use frame::{
    body_bytes, encode_frame, peek_frame, Frame, FrameHeader, CHECKSUM_BYTES, FLAG_UNCHECKED, HEADER_BYTES, MAGIC,
    PIECE_BYTES,
};
pub use heartbeat::{
    Carrier, GroupCarrier, GroupProgress, Heartbeat, HeartbeatEcho, MessageWait, COMPARED_WITHIN, WAITS_AFTER,
};
pub use launcher::{Abandoned, ChildEnded, HowEnded};
pub use limits::{
    ABANDONED_MAX, ADDRESSES_MAX, CARRIERS_MAX, CONTROL_PAYLOAD_MAX, CREATIONS_MAX, FEATURES, FEATURE_CARRIERS,
    FULL_TABLE_NODES, GONE_ON_MAX, LINK_FEATURE_MEMORY, NAME_MAX, PROGRESS_MAX, PROTOCOL_HIGHEST, PROTOCOL_LOWEST,
    SENTENCE_MAX, TOKENS_MAX, UNREGISTERED_PAYLOAD_MAX, WAITS_MAX,
};
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
pub use record::{
    ByMembersRecord, CreationRecord, EpochRecord, FreedRecord, GroupRecord, JobRecord, MemberRecord, Record,
    StoreRecord,
};
pub use status::{
    JobNews, JobPhase, NodeStanding, StatusGroup, StatusJob, StatusNode, StatusPart, StatusPlace, StatusQuery, Watch,
};
pub use store::{Blob, Parts, StoreBegin, StoreCancel, StoreOperation, StorePiece, StoreReply, STORE_PIECE_BYTES};
