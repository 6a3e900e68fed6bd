//! New keys for a link under TLS 1.2, which cannot change them: the link gets a new session, on the same connection.
//!
//! A cipher may seal so many records with one key. Both ends count those of each direction. Once one of the two has had
//! [`RECORDS_MAX`], both say the end of their session (close_notify), and a new handshake follows in the same connection, with
//! everything that belongs to one: certificates are looked at again, and those that were renewed are shown. Then each end
//! says what only the one that had the session before can know, so that nobody else can go on in its place.
//!
//! An end of the connection there is no end in order: both ends know by their own count that more must come.

use rustls::{Connection, ProtocolVersion};
use zeroize::Zeroizing;

/// After how many records of one direction there are new keys: a quarter of what AES-GCM may seal (RFC 8446, section 5.5), 64 GiB.
pub const RECORDS_MAX: u64 = 1 << 22;
/// How many bytes one record carries at most: RFC 5246, section 6.2.1.
const RECORD_BYTES: usize = 16 << 10;
const TOKEN_BYTES: usize = 32;

/// What only the two ends of a session know.
pub type Token = Zeroizing<[u8; TOKEN_BYTES]>;

/// Where a link is with its keys.
pub enum Stage {
    /// They serve.
    Serving,
    /// We have said the end of the session, and take nothing until the next one serves.
    Ending,
    /// The next session has begun. The peer still has to say this; so much of it has come.
    Proving { expected: Token, came: usize },
}

impl Stage {
    /// Whether what is written can be taken.
    pub fn is_serving(&self) -> bool {
        matches!(self, Stage::Serving)
    }
}

/// How many records each direction of a session has had.
#[derive(Default)]
pub struct Counts {
    sealed: u64,
    opened: u64,
}

impl Counts {
    /// So many bytes were given to the session at once, which makes as few records of them as it can.
    pub fn seal(&mut self, bytes: usize) {
        self.sealed += bytes.div_ceil(RECORD_BYTES) as u64;
    }

    /// A record of data has come.
    pub fn open(&mut self) {
        self.opened += 1;
    }

    /// Whether a session under TLS 1.2 is to have a successor.
    pub fn are_used_up(&self, session: &Connection, records_max: u64) -> bool {
        let is_old = session.protocol_version() == Some(ProtocolVersion::TLSv1_2) && !session.is_handshaking();
        is_old && self.sealed.max(self.opened) >= records_max
    }
}

/// What this end of a session says first in the next one, and what it is to hear.
pub fn tokens(session: &Connection) -> Result<(Token, Token), rustls::Error> {
    let of = |label: &[u8]| session.export_keying_material([0; TOKEN_BYTES], label, None).map(Zeroizing::new);
    let (client, server) = (of(b"EXPORTER-muster-client-goes-on")?, of(b"EXPORTER-muster-server-goes-on")?);
    Ok(match session {
        Connection::Client(_) => (client, server),
        Connection::Server(_) => (server, client),
    })
}
