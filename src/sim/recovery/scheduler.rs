//! The scheduler's process: the real brain, and the real journal over the simulated disk, driven as `runtime/writer.rs` and
//! `runtime/scheduler.rs` do it. It dies at any moment, and is started again. `World::begin` and `World::write` say again what
//! `runtime/writer.rs` decides in `begin` and `carry_out`: there settings, paths and a thread stand between the same few
//! lines, and here a death between any two of them.

use super::checks;
use super::plan::{Moment, Trouble, When, FORMING, SCHEDULER_HOST, SILENCE};
use super::sabotage::Sabotage;
use super::table::{Event as Met, Written};
use super::world::{Event, World};
use crate::error::{Error, Status};
use crate::journal::testdisk::MemoryDisk;
use crate::journal::{Journal, Opened};
use crate::membership::{self, check_history, ConnId, Identity, Liveness, Rules, Scheduler, StoreLimits};
use crate::sim::network::{Fate, Side};
use crate::sim::random::Random;
use crate::types::{HostName, JobInstance, Secret, Time};
use crate::wire::{Agreed, JobRecord, Message, Record};
use std::time::Duration;

/// One thing that the writing thread does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Write,
    /// The sync returns that makes all up to this record durable.
    Sync(u64),
    Persisted(u64),
}

enum Work {
    Append(u64, Record),
    Rewrite(Vec<Record>),
}

pub(super) struct Running {
    pub(super) brain: Scheduler,
    journal: Journal,
    job: JobRecord,
    work: Vec<Work>,
    busy: bool,
    /// What is written and not told of as durable.
    written: Vec<(u64, Written)>,
    /// It dies once it has sent one message more.
    dies_when_told: Option<Written>,
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
    /// The job that it serves; another after that is done.
    pub(super) instance: Option<JobInstance>,
    /// The journal of a job that was done was put aside.
    pub(super) archived: bool,
    slow_until: Time,
    salt: u64,
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
            salt: seed,
        }
    }
}

pub(super) fn host(number: usize) -> HostName {
    HostName { name: format!("host{number}"), key: format!("host{number}/boot") }
}

impl World {
    fn rules(&self) -> Rules {
        Rules {
            job_id: None,
            worker_num: self.plan.workers,
            server_num: self.plan.servers,
            recovery: true,
            durable: true,
            forming_timeout: Some(FORMING),
            agreed: Agreed {
                heartbeat_timeout_ms: SILENCE.as_millis() as u64,
                checksums: true,
                thresholds: crate::collective::Thresholds::default().to_array().to_vec(),
                store_key_max: 4096,
                store_value_max: 1 << 20,
            },
            one_host: crate::collective::Thresholds::for_one_host(2, 1).to_array().to_vec(),
            store: StoreLimits { key_max: 4096, value_max: 1 << 20, total_max: 64 << 20 },
        }
    }

    pub(super) fn start_scheduler(&mut self) -> Result<(), String> {
        if self.host.running.is_some() || self.host.ended.is_some() {
            return Ok(());
        }
        self.host.salt = self.host.salt.wrapping_add(7);
        self.say(|| "scheduler starts".to_owned());
        match self.begin() {
            Ok(Some((running, records))) => {
                checks::resumed(self, &records)?;
                self.go_on(running, records);
                Ok(())
            }
            Ok(None) => Ok(()), // it died on the way
            // It ends, and its machine is put right.
            Err(error) if self.disk_has_failed(&error) => {
                let back = self.random.span_ms(50..1500);
                self.scheduler_dies(true, back);
                Ok(())
            }
            Err(error) => Err(format!("the scheduler cannot start again: {error}")),
        }
    }

    /// Reads the journal, and writes down that the scheduler was started.
    #[allow(clippy::type_complexity)] // read once
    fn begin(&mut self) -> Result<Option<((Journal, JobRecord), Vec<Record>)>, Error> {
        let Opened { mut journal, records, .. } = Journal::open(Box::new(self.host.disk.clone()), self.host.salt)?;
        let decode = |bytes: &[u8]| Record::decode(bytes).expect("what was written can be read");
        let mut records: Vec<Record> = records.iter().map(decode).collect();
        if self.sabotage.is_none() {
            check_history(self.plan.workers, self.plan.servers, &records)
                .map_err(|absurd| Error::new(Status::Journal, absurd.words))?;
        }
        if super::sabotage::reread(self, &mut records) {
            journal.archive()?;
        }
        if records.last() == Some(&Record::Done) {
            // Another job begins, whether or not all of this succeeds now.
            self.host.archived = true;
            self.host.instance = None;
            (self.newest, self.told, self.ledger) = Default::default();
            journal.archive()?;
            records.clear();
        }
        let job = match records.first() {
            Some(Record::Job(job)) => job.clone(),
            _ => {
                let mut random = Random::new(self.random.bits());
                let mut instance = [0; 16];
                instance.fill_with(|| random.bits() as u8);
                let (worker_num, server_num) = (self.plan.workers, self.plan.servers);
                let job = JobRecord { instance: JobInstance(instance), job_id: None, worker_num, server_num };
                journal.append(&[Record::Job(job.clone()).encode()])?;
                job
            }
        };
        let starts = records.iter().filter_map(|record| match record {
            Record::Generation(number) => Some(*number),
            _ => None,
        });
        let generation = Record::Generation(starts.max().unwrap_or(0) + 1);
        journal.append(&[generation.encode()])?;
        if self.dies_at(Moment::Unsynced(Written::Start)) {
            return Ok(None);
        }
        journal.sync()?;
        if self.dies_at(Moment::Durable(Written::Start)) {
            return Ok(None);
        }
        records.push(generation);
        Ok(Some(((journal, job), records)))
    }

