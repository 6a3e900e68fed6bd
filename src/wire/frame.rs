//! The frame: a header with its own checksum, then the payload in pieces, each followed by its checksum.

use super::codec::{Decoder, Wire, WireError};
use std::borrow::Cow;

/// The first four bytes of every frame: "MUST".
pub const MAGIC: u32 = u32::from_le_bytes(*b"MUST");
/// The version of this framing. Every version of the library registers in it.
pub const FRAME_VERSION: u8 = 1;
/// How long a frame header is.
pub const HEADER_BYTES: usize = 24;
/// How long a checksum is.
pub const CHECKSUM_BYTES: usize = 4;
/// The longest piece of a payload that shares one checksum.
pub const PIECE_BYTES: usize = 256 << 10;
/// What a sentence about damage ends with.
const WRONG_CHECKSUM: &str = "a wrong checksum";
const WRONG_BIT: &str = "one bit of the first four bytes is wrong";
/// What is said of the first bytes of TLS.
const OTHER_TLS: &str = "it speaks TLS, which is off here (enable_ssl)";
/// A flag: the payload's pieces carry no checksums.
pub const FLAG_UNCHECKED: u16 = 1;

/// What stands before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the payload is.
    pub kind: u8,
    /// [`FLAG_UNCHECKED`] or 0.
    pub flags: u16,
    /// The index of the node that the frame concerns; 0 before there is one. One connection can carry many nodes' frames.
    pub node: u32,
    /// Bytes of payload, checksums not counted.
    pub length: u64,
}

impl FrameHeader {
    /// The header as it lies on the wire.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        // This runs for every frame that a collective sends, so it allocates nothing.
        let mut to = [0; HEADER_BYTES];
        to[..4].copy_from_slice(&MAGIC.to_le_bytes());
        to[4..6].copy_from_slice(&[FRAME_VERSION, self.kind]);
        to[6..8].copy_from_slice(&self.flags.to_le_bytes());
        to[8..12].copy_from_slice(&self.node.to_le_bytes());
        to[12..20].copy_from_slice(&self.length.to_le_bytes());
        let sum = crc32fast::hash(&to[..20]);
        to[20..].copy_from_slice(&sum.to_le_bytes());
        to
    }

    /// The header that these bytes are, if its magic, version and checksum are right.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<FrameHeader, WireError> {
        let mut from = Decoder::new(bytes);
        let magic = u32::take(&mut from)?;
        if magic != MAGIC {
            return Err(WireError(format!(
                "not a frame of this protocol: it begins with {:?}",
                String::from_utf8_lossy(&bytes[..4])
            )));
        }
        let version = u8::take(&mut from)?;
        let header = FrameHeader {
            kind: Wire::take(&mut from)?,
            flags: Wire::take(&mut from)?,
            node: Wire::take(&mut from)?,
            length: Wire::take(&mut from)?,
        };
        if u32::take(&mut from)? != crc32fast::hash(&bytes[..HEADER_BYTES - CHECKSUM_BYTES]) {
            return Err(WireError(format!("a frame header with {WRONG_CHECKSUM}")));
        }
        if version != FRAME_VERSION {
            return Err(WireError(format!("frame version {version}: this library knows {FRAME_VERSION}")));
        }
        if header.flags & !FLAG_UNCHECKED != 0 {
            return Err(WireError(format!(
                "frame flags {:#06x}: this library knows {FLAG_UNCHECKED:#06x}",
                header.flags
            )));
        }
        Ok(header)
    }
}

/// How many bytes a payload of `length` takes on the wire, checksums included; saturating.
pub fn body_bytes(length: u64, flags: u16) -> u64 {
    if flags & FLAG_UNCHECKED != 0 {
        return length;
    }
    length.saturating_add(length.div_ceil(PIECE_BYTES as u64).saturating_mul(CHECKSUM_BYTES as u64))
}

/// A whole frame that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its header.
    pub header: FrameHeader,
    /// Its payload, checked, without checksums. It is borrowed if it is one piece.
    pub payload: Cow<'a, [u8]>,
}

/// Appends a whole frame, checksums included.
pub fn encode_frame(kind: u8, node: u32, payload: &[u8], to: &mut Vec<u8>) {
    let header = FrameHeader { kind, flags: 0, node, length: payload.len() as u64 };
    to.extend_from_slice(&header.encode());
    for piece in payload.chunks(PIECE_BYTES) {
        to.extend_from_slice(piece);
        to.extend_from_slice(&crc32fast::hash(piece).to_le_bytes());
    }
}

