//! A scheduler: its brain, and the sockets that feed it. Runs on the thread that calls [`Serving::run`]; `thread` gives
//! it one of its own.
//!
//! Invariants: every input is followed by draining all outputs; everything readable is fed before the timer is; a
//! job that has ended does not wait for a disk that does not return. The connections have their own (`connections`).
//!
//! Deliberately absent: any decision. `membership` decides.

use super::connections::Connections;
use super::port::{listen, Bound};
use super::rules::rules;
use super::writer::{self, Writer};
use crate::config::{Assignment, Settings};
use crate::error::{Error, Result, Status};
use crate::journal::Disk;
use crate::membership::{self, Closed, ConnId, Identity, Input, Output};
use crate::net::{host, limit, listener, Listener, Poller, Token, Transport, Waker};
use crate::runtime::base::clock::Clock;
use crate::runtime::base::control::ControlEnd;
use crate::runtime::base::disk::OwnDisk;
use crate::runtime::base::identity;
use crate::runtime::base::interrupts::{in_call, Attention};
use crate::runtime::base::log::Logger;
use crate::secret::{self, Guard};
use crate::types::{JobInstance, Secret, Time};
use crate::wire::{Message, PassBy, Register, Rejected, PROOF_ASK, PROTOCOL_HIGHEST, PROTOCOL_LOWEST};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::time::Duration;

const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);
/// The kinds of message that begin with the sender's protocols, in every protocol: a registration, the question how the
/// job is, and a launcher's wish to be told how it goes.
const WITH_RANGE: [u8; 3] = [1, 30, 44];
/// How often the sockets are looked at again before the timer is fed.
const DRAIN_ROUNDS: usize = 16;
/// How many connections are taken in before the existing ones are served again.
const ACCEPTED_AT_ONCE: usize = 64;
/// How many connections of strangers are read before nodes' are read again. With TLS a handshake takes its time.
const STRANGERS_AT_ONCE: usize = 8;

/// What the owner of a serving scheduler wants of it; 0: that it goes on.
pub(crate) const STOP: u8 = 1;
pub(crate) const VANISH: u8 = 2;

/// How connections are taken in.
struct Accepting {
    /// When to take in further connections, which the poller does not report.
    again: Time,
    /// Whether some could not be taken in, and the log says so.
    has_waited: bool,
}

/// A bound scheduler, not yet running.
pub struct Serving {
    clock: Clock,
    pub(crate) logger: Arc<Logger>,
    poller: Poller,
    listener: Listener,
    brain: membership::Scheduler,
    inputs: VecDeque<Input>,
    feeding: bool,
    connections: Connections,
    armed: Time,
    accepting: Accepting,
    ended: Option<Result<()>>,
    pub(crate) wanted: Arc<AtomicU8>,
    pub(crate) waker: Waker,
    /// With recovery: writes the journal.
    pub(crate) writer: Option<Writer>,
    /// The time until which the disk may hold back that the job has ended.
    disk_deadline: Time,
}

impl Serving {
    /// Binds, and is ready to serve the job that the settings describe.
    pub fn new(settings: &Settings) -> Result<Serving> {
        let mut guard = secret::open(settings)?;
        let mut settings = settings.clone();
        settings.warnings.append(&mut guard.warnings);
        Serving::guarded(&settings, guard)
    }

    /// Makes a scheduler ready, with a guard that is read already.
    pub(crate) fn guarded(settings: &Settings, guard: Guard) -> Result<Serving> {
        Serving::over(settings, guard, || Ok(Box::new(OwnDisk::of(settings)?)))
    }

