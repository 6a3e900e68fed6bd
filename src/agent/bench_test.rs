//! A bench for the node's brain: the test plays its driver and its scheduler by hand.

use super::*;
use crate::error::Status;
use crate::types::{
    ChecksumScope, Device, Epoch, GroupId, HostName, Incarnation, JobInstance, Process, Role, Secret, SharedMemory,
};
use crate::wire::{self, Agreed, Formed, HeartbeatEcho, Register, Told};
use std::sync::Arc;
use std::time::Duration;

/// A brain, its time, and what it has put out.
pub(super) struct Bench {
    pub(super) agent: Agent,
    pub(super) now: Time,
    pub(super) armed: Time,
    pub(super) outputs: Vec<Output>,
}

pub(super) const MS: u64 = 1_000_000;

pub(super) fn profile() -> Profile {
    let register = Register {
        protocol_lowest: 1,
        protocol_highest: 1,
        features: 0,
        version: "0.1.0".to_owned(),
        job_id: None,
        role: Role::Worker,
        node_id: "0".to_owned(),
        node_id_given: true,
        rank: None,
        incarnation: Incarnation([7; 16]),
        host: HostName { name: "h".to_owned(), key: "h".to_owned() },
        process: Process { pid: 812, start_ticks: 1, pid_namespace: 1 },
        addresses: Vec::new(),
        worker_num: 1,
        server_num: 0,
        recovery: false,
        instance: None,
        told: Told::NOTHING,
        device: Device::default(),
        reentry: None,
        launch: None,
        derived_job: None,
    };
    Profile {
        register,
        schedulers: vec!["10.0.0.1:8118".to_owned()],
        scheduler_settings: "MS_SCHED_HOST and sched_port".to_owned(),
        forming_timeout: Some(Duration::from_secs(10)),
        forming_setting: "MS_CLUSTER_TIMEOUT is 10".to_owned(),
        heartbeat_timeout: Duration::from_secs(5),
        finalize_timeout: Duration::from_secs(30),
        seed: 1,
    }
}

pub(super) fn formed(instance: u8, epoch: u64) -> Formed {
    let register = profile().register;
    let member = wire::Member {
        index: 0,
        role: Role::Worker,
        rank: 0,
        local_rank: 0,
        node_id: register.node_id,
        host: register.host,
        process: register.process,
        addresses: Vec::new(),
        device: register.device,
    };
    Formed {
        instance: JobInstance([instance; 16]),
        generation: 1,
        epoch: Epoch(epoch),
        index: 0,
        rank: 0,
        local_rank: 0,
        local_size: 1,
        worker_num: 1,
        server_num: 0,
        secret: Secret([0; 32]),
        agreed: Agreed {
            heartbeat_timeout_ms: 1000,
            checksums: ChecksumScope::Network,
            thresholds: Vec::new(),
            store_key_max: 4096,
            store_value_max: 16 << 20,
            shared_memory: SharedMemory::Auto,
        },
        restarts: 0,
        creations: Vec::new(),
        members: wire::Members::new(vec![Arc::new(member)]),
        features: wire::Later(0),
    }
}

pub(super) fn failure(status: Status, group: Option<GroupId>, cause: &str) -> Failure {
    Failure { status, culprit: None, cause: cause.to_owned(), epoch: Epoch(1), group, sequence: 3 }
}

impl Bench {
    pub(super) fn new() -> Bench {
        let agent = Agent::new(profile(), Time(0));
        let mut bench = Bench { agent, now: Time(0), armed: Time::NEVER, outputs: Vec::new() };
        bench.drain();
        bench
    }

    /// A node that has joined a cluster of one, whose heartbeat time-out is 1 s.
    pub(super) fn joined() -> Bench {
        let mut bench = Bench::new();
        bench.feed(Input::Connected(Vec::new()));
        bench.receive(Message::Formed(formed(1, 1)));
        bench.outputs.clear();
        bench
    }