impl WireError {
    /// Whether the other end has TLS on, which is off here.
    pub fn is_tls(&self) -> bool {
        self.0 == OTHER_TLS
    }

    /// Whether bytes of this protocol were damaged on the way.
    pub fn is_damage(&self) -> bool {
        self.0.ends_with(WRONG_CHECKSUM) || self.0.ends_with(WRONG_BIT)
    }
}

/// Says in words what begins with these bytes, which are not those of a frame.
fn no_frame(start: &[u8]) -> String {
    if start.iter().zip(MAGIC.to_le_bytes()).map(|(byte, right)| (byte ^ right).count_ones()).sum::<u32>() == 1 {
        return format!("a frame header of which {WRONG_BIT}");
    }
    // This is a record of TLS. The first record is a handshake's or, if the other end is refused, an alert.
    if matches!(start, [0x15 | 0x16, 3, ..]) {
        return OTHER_TLS.to_owned();
    }
    format!("not a frame of this protocol: it begins with {:?}", String::from_utf8_lossy(start))
}

/// The first whole frame in `bytes`, and how many bytes it took. `None` while it is not all there. A payload longer than
/// `payload_max` fails as soon as its header is there.
pub fn peek_frame(bytes: &[u8], payload_max: u64) -> Result<Option<(Frame<'_>, usize)>, WireError> {
    // Bytes that cannot become a header are refused at once: a stranger may send less than a header and then wait.
    let start = bytes.len().min(4);
    if bytes[..start] != MAGIC.to_le_bytes()[..start] {
        return Err(WireError(no_frame(&bytes[..start])));
    }
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let header = FrameHeader::decode(head)?;
    if header.length > payload_max {
        return Err(WireError(format!("a frame of {} bytes: the limit is {payload_max} here", header.length)));
    }
    let total = HEADER_BYTES + body_bytes(header.length, header.flags) as usize;
    let Some(body) = bytes.get(HEADER_BYTES..total) else { return Ok(None) };
    if header.flags & FLAG_UNCHECKED != 0 {
        return Ok(Some((Frame { header, payload: body.into() }, total)));
    }
    let mut payload: Cow<'_, [u8]> = Cow::default();
    for piece in body.chunks(PIECE_BYTES + CHECKSUM_BYTES) {
        let (data, sum) = piece.split_at(piece.len() - CHECKSUM_BYTES);
        if crc32fast::hash(data).to_le_bytes() != sum {
            return Err(WireError(format!("a frame with {WRONG_CHECKSUM}")));
        }
        match payload.is_empty() {
            true => payload = data.into(),
            false => payload.to_mut().extend_from_slice(data),
        }
    }
    Ok(Some((Frame { header, payload }, total)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_survives_the_wire_and_every_truncation_waits() {
        for length in [0, 1, 100, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES + 5] {
            let payload: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
            let mut bytes = Vec::new();
            encode_frame(9, 3, &payload, &mut bytes);
            assert_eq!(bytes.len() as u64, HEADER_BYTES as u64 + body_bytes(length as u64, 0));
            let (frame, taken) = peek_frame(&bytes, 1 << 20).unwrap().unwrap();
            assert_eq!(
                (frame.payload.into_owned(), taken, frame.header.kind, frame.header.node),
                (payload, bytes.len(), 9, 3)
            );
            let cuts = if length > 1000 {
                (bytes.len() - 40..bytes.len()).collect::<Vec<_>>()
            } else {
                (0..bytes.len()).collect()
            };
            for cut in cuts {
                assert_eq!(peek_frame(&bytes[..cut], 1 << 20), Ok(None), "cut at {cut}");
            }
        }
    }

    #[test]
    fn damage_anywhere_is_noticed() {
        let mut bytes = Vec::new();
        encode_frame(9, 3, b"some payload", &mut bytes);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let seen = peek_frame(&damaged, 1 << 20);
            let is_damage = seen.as_ref().is_err_and(WireError::is_damage);
            assert!(is_damage, "byte {at}: {seen:?}");
        }
    }

    #[test]
    fn too_long_a_frame_is_refused_by_its_header_alone() {
        let header = FrameHeader { kind: 1, flags: 0, node: 0, length: 1 << 40 }.encode();
        assert!(peek_frame(&header, 1 << 20).unwrap_err().0.contains("the limit is 1048576"));
    }

    #[test]
    fn a_stranger_is_refused_by_its_first_bytes() {
        assert!(peek_frame(b"GE", 1 << 20).unwrap_err().0.contains("\"GE\""));
        assert_eq!(peek_frame(b"MU", 1 << 20), Ok(None));
    }
}
