//! Opening links: dialling peers, letting peers in, and giving finished links out, for their groups. Runs on the agent thread,
//! which is why no two decisions about the same link can race.
//!
//! Invariants: no payload before *Accept*; both sides prove that they know the epoch's secret, the dialler with its first
//! half, the accepter with its second; of two crossing attempts the one dialled by the lower index survives. A hello
//! that comes before this node knows its cluster waits until it does.
//!
//! Deliberately absent: any decision about what a failed link means. The group is told, and asks the scheduler. Tested in
//! `mesh_test.rs` by two meshes, or one and a stranger, whose turns the test takes.

use super::address_lookup::AddressLookup;
use super::dial::{Dial, Dialled, NotDialled};
use super::handshake::{frame, half, leave, same_bytes, Handshake, Next, Stage};
use super::link::LinkEnd;
use super::peers::{Mail, MeshEvent};
use super::spare_descriptor::SpareDescriptor;
use super::to_tell::RevokeBroadcast;
use super::upgrade::Upgrade;
use crate::agent::PeerSign;
use crate::net::{Listener, Poller, Side, TcpTransport, Token, Wrap};
use crate::runtime::base::link_key::LinkKey;
use crate::runtime::base::log::Logger;
use crate::runtime::state::roster::Roster;
use crate::types::{GroupId, Incarnation, Time};
use crate::wire::{Channel, Formed, LinkAccept, LinkHello, LinkKind, LinkReject, LinkRejectReason, Member, WireError};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How long a stranger may take to introduce itself, and a peer to answer a hello once it knows its cluster.
pub(crate) const HELLO_WAIT: Duration = Duration::from_secs(5);
/// How many connections may be in the middle of a handshake; more wait in the listener's backlog.
const HANDSHAKES_MAX: usize = 1024;
/// How many hellos of the next epoch wait beyond that for the scheduler's word, which may be away.
const EARLY_MAX: usize = 128;
/// How many strangers' addresses are remembered, so that each is mentioned once.
const STRANGERS_MAX: usize = 1024;
/// How many freed groups are remembered.
const FREED_MAX: usize = 16_384;
/// Where the mesh's tokens begin in the agent thread's poller.
pub const FIRST_TOKEN: usize = 1 << 20;

/// The links of one node that are being made. It is fed (with what is ready, and what is wanted) and drained ([`Mesh::events`]).
pub struct Mesh {
    incarnation: Incarnation,
    logger: Arc<Logger>,
    wrap: Wrap,
    upgrade: Upgrade,
    pub(crate) formed: Option<Arc<Formed>>,
    pub(crate) rosters: HashMap<GroupId, Arc<Roster>>,
    /// What the agent thread is to pass on.
    pub(crate) events: VecDeque<MeshEvent>,
    pub(crate) dials: HashMap<LinkKey, Dial>,
    /// Links that this node is opening, each since when.
    pub(crate) opening: HashMap<LinkKey, Time>,
    /// Links to members of whom `Formed` does not tell.
    locating: AddressLookup,
    pub(crate) handshakes: HashMap<Token, Handshake>,
    /// Links that were handed to their groups.
    open: HashSet<LinkKey>,
    strangers: HashSet<IpAddr>,
    /// Groups that were freed last: who wants a link to one comes too late, and not too early.
    freed: VecDeque<GroupId>,
    pub(crate) telling: RevokeBroadcast,
    pub(crate) spare: SpareDescriptor,
    /// There is room for connections to all nodes, as far as there can be.
    pub(crate) has_room: bool,
    /// What has been seen of nodes that are watched.
    pub(crate) signs: Vec<(u32, PeerSign)>,
    next_token: usize,
}

impl Mesh {
    /// No links yet.
    pub fn new(incarnation: Incarnation, logger: Arc<Logger>, wrap: Wrap, upgrade: Upgrade) -> Mesh {
        Mesh {
            incarnation,
            logger,
            wrap,
            upgrade,
            formed: None,
            rosters: HashMap::new(),
            events: VecDeque::new(),
            dials: HashMap::new(),
            opening: HashMap::new(),
            locating: AddressLookup::default(),
            handshakes: HashMap::new(),
            open: HashSet::new(),
            strangers: HashSet::new(),
            freed: VecDeque::new(),
            telling: RevokeBroadcast::default(),
            spare: SpareDescriptor::new(),
            has_room: false,
            signs: Vec::new(),
            next_token: FIRST_TOKEN,
        }
    }

