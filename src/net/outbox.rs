//! Encoded frames on their way out over one link, in two lanes: urgent ones (heartbeats, verdicts, revocations) pass
//! bulk ones (pieces of store values) that wait.
//!
//! Invariants: a frame that has begun is finished before another begins; within a lane the order is kept; each lane is
//! bounded, in bytes and in frames. What the kernel has taken already can't be passed any more, so a bulk frame should
//! be small (a store value travels in pieces).
//!
//! It does not know what the bytes mean, nor which poller reports the link: its owner calls [`ByteQueue::write_to`] after
//! a push and whenever the link is reported. Tested in `outbox_test.rs`, cut at every place.

use super::socket::MAX_PIECES;
use super::transport::Transport;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

/// The most bytes that wait in the urgent lane by default. Urgent frames are small; a link that lets this many pile up
/// is as good as dead.
pub const MAX_URGENT_BYTES: usize = 8 << 20;
/// The most bytes that wait in the bulk lane by default: the largest store value, and one more MiB for its frames.
pub const MAX_BULK_BYTES: usize = 17 << 20;
/// The most frames that wait in one lane, so that empty ones are bounded too.
pub const MAX_FRAMES: usize = 1 << 16;
/// The most frames that one `write` gathers.
const MAX_GATHERED: usize = 64;
/// The most bytes that one `write` gathers, beyond its first frame.
const MAX_GATHERED_BYTES: usize = 256 << 10;
const _: () = assert!(MAX_GATHERED <= MAX_PIECES);

/// One encoded frame: owned, or shared with other links that send the same.
#[derive(Clone, Debug)]
pub enum Frame {
    /// For this link alone.
    Owned(Vec<u8>),
    /// For several links.
    Shared(Arc<[u8]>),
}

impl Frame {
    fn bytes(&self) -> &[u8] {
        match self {
            Frame::Owned(bytes) => bytes,
            Frame::Shared(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for Frame {
    fn from(bytes: Vec<u8>) -> Frame {
        Frame::Owned(bytes)
    }
}

impl From<Arc<[u8]>> for Frame {
    fn from(bytes: Arc<[u8]>) -> Frame {
        Frame::Shared(bytes)
    }
}

/// Which frames go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Goes before every bulk frame that has not begun.
    Urgent,
    /// Goes when no urgent frame waits.
    Bulk,
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lane::Urgent => "urgent",
            Lane::Bulk => "bulk",
        })
    }
}

/// A lane has no room for a frame; nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// Which lane.
    pub lane: Lane,
    /// What waits in it, in bytes.
    pub pending: usize,
    /// The frame's size.
    pub frame: usize,
    /// What the lane holds at most, in bytes; it holds [`MAX_FRAMES`] frames too.
    pub limit: usize,
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Overflow { lane, pending, frame, limit } = self;
        write!(
            f,
            "the peer takes nothing: {pending} bytes wait for it in the {lane} lane, and another {frame} exceed the \
             limit of {limit} bytes or {MAX_FRAMES} frames"
        )
    }
}

/// How far `write_to` came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Everything was taken, and flushed.
    Empty,
    /// The link takes no more at the moment: call again when the poller reports it.
    Blocked,
}

/// The frames that wait for one link.
#[derive(Debug)]
pub struct ByteQueue {
    urgent: Queue,
    bulk: Queue,
    /// The lane whose first frame has begun, and how much of it is written (more than nothing, less than all).
    begun: Option<(Lane, usize)>,
    /// The link has taken bytes that it may still hold.
    unflushed: bool,
}

#[derive(Debug)]
struct Queue {
    frames: VecDeque<Frame>,
    bytes: usize,
    limit: usize,
}

impl Default for ByteQueue {
    fn default() -> ByteQueue {
        ByteQueue::new(MAX_URGENT_BYTES, MAX_BULK_BYTES)
    }
}

impl ByteQueue {
    /// An empty queue with these limits, in bytes.
    pub fn new(urgent_limit: usize, bulk_limit: usize) -> ByteQueue {
        ByteQueue { urgent: Queue::new(urgent_limit), bulk: Queue::new(bulk_limit), begun: None, unflushed: false }
    }

