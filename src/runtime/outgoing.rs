//! A data frame or a message's that is going out: its head, and its payload piece by piece out of the caller's memory.
//! Tested with the link that it is on, in `link_test.rs`.

use super::buffer::Memory;
use crate::collective::Span;
use crate::net::Transport;
use crate::wire::{
    FrameHeader, LinkKind, CHECKSUM_BYTES, DATA_HEADER_BYTES, FLAG_UNCHECKED, HEADER_BYTES, PIECE_BYTES,
};
use std::io::{self, IoSlice};

/// How long the head of a frame is, the header of what it carries included.
pub(super) const HEAD_BYTES: usize = HEADER_BYTES + DATA_HEADER_BYTES;
/// A frame that is no longer, checksums included, is copied into one piece: that costs less than to send three.
pub(super) const PACKED_BYTES: usize = 2 << 10;

/// One frame.
pub(super) struct Outgoing {
    head: [u8; HEAD_BYTES],
    span: Span,
    unchecked: bool,
    /// The frame is short, and lies in one piece in the link's scratch.
    packed: bool,
    /// Bytes of the frame that are written, checksums included.
    written: usize,
    /// The checksum of the piece that is being written.
    checksum: [u8; CHECKSUM_BYTES],
    checksum_of: usize,
}

impl Outgoing {
    /// A frame of which nothing is written yet.
    pub(super) fn new(kind: LinkKind, behind: &[u8; DATA_HEADER_BYTES], span: Span, checksums: bool) -> Outgoing {
        let flags = if checksums { 0 } else { FLAG_UNCHECKED };
        let header = FrameHeader { kind: kind as u8, flags, node: 0, length: span.len as u64 };
        let mut head = [0; HEAD_BYTES];
        head[..HEADER_BYTES].copy_from_slice(&header.encode());
        head[HEADER_BYTES..].copy_from_slice(behind);
        let (unchecked, checksum, checksum_of) = (!checksums, [0; CHECKSUM_BYTES], usize::MAX);
        Outgoing { head, span, unchecked, packed: false, written: 0, checksum, checksum_of }
    }

    /// Whether a part of it has gone out.
    pub(super) fn has_begun(&self) -> bool {
        self.written > 0
    }

    /// Writes as much as the transport takes at once; whether that was all. `packed` is a scratch that belongs to the
    /// frame until it is written.
    pub(super) fn write(
        &mut self,
        transport: &mut dyn Transport,
        memory: &Memory<'_>,
        packed: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let tail = if self.unchecked { 0 } else { CHECKSUM_BYTES };
        let total = HEAD_BYTES + self.span.len + self.span.len.div_ceil(PIECE_BYTES) * tail;
        if self.written == total {
            return Ok(true); // what is left is the transport's
        }
        self.written += if total <= PACKED_BYTES {
            self.pack(memory, packed);
            transport.write(&[IoSlice::new(&packed[self.written..])])?
        } else {
            self.write_piece(transport, memory, tail)?
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

    /// Writes from where it is to the end of the piece at most.
    fn write_piece(&mut self, transport: &mut dyn Transport, memory: &Memory<'_>, tail: usize) -> io::Result<usize> {
        let head = &self.head[self.written.min(HEAD_BYTES)..];
        // Where in which piece the next byte of the body lies; a piece takes its length and its checksum.
        let body = self.written.saturating_sub(HEAD_BYTES);
        let (piece, within) = (body / (PIECE_BYTES + tail), body % (PIECE_BYTES + tail));
        let start = (piece * PIECE_BYTES).min(self.span.len);
        let length = PIECE_BYTES.min(self.span.len - start);
        let bytes = memory.bytes(Span::new(self.span.buffer, self.span.offset + start, length));
        if tail > 0 && length > 0 && self.checksum_of != piece {
            self.checksum = crc32fast::hash(bytes).to_le_bytes();
            self.checksum_of = piece;
        }
        let checksum = if length == 0 { &[] } else { &self.checksum[within.saturating_sub(length).min(4)..][..] };
        let checksum = if tail == 0 { &[] } else { checksum };
        transport.write(&[head, &bytes[within.min(length)..], checksum].map(IoSlice::new))
    }
}
