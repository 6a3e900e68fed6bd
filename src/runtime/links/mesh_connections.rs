//! A node's connections that belong to no group: its dials, the handshakes that are under way, and the watches. They are a table,
//! which the mesh feeds. The table decides nothing, and knows no group.
//!
//! Invariant: each connection is wrapped before its first byte, by its side. Tested through `mesh_test.rs`.

use super::dial::{Dial, Dialled, NotDialled};
use super::handshake::{Handshake, Next, Stage};
use super::link_end::LinkEnd;
use crate::net::{Poller, Side, TcpTransport, Token, Transport, Wrap};
use crate::runtime::base::link_key::LinkKey;
use crate::strangers::{Crowd, Line};
use crate::types::{GroupId, Secret, Time};
use crate::wire::{Channel, LinkHello, WireError};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Where the mesh's tokens begin in the agent thread's poller.
pub const FIRST_TOKEN: usize = 1 << 20;
/// How many connections that others opened may have proved nothing yet; beyond that one of them is closed.
pub(super) const UNPROVED_MAX: usize = 1024;
/// How many may have proved nothing where this process is short of descriptors.
pub(super) const UNPROVED_WHEN_SHORT: usize = 32;
/// How many connections of members may wait for groups or stay beside links, beyond two for each node.
pub(super) const STAYING_SPARE: usize = 1024;
/// How many hellos may wait beyond their time until the scheduler announces their epoch: it may be away.
pub(super) const EARLY_MAX: usize = 128;

/// The table.
pub(crate) struct MeshConnections {
    wrap: Wrap,
    pub(super) dials: HashMap<LinkKey, Dial>,
    /// Dials whose connection is established, and whose peers have further addresses: until the peer has answered.
    reached: HashMap<LinkKey, Dial>,
    /// Addresses at which connections were established, and no peer answered: they are tried last.
    peerless: Vec<SocketAddr>,
    pub(super) handshakes: HashMap<Token, Handshake>,
    /// The handshakes that others opened and that have proved nothing yet.
    crowd: Crowd<Token, IpAddr>,
    /// The connections of members, by index, that wait for a group or stay beside links: hellos for groups that are not known
    /// yet, words, and watches. Some have ended since.
    members: Crowd<Token, u32>,
    /// The handshakes that are looked at when it is their turn.
    pub(super) line: Line<Token>,
    next_token: usize,
}

impl MeshConnections {
    /// A table without connections.
    pub fn new(wrap: Wrap) -> MeshConnections {
        let (dials, reached, handshakes) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (peerless, crowd, members, line) = (Vec::new(), Crowd::default(), Crowd::default(), Line::default());
        MeshConnections { wrap, dials, reached, peerless, handshakes, crowd, members, line, next_token: FIRST_TOKEN }
    }

    /// A new epoch has begun. Of the handshakes, only those go on that have not been answered yet, or have been rejected.
    pub fn begin_epoch(&mut self) {
        self.dials.clear();
        self.reached.clear();
        self.peerless.clear();
        self.handshakes.retain(|_, shake| {
            let is_new = matches!(shake.stage, Stage::Accepted | Stage::AcceptedOnSpare(_));
            is_new || matches!(shake.stage, Stage::Held(_) | Stage::Rejecting | Stage::Rejected)
        });
    }

    /// A group has been freed. A handshake that is under way goes on.
    pub fn stop_dialling(&mut self, group: GroupId) {
        self.dials.retain(|key, _| key.group != group);
        self.reached.retain(|key, _| key.group != group);
    }

    /// Begins to connect to one of these addresses.
    pub fn dial(&mut self, key: LinkKey, addresses: &[SocketAddr], poller: &Poller) {
        let mut addresses = addresses.to_vec();
        // The one that has failed last comes last.
        addresses.sort_by_key(|address| self.peerless.iter().position(|other| other == address).map_or(0, |at| at + 1));
        let next_token = &mut self.next_token;
        let dial = Dial::start(&addresses, poller, || following(next_token));
        self.reached.remove(&key);
        self.dials.insert(key, dial);
    }

    /// Goes on with the dials whose peers have further addresses. Returns which are to be looked at, and when to come again.
    pub fn dial_on(&mut self, now: Time, poller: &Poller) -> (Vec<LinkKey>, Time) {
        let (mut settled, mut next, next_token) = (Vec::new(), Time::NEVER, &mut self.next_token);
        for (key, dial) in &mut self.dials {
            next = next.min(dial.go_on(now, poller, || following(next_token)));
            if dial.is_settled() {
                settled.push(*key);
            }
        }
        (settled, next)
    }

    /// Which dial a report is about.
    pub fn dial_of(&self, token: Token) -> Option<LinkKey> {
        self.dials.iter().find(|(_, dial)| dial.has(token)).map(|(key, _)| *key)
    }

