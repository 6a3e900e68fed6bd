//! Connections before and after they belong to a node, and what strangers on the port are worth: one line each.

use super::contract::{Closed, ConnId, Output};
use super::outbox::Outbox;
use super::timers::Due;
use crate::types::{Epoch, GroupId, Time};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// How long a connection may take to register.
pub(super) const GREETING: Duration = Duration::from_secs(5);
/// How many connections may be unregistered beyond one for each node; then the oldest is closed.
pub(super) const UNREGISTERED_SPARE: usize = 256;
/// How many strangers' addresses are remembered, so that each is mentioned once.
pub(super) const STRANGERS_MAX: usize = 1024;

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
    unregistered_count: usize,
    unregistered_max: usize,
    /// How many are being told how the job is.
    readers: usize,
    strangers: HashSet<String>,
}

impl Connections {
    pub(super) fn new(worker_num: u32, server_num: u32) -> Connections {
        Connections {
            open: HashMap::new(),
            unregistered: VecDeque::new(),
            unregistered_count: 0,
            unregistered_max: worker_num as usize + server_num as usize + UNREGISTERED_SPARE,
            readers: 0,
            strangers: HashSet::new(),
        }
    }

    pub(super) fn get(&self, conn: ConnId) -> Option<&Connection> {
        self.open.get(&conn)
    }

    pub(super) fn node(&self, conn: ConnId) -> Option<u32> {
        self.open.get(&conn)?.node
    }

    pub(super) fn belongs_to(&mut self, conn: ConnId, key: u32) {
        if let Some(connection) = self.open.get_mut(&conn) {
            if connection.node.replace(key).is_none() {
                self.unregistered_count -= 1;
            }
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
            }
        }
    }

    pub(super) fn forget(&mut self, conn: ConnId) -> Option<Connection> {
        let connection = self.open.remove(&conn)?;
        if connection.reading.is_some() {
            self.readers -= 1;
        }
        if connection.node.is_none() {
            self.unregistered_count -= 1;
        }
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
        self.open.insert(conn, Connection { address, node: None, reading: None });
        self.unregistered.push_back((deadline, conn));
        self.unregistered_count += 1;
        if self.unregistered_count > self.unregistered_max {
            if let Some((_, oldest)) = self.oldest_unregistered() {
                self.stranger(oldest, "too many connections have not registered, and it is the oldest", out);
            }
        }
    }

    /// A connection has ended: the node whose it was, if it was one's.
    pub(super) fn closed(&mut self, conn: ConnId, how: Closed, words: &str, out: &mut Outbox) -> Option<u32> {
        out.promises.forget(conn);
        let connection = self.forget(conn)?;
        if connection.node.is_none() && (connection.reading.is_none() || how == Closed::Garbage) {
            let what = match how {
                Closed::Garbage => "it sent what is not this protocol",
                Closed::Ended | Closed::Broken => "its connection ended before it registered",
            };
            self.mention_stranger(&connection.address, &format!("{what} ({words})"), out);
        }
        connection.node
    }

    /// Closes a connection that is not a node's.
    pub(super) fn stranger(&mut self, conn: ConnId, why: &str, out: &mut Outbox) {
        if let Some(connection) = self.forget(conn) {
            out.output(Output::Close(conn));
            self.mention_stranger(&connection.address, why, out);
        }
    }

    /// One line for each address, whatever comes from it.
    fn mention_stranger(&mut self, address: &str, why: &str, out: &mut Outbox) {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        if self.strangers.len() < STRANGERS_MAX && self.strangers.insert(host.to_string()) {
            out.warn(format!("a stranger connected from {address}: {why}; others from there are not mentioned"));
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
            self.stranger(conn, &format!("{what} within {} s", GREETING.as_secs()), out);
        }
    }
}
