//! Connections before and after they belong to a node, and what strangers on the port are worth: one line each.

use super::contract::{Closed, ConnId, Output};
use super::timers::Due;
use super::Scheduler;
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
    /// Whose it is, once it has registered.
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
}

impl Scheduler {
    pub(super) fn opened(&mut self, now: Time, conn: ConnId, address: String) {
        let deadline = now + GREETING;
        if self.connections.oldest_unregistered().is_none() {
            self.timers.at(deadline, Due::Greeting);
        }
        self.connections.open.insert(conn, Connection { address, node: None, reading: None });
        self.connections.unregistered.push_back((deadline, conn));
        self.connections.unregistered_count += 1;
        if self.connections.unregistered_count > self.connections.unregistered_max {
            if let Some((_, oldest)) = self.connections.oldest_unregistered() {
                self.stranger(oldest, "too many connections have not registered, and it is the oldest");
            }
        }
    }

    pub(super) fn closed(&mut self, now: Time, conn: ConnId, how: Closed, words: String) {
        self.promises.forget(conn);
        let Some(connection) = self.connections.forget(conn) else { return };
        let Some(key) = connection.node else {
            if connection.reading.is_some() && how != Closed::Garbage {
                return; // it does not want to know any more
            }
            let what = match how {
                Closed::Garbage => "it sent what is not this protocol",
                Closed::Ended | Closed::Broken => "its connection ended before it registered",
            };
            return self.mention_stranger(&connection.address, &format!("{what} ({words})"));
        };
        if self.nodes.get(&key).is_none_or(|node| node.conn != Some(conn)) {
            return;
        }
        if self.job.is_forming() {
            self.detached_while_forming(now, key, how, words);
        } else if self.job.is_complete() {
            self.detached(now, key, how, words);
        }
    }

    /// Closes a connection and forgets it.
    pub(super) fn drop_connection(&mut self, conn: ConnId) {
        if self.connections.forget(conn).is_some() {
            self.put_out_close(conn);
        }
    }

    /// Closes a connection that its node has replaced: what was still to be said on it is asked for again, and the node may
    /// have to hear at once that it is closed.
    pub(super) fn close_at_once(&mut self, conn: ConnId) {
        self.promises.forget(conn);
        if self.connections.forget(conn).is_some() {
            self.output(Output::Close(conn));
        }
    }

    /// Closes a connection that is not a node's.
    pub(super) fn stranger(&mut self, conn: ConnId, why: &str) {
        if let Some(connection) = self.connections.forget(conn) {
            self.output(Output::Close(conn));
            self.mention_stranger(&connection.address, why);
        }
    }

    /// One line for each address, whatever comes from it.
    fn mention_stranger(&mut self, address: &str, why: &str) {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let strangers = &mut self.connections.strangers;
        if strangers.len() < STRANGERS_MAX && strangers.insert(host.to_string()) {
            self.warn(format!("a stranger connected from {address}: {why}; others from there are not mentioned"));
        }
    }

    pub(super) fn greeting_due(&mut self, now: Time) {
        while let Some((deadline, conn)) = self.connections.oldest_unregistered() {
            if deadline > now {
                return self.timers.at(deadline, Due::Greeting);
            }
            let what = match self.connections.get(conn).is_some_and(|connection| connection.reading.is_some()) {
                true => "it asked how the job is, and did not take the answer",
                false => "it did not register",
            };
            self.stranger(conn, &format!("{what} within {} s", GREETING.as_secs()));
        }
    }
}