    /// Queues a frame. An empty one is nothing.
    pub fn push(&mut self, lane: Lane, frame: impl Into<Frame>) -> Result<(), Overflow> {
        let frame = frame.into();
        let size = frame.bytes().len();
        if size == 0 {
            return Ok(());
        }
        let queue = self.queue(lane);
        if size > queue.limit.saturating_sub(queue.bytes) || queue.frames.len() >= MAX_FRAMES {
            return Err(Overflow { lane, pending: queue.bytes, frame: size, limit: queue.limit });
        }
        queue.bytes += size;
        queue.frames.push_back(frame);
        Ok(())
    }

    /// Bytes that no link has taken yet, in both lanes.
    pub fn pending_bytes(&self) -> usize {
        self.urgent.bytes + self.bulk.bytes
    }

    /// The bytes of one lane, so that a source of bulk frames can wait for room.
    pub fn pending_in(&self, lane: Lane) -> usize {
        match lane {
            Lane::Urgent => self.urgent.bytes,
            Lane::Bulk => self.bulk.bytes,
        }
    }

    /// Whether there is nothing left to write or to flush.
    pub fn is_empty(&self) -> bool {
        self.pending_bytes() == 0 && !self.unflushed
    }

    /// Writes until all is taken and flushed, or the link takes no more. An error ends the link.
    pub fn write_to(&mut self, link: &mut dyn Transport) -> io::Result<Drained> {
        while self.pending_bytes() > 0 {
            let written = {
                let (slices, count) = self.gather();
                link.write(&slices[..count])
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.unflushed = true;
                    self.advance(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.blocked(link),
                Err(error) => return Err(error),
            }
        }
        if self.unflushed {
            match link.flush() {
                Ok(()) => self.unflushed = false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Drained::Blocked),
                Err(error) => return Err(error),
            }
        }
        Ok(Drained::Empty)
    }

    /// The link refuses new bytes; those that it holds should still go as far as they can.
    fn blocked(&mut self, link: &mut dyn Transport) -> io::Result<Drained> {
        match link.flush() {
            Ok(()) => Ok(Drained::Blocked),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Drained::Blocked),
            Err(error) => Err(error),
        }
    }

    fn queue(&mut self, lane: Lane) -> &mut Queue {
        match lane {
            Lane::Urgent => &mut self.urgent,
            Lane::Bulk => &mut self.bulk,
        }
    }

    /// The rest of the begun frame, the urgent ones, the bulk ones, as many as one write takes.
    fn gather(&self) -> ([IoSlice<'_>; MAX_GATHERED], usize) {
        let (first, done, skip_urgent, skip_bulk) = match self.begun {
            Some((Lane::Urgent, done)) => (self.urgent.frames.front(), done, 1, 0),
            Some((Lane::Bulk, done)) => (self.bulk.frames.front(), done, 0, 1),
            None => (None, 0, 0, 0),
        };
        let first = first.map(|frame| &frame.bytes()[done..]);
        let urgent = self.urgent.frames.iter().skip(skip_urgent);
        let bulk = self.bulk.frames.iter().skip(skip_bulk);
        let mut slices = [IoSlice::new(&[]); MAX_GATHERED];
        let mut count = 0;
        let mut total = 0;
        for bytes in first.into_iter().chain(urgent.chain(bulk).map(Frame::bytes)) {
            if count == MAX_GATHERED || (count > 0 && total + bytes.len() > MAX_GATHERED_BYTES) {
                break;
            }
            slices[count] = IoSlice::new(bytes);
            count += 1;
            total += bytes.len();
        }
        (slices, count)
    }

    /// Takes away what was written, in the order in which it was gathered.
    fn advance(&mut self, mut written: usize) {
        while written > 0 {
            let (lane, done) = match self.begun {
                Some(begun) => begun,
                None if self.urgent.frames.is_empty() => (Lane::Bulk, 0),
                None => (Lane::Urgent, 0),
            };
            let queue = self.queue(lane);
            let Some(frame) = queue.frames.front() else {
                debug_assert!(false, "the link took {written} bytes more than it was given");
                return;
            };
            let left = frame.bytes().len() - done;
            let step = written.min(left);
            queue.bytes -= step;
            written -= step;
            if step == left {
                queue.frames.pop_front();
                self.begun = None;
            } else {
                self.begun = Some((lane, done + step));
            }
        }
    }
}

impl Queue {
    fn new(limit: usize) -> Queue {
        Queue { frames: VecDeque::new(), bytes: 0, limit }
    }
}

#[cfg(test)]
#[path = "outbox_test.rs"]
mod tests;
