//! Opening links: dialling peers, letting peers in, and giving finished links out, for their groups. Runs on the agent thread,
//! which is why no two decisions about the same link can race.
//!
//! It is a machine like the brains: fed with what is ready and what is wanted, and drained ([`Mesh::next_event`],
//! [`Mesh::take_signs`]). It knows rosters, and no group. Its parts know nothing of each other's decisions: what is known of the epoch
//! (`rosters`), the connections (`mesh_connections`), what is upgraded, watched, told, or unanswered. Only the mesh combines them.
//!
//! Invariants: no payload before *Accept* and its confirmation; both sides prove that they know the epoch's secret, the dialler with
//! its first half, the accepter with its second; of two crossing attempts the one dialled by the lower index survives. A hello
//! that comes before this node knows its cluster waits until it does.
//!
//! Deliberately absent: any decision about what a failed link means. The group asks the scheduler. Tested in `mesh_test.rs`.

use super::address_lookup::AddressLookup;
use super::complaints::{Complaints, UNPROVED};
use super::dial::{Dialled, NotDialled};
use super::handshake::{confirmation, frame, half, leave, Next, Stage, STEPS_MAX};
use super::identities::Identities;
use super::link::{say_at_once, LinkEnd};
use super::mesh_connections::{MeshConnections, FIRST_TOKEN};
use super::peers::{Mail, MeshEvent};
use super::redial::Redials;
use super::revoke_broadcast::RevokeBroadcast;
use super::rosters::{Judged, Rosters};
use super::shortage;
use super::spare_descriptor::SpareDescriptor;
use super::unanswered::Unanswered;
use super::upgrade::{Terms, Upgrade};
use super::watching::Watching;
use crate::agent::PeerSign;
use crate::error::Failure;
use crate::net::{Poller, Side, TcpTransport, Token, Wrap};
use crate::runtime::base::link_key::LinkKey;
use crate::runtime::base::log::Logger;
use crate::runtime::state::roster::Roster;
use crate::runtime::state::silence::attempt;
use crate::types::{GroupId, Incarnation, Time};
use crate::wire::{Channel, Formed, LinkAccept, LinkHello, LinkKind, LinkReject, LinkRejectReason, LinkRevoke};
use crate::wire::{Member, WireError};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// How many connections that have proved nothing are looked at before those that have are looked at again.
pub(super) const STRANGERS_AT_ONCE: usize = 8;

/// The links of one node that are being made.
pub struct Mesh {
    pub(super) complaints: Complaints,
    pub(super) upgrade: Upgrade,
    pub(super) rosters: Rosters,
    pub(super) identities: Identities,
    pub(super) connections: MeshConnections,
    pub(super) redials: Redials,
    /// Links to members that `Formed` does not list.
    pub(super) address_lookup: AddressLookup,
    unanswered: Unanswered,
    /// Links that were handed to their groups, or will be as soon as both ends know of it.
    open: HashSet<LinkKey>,
    pub(super) revoke_broadcast: RevokeBroadcast,
    pub(super) watching: Watching,
    pub(super) spare: SpareDescriptor,
    pub(super) events: VecDeque<MeshEvent>,
}

impl Mesh {
    /// No links yet.
    pub fn new(
        incarnation: Incarnation,
        logger: Arc<Logger>,
        wrap: Wrap,
        upgrade: Upgrade,
        identities: Identities,
    ) -> Mesh {
        Mesh {
            complaints: Complaints::new(logger),
            upgrade,
            rosters: Rosters::new(incarnation),
            identities,
            connections: MeshConnections::new(wrap),
            redials: Redials::default(),
            address_lookup: AddressLookup::default(),
            unanswered: Unanswered::default(),
            open: HashSet::new(),
            revoke_broadcast: RevokeBroadcast::default(),
            watching: Watching::default(),
            spare: SpareDescriptor::new(),
            events: VecDeque::new(),
        }
    }

    /// What the agent thread is to pass on.
    pub fn next_event(&mut self) -> Option<MeshEvent> {
        self.events.pop_front()
    }

    /// What has been seen of the watched nodes, if anything.
    pub fn take_signs(&mut self) -> Option<Vec<(u32, PeerSign)>> {
        self.watching.take_signs()
    }

