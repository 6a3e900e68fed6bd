//! Whether the kernel at the other end of a TCP connection still answers, as our kernel knows it (`TCP_INFO`, tcp(7)).
//!
//! A kernel answers for its process: a peer that is stopped, or does not read, is not silent. If nothing is under way,
//! our kernel asks once a second, if it was told to (`SO_KEEPALIVE`), only so that there is an answer to miss. Our kernel
//! must not end a connection before its user would. So `TCP_USER_TIMEOUT` is not used: by it, Linux ends a connection
//! whose peer answers, but does not read. Such a peer's kernel may answer that it has no room even for what it had
//! promised to take. Those bytes are then sent again at growing intervals, and answered each time. (Linux answers so from
//! 6.7 on: "net: tcp: send zero-window ACK when no memory".)

use super::call::check;
use super::signs::Acknowledged;
use super::socket::set_option;
use libc::{c_int, socklen_t};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How many of the kernel's questions may go unanswered before it ends the connection itself: the most that can be set.
const QUESTIONS: c_int = 127;
/// The longest time between two questions, in seconds.
const APART_MAX: u64 = 32_767;

/// How long nothing has come from the peer's kernel, if it owes an answer: to what was sent last, or to more than one question.
pub(super) fn silence(fd: &impl AsRawFd) -> Option<Duration> {
    let info = tcp_info(fd).ok()?;
    owes(&info).then(|| Duration::from_millis(info.tcpi_last_ack_recv.into()))
}

/// What the peer's kernel has acknowledged, and whether it owes an answer.
pub(super) fn acknowledged(fd: &impl AsRawFd) -> Acknowledged {
    let info = tcp_info(fd).ok();
    info.map_or(Acknowledged::default(), |info| Acknowledged { bytes: info.tcpi_bytes_acked, owes: owes(&info) })
}

/// Whether the peer's kernel owes an answer. It must acknowledge what is under way. If it has no room for that any more, it must
/// answer what was sent last. Other bytes of the peer prove nothing: it may repeat them because it does not hear us.
fn owes(info: &libc::tcp_info) -> bool {
    let is_answered = info.tcpi_snd_wnd == 0 && info.tcpi_last_ack_recv <= info.tcpi_last_data_sent;
    (info.tcpi_unacked > 0 && !is_answered) || info.tcpi_probes > 1
}

/// Has the kernel ask if nothing is under way. It asks for `within` at least before it ends the connection.
pub(super) fn ask_for_signs(fd: &impl AsRawFd, within: Duration) -> io::Result<()> {
    let apart = (1 + within.as_secs() / 100).min(APART_MAX) as c_int;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 1)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, apart)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, QUESTIONS)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)
}

/// Has the kernel resend a few unacknowledged packets at even intervals first (six times, after 0.2 s each if the network
/// is quick), and only then at growing ones. So the connection recovers soon after a trouble of the network has passed.
pub(super) fn send_again_evenly(fd: &impl AsRawFd) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS, 1)
}

