//! Sleeping until one of a few descriptors is ready, that nothing watches in between.
//!
//! What an epoll instance watches costs something at every packet, asleep or not. On one host the sender's system call
//! carries out the receiver's part. There an 8-byte allreduce of 4 ranks took a third longer. So a collective's links
//! are watched only while somebody sleeps, with one `poll` call. Reports levels: what is ready is reported each time.

use super::call::check;
use super::poller::{Ready, Token};
use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// The descriptors of one sleep.
#[derive(Debug, Default)]
pub struct Watch {
    polled: Vec<libc::pollfd>,
    tokens: Vec<Token>,
}

impl Watch {
    /// Room for so many, so that nothing is allocated later.
    pub fn with_capacity(descriptors: usize) -> Watch {
        Watch { polled: Vec::with_capacity(descriptors), tokens: Vec::with_capacity(descriptors) }
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

    /// Sleeps until something is ready or the time is up (`None`: no limit). Sleeps again when a signal interrupts it.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let deadline = timeout.and_then(|span| Instant::now().checked_add(span));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left.map(|left| libc::timespec {
                tv_sec: left.as_secs().min(1 << 30) as libc::time_t,
                tv_nsec: left.subsec_nanos().into(),
            });
            let span = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            let (polled, number) = (self.polled.as_mut_ptr(), self.polled.len() as libc::nfds_t);
            // SAFETY: pointer and number are those of `polled`, `span` is null or points to `left`, and no mask is set.
            match check(unsafe { libc::ppoll(polled, number, span, std::ptr::null()) }) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map(drop),
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    const LONG: Option<Duration> = Some(Duration::from_secs(20));

    fn found(watch: &mut Watch, fd: RawFd, readable: bool, writable: bool, timeout: Option<Duration>) -> Vec<Ready> {
        watch.clear();
        watch.add(Token(3), fd, readable, writable);
        watch.wait(timeout).unwrap();
        watch.ready().collect()
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