    /// Makes a scheduler ready, and, with recovery, the journal on the disk that this opens.
    pub(crate) fn over(
        settings: &Settings,
        guard: Guard,
        disk: impl FnOnce() -> Result<Box<dyn Disk>>,
    ) -> Result<Serving> {
        let Assignment::Scheduler { host, ports } = &settings.assignment else {
            return Err(Error::config("these settings are not those of a scheduler"));
        };
        // Without a descriptor for each node the cluster could never form; each may have a launcher that watches.
        let nodes = u64::from(settings.worker_num) + u64::from(settings.server_num);
        limit::room_for(nodes, nodes)?;
        let rules = rules(settings)?;
        let Bound { listener, name, remark } = listen(settings, host, ports)?;
        let host = identity::host_name(settings)?;
        let logger = Logger::new(settings.log_level, "scheduler");
        settings.warnings.iter().chain(&remark).for_each(|line| logger.warn(line));
        tell_where(&logger, &listener, settings);
        let clock = Clock::start();
        let mut begun = settings.enable_recovery.then(|| writer::begin(settings, disk)).transpose()?;
        begun.iter().flat_map(|begun| &begun.notes).for_each(|line| logger.warn(line));
        let instance =
            begun.as_ref().map_or_else(|| host::random_bytes().map(JobInstance), |begun| Ok(begun.instance))?;
        let (before, secret) = (begun.as_ref().and_then(|begun| begun.before), Secret(host::random_bytes()?));
        let identity = Identity { instance, before, secret, host, process: identity::process() };
        let records = begun.as_mut().map_or_else(Vec::new, |begun| std::mem::take(&mut begun.records));
        let brain = match begun {
            Some(_) => membership::Scheduler::resume(identity, rules, clock.now(), records),
            None => membership::Scheduler::new(identity, rules, clock.now()),
        };
        let waker = Waker::new()?;
        let writer = begun.map(|begun| Writer::start(begun, waker.clone(), Arc::clone(&logger))).transpose()?;
        let mut serving = Serving {
            clock,
            logger,
            poller: Poller::new()?,
            listener,
            brain,
            inputs: VecDeque::new(),
            feeding: false,
            connections: Connections::new(guard, settings.poll),
            armed: Time::NEVER,
            accepting: Accepting { again: Time::NEVER, has_waited: false },
            ended: None,
            wanted: Arc::default(),
            waker,
            writer,
            disk_deadline: Time::NEVER,
        };
        let at = serving.poller.registry();
        let watched = serving.waker.register(at, WAKER).and_then(|()| serving.listener.register(at, LISTENER));
        watched.map_err(|error| Error::system(format!("the scheduler's port on {name} cannot be watched"), &error))?;
        Ok(serving)
    }