fn tcp_info(fd: &impl AsRawFd) -> io::Result<libc::tcp_info> {
    // SAFETY: it is made of integers, and all-zero is a valid one. An older kernel leaves its end as it is.
    let mut info: libc::tcp_info = unsafe { zeroed() };
    let mut length = size_of::<libc::tcp_info>() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`; both outlive the call.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length)
    };
    check(result).map(|_| info)
}

/// Makes a socket deaf, as if the network lost whatever is sent to it: its kernel does not answer for it any more.
#[cfg(test)]
pub(crate) fn deafen(fd: &impl AsRawFd) {
    const RETURN: u16 = 6; // BPF_RET | BPF_K: how much of a packet is let in
    let mut nothing = libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut nothing };
    let length = size_of::<libc::sock_fprog>() as socklen_t;
    let from = (&raw const program).cast();
    // SAFETY: the kernel reads `length` bytes of `program`, which points to one instruction; both outlive the call.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, from, length) };
    check(result).expect("anybody may do so");
}

/// Makes a deaf socket hear again.
#[cfg(test)]
fn undeafen(fd: &impl AsRawFd) {
    set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0).expect("it has a filter");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::socket::option;
    use crate::net::testlink::tcp_pair;
    use crate::net::{Signs, TcpTransport, Transport};
    use std::io::{IoSlice, IoSliceMut};
    use std::time::Instant;

    const LIMIT: Duration = Duration::from_secs(60);
    const LONG: Duration = Duration::from_secs(1);

    fn until(what: &str, mut look: impl FnMut() -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !look() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(10)); // the kernel reports to nobody what it hears
        }
    }

    fn is_silent(end: &TcpTransport) -> bool {
        end.silence().is_some_and(|silence| silence >= LONG)
    }

    #[test]
    fn a_peer_whose_kernel_acknowledges_nothing_is_silent_until_it_does() {
        let (mut own, peer) = tcp_pair();
        assert_eq!(own.silence(), None);
        deafen(&peer.descriptor());
        own.write(&[IoSlice::new(b"hello")]).unwrap();
        until("nothing is acknowledged", || is_silent(&own));
        assert_eq!(peer.silence(), None, "it has sent nothing, and asks nothing");
        undeafen(&peer.descriptor());
        until("it is sent again", || own.silence().is_none());
    }

    /// A peer repeats bytes of which it has no acknowledgement. That does not show that it hears anything.
    #[test]
    fn a_peer_that_sends_and_hears_nothing_owes_an_answer() {
        let (mut own, mut peer) = tcp_pair();
        deafen(&peer.descriptor());
        peer.write(&[IoSlice::new(b"hello")]).unwrap();
        until("it comes", || own.read(&mut [IoSliceMut::new(&mut [0; 8])]).is_ok());
        own.write(&[IoSlice::new(b"hello")]).unwrap();
        let since = Instant::now();
        while since.elapsed() < 2 * LONG {
            assert!(matches!(own.acknowledged(), Acknowledged { bytes: 0 | 1, owes: true }));
            std::thread::sleep(Duration::from_millis(10)); // between two looks: it is what stays so that is shown
        }
        undeafen(&peer.descriptor());
        until("it hears", || matches!(own.acknowledged(), Acknowledged { bytes: 5 | 6, owes: false }));
    }

    #[test]
    fn a_trouble_of_the_network_is_over_soon_after_it_has_passed() {
        let (mut own, _peer) = tcp_pair();
        let is_even = |own: &TcpTransport| {
            option(own.descriptor().as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS).unwrap()
        };
        assert_eq!(is_even(&own), 0);
        own.send_again_evenly();
        assert_eq!(is_even(&own), 1);
    }

    #[test]
    fn where_nothing_is_under_way_the_kernel_asks_if_it_is_told_to() {
        let (mut own, peer) = tcp_pair();
        deafen(&peer.descriptor());
        own.ask_for_signs(LONG);
        until("no question is answered", || is_silent(&own));
        undeafen(&peer.descriptor());
        until("it asks on", || own.silence().is_none());
    }

    #[test]
    fn a_peer_that_does_not_read_is_not_silent() {
        let (mut own, _peer) = tcp_pair();
        own.ask_for_signs(LONG);
        let block = vec![1; 1 << 20];
        while own.write(&[IoSlice::new(&block)]).is_ok() {}
        // The peer is asked at growing intervals. While an answer is on its way, it seems to have been silent since the
        // one before.
        let since = Instant::now();
        let mut answered = since;
        while since.elapsed() < 4 * LONG {
            if !is_silent(&own) {
                answered = Instant::now();
            }
            assert!(answered.elapsed() < LONG, "its kernel answers");
            std::thread::sleep(Duration::from_millis(10)); // between two looks: it is what stays so that is shown
        }
        assert!(own.unsent() > 0);
    }

    /// Small pieces take far more of the peer's kernel memory than their length: its kernel takes back what it had
    /// promised to take.
    #[test]
    fn a_peer_that_does_not_read_many_small_pieces_is_not_silent() {
        let (mut own, mut peer) = tcp_pair();
        // The more the peer has read, the more its kernel promises to take.
        let (block, mut into, mut left) = (vec![1; 1 << 20], vec![0; 1 << 20], 64usize << 20);
        while left > 0 {
            let _ = own.write(&[IoSlice::new(&block)]);
            while let Ok(count) = peer.read(&mut [IoSliceMut::new(&mut into)]) {
                left = left.saturating_sub(count);
            }
        }
        let since = Instant::now();
        let (mut last, mut answered) = (Acknowledged::default(), since);
        while since.elapsed() < 5 * LONG || own.unsent() == 0 {
            assert!(since.elapsed() < LIMIT, "it takes what nobody reads");
            while own.write(&[IoSlice::new(&block[..24])]).is_ok() {}
            let now = own.acknowledged();
            if !now.owes || now != last {
                (last, answered) = (now, Instant::now());
            }
            assert!(answered.elapsed() < LONG, "its kernel answers");
            std::thread::sleep(Duration::from_millis(10)); // between two looks: it is what stays so that is shown
        }
    }

    #[test]
    fn the_kernel_asks_for_as_long_as_it_is_to() {
        for (within, apart) in [(0, 1), (6, 1), (120, 2), (72_000, 721), (u64::MAX, 32_767)] {
            let (mut own, _peer) = tcp_pair();
            own.ask_for_signs(Duration::from_secs(within));
            let set = |name| super::super::socket::option(own.descriptor(), libc::IPPROTO_TCP, name).unwrap();
            assert_eq!(
                (set(libc::TCP_KEEPIDLE), set(libc::TCP_KEEPINTVL), set(libc::TCP_KEEPCNT)),
                (1, apart, QUESTIONS)
            );
        }
    }
}
