//! Whether each peer shows a certificate with its own node id on its links, where that is demanded (`verify_node_id`).
//! The scheduler says which node id belongs to which index: with `Formed`, or, in a large cluster, when it is
//! asked where a member is.
//!
//! Deliberately absent: what becomes of a link whose peer shows another node's certificate (`identity_check`).

use super::rosters::Rosters;
use crate::net::Transport;
use crate::tls::names;
use crate::wire::Member;
use std::collections::HashMap;

/// What a peer has shown.
#[derive(Debug, PartialEq)]
pub(crate) enum Shown {
    /// Its own certificate; or no certificate is demanded.
    Own,
    /// It is not known yet which node id the peer must have.
    Untold,
    /// Another node's certificate: what is wrong with it.
    Another(String),
}

/// What is demanded, and which node ids are known beside those in `Formed`.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    are_demanded: bool,
    told: HashMap<u32, String>,
}

impl Identities {
    /// Whether certificates must carry node ids.
    pub fn new(are_demanded: bool) -> Identities {
        Identities { are_demanded, told: HashMap::new() }
    }

    /// A new epoch has begun.
    pub fn begin_epoch(&mut self) {
        self.told.clear();
    }

    /// The scheduler has told of a member.
    pub fn learn(&mut self, member: &Member) {
        if self.are_demanded {
            self.told.insert(member.index, member.node_id.clone());
        }
    }

    /// What the peer with this index has shown.
    pub fn check(&self, index: u32, rosters: &Rosters, transport: &dyn Transport) -> Shown {
        if !self.are_demanded {
            return Shown::Own;
        }
        let Some(id) = self.told.get(&index).cloned().or_else(|| Some(rosters.member(index)?.node_id)) else {
            return Shown::Untold;
        };
        names::check(&transport.peer_names(), &id).map_or_else(
            |has| {
                let wanted = names::uri(&id);
                Shown::Another(format!("node {id:?} shows a certificate with {has}: expected the name URI:{wanted}"))
            },
            |()| Shown::Own,
        )
    }
}
