//! What a node's log says of connections that reach its port and come from no peer: a line for each kind once in a while,
//! with an address.
//!
//! Deliberately not logged: a connection that ends before it has said its hello, or has proved that it may. Peers make such
//! connections: of several attempts at one peer, and of two attempts that cross, one is dropped.

use super::handshake::HELLO_WAIT;
use super::link_end::LinkEnd;
use crate::runtime::base::link_key::LinkKey;
use crate::runtime::base::log::Logger;
use crate::strangers::{Kind, Nuisances};
use crate::types::Time;
use crate::wire::WireError;
use std::net::SocketAddr;
use std::sync::Arc;

const GARBAGE: Kind = Kind { name: "connections that sent what is not this protocol", lines: 1 };
const DAMAGED: Kind = Kind { name: "connections on which something was damaged", lines: 1 };
const REFUSED: Kind = Kind { name: "connections that did not know this epoch's secret", lines: 1 };
pub(crate) const UNPROVED: Kind = Kind { name: "connections that did not get past TLS or the job secret", lines: 1 };
const PEERLESS: Kind = Kind { name: "addresses of peers at which something else listens", lines: 1 };
const SILENT: Kind = Kind { name: "connections that did not introduce themselves in time", lines: 1 };
pub(crate) const MISNAMED: Kind = Kind { name: "connections with a certificate of another node", lines: 1 };
pub(crate) const CROWD: Kind = Kind { name: "connections that were closed to make room", lines: 1 };

/// The log, and what it has been told recently.
pub(crate) struct Complaints {
    pub logger: Arc<Logger>,
    nuisances: Nuisances,
}

impl Complaints {
    pub fn new(logger: Arc<Logger>) -> Complaints {
        Complaints { logger, nuisances: Nuisances::default() }
    }

    /// A connection from this address was turned away, for this reason.
    pub fn turned_away(&mut self, kind: Kind, from: SocketAddr, why: &str) {
        let line = format!("a stranger at {from} was turned away from this node's port: {why}");
        self.mention(kind, from, &line);
    }

    /// What came on this connection was not understood.
    pub fn not_understood(&mut self, from: SocketAddr, why: &WireError) {
        if !why.is_damage() {
            return self.turned_away(GARBAGE, from, &why.0);
        }
        let line = format!("what came from {from} for a new link was damaged on the way ({why}): a peer dials again");
        self.mention(DAMAGED, from, &line);
    }

    /// A link is dialled again. The log says so only if something was damaged, or if one side refused the other: then it may have been.
    pub fn dials_again(&mut self, key: LinkKey, end: &LinkEnd, is_declined: bool) {
        let (peer, why) = (format!("rank {} of {}", key.rank, key.group), end.in_words());
        if matches!(end, LinkEnd::Corrupt(_)) {
            self.mention_of(DAMAGED, &peer, &format!("the link to {peer} is dialled again: {why}"));
        } else if is_declined {
            let may = "for its opening may have been damaged on the way";
            self.mention_of(UNPROVED, &peer, &format!("the link to {peer} is dialled again, {may}: {why}"));
        }
    }

    /// No peer has answered at one of several addresses of a peer.
    pub fn no_peer_at(&mut self, key: LinkKey, words: &str) {
        let peer = format!("rank {} of {}", key.rank, key.group);
        self.mention_of(PEERLESS, &peer, &format!("no link to {peer} at {words}"));
    }

    /// A hello from this address is of another epoch, or does not show this epoch's secret.
    pub fn did_not_know(&mut self, from: SocketAddr) {
        let why = "it knows neither this epoch nor its secret, or looks for another node";
        self.turned_away(REFUSED, from, why);
    }

    /// Connections from these addresses have not introduced themselves in time.
    pub fn were_silent(&mut self, those: &[SocketAddr]) {
        for from in those {
            let why = format!("it has not introduced itself within {} s", HELLO_WAIT.as_secs());
            self.turned_away(SILENT, *from, &why);
        }
    }

    fn mention(&mut self, kind: Kind, from: SocketAddr, line: &str) {
        self.mention_of(kind, &from.to_string(), line);
    }

    fn mention_of(&mut self, kind: Kind, from: &str, line: &str) {
        if let Some(line) = self.nuisances.mention(kind, from, line) {
            self.logger.warn(&line);
        }
    }

    /// Logs, once in a while, what was only counted. Returns when to come again.
    pub fn tell_counted(&mut self, now: Time) -> Time {
        self.nuisances.due(now).iter().for_each(|line| self.logger.warn(line));
        self.nuisances.ends()
    }
}

impl Drop for Complaints {
    fn drop(&mut self) {
        self.nuisances.left_out().iter().for_each(|line| self.logger.warn(line));
    }
}