    /// How a dial stands. Once it has succeeded or failed, it is no longer in this table. The other addresses of the peer are kept
    /// until it has answered.
    pub fn look_at_dial(&mut self, key: LinkKey, poller: &Poller) -> Dialled {
        let next_token = &mut self.next_token;
        let look = |dial: &mut Dial| dial.look(poller, || following(next_token));
        let looked = self.dials.get_mut(&key).map_or(Dialled::Pending, look);
        if !matches!(looked, Dialled::Pending) {
            let dial = self.dials.remove(&key).filter(|dial| matches!(looked, Dialled::Ready(_)) && dial.has_several());
            self.reached.extend(dial.map(|dial| (key, dial)));
        }
        looked
    }

    /// Takes out a connection that has ended like this. If no peer has answered on it, the others of the peer's addresses are tried.
    pub fn end(&mut self, token: Token, how: Next) -> Next {
        let dialled = self.remove(token).filter(|shake| matches!(shake.stage, Stage::Dialled(_)));
        let (Next::Failed(key, end) | Next::Unanswered(key, end) | Next::Declined(key, end), Some(shake)) =
            (&how, dialled)
        else {
            return how;
        };
        let Some(mut dial) = self.reached.remove(key) else { return how };
        let (key, address) = (*key, shake.transport.peer_address());
        let words = format!("{address}: {}", end.in_words());
        let (is_unanswered, may_be_there) = (matches!(how, Next::Unanswered(..)), !matches!(how, Next::Failed(..)));
        let told = (!is_unanswered || matches!(end, LinkEnd::Corrupt(_))).then(|| words.clone());
        dial.not_answered(match end {
            _ if may_be_there => NotDialled::Closed(words),
            LinkEnd::Silent(_) => NotDialled::Other(words),
            _ => NotDialled::Refused(words),
        });
        if !is_unanswered {
            self.is_peerless(address);
        }
        self.dials.insert(key, dial);
        Next::Elsewhere(key, told)
    }

    /// Ends a connection on which nobody has said anything for `patience`, if the peer has further addresses: these are tried. If
    /// nothing was acknowledged either, this address has failed. Otherwise the peer may only be slow, and this address is tried
    /// again after the others. Returns what the log says of it.
    pub fn look_elsewhere(&mut self, key: LinkKey, token: Token, patience: Duration) -> Option<String> {
        let shake = self.handshakes.get(&token).filter(|shake| shake.stage == Stage::Dialled(key))?;
        let mut dial = self.reached.remove(&key)?;
        let (address, seconds) = (shake.transport.peer_address(), patience.as_secs_f64());
        let is_deaf = shake.transport.silence().is_some_and(|silence| silence >= patience);
        let words = match is_deaf {
            true => format!("{address}: no answer for {seconds:.1} s"),
            false => format!("{address}: what listens there has said nothing for {seconds:.1} s"),
        };
        match is_deaf {
            true => dial.not_answered(NotDialled::Other(words.clone())),
            false => dial.start_over_behind(address),
        }
        self.is_peerless(address);
        self.dials.insert(key, dial);
        self.remove(token);
        Some(words)
    }

    /// The connection on which this node has said hello, and waits for the answer.
    pub fn dialled(&self, key: LinkKey) -> Option<Token> {
        self.handshakes.iter().find(|(_, shake)| shake.stage == Stage::Dialled(key)).map(|(token, _)| *token)
    }

    /// Whether this node is opening this link.
    pub fn is_opening(&self, key: LinkKey) -> bool {
        self.dials.contains_key(&key) || self.dialled(key).is_some()
    }

    /// The connection on which the peer was let in, and has not yet confirmed that.
    pub fn accepting(&self, key: LinkKey) -> Option<Token> {
        let is_one = |stage: &Stage| matches!(stage, Stage::Accepting(of, _) if *of == key);
        self.handshakes.iter().find(|(_, shake)| is_one(&shake.stage)).map(|(token, _)| *token)
    }

    /// The links that are being opened, each with its connection if that is established.
    pub fn opening(&self) -> Vec<(LinkKey, Option<Token>)> {
        let stand = self.handshakes.iter().filter_map(|(token, shake)| match shake.stage {
            Stage::Dialled(key) | Stage::Accepting(key, _) => Some((key, Some(*token))),
            _ => None,
        });
        self.dials.keys().map(|key| (*key, None)).chain(stand).collect()
    }

    /// The other attempts at a link give way to this attempt of the peer, which has proved itself: this node's own, and an earlier
    /// one of the peer's.
    pub fn give_way(&mut self, key: LinkKey, to: Token) {
        self.is_proved(to);
        self.dials.remove(&key);
        self.reached.remove(&key);
        self.handshakes.retain(|token, shake| {
            let is_attempt = matches!(shake.stage, Stage::Dialled(of) | Stage::Accepting(of, _) if of == key);
            *token == to || !is_attempt
        });
    }

