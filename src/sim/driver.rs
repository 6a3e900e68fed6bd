//! What the drivers of scheduler and nodes do: start the brains, feed them, and carry out what they put out.

use super::faults::Fault;
use super::network::{Fate, Side};
use super::plan::{Shape, FINALIZE, FORMING, SCHEDULER_HOST, SILENCE};
use super::random::Random;
use super::world::{Event, Line, World};
use crate::agent::{self, Agent, Profile};
use crate::membership::{self, Closed, ConnId, Identity, Liveness, Rules, Scheduler, StoreLimits};
use crate::types::{Call, CallKind, Device, GroupId, HostName, Incarnation, JobInstance, Process, Role, Secret, Time};
use crate::wire::{
    Agreed, Called, GroupProgress, Heartbeat, Lane, Message, Register, Told, PROTOCOL_HIGHEST, PROTOCOL_LOWEST,
};
use std::time::Duration;

/// The port of every simulated scheduler; nothing listens there.
const SCHEDULER: &str = "10.0.0.1:8118";

fn host(number: usize) -> HostName {
    HostName { name: format!("host{number}"), key: format!("host{number}/boot") }
}

fn process(node: usize) -> Process {
    Process { pid: 1000 + node as u32, start_ticks: 1, pid_namespace: 1 }
}

impl World {
    pub(super) fn start_scheduler(&mut self) {
        let mut random = Random::new(self.random.bits());
        let mut secret = [0; 32];
        secret.fill_with(|| random.bits() as u8);
        let mut instance = [0; 16];
        instance.fill_with(|| random.bits() as u8);
        let identity = Identity {
            instance: JobInstance(instance),
            secret: Secret(secret),
            host: host(SCHEDULER_HOST),
            pid_namespace: 1,
        };
        let rules = Rules {
            job_id: None,
            derived_job: None,
            worker_num: self.plan.workers,
            server_num: self.plan.servers,
            recovery: false,
            durable: false,
            forming_timeout: Some(FORMING),
            forming_setting: String::new(),
            agreed: Agreed {
                heartbeat_timeout_ms: SILENCE.as_millis() as u64,
                checksums: true,
                thresholds: vec![1, 2],
                store_key_max: 4096,
                store_value_max: 1 << 20,
            },
            one_host: vec![3, 4],
            store: StoreLimits { key_max: 4096, value_max: 1 << 20, total_max: 64 << 20 },
        };
        self.say(None, || "starts".to_owned());
        self.scheduler = Some(Scheduler::new(identity, rules, self.now));
        self.drain_scheduler();
    }

    pub(super) fn start_node(&mut self, node: usize) -> Result<(), String> {
        let mut random = Random::new(self.random.bits());
        let mut incarnation = [0; 16];
        incarnation.fill_with(|| random.bits() as u8);
        let plan = &self.nodes[node].plan;
        let register = Register {
            protocol_lowest: PROTOCOL_LOWEST,
            protocol_highest: PROTOCOL_HIGHEST,
            features: 0,
            version: "0.1.0".to_owned(),
            job_id: None,
            role: plan.role,
            node_id: plan.node_id.clone(),
            node_id_given: plan.id_given,
            rank: plan.rank,
            incarnation: Incarnation(incarnation),
            host: host(plan.host),
            process: process(node),
            addresses: Vec::new(),
            worker_num: plan.told_workers,
            server_num: self.plan.servers,
            recovery: false,
            instance: None,
            told: Told::NOTHING,
            device: Device::default(),
            reentry: None,
            launch: None,
            derived_job: None,
        };
        let profile = Profile {
            register,
            schedulers: vec![SCHEDULER.to_owned()],
            scheduler_settings: String::new(),
            forming_timeout: Some(FORMING),
            forming_setting: String::new(),
            heartbeat_timeout: SILENCE,
            finalize_timeout: FINALIZE,
            seed: random.bits(),
        };
        self.say(Some(node), || format!("starts as {:?} ({})", profile.register.node_id, profile.register.role));
        self.nodes[node].alive = true;
        self.nodes[node].agent = Some(Agent::new(profile, self.now));
        self.drain_node(node)
    }

