//! Connections before and after they belong to a node, and what becomes of strangers on the port.
//!
//! Those that have not registered are a [`Crowd`]: where there are too many, or descriptors are short, it says which goes.

use super::contract::{Closed, ConnId, Output};
use super::outbox::Outbox;
use super::timers::Due;
use crate::strangers::{Crowd, Kind};
use crate::types::{Epoch, GroupId, Time};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// How long a connection may take to register.
pub(super) const GREETING: Duration = Duration::from_secs(5);
/// How many connections may be unregistered beyond one for each node; then one is closed.
pub(super) const UNREGISTERED_SPARE: usize = 256;
/// How many may be where this process is short of descriptors.
pub(super) const UNREGISTERED_WHEN_SHORT: usize = 32;
/// How many deadlines of connections are kept that have registered or closed since.
const STALE_MAX: usize = 1024;

const ENDED: Kind = Kind { name: "connections that ended before they registered", lines: 1 };
const REFUSED: Kind = Kind { name: "connections that were refused, or broke, before they registered", lines: 1 };
const GARBAGE: Kind = Kind { name: "connections that sent what is not this protocol", lines: 1 };
const CROWD: Kind = Kind { name: "connections that were closed to make room", lines: 1 };
const SILENT: Kind = Kind { name: "connections that did not register in time", lines: 1 };
const OUT_OF_TURN: Kind = Kind { name: "connections that began with what no node begins with", lines: 1 };

/// How far a connection has been told how the job is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Of which cluster. When another has formed meanwhile all is told anew.
    pub(super) of: Option<Epoch>,
    pub(super) next: Next,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    Node(u32),
    Group(GroupId),
    Nothing,
}

/// One open connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) address: String,
    /// The node that it belongs to, once it has registered.
    pub(super) node: Option<u32>,
    /// It asks how the job is, and has been told so far.
    pub(super) reading: Option<Reading>,
}

/// All open connections.
#[derive(Debug)]
pub(super) struct Connections {
    open: HashMap<ConnId, Connection>,
    /// In order of opening, with their deadlines; some have registered or closed since.
    unregistered: VecDeque<(Time, ConnId)>,
    /// The same, by the host from which each comes.
    crowd: Crowd<ConnId, String>,
    unregistered_max: usize,
    /// How many are being told how the job is.
    readers: usize,
}

impl Connections {
    pub(super) fn new(worker_num: u32, server_num: u32) -> Connections {
        Connections {
            open: HashMap::new(),
            unregistered: VecDeque::new(),
            crowd: Crowd::default(),
            unregistered_max: worker_num as usize + server_num as usize + UNREGISTERED_SPARE,
            readers: 0,
        }
    }

    pub(super) fn get(&self, conn: ConnId) -> Option<&Connection> {
        self.open.get(&conn)
    }

    /// Where it comes from, in words.
    pub(super) fn address(&self, conn: ConnId) -> String {
        self.get(conn).map_or_else(String::new, |connection| connection.address.clone())
    }

    pub(super) fn node(&self, conn: ConnId) -> Option<u32> {
        self.open.get(&conn)?.node
    }

    pub(super) fn belongs_to(&mut self, conn: ConnId, key: u32) {
        if let Some(connection) = self.open.get_mut(&conn) {
            connection.node = Some(key);
            self.crowd.leave(conn);
        }
    }

    pub(super) fn readers(&self) -> usize {
        self.readers
    }

    /// This one has been told so far how the job is.
    pub(super) fn reads(&mut self, conn: ConnId, reading: Reading) {
        if let Some(connection) = self.open.get_mut(&conn) {
            if connection.reading.replace(reading).is_none() {
                self.readers += 1;
                self.crowd.speaks(conn);
            }
        }
    }

    pub(super) fn forget(&mut self, conn: ConnId) -> Option<Connection> {
        let connection = self.open.remove(&conn)?;
        if connection.reading.is_some() {
            self.readers -= 1;
        }
        self.crowd.leave(conn);
        Some(connection)
    }

