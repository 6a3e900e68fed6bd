//! The scheduler's connections: which of them are to be read again, which are to be written to, and which are being
//! closed.
//!
//! Invariants: a connection that is closed gets what was sent before, within [`CLOSE_WAIT`], and one to which nothing
//! was sent is dropped at once; no more than [`CLOSING_MAX`] connections are being closed at a time, and few where
//! descriptors are short; no turn of the loop looks at all connections, and an idle one holds no buffer. Nothing here
//! knows what a message means.

use crate::membership::ConnId;
use crate::net::{Registry, Side, TcpTransport, Token};
use crate::runtime::base::clock::Clock;
use crate::runtime::base::control::{Arrival, ControlEnd, ControlLink, FIRST_READ_BYTES};
use crate::runtime::base::polling::{Lookout, Polling};
use crate::secret::Guard;
use crate::strangers::Line;
use crate::tls::names;
use crate::types::Time;
use crate::wire::{Message, Register};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{ErrorKind, IoSliceMut};
use std::time::Duration;

const FIRST: u64 = 2;
/// How long a closed connection may take to drain.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// How many closed connections may drain at a time; beyond that the first is dropped.
const CLOSING_MAX: usize = 1024;
/// As many drain at a time where this process is short of descriptors.
const CLOSING_WHEN_SHORT: usize = 32;
/// How many connections with something to write may gather before it is written: what goes to all nodes is made as it
/// is sent.
const DIRTY_MAX: usize = 64;
/// How long the other end of a connection that only listens may give no sign of life. A launcher waits as long for ours.
const SIGNS: Duration = Duration::from_secs(30);

struct Connection {
    link: ControlLink,
    phase: Phase,
    /// Whether a node has registered on this connection.
    is_nodes: bool,
}

/// How far a connection is, from its beginning to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It is open, and nothing was said to the peer.
    Silent,
    /// It is open, and the peer is to hear a word, or has heard one.
    Spoken,
    /// The brain has closed it: what was sent is being written. `shut`: the peer has been told that nothing more follows.
    Closing { shut: bool },
    /// One side does not take the other: the last word is on the way. `shut` as above.
    Refused { shut: bool },
}

impl Phase {
    /// Whether it is being closed.
    fn is_closing(self) -> bool {
        matches!(self, Phase::Closing { .. } | Phase::Refused { .. })
    }

    fn is_refused(self) -> bool {
        matches!(self, Phase::Refused { .. })
    }
}

impl Connection {
    /// Ends this direction, and passes over what still comes. Returns the connection's end, if that has come.
    fn read_on(&mut self, through: &mut [u8]) -> Option<ControlEnd> {
        if self.phase == (Phase::Refused { shut: false }) {
            self.phase = Phase::Refused { shut: self.link.transport.shutdown_write().is_ok() };
        }
        match self.link.transport.read(&mut [IoSliceMut::new(through)]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => Some(ControlEnd::from_io(&error)),
            Ok(_) => Some(ControlEnd::Ended("it closed the connection".to_owned())),
        }
    }
}

/// What a look at a connection has brought.
pub(super) struct Read {
    /// The messages that have come. On a connection that has been closed there are none.
    pub arrivals: Vec<Arrival>,
    /// Whether there was a byte at least.
    pub any: bool,
    /// How the connection has ended behind these messages.
    pub end: Option<ControlEnd>,
}

/// What is said when a node registers with a certificate that is not its own: to the node, and in the log.
pub(super) struct Misnamed {
    pub told: String,
    pub logged: String,
}

/// All open connections.
pub(super) struct Connections {
    /// The guard of all connections: how each is wrapped, what it proves, and what is to be told of that.
    pub guard: Guard,
    /// The open connections, each in its own memory, because a table leaves much of its room unused.
    open: HashMap<ConnId, Box<Connection>>,
    next: u64,
    /// Connections to which something is to be written.
    dirty: BTreeSet<ConnId>,
    /// Connections that are to be read, of which the poller will not tell.
    more: BTreeSet<ConnId>,
    /// Connections that do not belong to nodes, and are to be read when their turn comes.
    pub line: Line<ConnId>,
    /// Connections that have been closed, in the order in which they are dropped; some have ended since.
    closing: VecDeque<(Time, ConnId)>,
    /// How many of the closed connections are still open.
    closing_count: usize,
    through: Vec<u8>,
    pub store: StoreLookout,
}

