//! TLS: whose certificate a process shows, whose it takes, and the link that both ends then have.
//!
//! | file | what it owns |
//! | --- | --- |
//! | [`link`] | a transport that is encrypted |
//! | [`blocking`] | the same for the command, which asks and waits |
//! | `credentials` | the files that the configuration names: certificates, keys, the revocation list |
//! | `password` | passwords, from a setting, a file or a descriptor |
//! | `renewal` | reads those again once they have changed |
//! | [`pkcs12`] | what is in a PKCS#12 file, or in an encrypted key |
//! | `trust` | whether a certificate of somebody else's is taken |
//! | `ciphers` | which suites a list of OpenSSL's names stands for |
//! | `sentence` | what went wrong in a handshake, in words |
//!
//! Invariants: with TLS no connection is ever made without; both ends show a certificate, and take only those that the CA has signed,
//! that have begun and not ended, and that are not revoked. Names are not checked: a rank has none.
//!
//! Deliberately absent: what the settings are (`config`), and where a connection comes from (`net`).

pub mod blocking;
mod ciphers;
mod credentials;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub mod link;
mod password;
pub mod pkcs12;
mod renewal;
mod sentence;
#[cfg(test)]
#[path = "testing_test.rs"]
pub(crate) mod testing;
mod trust;

use crate::config::TlsSettings;
use crate::error::Result;
use crate::net::{unwrapped, Side, TcpTransport, Transport, Wrap};
pub use credentials::{encrypted_key, is_pem};
use link::TlsTransport;
pub use password::password;
pub use renewal::Remarks;
use renewal::Renewal;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::sync::Arc;

/// What a process needs to speak TLS, and what its user should know.
pub struct Tls {
    /// Puts TLS around each connection.
    pub wrap: Wrap,
    /// One sentence each.
    pub warnings: Vec<String>,
    /// What its user should know later.
    pub remarks: Remarks,
}

/// Reads what the settings name. Everything that is wrong with it is an error now, and not at the first connection. Without
/// settings connections stay as they are.
pub fn open(settings: Option<&TlsSettings>) -> Result<Tls> {
    let Some(settings) = settings else {
        return Ok(Tls { wrap: unwrapped(), warnings: Vec::new(), remarks: Remarks::default() });
    };
    let (renewal, warnings) = Renewal::open(settings)?;
    let renewal = Arc::new(renewal);
    let remarks = Remarks::of(Arc::clone(&renewal));
    let wrap = move |transport: TcpTransport, side| -> Box<dyn Transport> {
        let (client, server) = renewal.ends();
        let session = match side {
            Side::Client => {
                let name = ServerName::from(transport.peer_address().ip());
                ClientConnection::new(client, name).map(Connection::Client)
            }
            Side::Server => ServerConnection::new(server).map(Connection::Server),
        };
        Box::new(TlsTransport::new(transport, session))
    };
    Ok(Tls { wrap: Arc::new(wrap), warnings, remarks })
}
