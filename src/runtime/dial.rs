//! Connecting to one of several addresses of the same peer: all are tried side by side, the first that stands wins.
//!
//! Owns the attempts until one is handed out or all have failed. Time limits are the caller's matter.

use crate::net::{Connect, Poller, TcpTransport, Token, Transport};
use std::io;
use std::net::SocketAddr;

/// How a dial stands after a look at one of its attempts.
pub enum Dialled {
    /// Not yet.
    Pending,
    /// This one stands, and no poller watches it any more; the others are dropped.
    Ready(TcpTransport),
    /// None will; the last reason, with its address, and whether that was the answer of a host on which nobody listens there.
    Failed(String, bool),
}

/// Attempts at one peer.
pub struct Dial {
    /// One that stood at once, as to a peer on the same host: nobody has to watch it.
    ready: Option<TcpTransport>,
    attempts: Vec<(Token, TcpTransport)>,
    last_reason: String,
    is_refusal: bool,
}

impl Dial {
    /// Begins to connect to each address. `next_token` names each attempt.
    pub fn start(addresses: &[SocketAddr], poller: &Poller, mut next_token: impl FnMut() -> Token) -> Dial {
        let mut dial = Dial {
            ready: None,
            attempts: Vec::new(),
            last_reason: "no address: none is known".to_owned(),
            is_refusal: false,
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
        self.last_reason = format!("{address}: {error}");
        self.is_refusal = matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset);
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
            Dialled::Failed(std::mem::take(&mut self.last_reason), self.is_refusal)
        } else {
            Dialled::Pending
        }
    }
}
