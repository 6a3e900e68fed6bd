//! Connecting to one of several addresses of the same peer, in the manner of RFC 8305: one after another is tried, each a
//! little later than the one before, or at once if that has failed. Earlier attempts go on meanwhile, and the first that
//! succeeds wins. So a dead address costs little time, and of two good addresses the first is used.
//!
//! A connection that is established may lead to another program. So the caller keeps the dial until the peer has answered on it, and
//! goes on with the other addresses if it does not.
//!
//! Owns the attempts until one is handed out or all have failed. Time limits are the caller's matter. Tested in `dial_test.rs`.

use crate::net::{interface, limit, Connect, Poller, TcpTransport, Token, Transport};
use crate::types::Time;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// How long an attempt is alone before the next address is tried, too (RFC 8305, 5: "Connection Attempt Delay").
const NEXT_AFTER: Duration = Duration::from_millis(250);

/// How a dial stands after a look at one of its attempts.
#[derive(Debug)]
pub enum Dialled {
    /// It is not decided yet.
    Pending,
    /// This connection is established, and no poller watches it any more. The other attempts are dropped: their addresses wait.
    Ready(TcpTransport),
    /// No attempt can succeed any more, for this reason.
    Failed(NotDialled),
}

/// Why no attempt has succeeded: each address that was tried, and how it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDialled {
    /// At each address a host answered, and no peer listens there.
    Refused(String),
    /// At least one connection ended before anything was said on it: the peer may be there, and is to be dialled again.
    Closed(String),
    /// This process has no descriptor left: see [`limit::shortage`].
    NoDescriptor(String),
    /// Anything else.
    Other(String),
}

impl fmt::Display for NotDialled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotDialled::Refused(reason) | NotDialled::Closed(reason) | NotDialled::Other(reason) => f.write_str(reason),
            NotDialled::NoDescriptor(whose) => write!(f, "the one that dials has no descriptor left: {whose}"),
        }
    }
}

/// Attempts at one peer.
#[derive(Debug, Default)]
pub struct Dial {
    /// A connection that was established at once, as to a peer on the same host: nobody has to watch it.
    ready: Option<TcpTransport>,
    attempts: Vec<(Token, TcpTransport)>,
    /// The addresses that are not tried yet.
    waiting: VecDeque<SocketAddr>,
    /// All addresses that it has been told.
    known: Vec<SocketAddr>,
    /// When the next address is tried, even if no attempt has failed.
    next_at: Option<Time>,
    failures: Vec<NotDialled>,
}

impl Dial {
    /// Begins with the first of these addresses. `next_token` names each attempt.
    pub fn start(addresses: &[SocketAddr], poller: &Poller, next_token: impl FnMut() -> Token) -> Dial {
        let mut dial = Dial::default();
        dial.add(addresses, poller, next_token);
        dial
    }

    /// Adds further addresses of the peer. Those whose attempt has failed are tried again: a peer may have begun to listen at
    /// one, while the attempt at another address goes on, because what listens there never answers.
    pub fn add(&mut self, addresses: &[SocketAddr], poller: &Poller, next_token: impl FnMut() -> Token) {
        let each: Vec<SocketAddr> = addresses.iter().flat_map(|address| interface::on_each_link(*address)).collect();
        for address in alternating(&each) {
            if !self.known.contains(&address) {
                self.known.push(address);
            }
            let is_tried = self.attempts.iter().any(|(_, attempt)| attempt.peer_address() == address);
            if !is_tried && !self.waiting.contains(&address) {
                self.waiting.push_back(address);
            }
        }
        if self.attempts.is_empty() {
            self.begin_next(poller, next_token);
        }
    }

    /// Notes why there are no addresses, or no more of them.
    pub fn note_reason(&mut self, reason: String) {
        let reason = NotDialled::Other(reason);
        // The look-up is repeated, and its reason may be the same each time.
        if !self.failures.contains(&reason) {
            self.failures.push(reason);
        }
    }

    /// Tries the next address, and goes on to the one after it where that fails at once.
    fn begin_next(&mut self, poller: &Poller, mut next_token: impl FnMut() -> Token) {
        self.next_at = None;
        while self.ready.is_none() {
            let Some(address) = self.waiting.pop_front() else { return };
            let started = TcpTransport::start_connect(address, None).and_then(|mut transport| {
                let connect = transport.finish_connect()?;
                Ok((connect, transport))
            });
            match started {
                Ok((Connect::Ready, transport)) => self.ready = Some(transport),
                Ok((Connect::Pending, mut transport)) => {
                    let token = next_token();
                    match transport.register(poller.registry(), token) {
                        Ok(()) => return self.attempts.push((token, transport)),
                        Err(error) => self.note(address, &error),
                    }
                }
                Err(error) => self.note(address, &error),
            }
        }
    }

    /// Tries the next address where the last attempt has been alone for long enough. Returns when to come again.
    pub fn go_on(&mut self, now: Time, poller: &Poller, next_token: impl FnMut() -> Token) -> Time {
        if self.waiting.is_empty() || self.ready.is_some() {
            return Time::NEVER;
        }
        if self.attempts.is_empty() || now >= *self.next_at.get_or_insert(now + NEXT_AFTER) {
            self.begin_next(poller, next_token);
        }
        match self.waiting.is_empty() {
            true => Time::NEVER,
            false => *self.next_at.get_or_insert(now + NEXT_AFTER),
        }
    }

    /// Whether it knows more than one address.
    pub fn has_several(&self) -> bool {
        self.known.len() > 1
    }