    /// The cluster is known, or a new epoch of it: hellos that came before are answered now, and nothing that was begun in
    /// the epoch before goes on.
    pub fn form(&mut self, formed: Arc<Formed>, rosters: impl Iterator<Item = Arc<Roster>>, poller: &Poller) {
        self.formed = Some(formed);
        self.dials.clear();
        self.opening.clear();
        self.locating = AddressLookup::default();
        self.open.clear();
        self.telling = RevokeBroadcast::default();
        self.signs.clear();
        self.handshakes.retain(|_, shake| {
            let is_new = matches!(shake.stage, Stage::Accepted | Stage::AcceptedOnSpare(_));
            is_new || matches!(shake.stage, Stage::Held(_) | Stage::Rejecting)
        });
        self.rosters = rosters.map(|roster| (roster.id, roster)).collect();
        self.answer_held(|_| true, poller);
    }

    /// A group has been made: hellos that came before are answered now.
    pub fn add(&mut self, roster: &Arc<Roster>, poller: &Poller) {
        self.rosters.insert(roster.id, Arc::clone(roster));
        self.answer_held(|of| of == roster.id, poller);
    }

    /// A group has been freed: nothing of it is opened or let in any more, and whoever wants that is told. A handshake that
    /// is under way goes on, for its peer counts on the link: that ends with the news.
    pub fn remove(&mut self, group: GroupId, poller: &Poller) {
        self.rosters.remove(&group);
        self.dials.retain(|key, _| key.group != group);
        self.locating.forget(group);
        self.open.retain(|key| key.group != group);
        if self.freed.len() >= FREED_MAX {
            self.freed.pop_front();
        }
        self.freed.push_back(group);
        self.answer_held(|of| of == group, poller);
    }

    fn answer_held(&mut self, about: impl Fn(GroupId) -> bool, poller: &Poller) {
        let held = self.handshakes.iter().filter_map(|(token, shake)| match &shake.stage {
            Stage::Held(hello) if about(hello.group) => Some((*token, hello.clone())),
            _ => None,
        });
        for (token, hello) in held.collect::<Vec<_>>() {
            self.answer(token, &hello, poller);
        }
    }

    /// Opens a link, unless it is open or being opened. Where nobody has told where the peer is, that is to be found out first:
    /// returns whom to ask the scheduler for.
    pub fn open(&mut self, key: LinkKey, poller: &Poller) -> Option<u32> {
        let index = self.rosters.get(&key.group)?.index_of(key.rank)?;
        let Some(member) = self.formed.as_ref()?.members.find(index) else {
            self.locating.wait(index, key);
            return self.locating.next();
        };
        self.dial(key, &member.addresses, poller);
        None
    }

    /// The same, where it is known where the peer is; else nothing.
    pub(crate) fn open_if_located(&mut self, key: LinkKey, poller: &Poller) {
        let index = self.rosters.get(&key.group).and_then(|roster| roster.index_of(key.rank));
        let member = index.zip(self.formed.as_ref()).and_then(|(index, formed)| formed.members.find(index));
        if let Some(member) = member {
            self.dial(key, &member.addresses, poller);
        }
    }

    /// The scheduler has said where a member is: links to it are opened. Returns whom to ask for next.
    pub fn located(&mut self, member: &Member, poller: &Poller) -> Option<u32> {
        for key in self.locating.found(member.index) {
            self.dial(key, &member.addresses, poller);
        }
        self.locating.next()
    }

    fn dial(&mut self, key: LinkKey, addresses: &[SocketAddr], poller: &Poller) {
        if self.open.contains(&key) || self.dials.contains_key(&key) || self.dialled(key).is_some() {
            return;
        }
        let next_token = &mut self.next_token;
        let dial = Dial::start(addresses, poller, || {
            *next_token += 1;
            Token(*next_token)
        });
        self.dials.insert(key, dial);
        self.look_at_dial(key, poller);
    }

    fn dialled(&self, key: LinkKey) -> Option<Token> {
        self.handshakes.iter().find(|(_, shake)| shake.stage == Stage::Dialled(key)).map(|(token, _)| *token)
    }

