//! Sleeping until one of a few descriptors is ready. Between two sleeps nothing watches them.
//!
//! A socket that an epoll instance watches costs something at every packet, even if nobody sleeps. On one host the sender's
//! system call carries out the receiver's part. There an 8-byte allreduce of 4 ranks took a third longer. So a collective's links
//! are watched only while a thread sleeps, with one `poll` call. It reports levels: what is ready is reported each time.

use super::call::check;
use super::poller::{Ready, Token};
use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// The pause between two looks where the kernel does not sleep for us.
const NAP: Duration = Duration::from_millis(1);

/// What ended a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Something is ready, or the time is up.
    AsAsked,
    /// A signal of the program has come. Nothing is known to be ready.
    BySignal,
}

/// The descriptors of one sleep.
#[derive(Debug, Default)]
pub struct Watch {
    polled: Vec<libc::pollfd>,
    tokens: Vec<Token>,
}

impl Watch {
    /// Makes room for so many descriptors: up to that number, watching one more allocates nothing.
    pub fn reserve(&mut self, descriptors: usize) {
        self.polled.reserve(descriptors.saturating_sub(self.polled.len()));
        self.tokens.reserve(descriptors.saturating_sub(self.tokens.len()));
    }

    /// Watches nothing any more.
    pub fn clear(&mut self) {
        self.polled.clear();
        self.tokens.clear();
    }

    /// How many it watches.
    pub fn watched(&self) -> usize {
        self.polled.len()
    }

    /// Watches a descriptor, to be reported under this token: whether it can be read (or written), and in any case whether
    /// the peer will send nothing more.
    pub fn add(&mut self, token: Token, fd: RawFd, readable: bool, writable: bool) {
        let mut events = libc::POLLRDHUP;
        if readable {
            events |= libc::POLLIN;
        }
        if writable {
            events |= libc::POLLOUT;
        }
        self.polled.push(libc::pollfd { fd, events, revents: 0 });
        self.tokens.push(token);
    }

    /// Sleeps until something is ready, the time is up (`None`: no limit), or a signal comes.
    ///
    /// The kernel may refuse to look at so many: the program has lowered its limit of descriptors below what is open, or
    /// memory is short. Then this looks at them one by one, again and again.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Woken {
        let left = timeout.map(|left| libc::timespec {
            tv_sec: left.as_secs().min(1 << 30) as libc::time_t,
            tv_nsec: left.subsec_nanos().into(),
        });
        let span = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (polled, number) = (self.polled.as_mut_ptr(), self.polled.len() as libc::nfds_t);
        // SAFETY: pointer and number are those of `polled`, `span` is null or points to `left`, and no mask is set.
        match check(unsafe { libc::ppoll(polled, number, span, std::ptr::null()) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Woken::BySignal,
            Ok(_) => {}
            Err(_) => self.wait_one_by_one(timeout),
        }
        Woken::AsAsked
    }

    #[cold]
    fn wait_one_by_one(&mut self, timeout: Option<Duration>) {
        let deadline = timeout.and_then(|span| Instant::now().checked_add(span));
        loop {
            self.polled.iter_mut().for_each(look_at);
            let is_ready = self.polled.iter().any(|one| one.revents != 0);
            let left = deadline.map_or(NAP, |deadline| deadline.saturating_duration_since(Instant::now()));
            if is_ready || left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(NAP)); // no event of the kernel ends this wait: without a pause it would be a busy loop
        }
    }

    /// What the last `wait` found.
    pub fn ready(&self) -> impl Iterator<Item = Ready> + '_ {
        self.polled.iter().zip(&self.tokens).filter(|(polled, _)| polled.revents != 0).map(|(polled, token)| {
            let has = |events| polled.revents & events != 0;
            let broken = has(libc::POLLERR | libc::POLLHUP | libc::POLLNVAL);
            Ready {
                token: *token,
                readable: has(libc::POLLIN | libc::POLLRDHUP) || broken,
                writable: has(libc::POLLOUT) || broken,
                closed: has(libc::POLLRDHUP) || broken,
            }
        })
    }
}

/// Looks at one descriptor alone. If the kernel refuses even that, this reports all that was asked for: a report is only a hint.
fn look_at(one: &mut libc::pollfd) {
    one.revents = 0;
    // SAFETY: the pointer is to one such entry, which outlives the call. With a time-out of zero it only looks.
    if unsafe { libc::poll(one, 1, 0) } < 0 {
        one.revents = one.events & (libc::POLLIN | libc::POLLOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::testfork::ForkedChild;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    const LONG: Option<Duration> = Some(Duration::from_secs(20));

    fn found(watch: &mut Watch, fd: RawFd, readable: bool, writable: bool, timeout: Option<Duration>) -> Vec<Ready> {
        watch.clear();
        watch.add(Token(3), fd, readable, writable);
        while watch.wait(timeout) == Woken::BySignal {}
        watch.ready().collect()
    }

    /// Calls `act` in a child whose limit of descriptors is lower than what is open.
    fn below(limit: u64, act: impl FnOnce() -> bool) {
        let child = ForkedChild::start(|| {
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            // SAFETY: `limit` outlives the call.
            let lowered = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0;
            i32::from(!(lowered && act()))
        });
        assert_eq!(child.exit_code(), 0, "with a limit of {limit}");
    }

    #[test]
    fn a_limit_below_what_is_open_only_makes_it_slower() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (own, _) = listener.accept().unwrap();
        let mut watch = Watch::default();
        let watch = &mut watch;
        (0..5).for_each(|token| watch.add(Token(token), own.as_raw_fd(), true, false));
        let soon = Some(Duration::from_millis(5));
        below(4, || {
            watch.wait(soon);
            watch.ready().count() == 0
        });
        peer.write_all(b"x").unwrap();
        for limit in [4, 1, 0] {
            below(limit, || {
                watch.wait(LONG);
                watch.ready().count() == 5 && watch.ready().all(|ready| ready.readable && !ready.closed)
            });
        }
    }

    #[test]
    fn reports_what_was_asked_for_each_time_and_the_end_always() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (own, _) = listener.accept().unwrap();
        let (mut watch, fd) = (Watch::default(), own.as_raw_fd());
        let nothing = Some(Duration::from_millis(1));
        assert_eq!(found(&mut watch, fd, true, false, nothing), []);
        let writable = Ready { token: Token(3), readable: false, writable: true, closed: false };
        assert_eq!(found(&mut watch, fd, true, true, LONG), [writable]);
        peer.write_all(b"x").unwrap();
        let readable = Ready { token: Token(3), readable: true, writable: false, closed: false };
        for _ in 0..3 {
            assert_eq!(found(&mut watch, fd, true, false, LONG), [readable]);
        }
        assert_eq!(found(&mut watch, fd, false, false, nothing), [], "nobody asked");
        drop(peer);
        for readable in [false, true] {
            let ready = found(&mut watch, fd, readable, false, LONG);
            assert!(ready[0].closed && ready[0].readable, "{ready:?}");
        }
        assert_eq!(found(&mut watch, -1, true, true, nothing), [], "no descriptor at all");
    }
}
