//! What a node keeps in its recovery directory: the tokens that let its next life in.
//!
//! A life draws its token, and keeps it beside the token that holds, before it registers with the new one. Once the
//! cluster is complete, the new token holds. If a life ends before that, its new token may be valid or not: the next
//! life shows both tokens, and registers with the new one again.
//!
//! A start with another job's id, perhaps by mistake, loses nothing: what earlier jobs have is put aside until the
//! cluster of this job is complete. Tested in `identity_store_test.rs`, and by `src/sim`, whose nodes keep their tokens
//! in this way.

use super::disk::OwnDisk;
use crate::config::{Assignment, Settings};
use crate::error::{Error, Result, Status};
use crate::journal::{Disk, Entry, Identity, Locked};
use crate::net::host;
use crate::types::{Role, Token, TokenHash};
use crate::wire::Reentry;

/// How many other jobs something is kept of: the job in which a token came to hold, and those for which this node was
/// started last.
const ASIDE_MAX: usize = 8;

/// A node's identity file.
pub struct IdentityStore {
    disk: Box<dyn Disk>,
    identity: Identity,
}

/// The name under which a node is known in each of its lives, if it has one.
pub(crate) fn lasting_name(role: Role, node_id: Option<&str>, rank: Option<u32>) -> Option<String> {
    match (node_id, role, rank) {
        (Some(id), ..) => Some(id.to_owned()),
        (None, Role::Server, Some(rank)) => Some(format!("server rank {rank}")),
        (None, _, Some(rank)) => Some(format!("rank {rank}")),
        (None, _, None) => None,
    }
}

impl IdentityStore {
    /// With recovery: what this life shows when it registers, durably kept; and the store, unless the node has no
    /// lasting name.
    pub fn open(settings: &Settings) -> Result<Option<(Reentry, Option<IdentityStore>)>> {
        if !settings.enable_recovery {
            return Ok(None);
        }
        let name = match &settings.assignment {
            Assignment::Node { role, node_id, rank, .. } => lasting_name(*role, node_id.as_deref(), *rank),
            _ => None,
        };
        let Some(name) = name else {
            let next = TokenHash::of(&Token(host::random_bytes()?));
            return Ok(Some((Reentry { tokens: Vec::new(), next }, None)));
        };
        let (reentry, store) =
            IdentityStore::begin(Box::new(OwnDisk::of(settings)?), name, settings.job_id.clone(), host::random_bytes)?;
        Ok(Some((reentry, Some(store))))
    }

    /// Begins a life. Returns what it shows, and registers with. That is durable when this returns, and so is what was
    /// kept before. `draw` makes the life's token, if it needs one.
    pub(crate) fn begin(
        disk: Box<dyn Disk>,
        name: String,
        job_id: Option<String>,
        draw: impl FnOnce() -> Result<[u8; 32]>,
    ) -> Result<(Reentry, IdentityStore)> {
        let _lock = match Identity::lock(&*disk, &name)? {
            Locked::Held(lock) => lock,
            Locked::Taken(by) => return Err(is_starting(&*disk, &name, &by)),
        };
        let mut kept = Identity::load(&*disk, &name)?
            .map_or_else(Vec::new, |Identity { own, aside, .. }| std::iter::once(own).chain(aside).collect());
        let known = kept.iter().position(|entry| entry.job_id == job_id).map(|at| kept.remove(at));
        if kept.len() > ASIDE_MAX {
            let oldest = kept.iter().rposition(|entry| entry.current.is_none());
            kept.remove(oldest.unwrap_or(ASIDE_MAX));
        }
        let (current, tried) = known.map_or((None, None), |entry| (entry.current, entry.next));
        let next = tried.map_or_else(draw, Ok)?;
        let identity = Identity { node_id: name, own: Entry { job_id, current, next: Some(next) }, aside: kept };
        identity.store(&*disk)?;
        let tokens = current.into_iter().chain(tried).map(Token).collect();
        Ok((Reentry { tokens, next: TokenHash::of(&Token(next)) }, IdentityStore { disk, identity }))
    }

    /// The cluster is complete: this life's token holds, and no other job's. If another start of this node is just
    /// reading the file, nothing is written: the file has the token as one that may hold, which serves the next life as
    /// well.
    pub fn joined(&mut self) -> Result<()> {
        let own = &mut self.identity.own;
        own.current = own.next.take().or(own.current);
        self.identity.aside.clear();
        match Identity::lock(&*self.disk, &self.identity.node_id)? {
            Locked::Held(_lock) => self.identity.store(&*self.disk),
            Locked::Taken(_) => Ok(()),
        }
    }
}

/// Two lives of one node begin in the same moment.
fn is_starting(disk: &dyn Disk, name: &str, by: &str) -> Error {
    let pid = by.trim().parse::<u32>().map_or("unknown".to_owned(), |pid| pid.to_string());
    let message = format!(
        "another process (pid {pid}) is starting with this node id, {name:?}, in this recovery path, {}: expected one process \
         for each node id; end one of them, or give it a node id (MS_NODE_ID) of its own",
        disk.path().display()
    );
    Error::new(Status::Journal, message)
}

#[cfg(test)]
#[path = "identity_store_test.rs"]
mod tests;
