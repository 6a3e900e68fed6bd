//! A small driver for the brain's tests: it keeps what comes out of it.

use super::*;
use crate::error::{Error, Failure, Status};
use crate::types::{ChecksumScope, Device, GroupId, HostName, JobInstance, Process, Role, Secret, SharedMemory};
use crate::wire::{Agreed, Formed, Heartbeat, Record, Register, Rejected, Told, PROTOCOL_HIGHEST, PROTOCOL_LOWEST};
use std::time::Duration;

/// A scheduler on host `here`, whose heartbeat time-out is 5 s, and everything that it said.
pub(crate) struct Bench {
    pub(crate) scheduler: Scheduler,
    pub(crate) now: Time,
    pub(crate) sent: Vec<(ConnId, Message)>,
    pub(crate) closed: Vec<ConnId>,
    pub(crate) probes: Vec<Process>,
    pub(crate) lines: Vec<String>,
    pub(crate) notes: Vec<String>,
    pub(crate) armed: Option<Time>,
    pub(crate) ended: Option<Result<(), Error>>,
    /// Whether the secrets that it asks for are drawn: of ones, twos, ...
    pub(crate) secrets: bool,
    /// What it wrote down, and whether that is durable at once.
    pub(crate) written: Vec<Record>,
    pub(crate) syncs: bool,
    drawn: u8,
}

pub(crate) fn rules(worker_num: u32, server_num: u32) -> Rules {
    Rules {
        job_id: None,
        derived_job: None,
        worker_num,
        server_num,
        recovery: false,
        durable: false,
        forming_timeout: Some(Duration::from_secs(600)),
        forming_setting: "MS_CLUSTER_TIMEOUT is 600".to_owned(),
        agreed: Agreed {
            heartbeat_timeout_ms: 5000,
            checksums: ChecksumScope::Network,
            thresholds: Vec::new(),
            store_key_max: 4096,
            store_value_max: 16 << 20,
            shared_memory: SharedMemory::Auto,
        },
        one_host: vec![1],
        store: StoreLimits { key_max: 4096, value_max: 16 << 20, total_max: 256 << 20 },
    }
}

pub(crate) fn host(name: &str) -> HostName {
    HostName { name: name.to_string(), key: format!("{name}/boot") }
}

/// A worker without an id of its own on host `here`, with `serial` in everything that must be unique.
pub(crate) fn worker(serial: u32, worker_num: u32) -> Register {
    let mut incarnation = [0; 16];
    incarnation[..4].copy_from_slice(&serial.to_le_bytes());
    Register {
        protocol_lowest: PROTOCOL_LOWEST,
        protocol_highest: PROTOCOL_HIGHEST,
        features: 0,
        version: "0.1.0".to_string(),
        job_id: None,
        role: Role::Worker,
        node_id: format!("made-{serial}"),
        node_id_given: false,
        rank: None,
        incarnation: Incarnation(incarnation),
        host: host("here"),
        process: Process { pid: 1000 + serial, start_ticks: 1, pid_namespace: 7 },
        addresses: vec![([127, 0, 0, 1], 4000).into()],
        worker_num,
        server_num: 0,
        recovery: false,
        instance: None,
        told: Told::NOTHING,
        device: Device::default(),
        reentry: None,
        launch: None,
        derived_job: None,
    }
}

/// A worker as [`worker`] makes it, with an id that the user gave.
pub(crate) fn named(serial: u32, worker_num: u32, id: &str) -> Register {
    Register { node_id: id.to_string(), node_id_given: true, ..worker(serial, worker_num) }
}

/// The scheduler's identity. It runs in the process of the worker that [`worker`] makes for this number.
pub(crate) const HOSTING: u32 = 900;

fn identity() -> Identity {
    let process = worker(HOSTING, 1).process;
    let (instance, before) = (JobInstance([9; 16]), Some(JobInstance([8; 16])));
    Identity { instance, before, secret: Secret([3; 32]), host: host("here"), process }
}

impl Bench {
    pub(crate) fn new(rules: Rules) -> Bench {
        let scheduler = Scheduler::new(identity(), rules, Time(0));
        let mut bench = Bench {
            scheduler,
            now: Time(0),
            sent: Vec::new(),
            closed: Vec::new(),
            probes: Vec::new(),
            lines: Vec::new(),
            notes: Vec::new(),
            armed: None,
            ended: None,
            secrets: true,
            written: Vec::new(),
            syncs: true,
            drawn: 0,
        };
        bench.drain();
        bench
    }

    /// A scheduler that goes on with these records; nobody is connected.
    pub(crate) fn resumed(rules: Rules, records: Vec<Record>) -> Bench {
        let mut bench = Bench::new(rules.clone());
        bench.scheduler = Scheduler::resume(identity(), rules, bench.now, records);
        bench.feed(Input::Heard(ConnId(999)));
        bench
    }

    /// A complete cluster of workers that all run on hosts of these names; connection i is rank i's.
    pub(crate) fn formed(hosts: &[&str]) -> Bench {
        let number = hosts.len() as u32;
        let mut bench = Bench::new(rules(number, 0));
        for (rank, name) in (0u32..).zip(hosts) {
            bench.join(u64::from(rank), Register { host: host(name), ..named(rank, number, &rank.to_string()) });
        }
        assert_eq!(bench.sent.len(), hosts.len(), "all are told: {:?}", bench.sent);
        bench.sent.clear();
        bench.lines.clear();
        bench
    }