    /// Where the scheduler listens. The first address is the one to tell others.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listener.local_addresses()
    }

    /// Serves until the job ends. Returns the job's result.
    pub fn run(self) -> Result<()> {
        self.run_for(&Attention::none())
    }

    /// Serves for a call of the program. If the program interrupts it, the job ends for all nodes.
    pub(crate) fn run_for(mut self, attention: &Attention<'_>) -> Result<()> {
        let (mut attention, mut interrupted, nobody) = (attention, None, Attention::none());
        self.drain();
        loop {
            let now = self.clock.now();
            if let Some(result) = self.ended.as_ref().filter(|_| self.connections.is_empty()) {
                return interrupted.map_or_else(|| result.clone(), Err);
            }
            if let Err(why) = attention.ask() {
                (interrupted, attention) = (Some(in_call("the scheduler", &why)), &nobody);
                self.feed(Input::Stop);
                continue;
            }
            self.connections.guard.remarks.take().iter().for_each(|line| self.logger.warn(line));
            self.check_disk(now)?;
            let next =
                self.armed.min(self.accepting.again).min(self.connections.first_closing()).min(self.disk_deadline);
            let waits = self.connections.to_read().len() == 0 && self.connections.line.is_empty();
            let waits = waits && !self.connections.store.looks_again(&self.clock);
            let left = attention.left(self.clock.until(next));
            self.round(if waits { left } else { Some(Duration::ZERO) })?;
            let now = now.max(self.clock.now());
            if now >= self.armed {
                for _ in 0..DRAIN_ROUNDS {
                    if !self.round(Some(Duration::ZERO))? {
                        break;
                    }
                }
                self.armed = Time::NEVER;
                self.feed(Input::Timer);
            }
            if now >= self.accepting.again {
                self.accepting.again = Time::NEVER;
                self.accept();
            }
            self.connections.drop_closed(now);
        }
    }

    /// Lets a job that has ended wait for the disk that must record this, but not for ever.
    fn check_disk(&mut self, now: Time) -> Result<()> {
        let Some(writer) = self.writer.as_mut().filter(|_| self.ended.is_none() && self.brain.has_ended()) else {
            self.disk_deadline = Time::NEVER;
            return Ok(());
        };
        self.disk_deadline = self.disk_deadline.min(now + writer.patience());
        if now < self.disk_deadline {
            return Ok(());
        }
        Err(writer.stands_still())
    }

    /// Sleeps at most so long, then serves what is ready: nodes first, and then a few of the others. Returns whether
    /// anything was ready.
    fn round(&mut self, timeout: Option<Duration>) -> Result<bool> {
        self.poller
            .poll(timeout)
            .map_err(|error| Error::system("the scheduler cannot wait for its sockets", &error))?;
        let mut ready: Vec<Token> = self.poller.ready().map(|ready| ready.token).collect();
        ready.extend(self.connections.to_read().map(|id| Token(id.0 as usize)));
        for token in &ready {
            match *token {
                WAKER => {
                    self.waker.drain();
                    match self.wanted.swap(0, Ordering::SeqCst) {
                        STOP => self.feed(Input::Stop),
                        VANISH => return Err(Error::new(Status::Aborted, "its process gave it up")),
                        _ => {}
                    }
                    self.look_at_writer()?;
                }
                LISTENER => self.accept(),
                Token(id) if self.connections.is_first(ConnId(id as u64)) => self.serve(ConnId(id as u64)),
                _ => {}
            }
        }
        let is_idle = ready.is_empty() && self.connections.line.is_empty();
        for _ in 0..STRANGERS_AT_ONCE {
            let Some(id) = self.connections.line.take() else { break };
            self.serve(id);
        }
        Ok(!is_idle)
    }

    /// Hears what has become durable, or why nothing becomes durable any more. Then this scheduler ends, and keeps no
    /// promise that it could not keep after a restart.
    fn look_at_writer(&mut self) -> Result<()> {
        let Some(progress) = self.writer.as_ref().map(Writer::progress) else { return Ok(()) };
        if let Some(error) = progress.failed {
            return Err(error);
        }
        self.feed(Input::Persisted(progress.durable));
        if progress.is_long {
            let records = self.brain.snapshot();
            if let Some(writer) = &self.writer {
                writer.rewrite(records);
            }
        }
        Ok(())
    }

    fn accept(&mut self) {
        if self.ended.is_some() {
            return; // nobody would ever close what comes now
        }
        for _ in self.connections.line.len()..ACCEPTED_AT_ONCE {
            match self.listener.accept() {
                Ok((transport, address)) => {
                    let is_short = limit::is_short(transport.descriptor());
                    // A connection that ended at once was never there.
                    if let Some(id) = self.connections.insert(transport, self.poller.registry()) {
                        self.feed(Input::Opened(id, address.to_string()));
                    }
                    if is_short {
                        self.is_short_of_descriptors(false);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    self.accepting.has_waited = false;
                    return;
                }
                Err(error) => {
                    let before = self.connections.len();
                    self.is_short_of_descriptors(true);
                    let why = limit::shortage(&error).unwrap_or_else(|| error.to_string());
                    if !std::mem::replace(&mut self.accepting.has_waited, true) {
                        self.logger.warn(&format!("connections have to wait: {why}"));
                    }
                    if self.connections.len() == before {
                        self.accepting.again = self.clock.now() + listener::EXHAUSTED_PAUSE;
                        return;
                    }
                }
            }
        }
        self.accepting.again = self.clock.now(); // the poller will not report the other connections
    }

    /// This process is short of descriptors, or has none left. Connections that are being closed are dropped first.
    fn is_short_of_descriptors(&mut self, none_left: bool) {
        self.connections.are_short(none_left);
        self.feed(Input::ShortOfDescriptors(none_left));
    }

    /// Reads and writes one connection.
    fn serve(&mut self, id: ConnId) {
        let Some(read) = self.connections.read(id) else { return };
        if read.any {
            self.feed(Input::Heard(id));
        }
        for arrival in read.arrivals {
            match arrival {
                Ok(Message::Register(mut register)) => {
                    if let Err(why) = self.connections.check_identity(id, &register) {
                        return self.refuse(id, why.told, &why.logged);
                    }
                    self.connections.becomes_nodes(id);
                    if let (Some(secret), Some(reentry)) = (&self.connections.guard.secret, &mut register.reentry) {
                        secret.mask(register.incarnation, &mut reentry.tokens);
                    }
                    self.feed(Input::Received(id, Message::Register(register)));
                }
                Ok(message) => {
                    match message {
                        Message::StoreBegin(_) | Message::StorePiece(_) => self.connections.store.lookout.stir(),
                        Message::Watch(_) => self.connections.asks_for_signs(id),
                        _ => {}
                    }
                    self.feed(Input::Received(id, message));
                }
                Err((kind, payload, error)) => return self.undecodable(id, kind, &payload, &error.0),
            }
        }
        match read.end {
            None => self.connections.write(),
            Some(end) => self.lose(id, &end),
        }
    }

    /// A message that cannot be understood ends its connection. One that asks in another protocol is told so.
    fn undecodable(&mut self, id: ConnId, kind: u8, payload: &[u8], why: &str) {
        if kind == PROOF_ASK {
            let why = "the process that connects proves a job secret, and this scheduler has none";
            let reason = format!("{why}: MUSTER_JOB_SECRET (or MUSTER_JOB_SECRET_FILE) must be the same everywhere");
            // A node of a launcher's job then goes on looking: this may be the scheduler of another job that has the
            // same port.
            let answer = match self.brain.has_derived_job() {
                true => Message::PassBy(PassBy { reason }),
                false => Message::Rejected(Rejected { status: Status::Rejected, reason }),
            };
            return self.refuse_with(id, answer, "it proves a job secret, and none is set here (job_secret)");
        }
        if let (true, Ok((lowest, highest))) = (WITH_RANGE.contains(&kind), Register::protocol_range(payload)) {
            if lowest > PROTOCOL_HIGHEST || highest < PROTOCOL_LOWEST {
                let reason = format!(
                    "the process that connects speaks protocols {lowest} to {highest}, the scheduler speaks {PROTOCOL_LOWEST} to \
                     {PROTOCOL_HIGHEST}: they have none in common; both need libraries of about the same age"
                );
                return self.refuse(id, reason, &format!("it speaks protocols {lowest} to {highest}"));
            }
        }
        self.lose(id, &ControlEnd::Garbage(why.to_owned()));
    }

    /// Tells a stranger why it is not let in, and logs the reason.
    fn refuse(&mut self, id: ConnId, reason: String, logged: &str) {
        self.refuse_with(id, Message::Rejected(Rejected { status: Status::Rejected, reason }), logged);
    }

    fn refuse_with(&mut self, id: ConnId, answer: Message, logged: &str) {
        self.send(id, answer);
        self.connections.write();
        self.lose(id, &ControlEnd::Refused(logged.to_owned()));
    }

    /// A connection has ended.
    fn lose(&mut self, id: ConnId, end: &ControlEnd) {
        let is_news = match end {
            ControlEnd::Refused(_) => self.connections.refuse(id, self.clock.now()),
            _ => self.connections.remove(id),
        };
        if is_news {
            let how = match end {
                ControlEnd::Ended(_) => Closed::Ended,
                ControlEnd::Broken(_) => Closed::Broken,
                ControlEnd::Refused(_) => Closed::Refused,
                ControlEnd::Garbage(_) | ControlEnd::Strange(_) | ControlEnd::Encrypted(_) => Closed::Garbage,
            };
            self.feed(Input::Closed(id, how, end.reason().to_owned()));
        }
    }

    /// Feeds the brain, and does what it wants done. The consequences (a lost connection, a probe's answer) wait in
    /// `inputs` for their turn: one input, then all outputs, then the next.
    fn feed(&mut self, input: Input) {
        self.inputs.push_back(input);
        if !self.feeding {
            self.drain();
        }
    }

    fn drain(&mut self) {
        self.feeding = true;
        loop {
            while let Some(output) = self.brain.next_output() {
                self.carry_out(output);
                self.connections.write_if_many();
            }
            self.connections.write();
            let Some(input) = self.inputs.pop_front() else { break };
            self.brain.handle(self.clock.now(), input);
        }
        self.feeding = false;
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send(id, message) => self.send(id, message),
            Output::Close(id) => self.connections.close(id, self.clock.now()),
            Output::Probe(process) => {
                let liveness = match host::alive(process.pid, process.start_ticks) {
                    host::Liveness::Gone => membership::Liveness::Gone,
                    host::Liveness::Alive | host::Liveness::Unknown => membership::Liveness::Alive,
                };
                self.feed(Input::Probed(process, liveness));
            }
            Output::WantSecret => match host::random_bytes() {
                Ok(secret) => self.feed(Input::Secret(Secret(secret))),
                Err(error) => self.logger.error(&format!("no next epoch can be made: {}", error.message())),
            },
            Output::Persist(number, record) => {
                if let Some(writer) = &self.writer {
                    writer.append(number, record);
                }
            }
            Output::Arm(at) => self.armed = at,
            Output::Log { quiet: true, line } => self.logger.info(&line),
            Output::Log { quiet: false, line } => self.logger.warn(&line),
            Output::Ended(result) => {
                self.ended = Some(result);
                self.connections.close_all(self.clock.now());
            }
        }
    }

    fn send(&mut self, id: ConnId, mut message: Message) {
        if let (Some(_), Message::Formed(formed)) = (&self.connections.guard.secret, &mut message) {
            formed.secret = Secret([0; 32]); // the node makes it itself
        }
        if let Err(end) = self.connections.send(id, message) {
            self.lose(id, &end);
        }
    }
}

/// Logs where this scheduler listens: a user who asks it how its job is must know, and may not have chosen the port.
fn tell_where(logger: &Logger, listener: &Listener, settings: &Settings) {
    let addresses: Vec<String> = listener.local_addresses().iter().map(SocketAddr::to_string).collect();
    let job = settings.derived_job.as_ref().map_or_else(String::new, |job| format!(", for the job {:?}", job.mark()));
    logger.info(&format!("the scheduler listens at {}{job}", addresses.join(" and ")));
}

#[cfg(test)]
#[path = "serving_test.rs"]
mod tests;
