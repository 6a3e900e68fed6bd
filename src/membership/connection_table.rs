//! Connections before and after they belong to a node, and what becomes of strangers on the port.
//!
//! Connections that have not registered are a [`Crowd`]. It says which of them goes where there are too many, or
//! descriptors are short.

use super::contract::{Closed, ConnId, Output};
use super::outbox::Outbox;
use super::promises::Behind;
use super::timers::Due;
use crate::error::Status;
use crate::strangers::{Crowd, Kind};
use crate::types::{Epoch, GroupId, Time};
use crate::wire::{JobNews, Message, Rejected};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// How long a connection may take to register.
pub(super) const GREETING: Duration = Duration::from_secs(5);
/// How many connections may be unregistered beyond one for each node; then one is closed.
pub(super) const UNREGISTERED_SPARE: usize = 256;
/// How many connections may be unregistered while this process is short of descriptors.
pub(super) const UNREGISTERED_WHEN_SHORT: usize = 32;
/// How many deadlines are kept of connections that have registered or closed since.
const STALE_MAX: usize = 1024;

const ENDED: Kind = Kind { name: "connections that ended before they registered", lines: 1 };
const REFUSED: Kind = Kind { name: "connections that were refused, or broke, before they registered", lines: 1 };
const GARBAGE: Kind = Kind { name: "connections that sent what is not this protocol", lines: 1 };
const CROWD: Kind = Kind { name: "connections that were closed to make room", lines: 1 };
const SILENT: Kind = Kind { name: "connections that did not register in time", lines: 1 };
const OUT_OF_TURN: Kind = Kind { name: "connections with a first message that no node sends", lines: 1 };

/// How far a connection has been told how the job is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// The epoch of the cluster that it was told of. When another epoch has formed meanwhile, everything is told anew.
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

/// What a connection is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// It has not said.
    Unknown,
    /// It belongs to this node, which has registered.
    Node(u32),
    /// It asks how the job is, and has been told so far.
    Reads(Reading),
    /// It is a launcher's, which is told whenever the job has changed.
    Watches,
}

/// One open connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) address: String,
    pub(super) purpose: Purpose,
}

impl Connection {
    fn node(&self) -> Option<u32> {
        match self.purpose {
            Purpose::Node(key) => Some(key),
            Purpose::Unknown | Purpose::Reads(_) | Purpose::Watches => None,
        }
    }

    /// Whether this connection has a limited time to register or to be answered.
    fn is_passing(&self) -> bool {
        matches!(self.purpose, Purpose::Unknown | Purpose::Reads(_))
    }
}

/// All open connections.
#[derive(Debug)]
pub(super) struct ConnectionTable {
    open: HashMap<ConnId, Connection>,
    /// The connections in order of opening, with their deadlines. Some have registered or closed since.
    unregistered: VecDeque<(Time, ConnId)>,
    /// The unregistered connections by the host from which each comes.
    crowd: Crowd<ConnId, String>,
    unregistered_max: usize,
    /// How many are being told how the job is.
    readers: usize,
    /// Those that are told whenever it has changed.
    watchers: BTreeSet<ConnId>,
    watchers_max: usize,
}

impl ConnectionTable {
    pub(super) fn new(worker_num: u32, server_num: u32) -> ConnectionTable {
        ConnectionTable {
            open: HashMap::new(),
            unregistered: VecDeque::new(),
            crowd: Crowd::default(),
            unregistered_max: worker_num as usize + server_num as usize + UNREGISTERED_SPARE,
            readers: 0,
            watchers: BTreeSet::new(),
            watchers_max: 2 * (worker_num as usize + server_num as usize),
        }
    }

    pub(super) fn get(&self, conn: ConnId) -> Option<&Connection> {
        self.open.get(&conn)
    }

    /// The host from which a connection comes that has not said what it is for.
    pub(super) fn strange_host(&self, conn: ConnId) -> Option<&str> {
        let connection = self.get(conn)?;
        matches!(connection.purpose, Purpose::Unknown).then(|| host_of(&connection.address))
    }

    /// Where it comes from, in words.
    pub(super) fn address(&self, conn: ConnId) -> String {
        self.get(conn).map_or_else(String::new, |connection| connection.address.clone())
    }

    pub(super) fn node(&self, conn: ConnId) -> Option<u32> {
        self.open.get(&conn)?.node()
    }

    pub(super) fn belongs_to(&mut self, conn: ConnId, key: u32) {
        if let Some(connection) = self.open.get_mut(&conn) {
            connection.purpose = Purpose::Node(key);
            self.crowd.leave(conn);
        }
    }

    pub(super) fn readers(&self) -> usize {
        self.readers
    }

    /// This connection has been told so far how the job is.
    pub(super) fn reads(&mut self, conn: ConnId, reading: Reading) {
        let Some(connection) = self.open.get_mut(&conn) else { return };
        if !matches!(std::mem::replace(&mut connection.purpose, Purpose::Reads(reading)), Purpose::Reads(_)) {
            self.readers += 1;
            self.crowd.speaks(conn);
        }
    }