    /// The connection that the dial handed out ended for this reason before a peer answered on it. The dial goes on with the next
    /// addresses.
    pub fn not_answered(&mut self, why: NotDialled) {
        self.failures.push(why);
    }

    /// Nothing was said on the connection that the dial handed out. The dial begins anew, and tries this address last.
    pub fn start_over_behind(&mut self, silent: SocketAddr) {
        let at = self.known.iter().position(|known| *known == silent);
        self.known.rotate_left(at.map_or(0, |at| at + 1));
        self.waiting = self.known.iter().copied().collect();
        self.failures.clear();
    }

    fn note(&mut self, address: SocketAddr, error: &io::Error) {
        let reason = format!("{address}: {error}");
        let failure = match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => NotDialled::Refused(reason),
            _ => limit::shortage(error).map_or(NotDialled::Other(reason), NotDialled::NoDescriptor),
        };
        if !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
    }

    /// Whether this report is about one of its attempts.
    pub fn has(&self, token: Token) -> bool {
        self.attempts.iter().any(|(own, _)| *own == token)
    }

    /// Whether a look at it tells something new though no attempt has been reported.
    pub fn is_settled(&self) -> bool {
        self.ready.is_some() || (self.attempts.is_empty() && self.waiting.is_empty())
    }

    /// Returns which attempts have failed, and then which addresses have not answered. None if an address has not been
    /// tried, or an attempt has succeeded and nobody has looked yet: this process may not have run for a while.
    pub fn unanswered(&self) -> Option<String> {
        if !self.waiting.is_empty() || self.ready.is_some() || self.attempts.iter().any(|(_, attempt)| attempt.stands())
        {
            return None;
        }
        let addresses: Vec<String> = self.attempts.iter().map(|(_, it)| it.peer_address().to_string()).collect();
        let failed = self.failures.iter().map(|failure| format!("{failure}; "));
        Some(failed.chain([addresses.join(", ")]).collect())
    }

    /// What has come of a dial when its time is up: how each address has failed, and which have not answered. Empty if
    /// none is known.
    pub fn so_far(&self) -> String {
        let pending: Vec<String> = self.attempts.iter().map(|(_, it)| it.peer_address().to_string()).collect();
        let silent = (!pending.is_empty()).then(|| format!("{}: no answer in time", pending.join(", ")));
        let words: Vec<String> = self.failures.iter().map(ToString::to_string).chain(silent).collect();
        words.join("; ")
    }

    /// Looks at every attempt.
    pub fn look(&mut self, poller: &Poller, mut next_token: impl FnMut() -> Token) -> Dialled {
        let mut at = 0;
        while at < self.attempts.len() && self.ready.is_none() {
            match self.attempts[at].1.finish_connect() {
                Ok(Connect::Pending) => at += 1,
                Ok(Connect::Ready) => {
                    let (_, mut transport) = self.attempts.swap_remove(at);
                    let _ = transport.deregister(poller.registry()); // a failure shows when it is registered again
                    self.ready = Some(transport);
                }
                Err(error) => {
                    let (_, transport) = self.attempts.swap_remove(at);
                    self.note(transport.peer_address(), &error);
                    self.begin_next(poller, &mut next_token);
                }
            }
        }
        if let Some(transport) = self.ready.take() {
            let dropped = self.attempts.drain(..).map(|(_, attempt)| attempt.peer_address());
            dropped.for_each(|address| self.waiting.push_front(address));
            self.next_at = None;
            return Dialled::Ready(transport);
        }
        if self.attempts.is_empty() {
            Dialled::Failed(self.failure())
        } else {
            Dialled::Pending
        }
    }

    /// Why no attempt has succeeded.
    fn failure(&self) -> NotDialled {
        if let Some(shortage) = self.failures.iter().find(|failure| matches!(failure, NotDialled::NoDescriptor(_))) {
            return shortage.clone();
        }
        let words: Vec<String> = self.failures.iter().map(ToString::to_string).collect();
        match self.failures.iter().all(|failure| matches!(failure, NotDialled::Refused(_))) {
            _ if self.failures.iter().any(|failure| matches!(failure, NotDialled::Closed(_))) => {
                NotDialled::Closed(words.join("; "))
            }
            _ if words.is_empty() => NotDialled::Other("no address: none is known".to_owned()),
            true => NotDialled::Refused(words.join("; ")),
            false => NotDialled::Other(words.join("; ")),
        }
    }
}

/// The same addresses, IPv4 and IPv6 in turn, so that a family that leads nowhere does not delay the other (RFC 8305, 4).
fn alternating(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_first_family = |address: &&SocketAddr| address.is_ipv4() == addresses[0].is_ipv4();
    let mut first = addresses.iter().filter(is_first_family);
    let mut second = addresses.iter().filter(|address| !is_first_family(address));
    let mut all = Vec::with_capacity(addresses.len());
    while all.len() < addresses.len() {
        all.extend(first.next().into_iter().chain(second.next()));
    }
    all
}

/// Which of a peer's addresses are worth a try. An address that this host has, too, such as that of a bridge which each host has,
/// leads to this host. For a peer on another host it is left out, unless no other address is known. For a peer on this host it is
/// the shortest way, and comes first.
pub fn worth_a_try(addresses: &[SocketAddr], is_here: bool, is_own: impl Fn(&SocketAddr) -> bool) -> Vec<SocketAddr> {
    let (own, others): (Vec<SocketAddr>, Vec<SocketAddr>) = addresses.iter().partition(|address| is_own(address));
    match others.is_empty() || is_here {
        true => own.into_iter().chain(others).collect(),
        false => others,
    }
}

#[cfg(test)]
#[path = "dial_test.rs"]
mod tests;
