//! Bytes that came in over one link and wait to be decoded.
//!
//! A decoder looks at [`InBuffer::bytes`], takes whole frames and says with [`InBuffer::consume`] how much that was; what
//! is left is the beginning of the next frame. Invariants: never more than `limit` bytes are held, whatever the peer
//! sends, so the limit must be at least the longest frame in its encoded form. Memory beyond [`KEPT_BYTES`] is given back
//! when the buffer runs empty, so that thousands of idle links cost little.

use super::transport::Transport;
use std::io::{self, IoSliceMut};

/// What one `fill` makes room for, where the limit allows it.
const CHUNK_BYTES: usize = 16 << 10;
/// The most memory that an empty buffer keeps.
pub const KEPT_BYTES: usize = 64 << 10;

/// What `fill` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// So many bytes more; there may be others: decode, and fill again.
    Bytes(usize),
    /// Nothing at the moment. Unless the link holds readable bytes, wait for the poller.
    Blocked,
    /// The peer's orderly end. What is still in the buffer is a frame that was cut off.
    Ended,
}

/// A bounded buffer between a link and a decoder.
#[derive(Debug)]
pub struct InBuffer {
    /// The bytes lie in `start..end`; beyond `end` is room, already zeroed.
    memory: Vec<u8>,
    start: usize,
    end: usize,
    limit: usize,
}

impl InBuffer {
    /// An empty buffer for at most `limit` bytes.
    pub fn new(limit: usize) -> InBuffer {
        InBuffer { memory: Vec::new(), start: 0, end: 0, limit }
    }

    /// Allows more (or less, from now on): a link may send longer frames once it is known.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// What waits to be decoded.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Takes the first `count` bytes away. More than there are is all of them.
    pub fn consume(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.end);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.memory.len() > KEPT_BYTES {
                self.memory = Vec::new();
            }
        }
    }

    /// Reads once. Where the buffer is full to its limit that is an error (`InvalidData`): the decoder can make nothing
    /// of as many bytes as the longest frame has.
    pub fn fill(&mut self, link: &mut dyn Transport) -> io::Result<Filled> {
        let held = self.end - self.start;
        if held >= self.limit {
            let text = format!("{held} bytes came without completing a frame, and the limit is {}", self.limit);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.make_room();
        let end = self.memory.len().min(self.start + self.limit);
        match link.read(&mut [IoSliceMut::new(&mut self.memory[self.end..end])]) {
            Ok(0) => Ok(Filled::Ended),
            Ok(count) => {
                self.end += count;
                Ok(Filled::Bytes(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Filled::Blocked),
            Err(error) => Err(error),
        }
    }

    /// Leaves at least half a chunk, or all that the limit allows, beyond `end`.
    fn make_room(&mut self) {
        let held = self.end - self.start;
        let wanted = (CHUNK_BYTES / 2).min(self.limit - held);
        if self.memory.len() - self.end >= wanted {
            return;
        }
        self.memory.copy_within(self.start..self.end, 0);
        self.start = 0;
        self.end = held;
        if self.memory.len() - held < wanted {
            // Doubling, so that a long frame is moved a few times only.
            let size = (held + CHUNK_BYTES).max(self.memory.len() * 2).min(self.limit.max(held + wanted));
            self.memory.resize(size, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::outbox::{ByteQueue, Drained, Lane};
    use crate::net::testlink::tcp_pair as pair;
    use crate::net::{Poller, TcpTransport, Token};
    use std::io::IoSlice;
    use std::time::Duration;

    /// Fills until there are `count` bytes, or anything else happens.
    fn fill_to(buffer: &mut InBuffer, link: &mut TcpTransport, count: usize) -> io::Result<Filled> {
        let mut poller = Poller::new().unwrap();
        link.register(poller.registry(), Token(0)).unwrap();
        let result = loop {
            match buffer.fill(link) {
                Ok(Filled::Blocked) => poller.poll(Some(Duration::from_secs(20))).unwrap(),
                Ok(Filled::Bytes(_)) if buffer.bytes().len() < count => {}
                result => break result,
            }
        };
        link.deregister(poller.registry()).unwrap();
        result
    }

    #[test]
    fn holds_what_came_until_it_is_consumed() {
        let (mut a, mut b) = pair();
        let mut buffer = InBuffer::new(100);
        assert_eq!(buffer.fill(&mut b).unwrap(), Filled::Blocked);
        a.write(&[IoSlice::new(b"first second")]).unwrap();
        fill_to(&mut buffer, &mut b, 12).unwrap();
        buffer.consume(6);
        assert_eq!(buffer.bytes(), b"second");
        a.write(&[IoSlice::new(b" third")]).unwrap();
        fill_to(&mut buffer, &mut b, 12).unwrap();
        assert_eq!(buffer.bytes(), b"second third");
        buffer.consume(usize::MAX);
        assert_eq!(buffer.bytes(), b"");
        drop(a);
        assert_eq!(fill_to(&mut buffer, &mut b, 1).unwrap(), Filled::Ended);
    }

    #[test]
    fn stops_at_its_limit_and_goes_on_when_that_is_raised() {
        let (mut a, mut b) = pair();
        a.write(&[IoSlice::new(&[7; 300])]).unwrap();
        let mut buffer = InBuffer::new(100);
        fill_to(&mut buffer, &mut b, 100).unwrap();
        assert_eq!(buffer.bytes(), [7; 100]);
        let error = buffer.fill(&mut b).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(error.to_string(), "100 bytes came without completing a frame, and the limit is 100");
        buffer.consume(40);
        fill_to(&mut buffer, &mut b, 100).unwrap();
        assert_eq!(buffer.bytes(), [7; 100]);
        buffer.set_limit(1000);
        fill_to(&mut buffer, &mut b, 260).unwrap();
        assert_eq!(buffer.bytes(), [7; 260]);
    }

    #[test]
    fn grows_for_a_long_frame_and_gives_the_memory_back() {
        let (mut a, mut b) = pair();
        let frame: Vec<u8> = (0..(1 << 20)).map(|index| (index % 251) as u8).collect();
        let sent = frame.clone();
        let thread = std::thread::spawn(move || {
            let mut poller = Poller::new().unwrap();
            a.register(poller.registry(), Token(0)).unwrap();
            let mut queue = ByteQueue::default();
            queue.push(Lane::Bulk, sent).unwrap();
            while queue.write_to(&mut a).unwrap() == Drained::Blocked {
                poller.poll(Some(Duration::from_secs(20))).unwrap();
            }
            a
        });
        let mut buffer = InBuffer::new(frame.len());
        fill_to(&mut buffer, &mut b, frame.len()).unwrap();
        assert!(buffer.bytes() == frame);
        assert!(buffer.memory.len() <= frame.len());
        buffer.consume(frame.len());
        assert_eq!(buffer.memory.len(), 0);
        thread.join().unwrap();
    }
}
