//! One data-plane link: frames over a transport, straight from and into the memory of the call.
//!
//! Owns the transport, up to [`INBOUND_BYTES`] that were read ahead, and the frame that is going out. Sends from the caller's memory and
//! receives into it; each piece's checksum is taken while the piece lies in the cache. Knows nothing of groups or of what a failure means:
//! its driver is told what happened ([`LinkEnd`], [`Arrival`]). Tested in `link_test.rs`, over plain TCP and over the test link.

use super::keepalive::KeepAlive;
pub(crate) use super::link_end::LinkEnd;
use super::link_end::{corrupt, ended, PeerEnd};
use super::outgoing::{Outgoing, HEAD_BYTES, PACKED_BYTES};
use super::sink::Sink;
use crate::error::Failure;
use crate::net::Transport;
use crate::runtime::memory::buffer::Memory;
use crate::schedules::Span;
use crate::types::Time;
use crate::wire::{
    peek_frame, DataHeader, Decoder, FrameHeader, LinkKind, LinkRevoke, MessageHeader, Wire, CHECKSUM_BYTES,
    DATA_HEADER_BYTES, FLAG_UNCHECKED, HEADER_BYTES, PIECE_BYTES,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::RawFd;
use std::time::Duration;

/// How much is read ahead at most: room for every frame that is no data frame, and for a checksum and the next header.
const INBOUND_BYTES: usize = 16 << 10;
/// The longest payload of a frame that is no data frame. Such a frame fits into that room as a whole.
const SMALL_PAYLOAD_MAX: u64 = (INBOUND_BYTES - HEADER_BYTES - CHECKSUM_BYTES) as u64;
/// How much room a new link has for reading ahead. It grows when it is full.
const FIRST_INBOUND_BYTES: usize = 2 << 10;
/// A payload of at least this length is received straight to where it belongs.
const DIRECT_BYTES: usize = 2 << 10;
/// How many signs of life may come in a row while they are read: more than the system's buffers hold, and than a peer sends in days.
const SIGNS_MAX: u32 = 1 << 20;

/// What stands next on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A data frame: its head; its payload is still to be received.
    Data(FrameHeader, DataHeader),
    /// A message's frame: its head; its payload, which may be empty, is still to be received.
    Message(FrameHeader, MessageHeader),
    /// The peer revokes the group.
    Revoke(Failure),
    /// The peer has left the cluster.
    Leave,
}

/// How far a transfer got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// To its end.
    Done,
    /// Some bytes.
    Some,
    /// Not at all: the transport would block.
    Nothing,
}

/// What stands before a payload.
#[derive(Clone, Copy)]
enum Head {
    Data(DataHeader),
    Message(MessageHeader),
}

impl Head {
    fn decode(kind: LinkKind, bytes: &[u8; DATA_HEADER_BYTES]) -> Result<Head, LinkEnd> {
        match kind {
            LinkKind::Message => MessageHeader::decode(bytes).map(Head::Message),
            _ => DataHeader::decode(bytes).map(Head::Data),
        }
        .map_err(corrupt)
    }

    fn arrival(self, header: FrameHeader) -> Arrival {
        match self {
            Head::Data(data) => Arrival::Data(header, data),
            Head::Message(message) => Arrival::Message(header, message),
        }
    }
}

struct Incoming {
    header: FrameHeader,
    head: Head,
    /// Payload bytes of the pieces that are complete.
    landed: usize,
    /// Payload bytes of the piece that is being received.
    of_piece: usize,
}

/// One link to one peer.
pub struct Link {
    transport: Box<dyn Transport>,
    inbound: Vec<u8>,
    from: usize,
    to: usize,
    incoming: Option<Incoming>,
    outgoing: Option<Outgoing>,
    packed: Vec<u8>,
    peer_end: PeerEnd,
    /// Whether a data frame or a message's frame has come.
    spoken: bool,
    /// Whether the peer's kernel answers.
    keep_alive: KeepAlive,
    /// Whether what goes out carries checksums, unless the transport is intact by itself.
    checksums: bool,
}