    /// Ends a dial that nobody answers, or a handshake that has been silent for `patience`. Returns what address it was to reach.
    pub fn take_unanswered(&mut self, key: LinkKey, token: Option<Token>, patience: Duration) -> Option<String> {
        let Some(token) = token else {
            let addresses = self.dials.get(&key)?.unanswered()?;
            self.dials.remove(&key);
            return Some(addresses);
        };
        let shake = self.handshakes.get_mut(&token)?;
        shake.transport.ask_for_signs(patience);
        shake.transport.silence().filter(|silence| *silence >= patience)?;
        self.handshakes.remove(&token).map(|shake| shake.transport.peer_address().to_string())
    }

    /// Whether a connection may be looked at at once. If another process opened it, and has not introduced itself, it
    /// joins the line.
    pub fn is_first(&mut self, token: Token) -> bool {
        let stage = self.handshakes.get(&token).map(|shake| &shake.stage);
        let is_strangers = matches!(stage, Some(Stage::Accepted)); // on the spare descriptor there is only one at a time
        if is_strangers {
            self.line.join(token);
        }
        !is_strangers
    }

    /// How many have proved nothing yet.
    pub fn unproved(&self) -> usize {
        self.crowd.len()
    }

    /// Takes out the connection that is the first to go of those that have proved nothing.
    pub fn take_first_to_go(&mut self) -> Option<Handshake> {
        self.crowd.first_to_go().and_then(|token| self.remove(token))
    }

    /// The hello on this connection has proved nothing, and waits until the scheduler has told this node more.
    pub fn waits_unproved(&mut self, token: Token) {
        self.crowd.speaks(token);
    }

    /// The peer on this connection has shown that it knows the epoch's secret.
    pub fn is_proved(&mut self, token: Token) {
        self.crowd.leave(token);
        self.members.leave(token);
    }

    /// The member with this index has proved itself on this connection, which becomes no link now.
    pub fn stays(&mut self, token: Token, member: u32) {
        self.is_proved(token);
        self.members.enter(token, member);
    }

    /// Takes out a connection of the member that has most of those that stay, if there are more than `most`.
    pub fn take_beyond(&mut self, most: usize) -> Option<Handshake> {
        if self.members.len() > most {
            self.members.retain(|token| self.handshakes.contains_key(token));
        }
        let first = self.members.first_to_go().filter(|_| self.members.len() > most)?;
        self.remove(first)
    }

    /// Wraps and watches a connection. If it cannot be watched it is dropped, and its stage is returned.
    pub fn insert(
        &mut self,
        transport: TcpTransport,
        poller: &Poller,
        deadline: Time,
        stage: Stage,
        outbound: Vec<u8>,
    ) -> Result<Token, (Stage, io::Error)> {
        let side = if matches!(stage, Stage::Dialled(_)) { Side::Client } else { Side::Server };
        let mut transport = (self.wrap)(transport, side);
        let token = following(&mut self.next_token);
        if let Err(error) = transport.register(poller.registry(), token) {
            return Err((stage, error));
        }
        if matches!(stage, Stage::Accepted | Stage::AcceptedOnSpare(_)) {
            self.crowd.enter(token, transport.peer_address().ip());
        }
        self.handshakes.insert(token, Handshake { transport, inbound: Vec::new(), outbound, deadline, stage });
        Ok(token)
    }

    /// What becomes of a connection after a look at it, if there is such a connection.
    pub fn look(&mut self, token: Token, secret: Option<Secret>) -> Option<Result<Next, WireError>> {
        let shake = self.handshakes.get_mut(&token)?;
        let is_dialled = matches!(shake.stage, Stage::Dialled(_));
        let looked = shake.look(secret);
        if let (Ok(Next::Deliver(key, _)), true) = (&looked, is_dialled) {
            // The peer has answered: its other addresses are not needed.
            self.reached.remove(key);
            let answers = shake.transport.peer_address();
            self.peerless.retain(|address| *address != answers);
        }
        Some(looked)
    }

    /// No peer has answered at this address. It is tried last from now on.
    fn is_peerless(&mut self, address: SocketAddr) {
        self.peerless.retain(|other| *other != address);
        self.peerless.push(address);
    }

    /// A connection.
    pub fn get_mut(&mut self, token: Token) -> Option<&mut Handshake> {
        self.handshakes.get_mut(&token)
    }

    /// Ends this node's direction of a refused connection, whose last word is out. Returns where the connection came from.
    pub fn end_refused(&mut self, token: Token) -> Option<SocketAddr> {
        let shake = self.handshakes.get_mut(&token)?;
        shake.end_refused();
        Some(shake.transport.peer_address())
    }

