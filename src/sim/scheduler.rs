//! The scheduler's process: the real brain. With recovery it has a journal (`journal`), dies at any moment, and is
//! started again.

use super::checks;
use super::journal::Journal;
use super::launcher::Word;
use super::network::{Fate, Side};
use super::once;
use super::plan::{Moment, Trouble, When, FORMING, SCHEDULER_HOST, SILENCE};
use super::random::Random;
use super::sabotage::{self, Sabotage};
use super::table::{Event as Met, Written};
use super::world::{Event, World};
use crate::error::Error;
use crate::journal::testdisk::MemoryDisk;
use crate::membership::{self, ConnId, Identity, Liveness, Rules, Scheduler, StoreLimits};
use crate::runtime::scheduler::job_journal::Writing;
use crate::types::{ChecksumScope, HostName, JobInstance, Secret, SharedMemory, Time};
use crate::wire::{Agreed, Message, Record};
use std::time::Duration;

pub(super) struct Running {
    pub(super) brain: Scheduler,
    /// None in a story without recovery.
    pub(super) journal: Option<Journal>,
    /// It dies once it has sent one message more.
    pub(super) dies_when_told: Option<Written>,
}

/// Where the scheduler runs.
pub(super) struct Host {
    pub(super) disk: MemoryDisk,
    /// Grows with every end of the process.
    pub(super) life: u64,
    pub(super) running: Option<Running>,
    pub(super) armed: Time,
    /// The job has ended.
    pub(super) ended: Option<(Time, Result<(), Error>)>,
    /// The job that it serves. Once that is done it serves another.
    pub(super) instance: Option<JobInstance>,
    /// The journal of a job that was done was put aside.
    pub(super) archived: bool,
    pub(super) slow_until: Time,
    /// Its process stands still.
    pub(super) paused_until: Time,
    pub(super) salt: u64,
    /// When it was started last.
    pub(super) started: Time,
    /// Launchers' words that wait on its port.
    pub(super) words: Vec<Word>,
    /// How many groups it still kept when the job had ended.
    pub(super) groups_kept: usize,
}

impl Host {
    pub(super) fn new(seed: u64) -> Host {
        Host {
            disk: MemoryDisk::new(seed),
            life: 0,
            running: None,
            armed: Time::NEVER,
            ended: None,
            instance: None,
            archived: false,
            slow_until: Time(0),
            paused_until: Time(0),
            salt: seed,
            started: Time(0),
            words: Vec::new(),
            groups_kept: 0,
        }
    }

    pub(super) fn journal(&mut self) -> Option<&mut Journal> {
        self.running.as_mut()?.journal.as_mut()
    }
}

pub(super) fn host(number: usize) -> HostName {
    HostName { name: format!("host{number}"), key: format!("host{number}/boot") }
}

impl World {
    fn rules(&self) -> Rules {
        let recovers = self.plan.recovers();
        Rules {
            job_id: None,
            derived_job: None,
            worker_num: sabotage::workers(self),
            server_num: self.plan.servers,
            recovery: recovers,
            durable: recovers,
            forming_timeout: Some(if recovers { FORMING } else { once::FORMING }),
            forming_setting: String::new(),
            agreed: Agreed {
                heartbeat_timeout_ms: SILENCE.as_millis() as u64,
                checksums: ChecksumScope::Network,
                thresholds: crate::schedules::Thresholds::default().to_array().to_vec(),
                store_key_max: 4096,
                store_value_max: 1 << 20,
                shared_memory: SharedMemory::Auto,
            },
            one_host: crate::schedules::Thresholds::for_one_host(2, 1).to_array().to_vec(),
            store: StoreLimits { key_max: 4096, value_max: 1 << 20, total_max: 64 << 20 },
        }
    }

    pub(super) fn start_scheduler(&mut self) -> Result<(), String> {
        if self.host.running.is_some() || self.host.ended.is_some() {
            return Ok(());
        }
        self.host.salt = self.host.salt.wrapping_add(7);
        self.say(|| "scheduler starts".to_owned());
        if !self.plan.recovers() {
            let mut instance = [0; 16];
            instance.fill_with(|| self.random.bits() as u8);
            self.go_on(JobInstance(instance), None, None);
            return Ok(());
        }
        match self.begin_journal() {
            Ok(Some(mut begun)) => {
                checks::resumed(self, &begun.records)?;
                self.remembers_abandoned(&begun.records)?;
                let (instance, before, records) = (begun.instance, begun.before, std::mem::take(&mut begun.records));
                self.go_on(instance, before, Some((records, Journal::new(begun))));
                Ok(())
            }
            Ok(None) => Ok(()), // it died on the way
            // The process ends, and its machine is put right.
            Err(error) if self.disk_has_failed(&error) => {
                let back = self.random.span_ms(50..1500);
                self.scheduler_dies(true, back);
                Ok(())
            }
            Err(error) => Err(format!("the scheduler cannot start again: {error}")),
        }
    }