/// Looks out for questions to the store: a question follows the answer to the last.
pub(super) struct StoreLookout {
    pub lookout: Lookout,
    polling: Polling,
}

impl StoreLookout {
    /// There is nothing to do. Returns whether to look again.
    pub fn looks_again(&mut self, clock: &Clock) -> bool {
        self.lookout.looks_again(&self.polling, clock)
    }
}

impl Connections {
    /// A set without connections; `poll` is how long the user wants waits to poll.
    pub fn new(guard: Guard, poll: Option<Duration>) -> Connections {
        Connections {
            guard,
            open: HashMap::new(),
            next: FIRST,
            dirty: BTreeSet::new(),
            more: BTreeSet::new(),
            line: Line::default(),
            closing: VecDeque::new(),
            closing_count: 0,
            through: vec![0; FIRST_READ_BYTES],
            store: StoreLookout { lookout: Lookout::new(poll), polling: Polling::new(poll) },
        }
    }

    /// How many connections are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether no connection is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Wraps and watches a new connection, with its number as token. Returns the number, unless the connection has
    /// ended at once.
    pub fn insert(&mut self, transport: TcpTransport, registry: &Registry) -> Option<ConnId> {
        let mut link = ControlLink::new((self.guard.wrap)(transport, Side::Server));
        let id = ConnId(self.next);
        self.next += 1;
        link.transport.register(registry, Token(id.0 as usize)).ok()?;
        self.open.insert(id, Box::new(Connection { link, phase: Phase::Silent, is_nodes: false }));
        Some(id)
    }