    fn go_on(&mut self, (journal, job): (Journal, JobRecord), records: Vec<Record>) {
        let mut random = Random::new(self.random.bits());
        let mut secret = [0; 32];
        secret.fill_with(|| random.bits() as u8);
        let identity =
            Identity { instance: job.instance, secret: Secret(secret), host: host(SCHEDULER_HOST), pid_namespace: 1 };
        self.host.instance = Some(job.instance);
        let brain = Scheduler::resume(identity, self.rules(), self.now, records);
        let (work, written) = (Vec::new(), Vec::new());
        self.host.armed = Time::NEVER;
        self.host.running = Some(Running { brain, journal, job, work, busy: false, written, dies_when_told: None });
        self.drain_scheduler();
    }

    pub(super) fn feed_scheduler(&mut self, input: membership::Input) {
        self.say(|| format!("scheduler <- {input:?}"));
        if let membership::Input::Received(ConnId(conn), Message::Register(register)) = &input {
            self.sees_register(*conn as usize, register.instance.is_some());
        }
        if let Some(running) = &mut self.host.running {
            running.brain.handle(self.now, input);
        }
        self.drain_scheduler();
    }

    fn drain_scheduler(&mut self) {
        let life = self.host.life;
        while let Some(output) = self.host.running.as_mut().and_then(|running| running.brain.next_output()) {
            match output {
                membership::Output::Arm(at) => {
                    self.host.armed = at;
                    if at != Time::NEVER {
                        self.queue.put(at.max(self.now), Event::SchedulerTimer(life, at));
                    }
                }
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
                    self.queue.put(self.now + Duration::from_micros(20), Event::ToScheduler(life, None, input));
                }
                membership::Output::Persist(number, record) => self.put_to_work(Work::Append(number, record)),
                membership::Output::WantSecret => {
                    let mut secret = [0; 32];
                    secret.fill_with(|| self.random.bits() as u8);
                    let input = membership::Input::Secret(Secret(secret));
                    self.queue.put(self.now + Duration::from_micros(5), Event::ToScheduler(life, None, input));
                }
                membership::Output::Log { line, .. } => self.say(|| format!("scheduler says: {line}")),
                membership::Output::Ended(result) => return self.scheduler_ends(result),
            }
        }
    }

    fn scheduler_ends(&mut self, result: Result<(), Error>) {
        let result = super::sabotage::misjudged(self, result);
        self.say(|| format!("scheduler ends: {result:?}"));
        self.ends_as_aborted(&result);
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
        let message = super::sabotage::said_twice(self, self.network.node_of(conn), message);
        if let Err(wrong) = checks::sent(self, &message) {
            self.wrong.get_or_insert(wrong);
        }
        self.abort_is_told(&message);
        if self.loses(conn, message.kind()) {
            return;
        }
        let message = super::sabotage::tampered(self, self.network.node_of(conn), message);
        match (self.network.send(self.now, conn, Side::Scheduler, message.lane()), self.network.node_of(conn)) {
            (Fate::Arrives(at), Some(node)) => {
                self.queue.put(at, Event::ToNode(node, Some(conn), crate::agent::Input::Received(message)));
            }
            (Fate::Refused(at), _) => self.closed_at_scheduler(at, conn, "connection reset by peer"),
            _ => {}
        }
    }

    pub(super) fn closed_at_scheduler(&mut self, at: Time, conn: usize, words: &str) {
        let input = membership::Input::Closed(ConnId(conn as u64), membership::Closed::Ended, words.to_owned());
        self.queue.put(at, Event::ToScheduler(self.host.life, Some(conn), input));
    }

    fn put_to_work(&mut self, work: Work) {
        let at = self.now + self.random.span_us(5..60);
        let life = self.host.life;
        let Some(running) = &mut self.host.running else { return };
        running.work.push(work);
        if !std::mem::replace(&mut running.busy, true) {
            self.queue.put(at, Event::Writer(life, Step::Write));
        }
    }

    /// The writing thread goes on.
    pub(super) fn writer(&mut self, life: u64, step: Step) -> Result<(), String> {
        if self.host.life != life {
            return Ok(());
        }
        let outcome = match step {
            Step::Write => self.write(),
            Step::Sync(last) => self.sync(last),
            Step::Persisted(last) => {
                self.persisted(last);
                Ok(())
            }
        };
        let Err(error) = outcome else { return Ok(()) };
        self.say(|| format!("scheduler's disk: {error}"));
        let back = self.random.span_ms(20..1500);
        if !self.disk_has_failed(&error) {
            return Err(format!("the journal fails: {error}"));
        }
        let machine = error.message().contains("has crashed") || self.random.once_in(2);
        self.scheduler_dies(machine, back);
        Ok(())
    }

    /// Writes everything that waits, and begins to sync it.
    fn write(&mut self) -> Result<(), Error> {
        let Some(running) = &mut self.host.running else { return Ok(()) };
        let mut last = 0;
        let mut batch = Vec::new();
        let mut rewritten = false;
        for work in std::mem::take(&mut running.work) {
            match work {
                Work::Append(number, record) => {
                    last = number;
                    running.written.push((number, Written::of(&record)));
                    batch.push(record.encode());
                }
                Work::Rewrite(records) => {
                    running.journal.append(&std::mem::take(&mut batch))?;
                    let first = std::iter::once(Record::Job(running.job.clone()).encode());
                    running.journal.rewrite(first.chain(records.iter().map(Record::encode)))?;
                    rewritten = true;
                }
            }
        }
        running.journal.append(&batch)?;
        let is_of_store = running.written.iter().all(|(_, written)| *written == Written::Store);
        let (life, slow) = (self.host.life, self.host.slow_until > self.now);
        if rewritten {
            self.met(Met::Rewritten);
        }
        let lasts = match slow {
            true => self.random.span_ms(100..900),
            false => self.random.span_us(self.plan.sync_max_us / 20..self.plan.sync_max_us),
        };
        if is_of_store && self.sabotage == Some(Sabotage::AcknowledgeEarly) {
            self.queue.put(self.now, Event::Writer(life, Step::Persisted(last)));
        }
        self.queue.put(self.now + lasts, Event::Writer(life, Step::Sync(last)));
        Ok(())
    }

    fn sync(&mut self, last: u64) -> Result<(), Error> {
        let kinds = self.written_up_to(last);
        for written in &kinds {
            if self.dies_at(Moment::Unsynced(*written)) {
                return Ok(());
            }
        }
        let Some(running) = &mut self.host.running else { return Ok(()) };
        running.journal.sync()?;
        for written in &kinds {
            if self.dies_at(Moment::Durable(*written)) {
                return Ok(());
            }
        }
        let soon = self.now + self.random.span_us(2..40);
        self.queue.put(soon, Event::Writer(self.host.life, Step::Persisted(last)));
        let Some(running) = &mut self.host.running else { return Ok(()) };
        running.busy = !running.work.is_empty();
        if running.busy {
            self.queue.put(soon, Event::Writer(self.host.life, Step::Write));
        }
        Ok(())
    }

    fn written_up_to(&self, last: u64) -> Vec<Written> {
        let Some(running) = &self.host.running else { return Vec::new() };
        running.written.iter().filter(|(number, _)| *number <= last).map(|(_, written)| *written).collect()
    }

    fn persisted(&mut self, last: u64) {
        let kinds = self.written_up_to(last);
        if let Some(running) = &mut self.host.running {
            running.written.retain(|(number, _)| *number > last);
            running.dies_when_told = kinds.first().copied();
        }
        self.feed_scheduler(membership::Input::Persisted(last));
        let rewrites = self.random.once_in(self.plan.rewrite_once_in);
        let Some(running) = &mut self.host.running else { return };
        running.dies_when_told = None;
        if rewrites {
            let records = running.brain.snapshot();
            self.put_to_work(Work::Rewrite(records));
        }
    }

    /// Whether the disk is at fault: its machine has died, it is full, or it has lost what it was to sync.
    fn disk_has_failed(&mut self, error: &Error) -> bool {
        let failed = match error.message() {
            words if words.contains("has crashed") => Met::DiskOperation,
            words if words.starts_with("cannot write to") => Met::DiskFull,
            words if words.starts_with("cannot sync") => Met::SyncFailed,
            _ => return false,
        };
        self.met(failed);
        true
    }

    pub(super) fn disk_is_slow(&self) -> bool {
        self.host.slow_until > self.now
    }

    pub(super) fn slow_disk(&mut self, span: Duration) {
        self.host.slow_until = self.now + span;
    }

    /// Whether it is planned that the scheduler dies now; then it has.
    fn dies_at(&mut self, moment: Moment) -> bool {
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
        self.fault(back);
        self.aborting.scheduler_dies();
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
            self.process_dies(slot, true, back);
        }
    }
}