    pub(super) fn feed_scheduler(&mut self, input: membership::Input) {
        if self.ended.is_some() {
            return self.nobody_there(&input);
        }
        self.say(None, || format!("<- {input:?}"));
        use Message::{Heartbeat, StoreBegin, StorePiece};
        if !matches!(input, membership::Input::Received(_, Heartbeat(_) | StoreBegin(_) | StorePiece(_))) {
            self.seats_changed = true;
        }
        if let membership::Input::Received(ConnId(conn), Message::Register(_)) = &input {
            if let Some(node) = self.network.node_of(*conn as usize) {
                self.nodes[node].registered += 1;
                if self.nodes[node].registered > 1 {
                    self.network.tally.count(Fault::RepeatedRegistration);
                }
            }
        }
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.handle(self.now, input);
        }
        self.drain_scheduler();
    }

    /// The scheduler's process has gone: whoever still connects is told.
    fn nobody_there(&mut self, input: &membership::Input) {
        let (membership::Input::Opened(ConnId(conn), _) | membership::Input::Received(ConnId(conn), _)) = input else {
            return;
        };
        let conn = *conn as usize;
        if let (Some(at), Some(node)) =
            (self.network.finish(self.now, conn, Side::Scheduler), self.network.node_of(conn))
        {
            self.queue.put(at, closed(node, conn, "connection reset by peer"));
        }
    }

    fn drain_scheduler(&mut self) {
        while let Some(output) = self.scheduler.as_mut().and_then(Scheduler::next_output) {
            match output {
                membership::Output::Arm(at) => {
                    self.scheduler_armed = at;
                    if at != Time::NEVER {
                        self.queue.put(at.max(self.now), Event::SchedulerTimer(at));
                    }
                }
                membership::Output::Send(ConnId(conn), message) => self.send_to_node(conn as usize, message),
                membership::Output::Close(ConnId(conn)) => {
                    self.say(None, || format!("closes {conn}"));
                    let conn = conn as usize;
                    let finished = self.network.finish(self.now, conn, Side::Scheduler);
                    if let (Some(at), Some(node)) = (finished, self.network.node_of(conn)) {
                        self.queue.put(at, closed(node, conn, "end of stream"));
                    }
                }
                membership::Output::Probe(process) => {
                    let node = process.pid as usize - 1000;
                    let state = if self.nodes[node].alive { Liveness::Alive } else { Liveness::Gone };
                    let input = membership::Input::Probed(process, state);
                    self.queue.put(self.now + Duration::from_micros(20), Event::ToScheduler(None, input));
                }
                membership::Output::Persist(number, _) => {
                    let input = membership::Input::Persisted(number);
                    self.queue.put(self.now + Duration::from_micros(200), Event::ToScheduler(None, input));
                }
                membership::Output::WantSecret => {
                    self.secrets += 1;
                    let mut secret = [0; 32];
                    secret[..8].copy_from_slice(&self.secrets.to_le_bytes());
                    let input = membership::Input::Secret(Secret(secret));
                    self.queue.put(self.now + Duration::from_micros(5), Event::ToScheduler(None, input));
                }
                membership::Output::Log { line, .. } => self.say(None, || format!("says: {line}")),
                membership::Output::Ended(result) => {
                    self.say(None, || format!("ends: {result:?}"));
                    self.ended = Some((self.now, result));
                }
            }
        }
    }

    fn send_to_node(&mut self, conn: usize, message: Message) {
        self.say(None, || format!("-> {conn}: {message:?}"));
        if !self.network.is_open(conn, Side::Scheduler) {
            return;
        }
        match (self.network.send(self.now, conn, Side::Scheduler, message.lane()), self.network.node_of(conn)) {
            (Fate::Arrives(at), Some(node)) => {
                let message = self.through_bytes(message);
                self.queue.put(at, Event::ToNode(node, Some(conn), agent::Input::Received(message)));
            }
            (Fate::Refused(at), _) => self.closed_at_scheduler(at, conn, Closed::Ended, "connection reset by peer"),
            _ => {}
        }
    }

    /// Now and then a message takes the way through its bytes.
    fn through_bytes(&mut self, message: Message) -> Message {
        if !self.random.once_in(16) {
            return message;
        }
        let decoded = Message::decode(message.kind(), &message.encode()).expect("what is sent can be read");
        assert_eq!(decoded, message);
        decoded
    }

    pub(super) fn closed_at_scheduler(&mut self, at: Time, conn: usize, how: Closed, words: &str) {
        let input = membership::Input::Closed(ConnId(conn as u64), how, words.to_owned());
        self.queue.put(at, Event::ToScheduler(Some(conn), input));
    }

    pub(super) fn feed_node(&mut self, node: usize, input: agent::Input) -> Result<(), String> {
        self.say(Some(node), || format!("<- {input:?}"));
        if let Some(agent) = &mut self.nodes[node].agent {
            agent.handle(self.now, input);
        }
        self.drain_node(node)
    }

    fn drain_node(&mut self, node: usize) -> Result<(), String> {
        while let Some(output) = self.nodes[node].agent.as_mut().and_then(Agent::next_output) {
            match output {
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
                    self.nodes[node].armed = at;
                    self.queue.put(at.max(self.now), Event::NodeTimer(node, at));
                }
                agent::Output::Log { line, .. } => self.say(Some(node), || format!("says: {line}")),
                agent::Output::Tell(event) => {
                    self.say(Some(node), || format!("tells: {event:?}"));
                    self.told(node, event)?;
                }
                agent::Output::Peer(peer, what) => self.tell_peer(node, peer, what),
            }
        }
        Ok(())
    }

    /// What nodes say to each other without their scheduler takes a network of its own, which holds back what goes to or from one that
    /// is isolated until it is so no longer, as TCP does.
    pub(super) fn tell_peer(&mut self, node: usize, peer_index: u32, what: agent::ToPeer) {
        use agent::{PeerSign, ToPeer};
        let index = |node: usize| self.nodes[node].formed.as_ref().map(|(_, formed)| formed.index);
        let found = (0..self.nodes.len()).find(|node| index(*node) == Some(peer_index));
        let (Some(peer), Some(own_index)) = (found, index(node)) else { return };
        let (own, other) = (&self.nodes[node], &self.nodes[peer]);
        let passes_at = self.now.max(own.isolated_until).max(other.isolated_until);
        let lives = other.alive && other.left.is_none() && other.agent.is_some();
        let signs = match what {
            ToPeer::Look => {
                let sign = PeerSign::Seen { is_gone: false, lives: false, answers: passes_at == self.now };
                return self.queue.put(self.now, Event::ToNode(node, None, agent::Input::of_peer(peer_index, sign)));
            }
            what if passes_at > self.now => return self.queue.put(passes_at, Event::ToPeer(node, peer_index, what)),
            ToPeer::Watch if lives => vec![(peer, own_index, PeerSign::Stands), (node, peer_index, PeerSign::Stands)],
            ToPeer::Watch => vec![(node, peer_index, PeerSign::Refused("connection refused".to_owned()))],
            ToPeer::Say(word) => vec![(peer, own_index, PeerSign::Says(word))],
            ToPeer::Close => vec![(peer, own_index, PeerSign::Ended("it closed the connection".to_owned()))],
        };
        for (to, from, sign) in signs {
            let at = self.now + Duration::from_micros(50);
            self.queue.put(at, Event::ToNode(to, None, agent::Input::of_peer(from, sign)));
        }
    }

    fn connect(&mut self, node: usize, within: Duration) {
        self.disconnect(node);
        let side = &mut self.nodes[node];
        side.attempts += 1;
        side.line = Line::Attempt(side.attempts);
        // One that has to come back soon is not kept from it.
        let forming = side.formed.is_none() && !side.disturbed;
        let attempt = side.attempts;
        let failed = |reason: &str| Event::NotConnected(node, attempt, format!("{SCHEDULER}: {reason}"));
        if side.isolated_until > self.now {
            let at = self.now + within;
            self.queue.put(at, failed("timed out"));
            return;
        }
        if self.scheduler.is_none() || self.ended.is_some() {
            self.network.tally.count(Fault::ConnectRefused);
            let at = self.now + self.network.delay();
            self.queue.put(at, failed("connection refused"));
            return;
        }
        let lost = self.plan.connect_lost_once_in;
        if forming && lost > 0 && !self.nodes[node].connect_lost && self.random.once_in(lost) {
            self.nodes[node].connect_lost = true;
            self.network.tally.count(Fault::ConnectLost);
            self.queue.put(self.now + within, failed("timed out"));
            return;
        }
        let conn = self.network.connect(Some(node));
        // Through the lane of messages, so that nothing that is sent on it comes sooner.
        let Fate::Arrives(at_scheduler) = self.network.send(self.now, conn, Side::Node, Lane::Urgent) else { return };
        let at_node = at_scheduler + self.network.delay();
        let opened = membership::Input::Opened(ConnId(conn as u64), format!("10.0.1.{node}:4000"));
        self.queue.put(at_scheduler, Event::ToScheduler(Some(conn), opened));
        let addresses = vec![std::net::SocketAddr::from(([10, 0, 1, node as u8], 4000))];
        self.queue.put(at_node, Event::ToNode(node, Some(conn), agent::Input::Connected(addresses)));
    }

    /// The driver lets go of the connection, or of the attempt to make one.
    fn disconnect(&mut self, node: usize) {
        self.nodes[node].line = Line::None;
        for conn in self.network.of_node(node) {
            if !self.network.is_open(conn, Side::Node) {
                continue;
            }
            if let Some(at) = self.network.finish(self.now, conn, Side::Node) {
                self.closed_at_scheduler(at, conn, Closed::Ended, "end of stream");
            }
        }
    }

    fn send_to_scheduler(&mut self, node: usize, message: Message) {
        self.say(Some(node), || format!("-> {message:?}"));
        let Line::Up(conn) = self.nodes[node].line else { return };
        match self.network.send(self.now, conn, Side::Node, message.lane()) {
            Fate::Arrives(at) => {
                let message = self.through_bytes(message);
                let input = membership::Input::Received(ConnId(conn as u64), message);
                self.queue.put(at, Event::ToScheduler(Some(conn), input));
            }
            Fate::Refused(at) => self.queue.put(at, closed(node, conn, "connection reset by peer")),
            Fate::Lost => {}
        }
    }

    /// How far a node is on world: all in the same call, but for those that disagree.
    fn progress(&self, node: usize) -> Vec<GroupProgress> {
        let side = &self.nodes[node];
        let Some((since, formed)) = &side.formed else { return Vec::new() };
        if side.plan.role != Role::Worker {
            return Vec::new();
        }
        let differs = self.plan.shape == Shape::Mismatch && formed.rank == 0;
        let kind = if differs { CallKind::Allgather } else { CallKind::Barrier };
        let call = Call { kind, dtype: None, op: None, root: None, count: 0, layout: 0 };
        let age_ms = self.now.since(*since).as_millis() as u64;
        vec![GroupProgress { group: GroupId::WORLD, entered: 1, finished: 0, call: Some(call), age_ms }]
    }

    /// A stranger on the port: says nothing, or something that no node begins with.
    pub(super) fn stranger(&mut self) {
        if self.scheduler.is_none() || self.ended.is_some() {
            return;
        }
        self.network.tally.count(Fault::Stranger);
        let conn = self.network.connect(None);
        let opened = membership::Input::Opened(ConnId(conn as u64), "192.0.2.7:5000".to_owned());
        self.queue.put(self.now, Event::ToScheduler(Some(conn), opened));
        match self.random.below(0..3) {
            0 => {}
            1 => {
                if let Fate::Arrives(at) = self.network.send(self.now, conn, Side::Node, Lane::Urgent) {
                    let input = membership::Input::Received(ConnId(conn as u64), Message::TimeUp);
                    self.queue.put(at, Event::ToScheduler(Some(conn), input));
                }
            }
            _ => {
                let at = self.now + self.random.span_ms(1..3000);
                self.queue.put(at, Event::StrangerGoes(conn));
            }
        }
    }
}

/// A node learns that a connection has ended.
pub(super) fn closed(node: usize, conn: usize, words: &str) -> Event {
    Event::ToNode(node, Some(conn), agent::Input::Closed(words.to_owned()))
}
