//! The nodes' processes: the real brain, its connection, as `runtime/node/agent_thread.rs` drives it, and what the real
//! `runtime/base/identity_store.rs` keeps on its disk.

use super::network::{Fate, Side};
use super::once;
use super::plan::{FINALIZE, FORMING, IMPATIENT, IN_VAIN, SILENCE};
use super::program::Program;
use super::random::Random;
use super::rounds::Links;
use super::sabotage::{self, Sabotage};
use super::scheduler::host;
use super::table::Event as Met;
use super::world::{Event, World};
use crate::agent::{self, Agent, Profile};
use crate::error::{Error, Failure, Status};
use crate::membership::{self, ConnId};
use crate::runtime::base::identity_store::{lasting_name, IdentityStore};
use crate::types::{Device, Epoch, GroupId, Incarnation, Time, Token};
use crate::wire::{
    Called, Formed, Heartbeat, Lane, Message, Reentry, Register, Told, FEATURES, PROTOCOL_HIGHEST, PROTOCOL_LOWEST,
};
use std::time::Duration;

const SCHEDULER: &str = "10.0.0.1:8118";

/// A process's connection, as its driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    None,
    Attempt(u64),
    Up(usize),
}

/// How a process came to its end.
#[derive(Debug)]
pub(super) enum End {
    Died,
    Failed(Error),
    /// It has left, perhaps with a warning.
    Left(Option<String>),
}

pub(super) struct Process {
    pub(super) slot: usize,
    /// It is a second process of a node, beside one that lives.
    pub(super) twin: bool,
    pub(super) incarnation: Incarnation,
    agent: Agent,
    /// None in a story without recovery.
    identity_store: Option<IdentityStore>,
    pub(super) started: Time,
    pub(super) register: Register,
    /// Whether its links, or its connections, have been disturbed. Both together are evidence enough against it.
    pub(super) disturbed: [bool; 2],
    pub(super) alive: bool,
    pub(super) line: Line,
    attempts: u64,
    /// One of its attempts to connect got no answer.
    connect_lost: bool,
    /// How often the scheduler heard its registration.
    pub(super) registered: u64,
    pub(super) armed: Time,
    /// When its newest connection was made.
    pub(super) up_since: Time,
    pub(super) paused_until: Time,
    /// Until then it and the scheduler do not reach each other.
    pub(super) apart_until: Time,
    pub(super) program: Program,
    pub(super) links: Links,
    pub(super) formed: Option<Formed>,
    /// When it was told of its first epoch, and when it began to leave.
    pub(super) joined: Option<Time>,
    pub(super) asked_to_leave: Option<Time>,
    /// The epoch that it is in; 0: none.
    pub(super) epoch: Epoch,
    pub(super) broken: Option<Failure>,
    pub(super) ended: Option<(Time, End)>,
    /// Since when it may rightly be called lost: it failed, or its connection did.
    pub(super) to_blame: Option<Time>,
    /// Another process was told that it has this one's place.
    pub(super) replaced: bool,
}

impl Process {
    /// The groups that it has freed, where it was told that this is kept.
    pub(super) fn freed_for_good(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.program.freed.iter().copied().filter(|group| self.agent.is_done_with(*group))
    }

    /// Whether it was told that the job is aborted.
    pub(super) fn knows_of_abort(&self) -> bool {
        self.broken.as_ref().is_some_and(|failure| failure.status == Status::Aborted)
    }
}

/// Whether the disk's machine has died.
fn has_crashed(error: &Error) -> bool {
    error.message().contains("has crashed")
}

/// A process learns that a connection has ended.
pub(super) fn closed(node: usize, conn: usize, words: &str) -> Event {
    Event::NodeInput(node, Some(conn), agent::Input::Closed(words.to_owned()))
}

