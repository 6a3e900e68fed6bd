use super::*;
use crate::net::testfork::ForkedChild;
use crate::net::{Connect, Poller, Transport};
use std::os::fd::AsRawFd;
use std::time::Instant;

const DEADLINE: Duration = Duration::from_secs(20);

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A descriptor in the number's form: the test gives it up.
fn raw(fd: impl IntoRawFd) -> RawFd {
    fd.into_raw_fd()
}

#[test]
fn several_addresses_share_one_port_and_one_accept() {
    let addresses = ["127.0.0.1:0", "127.0.0.2:0", "[::1]:0"].map(|text| text.parse().unwrap());
    let mut listener = Listener::bind(&addresses).unwrap();
    let bound = listener.local_addresses();
    assert_eq!(bound.len(), 3);
    assert!(bound.iter().all(|address| address.port() == bound[0].port() && address.port() != 0));
    let mut poller = Poller::new().unwrap();
    listener.register(poller.registry(), Token(0)).unwrap();
    let mut dialled: Vec<_> = bound.iter().map(|to| TcpTransport::start_connect(*to, None).unwrap()).collect();
    let mut came = Vec::new();
    while came.len() < 3 {
        poller.poll(Some(DEADLINE)).unwrap();
        assert!(poller.ready().count() > 0, "no connection within the deadline");
        loop {
            match listener.accept() {
                Ok((transport, _)) => came.push(transport.local_address()),
                Err(error) => break assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }
    came.sort();
    let mut expected = bound;
    expected.sort();
    assert_eq!(came, expected);
    assert!(dialled.iter_mut().all(|dialled| dialled.finish_connect().unwrap() == Connect::Ready));
}

#[test]
fn a_port_in_use_is_an_error_at_once_that_names_it() {
    // Addresses of this test's own, so that no other test takes the port in between.
    let mut first = Listener::bind(&["127.0.7.3:0".parse().unwrap()]).unwrap();
    let taken = first.local_addresses()[0];
    let error = Listener::bind(&[taken]).unwrap_err();
    assert_eq!(error.status(), Status::Bind);
    assert!(error.message().contains(&taken.to_string()), "{error}");
    assert!(error.message().contains("in use"), "{error}");
    // Another address of this host may have the same port, and the same address twice counts once.
    let other = SocketAddr::new("127.0.7.4".parse().unwrap(), taken.port());
    assert_eq!(Listener::bind(&[other, other]).unwrap().local_addresses(), [other]);
    // A port whose connections linger can be bound again at once.
    let dialled = std::net::TcpStream::connect(taken).unwrap();
    let mut poller = Poller::new().unwrap();
    first.register(poller.registry(), Token(0)).unwrap();
    let accepted = loop {
        match first.accept() {
            Ok((accepted, _)) => break accepted,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        poller.poll(Some(DEADLINE)).unwrap();
        assert!(poller.ready().count() > 0, "no connection within the deadline");
    };
    drop(first);
    drop(accepted);
    drop(dialled);
    // Children that other tests start hold copies until they have closed theirs or have reached their exec.
    let since = Instant::now();
    while let Err(error) = Listener::bind(&[taken]) {
        assert!(error.message().contains("in use") && since.elapsed() < DEADLINE, "{error}");
        std::thread::yield_now();
    }
}

#[test]
fn other_reasons_are_named_too() {
    let error = Listener::bind(&["192.0.2.1:0".parse().unwrap()]).unwrap_err();
    assert_eq!(error.status(), Status::Bind);
    assert!(error.message().contains("192.0.2.1:0: this host has no such address"), "{error}");
    let error = Listener::bind(&["[fe80::dead:beef]:0".parse().unwrap()]).unwrap_err();
    assert!(error.message().contains("]:0: this host has no such address; give one of its own"), "{error}");
    assert_eq!(Listener::bind(&[]).unwrap_err().status(), Status::Invalid);
}

#[test]
fn a_released_listener_can_be_adopted() {
    let listener = Listener::bind(&[loopback()]).unwrap();
    let address = listener.local_addresses()[0];
    let fd = raw(listener.release().remove(0));
    // The descriptor is such as a parent leaves it to us: open across exec, and blocking.
    // SAFETY: takes integers.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }, 0);
    // SAFETY: takes integers.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, 0) }, 0);
    let mut adopted = Listener::adopt(fd).unwrap();
    assert_eq!(adopted.local_addresses(), [address]);
    assert_eq!(adopted.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    // SAFETY: takes integers.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, libc::FD_CLOEXEC);
    assert!(sends_at_once(&mut adopted));
}

/// Whether what it accepts has TCP_NODELAY.
fn sends_at_once(listener: &mut Listener) -> bool {
    let _dialled = std::net::TcpStream::connect(listener.local_addresses()[0]).unwrap();
    let accepted = loop {
        match listener.accept() {
            Ok((accepted, _)) => break accepted,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    };
    socket::option(accepted.descriptor(), libc::IPPROTO_TCP, libc::TCP_NODELAY).unwrap() != 0
}

#[test]
fn what_is_accepted_sends_at_once() {
    assert!(sends_at_once(&mut Listener::bind(&[loopback()]).unwrap()));
}

#[test]
fn what_does_not_listen_is_not_adopted() {
    let refuse = |fd: RawFd, reason: &str| {
        let error = Listener::adopt(fd).unwrap_err();
        assert_eq!(error.status(), Status::Bind);
        let sentence = format!("cannot take over descriptor {fd} as a listening socket: {reason}");
        assert!(error.message().starts_with(&sentence), "{error}");
    };
    refuse(-1, "Bad file descriptor");
    let file = std::fs::File::open("/dev/null").unwrap();
    refuse(file.as_raw_fd(), "it is not a TCP socket");
    let datagram = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    refuse(datagram.as_raw_fd(), "it is not a TCP socket");
    let (unix, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    refuse(unix.as_raw_fd(), "it is not a TCP socket");
    let listener = Listener::bind(&[loopback()]).unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addresses()[0]).unwrap();
    refuse(stream.as_raw_fd(), "it is a TCP socket, but it does not listen");
    // A refused descriptor is still its owner's.
    assert!(stream.peer_addr().is_ok());
}

#[test]
fn errors_of_one_connection_are_told_from_exhaustion() {
    for number in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::EAGAIN, libc::EINVAL] {
        assert!(!is_transient(&io::Error::from_raw_os_error(number)));
    }
    assert!(is_transient(&io::Error::from_raw_os_error(libc::ECONNABORTED)));
    assert!(!is_transient(&io::ErrorKind::WouldBlock.into()));
}

#[test]
fn without_descriptors_accept_says_so_and_the_connection_waits() {
    // This runs in a child, since the limit holds for a whole process. Its exit code tells where it failed.
    let code = ForkedChild::start(|| {
        let mut listener = Listener::bind(&[loopback()]).unwrap();
        let mut poller = Poller::new().unwrap();
        listener.register(poller.registry(), Token(0)).unwrap();
        let _dialled = std::net::TcpStream::connect(listener.local_addresses()[0]).unwrap();
        poller.poll(Some(DEADLINE)).unwrap();
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` outlives the call.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        let none = libc::rlimit { rlim_cur: 0, ..limit };
        // SAFETY: `none` outlives the call.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) };
        match listener.accept() {
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {}
            Err(_) => return 1,
            Ok(_) => return 2,
        }
        // SAFETY: `limit` outlives the call.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        match listener.accept() {
            Ok(_) => 0,
            Err(_) => 3,
        }
    })
    .exit_code();
    assert_eq!(code, 0);
}
