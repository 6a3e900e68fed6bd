//! A node that has no descriptor left for a link says so: the group that needs the link is over for all, by the name of that
//! node, with its limit.
//!
//! It can say so to a peer that dials it because it keeps one descriptor for that. It waits a while before, in which the program
//! may close some. Deliberately absent: the limit itself (`net::limit`). Tested with processes in `tests/python/test_descriptors.py`.

use super::handshake::{frame, Stage};
use super::link::LinkEnd;
use super::mesh::Mesh;
use crate::error::{Failure, Status};
use crate::net::{Poller, Token};
use crate::runtime::base::link_key::LinkKey;
use crate::wire::{LinkKind, LinkRevoke};

impl Mesh {
    /// A peer wants a link, and there is no descriptor for it.
    pub(crate) fn refuse_for_want(&mut self, token: Token, key: LinkKey, whose: &str, poller: &Poller) {
        let Some(failure) = self.want_of(key, whose) else { return };
        let Some(shake) = self.handshakes.get_mut(&token) else { return };
        shake.outbound = frame(LinkKind::Revoke, &LinkRevoke { failure });
        shake.stage = Stage::Rejecting;
        self.give_up_for_want(key, whose);
        self.advance(token, poller);
    }

    /// This node has no descriptor for a link that its group needs.
    pub(crate) fn give_up_for_want(&mut self, key: LinkKey, whose: &str) {
        if let Some(failure) = self.want_of(key, whose) {
            self.over(key, failure);
        }
    }

    /// A link cannot be had, and the group is over for that.
    pub(crate) fn over(&mut self, key: LinkKey, failure: Failure) {
        if self.rosters.get(&key.group).is_some_and(|roster| failure.epoch == roster.formed.epoch)
            && failure.group == Some(key.group)
        {
            self.never_up(key, LinkEnd::Over(Box::new(failure)));
        }
    }

    fn want_of(&self, key: LinkKey, whose: &str) -> Option<Failure> {
        let roster = self.rosters.get(&key.group)?;
        let cause = format!("has no descriptor left for a link to rank {} of {}; {whose}", key.rank, key.group);
        let culprit = roster.culprit(roster.rank?);
        Some(Failure {
            status: Status::System,
            culprit,
            cause,
            epoch: roster.formed.epoch,
            group: Some(key.group),
            sequence: 0,
        })
    }
}
