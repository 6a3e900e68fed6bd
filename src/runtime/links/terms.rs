//! What must be known to upgrade a link.

use super::rosters::Rosters;
use crate::runtime::base::link_key::LinkKey;
use crate::runtime::base::log::Logger;
use crate::types::{Role, SharedMemory};
use crate::wire::Formed;
use std::sync::Arc;

/// What must be known to upgrade a link.
pub struct Terms {
    /// The feature bits that both ends offer.
    pub common: u64,
    /// How many nodes this host has at most.
    pub local_size: u32,
    /// Whether it is an error if memory cannot be shared.
    pub is_required: bool,
    /// Whether it is taken for granted that only the two ends write into that memory.
    pub is_trusted: bool,
    /// What the log calls the other end.
    pub peer: String,
    /// The log, which is told what has come of the upgrade.
    pub logger: Arc<Logger>,
}

impl Terms {
    /// The terms of a link for which both ends offer these features.
    pub(crate) fn of(key: LinkKey, common: u64, rosters: &Rosters, logger: &Arc<Logger>) -> Terms {
        let formed = rosters.formed();
        let role = |formed: &Arc<Formed>| rosters.member(formed.index).map(|own| own.role);
        let of_others = |formed: &Arc<Formed>| match role(formed) {
            Some(Role::Server) => formed.worker_num,
            _ => formed.server_num,
        };
        let is_required = |formed: &Arc<Formed>| formed.agreed.shared_memory == SharedMemory::Require;
        Terms {
            common,
            local_size: formed.map_or(1, |formed| formed.local_size.saturating_add(of_others(formed))),
            is_required: formed.is_some_and(is_required),
            is_trusted: !formed.is_some_and(|formed| formed.agreed.checksums.has_memory()),
            peer: format!("rank {} of {}", key.rank, key.group),
            logger: Arc::clone(logger),
        }
    }
}
