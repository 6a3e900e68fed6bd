//! One control connection: messages over a transport, urgent ones between the pieces of bulk ones.
//!
//! Owns the transport, the bytes that came in and make no message yet, and the queues of messages to go out. Messages
//! are encoded when their turn comes, so that a large value waits once, however many it goes to. Invariant: where nothing
//! waits, neither to come in nor to go out, it holds no memory for it. Tested in `control_test.rs` over a transport that
//! does what it is told.

use crate::net::{is_refusal, is_unproved, Transport};
use crate::wire::{peek_frame, Lane, Message, WireError, CONTROL_PAYLOAD_MAX, MAGIC, UNREGISTERED_PAYLOAD_MAX};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};

/// How much is read at a time; a driver keeps one buffer of this size for all its connections.
pub const READ_BYTES: usize = 64 << 10;
/// How large that buffer is at first: memory that no node needs is not touched.
pub const FIRST_READ_BYTES: usize = 4 << 10;
/// How much is encoded before it is written.
const BATCH_BYTES: usize = 64 << 10;
/// Bulk messages go out together up to this size: a request to the store and its short value are one packet, and wake
/// one thread once.
const BULK_BATCH_BYTES: usize = 4 << 10;
/// How much may wait in our kernel to be sent. An urgent message waits behind these bytes; without a bound the kernel
/// takes several MiB.
const UNSENT_BYTES: u32 = 128 << 10;
/// How many messages may wait to go out. If more are waiting, the peer does not read.
const QUEUE_MAX: usize = 1 << 16;
/// How much is read from one connection before others get their turn.
const ROUND_BYTES: usize = 1 << 20;

/// Why a control connection can no longer be used.
#[derive(Debug)]
pub enum ControlEnd {
    /// The peer ended it, in order or by reset.
    Ended(String),
    /// The network broke it.
    Broken(String),
    /// The peer sent something that breaks this protocol's rules or limits.
    Garbage(String),
    /// The peer sent something that belongs to no version of this protocol.
    Strange(String),
    /// The peer speaks TLS, and this side does not.
    Encrypted(String),
    /// With TLS: one side does not take the other.
    Refused(String),
}

impl ControlEnd {
    /// The reason in words.
    pub fn reason(&self) -> &str {
        match self {
            ControlEnd::Ended(reason)
            | ControlEnd::Broken(reason)
            | ControlEnd::Garbage(reason)
            | ControlEnd::Strange(reason)
            | ControlEnd::Encrypted(reason)
            | ControlEnd::Refused(reason) => reason,
        }
    }

    /// How an error of the transport has ended the connection.
    pub fn from_io(error: &io::Error) -> ControlEnd {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        match error.kind() {
            _ if is_refusal(error) || is_unproved(error) => ControlEnd::Refused(error.to_string()),
            ConnectionReset | ConnectionAborted | BrokenPipe | UnexpectedEof => ControlEnd::Ended(error.to_string()),
            io::ErrorKind::InvalidData => ControlEnd::Garbage(error.to_string()),
            _ => ControlEnd::Broken(error.to_string()),
        }
    }
}

/// A message, or a frame that cannot be decoded as one (its kind, its payload, the reason).
pub type Arrival = Result<Message, (u8, Vec<u8>, WireError)>;

/// One connection between a node and its scheduler.
pub struct ControlLink {
    /// The connection itself.
    pub transport: Box<dyn Transport>,
    inbound: Vec<u8>,
    payload_max: u64,
    urgent: VecDeque<Message>,
    bulk: VecDeque<Message>,
    outbound: Vec<u8>,
    written: usize,
    /// The transport may still hold a part of what it took.
    unflushed: bool,
    /// The reason why nothing can be written any more. It ends the connection once all is read that the peer said
    /// before.
    unwritable: Option<Box<ControlEnd>>,
    node: u32,
}

impl ControlLink {
    /// A fresh connection, on which only registration is spoken yet.
    pub fn new(mut transport: Box<dyn Transport>) -> ControlLink {
        transport.bound_unsent(UNSENT_BYTES);
        ControlLink {
            transport,
            inbound: Vec::new(),
            payload_max: UNREGISTERED_PAYLOAD_MAX,
            urgent: VecDeque::new(),
            bulk: VecDeque::new(),
            outbound: Vec::new(),
            written: 0,
            unflushed: false,
            unwritable: None,
            node: 0,
        }
    }

    /// The other side is known: longer messages are welcome.
    pub fn trust(&mut self) {
        self.payload_max = CONTROL_PAYLOAD_MAX;
    }

    /// The node index that frames carry from now on.
    pub fn set_node(&mut self, node: u32) {
        self.node = node;
    }

    /// Puts a message into its queue. A message that can no longer be written is dropped: the end is on its way.
    pub fn queue(&mut self, message: Message) -> Result<(), ControlEnd> {
        if self.unwritable.is_some() {
            return Ok(());
        }
        // A part of a status is long, and its reader may be a stranger: only one waits in the queue.
        if matches!(message, Message::StatusPart(_)) && self.has_outbound() {
            return Err(ControlEnd::Garbage("it asks for more before it has read what it was told".to_owned()));
        }
        let lane = match message.lane() {
            Lane::Urgent => &mut self.urgent,
            Lane::Bulk => &mut self.bulk,
        };
        if lane.len() >= QUEUE_MAX {
            return Err(ControlEnd::Broken(format!("{QUEUE_MAX} messages wait for it: it does not read")));
        }
        lane.push_back(message);
        Ok(())
    }

    /// Whether anything still has to go out.
    pub fn has_outbound(&self) -> bool {
        self.unflushed || self.written < self.outbound.len() || !self.urgent.is_empty() || !self.bulk.is_empty()
    }

