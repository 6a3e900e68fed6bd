use super::*;
use crate::net::testlink::tcp_pair as pair;
use crate::net::{Listener, Poller};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(20);

/// A socket that does not listen, at an address that only these tests use.
fn bound_socket() -> (Guarded<OwnedFd>, SocketAddr) {
    let any = "127.0.7.1:0".parse().unwrap();
    let fd = socket::tcp_socket(&any).unwrap();
    socket::bind(&*fd, &any).unwrap();
    let fd = fd.map(std::net::TcpListener::from);
    let address = fd.local_addr().unwrap();
    (fd.map(OwnedFd::from), address)
}

#[test]
fn bytes_pass_both_ways_and_the_end_is_orderly() {
    let (mut a, mut b) = pair();
    let mut poller = Poller::new().unwrap();
    b.register(poller.registry(), Token(3)).unwrap();
    let mut room = [0u8; 16];
    assert_eq!(b.read(&mut [IoSliceMut::new(&mut room)]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(a.write(&[IoSlice::new(b"mus"), IoSlice::new(b""), IoSlice::new(b"ter")]).unwrap(), 6);
    a.flush().unwrap();
    a.shutdown_write().unwrap();
    let mut got = Vec::new();
    loop {
        let (left, right) = room.split_at_mut(2);
        match b.read(&mut [IoSliceMut::new(left), IoSliceMut::new(right)]) {
            Ok(0) => break,
            Ok(n) => got.extend_from_slice(&room[..n]),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                assert!(!b.holds_readable());
                poller.poll(Some(DEADLINE)).unwrap();
                assert!(poller.ready().any(|ready| ready.readable), "nothing within the deadline");
            }
        }
    }
    assert_eq!(got, b"muster");
    assert_eq!(b.read(&mut [IoSliceMut::new(&mut room)]).unwrap(), 0);
    assert_eq!(b.read(&mut []).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn unsent_counts_what_the_peer_has_not_taken() {
    let (mut a, b) = pair();
    assert_eq!(a.unsent(), 0);
    let block = vec![1u8; 1 << 20];
    let mut written = 0;
    loop {
        match a.write(&[IoSlice::new(&block)]) {
            Ok(n) => written += n,
            Err(error) => break assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
    assert!(a.unsent() > 0 && a.unsent() <= written);
    drop(b);
}

#[test]
fn nothing_is_unsent_once_the_peer_has_reset_the_connection() {
    let (mut a, b) = pair();
    drop(b);
    // The peer is gone: this is answered with a reset, which acknowledges nothing.
    assert_eq!(a.write(&[IoSlice::new(b"leave")]).unwrap(), 5);
    let deadline = Instant::now() + DEADLINE;
    while a.unsent() > 0 {
        assert!(Instant::now() < deadline, "{} bytes still count as unsent", a.unsent());
        std::thread::yield_now();
    }
}

#[test]
fn writing_to_a_closed_peer_is_an_error_and_no_signal() {
    // A blocked signal stays pending even where it is ignored, so that this thread can see whether one was raised.
    // SAFETY: an all-zero `sigset_t` is an empty set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` outlives the call.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGPIPE) };
    // SAFETY: `set` outlives the call, and the old mask is not asked for.
    assert_eq!(unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) }, 0);
    let (mut a, b) = pair();
    drop(b);
    let start = std::time::Instant::now();
    let error = loop {
        match a.write(&[IoSlice::new(b"x")]) {
            Ok(_) => assert!(start.elapsed() < DEADLINE),
            Err(error) => break error,
        }
    };
    assert!(matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset), "{error}");
    assert_eq!(a.write(&[IoSlice::new(b"x")]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    // SAFETY: `set` outlives the call.
    unsafe { libc::sigpending(&raw mut set) };
    // SAFETY: `set` outlives the call.
    assert_eq!(unsafe { libc::sigismember(&raw const set, libc::SIGPIPE) }, 0);
}

#[test]
fn a_refused_connection_fails_in_finish_connect() {
    // The port is bound, so that no other test takes it, but nobody listens there.
    let (_bound, closed) = bound_socket();
    let mut poller = Poller::new().unwrap();
    let mut dialled = match TcpTransport::start_connect(closed, None) {
        Ok(dialled) => dialled,
        Err(error) => return assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused),
    };
    dialled.register(poller.registry(), Token(0)).unwrap();
    let error = loop {
        match dialled.finish_connect() {
            Ok(Connect::Pending) => poller.poll(Some(DEADLINE)).unwrap(),
            Ok(Connect::Ready) => panic!("nobody listens there"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_connection_to_itself_is_refused() {
    let (bound, here) = bound_socket();
    drop(bound);
    // Children that other tests start hold a copy until they have closed theirs or have reached their exec.
    let since = std::time::Instant::now();
    let mut dialled = loop {
        match TcpTransport::start_connect_from(here, Some(here)) {
            Ok(dialled) => break dialled,
            Err(error) => assert!(error.kind() == io::ErrorKind::AddrInUse && since.elapsed() < DEADLINE, "{error}"),
        }
        std::thread::yield_now();
    };
    let error = loop {
        match dialled.finish_connect() {
            Ok(Connect::Pending) => std::thread::yield_now(),
            Ok(Connect::Ready) => panic!("it met itself, and did not notice"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert!(error.to_string().contains("connected the socket to itself"), "{error}");
}

#[test]
fn binds_to_the_given_address_and_sets_its_options() {
    let listener = Listener::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let from: IpAddr = "127.0.0.2".parse().unwrap();
    let mut dialled = TcpTransport::start_connect(listener.local_addresses()[0], Some(from)).unwrap();
    let mut poller = Poller::new().unwrap();
    dialled.register(poller.registry(), Token(0)).unwrap();
    while dialled.finish_connect().unwrap() == Connect::Pending {
        poller.poll(Some(DEADLINE)).unwrap();
    }
    assert_eq!(dialled.local_address().ip(), from);
    let fd = dialled.stream.as_raw_fd();
    assert_ne!(socket::option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY).unwrap(), 0);
    // An address that is not this host's.
    let error = TcpTransport::start_connect(listener.local_addresses()[0], Some("192.0.2.1".parse().unwrap()));
    assert_eq!(error.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
}

#[test]
fn a_transport_moves_from_one_poller_to_another() {
    let (mut a, mut b) = pair();
    let first = Poller::new().unwrap();
    let mut second = Poller::new().unwrap();
    b.register(first.registry(), Token(1)).unwrap();
    a.write(&[IoSlice::new(b"x")]).unwrap();
    b.deregister(first.registry()).unwrap();
    b.register(second.registry(), Token(2)).unwrap();
    // What was readable before is reported to the new one.
    loop {
        second.poll(Some(DEADLINE)).unwrap();
        assert!(second.ready().count() > 0, "nothing within the deadline");
        if second.ready().any(|ready| ready.token == Token(2) && ready.readable) {
            break;
        }
    }
    assert_eq!(b.read(&mut [IoSliceMut::new(&mut [0; 4])]).unwrap(), 1);
}

#[test]
fn both_ends_of_a_connection_within_the_host_are_unpaced_and_others_as_usual() {
    let (a, b) = pair();
    assert_eq!(congestion::chosen(&*a.stream).unwrap(), congestion::UNPACED);
    assert_eq!(congestion::chosen(&*b.stream).unwrap(), congestion::UNPACED);
    let elsewhere = "192.0.2.1:4000".parse().unwrap();
    for (usual, expected) in
        [(None, congestion::UNPACED.to_vec()), (congestion::usual(&elsewhere), congestion::usual(&elsewhere).unwrap())]
    {
        let (_dialled, accepted) = pair();
        let accepted = TcpTransport::from_accepted(accepted.stream, elsewhere, usual.as_ref()).unwrap();
        assert_eq!(congestion::chosen(&*accepted.stream).unwrap(), expected);
    }
}

/// How many bytes the kernel takes for a peer that does not read, until it takes no more.
fn taken_without_a_reader(link: &mut TcpTransport) -> usize {
    let mut taken = 0;
    loop {
        match link.write(&[IoSlice::new(&[0; 64 << 10])]) {
            Ok(count) => taken += count,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                return taken;
            }
        }
    }
}

#[test]
fn a_bound_keeps_few_bytes_unsent_and_a_reader_lets_more_go() {
    let (mut free, _peer) = pair();
    let (mut bounded, mut reader) = pair();
    let bound: u32 = 128 << 10;
    bounded.bound_unsent(bound);
    let (without, with) = (taken_without_a_reader(&mut free), taken_without_a_reader(&mut bounded));
    assert!(with + bound as usize <= without, "{with} bytes with the bound, {without} without");
    // The poller tells when there is room again.
    let mut poller = Poller::new().unwrap();
    bounded.register(poller.registry(), Token(1)).unwrap();
    reader.register(poller.registry(), Token(2)).unwrap();
    let mut room = vec![0; 64 << 10];
    let until = Instant::now() + DEADLINE;
    let mut more = 0;
    while more < 4 << 20 {
        assert!(Instant::now() < until, "{more} bytes more within the deadline");
        while reader.read(&mut [IoSliceMut::new(&mut room)]).is_ok() {}
        poller.poll(Some(DEADLINE)).unwrap();
        if poller.ready().any(|ready| ready.token == Token(1) && ready.writable) {
            more += taken_without_a_reader(&mut bounded);
        }
    }
}
