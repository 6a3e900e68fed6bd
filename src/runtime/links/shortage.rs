//! A node that has no descriptor left for a link says so: the group that needs the link is over for all, by the name of that
//! node, with its limit.
//!
//! It can say so to a peer that dials it because it keeps one descriptor for that. It waits a while before, in which the program
//! may close some. Deliberately absent: the limit itself (`net::limit`). Tested with processes in `tests/python/test_descriptors.py`.

use super::handshake::{frame, Stage};
use super::link::LinkEnd;
use super::mesh::Mesh;
use crate::error::{Failure, Status};
use crate::net::{limit, Listener, Poller, TcpTransport, Token, Waker};
use crate::runtime::base::link_key::LinkKey;
use crate::types::Time;
use crate::wire::{LinkKind, LinkRevoke};
use std::io;
use std::time::Duration;

/// For how long connections wait in the listener for a descriptor before their diallers are told that there is none.
const PATIENCE: Duration = Duration::from_secs(1);

/// The descriptor that is kept.
pub(crate) struct Spare {
    /// Any descriptor will do.
    kept: Option<Waker>,
    /// Since when there has been none for a connection.
    want: Option<Time>,
}

impl Spare {
    pub(crate) fn new() -> Spare {
        Spare { kept: Waker::new().ok(), want: None }
    }

    /// There is no want now.
    pub(crate) fn keep(&mut self) {
        self.want = None;
        self.refill();
    }

    fn refill(&mut self) {
        if self.kept.is_none() {
            self.kept = Waker::new().ok(); // tried again with the next connection
        }
    }

    /// A connection could not be taken in for this reason: takes it in in place of what is kept, if it has waited long enough.
    pub(crate) fn accept(
        &mut self,
        listener: &mut Listener,
        now: Time,
        error: &io::Error,
    ) -> Option<(TcpTransport, String)> {
        let whose = limit::shortage(error)?;
        self.refill();
        if now.since(*self.want.get_or_insert(now)) < PATIENCE {
            return None;
        }
        drop(self.kept.take()?);
        listener.accept().ok().map(|(transport, _)| (transport, whose))
    }
}

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
