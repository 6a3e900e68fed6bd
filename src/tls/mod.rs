//! TLS: which certificate a process shows, which ones it accepts, and the link that both ends then have.
//!
//! | file | what it owns |
//! | --- | --- |
//! | [`link`] | a transport that is encrypted |
//! | [`blocking`] | the encrypted connection of the command, which asks and waits |
//! | `credentials` | the files that the configuration names: certificates, keys, the revocation lists |
//! | [`pem`] | what is in a file in PEM |
//! | `lists` | which of a file's revocation lists count |
//! | [`parts`] | what certificates and lists say of themselves: keys and times |
//! | `password` | passwords, from a setting, a file or a descriptor |
//! | `renewal` | reads the files again once they have changed |
//! | [`pkcs12`] | what is in a PKCS#12 file, or in an encrypted key |
//! | [`names`] | names in certificates: node ids, and hosts |
//! | `trust` | whether another process's certificate is accepted |
//! | `ciphers` | which suites a list of OpenSSL's names stands for |
//! | `signing` | keys that leave nothing of themselves behind when they sign |
//! | `sentence` | what went wrong in a handshake, in words |
//!
//! Invariants: with TLS no connection is ever made without it. Both ends show a certificate, and accept only
//! certificates that the CA has signed, that have begun and not ended, and that are not revoked. Names are checked
//! where a setting demands it (`config::NameChecks`): the host of a scheduler here; node ids in the rooms that know
//! them (`Transport::peer_names`).
//!
//! Deliberately absent: what the settings are (`config`), and where a connection comes from (`net`).

pub mod blocking;
mod ciphers;
mod credentials;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod inbox;
pub mod link;
mod lists;
pub mod names;
pub mod parts;
mod password;
pub mod pem;
pub mod pkcs12;
mod renewal;
mod sentence;
mod signing;
#[cfg(test)]
#[path = "testing_test.rs"]
pub(crate) mod testing;
mod trust;

use crate::config::TlsSettings;
use crate::error::Result;
use crate::net::{unwrapped, Side, TcpTransport, Transport, Wrap};
use link::TlsTransport;
pub use password::password;
pub use renewal::Remarks;
use renewal::{Ends, Renewal};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::sync::Arc;

/// What a process needs to speak TLS, and what its user should know.
pub struct Tls {
    /// Puts TLS around each connection.
    pub wrap: Wrap,
    /// Puts TLS around a connection to the scheduler. If the settings demand it, the scheduler's certificate must be for
    /// its host.
    pub to_scheduler: Wrap,
    /// One sentence each.
    pub warnings: Vec<String>,
    /// What its user should know later.
    pub remarks: Remarks,
}

/// Reads what the settings name. Everything that is wrong with it is an error now, and not at the first connection.
/// Without settings connections stay as they are. The scheduler is looked for at this host, if it is another process.
pub fn open(settings: Option<&TlsSettings>, scheduler: Option<&str>) -> Result<Tls> {
    let Some(settings) = settings else {
        let (wrap, to_scheduler) = (unwrapped(), unwrapped());
        return Ok(Tls { wrap, to_scheduler, warnings: Vec::new(), remarks: Remarks::default() });
    };
    let host = scheduler.map(|host| names::of_host(settings, host)).transpose()?.flatten();
    let (renewal, warnings) = Renewal::open(settings)?;
    let renewal = Arc::new(renewal);
    let wrap = wrap(&renewal, names::nobody());
    let to_scheduler = host.map_or_else(|| Arc::clone(&wrap), |host| self::wrap(&renewal, host));
    Ok(Tls { wrap, to_scheduler, warnings, remarks: Remarks::of(renewal) })
}

/// Puts TLS around a connection; a connection that is dialled must lead to this name.
fn wrap(renewal: &Arc<Renewal<Ends>>, name: ServerName<'static>) -> Wrap {
    let renewal = Arc::clone(renewal);
    Arc::new(move |transport: TcpTransport, side| -> Box<dyn Transport> {
        let (client, server) = renewal.ends();
        let session = match side {
            Side::Client => ClientConnection::new(client, name.clone()).map(Connection::Client),
            Side::Server => ServerConnection::new(server).map(Connection::Server),
        };
        Box::new(TlsTransport::new(transport, session))
    })
}
