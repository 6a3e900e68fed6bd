//! What is put around a new connection before its first byte: TLS, or what a test wants.

use super::tcp::TcpTransport;
use super::transport::Transport;
use std::sync::Arc;

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that dialled.
    Client,
    /// The end that accepted.
    Server,
}

/// Makes a transport of each new connection before its first byte, between nodes and to their scheduler. A wrap that cannot
/// do its work returns a transport that fails: nobody goes on with the plain connection.
pub type Wrap = Arc<dyn Fn(TcpTransport, Side) -> Box<dyn Transport> + Send + Sync>;

/// Connections stay as they are.
pub fn unwrapped() -> Wrap {
    Arc::new(|transport, _| Box::new(transport))
}