    /// The cluster has formed, or its next epoch has begun. Hellos that came before are answered now, and nothing that was begun
    /// in the epoch before goes on.
    pub fn form(&mut self, formed: Arc<Formed>, rosters: impl Iterator<Item = Arc<Roster>>, poller: &Poller) {
        self.rosters.form(formed, rosters);
        self.identities.begin_epoch();
        self.connections.begin_epoch();
        self.redials = Redials::default();
        self.address_lookup = AddressLookup::default();
        self.unanswered = Unanswered::default();
        self.open.clear();
        self.revoke_broadcast = RevokeBroadcast::default();
        // Events of the epoch before that have not been passed on are dropped, too: groups have the same numbers in every epoch.
        // Only the news of the job's end stays: the agent judges it.
        self.events.retain(|event| matches!(event, MeshEvent::Aborted(..)));
        self.watching.begin_epoch();
        self.answer_held(|_| true, poller);
    }

    /// A group has been made: hellos that came before are answered now.
    pub fn add(&mut self, roster: &Arc<Roster>, poller: &Poller) {
        self.rosters.add(roster);
        self.answer_held(|hello| hello.group == roster.id, poller);
    }

    /// A group has been freed: none of its links is opened or let in any more, and a node that asks for one is told so. A
    /// handshake that is under way goes on, for its peer counts on the link. The link then ends with that news.
    pub fn remove(&mut self, group: GroupId, poller: &Poller) {
        self.rosters.remove(group);
        self.connections.stop_dialling(group);
        self.redials.forget_group(group);
        self.address_lookup.forget(group);
        self.open.retain(|key| key.group != group);
        self.answer_held(|hello| hello.group == group, poller);
    }

    fn answer_held(&mut self, about: impl Fn(&LinkHello) -> bool, poller: &Poller) {
        for (token, hello) in self.connections.held(about) {
            if self.answer(token, &hello) {
                self.advance(token, poller);
            }
        }
    }

    /// Opens a link, unless it is open or being opened. If it is not known where the peer is, that must be found out first: then
    /// this returns the member to ask the scheduler for.
    pub fn open(&mut self, key: LinkKey, poller: &Poller) -> Option<u32> {
        let index = self.rosters.index_of(key)?;
        self.rosters.formed()?;
        let Some(member) = self.rosters.member(index) else {
            self.address_lookup.wait(index, key);
            return self.address_lookup.next();
        };
        self.dial(key, &member, poller);
        None
    }

    /// Opens a link if it is known where the peer is, and else does nothing.
    pub(super) fn open_if_located(&mut self, key: LinkKey, poller: &Poller) {
        if let Some(member) = self.rosters.index_of(key).and_then(|index| self.rosters.member(index)) {
            self.dial(key, &member, poller);
        }
    }

    /// The scheduler has said where a member is: its links are opened, and its hellos answered. Returns whom to ask for next.
    pub fn located(&mut self, member: &Member, poller: &Poller) -> Option<u32> {
        self.identities.learn(member);
        for key in self.address_lookup.found(member.index) {
            self.dial(key, member, poller);
        }
        self.answer_held(|hello| hello.from == member.index, poller);
        self.address_lookup.next()
    }

    fn dial(&mut self, key: LinkKey, member: &Member, poller: &Poller) {
        let is_opening = self.connections.is_opening(key) || self.redials.waits(key);
        if !self.open.contains(&key) && !is_opening {
            self.connections.dial(key, &self.rosters.addresses_of(member), poller);
            self.look_at_dial(key, poller);
        }
    }

    /// Tries further addresses of peers whose first ones do not answer. Returns when to come again.
    pub fn dial_on(&mut self, now: Time, poller: &Poller) -> Time {
        let (mut settled, mut next) = self.connections.dial_on(now, poller);
        while !settled.is_empty() {
            settled.drain(..).for_each(|key| self.look_at_dial(key, poller));
            settled = self.connections.dial_on(now, poller).0;
            next = now; // what was found may have to be done at once
        }
        next
    }

    fn look_at_dial(&mut self, key: LinkKey, poller: &Poller) {
        match self.connections.look_at_dial(key, poller) {
            Dialled::Pending => {}
            Dialled::Failed(why) => self.not_dialled(key, why),
            Dialled::Ready(transport) => {
                if let Some(hello) = self.rosters.hello(key, self.upgrade.offers(key, &self.rosters)) {
                    self.insert(transport, poller, Time::NEVER, Stage::Dialled(key), frame(LinkKind::Hello, &hello));
                }
            }
        }
    }

