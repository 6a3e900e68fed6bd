//! Messages between two members of a group: what stands before each part of one on its link.

use super::codec::{code, Decoder, Encoder, Wire, WireError};
use super::frame::{CHECKSUM_BYTES, PIECE_BYTES};
use super::nouns::{put_elements, take_elements};
use crate::types::{DType, Epoch, GroupId};

/// How long a message header is, its checksum included; as long as a data header.
pub const MESSAGE_HEADER_BYTES: usize = super::DATA_HEADER_BYTES;
/// Up to so many bytes a message is eager: it is sent without asking, and its receiver keeps it until it is wanted.
pub const EAGER_MAX: usize = 64 << 10;
/// How much a receiver keeps of one peer's eager messages, each counted with [`EAGER_COST`]; a message beyond that asks first, by an RTS.
pub const EAGER_CREDIT: u64 = 16 << 20;
/// What an eager message costs beside its bytes: about what it takes in tables, so that many empty ones are bounded, too.
pub const EAGER_COST: u64 = 512;
/// How many messages a sender may have announced to one receiver by an RTS that are neither done with nor given up. Others wait at
/// the sender.
pub const RTS_MAX: usize = 1 << 16;
/// The longest piece of a message that was cleared to send. Between two pieces other things may be said.
pub const MESSAGE_PIECE_BYTES: usize = PIECE_BYTES;

code! {
    /// Which part of the talk about a message this is.
    pub enum MessagePart {
        /// From the sender: the whole of an eager message; the payload follows.
        Eager = 1,
        /// From the sender: a message asks for leave to come (request to send).
        Rts = 2,
        /// From the receiver: the message of this number may come (clear to send).
        Cts = 3,
        /// From the sender: the next bytes of a message that was cleared to send; the payload follows.
        Piece = 4,
        /// From the sender: the announced message will not come, or not to its end.
        Withdraw = 5,
        /// From the receiver: the receive that it met does not fit. Element type and count are the receive's.
        Refuse = 6,
        /// From the receiver: the receive that it met has been given up; or the recalled message has met none, and is forgotten.
        Drop = 7,
        /// From the receiver: so much (`count`) of the sender's credit has become free.
        Credit = 8,
        /// From the sender: the announced message is to be taken back, if no receive has met it.
        Recall = 9,
    }
}

/// What stands between frame header and payload of a message frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHeader {
    /// The epoch.
    pub epoch: Epoch,
    /// The group.
    pub group: GroupId,
    /// Which part.
    pub part: MessagePart,
    /// The element type.
    pub dtype: DType,
    /// The sender's tag.
    pub tag: i32,
    /// The message's number among those from this sender to this receiver, from 1; 0 for a credit.
    pub number: u64,
    /// Elements of the whole message.
    pub count: u64,
}

/// The message header's fields, without padding and checksum.
const FIELDS_BYTES: usize = MESSAGE_HEADER_BYTES - CHECKSUM_BYTES;

impl MessageHeader {
    /// The header as it lies on the wire: the fields, zeroes up to 60 bytes, their crc32.
    pub fn encode(&self) -> [u8; MESSAGE_HEADER_BYTES] {
        self.encode_in(&mut Vec::with_capacity(MESSAGE_HEADER_BYTES))
    }

    /// Like `encode`, with a scratch that is kept from frame to frame.
    pub fn encode_in(&self, scratch: &mut Vec<u8>) -> [u8; MESSAGE_HEADER_BYTES] {
        scratch.clear();
        let mut to = Encoder { bytes: std::mem::take(scratch) };
        self.epoch.put(&mut to);
        self.group.put(&mut to);
        let (dtype, count) = put_elements(Some(self.dtype), self.count);
        self.part.put(&mut to);
        dtype.put(&mut to);
        self.tag.put(&mut to);
        self.number.put(&mut to);
        count.put(&mut to);
        to.bytes.resize(FIELDS_BYTES, 0);
        crc32fast::hash(&to.bytes).put(&mut to);
        let encoded = to.bytes[..].try_into().expect("fields, padding and checksum add up to MESSAGE_HEADER_BYTES");
        *scratch = to.bytes;
        encoded
    }

    /// The message header that these bytes are.
    pub fn decode(bytes: &[u8; MESSAGE_HEADER_BYTES]) -> Result<MessageHeader, WireError> {
        let (fields, sum) = bytes.split_at(FIELDS_BYTES);
        if crc32fast::hash(fields).to_le_bytes() != sum {
            return Err(WireError("a message header with a wrong checksum".to_owned()));
        }
        let mut from = Decoder::new(fields);
        let (epoch, group, part) = (Wire::take(&mut from)?, Wire::take(&mut from)?, Wire::take(&mut from)?);
        let code = u8::take(&mut from)?;
        let (tag, number, count) = (Wire::take(&mut from)?, Wire::take(&mut from)?, Wire::take(&mut from)?);
        let (dtype, count) = take_elements(code, count)?;
        let dtype = dtype.ok_or_else(|| WireError("a message without an element type".to_owned()))?;
        let header = MessageHeader { epoch, group, part, dtype, tag, number, count };
        if from.remainder().iter().any(|byte| *byte != 0) {
            return Err(WireError("a message header with something in its padding".to_owned()));
        }
        Ok(header)
    }

    /// The message's bytes, if that is a number that memory can hold.
    pub fn bytes(&self) -> Option<usize> {
        self.dtype.bytes_of(self.count)
    }
}