    fn go_on(&mut self, instance: JobInstance, before: Option<JobInstance>, journal: Option<(Vec<Record>, Journal)>) {
        let mut random = Random::new(self.random.bits());
        let mut secret = [0; 32];
        secret.fill_with(|| random.bits() as u8);
        let process = crate::types::Process { pid: 1, start_ticks: 1, pid_namespace: 1 };
        let identity = Identity { instance, before, secret: Secret(secret), host: host(SCHEDULER_HOST), process };
        self.host.instance = Some(instance);
        let (brain, journal) = match journal {
            Some((records, journal)) => (Scheduler::resume(identity, self.rules(), self.now, records), Some(journal)),
            None => (Scheduler::new(identity, self.rules(), self.now), None),
        };
        (self.host.armed, self.host.started) = (Time::NEVER, self.now);
        self.host.running = Some(Running { brain, journal, dies_when_told: None });
        self.seats_changed = true;
        self.drain_scheduler();
        self.words_are_heard();
    }

    pub(super) fn feed_scheduler(&mut self, input: membership::Input) {
        self.say(|| format!("scheduler <- {input:?}"));
        use Message::{Heartbeat, StoreBegin, StorePiece};
        self.seats_changed |=
            !matches!(input, membership::Input::Received(_, Heartbeat(_) | StoreBegin(_) | StorePiece(_)));
        if let membership::Input::Received(ConnId(conn), Message::Register(register)) = &input {
            self.sees_register(*conn as usize, register.instance.is_some());
        }
        if let Some(running) = &mut self.host.running {
            running.brain.handle(self.now, input);
        }
        self.drain_scheduler();
    }

    pub(super) fn scheduler_arms(&mut self, life: u64, at: Time) {
        self.host.armed = at;
        if at != Time::NEVER {
            self.queue.put(at.max(self.now), Event::SchedulerTimer(life, at));
        }
    }

    pub(super) fn drain_scheduler(&mut self) {
        let life = self.host.life;
        while let Some(output) = self.host.running.as_mut().and_then(|running| running.brain.next_output()) {
            match output {
                membership::Output::Arm(at) => self.scheduler_arms(life, at),
                membership::Output::Send(ConnId(conn), message) => {
                    self.send_to_node(conn as usize, message);
                    let told = self.host.running.as_mut().and_then(|running| running.dies_when_told.take());
                    if told.is_some_and(|written| self.dies_at(Moment::HalfTold(written))) {
                        return;
                    }
                }
                membership::Output::Close(ConnId(conn)) => self.close_at_scheduler(conn as usize),
                membership::Output::Probe(process) => {
                    let lives = self.processes[process.pid as usize - 1000].alive;
                    let state = if lives { Liveness::Alive } else { Liveness::Gone };
                    let input = membership::Input::Probed(process, state);
                    self.queue.put(self.now + Duration::from_micros(20), Event::SchedulerInput(life, None, input));
                }
                membership::Output::Persist(number, record) => {
                    if let Err(wrong) = self.is_written(number, &record) {
                        self.wrong.get_or_insert(wrong);
                    }
                    self.put_to_work(Writing::Append(number, record));
                }
                membership::Output::WantSecret => {
                    let mut secret = [0; 32];
                    secret.fill_with(|| self.random.bits() as u8);
                    let input = membership::Input::Secret(Secret(secret));
                    self.queue.put(self.now + Duration::from_micros(5), Event::SchedulerInput(life, None, input));
                }
                membership::Output::Log { line, .. } => self.say(|| format!("scheduler says: {line}")),
                membership::Output::Ended(result) => return self.scheduler_ends(result),
            }
        }
    }

    fn scheduler_ends(&mut self, result: Result<(), Error>) {
        if self.sabotage == Some(Sabotage::NeverEnds) {
            return;
        }
        let result = sabotage::misjudged(self, result);
        self.say(|| format!("scheduler ends: {result:?}"));
        self.ends_as_aborted(&result);
        self.run_ends(&result);
        self.host.groups_kept = self.host.running.as_ref().map_or(0, |running| running.brain.groups_kept());
        self.host.groups_kept += usize::from(self.sabotage == Some(Sabotage::KeepsGroup));
        self.host.ended = Some((self.now, result));
        self.host.running = None;
        self.host.life += 1;
        for conn in self.network.open_at(Side::Scheduler) {
            self.close_at_scheduler(conn);
        }
    }