    /// Takes a connection out of the table.
    pub fn remove(&mut self, token: Token) -> Option<Handshake> {
        self.is_proved(token);
        self.handshakes.remove(&token)
    }

    /// The connections that may hold bytes that the poller does not know of, and that somebody waits for.
    pub fn holding(&self) -> Vec<Token> {
        let waits = |stage: &Stage| match stage {
            Stage::Accepted | Stage::AcceptedOnSpare(_) | Stage::Dialled(_) | Stage::Accepting(..) => true,
            Stage::Hearing(_) | Stage::Watching(_) => true,
            Stage::Held(_) | Stage::RevokeBroadcast(_) | Stage::Confirming(..) => false,
            Stage::Rejecting | Stage::Rejected => false,
        };
        let held = self.handshakes.iter().filter(|(_, shake)| waits(&shake.stage) && shake.transport.holds_readable());
        held.map(|(token, _)| *token).collect()
    }

    /// The hellos among those that wait which `about` picks, each with its connection.
    pub fn held(&self, about: impl Fn(&LinkHello) -> bool) -> Vec<(Token, LinkHello)> {
        let held = self.handshakes.iter().filter_map(|(token, shake)| match &shake.stage {
            Stage::Held(hello) if about(hello) => Some((*token, hello.clone())),
            _ => None,
        });
        held.collect()
    }

    /// Ends handshakes whose time is up, but for those that are about to be looked at. A hello of this epoch has proved itself,
    /// and goes on waiting. Of the hellos that have proved nothing, at most [`EARLY_MAX`] go on waiting. Returns the addresses of
    /// the connections that never said hello, and when to come again.
    pub fn expire(&mut self, now: Time) -> (Vec<SocketAddr>, Time) {
        let MeshConnections { handshakes, crowd, line, .. } = self;
        let (mut early, mut silent) = (0, Vec::new());
        handshakes.retain(|token, shake| {
            if shake.deadline > now || line.has(*token) {
                return true;
            }
            let waits = match &shake.stage {
                Stage::Held(_) if !crowd.has(*token) => true,
                Stage::Held(_) => {
                    early += 1;
                    early <= EARLY_MAX
                }
                Stage::Accepted => {
                    silent.push(shake.transport.peer_address());
                    false
                }
                _ => false,
            };
            if !waits {
                crowd.leave(*token);
            }
            waits
        });
        let deadlines = handshakes.values().map(|shake| shake.deadline);
        (silent, deadlines.filter(|deadline| *deadline > now).min().unwrap_or(Time::NEVER))
    }

    /// Whether this node tells this member that a group is over, or tries to.
    pub fn has_word(&self, key: LinkKey) -> bool {
        self.dials.contains_key(&key) || self.handshakes.values().any(|shake| tells(&shake.stage) == Some(key))
    }

    /// Stops telling this member. If it is told once more, it is looked for at its other addresses first.
    pub fn drop_word(&mut self, key: LinkKey) {
        self.dials.remove(&key);
        self.reached.remove(&key);
        let said: Vec<Handshake> =
            self.handshakes.extract_if(|_, shake| tells(&shake.stage) == Some(key)).map(|(_, shake)| shake).collect();
        said.iter().for_each(|shake| self.is_peerless(shake.transport.peer_address()));
    }

    /// Stops telling all members.
    pub fn drop_all_words(&mut self) {
        self.dials.retain(|key, _| key.channel != Channel::Word);
        self.reached.retain(|key, _| key.channel != Channel::Word);
        self.handshakes.retain(|_, shake| tells(&shake.stage).is_none_or(|key| key.channel != Channel::Word));
    }

    /// The watches of a node: there may be two.
    pub fn watches(&self, key: LinkKey) -> Vec<Token> {
        let is_one = |stage: &Stage| matches!(stage, Stage::Watching(of) if *of == key);
        self.handshakes.iter().filter(|(_, shake)| is_one(&shake.stage)).map(|(token, _)| *token).collect()
    }

    /// The connections of a watch, and those of attempts at it that are established.
    pub fn watching(&self, key: LinkKey) -> impl Iterator<Item = &dyn Transport> {
        let is_one = move |stage: &Stage| matches!(stage, Stage::Watching(of) | Stage::Dialled(of) if *of == key);
        self.handshakes.values().filter(move |shake| is_one(&shake.stage)).map(|shake| &*shake.transport)
    }
}

/// The next token.
fn following(next_token: &mut usize) -> Token {
    *next_token += 1;
    Token(*next_token)
}

/// The link key of a connection on which this node tells its peer something, or is about to.
fn tells(stage: &Stage) -> Option<LinkKey> {
    match stage {
        Stage::Dialled(key) | Stage::RevokeBroadcast(key) => Some(*key),
        _ => None,
    }
}