    /// The connections that are to be read, of which the poller will not tell.
    pub fn to_read(&self) -> impl ExactSizeIterator<Item = ConnId> + '_ {
        self.more.iter().copied()
    }

    /// Notes that a node registers on this connection.
    pub fn becomes_nodes(&mut self, id: ConnId) {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.is_nodes = true;
        }
    }

    /// Asks the other end for signs of life. Nothing need be sent to it while the job lasts, so nothing else would show that it
    /// has gone.
    pub fn asks_for_signs(&mut self, id: ConnId) {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.link.transport.ask_for_signs(SIGNS);
        }
    }

    /// Whether a connection may be read at once: a node's may. Others join the line.
    pub fn is_first(&mut self, id: ConnId) -> bool {
        let is_first = self.open.get(&id).is_some_and(|it| it.is_nodes && !it.phase.is_closing());
        if !is_first {
            self.line.join(id);
        }
        is_first
    }

    /// Reads a connection.
    pub fn read(&mut self, id: ConnId) -> Option<Read> {
        self.more.remove(&id);
        let connection = self.open.get_mut(&id)?;
        if connection.phase.is_refused() {
            return Some(Read { arrivals: Vec::new(), any: false, end: connection.read_on(&mut self.through) });
        }
        let (mut arrivals, is_closed) = (Vec::new(), connection.phase.is_closing());
        // Nothing is kept of what comes on a connection that has been closed: many strangers may send much.
        let heard = match is_closed {
            true => connection.link.pass_over(&mut self.through),
            false => connection.link.read(&mut self.through, &mut arrivals),
        };
        if heard.as_ref().is_ok_and(|heard| heard.more) {
            self.more.insert(id);
        }
        let any = !is_closed && heard.as_ref().map_or(!arrivals.is_empty(), |heard| heard.any);
        let end = heard.err();
        if end.is_none() {
            self.dirty.insert(id);
        }
        Some(Read { arrivals, any, end })
    }

    /// Checks that the certificate shown on this connection belongs to the node that registers, if that is demanded.
    pub fn check_identity(&self, id: ConnId, register: &Register) -> Result<(), Misnamed> {
        let (Some(setting), Some(connection)) = (&self.guard.node_ids, self.open.get(&id)) else { return Ok(()) };
        let node = &register.node_id;
        names::check(&connection.link.transport.peer_names(), node).map_err(|has| {
            let wanted = format!("URI:{}", names::uri(node));
            Misnamed {
                told: format!(
                    "node {node:?} shows a certificate (client_cert_path) with {has}: the scheduler wants the name {wanted} in it \
                     ({setting})"
                ),
                logged: format!("it registers as node {node:?} with a certificate that has {has}: expected the name {wanted}"),
            }
        })
    }

    /// Puts a message into its connection's queue, if there is such a connection.
    pub fn send(&mut self, id: ConnId, message: Message) -> Result<(), ControlEnd> {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.link.queue(message)?;
            if connection.phase == Phase::Silent {
                connection.phase = Phase::Spoken;
            }
            self.dirty.insert(id);
        }
        Ok(())
    }

    /// Writes what can be written.
    pub fn write(&mut self) {
        while let Some(id) = self.dirty.pop_first() {
            let Some(connection) = self.open.get_mut(&id).filter(|it| !it.phase.is_refused()) else { continue };
            if !connection.link.write() {
                self.more.insert(id);
            } else if connection.phase == (Phase::Closing { shut: false }) && !connection.link.has_outbound() {
                // The connection then waits for the peer to close, so that nothing on the way is cut off. The shutdown
                // happens only once: each one would be an event on the socket, which the poller would report.
                connection.phase = Phase::Closing { shut: true };
                let _ = connection.link.transport.shutdown_write();
            }
        }
    }

    /// Writes what can be written, once there is much.
    pub fn write_if_many(&mut self) {
        if self.dirty.len() >= DIRTY_MAX {
            self.write();
        }
    }

    /// Drops a connection that has ended. Returns whether that is news, because it had not been closed.
    pub fn remove(&mut self, id: ConnId) -> bool {
        self.dirty.remove(&id);
        let Some(connection) = self.open.remove(&id) else { return false };
        let is_closing = connection.phase.is_closing();
        self.closing_count -= usize::from(is_closing);
        !is_closing
    }

    /// Ends a connection in order on which one side does not take the other: the reason is to arrive. Returns whether
    /// that is news, because it had not been closed.
    pub fn refuse(&mut self, id: ConnId, now: Time) -> bool {
        let Some(connection) = self.open.get_mut(&id) else { return false };
        if connection.phase.is_closing() {
            self.remove(id);
            return false;
        }
        connection.phase = Phase::Refused { shut: false };
        self.drain(id, now);
        self.more.insert(id);
        true
    }

    /// Closes a connection, once what was sent is written.
    pub fn close(&mut self, id: ConnId, now: Time) {
        let Some(connection) = self.open.get_mut(&id) else { return };
        match connection.phase {
            Phase::Silent => _ = self.remove(id),
            Phase::Spoken => {
                connection.phase = Phase::Closing { shut: false };
                self.drain(id, now);
            }
            Phase::Closing { .. } | Phase::Refused { .. } => _ = self.dirty.insert(id),
        }
    }

    /// What was sent on a connection that is being closed from now on may take its time to arrive.
    fn drain(&mut self, id: ConnId, now: Time) {
        self.closing.push_back((now + CLOSE_WAIT, id));
        self.closing_count += 1;
        self.dirty.insert(id);
        self.keep_closing(CLOSING_MAX);
    }

    /// This process is short of descriptors, or has none left: those whose peers may still read why they were closed are
    /// needed.
    pub fn are_short(&mut self, none_left: bool) {
        self.keep_closing(if none_left { 0 } else { CLOSING_WHEN_SHORT });
    }

    /// Drops the closed connections that have drained longest, until so many drain at most.
    fn keep_closing(&mut self, most: usize) {
        while self.closing_count > most {
            self.first_closing(); // what has ended since is not counted
            let Some((_, first)) = self.closing.pop_front() else { break };
            self.remove(first);
        }
    }

    /// Closes all connections.
    pub fn close_all(&mut self, now: Time) {
        let open: Vec<ConnId> = self.open.keys().copied().collect();
        open.into_iter().for_each(|id| self.close(id, now));
    }

    /// When the first of the closed connections is to be dropped.
    pub fn first_closing(&mut self) -> Time {
        while let Some((deadline, id)) = self.closing.front() {
            if self.open.contains_key(id) {
                return *deadline;
            }
            self.closing.pop_front();
        }
        Time::NEVER
    }

    /// Drops the closed connections whose time is up.
    pub fn drop_closed(&mut self, now: Time) {
        while self.first_closing() <= now {
            let Some((_, id)) = self.closing.pop_front() else { break };
            self.remove(id);
        }
    }
}
