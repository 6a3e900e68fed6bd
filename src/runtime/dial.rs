//! Connecting to one of several addresses of the same peer: all are tried side by side, the first that stands wins.
//!
//! Owns the attempts until one is handed out or all have failed. Time limits are the caller's matter.

use crate::net::{Connect, Poller, TcpTransport, Token, Transport};
use std::net::SocketAddr;

/// How a dial stands after a look at one of its attempts.
pub enum Dialled {
    /// Not yet.
    Pending,
    /// This one stands; the others are dropped. It is still registered with the poller.
    Ready(TcpTransport),
    /// None will; the last reason, with its address.
    Failed(String),
}

/// Attempts at one peer.
pub struct Dial {
    attempts: Vec<(Token, TcpTransport)>,
    last_reason: String,
}

impl Dial {
    /// Begins to connect to each address. `next_token` names each attempt.
    pub fn start(addresses: &[SocketAddr], poller: &Poller, mut next_token: impl FnMut() -> Token) -> Dial {
        let mut dial = Dial { attempts: Vec::new(), last_reason: "no address: none is known".to_owned() };
        for address in addresses {
            let token = next_token();
            let started = TcpTransport::start_connect(*address, None).and_then(|mut transport| {
                transport.register(poller.registry(), token)?;
                Ok(transport)
            });
            match started {
                Ok(transport) => dial.attempts.push((token, transport)),
                Err(error) => dial.last_reason = format!("{address}: {error}"),
            }
        }
        dial
    }

    /// Whether this report is about one of its attempts.
    pub fn has(&self, token: Token) -> bool {
        self.attempts.iter().any(|(own, _)| *own == token)
    }

    /// Looks at every attempt.
    pub fn look(&mut self) -> Dialled {
        let mut at = 0;
        while at < self.attempts.len() {
            match self.attempts[at].1.finish_connect() {
                Ok(Connect::Pending) => at += 1,
                Ok(Connect::Ready) => return Dialled::Ready(self.attempts.swap_remove(at).1),
                Err(error) => {
                    let (_, transport) = self.attempts.swap_remove(at);
                    self.last_reason = format!("{}: {error}", transport.peer_address());
                }
            }
        }
        if self.attempts.is_empty() {
            Dialled::Failed(std::mem::take(&mut self.last_reason))
        } else {
            Dialled::Pending
        }
    }
}