fn profile(register: Register, forming: Duration, seed: u64) -> Profile {
    Profile {
        register,
        schedulers: vec![SCHEDULER.to_owned()],
        scheduler_settings: String::new(),
        forming_timeout: Some(forming),
        forming_setting: String::new(),
        heartbeat_timeout: SILENCE,
        finalize_timeout: FINALIZE,
        seed,
    }
}

impl World {
    /// What this life shows of what stands on the slot's disk, if there is recovery. Its own token is kept before anything is sent.
    fn keep(&mut self, slot: usize, drawn: Token) -> Result<Option<(Reentry, IdentityStore)>, Error> {
        if !self.plan.recovers() {
            return Ok(None);
        }
        let (disk, plan) = (Box::new(self.slots[slot].disk.clone()), &self.plan.nodes[slot]);
        let name = lasting_name(plan.role, plan.node_id.as_deref(), plan.rank).expect("a node with an id, or a rank");
        IdentityStore::begin(disk, name, None, || Ok(drawn.0)).map(Some)
    }

    pub(super) fn start_node(&mut self, slot: usize) -> Result<(), String> {
        let runs = self.slots[slot].current.is_some_and(|at| self.processes[at].alive);
        if self.slots[slot].finished
            || (runs && self.processes[self.slots[slot].current.unwrap_or(0)].paused_until <= self.now)
        {
            return Ok(());
        }
        if self.host.ended.is_some() && self.plan.recovers() {
            self.slots[slot].finished = true;
            return Ok(());
        }
        let Some(node) = self.start_process(slot, false)? else { return Ok(()) };
        self.slots[slot].current = Some(node);
        self.drain_node(node)
    }

    /// A second process of a node.
    pub(super) fn start_twin(&mut self, slot: usize) -> Result<(), String> {
        match self.start_process(slot, true)? {
            Some(node) => self.drain_node(node),
            None => Ok(()),
        }
    }

    /// How long a process of this slot tries to join.
    fn time_to_join(&self, slot: usize) -> Duration {
        let lives = self.processes.iter().filter(|process| process.slot == slot).count();
        match () {
            () if !self.plan.recovers() => once::FORMING,
            () if self.plan.impatient && self.newest > Epoch(0) && lives == 1 => IMPATIENT,
            () if self.awaits_in_vain() => IN_VAIN,
            () => FORMING,
        }
    }

    /// Starts a process. None: its machine dies while it keeps its token.
    fn start_process(&mut self, slot: usize, twin: bool) -> Result<Option<usize>, String> {
        let mut random = Random::new(self.random.bits());
        let mut bytes = [0; 48];
        bytes.fill_with(|| random.bits() as u8);
        let incarnation = Incarnation(bytes[..16].try_into().expect("sixteen bytes"));
        let drawn = Token(bytes[16..].try_into().expect("32 bytes"));
        let (reentry, identity_store) = match self.keep(slot, drawn) {
            Ok(kept) => kept.unzip(),
            Err(error) if has_crashed(&error) => {
                self.disk_takes_its_host(slot);
                return Ok(None);
            }
            Err(error) => return Err(format!("slot {slot}: {error}")),
        };
        let node = self.processes.len();
        let has_none = reentry.as_ref().is_some_and(|reentry| reentry.tokens.is_empty());
        if has_none && self.processes.iter().any(|process| process.slot == slot && !process.twin) {
            self.met(Met::WithoutToken);
        }
        let forming = self.time_to_join(slot) + sabotage::delays(self.sabotage).0;
        let plan = &self.plan.nodes[slot];
        let register = Register {
            protocol_lowest: PROTOCOL_LOWEST,
            protocol_highest: PROTOCOL_HIGHEST,
            features: FEATURES,
            version: "0.1.0".to_owned(),
            job_id: None,
            role: plan.role,
            node_id: plan.node_id.clone().unwrap_or_else(|| format!("made-{node}")),
            node_id_given: plan.node_id.is_some(),
            rank: plan.rank,
            incarnation,
            host: host(plan.host),
            process: crate::types::Process { pid: 1000 + node as u32, start_ticks: 1, pid_namespace: 1 },
            addresses: Vec::new(),
            worker_num: plan.told_workers,
            server_num: self.plan.servers,
            recovery: self.plan.recovers(),
            instance: None,
            told: Told::NOTHING,
            device: Device::default(),
            reentry: reentry.map(Box::new),
            launch: None,
            derived_job: None,
        };
        let profile = profile(register.clone(), forming, random.bits());
        self.say(|| format!("node {node} starts in slot {slot}{}", if twin { " (a twin)" } else { "" }));
        self.processes.push(Process {
            slot,
            twin,
            incarnation,
            agent: Agent::new(profile, self.now),
            identity_store,
            started: self.now,
            register,
            disturbed: [false; 2],
            alive: true,
            line: Line::None,
            attempts: 0,
            connect_lost: false,
            registered: 0,
            armed: Time::NEVER,
            up_since: Time(0),
            paused_until: Time(0),
            apart_until: Time(0),
            program: Program { errands: plan.errands.clone().into(), ..Program::default() },
            links: Links::default(),
            formed: None,
            joined: None,
            asked_to_leave: None,
            epoch: Epoch(0),
            broken: None,
            ended: None,
            to_blame: None,
            replaced: false,
        });
        Ok(Some(node))
    }