    /// Writes as much as the transport takes. Returns false once nothing can be written any more: then this connection
    /// is to be read without waiting. A goodbye or a verdict that the peer sent before it closed may lie there; the end
    /// comes behind it.
    pub fn write(&mut self) -> bool {
        if self.unwritable.is_none() {
            self.unwritable = self.try_to_write().err().map(Box::new);
        }
        if self.unwritable.is_some() {
            (self.outbound, self.urgent, self.bulk) = Default::default();
            (self.written, self.unflushed) = (0, false);
        }
        self.unwritable.is_none()
    }

    fn try_to_write(&mut self) -> Result<(), ControlEnd> {
        loop {
            if self.written == self.outbound.len() {
                self.outbound.clear();
                self.written = 0;
                self.encode_batch();
                if self.outbound.is_empty() {
                    // Both queues are empty, too.
                    (self.outbound, self.urgent, self.bulk) = Default::default();
                    self.unflushed = would_block_is_fine(self.transport.flush())?.is_none();
                    return Ok(());
                }
            }
            let sent = self.transport.write(&[IoSlice::new(&self.outbound[self.written..])]);
            match would_block_is_fine(sent)? {
                Some(count) => {
                    self.written += count;
                    self.unflushed = true;
                }
                None => return Ok(()),
            }
        }
    }

    /// Encodes urgent messages first; then one bulk message, or a few short ones, so that an urgent one never waits
    /// behind many.
    fn encode_batch(&mut self) {
        while self.outbound.len() < BATCH_BYTES {
            let Some(message) = self.urgent.pop_front() else { break };
            self.encode(&message);
        }
        if !self.outbound.is_empty() {
            return;
        }
        while self.outbound.len() < BULK_BATCH_BYTES {
            let Some(message) = self.bulk.pop_front() else { break };
            self.encode(&message);
        }
    }

    fn encode(&mut self, message: &Message) {
        crate::wire::encode_frame(message.kind(), self.node, &message.encode(), &mut self.outbound);
    }

    /// Reads what is there, through a scratch buffer that grows when it was full, into `arrivals`. Returns whether any byte
    /// came in, and whether more is to be read without waiting. An end of the connection is returned only when everything
    /// before it is in `arrivals`.
    pub fn read(&mut self, through: &mut Vec<u8>, arrivals: &mut Vec<Arrival>) -> Result<Heard, ControlEnd> {
        let mut heard = Heard::default();
        let mut round = 0;
        loop {
            match self.transport.read(&mut [IoSliceMut::new(through)]) {
                Ok(0) => return Err(ControlEnd::Ended("it closed the connection".to_owned())),
                Ok(count) => {
                    self.inbound.extend_from_slice(&through[..count]);
                    heard.any = true;
                    round += count;
                    self.decode(arrivals)?;
                    if count == through.len() && count < READ_BYTES {
                        through.resize((2 * count).min(READ_BYTES), 0);
                    }
                    if round >= ROUND_BYTES {
                        heard.more = true;
                        return Ok(heard);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.inbound.is_empty() {
                        self.inbound = Vec::new(); // an idle connection holds no buffer
                    }
                    return self.has_read_all(heard.any);
                }
                Err(error) => return Err(ControlEnd::from_io(&error)),
            }
        }
    }

    /// Passes over what is there, and holds none of it. Otherwise as `read`.
    pub fn pass_over(&mut self, through: &mut [u8]) -> Result<Heard, ControlEnd> {
        self.inbound = Vec::new();
        let mut round = 0;
        while round < ROUND_BYTES {
            match self.transport.read(&mut [IoSliceMut::new(through)]) {
                Ok(0) => return Err(ControlEnd::Ended("it closed the connection".to_owned())),
                Ok(count) => round += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.has_read_all(round > 0),
                Err(error) => return Err(ControlEnd::from_io(&error)),
            }
        }
        Ok(Heard { any: true, more: true })
    }

    /// The socket has no more bytes now. If nothing can be written, that is the end.
    fn has_read_all(&mut self, any: bool) -> Result<Heard, ControlEnd> {
        let more = self.transport.holds_readable();
        let end = if more { None } else { self.unwritable.take() };
        end.map_or(Ok(Heard { any, more }), |end| Err(*end))
    }

    fn decode(&mut self, arrivals: &mut Vec<Arrival>) -> Result<(), ControlEnd> {
        let mut taken = 0;
        loop {
            match peek_frame(&self.inbound[taken..], self.payload_max) {
                Ok(Some((frame, bytes))) => {
                    taken += bytes;
                    let kind = frame.header.kind;
                    let arrival = Message::decode(kind, &frame.payload);
                    let arrival = arrival.map_err(|error| (kind, frame.payload.into_owned(), error));
                    if matches!(arrival, Ok(Message::Register(_))) {
                        self.trust();
                    }
                    arrivals.push(arrival);
                }
                Ok(None) => break,
                Err(error) if error.is_tls() => return Err(ControlEnd::Encrypted(error.0)),
                Err(error) if !error.is_damage() && !self.inbound[taken..].starts_with(&MAGIC.to_le_bytes()) => {
                    return Err(ControlEnd::Strange(error.0));
                }
                Err(error) => return Err(ControlEnd::Garbage(error.0)),
            }
        }
        self.inbound.drain(..taken);
        Ok(())
    }
}

/// What a round of reading has brought.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    /// Whether at least one byte came.
    pub any: bool,
    /// Whether there may be more, of which the poller will not tell.
    pub more: bool,
}

fn would_block_is_fine<T>(result: io::Result<T>) -> Result<Option<T>, ControlEnd> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(ControlEnd::from_io(&error)),
    }
}

#[cfg(test)]
#[path = "control_test.rs"]
pub(crate) mod tests;
