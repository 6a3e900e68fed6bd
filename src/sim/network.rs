//! The connections between nodes and their scheduler, and what becomes of the messages on them.
//!
//! Within one lane of one direction of one connection messages arrive in order, as over TCP; between connections, and
//! between the two lanes, they do not. A connection can be cut: from then on nothing passes, and each end learns of it
//! when the plan says so, when it sends, or never.

use super::random::Random;
use super::table::Event as Met;
use crate::types::Time;
use crate::wire::Lane;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Node,
    Scheduler,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives(Time),
    Lost,
    /// It is lost, and its sender learns that the connection is gone.
    Refused(Time),
}

#[derive(Debug)]
struct Connection {
    /// The node that it belongs to; none: a stranger.
    node: Option<usize>,
    open: [bool; 2],
    cut: bool,
    /// Whether what this end sends is lost without its being told.
    mute: [bool; 2],
    /// Which ends are told, when they send, that the connection is gone.
    tells: [bool; 2],
    /// When the newest message of each direction and lane arrives.
    newest: [[Time; 2]; 2],
    /// Nothing arrives before this.
    stalled_until: Time,
}

#[derive(Debug)]
pub(super) struct Network {
    connections: Vec<Connection>,
    random: Random,
    delay_max_us: u64,
    spikes: bool,
    /// When the message that was sent last, over whatever, arrives.
    last_arrival: Time,
    /// What happened to messages, and has not been counted.
    pub(super) met: Vec<Met>,
}

impl Network {
    pub(super) fn new(random: Random, delay_max_us: u64, spikes: bool) -> Network {
        Network { connections: Vec::new(), random, delay_max_us, spikes, last_arrival: Time(0), met: Vec::new() }
    }

    /// How long a message is on its way.
    pub(super) fn delay(&mut self) -> Duration {
        let max = self.delay_max_us;
        if self.spikes && self.random.once_in(50) {
            self.met.push(Met::Delayed);
            return self.random.span_us(max..max * 5);
        }
        self.random.span_us(max / 10..max)
    }

    pub(super) fn connect(&mut self, node: Option<usize>) -> usize {
        self.connections.push(Connection {
            node,
            open: [true; 2],
            cut: false,
            mute: [false; 2],
            tells: [false; 2],
            newest: [[Time(0); 2]; 2],
            stalled_until: Time(0),
        });
        self.connections.len() - 1
    }

    pub(super) fn node_of(&self, conn: usize) -> Option<usize> {
        self.connections[conn].node
    }

    pub(super) fn is_open(&self, conn: usize, side: Side) -> bool {
        self.connections[conn].open[side as usize]
    }

    pub(super) fn is_cut(&self, conn: usize) -> bool {
        self.connections[conn].cut
    }

    /// This end is closed: it neither sends nor hears any more.
    pub(super) fn shut(&mut self, conn: usize, side: Side) {
        self.connections[conn].open[side as usize] = false;
    }

    /// Sends from this end. Returns when the message arrives at the other end.
    pub(super) fn send(&mut self, now: Time, conn: usize, from: Side, lane: Lane) -> Fate {
        let delay = self.delay();
        let connection = &mut self.connections[conn];
        if connection.cut {
            self.met.push(Met::Lost);
            let told = std::mem::take(&mut connection.tells[from as usize]);
            return if told { Fate::Refused(now + delay * 2) } else { Fate::Lost };
        }
        if connection.mute[from as usize] {
            self.met.push(Met::Lost);
            return Fate::Lost;
        }
        let [urgent, bulk] = &mut connection.newest[from as usize];
        let soonest = (now + delay).max(connection.stalled_until);
        let at = match lane {
            Lane::Urgent => {
                if *bulk > soonest.max(*urgent) {
                    self.met.push(Met::Reordered);
                }
                *urgent = soonest.max(*urgent);
                *urgent
            }
            Lane::Bulk => {
                *bulk = soonest.max(*urgent).max(*bulk);
                *bulk
            }
        };
        if at < self.last_arrival {
            self.met.push(Met::Reordered);
        }
        self.last_arrival = at;
        Fate::Arrives(at)
    }

    /// When the end of the stream arrives at the other end, behind everything that was sent.
    pub(super) fn finish(&mut self, now: Time, conn: usize, from: Side) -> Option<Time> {
        let delay = self.delay();
        self.shut(conn, from);
        let connection = &self.connections[conn];
        let [urgent, bulk] = connection.newest[from as usize];
        (!connection.cut && !connection.mute[from as usize])
            .then(|| (now + delay).max(urgent).max(bulk).max(connection.stalled_until))
    }

    /// Nothing passes any more, in either direction; these ends are told so when they send.
    pub(super) fn cut(&mut self, conn: usize, tells: [bool; 2]) {
        let connection = &mut self.connections[conn];
        connection.cut = true;
        connection.tells = tells;
    }

    /// Nothing that this end sends from now on arrives.
    pub(super) fn mute(&mut self, conn: usize, from: Side) {
        self.connections[conn].mute[from as usize] = true;
    }

    /// Nothing arrives before `until`.
    pub(super) fn stall(&mut self, conn: usize, until: Time) {
        let connection = &mut self.connections[conn];
        connection.stalled_until = connection.stalled_until.max(until);
    }

    /// The connections that are open at this end.
    pub(super) fn open_at(&self, side: Side) -> Vec<usize> {
        (0..self.connections.len()).filter(|conn| self.is_open(*conn, side)).collect()
    }

    /// The connections of one node that are not closed at both ends.
    pub(super) fn of_node(&self, node: usize) -> Vec<usize> {
        let open = |conn: &usize| {
            let connection = &self.connections[*conn];
            connection.node == Some(node) && connection.open != [false; 2]
        };
        (0..self.connections.len()).filter(open).collect()
    }
}