    pub(super) fn all(&self) -> Vec<ConnId> {
        let mut all: Vec<ConnId> = self.open.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// The scheduler itself stood still for this long: those that have not registered yet have as much longer.
    pub(super) fn forgive(&mut self, late: Duration) {
        self.unregistered.iter_mut().for_each(|(deadline, _)| *deadline = *deadline + late);
    }

    /// The oldest that has not registered, with its deadline.
    fn oldest_unregistered(&mut self) -> Option<(Time, ConnId)> {
        while let Some(&(deadline, conn)) = self.unregistered.front() {
            if self.open.get(&conn).is_some_and(|connection| connection.node.is_none()) {
                return Some((deadline, conn));
            }
            self.unregistered.pop_front();
        }
        None
    }

    pub(super) fn opened(&mut self, now: Time, conn: ConnId, address: String, out: &mut Outbox) {
        let deadline = now + GREETING;
        if self.oldest_unregistered().is_none() {
            out.at(deadline, Due::Greeting);
        }
        self.crowd.enter(conn, host_of(&address).to_owned());
        self.open.insert(conn, Connection { address, node: None, reading: None });
        self.unregistered.push_back((deadline, conn));
        if self.unregistered.len() > 2 * self.crowd.len() + STALE_MAX {
            self.unregistered.retain(|(_, conn)| self.open.get(conn).is_some_and(|it| it.node.is_none()));
        }
        self.make_room(self.unregistered_max, "too many connections have not registered", out);
    }

    /// This process is short of descriptors: they are for nodes, and for the program that it may belong to. Where there is none
    /// left, the older half of those that have not registered goes.
    pub(super) fn are_short(&mut self, none_left: bool, out: &mut Outbox) {
        let half = if none_left { self.crowd.len() / 2 } else { usize::MAX };
        self.make_room(half.min(UNREGISTERED_WHEN_SHORT), "this process is short of descriptors", out);
    }

    fn make_room(&mut self, most: usize, why: &str, out: &mut Outbox) {
        while self.crowd.len() > most {
            let Some(first) = self.crowd.first_to_go() else { break };
            let why = format!("{why}, and it is the oldest from there that has said nothing");
            self.put_out(first, CROWD, &why, out);
        }
    }

    /// A connection has ended: the node whose it was, if it was one's.
    pub(super) fn closed(&mut self, conn: ConnId, how: Closed, words: &str, out: &mut Outbox) -> Option<u32> {
        out.promises.forget(conn);
        let connection = self.forget(conn)?;
        if connection.node.is_none() && (connection.reading.is_none() || how == Closed::Garbage) {
            let ended = "its connection ended before it registered";
            let (kind, what) = match how {
                Closed::Garbage => (GARBAGE, "it sent what is not this protocol"),
                Closed::Ended => (ENDED, ended),
                // Whom TLS or the job's secret keeps out, too: a port scan is not to silence why.
                Closed::Broken => (REFUSED, ended),
            };
            mention(kind, &connection.address, &format!("{what} ({words})"), out);
        }
        connection.node
    }

    /// Closes a connection that has begun with what no node begins with.
    pub(super) fn stranger(&mut self, conn: ConnId, why: &str, out: &mut Outbox) {
        self.put_out(conn, OUT_OF_TURN, why, out);
    }

    /// Closes a connection that is not a node's.
    fn put_out(&mut self, conn: ConnId, kind: Kind, why: &str, out: &mut Outbox) {
        if let Some(connection) = self.forget(conn) {
            out.output(Output::Close(conn));
            mention(kind, &connection.address, why, out);
        }
    }

    /// The oldest connection that has not registered has had its time.
    pub(super) fn greeting_due(&mut self, now: Time, out: &mut Outbox) {
        while let Some((deadline, conn)) = self.oldest_unregistered() {
            if deadline > now {
                return out.at(deadline, Due::Greeting);
            }
            let what = match self.get(conn).is_some_and(|connection| connection.reading.is_some()) {
                true => "it asked how the job is, and did not take the answer",
                false => "it did not register",
            };
            self.put_out(conn, SILENT, &format!("{what} within {} s", GREETING.as_secs()), out);
        }
    }
}

fn mention(kind: Kind, address: &str, why: &str, out: &mut Outbox) {
    out.nuisance(kind, address, &format!("a stranger connected from {address}: {why}"));
}

/// An address without its port.
fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}
