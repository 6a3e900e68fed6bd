use super::*;
use crate::net::{Acknowledged, Registry, Signs, Token};
use crate::types::{Device, HostName, Incarnation, Process, Role};
use crate::wire::{encode_frame, Blob, HeartbeatEcho, Register, StatusPart, StorePiece, Told, STORE_PIECE_BYTES};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a [`Scripted`] transport has been told to do, and what it took.
#[derive(Default)]
pub(in crate::runtime) struct Script {
    /// How many bytes it still takes before it blocks.
    pub room: usize,
    /// Whether it was asked to pass on what it holds, after the last bytes that it took.
    pub flushed: bool,
    /// Whether `flush` blocks.
    pub holds: bool,
    /// Whether it breaks when something is written.
    pub breaks: bool,
    pub sent: Vec<u8>,
    /// Whether it was told that nothing more follows.
    pub shut: bool,
    /// What can be read; then the end, or nothing yet.
    pub coming: VecDeque<u8>,
    pub ends: bool,
    /// The error that comes behind it, as the system numbers it.
    pub fails: Option<i32>,
    pub holds_readable: bool,
    /// How long its peer's kernel has been silent.
    pub silence: Option<Duration>,
    /// What its peer's kernel has acknowledged.
    pub acknowledged: Acknowledged,
    pub asked_for_signs: bool,
    pub sends_again_evenly: bool,
    pub unsent_bound: Option<u32>,
}

/// A transport without a network.
#[derive(Clone, Default)]
pub(in crate::runtime) struct Scripted(Arc<Mutex<Script>>);

impl Scripted {
    pub fn script(&self) -> std::sync::MutexGuard<'_, Script> {
        self.0.lock().unwrap()
    }
}