    /// A node that has joined, with recovery.
    pub(super) fn joined_with_recovery() -> Bench {
        let mut profile = profile();
        profile.register.recovery = true;
        let mut bench = Bench { agent: Agent::new(profile, Time(0)), ..Bench::new() };
        bench.outputs.clear();
        bench.drain();
        bench.feed(Input::Connected(Vec::new()));
        bench.receive(Message::Formed(formed(1, 1)));
        bench.outputs.clear();
        bench
    }

    pub(super) fn drain(&mut self) {
        while let Some(output) = self.agent.next_output() {
            if let Output::Arm(at) = output {
                self.armed = at;
            }
            self.outputs.push(output);
        }
    }

    pub(super) fn feed(&mut self, input: Input) {
        self.agent.handle(self.now, input);
        self.drain();
    }

    pub(super) fn receive(&mut self, message: Message) {
        self.feed(Input::Received(message));
    }

    pub(super) fn command(&mut self, command: Command) {
        self.feed(Input::Command(command));
    }

    /// Lets time pass, with every timer on the way; echoes heartbeats if `echo`.
    pub(super) fn pass(&mut self, ms: u64, echo: bool) {
        let until = Time(self.now.0 + ms * MS);
        let mut beats = self.beats().len();
        while self.armed <= until {
            self.now = self.now.max(self.armed);
            self.armed = Time::NEVER;
            self.feed(Input::Timer);
            let newest = self.beats();
            if echo && newest.len() > beats {
                beats = newest.len();
                self.receive(Message::HeartbeatEcho(HeartbeatEcho { sequence: newest[beats - 1].0 }));
            }
        }
        self.now = until;
    }

    /// Lets every attempt to connect fail for so long.
    pub(super) fn pass_unreachable(&mut self, ms: u64) {
        let until = Time(self.now.0 + ms * MS);
        loop {
            if matches!(self.outputs.iter().rev().find(|o| !matches!(o, Output::Arm(_))), Some(Output::Connect { .. }))
            {
                self.feed(Input::ConnectFailed("connection refused".to_owned()));
            }
            if self.armed > until {
                break;
            }
            self.now = self.now.max(self.armed);
            self.armed = Time::NEVER;
            self.feed(Input::Timer);
        }
        self.now = until;
    }

    pub(super) fn beats(&self) -> Vec<(u64, u64)> {
        let beat = |output: &Output| match output {
            Output::SendHeartbeat { sequence, echoed } => Some((*sequence, *echoed)),
            _ => None,
        };
        self.outputs.iter().filter_map(beat).collect()
    }

    pub(super) fn sent(&self) -> Vec<Message> {
        let sent = |output: &Output| match output {
            Output::Send(message) => Some(message.clone()),
            _ => None,
        };
        self.outputs.iter().filter_map(sent).collect()
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let line = |output: &Output| match output {
            Output::Log { quiet: false, line } => Some(line.clone()),
            _ => None,
        };
        self.outputs.iter().filter_map(line).collect()
    }

    pub(super) fn told(&self) -> Vec<Event> {
        let told = |output: &Output| match output {
            Output::Tell(event) => Some(event.clone()),
            _ => None,
        };
        self.outputs.iter().filter_map(told).collect()
    }

    pub(super) fn attempts(&self) -> usize {
        self.outputs.iter().filter(|output| matches!(output, Output::Connect { .. })).count()
    }

    pub(super) fn disconnects(&self) -> usize {
        self.outputs.iter().filter(|output| matches!(output, Output::Disconnect)).count()
    }

    pub(super) fn last_event(&self) -> Event {
        self.told().pop().expect("something was told")
    }

    /// A connection breaks and is made anew, up to the confirmation.
    pub(super) fn reattach(&mut self) {
        self.outputs.clear();
        self.feed(Input::Closed("reset".to_owned()));
        assert!(self.outputs.iter().any(|o| matches!(o, Output::Connect { .. })), "at once: {:?}", self.outputs);
        self.feed(Input::Connected(Vec::new()));
        self.outputs.clear();
        self.receive(Message::Formed(formed(1, 1)));
        let in_epoch = |o: &Output| matches!(o, Output::Send(Message::InEpoch(_)));
        assert!(self.outputs.iter().any(in_epoch), "first of all: {:?}", self.outputs);
        self.outputs.retain(|o| !in_epoch(o));
    }
}
