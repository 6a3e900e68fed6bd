//! Connecting to one of several addresses of the same peer: all are tried side by side, the first that stands wins.
//!
//! Owns the attempts until one is handed out or all have failed. Time limits are the caller's matter.

use crate::net::{limit, Connect, Poller, TcpTransport, Token, Transport};
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// How a dial stands after a look at one of its attempts.
pub enum Dialled {
    /// Not yet.
    Pending,
    /// This one stands, and no poller watches it any more; the others are dropped.
    Ready(TcpTransport),
    /// None will; the last reason.
    Failed(NotDialled),
}

/// Why no attempt stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDialled {
    /// A host answered, and nobody listens there: its address and how it said so.
    Refused(String),
    /// This process has no descriptor left: see [`limit::shortage`].
    NoDescriptor(String),
    /// Anything else, with the address.
    Other(String),
}

impl fmt::Display for NotDialled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotDialled::Refused(reason) | NotDialled::Other(reason) => f.write_str(reason),
            NotDialled::NoDescriptor(whose) => write!(f, "the one that dials has no descriptor left: {whose}"),
        }
    }
}

/// Attempts at one peer.
pub struct Dial {
    /// One that stood at once, as to a peer on the same host: nobody has to watch it.
    ready: Option<TcpTransport>,
    attempts: Vec<(Token, TcpTransport)>,
    last_reason: NotDialled,
}

impl Dial {
    /// Begins to connect to each address. `next_token` names each attempt.
    pub fn start(addresses: &[SocketAddr], poller: &Poller, mut next_token: impl FnMut() -> Token) -> Dial {
        let mut dial = Dial {
            ready: None,
            attempts: Vec::new(),
            last_reason: NotDialled::Other("no address: none is known".to_owned()),
        };
        for address in addresses {
            let started = TcpTransport::start_connect(*address, None).and_then(|mut transport| {
                let connect = transport.finish_connect()?;
                Ok((connect, transport))
            });
            match started {
                Ok((Connect::Ready, transport)) => {
                    dial.ready = Some(transport);
                    break;
                }
                Ok((Connect::Pending, mut transport)) => {
                    let token = next_token();
                    match transport.register(poller.registry(), token) {
                        Ok(()) => dial.attempts.push((token, transport)),
                        Err(error) => dial.note(*address, &error),
                    }
                }
                Err(error) => dial.note(*address, &error),
            }
        }
        dial
    }

    fn note(&mut self, address: SocketAddr, error: &io::Error) {
        let reason = format!("{address}: {error}");
        self.last_reason = match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => NotDialled::Refused(reason),
            _ => limit::shortage(error).map_or(NotDialled::Other(reason), NotDialled::NoDescriptor),
        };
    }

    /// Whether this report is about one of its attempts.
    pub fn has(&self, token: Token) -> bool {
        self.attempts.iter().any(|(own, _)| *own == token)
    }

    /// Where nobody has answered; none if one attempt stands, and nobody has looked: this process may not have run for a while.
    pub fn unanswered(&self) -> Option<String> {
        if self.ready.is_some() || self.attempts.iter().any(|(_, attempt)| attempt.stands()) {
            return None;
        }
        let addresses: Vec<String> = self.attempts.iter().map(|(_, it)| it.peer_address().to_string()).collect();
        Some(addresses.join(", "))
    }

    /// Looks at every attempt.
    pub fn look(&mut self, poller: &Poller) -> Dialled {
        if let Some(transport) = self.ready.take() {
            return Dialled::Ready(transport);
        }
        let mut at = 0;
        while at < self.attempts.len() {
            match self.attempts[at].1.finish_connect() {
                Ok(Connect::Pending) => at += 1,
                Ok(Connect::Ready) => {
                    let (_, mut transport) = self.attempts.swap_remove(at);
                    let _ = transport.deregister(poller.registry()); // a failure shows when it is registered again
                    return Dialled::Ready(transport);
                }
                Err(error) => {
                    let (_, transport) = self.attempts.swap_remove(at);
                    self.note(transport.peer_address(), &error);
                }
            }
        }
        if self.attempts.is_empty() {
            Dialled::Failed(self.last_reason.clone())
        } else {
            Dialled::Pending
        }
    }
}