    fn fresh_token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    /// Lets connections in. Returns whether it stopped early, and must be asked again later.
    pub fn accept(&mut self, listener: &mut Listener, poller: &Poller, now: Time) -> bool {
        let most = HANDSHAKES_MAX + self.watched();
        while self.handshakes.len() < most {
            let (transport, stage) = match listener.accept() {
                Ok((transport, _)) => (transport, Stage::Accepted),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.spare.keep();
                    return false;
                }
                Err(error) => match self.spare.accept(listener, now, &error) {
                    Some((transport, whose)) => (transport, Stage::AcceptedOnSpare(whose)),
                    None => return true,
                },
            };
            self.insert(transport, poller, now + HELLO_WAIT, stage, Vec::new());
        }
        true
    }

    /// Wraps and watches a connection, and takes the first look at it.
    fn insert(&mut self, transport: TcpTransport, poller: &Poller, deadline: Time, stage: Stage, outbound: Vec<u8>) {
        let side = if matches!(stage, Stage::Dialled(_)) { Side::Client } else { Side::Server };
        let mut transport = (self.wrap)(transport, side);
        let token = self.fresh_token();
        if let Err(error) = transport.register(poller.registry(), token) {
            if let Stage::Dialled(key) = stage {
                self.never_up(key, LinkEnd::Ended(format!("its link cannot be watched: {error}")));
            }
            return;
        }
        self.handshakes.insert(token, Handshake { transport, inbound: Vec::new(), outbound, deadline, stage });
        self.advance(token, poller);
    }

    /// Something is ready. Returns whether the token is one of ours.
    pub fn ready(&mut self, token: Token, poller: &Poller) -> bool {
        if self.handshakes.contains_key(&token) {
            self.advance(token, poller);
        } else if let Some(key) = self.dials.iter().find(|(_, dial)| dial.has(token)).map(|(key, _)| *key) {
            self.look_at_dial(key, poller);
        }
        token.0 >= FIRST_TOKEN
    }

    /// Looks again at what holds bytes of which the poller does not know. Returns whether there is such a thing.
    pub fn look_again(&mut self, poller: &Poller) -> bool {
        let waits = |shake: &Handshake| {
            let on_spare = matches!(shake.stage, Stage::AcceptedOnSpare(_));
            on_spare
                || matches!(shake.stage, Stage::Accepted | Stage::Dialled(_) | Stage::Hearing(_) | Stage::Watching(_))
        };
        let held = self.handshakes.iter().filter(|(_, shake)| waits(shake) && shake.transport.holds_readable());
        let held: Vec<Token> = held.map(|(token, _)| *token).collect();
        for token in &held {
            self.advance(*token, poller);
        }
        !held.is_empty()
    }

    /// Ends handshakes whose time is up, and attempts that nobody answers. Returns when to come again.
    pub fn expire(&mut self, now: Time) -> Time {
        let next = self.give_up_unanswered(now);
        // A hello of this epoch has proven itself; of those of the next, which have not yet, only so many wait longer than
        // any stranger.
        let epoch = self.formed.as_ref().map(|formed| formed.epoch);
        let mut early = 0;
        let mut waits = |stage: &Stage| match stage {
            Stage::Held(hello) if epoch.is_none_or(|epoch| hello.epoch <= epoch) => true,
            Stage::Held(_) => {
                early += 1;
                early <= EARLY_MAX
            }
            _ => false,
        };
        self.handshakes.retain(|_, shake| shake.deadline > now || waits(&shake.stage));
        self.handshakes.values().map(|shake| shake.deadline).filter(|deadline| *deadline > now).fold(next, Time::min)
    }

    fn look_at_dial(&mut self, key: LinkKey, poller: &Poller) {
        let Some(dial) = self.dials.get_mut(&key) else { return };
        match dial.look(poller) {
            Dialled::Pending => {}
            Dialled::Failed(why) => {
                self.dials.remove(&key);
                let reason = format!("it cannot be reached at {why}");
                match (key.channel, why) {
                    (Channel::Watch, NotDialled::Refused(_)) => self.watch_failed(key, reason, false),
                    (Channel::Watch, NotDialled::NoDescriptor(_)) => self.signs.push((key.rank, PeerSign::Unable)),
                    (Channel::Watch, _) => self.watch_unanswered(key),
                    (_, NotDialled::NoDescriptor(whose)) => self.give_up_for_want(key, &whose),
                    (_, NotDialled::Refused(_)) => self.never_up(key, LinkEnd::Ended(reason)),
                    _ => self.never_up(key, LinkEnd::Silent(reason)),
                }
            }
            Dialled::Ready(transport) => {
                self.dials.remove(&key);
                let Some(hello) = self.hello(key) else { return };
                self.insert(transport, poller, Time::NEVER, Stage::Dialled(key), frame(LinkKind::Hello, &hello));
            }
        }
    }

    fn hello(&self, key: LinkKey) -> Option<LinkHello> {
        let formed = self.formed.as_ref()?;
        Some(LinkHello {
            epoch: formed.epoch,
            group: key.group,
            channel: key.channel,
            from: formed.index,
            to: self.rosters.get(&key.group)?.index_of(key.rank)?,
            incarnation: self.incarnation,
            proof: half(&formed.secret, 0),
            features: self.upgrade.offers(key),
        })
    }

    /// Moves a handshake on as far as it goes.
    pub(crate) fn advance(&mut self, token: Token, poller: &Poller) {
        while self.advance_once(token, poller) {}
    }

    /// Returns whether there may be more at once.
    fn advance_once(&mut self, token: Token, poller: &Poller) -> bool {
        let secret = self.formed.as_ref().map(|formed| formed.secret);
        let Some(shake) = self.handshakes.get_mut(&token) else { return false };
        match shake.look(secret) {
            Ok(Next::Wait) => {}
            Ok(Next::Close) => drop(self.handshakes.remove(&token)),
            Ok(Next::HasTold(key)) => {
                self.handshakes.remove(&token);
                self.has_told(key);
            }
            Ok(Next::Answer(hello)) => self.answer(token, &hello, poller),
            Ok(Next::Deliver(key, features)) => match self.upgrade.check(key, features) {
                Ok(()) => self.hand_over(token, key, features, poller),
                Err(why) => self.turn_away(token, &why),
            },
            Ok(Next::Told(key, failure)) => {
                self.handshakes.remove(&token);
                self.heard(key, failure);
            }
            Ok(Next::Over(key, failure)) => {
                self.handshakes.remove(&token);
                self.over(key, failure);
            }
            Ok(Next::Freed(key)) => {
                self.handshakes.remove(&token);
                self.deliver(key, Mail::Freed);
            }
            Ok(Next::Says(key, word)) => {
                self.signs.push((key.rank, PeerSign::Says(word)));
                return true;
            }
            Ok(Next::WatchEnded(key, how)) => {
                self.handshakes.remove(&token);
                self.watch_failed(key, how, true);
            }
            Ok(Next::Failed(key, end)) if key.channel == Channel::Watch => {
                self.handshakes.remove(&token);
                self.watch_failed(key, end.in_words(), false);
            }
            Ok(Next::Failed(key, end)) => {
                self.handshakes.remove(&token);
                self.never_up(key, end);
            }
            Err(why) => self.turn_away(token, &why),
        }
        false
    }

    /// Somebody sent what is not this protocol.
    fn turn_away(&mut self, token: Token, why: &WireError) {
        let Some(shake) = self.handshakes.remove(&token) else { return };
        match shake.stage {
            Stage::Watching(key) => return self.watch_failed(key, format!("it is closed: {why}"), true),
            Stage::Dialled(key) if key.channel == Channel::Watch => {
                return self.watch_failed(key, format!("what answers there is no peer: {why}"), false);
            }
            Stage::Dialled(key) => {
                return self.never_up(key, LinkEnd::Ended(format!("what answers there is no peer: {why}")));
            }
            _ => {}
        }
        let address = shake.transport.peer_address().ip();
        if self.strangers.len() < STRANGERS_MAX && self.strangers.insert(address) {
            self.logger.warn(&format!("a stranger at {address} was turned away from this node's port: {why}"));
        }
    }

    /// Decides about a hello.
    fn answer(&mut self, token: Token, hello: &LinkHello, poller: &Poller) {
        let verdict = self.judge(hello);
        let Some(shake) = self.handshakes.get_mut(&token) else { return };
        match (verdict, &shake.stage) {
            (Some(Ok(key)), Stage::AcceptedOnSpare(whose)) if key.is_link() => {
                let whose = whose.clone();
                self.refuse_for_want(token, key, &whose, poller);
            }
            (None, _) => shake.stage = Stage::Held(hello.clone()),
            (Some(Err(reason)), _) => {
                shake.outbound = frame(LinkKind::Reject, &LinkReject { reason });
                shake.stage = Stage::Rejecting;
                self.advance(token, poller);
            }
            (Some(Ok(key)), _) => {
                let formed = self.formed.as_ref().expect("a hello is judged only once the cluster is known");
                let features = hello.features & self.upgrade.offers(key);
                shake.outbound = frame(LinkKind::Accept, &LinkAccept { proof: half(&formed.secret, 1), features });
                shake.stage = Stage::Accepting(key, features);
                if key.is_link() {
                    shake.deadline = Time::NEVER;
                    self.dials.remove(&key);
                    if let Some(own) = self.dialled(key) {
                        self.handshakes.remove(&own);
                    }
                    self.open.insert(key);
                }
                self.advance(token, poller);
            }
        }
    }

    /// Whether a hello is let in; `None` while that cannot be told.
    fn judge(&self, hello: &LinkHello) -> Option<Result<LinkKey, LinkRejectReason>> {
        let formed = self.formed.as_ref()?;
        if hello.epoch.0 == formed.epoch.0 + 1 {
            return None; // the scheduler's word of it may be on its way
        }
        let knows = same_bytes(&hello.proof, &half(&formed.secret, 0));
        if (hello.epoch, hello.to, knows) != (formed.epoch, formed.index, true) {
            return Some(Err(LinkRejectReason::Stranger));
        }
        let Some(roster) = self.rosters.get(&hello.group) else {
            // One who knows the secret may know of a group before we do: the scheduler's word is on its way.
            let early = hello.group.0 > GroupId::UNIVERSE.0 && !self.freed.contains(&hello.group);
            return if early { None } else { Some(Err(LinkRejectReason::NoGroup)) };
        };
        let Some(rank) = roster.rank_of(hello.from) else { return Some(Err(LinkRejectReason::Stranger)) };
        let key = LinkKey::new(hello.group, hello.channel, rank);
        if !key.is_link() {
            return Some(Ok(key)); // two who tell or watch each other use two connections
        }
        if self.open.contains(&key) {
            return Some(Err(LinkRejectReason::Duplicate));
        }
        // An attempt of ours that does not stand yet gives way: it might never come to stand.
        if self.dialled(key).is_some() && formed.index < hello.from {
            return Some(Err(LinkRejectReason::Crossing));
        }
        Some(Ok(key))
    }

    /// A link is open: its group gets it, upgraded by the features that both ends offer.
    fn hand_over(&mut self, token: Token, key: LinkKey, features: u64, poller: &Poller) {
        match key.channel {
            Channel::Word => return self.tell_or_hear(token, key, poller),
            Channel::Watch => return self.begin_watch(token, key, poller),
            Channel::Collectives | Channel::Messages => {}
        }
        let Some(mut shake) = self.handshakes.remove(&token) else { return };
        // A failure here shows when the group's poller is asked to watch it.
        let _ = shake.transport.deregister(poller.registry());
        if !self.rosters.contains_key(&key.group) {
            // Freed meanwhile. A new connection takes these few bytes; if not, its end is all that the peer hears.
            let _ = shake.transport.write(&[IoSlice::new(&leave())]);
            return;
        }
        let side = if matches!(shake.stage, Stage::Dialled(_)) { Side::Client } else { Side::Server };
        match self.upgrade.apply(shake.transport, side, features, &shake.inbound) {
            Ok(transport) => {
                self.open.insert(key);
                self.logger.debug(&format!("a link to rank {} of {} is open", key.rank, key.group));
                self.deliver(key, |peer| Mail::Up(peer, transport, shake.inbound));
            }
            Err(error) => self.never_up(key, LinkEnd::Ended(format!("its upgrade failed: {error}"))),
        }
    }

    /// A link does not come to stand.
    pub(crate) fn never_up(&mut self, key: LinkKey, end: LinkEnd) {
        self.deliver(key, |peer| Mail::Failed(peer, end));
    }

    pub(crate) fn deliver(&mut self, key: LinkKey, mail: impl FnOnce(u32) -> Mail) {
        // Nobody waits for a word: who cannot be told is not.
        if self.rosters.contains_key(&key.group) && key.is_link() {
            self.events.push_back(MeshEvent::Mail(key.group, key.channel, mail(key.rank)));
        }
    }
}

#[cfg(test)]
#[path = "mesh_test.rs"]
pub(crate) mod tests;
