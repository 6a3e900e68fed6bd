//! A group's links, as each of its engines keeps them: a slot for each peer, and what the agent thread mails about it.

use super::link::{say_at_once, Link, LinkEnd};
use crate::error::{Culprit, Failure};
use crate::net::Transport;
use crate::types::{GroupId, Time};
use crate::wire::Channel;
use std::time::Duration;

/// What the agent thread mails to an engine.
pub(crate) enum Mail {
    /// A link to this rank, open, with what was read behind its handshake.
    Up(u32, Box<dyn Transport>, Vec<u8>),
    /// A link to this rank cannot be opened.
    Failed(u32, LinkEnd),
    /// This rank has freed the group.
    Freed(u32),
}

/// What the mesh has found out, for the agent thread to pass on.
pub(crate) enum MeshEvent {
    /// For the engine of this group that has links of this kind.
    Mail(GroupId, Channel, Mail),
    /// A member says that its group is over.
    Revoked(Failure),
    /// The node with this index says that the job is over.
    Aborted(u32, Failure),
    /// The scheduler is to be asked who and where the member with this index is.
    Locate(u32),
}

/// Where the link to a peer is.
pub(crate) enum Slot {
    /// Not needed yet.
    Unused,
    /// Asked for.
    Asked,
    /// Open.
    Up(Box<Link>),
    /// Its peer has left the cluster, or freed the group. The culprit: how a failure names the peer, where that was told.
    Left(Option<Culprit>),
    /// It ended, or never came to be.
    Ended(LinkEnd),
}

impl Mail {
    /// The rank that it is about.
    pub(crate) fn peer(&self) -> u32 {
        match self {
            Mail::Up(peer, ..) | Mail::Failed(peer, _) | Mail::Freed(peer) => *peer,
        }
    }
}

impl Slot {
    /// Takes in what the agent thread says of the link. A link that is open, or has ended, stays what it is. A second one
    /// would be dropped, but the agent thread lets none in. `checksums`: whether the cluster wants them; a link whose
    /// transport is intact sends none.
    pub(crate) fn take_in(&mut self, mail: Mail, checksums: bool) {
        if !self.is_wanted() {
            return;
        }
        *self = match mail {
            Mail::Up(_, transport, ahead) => Slot::Up(Box::new(Link::new(transport, &ahead).with_checksums(checksums))),
            Mail::Failed(_, end) => Slot::Ended(end),
            Mail::Freed(_) => Slot::Left(None),
        };
    }

    /// For how long an open link has been silent. `late` means the same as for `Link::silence`.
    pub(crate) fn silence(&mut self, now: Time, late: Duration) -> Option<Duration> {
        match self {
            Slot::Up(link) => Some(link.silence(now, late)),
            _ => None,
        }
    }

    /// The poller has reported the link.
    pub(crate) fn is_reported(&mut self) {
        if let Slot::Up(link) = self {
            link.transport().is_reported();
        }
    }

    /// Whether the link may still open.
    pub(crate) fn is_wanted(&self) -> bool {
        matches!(self, Slot::Unused | Slot::Asked)
    }
}

/// Drops mail for an engine whose links are shut. The peer of a new link is told why, where that is known.
pub(crate) fn turn_away(mail: Mail, last_word: Option<&Vec<u8>>) {
    if let (Mail::Up(_, mut transport, _), Some(word)) = (mail, last_word) {
        say_at_once(&mut *transport, word);
    }
}
