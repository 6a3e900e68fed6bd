//! A node's identity file: with it the node proves, after a restart, that it is the same node.
//!
//! A node stores its next token beside its current one before it registers with the next. So it has the one that the
//! scheduler knows, even if either of them dies in between.
//!
//! | bytes | what |
//! | --- | --- |
//! | 16 | `format`'s: magic `mustrnid`, version 2 |
//! | 4 | crc32 of all that follows |
//! | | node id; own entry; list of other jobs' entries. An entry: job id if any, current token if any, next token if any. All as on the wire |
//!
//! Version 1, which no release has written, had no place for other jobs' entries: it is refused like any other version.
//!
//! Invariants: a file is replaced as a whole, durably. A node reads its own file only: distinct ids have distinct
//! names (beyond [`ESCAPED_MAX`] by a hash of 128 bits), and the id in it must be its own. Deliberately absent: making
//! tokens, and any decision about them. Tested in `identity_test.rs`.

use super::disk::{path_of, tried, tried_directory, Disk, Locked};
use super::format::{check_prefix, prefix, PREFIX_BYTES};
use crate::error::{Error, Result, Status};
use crate::wire::{Decoder, Encoder, Wire, WireError, NAME_MAX};
use std::fmt::{self, Write};

const MAGIC: &[u8; 8] = b"mustrnid";
const VERSION: u32 = 2;
const BODY: usize = PREFIX_BYTES + 4;
/// The longest escaped id that is a file's name as it is, in bytes. File names end at 255.
const ESCAPED_MAX: usize = 200;
/// How many bytes of a longer escaped id stay in the name, so that people recognize it.
const ESCAPED_KEPT: usize = 160;

/// A node's secret.
pub type Token = [u8; 32];

/// What a node keeps beyond its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The node that it belongs to.
    pub node_id: String,
    /// The entry of the job that it was started for last.
    pub own: Entry,
    /// The entries of other jobs, the newest first. They are kept until it is known that the job of `own` has this node.
    pub aside: Vec<Entry>,
}

/// A node's tokens in one job.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// The job, if the node was told one.
    pub job_id: Option<String>,
    /// The token with which it is known to have registered last.
    pub current: Option<Token>,
    /// The token with which it registers next, or has registered without knowing that it succeeded.
    pub next: Option<Token>,
}

impl Identity {
    /// Keeps every other start with this node id and this directory away until the result is dropped. If two read and then
    /// wrote at once, one would lose what the other has kept. The call does not wait for the lock.
    pub fn lock(disk: &dyn Disk, node_id: &str) -> Result<Locked> {
        let name = format!("{}.lock", file_name(node_id));
        tried(disk, "lock", &name, disk.lock(&name, &format!("{}\n", std::process::id())))
    }

    /// Reads what this node has kept. None if it has kept nothing.
    pub fn load(disk: &dyn Disk, node_id: &str) -> Result<Option<Identity>> {
        let name = file_name(node_id);
        let Some(bytes) = tried(disk, "read", &name, disk.read(&name))? else { return Ok(None) };
        let wrong = match decode(&bytes) {
            Ok(identity) if identity.node_id == node_id => return Ok(Some(identity)),
            Ok(other) => format!("is that of node id {:?}, not of {node_id:?}", other.node_id),
            Err(wrong) => wrong,
        };
        let path = path_of(disk, &name).display().to_string();
        let message = format!(
            "the identity file {path} {wrong}: remove it to go on; the node then comes back as one without a token, \
             which has to wait until 30 s after its loss"
        );
        Err(Error::new(Status::Journal, message))
    }

    /// Stores the identity in the place of the one before. It is durable when this returns. After an error the file holds either.
    pub fn store(&self, disk: &dyn Disk) -> Result<()> {
        for (what, text) in [("node id", Some(&self.node_id)), ("job id", self.own.job_id.as_ref())] {
            if let Some(length) = text.map(String::len).filter(|length| *length > NAME_MAX) {
                let message = format!("a {what} of {length} bytes: expected {NAME_MAX} at most");
                return Err(Error::new(Status::Limit, message));
            }
        }
        let name = file_name(&self.node_id);
        let new = format!("{name}.new");
        let mut file = tried(disk, "create", &new, disk.create(&new))?;
        tried(disk, "write to", &new, file.append(&self.encode()))?;
        tried(disk, "sync", &new, file.sync())?;
        tried(disk, "rename", &new, disk.rename(&new, &name))?;
        tried_directory(disk, "sync the directory", disk.sync())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = Encoder::default();
        self.node_id.put(&mut body);
        self.own.put(&mut body);
        self.aside.put(&mut body);
        around(&body.bytes)
    }
}

/// A file with this body.
pub(super) fn around(body: &[u8]) -> Vec<u8> {
    let check = crc32fast::hash(body).to_le_bytes();
    [&prefix(MAGIC, VERSION)[..], &check, body].concat()
}

/// Reads a whole file. An error is the end of the sentence that begins with the file's path.
pub(super) fn decode(bytes: &[u8]) -> Result<Identity, String> {
    check_prefix(bytes, MAGIC, VERSION)?;
    let (begin, body) = bytes.split_at_checked(BODY).ok_or("is damaged: it is cut short")?;
    if crc32fast::hash(body).to_le_bytes() != begin[PREFIX_BYTES..] {
        return Err("is damaged: its checksum does not fit".to_owned());
    }
    let take = |from: &mut Decoder<'_>| -> Result<Identity, WireError> {
        let identity = Identity { node_id: Wire::take(from)?, own: Wire::take(from)?, aside: Wire::take(from)? };
        from.finish()?;
        Ok(identity)
    };
    take(&mut Decoder::new(body)).map_err(|wrong| format!("is damaged: {wrong}"))
}

impl Wire for Entry {
    fn put(&self, to: &mut Encoder) {
        self.job_id.put(to);
        self.current.put(to);
        self.next.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(Entry { job_id: Wire::take(from)?, current: Wire::take(from)?, next: Wire::take(from)? })
    }
}

/// Says whether there are tokens, and never which.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |token: &Option<Token>| token.map(|_| "hidden");
        f.debug_struct("Entry")
            .field("job_id", &self.job_id)
            .field("current", &told(&self.current))
            .field("next", &told(&self.next))
            .finish()
    }
}

/// The name of a node's file. Capitals are escaped, too: some file systems don't tell them from small letters.
fn file_name(node_id: &str) -> String {
    let mut escaped = String::new();
    for byte in node_id.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => escaped.push(char::from(byte)),
            _ => write!(escaped, "%{byte:02x}").expect("a String takes everything"),
        }
    }
    if escaped.len() > ESCAPED_MAX {
        escaped.truncate(ESCAPED_KEPT);
        // No short name has a `~`.
        write!(escaped, "~{:032x}", fnv1a(node_id.as_bytes())).expect("a String takes everything");
    }
    format!("node-{escaped}.identity")
}

/// FNV-1a in 128 bits.
fn fnv1a(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
#[path = "identity_test.rs"]
mod tests;