    fn not_dialled(&mut self, key: LinkKey, why: NotDialled) {
        let reason = format!("it cannot be reached at {why}");
        match (key.channel, why) {
            (_, NotDialled::Closed(_)) => return self.ended(Next::Unanswered(key, LinkEnd::Ended(reason))),
            (Channel::Watch, NotDialled::Refused(_)) => self.watching.saw(key.rank, PeerSign::Refused(reason)),
            (Channel::Watch, NotDialled::NoDescriptor(_)) => self.watching.saw(key.rank, PeerSign::Unable),
            (Channel::Watch, NotDialled::Other(_)) => self.watching.saw(key.rank, PeerSign::Unanswered),
            (Channel::Word, NotDialled::NoDescriptor(_)) => self.revoke_broadcast.is_unheard(key),
            (_, NotDialled::NoDescriptor(whose)) => {
                let failure = self.rosters.group(key.group).and_then(|roster| shortage::failure(roster, key, &whose));
                failure.into_iter().for_each(|failure| self.over(key, failure));
            }
            (_, NotDialled::Refused(_)) => self.never_up(key, LinkEnd::Ended(reason)),
            (_, NotDialled::Other(_)) => self.never_up(key, LinkEnd::Silent(reason)),
        }
        self.redials.forget(key);
    }

    /// Takes in a connection that stands, and takes the first look at it.
    pub(super) fn insert(
        &mut self,
        transport: TcpTransport,
        poller: &Poller,
        deadline: Time,
        stage: Stage,
        outbound: Vec<u8>,
    ) {
        match self.connections.insert(transport, poller, deadline, stage, outbound) {
            Ok(token) if self.connections.is_first(token) => self.advance(token, poller),
            Ok(_) => {}
            Err((Stage::Dialled(key), error)) => {
                self.never_up(key, LinkEnd::Ended(format!("its link cannot be watched: {error}")));
            }
            Err(_) => {}
        }
    }

    /// Something is ready. Returns whether the token is one of ours.
    pub fn ready(&mut self, token: Token, poller: &Poller) -> bool {
        if self.connections.get_mut(token).is_some() {
            if self.connections.is_first(token) {
                self.advance(token, poller);
            }
        } else if let Some(key) = self.connections.dial_of(token) {
            self.look_at_dial(key, poller);
        }
        token.0 >= FIRST_TOKEN
    }

    /// Looks again where bytes lie that the poller does not know of, and at a few strangers. Returns whether there is more.
    pub fn look_again(&mut self, poller: &Poller) -> bool {
        let held = self.connections.holding();
        for token in &held {
            if self.connections.is_first(*token) {
                self.advance(*token, poller);
            }
        }
        for _ in 0..STRANGERS_AT_ONCE {
            let Some(token) = self.connections.line.take() else { break };
            self.advance(token, poller);
        }
        !held.is_empty() || !self.connections.line.is_empty()
    }

    /// Ends handshakes whose time was up at `looked_at`, and attempts that nobody had answered then. Returns when to come again.
    pub fn expire(&mut self, looked_at: Time, now: Time) -> Time {
        let mut next = Time::NEVER;
        if let Some(patience) = self.rosters.formed().map(|formed| attempt(&formed.agreed)) {
            let (given_up, elsewhere, at) = self.unanswered.give_up(&mut self.connections, patience, (looked_at, now));
            given_up.into_iter().for_each(|(key, reason)| self.never_up(key, LinkEnd::Silent(reason)));
            elsewhere.iter().for_each(|(key, words)| self.complaints.no_peer_at(*key, words));
            next = at;
        }
        let (silent, at) = self.connections.expire(looked_at);
        self.complaints.were_silent(&silent);
        next.min(at).min(self.complaints.tell_counted(now))
    }

    /// Moves a handshake on as far as it goes.
    pub(super) fn advance(&mut self, token: Token, poller: &Poller) {
        if !(0..STEPS_MAX).any(|_| !self.advance_once(token, poller)) {
            self.turn_away(token, &WireError(format!("it sent {STEPS_MAX} messages at once")));
        }
    }

