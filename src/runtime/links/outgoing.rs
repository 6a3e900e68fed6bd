//! A data frame or a message's frame that is going out: its head, and its payload piece by piece out of the caller's memory.
//! Tested with the link that it is on, in `link_test.rs`.

use crate::net::Transport;
use crate::runtime::memory::buffer::Memory;
use crate::schedules::Span;
use crate::wire::{
    FrameHeader, LinkKind, CHECKSUM_BYTES, DATA_HEADER_BYTES, FLAG_UNCHECKED, HEADER_BYTES, PIECE_BYTES,
};
use std::io::{self, IoSlice};

/// How long the head of a frame is, the header of what it carries included.
pub(crate) const HEAD_BYTES: usize = HEADER_BYTES + DATA_HEADER_BYTES;
/// A frame of at most this length, checksums included, is copied into one piece: that costs less than to send three.
pub(crate) const PACKED_BYTES: usize = 2 << 10;

/// How many pieces are sent at a time at most: the more the system is given at once, the less it costs.
const BATCH_PIECES: usize = 2;

/// One frame.
pub(crate) struct Outgoing {
    head: [u8; HEAD_BYTES],
    span: Span,
    unchecked: bool,
    /// The frame is short, and lies in one piece in the link's scratch.
    packed: bool,
    /// Bytes of the frame that are written, checksums included.
    written: usize,
    /// The checksums of the pieces that are being written, and the number of the first of them.
    checksums: [[u8; CHECKSUM_BYTES]; BATCH_PIECES],
    checksums_from: usize,
}

impl Outgoing {
    /// A frame of which nothing is written yet.
    pub(crate) fn new(kind: LinkKind, behind: &[u8; DATA_HEADER_BYTES], span: Span, checksums: bool) -> Outgoing {
        let flags = if checksums { 0 } else { FLAG_UNCHECKED };
        let header = FrameHeader { kind: kind as u8, flags, node: 0, length: span.len as u64 };
        let mut head = [0; HEAD_BYTES];
        head[..HEADER_BYTES].copy_from_slice(&header.encode());
        head[HEADER_BYTES..].copy_from_slice(behind);
        let (unchecked, checksums) = (!checksums, [[0; CHECKSUM_BYTES]; BATCH_PIECES]);
        Outgoing { head, span, unchecked, packed: false, written: 0, checksums, checksums_from: usize::MAX }
    }

    /// Whether a part of it has gone out.
    pub(crate) fn has_begun(&self) -> bool {
        self.written > 0
    }

    /// Writes as much as the transport takes at once. Returns whether that was all. `packed` is a scratch that belongs to the
    /// frame until it is written.
    pub(crate) fn write(
        &mut self,
        transport: &mut dyn Transport,
        memory: &Memory<'_>,
        packed: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let tail = if self.unchecked { 0 } else { CHECKSUM_BYTES };
        let total = HEAD_BYTES + self.span.len + self.span.len.div_ceil(PIECE_BYTES) * tail;
        if self.written == total {
            return Ok(true); // the rest is the transport's matter: it may hold bytes that it took
        }
        self.written += if total <= PACKED_BYTES {
            self.pack(memory, packed);
            transport.write(&[IoSlice::new(&packed[self.written..])])?
        } else {
            self.write_pieces(transport, memory, tail)?
        };
        Ok(self.written == total)
    }

    fn pack(&mut self, memory: &Memory<'_>, packed: &mut Vec<u8>) {
        if std::mem::replace(&mut self.packed, true) {
            return;
        }
        packed.clear();
        packed.extend_from_slice(&self.head);
        let bytes = memory.bytes(self.span);
        packed.extend_from_slice(bytes);
        if !self.unchecked && !bytes.is_empty() {
            packed.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
        }
    }

    /// Writes on from where the frame has got to, at most to the end of the batch of pieces.
    fn write_pieces(&mut self, transport: &mut dyn Transport, memory: &Memory<'_>, tail: usize) -> io::Result<usize> {
        // In which piece the next byte of the body lies, and where in it. A piece takes up its length and its checksum.
        let body = self.written.saturating_sub(HEAD_BYTES);
        let (piece, mut within) = (body / (PIECE_BYTES + tail), body % (PIECE_BYTES + tail));
        let first = piece - piece % BATCH_PIECES;
        if tail > 0 && self.checksums_from != first {
            for (number, checksum) in (first..).zip(&mut self.checksums) {
                *checksum = memory.checksum(piece_of(self.span, number)).to_le_bytes();
            }
            self.checksums_from = first;
        }
        let mut slices = [IoSlice::new(&[]); 1 + 2 * BATCH_PIECES];
        slices[0] = IoSlice::new(&self.head[self.written.min(HEAD_BYTES)..]);
        let mut count = 1;
        for (number, checksum) in (first..).zip(&self.checksums).skip(piece - first) {
            let bytes = memory.bytes(piece_of(self.span, number));
            if bytes.is_empty() {
                break;
            }
            slices[count] = IoSlice::new(&bytes[within.min(bytes.len())..]);
            slices[count + 1] = IoSlice::new(&checksum[within.saturating_sub(bytes.len()).min(tail)..tail]);
            (count, within) = (count + 2, 0);
        }
        transport.write(&slices[..count])
    }
}

/// The piece with that number. It is empty behind the last one.
fn piece_of(span: Span, number: usize) -> Span {
    let start = (number * PIECE_BYTES).min(span.len);
    let length = PIECE_BYTES.min(span.len - start);
    Span::new(span.buffer, span.offset + start, length)
}
