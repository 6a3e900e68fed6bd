//! The data plane's frames: how two nodes open a link, and what stands before each payload on it.

use super::codec::{code, record, Decoder, Encoder, Wire, WireError};
use super::frame::CHECKSUM_BYTES;
use crate::error::Failure;
use crate::types::{Call, Epoch, GroupId, Incarnation};

/// How long a data header is, its checksum included.
pub const DATA_HEADER_BYTES: usize = 64;
/// How long each half of the epoch's secret is.
pub const PROOF_BYTES: usize = 16;

code! {
    /// What a frame on a link is; stands in the frame header's `kind`.
    pub enum LinkKind {
        /// The dialler introduces itself.
        Hello = 64,
        /// The other side lets it in.
        Accept = 65,
        /// The other side does not let it in.
        Reject = 66,
        /// A data header and a payload.
        Data = 67,
        /// The group is revoked.
        Revoke = 68,
        /// The sender has left the cluster.
        Leave = 69,
        /// A message header and, for some parts of a message, a payload.
        Message = 70,
        /// An empty frame, sent only so that the other side's kernel acknowledges it.
        KeepAlive = 71,
        /// On a watch: the sender lives.
        Beat = 72,
        /// On a watch: the sender believes that a third node is lost.
        Suspect = 73,
    }
}

code! {
    /// What a link carries.
    pub enum Channel {
        /// A group's collectives.
        Collectives = 0,
        /// Messages between two of its members.
        Messages = 1,
        /// One frame that says that the group is over and why, where the scheduler does not tell it.
        Word = 2,
        /// Signs of life between two agent threads, where the scheduler gives none.
        Watch = 3,
    }
}

impl LinkKind {
    /// The kind with this number.
    pub fn from_code(code: u8) -> Result<LinkKind, WireError> {
        LinkKind::take(&mut Decoder::new(&[code]))
    }
}

code! {
    /// Why a link was not let in.
    pub enum LinkRejectReason {
        /// The other side is dialling too, and its attempt survives.
        Crossing = 1,
        /// The hello is of another epoch, has another secret, or is for another node.
        Stranger = 2,
        /// There is such a link already.
        Duplicate = 3,
        /// The accepter is leaving.
        Leaving = 4,
        /// The group is not known here.
        NoGroup = 5,
        /// The dialler's certificate does not carry its node id.
        Misnamed = 6,
    }
}

record! {
    /// The first frame on a link, from the side that dialled.
    pub struct LinkHello {
        /// The epoch that both must be in.
        pub epoch: Epoch,
        /// The group that the link serves.
        pub group: GroupId,
        /// Which of the group's links to this peer it is.
        pub channel: Channel,
        /// The dialler's index among all nodes.
        pub from: u32,
        /// The index of the node that it wants.
        pub to: u32,
        /// The dialler's life.
        pub incarnation: Incarnation,
        /// The first half of the epoch's secret.
        pub proof: [u8; PROOF_BYTES],
        /// What the dialler offers to upgrade the link to, in bits.
        pub features: u64,
    }
}

record! {
    /// The answer: the link may be used.
    pub struct LinkAccept {
        /// The second half of the epoch's secret.
        pub proof: [u8; PROOF_BYTES],
        /// The offered features that the accepter offers, too: both ends upgrade the link by these.
        pub features: u64,
    }
}

record! {
    /// The answer: the link may not be used.
    pub struct LinkReject {
        /// Why.
        pub reason: LinkRejectReason,
    }
}

record! {
    /// The group is revoked. Every node that hears this passes it on once.
    pub struct LinkRevoke {
        /// The first cause that the sender knows.
        pub failure: Failure,
    }
}

record! {
    /// A sign of life on a watch.
    pub struct LinkBeat {
        /// Whether the sender is connected to its scheduler. Then the scheduler judges.
        pub has_scheduler: bool,
        /// The number of a question, which is to be answered at once. 0: this is no question.
        pub asks: u32,
        /// The number of the question that this answers. 0: none.
        pub answers: u32,
    }
}

record! {
    /// On a watch: the sender believes that a third node may be lost.
    pub struct LinkSuspect {
        /// The index of the suspect.
        pub peer: u32,
        /// What was seen.
        pub evidence: String,
    }
}

/// What stands between frame header and payload of a data frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// The epoch.
    pub epoch: Epoch,
    /// The group.
    pub group: GroupId,
    /// The sequence number of the group's collective.
    pub sequence: u64,
    /// `call.signature()`.
    pub signature: u64,
    /// The readable form of the signature.
    pub call: Call,
    /// What the sender called before on this group: `CallDigest::in_short`.
    pub digest: u32,
}

/// The data header's fields with their padding, without the checksum.
const FIELDS_BYTES: usize = DATA_HEADER_BYTES - CHECKSUM_BYTES;
/// The fields before the digest, with their padding.
const CALL_END: usize = FIELDS_BYTES - size_of::<u32>();

impl DataHeader {
    /// The data header of the world's first collective in epoch 1.
    #[cfg(test)]
    pub fn of_first(call: Call) -> DataHeader {
        let (epoch, group, signature) = (Epoch(1), GroupId::WORLD, call.signature());
        DataHeader { epoch, group, sequence: 1, signature, call, digest: 0 }
    }

    /// The header as it lies on the wire: the fields (zeroes before the last fill them up to 56 bytes), and their crc32.
    pub fn encode(&self) -> [u8; DATA_HEADER_BYTES] {
        self.encode_in(&mut Vec::with_capacity(DATA_HEADER_BYTES))
    }

    /// Like `encode`, with a scratch that is kept from call to call.
    pub fn encode_in(&self, scratch: &mut Vec<u8>) -> [u8; DATA_HEADER_BYTES] {
        scratch.clear();
        let mut to = Encoder { bytes: std::mem::take(scratch) };
        self.epoch.put(&mut to);
        self.group.put(&mut to);
        self.sequence.put(&mut to);
        self.signature.put(&mut to);
        self.call.put(&mut to);
        to.bytes.resize(CALL_END, 0);
        self.digest.put(&mut to);
        crc32fast::hash(&to.bytes).put(&mut to);
        let encoded = to.bytes[..].try_into().expect("fields, padding and checksum add up to DATA_HEADER_BYTES");
        *scratch = to.bytes;
        encoded
    }

    /// The data header that these bytes are.
    pub fn decode(bytes: &[u8; DATA_HEADER_BYTES]) -> Result<DataHeader, WireError> {
        let (fields, sum) = bytes.split_at(FIELDS_BYTES);
        if crc32fast::hash(fields).to_le_bytes() != sum {
            return Err(WireError("a data header with a wrong checksum".to_owned()));
        }
        let (fields, mut last) = (&fields[..CALL_END], Decoder::new(&fields[CALL_END..]));
        let mut from = Decoder::new(fields);
        let header = DataHeader {
            epoch: Wire::take(&mut from)?,
            group: Wire::take(&mut from)?,
            sequence: Wire::take(&mut from)?,
            signature: Wire::take(&mut from)?,
            call: Wire::take(&mut from)?,
            digest: Wire::take(&mut last)?,
        };
        if from.remainder().iter().any(|byte| *byte != 0) {
            return Err(WireError("a data header with something in its padding".to_owned()));
        }
        Ok(header)
    }
}