impl Link {
    /// A link over a transport on which the handshake is done; `ahead` was read behind the handshake.
    pub fn new(transport: Box<dyn Transport>, ahead: &[u8]) -> Link {
        let room = if ahead.len() < FIRST_INBOUND_BYTES { FIRST_INBOUND_BYTES } else { INBOUND_BYTES.max(ahead.len()) };
        let mut inbound = vec![0; room];
        inbound[..ahead.len()].copy_from_slice(ahead);
        Link {
            transport,
            inbound,
            from: 0,
            to: ahead.len(),
            incoming: None,
            outgoing: None,
            packed: Vec::with_capacity(PACKED_BYTES),
            peer_end: PeerEnd::Open,
            spoken: false,
            keep_alive: KeepAlive::default(),
            checksums: true,
        }
    }

    /// The same link, which sends checksums only where they are wanted.
    pub(crate) fn with_checksums(mut self, wanted: bool) -> Link {
        self.checksums &= wanted;
        self
    }

    /// The transport, to be watched.
    pub fn transport(&mut self) -> &mut dyn Transport {
        self.transport.as_mut()
    }

    /// Whether the transport holds bytes of which the poller does not know.
    pub fn holds_readable(&self) -> bool {
        self.transport.holds_readable()
    }

    /// Whether the peer has sent anything that a call waits for.
    pub fn has_spoken(&self) -> bool {
        self.spoken
    }

    /// Whether a data frame stands next that nobody has asked for yet: what is behind it cannot be seen.
    pub fn is_waited_for(&self) -> bool {
        self.incoming.is_some()
    }

    /// Begins to send a data frame or a message's frame. The frame before it must be done.
    pub fn start_send(&mut self, kind: LinkKind, behind: &[u8; DATA_HEADER_BYTES], span: Span) {
        assert!(self.outgoing.is_none(), "one frame at a time goes out");
        let checksums = self.checksums && !self.transport.is_intact();
        self.outgoing = Some(Outgoing::new(kind, behind, span, checksums));
    }

    /// Writes as much of the frame as the transport takes at once.
    pub fn send(&mut self, memory: &Memory<'_>) -> Result<Moved, LinkEnd> {
        let Some(out) = &mut self.outgoing else { return Ok(Moved::Done) };
        if !self.keep_alive.go_on(&mut *self.transport).map_err(|error| ended(&error))? {
            return Ok(Moved::Nothing);
        }
        let written = out.write(&mut *self.transport, memory, &mut self.packed);
        match would_block(written).map_err(|error| ended(&error))? {
            None => Ok(Moved::Nothing),
            Some(false) => Ok(Moved::Some),
            Some(true) => match would_block(self.transport.flush()).map_err(|error| ended(&error))? {
                None => Ok(Moved::Nothing),
                Some(()) => {
                    self.outgoing = None;
                    Ok(Moved::Done)
                }
            },
        }
    }

    /// Returns what stands next, if it is all here: a data frame's head (at each call, until its payload is received), or,
    /// once, a whole frame of another kind.
    pub fn peek(&mut self) -> Result<Option<Arrival>, LinkEnd> {
        let mut passed = 0;
        loop {
            match self.parse(&mut passed)? {
                None if self.fill()? => {}
                arrival => return Ok(arrival),
            }
        }
    }

    /// What to sleep on.
    pub fn descriptor(&self) -> RawFd {
        self.transport.descriptor()
    }

    /// Whether the poller has said so: the peer will send nothing more.
    pub fn end_is_noted(&self) -> bool {
        self.peer_end != PeerEnd::Open
    }