    /// Returns whether there may be more at once.
    fn advance_once(&mut self, token: Token, poller: &Poller) -> bool {
        let next = match self.connections.look(token, self.rosters.secret()) {
            None | Some(Ok(Next::Wait)) => return false,
            Some(Err(why)) => {
                self.turn_away(token, &why);
                return false;
            }
            Some(Ok(next)) => next,
        };
        match next {
            Next::Answer(hello) => return self.answer(token, &hello),
            Next::Deliver(key, features) => match self.check_dialled(token, key, features) {
                Ok(()) => return self.hand_over(token, key, features, poller),
                Err(why) => self.turn_away(token, &why),
            },
            Next::Refused(why) => {
                let from = self.connections.end_refused(token);
                from.into_iter().for_each(|from| self.complaints.turned_away(UNPROVED, from, &why.0));
                return from.is_some();
            }
            Next::Says(key, word) => {
                self.watching.saw(key.rank, PeerSign::Says(word));
                return true;
            }
            over => {
                let over = self.connections.end(token, over);
                self.ended(over);
            }
        }
        false
    }

    /// A handshake has come to its end, and its connection is closed.
    fn ended(&mut self, how: Next) {
        let is_declined = matches!(how, Next::Declined(..));
        match how {
            Next::HasTold(key) => self.revoke_broadcast.has_told(key),
            Next::Told(key, failure) => self.heard(key, failure),
            Next::Over(key, failure) => self.over(key, failure),
            Next::Freed(key) => self.deliver(key, Mail::Freed),
            Next::WatchEnded(key, how) if self.connections.watches(key).is_empty() => {
                self.watching.saw(key.rank, PeerSign::Ended(how));
            }
            Next::Unconfirmed(key, end) => {
                self.open.remove(&key);
                self.ended(Next::Unanswered(key, end));
            }
            Next::Elsewhere(key, words) => {
                self.unanswered.forget(key);
                words.iter().for_each(|words| self.complaints.no_peer_at(key, words));
            }
            Next::Unanswered(key, _) if key.channel == Channel::Word => self.revoke_broadcast.is_unheard(key),
            Next::Unanswered(key, end) | Next::Declined(key, end) if self.redials.again(key, is_declined) => {
                self.complaints.dials_again(key, &end, is_declined);
            }
            Next::Failed(key, end) | Next::Unanswered(key, end) | Next::Declined(key, end) => match key.channel {
                Channel::Watch => self.watching.saw(key.rank, PeerSign::Refused(end.in_words())),
                _ => self.never_up(key, end),
            },
            _ => {}
        }
    }

    /// Somebody sent what is not this protocol.
    fn turn_away(&mut self, token: Token, why: &WireError) {
        let Some(shake) = self.connections.get_mut(token) else { return };
        let how = shake.not_understood(why);
        if matches!(how, Next::Close) {
            self.complaints.not_understood(shake.transport.peer_address(), why);
        }
        let how = self.connections.end(token, how);
        self.ended(how);
    }

    /// Decides about a hello. Returns whether there is something to say to it.
    fn answer(&mut self, token: Token, hello: &LinkHello) -> bool {
        let judged = match self.judge(hello) {
            Judged::Member(key) => self.judge_names(token, hello, key),
            judged => judged,
        };
        let Some(shake) = self.connections.get_mut(token) else { return false };
        match (judged, &shake.stage) {
            (Judged::Early, _) => {
                shake.stage = Stage::Held(hello.clone());
                match self.rosters.is_proved(hello) {
                    true => self.connections.stays(token, hello.from),
                    false => self.connections.waits_unproved(token),
                }
            }
            (Judged::Refused(reason), _) => {
                if reason == LinkRejectReason::Stranger {
                    self.complaints.did_not_know(shake.transport.peer_address());
                }
                shake.outbound = frame(LinkKind::Reject, &LinkReject { reason });
                shake.stage = Stage::Rejecting;
            }
            (Judged::Member(key), Stage::AcceptedOnSpare(whose)) if key.is_link() => {
                let failure = self.rosters.group(key.group).and_then(|roster| shortage::failure(roster, key, whose));
                let Some(failure) = failure else { return false };
                shake.outbound = frame(LinkKind::Revoke, &LinkRevoke { failure: failure.clone() });
                shake.stage = Stage::Rejecting;
                self.over(key, failure);
            }
            (Judged::Member(key), _) => {
                let secret = self.rosters.secret().expect("a hello is judged only once the cluster is known");
                let features = hello.features & self.upgrade.offers(key, &self.rosters);
                shake.outbound = frame(LinkKind::Accept, &LinkAccept { proof: half(&secret, 1), features });
                shake.stage = Stage::Accepting(key, features);
                if key.is_link() {
                    shake.deadline = Time::NEVER;
                    self.connections.give_way(key, token);
                    self.redials.is_under_way(key);
                    self.open.insert(key);
                } else {
                    self.connections.stays(token, hello.from);
                }
            }
        }
        true
    }