    fn close_at_scheduler(&mut self, conn: usize) {
        let finished = self.network.finish(self.now, conn, Side::Scheduler);
        if let (Some(at), Some(node)) = (finished, self.network.node_of(conn)) {
            self.queue.put(at, super::node::closed(node, conn, "end of stream"));
        }
    }

    fn send_to_node(&mut self, conn: usize, message: Message) {
        self.say(|| format!("scheduler -> {conn}: {message:?}"));
        if !self.network.is_open(conn, Side::Scheduler) {
            return;
        }
        let message = sabotage::said_twice(self, self.network.node_of(conn), self.through_bytes(message));
        let sense = self.end_is_said(&message).and_then(|()| checks::sent(self, &message));
        if let Err(wrong) = sense {
            self.wrong.get_or_insert(wrong);
        }
        self.abort_is_told(&message);
        if self.loses(conn, message.kind()) {
            return;
        }
        let message = sabotage::tampered(self, self.network.node_of(conn), message);
        match (self.network.send(self.now, conn, Side::Scheduler, message.lane()), self.network.node_of(conn)) {
            (Fate::Arrives(at), Some(node)) => {
                self.queue.put(at, Event::NodeInput(node, Some(conn), crate::agent::Input::Received(message)));
            }
            (Fate::Refused(at), _) => self.closed_at_scheduler(at, conn, "connection reset by peer"),
            _ => {}
        }
    }

    pub(super) fn closed_at_scheduler(&mut self, at: Time, conn: usize, words: &str) {
        let input = membership::Input::Closed(ConnId(conn as u64), membership::Closed::Ended, words.to_owned());
        self.queue.put(at, Event::SchedulerInput(self.host.life, Some(conn), input));
    }

    /// Whether it is planned that the scheduler dies now; then it has.
    pub(super) fn dies_at(&mut self, moment: Moment) -> bool {
        let Some(trouble) = self.due(|when, phase| match when {
            When::At(planned, within, times) if *planned == moment && *within == phase => Some(times),
            _ => None,
        }) else {
            return false;
        };
        self.met(match moment {
            Moment::Unsynced(written) => Met::Unsynced(written),
            Moment::Durable(written) => Met::Durable(written),
            Moment::HalfTold(written) => Met::HalfTold(written),
            Moment::Before(kind) => Met::SchedulerBefore(kind),
            Moment::After(kind) => Met::SchedulerAfter(kind),
        });
        match trouble {
            Trouble::Both { slot, machine, back } => {
                self.scheduler_dies(machine, back);
                self.process_dies(slot, false, back);
            }
            Trouble::Scheduler { machine, back } => self.scheduler_dies(machine, back),
            _ => {}
        }
        true
    }

    pub(super) fn dies_before(&mut self, kind: u8) -> bool {
        self.dies_at(Moment::Before(kind))
    }

    pub(super) fn dies_after(&mut self, kind: u8) {
        if self.host.running.is_some() {
            self.dies_at(Moment::After(kind));
        }
    }

    /// The scheduler's process ends, or its machine does with all that runs on it; it is started again after a while.
    pub(super) fn scheduler_dies(&mut self, machine: bool, back: Duration) {
        if self.host.ended.is_some() {
            return;
        }
        let machine = machine && !self.spares_nodes();
        self.fault(back);
        self.aborting.scheduler_dies();
        self.abandoned.scheduler_dies();
        let met = if machine { Met::SchedulerMachineDies } else { Met::SchedulerKilled };
        self.met(met);
        self.host.running = None; // with its lock
        self.host.disk = if machine { self.host.disk.crash() } else { self.host.disk.kill() };
        self.host.life += 1;
        self.host.armed = Time::NEVER;
        for conn in self.network.open_at(Side::Scheduler) {
            if machine && self.random.once_in(2) {
                self.network.cut(conn, [true, false]);
                self.network.shut(conn, Side::Scheduler);
            } else {
                self.close_at_scheduler(conn);
            }
        }
        self.queue.put(self.now + back, Event::StartScheduler);
        let there: Vec<usize> =
            (0..self.slots.len()).filter(|slot| self.plan.nodes[*slot].host == SCHEDULER_HOST).collect();
        for slot in there.into_iter().filter(|_| machine) {
            if !self.process_dies(slot, true, back) {
                self.host_dies(slot);
            }
        }
    }
}
