//! What the mesh knows of the present epoch: the cluster, its groups, and the groups that were freed last. It decides which
//! hellos belong there, and has no connection.

use super::dial::worth_a_try;
use super::handshake::{half, same_bytes};
use crate::net::interface;
use crate::runtime::base::link_key::LinkKey;
use crate::runtime::state::roster::Roster;
use crate::types::{GroupId, Incarnation, Secret};
use crate::wire::{Channel, Formed, LinkHello, LinkRejectReason, Member};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// How many freed groups are remembered.
const FREED_MAX: usize = 16_384;

/// Whether a hello is let in.
#[derive(Debug, PartialEq)]
pub(crate) enum Judged {
    /// It is not known yet whether the hello is let in.
    Early,
    Refused(LinkRejectReason),
    /// It comes from a member, and wants this link.
    Member(LinkKey),
}

/// The cluster and its groups, as far as this node has been told.
pub(crate) struct Rosters {
    incarnation: Incarnation,
    formed: Option<Arc<Formed>>,
    groups: HashMap<GroupId, Arc<Roster>>,
    /// The groups that were freed last: a hello for one of these is refused, and does not wait.
    freed: VecDeque<GroupId>,
}

impl Rosters {
    /// What a node knows at the beginning of its life: no cluster yet.
    pub fn new(incarnation: Incarnation) -> Rosters {
        Rosters { incarnation, formed: None, groups: HashMap::new(), freed: VecDeque::new() }
    }

    /// The cluster has formed, or its next epoch has begun.
    pub fn form(&mut self, formed: Arc<Formed>, groups: impl Iterator<Item = Arc<Roster>>) {
        self.formed = Some(formed);
        self.groups = groups.map(|roster| (roster.id, roster)).collect();
    }

    /// A group has been made.
    pub fn add(&mut self, roster: &Arc<Roster>) {
        self.groups.insert(roster.id, Arc::clone(roster));
    }

    /// A group has been freed.
    pub fn remove(&mut self, group: GroupId) {
        self.groups.remove(&group);
        if self.freed.len() >= FREED_MAX {
            self.freed.pop_front();
        }
        self.freed.push_back(group);
    }

    /// The present epoch.
    pub fn formed(&self) -> Option<&Arc<Formed>> {
        self.formed.as_ref()
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.formed.as_ref().map_or(0, |formed| formed.worker_num as usize + formed.server_num as usize)
    }

    /// The epoch's secret.
    pub fn secret(&self) -> Option<Secret> {
        self.formed.as_ref().map(|formed| formed.secret)
    }

    /// A group, if it is known and has not been freed.
    pub fn group(&self, id: GroupId) -> Option<&Arc<Roster>> {
        self.groups.get(&id)
    }

    /// The index of a link's peer.
    pub fn index_of(&self, key: LinkKey) -> Option<u32> {
        self.group(key.group)?.index_of(key.rank)
    }

    /// A node, if `Formed` lists it.
    pub fn member(&self, index: u32) -> Option<Member> {
        self.formed.as_ref()?.members.find(index)
    }

    /// The addresses at which a member is dialled.
    pub fn addresses_of(&self, member: &Member) -> Vec<SocketAddr> {
        if member.addresses.len() < 2 {
            return member.addresses.clone(); // the usual case
        }
        let own = self.formed.as_ref().and_then(|formed| formed.members.find(formed.index));
        let is_here = own.is_some_and(|own| own.host.key == member.host.key);
        worth_a_try(&member.addresses, is_here, |address| interface::is_local(*address))
    }

    /// Whether a link's peer is on this host.
    pub fn is_here(&self, key: LinkKey) -> bool {
        let member = |index| self.formed.as_ref()?.members.find(index);
        let own = self.formed.as_ref().and_then(|formed| member(formed.index));
        let peer = self.index_of(key).and_then(member);
        own.zip(peer).is_some_and(|(own, peer)| own.host.key == peer.host.key)
    }

    /// How this node introduces itself for a link.
    pub fn hello(&self, key: LinkKey, features: u64) -> Option<LinkHello> {
        let formed = self.formed.as_ref()?;
        Some(LinkHello {
            epoch: formed.epoch,
            group: key.group,
            channel: key.channel,
            from: formed.index,
            to: self.index_of(key)?,
            incarnation: self.incarnation,
            proof: half(&formed.secret, 0),
            features,
        })
    }

    /// Whether an early hello has shown the secret of this epoch. If it has, this node just does not know the group
    /// yet.
    pub fn is_proved(&self, hello: &LinkHello) -> bool {
        self.formed.as_ref().is_some_and(|formed| hello.epoch == formed.epoch)
    }

    /// Whether a hello comes from a member.
    pub fn judge(&self, hello: &LinkHello) -> Judged {
        let Some(formed) = &self.formed else { return Judged::Early };
        if hello.epoch.0 == formed.epoch.0 + 1 {
            return Judged::Early; // the scheduler's news of that epoch may be on its way
        }
        let knows = same_bytes(&hello.proof, &half(&formed.secret, 0));
        if (hello.epoch, hello.to, knows) != (formed.epoch, formed.index, true) {
            return Judged::Refused(LinkRejectReason::Stranger);
        }
        if hello.channel == Channel::Watch && hello.group != GroupId::UNIVERSE {
            return Judged::Refused(LinkRejectReason::NoGroup); // its rank there would be taken for a node's index
        }
        let Some(roster) = self.groups.get(&hello.group) else {
            // A node that knows the secret may know a group before we do: the scheduler's news is on its way.
            let early = hello.group.0 > GroupId::UNIVERSE.0 && !self.freed.contains(&hello.group);
            return if early { Judged::Early } else { Judged::Refused(LinkRejectReason::NoGroup) };
        };
        match roster.rank_of(hello.from) {
            Some(rank) => Judged::Member(LinkKey::new(hello.group, hello.channel, rank)),
            None => Judged::Refused(LinkRejectReason::Stranger),
        }
    }
}