    /// Its own token holds from now on. Returns false if its machine has died over it.
    pub(super) fn token_holds(&mut self, node: usize) -> Result<bool, String> {
        let process = &mut self.processes[node];
        let slot = process.slot;
        match process.identity_store.as_mut().map_or(Ok(()), IdentityStore::joined) {
            Ok(()) => Ok(true),
            Err(error) if has_crashed(&error) => {
                self.disk_takes_its_host(slot);
                Ok(false)
            }
            Err(error) => Err(format!("node {node}: {error}")),
        }
    }

    /// A slot's machine has died in the middle of an operation of its disk.
    fn disk_takes_its_host(&mut self, slot: usize) {
        self.met(Met::NodeDisk);
        let back = self.random.span_ms(20..1500);
        self.fault(back);
        self.host_dies(slot);
        self.queue.put(self.now + back, Event::StartNode(slot));
    }

    /// Passes something to a process that runs.
    pub(super) fn reach_node(&mut self, node: usize, conn: Option<usize>, input: agent::Input) -> Result<(), String> {
        let process = &mut self.processes[node];
        match (&input, conn) {
            (agent::Input::Connected(_), Some(conn)) => {
                if !self.network.is_open(conn, Side::Node) {
                    return Ok(());
                }
                process.line = Line::Up(conn);
                process.up_since = self.now;
            }
            (agent::Input::Closed(_), Some(conn)) if process.line != Line::Up(conn) => {
                // The connection ends before the process has heard that it stands.
                self.network.shut(conn, Side::Node);
                return Ok(());
            }
            (_, Some(conn)) if process.line != Line::Up(conn) || !self.network.is_open(conn, Side::Node) => {
                return Ok(())
            }
            (agent::Input::Received(_), Some(conn)) if self.network.is_cut(conn) => return Ok(()),
            (agent::Input::Closed(_), Some(conn)) => {
                self.network.shut(conn, Side::Node);
                process.line = Line::None;
            }
            _ => {}
        }
        if let agent::Input::Received(message) = &input {
            if self.dies_with(node, message.kind()) {
                return Ok(());
            }
            if !self.plan.recovers() && self.random.once_in(4) {
                self.feed_node(node, agent::Input::Heard)?;
            }
        }
        self.feed_node(node, input)
    }

    pub(super) fn not_connected(&mut self, node: usize, attempt: u64, reason: String) -> Result<(), String> {
        let process = &self.processes[node];
        if !process.alive || process.line != Line::Attempt(attempt) {
            return Ok(());
        }
        if process.paused_until > self.now {
            let wakes = process.paused_until;
            self.queue.put(wakes, Event::NotConnected(node, attempt, reason));
            return Ok(());
        }
        self.feed_node(node, agent::Input::ConnectFailed(reason))
    }

