//! What becomes of a new connection before its first byte: TLS is put around it here, and what tests make of it.

use super::tcp::TcpTransport;
use super::transport::Transport;
use std::sync::Arc;

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that dialled.
    Client,
    /// The one that accepted.
    Server,
}

/// What becomes of each new connection, of nodes to each other and to their scheduler, before the first byte. A wrap that cannot
/// do its work gives a transport that fails: nobody goes on with the plain connection.
pub type Wrap = Arc<dyn Fn(TcpTransport, Side) -> Box<dyn Transport> + Send + Sync>;

/// Connections stay as they are.
pub fn unwrapped() -> Wrap {
    Arc::new(|transport, _| Box::new(transport))
}
