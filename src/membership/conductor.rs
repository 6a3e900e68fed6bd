//! All parts of the brain, and what happens in several of them because of one thing: `breaking.rs`, `leaving.rs`,
//! `rejoining.rs`, `ending.rs`, and `restart.rs` where another scheduler was there before.

use super::cluster_state::ClusterState;
use super::contract::{Identity, Rules};
use super::forming::Forming;
use super::group_table::GroupTable;
use super::groups::Groups;
use super::liveness::FailureDetector;
use super::recovery::Recovery;
use super::store::Store;
use super::stragglers::Stragglers;
use crate::types::Time;

/// Leads the parts, of which none knows another.
#[derive(Debug)]
pub(super) struct Conductor {
    pub(super) cluster: ClusterState,
    pub(super) forming: Forming,
    pub(super) detector: FailureDetector,
    pub(super) groups: Groups,
    pub(super) stragglers: Stragglers,
    pub(super) recovery: Recovery,
    pub(super) store: Store,
}

impl Conductor {
    pub(super) fn new(identity: Identity, rules: Rules, now: Time) -> Conductor {
        Conductor {
            forming: Forming::new(rules.forming_timeout.map(|span| now + span)),
            detector: FailureDetector::new(now),
            groups: Groups::new(GroupTable::new(rules.worker_num, rules.server_num, rules.recovery)),
            stragglers: Stragglers::default(),
            recovery: Recovery::default(),
            store: Store::new(rules.store, rules.durable),
            cluster: ClusterState::new(identity, rules, now),
        }
    }
}
