use super::*;
use crate::net::testlink::{tcp_pair, TestLink};
use crate::net::{Filled, InBuffer, Poller, Registry, Token};
use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::time::Duration;

/// A link that takes what its plan says, call by call; 0 stands for `WouldBlock`. After the plan it takes everything.
struct Planned {
    plan: VecDeque<usize>,
    taken: Vec<u8>,
    flushes: usize,
    refused_flushes: usize,
}

impl Planned {
    fn new(plan: &[usize]) -> Planned {
        Planned { plan: plan.iter().copied().collect(), taken: Vec::new(), flushes: 0, refused_flushes: 0 }
    }
}

impl Transport for Planned {
    fn read(&mut self, _: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let room = self.plan.pop_front().unwrap_or(usize::MAX);
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let before = self.taken.len();
        self.taken.extend(buffers.iter().flat_map(|buffer| buffer.iter()).take(room));
        Ok(self.taken.len() - before)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushes += 1;
        if self.refused_flushes > 0 {
            self.refused_flushes -= 1;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(())
    }

    fn holds_readable(&self) -> bool {
        false
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn unsent(&self) -> usize {
        0
    }

    fn register(&mut self, _: &Registry, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn deregister(&mut self, _: &Registry) -> io::Result<()> {
        Ok(())
    }

    fn local_address(&self) -> SocketAddr {
        "127.0.0.1:1".parse().unwrap()
    }

    fn peer_address(&self) -> SocketAddr {
        "127.0.0.1:2".parse().unwrap()
    }
}

#[test]
fn urgent_frames_pass_bulk_ones_at_frame_borders_only() {
    let mut queue = ByteQueue::default();
    let mut link = Planned::new(&[2, 0]);
    queue.push(Lane::Bulk, b"AAAA".to_vec()).unwrap();
    queue.push(Lane::Bulk, b"BBBB".to_vec()).unwrap();
    assert_eq!(queue.write_to(&mut link).unwrap(), Drained::Blocked);
    queue.push(Lane::Urgent, b"uu".to_vec()).unwrap();
    queue.push(Lane::Urgent, b"vv".to_vec()).unwrap();
    assert_eq!(queue.pending_bytes(), 10);
    assert_eq!(queue.pending_in(Lane::Urgent), 4);
    assert_eq!(queue.write_to(&mut link).unwrap(), Drained::Empty);
    assert_eq!(link.taken, b"AAAAuuvvBBBB");
    assert!(queue.is_empty());
}

#[test]
fn the_order_holds_wherever_a_write_is_cut() {
    // All ways to cut the first three writes, with an urgent frame pushed after each.
    for cuts in 0..9 * 9 * 9 {
        let plan = [cuts % 9, cuts / 9 % 9, cuts / 81];
        let mut queue = ByteQueue::default();
        let mut link = Planned::new(&[plan[0], 0, plan[1], 0, plan[2], 0]);
        queue.push(Lane::Bulk, b"(bulk)".to_vec()).unwrap();
        queue.push(Lane::Bulk, b"[more]".to_vec()).unwrap();
        for mark in [b"<1>", b"<2>", b"<3>"] {
            queue.write_to(&mut link).unwrap();
            queue.push(Lane::Urgent, mark.to_vec()).unwrap();
        }
        while queue.write_to(&mut link).unwrap() == Drained::Blocked {}
        let text = String::from_utf8(link.taken).unwrap();
        let mut rest = text.as_str();
        let mut frames = Vec::new();
        while !rest.is_empty() {
            let length = if rest.starts_with('<') { 3 } else { 6 };
            frames.push(&rest[..length]);
            rest = &rest[length..];
        }
        let of = |lane: char| frames.iter().filter(|frame| frame.starts_with(lane)).count();
        assert_eq!((of('('), of('['), of('<')), (1, 1, 3), "plan {plan:?}: {text}");
        let place = |frame: &str| frames.iter().position(|found| *found == frame).unwrap();
        assert!(place("(bulk)") < place("[more]") && place("<1>") < place("<2>") && place("<2>") < place("<3>"));
    }
}

#[test]
fn lanes_are_bounded_in_bytes_and_in_frames() {
    let mut queue = ByteQueue::new(4, 8);
    queue.push(Lane::Urgent, vec![0; 4]).unwrap();
    let overflow = queue.push(Lane::Urgent, vec![0; 1]).unwrap_err();
    assert_eq!(overflow, Overflow { lane: Lane::Urgent, pending: 4, frame: 1, limit: 4 });
    assert!(overflow.to_string().contains("4 bytes wait for it in the urgent lane"), "{overflow}");
    // The other lane has its own room, and empty frames are none.
    queue.push(Lane::Bulk, vec![0; 8]).unwrap();
    queue.push(Lane::Urgent, Vec::new()).unwrap();
    assert_eq!(queue.pending_bytes(), 12);

    let mut queue = ByteQueue::new(usize::MAX, usize::MAX);
    for _ in 0..MAX_FRAMES {
        queue.push(Lane::Bulk, vec![0]).unwrap();
    }
    queue.push(Lane::Bulk, vec![0]).unwrap_err();
}

#[test]
fn a_frame_can_be_shared_between_links() {
    let frame: Arc<[u8]> = Arc::from(&b"verdict"[..]);
    for _ in 0..2 {
        let mut queue = ByteQueue::default();
        let mut link = Planned::new(&[]);
        queue.push(Lane::Urgent, Arc::clone(&frame)).unwrap();
        queue.write_to(&mut link).unwrap();
        assert_eq!(link.taken, &frame[..]);
    }
}

#[test]
fn a_refused_flush_is_tried_again_and_an_idle_queue_does_not_flush() {
    let mut queue = ByteQueue::default();
    let mut link = Planned::new(&[]);
    link.refused_flushes = 1;
    assert_eq!(queue.write_to(&mut link).unwrap(), Drained::Empty);
    assert_eq!(link.flushes, 0);
    queue.push(Lane::Urgent, vec![1]).unwrap();
    assert_eq!(queue.write_to(&mut link).unwrap(), Drained::Blocked);
    assert!(!queue.is_empty());
    assert_eq!(queue.write_to(&mut link).unwrap(), Drained::Empty);
    assert!(queue.is_empty());
    assert_eq!(link.flushes, 2);
}

/// Sends so many bytes in many frames from one thread to another, both sleeping in their pollers between.
fn stream_through(mut out: Box<dyn Transport>, mut into: Box<dyn Transport>, total: usize) {
    let sender = std::thread::spawn(move || {
        let mut poller = Poller::new().unwrap();
        out.register(poller.registry(), Token(0)).unwrap();
        let mut queue = ByteQueue::new(total, total);
        let bytes: Vec<u8> = (0..total).map(|index| (index % 253) as u8).collect();
        for frame in bytes.chunks(5000) {
            queue.push(Lane::Bulk, frame.to_vec()).unwrap();
        }
        while queue.write_to(&mut *out).unwrap() == Drained::Blocked {
            poller.poll(Some(Duration::from_secs(20))).unwrap();
            assert!(poller.ready().count() > 0, "the writer was not woken");
        }
        out.shutdown_write().unwrap();
        // Until the peer has closed: nothing of what it should read is lost by dropping the link.
        let mut buffer = InBuffer::new(1);
        loop {
            match buffer.fill(&mut *out).unwrap() {
                Filled::Ended => break,
                _ if out.holds_readable() => {}
                _ => poller.poll(Some(Duration::from_secs(20))).unwrap(),
            }
        }
    });
    let mut poller = Poller::new().unwrap();
    into.register(poller.registry(), Token(0)).unwrap();
    let mut buffer = InBuffer::new(1 << 16);
    let mut seen = 0;
    loop {
        match buffer.fill(&mut *into).unwrap() {
            Filled::Bytes(_) => {
                assert!(buffer.bytes().iter().enumerate().all(|(at, byte)| *byte == ((seen + at) % 253) as u8));
                seen += buffer.bytes().len();
                buffer.consume(usize::MAX);
            }
            Filled::Blocked if into.holds_readable() => {}
            Filled::Blocked => {
                poller.poll(Some(Duration::from_secs(20))).unwrap();
                assert!(poller.ready().count() > 0, "the reader was not woken");
            }
            Filled::Ended => break,
        }
    }
    assert_eq!(seen, total);
    drop(into);
    sender.join().unwrap();
}

#[test]
fn a_megabyte_passes_over_tcp() {
    let (out, into) = tcp_pair();
    stream_through(Box::new(out), Box::new(into), 1 << 20);
}

#[test]
fn frames_pass_over_the_test_link() {
    for seed in [1, 2, 3] {
        let (out, into) = tcp_pair();
        println!("seed {seed}");
        stream_through(
            Box::new(TestLink::with_piece(out, seed, 7)),
            Box::new(TestLink::with_piece(into, !seed, 3)),
            1 << 17,
        );
    }
}