    pub(super) fn feed_node(&mut self, node: usize, input: agent::Input) -> Result<(), String> {
        let is_deaf = self.sabotage == Some(Sabotage::NoAnswer) && self.processes[node].slot == 0;
        if is_deaf && matches!(input, agent::Input::Timer) {
            return Ok(());
        }
        self.say(|| format!("node {node} <- {input:?}"));
        if let agent::Input::Command(agent::Command::StoreCancel(ask)) = &input {
            self.processes[node].program.asks.remove(ask); // until now it may be answered
            self.leave_if_done(node);
        }
        if let agent::Input::Command(agent::Command::FreeGroup(group)) = &input {
            self.processes[node].program.sentences.frees(*group);
            self.processes[node].program.freed.push(*group);
        }
        self.processes[node].agent.handle(self.now, input);
        self.drain_node(node)
    }

    fn drain_node(&mut self, node: usize) -> Result<(), String> {
        let mut has_ended = false;
        while self.processes[node].alive || has_ended {
            let Some(output) = self.processes[node].agent.next_output() else { break };
            match output {
                agent::Output::Tell(event) if has_ended => self.told(node, event)?, // an ended brain must not tell more
                _ if has_ended => {}
                agent::Output::Connect { within, .. } => self.connect(node, within),
                agent::Output::Disconnect => self.disconnect(node),
                agent::Output::Send(message) => self.send_to_scheduler(node, message),
                agent::Output::SendHeartbeat { sequence, echoed } => {
                    let progress = self.progress(node);
                    self.send_to_scheduler(
                        node,
                        Message::Heartbeat(Heartbeat { sequence, echoed, progress, ..Heartbeat::default() }),
                    );
                }
                agent::Output::SendCall { group, sequence } => {
                    let progress = self.progress(node);
                    let called = progress.iter().find(|of| (of.group, of.entered) == (group, sequence));
                    let call = called.and_then(|of| of.call);
                    self.send_to_scheduler(node, Message::Called(Called { group, sequence, call }));
                }
                agent::Output::Arm(at) => {
                    self.processes[node].armed = at;
                    self.queue.put(at.max(self.now), Event::NodeTimer(node, at));
                }
                agent::Output::Log { line, .. } => self.say(|| format!("node {node} says: {line}")),
                agent::Output::Tell(event) => {
                    self.say(|| format!("node {node} tells: {event:?}"));
                    has_ended = matches!(event, agent::Event::Left(_) | agent::Event::Failed(_));
                    let again = sabotage::said_again(self.sabotage, &event);
                    self.told(node, event)?;
                    again.map_or(Ok(()), |event| self.told(node, event))?;
                }
                agent::Output::Peer(..) if self.plan.recovers() => {} // with recovery the scheduler judges
                agent::Output::Peer(peer, what) => self.tell_peer(node, peer, what),
            }
        }
        Ok(())
    }

    pub(super) fn connect(&mut self, node: usize, within: Duration) {
        self.disconnect(node);
        let process = &mut self.processes[node];
        process.attempts += 1;
        let attempt = process.attempts;
        process.line = Line::Attempt(attempt);
        // A process that has to come back soon is not kept from it.
        let may_lose = process.formed.is_none() && !process.disturbed[0] && !process.connect_lost;
        let failed = |reason: &str| Event::NotConnected(node, attempt, format!("{SCHEDULER}: {reason}"));
        if process.apart_until > self.now {
            self.queue.put(self.now + within, failed("timed out"));
        } else if self.host.running.is_none() {
            self.met(Met::ConnectRefused);
            let at = self.now + self.network.delay();
            self.queue.put(at, failed("connection refused"));
        } else if may_lose && self.loses_connect() {
            self.processes[node].connect_lost = true;
            self.met(Met::ConnectLost);
            self.queue.put(self.now + within, failed("timed out"));
        } else {
            self.open_connection(node);
        }
    }

