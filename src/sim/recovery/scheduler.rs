//! The scheduler's process: the real brain, and the real journal over the simulated disk, written by the real `runtime/scheduler/job_journal.rs`
//! in steps that are those of `runtime/scheduler/writer.rs`. It dies between any two of them, and is started again.

use super::checks;
use super::launcher::Word;
use super::plan::{Moment, Trouble, When, FORMING, SCHEDULER_HOST, SILENCE};
use super::sabotage::Sabotage;
use super::table::{Event as Met, Written};
use super::world::{Event, World};
use crate::error::Error;
use crate::journal::testdisk::MemoryDisk;
use crate::membership::{self, ConnId, Identity, Liveness, Rules, Scheduler, StoreLimits};
use crate::runtime::scheduler::job_journal::{Begun, JobJournal, Read, Work, WriteQueue};
use crate::sim::network::{Fate, Side};
use crate::sim::random::Random;
use crate::types::{HostName, JobInstance, Secret, Time};
use crate::wire::{Agreed, JobRecord, Message};
use std::time::Duration;

/// One thing that the writing thread does, and what comes of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Write,
    /// The sync returns that makes all up to this record durable.
    Sync(u64),
    /// The scheduler's loop is woken, and looks at what there is to tell.
    Look,
}

pub(super) struct Running {
    pub(super) brain: Scheduler,
    pub(super) book: JobJournal,
    desk: WriteQueue,
    busy: bool,
    /// What is put out, and not told of as durable.
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
    /// When it was started last.
    pub(super) started: Time,
    /// Launchers' words that wait on its port.
    pub(super) words: Vec<Word>,
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
            started: Time(0),
            words: Vec::new(),
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
            derived_job: None,
            worker_num: self.plan.workers,
            server_num: self.plan.servers,
            recovery: true,
            durable: true,
            forming_timeout: Some(FORMING),
            forming_setting: String::new(),
            agreed: Agreed {
                heartbeat_timeout_ms: SILENCE.as_millis() as u64,
                checksums: true,
                thresholds: crate::schedules::Thresholds::default().to_array().to_vec(),
                store_key_max: 4096,
                store_value_max: 1 << 20,
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
        match self.begin() {
            Ok(Some(begun)) => {
                checks::resumed(self, &begun.records)?;
                self.remembers_giving_up(&begun.records)?;
                self.go_on(begun);
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
    fn begin(&mut self) -> Result<Option<Begun>, Error> {
        let mut read = Read::new(Box::new(self.host.disk.clone()), self.host.salt)?;
        if self.sabotage.is_none() {
            read.check()?;
        }
        if let Err(wrong) = self.is_not_done(read.is_done()) {
            self.wrong.get_or_insert(wrong);
        }
        if read.is_done() {
            // Another job begins, whether or not all of this succeeds now.
            self.host.archived = true;
            self.host.instance = None;
            (self.newest, self.told, self.ledger) = Default::default();
            self.giving_up.job_is_done();
        }
        super::sabotage::reread(self, &mut read.records);
        let mut instance = [0; 16];
        instance.fill_with(|| self.random.bits() as u8);
        let (worker_num, server_num) = (self.plan.workers, self.plan.servers);
        let new = JobRecord { instance: JobInstance(instance), job_id: None, worker_num, server_num };
        let is_first = read.is_done() || read.records.is_empty();
        let written = if is_first { Written::Job } else { Written::Generation };
        let mut begun = read.begin(new, "MS_RECOVERY_PATH")?;
        if self.dies_at(Moment::Unsynced(written)) {
            return Ok(None);
        }
        begun.sync()?;
        Ok((!self.dies_at(Moment::Durable(written))).then_some(begun))
    }

    fn go_on(&mut self, mut begun: Begun) {
        let mut random = Random::new(self.random.bits());
        let mut secret = [0; 32];
        secret.fill_with(|| random.bits() as u8);
        let (instance, secret) = (begun.instance, Secret(secret));
        let identity = Identity { instance, secret, host: host(SCHEDULER_HOST), pid_namespace: 1 };
        self.host.instance = Some(instance);
        let records = std::mem::take(&mut begun.records);
        let brain = Scheduler::resume(identity, self.rules(), self.now, records);
        let (book, desk, written) = (begun.into_book(), WriteQueue::default(), Vec::new());
        (self.host.armed, self.host.started) = (Time::NEVER, self.now);
        self.host.running = Some(Running { brain, book, desk, busy: false, written, dies_when_told: None });
        self.drain_scheduler();
        self.words_are_heard();
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
                    self.queue.put(self.now + Duration::from_micros(20), Event::ToScheduler(life, None, input));
                }
                membership::Output::Persist(number, record) => {
                    if let Err(wrong) = self.is_written(number, &record) {
                        self.wrong.get_or_insert(wrong);
                    }
                    self.put_to_work(Work::Append(number, record));
                }
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
        self.run_ends(&result);
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
        let sense = self.end_is_said(&message).and_then(|()| checks::sent(self, &message));
        if let Err(wrong) = sense {
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
        if let Work::Append(number, record) = &work {
            running.written.push((*number, Written::of(record)));
        }
        if running.desk.put(work) && !std::mem::replace(&mut running.busy, true) {
            self.queue.put(at, Event::Writer(life, Step::Write));
        }
    }

    /// The writing thread goes on, or the scheduler's loop looks at what it has done.
    pub(super) fn writer(&mut self, life: u64, step: Step) -> Result<(), String> {
        if self.host.life != life {
            return Ok(());
        }
        let outcome = match step {
            Step::Write => self.write(),
            Step::Sync(last) => self.sync(last),
            Step::Look => {
                self.look_at_writer();
                Ok(())
            }
        };
        let Err(error) = outcome else { return Ok(()) };
        self.say(|| format!("scheduler's disk: {error}"));
        if !self.disk_has_failed(&error) {
            return Err(format!("the journal fails: {error}"));
        }
        if error.message().contains("has crashed") {
            let back = self.random.span_ms(20..1500);
            self.scheduler_dies(true, back);
        } else {
            self.settle(Err(error));
        }
        Ok(())
    }

    /// Writes everything that waits, and begins to sync it.
    fn write(&mut self) -> Result<(), Error> {
        let Some(running) = &mut self.host.running else { return Ok(()) };
        let work = running.desk.take();
        let rewrites = work.iter().any(|work| matches!(work, Work::Rewrite(_)));
        let last = running.book.write(work)?;
        let is_of = |kind| running.written.iter().all(|(_, written)| *written == kind);
        let is_early = match self.sabotage {
            Some(Sabotage::AcknowledgeEarly) => is_of(Written::Store),
            Some(Sabotage::AbandonedEarly) => is_of(Written::GivenUp),
            _ => false,
        };
        let (life, slow) = (self.host.life, self.host.slow_until > self.now);
        if is_early {
            running.desk.settle(Ok(last), false);
            self.queue.put(self.now, Event::Writer(life, Step::Look));
        }
        if rewrites {
            self.met(Met::Rewritten);
        }
        let lasts = match slow {
            true => self.random.span_ms(100..900),
            false => self.random.span_us(self.plan.sync_max_us / 20..self.plan.sync_max_us),
        };
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
        running.book.sync()?;
        self.giving_up.settle(last, self.now);
        for written in &kinds {
            if self.dies_at(Moment::Durable(*written)) {
                return Ok(());
            }
        }
        self.settle(Ok(last));
        Ok(())
    }

    /// What was written is settled; on with what has come meanwhile.
    fn settle(&mut self, outcome: Result<u64, Error>) {
        let soon = self.now + self.random.span_us(2..40);
        let rewrites = outcome.is_ok() && self.random.once_in(self.plan.rewrite_once_in);
        let Some(running) = &mut self.host.running else { return };
        let is_long = running.book.asks_for_rewrite() || rewrites;
        running.desk.settle(outcome, is_long);
        running.busy = !running.desk.is_empty();
        let life = self.host.life;
        self.queue.put(soon, Event::Writer(life, Step::Look));
        if running.busy {
            self.queue.put(soon, Event::Writer(life, Step::Write));
        }
    }

    fn written_up_to(&self, last: u64) -> Vec<Written> {
        let Some(running) = &self.host.running else { return Vec::new() };
        running.written.iter().filter(|(number, _)| *number <= last).map(|(_, written)| *written).collect()
    }

    /// What has become durable, or why nothing does any more: as `runtime/scheduler/serving.rs` does it.
    fn look_at_writer(&mut self) {
        let Some(running) = &mut self.host.running else { return };
        let progress = running.desk.progress();
        if progress.failed.is_some() {
            let (machine, back) = (self.random.once_in(2), self.random.span_ms(20..1500));
            return self.scheduler_dies(machine, back);
        }
        let kinds = self.written_up_to(progress.durable);
        if let Some(running) = &mut self.host.running {
            running.written.retain(|(number, _)| *number > progress.durable);
            running.dies_when_told = kinds.first().copied();
        }
        self.feed_scheduler(membership::Input::Persisted(progress.durable));
        let Some(running) = &mut self.host.running else { return };
        running.dies_when_told = None;
        if progress.is_long {
            let records = running.brain.snapshot();
            self.is_rewritten(&records);
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
        let machine = machine && !self.spares_nodes();
        self.fault(back);
        self.aborting.scheduler_dies();
        self.giving_up.scheduler_dies();
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