    fn drain(&mut self) {
        while let Some(output) = self.scheduler.next_output() {
            assert!(self.ended.is_none(), "nothing follows the end: {output:?}");
            match output {
                Output::Send(conn, message) => self.sent.push((conn, message)),
                Output::Close(conn) => self.closed.push(conn),
                Output::Probe(process) => self.probes.push(process),
                Output::WantSecret if self.secrets => {
                    self.drawn += 1;
                    self.scheduler.handle(self.now, Input::Secret(Secret([self.drawn; 32])));
                }
                Output::WantSecret => {}
                Output::Persist(number, record) => {
                    self.written.push(record);
                    if self.syncs {
                        self.scheduler.handle(self.now, Input::Persisted(number));
                    }
                }
                Output::Arm(time) => self.armed = Some(time),
                Output::Log { quiet: true, line } => self.notes.push(line),
                Output::Log { quiet: false, line } => self.lines.push(line),
                Output::Ended(result) => self.ended = Some(result),
            }
        }
    }

    pub(crate) fn feed(&mut self, input: Input) {
        self.scheduler.handle(self.now, input);
        self.drain();
    }

    pub(crate) fn open(&mut self, conn: u64) {
        self.feed(Input::Opened(ConnId(conn), format!("10.0.0.{conn}:5000")));
    }

    pub(crate) fn join(&mut self, conn: u64, register: Register) {
        self.open(conn);
        self.say(conn, Message::Register(register));
    }

    pub(crate) fn say(&mut self, conn: u64, message: Message) {
        self.feed(Input::Received(ConnId(conn), message));
    }

    pub(crate) fn close(&mut self, conn: u64, how: Closed) {
        self.feed(Input::Closed(ConnId(conn), how, "end of stream".to_string()));
    }

    /// A heartbeat with perfect hearing.
    pub(crate) fn beat(&mut self, conn: u64, sequence: u64) {
        self.say(conn, Message::Heartbeat(Heartbeat { sequence, echoed: sequence - 1, ..Heartbeat::default() }));
    }

    /// Lets time pass, with every timer on time; no node says anything.
    pub(crate) fn pass(&mut self, span: Duration) {
        self.pass_with(span, |_| {});
    }

    /// Lets time pass; before each timer, this happens.
    pub(crate) fn pass_with(&mut self, span: Duration, mut meanwhile: impl FnMut(&mut Bench)) {
        let until = self.now + span;
        while self.ended.is_none() && self.armed.is_some_and(|armed| armed <= until) {
            self.now = self.armed.expect("just seen").max(self.now);
            meanwhile(self);
            if self.ended.is_none() {
                self.feed(Input::Timer);
            }
        }
        self.now = until;
    }

    /// What was sent over a connection since the last look.
    pub(crate) fn told(&mut self, conn: u64) -> Vec<Message> {
        let (his, others) = self.sent.drain(..).partition(|(to, _)| *to == ConnId(conn));
        self.sent = others;
        his.into_iter().map(|(_, message): (ConnId, Message)| message).collect()
    }

    pub(crate) fn formed_message(&mut self, conn: u64) -> Formed {
        match self.told(conn).as_slice() {
            [Message::Formed(formed)] => formed.clone(),
            other => panic!("connection {conn} was told {other:?}, not that the cluster is complete"),
        }
    }

    /// The sentence with which a connection was rejected, and closed.
    pub(crate) fn rejected(&mut self, conn: u64) -> (Status, String) {
        assert!(self.closed.contains(&ConnId(conn)), "connection {conn} is closed");
        match self.told(conn).pop() {
            Some(Message::Rejected(Rejected { status, reason })) => (status, reason),
            other => panic!("connection {conn} was told {other:?}, not rejected"),
        }
    }

    /// The verdict that a connection was told last.
    pub(crate) fn verdict(&mut self, conn: u64) -> Option<Failure> {
        self.told(conn).into_iter().rev().find_map(|message| match message {
            Message::Verdict(verdict) => Some(verdict.failure),
            _ => None,
        })
    }
}

/// One node as the scheduler counts it, for the simulation's checks.
pub(crate) struct Admitted<'a> {
    pub(crate) register: &'a Register,
    /// Once the cluster has formed.
    pub(crate) rank: Option<u32>,
}

impl Scheduler {
    /// How many groups that were made are still in use.
    pub(crate) fn groups_kept(&self) -> usize {
        self.conductor.groups.table.kept()
    }

    /// Whether this node, by its index, counts as using this group that was made.
    pub(crate) fn counts_as_using(&self, node: u32, group: GroupId) -> bool {
        self.conductor.groups.table.is_used_by(node, group)
    }

    /// Everybody who has a place.
    pub(crate) fn admitted(&self) -> impl Iterator<Item = Admitted<'_>> {
        self.conductor
            .cluster
            .nodes
            .values()
            .map(|node| Admitted { register: &node.register, rank: node.place.map(|place| place.rank) })
    }
}