    /// This connection is told from now on whenever the job has changed, if there are not too many. No host needs more
    /// than one. A launcher whose connection has broken may have a second one before the end of the first is known.
    pub(super) fn watches(&mut self, conn: ConnId) -> Result<(), usize> {
        let is_full = self.watchers.len() >= self.watchers_max && !self.watchers.contains(&conn);
        let Some(connection) = self.open.get_mut(&conn).filter(|_| !is_full) else { return Err(self.watchers_max) };
        connection.purpose = Purpose::Watches;
        self.watchers.insert(conn);
        self.crowd.leave(conn);
        Ok(())
    }

    pub(super) fn is_watcher(&self, conn: ConnId) -> bool {
        self.watchers.contains(&conn)
    }

    pub(super) fn tell_watchers(&self, news: &JobNews, behind: Behind, out: &mut Outbox) {
        for conn in &self.watchers {
            out.send_behind(behind, *conn, Message::JobNews(news.clone()));
        }
    }

    pub(super) fn forget(&mut self, conn: ConnId) -> Option<Connection> {
        let connection = self.open.remove(&conn)?;
        if matches!(connection.purpose, Purpose::Reads(_)) {
            self.readers -= 1;
        }
        self.watchers.remove(&conn);
        self.crowd.leave(conn);
        Some(connection)
    }

    pub(super) fn all(&self) -> Vec<ConnId> {
        let mut all: Vec<ConnId> = self.open.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// The scheduler itself stood still for this long: connections that have not registered yet have as much longer.
    pub(super) fn forgive(&mut self, late: Duration) {
        self.unregistered.iter_mut().for_each(|(deadline, _)| *deadline = *deadline + late);
    }

    /// The oldest that has not registered, with its deadline.
    fn oldest_unregistered(&mut self) -> Option<(Time, ConnId)> {
        while let Some(&(deadline, conn)) = self.unregistered.front() {
            if self.open.get(&conn).is_some_and(Connection::is_passing) {
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
        self.open.insert(conn, Connection { address, purpose: Purpose::Unknown });
        self.unregistered.push_back((deadline, conn));
        if self.unregistered.len() > 2 * self.crowd.len() + STALE_MAX {
            self.unregistered.retain(|(_, conn)| self.open.get(conn).is_some_and(Connection::is_passing));
        }
        self.make_room(self.unregistered_max, "too many connections have not registered", out);
    }

    /// This process is short of descriptors: nodes need them, and the program that the scheduler may belong to. If none
    /// is left, the older half of the connections that have not registered goes.
    pub(super) fn are_short(&mut self, none_left: bool, out: &mut Outbox) {
        if none_left {
            self.let_watchers_go(out);
        }
        let half = if none_left { self.crowd.len() / 2 } else { usize::MAX };
        self.make_room(half.min(UNREGISTERED_WHEN_SHORT), "this process is short of descriptors", out);
    }

    /// Closes the connections of launchers. A launcher can do without the news if it is told so.
    fn let_watchers_go(&mut self, out: &mut Outbox) {
        for conn in std::mem::take(&mut self.watchers) {
            let reason = "this process is short of descriptors: ask again".to_owned();
            out.send(conn, Message::Rejected(Rejected { status: Status::Limit, reason }));
            self.forget(conn);
            out.close(conn);
        }
    }

    fn make_room(&mut self, most: usize, why: &str, out: &mut Outbox) {
        while self.crowd.len() > most {
            let Some(first) = self.crowd.first_to_go() else { break };
            let why = format!("{why}, and it is the oldest from there that has said nothing");
            self.put_out(first, CROWD, &why, out);
        }
    }

    /// A connection has ended. Returns the node that it belonged to, if it belonged to one.
    pub(super) fn closed(&mut self, conn: ConnId, how: Closed, words: &str, out: &mut Outbox) -> Option<u32> {
        out.promises.forget(conn);
        let connection = self.forget(conn)?;
        let is_strange = match connection.purpose {
            Purpose::Unknown => true,
            Purpose::Reads(_) | Purpose::Watches => how == Closed::Garbage,
            Purpose::Node(_) => false,
        };
        if is_strange {
            let ended = "its connection ended before it registered";
            let (kind, what) = match how {
                Closed::Garbage => (GARBAGE, "it sent what is not this protocol"),
                Closed::Ended => (ENDED, ended),
                // A port scan must not silence whom TLS or the job's secret keeps out.
                Closed::Broken | Closed::Refused => (REFUSED, ended),
            };
            mention(kind, &connection.address, &format!("{what} ({words})"), out);
        }
        connection.node()
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
            let what = match self.get(conn).map(|connection| connection.purpose) {
                Some(Purpose::Reads(_)) => "it asked how the job is, and did not take the answer",
                _ => "it did not register",
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
