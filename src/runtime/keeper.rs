//! What a node keeps in its recovery directory: the tokens that let its next life in.
//!
//! A life draws its token and keeps it, beside the one that holds, before it registers with it; once the cluster is
//! complete that token holds. A life that ends before leaves a token that may have come to hold: the next one shows both,
//! and registers with the same again. Tested in `keeper_test.rs`, and by `src/sim/recovery`, whose nodes keep theirs so.

use crate::config::{Key, Place, Settings};
use crate::error::{Error, Result};
use crate::journal::{Disk, FileDisk, Identity, Kept};
use crate::net::fork::Guarded;
use crate::net::host;
use crate::types::{Role, Token, TokenHash};
use crate::wire::Reentry;
use std::fs::File;
use std::io;

/// A node's identity file.
pub struct Keeper {
    disk: Box<dyn Disk>,
    identity: Identity,
}

/// The recovery directory of these settings.
pub(super) fn disk(settings: &Settings) -> Result<FileDisk> {
    let path = settings.recovery_path.as_ref();
    let path = path.ok_or_else(|| Error::config("recovery is on: expected a recovery path (MS_RECOVERY_PATH)"))?;
    FileDisk::open(path, keep).map_err(|error| {
        let setting = settings.origin(Key::RecoveryPath);
        Error::new(error.status(), format!("{setting} is {:?}: {}", path.display().to_string(), error.message()))
    })
}

/// A forked child closes it.
fn keep(open: &mut dyn FnMut() -> io::Result<File>) -> io::Result<Kept> {
    Ok(Box::new(Guarded::create(open)?))
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

impl Keeper {
    /// With recovery: what this life shows when it registers, durably kept; and the keeper, unless the node has no name that
    /// lasts.
    pub fn open(settings: &Settings) -> Result<Option<(Reentry, Option<Keeper>)>> {
        if !settings.enable_recovery {
            return Ok(None);
        }
        let name = match &settings.place {
            Place::Node { role, node_id, rank, .. } => lasting_name(*role, node_id.as_deref(), *rank),
            _ => None,
        };
        let Some(name) = name else {
            let next = TokenHash::of(&Token(host::random_bytes()?));
            return Ok(Some((Reentry { tokens: Vec::new(), next }, None)));
        };
        let (reentry, keeper) =
            Keeper::begin(Box::new(disk(settings)?), name, settings.job_id.clone(), host::random_bytes)?;
        Ok(Some((reentry, Some(keeper))))
    }

    /// A life begins: what it shows, and registers with. That is durable when this returns, and so is what was kept before.
    /// `draw` makes its token, where it needs one.
    pub(crate) fn begin(
        disk: Box<dyn Disk>,
        name: String,
        job_id: Option<String>,
        draw: impl FnOnce() -> Result<[u8; 32]>,
    ) -> Result<(Reentry, Keeper)> {
        let kept = Identity::load(&*disk, &name)?.filter(|kept| kept.job_id == job_id);
        let (current, tried) = kept.map_or((None, None), |kept| (kept.current, kept.next));
        let next = tried.map_or_else(draw, Ok)?;
        let identity = Identity { node_id: name, job_id, current, next: Some(next) };
        identity.store(&*disk)?;
        let tokens = current.into_iter().chain(tried).map(Token).collect();
        Ok((Reentry { tokens, next: TokenHash::of(&Token(next)) }, Keeper { disk, identity }))
    }

    /// The cluster is complete: this life's token holds.
    pub fn joined(&mut self) -> Result<()> {
        self.identity.current = self.identity.next.take().or(self.identity.current);
        self.identity.store(&*self.disk)
    }
}

#[cfg(test)]
#[path = "keeper_test.rs"]
mod tests;