    /// Whether an attempt to connect gets no answer.
    fn loses_connect(&mut self) -> bool {
        let lost = self.plan.once.as_ref().map_or(0, |once| once.connect_lost_once_in);
        lost > 0 && self.random.once_in(lost)
    }

    /// A connection of which both ends hear.
    fn open_connection(&mut self, node: usize) {
        let conn = self.network.connect(Some(node));
        // It goes through the lane of messages, so that nothing that is sent on it comes sooner.
        let Fate::Arrives(at_scheduler) = self.network.send(self.now, conn, Side::Node, Lane::Urgent) else { return };
        let at_node = at_scheduler + self.network.delay();
        let opened = membership::Input::Opened(ConnId(conn as u64), format!("10.0.1.{node}:4000"));
        self.queue.put(at_scheduler, Event::SchedulerInput(self.host.life, Some(conn), opened));
        self.queue.put(at_node, Event::Joins(node, conn, self.processes[node].attempts));
    }

    pub(super) fn joins(&mut self, node: usize, conn: usize, attempt: u64) {
        let addresses = vec![std::net::SocketAddr::from(([10, 0, 1, node as u8], 4000))];
        let event = match self.network.is_open(conn, Side::Node) {
            true => Event::NodeInput(node, Some(conn), agent::Input::Connected(addresses)),
            false => Event::NotConnected(node, attempt, format!("{SCHEDULER}: connection reset by peer")),
        };
        self.queue.put(self.now, event);
    }

    /// The driver lets go of the connection, or of the attempt to make one.
    pub(super) fn disconnect(&mut self, node: usize) {
        self.processes[node].line = Line::None;
        for conn in self.network.of_node(node) {
            if self.network.is_open(conn, Side::Node) {
                if let Some(at) = self.network.finish(self.now, conn, Side::Node) {
                    self.closed_at_scheduler(at, conn, "end of stream");
                }
            }
        }
    }

    pub(super) fn send_to_scheduler(&mut self, node: usize, message: Message) {
        self.say(|| format!("node {node} -> {message:?}"));
        let Line::Up(conn) = self.processes[node].line else { return };
        let kind = message.kind();
        let message = self.through_bytes(sabotage::sent_by_node(self, message));
        if self.loses(conn, kind) {
            return;
        }
        match self.network.send(self.now, conn, Side::Node, message.lane()) {
            Fate::Arrives(at) => {
                let input = membership::Input::Received(ConnId(conn as u64), message);
                self.queue.put(at, Event::SchedulerInput(self.host.life, Some(conn), input));
            }
            Fate::Refused(at) => self.queue.put(at, closed(node, conn, "connection reset by peer")),
            Fate::Lost => {}
        }
        self.dies_with(node, kind);
    }

    /// Now and then a message takes the way through its bytes.
    pub(super) fn through_bytes(&self, message: Message) -> Message {
        if !self.steps.is_multiple_of(16) {
            return message;
        }
        let decoded = Message::decode(message.kind(), &message.encode()).expect("what is sent can be read");
        assert_eq!(decoded, message);
        decoded
    }

    /// The scheduler hears from a process; `again`: that had been told of an epoch before.
    pub(super) fn sees_register(&mut self, conn: usize, again: bool) {
        let Some(node) = self.network.node_of(conn) else { return };
        self.processes[node].registered += 1;
        if self.processes[node].registered > 1 {
            self.met(Met::RegisteredAgain);
        }
        if !again {
            return;
        }
        let epoch = self.processes[node].epoch;
        let told = self.processes.iter().any(|process| process.epoch == epoch && process.broken.is_some());
        let met = if told { Met::BackAfterVerdict } else { Met::BackBeforeVerdict };
        self.met(met);
        let slot = self.processes[node].slot;
        if self.slots[slot].current != Some(node) && !self.processes[node].twin {
            self.met(Met::OldLifeReturns);
        }
    }
}