    /// Like `peek`, for a caller that knows which payload should come. If it is long, the part that is there lands at once where
    /// it belongs, and `receive` finds it there. If another frame comes, its bytes are put behind its head, as if read ahead.
    #[inline]
    pub fn peek_for(&mut self, sink: &Sink<'_>, scratch: &mut [u8]) -> Result<Option<Arrival>, LinkEnd> {
        let total = sink.total();
        if self.incoming.is_some() || self.from < self.to || total < DIRECT_BYTES {
            return self.peek();
        }
        let length = PIECE_BYTES.min(total);
        let (head, behind) = self.inbound.split_at_mut(HEAD_BYTES);
        // There is room for a checksum behind the piece. If the payload is one piece, that is the whole frame.
        let around = (&mut *head, &mut behind[..CHECKSUM_BYTES]);
        let got = sink.read_first(length, scratch, around, |into| self.transport.read(into));
        let Some(count) = taken(got)? else { return Ok(None) };
        let landed = count.saturating_sub(HEAD_BYTES).min(length);
        (self.from, self.to) = (0, count - landed);
        if landed == 0 {
            return self.peek();
        }
        let header = head.first_chunk().and_then(|head| FrameHeader::decode(head).ok());
        if header.is_some_and(|header| is_long(header.kind) && header.length == total as u64) {
            let arrival = self.parse(&mut 0)?;
            if let Some(incoming) = &mut self.incoming {
                incoming.of_piece = landed;
            }
            return Ok(arrival);
        }
        let end = count.max(self.inbound.len());
        self.inbound.resize(end, 0);
        self.inbound.copy_within(HEAD_BYTES..self.to, HEAD_BYTES + landed);
        self.inbound[HEAD_BYTES..][..landed].copy_from_slice(&sink.target(0, length, scratch)[..landed]);
        self.to = count;
        self.peek()
    }

    /// Notes what the poller says: whether the peer will send nothing more.
    pub fn note_end(&mut self, closed: bool) {
        self.peer_end.note(closed);
    }

    /// Returns the revocation behind the data frame that stands next, if nobody has asked for that frame and the peer will send
    /// nothing more. Reads all that there is, which is no more than the system's buffers hold. Looks once.
    pub fn peers_last_word(&mut self) -> Option<Failure> {
        let waiting = self.incoming.as_ref().filter(|incoming| incoming.landed == 0 && incoming.of_piece == 0)?;
        if !self.peer_end.look() {
            return None;
        }
        let behind = body_bytes(&waiting.header);
        while self.fill_on() {}
        self.revocation(behind)
    }

    /// The revocation among what was read ahead behind a frame that has just been received, if there is one.
    pub fn word_behind(&self) -> Option<Failure> {
        self.revocation(0)
    }

    /// The revocation that was read ahead, `at` bytes from here or behind further data frames.
    fn revocation(&self, mut at: usize) -> Option<Failure> {
        loop {
            let here = self.inbound[self.from..self.to].get(at..)?;
            let header = FrameHeader::decode(here.first_chunk()?).ok()?;
            if is_long(header.kind) {
                at = at.checked_add(HEAD_BYTES)?.checked_add(body_bytes(&header))?;
                continue;
            }
            let (frame, taken) = peek_frame(here, SMALL_PAYLOAD_MAX).ok()??;
            if frame.header.kind == LinkKind::KeepAlive as u8 {
                at += taken;
                continue;
            }
            let revokes = frame.header.kind == LinkKind::Revoke as u8;
            return revokes
                .then(|| LinkRevoke::take(&mut Decoder::new(&frame.payload)).ok())
                .flatten()
                .map(|it| it.failure);
        }
    }

    /// Reads on into a buffer that grows. Returns whether anything came.
    fn fill_on(&mut self) -> bool {
        if self.to == self.inbound.len() {
            self.inbound.resize(2 * self.inbound.len(), 0);
        }
        let got = self.transport.read(&mut [IoSliceMut::new(&mut self.inbound[self.to..])]);
        self.to += *got.as_ref().unwrap_or(&0);
        got.is_ok_and(|count| count > 0)
    }

