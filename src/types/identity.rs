//! Identities: roles, lives, hosts and processes.

use std::fmt;
use std::net::IpAddr;

/// What a process is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Role {
    /// Forms the cluster and keeps the store; runs no training code.
    Scheduler = 0,
    /// Takes part in collectives.
    Worker = 1,
    /// A parameter server: numbered like a worker, in its own rank space.
    Server = 2,
}

impl Role {
    /// The role with this number on the wire and in the C ABI.
    pub fn from_code(code: u8) -> Option<Role> {
        [Role::Scheduler, Role::Worker, Role::Server].into_iter().find(|role| *role as u8 == code)
    }

    /// The role that a value of `MS_ROLE` names.
    pub fn from_ms_name(name: &str) -> Option<Role> {
        [Role::Scheduler, Role::Worker, Role::Server].into_iter().find(|role| role.ms_name() == name)
    }

    /// What `MS_ROLE` calls it.
    pub fn ms_name(self) -> &'static str {
        match self {
            Role::Scheduler => "MS_SCHED",
            Role::Worker => "MS_WORKER",
            Role::Server => "MS_PSERVER",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Scheduler => "scheduler",
            Role::Worker => "worker",
            Role::Server => "server",
        })
    }
}

/// The number of one complete membership. The first is 1, and it only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The first one of a job.
    pub const FIRST: Epoch = Epoch(1);
}

/// The number of one life of a node: random, drawn anew at each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub [u8; 16]);

/// What a node keeps in order to prove, when it comes back, that it is the same one: random, drawn anew by each life.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub [u8; 32]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)") // a process that knows the token can take the node's place
    }
}

/// What others keep of a token (SHA-256): enough to know it again, and not to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    /// The hash of this token.
    pub fn of(token: &Token) -> TokenHash {
        let digest = ring::digest::digest(&ring::digest::SHA256, &token.0);
        TokenHash(digest.as_ref().try_into().expect("SHA-256 gives 32 bytes"))
    }
}

/// An epoch's secret: the members let in a process that knows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The number of one job of one scheduler: random, drawn when the job begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobInstance(pub [u8; 16]);

/// A group within an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl GroupId {
    /// All workers.
    pub const WORLD: GroupId = GroupId(0);
    /// All parameter servers.
    pub const SERVERS: GroupId = GroupId(1);
    /// All workers, then all servers.
    pub const UNIVERSE: GroupId = GroupId(2);
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            GroupId::WORLD => f.write_str("world"),
            GroupId::SERVERS => f.write_str("servers"),
            GroupId::UNIVERSE => f.write_str("universe"),
            GroupId(other) => write!(f, "group {other}"),
        }
    }
}

/// By this a launcher knows a process that it started, and all that runs in that process's place. It is a hash of a
/// word that is drawn at each start, and passed on in the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaunchId(pub [u8; 16]);

impl LaunchId {
    /// The id that belongs to this word.
    pub fn of(word: &str) -> LaunchId {
        let digest = ring::digest::digest(&ring::digest::SHA256, word.as_bytes());
        LaunchId(*digest.as_ref().first_chunk().expect("SHA-256 gives 32 bytes"))
    }
}

/// The accelerator that a node works with, as far as the node was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its number on its host.
    pub id: Option<u32>,
    /// The address of its own network port.
    pub ip: Option<IpAddr>,
}

/// The host that a node runs on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName {
    /// What people call it.
    pub name: String,
    /// What tells it from every other host: name and boot id, or `MUSTER_HOST_ID`.
    pub key: String,
}

/// A process, so that another on the same host can tell whether it still lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it began, in the kernel's ticks since boot. Two processes with the same number differ in this.
    pub start_ticks: u64,
    /// The namespaces of processes and of time in which `pid` and `start_ticks` hold (their inodes, as one number).
    pub pid_namespace: u64,
}