    /// Whether a hello is let in.
    fn judge(&self, hello: &LinkHello) -> Judged {
        let judged = self.rosters.judge(hello);
        match judged {
            Judged::Member(key) if !key.is_link() => judged, // two nodes that tell or watch each other use two connections
            // If a peer dials again before it has confirmed, it did not receive the *Accept*: it is let in again.
            Judged::Member(key) if self.open.contains(&key) && self.connections.accepting(key).is_none() => {
                Judged::Refused(LinkRejectReason::Duplicate)
            }
            // An attempt of ours whose connection is not established yet gives way: it may never be established.
            Judged::Member(key) if self.connections.dialled(key).is_some() && hello.to < hello.from => {
                Judged::Refused(LinkRejectReason::Crossing)
            }
            judged => judged,
        }
    }

    /// A link is open: its group gets it, with what both ends offer. Returns whether the handshake goes on at once instead.
    fn hand_over(&mut self, token: Token, key: LinkKey, features: u64, poller: &Poller) -> bool {
        if !key.is_link() {
            if key.channel == Channel::Watch {
                self.watching.saw(key.rank, PeerSign::Stands);
            }
            let (word, shake) = (self.revoke_broadcast.word(key.group), self.connections.get_mut(token));
            return shake.map(|shake| shake.begin_talk(key, word)).is_some();
        }
        if let Some(shake) = self.connections.get_mut(token).filter(|shake| shake.stage == Stage::Dialled(key)) {
            (shake.stage, shake.outbound) = (Stage::Confirming(key, features), confirmation());
            self.open.insert(key);
            return true;
        }
        let Some(mut shake) = self.connections.remove(token) else { return false };
        // A failure here shows when the group's poller is asked to watch it.
        let _ = shake.transport.deregister(poller.registry());
        if self.rosters.group(key.group).is_none() {
            say_at_once(&mut *shake.transport, &leave()); // freed meanwhile
            return false;
        }
        let side = if matches!(shake.stage, Stage::Confirming(..)) { Side::Client } else { Side::Server };
        let terms = Terms::of(key, features, &self.rosters, &self.complaints.logger);
        match self.upgrade.apply(shake.transport, side, terms, &shake.inbound) {
            Ok(transport) => {
                self.open.insert(key);
                self.redials.forget(key);
                self.complaints.logger.debug(&format!("a link to rank {} of {} is open", key.rank, key.group));
                self.deliver(key, |peer| Mail::Up(peer, transport, shake.inbound));
            }
            Err(end) => self.never_up(key, end),
        }
        false
    }

    /// A link cannot be opened, and its group is over because of that.
    fn over(&mut self, key: LinkKey, failure: Failure) {
        let is_of_epoch = self.rosters.group(key.group).is_some_and(|roster| failure.epoch == roster.formed.epoch);
        if is_of_epoch && failure.group == Some(key.group) {
            self.never_up(key, LinkEnd::Over(Box::new(failure)));
        }
    }

    /// A member says that a group, or the job, is over.
    fn heard(&mut self, key: LinkKey, failure: Failure) {
        if self.rosters.group(key.group).is_none_or(|roster| failure.epoch != roster.formed.epoch) {
            return;
        }
        match failure.group {
            Some(id) if id == key.group => self.events.push_back(MeshEvent::Revoked(failure)),
            // Its rank in universe is its index.
            None if key.group == GroupId::UNIVERSE => self.events.push_back(MeshEvent::Aborted(key.rank, failure)),
            _ => {}
        }
    }

    /// A link will not open: its group is told.
    fn never_up(&mut self, key: LinkKey, end: LinkEnd) {
        self.deliver(key, |peer| Mail::Failed(peer, end));
    }

    fn deliver(&mut self, key: LinkKey, mail: impl FnOnce(u32) -> Mail) {
        // Mail is about links only. No caller waits for a word: a member that cannot be reached is not told.
        if self.rosters.group(key.group).is_some() && key.is_link() {
            self.events.push_back(MeshEvent::Mail(key.group, key.channel, mail(key.rank)));
        }
    }
}

#[cfg(test)]
#[path = "mesh_test.rs"]
pub(crate) mod tests;
