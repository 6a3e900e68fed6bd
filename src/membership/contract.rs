//! What goes into the scheduler's brain and what comes out of it.

use crate::error::Error;
use crate::types::{HostName, JobInstance, Process, Secret, Time};
use crate::wire::{Agreed, Message, Record};
use std::time::Duration;

/// One connection to the scheduler, numbered by the driver and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// In order, or by reset: what the end of a process looks like.
    Ended,
    /// By time-out or "unreachable": what a broken network looks like.
    Broken,
    /// It sent what is not this protocol; the driver closed it.
    Garbage,
    /// TLS, the job's secret or its protocols keep it out, on this side or on its own.
    Refused,
}

/// What a look at a process on the scheduler's own host tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It runs.
    Alive,
    /// It has ended.
    Gone,
}

/// One thing that has happened.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // they live briefly, and rarely in numbers
pub enum Input {
    /// A connection was accepted, from this address (for sentences).
    Opened(ConnId, String),
    /// This process has few descriptors left; with `true` none, so that a connection has to wait.
    ShortOfDescriptors(bool),
    /// A whole message came in.
    Received(ConnId, Message),
    /// Bytes came in, whether or not they make a whole message: a sign of life. Told at most once per round of reading.
    Heard(ConnId),
    /// A connection ended, for the reason in words.
    Closed(ConnId, Closed, String),
    /// The answer to an `Output::Probe`.
    Probed(Process, Liveness),
    /// The answer to `Output::WantSecret`.
    Secret(Secret),
    /// All records up to this number are durable.
    Persisted(u64),
    /// The armed time has come. Fed only after everything readable has been fed.
    Timer,
    /// The program that hosts the scheduler wants it to end now.
    Stop,
}

/// One thing to do, in order.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // they live briefly, and rarely in numbers
pub enum Output {
    /// Send a message.
    Send(ConnId, Message),
    /// Close a connection once what was sent before is written (within a bound that the driver keeps).
    Close(ConnId),
    /// Look whether a process on this host lives, and feed `Input::Probed`.
    Probe(Process),
    /// Draw a secret, and feed `Input::Secret`. If drawing fails, the brain asks again.
    WantSecret,
    /// Write this record, in order. When it is durable, feed `Input::Persisted` with its number, or a later one's. What
    /// depends on it comes out after that.
    Persist(u64, Record),
    /// Feed `Input::Timer` at this time; replaces what was armed before.
    Arm(Time),
    /// A line for the log, at warning level or, with `true`, at information level.
    Log {
        /// Whether it is only information.
        quiet: bool,
        /// The line.
        line: String,
    },
    /// The job has ended; nothing follows but what is still to be written.
    Ended(Result<(), Error>),
}

/// This scheduler's identity.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The job's random name.
    pub instance: JobInstance,
    /// The job before it in the same journal, if this scheduler found that one done.
    pub before: Option<JobInstance>,
    /// The present epoch's data-plane secret; at the beginning that of the first epoch.
    pub secret: Secret,
    /// Its host: processes there can be probed.
    pub host: HostName,
    /// Its process. It can probe processes in the same pid namespace.
    pub process: Process,
}

/// The rules of this job, from the scheduler's own settings.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The job's id, if it has one.
    pub job_id: Option<String>,
    /// The id by which this process's launcher tells the job from others, if nobody has named the job.
    pub derived_job: Option<String>,
    /// How many workers there will be.
    pub worker_num: u32,
    /// How many servers.
    pub server_num: u32,
    /// Whether recovery is on.
    pub recovery: bool,
    /// Whether what is promised is written down first (`Output::Persist`).
    pub durable: bool,
    /// How long forming may take, counted from the scheduler's start.
    pub forming_timeout: Option<Duration>,
    /// The setting that says so, in words.
    pub forming_setting: String,
    /// What all nodes do alike. `Formed` tells it to them.
    pub agreed: Agreed,
    /// The thresholds that take the place of the agreed ones where all nodes are on one host.
    pub one_host: Vec<u64>,
    /// What the store holds at most.
    pub store: StoreLimits,
}

/// Limits of the store, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct StoreLimits {
    /// The longest key.
    pub key_max: usize,
    /// The longest value.
    pub value_max: usize,
    /// Keys and values together, transfers under way included.
    pub total_max: usize,
}