impl Transport for Scripted {
    fn read(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut script = self.script();
        if let Some(number) = script.fails.filter(|_| script.coming.is_empty()) {
            return Err(io::Error::from_raw_os_error(number));
        }
        if script.coming.is_empty() {
            return if script.ends { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        io::Read::read_vectored(&mut script.coming, buffers)
    }

    fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut script = self.script();
        if script.breaks {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let before = script.sent.len();
        script.flushed = false;
        for buffer in buffers {
            let count = buffer.len().min(script.room);
            script.sent.extend_from_slice(&buffer[..count]);
            script.room -= count;
        }
        match script.sent.len() - before {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.script().holds {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.script().flushed = true;
        Ok(())
    }

    fn holds_readable(&self) -> bool {
        self.script().holds_readable
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.script().shut = true;
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
        ([127, 0, 0, 1], 1).into()
    }

    fn descriptor(&self) -> std::os::fd::RawFd {
        -1
    }

    fn peer_address(&self) -> SocketAddr {
        ([127, 0, 0, 1], 2).into()
    }
}

impl Signs for Scripted {
    fn silence(&self) -> Option<Duration> {
        self.script().silence
    }

    fn acknowledged(&self) -> Acknowledged {
        self.script().acknowledged
    }

    fn ask_for_signs(&mut self, _: Duration) {
        self.script().asked_for_signs = true;
    }

    fn send_again_evenly(&mut self) {
        self.script().sends_again_evenly = true;
    }

    fn bound_unsent(&mut self, bytes: u32) {
        self.script().unsent_bound = Some(bytes);
    }
}

fn link() -> (ControlLink, Scripted) {
    let transport = Scripted::default();
    (ControlLink::new(Box::new(transport.clone())), transport)
}

#[test]
fn its_kernel_holds_few_bytes_that_an_urgent_message_would_wait_behind() {
    let (_link, transport) = link();
    assert_eq!(transport.script().unsent_bound, Some(UNSENT_BYTES));
}

fn piece(request: u64) -> Message {
    Message::StorePiece(StorePiece { request, bytes: Blob::new(vec![request as u8; STORE_PIECE_BYTES]) })
}

fn echo(sequence: u64) -> Message {
    Message::HeartbeatEcho(HeartbeatEcho { sequence })
}

fn register() -> Message {
    Message::Register(Register {
        protocol_lowest: 1,
        protocol_highest: 1,
        features: 0,
        version: "0.1.0".to_owned(),
        job_id: None,
        role: Role::Worker,
        node_id: "a".to_owned(),
        node_id_given: true,
        rank: None,
        incarnation: Incarnation([1; 16]),
        host: HostName { name: "host".to_owned(), key: "key".to_owned() },
        process: Process { pid: 1, start_ticks: 1, pid_namespace: 1 },
        addresses: Vec::new(),
        worker_num: 1,
        server_num: 0,
        recovery: false,
        instance: None,
        told: Told::NOTHING,
        device: Device::default(),
        reentry: None,
        launch: None,
        derived_job: None,
    })
}

pub(in crate::runtime) fn framed(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_frame(message.kind(), 0, &message.encode(), &mut bytes);
    bytes
}

/// A frame that is no message, of so many bytes of payload.
fn unknown(length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_frame(200, 0, &vec![7; length], &mut bytes);
    bytes
}

/// The messages, and the node that their frames name.
fn messages(mut bytes: &[u8]) -> Vec<(u32, Message)> {
    let mut found = Vec::new();
    while let Some((frame, taken)) = peek_frame(bytes, CONTROL_PAYLOAD_MAX).unwrap() {
        found.push((frame.header.node, Message::decode(frame.header.kind, &frame.payload).unwrap()));
        bytes = &bytes[taken..];
    }
    assert!(bytes.is_empty(), "{} bytes make no frame", bytes.len());
    found
}

fn read(link: &mut ControlLink) -> (Vec<Arrival>, Result<Heard, ControlEnd>) {
    let mut arrivals = Vec::new();
    let heard = link.read(&mut vec![0; READ_BYTES], &mut arrivals);
    (arrivals, heard)
}

#[test]
fn urgent_messages_pass_bulk_ones_at_frame_borders() {
    let (mut link, transport) = link();
    link.set_node(4);
    for request in [1, 2, 3] {
        link.queue(piece(request)).unwrap();
    }
    transport.script().room = 10;
    assert!(link.write());
    assert_eq!(transport.script().sent.len(), 10);
    // The first piece is under way: it is not cut, and everything urgent comes next, in its order.
    link.queue(echo(1)).unwrap();
    link.queue(echo(2)).unwrap();
    transport.script().room = STORE_PIECE_BYTES + 200;
    assert!(link.write());
    link.queue(echo(3)).unwrap();
    transport.script().room = usize::MAX;
    assert!(link.write());
    assert!(!link.has_outbound());
    let sent = messages(&transport.script().sent);
    let expected = [piece(1), echo(1), echo(2), piece(2), echo(3), piece(3)];
    assert_eq!(sent, expected.map(|message| (4, message)));
}

#[test]
fn where_nothing_waits_no_memory_is_held() {
    let (mut link, transport) = link();
    let held = |link: &ControlLink| {
        [link.inbound.capacity(), link.outbound.capacity(), link.urgent.capacity(), link.bulk.capacity()]
    };
    link.queue(echo(1)).unwrap();
    link.queue(piece(1)).unwrap();
    transport.script().room = 10;
    assert!(link.write());
    transport.script().coming.extend(framed(&echo(1)).into_iter().chain(framed(&echo(2))).take(60));
    read(&mut link).1.unwrap();
    let [inbound, outbound, _, bulk] = held(&link);
    assert!(inbound > 0 && outbound > 0 && bulk > 0, "something waits everywhere");
    transport.script().room = usize::MAX;
    assert!(link.write());
    transport.script().coming.extend(framed(&echo(2)).into_iter().skip(60 - framed(&echo(1)).len()));
    let (arrivals, heard) = read(&mut link);
    heard.unwrap();
    assert_eq!(arrivals.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [echo(2)]);
    assert_eq!(held(&link), [0; 4]);
}

#[test]
fn a_peer_that_does_not_read_is_given_up_at_the_limit() {
    let (mut link, transport) = link();
    for _ in 0..QUEUE_MAX {
        link.queue(Message::Report).unwrap();
    }
    let end = link.queue(Message::Report).unwrap_err();
    assert!(matches!(end, ControlEnd::Broken(_)), "{end:?}");
    assert_eq!(end.reason(), "65536 messages wait for it: it does not read");
    link.queue(piece(1)).expect("each lane has its own limit");
    transport.script().room = 1;
    assert!(link.write());
    link.queue(Message::Report).expect("what was encoded makes room");
}

#[test]
fn what_the_transport_holds_is_still_to_go_out() {
    let (mut link, transport) = link();
    link.queue(Message::Report).unwrap();
    assert!(link.has_outbound());
    (transport.script().room, transport.script().holds) = (usize::MAX, true);
    assert!(link.write());
    assert_eq!(transport.script().sent, framed(&Message::Report));
    assert!(link.has_outbound(), "it is written, but not passed on");
    transport.script().holds = false;
    assert!(link.write());
    assert!(!link.has_outbound());
}

#[test]
fn only_a_registered_connection_may_send_long_messages() {
    let limit = UNREGISTERED_PAYLOAD_MAX as usize;
    let (mut link, transport) = link();
    transport.script().coming.extend(unknown(limit));
    transport.script().coming.extend(&unknown(limit + 1)[..24]);
    let (arrivals, heard) = read(&mut link);
    assert!(matches!(&arrivals[..], [Err((200, payload, _))] if payload.len() == limit), "the first is not too long");
    let end = heard.unwrap_err();
    assert!(matches!(end, ControlEnd::Garbage(_)), "{end:?}");
    assert_eq!(end.reason(), "a frame of 65537 bytes: the limit is 65536 here");
}

#[test]
fn after_registration_messages_may_be_as_long_as_a_mebibyte() {
    let limit = CONTROL_PAYLOAD_MAX as usize;
    let (mut link, transport) = link();
    // Behind one another, so that the registration raises the limit for what is here already.
    transport.script().coming.extend(framed(&register()));
    transport.script().coming.extend(unknown(limit));
    transport.script().coming.extend(&unknown(limit + 1)[..24]);
    let (mut arrivals, mut heard) = read(&mut link);
    while heard.as_ref().is_ok_and(|heard| heard.more) {
        let (more, next) = read(&mut link);
        arrivals.extend(more);
        heard = next;
    }
    let [Ok(Message::Register(_)), Err((200, payload, _))] = &arrivals[..] else { panic!("{}", arrivals.len()) };
    assert_eq!(payload.len(), limit);
    assert_eq!(heard.unwrap_err().reason(), "a frame of 1048577 bytes: the limit is 1048576 here");
}

#[test]
fn what_cannot_be_decoded_arrives_with_kind_and_payload() {
    let (mut link, transport) = link();
    let mut short = Vec::new();
    encode_frame(echo(1).kind(), 0, &[1, 2, 3], &mut short);
    for bytes in [framed(&echo(1)), short, unknown(3), framed(&echo(2))] {
        transport.script().coming.extend(bytes);
    }
    let (arrivals, heard) = read(&mut link);
    assert!(heard.unwrap().any);
    let [Ok(first), Err(short), Err(unknown), Ok(last)] = &arrivals[..] else { panic!("{arrivals:?}") };
    assert_eq!((first, last), (&echo(1), &echo(2)));
    assert_eq!((short.0, &short.1[..], short.2 .0.as_str()), (5, &[1, 2, 3][..], "8 bytes expected, 3 left"));
    assert_eq!((unknown.0, &unknown.1[..], unknown.2 .0.as_str()), (200, &[7; 3][..], "unknown message 200"));
}

#[test]
fn one_connection_does_not_keep_others_from_their_turn() {
    let (mut link, transport) = link();
    link.trust();
    let frames = 3 * ROUND_BYTES / framed(&piece(1)).len();
    for request in 0..frames as u64 {
        transport.script().coming.extend(framed(&piece(request)));
    }
    let before = transport.script().coming.len();
    let (first, heard) = read(&mut link);
    let taken = before - transport.script().coming.len();
    assert!((ROUND_BYTES..ROUND_BYTES + READ_BYTES).contains(&taken), "{taken} bytes in one round");
    assert!(heard.unwrap().more, "the poller will not tell of the rest");
    let mut arrivals = first;
    loop {
        let (more, heard) = read(&mut link);
        arrivals.extend(more);
        if !heard.unwrap().more {
            break;
        }
    }
    let requests = arrivals.into_iter().map(|arrival| match arrival {
        Ok(Message::StorePiece(piece)) => piece.request,
        other => panic!("{other:?}"),
    });
    assert!(requests.eq(0..frames as u64));
    let (none, heard) = read(&mut link);
    let heard = heard.unwrap();
    assert!(none.is_empty() && !heard.any && !heard.more);
    transport.script().holds_readable = true;
    assert!(read(&mut link).1.unwrap().more, "what the transport holds is to be read without waiting");
}

#[test]
fn an_end_comes_behind_what_was_said_before_it() {
    let (mut ended, transport) = link();
    transport.script().coming.extend(framed(&echo(1)));
    transport.script().coming.extend(&framed(&echo(2))[..30]);
    transport.script().ends = true;
    let (arrivals, heard) = read(&mut ended);
    assert_eq!(arrivals, [Ok(echo(1))]);
    assert!(matches!(heard, Err(ControlEnd::Ended(reason)) if reason == "it closed the connection"));

    let (mut garbage, transport) = link();
    transport.script().coming.extend(framed(&echo(1)));
    transport.script().coming.extend(b"GET / HTTP/1.1");
    let (arrivals, heard) = read(&mut garbage);
    assert_eq!(arrivals, [Ok(echo(1))]);
    assert!(matches!(heard, Err(ControlEnd::Strange(reason)) if reason.contains("\"GET \"")));

    let (mut encrypted, transport) = link();
    transport.script().coming.extend([0x16, 3, 3, 0, 40]);
    let (_, heard) = read(&mut encrypted);
    assert!(matches!(heard, Err(ControlEnd::Encrypted(reason)) if reason.contains("enable_ssl")));
}

/// A peer that dies ends its connection: by a reset if it has not read everything. A network that breaks ends the
/// connection otherwise, and the peer may still live.
#[test]
fn a_reset_is_the_peers_and_a_time_out_the_networks() {
    for (numbers, is_the_peers) in [
        (&[libc::ECONNRESET, libc::ECONNABORTED, libc::EPIPE][..], true),
        (&[libc::ETIMEDOUT, libc::EHOSTUNREACH, libc::ENETUNREACH, libc::ENETDOWN], false),
    ] {
        for number in numbers {
            let (mut link, transport) = link();
            transport.script().coming.extend(framed(&echo(1)));
            transport.script().fails = Some(*number);
            let (arrivals, heard) = read(&mut link);
            assert_eq!(arrivals.len(), 1, "what came before counts");
            let end = heard.expect_err("it fails");
            assert_eq!(matches!(end, ControlEnd::Ended(_)), is_the_peers, "{number}: {end:?}");
            assert_eq!(matches!(end, ControlEnd::Broken(_)), !is_the_peers, "{number}: {end:?}");
        }
    }
}

/// The peer has said goodbye, and has closed the connection with something unread: what is written to it now fails.
#[test]
fn what_the_peer_said_before_is_read_though_nothing_can_be_written_to_it() {
    let (mut link, transport) = link();
    link.queue(piece(1)).unwrap();
    transport.script().room = 10;
    assert!(link.write());
    transport.script().coming.extend(framed(&Message::Leave));
    transport.script().breaks = true;
    assert!(!link.write());
    assert!(!link.has_outbound(), "nothing waits to be written");
    link.queue(echo(1)).expect("nor comes anything to it");
    assert!(!link.has_outbound() && !link.write());
    let (arrivals, heard) = read(&mut link);
    assert_eq!(arrivals, [Ok(Message::Leave)]);
    assert!(matches!(heard, Err(ControlEnd::Ended(reason)) if reason.contains("roken pipe")));
}

#[test]
fn of_a_status_one_part_waits_and_no_more() {
    let part = |last| Message::StatusPart(StatusPart { last, ..StatusPart::default() });
    let (mut link, transport) = link();
    link.queue(part(false)).unwrap();
    assert!(matches!(link.queue(part(false)), Err(ControlEnd::Garbage(why)) if why.contains("before it has read")));
    transport.script().room = 10;
    assert!(link.write());
    assert!(matches!(link.queue(part(false)), Err(ControlEnd::Garbage(_))), "most of the first still waits");
    transport.script().room = usize::MAX;
    assert!(link.write());
    link.queue(part(true)).unwrap();
    assert!(link.queue(echo(1)).is_ok(), "other messages may wait in numbers");
}

#[test]
fn what_comes_once_it_is_closed_is_passed_over_and_not_held() {
    let transport = Scripted::default();
    let mut link = ControlLink::new(Box::new(transport.clone()));
    let (mut through, mut arrivals, mut frame) = (vec![0; 64], Vec::new(), Vec::new());
    encode_frame(4, 0, &[0; 10_000], &mut frame);
    transport.script().coming.extend(&frame[..1000]);
    link.read(&mut through, &mut arrivals).unwrap();
    assert!(arrivals.is_empty() && link.inbound.len() == 1000, "a part of a message");
    transport.script().coming.extend(&frame[1000..5000]);
    let heard = link.pass_over(&mut through).unwrap();
    assert!(heard.any && !heard.more && transport.script().coming.is_empty());
    assert_eq!(link.inbound.capacity(), 0);
    transport.script().ends = true;
    assert!(link.pass_over(&mut through).is_err());
}