    fn parse(&mut self, signs_passed: &mut u32) -> Result<Option<Arrival>, LinkEnd> {
        loop {
            if *signs_passed > SIGNS_MAX {
                return Err(LinkEnd::Corrupt("signs of life without end".to_owned()));
            }
            if let Some(incoming) = &self.incoming {
                return Ok(Some(incoming.head.arrival(incoming.header)));
            }
            let here = &self.inbound[self.from..self.to];
            let Some(head) = here.first_chunk::<HEADER_BYTES>() else {
                // Bytes that cannot become a header are refused before there are as many as a header has.
                return peek_frame(here, SMALL_PAYLOAD_MAX).map(|_| None).map_err(corrupt);
            };
            let header = FrameHeader::decode(head).map_err(corrupt)?;
            let kind = LinkKind::from_code(header.kind).map_err(corrupt)?;
            if is_long(header.kind) {
                let Some(head) = here[HEADER_BYTES..].first_chunk::<DATA_HEADER_BYTES>() else { return Ok(None) };
                let head = Head::decode(kind, head)?;
                self.from += HEAD_BYTES;
                self.incoming = Some(Incoming { header, head, landed: 0, of_piece: 0 });
                self.spoken = true;
                continue;
            }
            let Some((frame, taken)) = peek_frame(here, SMALL_PAYLOAD_MAX).map_err(corrupt)? else { return Ok(None) };
            self.from += taken;
            let mut payload = Decoder::new(&frame.payload);
            let arrival = match kind {
                LinkKind::Revoke => Some(Arrival::Revoke(LinkRevoke::take(&mut payload).map_err(corrupt)?.failure)),
                LinkKind::Leave => Some(Arrival::Leave),
                LinkKind::KeepAlive => None, // it has been acknowledged
                other => return Err(LinkEnd::Corrupt(format!("{other:?} in the middle of a link"))),
            };
            payload.finish().map_err(corrupt)?;
            if arrival.is_some() {
                return Ok(arrival);
            }
            *signs_passed += 1;
        }
    }

    /// Reads ahead. Returns whether any byte came.
    fn fill(&mut self) -> Result<bool, LinkEnd> {
        self.inbound.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        self.widen();
        let got = self.transport.read(&mut [IoSliceMut::new(&mut self.inbound[self.to..])]);
        let count = taken(got)?.unwrap_or(0);
        self.to += count;
        self.widen();
        Ok(count > 0)
    }

    /// Gives the buffer its full size once it has been full: then more comes at a time, or a larger frame.
    fn widen(&mut self) {
        if self.to == self.inbound.len() && self.to < INBOUND_BYTES {
            self.inbound.resize(INBOUND_BYTES, 0);
        }
    }

    /// Receives what is there of the payload whose head `peek` gave. If `sink` combines, `scratch` is as long as it needs.
    pub fn receive(&mut self, sink: &Sink<'_>, scratch: &mut [u8]) -> Result<Moved, LinkEnd> {
        let Some(incoming) = &mut self.incoming else { return Ok(Moved::Nothing) };
        let total = incoming.header.length as usize;
        let checked = incoming.header.flags & FLAG_UNCHECKED == 0;
        let mut moved = Moved::Nothing;
        while incoming.landed < total {
            let length = PIECE_BYTES.min(total - incoming.landed);
            let target = sink.target(incoming.landed, length, scratch);
            // What was read ahead comes first.
            let ahead = (length - incoming.of_piece).min(self.to - self.from);
            target[incoming.of_piece..][..ahead].copy_from_slice(&self.inbound[self.from..][..ahead]);
            self.from += ahead;
            incoming.of_piece += ahead;
            let tail = if checked { CHECKSUM_BYTES } else { 0 };
            if incoming.of_piece < length || self.to - self.from < tail {
                // The rest of the piece goes where it belongs, and its checksum into `inbound`. Nothing that follows is
                // read ahead: it would be copied once more.
                self.inbound.copy_within(self.from..self.to, 0);
                self.to -= self.from;
                self.from = 0;
                let wanted = length - incoming.of_piece;
                let ahead = &mut self.inbound[self.to..tail.max(self.to)];
                let of = (incoming.landed, length, incoming.of_piece);
                let got = sink.read_on(of, scratch, ahead, |into| self.transport.read(into));
                let Some(count) = taken(got)? else { return Ok(moved) };
                moved = Moved::Some;
                incoming.of_piece += count.min(wanted);
                self.to += count.saturating_sub(wanted);
                if incoming.of_piece < length || self.to - self.from < tail {
                    continue;
                }
            }
            if checked {
                let said = &self.inbound[self.from..][..CHECKSUM_BYTES];
                let checksum = crc32fast::hash(sink.target(incoming.landed, length, scratch));
                if checksum.to_le_bytes() != said {
                    return Err(LinkEnd::Corrupt("a payload with a wrong checksum".to_owned()));
                }
                self.from += CHECKSUM_BYTES;
                sink.note_checksum(incoming.landed, length, checksum);
            }
            sink.take_in(incoming.landed, length, scratch);
            incoming.landed += length;
            incoming.of_piece = 0;
            moved = Moved::Some;
        }
        self.incoming = None;
        Ok(Moved::Done)
    }

