//! What the mesh does where peers' certificates must carry their node ids: which peers it lets in, and which dialled links
//! it uses. Tested in `mesh_names_test.rs`.

use super::complaints::MISNAMED;
use super::handshake::{frame, Stage};
use super::identities::Shown;
use super::link::say_at_once;
use super::mesh::Mesh;
use super::peers::MeshEvent;
use super::rosters::Judged;
use crate::error::{Failure, Status};
use crate::net::Token;
use crate::runtime::base::link_key::LinkKey;
use crate::runtime::state::roster::Roster;
use crate::wire::{LinkHello, LinkKind, LinkRejectReason, LinkRevoke, WireError};

impl Mesh {
    /// Whether a link may be used, now that both ends have let each other in. If this node dialled it, the peer's
    /// certificate is checked here. If the peer did, its hello was checked (`judge_names`). A peer that shows another
    /// node's certificate is told.
    pub(super) fn check_dialled(&mut self, token: Token, key: LinkKey, features: u64) -> Result<(), WireError> {
        let dialled = self.connections.get_mut(token).filter(|shake| shake.stage == Stage::Dialled(key));
        if let Some((shake, index)) = dialled.zip(self.rosters.index_of(key)) {
            match self.identities.check(index, &self.rosters, &*shake.transport) {
                Shown::Own => {}
                Shown::Untold => return Err(WireError(format!("nobody has told who node {index} is"))),
                Shown::Another(why) => {
                    self.complaints.logger.warn(&format!("no link to rank {} of {}: {why}", key.rank, key.group));
                    let roster = self.rosters.group(key.group).filter(|_| key.is_link());
                    if let Some(failure) = roster.map(|roster| failure(roster, key, &why)) {
                        say_at_once(&mut *shake.transport, &frame(LinkKind::Revoke, &LinkRevoke { failure }));
                    }
                    return Err(WireError(why));
                }
            }
        }
        self.upgrade.check(key, features, &self.rosters)
    }

    /// Whether a member's hello came with its own certificate, where that is demanded.
    pub(super) fn judge_names(&mut self, token: Token, hello: &LinkHello, key: LinkKey) -> Judged {
        let Some(shake) = self.connections.get_mut(token) else { return Judged::Member(key) };
        match self.identities.check(hello.from, &self.rosters, &*shake.transport) {
            Shown::Own => Judged::Member(key),
            Shown::Untold => {
                self.address_lookup.wait_for_name(hello.from);
                self.events.extend(self.address_lookup.next().map(MeshEvent::Locate));
                Judged::Early
            }
            Shown::Another(why) => {
                self.complaints.turned_away(MISNAMED, shake.transport.peer_address(), &why);
                Judged::Refused(LinkRejectReason::Misnamed)
            }
        }
    }
}

/// The reason for the end of a group: this member shows the certificate of another node.
fn failure(roster: &Roster, key: LinkKey, why: &str) -> Failure {
    let (status, culprit, cause) = (Status::Link, roster.culprit(key.rank), why.to_owned());
    Failure { status, culprit, cause, epoch: roster.formed.epoch, group: Some(key.group), sequence: 0 }
}