    /// Whether a part of a frame has gone out, and the rest has not.
    pub fn is_mid_frame(&self) -> bool {
        self.keep_alive.is_mid_frame() || self.outgoing.as_ref().is_some_and(Outgoing::has_begun)
    }

    /// Sends a small frame that is no data frame, if that is possible at once: not in the middle of another frame.
    /// Then says that nothing more will follow. A failure is not reported: the link is being given up.
    pub fn say_last(&mut self, frame: &[u8]) {
        let frame = if self.is_mid_frame() { &[] } else { frame };
        say_at_once(&mut *self.transport, frame);
        self.outgoing = None;
        let _ = self.transport.shutdown_write();
    }

    /// Like `say_last`, for a caller that can wait: sends what the transport takes of `rest`, which is left of a small frame.
    /// `Done`: all has gone, and the peer is told that nothing more follows. Not to be called in the middle of a frame.
    pub fn say_on(&mut self, rest: &mut Vec<u8>) -> Result<Moved, LinkEnd> {
        self.outgoing = None;
        let (transport, keep_alive) = (&mut self.transport, &mut self.keep_alive);
        let mut go_on = || {
            if !keep_alive.go_on(&mut **transport)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            while !rest.is_empty() {
                let count = transport.write(&[IoSlice::new(rest)])?;
                rest.drain(..count);
            }
            transport.flush()
        };
        match go_on() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Moved::Nothing),
            Err(error) => return Err(ended(&error)),
        }
        let _ = self.transport.shutdown_write(); // the link is being given up
        Ok(Moved::Done)
    }

    /// Returns for how long the peer's kernel has owed an answer, as far as looks have shown. If nothing is under way, a look
    /// sends it something to answer, so repeated looks find out. `late`: how much later this look comes than it should.
    pub fn silence(&mut self, now: Time, late: Duration) -> Duration {
        self.keep_alive.look(&mut *self.transport, now, late, self.outgoing.is_none())
    }

    /// How many bytes have not reached the peer's kernel yet.
    pub fn unsent(&self) -> usize {
        self.transport.unsent()
    }
}

/// Whether a frame of this kind has a header of its own, and a payload of any length.
fn is_long(kind: u8) -> bool {
    kind == LinkKind::Data as u8 || kind == LinkKind::Message as u8
}

/// How long a data frame's payload is with its checksums.
fn body_bytes(header: &FrameHeader) -> usize {
    let length = header.length as usize;
    let checks = if header.flags & FLAG_UNCHECKED == 0 { length.div_ceil(PIECE_BYTES) * CHECKSUM_BYTES } else { 0 };
    length.saturating_add(checks)
}

/// The count, or `None` if the transport would block; an end is an error.
fn taken(got: io::Result<usize>) -> Result<Option<usize>, LinkEnd> {
    match got {
        Ok(0) => Err(LinkEnd::Ended("its end of the link was closed".to_owned())),
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(ended(&error)),
    }
}

pub(super) fn would_block<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        result => result.map(Some),
    }
}

/// Sends a small frame before the connection is given up, as far as the transport takes it at once, and flushes it: a transport
/// may hold what it took. If the transport takes less, the peer only sees the connection end, and nothing is reported.
pub(crate) fn say_at_once(transport: &mut dyn Transport, frame: &[u8]) {
    transport.go_as_it_is();
    let mut rest = frame;
    while !rest.is_empty() {
        let Ok(count) = transport.write(&[IoSlice::new(rest)]) else { break };
        rest = &rest[count..];
    }
    let _ = transport.flush();
}

#[cfg(test)]
#[path = "link_test.rs"]
mod tests;
